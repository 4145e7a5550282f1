//! Asking an origin whether what is stored still holds, and what its answer makes of it (RFC 9111
//! sections 3.2 and 4.3).
//!
//! Called when a stored response has to be validated, for the conditions of clients, and for answers to HEAD.

use super::freshness::Freshness;
use super::storing::NotStored;
use super::{Answered, Asked, Rules, Times};
use crate::conditional::Validators;
use crate::field::FieldLines;

/// The conditions of a request to the origin (section 4.3.1). `chosen` is the stored response that is sent if
/// it still holds, `others` are the other variants of the same URI that are complete. Those of the client have
/// to go first. Empty where nothing has a validator.
pub fn validators<'a>(
    chosen: Option<&'a FieldLines>,
    others: impl IntoIterator<Item = &'a FieldLines>,
) -> FieldLines {
    let _ = (chosen, others.into_iter().next());
    FieldLines::new()
}

/// Which of the stored responses, the newest first, a 304 to [`validators`] speaks of (section 4.3.4): all of
/// them are to be updated, the first is for the client. None: the request has to be sent again without
/// conditions.
pub fn selected_by_304<'a>(stored: impl IntoIterator<Item = &'a FieldLines>, new: &FieldLines) -> Vec<usize> {
    let _ = (stored.into_iter().next(), new);
    Vec::new()
}

/// The stored fields with those of a newer response instead (section 3.2), which came at `now`, Unix seconds.
pub fn updated(stored: &FieldLines, new: &FieldLines, now: i64, rules: &Rules) -> FieldLines {
    let _ = (new, now, rules);
    stored.clone()
}

/// What a 304 or a matching answer to HEAD makes of a stored response: its fields from now on, and how it may
/// be used.
///
/// # Errors
/// It may not be stored any longer: it is for this request alone.
pub fn refreshed(
    asked: &Asked<'_>,
    stored: &Answered<'_>,
    new: &FieldLines,
    times: Times,
    rules: &Rules,
) -> (FieldLines, Result<Freshness, NotStored>) {
    let _ = (asked, new, times, rules);
    (stored.fields.clone(), Err(NotStored::NoLifetime))
}

/// What a 200 to HEAD says of a stored response to GET (section 4.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadSays {
    /// It still holds: see [`refreshed`].
    Update,
    /// It is another one by now: stale.
    Invalidate,
    /// Nothing.
    Nothing,
}

/// What an answer to HEAD says of a stored response with these fields. `length` is that of its content.
pub fn head_says(stored: &FieldLines, length: Option<u64>, answered: &Answered<'_>) -> HeadSays {
    let _ = (stored, length, answered);
    HeadSays::Nothing
}

/// What the conditions of a client are held against (section 4.3.2), for [`crate::conditional::evaluate`] and
/// [`crate::conditional::if_range`].
pub fn current_validators<'a>(stored: &'a FieldLines, freshness: &Freshness) -> Validators<'a> {
    let _ = (stored, freshness);
    Validators::new(None, None)
}
