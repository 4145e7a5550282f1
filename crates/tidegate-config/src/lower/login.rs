//! `users` and `login`: sources of users with what their files say, and that what is named is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inherit::Inherited;
use crate::accounts::{self, Reader, USERS, Wrong};
use crate::check::{Checker, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::Disk;
use crate::include::{TopNode, files_of};
use crate::settings::{
    Account, AccountFiles, Action, CertificateName, CertificateRequirement, DistinguishedPattern, How,
    Identification, ListenAddress, Listener, Login, Origin, PathPattern, Required, Requirement, Route,
    Settings, Signed, UrlKeys, UserCache, UserSource,
};
use crate::source::Source;
use crate::suggest;
use crate::url_keys;
use crate::value::{Value, asks_for_user};

/// The sources of the top level.
pub(super) fn sources(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Vec<UserSource> {
    let upstreams = items.iter().filter(|item| item.directive.name == "upstream");
    let upstreams: BTreeSet<String> = upstreams.filter_map(|item| item.texts().into_iter().next()).collect();
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
        if !KINDS.iter().any(|kind| item.child(kind).is_some())
            && !item.is_faulty
            && !item.misspells(Context::Users, &KINDS)
        {
            let message = "these users are known nowhere";
            let help = "name the file with their passwords, `htpasswd \"/etc/tidegate/staff\"`, a directory, `ldap`, an \
                        application, `forward`, the keys of tokens, `tokens`, or an identity provider, `openid`";
            checker.diagnostics.push(item.error(message).help(help));
        }
        let ((files, accounts), cache) = (accounts(checker, disk, item), cache(item));
        let directory = item.child("ldap").and_then(|ldap| super::directory::directory(checker, disk, ldap));
        if let Some(tokens) = item.child("tokens")
            && let Some(other) = item
                .children
                .iter()
                .find(|child| matches!(child.directive.name, "htpasswd" | "groups" | "ldap" | "forward"))
        {
            let message =
                format!("`{}` stands beside `tokens`, which alone say who it is", other.directive.name);
            let help = format!("take one of the two out; `tokens` stands in {}", tokens.origin());
            checker.diagnostics.push(other.error(message).help(help));
        }
        if let Some(openid) = item.child("openid") {
            let names = ["htpasswd", "groups", "ldap", "forward", "tokens"];
            if let Some(other) = item.children.iter().find(|child| names.contains(&child.directive.name)) {
                let message =
                    format!("`{}` stands beside `openid`, which alone says who it is", other.directive.name);
                let help = format!("take one of the two out; `openid` stands in {}", openid.origin());
                checker.diagnostics.push(other.error(message).help(help));
            }
            // It is a part of the name of a cookie.
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
                let message = format!("`{name}` cannot be the name of users with an identity provider");
                checker
                    .diagnostics
                    .push(item.error_at(0, message).help("write it with letters, digits and `-`"));
            }
        }
        let openid = item.child("openid").and_then(|openid| super::openid::openid(checker, disk, openid));
        let tokens = item.child("tokens").and_then(|tokens| super::tokens::tokens(checker, disk, tokens));
        if let Some(forward) = item.child("forward")
            && let Some(other) = item
                .children
                .iter()
                .find(|child| matches!(child.directive.name, "htpasswd" | "groups" | "ldap" | "cache"))
        {
            let message = format!("`{}` stands beside `forward`, which alone decides", other.directive.name);
            let help = format!("take one of the two out; `forward` stands in {}", forward.origin());
            checker.diagnostics.push(other.error(message).help(help));
        }
        let forward =
            item.child("forward").and_then(|forward| super::forward::forward(checker, forward, &upstreams));
        taken.insert(name.clone(), item.origin());
        sources.push(UserSource {
            name,
            files,
            accounts: accounts.into(),
            directory,
            forward,
            tokens,
            openid,
            cache,
            origin: item.origin(),
        });
    }
    sources
}

/// What `login` and `signed` may name.
pub(crate) struct Known {
    /// How they prove who they are; `None` where a mistake in their block leaves that open.
    users: BTreeMap<String, Option<How>>,
    /// Of users that files alone know: their names, and their groups.
    listed: BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>,
    /// The paths that a login takes of its site, by its users.
    taken: BTreeMap<String, [String; 2]>,
    keys: BTreeSet<String>,
}

