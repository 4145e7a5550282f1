//! Content of requests that has to be complete before an application can have it: kept in files without a
//! name, bounded for all workers together, gone with the request.
//!
//! CGI, FastCGI and SCGI tell the length in front; a chunked request does not know it. Small content never
//! comes here: it is collected in memory.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use thiserror::Error;
use tidegate_config::settings::gateway;
use tidegate_core::body::{RequestBody, RequestBodyError};
use tidegate_http::Status;
use tidegate_io::file::{Patience, read_at};
use tidegate_io::{blocking, descriptors};

/// Bytes read from a file at a time.
const PIECE: usize = 32 << 10;

/// The folder and what is left of it. One for the process.
pub struct Spill {
    folder: PathBuf,
    size: u64,
    used: AtomicU64,
}

/// Why content could not be kept.
#[derive(Debug, Error)]
pub enum SpillError {
    /// The client's content ended badly; the engine answers.
    #[error("the content of the request: {0}")]
    Client(#[from] RequestBodyError),
    /// More than `spill size=` in all.
    #[error("the spill folder holds as much as it may: {0} bytes (see `spill`)")]
    Full(u64),
    /// What the system says.
    #[error("the spill folder {0}: {1}")]
    System(PathBuf, io::Error),
    /// This process may hold no further file.
    #[error("content of a request is not kept: {}", descriptors::advice())]
    NoDescriptors,
    /// The pool for calls that block has too much to do.
    #[error("too many jobs wait for the disk")]
    Busy,
}

impl SpillError {
    /// What the client is told.
    pub fn status(&self) -> Status {
        match self {
            SpillError::Client(_) => Status::BAD_REQUEST,
            SpillError::Full(_) | SpillError::System(..) => Status::INSUFFICIENT_STORAGE,
            SpillError::Busy | SpillError::NoDescriptors => Status::SERVICE_UNAVAILABLE,
        }
    }
}

/// All that are in use, so that those who ask with the same settings share one.
#[derive(Default)]
pub(super) struct Spills(Mutex<Vec<Weak<Spill>>>);

impl Spills {
    pub(super) fn of(&self, settings: &gateway::Spill) -> Arc<Spill> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |spill: &Arc<Spill>| spill.folder == settings.folder && spill.size == settings.size;
        if let Some(spill) = known.iter().filter_map(Weak::upgrade).find(is_same) {
            return spill;
        }
        let spill = Spill::new(settings);
        known.push(Arc::downgrade(&spill));
        spill
    }

    /// Forgets those that nobody uses.
    pub(super) fn sweep(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|spill| spill.strong_count() > 0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Spill {
    /// What these settings describe, with nothing in it.
    pub fn new(settings: &gateway::Spill) -> Arc<Spill> {
        let (folder, size) = (settings.folder.clone(), settings.size);
        Arc::new(Spill { folder, size, used: AtomicU64::new(0) })
    }

    /// Whether content can be kept there at all.
    ///
    /// # Errors
    /// What the system says.
    pub fn probe(&self) -> io::Result<()> {
        self.open().map(drop)
    }

    /// Bytes kept now.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Reads content to its end. `first` is what was read of it already.
    ///
    /// # Errors
    /// See [`SpillError`]; nothing is left behind.
    pub async fn take(
        self: &Arc<Self>,
        first: Vec<u8>,
        body: &mut RequestBody,
    ) -> Result<Spilled, SpillError> {
        let spill = self.clone();
        let opening = move || descriptors::for_a_request().and_then(|()| spill.open());
        let opened = blocking::run(opening).map_err(|_| SpillError::Busy)?.await;
        let file = Arc::new(opened.map_err(|error| {
            if descriptors::is_exhaustion(&error) {
                descriptors::are_lacking(); // it passes
                return SpillError::NoDescriptors;
            }
            SpillError::System(self.folder.clone(), error)
        })?);
        let mut spilled = Spilled { file, len: 0, at: 0, waiting: None, spill: self.clone() };
        let mut piece = first;
        loop {
            if !piece.is_empty() {
                spilled.append(std::mem::take(&mut piece)).await?;
            }
            if body.read(&mut piece).await? == 0 {
                return Ok(spilled);
            }
        }
    }

    /// A file that nobody else can see.
    fn open(&self) -> io::Result<OwnedFd> {
        let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        match rustix::fs::openat(CWD, &self.folder, flags | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
            result => return Ok(result?),
        }
        // A file system without nameless files: the name is taken away at once.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidegate-spill-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = self.folder.join(name);
        let file = rustix::fs::openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
        rustix::fs::unlink(&path)?;
        Ok(file)
    }
}

type Job = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>;

/// Content in a file.
pub struct Spilled {
    file: Arc<OwnedFd>,
    len: u64,
    at: u64,
    /// A piece that the disk is asked for.
    waiting: Option<Job>,
    spill: Arc<Spill>,
}

impl Spilled {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    async fn append(&mut self, piece: Vec<u8>) -> Result<(), SpillError> {
        let count = piece.len() as u64;
        let before = self.spill.used.fetch_add(count, Relaxed);
        self.len += count; // given back when this is dropped, written or not
        if before.saturating_add(count) > self.spill.size {
            return Err(SpillError::Full(self.spill.size));
        }
        let (file, mut at) = (self.file.clone(), self.len - count);
        let job = blocking::run(move || {
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                match rustix::io::pwrite(&file, rest, at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        rest = rest.get(written..).unwrap_or_default();
                        at += written as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        });
        let job = job.map_err(|_| SpillError::Busy)?;
        job.await.map_err(|error: io::Error| SpillError::System(self.spill.folder.clone(), error))
    }

    /// Appends the next bytes to `into`; 0 at the end. A file that cannot be read is the client's broken
    /// content to its reader: there is nobody else to tell.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, RequestBodyError>> {
        if self.waiting.is_none() {
            if self.at >= self.len {
                return Poll::Ready(Ok(0));
            }
            let start = into.len();
            into.resize(start + PIECE, 0);
            let read = read_at(
                self.file.as_fd(),
                into.get_mut(start..).unwrap_or_default(),
                self.at,
                Patience::Cached,
            );
            into.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(count) if count > 0 => {
                    self.at += count as u64;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Poll::Ready(Err(RequestBodyError::Interrupted)),
            }
            let (file, at) = (self.file.clone(), self.at);
            let job = blocking::run(move || {
                let mut piece = vec![0; PIECE];
                let count = read_at(file.as_fd(), &mut piece, at, Patience::Wait)?;
                piece.truncate(count);
                Ok(piece)
            });
            let Ok(job) = job else { return Poll::Ready(Err(RequestBodyError::Interrupted)) };
            self.waiting = Some(Box::pin(job));
        }
        let Some(job) = &mut self.waiting else { return Poll::Pending };
        match job.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.waiting = None;
                match result {
                    Ok(piece) if !piece.is_empty() => {
                        self.at += piece.len() as u64;
                        into.extend_from_slice(&piece);
                        Poll::Ready(Ok(piece.len()))
                    }
                    _ => Poll::Ready(Err(RequestBodyError::Interrupted)),
                }
            }
        }
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        self.spill.used.fetch_sub(self.len, Relaxed);
    }
}
