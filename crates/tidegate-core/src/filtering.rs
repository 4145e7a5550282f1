//! The Filter phase: the error page of a route, the fields that it puts on its responses, and its filters.

use crate::ahead;
use crate::exchange::Exchange;
use crate::filter::{self, Filter};
use crate::interim::Interim;
use crate::reply::Reply;
use crate::response::{Head, Response};
use crate::site::{Route, Site};
use crate::subrequest::InternalRedirect;
use std::rc::Rc;
use tidegate_config::settings;
use tidegate_http::{FieldLines, Method, Status, Version};

impl Route {
    /// Whether it has anything for the Filter phase, or for those who wait for its content.
    pub(crate) fn has_filter_phase(&self, config: &settings::Route) -> bool {
        let is_dressed = !self.filters.is_empty() || !self.decoration.is_empty();
        let tells = !config.server_timing.is_empty() || !config.early_hints.is_empty();
        is_dressed || tells || !config.error_pages.is_empty()
    }
}

impl Site {
    /// The Filter phase: error page, fields of the route, filters. A finished response is for those filters alone that see
    /// such.
    pub(crate) fn finish(self: &Rc<Self>, index: usize, exchange: &Exchange<'_>, reply: Reply) -> Reply {
        let route = &self.routes[index];
        let prepare =
            |filter: &Rc<dyn Filter>| filter.prepare(exchange).map(|made| (filter.sees_finished(), made));
        let filters: Vec<_> = route.filters.iter().filter_map(prepare).collect();
        let pages = &self.config.routes[index].error_pages;
        let may_have_page = match &reply {
            _ if exchange.is_unanswered() => false,
            Reply::Ready(response) => pages.iter().any(|(of, _)| *of == response.status.0),
            _ => !pages.is_empty(),
        };
        let pages = may_have_page.then(|| InternalRedirect::of(self, exchange));
        let timing = self.server_timing(index, exchange);
        let varying = self.varying(index, exchange.path);
        let is_dressed = !filters.is_empty() || !route.decoration.is_empty() || varying.is_some();
        if !is_dressed && pages.is_none() && timing.is_none() {
            return reply;
        }
        let least = match exchange.method {
            Method::Head => 0,
            _ => route.filters.iter().map(|filter| filter.looks_ahead()).max().unwrap_or(0),
        };
        let reply = if filters.is_empty() { reply } else { ahead::look_ahead(reply, least) };
        let (decoration, filled) = (route.decoration.clone(), route.decoration.fill(exchange));
        let dress = move |mut response: Response| {
            let is_finished = !matches!(response.head, Head::Fields(_));
            if let Head::Fields(lines) = &mut response.head {
                decoration.apply(response.status, &filled, lines);
            }
            if let Some(fields) = varying {
                response = response.varying(&fields);
            }
            if let Some(timing) = timing {
                response = timing.tell(response);
            }
            let filters = filters.into_iter().filter(|(sees_finished, _)| *sees_finished || !is_finished);
            filters.fold(response, |response, (_, filter)| filter::apply(filter, response))
        };
        let Some(pages) = pages else { return reply.map(dress) };
        self.clone().with_pages(index, pages, reply, dress)
    }

    fn with_pages(
        self: Rc<Self>,
        index: usize,
        pages: InternalRedirect,
        reply: Reply,
        dress: impl FnOnce(Response) -> Response + 'static,
    ) -> Reply {
        match reply {
            Reply::Ready(response) => self.with_page(index, &pages, response).map(dress),
            Reply::Later(future) => Reply::Later(Box::pin(async move {
                dress(self.with_page(index, &pages, future.await).settled().await)
            })),
            Reply::Preparing(need, future) => Reply::Preparing(
                need,
                Box::pin(async move { self.with_pages(index, pages, future.await, dress) }),
            ),
        }
    }

    /// Puts the page that the settings name for an error in its place.
    fn with_page(&self, index: usize, pages: &InternalRedirect, response: Response) -> Reply {
        let config = &self.config.routes[index];
        let is_finished = !matches!(response.head, Head::Fields(_));
        if is_finished || (response.author.is_application() && !config.intercepts) {
            return Reply::Ready(response);
        }
        match config.error_pages.iter().find(|(of, _)| *of == response.status.0) {
            Some((_, path)) => pages.error_page(path, response),
            None => Reply::Ready(response),
        }
    }
}

/// Tells a browser what it will need while the page is still being made (RFC 8297). Only where one navigates
/// and speaks HTTP/2: others do nothing with it, and old clients of HTTP/1 take it for the answer.
#[cold]
pub(crate) fn hint(links: &[String], exchange: &Exchange<'_>) {
    let navigates = exchange.fields.first("sec-fetch-mode").is_some_and(|mode| mode == b"navigate");
    if exchange.version != Version::Http2 || exchange.method != Method::Get || !navigates {
        return;
    }
    if let Some(queue) = exchange.interim() {
        let mut lines = FieldLines::new();
        for link in links {
            lines.push("Link", link);
        }
        queue.push(Interim { status: Status::EARLY_HINTS, lines });
    }
}
