//! TLS of listeners and sites.

use super::inherit::Inherited;
use super::written_or_default;
use crate::check::{Checker, Item};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::settings::{
    Acme, AcmeAuthority, AcmeChallenge, CertificateFiles, ClientCertificates, DnsHook, DnsUpdate,
    HostPattern, ListenAddress, ListenTls, NetworkSet, SiteTls,
};
use crate::value::{Value, read_host};
use std::path::PathBuf;
use std::time::Duration;

/// `tls` of a listener.
pub(super) fn listen(item: &Item) -> ListenTls {
    let certificate = path(item.property("certificate"));
    ListenTls { certificate: certificate.map(|certificate| files(item, certificate)) }
}

fn files(item: &Item, certificate: PathBuf) -> CertificateFiles {
    let key = path(item.property("key")).unwrap_or_else(|| certificate.clone());
    CertificateFiles { certificate, key, origin: item.origin() }
}

fn path(value: Option<Value>) -> Option<PathBuf> {
    match value {
        Some(Value::Path(path)) => Some(path),
        _ => None,
    }
}

/// Says so when a listener contradicts itself.
pub(super) fn check_listener(checker: &mut Checker<'_>, item: &Item) {
    if item.child("tls").is_some()
        && let Some(redirect) = item.child("redirect-to-https")
    {
        let message =
            "`redirect-to-https` stands on a listener that speaks TLS, and would lead back to itself";
        checker
            .diagnostics
            .push(redirect.error(message).help("put it on the plain listener, such as `listen \":80\"`"));
    }
    if let Some(tls) = item.child("tls")
        && tls.property("key").is_some()
        && tls.property("certificate").is_none()
    {
        let message = "`tls` names a key and no certificate";
        checker.diagnostics.push(tls.error(message).help("add `certificate=\"site.pem\"`"));
    }
}

/// Whose word of the PROXY protocol counts.
pub(super) fn proxies(checker: &mut Checker<'_>, item: &Item) -> NetworkSet {
    let mut networks = Vec::new();
    for item in item.children.iter().filter(|item| item.directive.name == "proxy-protocol") {
        match item.property("from") {
            Some(Value::Network(network)) => networks.push(network),
            _ if item.is_faulty => {} // has been said
            _ => {
                let message = "`proxy-protocol` does not say whom to believe";
                let help = "name the load balancers: `proxy-protocol from=\"10.0.0.0/8\"`";
                checker.diagnostics.push(item.error(message).help(help));
            }
        }
    }
    networks.into()
}

/// The port that `redirect-to-https` names.
pub(super) fn port(item: &Item) -> u16 {
    match item.property("port") {
        Some(Value::Number(port)) => u16::try_from(port).unwrap_or(443),
        _ => 443,
    }
}

/// `acme`.
pub(super) fn acme(checker: &mut Checker<'_>, items: &[Item]) -> Acme {
    let block = items.iter().find(|item| item.directive.name == "acme");
    let children = block.map_or(&[][..], |item| &item.children);
    let find = |name: &str| written_or_default(children, Context::Acme, name);
    let written: Vec<&Item> = children.iter().filter(|item| item.directive.name == "authority").collect();
    let authorities = match written.as_slice() {
        [] => find("authority").iter().filter_map(|item| authority(checker, item)).collect(),
        written => written.iter().filter_map(|item| authority(checker, item)).collect(),
    };
    let challenges = find("challenge").map(|item| challenges(&item)).unwrap_or_default();
    let hook = find("dns-hook");
    if challenges.contains(&AcmeChallenge::Dns01)
        && hook.is_none()
        && !children.iter().any(|item| item.directive.name == "dns-update")
        && let Some(item) = children.iter().find(|item| item.directive.name == "challenge")
    {
        let message = "`dns-01` is wanted, and nothing says how records are set";
        checker
            .diagnostics
            .push(item.error(message).help("add `dns-hook \"/path/of/a/command\"`, or `dns-update`"));
    }
    let updates = children.iter().filter(|item| item.directive.name == "dns-update");
    let dns_updates = updates.filter_map(|item| dns_update(checker, item)).collect();
    Acme {
        dns_updates,
        storage: find("storage").and_then(|item| path(item.first().cloned())),
        email: find("email").and_then(|item| email(checker, &item)),
        authorities,
        challenges,
        dns_hook: hook.and_then(|item| {
            let settle = match item.property("settle") {
                Some(Value::Duration(settle)) => settle,
                _ => Duration::ZERO,
            };
            let user = match item.property("user") {
                Some(Value::Text(user)) => Some(user),
                _ => None,
            };
            path(item.first().cloned()).map(|command| DnsHook {
                command,
                settle,
                user,
                group: None,
                sealed: Default::default(),
            })
        }),
    }
}

/// Whom an authority may write to.
fn email(checker: &mut Checker<'_>, item: &Item) -> Option<String> {
    let text = item.texts().pop()?;
    let address = text.strip_prefix("mailto:").unwrap_or(&text);
    let is_address = address.rsplit_once('@').is_some_and(|(name, host)| {
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"@,;<>".contains(&byte);
        !name.is_empty() && name.bytes().all(is_name) && read_host(host).is_ok()
    });
    if !is_address || address.len() < text.len() {
        let message = format!("`{text}` is no address of e-mail");
        let help = match is_address {
            true => format!("write the address alone: `email \"{address}\"`"),
            false => "write it as `email \"admin@example.com\"`".to_owned(),
        };
        checker.diagnostics.push(item.error_at(0, message).help(help));
    }
    Some(text)
}

