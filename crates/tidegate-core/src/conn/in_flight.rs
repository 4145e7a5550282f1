//! Requests under way as an operator sees them: the rows of `tidegate status requests`, and the end of one by hand.
//!
//! Nothing is kept for this: what a connection knows anyway is looked at when somebody asks, by `worker/in_flight`.

use super::content::Incoming;
use super::output::Output;
use super::{Connection, Next, Request, Work};
use crate::context::Ctx;
use crate::log::Record;
use tidegate_http::Version;
use tidegate_io::Key;
use tidegate_io::socket::Peer;
use tidegate_stats::series::SeriesId;

/// A request under way.
pub(crate) struct RequestUnderWay<'c> {
    /// Which of its connection's: the stream, or how many there were before.
    pub number: u32,
    pub version: Version,
    pub series: SeriesId,
    /// Who asks, as far as that is known without a log.
    pub client: Peer,
    /// Monotonic, nanoseconds.
    pub started: u64,
    pub phase: &'static str,
    /// Of its answer, once that has begun.
    pub status: Option<u16>,
    pub received: u64,
    pub sent: u64,
    /// What will be logged of it, where it will be.
    pub record: Option<&'c Record>,
}

impl<'c> RequestUnderWay<'c> {
    pub(super) fn of<F>(
        number: u32,
        client: Peer,
        request: &Request,
        (output, is_tunnel): (Option<&Output<F>>, bool),
        record: Option<&'c Record>,
    ) -> RequestUnderWay<'c> {
        let begun = output.filter(|output| output.has_begun());
        RequestUnderWay {
            number,
            version: request.version,
            series: request.series,
            client,
            started: request.started,
            phase: if is_tunnel { "tunnel" } else { output.map_or("receiving", Output::phase) },
            status: begun.map(|output| output.status.0),
            received: request.received,
            sent: output.map_or(0, |output| output.sent),
            record,
        }
    }
}

impl Connection {
    /// Tells of each request that is under way.
    pub(crate) fn each_request(&self, tell: &mut dyn FnMut(RequestUnderWay<'_>)) {
        let client = self.admitted();
        if let Some(work) = &self.work {
            tell(work.under_way(self.served, client));
        }
        if let Some(h2) = self.protocol.h2() {
            h2.each_request(client, tell);
        }
    }

    /// Ends one of them: its stream, or its connection where there is nothing else. `None`: there is none of this number.
    pub(crate) fn cancel(&mut self, number: u32, key: Key, cx: &mut Ctx) -> Option<Next> {
        if self.protocol.is_h2() {
            self.batch.borrow_memory(&mut cx.batch_memory);
            let next = self.cancel_stream(number, key, cx);
            if self.transport.resets_on_close() || self.flush_batch().is_err() {
                self.batch.discard();
            }
            self.batch.return_memory(&mut cx.batch_memory);
            return next;
        }
        let is_it = self.work.is_some() && self.served == number;
        is_it.then(|| {
            self.transport.reset_on_close();
            Next::Close
        })
    }
}

impl Work {
    fn under_way(&self, number: u32, client: Peer) -> RequestUnderWay<'_> {
        let is_tunnel =
            self.incoming.as_deref().is_some_and(|incoming| matches!(incoming, Incoming::Tunnel(_)));
        RequestUnderWay::of(
            number,
            client,
            &self.request,
            (self.output.as_ref(), is_tunnel),
            self.record.as_deref(),
        )
    }
}
