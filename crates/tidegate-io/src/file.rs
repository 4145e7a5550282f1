//! Open files: what is known of them, reads that do not wait, `sendfile(2)`. They are opened below a [`Root`].

use crate::blocking::{self, QueueKey};
pub use crate::links::Links;
pub use crate::root::{Root, is_openat2_missing, is_there, leads_out};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What `fstat(2)` says of an open file, as much as serving needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Regular file, folder, or something that is not served.
    pub kind: FileKind,
    /// Bytes.
    pub len: u64,
    /// Last modification, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of the last modification.
    pub mtime_ns: u32,
    /// Device and inode: tells whether a path still names the same file; never sent to anyone.
    pub identity: (u64, u64),
    /// Last change of the inode, seconds and nanoseconds: moves even when the modification time is set back.
    pub changed: (i64, u32),
    /// Whether somebody may run it as a program.
    pub is_executable: bool,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A folder.
    Folder,
    /// A device, socket or pipe.
    Other,
}

/// The descriptor of an open file. Where opening had to wait, closing may have to as well (FUSE and NFS tell whoever keeps
/// the file, and wait for the answer): the pool closes those, and no worker.
#[derive(Debug)]
pub struct FileFd {
    /// `None` once it was taken.
    fd: Option<OwnedFd>,
    /// Where it is closed by the pool.
    slow: Option<QueueKey>,
}

impl FileFd {
    /// One of a file that had to be asked for: it is closed by the pool where `slow` says so.
    pub(crate) fn new(fd: OwnedFd, slow: Option<QueueKey>) -> FileFd {
        FileFd { fd: Some(fd), slow }
    }

    /// The descriptor, and whether closing it may wait; whoever takes it sees to that.
    pub fn take(mut self) -> (OwnedFd, bool) {
        (self.fd.take().expect("invariant: only this takes it, and ends it"), self.slow.is_some())
    }
}

impl From<OwnedFd> for FileFd {
    /// One that is closed at once.
    fn from(fd: OwnedFd) -> FileFd {
        FileFd { fd: Some(fd), slow: None }
    }
}

impl AsFd for FileFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("invariant: only `take` takes it, and ends it").as_fd()
    }
}

impl Drop for FileFd {
    fn drop(&mut self) {
        if let (Some(fd), Some(queue_key)) = (self.fd.take(), self.slow) {
            let _ = blocking::start(queue_key, move || drop(fd));
        }
    }
}

/// An open file and what was true of it when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// Open for reading.
    pub fd: FileFd,
    /// Of this very file, not of the path.
    pub meta: Meta,
}

/// How patient a look-up may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Fails with `WouldBlock` where the kernel's caches do not hold the answer.
    Cached,
    /// Waits for the disk; for the blocking pool and for start-up.
    Wait,
}

pub(crate) fn real_path_of(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Some(rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes())
}

/// The last part of the name that an open file has, all symbolic links followed.
pub fn real_name(opened: &Opened) -> Option<Vec<u8>> {
    let real = real_path_of(opened.fd.as_fd())?;
    real.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec)
}

/// What the file system says of an open file (`fstat(2)`).
///
/// # Errors
/// The file system cannot tell.
pub fn meta_of(fd: BorrowedFd<'_>) -> io::Result<Meta> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => FileKind::Regular,
        rustix::fs::FileType::Directory => FileKind::Folder,
        _ => FileKind::Other,
    };
    Ok(Meta {
        kind,
        len: stat.st_size.max(0) as u64,
        mtime: stat.st_mtime,
        mtime_ns: stat.st_mtime_nsec as u32,
        identity: (stat.st_dev, stat.st_ino),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        is_executable: stat.st_mode & 0o111 != 0,
    })
}

