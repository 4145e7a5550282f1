//! The content of a stored response, shared by whoever fills it and all who read it.

use crate::reader::Reader;
use std::ops::Range;
use std::sync::Arc;

/// The content of a stored response: bytes that one fills and many read.
pub struct Content {}

impl Content {
    /// Bytes in all: announced by the origin, or counted when it is complete. `None`: not known yet.
    pub fn len(&self) -> Option<u64> {
        todo!()
    }

    /// Whether there is certainly nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Bytes that are here by now.
    pub fn filled(&self) -> u64 {
        todo!()
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        todo!()
    }

    /// Whether the rest of it will never come.
    pub fn is_broken(&self) -> bool {
        todo!()
    }

    /// Reads these bytes, also those that are still to come. An end behind that of the content is its end. `None`: they have
    /// been let go of, or will be, since the content does not fit into the store; whoever wants them fetches them alone.
    pub fn reader(self: &Arc<Self>, range: Range<u64>) -> Option<Reader> {
        let _ = range;
        todo!()
    }

    /// All of it, where it is complete and in one piece: content of up to 64 KiB.
    pub fn bytes(&self) -> Option<&[u8]> {
        todo!()
    }
}
