//! An open file that is sent a piece at a time, and what is known of its pages: `sendfile(2)` waits for those
//! that are not in memory, and a worker must not.
//!
//! `tidegate-core` asks before each piece. What was seen in memory a moment ago is not looked for again, so
//! that a file in demand costs no call. Else both ends of the piece are asked for with
//! `preadv2(RWF_NOWAIT)`, which is where a file that was read and one that was not differ. What is cold the
//! pool brings in, once for all who wait for it, in front of a reader that goes on.
//!
//! A disk that does not answer is waited for as long as whoever owns the file has patience ([`give_up`]).
//!
//! Not `cachestat(2)`: it counts pages that are still being read, sees nothing through overlayfs, and new
//! kernels refuse it to those who may only read the file.

use crate::blocking::{self, QueueKey};
use crate::clock::monotonic_ns;
use crate::file::{FileFd, Patience, read_at};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What is looked for, brought in and sent at a time, bytes.
pub const PIECE: u64 = 1 << 20;
/// How long pages that were seen in memory are taken to be there.
const WARM_FOR: Duration = Duration::from_secs(2);
/// Bytes asked of the disk at a time; the kernel takes no more than its own read-ahead per call.
const ADVICE: u64 = 128 << 10;
/// Ranges remembered for one file.
const MOST_KNOWN: usize = 64;

/// An open file and what is known of its pages. One for each worker that has it open.
#[derive(Debug)]
pub struct PagedFile {
    /// `None` once it is on its way to where it is closed: whoever lets go last closes, and that must be the pool.
    fd: Option<Arc<OwnedFd>>,
    queue_key: QueueKey,
    known: RefCell<Vec<Known>>,
    /// The file system has no disk behind it. Found out by the pool: asking may wait for one.
    is_memory: Arc<OnceLock<bool>>,
    /// Opening it had to wait.
    is_slow: bool,
    /// Who has opened it for all workers, and closes it.
    owner: Option<Owner>,
}

/// Who has a file open for all workers, and sees to it that the pool closes it.
pub trait FileOwner: Send + Sync {
    /// The file cannot be read. On any thread, and not to wait.
    fn has_failed(&self, error: Errno);
}

/// Ranges of owned files on their way into memory: their devices, and since when.
static OWNED: Mutex<Vec<(u64, u64, Weak<Reading>)>> = Mutex::new(Vec::new());

/// Who has waited for so long for an owned file on this device waits no longer, and hears of an error. To be called every now and
/// then by who owns files.
pub fn give_up(device: u64, patience: Duration) {
    let (now, mut late) = (monotonic_ns(), Vec::new());
    OWNED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(on, since, reading)| {
        let under_way = reading.upgrade().filter(|reading| reading.done.get().is_none());
        let is_late = *on == device && u128::from(now.saturating_sub(*since)) >= patience.as_nanos();
        match under_way {
            Some(reading) if is_late => late.push(reading),
            Some(_) => return true,
            None => {}
        }
        false
    });
    late.iter().for_each(|reading| reading.finish(Err(Errno::TIMEDOUT)));
}

/// What keeps a file open.
#[derive(Clone)]
struct Owner(Arc<dyn FileOwner>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owner")
    }
}

/// A range of the file.
#[derive(Debug)]
struct Known {
    start: u64,
    end: u64,
    /// When it was seen in memory, monotonic nanoseconds; not yet meaningful while it is read.
    at: u64,
    reading: Option<Arc<Reading>>,
}

/// A range on its way into memory.
#[derive(Debug, Default)]
struct Reading {
    done: OnceLock<Done>,
    waiting: Mutex<Vec<Waker>>,
}

#[derive(Debug, Clone, Copy)]
struct Done {
    at: u64,
    /// How far it came, or the error at its very beginning.
    result: Result<u64, Errno>,
}

impl PagedFile {
    /// An open file with its device and inode.
    pub fn new(fd: FileFd, identity: (u64, u64)) -> PagedFile {
        let (fd, is_slow) = fd.take();
        // The kernel reads nothing ahead on its own: asking a busy disk for more is a wait as well, and would
        // be the worker's. The pool asks for whole pieces.
        let _ = fadvise(&fd, 0, None, Advice::Random);
        PagedFile {
            fd: Some(Arc::new(fd)),
            queue_key: QueueKey::of_file(identity),
            known: RefCell::default(),
            is_memory: Arc::default(),
            is_slow,
            owner: None,
        }
    }

