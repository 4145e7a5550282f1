//! What is said of storing where the content of one response takes the place of another's: an error page.
//!
//! Called by whoever puts a page in the place of an error. The status is the error's and the content the page's, so that a
//! cache may do with the result what both allow (RFC 9111 sections 3 and 4.2), and nothing else.

use std::time::Duration;

use crate::cache_control::CacheControl;
use crate::date::HttpDate;
use crate::field::{FieldLines, list_elements};
use crate::vary;

/// Fields for caches of certain kinds, which these go by in place of `Cache-Control` (RFC 9213, and what came before it).
const TARGETED: [&str; 3] = ["Tidegate-Cache-Control", "CDN-Cache-Control", "Surrogate-Control"];

/// Whom a page is for, beside what its fields say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Everybody gets the same, unless its fields say otherwise.
    Everybody,
    /// Whoever has made it may have made it for this client, and has not said that it is for others.
    Unknown,
    /// Not everybody gets it.
    LetIn,
}

/// Puts on `page` what it and the `error` that it stands in for say of storing, `Vary` included: what is forbidden by one of
/// them, the shorter of two lifetimes, and what is allowed by both. A page that says nothing and is for everybody leaves it
/// to the error. How long the page itself holds says nothing of how long the error does. `now`, in Unix seconds, is when
/// they were made, where they do not say.
pub fn stand_in(page: &mut FieldLines, error: &FieldLines, audience: Audience, now: i64) {
    let names = || TARGETED.into_iter().chain(["Cache-Control"]);
    let said: Vec<_> = match audience {
        Audience::LetIn => vec![("Cache-Control", b"private, no-store".to_vec())],
        Audience::Everybody if is_silent(page) => {
            let of_error = names().chain(["Expires"]);
            of_error.flat_map(|name| error.all(name).map(move |value| (name, value.to_vec()))).collect()
        }
        _ => {
            let is_named =
                |name: &&str| *name == "Cache-Control" || [&*page, error].iter().any(|of| of.contains(name));
            let both = |name| Said::of(error, name, now).and(Said::of(page, name, now)).written();
            names().filter(is_named).map(|name| (name, both(name).into_bytes())).collect()
        }
    };
    for name in names().chain(["Expires"]) {
        page.remove(name);
    }
    for (name, value) in said.iter().filter(|(_, value)| !value.is_empty()) {
        page.push(name, value);
    }
    vary::add(page, error.all("Vary").flat_map(list_elements));
}

fn is_silent(fields: &FieldLines) -> bool {
    !TARGETED.iter().chain(&["Cache-Control", "Expires"]).any(|name| fields.contains(name))
}

/// What a response says to caches that go by one of the fields.
#[derive(Debug, Clone, Copy)]
struct Said {
    control: CacheControl,
    /// In the cache of a client.
    lifetime: Option<Duration>,
    /// In a shared one.
    shared_lifetime: Option<Duration>,
}

impl Said {
    fn of(fields: &FieldLines, name: &str, now: i64) -> Said {
        let is_targeted = fields.contains(name) && name != "Cache-Control";
        let name = if is_targeted { name } else { "Cache-Control" };
        let control = CacheControl::parse(fields.all(name));
        let expires = || fields.all("Expires").map(|value| left(fields, value, now)).min();
        let lifetime = control.max_age.or_else(|| if is_targeted { None } else { expires() });
        Said { control, lifetime, shared_lifetime: control.s_maxage.or(lifetime) }
    }

    /// Of an error, with what its page says.
    fn and(self, page: Said) -> Said {
        let (error, page_said) = (self.control, page.control);
        let forbids = |is: fn(&CacheControl) -> bool| is(&error) || is(&page_said);
        let allow = |is: fn(&CacheControl) -> bool| is(&error) && is(&page_said);
        let is_shared: fn(&CacheControl) -> bool =
            |control| control.public || control.s_maxage.is_some() || control.must_revalidate;
        let must_revalidate = forbids(|control| control.must_revalidate);
        let control = CacheControl {
            no_store: forbids(|control| control.no_store || control.is_malformed),
            // `must-revalidate` would allow what one of them does not (section 3.5).
            private: forbids(|control| control.private || control.private_fields)
                || must_revalidate && !allow(is_shared),
            no_cache: forbids(|control| control.no_cache || control.no_cache_fields),
            must_revalidate,
            proxy_revalidate: forbids(|control| control.proxy_revalidate),
            must_understand: forbids(|control| control.must_understand),
            no_transform: forbids(|control| control.no_transform),
            public: allow(|control| control.public || control.s_maxage.is_some()),
            ..CacheControl::default()
        };
        Said {
            control,
            lifetime: shorter(self.lifetime, page.lifetime),
            shared_lifetime: shorter(self.shared_lifetime, page.shared_lifetime),
        }
    }

    /// As the value of a field; empty where nothing is said.
    fn written(self) -> String {
        let Said { control, lifetime, shared_lifetime } = self;
        let mut words = Vec::new();
        let is_stored = !control.no_store;
        for (is_said, word) in [
            (control.public && is_stored && !control.private, "public"),
            (control.private, "private"),
            (control.no_store, "no-store"),
            (control.no_cache, "no-cache"),
            (control.must_revalidate, "must-revalidate"),
            (control.proxy_revalidate, "proxy-revalidate"),
            (control.must_understand && is_stored, "must-understand"), // beside `no-store` it would take that back
            (control.no_transform, "no-transform"),
        ] {
            if is_said {
                words.push(word.to_owned());
            }
        }
        // `s-maxage` allows more than a lifetime does, as `public`.
        let ages = match control.public {
            true => [lifetime, shared_lifetime.filter(|shared| Some(*shared) != lifetime)],
            false => [[lifetime, shared_lifetime].into_iter().flatten().min(), None],
        };
        for (name, age) in ["max-age", "s-maxage"].into_iter().zip(ages) {
            if let Some(age) = age.filter(|_| is_stored) {
                words.push(format!("{name}={}", age.as_secs()));
            }
        }
        words.join(", ")
    }
}

