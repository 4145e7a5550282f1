//! Which stream sends next (RFC 9218 section 10).
//!
//! The most urgent first. Among streams of one urgency those that are incremental take turns; of those that
//! are not, the oldest takes part and the others wait for it. A stream whose window is closed is passed
//! over: it holds nobody up. An end and trailers need no window (RFC 9113 section 6.9): what may come to one of them is
//! not passed over.

use super::connection::Connection;
use super::priority::Priority;
use super::streams::StreamKey;

impl Connection {
    /// Says whether there is content to send on a stream.
    #[inline]
    pub fn set_ready(&mut self, key: StreamKey, is_ready: bool) {
        self.streams.set_ready(key, is_ready);
    }

    /// Says whether what a stream sends next may be its end or trailers, so that it has its turn without a window, too.
    #[inline]
    pub fn set_may_end(&mut self, key: StreamKey, may_end: bool) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.may_end = may_end;
        }
    }

    /// The streams with content to send, in no order, whether they may send or not.
    #[inline]
    pub fn ready(&self) -> &[StreamKey] {
        self.streams.ready()
    }

    /// The stream whose turn it is, of those that are ready and may send.
    pub fn next_ready(&mut self) -> Option<StreamKey> {
        let is_open = self.send_window.room() > 0;
        // Urgency, then turn.
        let mut sharing: Option<(u8, u64, StreamKey)> = None;
        let mut waiting: Option<(u8, u64, StreamKey)> = None;
        for &key in self.streams.ready() {
            let Some(stream) = self.streams.get(key).filter(|stream| stream.may_send(is_open)) else {
                continue;
            };
            let urgency = stream.priority.urgency;
            let candidate = Some((urgency, stream.turn, key));
            if stream.priority.is_incremental {
                if sharing.is_none_or(|(best, turn, _)| (urgency, stream.turn) < (best, turn)) {
                    sharing = candidate;
                }
            } else if waiting.is_none_or(|(best, _, oldest)| (urgency, key.id()) < (best, oldest.id())) {
                waiting = candidate;
            }
        }
        let (_, _, key) = match (sharing, waiting) {
            (Some(one), Some(other)) if (other.0, other.1) < (one.0, one.1) => other,
            (one, other) => one.or(other)?,
        };
        self.turn += 1;
        let turn = self.turn;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.turn = turn;
        }
        Some(key)
    }

    /// Whether some stream has content to send and is kept from it by the peer's windows: what a peer that
    /// hoards responses looks like (FAULTS 20).
    pub fn is_starved(&self) -> bool {
        let is_open = self.send_window.room() > 0;
        let mut ready = self.streams.ready().iter().filter_map(|key| self.streams.get(*key));
        ready.any(|stream| !stream.may_send(is_open))
    }

    /// The priority of a stream, as the peer gave it last.
    pub fn priority(&self, key: StreamKey) -> Priority {
        self.streams.get(key).map(|stream| stream.priority).unwrap_or_default()
    }
}
