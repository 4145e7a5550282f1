//! Collapsed forwarding: of many requests for the same that is not there, the first fetches and the others wait for its answer.

use crate::entry::{Entry, StoredHead};
use crate::fill::Fill;
use crate::store::Unstorable;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Who fetches.
pub enum Join {
    /// Whoever gets this.
    Lead(Lead),
    /// Another one does already.
    Follow(Flight),
}

/// Fetches for all who want the same. Dropped without a word, the others get [`Landing::Failed`].
pub struct Lead {}

impl Lead {
    /// What was stored when it was joined: it may have come in since one has looked. What fits of it is
    /// for [`Lead::serve`].
    pub fn stored(&self) -> &[Arc<Entry>] {
        todo!()
    }

    /// Nothing has to be fetched: all get this entry.
    pub fn serve(self, entry: &Arc<Entry>) {
        let _ = entry;
        todo!()
    }

    /// The response is not to be stored. All who wait are released to fetch on their own, and for `remember` seconds nobody
    /// waits for this key.
    pub fn pass(self, now: i64, remember: u32) {
        let _ = (now, remember);
        todo!()
    }

    /// How many wait for it.
    pub fn followers(&self) -> usize {
        todo!()
    }

    /// There was no response; those who wait may answer with the same status.
    pub fn fail(self, status: u16) {
        let _ = status;
        todo!()
    }

    /// Stores a response, whose head has come and whose content, `len` bytes where that is known, is to follow. All who wait
    /// get the entry now. Its task makes its reader before it appends.
    ///
    /// # Errors
    /// There is no room for it; all who wait are released to fetch on their own.
    pub fn store(
        self,
        head: StoredHead,
        len: Option<u64>,
        now: i64,
    ) -> Result<(Arc<Entry>, Fill), Unstorable> {
        let _ = (head, len, now);
        todo!()
    }

    /// The origin says that the content of `entry` is still right: the same content under a new head, for all who wait.
    /// Where there is no room for the head, the new entry is for them alone.
    pub fn refresh(self, entry: &Arc<Entry>, head: StoredHead, now: i64) -> Arc<Entry> {
        let _ = (entry, head, now);
        todo!()
    }
}

/// Waits for what another one fetches. On any thread; may be dropped at any time.
pub struct Flight {}

/// What came of it.
#[derive(Clone)]
pub enum Landing {
    /// A response, of which perhaps only the head is here. Whether it is for this request its `varying` says; who finds
    /// that it is not joins again.
    Stored(Arc<Entry>),
    /// It is not for others: fetch on your own, without joining.
    Pass,
    /// The one who fetched had no response, for which it may have a status; without one it has gone, or what it got was purged
    /// before this one joined: look up and join again.
    Failed(Option<u16>),
}

impl Future for Flight {
    type Output = Landing;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landing> {
        let _ = cx;
        todo!()
    }
}
