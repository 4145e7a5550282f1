//! An upstream group: its members and how requests are spread over them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{load_hook, written_or_default};
use crate::check::{Checker, File, Item, duration, number};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::disk::{Disk, NoDisk};
use crate::settings::gateway::{BackendTls, Destination};
use crate::settings::pool::{Pool, Queue};
use crate::settings::upstream::{
    Balance, Check, CheckKind, Eject, HashKey, Member, MemberAddress, Retry, Upstream,
};
use crate::settings::{Action, Origin, Settings};
use crate::source::Source;
use crate::syntax::document::Node;
use crate::value::{Value, has_too_large_a_port};

/// Lowers the groups, in source order; `pools` have names that are taken.
pub(super) fn upstreams(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: &[Item],
    pools: &[Pool],
) -> Vec<Upstream> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    let mut taken: HashMap<String, (&str, Origin)> =
        pools.iter().map(|pool| (pool.name.clone(), ("a pool", pool.origin.clone()))).collect();
    for item in items.iter().filter(|item| item.directive.name == "upstream") {
        let Some(name) = item.texts().pop() else { continue };
        if let Some((what, origin)) = taken.get(&name) {
            let message = format!("{what} is named `{name}` already");
            let help =
                format!("it stands in {}:{}; give one of the two another name", origin.file, origin.line);
            checker.diagnostics.push(item.error_at(0, message).help(help));
            continue;
        }
        let members = members(checker, item);
        if members.is_empty() {
            if item.child("member").is_none() {
                let message = "this upstream has no member";
                checker.diagnostics.push(item.error(message).help("add `member \"127.0.0.1:3000\"`"));
            }
            continue;
        }
        if members.iter().all(|member| member.is_backup) {
            let message = "all members of this upstream are backups, and none is there to back up";
            checker.diagnostics.push(item.error(message).help("take `backup` from one of them"));
        }
        taken.insert(name.clone(), ("another upstream", item.origin()));
        upstreams.push(upstream(checker, disk, item, name, members));
    }
    upstreams
}

/// The group of a host that a route names in place of an application.
pub(super) fn of_host(checker: &mut Checker<'_>, host: &str, origin: &Origin) -> Option<Upstream> {
    let text = format!("upstream \"host\" {{ member \"{host}\" }}");
    let node = Node::parse(&text)?;
    let source = Source::new(crate::source::DEFAULT, &text);
    let file = File { source, folder: std::sync::Arc::from(Path::new("/")) };
    let item = checker.item(&file, &node, Context::Top)?;
    let mut upstream = upstreams(checker, &NoDisk, &[item], &[]).pop()?;
    (upstream.name, upstream.origin) = (host.to_owned(), origin.clone());
    upstream.members.iter_mut().for_each(|member| member.origin = origin.clone());
    Some(upstream)
}

fn upstream(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    name: String,
    members: Vec<Member>,
) -> Upstream {
    let find = |name: &str| written_or_default(&item.children, Context::Upstream, name);
    let property = |directive: &str, name: &str| find(directive).and_then(|item| item.property(name));
    let amount = |directive: &str, name: &str| match property(directive, name) {
        Some(Value::Number(amount)) => u32::try_from(amount).unwrap_or(u32::MAX),
        _ => 0,
    };
    let time = |directive: &str, name: &str| match property(directive, name) {
        Some(Value::Duration(time)) => time,
        _ => Duration::ZERO,
    };
    Upstream {
        name,
        balance: balance(checker, item),
        sticky: find("sticky").filter(|item| !item.is_word("off")).and_then(|item| item.texts().pop()),
        queue: Queue { length: amount("queue", "length"), age: time("queue", "age") },
        check: check(item),
        eject: Eject {
            failures: Some(amount("eject", "failures")).filter(|&failures| failures > 0),
            time: time("eject", "time"),
            most: time("eject", "most").max(time("eject", "time")),
        },
        slow_start: find("slow-start").map(|item| duration(&item)).unwrap_or_default(),
        retry: Retry {
            times: find("retry").map_or(0, |item| small(&item)),
            budget: amount("retry", "budget"),
        },
        members,
        hooks: load_hook::hooks(checker, disk, &item.children, load_hook::OF_UPSTREAMS),
        origin: item.origin(),
    }
}

