//! `Cache-Control` (RFC 9111 section 5.2, RFC 5861, RFC 8246), of requests and of responses.
//!
//! Called by compression (`no-transform`) and by the cache. Only reads; what follows from a directive is
//! for the caller to know.

use std::borrow::Cow;
use std::time::Duration;

use crate::decimal::parse_decimal_saturating;
use crate::field::{is_token, list_elements, unquote};

/// The directives that were present, of conflicting ones the most restrictive. Which of them mean something depends on whether the message is a
/// request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    /// Not to be reused without asking the origin.
    pub no_cache: bool,
    /// The fields that it lists are not to be reused without asking the origin (see [`listed_fields`]).
    pub no_cache_fields: bool,
    /// Not to be stored.
    pub no_store: bool,
    /// The content is not to be changed, compression included.
    pub no_transform: bool,
    /// Not for shared caches.
    pub private: bool,
    /// The fields that it lists are not for shared caches (see [`listed_fields`]).
    pub private_fields: bool,
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
    /// Something in it is no directive (section 5.2), so that what it allows and forbids is not known.
    pub is_malformed: bool,
}

impl CacheControl {
    /// Reads the values of the `Cache-Control` lines, in order. Unknown directives are passed over; names are
    /// taken without regard to case, arguments with or without quotes. Of a directive that comes twice the
    /// argument that restricts more counts (section 4.2.1); an age that is not a number is 0.
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> CacheControl {
        let mut control = CacheControl::default();
        for directive in values.into_iter().flat_map(list_elements) {
            let (name, argument) = split_argument(directive);
            control.is_malformed |= !is_token(name) || !argument.is_none_or(is_argument);
            control.add(name, argument);
        }
        control
    }

    /// Adds a directive, with its argument as sent.
    pub(crate) fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        if let Some(form) = [("no-cache", false), ("private", true)].iter().find(|(form, _)| is(form)) {
            let (bare, listed) = match form.1 {
                true => (&mut self.private, &mut self.private_fields),
                false => (&mut self.no_cache, &mut self.no_cache_fields),
            };
            *if argument.is_some_and(lists_fields) { listed } else { bare } = true;
            return;
        }
        let restricting: [(&str, &mut bool); 5] = [
            ("no-store", &mut self.no_store),
            ("no-transform", &mut self.no_transform),
            ("must-revalidate", &mut self.must_revalidate),
            ("proxy-revalidate", &mut self.proxy_revalidate),
            ("only-if-cached", &mut self.only_if_cached),
        ];
        if let Some((_, flag)) = restricting.into_iter().find(|(directive, _)| is(directive)) {
            *flag = true;
            return;
        }
        // What allows something does so only as it is defined: without an argument.
        let allowing: [(&str, &mut bool); 3] = [
            ("public", &mut self.public),
            ("must-understand", &mut self.must_understand),
            ("immutable", &mut self.immutable),
        ];
        if let Some((_, flag)) = allowing.into_iter().find(|(directive, _)| is(directive)) {
            *flag |= argument.is_none();
            return;
        }
        self.add_age(name, argument);
    }

    fn add_age(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        if is("max-stale") && argument.is_none() {
            self.max_stale.get_or_insert(Duration::MAX);
            return;
        }
        let seconds = || delta_seconds(argument.unwrap_or_default());
        if is("min-fresh") {
            self.min_fresh = self.min_fresh.max(Some(seconds()));
            return;
        }
        let ages: [(&str, &mut Option<Duration>); 5] = [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("max-stale", &mut self.max_stale),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ];
        if let Some((_, age)) = ages.into_iter().find(|(directive, _)| is(directive)) {
            let seconds = seconds();
            *age = Some(age.map_or(seconds, |before| before.min(seconds)));
        }
    }
}

/// Calls `each` with the names of fields that `no-cache="a, b"` and `private="a, b"` list.
pub fn listed_fields<'v>(values: impl IntoIterator<Item = &'v [u8]>, mut each: impl FnMut(&str)) {
    for directive in values.into_iter().flat_map(list_elements) {
        let (name, argument) = split_argument(directive);
        let is_form = name.eq_ignore_ascii_case(b"no-cache") || name.eq_ignore_ascii_case(b"private");
        if let Some(argument) = argument.filter(|argument| is_form && lists_fields(argument)) {
            let text = unquote(argument).unwrap_or(Cow::Borrowed(argument));
            list_elements(&text).filter_map(|name| std::str::from_utf8(name).ok()).for_each(&mut each);
        }
    }
}

fn split_argument(directive: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'=', directive) {
        Some(equals) => (&directive[..equals], Some(&directive[equals + 1..])),
        None => (directive, None),
    }
}

/// `token / quoted-string`.
fn is_argument(argument: &[u8]) -> bool {
    is_token(argument) || unquote(argument).is_some()
}

/// Whether an argument is a list of field names. What is none makes the directive one without an argument,
/// which restricts more.
fn lists_fields(argument: &[u8]) -> bool {
    let text = unquote(argument).unwrap_or(Cow::Borrowed(argument));
    let mut names = list_elements(&text).peekable();
    names.peek().is_some() && names.all(is_token)
}

/// Seconds; more than 2^31 is taken for 2^31 (section 1.2.2).
fn delta_seconds(argument: &[u8]) -> Duration {
    let seconds = match unquote(argument) {
        Some(text) => parse_decimal_saturating(&text),
        None => parse_decimal_saturating(argument),
    };
    Duration::from_secs(seconds.unwrap_or(0).min(1 << 31))
}
