//! A queue of turns: so many places, which several parties share ([`super::shares`]), and who finds none waits
//! for a turn, up to a length and an age.
//!
//! Used by all that waits for a place: by what all of a server has in flight (`in_flight`), and by the places before one
//! application (the gateways' `places`). [`TurnQueue`] is the rules, without lock and clock; [`Turns`] adds the lock and
//! the deadlines. Nobody is woken while the lock is held: [`Turns::change`] wakes behind it. Wakers may be dropped or
//! replaced under it (who gives up a turn, who polls again with another one), so dropping a waker must not take the lock.
//!
//! Three promises: the turns of one claim come in the order of arrival, no more places are taken at once than there are
//! but by those who are sure of one, and whoever waits is told in the end: a place, or why not. Where a place is of most
//! use on the thread that has left it ([`TurnQueue::prefer_here`]), the first who waits there comes before the first of all,
//! if it has waited a quarter as long at least, and not much less.

use super::shares::{self, Claim, Shares, Sharing};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_io::timer::{self, Deadline};

/// How many may have a place, how many may wait, and for how long. Given with every call, since settings change.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<R> {
    /// Places.
    pub places: u32,
    /// Turns that are waited for at most.
    pub length: u32,
    /// How long one is waited for; `None` is without bound.
    pub age: Option<Duration>,
    /// What those are told who have waited longer.
    pub too_old: R,
}

/// Counts what becomes of those who wait.
pub trait Tally {
    /// One more has a place, of which so many are taken now; `waited` (nanoseconds) where it had to.
    fn granted(&mut self, _taken: u32, _waited: Option<u64>) {}

    /// One has waited too long.
    fn too_old(&mut self) {}
}

impl Tally for () {}

/// Who is to be woken once the lock is released.
#[derive(Default)]
pub struct Woken(Vec<Waker>);

impl Woken {
    /// Wakes them.
    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// What became of an arrival.
pub enum Arrival {
    /// It has a place.
    Granted,
    /// As many wait as may.
    Full,
    /// It waits.
    Queued {
        /// Its turn.
        turn: Turn,
        /// Nobody waited before it.
        is_first: bool,
    },
}

struct Waiting {
    since: u64,
    waker: Waker,
    /// On which thread.
    thread: u32,
}

/// The number of this thread.
fn here() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static HERE: u32 = THREADS.fetch_add(1, Relaxed);
    }
    HERE.with(|here| *here)
}

/// Of those who wait so many are looked at for one of this thread.
const LOOKED_AT: usize = 256;

/// How much longer somebody may have waited who is passed by one of this thread. With a quarter alone the turns of a long
/// queue would come in no order at all, and some not before their age.
const PASSED_BY: Duration = Duration::from_millis(50);

/// Who of a line comes next when a place was left on this thread: the first of this thread, unless it has waited less than
/// a quarter as long as the first of all, or [`PASSED_BY`] less. So a place stays where the connection is that was used in it, and nobody is passed
/// by those who came much later. With half as long three of five places were still given to another thread, with 64 clients
/// on eight threads before eight places; with a quarter one of twenty is.
fn first_here<T>(line: &VecDeque<(T, Waiting)>, here: u32, now: u64) -> usize {
    let Some((_, first)) = line.front() else { return 0 };
    let waited = |who: &Waiting| now.saturating_sub(who.since);
    let enough = (waited(first) / 4).max(waited(first).saturating_sub(nanos(PASSED_BY)));
    let mut old_enough = line.iter().take(LOOKED_AT).take_while(|(_, who)| waited(who) >= enough);
    old_enough.position(|(_, who)| who.thread == here).unwrap_or(0)
}

/// The rules.
pub struct TurnQueue<const N: usize, R, T> {
    shares: Shares<N, Waiting>,
    /// Told, but not yet heard: who waited polls next. A place given is counted as taken already.
    settled: HashMap<u64, Result<(), R>>,
    prefers_here: bool,
    /// What was counted.
    pub tally: T,
}

