//! What is written and does nothing: names that nobody uses, folders that nothing needs, listeners that lead nowhere.
//!
//! Called once all is read and nothing is wrong: what is missing may be what a mistake has cost. A name counts as used
//! wherever it stands outside of what it names, so that nothing is said of what is used in a way that is not known here.

use std::collections::{HashMap, HashSet};

use super::{Item, Server, host_text};
use crate::check::Checker;
use crate::diagnostic::Diagnostic;
use crate::include::TopNode;
use crate::settings::gateway::Destination;
use crate::settings::{Action, HostPattern, ListenAddress, Listener, Origin, Settings};
use crate::source::Source;
use crate::syntax::document::{Literal, Node};

/// What has a name that others refer to, and how they do.
const NAMED: [(&str, &str, &str); 6] = [
    ("pool", "pool", "lead a route to it, `fastcgi \"{}\"`, `scgi \"{}\"` or `proxy \"http://{}\"`"),
    ("upstream", "upstream", "lead a route to it, `proxy \"http://{}\"`"),
    ("users", "users", "write `login … \"{}\"` where they may log in"),
    ("match", "match", "write `when match \"{}\"` in a route"),
    ("value", "value", "write `{value.{}}`, or `when value \"{}\"` in a route"),
    ("url-keys", "keys", "write `signed \"{}\"` where they count"),
];

/// Warns of it.
pub(super) fn check(checker: &mut Checker<'_>, server: &Server, nodes: &[TopNode]) {
    names(checker, nodes);
    spill(checker, &server.settings, nodes);
    listeners(checker, server);
    circles(checker, server, nodes);
    super::cache::check_unused(checker, server, nodes);
    statistics(checker, nodes);
    sampling(checker, nodes);
}

/// Warns of shares of traces where none begins.
fn sampling(checker: &mut Checker<'_>, nodes: &[TopNode]) {
    let levels = nodes.iter().flat_map(|top| {
        let inside = top.node.children.iter().flatten().filter(|_| top.node.name == "site");
        std::iter::once(&top.node).chain(inside).map(|node| (&top.file.source, node))
    });
    for (source, node) in levels {
        let samples = |node: &Node| node.entries.iter().any(|entry| entry.name.as_deref() == Some("sample"));
        if node.name == "trace-context" && name_of(node) == Some("pass") && samples(node) {
            let message = "`sample=` says nothing beside `pass`: no trace begins here";
            let help = "write `trace-context begin sample=…`, or take `sample=` out";
            let warning = Diagnostic::warning(message).at(source, node.name_range.clone());
            checker.diagnostics.push(warning.help(help));
        }
    }
}

/// Warns of what goes by the figures of sites and routes where none are kept.
fn statistics(checker: &mut Checker<'_>, nodes: &[TopNode]) {
    let is_off = |top: &TopNode| top.node.name == "statistics" && name_of(&top.node) == Some("off");
    let Some(off) = nodes.iter().find(|top| is_off(top)) else { return };
    let (line, _) = off.file.source.position(off.node.name_range.start);
    let place = format!("`statistics off` in {}:{line}", off.file.source.name);
    let mut inside: Vec<(&Source, &Node)> = nodes.iter().map(|top| (&top.file.source, &top.node)).collect();
    let mut found = Vec::new();
    while let Some((source, node)) = inside.pop() {
        let what = match node.name.as_str() {
            "slow-after" => Some("no slow request is remembered"),
            "bucket" => Some("no request is counted in it"),
            "console" => Some("it has neither sites and routes nor a history to show"),
            _ => None,
        };
        found.extend(what.map(|what| (source, node, what)));
        inside.extend(node.children.iter().flatten().map(|child| (source, child)));
    }
    found.sort_by_key(|(source, node, _)| (source.name.clone(), node.name_range.start));
    for (source, node, what) in found {
        let message = format!("`{}` beside {place}: {what}", node.name);
        let help =
            "take one of the two out; `statistics { history off }` keeps the figures of sites and routes";
        let warning = Diagnostic::warning(message).at(source, node.name_range.clone());
        checker.diagnostics.push(warning.help(help));
    }
}

/// A text, and the definitions that it stands in.
type Mention<'n> = (&'n str, Vec<*const Node>);

