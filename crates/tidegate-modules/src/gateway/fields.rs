//! Which fields of a request an application may see.
//!
//! Whoever trusts this server trusts what it says of its clients, so what a client says of itself in the same
//! words is dropped (FAULTS 36, 37): fields that a proxy sets, fields that carry an identity, and those that
//! an application answers with.

/// Set by proxies: believed when a trusted one sends them.
const OF_PROXIES: [&str; 9] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-forwarded-scheme",
];

/// Identities that a proxy in front has established: believed when a trusted one sends them.
const OF_IDENTITY: [&str; 12] = [
    "remote-user",
    "x-remote-user",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-authenticated-user",
    "x-webauth-user",
    "client-cert",
    "client-cert-chain",
    "x-client-cert",
    "x-client-verify",
];

/// Beginnings of such names.
const IDENTITY_PREFIXES: [&str; 3] = ["x-auth-request-", "x-ssl-client-", "ssl-client-"];

/// Whether a field of this name may be passed on; `is_trusted` tells whether the client is a proxy of one's own.
#[inline]
pub fn may_pass(name: &str, is_trusted: bool) -> bool {
    // None of them begins otherwise, and few fields begin so.
    if !matches!(
        name.as_bytes().first(),
        Some(b'x' | b'X' | b'f' | b'F' | b'r' | b'R' | b'c' | b'C' | b's' | b'S')
    ) {
        return true;
    }
    let is = |other: &&str| name.eq_ignore_ascii_case(other);
    let begins =
        |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if is(&"x-sendfile") || begins("x-accel-") {
        return false;
    }
    is_trusted
        || !(OF_PROXIES.iter().any(&is)
            || OF_IDENTITY.iter().any(&is)
            || IDENTITY_PREFIXES.iter().any(|prefix| begins(prefix)))
}

/// Whether a field tells of the client's certificate (RFC 9440): where there is one of our own connection, that alone
/// is told.
pub fn is_certificate(name: &str) -> bool {
    name.eq_ignore_ascii_case("client-cert") || name.eq_ignore_ascii_case("client-cert-chain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_may_say() {
        for (name, anyone, trusted) in [
            ("Accept", true, true),
            ("X-Requested-With", true, true),
            ("Cookie", true, true),
            ("Referer", true, true),
            ("X-Sendfile", false, false),
            ("x-accel-redirect", false, false),
            ("X-Accel-", false, false),
            ("X-Forwarded-For", false, true),
            ("Forwarded", false, true),
            ("x-real-ip", false, true),
            ("Remote-User", false, true),
            ("X-Auth-Request-Email", false, true),
            ("SSL-Client-Verify", false, true),
            ("Client-Cert", false, true),
        ] {
            assert_eq!((may_pass(name, false), may_pass(name, true)), (anyone, trusted), "{name}");
        }
    }
}
