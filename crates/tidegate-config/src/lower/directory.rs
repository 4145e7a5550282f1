//! `ldap`: a directory that knows users.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::accounts;
use crate::check::{Checker, Item, duration, number};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::Disk;
use crate::settings::gateway::{BackendProtocol, BackendTls, BackendTrust};
use crate::settings::{
    Directory, DirectoryBind, DirectoryGroups, DirectorySecurity, DirectoryServer, Filter, FilterValue,
    GroupsBy,
};
use crate::value::Value;

/// The directory of some users; `None` where what is wrong with it has been said.
pub(super) fn directory(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<Directory> {
    let servers = servers(checker, item);
    let text = |name: &str| item.child(name).and_then(|child| child.texts().into_iter().next());
    let find = |name: &str| super::written_or_default(&item.children, Context::Ldap, name);
    for (name, help) in [
        ("base", "say below which entry users are: `base \"ou=people,dc=example,dc=com\"`"),
        ("filter", "say what finds a user: `filter \"(uid={user})\"`"),
    ] {
        if item.child(name).is_none() && !item.misspells(Context::Ldap, &[name]) {
            let message = format!("this directory has no `{name}`");
            checker.diagnostics.push(item.error(message).help(help));
        }
    }
    let filter = item.child("filter").and_then(|child| user_filter(checker, child));
    let name = text("user-name").or_else(|| filter.as_ref()?.attribute_of_user().map(str::to_owned));
    if let (Some(child), Some(_), None) = (item.child("filter"), &filter, &name) {
        let message = "which attribute has the name of a user does not show in this filter";
        let help = "say so beside it: `user-name \"uid\"`";
        checker.diagnostics.push(child.error_at(0, message).help(help));
    }
    // `Some(None)`: what is wrong has been said.
    let bind = item.child("bind").map(|child| bind(checker, disk, child));
    let groups = item.child("groups").map(|child| groups(checker, child));
    Some(Directory {
        servers: Some(servers).filter(|servers| !servers.is_empty())?,
        base: text("base")?,
        filter: filter?,
        name: name?,
        bind: transposed(bind)?,
        groups: transposed(groups)?,
        timeout: find("timeout").map_or(Duration::from_secs(3), |item| duration(&item)),
        connections: find("connections").map_or(1, |item| u32::try_from(number(&item)).unwrap_or(1)),
        origin: item.origin(),
    })
}

/// What is written and sound, what is not written; `None` for what is written and is not sound.
fn transposed<T>(written: Option<Option<T>>) -> Option<Option<T>> {
    match written {
        Some(None) => None,
        other => Some(other.flatten()),
    }
}

fn servers(checker: &mut Checker<'_>, item: &Item) -> Vec<DirectoryServer> {
    let starts_tls = item.child("starttls");
    let roots = item.child("ca").and_then(|child| match child.first() {
        Some(Value::Path(path)) => Some(path.clone()),
        _ => None,
    });
    let mut servers: Vec<DirectoryServer> = Vec::new();
    for (at, url) in item.texts().into_iter().enumerate() {
        let (is_tls, host, port) = match address(&url) {
            Ok(address) => address,
            Err(help) => {
                let message = format!("`{url}` is no address of a directory");
                checker.diagnostics.push(item.error_at(at, message).help(help));
                continue;
            }
        };
        let tls = || BackendTls {
            name: host.clone(),
            trust: roots.clone().map_or(BackendTrust::System, BackendTrust::Roots),
            identity: None,
            protocol: BackendProtocol::Ldap,
            origin: item.child("ca").unwrap_or(item).origin(),
        };
        let security = match (is_tls, starts_tls) {
            (true, None) => DirectorySecurity::Tls(tls()),
            (false, Some(_)) => DirectorySecurity::StartTls(tls()),
            (true, Some(starts_tls)) => {
                let message = format!("`starttls` stands where `{url}` speaks TLS from its first byte");
                let help = "take it out, or write the address as `\"ldap://…\"`";
                checker.diagnostics.push(starts_tls.error(message).help(help));
                continue;
            }
            (false, None) => {
                if !is_here(&host) {
                    let message = format!("passwords cross the network as they are on the way to `{url}`");
                    let help = "write `ldaps` in place of `ldap`, or `starttls` in the block";
                    let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(at, message) };
                    checker.diagnostics.push(warning.help(help));
                }
                DirectorySecurity::None
            }
        };
        servers.push(DirectoryServer { url, host, port, security });
    }
    servers
}

/// Whether a host is this machine.
pub(super) fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether it speaks TLS, name and port of `ldaps://host:port`; an error says what to write.
fn address(url: &str) -> Result<(bool, String, u16), &'static str> {
    const FORM: &str =
        "write `\"ldaps://a.example\"`, with a port behind it where it is another one than 636";
    let (is_tls, rest) = match url.split_once("://").ok_or(FORM)? {
        ("ldaps", rest) => (true, rest),
        ("ldap", rest) => (false, rest),
        _ => return Err(FORM),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some("")).ok_or(FORM)?),
        None => rest.split_once(':').unwrap_or((rest, "")),
    };
    let port = match port {
        "" if rest.ends_with(':') => return Err(FORM),
        "" => {
            if is_tls {
                636
            } else {
                389
            }
        }
        port => port.parse().ok().filter(|&port| port > 0).ok_or(FORM)?,
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_address = host.parse::<IpAddr>().is_ok();
    match is_address || (!host.is_empty() && host.bytes().all(is_host)) {
        true => Ok((is_tls, host.to_ascii_lowercase(), port)),
        false => Err(FORM),
    }
}

