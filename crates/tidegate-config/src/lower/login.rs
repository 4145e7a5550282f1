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
    Account, ListenAddress, Listener, Login, Origin, Required, Requirement, Settings, UserCache, UserSource,
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
        each_line(checker, disk, file, "write it as `admins: anna ben`", |line| {
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
        each_line(checker, disk, file, "write it anew with `htpasswd -B FILE NAME`", |line| {
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
    cure: &str,
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
        let help = format!("such a line counts for nobody; {cure}");
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
    if let Some(known) = Known::of(hash) {
        return match known.is_whole(hash) {
            true => Ok(()),
            false => Err(format!("this {} hash is torn: some of it is missing or was added", known.name())),
        };
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

/// Kinds of hashes that passwords are compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Bcrypt,
    Argon2,
    Sha256,
    Sha512,
    Apr1,
}

impl Known {
    fn of(hash: &str) -> Option<Known> {
        const PREFIXES: [(&str, Known); 9] = [
            ("$2a$", Known::Bcrypt),
            ("$2b$", Known::Bcrypt),
            ("$2y$", Known::Bcrypt),
            ("$argon2id$", Known::Argon2),
            ("$argon2i$", Known::Argon2),
            ("$argon2d$", Known::Argon2),
            ("$5$", Known::Sha256),
            ("$6$", Known::Sha512),
            ("$apr1$", Known::Apr1),
        ];
        PREFIXES.iter().find(|(prefix, _)| hash.starts_with(prefix)).map(|(_, known)| *known)
    }

    fn name(self) -> &'static str {
        match self {
            Known::Bcrypt => "bcrypt",
            Known::Argon2 => "argon2",
            Known::Sha256 => "SHA-256",
            Known::Sha512 => "SHA-512",
            Known::Apr1 => "apr1",
        }
    }

    /// Whether it has all of its parts, each as long as it has to be.
    fn is_whole(self, hash: &str) -> bool {
        let is_of = |text: &str, more: &str, length: usize| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte as char))
        };
        let parts: Vec<&str> = hash.split('$').skip(2).collect();
        match (self, parts.as_slice()) {
            (Known::Bcrypt, [cost, rest]) => {
                let cost = cost.parse::<u8>().ok().filter(|_| cost.len() == 2);
                cost.is_some_and(|cost| (4..=31).contains(&cost)) && is_of(rest, "./", 53)
            }
            (Known::Apr1, [salt, sum]) => !salt.is_empty() && is_of(sum, "./", 22),
            (Known::Sha256 | Known::Sha512, [.., sum]) if (2..=3).contains(&parts.len()) => {
                let has_rounds = parts.len() == 2
                    || parts[0].strip_prefix("rounds=").is_some_and(|rounds| rounds.parse::<u32>().is_ok());
                has_rounds && is_of(sum, "./", if self == Known::Sha256 { 43 } else { 86 })
            }
            (Known::Argon2, [.., parameters, salt, sum]) if (3..=4).contains(&parts.len()) => {
                let has = |name| {
                    parameters.split(',').any(|parameter| {
                        let value = parameter.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                        value.is_some_and(|value| value.parse::<u32>().is_ok())
                    })
                };
                let is_text = |text: &str, least| text.len() >= least && is_of(text, "+/", text.len());
                ["m", "t", "p"].into_iter().all(has) && is_text(salt, 11) && is_text(sum, 14)
            }
            _ => false,
        }
    }
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
    if let Some(item) = written("require").next()
        && !logs_in
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
fn sources_by_name(nodes: &[TopNode]) -> HashMap<&str, &Source> {
    // The first of a name, as an origin means it.
    nodes.iter().rev().map(|top| (&*top.file.source.name, &top.file.source)).collect()
}

fn point_at(
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
