//! Brings content into the store. Owned by the task that fetches, which is not that of any client.

use std::task::{Context, Poll};
use thiserror::Error;

/// The content of one response on its way in. Dropped before it is complete: broken off.
pub struct Fill {}

/// Why a content takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Full {
    /// The origin sends more than it has announced.
    #[error("the content is longer than was announced")]
    Length,
    /// It does not fit into the store, and nobody reads it any more: the fetch can be given up.
    #[error("the content does not fit into the store, and nobody reads it")]
    Unread,
}

impl Fill {
    /// Waits for room. At once while the content is stored; once it is only passed on, until its readers have read on: the
    /// slowest one counts, since each of them gets all of it. Afterwards [`Fill::append`] takes at least a byte, or fails.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        todo!()
    }

    /// Appends as much of `bytes` as there is room for, and says how much. Where the store has no room left and none can be
    /// made, the content leaves the index and is from then on passed on to the readers that it has.
    ///
    /// # Errors
    /// It takes no more, and the rest of the response does not matter to anybody.
    pub fn append(&mut self, bytes: &[u8]) -> Result<usize, Full> {
        let _ = bytes;
        todo!()
    }

    /// That was all. A content that is shorter than announced is broken off; so is one that came in whole and yet did not fit:
    /// its readers have all of it, and nobody gets it later. Answers whether it is stored now.
    pub fn complete(self) -> bool {
        todo!()
    }

    /// The rest will not come: readers see an error, and the entry goes. The same as dropping it.
    pub fn break_off(self) {
        todo!()
    }

    /// How many are reading.
    pub fn readers(&self) -> usize {
        todo!()
    }

    /// Bytes that are in.
    pub fn filled(&self) -> u64 {
        todo!()
    }

    /// Whether it is kept. `false`: it did not fit, or was purged or replaced meanwhile, and is for its readers alone.
    pub fn is_kept(&self) -> bool {
        todo!()
    }
}
