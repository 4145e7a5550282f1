//! `Host` and the authority of an absolute target: valid, and the same (RFC 3986 section 3.2, RFC 9112
//! section 3.2).

use super::bytes::{is_reg_name, is_reg_name_all, reg_name_len};
use std::net::Ipv6Addr;

/// `uri-host [ ":" port ]` with a host that is not empty. No user information, no path. An IP literal is an
/// IPv6 address in brackets; the form for future versions has never been used and is refused.
#[inline]
pub(crate) fn is_valid(authority: &[u8]) -> bool {
    is_reg_name_all(authority) || is_more_than_name(authority) // most are nothing but a name
}

/// The same of one with a port, or with another host than a plain name.
fn is_more_than_name(authority: &[u8]) -> bool {
    let at = reg_name_len(authority);
    if at > 0
        && let Some([b':', port @ ..]) = authority.get(at..)
    {
        return is_valid_port(port);
    }
    let (host, port) = split(authority);
    is_valid_host(host) && port.is_none_or(is_valid_port)
}

/// Whether both name the same host and port; a missing or empty port is `default_port`.
pub(crate) fn is_same(a: &[u8], b: &[u8], default_port: u16) -> bool {
    let ((host_a, port_a), (host_b, port_b)) = (split(a), split(b));
    let number = |port: Option<&[u8]>| port.and_then(port_number).unwrap_or(default_port);
    host_a.eq_ignore_ascii_case(host_b) && number(port_a) == number(port_b)
}

/// `host ":" port`, both there: the only target of CONNECT.
pub(crate) fn is_valid_with_port(authority: &[u8]) -> bool {
    let (host, port) = split(authority);
    is_valid_host(host) && port.is_some_and(|port| !port.is_empty() && is_valid_port(port))
}

/// Scheme's default port and authority of an absolute `http` or `https` URI.
pub(crate) fn of_absolute(target: &[u8]) -> Option<(u16, &[u8])> {
    let after = |scheme: &str| {
        target.get(..scheme.len()).filter(|head| head.eq_ignore_ascii_case(scheme.as_bytes()))?;
        target.get(scheme.len()..)
    };
    let (default_port, rest) = match after("http://") {
        Some(rest) => (80, rest),
        None => (443, after("https://")?),
    };
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    Some((default_port, rest.get(..end)?))
}

fn split(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let colon = match authority {
        [b'[', ..] => memchr::memchr(b']', authority).map(|bracket| bracket + 1),
        _ => memchr::memchr(b':', authority),
    };
    match colon.and_then(|at| authority.split_at_checked(at)) {
        Some((host, [b':', port @ ..])) => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_valid_host(host: &[u8]) -> bool {
    match host {
        [] => false,
        [b'[', inner @ .., b']'] => str::from_utf8(inner).is_ok_and(|s| s.parse::<Ipv6Addr>().is_ok()),
        _ => host.iter().all(|b| is_reg_name(*b)) || is_percent_encoded(host),
    }
}

/// A `reg-name` with percent-encoded bytes: legal, and hardly ever seen. Applications decode it, so that bytes which end a
/// line or a host name are refused in this form as well.
fn is_percent_encoded(mut host: &[u8]) -> bool {
    loop {
        host = match host {
            [] => return true,
            [b'%', a, b, rest @ ..] => match decoded(*a, *b) {
                Some(byte) if !byte.is_ascii_control() && !b"/?#[]@:\\%".contains(&byte) => rest,
                _ => return false,
            },
            [b, rest @ ..] if is_reg_name(*b) => rest,
            _ => return false,
        }
    }
}

fn decoded(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn is_valid_port(port: &[u8]) -> bool {
    port.is_empty() || port_number(port).is_some()
}

fn port_number(port: &[u8]) -> Option<u16> {
    if port.is_empty() {
        return None;
    }
    port.iter().try_fold(0u16, |n, b| {
        let digit = b.is_ascii_digit().then(|| u16::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        let rows: [(&str, bool); 42] = [
            ("a", true),
            ("example.com", true),
            ("EXAMPLE.com.", true),
            ("a_b-c~d.e", true),
            ("example.com:80", true),
            ("example.com:", true),
            ("example.com:65535", true),
            ("127.0.0.1:8080", true),
            ("[::1]", true),
            ("[::1]:443", true),
            ("[2001:db8::7]:", true),
            ("a%20b", true),
            ("a%C3%bc", true),
            ("a%00%0d%0ab", false),
            ("a%0Ab", false),
            ("a%7f", false),
            ("a%2Fb", false),
            ("a%40b", false),
            ("a%3a80", false),
            ("a%2500", false),
            ("(a,b;c)", true),
            ("", false),
            (":80", false),
            ("example.com:65536", false),
            ("example.com:8a", false),
            ("example.com:-1", false),
            ("example.com:80:80", false),
            ("user@example.com", false),
            ("example.com/", false),
            ("example.com?x", false),
            ("example.com#x", false),
            ("a b", false),
            ("a\\b", false),
            ("a%2", false),
            ("a%zz", false),
            ("::1", false),
            ("[::1", false),
            ("[]", false),
            ("[::1]x", false),
            ("[v1.a]", false),
            ("[::1%25eth0]", false),
            ("b\u{fc}cher.example", false),
        ];
        for (authority, valid) in rows {
            assert_eq!(is_valid(authority.as_bytes()), valid, "{authority:?}");
        }
    }

    #[test]
    fn the_same_authority() {
        for (a, b, port, same) in [
            ("a", "A", 80, true),
            ("a:80", "a", 80, true),
            ("a:", "a:80", 80, true),
            ("a:443", "a", 80, false),
            ("a:443", "a", 443, true),
            ("[::1]:080", "[::1]", 80, true),
            ("a", "b", 80, false),
            ("a", "a.", 80, false),
        ] {
            assert_eq!(is_same(a.as_bytes(), b.as_bytes(), port), same, "{a} {b}");
        }
    }

    #[test]
    fn absolute_forms() {
        for (target, expected) in [
            ("http://a/b", Some((80, "a"))),
            ("HTTPS://a:1?x", Some((443, "a:1"))),
            ("http://a", Some((80, "a"))),
            ("http:///b", Some((80, ""))),
            ("ftp://a/", None),
            ("http:/a", None),
            ("/http://a", None),
        ] {
            assert_eq!(of_absolute(target.as_bytes()), expected.map(|(p, a)| (p, a.as_bytes())), "{target}");
        }
    }
}