impl<const N: usize, R, T: Default> Default for TurnQueue<N, R, T> {
    fn default() -> Self {
        TurnQueue {
            shares: Shares::default(),
            settled: HashMap::new(),
            prefers_here: false,
            tally: T::default(),
        }
    }
}

impl<const N: usize, R: Copy, T: Tally> TurnQueue<N, R, T> {
    /// Says who shares. More may be free by it: see [`TurnQueue::hand_out`].
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.shares.set_sharing(sharing);
    }

    /// A place that was used on a thread is of most use there.
    pub fn prefer_here(&mut self) {
        self.prefers_here = true;
    }

    /// One more shares.
    pub fn join(&mut self, party: u64) {
        self.shares.join(party);
    }

    /// One less does. More may be free by it: see [`TurnQueue::hand_out`].
    pub fn part(&mut self, party: u64) {
        self.shares.part(party);
    }

    /// Places taken.
    pub fn taken(&self) -> u32 {
        self.shares.taken()
    }

    /// Turns that have not come.
    pub fn waiting(&self) -> u32 {
        self.shares.waiting()
    }

    /// How long the first of those has waited who wait.
    pub fn oldest_wait(&self, now: u64) -> Duration {
        let first = self.shares.first_of_lines().map(|first| first.since).min();
        first.map_or(Duration::ZERO, |since| Duration::from_nanos(now.saturating_sub(since)))
    }

    /// Takes a place, if one is free for this claim and nobody with the same waits.
    #[inline]
    pub fn try_enter(&mut self, claim: &Claim<N>, bounds: &Bounds<R>) -> bool {
        let is_free = self.shares.try_enter(claim, bounds.places);
        if is_free {
            self.tally.granted(self.shares.taken(), None);
        }
        is_free
    }

    /// An arrival. The clock is read, and the waker kept, only where it has to wait.
    #[inline]
    pub fn enter(
        &mut self,
        claim: &Claim<N>,
        bounds: &Bounds<R>,
        now: impl FnOnce() -> u64,
        waker: &Waker,
    ) -> Arrival {
        let is_first = self.shares.waiting() == 0;
        let mut since = 0;
        let who = || {
            since = now();
            Waiting { since, waker: waker.clone(), thread: here() }
        };
        match self.shares.enter(claim, bounds.places, bounds.length, who) {
            shares::Placement::Place => {
                self.tally.granted(self.shares.taken(), None);
                Arrival::Granted
            }
            shares::Placement::Full => Arrival::Full,
            shares::Placement::Turn(ticket) => {
                let expires = bounds.age.map(|age| since.saturating_add(nanos(age)));
                Arrival::Queued { turn: Turn { ticket, since, expires, deadline: None }, is_first }
            }
        }
    }

    /// What has become of one who waits; `None` as long as it has to.
    pub fn settled(&mut self, claim: &Claim<N>, ticket: u64, waker: &Waker) -> Option<Result<(), R>> {
        if let Some(waiting) = self.shares.find(claim, ticket) {
            waiting.waker.clone_from(waker);
            return None;
        }
        self.settled.remove(&ticket)
    }

    /// Gives up a turn; `false` where it has come meanwhile, or never will.
    pub fn withdraw(&mut self, claim: &Claim<N>, ticket: u64) -> bool {
        self.shares.withdraw(claim, ticket).is_some()
    }

    /// Its time is up. A place that was given in the meantime is still good.
    ///
    /// # Errors
    /// It was refused in the meantime, with that reason, or still had to wait: `too_old`.
    pub fn expire(&mut self, claim: &Claim<N>, ticket: u64, too_old: R) -> Result<(), R> {
        if let Some(settled) = self.settled.remove(&ticket) {
            return settled;
        }
        self.shares.withdraw(claim, ticket);
        self.tally.too_old();
        Err(too_old)
    }

    /// Who waits goes away: out of the queue, or with a place that it never used. `false` where it was refused.
    pub fn leave(
        &mut self,
        claim: &Claim<N>,
        ticket: u64,
        bounds: &Bounds<R>,
        now: impl FnOnce() -> u64,
        woken: &mut Woken,
    ) -> bool {
        if self.withdraw(claim, ticket) {
            return true;
        }
        let has_place = matches!(self.settled.remove(&ticket), Some(Ok(())));
        if has_place {
            self.release(claim, bounds, now, woken);
        }
        has_place
    }

    /// A place is free again: the first who waits and may have it gets it.
    #[inline]
    pub fn release(
        &mut self,
        claim: &Claim<N>,
        bounds: &Bounds<R>,
        now: impl FnOnce() -> u64,
        woken: &mut Woken,
    ) {
        self.shares.leave(claim);
        if self.shares.waiting() > 0 {
            self.hand_out(bounds, now(), woken);
        }
    }

    /// Gives free places to the first who wait and may have them. Who has waited too long is told so, and not served.
    pub fn hand_out(&mut self, bounds: &Bounds<R>, now: u64, woken: &mut Woken) {
        let here = if self.prefers_here { Some(here()) } else { None };
        let choose = |line: &VecDeque<_>| here.map_or(0, |here| first_here(line, here, now));
        while let Some((claim, ticket, first)) = self.shares.next(bounds.places, choose) {
            let waited = now.saturating_sub(first.since);
            let is_too_old = bounds.age.is_some_and(|age| waited >= nanos(age));
            let outcome = if is_too_old {
                self.tally.too_old();
                Err(bounds.too_old)
            } else {
                self.shares.take(&claim);
                self.tally.granted(self.shares.taken(), Some(waited));
                Ok(())
            };
            self.settle(ticket, first, outcome, woken);
        }
    }

    /// Refuses the one who came last of all who wait; `false` where nobody does.
    pub fn refuse_last(&mut self, why: R, woken: &mut Woken) -> bool {
        let Some((ticket, last)) = self.shares.pop_last() else { return false };
        self.settle(ticket, last, Err(why), woken);
        true
    }

    fn settle(&mut self, ticket: u64, who: Waiting, outcome: Result<(), R>, woken: &mut Woken) {
        self.settled.insert(ticket, outcome);
        woken.0.push(who.waker);
    }

    /// Those who have been told and have not heard it, for tests.
    pub fn unheard(&self) -> usize {
        self.settled.len()
    }
}

