//! One open log: a file, a pipe, standard output or standard error, or the way to a daemon that collects.
//!
//! Used by the writer thread alone. A pipe that nobody reads must hold up neither the start nor the other
//! logs (FAULTS 51): it is asked first whether it takes anything, and nobody waits for it.
//!
//! Several processes write the same log, each piece with one call. A disk that fills up takes a piece in part: its last
//! line is torn, and what another process writes next would be joined to it. So whoever writes to a file looks at its last
//! byte first and ends a torn line of another. The rest of a line is written only where the file still ends with its
//! beginning: elsewhere it would begin a line with what a client has chosen (FAULTS 38). Whoever writes behind a torn line
//! locks the file for that (fcntl(2)), so that it is either completed or ended. A pipe has its rules in
//! [`pipe_lock`](super::pipe_lock).

use super::delivery::Delivery;
use super::pipe_lock::{self, PIPE_BUF, PipeLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fcntl_lock, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tidegate_config::settings::LogTarget;
use tidegate_io::off_limits;

/// How long nobody looks at a pipe that others write to, or that has too little room: poll(2) says of neither when it is over.
const TURN: Duration = Duration::from_millis(5);

/// How long nobody looks at a pipe without a reader: poll(2) does not tell of the next one.
const READERLESS: Duration = Duration::from_millis(20);

/// What a file says that takes no more (`EFBIG`).
const TOO_LARGE: &str = "the limit of file sizes is reached (`ulimit -f`, LimitFSIZE=), or the file is as large as its file system \
                         takes: rotate it";

/// An open log.
pub(super) struct Output {
    target: LogTarget,
    file: Option<File>,
    /// To a daemon; all the rest is of files then.
    delivery: Option<Box<Delivery>>,
    /// Something that waits for a reader.
    may_stick: bool,
    /// Of that: kept until a long line is written.
    lock: Option<PipeLock>,
    /// Of that: another has the lock, or there is too little room for a long line.
    awaits_turn: bool,
    /// The last line written is not complete.
    is_torn: bool,
    /// How long the file was then, bytes.
    torn_at: u64,
    /// The file does not end with a line of ours, as far as is known.
    is_open_ended: bool,
}

impl Output {
    /// Opens a log for appending.
    pub(super) fn open(target: &LogTarget) -> io::Result<Output> {
        Ok(match target {
            LogTarget::Stdout | LogTarget::Stderr | LogTarget::Collector(_) => Output::with(target, None),
            LogTarget::File(path) => Output::with(target, Some(append_to(path)?)),
        })
    }

    /// A log that somebody else has opened. Asks its file system nothing, which may hang.
    pub(super) fn given(target: &LogTarget, file: File) -> Output {
        Output::with(target, Some(file))
    }

    fn with(target: &LogTarget, file: Option<File>) -> Output {
        let delivery = match target {
            LogTarget::Collector(to) => Some(Box::new(Delivery::to(to))),
            _ => None,
        };
        let target = target.clone();
        Output {
            target,
            file,
            delivery,
            may_stick: false,
            lock: None,
            awaits_turn: false,
            is_torn: false,
            torn_at: 0,
            is_open_ended: false,
        }
    }

    /// Finds out what it is, before anything is written.
    pub(super) fn look(&mut self) {
        self.may_stick = self.delivery.is_none() && self.is_no_file();
    }

    /// Opens a file anew after a rotation; the old one stays in use where that fails. See
    /// [`Output::replace`] for the answer.
    pub(super) fn reopen(&mut self) -> io::Result<Option<Output>> {
        if let Some(delivery) = &mut self.delivery {
            delivery.close();
        }
        let LogTarget::File(_) = self.target else { return Ok(None) };
        Ok(self.replace(Output::open(&self.target)?))
    }

    /// Takes another one's place, which is returned where it is another file and its last line is torn: the rest of that line
    /// belongs there.
    pub(super) fn replace(&mut self, mut new: Output) -> Option<Output> {
        new.look();
        self.release();
        let is_other = self.identity() != new.identity();
        let old = std::mem::replace(self, new);
        if is_other {
            return Some(old).filter(|old| old.is_torn);
        }
        self.is_torn = old.is_torn;
        self.torn_at = old.torn_at;
        self.is_open_ended = old.is_open_ended;
        None
    }

    /// What it was opened for.
    pub(super) fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Whether the rest of a line is never to be written, since its beginning does not stand at the end of the file any more.
    /// Says so once.
    pub(super) fn take_torn(&mut self) -> bool {
        let is_lost = self.is_torn && !self.may_stick && !self.stands_torn();
        is_lost && std::mem::take(&mut self.is_torn)
    }

    /// Its file has no name any more: nobody reads what is written to it, and its room on the disk is free once it is closed.
    pub(super) fn is_removed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0))
    }

    /// Nobody has written behind the beginning of a line.
    fn stands_torn(&self) -> bool {
        self.len() == Some(self.torn_at) && self.last_byte() != Some(b'\n')
    }

    /// What is held for it is given up.
    pub(super) fn forget(&mut self) {
        if self.may_stick && self.is_torn {
            let _ = self.write_piece(b"\n");
        }
        self.release();
        self.is_torn = false;
        if let Some(delivery) = &mut self.delivery {
            delivery.close();
        }
    }

    /// A daemon is there, or may be, and takes nothing at the moment.
    pub(super) fn is_busy(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| delivery.is_blocked())
    }

    /// Writes lines as far as that goes: how many bytes, and why no more. After a part was written see
    /// [`Output::take_torn`].
    pub(super) fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        if let Some(delivery) = &mut self.delivery {
            return delivery.write(lines);
        }
        if self.may_stick {
            return self.write_to_pipe(lines);
        }
        if !self.is_torn
            && let Err(error) = self.end_torn_line()
        {
            return (0, Err(error));
        }
        let mut at = 0;
        while at < lines.len() {
            let rest = &lines[at..];
            // Why a line was written in part is known when the rest of it is not written either.
            match if self.is_torn { self.complete(rest) } else { self.append(rest) } {
                Ok(written) => at += written,
                Err(error) => return (at, Err(error)),
            }
        }
        (at, Ok(()))
    }

    /// The same of a pipe.
    fn write_to_pipe(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        self.awaits_turn = true;
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let Some(lock) = PipeLock::take(self.lock.take(), self.fd(&stdout, &stderr)) else {
            return (0, Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process writes to it")));
        };
        let (mut at, mut is_waiting) = (0, false);
        while at < lines.len() {
            let piece = first_piece(&lines[at..]);
            is_waiting = piece.len() > PIPE_BUF
                && !self.is_torn
                && !pipe_lock::has_room(self.fd(&stdout, &stderr), piece.len());
            let written = if is_waiting { Err(full()) } else { self.write_piece(piece) };
            match written {
                Ok(count) => at += count,
                Err(error) => {
                    self.awaits_turn = is_waiting;
                    self.keep(lock, is_waiting);
                    return (at, Err(error));
                }
            }
            self.is_torn = lines[..at].last().is_some_and(|byte| *byte != b'\n');
        }
        self.awaits_turn = false;
        self.keep(lock, is_waiting);
        (at, Ok(()))
    }

    /// Keeps the lock of a pipe while a line waits for its rest or for room, and releases it else.
    fn keep(&mut self, lock: PipeLock, is_waiting: bool) {
        self.lock = Some(lock);
        if !self.is_torn && !is_waiting {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(lock) = self.lock.take() {
            let (stdout, stderr) = (io::stdout(), io::stderr());
            lock.release(self.fd(&stdout, &stderr));
        }
    }

    /// Bytes that are in a pipe and nobody has read; `None` where that is not known.
    pub(super) fn unread(&self) -> Option<u64> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        self.may_stick.then(|| pipe_lock::unread(self.fd(&stdout, &stderr)))?
    }

    /// Writes what a file takes at once: how many bytes.
    fn append(&mut self, lines: &[u8]) -> io::Result<usize> {
        let written = self.write_piece(lines)?;
        self.is_torn = lines[..written].last().is_some_and(|byte| *byte != b'\n');
        if self.is_torn {
            self.tears();
        }
        Ok(written)
    }

    /// A line has been written in part.
    fn tears(&mut self) {
        self.is_torn = true;
        self.torn_at = self.len().unwrap_or(u64::MAX);
        self.is_open_ended = true;
    }

    /// A file whose last line is torn.
    #[cfg(test)]
    pub(super) fn torn(target: &LogTarget) -> Output {
        let mut output = Output::open(target).unwrap();
        output.tears();
        output
    }

    /// Writes the rest of a torn line, with which `lines` begin: how many bytes.
    fn complete(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.lock(FlockOperation::NonBlockingLockExclusive)?;
        let rest = lines.iter().position(|byte| *byte == b'\n').map_or(lines, |end| &lines[..=end]);
        let written = match self.stands_torn() {
            true => self.write_piece(rest),
            false => Err(io::Error::other("another process has written behind a line")), // which is known when it is tried again
        };
        if let Ok(count) = written {
            self.is_torn = false;
            self.is_open_ended = false;
            if count < rest.len() {
                self.tears();
            }
        }
        self.lock(FlockOperation::Unlock)?;
        written
    }

    /// Ends what stands torn at the end of the file, whoever has written it.
    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.is_open_ended() {
            self.lock(FlockOperation::NonBlockingLockExclusive)?;
            let ended = if self.is_open_ended() { self.write_piece(b"\n").map(drop) } else { Ok(()) };
            self.lock(FlockOperation::Unlock)?;
            ended?;
        }
        self.is_open_ended = false;
        Ok(())
    }

    fn is_open_ended(&self) -> bool {
        self.last_byte().map_or(self.is_open_ended, |last| last != b'\n')
    }

    /// Of all processes one has it at a time, of this one its only thread for logs. A file system that knows no locks goes
    /// without.
    fn lock(&self, operation: FlockOperation) -> io::Result<()> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        match fcntl_lock(self.fd(&stdout, &stderr), operation) {
            Err(Errno::AGAIN | Errno::ACCESS) => {
                Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process writes to it"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Bytes of a file.
    fn len(&self) -> Option<u64> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        u64::try_from(rustix::fs::fstat(self.fd(&stdout, &stderr)).ok()?.st_size).ok()
    }

    /// Of a file that may be read; a line feed where it is empty.
    fn last_byte(&self) -> Option<u8> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let fd = self.fd(&stdout, &stderr);
        let Some(last) = self.len()?.checked_sub(1) else {
            return Some(b'\n');
        };
        let mut byte = [0];
        let count = rustix::io::pread(fd, &mut byte, last).ok()?;
        (count == 1).then_some(byte[0])
    }

    fn write_piece(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.may_stick && !self.takes_something(Duration::ZERO) {
            return Err(full());
        }
        let (stdout, stderr) = (io::stdout(), io::stderr());
        match rustix::io::retry_on_intr(|| rustix::io::write(self.fd(&stdout, &stderr), piece)) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(Errno::FBIG) => Err(io::Error::new(io::ErrorKind::FileTooLarge, TOO_LARGE)),
            outcome => Ok(outcome?),
        }
    }

    /// Waits until a pipe takes something, for so long at most; whether it does, or is worth another try.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        if let Some(delivery) = &self.delivery {
            return delivery.wait(patience);
        }
        if self.awaits_turn {
            pause(patience.min(TURN));
            return true;
        }
        let events = self.poll(patience);
        if events.intersects(PollFlags::ERR | PollFlags::HUP) {
            pause(patience.min(READERLESS)); // its reader has gone, which is told at once: another may come
            return true;
        }
        events == PollFlags::OUT
    }

    fn takes_something(&self, patience: Duration) -> bool {
        self.poll(patience) == PollFlags::OUT
    }

    /// What poll(2) says of it, nothing where it takes nothing until then.
    fn poll(&self, patience: Duration) -> PollFlags {
        let patience = Timespec::try_from(patience).ok();
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let mut fd = [PollFd::from_borrowed_fd(self.fd(&stdout, &stderr), PollFlags::OUT)];
        match poll(&mut fd, patience.as_ref()) {
            Ok(_) => fd[0].revents(),
            Err(_) => PollFlags::empty(),
        }
    }

    /// Whether it waits for a reader.
    pub(super) fn may_stick(&self) -> bool {
        self.may_stick || self.is_busy()
    }

    fn fd<'f>(&'f self, stdout: &'f io::Stdout, stderr: &'f io::Stderr) -> BorrowedFd<'f> {
        match (&self.file, &self.target) {
            (Some(file), _) => file.as_fd(),
            (None, LogTarget::Stdout) => stdout.as_fd(),
            (None, _) => stderr.as_fd(),
        }
    }

    fn is_no_file(&self) -> bool {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        rustix::fs::fstat(self.fd(&stdout, &stderr))
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
    }

    /// Device and inode.
    fn identity(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::fstat(self.file.as_ref()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }
}

