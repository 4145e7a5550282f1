//! The limits of a request: what is too much of it for its site or route, where the server takes more.

use crate::log;
use std::fmt;
use tidegate_config::settings::RequestLimits;
use tidegate_http::Status;
use tidegate_stats::ParseError;

/// Why content is too much: what was announced, where it was, and the line that says what may be.
pub(crate) struct TooLarge<'l> {
    pub limits: &'l RequestLimits,
    pub length: Option<u64>,
}

impl fmt::Display for TooLarge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestLimits { body_size, body_size_origin: origin, .. } = self.limits;
        f.write_str("content ")?;
        if let Some(length) = self.length {
            write!(f, "of {length} bytes ")?;
        }
        write!(f, "is more than the {body_size} that `body-size` ")?;
        if origin.is_written() { write!(f, "({origin}) allows") } else { f.write_str("allows by default") }
    }
}

/// Tells the log of a request whose content has turned out to be too much. `about` says who has asked for what.
#[cold]
pub(crate) fn say_too_large(limits: &RequestLimits, about: &str) {
    log::info(format_args!("413 for {about}: {}", TooLarge { limits, length: None }));
}

/// What is too much of a head that the server itself has taken.
pub(crate) struct Excess {
    pub kind: ParseError,
    pub status: Status,
    /// For the log.
    pub why: String,
}

/// Whether the target, or the whole head, of so many bytes, is more than is taken.
pub(crate) fn excess(limits: &RequestLimits, target: &str, size: usize) -> Option<Excess> {
    let RequestLimits { target_size, head_size, .. } = limits;
    if target.len() > *target_size as usize {
        let why =
            format!("the target, of {} bytes, is more than the {target_size} of `target-size`", target.len());
        Some(Excess { kind: ParseError::TargetTooLong, status: Status::URI_TOO_LONG, why })
    } else if size > *head_size as usize {
        let why = format!("the head, of {size} bytes, is more than the {head_size} of `head-size`");
        let status = Status::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Some(Excess { kind: ParseError::HeadTooLarge, status, why })
    } else {
        None
    }
}
