//! `dns`: who is asked for names and addresses.

use std::net::{IpAddr, SocketAddr};

use crate::check::{Checker, Item};
use crate::settings::Dns;
use crate::value::Value;

/// The port of name servers.
const PORT: u16 = 53;

/// What `dns` says; without it, or where what is wrong with it has been said, the machine's name servers are asked.
pub(super) fn dns(checker: &mut Checker<'_>, item: Option<&Item>) -> Dns {
    let Some(item) = item else { return Dns::default() };
    let mut dns = Dns::default();
    for (at, text) in item.texts().iter().enumerate() {
        match address(text) {
            Some(address) => dns.servers.push(address),
            None => {
                let message = format!("`{text}` is no address of a name server");
                let help = "write its address, such as `\"10.0.0.53\"` or `\"[2001:db8::53]:5353\"`: names are not looked up here";
                checker.diagnostics.push(item.error_at(at, message).help(help));
            }
        }
    }
    let number = |name, otherwise: usize| match item.property(name) {
        Some(Value::Number(number)) => usize::try_from(number).unwrap_or(otherwise),
        _ => otherwise,
    };
    (dns.entries, dns.queries) = (number("entries", dns.entries), number("queries", dns.queries));
    if let Some(Value::Duration(timeout)) = item.property("timeout") {
        dns.timeout = timeout;
    }
    if let Some(Value::Duration(lifetime)) = item.property("lifetime") {
        dns.lifetime = lifetime;
    }
    dns
}

/// An address with a port or without.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    address.or_else(|_| text.parse::<SocketAddr>()).ok().filter(|address| address.port() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("10.0.0.53", Some("10.0.0.53:53")),
            ("127.0.0.1:5353", Some("127.0.0.1:5353")),
            ("::1", Some("[::1]:53")),
            ("[::1]", Some("[::1]:53")),
            ("[::1]:5353", Some("[::1]:5353")),
            ("127.0.0.1:0", None),
            ("dns.example.com", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|address| address.parse().unwrap()), "{text}");
        }
    }
}
