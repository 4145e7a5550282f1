//! What a worker writes of its sites and routes: lines of counters, and histograms from a bounded store.
//!
//! One thread writes, any thread reads. Nothing is allocated or locked when something is counted: lines and histograms are
//! made by [`SeriesTable::prepare`], which comes with settings. The first time of a phase of a route takes a histogram
//! from the store, which is cold and locks; with none left, times go to the histogram of the site, and are counted there
//! as [`SeriesTable::folded`].

use super::figures::{RouteFigures, Times};
use super::{SeriesDirectory, SeriesId, SeriesName};
use crate::cell::Counter;
use crate::exponential::{LAST, nanos};
use crate::histogram::{Distribution, Elapsed};
use crate::table::Reading;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Lines of a page.
const PAGE: usize = 64;
/// Pages of a group, and groups: a million lines.
const GROUP: usize = 256;
const GROUPS: usize = 64;
/// Histograms of a worker, at most.
const BLOCKS: usize = 4096;
/// Of these so many are made at once.
const SHELF: usize = 64;
/// Histograms for each line, as far as there are any: as many as an application in front of which requests wait takes.
const PER_LINE: usize = PHASES;
/// Buckets of a histogram: eight to each power of two, from 2^-20 to 2^12 s, what is shorter and what is longer.
const COARSE: usize = 258;

/// What is timed of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// All of it, where the first and the last byte left in one step: both times are the same.
    AtOnce,
    /// All of it, where it took several steps, or was given up.
    Complete,
    /// To the first byte, where it took several steps.
    FirstByte,
    /// Waiting for a place: among those in flight, or on an application.
    Queue,
    /// Connecting to an application.
    Connect,
    /// From the first byte sent to an application to the head of its answer.
    Application,
}

