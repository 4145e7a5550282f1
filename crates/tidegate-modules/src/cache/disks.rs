//! The disks of a store, as workers see them: nothing here waits for one.
//!
//! A request for what only a disk has waits while the pool reads it in, and then looks it up anew. A disk that does not answer in
//! time is as good as one that has nothing.

use super::{Attempt, Class, Finding, Shared};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tidegate_cache::disk::{self, DiskSettings};
use tidegate_cache::{Awaited, OnDisk, Store};
use tidegate_config::settings::{CacheDisk, CacheStore};
use tidegate_core::{Exchange, Pass, Reply, log};
use tidegate_io::blocking::Pending;
use tidegate_io::clock::wall_seconds;
use tidegate_io::locking::lock;
use tidegate_io::{blocking, runtime, timer};

/// How long a request waits for a disk before the application is asked.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// How often disks are looked after.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// How long requests wait for disks to be opened, all in all: one that hangs costs a start so much, and what comes later nothing.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);
/// How long each folder is waited for at the start, to say what its keys are hashed with, once another one has said it.
const SEED_PATIENCE: Duration = Duration::from_secs(2);

/// How long a response that is under way waits for its disk: as long as a client may be slow (`rate-grace`).
pub(super) struct Patience(AtomicU64);

impl Default for Patience {
    fn default() -> Patience {
        Patience(AtomicU64::new(30_000))
    }
}

impl Patience {
    pub(super) fn set(&self, patience: Duration) {
        self.0.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
}

/// Whether the disks of a store are still being opened. Requests wait for that: else a restart would begin with a crowd of misses.
#[derive(Default)]
pub(super) struct Opening {
    is_under_way: AtomicBool,
    /// Disks that have not answered yet.
    left: AtomicUsize,
    /// As long as no disk is known: see [`Opening::silent`].
    silent: Mutex<Vec<(PathBuf, i64)>>,
    waiting: Mutex<Waiting>,
    /// For who waits without a worker.
    ended: Condvar,
}

/// Requests that wait, by numbers of their own.
#[derive(Default)]
struct Waiting {
    wakers: HashMap<u64, Waker>,
    next: u64,
}

/// The end of an opening, for one request.
struct Opened {
    opening: Arc<Opening>,
    number: Option<u64>,
}

impl Opening {
    pub(super) fn begin() -> Arc<Opening> {
        Arc::new(Opening { is_under_way: AtomicBool::new(true), ..Opening::default() })
    }

    fn is_under_way(&self) -> bool {
        self.is_under_way.load(Acquire)
    }

    fn opened(self: &Arc<Self>) -> Opened {
        Opened { opening: self.clone(), number: None }
    }

    /// A disk has been opened, or cannot be now.
    fn has_answered(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.end();
        }
    }

    /// Waits for its end, as requests do. Blocks, for as long as they wait at most.
    pub(super) fn wait(&self) {
        let waiting = lock(&self.waiting);
        drop(self.ended.wait_timeout_while(waiting, OPENING_PATIENCE, |_| self.is_under_way()));
    }

    fn end(&self) {
        let waiting = {
            let mut waiting = lock(&self.waiting);
            self.is_under_way.store(false, Release);
            std::mem::take(&mut waiting.wakers)
        };
        self.ended.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Future for Opened {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut waiting = lock(&this.opening.waiting);
        if !this.opening.is_under_way() {
            return Poll::Ready(());
        }
        let number = *this.number.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let before = waiting.wakers.insert(number, cx.waker().clone());
        drop(waiting);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let waker = self.number.and_then(|number| lock(&self.opening.waiting).wakers.remove(&number));
        drop(waker);
    }
}

/// What a request waits for.
pub(super) enum Below {
    /// Nobody knows yet what the disks have.
    Opening,
    Objects(SmallVec<[OnDisk; 1]>),
}

impl Shared {
    /// What disks may have for a request that nothing in memory fits.
    pub(super) fn below(
        &self,
        exchange: &Exchange<'_>,
        finding: &Finding,
        attempt: Attempt,
    ) -> Option<Below> {
        if !attempt.has_waited && self.opening.is_under_way() {
            return Some(Below::Opening);
        }
        if attempt.has_read || self.store.disks() == 0 {
            return None;
        }
        let own = self.with_key(exchange, finding.class, |key| self.store.on_disk(key, &finding.known));
        let other = if finding.class.is_open() { Class::COOKIES } else { Class::ANYONE };
        let found = match own.is_empty() {
            true => self.with_key(exchange, other, |key| self.store.on_disk(key, &[])),
            false => own,
        };
        (!found.is_empty()).then_some(Below::Objects(found))
    }

