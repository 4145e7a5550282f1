//! Collapsed forwarding: of many requests for the same that is not there, the first fetches and the others wait for its answer.
//!
//! They wait for its head: with that they get the entry, and read its content while it comes in. A flight is in the index as
//! long as nobody knows what comes of it; whoever asks later finds what is stored, or leads the next one.
//!
//! As long as it is not known by what the responses of a key vary (`Vary`), there is one flight for all who ask. Once a variant is there, there is
//! one for each: those for whom the first was not, regroup by what it has said.

use crate::budget::Reservation;
use crate::content::{BLOCK_COST, Block, Content};
use crate::entry::{ENTRY_COST, Entry, Making, StoredHead};
use crate::fill::Fill;
use crate::index::{Hashed, Outgoing};
use crate::store::{Store, Unstorable};
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tidegate_http::cache::Varying;
use tidegate_io::locking::lock;

/// For how many seconds it is remembered that a response is too large.
const LARGE_FOR: i64 = 120;

/// Who fetches.
pub enum Join {
    /// Whoever gets this.
    Lead(Lead),
    /// Another one does already.
    Follow(Flight),
}

/// Fetches for all who want the same. Dropped without a word, the others get [`Landing::Failed`].
pub struct Lead {
    pub(crate) store: Arc<Store>,
    pub(crate) hash: u128,
    pub(crate) key: Arc<[u8]>,
    /// `None`: there was no room in the index, or as many are under way for the key as may, so that nobody can wait for it.
    pub(crate) cell: Option<Arc<FlightCell>>,
    pub(crate) stored: SmallVec<[Arc<Entry>; 1]>,
    /// How many purges there had been.
    pub(crate) born: u64,
    /// Of how many that have begun in this store it is the last.
    pub(crate) number: u64,
}

/// What leader and followers share.
pub(crate) struct FlightCell {
    pub(crate) born: u64,
    /// The requests that it is for; `None`: it is not known yet by what responses vary.
    pub(crate) selected: Option<Varying>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    landing: Option<Landing>,
    seats: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// What came of it.
#[derive(Debug, Clone)]
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

impl FlightCell {
    pub(crate) fn new(born: u64, selected: Option<Varying>) -> Arc<FlightCell> {
        Arc::new(FlightCell { born, selected, state: Mutex::default() })
    }