const PHASES: usize = 6;

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
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
    /// The site, which takes times that have no histogram here.
    site: AtomicU32,
    /// What takes longer is slow for this route, in units of 2^-20 s.
    slow_after: AtomicU32,
    /// The settings say so: it is not learnt.
    is_told: AtomicBool,
    /// Requests of the server's own that were handed to the route on behalf of others.
    handed_on: Counter,
    /// Of the time in the line, what histograms of others have, less what is here of the time of others (wraps).
    elsewhere: Counter,
}

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
    /// All times together; of [`Phase::AtOnce`] the line has it.
    time: Counter,
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
    folded: Counter,
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
            folded: Counter::new(),
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
                let buckets = || [const { AtomicU32::new(0) }; COARSE];
                let blocks: Vec<Block> =
                    (0..SHELF).map(|_| Block { buckets: buckets(), time: Counter::new() }).collect();
                blocks.try_into().expect("invariant: there are as many as a shelf has")
            };
            self.shelves[store.made / SHELF].get_or_init(shelf);
            store.made += SHELF;
        }
        if store.made > made {
            // Who has got none may have one now.
            let all = (0..store.lines).filter_map(|number| self.place(SeriesId::of(number)));
            for block in all.flat_map(|(_, rest)| &rest.blocks) {
                let _ = block.compare_exchange(FOLDED, 0, Relaxed, Relaxed);
            }
        }
    }

    /// The bucket that all but the slowest thousandth of a route's requests do not exceed; `None` where it has no histogram.
    /// Allocates nothing: requests are served meanwhile.
    fn usual(&self, store: &Store, rest: &Rest) -> Option<usize> {
        let blocks = [Phase::AtOnce, Phase::Complete].map(|phase| {
            let handle = rest.blocks[phase as usize].load(Relaxed);
            self.block(handle).map(|block| (handle, block))
        });
        let count = |bucket: usize| {
            let counts = blocks.iter().flatten().map(|(handle, block)| store.count(*handle, bucket, block));
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
        if answered.has_first_byte {
            self.record(rest, Phase::Complete, answered.elapsed);
        } else if let Some(block) = self.block(rest.blocks[Phase::AtOnce as usize].load(Relaxed)) {
            self.count(rest, block, Phase::AtOnce, answered.elapsed);
        } else {
            self.record(rest, Phase::AtOnce, answered.elapsed);
        }
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

    /// Counts a request of the server's own that was handed to a route.
    #[cold]
    pub fn handed_on(&self, id: SeriesId) {
        if let Some((_, rest)) = self.place(id) {
            rest.handed_on.add(1);
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
    fn count(&self, rest: &Rest, block: &Block, phase: Phase, elapsed: Elapsed) {
        let bucket = elapsed.bucket.div_ceil(2).min(COARSE - 1);
        let cell = &block.buckets[bucket];
        let count = cell.load(Relaxed).wrapping_add(1);
        if count == 0 {
            return self.carry(rest, phase, bucket, cell);
        }
        cell.store(count, Relaxed);
    }

    /// A bucket has counted 2^32 times.
    #[cold]
    fn carry(&self, rest: &Rest, phase: Phase, bucket: usize, cell: &AtomicU32) {
        let handle = rest.blocks[phase as usize].load(Relaxed);
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
        let is_in_line = matches!(phase, Phase::AtOnce | Phase::Complete);
        if is_in_line {
            rest.elsewhere.add(units(elapsed));
        }
        let site = SeriesId::of(rest.site.load(Relaxed));
        let Some((_, of_site)) = self.place(site).filter(|(_, of_site)| !std::ptr::eq(*of_site, rest)) else {
            return;
        };
        if self.record_here(of_site, phase, elapsed) && is_in_line {
            of_site.elsewhere.add(units(elapsed).wrapping_neg());
        }
    }

    /// Whether there is a histogram for it.
    fn record_here(&self, rest: &Rest, phase: Phase, elapsed: Elapsed) -> bool {
        let handle = match rest.blocks[phase as usize].load(Relaxed) {
            0 => self.take(rest, phase),
            handle => handle,
        };
        let Some(block) = self.block(handle) else { return false };
        self.count(rest, block, phase, elapsed);
        if phase != Phase::AtOnce {
            block.time.add(units(elapsed));
        }
        true
    }

    #[cold]
    fn take(&self, rest: &Rest, phase: Phase) -> u16 {
        let mut store = self.store();
        let handle = if store.used < store.made {
            store.used += 1;
            store.used as u16
        } else {
            FOLDED
        };
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
        let of = |phase: Phase| {
            let handle = rest.blocks[phase as usize].load(Relaxed);
            self.block(handle).map(|block| (self.distribution(store, handle, block), block.time.value()))
        };
        let plain = |phase| of(phase).map(|(times, _)| times).unwrap_or_default();
        let (complete, time_complete) = of(Phase::Complete).unwrap_or_default();
        let mut total = plain(Phase::AtOnce);
        if !total.is_empty() {
            let own = line.time.value().wrapping_sub(time_complete).wrapping_sub(rest.elsewhere.value());
            total.set_sum(units_to_nanos(own));
        }
        let mut first_byte = total.clone();
        first_byte.merge(&plain(Phase::FirstByte));
        total.merge(&complete);
        RouteFigures {
            place: 0,
            answers: line.answers.each_ref().map(Counter::value),
            received: line.received.value(),
            sent: line.sent.value(),
            nanos: u64::try_from(units_to_nanos(line.time.value())).unwrap_or(u64::MAX),
            handed_on: rest.handed_on.value(),
            times: Times {
                total,
                first_byte,
                queue: plain(Phase::Queue),
                connect: plain(Phase::Connect),
                application: plain(Phase::Application),
            },
        }
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
mod tests {
    use super::*;
    use crate::series::SeriesNames;

    fn ended(status: u16, micros: u64) -> Answered {
        let elapsed = Elapsed::nanos(micros * 1000);
        Answered { status, received: 10, sent: 100, elapsed, has_first_byte: false }
    }

    fn with_routes(routes: usize) -> (SeriesTable, Vec<SeriesId>) {
        let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
        let routes = (0..routes).map(|route| format!("/{route}")).collect();
        let ids = directory.adopt(&[SeriesNames { site: "a.test".into(), routes }]);
        directory.extend(&table);
        (table, ids[0].routes.to_vec())
    }

    #[test]
    fn a_line_is_a_line_of_the_cache() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
        assert!(size_of::<Page>() <= PAGE * (64 + 40), "{} bytes a route", size_of::<Page>() / PAGE);
        assert!(size_of::<Block>() <= 1040, "{} bytes a histogram", size_of::<Block>());
    }

    #[test]
    fn what_is_counted_is_read() {
        let (table, ids) = with_routes(200);
        for (at, id) in ids.iter().enumerate() {
            for _ in 0..at {
                table.answered(*id, &ended(200, 1000));
            }
        }
        table.answered(ids[7], &ended(404, 2000));
        table.answered(SeriesId::NONE, &ended(400, 1));
        let read: std::collections::HashMap<SeriesId, RouteFigures> = table.read().into_iter().collect();
        assert_eq!(read.len(), 200, "the first route has none");
        let seventh = &read[&ids[7]];
        assert_eq!((seventh.answers, seventh.requests()), ([0, 7, 0, 1, 0], 8));
        assert_eq!((seventh.received, seventh.sent), (80, 800));
        assert_eq!(seventh.times.total.count(), 8);
        assert_eq!(seventh.times.total, seventh.times.first_byte);
        assert!(seventh.nanos.abs_diff(9_000_000) < 500, "{}", seventh.nanos);
        assert_eq!(read[&SeriesId::NONE].answers, [0, 0, 0, 1, 0]);
        assert_eq!(table.folded(), 0);
    }

    #[test]
    fn what_is_not_counted_has_a_number_and_no_line() {
        let (table, ids) = with_routes(3);
        let id = ids[1].uncounted();
        assert!(id != ids[1] && id != ids[2].uncounted() && id.uncounted() == id);
        assert!(!table.answered(id, &ended(200, 60_000_000)), "nor is it slow");
        table.took(id, Phase::Queue, Elapsed::nanos(5));
        table.handed_on(id);
        assert!(table.read().is_empty() && table.folded() == 0);
    }

    #[test]
    fn what_is_slow_is_learnt_from_the_route() {
        let (table, ids) = with_routes(100);
        let is_slow = |id, millis: u64| table.answered(id, &ended(200, millis * 1000));
        assert!(!is_slow(ids[0], 499) && is_slow(ids[0], 501), "nothing is known yet");
        for id in &ids[..2] {
            (0..2_000).for_each(|_| assert!(!is_slow(*id, if *id == ids[0] { 20 } else { 1 })));
        }
        (0..4).for_each(|_| table.learn()); // all of them, some twice
        assert!(!is_slow(ids[0], 20) && is_slow(ids[0], 30), "longer than the usual 20 ms");
        assert!(!is_slow(ids[1], 9) && is_slow(ids[1], 11), "never less than 10 ms");
        assert!(!is_slow(ids[2], 300), "nobody has asked for it");
        // What the settings say counts, and is learnt again when they no longer do.
        table.set_slow_after(ids[0], Some(Duration::from_millis(5)));
        (0..4).for_each(|_| table.learn());
        assert!(!is_slow(ids[0], 4) && is_slow(ids[0], 6));
        table.set_slow_after(ids[0], None);
        assert!(!is_slow(ids[0], 400));
        (0..4).for_each(|_| table.learn());
        assert!(is_slow(ids[0], 50));
    }

    #[test]
    fn phases_have_histograms_of_their_own() {
        let (table, ids) = with_routes(1);
        let millis = |millis: u64| Elapsed::nanos(millis * 1_000_000);
        table.took(ids[0], Phase::Queue, millis(5));
        table.took(ids[0], Phase::Application, millis(20));
        table.took(ids[0], Phase::FirstByte, millis(30));
        table.answered(ids[0], &Answered { has_first_byte: true, ..ended(200, 100_000) });
        table.answered(ids[0], &ended(200, 1_000));
        let (_, read) = table.read().remove(0);
        let Times { total, first_byte, queue, connect, application } = read.times;
        assert_eq!((total.count(), first_byte.count(), queue.count(), application.count()), (2, 2, 1, 1));
        assert!(connect.is_empty());
        let sum = |times: &Distribution| (times.sum_nanos() + 500) / 1_000_000;
        assert_eq!((sum(&total), sum(&first_byte), sum(&queue)), (101, 31, 5));
        assert!(total.quantile(1.0).as_millis() >= 100 && first_byte.quantile(1.0).as_millis() < 33);
    }

    #[test]
    fn without_histograms_left_times_are_the_sites() {
        let (table, ids) = with_routes(BLOCKS + 10);
        table.took(SeriesId::of(1), Phase::AtOnce, Elapsed::nanos(1)); // the site has one
        for id in &ids {
            table.answered(*id, &ended(200, 50));
            table.answered(*id, &ended(200, 50));
        }
        assert_eq!(table.folded(), 22);
        let read = table.read();
        let counted: u64 = read.iter().map(|(_, figures)| figures.times.total.count()).sum();
        assert_eq!(counted, 2 * ids.len() as u64 + 1);
        let sum: u64 = read.iter().map(|(_, figures)| figures.requests()).sum();
        assert_eq!(sum, 2 * ids.len() as u64);
    }

    /// Whoever has the histogram has the time, whatever takes the other ones.
    #[test]
    fn what_is_folded_is_in_the_sum_of_whom_it_is_counted_with() {
        let (table, ids) = with_routes(BLOCKS);
        let site = SeriesId::of(1);
        let answer = |id, millis: u64| {
            table.answered(id, &Answered { has_first_byte: true, ..ended(200, millis * 1000) })
        };
        table.answered(site, &ended(404, 1000));
        answer(site, 3);
        for id in &ids {
            table.answered(*id, &ended(200, 1000));
        }
        for id in [ids[0], ids[BLOCKS - 1]] {
            answer(id, 100);
            table.took(id, Phase::FirstByte, Elapsed::nanos(50_000_000));
        }
        let read: BTreeMap<u32, RouteFigures> =
            table.read().into_iter().map(|(id, figures)| (id.number(), figures)).collect();
        let told = |id: SeriesId| {
            let total = &read[&id.number()].times.total;
            (total.count(), (total.sum_nanos() + 500) / 1_000_000)
        };
        assert_eq!(told(ids[0]), (1, 1), "what took steps is the site's");
        assert!(
            !read.contains_key(&ids[BLOCKS - 1].number()) || told(ids[BLOCKS - 1]).0 == 0,
            "all of it is"
        );
        let folded = table.folded();
        let at_once = folded - 4;
        assert_eq!(told(site), (2 + at_once + 2, u128::from(1 + 3 + at_once + 200)));
        // Settings that have come make room only as far as there is any.
        table.prepare(&[SeriesId::NONE; 10]);
        answer(ids[0], 100);
        assert_eq!(table.folded(), folded + 1);
    }

    #[test]
    fn new_settings_have_histograms_for_those_that_had_none() {
        let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
        let names = |count: usize| SeriesNames {
            site: "a.test".into(),
            routes: (0..count).map(|route| format!("/{route}")).collect(),
        };
        let ids = directory.adopt(&[names(1)])[0].routes.to_vec();
        directory.extend(&table);
        table.store().used = SHELF; // as if others had them
        table.answered(ids[0], &ended(200, 1000));
        assert_eq!(table.folded(), 1);
        directory.adopt(&[names(100)]);
        directory.extend(&table);
        table.answered(ids[0], &ended(200, 2000));
        let read: BTreeMap<u32, RouteFigures> =
            table.read().into_iter().map(|(id, figures)| (id.number(), figures)).collect();
        let total = &read[&ids[0].number()].times.total;
        assert_eq!((table.folded(), total.count(), (total.sum_nanos() + 500) / 1_000_000), (1, 1, 2));
    }

    #[test]
    fn what_is_not_counted_has_a_name() {
        let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
        let names = SeriesNames { site: "a.test".into(), routes: vec!["/x".into()] };
        let id = directory.adopt(&[names])[0].routes[0].uncounted();
        directory.name_for(&table);
        table.answered(id, &ended(200, 1000));
        let name =
            table.name(id).map(|(site, route)| (site.to_string(), route.map(|route| route.to_string())));
        assert_eq!(name, Some(("a.test".to_owned(), Some("/x".to_owned()))));
        assert!(table.read().iter().all(|(of, _)| *of != id && *of != id.counted()));
    }

    #[test]
    fn a_bucket_that_wraps_loses_nothing() {
        let (table, ids) = with_routes(1);
        table.answered(ids[0], &ended(200, 1000));
        let (_, rest) = table.place(ids[0]).unwrap();
        let block = table.block(rest.blocks[0].load(Relaxed)).unwrap();
        let cell = block.buckets.iter().find(|cell| cell.load(Relaxed) == 1).unwrap();
        cell.store(u32::MAX, Relaxed);
        table.answered(ids[0], &ended(200, 1000));
        table.answered(ids[0], &ended(200, 1000));
        assert_eq!(table.read()[0].1.times.total.count(), (1 << 32) + 1);
    }
}