    /// Waits for it, and looks again.
    pub(super) fn ask_below(
        self: &Rc<Self>,
        exchange: &mut Exchange<'_>,
        pass: Pass,
        below: Below,
        attempt: Attempt,
    ) -> Reply {
        let shared = self.clone();
        match below {
            Below::Opening => {
                let (opened, attempt) = (self.opening.opened(), Attempt { has_waited: true, ..attempt });
                exchange.answer_after(in_time(opened), move |(), exchange| {
                    shared.look_up(exchange, pass, attempt)
                })
            }
            Below::Objects(found) => {
                let attempt = Attempt { has_read: true, ..attempt };
                let reads = begin_reads(&self.store, found);
                if reads.is_empty() {
                    return self.look_up(exchange, pass, attempt);
                }
                let read = read_in_time(self.store.clone(), reads);
                exchange.answer_after(read, move |(), exchange| shared.look_up(exchange, pass, attempt))
            }
        }
    }
}

type Reads = SmallVec<[(Awaited, Pending<()>); 1]>;

/// A job for each disk; one whose queue is full has none.
fn begin_reads(store: &Arc<Store>, found: SmallVec<[OnDisk; 1]>) -> Reads {
    let begin = |on_disk: OnDisk| {
        let (store, awaited, queue_key) = (store.clone(), on_disk.awaited(), on_disk.queue_key());
        let read = blocking::run_in(queue_key, move || store.read_in(&on_disk)).ok()?;
        Some((awaited, read))
    };
    found.into_iter().filter_map(begin).collect()
}

/// The end of all of them, or of the patience for them.
async fn read_in_time(store: Arc<Store>, mut reads: Reads) {
    let all = poll_fn(|cx| {
        reads.retain(|(_, read)| Pin::new(read).poll(cx).is_pending());
        if reads.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    in_time(all).await;
    reads.iter().for_each(|(awaited, _)| store.is_late(*awaited));
}

/// The end of a job, or of the patience for it: one that has not begun by then is not carried out.
async fn in_time(job: impl Future<Output = ()>) {
    let (mut job, mut late) = (pin!(job), pin!(timer::after(READ_PATIENCE)));
    poll_fn(|cx| match job.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => late.as_mut().poll(cx).map(drop),
    })
    .await;
}

/// What the disks of a store are opened with, for one of so many processes.
pub(super) fn disk_settings(settings: &CacheStore, processes: u16) -> Vec<DiskSettings> {
    let disk =
        |disk: &CacheDisk| DiskSettings { folder: disk.path.clone(), size: disk.size, slots: processes };
    settings.disks.iter().map(disk).collect()
}

/// Opens the disks of a store, each by its own job, and has each looked after.
pub(super) async fn open(
    store: Weak<Store>,
    settings: Vec<DiskSettings>,
    opening: Arc<Opening>,
    patience: Arc<Patience>,
) {
    let told = opening.clone();
    let _ = runtime::try_with(|runtime| {
        runtime.spawn(async move {
            timer::after(OPENING_PATIENCE).await;
            told.end();
        });
    });
    let seed = known_seed(&settings, &opening).await;
    let Some(held) = store.upgrade() else { return opening.end() };
    held.place_disks(&settings, seed, wall_seconds());
    lock(&opening.silent).clear();
    let disks = held.disks();
    drop(held);
    opening.left.store(usize::from(disks), Release);
    let _ = runtime::try_with(|runtime| runtime.spawn(watch(store.clone(), patience)));
    for disk in 0..disks {
        let _ = runtime::try_with(|runtime| runtime.spawn(tend(store.clone(), disk, opening.clone())));
    }
}

/// Finds out whether disks answer, and waits for none: as long as a task of one does, somebody has to say so.
async fn watch(store: Weak<Store>, patience: Arc<Patience>) {
    loop {
        timer::after(TEND_EVERY).await;
        let Some(held) = store.upgrade() else { return };
        for disk in 0..held.disks() {
            match held.watch_disk(disk, wall_seconds(), patience.get()) {
                Some(notice) if notice.ended_after.is_some() => log::info(notice),
                Some(notice) => log::warn(notice),
                None => {}
            }
        }
    }
}

/// What keys are hashed with: the first folder that has it says so. One that does not answer is waited for until another one does:
/// without it what lies there would be lost.
async fn known_seed(settings: &[DiskSettings], opening: &Opening) -> Option<u64> {
    let mut asked = Vec::new();
    for DiskSettings { folder, .. } in settings {
        asked.push(loop {
            let folder = folder.clone();
            match blocking::run(move || disk::known_seed(&folder)) {
                Ok(asked) => break asked,
                Err(_) => timer::after(TEND_EVERY).await,
            }
        });
    }
    let mut answers = vec![None; asked.len()];
    let (mut late, mut is_late) = (pin!(timer::after(SEED_PATIENCE)), false);
    poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(seed) = Pin::new(asked).poll(cx) {
                *answer = Some(seed);
            }
        }
        if !is_late && late.as_mut().poll(cx).is_ready() {
            is_late = true;
            let silent = settings.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
            opening.wait_for(silent.map(|(settings, _)| settings.folder.clone()));
        }
        let known = answers.iter().flatten().find_map(|seed| *seed);
        let is_enough = answers.iter().all(Option::is_some) || (is_late && known.is_some());
        if is_enough { Poll::Ready(known) } else { Poll::Pending }
    })
    .await
}