    /// A file that somebody has open for all workers, and keeps open for as long as this has `owner`. Touches no disk.
    pub fn shared_with(fd: Arc<OwnedFd>, queue_key: QueueKey, owner: Arc<dyn FileOwner>) -> PagedFile {
        let _ = fadvise(&fd, 0, None, Advice::Random);
        PagedFile {
            fd: Some(fd),
            queue_key,
            known: RefCell::default(),
            is_memory: Arc::default(),
            is_slow: false,
            owner: Some(Owner(owner)),
        }
    }

    fn fd(&self) -> &Arc<OwnedFd> {
        self.fd.as_ref().expect("invariant: it is taken by `drop` alone")
    }

    /// The descriptor, for a job of the pool.
    pub fn shared(&self) -> Arc<OwnedFd> {
        self.fd().clone()
    }

    /// Where such a job belongs.
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
    }

    /// How far the file can be sent from `start` on without waiting for a disk: `start < until <= end`,
    /// at most [`PIECE`]. While it is brought in, `waker` is woken when that has happened; without one the
    /// caller has to ask again. An error is that of the disk.
    #[inline]
    pub fn poll_warm(&self, start: u64, end: u64, waker: Option<&Waker>) -> Poll<io::Result<u64>> {
        let now = monotonic_ns();
        let mut known = self.known.borrow_mut();
        let fresh = |range: &Known| now.saturating_sub(range.at) < WARM_FOR.as_nanos() as u64;
        if let Some(range) =
            known.iter().find(|range| range.reading.is_none() && range.holds(start) && fresh(range))
        {
            return Poll::Ready(Ok(range.end.min(end)));
        }
        known.retain_mut(|range| range.settle(start) && (range.reading.is_some() || fresh(range)));
        let found = known.iter().find(|range| range.holds(start));
        let Some(range) = found else { return self.look(&mut known, start, end, now, waker) };
        match &range.reading {
            None => Poll::Ready(Ok(range.end.min(end))),
            Some(reading) => reading.poll(waker).map_ok(|until| until.clamp(start + 1, end)),
        }
    }

    /// Sees to it that `start..end` is brought in where it is not in memory; for a reader that will come
    /// there.
    pub fn read_ahead(&self, start: u64, end: u64) {
        let end = end.min(piece_end(start));
        let mut known = self.known.borrow_mut();
        if start < end && !known.iter().any(|range| range.holds(start)) {
            let _ = self.look(&mut known, start, end, monotonic_ns(), None);
        }
    }

    /// Nothing is known of `start`.
    #[cold]
    fn look(
        &self,
        known: &mut Vec<Known>,
        start: u64,
        end: u64,
        now: u64,
        waker: Option<&Waker>,
    ) -> Poll<io::Result<u64>> {
        let end = end.min(piece_end(start));
        if known.len() >= MOST_KNOWN
            && let Some(oldest) = known.iter().position(|range| range.reading.is_none())
        {
            known.remove(oldest);
        }
        if self.is_in_memory(start, end)? {
            known.push(Known { start, end, at: now, reading: None });
            return Poll::Ready(Ok(end));
        }
        let reading = Arc::new(Reading::default());
        let (fd, job, is_memory) = (self.fd().clone(), reading.clone(), self.is_memory.clone());
        let owner = self.owner.clone();
        let started = blocking::start(self.queue_key, move || {
            is_memory.get_or_init(|| has_no_disk(&fd));
            let result = bring_in(&fd, start, end);
            // The file goes before who has it open for all.
            drop(fd);
            if let (Err(error), Some(owner)) = (result, &owner) {
                owner.0.has_failed(error);
            }
            job.finish(result);
        });
        if started.is_err() {
            return Poll::Ready(Ok(end)); // without a single thread in the pool, waiting here is what is left
        }
        if self.owner.is_some() {
            let mut owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
            owned.push((self.queue_key.device, now, Arc::downgrade(&reading)));
        }
        let poll = reading.poll(waker);
        known.push(Known { start, end, at: now, reading: Some(reading) });
        poll
    }

    fn is_in_memory(&self, start: u64, end: u64) -> io::Result<bool> {
        if self.is_memory.get() == Some(&true) {
            return Ok(true);
        }
        // The far end first: it is what is missing when someone has read a part.
        for at in [end - 1, start] {
            match read_at(self.fd().as_fd(), &mut [0], at, Patience::Cached) {
                // Behind the end of a file that was cut short there is nothing to wait for.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    if let (Some(owner), Some(errno)) = (&self.owner, Errno::from_io_error(&error)) {
                        owner.0.has_failed(errno);
                    }
                    return Err(error);
                }
            }
        }
        Ok(true)
    }
}