fn members(checker: &mut Checker<'_>, item: &Item) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    let mut lines: HashMap<MemberAddress, u32> = HashMap::new();
    for child in item.children.iter().filter(|child| child.directive.name == "member") {
        let Some(name) = child.texts().into_iter().next() else { continue };
        let address = match address(&name) {
            Ok(address) => address,
            Err(help) => {
                let message = format!("`{name}` is no address of a server");
                checker.diagnostics.push(child.error_at(0, message).help(help));
                continue;
            }
        };
        if let Some(line) = lines.get(&address) {
            let help = format!("it stands in line {line} already; give it a `weight` there");
            checker.diagnostics.push(child.error_at(0, "this member is given twice").help(help));
            continue;
        }
        let count = |name: &str| match child.property(name) {
            Some(Value::Number(count)) => u32::try_from(count).ok(),
            _ => None,
        };
        lines.insert(address.clone(), child.origin().line);
        members.push(Member {
            name,
            address,
            weight: count("weight").unwrap_or(1),
            is_backup: child.arguments.get(1).is_some(),
            places: count("places"),
            origin: child.origin(),
        });
    }
    members
}

/// `address:port`, `name:port` or `unix:/path`; an error says what to write.
fn address(text: &str) -> Result<MemberAddress, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        return match path.is_absolute() && path.as_os_str().len() <= 107 {
            true => Ok(MemberAddress::Unix(path)),
            false => Err("write the whole path, at most 107 bytes: `\"unix:/run/app.sock\"`"),
        };
    }
    if text.contains("://") {
        return Err("write it without a scheme: `\"127.0.0.1:3000\"`");
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.ip().is_unspecified() || address.port() == 0 {
            true => Err("nothing can be reached there; name an address and a port: `\"127.0.0.1:3000\"`"),
            false => Ok(MemberAddress::Tcp(address)),
        };
    }
    const FORM: &str =
        "write an address and a port, `\"127.0.0.1:3000\"`, or a name and a port, `\"app.internal:3000\"`";
    if has_too_large_a_port(text) {
        return Err("the port is larger than 65535: ports go from 1 to 65535");
    }
    let (host, port) = text.rsplit_once(':').ok_or(FORM)?;
    let port = port.parse::<u16>().ok().filter(|&port| port > 0).ok_or(FORM)?;
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    // RFC 1123 section 2.1, and the underscore that service names have.
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = host.len() <= 253 && host.split('.').all(is_label);
    // `1.2.3` is no name: what is all digits is meant as an address.
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_name && !is_number { Ok(MemberAddress::Name { host, port }) } else { Err(FORM) }
}

fn balance(checker: &mut Checker<'_>, item: &Item) -> Balance {
    let Some(written) = written_or_default(&item.children, Context::Upstream, "balance") else {
        return Balance::TwoChoices;
    };
    let by = match written.property("by") {
        Some(Value::Text(by)) => Some(by),
        _ => None,
    };
    let is_hash = written.is_word("hash");
    if let Some(by) = by.as_ref().filter(|_| !is_hash) {
        let message = format!("`by=\"{by}\"` belongs to `hash`");
        checker.diagnostics.push(written.error(message).help("write `balance hash`, or take `by` out"));
    }
    if !is_hash && matches!(written.property("balance-factor"), Some(Value::Number(1..))) {
        let message = "`balance-factor` belongs to `hash`: the others look at loads by themselves";
        checker.diagnostics.push(written.error(message).help("write `balance hash`, or take it out"));
    }
    match written.first() {
        Some(Value::Word("round-robin")) => Balance::RoundRobin,
        Some(Value::Word("least-connections")) => Balance::LeastConnections,
        Some(Value::Word("hash")) => match by.as_deref().and_then(hash_key) {
            Some(key) => Balance::Hash { key, percent: balance_factor(checker, &written) },
            None => {
                let message = "`balance hash` has to say what the hash is of";
                let help = "add `by=\"client\"`, `by=\"path\"`, `by=\"url\"`, `by=\"header:NAME\"` or `by=\"cookie:NAME\"`";
                checker.diagnostics.push(written.error(message).help(help));
                Balance::TwoChoices
            }
        },
        _ => Balance::TwoChoices,
    }
}

/// The bound of a member's load, in percent of its share.
fn balance_factor(checker: &mut Checker<'_>, written: &Item) -> Option<u32> {
    let Some(Value::Number(percent @ 1..)) = written.property("balance-factor") else { return None };
    if percent <= 100 {
        let message =
            format!("with `balance-factor={percent}` there would be requests that no member may take");
        let help = "write 125 for a quarter more than its share, or 0 for no bound";
        checker.diagnostics.push(written.error(message).help(help));
    }
    u32::try_from(percent).ok()
}

