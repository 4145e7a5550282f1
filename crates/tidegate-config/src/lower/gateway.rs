//! `fastcgi`, `scgi` and `proxy` as settings.

use std::path::{Path, PathBuf};

use super::inherit::{Inherited, field_mode};
use super::written_or_default;
use crate::check::{Checker, Item, duration, number};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::settings::gateway::{
    Application, BackendProtocol, BackendTls, BackendTrust, Connections, Destination, Gateway, Proxy, Script,
    SendfileRoot, Spill,
};
use crate::settings::{Action, CertificateFiles, MoreField, PathPattern};
use crate::suggest;
use crate::value::{Value, asks_for_user, host_and_port};

/// Lowers a `fastcgi`.
pub(super) fn fastcgi(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    inherited: &Inherited,
) -> Action {
    let script = script(checker, item, Context::Fastcgi);
    fits_script(checker, item, &script);
    let application = application(checker, disk, item, Context::Fastcgi, inherited, script);
    fits_checks(checker, item, inherited, &application.gateway.to, Spoken::FastCgi);
    Action::Fastcgi(Box::new(application))
}

/// Lowers an `scgi`.
pub(super) fn scgi(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    pattern: &PathPattern,
    inherited: &Inherited,
) -> Action {
    let is_said = ["split", "script", "mount"].iter().any(|name| item.child(name).is_some());
    let script = match pattern {
        PathPattern::Prefix(prefix) if !is_said => Script::Mounted(prefix.trim_end_matches('/').to_owned()),
        _ => script(checker, item, Context::Scgi),
    };
    fits_script(checker, item, &script);
    let application = application(checker, disk, item, Context::Scgi, inherited, script);
    fits_checks(checker, item, inherited, &application.gateway.to, Spoken::Scgi);
    Action::Scgi(Box::new(application))
}

/// Lowers a `cgi`: scripts below a folder, started by the processes of a pool.
pub(super) fn cgi(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    root: Option<PathBuf>,
    strip_prefix: String,
    inherited: &Inherited,
) -> Action {
    if root.is_none() && !inherited.root_is_mistaken {
        let message = "there is no folder to find CGI scripts in";
        let help = "add `root` to the site or the route, or `alias \"/usr/lib/cgi-bin\"` to the route";
        checker.diagnostics.push(item.error(message).help(help));
    }
    let to = Destination::Named(item.texts().pop().unwrap_or_else(|| "cgi".to_owned()));
    Action::Cgi(Box::new(Application {
        gateway: gateway(checker, disk, item, Context::Cgi, inherited, to),
        root: root.unwrap_or_default(),
        script: Script::FirstFile { strip_prefix },
        params: pairs(item, "param"),
        symlinks: inherited.symlinks,
        serves_hidden: inherited.serves_hidden,
    }))
}

/// Lowers a `proxy`.
pub(super) fn proxy(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    inherited: &Inherited,
) -> Action {
    let (to, base, tls_name, speaks_http2) = match item.first() {
        Some(Value::Url(to, base, tls_name, http2)) => (to.clone(), base.clone(), tls_name.clone(), *http2),
        _ => (Destination::Named(String::new()), String::new(), None, false),
    };
    // `http://app.example.com`: a host, unless something is named so.
    let is_url =
        item.arguments.first().is_some_and(|placed| item.file.source.slice(&placed.range).contains("://"));
    let is_known = |name: &String| {
        inherited.applications.pools.contains(name) || inherited.applications.upstreams.contains(name)
    };
    let to = match to {
        Destination::Named(name)
            if name.contains('.') && !name.contains(':') && !is_known(&name) && is_url =>
        {
            let port = if tls_name.is_some() { 443 } else { 80 };
            Destination::Named(
                host_and_port(&format!("{name}:{port}"))
                    .map_or(name, |(host, port)| format!("{host}:{port}")),
            )
        }
        to => to,
    };
    let tls = backend_tls(checker, item, tls_name).map(|tls| match speaks_http2 {
        true => BackendTls { protocol: BackendProtocol::Http2, ..tls },
        false => tls,
    });
    fits_checks(checker, item, inherited, &to, if speaks_http2 { Spoken::Http2 } else { Spoken::Http1 });
    let text = |name: &str| item.child(name).and_then(|item| item.texts().pop());
    Action::Proxy(Box::new(Proxy {
        gateway: Gateway { tls, ..gateway(checker, disk, item, Context::Proxy, inherited, to) },
        base,
        speaks_http2,
        host: text("host"),
        strip_prefix: text("strip-prefix").map(|prefix| prefix.trim_end_matches('/').to_owned()),
        request_fields: pairs(item, "request-header"),
        more_request_fields: more_fields(checker, item),
        rewrites_redirects: !item.child("redirects").is_some_and(|item| item.is_word("keep")),
    }))
}

