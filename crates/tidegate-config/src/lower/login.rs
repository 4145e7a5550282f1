//! `users` and `login`: sources of users with what their files say, and that what is named is there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use crate::check::{Checker, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::Disk;
use crate::include::TopNode;
use crate::settings::{
    Account, CertificateName, CertificateRequirement, DistinguishedPattern, ListenAddress, Listener, Login,
    Origin, Required, Requirement, Settings, UserCache, UserSource,
};
use crate::source::Source;
use crate::suggest;
use crate::value::{Value, asks_for_user};

/// Most users of one source.
const USERS: usize = 1_000_000;

/// The sources of the top level.
pub(super) fn sources(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Vec<UserSource> {
    let mut sources: Vec<UserSource> = Vec::new();
    let mut taken: HashMap<String, Origin> = HashMap::new();
    for item in items.iter().filter(|item| item.directive.name == "users") {
        let Some(name) = item.texts().pop() else { continue };
        if let Some(origin) = taken.get(&name) {
            let message = format!("other users are named `{name}` already");
            let help = format!("they stand in {origin}; give one of the two another name");
            checker.diagnostics.push(item.error_at(0, message).help(help));
            continue;
        }
        if item.child("htpasswd").or(item.child("ldap")).is_none()
            && !item.is_faulty
            && !item.misspells(Context::Users, &["htpasswd", "ldap"])
        {
            let message = "these users are known nowhere";
            let help = "name the file with their passwords, `htpasswd \"/etc/tidegate/staff\"`, or a directory, `ldap`";
            checker.diagnostics.push(item.error(message).help(help));
        }
        let (accounts, cache) = (accounts(checker, disk, item).into(), cache(item));
        let directory = item.child("ldap").and_then(|ldap| super::directory::directory(checker, disk, ldap));
        taken.insert(name.clone(), item.origin());
        sources.push(UserSource { name, accounts, directory, cache, origin: item.origin() });
    }
    sources
}

fn cache(item: &Item) -> UserCache {
    let cache = super::written_or_default(&item.children, Context::Users, "cache");
    let property = |name: &str| cache.as_ref().and_then(|cache| cache.property(name));
    let number = |name| match property(name) {
        Some(Value::Number(number)) => u32::try_from(number).unwrap_or(u32::MAX),
        _ => 0,
    };
    let lifetime = match property("lifetime") {
        Some(Value::Duration(lifetime)) => lifetime,
        _ => Duration::ZERO,
    };
    UserCache { lifetime, users: number("users"), groups: number("groups") }
}

/// The users of the files, with their groups.
fn accounts(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Vec<Account> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in item.children.iter().filter(|child| child.directive.name == "groups") {
        each_line(checker, disk, file, |line| {
            // `admins: anna ben`, as Apache's `AuthGroupFile`.
            let Some((group, names)) = line.split_once(':') else {
                return Err("a line of a group is `admins: anna ben`".to_owned());
            };
            for name in names.split_whitespace() {
                groups.entry(name.to_owned()).or_default().push(group.trim().to_owned());
            }
            Ok(())
        });
    }
    let (mut accounts, mut seen) = (Vec::new(), HashSet::new());
    for file in item.children.iter().filter(|child| child.directive.name == "htpasswd") {
        let mut is_full = false;
        each_line(checker, disk, file, |line| {
            let Some((name, rest)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                return Err("a line of a user is `anna:$2y$…`, as `htpasswd` writes it".to_owned());
            };
            // Behind a further colon old tools keep other things.
            let hash = rest.split(':').next().unwrap_or_default();
            hash_kind(hash)?;
            is_full |= accounts.len() >= USERS;
            if !is_full && seen.insert(name.to_owned()) {
                let mut groups = groups.remove(name).unwrap_or_default();
                groups.sort_unstable();
                groups.dedup();
                accounts.push(Account { name: name.to_owned(), hash: hash.to_owned(), groups });
            }
            Ok(())
        });
        if is_full {
            let message = format!("there are more than {USERS} users");
            checker.diagnostics.push(file.error_at(0, message).help("keep so many in a directory (LDAP)"));
        }
    }
    accounts
}

/// Reads a file line by line. What is wrong in it is said with its line: the first mistake, and how many there are.
fn each_line(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    mut take: impl FnMut(&str) -> Result<(), String>,
) {
    let Some(Value::Path(path)) = item.first() else { return };
    let text = match disk.read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            checker.diagnostics.push(unreadable(item, path, &error));
            return;
        }
    };
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let meant = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let wrong: Vec<(usize, String)> =
        meant.filter_map(|(number, line)| take(line).err().map(|why| (number, why))).collect();
    if let [(line, why), rest @ ..] = wrong.as_slice() {
        let more = match rest.len() {
            0 => String::new(),
            count => format!("; {count} more lines are wrong"),
        };
        let message = format!("{}:{line}: {why}{more}", path.display());
        let help = "such a line counts for nobody; write it anew with `htpasswd -B FILE NAME`";
        let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
        checker.diagnostics.push(warning.help(help));
    }
}

