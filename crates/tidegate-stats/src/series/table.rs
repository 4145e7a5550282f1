//! What a worker writes of its sites and routes: lines of counters, and histograms from a bounded store.
//!
//! One thread writes, any thread reads. Nothing is allocated or locked when something is counted: lines and histograms are
//! made by [`SeriesTable::prepare`], which comes with settings. The first time of a phase of a route takes a histogram
//! from the store, which is cold and locks; with none left, times go to the histogram of the site, and are counted there
//! as [`SeriesTable::folded`]. Whole requests have a histogram for each kind of request and answer (`table/answers.rs`).

use super::answer::RequestKind;
use super::exemplars::{Exemplar, Exemplars, SampledRequest};
use super::figures::{RouteFigures, Times};
use super::{SeriesDirectory, SeriesId, SeriesName};
use crate::cell::Counter;
use crate::exponential::{LAST, nanos};
use crate::histogram::{Distribution, Elapsed};
use crate::kind::{GatewayFailure, Kinds};
use crate::table::{Metric, Reading};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

mod answers;

use answers::Answers;

/// Lines of a page.
const PAGE: usize = 64;
/// Pages of a group, and groups: a million lines.
const GROUP: usize = 256;
const GROUPS: usize = 64;
/// Histograms of a worker, at most.
const BLOCKS: usize = 4096;
/// Of these so many are made at once.
const SHELF: usize = 64;
/// Histograms for each line, as far as there are any: as many as an application in front of which requests wait takes, whose answers
/// are of four kinds.
const PER_LINE: usize = PHASES + 4;
/// Buckets of a histogram: eight to each power of two, from 2^-20 to 2^12 s, what is shorter and what is longer.
const COARSE: usize = 258;

/// What is timed of a request, beside all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// To the first byte, where it took several steps.
    FirstByte,
    /// Waiting for a place: among those in flight, or on an application.
    Queue,
    /// Connecting to an application.
    Connect,
    /// From the first byte sent to an application to the head of its answer.
    Application,
}

const PHASES: usize = 4;

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// What it was.
    pub kind: RequestKind,
    /// What it was answered with, or would have been.
    pub status: u16,
    /// Bytes of its head and content.
    pub received: u64,
    /// Bytes of head and content that were sent.
    pub sent: u64,
    /// How long all of it took.
    pub elapsed: Elapsed,
    /// Whether its first byte was timed already.
    pub has_first_byte: bool,
}

/// The counters of a route: one line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    /// By class of their status: 1xx (tunnels) to 5xx.
    answers: [Counter; 5],
    received: Counter,
    sent: Counter,
    /// All times together.
    time: Counter,
}

/// What is seldom touched of a route.
#[derive(Debug, Default)]
struct Rest {
    /// For each phase its histogram, counted from 1; 0: none yet; [`FOLDED`]: the site's.
    blocks: [AtomicU16; PHASES],
    /// The first of the histograms of whole requests, each of which knows the next.
    first: AtomicU16,
    /// The last kind of answer that was given at once, and that took steps, with its histogram; see `answers.rs`.
    last: [AtomicU32; 2],
    /// The site, which takes times that have no histogram here.
    site: AtomicU32,
    /// What takes longer is slow for this route, in units of 2^-20 s.
    slow_after: AtomicU32,
    /// The settings say so: it is not learnt.
    is_told: AtomicBool,
    /// Requests of the server's own that were handed to the route on behalf of others.
    handed_on: Counter,
    /// Requests that clients got an error for in place of an application's answer. Most routes have none.
    failures: OnceLock<Box<Failures>>,
}

/// By reason.
type Failures = Kinds<GatewayFailure, { GatewayFailure::COUNT }>;

/// Routes whose idea of slow is looked at in one second.
const LEARNERS: u32 = 64;
/// Requests that it takes to have one.
const EXPERIENCE: u64 = 1_000;
/// The share of requests that is not slow.
const USUAL: f64 = 0.999;
/// What is slow where there is no experience, and what is slow nowhere: half a second and ten milliseconds, in units of
/// 2^-20 s.
const SLOW_UNKNOWN: u32 = 1 << 19;
const SLOW_LEAST: u32 = 10_486;
/// Ticks to these units.
const SLOW_SHIFT: u32 = 10;

