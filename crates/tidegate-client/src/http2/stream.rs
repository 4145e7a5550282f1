//! One exchange on a connection of HTTP/2: content of the request in, its answer out.

use super::session::{MOST_WINDOW, OUT_MAX, Session, State, StreamState};
use super::{Answer, Http2Error};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_http::FieldLines;
use tidegate_io::clock::monotonic_ns;
use tidegate_wire::h2::{self, ErrorCode, StreamKey};

/// One exchange. Dropped before its end, it is reset.
pub struct Http2Stream {
    pub(super) session: Rc<Session>,
    pub(super) key: StreamKey,
}

impl Http2Stream {
    /// The next head: interim ones first.
    pub fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Answer, Http2Error>> {
        self.poll(cx, |_, state, _, _| state.heads.pop_front())
    }

    /// Content, moved to the front of `buffer`; 0 at the end.
    pub fn poll_data(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Http2Error>> {
        let polled = self.poll(cx, |key, state, wire, out| {
            let count = state.data.len().min(buffer.len());
            if count == 0 {
                return state.has_ended.then_some(0);
            }
            buffer[..count].copy_from_slice(&state.data[..count]);
            state.data.drain(..count);
            if state.data.is_empty() {
                state.data = Vec::new();
            }
            state.taken += count as u64;
            wire.release(key, count, out);
            Some(count)
        });
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.session.wake(); // it gives back the window
        }
        polled
    }

    /// Whether the peer has sent anything on the connection: somebody has accepted it.
    pub fn is_accepted(&self) -> bool {
        self.session.state.borrow().is_accepted
    }

    /// Its answer was waited for in vain, for so long: where nothing else has come on the connection either, it gets no
    /// further requests until something does, and is asked by a PING.
    pub fn has_waited(&self, waited: Duration) {
        let mut state = self.session.state.borrow_mut();
        let State { liveness, wire, out, .. } = &mut *state;
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        if liveness.doubt(waited, monotonic_ns()) {
            wire.ping(out);
        }
        self.session.wake();
    }

    /// The trailer fields, once the content has ended.
    pub fn take_trailers(&self) -> FieldLines {
        let mut state = self.session.state.borrow_mut();
        state
            .streams
            .get_mut(&self.key.id())
            .map(|stream| std::mem::take(&mut stream.trailers))
            .unwrap_or_default()
    }

    /// Ends the request with trailer fields, behind all of its content. They are sent within no window.
    pub fn send_trailers(&self, trailers: &FieldLines) {
        let mut state = self.session.state.borrow_mut();
        let State { wire, out, .. } = &mut *state;
        wire.send_trailers(self.key, trailers.as_bytes(), out);
        self.session.wake();
    }

    /// Sends content, and with `is_end` its end. Returns the bytes taken: at least one, unless there is none. A peer
    /// that has answered and wants no more gets no more, and that is no error.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        is_end: bool,
    ) -> Poll<Result<usize, Http2Error>> {
        let mut state = self.session.state.borrow_mut();
        let State { wire, streams, out, sent, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.key.id()) else { return Poll::Ready(Ok(data.len())) };
        if let Some(error) = &stream.error {
            return Poll::Ready(Err(error.clone()));
        }
        if !wire.is_open(self.key) {
            return Poll::Ready(Ok(data.len()));
        }
        let has_room = out.len() - *sent <= OUT_MAX;
        let before = out.len();
        let count = if has_room { wire.send_data(self.key, data, is_end, out) } else { 0 };
        if out.len() > before {
            self.session.wake();
        }
        if count == 0 && (!data.is_empty() || !has_room) {
            stream.waits_for_room = true;
            stream.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    /// Bytes that the stream holds, and those of content that the peer may send without being asked: whoever weighs it
    /// learns of both before they are there.
    pub fn held(&self) -> usize {
        let state = self.session.state.borrow();
        state.streams.get(&self.key.id()).map_or(0, StreamState::held)
    }

    /// Lets the peer send more at once, where content is taken as it comes and `has_room` for so many bytes.
    pub fn widen(&self, has_room: impl FnOnce(usize) -> bool) {
        let mut state = self.session.state.borrow_mut();
        let State { wire, streams, out, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.key.id()) else { return };
        let wider = stream.window.saturating_mul(2).min(MOST_WINDOW);
        let more = wider - stream.window;
        if more > 0 && !stream.has_ended && stream.taken >= stream.window.into() && has_room(more as usize) {
            stream.window = wider;
            wire.widen(self.key, wider, out); // sent with what wakes the connection for the window that is given back
        }
    }

    /// Has `cx` woken when anything comes, without taking it.
    pub fn watch(&self, cx: &mut Context<'_>) {
        let mut state = self.session.state.borrow_mut();
        if let Some(stream) = state.streams.get_mut(&self.key.id()) {
            stream.waker = Some(cx.waker().clone());
        }
    }

    fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        take: impl FnOnce(StreamKey, &mut StreamState, &mut h2::Connection, &mut Vec<u8>) -> Option<R>,
    ) -> Poll<Result<R, Http2Error>> {
        let mut state = self.session.state.borrow_mut();
        let State { wire, streams, out, over, .. } = &mut *state;
        let lost = || over.clone().unwrap_or(Http2Error::Lost("the stream is gone".to_owned()));
        let Some(stream) = streams.get_mut(&self.key.id()) else { return Poll::Ready(Err(lost())) };
        if let Some(taken) = take(self.key, stream, wire, out) {
            return Poll::Ready(Ok(taken));
        }
        if let Some(error) = &stream.error {
            return Poll::Ready(Err(error.clone()));
        }
        stream.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let mut state = self.session.state.borrow_mut();
        let state = &mut *state;
        state.streams.remove(&self.key.id());
        state.wire.reset(self.key, ErrorCode::CANCEL, &mut state.out); // nothing, where it has ended
        self.session.wake();
    }
}