fn hash_key(by: &str) -> Option<HashKey> {
    let is_token =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    match by.split_once(':') {
        None if by == "client" => Some(HashKey::Client),
        None if by == "path" => Some(HashKey::Path),
        None if by == "url" => Some(HashKey::Url),
        Some(("header", name)) => {
            Some(name).filter(is_token).map(|name| HashKey::Header(name.to_ascii_lowercase()))
        }
        Some(("cookie", name)) => Some(name).filter(is_token).map(|name| HashKey::Cookie(name.to_owned())),
        _ => None,
    }
}

fn check(item: &Item) -> Option<Check> {
    let written = written_or_default(&item.children, Context::Upstream, "check")?;
    let text = |name: &str| match written.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let kind = match written.first() {
        Some(Value::Word("tcp")) => CheckKind::Tcp,
        Some(Value::Word("http")) => CheckKind::Http {
            path: text("path").unwrap_or_else(|| "/".to_owned()),
            host: text("host").unwrap_or_default(),
        },
        Some(Value::Word("fastcgi")) => CheckKind::FastCgi,
        _ => return None,
    };
    let time = |name: &str| match written.property(name) {
        Some(Value::Duration(time)) => time,
        _ => Duration::ZERO,
    };
    let count = |name: &str| match written.property(name) {
        Some(Value::Number(count)) => u32::try_from(count).unwrap_or(u32::MAX),
        _ => 1,
    };
    Some(Check {
        kind,
        interval: time("every"),
        timeout: time("timeout"),
        rise: count("rise"),
        fall: count("fall"),
    })
}

/// Says so where some requests go to a checked group with TLS and some without: one check cannot be both.
pub(super) fn reach(checker: &mut Checker<'_>, settings: &Settings) {
    // Of each group that requests go to: what TLS with it is first said, and whether some go without.
    let mut ways: HashMap<&str, (Option<&BackendTls>, bool)> = HashMap::new();
    for route in settings.sites.iter().flat_map(|site| &site.routes) {
        let Action::Proxy(proxy) = &route.action else { continue };
        let Destination::Named(name) = &proxy.gateway.to else { continue };
        let (tls, is_plain) = ways.entry(name).or_default();
        *tls = tls.or(proxy.gateway.tls.as_ref());
        *is_plain |= proxy.gateway.tls.is_none();
    }
    for upstream in settings.upstreams.iter().filter(|upstream| upstream.check.is_some()) {
        let Some((Some(tls), true)) = ways.get(upstream.name.as_str()) else { continue };
        let Upstream { name, origin, .. } = upstream;
        let message = format!(
            "requests go to `{name}` with TLS ({}:{}) and elsewhere without; `check` can do one of the two",
            tls.origin.file, tls.origin.line
        );
        let help = format!("make two groups of `upstream \"{name}\"` in {}:{}", origin.file, origin.line);
        checker.diagnostics.push(Diagnostic::error(message).help(help));
    }
}

/// A number that the table bounds below 2^32.
fn small(item: &Item) -> u32 {
    u32::try_from(number(item)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let name = |host: &str| Some(MemberAddress::Name { host: host.to_owned(), port: 80 });
        for (text, expected) in [
            ("127.0.0.1:80", Some(MemberAddress::Tcp(([127, 0, 0, 1], 80).into()))),
            ("[::1]:80", Some(MemberAddress::Tcp("[::1]:80".parse().unwrap()))),
            ("unix:/run/a.sock", Some(MemberAddress::Unix("/run/a.sock".into()))),
            ("App.Internal.:80", name("app.internal")),
            ("_http.app:80", name("_http.app")),
            ("1.app:80", name("1.app")),
            ("localhost:80", name("localhost")),
            ("localhost", None),
            ("localhost:0", None),
            ("localhost:99999", None),
            ("1.2.3:80", None),
            ("0.0.0.0:80", None),
            ("127.0.0.1:0", None),
            ("http://127.0.0.1:80", None),
            ("unix:run/a.sock", None),
            ("-a.b:80", None),
            ("a..b:80", None),
            ("a b:80", None),
            (":80", None),
        ] {
            assert_eq!(address(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn keys() {
        for (text, expected) in [
            ("client", Some(HashKey::Client)),
            ("path", Some(HashKey::Path)),
            ("url", Some(HashKey::Url)),
            ("header:X-User", Some(HashKey::Header("x-user".into()))),
            ("cookie:Session", Some(HashKey::Cookie("Session".into()))),
            ("header:", None),
            ("user", None),
            ("cookie:a b", None),
        ] {
            assert_eq!(hash_key(text), expected, "{text}");
        }
    }
}
