//! `Cache-Control` (RFC 9111 section 5.2, RFC 5861, RFC 8246), of requests and of responses.
//!
//! Called by compression (`no-transform`) and by the cache. Only reads; what follows from a directive is
//! for the caller to know.

use std::time::Duration;

use crate::decimal::parse_decimal_saturating;
use crate::field::{list_elements, unquote};

/// The directives that were present. Which of them mean something depends on whether the message is a
/// request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    /// Not to be reused without asking the origin. The form that lists fields counts as the form without:
    /// section 5.2.2.4 allows it, and it errs on the safe side.
    pub no_cache: bool,
    /// Not to be stored.
    pub no_store: bool,
    /// The content is not to be changed, compression included.
    pub no_transform: bool,
    /// Not for shared caches. The form that lists fields counts as the form without.
    pub private: bool,
    /// May be stored where it otherwise could not.
    pub public: bool,
    /// Once stale, not to be reused without asking the origin.
    pub must_revalidate: bool,
    /// The same for shared caches.
    pub proxy_revalidate: bool,
    /// To be stored only by a cache that knows the status code.
    pub must_understand: bool,
    /// Does not change while it is fresh.
    pub immutable: bool,
    /// The client wants a stored response or 504.
    pub only_if_cached: bool,
    /// How long it is fresh, or how old the client will take it.
    pub max_age: Option<Duration>,
    /// How long it is fresh in a shared cache.
    pub s_maxage: Option<Duration>,
    /// How stale the client will take it; `Duration::MAX` where it gave no bound.
    pub max_stale: Option<Duration>,
    /// How long it must stay fresh for the client to take it.
    pub min_fresh: Option<Duration>,
    /// How long it may be served stale while it is being asked for anew.
    pub stale_while_revalidate: Option<Duration>,
    /// How long it may be served stale when the origin fails.
    pub stale_if_error: Option<Duration>,
}

impl CacheControl {
    /// Reads the values of the `Cache-Control` lines, in order. Unknown directives are passed over;
    /// names are taken without regard to case, arguments with or without quotes; of a directive that
    /// comes twice the first counts. An age that is not a number counts as 0: stale (section 4.2.1).
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> CacheControl {
        let mut control = CacheControl::default();
        for directive in values.into_iter().flat_map(list_elements) {
            let (name, argument) = match memchr::memchr(b'=', directive) {
                Some(equals) => (&directive[..equals], Some(&directive[equals + 1..])),
                None => (directive, None),
            };
            control.add(name, argument);
        }
        control
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        let flags: [(&str, &mut bool); 10] = [
            ("no-cache", &mut self.no_cache),
            ("no-store", &mut self.no_store),
            ("no-transform", &mut self.no_transform),
            ("private", &mut self.private),
            ("public", &mut self.public),
            ("must-revalidate", &mut self.must_revalidate),
            ("proxy-revalidate", &mut self.proxy_revalidate),
            ("must-understand", &mut self.must_understand),
            ("immutable", &mut self.immutable),
            ("only-if-cached", &mut self.only_if_cached),
        ];
        for (directive, flag) in flags {
            if is(directive) {
                *flag = true;
                return;
            }
        }
        if is("max-stale") && argument.is_none() {
            self.max_stale.get_or_insert(Duration::MAX);
            return;
        }
        let ages: [(&str, &mut Option<Duration>); 6] = [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("max-stale", &mut self.max_stale),
            ("min-fresh", &mut self.min_fresh),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ];
        for (directive, age) in ages {
            if is(directive) {
                age.get_or_insert(delta_seconds(argument.unwrap_or_default()));
                return;
            }
        }
    }
}

/// Seconds; more than 2^31 is taken for 2^31 (section 1.2.2).
fn delta_seconds(argument: &[u8]) -> Duration {
    let seconds = match unquote(argument) {
        Some(text) => parse_decimal_saturating(&text),
        None => parse_decimal_saturating(argument),
    };
    Duration::from_secs(seconds.unwrap_or(0).min(1 << 31))
}
