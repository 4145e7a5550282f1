//! Streams under way as an operator sees them, and the end of one by hand.

use super::super::in_flight::RequestUnderWay;
use super::super::{Connection, Next};
use super::Http2;
use crate::context::Ctx;
use tidegate_io::Key;
use tidegate_io::socket::Peer;
use tidegate_wire::h2::ErrorCode;

impl Http2 {
    /// Tells of each stream.
    pub(in super::super) fn each_request(&self, client: Peer, tell: &mut dyn FnMut(RequestUnderWay<'_>)) {
        for work in self.streams.iter().flatten() {
            let is_tunnel = work.incoming.as_ref().is_some_and(|incoming| incoming.is_tunnel);
            let output = (Some(&work.output), is_tunnel);
            tell(RequestUnderWay::of(work.key.id(), client, &work.request, output, work.record.as_deref()));
        }
    }
}

impl Connection {
    /// Resets a stream. `None`: nothing is under way on it.
    pub(in super::super) fn cancel_stream(&mut self, number: u32, key: Key, cx: &mut Ctx) -> Option<Next> {
        let mut h2 = self.take_h2()?;
        let stream = h2.streams.iter().flatten().map(|work| work.key).find(|stream| stream.id() == number);
        if let Some(stream) = stream {
            h2.wire.reset(stream, ErrorCode::CANCEL, &mut h2.batch);
            self.abandon_stream(&mut h2, stream, cx);
        }
        self.put_h2(h2);
        stream.map(|_| self.take_turn(key, cx))
    }
}