fn unreadable(item: &Item, path: &Path, error: &std::io::Error) -> Diagnostic {
    let help = match error.kind() {
        ErrorKind::FileTooLarge => "keep so many in several files",
        _ => "make it with `htpasswd -B -c FILE NAME`, readable for the user that starts the server",
    };
    item.error_at(0, format!("{} cannot be read: {error}", path.display())).help(help)
}

/// What a hash is not, where no password could be compared with it.
fn hash_kind(hash: &str) -> Result<(), String> {
    const KNOWN: [&str; 9] =
        ["$2a$", "$2b$", "$2y$", "$argon2id$", "$argon2i$", "$argon2d$", "$5$", "$6$", "$apr1$"];
    if KNOWN.iter().any(|prefix| hash.starts_with(prefix)) {
        return Ok(());
    }
    let kind = match hash {
        "" => "there is no password",
        "!" | "*" | "x" => "the account is locked",
        hash if hash.starts_with("{SHA}") => "SHA-1 without a salt is found out in no time",
        hash if hash.starts_with("$1$") => "MD5 of crypt(3) is found out in no time",
        hash if hash.starts_with("$y$") => "yescrypt is not known here",
        hash if hash.starts_with('$') => "this kind of password hash is not known here",
        hash if hash.len() == 13 => "this may be DES of crypt(3), which is found out in no time",
        _ => "the password stands there as it is",
    };
    Err(kind.to_owned())
}

/// What a `login` says; `None` where something is wrong with it, or it is `off`.
pub(super) fn login(item: &Item) -> Option<Login> {
    let users = item.texts().into_iter().next()?;
    let realm = match item.property("realm") {
        Some(Value::Text(realm)) => realm,
        _ => users.clone(),
    };
    Some(Login { users, realm, origin: item.origin() })
}

/// What a `require` says.
pub(super) fn requirement(item: &Item) -> Option<Requirement> {
    let what = match item.first()? {
        Value::Word("group") => Required::Group,
        _ => Required::User,
    };
    let mut names = item.texts();
    names.sort_unstable();
    (!names.is_empty()).then(|| Requirement { what, names, origin: item.origin() })
}

/// Whether a `require` is of certificates.
pub(super) fn is_of_certificates(item: &Item) -> bool {
    matches!(item.first(), Some(Value::Word("certificate")))
}

/// What a `require certificate` says; nothing where something is wrong with it.
pub(super) fn certificates(item: &Item) -> Option<CertificateRequirement> {
    let names = item.texts().iter().map(|text| CertificateName::read(text)).collect::<Result<_, _>>().ok()?;
    let issuer = match item.property("issuer") {
        Some(Value::Text(issuer)) => Some(DistinguishedPattern::read(&issuer).ok()?),
        _ => None,
    };
    Some(CertificateRequirement { names, issuer, origin: item.origin() })
}

/// Says what is wrong with a `require`.
fn check_requirement(checker: &mut Checker<'_>, item: &Item) {
    if !is_of_certificates(item) {
        if item.texts().is_empty() && !item.is_faulty {
            let error = item.error("`require` does not say whom it lets in");
            checker.diagnostics.push(error.help(format!("for example `{}`", item.directive.example)));
        }
        if item.property("issuer").is_some() {
            let error = item.error("`issuer` is for `require certificate` alone");
            checker.diagnostics.push(error.help("take it out"));
        }
        return;
    }
    let help = "write `\"dns:*.corp.example\"`, `\"email:anna@example.com\"`, `\"uri:…\"`, `\"cn:anna\"`, `\"subject:CN=anna,O=Corp\"` \
                or `\"fingerprint:…\"`";
    for (at, text) in item.texts().iter().enumerate() {
        if let Err(why) = CertificateName::read(text) {
            let message = format!("`{text}` is no name in a certificate: {why}");
            checker.diagnostics.push(item.error_at(at + 1, message).help(help));
        }
    }
    if let Some(Value::Text(issuer)) = item.property("issuer")
        && let Err(why) = DistinguishedPattern::read(&issuer)
    {
        let error = item.error(format!("`issuer`: {why}"));
        checker.diagnostics.push(error.help("write it as `\"CN=Corp CA,O=Corp\"`"));
    }
}