/// TLS of a `proxy`; `name` is that of an `https` address.
pub(super) fn backend_tls(
    checker: &mut Checker<'_>,
    item: &Item,
    name: Option<String>,
) -> Option<BackendTls> {
    let written = item.child("tls");
    let Some(name) = name else {
        if let Some(tls) = written {
            let message = "`tls` stands where the address does not begin with `https` or `h2`";
            checker.diagnostics.push(tls.error(message).help("write the address as `\"https://…\"`"));
        }
        return None;
    };
    let property = |name: &str| written.and_then(|tls| tls.property(name));
    let path = |name: &str| match property(name) {
        Some(Value::Path(path)) => Some(path),
        _ => None,
    };
    let is_unverified = matches!(property("verify"), Some(Value::Word("none")));
    let (roots, certificate, key) = (path("roots"), path("certificate"), path("key"));
    if let Some(tls) = written {
        if is_unverified && roots.is_some() {
            let message = "`roots` says whom to trust, and `verify=none` trusts everybody";
            checker.diagnostics.push(tls.error(message).help("take one of the two out"));
        }
        if key.is_some() && certificate.is_none() {
            let message = "`tls` names a key and no certificate";
            checker.diagnostics.push(tls.error(message).help("add `certificate=\"client.pem\"`"));
        }
    }
    let origin = written.unwrap_or(item).origin();
    Some(BackendTls {
        name: match property("name") {
            Some(Value::Text(name)) => name,
            _ => name,
        },
        trust: match roots {
            _ if is_unverified => BackendTrust::Anybody,
            Some(roots) => BackendTrust::Roots(roots),
            None => BackendTrust::System,
        },
        identity: certificate.map(|certificate| CertificateFiles {
            key: key.unwrap_or_else(|| certificate.clone()),
            certificate,
            origin: origin.clone(),
        }),
        protocol: BackendProtocol::Http1,
        origin,
    })
}

/// Lowers `spill`.
pub(super) fn spill(item: &Item) -> Spill {
    Spill {
        folder: match item.first() {
            Some(Value::Path(folder)) => folder.clone(),
            _ => PathBuf::from("/tmp"),
        },
        size: match item.property("size") {
            Some(Value::Number(size)) => size,
            _ => 0,
        },
    }
}

/// What a `spill` with mistakes in it becomes; the mistakes have been said.
pub(super) fn spill_nowhere() -> Spill {
    Spill { folder: PathBuf::from("/tmp"), size: 0 }
}

fn application(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    context: Context,
    inherited: &Inherited,
    script: Script,
) -> Application {
    let to = match item.first() {
        Some(Value::Destination(to)) => to.clone(),
        _ => Destination::Named(String::new()),
    };
    let root = inherited.root.clone();
    if root.is_none() && !inherited.root_is_mistaken && matches!(script, Script::Suffixes(_)) {
        let message = "this application has no folder to find its scripts in";
        let help = "add `root` to the site or the route; or `script` for one script, or `mount` for none";
        checker.diagnostics.push(item.error(message).help(help));
    }
    Application {
        gateway: gateway(checker, disk, item, context, inherited, to),
        root: root.unwrap_or_default(),
        script,
        params: pairs(item, "param"),
        symlinks: inherited.symlinks,
        serves_hidden: inherited.serves_hidden,
    }
}

fn script(checker: &mut Checker<'_>, item: &Item, context: Context) -> Script {
    let mut said =
        item.children.iter().filter(|child| matches!(child.directive.name, "split" | "script" | "mount"));
    if let (Some(first), Some(second)) = (said.next(), said.next()) {
        let message = format!(
            "`{}` stands beside `{}`, and only one can find the script",
            second.directive.name, first.directive.name
        );
        checker.diagnostics.push(second.error(message).help("keep one of the two"));
    }
    if let Some(child) = item.child("script")
        && let Some(Value::Path(path)) = child.first()
    {
        return Script::File(path.clone());
    }
    if let Some(prefix) = item.child("mount").and_then(|child| child.texts().pop()) {
        return Script::Mounted(prefix.trim_end_matches('/').to_owned());
    }
    let split = written_or_default(&item.children, context, "split");
    Script::Suffixes(split.map(|item| item.texts()).unwrap_or_default())
}