impl Known {
    /// Whether a login takes paths of its site.
    pub fn takes_paths(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Of the top level.
    pub fn of(settings: &Settings, items: &[Item]) -> Known {
        let named = |name: &str| {
            let users = items.iter().filter(|item| item.directive.name == "users");
            users.into_iter().find(|item| item.texts().first().is_some_and(|first| first == name))
        };
        // By what is written, since what has a mistake in it is not among the settings.
        let how = |source: &UserSource| match named(&source.name) {
            Some(item) if item.child("openid").is_some() => Some(How::Openid),
            Some(item) if item.child("tokens").is_some() => Some(How::Token),
            Some(item) if item.child("forward").is_some() => Some(How::Forward),
            Some(item) if item.child("htpasswd").is_none() && item.child("ldap").is_none() => None,
            _ => Some(source.how()),
        };
        Known {
            users: settings.users.iter().map(|source| (source.name.clone(), how(source))).collect(),
            // Where nobody stands in the files, that is said elsewhere.
            listed: settings
                .users
                .iter()
                .filter(|source| {
                    source.how() == How::Basic && source.directory.is_none() && !source.accounts.is_empty()
                })
                .map(|source| {
                    let names = source.accounts.iter().map(|account| account.name.clone()).collect();
                    let groups = source.accounts.iter().flat_map(|account| account.groups.iter().cloned());
                    (source.name.clone(), (names, groups.collect()))
                })
                .collect(),
            taken: settings
                .users
                .iter()
                .filter_map(|source| {
                    let openid = source.openid.as_ref()?;
                    Some((source.name.clone(), [openid.callback.clone(), openid.logout.clone()]))
                })
                .collect(),
            keys: settings.url_keys.iter().map(|keys| keys.name.clone()).collect(),
        }
    }
}

/// What knows users.
const KINDS: [&str; 5] = ["htpasswd", "ldap", "forward", "tokens", "openid"];

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

/// The files, and who stands in them.
fn accounts(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> (AccountFiles, Vec<Account>) {
    let mut reader = Reader::default();
    let named = |name: &'static str| item.children.iter().filter(move |child| child.directive.name == name);
    let groups = take_files(checker, disk, named("groups"), |text| reader.groups(text));
    let mut passwords = Vec::new();
    for file in named("htpasswd") {
        let was_full = reader.is_full;
        passwords.extend(take_files(checker, disk, [file], |text| reader.passwords(text)));
        if reader.is_full && !was_full {
            let message = format!("there are more than {USERS} users");
            checker.diagnostics.push(file.error_at(0, message).help("keep so many in a directory (LDAP)"));
        }
    }
    (AccountFiles { passwords, groups }, reader.accounts)
}

/// Reads files line by line. What is wrong in one is said with its line: the first mistakes, and how many more there are.
fn take_files<'i>(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: impl IntoIterator<Item = &'i Item>,
    mut take: impl FnMut(&str) -> Vec<Wrong>,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for item in items {
        let Some(Value::Path(path)) = item.first() else { continue };
        paths.push(path.clone());
        let text = match accounts::text_of(disk, path) {
            Ok(text) => text,
            Err(error) => {
                checker.diagnostics.push(unreadable(item, path, &error));
                continue;
            }
        };
        let wrong = take(&text);
        for (at, Wrong { line, why, .. }) in wrong.iter().take(accounts::SAID).enumerate() {
            let more = match wrong.len() - (at + 1) {
                count if count > 0 && at + 1 == accounts::SAID => format!("; {count} more lines are wrong"),
                _ => String::new(),
            };
            let message = format!("{}:{line}: {why}{more}", path.display());
            let help = match item.directive.name {
                "groups" => "such a line counts for nobody; write it as `admins: anna ben`",
                _ => "such a line counts for nobody; write it anew with `htpasswd -B FILE NAME`",
            };
            let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(0, message) };
            checker.diagnostics.push(warning.help(help));
        }
    }
    paths
}

fn unreadable(item: &Item, path: &Path, error: &std::io::Error) -> Diagnostic {
    let help = how_to_mend(error.kind(), item.directive.name, path);
    item.error_at(0, format!("{} cannot be read: {error}", path.display())).help(help)
}