fn dns_update(checker: &mut Checker<'_>, item: &Item) -> Option<DnsUpdate> {
    let text = |name: &str| match item.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let Some(Value::Host(HostPattern::Exact(zone))) = item.first() else { return None };
    let settle = match item.property("settle") {
        Some(Value::Duration(settle)) => settle,
        _ => Duration::ZERO,
    };
    match (item.property("server"), text("key-name"), text("key")) {
        (Some(Value::Address(ListenAddress::Tcp(server))), Some(key_name), Some(key)) => {
            Some(DnsUpdate { zone: zone.clone(), server, key_name, key, settle })
        }
        _ => {
            let message = "`dns-update` needs a server, and a key with its name";
            checker
                .diagnostics
                .push(item.error(message).help(format!("for example `{}`", item.directive.example)));
            None
        }
    }
}

fn authority(checker: &mut Checker<'_>, item: &Item) -> Option<AcmeAuthority> {
    let directory = item.texts().pop()?;
    if !directory.starts_with("https://") {
        let message = "an authority is reached with https alone";
        let help = "write the URL of its directory: `\"https://acme-v02.api.letsencrypt.org/directory\"`";
        checker.diagnostics.push(item.error_at(0, message).help(help));
        return None;
    }
    let text = |name: &str| match item.property(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    let external_account = match (text("eab-id"), text("eab-key")) {
        (Some(id), Some(key)) => Some((id, key)),
        (None, None) => None,
        _ => {
            let message = "`eab-id` and `eab-key` go together";
            checker.diagnostics.push(item.error(message).help("add the other of the two"));
            None
        }
    };
    let profile = text("profile");
    Some(AcmeAuthority { directory, roots: path(item.property("roots")), external_account, profile })
}

fn challenges(item: &Item) -> Vec<AcmeChallenge> {
    let kind = |value: &Value| match value {
        Value::Word("http-01") => Some(AcmeChallenge::Http01),
        Value::Word("tls-alpn-01") => Some(AcmeChallenge::TlsAlpn01),
        Value::Word("dns-01") => Some(AcmeChallenge::Dns01),
        _ => None,
    };
    item.arguments.iter().filter_map(|placed| kind(&placed.value)).collect()
}

/// `tls` of a site.
pub(super) fn site(checker: &mut Checker<'_>, item: &Item) -> SiteTls {
    let mut tls = SiteTls::default();
    for item in &item.children {
        match (item.directive.name, item.first()) {
            ("certificate", Some(Value::Path(certificate))) => {
                tls.certificates.push(files(item, certificate.clone()));
            }
            ("client-certificates", Some(Value::Path(authorities))) => {
                tls.clients = Some(ClientCertificates {
                    authorities: authorities.clone(),
                    is_required: matches!(item.property("mode"), Some(Value::Word("required"))),
                    origin: item.origin(),
                });
            }
            ("versions", _) => {
                (tls.without_tls12, tls.without_tls13) = (!names(item, "1.2"), !names(item, "1.3"));
            }
            ("protocols", _) => {
                (tls.without_h2, tls.without_http11) = (!names(item, "h2"), !names(item, "http/1.1"));
            }
            ("early-data", _) => tls.takes_early_data = true,
            _ => {}
        }
    }
    if tls.without_tls13
        && !tls.without_tls12
        && !tls.takes_early_data
        && let Some(versions) = item.child("versions")
    {
        let message = "`versions` leaves out TLS 1.3: every client of today speaks it, and with 1.2 a handshake takes longer, \
                       shows the certificate to who listens, and does not hold against quantum computers";
        let help = "write `versions \"1.2\" \"1.3\"`, which is the default, or take it out";
        checker
            .diagnostics
            .push(Diagnostic::warning(message).at(&versions.file.source, versions.header.clone()).help(help));
    }
    if tls.takes_early_data
        && let Some(clients) = item.child("client-certificates")
    {
        let message = "`client-certificates` cannot go with `early-data`";
        let help = "early data comes before the client has shown its certificate; take one of the two out";
        checker.diagnostics.push(clients.error(message).help(help));
    }
    if tls.takes_early_data
        && tls.without_tls13
        && let Some(early) = item.child("early-data")
    {
        let message = "`early-data` needs TLS 1.3, which `versions` leaves out";
        checker.diagnostics.push(early.error(message).help("add \"1.3\" to `versions`, or take this out"));
    }
    tls
}

/// Whether a word is among the arguments.
fn names(item: &Item, wanted: &str) -> bool {
    item.arguments.iter().any(|placed| matches!(placed.value, Value::Word(word) if word == wanted))
}

/// The value of `Strict-Transport-Security` (RFC 6797 section 6.1); `None` for `hsts off`.
pub(crate) fn hsts_value(item: &Item) -> Option<String> {
    let Some(Value::Duration(time)) = item.first() else { return None };
    let has = |word: &str| {
        item.arguments.iter().any(|placed| matches!(placed.value, Value::Word(given) if given == word))
    };
    let mut value = format!("max-age={}", time.as_secs());
    if has("subdomains") {
        value += "; includeSubDomains";
    }
    if has("preload") {
        value += "; preload";
    }
    Some(value)
}

/// What is said of `hsts` where nothing could be reached over `https`.
pub(super) const HSTS_WITHOUT_TLS: &str =
    "no `listen` speaks TLS: plain requests are sent to `https`, where nobody answers";
/// What to do about it.
pub(super) const HSTS_HELP: &str = "write `listen \":443\" { tls }`; where TLS ends at a proxy in front, name it in \
                                    `trusted-proxies`";

/// Makes the field part of what the site's routes send; whether plain requests are sent to `https`.
pub(super) fn hsts(inherited: &mut Inherited) -> bool {
    let Some(value) = inherited.hsts.take() else { return false };
    const NAME: &str = "Strict-Transport-Security";
    if !inherited.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(NAME)) {
        inherited.fields.push((NAME.to_owned(), value));
    }
    true
}