const FOLDED: u16 = u16::MAX;

#[derive(Debug)]
struct Page {
    lines: [Line; PAGE],
    rest: [Rest; PAGE],
}

impl Default for Page {
    fn default() -> Page {
        Page {
            lines: std::array::from_fn(|_| Line::default()),
            rest: std::array::from_fn(|_| Rest::default()),
        }
    }
}

type Group = [OnceLock<Box<Page>>; GROUP];

/// A histogram of a route. A bucket that wraps is carried (`Store::carries`).
#[derive(Debug)]
struct Block {
    buckets: [AtomicU32; COARSE],
    /// All times together.
    time: Counter,
    /// Of whole requests: which they are (`answers.rs`), and the next histogram of the route.
    key: AtomicU32,
    next: AtomicU16,
}

impl Default for Block {
    fn default() -> Block {
        Block {
            buckets: [const { AtomicU32::new(0) }; COARSE],
            time: Counter::new(),
            key: AtomicU32::new(0),
            next: AtomicU16::new(0),
        }
    }
}

/// Times are added up in units of 2^-24 s: a line for ten thousand slow downloads at once wraps after three years.
const UNIT_SHIFT: u32 = 6;

#[inline]
fn units(elapsed: Elapsed) -> u64 {
    elapsed.ticks.wrapping_add(1 << (UNIT_SHIFT - 1)) >> UNIT_SHIFT
}

fn units_to_nanos(units: u64) -> u128 {
    nanos(u128::from(units) << UNIT_SHIFT)
}

/// The sites and routes of a worker.
#[derive(Debug)]
pub struct SeriesTable {
    /// The first lines, which most servers have no more of, at hand.
    first: Page,
    groups: [OnceLock<Box<Group>>; GROUPS],
    shelves: [OnceLock<Box<[Block; SHELF]>>; BLOCKS / SHELF],
    store: Mutex<Store>,
    /// How many histograms are left, as was found last; see `answers.rs`.
    room: AtomicU8,
    folded: Counter,
    exemplars: Exemplars,
    /// Whose idea of slow is looked at next.
    learner: AtomicU32,
    names: OnceLock<Arc<SeriesDirectory>>,
}

#[derive(Debug, Default)]
struct Store {
    /// Lines that there are.
    lines: u32,
    /// Histograms that there are, and those that are in use.
    made: usize,
    used: usize,
    /// Wraps of buckets at 2^32, by histogram and bucket.
    carries: BTreeMap<(u16, u16), u64>,
}

impl Store {
    /// One that is not in use.
    fn take(&mut self) -> Option<u16> {
        (self.used < self.made).then(|| {
            self.used += 1;
            self.used as u16
        })
    }

    /// What a bucket has counted.
    fn count(&self, handle: u16, bucket: usize, block: &Block) -> u64 {
        let wraps = self.carries.get(&(handle, bucket as u16)).copied().unwrap_or(0);
        (wraps << 32) + block.buckets.get(bucket).map_or(0, |count| u64::from(count.load(Relaxed)))
    }
}

/// The end of a bucket in units of 2^-20 s; without bound for the last.
fn slow_after(bucket: usize) -> u32 {
    if bucket >= COARSE - 1 { u32::MAX } else { (bucket as f64 / 8.0).exp2() as u32 }
}

impl Default for SeriesTable {
    /// With a line for requests that belong to no site.
    fn default() -> SeriesTable {
        let table = SeriesTable {
            first: Page::default(),
            groups: [const { OnceLock::new() }; GROUPS],
            shelves: [const { OnceLock::new() }; BLOCKS / SHELF],
            store: Mutex::default(),
            room: AtomicU8::new(0),
            folded: Counter::new(),
            exemplars: Exemplars::default(),
            learner: AtomicU32::new(0),
            names: OnceLock::new(),
        };
        table.prepare(&[SeriesId::NONE]);
        table
    }
}

