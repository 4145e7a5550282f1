//! How the files of runs are opened, whoever reads or writes them: regular files alone. A folder of runs may have come from anybody, and
//! opening a named pipe waits for its other end.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file that is longer is none of ours.
const LONGEST: u64 = 256 << 20;

/// Options of a file that never waits for another process.
pub(crate) fn options() -> OpenOptions {
    let mut options = File::options();
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    options
}

/// Opens a file to read it.
///
/// # Errors
/// It is not there, may not be read, or is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = options().read(true).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

/// All of a file.
///
/// # Errors
/// As [`open`]; it cannot be read, or it is too long.
pub(crate) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(bytes)
}

/// The same as text.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes_of(path)?).into_owned())
}