/// The filter that finds a user.
fn user_filter(checker: &mut Checker<'_>, item: &Item) -> Option<Filter> {
    let filter = parsed(checker, item, &item.texts().into_iter().next()?)?;
    let values = filter.values();
    let fault = if values.contains(&&FilterValue::Dn) {
        "`{dn}` is known in the filter of groups only"
    } else if !values.iter().any(|value| matches!(value, FilterValue::User(..))) {
        "this filter finds the same for everybody: `{user}` is missing"
    } else {
        return Some(filter);
    };
    let help = "write `filter \"(uid={user})\"`, or `\"(sAMAccountName={user})\"` for Active Directory";
    checker.diagnostics.push(item.error_at(0, fault).help(help));
    None
}

fn parsed(checker: &mut Checker<'_>, item: &Item, text: &str) -> Option<Filter> {
    match Filter::parse(text) {
        Ok(filter) => Some(filter),
        Err(error) => {
            let message = format!("`{text}` is no filter: {error}");
            checker.diagnostics.push(item.error(message).help("a filter of LDAP is `(uid={user})`"));
            None
        }
    }
}

pub(super) fn path_of(item: &Item, name: &str) -> Option<PathBuf> {
    match item.property(name) {
        Some(Value::Path(path)) => Some(path),
        _ => None,
    }
}

fn bind(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<DirectoryBind> {
    let Some(path) = path_of(item, "password-file") else {
        if !item.is_faulty {
            let message = "`bind` names no password";
            let help = "name the file that holds it: `password-file=\"/etc/tidegate/ldap-password\"`";
            checker.diagnostics.push(item.error(message).help(help));
        }
        return None;
    };
    let password = password(disk, &path).unwrap_or_else(|why| {
        let help = "put the password into its first line, readable for the user that starts the server";
        checker.diagnostics.push(item.error(format!("{} {why}", path.display())).help(help));
        String::new() // nothing is served; what else is wrong with the directory is looked for
    });
    Some(DirectoryBind { dn: item.texts().into_iter().next()?, password, file: path })
}

/// The first line of a file. Without a password a bind would prove nothing (RFC 4513 section 5.1.2).
pub(super) fn password(disk: &dyn Disk, path: &Path) -> Result<String, String> {
    let bytes = disk.read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "holds no text".to_owned())?;
    let line = accounts::without_mark(&text).lines().next().unwrap_or_default();
    if let Some(odd) = line.chars().find(|odd| odd.is_control() && *odd != '\t') {
        return Err(format!(
            "holds a character in its first line that no password has, {}",
            odd.escape_default()
        ));
    }
    if line.is_empty() { Err("holds no password".to_owned()) } else { Ok(line.to_owned()) }
}

fn groups(checker: &mut Checker<'_>, item: &Item) -> Option<DirectoryGroups> {
    let text = |name: &str| match item.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let found_by = match (text("filter"), text("attribute")) {
        (Some(_), Some(_)) => {
            let message = "`filter` searches for groups, and `attribute` has them without a search";
            checker.diagnostics.push(item.error(message).help("take one of the two out"));
            return None;
        }
        (None, Some(attribute)) => GroupsBy::Attribute(attribute),
        (filter, None) => {
            let filter = parsed(checker, item, &filter.unwrap_or_else(|| "(member={dn})".to_owned()))?;
            let is_of_user = |value: &&FilterValue| !matches!(value, FilterValue::Bytes(_));
            if !filter.values().iter().any(is_of_user) {
                let message = "this filter puts everybody into the same groups: `{dn}` is missing";
                checker.diagnostics.push(item.error(message).help("write `filter=\"(member={dn})\"`"));
                return None;
            }
            GroupsBy::Search(filter)
        }
    };
    Some(DirectoryGroups {
        base: item.texts().into_iter().next()?,
        found_by,
        name: text("name")?,
        is_nested: item.arguments.len() > 1,
    })
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses() {
        let ok = |is_tls, host: &str, port| Some((is_tls, host.to_owned(), port));
        for (url, expected) in [
            ("ldaps://A.example", ok(true, "a.example", 636)),
            ("ldap://a.example/", ok(false, "a.example", 389)),
            ("ldap://127.0.0.1:3890", ok(false, "127.0.0.1", 3890)),
            ("ldaps://[::1]:1636", ok(true, "::1", 1636)),
            ("ldaps://[::1]", ok(true, "::1", 636)),
            ("a.example", None),
            ("http://a.example", None),
            ("ldapi:///run/slapd", None),
            ("ldaps://", None),
            ("ldaps://a.example:", None),
            ("ldaps://a.example:0", None),
            ("ldaps://a.example:70000", None),
            ("ldaps://a.example/dc=example", None),
            ("ldaps://anna@a.example", None),
            ("ldaps://[::1]x", None),
        ] {
            assert_eq!(address(url).ok(), expected, "{url}");
        }
    }
}
