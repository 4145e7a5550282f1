//! Who reads a content while it comes in, and who waits for it.

use std::task::Waker;

/// Who reads, and who waits.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) readers: Vec<Option<Seat>>,
    /// Seats that nobody has.
    pub(super) free: Vec<usize>,
    /// Of the fill, for room.
    pub(super) filler: Option<Waker>,
    /// Nobody brings in more than is here.
    pub(super) is_closed: bool,
}

/// A reader.
pub(super) struct Seat {
    /// It has everything before this; while the content is not passed on this may lag behind. `u64::MAX`: it wants nothing more.
    pub(super) position: u64,
    pub(super) waker: Option<Waker>,
}

impl Waiting {
    pub(super) fn sit(&mut self, position: u64) -> usize {
        let seat = Some(Seat { position, waker: None });
        let index = self.free.pop().unwrap_or(self.readers.len());
        match self.readers.get_mut(index) {
            Some(place) => *place = seat,
            None => self.readers.push(seat),
        }
        index
    }

    pub(super) fn seat(&mut self, index: usize) -> Option<&mut Seat> {
        self.readers.get_mut(index).and_then(Option::as_mut)
    }

    pub(super) fn count(&self) -> usize {
        self.readers.iter().flatten().filter(|seat| seat.position < u64::MAX).count()
    }

    /// What all readers have.
    pub(super) fn slowest(&self) -> Option<u64> {
        self.readers.iter().flatten().map(|seat| seat.position).min()
    }
}
