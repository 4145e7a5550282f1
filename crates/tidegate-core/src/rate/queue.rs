//! Who waits for a place among what a limit lets be under way: for each key a line in each process, first come, first served.
//!
//! How many wait of a key is counted in memory that all processes share, as what is under way is: so that length is exact,
//! and what a killed process had waiting is given back. Lines are of one process. A place that is left there is passed on to
//! the first of its line without ever having been free. One that is left where nobody waits is free, and the first of a
//! line of another process finds it, since it looks again every few milliseconds ([`LOOK`]). A timer, and no descriptor
//! that processes wake each other by: most servers are one process, where nobody ever depends on it; and nobody has to know
//! which processes there are, among those that come, go and are killed. Nobody comes before those who wait: whoever arrives
//! while somebody does, in whatever process, waits as well. A line that has passed its places on for a while, and others wait
//! elsewhere, leaves one to them ([`KEPT`]).
//!
//! A lock of one process holds the lines together. Nobody is woken, and no place given back, while it is held. Uncontended it
//! is not taken: whoever leaves a place reads whether anybody waits here, whoever comes whether anybody does anywhere.

use super::holds::Permit;
use super::{Counts, Place};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tidegate_config::settings::pool::Queue;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::shared::SharedWords;
use tidegate_io::timer::{self, Deadline};

/// How often the first of a line looks for places of other processes, and with how many lines half as often: so many lines
/// cost no more looks than these.
const LOOK: u64 = 10_000_000;
const LINES: u64 = 16;
/// How long a line passes its places on while others wait elsewhere.
const KEPT: u64 = 10 * LOOK;
/// Keys of which somebody waits at once; further ones are counted together.
const KEYS: usize = 1 << 14;
/// Words in front of the counts.
const HEAD: usize = 8;
/// Those who wait now, and the most of them: only for that one.
const NOW: usize = 0;
const MOST: usize = 1;
/// Those who have waited and had a place, had none in time, and went away.
const SERVED: usize = 2;
const TOO_OLD: usize = 3;
const GONE: usize = 4;

type Key = SmallVec<[u8; 64]>;

/// What a queue has seen, in all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Requests that wait now.
    pub waiting: u64,
    /// The most that have at once.
    pub most: u64,
    /// Those that waited and had their turn.
    pub served: u64,
    /// Those that found as many waiting as may.
    pub full: u64,
    /// Those that had waited too long.
    pub too_old: u64,
    /// Those whose clients went away.
    pub gone: u64,
}

/// Who waits for one limit.
#[derive(Debug)]
pub struct LimitQueue {
    figures: SharedWords,
    /// How many wait of each key, in all processes.
    waiting: Counts,
    /// How many wait in this process. Never less, unless the lock is held.
    here: AtomicUsize,
    /// How many may be under way by the settings in force; 0: as those say by which somebody has come.
    most: AtomicU32,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    tickets: u64,
    of_keys: HashMap<Key, Waiters>,
    /// Who has been told, and has not heard it.
    told: HashMap<u64, Told>,
}

/// What became of one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Place(Place),
    TooOld,
}

/// Those of one key, in the order in which they came.
#[derive(Debug)]
struct Waiters {
    counts: Arc<Counts>,
    most: u32,
    line: VecDeque<Waiting>,
    /// Since when no place was left to others.
    kept_since: u64,
    /// One was left to them, who have so long to find it.
    rests_until: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    expires: u64,
    waker: Waker,
    /// Where it is counted as one who waits.
    place: Place,
}

/// What became of who has come.
pub(super) enum Entry {
    /// There is a place.
    Permit(Permit),
    /// There is none yet.
    Wait(Waiter),
    /// As many wait as may.
    Full,
}

/// What one who waits finds.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Told(Told),
    /// Nothing before this time.
    Until(u64),
}

impl LimitQueue {
    /// Words of a queue before a limit of so many keys, in which `processes` count; `None`: more than can be told.
    pub fn length(keys: usize, processes: usize) -> Option<usize> {
        Counts::length(keys.min(KEYS), processes)?.checked_add(HEAD)
    }