    /// Says what came of it to all who wait; the first word counts.
    fn land(&self, landing: Landing) {
        let wakers = {
            let mut state = lock(&self.state);
            if state.landing.is_some() {
                return;
            }
            state.landing = Some(landing);
            std::mem::take(&mut state.seats)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn poll(&self, seat: &mut Option<usize>, cx: &mut Context<'_>) -> Poll<Landing> {
        let mut state = lock(&self.state);
        if let Some(landing) = &state.landing {
            return Poll::Ready(landing.clone());
        }
        let index = seat.or_else(|| state.free.pop()).unwrap_or(state.seats.len());
        *seat = Some(index);
        let waker = Some(cx.waker().clone());
        let before = match state.seats.get_mut(index) {
            Some(place) => std::mem::replace(place, waker),
            None => {
                state.seats.push(waker);
                None
            }
        };
        drop(state);
        drop(before);
        Poll::Pending
    }

    fn waiting(&self) -> usize {
        lock(&self.state).seats.iter().flatten().count()
    }

    fn leave(&self, seat: usize) {
        let mut state = lock(&self.state);
        let waker = state.seats.get_mut(seat).and_then(Option::take);
        if state.landing.is_none() {
            state.free.push(seat);
        }
        drop(state);
        drop(waker);
    }
}

impl Lead {
    /// What was stored when it was joined: it may have come in since one has looked. What fits of it is
    /// for [`Lead::serve`].
    pub fn stored(&self) -> &[Arc<Entry>] {
        &self.stored
    }

    /// How many wait for it by now.
    pub fn followers(&self) -> usize {
        self.cell.as_ref().map_or(0, |cell| cell.waiting())
    }

    /// Nothing has to be fetched: all get this entry.
    pub fn serve(mut self, entry: &Arc<Entry>) {
        self.land(Landing::Stored(entry.clone()));
    }

    /// The response is not to be stored. All who wait are released to fetch on their own, and for `remember` seconds nobody
    /// waits for this key.
    pub fn pass(mut self, now: i64, remember: u32) {
        if remember > 0 {
            self.store.remember_pass(self.hash, now.saturating_add(i64::from(remember)));
        }
        self.land(Landing::Pass);
    }

    /// There was no response; those who wait may answer with the same status.
    pub fn fail(mut self, status: u16) {
        self.land(Landing::Failed(Some(status)));
    }

    /// Stores a response, whose head has come and whose content, `len` bytes where that is known, is to follow. All who wait
    /// get the entry now. Its task makes its reader before it appends.
    ///
    /// # Errors
    /// There is no room for it, or it was purged since it was asked for; all who wait are released to fetch on their own.
    pub fn store(
        mut self,
        head: StoredHead,
        len: Option<u64>,
        now: i64,
    ) -> Result<(Arc<Entry>, Fill), Unstorable> {
        let made = self.make_entry(head, len, now);
        match made {
            Ok((entry, content)) => {
                let fill = Fill::new(self.store.clone(), entry.clone(), content);
                self.land_stored(&entry, false)?;
                Ok((entry, fill))
            }
            Err(unstorable) => {
                self.refuse(unstorable, now);
                Err(unstorable)
            }
        }
    }

    fn refuse(&mut self, unstorable: Unstorable, now: i64) {
        self.store.counters.refuse();
        if unstorable == Unstorable::TooLarge {
            self.store.remember_pass(self.hash, now.saturating_add(LARGE_FOR));
        }
        let is_purged = unstorable == Unstorable::Purged;
        self.land(if is_purged { Landing::Failed(None) } else { Landing::Pass });
    }

    fn make_entry(
        &self,
        head: StoredHead,
        len: Option<u64>,
        now: i64,
    ) -> Result<(Arc<Entry>, Arc<Content>), Unstorable> {
        if len.is_some_and(|len| len > self.store.object_limit()) {
            return Err(Unstorable::TooLarge);
        }
        if self.cell.is_none() {
            return Err(Unstorable::NoRoom);
        }
        let content = Arc::new(Content::new(len));
        let capacity = content.next_block();
        let block_cost = if capacity > 0 { capacity as u64 + BLOCK_COST } else { 0 };
        let cost = ENTRY_COST + head.memory();
        let mut reservation = self.store.reserve(cost + block_cost).ok_or(Unstorable::NoRoom)?;
        if capacity > 0 {
            content.add(Block::new(0, capacity, reservation.split(block_cost)));
        }
        let entry = self.entry(head, content.clone(), now, Some(reservation));
        self.store.enqueue(&entry)?;
        Ok((entry, content))
    }

    fn entry(
        &self,
        head: StoredHead,
        content: Arc<Content>,
        now: i64,
        reservation: Option<Reservation>,
    ) -> Arc<Entry> {
        Arc::new(Entry::new(Making {
            id: self.store.next_id(),
            hash: (self.hash >> 64) as u64,
            key: self.key.clone(),
            head,
            content,
            stored: now,
            born: self.born,
            fetched: self.number,
            purges: self.store.purges.clone(),
            reservation,
        }))
    }

    /// The origin says that the content of `entry` is still right: the same content under a new head, for all who wait.
    /// Where there is no room for the head, or it was purged since the origin was asked, the new entry is for them alone.
    pub fn refresh(mut self, entry: &Arc<Entry>, head: StoredHead, now: i64) -> Arc<Entry> {
        let room = if self.cell.is_some() { self.store.reserve(ENTRY_COST + head.memory()) } else { None };
        let is_kept = room.is_some();
        let new = self.entry(head, entry.content().clone(), now, room);
        self.store.counters.refresh();
        if is_kept && self.store.enqueue(&new).is_ok() {
            // Purged meanwhile, it is told to nobody who came later.
            let _ = self.land_stored(&new, true);
            self.store.refresh_on_disk(&new);
        } else {
            self.store.unlink(entry);
            self.land(Landing::Stored(new.clone()));
        }
        new
    }

    /// The entry is in the index in the same moment in which nobody waits for it any more.
    fn land_stored(&mut self, entry: &Arc<Entry>, replaces: bool) -> Result<(), Unstorable> {
        let mut outgoing = Outgoing::new();
        let is_in = self.store.insert(&self.hashed(), entry, self.cell.as_ref(), replaces, &mut outgoing);
        self.store.left(&outgoing);
        if !is_in {
            entry.give_up();
            self.store.dequeue(std::slice::from_ref(entry));
        }
        let is_purged = !is_in && entry.check() == crate::purge::Standing::Purged;
        if is_purged && !replaces {
            self.refuse(Unstorable::Purged, entry.stored());
            return Err(Unstorable::Purged);
        }
        self.land(Landing::Stored(entry.clone()));
        Ok(())
    }

    fn hashed(&self) -> Hashed<'_> {
        Hashed { hash: self.hash, key: &self.key }
    }

    fn land(&mut self, landing: Landing) {
        let Some(cell) = self.cell.take() else { return };
        self.store.end_flight(&Hashed { hash: self.hash, key: &self.key }, &cell);
        cell.land(landing);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.land(Landing::Failed(None));
    }
}

/// Waits for what another one fetches. On any thread; may be dropped at any time.
pub struct Flight {
    cell: Arc<FlightCell>,
    seat: Option<usize>,
    /// How many purges there had been when it joined.
    joined: u64,
}

impl Flight {
    pub(crate) fn new(cell: Arc<FlightCell>, joined: u64) -> Flight {
        Flight { cell, seat: None, joined }
    }
}

impl Future for Flight {
    type Output = Landing;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landing> {
        let this = &mut *self;
        let landing = this.cell.poll(&mut this.seat, cx);
        match &landing {
            // Asked for after a purge, it is not for what was fetched before it.
            Poll::Ready(Landing::Stored(entry))
                if this.joined > entry.born() && entry.check() == crate::purge::Standing::Purged =>
            {
                Poll::Ready(Landing::Failed(None))
            }
            _ => landing,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.cell.leave(seat);
        }
    }
}