/// A turn that is waited for.
pub struct Turn {
    ticket: u64,
    /// Monotonic, nanoseconds.
    since: u64,
    expires: Option<u64>,
    deadline: Option<Deadline>,
}

impl Turn {
    /// Its number.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Since when it is waited for, monotonic nanoseconds.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// When it has been waited for too long, monotonic nanoseconds.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Ready when its time is up. Wants a worker's thread where it has one.
    fn poll_expiry(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(expires) = self.expires else { return Poll::Pending };
        Pin::new(self.deadline.get_or_insert_with(|| timer::at(expires))).poll(cx)
    }
}

/// The queue, shared by threads. `Q` is the [`TurnQueue`], or has one.
#[derive(Default)]
pub struct Turns<Q>(Mutex<Q>);

impl<Q> Turns<Q> {
    /// Around a queue.
    pub fn new(queue: Q) -> Turns<Q> {
        Turns(Mutex::new(queue))
    }

    /// The queue, for what wakes nobody.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Q> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it, and wakes those whose turn has come by that.
    #[inline]
    pub fn change<O>(&self, change: impl FnOnce(&mut Q, &mut Woken) -> O) -> O {
        let mut woken = Woken::default();
        let outcome = change(&mut self.lock(), &mut woken);
        woken.wake();
        outcome
    }

