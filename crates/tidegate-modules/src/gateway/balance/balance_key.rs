//! What of a request decides which member it goes to, and the cookie by which a client comes back.

use super::Group;
use std::net::IpAddr;
use tidegate_config::settings::upstream::{Balance, HashKey};
use tidegate_core::Exchange;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// What a request wants of a group.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::gateway) struct BalanceKey {
    /// A hash of the site on whose account it waits.
    pub(super) site: u64,
    /// Of what its settings say, for the policy `hash`.
    pub(super) key: u64,
    /// The member that the client's cookie names.
    pub(super) tag: Option<u64>,
    /// Whether it could be tried elsewhere: only such a request tries a member that was ill.
    pub(super) may_repeat: bool,
}

/// The cookie of a group, as a client gets it.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Sticky {
    /// Whether it is for encrypted connections alone.
    is_secure: bool,
}

impl BalanceKey {
    /// Of a request of the server's own, on the account of a site.
    pub(in crate::gateway) fn of_nobody(site: u64, may_repeat: bool) -> BalanceKey {
        BalanceKey { site, may_repeat, ..BalanceKey::default() }
    }

    /// Of a request.
    pub(in crate::gateway) fn of(
        group: &Group,
        site: u64,
        exchange: &Exchange<'_>,
        may_repeat: bool,
    ) -> BalanceKey {
        let key = match &group.settings.balance {
            Balance::Hash { key, .. } => key_of(key, exchange),
            _ => 0,
        };
        let tag = group.settings.sticky.as_ref().and_then(|name| {
            let value = std::str::from_utf8(cookie(exchange, name)?).ok()?;
            u64::from_str_radix(value, 16).ok()
        });
        BalanceKey { site, key, tag, may_repeat }
    }
}

impl Sticky {
    /// For nobody.
    pub(in crate::gateway) fn of_nobody() -> Sticky {
        Sticky { is_secure: false }
    }

    /// For the client of this request.
    pub(in crate::gateway) fn of(exchange: &Exchange<'_>) -> Sticky {
        Sticky { is_secure: exchange.scheme == "https" }
    }

    /// The value of `Set-Cookie`, where the client has to be told another member than it has named.
    pub(in crate::gateway) fn set_cookie(
        self,
        group: &Group,
        balance_key: BalanceKey,
        tag: u64,
    ) -> Option<String> {
        let name = group.settings.sticky.as_ref().filter(|_| balance_key.tag != Some(tag))?;
        let secure = if self.is_secure { "; Secure" } else { "" };
        Some(format!("{name}={tag:016x}; Path=/; HttpOnly; SameSite=Lax{secure}"))
    }
}

fn key_of(key: &HashKey, exchange: &Exchange<'_>) -> u64 {
    let value = match key {
        HashKey::Client => None,
        HashKey::Path => Some(exchange.path),
        HashKey::Url => return of_url(exchange),
        HashKey::Header(name) => exchange.fields.first(name),
        HashKey::Cookie(name) => cookie(exchange, name),
    };
    match value {
        Some(value) => xxh3_64(value),
        // All who lack a field must not meet on one member.
        None => match exchange.state.remote.client.ip() {
            Some(IpAddr::V4(address)) => xxh3_64(&address.octets()),
            Some(IpAddr::V6(address)) => xxh3_64(&address.octets()),
            None => 0, // all by one unix socket
        },
    }
}

/// Of host, path and query. A host is the same in capitals.
fn of_url(exchange: &Exchange<'_>) -> u64 {
    let mut hasher = Xxh3Default::new();
    exchange.authority.bytes().for_each(|byte| hasher.update(&[byte.to_ascii_lowercase()]));
    hasher.update(exchange.path);
    if let Some(query) = exchange.query {
        hasher.update(b"?");
        hasher.update(query.as_bytes());
    }
    hasher.digest()
}

/// The value of a cookie (RFC 6265 section 4.2.1).
fn cookie<'a>(exchange: &Exchange<'a>, name: &str) -> Option<&'a [u8]> {
    let lines = exchange.fields.all("cookie");
    lines.flat_map(|line| line.split(|byte| *byte == b';')).find_map(|pair| value_of(pair, name.as_bytes()))
}

fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let of = |authority, path, query| of_url(&Exchange { authority, path, query, ..Exchange::empty() });
        let one = of("a.test", &b"/a"[..], Some("b=1"));
        assert_eq!(of("A.Test", b"/a", Some("b=1")), one, "a host has no capitals");
        for other in [
            of("b.test", b"/a", Some("b=1")),
            of("a.test", b"/A", Some("b=1")),
            of("a.test", b"/a", Some("b=2")),
            of("a.test", b"/a", None),
            of("a.test", b"/a", Some("")),
        ] {
            assert_ne!(other, one);
        }
    }

    #[test]
    fn cookies() {
        for (pair, expected) in [
            (&b" id=abc "[..], Some(&b"abc"[..])),
            (b"id=a=b", Some(b"a=b")),
            (b"id=", Some(b"")),
            (b"id", None),
            (b"idx=abc", None),
            (b"x=id=abc", None),
        ] {
            assert_eq!(value_of(pair, b"id"), expected);
        }
    }
}
