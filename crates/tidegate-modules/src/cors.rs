//! `cors`: the questions that browsers ask before they send what a page of another site wants to (the Fetch standard, section
//! 3.3.2). What is put on all other answers is the route's decoration (`core/decoration.rs`).

use std::rc::Rc;
use tidegate_config::settings::{Cors, Shared};
use tidegate_core::decoration::allow;
use tidegate_core::explain::Foreseen;
use tidegate_core::{Exchange, Gate, Handler, Pass, Reply, Response, Verdict, answer};
use tidegate_http::{FieldLines, Method, Status};

/// Answers questions in front of what answers the route.
pub struct Preflight {
    cors: Shared<Cors>,
    handler: Rc<dyn Handler>,
}

impl Preflight {
    /// In front of `handler`.
    pub fn new(cors: Shared<Cors>, handler: Rc<dyn Handler>) -> Preflight {
        Preflight { cors, handler }
    }

    /// The origin that asks, where the request is a question.
    fn question<'e>(exchange: &Exchange<'e>) -> Option<&'e [u8]> {
        let is_question =
            exchange.method == Method::Options && exchange.fields.contains("access-control-request-method");
        exchange.fields.single("origin").filter(|_| is_question)
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
                lines.push("Vary", "Access-Control-Request-Headers");
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

/// A gate of a route with `cors`, past which such questions go: browsers ask them without credentials, and the answer says
/// nothing of what lies behind the gate.
pub struct OpenToQuestions(Rc<dyn Gate>);

impl OpenToQuestions {
    /// For a route whose handler is a [`Preflight`], which answers each question itself.
    pub fn new(gate: Rc<dyn Gate>) -> OpenToQuestions {
        OpenToQuestions(gate)
    }
}

impl Gate for OpenToQuestions {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        match Preflight::question(exchange) {
            Some(_) => Verdict::Pass,
            None => self.0.check(exchange),
        }
    }
}

impl Handler for Preflight {
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        match Preflight::question(exchange) {
            Some(origin) => Reply::Ready(self.answer(origin, exchange)),
            None => self.handler.handle(exchange, pass),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        match Preflight::question(exchange) {
            Some(_) => {
                say("a browser asks whether a page of another site may: `cors` answers".into());
                Foreseen::Handler
            }
            None => self.handler.explain(exchange, say),
        }
    }
}