impl SeriesTable {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes lines and histograms for all numbers that were given. `sites` is what [`SeriesDirectory::sites`] says.
    pub fn prepare(&self, sites: &[SeriesId]) {
        let mut store = self.store();
        for (number, site) in sites.iter().enumerate().skip(store.lines as usize) {
            if let Some(page) = (number / PAGE).checked_sub(1) {
                let Some(group) = self.groups.get(page / GROUP) else { break };
                let group = group.get_or_init(|| Box::new([const { OnceLock::new() }; GROUP]));
                group[page % GROUP].get_or_init(Box::default);
            }
            let Some((_, rest)) = self.place(SeriesId::of(number as u32)) else { break };
            rest.site.store(site.number(), Relaxed);
            rest.slow_after.store(SLOW_UNKNOWN, Relaxed);
            store.lines = number as u32 + 1;
        }
        let wanted = (store.lines as usize * PER_LINE).min(BLOCKS);
        let made = store.made;
        while store.made < wanted {
            let shelf = || {
                let blocks: Vec<Block> = (0..SHELF).map(|_| Block::default()).collect();
                blocks.try_into().expect("invariant: there are as many as a shelf has")
            };
            self.shelves[store.made / SHELF].get_or_init(shelf);
            store.made += SHELF;
        }
        if store.made > made {
            // Who has got none may have one now.
            self.room.store(answers::PLENTY, Relaxed);
            let all = (0..store.lines).filter_map(|number| self.place(SeriesId::of(number)));
            for block in all.flat_map(|(_, rest)| &rest.blocks) {
                let _ = block.compare_exchange(FOLDED, 0, Relaxed, Relaxed);
            }
        }
    }

    /// The bucket that all but the slowest thousandth of a route's requests do not exceed; `None` where it has no histogram.
    /// Allocates nothing: requests are served meanwhile.
    fn usual(&self, store: &Store, rest: &Rest) -> Option<usize> {
        let count = |bucket: usize| {
            let counts = self.answers(rest).map(|(handle, block)| store.count(handle, bucket, block));
            counts.fold(0, u64::wrapping_add)
        };
        let all = (0..COARSE).map(count).fold(0, u64::wrapping_add);
        let slow = all - (all as f64 * USUAL) as u64;
        let mut beyond = 0u64;
        let usual = (0..COARSE).rev().find(|bucket| {
            beyond = beyond.wrapping_add(count(*bucket));
            beyond > slow
        });
        usual.filter(|_| all > 0)
    }

    #[inline]
    fn place(&self, id: SeriesId) -> Option<(&Line, &Rest)> {
        let number = id.number() as usize;
        if number < PAGE {
            return Some((&self.first.lines[number], &self.first.rest[number]));
        }
        self.distant(number)
    }

    #[inline(never)]
    fn distant(&self, number: usize) -> Option<(&Line, &Rest)> {
        let page = number / PAGE - 1;
        let page = self.groups.get(page / GROUP)?.get()?[page % GROUP].get()?;
        Some((&page.lines[number % PAGE], &page.rest[number % PAGE]))
    }

    /// Counts a request that has ended. Whether it was slow for its route: that is what takes longer than 99.9 % of its
    /// requests, and at least ten milliseconds; before there are a thousand of them, half a second.
    #[inline]
    pub fn answered(&self, id: SeriesId, answered: &Answered) -> bool {
        let Some((line, rest)) = self.place(id) else { return false };
        if let Some(class) = line.answers.get(usize::from(answered.status / 100).wrapping_sub(1)) {
            class.add(1);
        }
        line.received.add(answered.received);
        line.sent.add(answered.sent);
        line.time.add(units(answered.elapsed));
        self.count_answer(rest, answered);
        answered.elapsed.ticks >> SLOW_SHIFT > u64::from(rest.slow_after.load(Relaxed))
    }

