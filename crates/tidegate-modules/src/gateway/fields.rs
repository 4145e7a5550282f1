//! Which fields of a request an application may see.
//!
//! Whoever trusts this server trusts what it says of its clients, so what a client says of itself in the same
//! words is dropped (FAULTS 36, 37): fields that a proxy sets, fields that carry an identity, and those that
//! an application answers with. Of trailers fewer still are passed on, in either direction.

use super::claims::is_claim;
use crate::login::OwnCookies;
use tidegate_http::{Field, FieldLines, Fields};
use tidegate_wire::cgi::is_unambiguous;
use tidegate_wire::h1::{UnsafeField, append_named};

/// Whether a field of this name may be passed on. `is_trusted` tells whether the client is a proxy of one's own; any client
/// may send those of `passed`.
#[inline]
pub fn may_pass(name: &str, is_trusted: bool, passed: &[String]) -> bool {
    !is_for_servers(name)
        && (is_trusted || !is_claim(name) || passed.iter().any(|passed| name.eq_ignore_ascii_case(passed)))
}

/// Which fields a request has of those that say how it is passed on. Most requests have hardly any of them, so all are looked for
/// in one pass, and only what is there is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Present {
    /// `TE`.
    pub te: bool,
    /// `Upgrade`.
    pub upgrade: bool,
    /// `Via` or `CDN-Loop`.
    pub hops: bool,
    /// `Connection`.
    pub connection: bool,
    /// `Content-Length`.
    pub content_length: bool,
    /// `If-None-Match` or `If-Modified-Since`, to which 304 is an answer (RFC 9110 section 13.2.2): those of who has asked, whatever
    /// an application is sent.
    pub condition: bool,
}

impl Present {
    /// Among these fields.
    #[inline]
    pub fn of(fields: &Fields<'_>) -> Present {
        let mut present = Present::default();
        for field in fields.iter() {
            match field.name.len() {
                2 => present.te |= field.is("te"),
                3 => present.hops |= field.is("via"),
                7 => present.upgrade |= field.is("upgrade"),
                8 => present.hops |= field.is("cdn-loop"),
                10 => present.connection |= field.is("connection"),
                13 => present.condition |= field.is("if-none-match"),
                14 => present.content_length |= field.is("content-length"),
                17 => present.condition |= field.is("if-modified-since"),
                _ => {}
            }
        }
        present
    }
}

/// Writes a field of a request for an application, of its cookies those that are not this server's own.
///
/// # Errors
/// It cannot be written down.
#[inline]
pub fn append(out: &mut Vec<u8>, field: &Field<'_>, own: &OwnCookies) -> Result<(), UnsafeField> {
    if field.name.len() != 6 || !field.is("cookie") {
        return append_named(out, field.name, field.value);
    }
    match own.without(field.value) {
        Some(value) => append_named(out, field.name, &value),
        None => Ok(()),
    }
}

