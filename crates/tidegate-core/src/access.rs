//! The Access phase: whether a client may have the content of a route, by its address and its certificate.
//!
//! The only place that judges it; `gate` asks it, for requests of the server's own as well.

use crate::access_data::{AccessView, NameAsked};
use crate::client_names::ClientName;
use crate::exchange::Exchange;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use tidegate_config::settings::network_table::line_with;
use tidegate_config::settings::{Access, AccessRule, AccessRules, Network, Whom};
use tidegate_http::Method;
use tidegate_io::regular::read_regular;

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal<'s> {
    /// A client has asked for the path itself, and the route is `internal`.
    Internal,
    /// A `deny` fits.
    Denied(&'s AccessRule),
    /// There is this `allow` and others perhaps, and none fits.
    NotAllowed(&'s AccessRule),
    /// This `allow` of this machine would fit, had the request not come through a proxy that nobody has named.
    UnnamedProxy(&'s AccessRule),
    /// The same where the proxy is trusted, and does not say for whom it speaks.
    UnnamedClient(&'s AccessRule),
    /// A rule goes by the name of the client, and that has to be asked for.
    NameWanted,
    /// The same, and the name servers do not answer: this rule could decide otherwise.
    NameUnanswered,
    /// The client has shown no certificate.
    NoCertificate,
    /// The method is none of these.
    Method(&'s [String]),
}

/// Whether a request is let in, or why not. Every level of rules has to let it in. `name` is what the client is called, where
/// that has been asked for.
///
/// # Errors
/// The rule that refuses it, or that the name of the client has to be asked for first.
pub(crate) fn judge<'s>(
    access: &'s Access,
    view: &AccessView,
    exchange: &Exchange<'_>,
    name: Option<&ClientName>,
) -> Result<(), Refusal<'s>> {
    if access.is_internal && (exchange.state.hops == 0 || exchange.state.is_hypothetical) {
        return Err(Refusal::Internal);
    }
    for rules in &access.levels {
        deciding(rules, view, exchange, name)?;
    }
    if access.requires_client_certificate && exchange.client().is_none() {
        return Err(Refusal::NoCertificate);
    }
    match &access.methods {
        Some(methods) if !is_among(methods, exchange) => Err(Refusal::Method(methods)),
        _ => Ok(()),
    }
}

/// Whether the method of a request is one of these. `GET` is for `HEAD` as well.
fn is_among(methods: &[String], exchange: &Exchange<'_>) -> bool {
    let is_it = |method: &String| {
        method == exchange.method_token || method == "GET" && exchange.method == Method::Head
    };
    methods.iter().any(is_it)
}

/// The rule of a level that lets the request in; `None` where there are only `deny`, and none fits.
pub(crate) fn deciding<'s>(
    rules: &'s AccessRules,
    view: &AccessView,
    exchange: &Exchange<'_>,
    name: Option<&ClientName>,
) -> Result<Option<&'s AccessRule>, Refusal<'s>> {
    let remote = &exchange.state.remote;
    let client = remote.client.ip();
    let facts = view.knowing(exchange.now, name);
    // Whoever has a proxy on this machine would otherwise be of this machine. No `deny` is got round by that.
    let decided = match (rules.first(client, remote.is_stand_in(), &facts), rules.last_allow()) {
        (Some(rule), _) if rule.allows => Ok(Some(rule)),
        (Some(rule), _) => Err(Refusal::Denied(rule)),
        (None, Some(rule)) if rule.is_for_this_machine() && Network::Local.covers(client) => {
            Err(if remote.is_trusted { Refusal::UnnamedClient(rule) } else { Refusal::UnnamedProxy(rule) })
        }
        (None, Some(rule)) => Err(Refusal::NotAllowed(rule)),
        (None, None) => Ok(None),
    };
    // Rules are looked at in order: one that goes by a name, and was passed by for want of it, stands before what has decided.
    match (facts.name_asked(), &decided) {
        (NameAsked::No, _) => decided,
        (NameAsked::Wanted, _) => Err(Refusal::NameWanted),
        (NameAsked::Unanswered { could_deny: true, .. }, Ok(_))
        | (NameAsked::Unanswered { could_allow: true, .. }, Err(_)) => Err(Refusal::NameUnanswered),
        (NameAsked::Unanswered { .. }, _) => decided,
    }
}

impl Refusal<'_> {
    /// How the settings would have to be changed for this request to be let in, for `explain`.
    pub(crate) fn remedy(&self, view: &AccessView, exchange: &Exchange<'_>) -> String {
        let remote = &exchange.state.remote;
        let address = remote.client.ip().map(|address| address.to_canonical());
        let client = address.map_or("unix".to_owned(), |address| address.to_string());
        let because = |rule: &AccessRule| {
            let country = match &rule.whom {
                Whom::Countries(_) => format!("; its country is {}", view.country(address)),
                Whom::Names(_) => match address.and_then(|address| view.name_hint(address)) {
                    Some(name) => format!("; it is called {name}"),
                    None => "; it has no name that leads back to it (`--name` says another)".to_owned(),
                },
                Whom::Network(_) | Whom::List(_) => String::new(),
            };
            let time = rule.time.as_ref().map(|time| format!("; it is {}", time.clock(exchange.now)));
            country + &time.unwrap_or_default()
        };
        match self {
            Refusal::Internal => {
                "to have it answered to clients, take `internal` out, or lead to it with `hand-to`".to_owned()
            }
            Refusal::Denied(rule) => {
                let of_list = match &rule.whom {
                    Whom::List(path) => format!(", take {} out of {}", listed(path, address), path.display()),
                    Whom::Network(_) | Whom::Countries(_) | Whom::Names(_) => String::new(),
                };
                format!(
                    "to let it in, write `allow \"{client}\"` in front of that line{of_list}, or write `access off` in the \
                     route{}",
                    because(rule)
                )
            }
            Refusal::NotAllowed(rule) => {
                let of_list = match &rule.whom {
                    Whom::List(path) => format!(", or add it to {}", path.display()),
                    Whom::Network(_) | Whom::Countries(_) | Whom::Names(_) => String::new(),
                };
                let of_time = match (&rule.time, &rule.whom) {
                    (Some(_), Whom::Network(network)) if network.covers(address) => ", or widen its `time`",
                    _ => "",
                };
                format!(
                    "to let it in, write `allow \"{client}\"` beside that line{of_list}{of_time}{}",
                    because(rule)
                )
            }
            Refusal::UnnamedProxy(_) => {
                format!("to have the client known, write `trusted-proxies \"{}\"` in the site", remote.peer)
            }
            Refusal::UnnamedClient(_) => {
                "to have the client known, let the proxy send `X-Forwarded-For` or `Forwarded`".to_owned()
            }
            Refusal::NameWanted | Refusal::NameUnanswered => {
                "to have it decided, say what the client is called with `--name`, or that it has none with `--name none`"
                    .to_owned()
            }
            Refusal::NoCertificate => "to let it in, the client has to show a certificate".to_owned(),
            Refusal::Method(_) => {
                format!("to let it in, add `\"{}\"` to `methods`", exchange.method_token)
            }
        }
    }
}

