//! Collapsed forwarding: of many requests for the same that is not there, the first fetches and the others wait for its answer.
//!
//! They wait for its head: with that they get the entry, and read its content while it comes in. A flight is in the index as
//! long as nobody knows what comes of it; whoever asks later finds what is stored, or leads the next one.
//!
//! As long as it is not known by what the responses of a key vary (`Vary`), there is one flight for all who ask. Once a variant is there, there is
//! one for each: those for whom the first was not, regroup by what it has said.

use crate::budget::{Reservation, Share};
use crate::content::{BLOCK_COST, Block, Content};
use crate::entry::{ENTRY_COST, Entry, Making, StoredHead};
use crate::fill::Fill;
use crate::index::{Hashed, Outgoing};
use crate::purge::{Address, Standing};
use crate::store::{Store, Unstorable};
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tidegate_http::cache::{Reason, Varying};
use tidegate_io::locking::lock;

/// For how many seconds it is remembered that a response is too large.
const LARGE_FOR: i64 = 120;

/// For how many seconds what was purged is remembered for a response that is still to come.
const PATIENCE: i64 = 30;

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
    /// What is fetched, as far as somebody has said it.
    pub(crate) address: Address,
}

/// What leader and followers share.
pub(crate) struct FlightCell {
    pub(crate) born: u64,
    /// When the sweeper first came by, Unix seconds; 0: not yet.
    seen: AtomicI64,
    /// The requests that it is for; `None`: it is not known yet by what responses vary.
    pub(crate) selected: Option<Varying>,
    /// Nobody waits for it.
    pub(crate) is_alone: bool,
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
        FlightCell::of(born, selected, false)
    }

    /// Of one that nobody waits for.
    pub(crate) fn alone(born: u64) -> Arc<FlightCell> {
        FlightCell::of(born, None, true)
    }

    fn of(born: u64, selected: Option<Varying>, is_alone: bool) -> Arc<FlightCell> {
        let (seen, state) = (AtomicI64::new(0), Mutex::default());
        Arc::new(FlightCell { born, seen, selected, is_alone, state })
    }

    /// The purges that are not to be forgotten before it lands. The sweeper asks, and waits for none of them for good: what comes later
    /// can be judged no more, and is not stored if there was a purge meanwhile.
    pub(crate) fn needs(&self, now: i64) -> Option<u64> {
        let seen = match self.seen.load(Relaxed) {
            0 => now,
            seen => seen,
        };
        self.seen.store(seen, Relaxed);
        (now.saturating_sub(seen) < PATIENCE).then_some(self.born)
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
            *seat = None; // with the landing all seats are gone
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

    /// What is fetched, as purges know it ([`StoredHead::site`], [`StoredHead::host`], [`StoredHead::target`]): what is found not to be storable is forgotten by a
    /// purge of it.
    #[must_use]
    pub fn about(mut self, site: u64, host: &str, target: &str) -> Lead {
        self.address = Address::of(site, host, target);
        self
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
    /// waits for this key: for the reason `why`.
    pub fn pass(mut self, now: i64, remember: u32, why: Reason) {
        if remember > 0 {
            self.remember_pass(now.saturating_add(i64::from(remember)), why);
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

    fn remember_pass(&self, until: i64, why: Reason) {
        self.store.remember_pass(self.hash, (until, why), (self.address, self.born));
    }

    fn refuse(&mut self, unstorable: Unstorable, now: i64) {
        if unstorable == Unstorable::NoRoom {
            self.store.counters.refuse();
        }
        if unstorable == Unstorable::TooLarge {
            self.remember_pass(now.saturating_add(LARGE_FOR), Reason::TooLarge);
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
        if self.cell.is_none() || len.is_none() && self.store.is_all_held() {
            return Err(Unstorable::NoRoom);
        }
        let content = Arc::new(Content::new(len));
        let capacity = content.next_block();
        let block_cost = if capacity > 0 { capacity as u64 + BLOCK_COST } else { 0 };
        let reservation = self.store.reserve(ENTRY_COST + head.memory()).ok_or(Unstorable::NoRoom)?;
        if capacity > 0 {
            let block = self.store.reserve_first(len, block_cost).ok_or(Unstorable::NoRoom)?;
            content.add(Block::new(0, capacity, block));
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
            checked: self.born,
            fetched: self.number,
            purges: self.store.purges.clone(),
            reservation,
        }))
    }

    /// The origin says that the content of `entry` is still right: the same content under a new head, for all who wait.
    /// Where there is no room for the head, or it was purged since it was looked up, the new entry is for them alone.
    pub fn refresh(mut self, entry: &Arc<Entry>, head: StoredHead, now: i64) -> Arc<Entry> {
        let may_stay = self.cell.is_some() && entry.check() != Standing::Purged;
        let room = if may_stay { self.store.reserve(ENTRY_COST + head.memory()) } else { None };
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

    /// The rest of a part comes after all, of the same response for certain: under a new head, for all who wait. Its task makes its reader
    /// before it appends.
    ///
    /// # Errors
    /// There is no room for it, the part or the rest was purged, or somebody else goes on with it; all who wait are released to fetch
    /// on their own.
    pub fn go_on(
        mut self,
        part: &Arc<Entry>,
        head: StoredHead,
        now: i64,
    ) -> Result<(Arc<Entry>, Fill), Unstorable> {
        // The same content may not be in the index twice; whoever looks for it meanwhile joins.
        self.store.unlink(part);
        // Purged before the rest was asked for, so that the number of this fetch does not tell.
        let is_purged = part.check() == Standing::Purged;
        let made = if is_purged { Err(Unstorable::Purged) } else { self.make_behind(part, head, now) };
        match made {
            Ok((entry, content)) => {
                let fill = Fill::behind(self.store.clone(), entry.clone(), content, part);
                self.land_stored(&entry, false)?;
                Ok((entry, fill))
            }
            Err(unstorable) => {
                self.refuse(unstorable, now);
                Err(unstorable)
            }
        }
    }

    fn make_behind(
        &self,
        part: &Arc<Entry>,
        head: StoredHead,
        now: i64,
    ) -> Result<(Arc<Entry>, Arc<Content>), Unstorable> {
        if self.cell.is_none() {
            return Err(Unstorable::NoRoom);
        }
        let behind = Content::behind(part.content());
        let capacity = behind.as_ref().map_or(0, Content::next_block);
        let block_cost = if capacity > 0 { capacity as u64 + BLOCK_COST } else { 0 };
        let reservation = self.store.reserve(ENTRY_COST + head.memory()).ok_or(Unstorable::NoRoom)?;
        let content = match behind {
            Some(content) => {
                let block = self.store.reserve_of(Share::Passing, block_cost).ok_or(Unstorable::NoRoom)?;
                content.add(Block::passing(content.filled(), capacity, block));
                Arc::new(content)
            }
            None if part.content().go_on() => part.content().clone(),
            None => return Err(Unstorable::NoRoom),
        };
        let entry = self.entry(head, content.clone(), now, Some(reservation));
        if let Err(unstorable) = self.store.enqueue(&entry) {
            content.break_off();
            return Err(unstorable);
        }
        Ok((entry, content))
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
        let is_late = || self.store.purges.is_refused(entry.born());
        let is_purged = !is_in && (entry.check() == Standing::Purged || is_late());
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
                if this.joined > entry.born() && entry.check() == Standing::Purged =>
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