/// What is to be done about a file of a directive that cannot be read.
fn how_to_mend(kind: ErrorKind, directive: &str, path: &Path) -> String {
    let shown = path.display();
    match (kind, directive) {
        (ErrorKind::FileTooLarge, _) => "keep so many in several files".to_owned(),
        (ErrorKind::PermissionDenied, _) => unlock(path),
        (ErrorKind::NotFound, "groups") => "make it; a line of it is `admins: anna ben`".to_owned(),
        // Only here: `-c` empties a file that is there.
        (ErrorKind::NotFound, _) => {
            format!(
                "make it with `htpasswd -B -c {shown} NAME`, readable for the user that starts the server"
            )
        }
        _ => "name a file".to_owned(),
    }
}

/// What is to be done about a file that is there and may not be read: never what would make it anew.
fn unlock(path: &Path) -> String {
    let shown = path.display();
    format!(
        "let the user that starts the server read it, `chown USER {shown}` or `chmod g+r` with a group of that user, and \
         run this command as that user"
    )
}

/// What a `login` says; `None` where something is wrong with it, or it is `off`.
pub(super) fn login(item: &Item) -> Option<Login> {
    let users = item.texts().into_iter().next()?;
    let realm = match item.property("realm") {
        Some(Value::Text(realm)) => realm,
        _ => users.clone(),
    };
    let how = match item.first() {
        Some(Value::Word("forward")) => How::Forward,
        Some(Value::Word("token")) => How::Token,
        Some(Value::Word("openid")) => How::Openid,
        _ => How::Basic,
    };
    Some(Login { how, users, realm, origin: item.origin() })
}

/// What a `signed` says; `None` where something is wrong with it, or it is `off`.
pub(super) fn signed(item: &Item) -> Option<Signed> {
    let keys = item.texts().into_iter().next()?;
    let says = |word| item.arguments.iter().any(|placed| placed.value == Value::Word(word));
    Some(Signed { keys, by_client: says("client"), by_host: says("host"), origin: item.origin() })
}

/// The keys of signed URLs of the top level.
pub(super) fn url_keys(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Vec<UrlKeys> {
    let mut all: Vec<UrlKeys> = Vec::new();
    for item in items.iter().filter(|item| item.directive.name == "url-keys") {
        let (Some(name), Some(Value::Path(file))) =
            (item.texts().into_iter().next(), item.arguments.get(1).map(|placed| &placed.value))
        else {
            continue;
        };
        if let Some(other) = all.iter().find(|other| other.name == name) {
            let message = format!("other keys are named `{name}` already");
            let help = format!("they stand in {}; give one of the two another name", other.origin);
            checker.diagnostics.push(item.error_at(0, message).help(help));
            continue;
        }
        let keys = url_keys::read(disk, file).unwrap_or_else(|why| {
            let help = match disk.read(file) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => unlock(file),
                _ => "a key is a line, such as `openssl rand -base64 32` writes it; the file is for the user alone that \
                      starts the server"
                    .to_owned(),
            };
            checker.diagnostics.push(item.error_at(1, why).help(help));
            Vec::new()
        });
        all.push(UrlKeys { name, file: file.clone(), keys: keys.into(), origin: item.origin() });
    }
    all
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
pub(super) fn check(checker: &mut Checker<'_>, items: &[Item], known: &Known, logs_in: bool) {
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
        if let Some(how) = known.users.get(&name) {
            if let Some(how) = how.filter(|how| !item.is_faulty && !item.is_word(how.word())) {
                let message = match how {
                    How::Basic => format!("a password says who the users `{name}` are, and nothing else"),
                    How::Forward => {
                        format!("an application says who the users `{name}` are, and nothing else")
                    }
                    How::Token => format!("a token says who the users `{name}` are, and nothing else"),
                    How::Openid => {
                        format!("an identity provider says who the users `{name}` are, and nothing else")
                    }
                };
                let help = format!("write `login {} \"{name}\"`", how.word());
                checker.diagnostics.push(item.error_at(0, message).help(help));
            }
            continue;
        }
        let near = suggest::nearest(&name, known.users.keys().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("add it at the top level: `users \"{name}\" {{ htpasswd \"/etc/tidegate/{name}\" }}`")
            }
        };
        checker.diagnostics.push(item.error_at(1, format!("no users are named `{name}`")).help(help));
    }
    for item in written("signed").filter(|item| !item.is_word("off")) {
        let Some(name) = item.texts().into_iter().next().filter(|name| !known.keys.contains(name)) else {
            continue;
        };
        let near = suggest::nearest(&name, known.keys.iter().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add them at the top level: `url-keys \"{name}\" \"/etc/tidegate/{name}\"`"),
        };
        checker.diagnostics.push(item.error_at(0, format!("no keys are named `{name}`")).help(help));
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

/// Warns of names in a `require` that no file of the users has who log in there.
pub(super) fn check_names(checker: &mut Checker<'_>, items: &[Item], known: &Known, users: Option<&str>) {
    let Some((source, (names, groups))) = users.and_then(|users| known.listed.get_key_value(users)) else {
        return;
    };
    let required = items.iter().filter(|item| item.directive.name == "require" && !is_of_certificates(item));
    for item in required {
        let (listed, nobody) = match item.first() {
            Some(Value::Word("group")) => (groups, "nobody in the files of `users \"{}\"` is in a group"),
            _ => (names, "the files of `users \"{}\"` know no"),
        };
        for (at, name) in item.texts().into_iter().enumerate().filter(|(_, name)| !listed.contains(name)) {
            let near = suggest::nearest(&name, listed.iter().map(String::as_str));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None if listed.is_empty() => {
                    "name a file of groups beside `htpasswd`: `groups \"groups\"`".to_owned()
                }
                None => {
                    let all: Vec<String> = listed.iter().take(10).map(|known| format!("`{known}`")).collect();
                    format!("they know {}", all.join(", "))
                }
            };
            let message = format!("{} `{name}`", nobody.replace("{}", source));
            let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(at + 1, message) };
            checker.diagnostics.push(warning.help(help));
        }
    }
}

