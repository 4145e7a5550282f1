//! Content that the memory has no room for goes to a disk while it comes in.
//!
//! It is a reader of the content like any client, read by jobs of the blocking pool: what it has not written yet stays in memory, within the window
//! of a content that is passed on. So the disk sets the pace, and clients that are slower read its file
//! ([`Backing`](crate::backing::Backing)). One that takes nothing at all is done without ([`Spool::give_up`]); then the clients do. As
//! long as it goes on, others find the entry in memory, then the object, whole or, where the content was left off, in part.

use super::Tier;
use super::write::Place;
use crate::backing::Backing;
use crate::content::BLOCK;
use crate::disk::{DiskEntry, DiskError, DiskFill, Id, NewObject};
use crate::encoding::{Encoded, variant_of};
use crate::entry::Entry;
use crate::purge::Standing;
use crate::reader::Reader;
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
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
    /// Of the part that it goes on with.
    part: Option<Id>,
    /// Where it sits among the readers, as long as it does: another one may have the seat afterwards.
    seat: Mutex<Option<usize>>,
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
        let disk = tier.disks.place(tier.hash(entry.key()))?;
        Spool::start(store, entry, (disk, None))
    }

    /// Goes on with the file of a part, behind which the content begins.
    pub(crate) fn resume(store: &Arc<Store>, entry: &Arc<Entry>, part: &Entry) -> Option<Arc<Spool>> {
        let (disk, id) = part.content().file()?.place()?;
        Spool::start(store, entry, (disk, Some(id)))
    }

    fn start(store: &Arc<Store>, entry: &Arc<Entry>, (disk, part): (u16, Option<Id>)) -> Option<Arc<Spool>> {
        let tier = store.tier.get()?;
        let place = tier.waiting.take(0, u64::MAX)?;
        let reader = entry.content().reader(entry.content().filled_before()..u64::MAX)?;
        let spool = Arc::new(Spool {
            store: store.clone(),
            entry: entry.clone(),
            disk,
            hash: tier.hash(entry.key()),
            queue_key: tier.disks.queue_key(disk),
            part,
            seat: Mutex::new(reader.seat()),
            is_given_up: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            work: Mutex::new(Some(Work { reader, fill: None, _place: place })),
        });
        entry.content().is_to_be_spooled();
        spool.schedule();
        Some(spool)
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// The disk is not waited for any more, and the object not stored. May be called while it is waited for.
    pub(crate) fn give_up(&self) {
        if !self.is_given_up.swap(true, SeqCst) {
            self.withdraw();
            let seat = lock(&self.seat);
            self.entry.content().advance(*seat, u64::MAX);
        }
    }

    /// Nobody finds the entry any more, and its readers set the pace.
    fn withdraw(&self) {
        // In this order: who is about to put it into the index sees that it is too late, or is found there.
        self.entry.content().is_spooled_no_more();
        self.store.unlink(&self.entry);
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
            // The disk has failed, and not the fetch.
            Poll::Ready(Err(_)) if !self.is_given_up() && !self.entry.content().is_broken() => {
                self.store.counters.pass_on();
            }
            Poll::Ready(_) => {}
        }
        if !self.is_given_up.swap(true, SeqCst) {
            self.withdraw();
        }
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
        let content = self.entry.content();
        let mut buffer = vec![0; BLOCK];
        while !self.is_given_up() {
            let count = match work.reader.poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                // All of it that has come was read.
                Poll::Ready(Err(_)) if content.is_part() => return Poll::Ready(Ok(())),
                Poll::Ready(count) => count?,
            };
            if let Some(fill) = &mut work.fill {
                fill.write(&buffer[..count])?;
                content.has_written(fill.position());
            }
        }
        Poll::Ready(Ok(()))
    }

    fn create(&self) -> Result<DiskFill, DiskError> {
        let tier = self.store.tier.get().ok_or(DiskError::Out)?;
        let (entry, head) = (&self.entry, self.entry.head());
        if let Some(part) = self.part {
            let fill = tier.disks.resume(self.disk, part, entry.key())?;
            let is_next = fill.position() == entry.content().filled_before();
            return if is_next { Ok(fill) } else { Err(DiskError::Order) };
        }
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
        let mut fill = tier.disks.create(self.disk, &new)?;
        if let Some(file) = fill.share() {
            entry.content().lies_in(Backing::of_fill(file, self.queue_key));
        }
        Ok(fill)
    }

    /// All of it is written, or all that has come. What has come in since for the same requests is newer, and stays.
    fn end(&self, work: &mut Work) {
        let (Some(tier), Some(fill)) = (self.store.tier.get(), work.fill.take()) else { return };
        let is_whole = !self.entry.content().is_part();
        if is_whole {
            self.entry.content().let_go();
        }
        let place = (self.disk, self.hash);
        let Ok(object) = tier.finish(place, (fill, is_whole), || self.is_wanted(tier)) else { return };
        if self.part.is_some() {
            let head = self.entry.head();
            let encoded = Encoded::of(head);
            let head = (encoded.as_head(head), self.entry.born(), self.entry.stored());
            // An object that does not get its head is removed.
            let _ = tier.disks.rewrite_head(&object, self.entry.key(), head);
        }
        if is_whole {
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
        // A part takes the place of nothing that is whole.
        let is_whole = |object: &DiskEntry| object.variant == variant && object.is_whole;
        let is_left_off = entry.content().is_part();
        // It is not in the memory's index for long, so nobody looks at it before purges are forgotten.
        entry.check() == Standing::Current
            && self.store.purges.forgotten() <= entry.born()
            && !tier
                .newest(self.hash)
                .iter()
                .any(|object| is_newer(object) || is_left_off && is_whole(object))
            && !self.store.has_newer(entry)
    }
}

impl Wake for Spool {
    fn wake(self: Arc<Self>) {
        self.schedule();
    }
}