/// Writes a short line to standard error, where that takes it: it may be the pipe that the line is about.
pub(super) fn say_on_stderr(line: &str) {
    let stderr = io::stderr();
    let mut fd = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    if poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0) {
        let _ = rustix::io::write(&stderr, &line.as_bytes()[..line.len().min(PIPE_BUF)]);
    }
}

fn pause(patience: Duration) {
    let _ = poll(&mut [], Timespec::try_from(patience).ok().as_ref());
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "the pipe is full: nobody reads it, or too slowly")
}

/// Whole lines, as many as a pipe takes in one piece, or one that is longer, or the rest of a line.
fn first_piece(lines: &[u8]) -> &[u8] {
    let piece = &lines[..lines.len().min(PIPE_BUF)];
    let whole = piece.iter().rposition(|byte| *byte == b'\n');
    let end =
        whole.or_else(|| lines.iter().position(|byte| *byte == b'\n')).map_or(lines.len(), |last| last + 1);
    &lines[..end]
}

/// Links that are followed at most, as by the kernel.
const LINKS: usize = 40;
/// `PROC_SUPER_MAGIC`
const PROC: u32 = 0x9fa0;

/// Opens the file of a log, by way of links only where those belong to root or to this process's user, the folders on the way
/// included: whoever owns a folder there could have root write anywhere (CVE-2016-1247). Never one that is off limits, which
/// an application of this user could lead it to.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    let file = open_by_way(path)?;
    // Not for want of a permission, which would be advised.
    off_limits::examine_at(path, file.as_fd()).map_err(|refused| io::Error::other(refused.to_string()))?;
    Ok(file)
}