/// Warns of names that nobody mentions.
fn names(checker: &mut Checker<'_>, nodes: &[TopNode]) {
    let (mut defined, mut mentions) = (Vec::new(), Vec::new());
    for top in nodes {
        gather(&top.file.source, &top.node, &mut Vec::new(), &mut defined, &mut mentions);
    }
    // What the environment fills in may be any name.
    if defined.is_empty() || mentions.iter().any(|(text, _)| text.contains("${")) {
        return;
    }
    let mut by_name: HashSet<(&str, Option<*const Node>)> = HashSet::new();
    let mut of_values: Vec<&Mention<'_>> = Vec::new();
    for mention in &mentions {
        let (text, inside) = mention;
        // `proxy "http://app/base"`, `member "app"`.
        let behind = text.split_once("://").map_or(*text, |(_, behind)| behind);
        let name = behind.split(['/', '?']).next().unwrap_or(behind);
        for name in [*text, name] {
            by_name.insert((name, inside.last().copied()));
        }
        if text.contains("{value.") {
            of_values.push(mention);
        }
    }
    let mut places: HashMap<&str, Vec<Option<*const Node>>> = HashMap::new();
    for (name, inside) in by_name {
        places.entry(name).or_default().push(inside);
    }
    for (source, node, kind) in defined {
        let Some(name) = name_of(node) else { continue };
        let own = Some(std::ptr::from_ref(node));
        let is_named = places.get(name).is_some_and(|places| places.iter().any(|inside| *inside != own));
        let asked = format!("{{value.{name}");
        let is_filled_in = kind.0 == "value"
            && of_values.iter().any(|(text, inside)| {
                inside.last().copied() != own
                    && text
                        .match_indices(&asked)
                        .any(|(at, _)| text[at + asked.len()..].starts_with(['}', ':']))
            });
        if is_named || is_filled_in {
            continue;
        }
        let (_, what, help) = kind;
        let message = format!("nothing uses the {what} `{name}`");
        let help = format!("{}, or take it out", help.replace("{}", name));
        checker.diagnostics.push(Diagnostic::warning(message).at(source, node.name_range.clone()).help(help));
    }
}

/// Collects what has a name, and every text that may be one.
fn gather<'n>(
    source: &'n Source,
    node: &'n Node,
    inside: &mut Vec<*const Node>,
    defined: &mut Vec<(&'n Source, &'n Node, (&'static str, &'static str, &'static str))>,
    mentions: &mut Vec<Mention<'n>>,
) {
    // Within `match` and `when`, a `match` or a `value` is a condition and has no block.
    let is_definition = node.children.is_some() || node.name == "url-keys";
    let kind = NAMED.iter().find(|(word, ..)| is_definition && *word == node.name);
    if let Some(kind) = kind {
        defined.push((source, node, *kind));
        inside.push(std::ptr::from_ref(node));
    }
    let own_name = usize::from(kind.is_some());
    let arguments = node.arguments().skip(own_name);
    let properties = node.entries.iter().filter(|entry| entry.name.is_some());
    for entry in arguments.chain(properties) {
        if let Literal::Text(text) = &entry.value {
            mentions.push((text, inside.clone()));
        }
    }
    // Without a name it is this one.
    if node.name == "cgi" && node.arguments().next().is_none() {
        mentions.push(("cgi", inside.clone()));
    }
    for child in node.children.iter().flatten() {
        gather(source, child, inside, defined, mentions);
    }
    if kind.is_some() {
        inside.pop();
    }
}

fn name_of(node: &Node) -> Option<&str> {
    match &node.arguments().next()?.value {
        Literal::Text(name) => Some(name),
        _ => None,
    }
}

/// Warns of a folder for content that no application has complete before it is asked.
fn spill(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let uses = |action: &Action| matches!(action, Action::Fastcgi(_) | Action::Scgi(_) | Action::Cgi(_));
    if settings.sites.iter().flat_map(|site| &site.routes).any(|route| uses(&route.action)) {
        return;
    }
    let Some(top) = nodes.iter().find(|top| top.node.name == "spill") else { return };
    let message = "nothing uses `spill`: only `fastcgi`, `scgi` and `cgi` have content complete before an application is asked";
    let help =
        "take it out; `proxy` passes content on as it comes, and collects `request-buffer` of it before";
    let warning = Diagnostic::warning(message).at(&top.file.source, top.node.name_range.clone());
    checker.diagnostics.push(warning.help(help));
}

/// Warns of listeners that speak of TLS where there is none.
fn listeners(checker: &mut Checker<'_>, server: &Server) {
    // Proxies of one's own may speak TLS with the clients.
    let sites = &server.settings.sites;
    let trusts = |listener: &Listener| {
        !listener.proxies.is_empty()
            || sites.iter().any(|site| site.is_on(listener) && !site.trusted_proxies.is_empty())
    };
    for (listener, item) in server.settings.listeners.iter().zip(&server.listeners) {
        let warn = |message: &str, help: &str| {
            let item = item.child("redirect-to-https").unwrap_or(item);
            Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help)
        };
        if trusts(listener) || listener.tls.is_some() {
            continue;
        }
        let is_443 = matches!(&listener.address, ListenAddress::Tcp(address) if address.port() == 443);
        if listener.redirects_to_https.is_some() && server.has_no_tls() {
            let message = "no `listen` speaks TLS: every request is sent to where nobody answers";
            checker.diagnostics.push(warn(message, "add `listen \":443\" { tls }`, or take this out"));
        } else if let Some((message, help)) = sent_past(server, listener, item) {
            checker.diagnostics.push(warn(&message, &help));
        } else if is_443 {
            let message = "browsers speak TLS on port 443, and this listener does not";
            checker.diagnostics.push(warn(message, "write `tls` in its block: `listen \":443\" { tls }`"));
        }
    }
}

