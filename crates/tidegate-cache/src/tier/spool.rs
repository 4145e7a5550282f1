//! Content that the memory has no room for goes to a disk while it comes in.
//!
//! It is a reader of the content like any client, read by jobs of the blocking pool: what it has not written yet stays in memory, within the window
//! of a content that is passed on. So the disk sets the pace together with the clients. One that takes nothing at all is done
//! without ([`Spool::give_up`]). The object is there for others once it is complete.

use super::Tier;
use super::write::Place;
use crate::content::BLOCK;
use crate::disk::{DiskEntry, DiskError, DiskFill, NewObject};
use crate::encoding::{Encoded, variant_of};
use crate::entry::Entry;
use crate::purge::Standing;
use crate::reader::Reader;
use crate::store::Store;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tidegate_io::blocking::{self, QueueKey};
use tidegate_io::locking::lock;

/// One content on its way to a disk.
pub(crate) struct Spool {
    store: Arc<Store>,
    entry: Arc<Entry>,
    disk: u16,
    hash: u128,
    queue_key: QueueKey,
    /// Where it sits among the readers, as long as it does: another one may have the seat afterwards.
    seat: Mutex<Option<usize>>,
    /// Bytes that are written.
    written: AtomicU64,
    is_given_up: AtomicBool,
    is_scheduled: AtomicBool,
    /// `None`: it has ended. Held while a disk is waited for.
    pub(super) work: Mutex<Option<Work>>,
}

pub(super) struct Work {
    reader: Reader,
    fill: Option<DiskFill>,
    _place: Place,
}

impl Spool {
    /// Begins, where a disk takes it. The content still has its first byte.
    pub(crate) fn begin(store: &Arc<Store>, entry: &Arc<Entry>) -> Option<Arc<Spool>> {
        let tier = store.tier.get()?;
        let hash = tier.hash(entry.key());
        let disk = tier.disks.place(hash)?;
        let place = tier.waiting.take(0, u64::MAX)?;
        let reader = entry.content().reader(0..u64::MAX)?;
        let spool = Arc::new(Spool {
            store: store.clone(),
            entry: entry.clone(),
            disk,
            hash,
            queue_key: tier.disks.queue_key(disk),
            seat: Mutex::new(reader.seat()),
            written: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            work: Mutex::new(Some(Work { reader, fill: None, _place: place })),
        });
        spool.schedule();
        Some(spool)
    }

    /// Bytes that are written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// The disk is not waited for any more, and the object not stored. May be called while it is waited for.
    pub(crate) fn give_up(&self) {
        if !self.is_given_up.swap(true, SeqCst) {
            let seat = lock(&self.seat);
            self.entry.content().advance(*seat, u64::MAX);
        }
    }

    fn schedule(self: &Arc<Self>) {
        if self.is_scheduled.swap(true, SeqCst) {
            return;
        }
        let spool = self.clone();
        if blocking::start(self.queue_key, move || spool.go_on()).is_err() {
            self.give_up();
        }
    }

    /// Writes what is there, until more has to come.
    fn go_on(self: Arc<Self>) {
        self.is_scheduled.store(false, SeqCst);
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        let mut work = lock(&self.work);
        let Some(under_way) = work.as_mut() else { return };
        match self.write(under_way, &mut cx) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) if !self.is_given_up() => self.end(under_way),
            Poll::Ready(_) => {}
        }
        self.is_given_up.store(true, SeqCst);
        *lock(&self.seat) = None;
        // The fill gives its bytes back, and the reader its seat.
        let ended = work.take();
        drop(work);
        drop(ended);
    }

    /// Ready at the end, or where it will not come to one.
    fn write(&self, work: &mut Work, cx: &mut Context<'_>) -> Poll<Result<(), DiskError>> {
        if work.fill.is_none() {
            work.fill = Some(self.create()?);
        }
        let mut buffer = vec![0; BLOCK];
        while !self.is_given_up() {
            let count = match work.reader.poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(count) => count?,
            };
            if let Some(fill) = &mut work.fill {
                fill.write(&buffer[..count])?;
            }
            self.written.fetch_add(count as u64, Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn create(&self) -> Result<DiskFill, DiskError> {
        let tier = self.store.tier.get().ok_or(DiskError::Out)?;
        let (entry, head) = (&self.entry, self.entry.head());
        let encoded = Encoded::of(head);
        let new = NewObject {
            hash: self.hash,
            key: entry.key(),
            head: encoded.as_head(head),
            variant: variant_of(&head.varying),
            mark: entry.born(),
            length: entry.content().announced(),
            now: entry.stored(),
        };
        tier.disks.create(self.disk, &new)
    }

    /// All of it is written. What has come in since for the same requests is newer, and stays.
    fn end(&self, work: &mut Work) {
        let (Some(tier), Some(fill)) = (self.store.tier.get(), work.fill.take()) else { return };
        if tier.finish((self.disk, self.hash), fill, || self.is_wanted(tier)).is_ok() {
            self.store.supersede(&self.entry);
        }
    }

    fn is_wanted(&self, tier: &Tier) -> bool {
        let entry = &self.entry;
        let variant = variant_of(&entry.head().varying);
        let is_newer = |object: &DiskEntry| {
            object.variant == variant
                && (i64::from(object.stored_at), object.mark) > (entry.stored(), entry.born())
        };
        // It is not in the memory's index, so nobody looks at it before purges are forgotten.
        entry.check() == Standing::Current
            && self.store.purges.forgotten() <= entry.born()
            && !tier.newest(self.hash).iter().any(is_newer)
            && !self.store.has_newer(entry)
    }
}

impl Wake for Spool {
    fn wake(self: Arc<Self>) {
        self.schedule();
    }
}