    /// What is slow for a route, as the settings say; `None`: it is learnt from its requests.
    pub fn set_slow_after(&self, id: SeriesId, after: Option<Duration>) {
        let Some((_, rest)) = self.place(id) else { return };
        if let Some(after) = after {
            let units = u32::try_from((after.as_nanos() << 20) / 1_000_000_000).unwrap_or(u32::MAX);
            rest.slow_after.store(units, Relaxed);
        } else if rest.is_told.load(Relaxed) {
            rest.slow_after.store(SLOW_UNKNOWN, Relaxed);
        }
        rest.is_told.store(after.is_some(), Relaxed);
    }

    /// Looks at what some of the routes have come to think is slow; once a second.
    pub fn learn(&self) {
        let Ok(store) = self.store.try_lock() else { return }; // somebody reads it, and the next second will do
        for _ in 0..LEARNERS.min(store.lines) {
            let number = self.learner.load(Relaxed) % store.lines;
            self.learner.store(number + 1, Relaxed);
            let Some((line, rest)) = self.place(SeriesId::of(number)) else { continue };
            let requests = line.answers.iter().fold(0, |sum: u64, count| sum.wrapping_add(count.value()));
            if requests < EXPERIENCE || rest.is_told.load(Relaxed) {
                continue;
            }
            // Without a histogram of its own nothing is known of it.
            let after =
                self.usual(&store, rest).map_or(SLOW_UNKNOWN, |bucket| slow_after(bucket).max(SLOW_LEAST));
            rest.slow_after.store(after, Relaxed);
        }
    }

    /// Counts the time that a phase of a request took.
    #[inline(never)]
    pub fn took(&self, id: SeriesId, phase: Phase, elapsed: Elapsed) {
        if let Some((_, rest)) = self.place(id) {
            self.record(rest, phase, elapsed);
        }
    }

    /// Makes room for sampled requests, which settings may have.
    pub fn prepare_exemplars(&self) {
        self.exemplars.prepare();
    }

    /// Remembers a sampled request of a route that is counted.
    #[cold]
    pub fn sampled(&self, id: SeriesId, request: &SampledRequest<'_>) {
        if self.place(id).is_some() {
            self.exemplars.remember(id, request);
        }
    }

    /// The last sampled requests, by bucket.
    pub(super) fn exemplars(&self) -> Vec<(SeriesId, Exemplar)> {
        self.exemplars.read()
    }

    /// Counts a request of the server's own that was handed to a route.
    #[cold]
    pub fn handed_on(&self, id: SeriesId) {
        if let Some((_, rest)) = self.place(id) {
            rest.handed_on.add(1);
        }
    }

    /// Counts a request that its client got an error for, since its application could not be asked or has not answered.
    #[cold]
    pub fn failed(&self, id: SeriesId, why: GatewayFailure) {
        if let Some((_, rest)) = self.place(id) {
            rest.failures.get_or_init(Box::default).add(why, 1);
        }
    }

    /// The names of a number, as all reports have them: the site, and the route if it is one.
    pub fn name(&self, id: SeriesId) -> Option<SeriesName> {
        self.names.get()?.name(id)
    }

    /// Times that went to the histogram of their site, since their route could have none.
    pub fn folded(&self) -> u64 {
        self.folded.value()
    }

    #[inline]
    fn block(&self, handle: u16) -> Option<&Block> {
        let number = usize::from(handle).wrapping_sub(1);
        Some(&self.shelves.get(number / SHELF)?.get()?[number % SHELF])
    }

    #[inline]
    fn count(&self, handle: u16, block: &Block, elapsed: Elapsed) {
        block.time.add(units(elapsed));
        let bucket = elapsed.bucket.div_ceil(2).min(COARSE - 1);
        let cell = &block.buckets[bucket];
        let count = cell.load(Relaxed).wrapping_add(1);
        if count == 0 {
            return self.carry(handle, bucket, cell);
        }
        cell.store(count, Relaxed);
    }

    /// A bucket has counted 2^32 times.
    #[cold]
    fn carry(&self, handle: u16, bucket: usize, cell: &AtomicU32) {
        let mut store = self.store(); // nobody reads the cell without it
        *store.carries.entry((handle, bucket as u16)).or_default() += 1;
        cell.store(0, Relaxed);
    }

