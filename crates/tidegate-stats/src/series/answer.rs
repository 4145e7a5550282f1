//! What a request and its answer are by the semantic conventions of OpenTelemetry for HTTP servers: method, scheme, version and
//! status code.
//!
//! All of it is told by a number of 18 bits, so that nothing a client sends is kept: methods that are not known are `_OTHER`. See
//! <https://opentelemetry.io/docs/specs/semconv/http/http-metrics/>.

use serde::{Deserialize, Serialize};

/// Method, version and scheme of a request, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKind(u8);

const OTHER_METHOD: usize = RequestKind::METHODS.len() - 1;
const VERSION_SHIFT: u32 = 4;
const HTTPS: u8 = 1 << 6;

impl RequestKind {
    /// The methods that are told apart; the last stands for all others.
    pub const METHODS: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"];
    /// The versions of HTTP.
    pub const VERSIONS: [&str; 3] = ["1.0", "1.1", "2"];
    /// Of what could not be read, or is told without its method.
    pub const UNKNOWN: RequestKind = RequestKind::new(OTHER_METHOD, RequestKind::VERSIONS.len(), false);

    /// Of a method and a version, by their places in [`METHODS`](RequestKind::METHODS) and [`VERSIONS`](RequestKind::VERSIONS).
    #[inline]
    pub const fn new(method: usize, version: usize, is_https: bool) -> RequestKind {
        let method = if method < OTHER_METHOD { method } else { OTHER_METHOD } as u8;
        let version = (version as u8 & 3) << VERSION_SHIFT;
        RequestKind(method | version | if is_https { HTTPS } else { 0 })
    }

    /// The same with another scheme.
    #[inline]
    pub const fn with_https(self, is_https: bool) -> RequestKind {
        RequestKind(self.0 & !HTTPS | if is_https { HTTPS } else { 0 })
    }

    /// Whether the head of the answer alone is wanted.
    #[inline]
    pub const fn is_head(self) -> bool {
        self.0 & 0xf == 1
    }
}

/// What a request was, and the status code of its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnswerKey(u32);

const STATUS: u32 = (1 << KIND_SHIFT) - 1;
const KIND_SHIFT: u32 = 10;

impl AnswerKey {
    /// Of a request that was answered with a status code below 1024; 0 where that is not told.
    #[inline]
    pub fn new(RequestKind(kind): RequestKind, status: u16) -> AnswerKey {
        AnswerKey(u32::from(kind) << KIND_SHIFT | u32::from(status) & STATUS)
    }

    /// What there is no room for to be told apart: of the request only its scheme is known.
    #[must_use]
    pub fn rest(self) -> AnswerKey {
        AnswerKey::new(RequestKind::UNKNOWN.with_https(self.is_https()), 0)
    }

    /// As a number below 2^18.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.0
    }

    pub(super) fn of(number: u32) -> AnswerKey {
        AnswerKey(number & ((1 << (KIND_SHIFT + 8)) - 1))
    }

    fn kind(self) -> u8 {
        (self.0 >> KIND_SHIFT) as u8
    }

    fn is_https(self) -> bool {
        self.kind() & HTTPS != 0
    }

    /// The method, one of [`RequestKind::METHODS`].
    pub fn method(self) -> &'static str {
        RequestKind::METHODS[usize::from(self.kind() & 0xf).min(OTHER_METHOD)]
    }

    /// `http` or `https`.
    pub fn scheme(self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    /// The version of HTTP, where it is told.
    pub fn version(self) -> Option<&'static str> {
        RequestKind::VERSIONS.get(usize::from(self.kind() >> VERSION_SHIFT & 3)).copied()
    }

    /// The status code, where it is told.
    pub fn status(self) -> Option<u16> {
        u16::try_from(self.0 & STATUS).ok().filter(|status| *status != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out() {
        for (method, name) in RequestKind::METHODS.into_iter().enumerate() {
            for (version, told) in [Some("1.0"), Some("1.1"), Some("2"), None].into_iter().enumerate() {
                for (is_https, scheme) in [(false, "http"), (true, "https")] {
                    let kind = RequestKind::new(method, version, is_https);
                    let key = AnswerKey::new(kind, 599);
                    let all = (key.method(), key.version(), key.scheme(), key.status());
                    assert_eq!(all, (name, told, scheme, Some(599)));
                    assert_eq!(
                        (kind.is_head(), kind.with_https(false).with_https(is_https)),
                        (name == "HEAD", kind)
                    );
                    let rest = key.rest();
                    let all = (rest.method(), rest.version(), rest.scheme(), rest.status());
                    assert_eq!((all, rest.rest()), (("_OTHER", None, scheme, None), rest));
                    assert!(key.number() < 1 << 18 && AnswerKey::of(key.number()) == key);
                }
            }
        }
        assert_eq!(RequestKind::new(99, 7, false), RequestKind::UNKNOWN);
        // Whatever comes from elsewhere has a name.
        let odd = AnswerKey::of(u32::MAX);
        assert_eq!((odd.method(), odd.version(), odd.status()), ("_OTHER", None, Some(1023)));
    }
}