/// What is said where `redirect-to-https` sends to a port on which no listener speaks TLS. A port may be another outside, as that of
/// a container is: who writes it knows.
fn sent_past(server: &Server, listener: &Listener, item: &Item) -> Option<(String, String)> {
    let port = listener.redirects_to_https?;
    let is_written = item.child("redirect-to-https")?.properties.iter().any(|(name, _)| *name == "port");
    let spoken = ports_of_tls(server)?;
    if is_written || spoken.contains(&port) {
        return None;
    }
    let first = spoken.first()?;
    let listed = spoken.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    Some((
        format!("every request is sent to port {port}, and no `listen` speaks TLS there, but on {listed}"),
        format!(
            "write `redirect-to-https port={first}`, or `port={port}` where clients reach that `listen` on it, as through a \
             forwarded port"
        ),
    ))
}

/// The ports on which TLS is spoken; `None` where that cannot be said of one: what leads to a unix socket is somebody else's, and
/// port 0 is whichever is free.
fn ports_of_tls(server: &Server) -> Option<Vec<u16>> {
    let with_tls = server.settings.listeners.iter().filter(|listener| listener.tls.is_some());
    let port = |listener: &Listener| match &listener.address {
        ListenAddress::Tcp(address) => Some(address.port()).filter(|port| *port != 0),
        ListenAddress::Unix(_) => None,
    };
    let mut ports = with_tls.map(port).collect::<Option<Vec<_>>>()?;
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}

/// Warns of applications that are a listener of this server: each request would come back as another one.
fn circles(checker: &mut Checker<'_>, server: &Server, nodes: &[TopNode]) {
    let settings = &server.settings;
    let sources = super::login::sources_by_name(nodes);
    let listens = |to: &Destination| {
        settings.listeners.iter().find(|listener| match (&listener.address, to) {
            (ListenAddress::Tcp(own), Destination::Tcp(address)) => {
                let is_same = own.ip().to_canonical() == address.ip().to_canonical();
                // On every address, loopback is one of them.
                let is_any = own.ip().is_unspecified() && address.ip().is_loopback();
                own.port() != 0 && own.port() == address.port() && (is_same || is_any)
            }
            (ListenAddress::Tcp(own), Destination::Named(name)) => {
                let here = own.ip().is_unspecified() || own.ip().to_canonical().is_loopback();
                here && own.port() != 0 && *name == format!("localhost:{}", own.port())
            }
            (ListenAddress::Unix(own), Destination::Unix(path)) => own == path,
            _ => false,
        })
    };
    let mut said: Vec<&Origin> = Vec::new();
    for site in &settings.sites {
        for route in &site.routes {
            let Action::Proxy(proxy) = &route.action else { continue };
            let Some(listener) = listens(&proxy.gateway.to).filter(|listener| site.is_on(listener)) else {
                continue;
            };
            // With another name it may be another site that answers.
            let goes_elsewhere = match &proxy.host {
                Some(host) => !site.names.iter().any(|name| name.matches(host)) && settings.sites.len() > 1,
                None => false,
            };
            // Another path may have another route.
            if goes_elsewhere
                || !proxy.base.is_empty()
                || proxy.strip_prefix.is_some()
                || said.contains(&&route.origin)
            {
                continue;
            }
            said.push(&route.origin);
            let message =
                format!("this leads back to this server: it listens on {} itself", listener.written);
            let help = "name where the application listens, such as `proxy \"http://127.0.0.1:3000\"`";
            super::login::point_at(checker, &sources, &route.origin, Diagnostic::warning(message).help(help));
        }
    }
}

/// Whether a host may be one of another pattern's.
pub(super) fn overlaps(one: &HostPattern, other: &HostPattern) -> bool {
    use HostPattern::{Exact, Suffix};
    match (one, other) {
        (Exact(name), pattern) => pattern.matches(name),
        (pattern, Exact(name)) => pattern.matches(name),
        (Suffix(one), Suffix(other)) => one.ends_with(other.as_str()) || other.ends_with(one.as_str()),
    }
}

/// Names with a comma between them.
pub(super) fn listed(names: &[HostPattern]) -> String {
    names.iter().map(|name| format!("`{}`", host_text(name))).collect::<Vec<_>>().join(", ")
}
