//! A request that outlives the worker's read buffer: for answers that come later. The engine keeps and lends, no module
//! does.

use crate::exchange::{Exchange, Local, LocalSource};
use crate::signals::Signals;
use crate::state::RequestState;
use std::cell::OnceCell;
use std::net::SocketAddr;
use tidegate_http::{Field, Fields, Method, Version};

/// A request that is kept.
pub(crate) struct Kept {
    method: Method,
    method_token: String,
    target: String,
    path: Vec<u8>,
    query: Option<String>,
    scheme: &'static str,
    authority: String,
    fields: Vec<(String, Vec<u8>)>,
    protocol: Option<String>,
    version: Version,
    is_early: bool,
    now: i64,
    started: u64,
    local: Option<SocketAddr>,
    state: RequestState,
}

impl Kept {
    /// Copies the head, and takes the content along.
    pub(crate) fn of(exchange: &mut Exchange<'_>) -> Kept {
        let own = |field: &Field<'_>| (field.name.to_owned(), field.value.to_owned());
        Kept {
            method: exchange.method,
            method_token: exchange.method_token.to_owned(),
            target: exchange.target.to_owned(),
            path: exchange.path.to_owned(),
            query: exchange.query.map(str::to_owned),
            scheme: exchange.scheme,
            authority: exchange.authority.to_owned(),
            fields: exchange.fields.iter().map(own).collect(),
            protocol: exchange.protocol.map(str::to_owned),
            version: exchange.version,
            is_early: exchange.is_early,
            now: exchange.now,
            started: exchange.started,
            local: exchange.local(),
            state: exchange.state.keep(),
        }
    }

    /// Lends it as the exchange it was.
    pub(crate) fn lend<R>(mut self, f: impl FnOnce(&mut Exchange<'_>) -> R) -> R {
        let state = std::mem::take(&mut self.state);
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| Field { name, value }).collect();
        f(&mut self.exchange(Fields::new(&fields), self.now, state))
    }

    /// Lends it as a request of the server's own, with these fields: any number of times.
    pub(crate) fn lend_again<R>(
        &self,
        fields: Fields<'_>,
        now: i64,
        f: impl FnOnce(&mut Exchange<'_>) -> R,
    ) -> R {
        let state = RequestState { trace: OnceCell::new(), ..self.state.copy(Signals::default()) };
        f(&mut self.exchange(fields, now, state))
    }

    fn exchange<'a>(&'a self, fields: Fields<'a>, now: i64, state: RequestState) -> Exchange<'a> {
        Exchange {
            method: self.method,
            method_token: &self.method_token,
            target: &self.target,
            path: &self.path,
            query: self.query.as_deref(),
            scheme: self.scheme,
            authority: &self.authority,
            fields,
            protocol: self.protocol.as_deref(),
            version: self.version,
            is_early: self.is_early,
            now,
            started: self.started,
            local: Local(self.local.map_or(LocalSource::None, LocalSource::Known)),
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body;
    use crate::interim::Interim;
    use crate::reply::Reply;
    use crate::response::Response;
    use std::task::{Context, Waker};
    use tidegate_http::{FieldLines, Status};

    /// A handler that waits for a look-up, as on a cold disk, asks what it would have asked at once, and has the content.
    #[test]
    fn what_is_kept_keeps_its_state() {
        for version in [Version::Http11, Version::Http2, Version::Http10] {
            let takes_interim = version != Version::Http10;
            let mut exchange = Exchange { version, ..Exchange::empty() };
            exchange.state.signals = Signals::of_client(version);
            exchange.state.hops = 2;
            exchange.waits_for(6);
            let (sink, content) = body::pipe(Some(3));
            exchange.state.body = Some(content);
            let kept = Kept::of(&mut exchange);
            assert!(exchange.state.body.is_none() && sink.has_reader());
            kept.lend(|exchange| {
                assert_eq!((exchange.state.hops, exchange.state.signals.upstream()), (2, 6));
                assert_eq!(exchange.state.body.as_ref().and_then(|body| body.len), Some(3));
                exchange.ends_with_client();
                exchange.waits_for(7);
                if let Some(queue) = exchange.interim() {
                    queue.push(Interim { status: Status::EARLY_HINTS, lines: FieldLines::new() });
                }
                assert_eq!(exchange.interim().is_some(), takes_interim);
            });
            assert!(!sink.has_reader(), "nobody has taken it");
            let signals = exchange.state.signals;
            assert!(signals.abandons());
            assert_eq!(signals.upstream(), 7);
            let (interim, later) = signals.into_parts();
            let later = later.expect("it was kept");
            assert!(later.abandons() && later.upstream() == 7);
            assert_eq!(interim.and_then(|queue| queue.pop()).is_some(), takes_interim);
        }
    }

    /// Content in chunks that nobody reads is read before an answer is made, also when the answer had to wait for something:
    /// it may turn out to be malformed.
    #[test]
    fn what_nobody_reads_is_read_off_before_the_answer() {
        let waker = Waker::noop();
        for (most, ends) in [(Some(100), true), (Some(3), false), (None, false)] {
            let mut exchange = Exchange::empty();
            let (sink, content) = body::pipe(None);
            if let Some(most) = most {
                sink.is_read_off(most);
            }
            exchange.state.body = Some(content);
            let answer = |(), _: &mut Exchange<'_>| Reply::Ready(Response::empty(Status::OK));
            let Reply::Later(mut later) = exchange.answer_after(std::future::ready(()), answer) else {
                panic!()
            };
            let mut poll = || later.as_mut().poll(&mut Context::from_waker(waker)).is_ready();
            if most.is_none() {
                assert!(poll() && !sink.has_reader());
                continue;
            }
            assert!(!poll() && sink.is_wanted());
            sink.push(b"12345");
            if ends {
                assert!(!poll(), "more may come");
                sink.complete(FieldLines::new());
            }
            assert!(poll(), "it is complete, or more than is read for nothing");
        }
    }
}