/// Where an address stands in a list, as far as the file can be read by whom explains.
fn listed(path: &Path, address: Option<IpAddr>) -> String {
    let text = read_regular(path, crate::access_data::FILE_SIZE).unwrap_or_default();
    match address.and_then(|address| line_with(&text, address)) {
        Some((number, line)) => format!("line {number} (`{line}`)"),
        None => "it".to_owned(),
    }
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Internal => f.write_str("the route is `internal`, and a client has asked for its path"),
            Refusal::Denied(rule) => write!(f, "`{rule}` ({}) refuses it", rule.origin),
            Refusal::NotAllowed(rule) => {
                write!(f, "no `allow` of this level lets it in; the last is `{rule}` ({})", rule.origin)
            }
            Refusal::UnnamedProxy(rule) => {
                let origin = &rule.origin;
                write!(
                    f,
                    "it came through a proxy, which `trusted-proxies` does not name; only this machine ({origin})"
                )
            }
            Refusal::UnnamedClient(rule) => {
                write!(
                    f,
                    "it came through a trusted proxy that names no client; only this machine ({})",
                    rule.origin
                )
            }
            Refusal::Method(methods) => write!(f, "`methods` names only {}", methods.join(", ")),
            Refusal::NameWanted | Refusal::NameUnanswered => {
                f.write_str("a rule goes by the name of the client, and the name servers have not said it")
            }
            Refusal::NoCertificate => f.write_str("the client has shown no certificate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Remote;
    use crate::state::RequestState;
    use tidegate_http::{Field, Fields};
    use tidegate_io::socket::Peer;

    fn rule(text: &str) -> AccessRule {
        let (allows, text) = (text.starts_with('+'), &text[1..]);
        let network = match text {
            "all" => Network::All,
            "local" => Network::Local,
            _ => {
                let (address, bits) = text.split_once('/').unwrap();
                Network::Prefix { address: address.parse().unwrap(), bits: bits.parse().unwrap() }
            }
        };
        AccessRule::of(allows, network, Default::default())
    }

    fn is_let_in(levels: &[&[&str]], client: &str, fields: &[Field<'_>]) -> bool {
        is_let_in_behind(&[], levels, client, fields)
    }

    fn is_let_in_behind(trusted: &[Network], levels: &[&[&str]], client: &str, fields: &[Field<'_>]) -> bool {
        let level =
            |level: &&[&str]| AccessRules::from(level.iter().map(|text| rule(text)).collect::<Vec<_>>());
        let levels = levels.iter().map(|rules| level(rules).into()).collect();
        let access = Access { levels, ..Access::default() };
        let peer = match client {
            "unix" => Peer::Unix,
            address => Peer::Tcp((address.parse::<IpAddr>().unwrap(), 1).into()),
        };
        let mut remote = Remote::behind(&trusted.to_vec().into(), peer, &Fields::new(fields));
        remote.look_for_proxy(&Fields::new(fields));
        let exchange = Exchange { state: RequestState::of(remote), ..Exchange::empty() }; // only what `remote` says counts
        judge(&access, &AccessView::default(), &exchange, None).is_ok()
    }

    #[test]
    fn first_matching_rule_decides_and_an_allow_closes_the_rest() {
        let level: &[&str] = &["-10.1.0.0/16", "+10.0.0.0/8"];
        for (client, expected) in [
            ("10.2.3.4", true),
            ("::ffff:10.2.3.4", true),
            ("10.1.3.4", false),
            ("192.0.2.1", false),
            ("unix", false),
        ] {
            assert_eq!(is_let_in(&[level], client, &[]), expected, "{client}");
        }
        assert!(is_let_in(&[&["-::1/128"]], "10.1.3.4", &[]));
        assert!(is_let_in(&[&["+0.0.0.0/0"]], "10.1.3.4", &[]));
        assert!(is_let_in(&[], "10.1.3.4", &[]));
    }

    #[test]
    fn every_level_has_to_let_a_client_in() {
        let deny_all: &[&str] = &["-all"];
        let (ten, here): (&[&str], &[&str]) = (&["+10.0.0.0/8"], &["+127.0.0.0/8"]);
        assert!(!is_let_in(&[deny_all, here], "127.0.0.1", &[]));
        assert!(!is_let_in(&[ten, here], "127.0.0.1", &[]));
        assert!(!is_let_in(&[ten, here], "10.0.0.1", &[]));
        assert!(is_let_in(&[ten, &["+all"]], "10.0.0.1", &[]));
        assert!(!is_let_in(&[ten, &["-10.0.0.1/32"]], "10.0.0.1", &[]));
    }

    #[test]
    fn this_machine_is_whoever_speaks_for_nobody_else() {
        let local: &[&[&str]] = &[&["+local"]];
        for (client, expected) in [("127.9.9.9", true), ("::1", true), ("unix", true), ("10.0.0.1", false)] {
            assert_eq!(is_let_in(local, client, &[]), expected, "{client}");
        }
        for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"] {
            let fields = [Field { name, value: b"192.0.2.1" }];
            assert!(!is_let_in(local, "127.0.0.1", &fields), "{name}");
            assert!(is_let_in(&[&["+127.0.0.0/8"]], "127.0.0.1", &fields), "{name}");
            assert!(!is_let_in(&[&["-local", "+all"]], "127.0.0.1", &fields), "{name}");
            assert!(!is_let_in_behind(&[Network::Local], local, "127.0.0.1", &fields), "{name}");
        }
        let named = [Field { name: "X-Forwarded-For", value: b"127.0.0.1" }];
        assert!(is_let_in_behind(&[Network::Local], local, "127.0.0.1", &named));
        assert!(is_let_in_behind(&[Network::Local], local, "127.0.0.1", &[]));
    }
}