impl Drop for PagedFile {
    fn drop(&mut self) {
        // What had to be waited for may be waited for in closing, too.
        if self.owner.is_none() && (self.is_slow || self.is_memory.get() == Some(&false)) {
            let fd = self.fd.take();
            let _ = blocking::start(self.queue_key, move || drop(fd));
        }
    }
}

impl AsFd for PagedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

impl Known {
    fn holds(&self, at: u64) -> bool {
        self.start <= at && at < self.end
    }

    /// Takes note of a reading that is done; whether the range is still of use. One that failed is, to
    /// those who have waited for it.
    fn settle(&mut self, start: u64) -> bool {
        let Some(done) = self.reading.as_ref().and_then(|reading| reading.done.get()) else { return true };
        self.at = done.at;
        match done.result {
            Ok(until) => {
                self.reading = None;
                self.end = until.max(self.start + 1);
                true
            }
            Err(_) => {
                self.holds(start) && monotonic_ns().saturating_sub(self.at) < WARM_FOR.as_nanos() as u64
            }
        }
    }
}

impl Reading {
    fn poll(&self, waker: Option<&Waker>) -> Poll<io::Result<u64>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = self.done.get() {
            return Poll::Ready(done.result.map_err(io::Error::from));
        }
        if let Some(waker) = waker
            && !waiting.iter().any(|present| present.will_wake(waker))
        {
            waiting.push(waker.clone());
        }
        Poll::Pending
    }

    /// What comes first counts: its end, or that nobody waits for it any longer.
    fn finish(&self, result: Result<u64, Errno>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.done.set(Done { at: monotonic_ns(), result });
        for waker in std::mem::take(&mut *waiting) {
            waker.wake();
        }
    }
}

fn piece_end(start: u64) -> u64 {
    (start / PIECE + 1) * PIECE
}

/// Whether a file system that cannot tell what it holds in memory holds everything there.
fn has_no_disk(fd: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|system| matches!(system.f_type, TMPFS | RAMFS))
}

static NULL: LazyLock<Option<OwnedFd>> =
    LazyLock::new(|| rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok());

/// Opens what bringing pages in needs, while the process may still open it.
pub fn prepare() {
    LazyLock::force(&NULL);
}

/// Waits until `start..end` is in memory; returns how far it came. The bytes are moved nowhere:
/// `sendfile(2)` into `/dev/null` makes the pages present and no more.
fn bring_in(fd: &OwnedFd, start: u64, end: u64) -> Result<u64, Errno> {
    let mut at = start;
    while at < end {
        let _ = fadvise(fd, at, NonZeroU64::new(ADVICE.min(end - at)), Advice::WillNeed);
        at += ADVICE.min(end - at);
    }
    let mut at = start;
    while at < end {
        // Not all of it at once: of what is slow it can then be told that it goes on.
        blocking::next_call();
        let count = (end - at).min(ADVICE) as usize;
        let moved = match &*NULL {
            Some(null) => rustix::fs::sendfile(null, fd, Some(&mut at), count),
            None => Err(Errno::INVAL),
        };
        let moved = match moved {
            // A file system that knows no splicing is read.
            Err(Errno::INVAL | Errno::NOSYS) => copy_in(fd, &mut at, end),
            moved => moved,
        };
        match moved {
            Ok(0) => return Ok(end), // cut short; whoever sends it will see
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) if at > start => return Ok(at), // what is there is sent; the rest fails when it is its turn
            Err(error) => return Err(error),
        }
    }
    Ok(end)
}

