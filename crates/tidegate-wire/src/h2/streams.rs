//! The streams of one connection (RFC 9113 section 5.1): those that are open, and a short memory of those
//! that are over.

use super::flow::{ReceiveWindow, SendWindow};
use super::priority::Priority;
use std::cell::Cell;
use std::collections::VecDeque;

/// How many streams that we reset are remembered: frames for them may still be on their way.
const RESETS_REMEMBERED: usize = 128;
/// How many that ended are remembered, to tell a late frame from a wrong number.
const ENDS_REMEMBERED: usize = 8;

/// Slots that a quiet connection keeps.
const SLOTS_KEPT: usize = 4;

/// One stream of one connection. Slots are small numbers and are used again: a caller can keep what it knows
/// of a stream in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    slot: u32,
    id: u32,
}

impl StreamKey {
    /// Its place among the open streams.
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// Its number on the wire.
    #[inline]
    pub fn id(self) -> u32 {
        self.id
    }
}

/// What is known of an open stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub send_window: SendWindow,
    pub receive_window: ReceiveWindow,
    /// Handed to the caller and not given back yet.
    pub unreleased: u32,
    /// Content still to come, where it was announced.
    pub expected: Option<u64>,
    /// The peer has ended its direction.
    pub is_remote_closed: bool,
    /// We have ended ours.
    pub is_local_closed: bool,
    /// The peer's head is complete; what follows are trailers.
    pub has_head: bool,
    /// We have sent our final head.
    pub has_sent_head: bool,
    /// The request was HEAD.
    pub is_head_request: bool,
    /// What it sends next may be an end or trailers, which need no window.
    pub may_end: bool,
    /// There is something to send. Set by [`Streams::set_ready`] alone.
    is_ready: bool,
    pub priority: Priority,
    /// When it was last chosen for sending.
    pub turn: u64,
}

impl Stream {
    /// A stream of which nothing was sent or received.
    pub(super) fn new(send_window: SendWindow, receive_window: ReceiveWindow) -> Stream {
        Stream {
            send_window,
            receive_window,
            unreleased: 0,
            expected: None,
            is_remote_closed: false,
            is_local_closed: false,
            has_head: false,
            has_sent_head: false,
            is_head_request: false,
            may_end: false,
            is_ready: false,
            priority: Priority::default(),
            turn: 0,
        }
    }
}

impl Stream {
    /// Whether the windows let it send what comes next, where that of the connection is open or not.
    pub(super) fn may_send(&self, is_open: bool) -> bool {
        self.may_end || (is_open && self.send_window.room() > 0)
    }
}

/// All streams that are open.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Numbers by slot; 0 where it is free. Apart from the rest, so that a search touches little memory.
    ids: Vec<u32>,
    slots: Vec<Stream>,
    /// The slot that was looked for last.
    found: Cell<usize>,
    free: Vec<u32>,
    /// Those with something to send, so that who sends next is found without a look at the others.
    ready: Vec<StreamKey>,
    resets: VecDeque<u32>,
    ends: [u32; ENDS_REMEMBERED],
    next_end: usize,
}

/// What is remembered of a stream that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// Reset by us.
    Reset,
    /// Ended by both sides, or reset by the peer.
    Ended,
    /// Too long ago, or never opened.
    Unknown,
}

impl Streams {
    /// How many are open.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        // Frames of one stream come one after the other, most often.
        let found = self.found.get();
        if self.ids.get(found) == Some(&id) {
            return Some(StreamKey { slot: found as u32, id });
        }
        let slot = self.ids.iter().position(|have| *have == id)?;
        self.found.set(slot);
        Some(StreamKey { slot: slot as u32, id })
    }

    #[inline]
    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slots.get(key.slot()).filter(|_| self.ids.get(key.slot()) == Some(&key.id))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.slot()).filter(|_| self.ids.get(key.slot()) == Some(&key.id))
    }

    /// Says whether there is something to send on a stream.
    #[inline]
    pub(super) fn set_ready(&mut self, key: StreamKey, is_ready: bool) {
        let Some(stream) = self.get_mut(key) else { return };
        if std::mem::replace(&mut stream.is_ready, is_ready) == is_ready {
            return;
        }
        if is_ready {
            self.ready.push(key);
        } else if let Some(at) = self.ready.iter().position(|ready| *ready == key) {
            self.ready.swap_remove(at);
        }
    }

    /// Those with something to send, in no order.
    #[inline]
    pub(super) fn ready(&self) -> &[StreamKey] {
        &self.ready
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.ids.iter().zip(&mut self.slots).filter(|(id, _)| **id != 0).map(|(_, stream)| stream)
    }

    /// Opens a stream; its number is not 0 and not open.
    pub(super) fn open(&mut self, id: u32, stream: Stream) -> StreamKey {
        let slot = match self.free.pop() {
            Some(slot) => {
                if let (Some(have), Some(place)) =
                    (self.ids.get_mut(slot as usize), self.slots.get_mut(slot as usize))
                {
                    (*have, *place) = (id, stream);
                }
                slot
            }
            None => {
                self.ids.push(id);
                self.slots.push(stream);
                (self.slots.len() - 1) as u32
            }
        };
        StreamKey { slot, id }
    }

    /// Closes a stream; what was never released comes back to the connection.
    pub(super) fn close(&mut self, key: StreamKey, past: Past) -> u32 {
        self.set_ready(key, false);
        let Some(stream) = self.get_mut(key) else { return 0 };
        let unreleased = std::mem::take(&mut stream.unreleased);
        if let Some(id) = self.ids.get_mut(key.slot()) {
            *id = 0;
        }
        self.free.push(key.slot);
        self.remember(key.id, past);
        unreleased
    }

    /// Remembers how a stream ended.
    pub(super) fn remember(&mut self, id: u32, past: Past) {
        match past {
            Past::Reset => {
                if self.resets.len() == RESETS_REMEMBERED {
                    self.resets.pop_front();
                }
                self.resets.push_back(id);
            }
            _ => {
                if let Some(end) = self.ends.get_mut(self.next_end) {
                    *end = id;
                }
                self.next_end = (self.next_end + 1) % ENDS_REMEMBERED;
            }
        }
    }

    pub(super) fn past(&self, id: u32) -> Past {
        if self.resets.contains(&id) {
            Past::Reset
        } else if self.ends.contains(&id) {
            Past::Ended
        } else {
            Past::Unknown
        }
    }

    /// Lets go of memory that a quiet connection does not need.
    pub(super) fn relax(&mut self) {
        if self.len() == 0 && self.slots.len() > SLOTS_KEPT {
            (self.ids, self.slots, self.free) = (Vec::new(), Vec::new(), Vec::new());
            self.ready = Vec::new();
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.ready.capacity() * size_of::<StreamKey>()
            + (self.ids.capacity() + self.free.capacity() + self.resets.capacity()) * 4
    }
}
