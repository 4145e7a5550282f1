//! The limits of a request: what is too much of it for its site or route, where the server takes more.

use tidegate_config::settings::RequestLimits;
use tidegate_http::Status;
use tidegate_stats::ParseError;

/// What is too much of a head that the server itself has taken: its target, or all of it, in bytes.
pub(crate) fn excess(limits: &RequestLimits, target: &str, size: usize) -> Option<(Status, ParseError)> {
    if target.len() > limits.target_size as usize {
        Some((Status::URI_TOO_LONG, ParseError::TargetTooLong))
    } else if size > limits.head_size as usize {
        Some((Status::REQUEST_HEADER_FIELDS_TOO_LARGE, ParseError::HeadTooLarge))
    } else {
        None
    }
}
