//! The fixed order in which a request is decided: Route (site, then its routes in source order), the
//! gates of the route (access), Content, Filter.
//!
//! The order in the file counts among routes and inside a phase, nowhere else, and `explain` tells what was tried.
//! Each phase has a file of its own: `site`, `gate`, the handlers of the modules, `filtering`.

use crate::answer;
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::filtering::hint;
use crate::gate::Pass;
use crate::reply::Reply;
use crate::response::{Head, Response};
use crate::site::Site;
use std::rc::Rc;
use tidegate_http::Status;

impl Engine {
    /// Decides and answers. `route` is the first whose pattern fits, where that is known already.
    #[inline(always)] // one of the two calls is explain's
    pub fn handle(&self, site: &Rc<Site>, exchange: &mut Exchange<'_>, route: Option<usize>) -> Reply {
        let index = match route.map_or_else(|| site.route_for(exchange), Ok) {
            Ok(index) => index,
            Err(response) => return Reply::Ready(response),
        };
        (exchange.state.route, exchange.state.has_route) = (index, true);
        if let Some(trusted) = &site.route(index).trusted_proxies {
            exchange.state.remote = exchange.state.remote.seen_behind(trusted, &exchange.fields);
            exchange.scheme = exchange.state.remote.scheme(exchange.state.is_tls());
            if let Some(why) = exchange.state.remote.unreadable(&exchange.fields) {
                return Reply::Ready(answer::refused(exchange, Status::BAD_REQUEST, why));
            }
        }
        site.enter(index, exchange, move |site, exchange, entered| match entered {
            Ok(_) if exchange.state.refused.is_some() => site.refuse(index, exchange),
            Ok(pass) => site.content(index, exchange, pass),
            Err(refused) => {
                site.watch_unrouted(exchange);
                site.finish(index, exchange, Reply::Ready(refused))
            }
        })
    }
}

impl Site {
    /// The answer of a route to a request that it lets in, and that no handler may have.
    #[cold]
    fn refuse(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>) -> Reply {
        self.watch_unrouted(exchange);
        let response = match exchange.state.refused.take() {
            Some(refused) => answer::refused(exchange, refused.status, &refused.why),
            None => answer::error(Status::BAD_REQUEST),
        };
        self.finish(index, exchange, Reply::Ready(response))
    }

    /// The Content and Filter phases.
    #[inline]
    pub(crate) fn content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        let route = &self.routes[index];
        let mut reply = route.handler.handle(exchange, pass);
        let is_finished =
            matches!(&reply, Reply::Ready(Response { head: Head::Prebuilt(_) | Head::Final(_), .. }));
        // Complete as it is: the hot path ends here.
        if !route.is_plain && (!is_finished || route.filters_finished) {
            reply = self.finish_content(index, exchange, reply);
        } else if let Some(fields) = self.varying(index, exchange.path) {
            reply = reply.map(move |response| response.varying(&fields));
        }
        reply
    }

    #[inline(never)]
    fn finish_content(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>, reply: Reply) -> Reply {
        let links = &self.config.routes[index].early_hints;
        if !links.is_empty() && !matches!(reply, Reply::Ready(_)) {
            hint(links, exchange);
        }
        self.finish(index, exchange, reply)
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