    /// Waits for a turn: what became of it. `settled` and `expire` are those of the queue.
    pub fn poll_turn<R>(
        &self,
        turn: &mut Turn,
        cx: &mut Context<'_>,
        settled: impl FnOnce(&mut Q, u64, &Waker) -> Option<Result<(), R>>,
        expire: impl FnOnce(&mut Q, u64) -> Result<(), R>,
    ) -> Poll<Result<(), R>> {
        let outcome = settled(&mut self.lock(), turn.ticket, cx.waker());
        if let Some(outcome) = outcome {
            return Poll::Ready(outcome);
        }
        turn.poll_expiry(cx).map(|()| expire(&mut self.lock(), turn.ticket))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::shares::Key;

    const CLAIM: Claim<1> = [Key { party: 1, weight: 8 }];
    const BOUNDS: Bounds<()> = Bounds { places: 1, length: 16, age: None, too_old: () };

    /// Waits since a time; who that is.
    fn wait(queue: &mut TurnQueue<1, (), ()>, since: u64) -> u64 {
        match queue.enter(&CLAIM, &BOUNDS, || since, Waker::noop()) {
            Arrival::Queued { turn, .. } => turn.ticket(),
            Arrival::Granted | Arrival::Full => panic!("it has to wait"),
        }
    }

    fn wait_elsewhere(queue: &mut TurnQueue<1, (), ()>, since: u64) -> u64 {
        std::thread::scope(|scope| scope.spawn(|| wait(queue, since)).join()).expect("it waits")
    }

    fn has_place(queue: &mut TurnQueue<1, (), ()>, ticket: u64) -> bool {
        queue.settled(&CLAIM, ticket, Waker::noop()).is_some()
    }

    #[test]
    fn in_a_long_queue_nobody_is_passed_by_those_who_came_much_later() {
        const MS: u64 = 1_000_000;
        for (later, stays) in [(49, true), (51, false)] {
            let mut queue = TurnQueue::<1, (), ()> { prefers_here: true, ..TurnQueue::default() };
            assert!(queue.try_enter(&CLAIM, &BOUNDS));
            let there = wait_elsewhere(&mut queue, 0);
            let here = wait(&mut queue, later * MS);
            queue.release(&CLAIM, &BOUNDS, || 2_000 * MS, &mut Woken::default());
            assert_eq!((has_place(&mut queue, here), has_place(&mut queue, there)), (stays, !stays));
        }
    }

    #[test]
    fn a_place_stays_on_its_thread_unless_somebody_has_waited_four_times_as_long() {
        // Elsewhere somebody waits since 0, here since 40.
        for (prefers, now, stays) in
            [(true, 100, true), (true, 54, true), (true, 52, false), (false, 100, false)]
        {
            let mut queue = TurnQueue::<1, (), ()> { prefers_here: prefers, ..TurnQueue::default() };
            assert!(queue.try_enter(&CLAIM, &BOUNDS));
            let (there, next) = (wait_elsewhere(&mut queue, 0), wait_elsewhere(&mut queue, 1));
            let (here, last) = (wait(&mut queue, 40), wait(&mut queue, 41));
            queue.release(&CLAIM, &BOUNDS, || now, &mut Woken::default());
            assert_eq!(has_place(&mut queue, here), stays, "{prefers} at {now}");
            assert_eq!(has_place(&mut queue, there), !stays, "{prefers} at {now}");
            assert!(!has_place(&mut queue, next) && !has_place(&mut queue, last));
            // Whoever was passed by has the next that no one here waits for.
            queue.release(&CLAIM, &BOUNDS, || 1_000_000, &mut Woken::default());
            assert_eq!(has_place(&mut queue, last), stays);
        }
    }

    #[test]
    fn a_place_that_is_left_elsewhere_goes_to_the_first() {
        let mut queue = TurnQueue::<1, (), ()>::default();
        queue.prefer_here();
        assert!(queue.try_enter(&CLAIM, &BOUNDS));
        let waiting: Vec<u64> = (0..3).map(|since| wait_elsewhere(&mut queue, since)).collect();
        for ticket in waiting {
            queue.release(&CLAIM, &BOUNDS, || 1_000, &mut Woken::default());
            assert!(has_place(&mut queue, ticket));
        }
    }
}
