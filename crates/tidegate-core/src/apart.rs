//! Requests of the server's own that go on without their client: what fills a cache.
//!
//! They are answered by the handler that would have answered the client, behind the same gates, which the client has passed.

use crate::exchange::Exchange;
use crate::gate::Pass;
use crate::kept::Kept;
use crate::reply::Reply;
use crate::signals::Signals;
use crate::state::RequestState;
use std::cell::OnceCell;
use tidegate_http::{Fields, Method};

/// Whether the client waits for what it has set off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// Its line in a log tells who was asked, and how long that took.
    ByClient,
    /// It has its answer already.
    ByNobody,
}

impl Exchange<'_> {
    /// Asks for the same by GET, whatever the client's method is: what comes is for all who ask for it. By another spelling of its
    /// authority, with other fields, and without content. The reply hears nothing of the client any more: it may go, and what it
    /// holds of limits goes with it. A client that waits for it says so with [`Exchange::answer_after`], and does
    /// that for the application that is asked here ([`Exchange::waits_for`]).
    pub fn ask_apart(
        &mut self,
        (authority, fields): (&str, Fields<'_>),
        awaited: Awaited,
        handler: impl FnOnce(&mut Exchange<'_>) -> Reply,
    ) -> Reply {
        let mut state = RequestState { holds: None, ..self.state.copy(Signals::default()) };
        if awaited == Awaited::ByNobody {
            state.trace = OnceCell::new();
        }
        let mut inner = self.by_get(authority, fields, state);
        let reply = handler(&mut inner);
        if awaited == Awaited::ByClient {
            self.waits_for(inner.state.signals.upstream());
        }
        reply
    }
}

impl<'a> Exchange<'a> {
    fn by_get<'b>(&self, authority: &'b str, fields: Fields<'b>, state: RequestState) -> Exchange<'b>
    where
        'a: 'b,
    {
        let (method, method_token) = (Method::Get, "GET");
        Exchange { method, method_token, authority, fields, state, ..*self }
    }
}

/// The way to ask for the same again later on, when the client may have gone: for what is missing of a content.
pub struct AskAgain {
    kept: Kept,
    pass: Pass,
}

impl Exchange<'_> {
    /// What it takes to ask for the same again. The pass says that the request has been let in.
    pub fn to_ask_again(&self, authority: &str, pass: &Pass) -> AskAgain {
        let state = RequestState { holds: None, ..self.state.copy(Signals::default()) };
        let mut inner = self.by_get(authority, Fields::new(&[]), state);
        AskAgain { kept: Kept::of(&mut inner), pass: pass.once_more() }
    }
}

impl AskAgain {
    /// Asks with these fields, at `now`, Unix seconds. Nobody's line in a log tells of it.
    pub fn ask(
        &self,
        fields: Fields<'_>,
        now: i64,
        handler: impl FnOnce(&mut Exchange<'_>, Pass) -> Reply,
    ) -> Reply {
        self.kept.lend_again(fields, now, |exchange| handler(exchange, self.pass.once_more()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;
    use tidegate_http::{Field, Status};

    #[test]
    fn what_is_asked_apart_is_not_given_up_with_the_client() {
        let mut exchange = Exchange { method: Method::Head, method_token: "HEAD", ..Exchange::empty() };
        let (sink, content) = body::pipe(Some(3));
        exchange.state.body = Some(content);
        let fields = [Field { name: "If-None-Match", value: b"\"1\"" }];
        for (awaited, upstream) in [(Awaited::ByNobody, 0), (Awaited::ByClient, 7)] {
            let reply = exchange.ask_apart(("a.test", Fields::new(&fields)), awaited, |inner| {
                assert_eq!(inner.field("if-none-match"), Some(&b"\"1\""[..]));
                assert_eq!((inner.method, inner.method_token), (Method::Get, "GET"));
                assert!(inner.state.body.is_none() && inner.interim().is_none());
                inner.ends_with_client();
                inner.waits_for(7);
                Reply::status(Status::OK)
            });
            assert!(matches!(reply, Reply::Ready(_)));
            assert!(!exchange.state.signals.abandons());
            assert_eq!(exchange.state.signals.upstream(), upstream);
        }
        assert!(sink.has_reader(), "the content is still the client's");
    }
}