/// Reads into `buffer` at `offset`; 0 at the end of the file.
///
/// # Errors
/// The file cannot be read. `WouldBlock`, under [`Patience::Cached`]: the pages are not in memory, or the
/// file system cannot tell.
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64, patience: Patience) -> io::Result<usize> {
    loop {
        let read = match patience {
            Patience::Cached => {
                rustix::io::preadv2(fd, &mut [IoSliceMut::new(&mut *buffer)], offset, ReadWriteFlags::NOWAIT)
            }
            // The plain call, which is there where a filter of system calls or an emulation has no other.
            Patience::Wait => rustix::io::pread(fd, &mut *buffer, offset),
        };
        match read {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if patience == Patience::Cached => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            result => return result.map_err(Into::into),
        }
    }
}

/// Reads exactly `len` bytes from the start: what was measured and what is read must be one version.
///
/// # Errors
/// As [`read_at`]. `UnexpectedEof`: the file is shorter by now.
pub fn read_whole(fd: BorrowedFd<'_>, len: usize, patience: Patience) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        match read_at(fd, &mut bytes[at..], at as u64, patience)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => at += n,
        }
    }
    Ok(bytes)
}

/// Moves up to `count` bytes of a file into a socket and advances `offset` (`sendfile(2)`). `Ok(None)`:
/// the socket is full. `Ok(Some(0))`: the file ends before `offset`. Fewer than `count`: the socket is full, and the poller tells
/// when there is room; or the file ends there, or cannot be read on.
///
/// # Errors
/// The file cannot be read, or the connection is broken.
#[inline]
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    count: usize,
) -> io::Result<Option<usize>> {
    loop {
        match rustix::fs::sendfile(socket, file, Some(&mut *offset), count) {
            Ok(n) => return Ok(Some(n)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether a file ends at an offset or before it. What cannot be asked ends nowhere.
pub fn ends_by(file: BorrowedFd<'_>, offset: u64) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size <= offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Poller, Ready, Slab};
    use std::fs;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    /// Whoever was given less than asked for need not ask again to be told when there is room.
    #[test]
    fn a_socket_that_takes_a_part_of_a_file_tells_when_it_has_room() {
        let path = std::env::temp_dir().join(format!("tidegate-send-file-{}", std::process::id()));
        const SIZE: usize = 64 << 20;
        fs::File::create(&path).unwrap().set_len(SIZE as u64).unwrap();
        let file = fs::File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut poller = Poller::new().unwrap();
        let key = Slab::default().insert(());
        poller.registry().unwrap().add(socket.as_fd(), Kind::Connection, key).unwrap();
        let (mut ready, mut offset, mut taken) = (Vec::new(), 0, 0);
        let mut buffer = vec![0; 1 << 20];
        let mut parts = 0;
        while (offset as usize) < SIZE {
            poller.wait(Some(Duration::ZERO), &mut ready).unwrap(); // as it is now
            ready.clear();
            let count = SIZE - offset as usize;
            if send_file(socket.as_fd(), file.as_fd(), &mut offset, count).unwrap() == Some(count) {
                break;
            }
            parts += 1;
            while !ready.iter().any(|event: &Ready| event.writable) {
                assert!((taken as u64) < offset, "the client has all of it, and nobody is told");
                taken += client.read(&mut buffer).unwrap();
                // Once the client has all that was taken, the room is there.
                let patience = if taken as u64 == offset { 5_000 } else { 0 };
                poller.wait(Some(Duration::from_millis(patience)), &mut ready).unwrap();
            }
        }
        assert!(parts > 1, "{parts}");
    }

    /// A worker that closes a file on FUSE waits for whoever keeps it.
    #[test]
    fn what_opening_had_to_wait_for_is_closed_by_the_pool() {
        let folder = std::env::temp_dir().join(format!("tidegate-slow-close-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("f"), "text").unwrap();
        let root = Root::open(&folder).unwrap();
        let opened = root.open_file(b"f", Patience::Wait).unwrap();
        assert!(opened.fd.take().1);
        if let Ok(opened) = root.open_file(b"f", Patience::Cached) {
            assert!(!opened.fd.take().1, "nobody had to be asked");
        }
        let (mut reader, writer) = io::pipe().unwrap();
        drop(FileFd::new(writer.into(), Some(QueueKey::of_file((1, 2)))));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