/// Looks at what is said of logins in a site or a route: that the users are known, and that who is required of is asked who
/// he is.
pub(super) fn check(checker: &mut Checker<'_>, items: &[Item], sources: &BTreeSet<String>, logs_in: bool) {
    let written = |name: &'static str| items.iter().filter(move |item| item.directive.name == name);
    for item in written("login").filter(|item| !item.is_word("off")) {
        let Some(name) = item.texts().into_iter().next() else {
            if !item.is_faulty {
                let message = "`login` does not say who may log in";
                let help = "name users of the top level: `login basic \"staff\"`";
                checker.diagnostics.push(item.error(message).help(help));
            }
            continue;
        };
        if sources.contains(&name) {
            continue;
        }
        let near = suggest::nearest(&name, sources.iter().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("add it at the top level: `users \"{name}\" {{ htpasswd \"/etc/tidegate/{name}\" }}`")
            }
        };
        checker.diagnostics.push(item.error_at(1, format!("no users are named `{name}`")).help(help));
    }
    written("require").for_each(|item| check_requirement(checker, item));
    // Who has shown a certificate is somebody, too.
    let shows = written("require").any(is_of_certificates);
    if let Some(item) = written("require").find(|item| !is_of_certificates(item))
        && !logs_in
        && !shows
    {
        let message = "nobody gets in here: who it is is not asked";
        let help = "write `login basic \"staff\"` beside it or around it";
        let warning = Diagnostic { severity: Severity::Warning, ..item.error(message) };
        checker.diagnostics.push(warning.help(help));
    }
}

/// Warns of logins whose passwords may cross a network as they are.
pub(super) fn without_tls(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let is_open = |listener: &Listener| match &listener.address {
        ListenAddress::Tcp(address) => {
            listener.tls.is_none() && listener.redirects_to_https.is_none() && !address.ip().is_loopback()
        }
        ListenAddress::Unix(_) => false,
    };
    if !settings.listeners.iter().any(is_open) {
        return;
    }
    // Proxies of one's own speak TLS with the client.
    let sites = settings.sites.iter().filter(|site| !site.is_https_only && site.trusted_proxies.is_empty());
    let logins = sites.flat_map(|site| &site.routes).filter_map(|route| route.identification.login.as_ref());
    // Routes that inherit one stand behind each other.
    let mut logins: Vec<&Origin> = logins.map(|login| &login.origin).collect();
    logins.dedup();
    let sources = sources_by_name(nodes);
    for origin in logins {
        let message =
            "passwords may cross the network as they are: a `listen` of these sites does not speak TLS";
        let help = "write `hsts \"365d\"` in the site, which sends everybody to https, or `listen \":80\" { redirect-to-https }`";
        let warning = Diagnostic::warning(message).help(help);
        point_at(checker, &sources, origin, warning);
    }
}

/// Warns of limits that count users where nobody logs in: all of them count as one.
pub(super) fn limits_of_nobody(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let routes = settings.sites.iter().flat_map(|site| &site.routes);
    let of_nobody = routes.filter(|route| route.identification.login.is_none());
    let limits = of_nobody.flat_map(|route| &route.rates).filter(|limit| asks_for_user(&limit.by));
    let mut origins: Vec<&Origin> = limits.map(|limit| &limit.origin).collect();
    origins.dedup();
    let sources = sources_by_name(nodes);
    for origin in origins {
        let message = "nobody logs in where this limit counts users: everybody counts as one there";
        let help = "write `login basic \"staff\"` beside it or around it, or `by=\"{client}{user}\"`";
        point_at(checker, &sources, origin, Diagnostic::warning(message).help(help));
    }
}

/// The files that were read, by their names.
pub(super) fn sources_by_name(nodes: &[TopNode]) -> HashMap<&str, &Source> {
    // The first of a name, as an origin means it.
    nodes.iter().rev().map(|top| (&*top.file.source.name, &top.file.source)).collect()
}

pub(super) fn point_at(
    checker: &mut Checker<'_>,
    sources: &HashMap<&str, &Source>,
    origin: &Origin,
    warning: Diagnostic,
) {
    let source = sources.get(&*origin.file);
    let place = source.and_then(|source| Some((source, source.written_at(origin)?)));
    checker.diagnostics.push(match place {
        Some((source, range)) => warning.at(source, range),
        None => warning,
    });
}
