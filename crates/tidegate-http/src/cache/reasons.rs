//! Why something was stored, served or forwarded, or not: one list of all reasons, each with its token and a sentence.
//!
//! `Cache-Status` has the tokens in `detail`, figures have them beside their counts, `tidegate explain` says the sentences, and the manual
//! lists both; a test holds it to this table.

/// What a reason says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Why a stored response was sent.
    Used,
    /// Why the application was asked.
    Forwarded,
    /// Why its response was not stored.
    NotStored,
}

macro_rules! reasons {
    ($($name:ident: $kind:ident, $token:literal, $text:literal;)*) => {
        /// A reason. As a number it is good for this process alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// As `Cache-Status` writes it in `detail`: a token.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Reason::$name => $token,)*
                }
            }

            /// The same for who is told of it later: a response to an earlier request had this reason.
            pub const fn as_known(self) -> &'static str {
                match self {
                    $(Reason::$name => concat!("known:", $token),)*
                }
            }

            /// In words, without a stop.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }

            /// What it says.
            pub const fn kind(self) -> Kind {
                match self {
                    $(Reason::$name => Kind::$kind,)*
                }
            }
        }
    };
}

reasons! {
    Fresh: Used, "fresh", "it is fresh";
    Stale: Used, "stale", "it is stale";
    RequestMaxStale: Used, "request-max-stale", "it is stale, and the request's `max-stale` takes it";
    StaleWhileRevalidate: Used, "stale-while-revalidate", "it is stale, and asked about behind the client's back";
    StaleIfError: Used, "stale-if-error", "it is stale, and the application has failed";
    MustRevalidate: Forwarded, "must-revalidate", "what is stored is stale, and a directive forbids to use it so";
    NoCache: Forwarded, "no-cache", "what is stored says `no-cache`";
    RequestNoCache: Forwarded, "request-no-cache", "the request says `no-cache`";
    RequestMaxAge: Forwarded, "request-max-age", "what is stored is older than the request's `max-age`";
    RequestMinFresh: Forwarded, "request-min-fresh", "what is stored does not stay fresh for the request's `min-fresh`";
    OnlyIfCached: Forwarded, "only-if-cached", "nothing is stored, and the request says `only-if-cached`: it is answered with 504";
    Method: Forwarded, "method", "its method is neither GET nor HEAD";
    Content: Forwarded, "request-content", "the request has content";
    Upgrade: Forwarded, "upgrade", "the request asks for another protocol, such as WebSocket";
    Condition: Forwarded, "condition", "`If-Match` and `If-Unmodified-Since` are for the application alone";
    Connection: Forwarded, "connection", "its `Connection` names fields of its own";
    AmbiguousQuery: Forwarded, "ambiguous-query", "an application may take a parameter that is not in the key for one that is";
    AmbiguousCookie: Forwarded, "ambiguous-cookie", "a cookie of `cookies` is there twice or has no value, or an application may take another for it";
    BypassCookies: Forwarded, "bypass-cookies", "a cookie of `bypass-cookies`";
    Head: Forwarded, "head", "HEAD, and nothing is stored that answers it";
    Range: Forwarded, "range", "a range that does not begin with the first byte, and nothing is stored";
    FarAhead: Forwarded, "far-ahead", "a range that begins far behind what has come so far";
    NotCollapsed: Forwarded, "not-collapsed", "another request fetches it, and this one does not wait: `collapse off`, or it says who it is";
    NotAlike: Forwarded, "not-alike", "what it has waited for was for others, several times";
    NotShared: Forwarded, "not-shared", "what it has waited for is not stored";
    LetGo: Forwarded, "let-go", "what was found has just left the store";
    Loop: Forwarded, "loop", "the request has come through this route before";
    Failed: Forwarded, "failed", "the application has failed";
    RequestNoStore: NotStored, "request-no-store", "the request says `no-store`";
    NoStore: NotStored, "no-store", "the response says `no-store`";
    Private: NotStored, "private", "the response says `private`";
    Malformed: NotStored, "malformed", "its `Cache-Control` cannot be read";
    Status: NotStored, "status", "its status is not one to store, or is about the request";
    Authorization: NotStored, "authorization", "the request says who it is, and the response is not for everybody";
    Cookie: NotStored, "cookie", "the request has a cookie, and the response is not for everybody";
    SetCookie: NotStored, "set-cookie", "the response has `Set-Cookie` and is not for everybody";
    NoLifetime: NotStored, "no-lifetime", "neither the response nor the settings say for how long";
    Unusable: NotStored, "unusable", "it is stale at once, and has no validator to ask about it with";
    VaryAny: NotStored, "vary-any", "`Vary: *`";
    VaryClient: NotStored, "vary-client", "it varies by a field that each client has its own of, or that this server writes";
    VaryTooMuch: NotStored, "vary-too-much", "it varies by more fields, or by longer ones, than are kept";
    Part: NotStored, "part", "a part without a strong validator, or of several ranges";
    Parts: NotStored, "parts", "a content that cannot be kept: of several parts, or a tunnel";
    TooLarge: NotStored, "too-large", "larger than `object-size`";
    NoRoom: NotStored, "no-room", "no memory of the store comes free at this moment";
    Purged: NotStored, "purged", "it was purged while it was asked for";
}

/// What `Cache-Status` says in `detail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// This is the reason.
    Of(Reason),
    /// It is known since an earlier request, whose response was not stored for this reason.
    Known(Reason),
}

impl Detail {
    /// A token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Detail::Of(reason) => reason.as_str(),
            Detail::Known(reason) => reason.as_known(),
        }
    }
}

impl From<Reason> for Detail {
    fn from(reason: Reason) -> Detail {
        Detail::Of(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tokens_are_tokens_and_of_one_reason_each() {
        let tokens: HashSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(tokens.len(), Reason::ALL.len());
        assert!(tokens.iter().all(|token| token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-'))));
    }

    /// The manual has a row for each, in this order: `| token | text |`.
    #[test]
    fn the_manual_has_them_all() {
        let manual = include_str!("../../../../docs/caching.md");
        let rows: Vec<&str> = manual.lines().filter(|line| line.starts_with("| `")).collect();
        let mut place = 0;
        for kind in [Kind::Used, Kind::Forwarded, Kind::NotStored] {
            for reason in Reason::ALL.iter().filter(|reason| reason.kind() == kind) {
                let row = format!("| `{}` | {} |", reason.as_str(), reason.text());
                let at = rows.iter().position(|found| **found == row);
                assert!(at.is_some_and(|at| at >= place), "docs/caching.md lacks or misplaces: {row}");
                place = at.unwrap_or(place);
            }
        }
    }
}
