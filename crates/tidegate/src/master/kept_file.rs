//! Files that the server writes for itself alone, to be read at its next start: who is banned, and the totals of days.
//!
//! Settings may name a file by mistake that is somebody's. What is not the server's own is neither read, nor removed, nor
//! written over.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The largest file that is read, bytes: half a million bans, or far more days than are kept.
const MOST: u64 = 64 << 20;

/// Such a file.
pub struct KeptFile<'p> {
    /// Where it lies.
    pub path: &'p Path,
    /// Whether a text, which is not empty, is what the server has written there.
    pub is_own: fn(&str) -> bool,
}

impl KeptFile<'_> {
    /// What is in it; nobody else may be its author. `None`: it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn read(&self) -> io::Result<Option<String>> {
        let text = read(self.path)?;
        let is_other = |text: &&String| !text.trim().is_empty() && !(self.is_own)(text);
        match text.as_ref().filter(is_other) {
            Some(_) => Err(io::Error::other("it has something else in it; name a file of the server's own")),
            None => Ok(text),
        }
    }

    /// Writes it anew, whole or not at all.
    ///
    /// # Errors
    /// What is there is something else, or the disk is full.
    pub fn write(&self, text: &str) -> io::Result<()> {
        drop(self.read()?);
        write(self.path, text)
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    // Nobody waits for the other end of a pipe, and no link leads elsewhere.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // Whoever else could write it could ban whom they like.
    let (owner, own) = (there.uid(), rustix::process::geteuid());
    if owner != 0 && owner != own.as_raw() {
        let whose = "which is neither root nor who starts the server";
        return Err(io::Error::other(format!("it belongs to user {owner}, {whose}")));
    }
    if there.mode() & 0o022 != 0 {
        return Err(io::Error::other("others than its owner may write to it"));
    }
    let mut lines = String::new();
    match file.take(MOST + 1).read_to_string(&mut lines)? as u64 > MOST {
        true => Err(io::Error::other(format!("it is larger than {} MiB", MOST >> 20))),
        false => Ok(Some(lines)),
    }
}

/// Writes such a file whole, and then moves it into its place.
fn write(path: &Path, lines: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = Path::new(&name);
    let _ = std::fs::remove_file(fresh);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(fresh, flags, Mode::RUSR | Mode::WUSR)?);
    let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_all());
    // What a full disk has room for is no file.
    written.and_then(|()| std::fs::rename(fresh, path)).inspect_err(|_| drop(std::fs::remove_file(fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let folder = std::env::temp_dir().join(format!("tidegate-kept-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("bans");
        let said = || read(&path).map_err(|error| error.to_string());
        assert_eq!(said(), Ok(None));
        write(&path, "bans\n").unwrap();
        assert_eq!(said(), Ok(Some("bans\n".to_owned())));
        for mode in [0o620, 0o602] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(said(), Err("others than its owner may write to it".to_owned()), "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(said(), Ok(Some("bans\n".to_owned())));
        let of = |is_own| KeptFile { path: &path, is_own };
        let other = of(|_| false);
        assert!(other.read().is_err() && other.write("mine").is_err());
        assert_eq!(of(|text| text == "bans\n").read().unwrap().unwrap(), "bans\n");
        std::fs::write(&path, "").unwrap();
        assert_eq!(other.read().unwrap().unwrap(), "", "nobody's");
        assert!(KeptFile { path: &folder, is_own: |_| true }.write("mine").is_err() && folder.is_dir());
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(65534), None).unwrap();
            assert!(said().unwrap_err().starts_with("it belongs to user 65534, "), "{:?}", said());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