fn copy_in(fd: &OwnedFd, at: &mut u64, end: u64) -> Result<usize, Errno> {
    let mut buffer = vec![0; (end - *at).min(ADVICE) as usize];
    let count = rustix::io::pread(fd, &mut buffer, *at)?;
    *at += count as u64;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::sync::mpsc;
    use std::task::Wake;

    /// A file of so many bytes whose pages are not in memory, as far as the file system lets go of them.
    fn cold(name: &str, len: u64) -> (PagedFile, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("tidegate-paged-{}-{name}", std::process::id()));
        fs::write(&path, vec![7; len as usize]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        (PagedFile::new(OwnedFd::from(file).into(), (1, 2)), path)
    }

    /// A worker does not close what it may have to wait for (FUSE): while the pool has other things to do it stays open.
    #[test]
    fn the_pool_closes_what_was_slow_to_open() {
        let (mut file, path) = cold("slow", 1);
        (file.is_slow, file.queue_key) = (true, QueueKey::of_file((77, 1)));
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock().unwrap();
        for _ in 0..100 {
            let gate = gate.clone();
            blocking::start(file.queue_key, move || drop(gate.lock())).unwrap();
        }
        let open = Arc::downgrade(file.fd());
        drop(file);
        assert_eq!(open.strong_count(), 1, "closed by who dropped it");
        drop(shut);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while open.strong_count() > 0 {
            assert!(std::time::Instant::now() < deadline, "never closed");
            std::thread::yield_now();
        }
        fs::remove_file(path).unwrap();
    }

    fn wait(file: &PagedFile, start: u64, end: u64) -> io::Result<u64> {
        tidegate_testkit::block_on(std::future::poll_fn(|cx| file.poll_warm(start, end, Some(cx.waker()))))
    }

    #[test]
    fn pieces_are_brought_in_and_remembered() {
        let len = 2 * PIECE + 100;
        let (file, path) = cold("pieces", len);
        assert_eq!(wait(&file, 0, len).unwrap(), PIECE);
        assert_eq!(wait(&file, 300, 400).unwrap(), 400);
        file.read_ahead(PIECE, len);
        assert_eq!(wait(&file, PIECE, len).unwrap(), 2 * PIECE);
        assert_eq!(wait(&file, 2 * PIECE + 50, len).unwrap(), len);
        assert_eq!(file.known.borrow().len(), 3);
        // Known now, so it is neither looked for nor waited for.
        assert!(matches!(file.poll_warm(5, 6, None), Poll::Ready(Ok(6))));
        fs::remove_file(path).unwrap();
    }

    /// Counts how often it is woken.
    struct Signal(mpsc::Sender<()>);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn many_wait_for_one_reading() {
        let (file, path) = cold("many", PIECE);
        let reading = Arc::new(Reading::default());
        let range = Known { start: 0, end: PIECE, at: 0, reading: Some(reading.clone()) };
        file.known.borrow_mut().push(range);
        let (sender, woken) = mpsc::channel();
        let wakers = [0; 5].map(|_| Waker::from(Arc::new(Signal(sender.clone()))));
        for waker in wakers.iter().chain(&wakers) {
            assert!(file.poll_warm(10, PIECE, Some(waker)).is_pending());
        }
        reading.finish(Ok(PIECE));
        assert_eq!(woken.try_iter().count(), 5);
        assert!(matches!(file.poll_warm(10, PIECE, None), Poll::Ready(Ok(PIECE))));
        assert_eq!(file.known.borrow().len(), 1);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_disk_that_does_not_answer_is_given_up() {
        let (mut file, path) = cold("stalled", PIECE);
        file.queue_key = QueueKey::of_unknown_device();
        let reading = Arc::new(Reading::default());
        OWNED.lock().unwrap().push((file.queue_key.device, monotonic_ns(), Arc::downgrade(&reading)));
        *file.known.borrow_mut() = vec![Known { start: 0, end: PIECE, at: 0, reading: Some(reading) }];
        assert!(file.poll_warm(0, PIECE, None).is_pending());
        give_up(file.queue_key.device, Duration::from_secs(3600));
        give_up(file.queue_key.device - 1_000_000, Duration::ZERO);
        assert!(file.poll_warm(0, PIECE, None).is_pending(), "there is patience left");
        give_up(file.queue_key.device, Duration::ZERO);
        let Poll::Ready(Err(error)) = file.poll_warm(0, PIECE, None) else { panic!("no error") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_read_before_an_error_is_sent_and_the_error_comes_in_its_place() {
        let (file, path) = cold("error", PIECE);
        let known = |result, end| {
            let reading = Arc::new(Reading::default());
            reading.finish(result);
            *file.known.borrow_mut() = vec![Known { start: 0, end, at: 0, reading: Some(reading) }];
        };
        known(Ok(4096), PIECE);
        assert!(matches!(file.poll_warm(0, PIECE, None), Poll::Ready(Ok(4096))));
        known(Err(Errno::IO), PIECE);
        for _ in 0..2 {
            let Poll::Ready(Err(error)) = file.poll_warm(0, PIECE, None) else { panic!("no error") };
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_shorter_by_now_is_nothing_to_wait_for() {
        let (file, path) = cold("shorter", 10);
        assert_eq!(wait(&file, 5 * PIECE, 6 * PIECE).unwrap(), 6 * PIECE);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn bringing_in_with_and_without_splicing_comes_to_the_end() {
        let (file, path) = cold("bring", 300 << 10);
        assert_eq!(bring_in(file.fd(), 0, 300 << 10), Ok(300 << 10));
        let mut at = 0;
        while copy_in(file.fd(), &mut at, 300 << 10).unwrap() > 0 {}
        assert_eq!(at, 300 << 10);
        fs::remove_file(path).unwrap();
    }
}