fn open_by_way(path: &Path) -> io::Result<File> {
    let absolute = std::path::absolute(path)?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = || rustix::fs::open("/", folder, Mode::empty());
    let (mut at, mut at_path, mut pending, mut links) = (top()?, PathBuf::from("/"), parts(&absolute), 0);
    while let Some(part) = pending.pop() {
        let is_last = pending.is_empty();
        if part == ".." {
            at = openat(&at, "..", folder, Mode::empty())?;
            at_path.pop();
            continue;
        }
        let entry =
            match openat(&at, &*part, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) if is_last => None,
                entry => Some(entry?),
            };
        let there = entry.as_ref().map(rustix::fs::fstat).transpose()?;
        let kind = there.map(|there| FileType::from_raw_mode(there.st_mode));
        let Some((link, there)) = entry.zip(there).filter(|_| kind == Some(FileType::Symlink)) else {
            if !is_last {
                at = openat(&at, &*part, folder | OFlags::NOFOLLOW, Mode::empty())?;
                at_path.push(&part);
                continue;
            }
            match open_in(at.as_fd(), &part, kind, OFlags::NOFOLLOW) {
                Err(Errno::LOOP) if links < LINKS => links += 1, // it is a link by now
                outcome => return Ok(outcome?),
            }
            pending.push(part);
            continue;
        };
        if rustix::fs::fstatfs(&link)?.f_type as u32 == PROC {
            // The kernel's own, as behind /dev/stdout: what it says is no path.
            if is_last {
                let kind = rustix::fs::statat(&at, &*part, AtFlags::empty())?.st_mode;
                return Ok(open_in(at.as_fd(), &part, Some(FileType::from_raw_mode(kind)), OFlags::empty())?);
            }
            at = openat(&at, &*part, folder, Mode::empty())?;
            at_path.push(&part);
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP.into());
        }
        if there.st_uid != 0 && there.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{} is a symbolic link of user {}, who may lead it to any file; make it as the user that runs tidegate",
                at_path.join(&part).display(),
                there.st_uid
            )));
        }
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            (at, at_path) = (top()?, PathBuf::from("/"));
        }
        pending.extend(parts(target));
    }
    Err(Errno::ISDIR.into())
}