    /// Records in the histogram of a phase, which is taken from the store where there is none yet.
    #[inline(never)]
    fn record(&self, rest: &Rest, phase: Phase, elapsed: Elapsed) {
        if self.record_here(rest, phase, elapsed) {
            return;
        }
        self.folded.add(1);
        if let Some(of_site) = self.site_of(rest) {
            self.record_here(of_site, phase, elapsed);
        }
    }

    /// What the site has of its own, where this is not it.
    fn site_of(&self, rest: &Rest) -> Option<&Rest> {
        let (_, of_site) = self.place(SeriesId::of(rest.site.load(Relaxed)))?;
        (!std::ptr::eq(of_site, rest)).then_some(of_site)
    }

    /// Whether there is a histogram for it.
    fn record_here(&self, rest: &Rest, phase: Phase, elapsed: Elapsed) -> bool {
        let handle = match rest.blocks[phase as usize].load(Relaxed) {
            0 => self.take(rest, phase),
            handle => handle,
        };
        let Some(block) = self.block(handle) else { return false };
        self.count(handle, block, elapsed);
        true
    }

    #[cold]
    fn take(&self, rest: &Rest, phase: Phase) -> u16 {
        let handle = self.store().take().unwrap_or(FOLDED);
        rest.blocks[phase as usize].store(handle, Relaxed);
        handle
    }

    /// What each number has counted, those left out that have counted nothing. The values are each exact but not of one
    /// instant: the worker goes on.
    pub fn read(&self) -> Vec<(SeriesId, RouteFigures)> {
        let lines = self.store().lines;
        let mut all = Vec::new();
        for first in (0..lines).step_by(PAGE) {
            // Page by page: the worker may want it, and must not wait for all of them.
            let store = self.store();
            all.extend((first..lines.min(first + PAGE as u32)).filter_map(|number| {
                let id = SeriesId::of(number);
                let (line, rest) = self.place(id)?;
                let figures = self.figures(&store, line, rest);
                (!figures.is_empty()).then_some((id, figures))
            }));
        }
        all
    }

    fn figures(&self, store: &Store, line: &Line, rest: &Rest) -> RouteFigures {
        let plain = |phase: Phase| {
            let handle = rest.blocks[phase as usize].load(Relaxed);
            let block = self.block(handle);
            block.map(|block| self.distribution(store, handle, block)).unwrap_or_default()
        };
        let Answers { total, at_once, by_kind } = self.answers_of(store, rest);
        let mut first_byte = at_once;
        first_byte.merge(&plain(Phase::FirstByte));
        let mut figures = RouteFigures {
            place: 0,
            answers: line.answers.each_ref().map(Counter::value),
            received: line.received.value(),
            sent: line.sent.value(),
            nanos: u64::try_from(units_to_nanos(line.time.value())).unwrap_or(u64::MAX),
            handed_on: rest.handed_on.value(),
            failures: rest.failures.get().map(|failures| failures.read()),
            times: Times {
                total,
                first_byte,
                queue: plain(Phase::Queue),
                connect: plain(Phase::Connect),
                application: plain(Phase::Application),
            },
            by_kind: Vec::new(),
            exemplars: Vec::new(),
        };
        by_kind.iter().for_each(|(key, times)| figures.add_kind(*key, times));
        figures
    }

    fn distribution(&self, store: &Store, handle: u16, block: &Block) -> Distribution {
        let counts = (0..COARSE).map(|bucket| {
            // The end of a bucket is that of every second one of the finer histograms.
            let fine = if bucket == COARSE - 1 { LAST } else { bucket * 2 };
            (fine as u16, store.count(handle, bucket, block))
        });
        Distribution::of(counts, units_to_nanos(block.time.value()))
    }
}

impl SeriesDirectory {
    /// Has a table know all numbers that were given, and their names.
    pub fn extend(self: &Arc<Self>, table: &SeriesTable) {
        self.name_for(table);
        table.prepare(&self.sites());
    }

    /// Has a table know the names alone: nothing is counted by site and route, and requests have one all the same.
    pub fn name_for(self: &Arc<Self>, table: &SeriesTable) {
        table.names.get_or_init(|| self.clone());
    }
}

#[cfg(test)]
mod tests;
