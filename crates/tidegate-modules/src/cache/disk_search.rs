//! Looks through the disks of stores for an operator, who waits for a while and no longer.
//!
//! Each disk is read by a job in its own queue. One that does not answer, or has too much to be read in time, is told of, with what was
//! found there until then.

use crate::cache_desk::{Found, Unsearched};
use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_cache::disk::{DiskFigures, Trouble};
use tidegate_cache::{DiskListed, Filter, Store};
use tidegate_io::blocking;
use tidegate_io::locking::lock;

/// How long disks are read for one answer, all in all: less than the master waits for it.
const PATIENCE: Duration = Duration::from_secs(12);
/// So many are sorted at once at least.
const SORTED_AT_ONCE: usize = 256;
/// How often it is found out whether those that are waited for still answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A search under way, of one store after the other.
pub(super) struct Search {
    until: Instant,
}

/// How two are compared.
pub(super) type Order<T> = fn(&T, &T) -> Ordering;

/// What is kept of what is found: the first, or the first by an order.
pub(super) struct Best<T> {
    most: usize,
    order: Option<Order<T>>,
    found: Vec<T>,
}

impl<T> Best<T> {
    /// `most` at most; without an `order` those that are found first.
    pub(super) fn new(most: usize, order: Option<Order<T>>) -> Best<T> {
        Best { most, order, found: Vec::new() }
    }

    /// Adds one; whether others are wanted.
    pub(super) fn add(&mut self, one: T) -> bool {
        self.found.push(one);
        match self.order {
            None => self.found.len() < self.most,
            Some(_) => {
                if self.found.len() >= 2 * self.most.max(SORTED_AT_ONCE) {
                    self.cut();
                }
                true
            }
        }
    }

    fn cut(&mut self) {
        if let Some(order) = self.order {
            self.found.sort_by(order);
        }
        self.found.truncate(self.most);
    }

    /// Those that are kept, in their order.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.cut();
        std::mem::take(&mut self.found)
    }
}

/// What a job is to look for.
struct Wanted<F> {
    host: Option<String>,
    meant_host: Option<String>,
    target: Option<String>,
    prefix: Option<String>,
    mark: Option<u64>,
    describe: F,
}

/// One disk.
struct Part<T> {
    found: Mutex<Best<T>>,
    is_done: AtomicBool,
    /// Nobody waits any longer.
    is_over: AtomicBool,
}

impl Search {
    pub(super) fn begin() -> Search {
        Search { until: Instant::now() + PATIENCE }
    }

    /// What the disks of a store have that the memory has not, of each disk `most` at most. Where there is an order all is read, else as much
    /// as is needed. Waits.
    pub(super) fn carry_out<T: Send + 'static>(
        &self,
        store: &Arc<Store>,
        filter: &Filter<'_>,
        (most, order): (usize, Option<Order<T>>),
        describe: impl Fn(&DiskListed) -> T + Send + Sync + 'static,
    ) -> Found<T> {
        let mut found = Found::default();
        if most == 0 {
            return found;
        }
        let Filter { host, meant_host, target, prefix, mark } = *filter;
        let [host, meant_host, target, prefix] =
            [host, meant_host, target, prefix].map(|text| text.map(str::to_owned));
        let wanted = Arc::new(Wanted { host, meant_host, target, prefix, mark, describe });
        let (sender, ended) = channel();
        let begin = |(disk, figures): (u16, &DiskFigures)| {
            let found = Mutex::new(Best::new(most, order));
            let part =
                Arc::new(Part { found, is_done: AtomicBool::new(false), is_over: AtomicBool::new(false) });
            // Nothing is read of one that is known not to answer.
            if figures.is_read {
                read(store, disk, &wanted, &part, sender.clone());
            }
            part
        };
        let figures = store.disk_figures();
        let parts: Vec<Arc<Part<T>>> = (0..).zip(&figures).map(begin).collect();
        drop(sender);
        let is_awaited = |(disk, part): (u16, &Arc<Part<T>>)| {
            !part.is_done.load(Relaxed) && store.is_disk_read(disk) && Instant::now() < self.until
        };
        while (0..).zip(&parts).any(is_awaited) {
            if ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        for (part, figures) in parts.iter().zip(store.disk_figures()) {
            part.is_over.store(true, Relaxed);
            found.entries.append(&mut lock(&part.found).take());
            if !part.is_done.load(Relaxed) {
                found.unsearched.extend(why_not(figures));
            }
        }
        found
    }
}

/// Has a disk read by a job of the pool.
fn read<T: Send + 'static, F: Fn(&DiskListed) -> T + Send + Sync + 'static>(
    store: &Arc<Store>,
    disk: u16,
    wanted: &Arc<Wanted<F>>,
    part: &Arc<Part<T>>,
    ended: Sender<()>,
) {
    let (held, wanted, part) = (store.clone(), wanted.clone(), part.clone());
    let _ = blocking::start(store.disk_queue(disk), move || {
        let Wanted { host, meant_host, target, prefix, mark, describe } = &*wanted;
        let [host, meant_host, target, prefix] = [host, meant_host, target, prefix].map(Option::as_deref);
        let filter = Filter { host, meant_host, target, prefix, mark: *mark };
        let mut is_enough = false;
        let are_all = held.list_disk(disk, &filter, |listed| {
            if part.is_over.load(Relaxed) {
                return false;
            }
            if let Some(one) = listed.as_ref().map(describe) {
                is_enough = !lock(&part.found).add(one);
            }
            !is_enough
        });
        part.is_done.store(are_all || is_enough, Relaxed);
        let _ = ended.send(());
    });
}

/// Why not all of a disk was read; `None`: it is not ours to read.
pub(super) fn why_not(figures: DiskFigures) -> Option<Unsearched> {
    let why = match figures.trouble {
        _ if figures.is_closed => return None,
        Some(Trouble::Owned) => return None,
        Some(trouble) => trouble.to_string(),
        None => format!("was not read to its end within {}s", PATIENCE.as_secs()),
    };
    Some(Unsearched { folder: figures.folder, why })
}