/// The lifetime of an error with a page. That of the page alone is nothing to the error, unless there is none.
fn shorter(error: Option<Duration>, page: Option<Duration>) -> Option<Duration> {
    match (error, page) {
        (Some(error), Some(page)) => Some(error.min(page)),
        (None, page) => page.filter(Duration::is_zero),
        (error, None) => error,
    }
}

/// What is left until a date; nothing until one that is none (section 5.3).
fn left(fields: &FieldLines, expires: &[u8], now: i64) -> Duration {
    let date = fields.first("Date").and_then(|value| HttpDate::parse(value, now)).map_or(now, |date| date.0);
    let end = HttpDate::parse(expires, now).map_or(date, |end| end.0);
    Duration::from_secs(u64::try_from(end.saturating_sub(date)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn lines(text: &str) -> FieldLines {
        let mut lines = FieldLines::new();
        for line in text.lines() {
            let (name, value) = line.split_once(": ").expect("a field");
            lines.push(name, value);
        }
        lines
    }

    #[test]
    fn what_both_allow() {
        use Audience::{Everybody, LetIn, Unknown};
        let gone = "Expires: Sun, 06 Nov 1994 08:49:37 GMT";
        for (error, page, audience, expected) in [
            // The page forbids.
            (
                "Cache-Control: public, max-age=60",
                "Cache-Control: private, no-store",
                Unknown,
                "Cache-Control: private, no-store",
            ),
            ("", "Cache-Control: private", Unknown, "Cache-Control: private"),
            ("", "Cache-Control: no-store", Everybody, "Cache-Control: no-store"),
            (
                "Cache-Control: max-age=60",
                "Cache-Control: no-cache=\"x\"",
                Unknown,
                "Cache-Control: no-cache, max-age=60",
            ),
            ("Cache-Control: max-age=60", "Cache-Control: private; x", Unknown, "Cache-Control: no-store"),
            ("Cache-Control: max-age=60", gone, Unknown, "Cache-Control: max-age=0"),
            // The error does.
            (
                "Cache-Control: no-store",
                "Cache-Control: public, max-age=60",
                Everybody,
                "Cache-Control: no-store",
            ),
            ("Cache-Control: no-store", "", Everybody, "Cache-Control: no-store"),
            (gone, "Cache-Control: max-age=60", Unknown, "Cache-Control: max-age=0"),
            // Nobody does: as long as both hold, and not as long as the page alone.
            ("Cache-Control: public, max-age=60", "", Everybody, "Cache-Control: public, max-age=60"),
            (gone, "", Everybody, gone),
            ("Cache-Control: public, max-age=60", "", Unknown, "Cache-Control: max-age=60"),
            ("", "", Unknown, ""),
            ("", "Cache-Control: max-age=3600", Everybody, ""),
            ("", "Cache-Control: max-age=0", Everybody, "Cache-Control: max-age=0"),
            (
                "Cache-Control: public, max-age=60",
                "Cache-Control: public, max-age=9",
                Unknown,
                "Cache-Control: public, max-age=9",
            ),
            ("Cache-Control: max-age=60", "Cache-Control: s-maxage=9", Unknown, "Cache-Control: max-age=9"),
            (
                "Cache-Control: s-maxage=60",
                "Cache-Control: public, max-age=90",
                Unknown,
                "Cache-Control: public, s-maxage=60",
            ),
            // What allows to keep an answer to a request with credentials is said by both.
            (
                "Cache-Control: max-age=60, must-revalidate",
                "Cache-Control: max-age=60",
                Unknown,
                "Cache-Control: private, must-revalidate, max-age=60",
            ),
            (
                "Cache-Control: public, max-age=60",
                "Cache-Control: must-revalidate",
                Unknown,
                "Cache-Control: must-revalidate, max-age=60",
            ),
            (
                "Cache-Control: no-store, must-understand",
                "Cache-Control: max-age=1",
                Unknown,
                "Cache-Control: no-store",
            ),
            // Caches of other kinds.
            (
                "CDN-Cache-Control: max-age=60",
                "Cache-Control: no-store",
                Unknown,
                "CDN-Cache-Control: no-store\nCache-Control: no-store",
            ),
            (
                "Cache-Control: max-age=60",
                "Surrogate-Control: no-store",
                Unknown,
                "Surrogate-Control: no-store\nCache-Control: max-age=60",
            ),
            ("", "CDN-Cache-Control: max-age=60", Everybody, ""),
            // Not for everybody.
            (
                "Cache-Control: public, max-age=60\nCDN-Cache-Control: max-age=60",
                "",
                LetIn,
                "Cache-Control: private, no-store",
            ),
            // What chooses the answer.
            ("Vary: X-A", "Vary: X-B", Unknown, "Vary: X-B, X-A"),
            ("Vary: *", "Vary: X-B", Unknown, "Vary: X-B, *"),
        ] {
            let mut found = lines(page);
            stand_in(&mut found, &lines(error), audience, NOW);
            assert_eq!(
                String::from_utf8_lossy(found.as_bytes()),
                String::from_utf8_lossy(lines(expected).as_bytes()),
                "{error:?} with {page:?}"
            );
        }
    }
}
