//! The disks of a store, as workers see them: nothing here waits for one.
//!
//! A request for what only a disk has waits while the pool reads it in, and then looks it up anew. A disk that does not answer in
//! time is as good as one that has nothing.

use super::{Attempt, Class, Finding, Shared};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tidegate_cache::disk::DiskSettings;
use tidegate_cache::{OnDisk, Store};
use tidegate_config::settings::{CacheDisk, CacheStore};
use tidegate_core::{Exchange, Pass, Reply, log};
use tidegate_io::clock::wall_seconds;
use tidegate_io::locking::lock;
use tidegate_io::{blocking, runtime, timer};

/// How long a request waits for a disk before the application is asked.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// How often disks are looked after.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Whether the disks of a store are still being opened. Requests wait for that: else a restart would begin with a crowd of misses.
#[derive(Default)]
pub(super) struct Opening {
    is_under_way: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Opening {
    pub(super) fn begin() -> Arc<Opening> {
        Arc::new(Opening { is_under_way: AtomicBool::new(true), waiting: Mutex::default() })
    }

    fn is_under_way(&self) -> bool {
        self.is_under_way.load(Acquire)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = lock(&self.waiting);
        if !self.is_under_way() {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn end(&self) {
        let waiting = {
            let mut waiting = lock(&self.waiting);
            self.is_under_way.store(false, Release);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What a request waits for.
pub(super) enum Below {
    /// Nobody knows yet what the disks have.
    Opening,
    Object(OnDisk),
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
        let other = if finding.class == Class::Anyone { Class::Cookies } else { Class::Anyone };
        own.or_else(|| self.with_key(exchange, other, |key| self.store.on_disk(key, &[]))).map(Below::Object)
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
                let (opening, attempt) = (self.opening.clone(), Attempt { has_waited: true, ..attempt });
                let opened = in_time(poll_fn(move |cx| opening.poll(cx)));
                exchange.answer_after(opened, move |(), exchange| shared.look_up(exchange, pass, attempt))
            }
            Below::Object(on_disk) => {
                let attempt = Attempt { has_read: true, ..attempt };
                let (store, queue_key) = (self.store.clone(), on_disk.queue_key());
                match blocking::run_in(queue_key, move || store.read_in(&on_disk)) {
                    Ok(read) => exchange.answer_after(in_time(read), move |(), exchange| {
                        shared.look_up(exchange, pass, attempt)
                    }),
                    Err(_) => self.look_up(exchange, pass, attempt),
                }
            }
        }
    }
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

/// Opens the disks of a store, and has each looked after.
pub(super) async fn open(store: Weak<Store>, settings: Vec<DiskSettings>, opening: Arc<Opening>) {
    loop {
        let (held, settings) = (store.clone(), settings.clone());
        let opening = blocking::run(move || {
            if let Some(store) = held.upgrade() {
                store.open_disks(&settings, wall_seconds());
            }
        });
        if let Ok(opening) = opening {
            opening.await;
            break;
        }
        timer::after(TEND_EVERY).await;
    }
    opening.end();
    let disks = store.upgrade().map_or(0, |store| store.disks());
    for disk in 0..disks {
        let _ = runtime::try_with(|runtime| runtime.spawn(tend(store.clone(), disk)));
    }
}

/// Looks after a disk for as long as somebody has the store. One that does not answer holds up this task alone.
async fn tend(store: Weak<Store>, disk: u16) {
    loop {
        let Some(held) = store.upgrade() else { return };
        let tended = blocking::run_in(held.disk_queue(disk), move || held.tend_disk(disk, wall_seconds()));
        if let Ok(tended) = tended
            && let Some(notice) = tended.await
        {
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
    let (sender, saved) = channel();
    let deadline = Instant::now() + patience;
    for store in stores {
        for disk in 0..store.disks() {
            let (held, sender) = (store.clone(), sender.clone());
            let _ = blocking::start(store.disk_queue(disk), move || {
                held.save_disk(disk, deadline.saturating_duration_since(Instant::now()));
                let _ = sender.send(());
            });
        }
    }
    drop(sender);
    while saved.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {}
}