/// Whether a field is what an application tells the server before it: which file to send, how to buffer. From a client it
/// does not reach an application, nor from an application a client, since it names paths.
pub fn is_for_servers(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["x-accel-", "x-sendfile", "x-lighttpd-"];
    name.starts_with(['x', 'X'])
        && PREFIXES
            .iter()
            .any(|prefix| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
}

/// Whether a field tells of the client's certificate (RFC 9440): where there is one of our own connection, that alone
/// is told.
pub fn is_certificate(name: &str) -> bool {
    name.eq_ignore_ascii_case("client-cert") || name.eq_ignore_ascii_case("client-cert-chain")
}

/// Names that mean something in a head alone: framing, routing, what a request is asked with, who asks, and what decides
/// about an answer (RFC 9110 section 6.5.1); and the id of a request, which is the server's where it gives them. Whoever merges trailers into the head all the same must not find them there.
const OF_HEADS: [&str; 56] = [
    "accept-ranges",
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "clear-site-data",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "cookie",
    "date",
    "early-data",
    "etag",
    "expect",
    "expires",
    "host",
    "http2-settings",
    "keep-alive",
    "last-modified",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "realm",
    "referer",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
    "x-http-method-override",
    "x-request-id",
    "x-requested-with",
];

/// Whether a field may come as a trailer.
pub fn may_be_trailer(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["if-", "access-control-", "sec-"];
    let begins =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    !OF_HEADS.iter().any(|other| name.eq_ignore_ascii_case(other)) && !PREFIXES.iter().any(begins)
}

/// What of the trailers of requests an application may see. When they come the request is long decided about, so they
/// are judged as those of anybody, proxies of one's own included.
#[derive(Debug, Default)]
pub struct RequestTrailers {
    /// Names that the settings have put into the head, or taken out of it.
    set: Vec<String>,
}

impl RequestTrailers {
    /// For a route that sets these fields of its requests.
    pub fn beside<'n>(set: impl Iterator<Item = &'n str>) -> RequestTrailers {
        RequestTrailers { set: set.map(str::to_owned).collect() }
    }

    /// The same, for a request that was given fields of these names as well.
    pub fn and(&self, names: &[String]) -> RequestTrailers {
        RequestTrailers { set: self.set.iter().chain(names).cloned().collect() }
    }

    /// Those that go on.
    pub fn pass(&self, trailers: &FieldLines) -> FieldLines {
        let mut lines = FieldLines::new();
        for (name, value) in trailers.iter() {
            let is_set = self.set.iter().any(|set| set.eq_ignore_ascii_case(name));
            if may_be_trailer(name) && is_unambiguous(name) && may_pass(name, false, &[]) && !is_set {
                lines.push(name, value);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_come_behind_content() {
        let mut sent = FieldLines::new();
        for (name, passes) in [
            ("X-Checksum", true),
            ("grpc-status", true),
            ("Content-Digest", true),
            ("Server-Timing", true),
            ("Content-Length", false),
            ("transfer-encoding", false),
            ("Authorization", false),
            ("If-None-Match", false),
            ("Set-Cookie", false),
            ("X-Forwarded-For", false),
            ("Remote-User", false),
            ("X_Real_IP", false),
            ("X-Accel-Redirect", false),
            ("HTTP2-Settings", false),
            ("X-Request-Id", false),
            ("X-Set-Here", false),
        ] {
            sent.push(name, if passes { "yes" } else { "no" });
        }
        let passed = RequestTrailers::beside(["x-set-here"].into_iter()).pass(&sent);
        assert_eq!(passed.iter().filter(|(_, value)| *value == b"yes").count(), 4);
        assert_eq!(passed.iter().count(), 4);
        // Nor what the request was given by whoever has let it in.
        let passed = RequestTrailers::default().and(&["content-digest".to_owned()]).pass(&sent);
        assert!(!passed.contains("Content-Digest") && passed.contains("Server-Timing"));
    }

    #[test]
    fn fields_are_found_whatever_their_case() {
        type Set = fn(&mut Present);
        let rows: [(&str, Set); 12] = [
            ("TE", |present| present.te = true),
            ("Via", |present| present.hops = true),
            ("CDN-Loop", |present| present.hops = true),
            ("UPGRADE", |present| present.upgrade = true),
            ("Connection", |present| present.connection = true),
            ("content-length", |present| present.content_length = true),
            ("If-None-Match", |present| present.condition = true),
            ("If-Modified-Since", |present| present.condition = true),
            ("If-Match", |_| {}),
            ("Transfer-Encoding", |_| {}),
            ("Connect1on", |_| {}),
            ("Host", |_| {}),
        ];
        let mut all = Present::default();
        for (name, set) in rows {
            let mut expected = Present::default();
            set(&mut expected);
            set(&mut all);
            assert_eq!(Present::of(&Fields::new(&[Field { name, value: b"x" }])), expected, "{name}");
        }
        let fields = rows.map(|(name, _)| Field { name, value: b"" });
        assert_eq!(Present::of(&Fields::new(&fields)), all);
    }

    #[test]
    fn what_the_settings_pass() {
        let passed = ["x-user".to_owned(), "x-sendfile".to_owned()];
        assert!(may_pass("X-User", false, &passed));
        assert!(!may_pass("X-User", false, &[]));
        assert!(!may_pass("X-Remote-User", false, &passed));
        assert!(!may_pass("X-Sendfile", false, &passed), "what an application tells a server is no client's");
    }

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
            ("True-Client-IP", false, true),
            ("CF-Connecting-IP", false, true),
            ("X-Client-IP", false, true),
            ("X-Original-URL", false, true),
            ("x-rewrite-url", false, true),
            ("X-Forwarded-Ssl", false, true),
            ("X-Forwarded", false, true),
            ("Remote-Groups", false, true),
            ("X-Auth-User", false, true),
            ("X-authentik-username", false, true),
            ("Cf-Access-Authenticated-User-Email", false, true),
            ("Tailscale-User-Login", false, true),
            ("WL-Proxy-Client-IP", false, true),
            ("Proxy-Client-IP", false, true),
            ("X-Forward-For", false, true),
            ("X-TLS-Client-Cert", false, true),
            ("X-User-Agent", true, true),
            ("X-Auth-Token", true, true),
            ("Transfer-Like", true, true),
            ("X-Sendfile-Type", false, false),
            ("X-LIGHTTPD-send-file", false, false),
        ] {
            assert_eq!((may_pass(name, false, &[]), may_pass(name, true, &[])), (anyone, trusted), "{name}");
        }
    }
}