fn gateway(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    context: Context,
    inherited: &Inherited,
    to: Destination,
) -> Gateway {
    let find = |name: &str| written_or_default(&item.children, context, name);
    let time = |name: &str| find(name).map(|item| duration(&item)).unwrap_or_default();
    let amount = |name: &str| find(name).map_or(0, |item| number(&item));
    let few = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let queue = find("queue");
    let property = |name: &str| queue.as_ref().and_then(|queue| queue.property(name));
    let connections = find("connections");
    if let (Destination::Named(name), Some(written)) = (&to, item.child("connections"))
        && !name.is_empty()
        && !written.is_word("unlimited")
    {
        let message = format!("`connections` stands where `{name}` knows it itself");
        let help = match name.contains(':') {
            true => "write `upstream` with a `member` for it, whose `places` says it",
            false => "take the line out; `places` of the pool, or of the upstream's members, says it",
        };
        checker.diagnostics.push(written.error(message).help(help));
    }
    name_of(checker, item, context, inherited, &to);
    let mut roots = Vec::new();
    for child in item.children.iter().filter(|child| child.directive.name == "sendfile") {
        let Some(Value::Path(root)) = child.first() else { continue };
        check_folder(checker, disk, child, root);
        let prefix = match child.property("prefix") {
            Some(Value::Text(prefix)) if prefix.ends_with('/') => Some(prefix),
            Some(Value::Text(prefix)) => Some(prefix + "/"),
            _ => None,
        };
        roots.push(SendfileRoot { root: root.clone(), prefix });
    }
    Gateway {
        to,
        passed_fields: passed_fields(checker, item),
        tls: None,
        connect_timeout: time("connect-timeout"),
        timeout: time("timeout"),
        keep: few(amount("keep")),
        keep_timeout: time("keep-timeout"),
        connections: match connections {
            Some(item) if item.is_word("unlimited") => Connections::Unlimited,
            Some(item) if !item.is_word("auto") => Connections::Most(few(number(&item))),
            _ => Connections::Auto,
        },
        queue_length: match property("length") {
            Some(Value::Number(length)) => few(length),
            _ => 0,
        },
        queue_age: match property("age") {
            Some(Value::Duration(age)) => age,
            _ => std::time::Duration::ZERO,
        },
        buffer: amount("buffer"),
        request_buffer: amount("request-buffer"),
        sendfile: roots,
        passes_encoded_slashes: encoded_slashes(item).is_some(),
    }
}

/// `encoded-slashes`, unless it is `off`.
fn encoded_slashes(item: &Item) -> Option<&Item> {
    item.child("encoded-slashes").filter(|written| !written.is_word("off"))
}

/// Says so where an application is to get a path that no variable can tell it.
fn fits_script(checker: &mut Checker<'_>, item: &Item, script: &Script) {
    if let (Script::Mounted(_), Some(written)) = (script, encoded_slashes(item)) {
        let message = "`encoded-slashes` lets no path of a client through where an application is mounted";
        let help = "take it out: such an application knows its path by PATH_INFO, which is decoded and cannot tell `%2F` from a \
                    slash; one that goes by REQUEST_URI has a `script`";
        let warning = Diagnostic::warning(message).at(&written.file.source, written.header.clone());
        checker.diagnostics.push(warning.help(help));
    }
}

/// Says so where an application is named that is written nowhere.
fn name_of(
    checker: &mut Checker<'_>,
    item: &Item,
    context: Context,
    inherited: &Inherited,
    to: &Destination,
) {
    let Destination::Named(name) = to else { return };
    let known = &inherited.applications;
    let (is_pool, is_upstream) = (known.pools.contains(name), known.upstreams.contains(name));
    if let Some(kind) = known.kinds.get(name) {
        speaks(checker, item, context, name, kind);
    }
    // An empty name stands for a mistake that has been said; the pool `cgi` need not be written.
    if name.is_empty() || name.contains(':') || is_pool || (context == Context::Cgi && name == "cgi") {
        return;
    }
    if context == Context::Cgi {
        let what = if is_upstream { "is an upstream, and scripts want a pool" } else { "is no pool" };
        let help = format!("add `pool \"{name}\" {{ cgi-stubs }}`, or write `cgi` alone");
        checker.diagnostics.push(item.error_at(0, format!("`{name}` {what}")).help(help));
    } else if !is_upstream {
        let names = known.pools.iter().chain(&known.upstreams).map(String::as_str);
        let help = match suggest::nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("add `pool \"{name}\" {{ … }}` or `upstream \"{name}\" {{ … }}`, or write an address")
            }
        };
        let message = format!("no pool and no upstream is named `{name}`");
        checker.diagnostics.push(item.error_at(0, message).help(help));
    }
}

/// Says so where a pool speaks something else than a route does with it.
fn speaks(checker: &mut Checker<'_>, item: &Item, context: Context, name: &str, kind: &str) {
    let (what, right) = match (kind, context) {
        ("php", Context::Proxy | Context::Scgi | Context::Cgi) => ("is PHP, which speaks FastCGI", "fastcgi"),
        ("cgi-stubs", Context::Proxy | Context::Scgi | Context::Fastcgi) => ("starts CGI scripts", "cgi"),
        ("command" | "address", Context::Cgi) => ("starts no CGI scripts", "fastcgi"),
        _ => return,
    };
    let message = format!("the pool `{name}` {what}, and `{}` leads to it", item.directive.name);
    let help = format!("write `{right} \"{name}\"`, or name another pool");
    checker.diagnostics.push(item.error_at(0, message).help(help));
}

