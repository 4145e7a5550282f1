//! `rewrite` and `hand-to`: another path in place of the request's own.
//!
//! The first asks what answers the route for that path, the second has routes chosen anew. Both go through the gates of the
//! route that the path has itself (`core/subrequest.rs`), so that nothing is to be had by a detour that is closed by its name.

use std::rc::Rc;
use tidegate_core::explain::Foreseen;
use tidegate_core::template::{Scope, Template};
use tidegate_core::{Exchange, Handler, Pass, Reply, answer};
use tidegate_http::Status;
use tidegate_http::path::encode_path;

/// Where a request goes.
struct Way {
    written: String,
    to: Template,
}

impl Way {
    fn new(to: &str, scope: Scope<'_>) -> Way {
        Way { written: to.into(), to: Template::parse(to, scope) }
    }

    /// The path and the query, or the status of a request that has none there, and why.
    fn of(&self, exchange: &Exchange<'_>) -> Result<(Vec<u8>, Option<String>), (Status, String)> {
        if exchange.has_ambiguous_path() && self.to.asks_for_target() {
            // Nobody can say which part of it a star stands for.
            return Err((
                Status::NOT_FOUND,
                "the path holds an encoded slash, and is to be rewritten".into(),
            ));
        }
        let found = self.to.path_and_query(exchange);
        found.map_err(|error| (error.status(), format!("{:?} leads to no path: {error}", self.written)))
    }

    fn explain(&self, word: &str, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) {
        if let Ok((path, query)) = self.of(exchange) {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            say(format!("{word} {:?}: {}{query}", self.written, encode_path(&path)));
        }
    }
}

/// `hand-to "/index.php?page={1}"`
pub struct HandTo(Way);

impl HandTo {
    /// Hands requests to where the template leads.
    pub fn new(to: &str, scope: Scope<'_>) -> HandTo {
        HandTo(Way::new(to, scope))
    }
}

impl Handler for HandTo {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        match self.0.of(exchange) {
            Ok((path, query)) => exchange.hand_to(&path, query.as_deref()),
            Err((status, why)) => Reply::Ready(answer::refused(exchange, status, why)),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        self.0.explain("handed to", exchange, say);
        Foreseen::Handler
    }
}

/// `rewrite "/users/{id}"` in front of what answers the route.
pub struct Rewritten {
    way: Way,
    handler: Rc<dyn Handler>,
}

impl Rewritten {
    /// Asks `handler` for what the template says.
    pub fn new(to: &str, scope: Scope<'_>, handler: Rc<dyn Handler>) -> Rewritten {
        Rewritten { way: Way::new(to, scope), handler }
    }
}

impl Handler for Rewritten {
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        let handler = self.handler.clone();
        match self.way.of(exchange) {
            Ok((path, query)) => {
                exchange.rewrite(&path, query.as_deref(), move |exchange| handler.handle(exchange, pass))
            }
            Err((status, why)) => Reply::Ready(answer::refused(exchange, status, why)),
        }
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        self.way.explain("rewritten by", exchange, say);
        Foreseen::Handler
    }
}
