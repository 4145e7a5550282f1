//! What an agent has told and its controller has not acknowledged: numbered, bounded, and sent again over the next link where one is
//! lost. Pure: frames go out by a closure.

use super::messages::Frame;
use prost::Message as _;
use std::collections::VecDeque;
use thiserror::Error;

/// Frames that a controller may leave without an acknowledgement.
const MOST_FRAMES: usize = 1 << 16;

/// Bytes of those: some hundred workers for as long as a link may be away.
const MOST_BYTES: usize = 256 << 20;

/// Why nothing more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum OutboxError {
    /// The controller leaves too much unacknowledged.
    #[error("it has taken in nothing for {0} messages")]
    Full(usize),
    /// The controller wants what was never told, or what it has already acknowledged.
    #[error("it wants message {0}, which there is not")]
    Unknown(u64),
}

/// Frames by their numbers.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Not acknowledged, in order, with their lengths.
    frames: VecDeque<(Frame, usize)>,
    /// The number of the first of them.
    first: u64,
    /// So many of them were given to the link that there is.
    sent: usize,
    bytes: usize,
}

impl Outbox {
    /// Adds a frame, which has the next number.
    ///
    /// # Errors
    /// [`OutboxError::Full`].
    pub fn push(&mut self, frame: Frame) -> Result<(), OutboxError> {
        let length = frame.encoded_len();
        if self.frames.len() >= MOST_FRAMES || self.bytes.saturating_add(length) > MOST_BYTES {
            return Err(OutboxError::Full(self.frames.len()));
        }
        self.bytes += length;
        self.frames.push_back((frame, length));
        Ok(())
    }

    /// Forgets all before `next`. An acknowledgement of what was not sent forgets nothing more than that.
    pub fn acknowledge(&mut self, next: u64) {
        let count = next.saturating_sub(self.first).min(self.sent as u64);
        for (_, length) in self.frames.drain(..count as usize) {
            self.bytes -= length;
        }
        self.first += count;
        self.sent -= count as usize;
    }

    /// There is another link, over which the controller says what it wants next. Gives how many are sent again.
    ///
    /// # Errors
    /// [`OutboxError::Unknown`].
    pub fn resume(&mut self, next: u64) -> Result<usize, OutboxError> {
        if next < self.first || next > self.first + self.sent as u64 {
            return Err(OutboxError::Unknown(next));
        }
        self.acknowledge(next);
        Ok(std::mem::take(&mut self.sent))
    }

    /// Gives what was not sent to `send`, until that takes no more.
    pub fn flush(&mut self, mut send: impl FnMut(Frame) -> bool) {
        while let Some((frame, _)) = self.frames.get(self.sent) {
            if !send(frame.clone()) {
                return;
            }
            self.sent += 1;
        }
    }

    /// Whether all was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::messages::{Ended, Kind};

    fn frame(sequence: u64) -> Frame {
        Kind::Ended(Ended { sequence, ..Ended::default() }).into()
    }

    /// The numbers of what it sends now, at most so many.
    fn sent(outbox: &mut Outbox, most: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        outbox.flush(|frame| {
            let has_room = numbers.len() < most;
            if let Some(Kind::Ended(ended)) = frame.kind.filter(|_| has_room) {
                numbers.push(ended.sequence);
            }
            has_room
        });
        numbers
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again() {
        let mut outbox = Outbox::default();
        (0..6).for_each(|number| outbox.push(frame(number)).unwrap());
        assert_eq!(sent(&mut outbox, 4), [0, 1, 2, 3]);
        outbox.acknowledge(2);
        // What was never sent cannot have arrived.
        outbox.acknowledge(1);
        assert_eq!(outbox.resume(5), Err(OutboxError::Unknown(5)));
        assert_eq!(outbox.resume(1), Err(OutboxError::Unknown(1)));
        assert_eq!(outbox.resume(3), Ok(1));
        assert_eq!(sent(&mut outbox, 9), [3, 4, 5]);
        assert!(sent(&mut outbox, 9).is_empty());
        outbox.acknowledge(u64::MAX);
        assert!(outbox.is_empty() && outbox.bytes == 0);
        outbox.push(frame(6)).unwrap();
        assert_eq!(outbox.resume(6), Ok(0));
        assert_eq!(sent(&mut outbox, 9), [6]);
    }

    #[test]
    fn it_is_bounded() {
        let mut outbox = Outbox::default();
        let full = (0..).find_map(|number| outbox.push(frame(number)).err());
        assert_eq!(full, Some(OutboxError::Full(MOST_FRAMES)));
        let mut outbox = Outbox { bytes: MOST_BYTES, ..Outbox::default() };
        assert_eq!(outbox.push(frame(9)), Err(OutboxError::Full(0)));
    }
}