/// Names in the order in which they come off the end.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).rev().collect()
}

/// Opens what is of this kind there; `None`: nothing. Never waits. A pipe is opened for both directions, so that it needs no
/// reader now and breaks for none that leaves.
fn open_in(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    kind: Option<FileType>,
    more: OFlags,
) -> Result<File, Errno> {
    let is_pipe = kind == Some(FileType::Fifo);
    let is_file = kind.is_none_or(|kind| kind == FileType::RegularFile);
    let open = |is_read| {
        let mut flags = OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
        flags |= if is_read { OFlags::RDWR } else { OFlags::WRONLY };
        flags.set(OFlags::CREATE, !is_pipe);
        openat(folder, name, flags, Mode::from_raw_mode(0o640)).map(File::from)
    };
    match open(is_pipe || is_file) {
        // One that may only be written is a log all the same.
        Err(Errno::ACCESS | Errno::PERM) if is_file => open(false),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Read;

    #[test]
    fn a_pipe_that_nobody_reads_takes_what_it_holds_and_goes_on_later() {
        let path = std::env::temp_dir().join(format!("tidegate-log-{}.fifo", std::process::id()));
        let _ = std::fs::remove_file(&path);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut output = Output::open(&LogTarget::File(path.clone())).unwrap();
        output.look();
        let lines = b"0123456789abcde\n".repeat(8 << 10); // twice what a pipe holds
        let (written, result) = output.write(&lines);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(written > 0 && written < lines.len());
        assert_eq!(output.write(b"not yet\n").0, 0);
        let mut reader = OpenOptions::new().read(true).open(&path).unwrap();
        let mut taken = vec![0; written];
        reader.read_exact(&mut taken).unwrap();
        assert!(output.write(b"again\n").1.is_ok());
        let mut line = [0; 6];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"again\n");
        std::fs::remove_file(&path).unwrap();
    }

    /// Such as the standard error of a server whose collector has died: poll(2) says at once that it may be written, and who tries
    /// whenever that says so does nothing else.
    #[test]
    fn a_pipe_whose_reader_has_gone_is_waited_for() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut output = Output::given(&LogTarget::File("a pipe".into()), writer.into());
        output.look();
        assert!(output.write(b"read\n").1.is_ok() && output.wait(Duration::ZERO));
        drop(reader);
        let (written, result) = output.write(b"unread\n");
        assert_eq!((written, result.unwrap_err().kind()), (0, io::ErrorKind::WouldBlock));
        let before = std::time::Instant::now();
        assert!(output.wait(Duration::from_secs(1)), "another may have come");
        assert!(before.elapsed() >= READERLESS, "who tries again and again does nothing else");
    }

    #[test]
    fn a_new_log_is_not_for_everybody_and_an_old_one_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("tidegate-log-mode-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(append_to(&path).unwrap());
        assert_eq!(mode() & 0o037, 0, "{:o}", mode());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        drop(append_to(&path).unwrap());
        assert_eq!(mode(), 0o644);
        std::fs::remove_file(&path).unwrap();
    }

    /// FAULTS 38: what another process writes behind a torn line stands in a line of its own.
    #[test]
    fn a_torn_line_is_ended_by_whoever_writes_next() {
        let path = std::env::temp_dir().join(format!("tidegate-log-torn-{}", std::process::id()));
        std::fs::write(&path, "whole\nto").unwrap();
        let mut output = Output::open(&LogTarget::File(path.clone())).unwrap();
        assert_eq!(output.write(b"next\nsecond\n").0, 12);
        assert!(output.write(b"third\n").1.is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\nto\nnext\nsecond\nthird\n");
        std::fs::write(&path, "").unwrap();
        assert!(output.write(b"first\n").1.is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first\n");
        std::fs::remove_file(&path).unwrap();
    }

    /// The rest of a line is written where its beginning stands, and nowhere else.
    #[test]
    fn a_line_that_a_full_disk_has_torn_is_completed() {
        let path = std::env::temp_dir().join(format!("tidegate-log-rest-{}", std::process::id()));
        for (behind, expected, is_lost) in [
            ("", "whole\ntorn line\nnext\n", false),
            ("\nof another\n", "whole\nto\nof another\nnext\n", true),
            ("\n", "whole\nto\nnext\n", true),
        ] {
            std::fs::write(&path, "whole\nto").unwrap();
            let mut output = Output::torn(&LogTarget::File(path.clone()));
            let mut other = OpenOptions::new().append(true).open(&path).unwrap();
            io::Write::write_all(&mut other, behind.as_bytes()).unwrap();
            assert_eq!(output.take_torn(), is_lost, "{behind:?}");
            assert!(output.write(if is_lost { b"next\n" } else { b"rn line\nnext\n" }).1.is_ok());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
        // Nobody has written behind it when it was looked at, and then somebody has.
        std::fs::write(&path, "to").unwrap();
        let mut output = Output::torn(&LogTarget::File(path.clone()));
        std::fs::write(&path, "to\nof another\n").unwrap();
        assert_eq!(output.write(b"rn line\n").0, 0);
        assert!(output.take_torn());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn pipes_get_whole_lines() {
        let lines = [vec![b'a'; 3000], b"\n".to_vec(), vec![b'b'; 3000], b"\n".to_vec()].concat();
        assert_eq!(first_piece(&lines).len(), 3001);
        assert_eq!(first_piece(&lines[3001..]).len(), 3001);
        assert_eq!(first_piece(&[vec![b'c'; 9000], b"\nnext\n".to_vec()].concat()).len(), 9001);
    }

    #[test]
    fn links_of_others_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("tidegate-log-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link, further) = (folder.join("file"), folder.join("link"), folder.join("further"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink(&link, &further).unwrap();
        let writes =
            |path: &Path| append_to(path).map(|mut file| io::Write::write_all(&mut file, b"line\n").unwrap());
        // One's own are, to what is not there yet as well, and so are the kernel's.
        for path in [&further, &link, &file] {
            writes(path).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "line\n".repeat(3));
        append_to(Path::new("/dev/null")).unwrap();
        let opened = append_to(&file).unwrap();
        writes(Path::new(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)))).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "line\n".repeat(4));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert_eq!(append_to(&link).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            for path in [&link, &further] {
                let said = append_to(path).unwrap_err().to_string();
                assert!(said.contains("is a symbolic link of user 65534"), "{said}");
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "line\n".repeat(4));
            // Nor is one higher up.
            std::fs::create_dir(folder.join("inner")).unwrap();
            let up = folder.join("up");
            std::os::unix::fs::symlink("inner", &up).unwrap();
            append_to(&up.join("log")).unwrap();
            std::os::unix::fs::lchown(&up, Some(65534), None).unwrap();
            let said = append_to(&up.join("../up/log")).unwrap_err().to_string();
            assert!(said.contains("up is a symbolic link of user 65534"), "{said}");
            assert!(append_to(&up.join("new")).is_err() && !folder.join("inner/new").exists());
        } else {
            eprintln!("SKIPPED: only root can give a link to somebody else");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
