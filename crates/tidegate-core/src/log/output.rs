//! One open log: a file, a pipe, standard output or standard error.
//!
//! Used by the writer thread alone. A pipe that nobody reads must hold up neither the start nor the other
//! logs (FAULTS 51): it is asked first whether it takes anything, and once it did not, nobody waits for it
//! again until it does.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use tidegate_config::settings::LogTarget;

/// What a pipe takes at once when it says that it takes something (`PIPE_BUF`).
const PIECE: usize = 4 << 10;
/// How long a full pipe is waited for, the first time.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// An open log.
pub(super) struct Output {
    target: LogTarget,
    file: Option<File>,
    /// Something that waits for a reader.
    may_stick: bool,
    is_stuck: bool,
    /// The last line written is not complete.
    is_torn: bool,
}

impl Output {
    /// Opens a log for appending.
    pub(super) fn open(target: &LogTarget) -> io::Result<Output> {
        Ok(match target {
            LogTarget::Stdout | LogTarget::Stderr => Output::with(target, None),
            LogTarget::File(path) => Output::with(target, Some(append_to(path)?)),
        })
    }

    /// A log that somebody else has opened.
    pub(super) fn given(target: &LogTarget, file: File) -> Output {
        Output::with(target, Some(file))
    }

    fn with(target: &LogTarget, file: Option<File>) -> Output {
        let mut output =
            Output { target: target.clone(), file, may_stick: false, is_stuck: false, is_torn: false };
        output.may_stick = output.may_stick();
        output
    }

    /// Opens a file anew after a rotation; the old one stays in use where that fails.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let LogTarget::File(_) = self.target {
            *self = Output::open(&self.target)?;
        }
        Ok(())
    }

    /// What it was opened for.
    pub(super) fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Writes lines; the error comes with what was not written.
    pub(super) fn write<'l>(&mut self, lines: &'l [u8]) -> Result<(), (io::Error, &'l [u8])> {
        if self.is_torn {
            self.write_piece(b"\n").map_err(|error| (error, lines))?;
            self.is_torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            let piece = if self.may_stick { &rest[..rest.len().min(PIECE)] } else { rest };
            let written = self.write_piece(piece).map_err(|error| (error, rest))?;
            self.is_torn = piece[..written].last().is_some_and(|byte| *byte != b'\n');
            rest = &rest[written..];
        }
        Ok(())
    }

    fn write_piece(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.may_stick {
            let patience = if self.is_stuck { Timespec { tv_sec: 0, tv_nsec: 0 } } else { PATIENCE };
            let count = {
                let (stdout, stderr) = (io::stdout(), io::stderr());
                let fd = self.fd(&stdout, &stderr);
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&patience))?
            };
            self.is_stuck = count == 0;
            if self.is_stuck {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "nobody reads the pipe"));
            }
        }
        let (stdout, stderr) = (io::stdout(), io::stderr());
        match rustix::io::retry_on_intr(|| rustix::io::write(self.fd(&stdout, &stderr), piece))? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    fn fd<'f>(&'f self, stdout: &'f io::Stdout, stderr: &'f io::Stderr) -> BorrowedFd<'f> {
        match (&self.file, &self.target) {
            (Some(file), _) => file.as_fd(),
            (None, LogTarget::Stdout) => stdout.as_fd(),
            (None, _) => stderr.as_fd(),
        }
    }

    fn may_stick(&self) -> bool {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        rustix::fs::fstat(self.fd(&stdout, &stderr))
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
    }
}

/// Never waits. A pipe is opened for both directions, so that it needs no reader now and breaks for none
/// that leaves.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo());
    let flags = OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().append(true).read(is_pipe).create(!is_pipe).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_pipe_that_nobody_reads_loses_lines_and_recovers() {
        let path = std::env::temp_dir().join(format!("tidegate-log-{}.fifo", std::process::id()));
        let _ = std::fs::remove_file(&path);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut output = Output::open(&LogTarget::File(path.clone())).unwrap();
        let lines = b"0123456789abcde\n".repeat(8 << 10); // twice what a pipe holds
        let (error, rest) = output.write(&lines).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!rest.is_empty() && rest.len() < lines.len());
        assert_eq!(output.write(b"lost\n").unwrap_err().1, b"lost\n");
        let mut reader = OpenOptions::new().read(true).open(&path).unwrap();
        let mut taken = vec![0; lines.len() - rest.len()];
        reader.read_exact(&mut taken).unwrap();
        output.write(b"again\n").unwrap();
        let mut line = [0; 6];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"again\n");
        std::fs::remove_file(&path).unwrap();
    }
}
