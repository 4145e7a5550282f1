//! What pages of other sites may have (the Fetch standard, section 3.3): which requests are the questions of browsers, and the
//! fields by which they go. Asked by `gate`, `decoration` and the module that answers the questions.

use crate::exchange::Exchange;
use tidegate_config::settings::Cors;
use tidegate_http::{FieldLines, Method, vary};

/// The origin that asks, where the request is the question of a browser whether a page may send what it wants to (a CORS
/// preflight request).
pub fn question<'e>(exchange: &Exchange<'e>) -> Option<&'e [u8]> {
    let is_question =
        exchange.method == Method::Options && exchange.fields.contains("access-control-request-method");
    exchange.fields.single("origin").filter(|_| is_question)
}

/// The fields by which browsers go that ask for a page of another site (the Fetch standard, section 3.3.3).
pub(crate) const OF_CORS: [&str; 3] =
    ["Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"];

/// Says which origin may have an answer, and that it is another answer for another one.
pub fn allow(cors: &Cors, origin: Option<&str>, lines: &mut FieldLines) {
    vary::add(lines, [&b"Origin"[..]]);
    lines.remove(OF_CORS[0]);
    lines.remove(OF_CORS[1]);
    let Some(origin) = origin else {
        lines.remove(OF_CORS[2]);
        return;
    };
    lines.push(OF_CORS[0], origin);
    if cors.takes_credentials {
        lines.push(OF_CORS[1], "true");
    }
}
