//! Files that are named in settings, read whole: whoever may replace one may put there what never ends or never begins.
//!
//! A pipe that nobody writes would be waited for, a device may have no end, and to open one may do something. So what is no
//! regular file is not opened, and what has become something else meanwhile is not waited for.

use rustix::fs::{Mode, OFlags, open};
use std::fs::{File, FileType};
use std::io::{self, Read};
use std::path::Path;

/// The content of a regular file, symbolic links followed. Asks the file system, which may hang.
///
/// # Errors
/// It cannot be opened or read, is no regular file, or has more bytes than `most`.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(std::fs::metadata(path)?.file_type())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    let there = file.metadata()?;
    check(there.file_type())?;
    let too_large = || {
        let limit = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{most} bytes") };
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit}"))
    };
    if there.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(there.len()).unwrap_or(0));
    // It may grow while it is read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

fn check(kind: FileType) -> io::Result<()> {
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
        _ => Err(io::Error::other("it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("tidegate-regular-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("file"), "0123456789").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("device")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let read = |name: &str, most| read_regular(&path(name), most).map_err(|error| error.to_string());
        for name in ["file", "link"] {
            assert_eq!(read(name, 10), Ok(b"0123456789".to_vec()));
            assert_eq!(read(name, 9), Err("it is larger than 9 bytes".to_owned()));
        }
        // In a thread: nobody waits for one that does.
        for name in ["pipe", "device", "socket"] {
            let path = path(name);
            let (said, heard) = std::sync::mpsc::channel();
            std::thread::spawn(move || said.send(read_regular(&path, 10).map_err(|error| error.to_string())));
            let said = tidegate_testkit::receive(&heard, "an answer");
            assert_eq!(said, Err("it is no regular file".to_owned()), "{name}");
        }
        assert_eq!(read(".", 10), Err("it is a folder".to_owned()));
        assert_eq!(
            read_regular(&path("none"), 10).map_err(|error| error.kind()),
            Err(io::ErrorKind::NotFound)
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