impl Opening {
    /// These folders did not say what they hold; none is used until one does.
    fn wait_for(&self, silent: impl Iterator<Item = PathBuf>) {
        let now = wall_seconds();
        for folder in silent {
            log::warn(format_args!(
                "cache folder {} is stalled: it does not answer; what lies there is not used until it does",
                folder.display()
            ));
            lock(&self.silent).push((folder, now));
        }
    }

    /// Folders that did not answer when the store was to be opened, and since when, Unix seconds.
    pub(super) fn silent(&self) -> Vec<(PathBuf, i64)> {
        lock(&self.silent).clone()
    }
}

/// Opens a disk and looks after it for as long as somebody has the store. One that does not answer holds up this task alone.
async fn tend(store: Weak<Store>, disk: u16, opening: Arc<Opening>) {
    let mut opening = Some(opening);
    loop {
        let Some(held) = store.upgrade() else { return };
        let tended = blocking::run_in(held.disk_queue(disk), move || held.tend_disk(disk, wall_seconds()));
        let notice = match tended {
            Ok(tended) => tended.await,
            Err(_) => None,
        };
        if let Some(opening) = opening.take() {
            opening.has_answered();
        }
        if let Some(notice) = notice {
            match notice.trouble {
                Some(_) => log::warn(notice),
                None => log::info(notice),
            }
        }
        timer::after(TEND_EVERY).await;
    }
}

/// Lets go of the disks that the settings name no more.
pub(super) fn close_unnamed(store: &Arc<Store>, settings: &CacheStore) {
    let is_named = |folder: &Path| settings.disks.iter().any(|disk| disk.path == folder);
    for disk in store.disks_beside(is_named) {
        let held = store.clone();
        // Where it is not started, the next reload does it.
        let _ = blocking::start(store.disk_queue(disk), move || {
            held.close_disk(disk);
            let folder = held.disk_figures().into_iter().nth(disk.into()).map(|figures| figures.folder);
            let folder = folder.unwrap_or_default();
            log::info(format_args!(
                "cache folder {} is not in use any more: the settings do not name it",
                folder.display()
            ));
        });
    }
}

/// Has all disks of these stores saved, and waits for it, at most so long.
pub(super) fn save(stores: &[Arc<Store>], patience: Duration) {
    on_all_disks(stores, patience, |store, disk, left| store.save_disk(disk, left));
}

/// Has all disks of these stores note what was purged, and waits for it, at most so long.
pub(super) fn note_purges(stores: &[Arc<Store>], patience: Duration) {
    on_all_disks(stores, patience, |store, disk, _| store.note_purges_on(disk));
}

/// A job for each disk, which is told how long it is waited for.
fn on_all_disks(stores: &[Arc<Store>], patience: Duration, job: fn(&Store, u16, Duration)) {
    let (sender, done) = channel();
    let deadline = Instant::now() + patience;
    for store in stores {
        for disk in 0..store.disks() {
            let (held, sender) = (store.clone(), sender.clone());
            let _ = blocking::start(store.disk_queue(disk), move || {
                job(&held, disk, deadline.saturating_duration_since(Instant::now()));
                let _ = sender.send(());
            });
        }
    }
    drop(sender);
    while done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who have lost patience leave nothing behind.
    #[test]
    fn who_waits_for_an_opening_is_woken_or_leaves() {
        let opening = Opening::begin();
        opening.left.store(2, Release);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..10).map(|_| opening.opened()).collect();
        for opened in waiting.iter_mut().chain([&mut opening.opened()]) {
            for _ in 0..2 {
                assert_eq!(Pin::new(&mut *opened).poll(&mut cx), Poll::Pending);
            }
        }
        assert_eq!(lock(&opening.waiting).wakers.len(), 10);
        waiting.truncate(3);
        assert_eq!(lock(&opening.waiting).wakers.len(), 3);
        opening.has_answered();
        assert!(opening.is_under_way());
        std::thread::scope(|scope| {
            let sees = scope.spawn(|| {
                opening.wait();
                opening.is_under_way()
            });
            opening.has_answered();
            assert!(!sees.join().unwrap(), "whoever has waited sees the end");
        });
        assert!(!opening.is_under_way() && lock(&opening.waiting).wakers.is_empty());
        assert!(waiting.iter_mut().all(|opened| Pin::new(opened).poll(&mut cx).is_ready()));
    }
}