/// What a route speaks with its application.
#[derive(Clone, Copy, PartialEq)]
enum Spoken {
    Http1,
    Http2,
    FastCgi,
    Scgi,
}

/// Says so where a group is checked in other words than requests go to it: all of its members would be taken out.
fn fits_checks(
    checker: &mut Checker<'_>,
    item: &Item,
    inherited: &Inherited,
    to: &Destination,
    spoken: Spoken,
) {
    let Destination::Named(name) = to else { return };
    let Some(kind) = inherited.applications.checks.get(name) else {
        return;
    };
    let (words, fits) = match spoken {
        Spoken::Http1 => ("HTTP/1.1", "http"),
        Spoken::Http2 => ("HTTP/2", "tcp"),
        Spoken::FastCgi => ("FastCGI", "fastcgi"),
        Spoken::Scgi => ("SCGI", "tcp"),
    };
    if kind == "tcp" || kind == fits {
        return;
    }
    let message =
        format!("requests go to `{name}` by {words} here, and its members are checked by `check {kind}`");
    let help = match fits {
        "tcp" => format!("write `check tcp` in `upstream \"{name}\"`"),
        fits => format!("write `check {fits}` or `check tcp` in `upstream \"{name}\"`"),
    };
    checker.diagnostics.push(item.error_at(0, message).help(help));
}

/// Names and values of a directive that is repeated; `off` is an empty value.
/// Whether a `request-header` or `param` says that what the client sends is passed on.
fn is_passed(item: &Item) -> bool {
    item.arguments.get(1).is_some_and(|value| matches!(value.value, Value::Word("pass")))
}

/// The fields that clients may send although only proxies do, by `request-header NAME pass` or `param "HTTP_NAME" pass`.
fn passed_fields(checker: &mut Checker<'_>, item: &Item) -> Vec<String> {
    let mut passed = Vec::new();
    for child in item.children.iter().filter(|child| is_passed(child)) {
        let Some(name) = child.texts().pop() else { continue };
        match (child.directive.name, name.strip_prefix("HTTP_")) {
            ("param", Some(field)) => passed.push(field.replace('_', "-").to_ascii_lowercase()),
            ("param", None) => {
                let message = format!("`{name}` is no field that a client can send");
                let help = "`pass` is for variables of fields, such as param \"HTTP_X_USER\" pass";
                checker.diagnostics.push(child.error_at(0, message).help(help));
            }
            _ => passed.push(name.to_ascii_lowercase()),
        }
    }
    passed
}

fn pairs(item: &Item, name: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let is_set = |child: &&Item| child.directive.name == name && field_mode(child).is_none();
    for child in item.children.iter().filter(is_set) {
        let mut texts = child.texts().into_iter();
        if let Some(name) = texts.next() {
            pairs.retain(|(known, _)| *known != name);
            if !is_passed(child) {
                pairs.push((name, texts.next().unwrap_or_default()));
            }
        }
    }
    pairs
}

/// `request-header` with `add` or `missing`.
fn more_fields(checker: &mut Checker<'_>, item: &Item) -> Vec<MoreField> {
    let written = item.children.iter().filter(|child| child.directive.name == "request-header");
    let fields = written.filter_map(|child| {
        let mode = field_mode(child);
        let is_of_loops = child.texts().first().is_some_and(|name| name.eq_ignore_ascii_case("CDN-Loop"));
        if is_of_loops && mode != Some(crate::settings::FieldMode::Add) && !is_passed(child) {
            let message = "caches find out by `CDN-Loop` that a request goes round in a circle, so nothing may take it away";
            let help = "take the line out; with `add` a name of your own stands beside those of others";
            checker.diagnostics.push(child.error(message).help(help));
        }
        let mode = mode?;
        let [name, value] = <[String; 2]>::try_from(child.texts()).ok()?;
        if asks_for_user(&value) {
            let message = "a client that sends this field itself would say who has logged in";
            let help = "write it without `add` and `missing`: then what clients send is dropped";
            checker.diagnostics.push(child.error(message).help(help));
        }
        Some(MoreField { name, value, mode })
    });
    fields.collect()
}

fn check_folder(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, path: &Path) {
    if !matches!(disk.what(path), What::Folder) {
        let message = format!("the folder {} is not there", path.display());
        checker.diagnostics.push(item.error_at(0, message).help("name a folder that exists"));
    }
}