    /// A queue in words that are all zero.
    ///
    /// # Errors
    /// `InvalidData`: these are not as many as it takes.
    pub fn new(words: SharedWords, processes: usize, secret: [u64; 2]) -> io::Result<LimitQueue> {
        Self::over(words, |words| Counts::new(words, processes, secret))
    }

    /// The queue that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(words: SharedWords) -> io::Result<LimitQueue> {
        Self::over(words, Counts::attach)
    }

    fn over(
        words: SharedWords,
        counts: impl FnOnce(SharedWords) -> io::Result<Counts>,
    ) -> io::Result<LimitQueue> {
        let missing =
            || io::Error::new(io::ErrorKind::InvalidData, "the shared memory is no queue of a limit");
        let (figures, rest) = words.split_at(HEAD).ok_or_else(missing)?;
        let (here, most, lines) = (AtomicUsize::new(0), AtomicU32::new(0), Mutex::default());
        Ok(LimitQueue { figures, waiting: counts(rest)?, here, most, lines })
    }

    /// How many wait of each key.
    pub fn waiting(&self) -> &Counts {
        &self.waiting
    }

    /// Gives back what processes had waiting that are no longer there.
    pub fn give_back(&self, is_there: impl Fn(u32) -> bool) {
        if self.waiting.give_back(is_there) {
            self.figure(NOW).store(self.waiting.total(), Relaxed);
        }
    }

    /// Settings are in force by which so many may be under way: those who wait now, too.
    pub(super) fn adopt(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    fn most_of(&self, waiters: &Waiters) -> u32 {
        Some(self.most.load(Relaxed)).filter(|most| *most > 0).unwrap_or(waiters.most)
    }

    /// What it has seen.
    pub fn figures(&self) -> QueueFigures {
        let figure = |at| self.figure(at).load(Relaxed);
        let (waiting, full) = (self.waiting.total(), self.waiting.refused());
        let (most, served, too_old, gone) = (figure(MOST), figure(SERVED), figure(TOO_OLD), figure(GONE));
        QueueFigures { waiting, most: most.max(waiting), served, full, too_old, gone }
    }

    /// One more of a key has come, of which there may be `most` in `counts`.
    pub(super) fn enter(
        self: &Arc<Self>,
        counts: &Arc<Counts>,
        key: &[u8],
        most: u32,
        queue: &Queue,
    ) -> Entry {
        let line = || Line { queue: self.clone(), key: SmallVec::from_slice(key) };
        if let Some(place) = self.enter_at_once(counts, key, most) {
            return Entry::Permit(Permit::of_line(counts, place, line()));
        }
        let Some(ticket) = self.join(counts, key, most, queue, monotonic_ns()) else {
            counts.count_refused();
            return Entry::Full;
        };
        Entry::Wait(Waiter {
            line: line(),
            counts: counts.clone(),
            ticket,
            deadline: None,
            has_begun: false,
            has_waited: false,
            is_told: false,
        })
    }

    /// A place, where nobody waits for one.
    fn enter_at_once(&self, counts: &Counts, key: &[u8], most: u32) -> Option<Place> {
        // A key that is counted together with others is known by its line alone.
        let is_here = || self.here.load(SeqCst) > 0 && self.lock().of_keys.contains_key(key);
        if self.waiting.look(key) > 0 || is_here() {
            return None;
        }
        counts.look_for_place(key, most).map(|(place, _)| place)
    }

    /// Takes the last place of a line: its ticket; `None` where as many wait as may.
    fn join(&self, counts: &Arc<Counts>, key: &[u8], most: u32, queue: &Queue, now: u64) -> Option<u64> {
        let (place, _) = self.waiting.enter(key, queue.length)?;
        self.here.fetch_add(1, SeqCst);
        let waiting = self.figure(NOW).fetch_add(1, Relaxed) + 1;
        self.figure(MOST).fetch_max(waiting, Relaxed);
        let age = u64::try_from(queue.age.as_nanos()).unwrap_or(u64::MAX);
        let mut lines = self.lock();
        lines.tickets += 1;
        let ticket = lines.tickets;
        let new = || Waiters {
            counts: counts.clone(),
            most,
            line: VecDeque::new(),
            kept_since: now,
            rests_until: 0,
        };
        let waiters = lines.of_keys.entry(SmallVec::from_slice(key)).or_insert_with(new);
        // What the settings say now.
        (waiters.counts, waiters.most) = (counts.clone(), most);
        let expires = now.saturating_add(age);
        waiters.line.push_back(Waiting { ticket, expires, waker: Waker::noop().clone(), place });
        Some(ticket)
    }

    /// What one who waits finds at `now`; else its waker is kept.
    fn look(&self, key: &[u8], ticket: u64, now: u64, waker: &Waker) -> Found {
        let mut woken = None;
        let found = {
            let mut lines = self.lock();
            if let Some(told) = lines.told.remove(&ticket) {
                return Found::Told(told);
            }
            let pause = LOOK * (1 + lines.of_keys.len() as u64 / LINES);
            let Some((waiters, at)) = lines.find(key, ticket) else { return Found::Told(Told::TooOld) };
            let expires = waiters.line[at].expires;
            let told = match (expires <= now, at) {
                (true, _) => Some(Told::TooOld),
                (false, 0) if waiters.rests_until <= now => {
                    let place = waiters.counts.look_for_place(key, self.most_of(waiters));
                    place.map(|(place, _)| Told::Place(place))
                }
                _ => None,
            };
            match told {
                Some(told) => {
                    woken = self.remove(&mut lines, key, at);
                    self.count(told);
                    Found::Told(told)
                }
                None => {
                    waiters.line[at].waker.clone_from(waker);
                    let again = (now + pause).max(waiters.rests_until);
                    Found::Until(if at == 0 { expires.min(again) } else { expires })
                }
            }
        };
        woken.into_iter().for_each(Waker::wake);
        found
    }

    /// One who waits goes away: what it was told meanwhile. A place is to be passed on.
    fn withdraw(&self, key: &[u8], ticket: u64) -> Option<Told> {
        let woken = {
            let mut lines = self.lock();
            if let Some(told) = lines.told.remove(&ticket) {
                return Some(told);
            }
            let at = lines.find(key, ticket).map(|(_, at)| at);
            at.and_then(|at| self.remove(&mut lines, key, at))
        };
        woken.into_iter().for_each(Waker::wake);
        None
    }

    /// A place of a key is left: the first who waits here has it, else it is free.
    fn pass_on(&self, key: &[u8], counts: &Arc<Counts>, place: Place, now: u64) {
        if self.here.load(SeqCst) > 0 && self.hand_over(key, counts, Some(place), now) {
            return;
        }
        counts.leave(place);
        // Who has come in between found none, and nobody to pass one on.
        if self.here.load(SeqCst) > 0 {
            self.hand_over(key, counts, None, now);
        }
    }

    /// Gives a place to the first who waits: this one, else one that is free. Whether somebody has this one.
    fn hand_over(&self, key: &[u8], counts: &Arc<Counts>, left: Option<Place>, now: u64) -> bool {
        let mut woken: SmallVec<[Waker; 4]> = SmallVec::new();
        let mut has_it = false;
        {
            let mut lines = self.lock();
            while let Some(waiters) = lines.of_keys.get_mut(key) {
                let Some(first) = waiters.line.front() else { break };
                let told = if first.expires <= now {
                    Told::TooOld
                } else if !Arc::ptr_eq(&waiters.counts, counts) {
                    break; // places of settings before
                } else if let Some(place) = left {
                    let is_too_many = !place.is_crowd() && counts.count(place) > self.most_of(waiters);
                    let has_others = self.waiting.look(key) as usize > waiters.line.len();
                    if is_too_many {
                        break;
                    }
                    if !has_others {
                        waiters.kept_since = now;
                    } else if now.saturating_sub(waiters.kept_since) > KEPT {
                        (waiters.kept_since, waiters.rests_until) = (now, now + 2 * LOOK);
                        break;
                    }
                    Told::Place(place)
                } else if waiters.rests_until > now {
                    break;
                } else {
                    match counts.look_for_place(key, self.most_of(waiters)) {
                        Some((place, _)) => Told::Place(place),
                        None => break,
                    }
                };
                let (ticket, waker) = (first.ticket, first.waker.clone());
                woken.push(waker);
                woken.extend(self.remove(&mut lines, key, 0));
                lines.told.insert(ticket, told);
                self.count(told);
                if let Told::Place(_) = told {
                    has_it = true;
                    break;
                }
            }
        }
        woken.into_iter().for_each(Waker::wake);
        has_it
    }

    /// Takes one out of a line; who is first then has to look, and is woken for it.
    #[must_use]
    fn remove(&self, lines: &mut Lines, key: &[u8], at: usize) -> Option<Waker> {
        let waiters = lines.of_keys.get_mut(key)?;
        let waiting = waiters.line.remove(at)?;
        self.waiting.leave(waiting.place);
        self.here.fetch_sub(1, SeqCst);
        let _ = self.figure(NOW).fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
        let next = waiters.line.front().filter(|_| at == 0).map(|next| next.waker.clone());
        if waiters.line.is_empty() {
            lines.of_keys.remove(key);
        }
        next
    }

    fn count(&self, told: Told) {
        let figure = if told == Told::TooOld { TOO_OLD } else { SERVED };
        self.figure(figure).fetch_add(1, Relaxed);
    }

    fn figure(&self, at: usize) -> &AtomicU64 {
        &self.figures.words()[at]
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// One who waits, and how many stand before it.
    fn find(&mut self, key: &[u8], ticket: u64) -> Option<(&mut Waiters, usize)> {
        let waiters = self.of_keys.get_mut(key)?;
        let at = waiters.line.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()?;
        Some((waiters, at))
    }
}

/// Those who wait for what somebody has.
#[derive(Debug, Clone)]
pub(super) struct Line {
    queue: Arc<LimitQueue>,
    key: Key,
}

impl Line {
    /// A place is left.
    pub(super) fn pass_on(&self, counts: &Arc<Counts>, place: Place) {
        self.queue.pass_on(&self.key, counts, place, monotonic_ns());
    }
}

/// Waits for a place; `None` where that has taken too long. Dropping it leaves the line. Wants a worker's thread.
#[must_use = "nobody waits unless this is awaited"]
pub(super) struct Waiter {
    line: Line,
    counts: Arc<Counts>,
    ticket: u64,
    deadline: Option<Deadline>,
    /// Somebody has asked for it, and once more: whoever finds that the server has no room for who waits does not ask again.
    has_begun: bool,
    has_waited: bool,
    is_told: bool,
}

impl Future for Waiter {
    type Output = Option<Permit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Permit>> {
        let this = &mut *self;
        this.has_waited = std::mem::replace(&mut this.has_begun, true);
        loop {
            let Line { queue, key } = &this.line;
            match queue.look(key, this.ticket, monotonic_ns(), cx.waker()) {
                Found::Told(told) => {
                    this.is_told = true;
                    return Poll::Ready(match told {
                        Told::Place(place) => Some(Permit::of_line(&this.counts, place, this.line.clone())),
                        Told::TooOld => {
                            this.counts.count_refused();
                            None
                        }
                    });
                }
                Found::Until(at) => {
                    // One that passes before is as good.
                    if this.deadline.as_ref().is_none_or(|deadline| deadline.time() > at) {
                        this.deadline = Some(timer::at(at));
                    }
                    let Some(deadline) = &mut this.deadline else { return Poll::Pending };
                    match Pin::new(deadline).poll(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(()) => this.deadline = None,
                    }
                }
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        match self.line.queue.withdraw(&self.line.key, self.ticket) {
            Some(Told::Place(place)) => self.line.pass_on(&self.counts, place),
            None if self.has_waited => {
                self.line.queue.figure(GONE).fetch_add(1, Relaxed);
            }
            // Too late; or the server had no room for who waits.
            Some(Told::TooOld) | None => self.counts.count_refused(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;
    use proptest::prelude::*;
    use std::array;
    use std::time::Duration;

    const MS: u64 = 1_000_000;
    const PROCESSES: usize = 2;

    /// A limit as processes see it, each with lines of its own.
    struct Limit {
        processes: [(Arc<LimitQueue>, Arc<Counts>); PROCESSES],
    }

    impl Limit {
        fn new() -> Limit {
            let mut queues = memory_of::<PROCESSES>(LimitQueue::length(100, 4).unwrap()).into_iter();
            let mut counts = memory_of::<PROCESSES>(Counts::length(100, 4).unwrap()).into_iter();
            let processes = array::from_fn(|at| {
                let (queue, count) = (queues.next().unwrap(), counts.next().unwrap());
                let (queue, count) = match at {
                    0 => (LimitQueue::new(queue, 4, [1, 2]), Counts::new(count, 4, [3, 4])),
                    _ => (LimitQueue::attach(queue), Counts::attach(count)),
                };
                (Arc::new(queue.unwrap()), Arc::new(count.unwrap()))
            });
            Limit { processes }
        }

        /// A place, or a ticket; `None` where as many wait as may.
        fn arrive(&self, process: usize, key: &[u8], most: u32, queue: &Queue, now: u64) -> Option<Arrived> {
            let (lines, counts) = &self.processes[process];
            match lines.enter_at_once(counts, key, most) {
                Some(place) => Some(Arrived::Place(place)),
                None => lines.join(counts, key, most, queue, now).map(Arrived::Waits),
            }
        }

        fn look(&self, process: usize, key: &[u8], ticket: u64, now: u64) -> Found {
            self.processes[process].0.look(key, ticket, now, Waker::noop())
        }

        fn leave(&self, process: usize, key: &[u8], place: Place, now: u64) {
            let (lines, counts) = &self.processes[process];
            lines.pass_on(key, counts, place, now);
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Arrived {
        Place(Place),
        Waits(u64),
    }

    fn queue(length: u32, age: u64) -> Queue {
        Queue { length, age: Duration::from_millis(age) }
    }

    fn place(found: Option<Arrived>) -> Place {
        let Some(Arrived::Place(place)) = found else { panic!("{found:?} is no place") };
        place
    }

    fn ticket(found: Option<Arrived>) -> u64 {
        let Some(Arrived::Waits(ticket)) = found else { panic!("{found:?} does not wait") };
        ticket
    }

    #[test]
    fn a_place_goes_to_the_first_and_who_is_too_old_has_none() {
        let (limit, terms) = (Limit::new(), queue(3, 100));
        let arrive = |now| limit.arrive(0, b"a", 1, &terms, now);
        let held = place(arrive(0));
        let [old, first, second] = [0, 50, 60].map(|at| ticket(arrive(at * MS)));
        assert_eq!(arrive(61 * MS), None, "as many wait as may");
        assert_eq!(limit.look(0, b"a", old, 20 * MS), Found::Until(30 * MS), "the first looks again");
        assert_eq!(limit.look(0, b"a", first, 50 * MS), Found::Until(150 * MS), "others wait to be told");
        limit.leave(0, b"a", held, 110 * MS);
        assert_eq!(limit.look(0, b"a", old, 110 * MS), Found::Told(Told::TooOld));
        let Found::Told(Told::Place(held)) = limit.look(0, b"a", first, 110 * MS) else { panic!() };
        assert_eq!(limit.look(0, b"a", second, 159 * MS), Found::Until(160 * MS));
        assert_eq!(limit.look(0, b"a", second, 160 * MS), Found::Told(Told::TooOld));
        limit.leave(0, b"a", held, 160 * MS);
        let (lines, counts) = &limit.processes[0];
        assert_eq!((counts.total(), counts.refused()), (0, 0), "the caller counts who is refused");
        let expected = QueueFigures { waiting: 0, most: 3, served: 1, full: 1, too_old: 2, gone: 0 };
        assert_eq!(lines.figures(), expected);
        assert_eq!(limit.processes[1].0.figures(), expected, "every process tells the same");
    }

    #[test]
    fn who_was_given_a_place_and_goes_away_passes_it_on() {
        let (limit, terms) = (Limit::new(), queue(3, 1000));
        let arrive = || limit.arrive(0, b"a", 1, &terms, 0);
        let (held, [first, second, third]) = (place(arrive()), [(); 3].map(|()| ticket(arrive())));
        let (lines, counts) = &limit.processes[0];
        assert_eq!(lines.withdraw(b"a", second), None);
        limit.leave(0, b"a", held, MS);
        let Some(Told::Place(given)) = lines.withdraw(b"a", first) else { panic!("it had its turn") };
        limit.leave(0, b"a", given, MS);
        assert!(matches!(limit.look(0, b"a", third, MS), Found::Told(Told::Place(_))));
        assert_eq!((counts.total(), lines.figures().waiting), (1, 0));
    }

    #[test]
    fn who_is_not_let_wait_by_the_server_has_not_given_up() {
        let (limit, terms) = (Limit::new(), queue(3, 1000));
        let (lines, counts) = &limit.processes[0];
        let _held = lines.enter(counts, b"a", 1, &terms);
        let Entry::Wait(waiter) = lines.enter(counts, b"a", 1, &terms) else { panic!("there is no place") };
        drop(waiter);
        assert_eq!((counts.refused(), lines.figures().gone, lines.figures().waiting), (1, 0, 0));
    }

    #[test]
    fn whoever_comes_while_somebody_waits_elsewhere_waits_as_well() {
        let (limit, terms) = (Limit::new(), queue(3, 1000));
        let held = place(limit.arrive(0, b"a", 1, &terms, 0));
        let there = ticket(limit.arrive(1, b"a", 1, &terms, 0));
        let Found::Until(again) = limit.look(1, b"a", there, 0) else { panic!("there is no place") };
        limit.leave(0, b"a", held, MS);
        let here = ticket(limit.arrive(0, b"a", 1, &terms, MS));
        assert!(matches!(limit.look(1, b"a", there, again), Found::Told(Told::Place(_))));
        assert!(matches!(limit.look(0, b"a", here, again), Found::Until(_)));
        // Another key is another line.
        place(limit.arrive(0, b"b", 1, &terms, 0));
    }

    #[test]
    fn a_line_that_is_never_empty_leaves_something_to_others() {
        let (limit, terms) = (Limit::new(), queue(100, 60_000));
        let mut held = place(limit.arrive(0, b"a", 1, &terms, 0));
        let mut here: VecDeque<u64> = (0..10).map(|_| ticket(limit.arrive(0, b"a", 1, &terms, 0))).collect();
        let there = ticket(limit.arrive(1, b"a", 1, &terms, 0));
        let mut again = 0;
        for now in 1..1000 {
            let now = now * MS;
            if now >= again {
                match limit.look(1, b"a", there, now) {
                    Found::Told(_) => {
                        assert!(now <= KEPT + 3 * LOOK, "after {} ms", now / MS);
                        return;
                    }
                    Found::Until(at) => again = at,
                }
            }
            // A request takes a millisecond, and another one comes.
            limit.leave(0, b"a", held, now);
            here.push_back(ticket(limit.arrive(0, b"a", 1, &terms, now)));
            match limit.look(0, b"a", here[0], now) {
                Found::Told(Told::Place(place)) => held = place,
                Found::Told(Told::TooOld) => panic!("nobody waits for so long"),
                Found::Until(at) => {
                    // It was left to the other.
                    assert!(at >= now + LOOK);
                    continue;
                }
            }
            here.pop_front();
        }
        panic!("it never had its turn");
    }

    #[test]
    fn what_a_killed_process_had_waiting_is_given_back() {
        let (limit, terms) = (Limit::new(), queue(2, 1000));
        place(limit.arrive(0, b"a", 1, &terms, 0));
        ticket(limit.arrive(0, b"a", 1, &terms, 0));
        ticket(limit.arrive(0, b"a", 1, &terms, 0));
        assert_eq!(limit.arrive(1, b"a", 1, &terms, 0), None);
        limit.processes[1].0.give_back(|_| false);
        assert_eq!(limit.processes[1].0.figures().waiting, 0);
        ticket(limit.arrive(1, b"a", 1, &terms, 0));
    }

    #[test]
    fn what_is_no_queue_is_refused() {
        let [words] = memory_of(HEAD - 1);
        assert_eq!(LimitQueue::attach(words).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let [words] = memory_of(HEAD + 9);
        assert_eq!(LimitQueue::attach(words).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(LimitQueue::length(usize::MAX, 4).unwrap() < 1 << 20, "no more than anybody could need");
    }

    proptest! {
        /// However they come, leave, go away and are looked for, in two processes: never more than may, in the order of
        /// arrival, nobody waits for what is free, and in the end nothing is left.
        #[test]
        fn places_are_neither_lost_nor_doubled(
            most in 1u32..4,
            length in 0u32..6,
            steps in prop::collection::vec((0u8..5, 0..PROCESSES, 0u8..2, 0usize..16, 0u64..40), 1..200),
        ) {
            let (limit, terms) = (Limit::new(), queue(length, 200));
            let (mut held, mut waits) = (Vec::new(), Vec::<(usize, u8, u64, u64)>::new());
            let mut now = MS;
            for (what, process, key, which, pause) in steps {
                match what {
                    0 | 1 => match limit.arrive(process, &[key], most, &terms, now) {
                        Some(Arrived::Place(place)) => held.push((process, key, place)),
                        Some(Arrived::Waits(ticket)) => waits.push((process, key, ticket, now)),
                        None => {
                            let waiting = waits.iter().filter(|(_, of, ..)| *of == key).count();
                            prop_assert!(waiting as u32 >= length);
                        }
                    },
                    2 if !held.is_empty() => {
                        let (process, key, place) = held.remove(which % held.len());
                        limit.leave(process, &[key], place, now);
                    }
                    3 if !waits.is_empty() => {
                        let (process, key, ticket, _) = waits.remove(which % waits.len());
                        if let Some(Told::Place(place)) = limit.processes[process].0.withdraw(&[key], ticket) {
                            limit.leave(process, &[key], place, now);
                        }
                    }
                    _ => now += pause * MS,
                }
                // One that was left to others is found after a while.
                now += 3 * LOOK;
                // Those who are woken, or whose time has come: again, since one wakes the next.
                for _ in 0..=waits.len() {
                    let mut rest = Vec::new();
                    for (process, key, ticket, since) in std::mem::take(&mut waits) {
                        match limit.look(process, &[key], ticket, now) {
                            Found::Told(Told::Place(place)) => {
                                let is_before = |(p, k, t, _): &(usize, u8, u64, u64)| (*p, *k) == (process, key) && *t < ticket;
                                prop_assert!(!rest.iter().any(is_before), "who came first is served first");
                                held.push((process, key, place));
                            }
                            Found::Told(Told::TooOld) => prop_assert!(now >= since + 200 * MS),
                            Found::Until(at) => {
                                prop_assert!(now < since + 200 * MS && at > now);
                                rest.push((process, key, ticket, since));
                            }
                        }
                    }
                    waits = rest;
                }
                let (lines, counts) = &limit.processes[0];
                for key in 0..2 {
                    let of_key = held.iter().filter(|(_, of, _)| *of == key).count();
                    prop_assert!(of_key <= most as usize);
                    let has_waiting = waits.iter().any(|(_, of, ..)| *of == key);
                    prop_assert!(!has_waiting || of_key == most as usize, "somebody waits for what is free");
                    prop_assert_eq!(counts.look(&[key]) as usize, of_key, "nobody has been given one unheard");
                }
                prop_assert_eq!(lines.figures().waiting as usize, waits.len());
            }
            for (process, key, place) in held {
                limit.leave(process, &[key], place, now);
            }
            for (process, key, ticket, _) in waits {
                if let Some(Told::Place(place)) = limit.processes[process].0.withdraw(&[key], ticket) {
                    limit.leave(process, &[key], place, now);
                }
            }
            for (lines, counts) in &limit.processes {
                prop_assert_eq!((counts.total(), lines.figures().waiting), (0, 0));
                let lines = lines.lock();
                prop_assert!(lines.of_keys.is_empty() && lines.told.is_empty());
            }
        }
    }
}