/// The routes of the paths that the logins of a site's routes take: in front of all others, and open but for the site's access
/// rules. What stands in front of their content answers.
pub(super) fn taken(
    checker: &mut Checker<'_>,
    site: &Item,
    known: &Known,
    routes: &[Route],
    inherited: &Inherited,
) -> Vec<Route> {
    let mut taken: Vec<(&str, Route)> = Vec::new();
    for login in routes.iter().filter_map(|route| route.identification.login.as_ref()) {
        let Some(paths) = known.taken.get(&login.users) else { continue };
        for path in paths {
            match taken.iter().find(|(other, _)| other == path) {
                None => {}
                Some((_, route))
                    if route.identification.login.as_ref().is_some_and(|own| own.users == login.users) =>
                {
                    continue;
                }
                Some(_) => {
                    let message = format!("two logins of this site take the path `{path}`");
                    let help = "give the `openid` of one of the two another `callback` and another `logout`";
                    checker.diagnostics.push(site.error(message).help(help));
                    continue;
                }
            }
            let action = Action::Respond { status: 404, body: None, media_type: None };
            let pattern = PathPattern::Exact(path.clone());
            let mut route = super::route::with(inherited.clone(), pattern, action, login.origin.clone());
            route.identification = Identification {
                login: Some(login.clone()),
                certificates: route.identification.certificates,
                ..Identification::default()
            };
            taken.push((path, route));
        }
    }
    taken.into_iter().map(|(_, route)| route).collect()
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
    let mut logins: Vec<(&Origin, How)> = logins.map(|login| (&login.origin, login.how)).collect();
    logins.dedup();
    let sources = sources_by_name(nodes);
    for (origin, how) in logins {
        let what = if how == How::Openid { "sessions" } else { "passwords" };
        let message =
            format!("{what} may cross the network as they are: a `listen` of these sites does not speak TLS");
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
    files_of(nodes).rev().map(|file| (&*file.source.name, &file.source)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_remedy_empties_a_file_that_is_there() {
        for directive in ["htpasswd", "groups"] {
            for kind in [ErrorKind::PermissionDenied, ErrorKind::FileTooLarge, ErrorKind::Other] {
                let help = how_to_mend(kind, directive, Path::new("/etc/staff"));
                assert!(!help.contains("htpasswd"), "{directive} {kind:?}: {help}");
            }
        }
        let help = how_to_mend(ErrorKind::PermissionDenied, "htpasswd", Path::new("/etc/staff"));
        assert!(help.contains("`chown USER /etc/staff`"), "{help}");
        let help = how_to_mend(ErrorKind::NotFound, "groups", Path::new("/etc/groups"));
        assert!(help.contains("`admins: anna ben`"), "{help}");
    }
}
