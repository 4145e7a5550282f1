//! `cors`: the questions that browsers ask before they send what a page of another site wants to (the Fetch standard, section
//! 3.3.2). What is put on all other answers is the route's decoration (`core/decoration.rs`).

use tidegate_config::settings::{Cors, Shared};
use tidegate_core::cors::{allow, question};
use tidegate_core::{Exchange, Gate, Response, Verdict, answer};
use tidegate_http::{FieldLines, Status, vary};

/// The gate of a route with `cors`, which answers such questions: no gate behind it, and nothing that answers the route, ever
/// gets one. So it stands in front of logins, which browsers do not tell of when they ask.
pub struct Preflight {
    cors: Shared<Cors>,
}

impl Preflight {
    /// For the routes of a `cors`.
    pub fn new(cors: Shared<Cors>) -> Preflight {
        Preflight { cors }
    }

    fn answer(&self, origin: &[u8], exchange: &Exchange<'_>) -> Response {
        let cors = &self.cors;
        let origin = match std::str::from_utf8(origin) {
            Ok(_) if cors.is_for_all() => "*",
            Ok(origin) if cors.allows(origin.as_bytes()) => origin,
            _ => return answer::refused(exchange, Status::FORBIDDEN, "`cors` does not name the origin"),
        };
        let mut lines = FieldLines::new();
        if origin == "*" {
            lines.push("Access-Control-Allow-Origin", "*");
        } else {
            allow(cors, Some(origin), &mut lines);
        }
        lines.push("Access-Control-Allow-Methods", cors.methods.join(", "));
        let asked = exchange.fields.single("access-control-request-headers");
        let asked = asked.and_then(|asked| std::str::from_utf8(asked).ok());
        match asked {
            Some(asked) if cors.headers.iter().any(|name| name == "*") => {
                lines.push("Access-Control-Allow-Headers", asked);
                vary::add(&mut lines, [&b"Access-Control-Request-Headers"[..]]);
            }
            Some(_) if !cors.headers.is_empty() => {
                lines.push("Access-Control-Allow-Headers", cors.headers.join(", "));
            }
            _ => {}
        }
        lines.push("Access-Control-Max-Age", cors.max_age.as_secs().to_string());
        let mut response = Response::empty(Status::NO_CONTENT);
        *response.fields_mut() = lines;
        response.finished()
    }
}

impl Gate for Preflight {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        match question(exchange) {
            Some(origin) => Verdict::Answer(self.answer(origin, exchange)),
            None => Verdict::Pass,
        }
    }

    fn tells_clients_apart(&self) -> bool {
        false
    }
}
