//! What changes responses on their way out: [`Filter`] for a route, [`ResponseFilter`] for one response.

use crate::exchange::Exchange;
use crate::response::{Body, Head, Response};
use tidegate_http::{FieldLines, Status};

/// Changes responses of a route. No function has a body of its own, so that a new filter answers each question.
pub trait Filter {
    /// Looks at the request while it is there. `None`: nothing to do whatever the response is.
    fn prepare(&self, exchange: &Exchange<'_>) -> Option<Box<dyn ResponseFilter>>;

    /// How many bytes of content of unknown length decide what it does: a body that ends before comes with its length,
    /// where that can be known within a few milliseconds. 0 where none do.
    fn looks_ahead(&self) -> usize;

    /// Whether it sees responses that are finished as well: cached files, and what another route has answered. Asked when
    /// the settings are loaded: on a route without such a filter a finished message costs nothing more.
    fn sees_finished(&self) -> bool;
}

/// The head of a response in front of a filter, and the content behind it, to look at.
pub struct FilterHead<'r> {
    /// Status code.
    pub status: Status,
    /// Field section; what is framing is not in it.
    pub lines: &'r mut FieldLines,
    /// Content.
    pub body: &'r Body,
}

/// A filter at work on one response.
pub trait ResponseFilter {
    /// Changes the fields. Whether the content is changed as well: only then [`ResponseFilter::wrap_body`] is called.
    fn on_head(&mut self, head: FilterHead<'_>) -> bool;

    /// The content in place of `body`, which is the one that the head was decided by.
    fn wrap_body(self: Box<Self>, body: Body) -> Body;
}

/// Passes a response through a filter.
pub fn apply(mut filter: Box<dyn ResponseFilter>, mut response: Response) -> Response {
    if let Head::Prebuilt(message) = &response.head {
        response.head = Head::Final(message.lines().clone());
    }
    let wraps = match &mut response.head {
        Head::Fields(lines) | Head::Final(lines) => {
            filter.on_head(FilterHead { status: response.status, lines, body: &response.body })
        }
        Head::Prebuilt(_) => false,
    };
    if wraps {
        response.body = filter.wrap_body(response.body);
    }
    response
}
