//! A slow disk for the bench of cold files: a file system of one large file, whose every read takes its time.
//!
//! FUSE, spoken by hand (`linux/fuse.h`, version 7.31): mounted by root, served by one thread that answers
//! one request after the other, as a disk with one head does. What the kernel has read it keeps, so the
//! servers see a cold file like any other.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::mount::{MountFlags, mount};

/// The one file.
pub const FILE: &str = "big.bin";

const ROOT_NODE: u64 = 1;
const FILE_NODE: u64 = 2;
const HEADER: usize = 40;
/// The kernel asks for so much at a time.
const READ: u32 = 128 << 10;

/// A mounted slow disk; unmounted when dropped.
pub struct SlowDisk {
    folder: PathBuf,
    /// A shell that waits for its input to end, which it does however we end, and then unmounts.
    unmounter: Child,
}

impl SlowDisk {
    /// Mounts one at `folder`, with a file of `size` bytes, of which 128 KiB take `delay`.
    pub fn mount(folder: &Path, size: u64, delay: Duration) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .context("/dev/fuse cannot be opened: this bench needs FUSE")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options)?;
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        if let Err(error) = mount("slow-disk", folder, "fuse", flags, &*options) {
            bail!("the slow disk cannot be mounted ({error}): this bench runs as root");
        }
        let unmounter = Command::new("sh")
            .args(["-c", "trap '' INT TERM HUP; read -r line; umount -l \"$0\""])
            .arg(folder)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start sh")?;
        let disk = Self { folder: folder.to_owned(), unmounter };
        let delay = Timespec::try_from(delay)?;
        std::thread::Builder::new().name("slow disk".into()).spawn(move || serve(&device, size, &delay))?;
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        drop(self.unmounter.stdin.take());
        if !self.unmounter.wait().is_ok_and(|status| status.success()) {
            eprintln!("bench: {} stays mounted", self.folder.display());
        }
    }
}

/// Answers until the file system is unmounted.
fn serve(device: &OwnedFd, size: u64, delay: &Timespec) {
    let mut buffer = vec![0; 256 << 10];
    let zeros = vec![0; READ as usize];
    loop {
        let request = match read(device.as_fd(), &mut buffer) {
            Ok(count) => &buffer[..count],
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(_) => return, // unmounted
        };
        let Some(request) = Request::parse(request) else { continue };
        let answer = match request.operation {
            // FORGET and BATCH_FORGET are not answered.
            2 | 42 => continue,
            // INIT
            26 => Ok(Words::default()
                .u32(&[7, 31, READ, 1])
                .u16(&[64, 48])
                .u32(&[4096, 1])
                .u16(&[32, 0])
                .zeros(32)),
            // LOOKUP
            1 if request.node == ROOT_NODE && request.body.strip_suffix(b"\0") == Some(FILE.as_bytes()) => {
                let entry = Words::default().u64(&[FILE_NODE, 0, 3600, 3600]).u32(&[0, 0]);
                Ok(entry.attributes(FILE_NODE, size))
            }
            1 => Err(Errno::NOENT),
            // GETATTR
            3 => Ok(Words::default().u64(&[3600]).u32(&[0, 0]).attributes(request.node, size)),
            // OPEN and OPENDIR, pages kept
            14 | 27 => Ok(Words::default().u64(&[0]).u32(&[2, 0])),
            // READ
            15 => {
                let (offset, count) = (request.u64_at(8), u64::from(request.u32_at(16)));
                let count = count.min(size.saturating_sub(offset)).min(u64::from(READ));
                let _ = poll(&mut [], Some(delay));
                Ok(Words(zeros[..count as usize].to_vec()))
            }
            // RELEASE, FLUSH, READDIR, RELEASEDIR
            18 | 25 | 28 | 29 => Ok(Words::default()),
            _ => Err(Errno::NOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body.0),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let length = 16 + body.len() as u32;
        let mut reply = Words::default().u32(&[length, error.cast_unsigned()]).u64(&[request.unique]).0;
        reply.extend_from_slice(&body);
        let _ = write(device.as_fd(), &reply);
    }
}

struct Request<'b> {
    operation: u32,
    unique: u64,
    node: u64,
    body: &'b [u8],
}

impl<'b> Request<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(HEADER)?;
        let number = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let operation = u32::from_ne_bytes(head.get(4..8)?.try_into().ok()?);
        Some(Self { operation, unique: number(8)?, node: number(16)?, body })
    }

    fn u64_at(&self, at: usize) -> u64 {
        let bytes = self.body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = self.body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }
}

/// A structure of the protocol, put together.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn u16(mut self, words: &[u16]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn u32(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn u64(mut self, words: &[u64]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// `struct fuse_attr`.
    fn attributes(self, node: u64, size: u64) -> Self {
        const FOLDER: u32 = 0o040_755;
        const REGULAR: u32 = 0o100_644;
        let (mode, size) = if node == ROOT_NODE { (FOLDER, 0) } else { (REGULAR, size) };
        let modified = 1_700_000_000;
        self.u64(&[node, size, size / 512, modified, modified, modified])
            .u32(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])
    }
}
