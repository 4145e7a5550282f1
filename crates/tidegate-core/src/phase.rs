//! The fixed order in which a request is decided: Route (site, then its routes in source order), Access,
//! Content, Filter.
//!
//! The order in the file counts among routes and inside a phase, nowhere else, and `explain` tells what was tried.
//! Each phase has a file of its own: `site`, `access`, the handlers of the modules, `filtering`.

use crate::access::{self, Pass, Refusal};
use crate::answer;
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::filtering::hint;
use crate::reply::Reply;
use crate::response::{Head, Response};
use crate::site::Site;
use std::rc::Rc;
use tidegate_http::Status;

impl Engine {
    /// Decides and answers.
    #[inline]
    pub fn handle(&self, site: &Rc<Site>, exchange: &mut Exchange<'_>) -> Reply {
        let Some(index) = site.route_for(exchange.path) else {
            return Reply::Ready(answer::refused(exchange, Status::NOT_FOUND, "no route fits"));
        };
        exchange.context.route = index;
        let config = &site.config.routes[index];
        if let Some(trusted) = &config.trusted_proxies {
            exchange.remote = exchange.remote.seen_behind(trusted, &exchange.fields);
        }
        match access::admit(&config.access, exchange) {
            Ok(pass) => site.content(index, exchange, pass),
            Err(refusal) => site.finish(index, exchange, refuse(exchange, &refusal)),
        }
    }
}

impl Site {
    /// The Content and Filter phases.
    #[inline]
    pub(crate) fn content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        match self.routes[index].handler.handle(exchange, pass) {
            // Complete as it is: the hot path ends here.
            reply @ Reply::Ready(Response { head: Head::Prebuilt(_) | Head::Final(_), .. }) => reply,
            reply => self.finish_content(index, exchange, reply),
        }
    }

    #[inline(never)]
    fn finish_content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, reply: Reply) -> Reply {
        let links = &self.config.routes[index].early_hints;
        if !links.is_empty() && !matches!(reply, Reply::Ready(_)) {
            hint(links, exchange);
        }
        if self.has_filter_phase(index) { self.finish(index, exchange, reply) } else { reply }
    }

    /// The Content phase with the fields of the route and nothing else of the Filter phase.
    pub(crate) fn plain_content(&self, index: usize, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        let route = &self.routes[index];
        let (decoration, filled) = (route.decoration.clone(), route.decoration.fill(exchange));
        route.handler.handle(exchange, pass).map(move |mut response| {
            if let Head::Fields(lines) = &mut response.head {
                decoration.apply(response.status, &filled, lines);
            }
            response
        })
    }
}

/// The answer to a request that is not let in.
pub(crate) fn refuse(exchange: &Exchange<'_>, refusal: &Refusal<'_>) -> Reply {
    let response = answer::refused(exchange, Status::FORBIDDEN, refusal);
    Reply::Ready(match refusal {
        Refusal::Denied(_)
        | Refusal::NotAllowed(_)
        | Refusal::UnnamedProxy(_)
        | Refusal::UnnamedClient(_) => response,
        Refusal::NoCertificate => answer::explained(
            Status::FORBIDDEN,
            "This address is open only to clients that show a certificate.",
        ),
    })
}
