//! `bans-file`: who is banned when the server stops is banned when it starts again.
//!
//! The file is written at the end of the master, unless a successor goes on with the same tables, and gone as soon as the
//! next one has started: what is lifted while the server runs does not come back, whatever ends it.

use super::rates::Rates;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tidegate_core::log;
use tidegate_io::clock::wall_seconds;

/// The largest file that is read, bytes: half a million bans, or far more days than are kept.
const MOST: u64 = 64 << 20;

/// Bans whom the file says.
pub fn ban_again(path: &Path, rates: &Rates) {
    let shown = path.display();
    match read(path) {
        Ok(None) => {}
        Ok(Some(lines)) => {
            let (banned, wrong) = rates.ban_again(&lines, wall_seconds());
            if wrong > 0 {
                log::warn(format_args!("{wrong} lines of {shown} are no bans, and ban nobody"));
            }
            if banned > 0 {
                log::info(format_args!("banned as before the stop: {banned}"));
            }
        }
        Err(error) => {
            log::warn(format_args!(
                "who was banned before the stop is let in: {shown} cannot be used: {error}"
            ));
        }
    }
}

/// The server has started: the file is not read again.
pub fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let shown = path.display();
            log::warn(format_args!("{shown} cannot be removed, and bans again at the next start: {error}"));
        }
        _ => {}
    }
}

/// Who is banned, and until when by the clock on the wall, which goes on while the server is stopped.
pub fn lines(rates: &Rates) -> String {
    rates.bans_to_keep(wall_seconds())
}

/// Writes who is banned.
pub fn keep(path: &Path, lines: &str) {
    if let Err(error) = write(path, lines) {
        log::warn(format_args!(
            "who is banned is let in after the next start: {} cannot be written: {error}",
            path.display()
        ));
    }
}

/// A file of the server's own, of which nobody else may be the author. `None`: there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
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
pub(super) fn write(path: &Path, lines: &str) -> io::Result<()> {
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
    fn bans_that_others_could_have_written_ban_nobody() {
        let folder = std::env::temp_dir().join(format!("tidegate-kept-bans-{}", std::process::id()));
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
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(65534), None).unwrap();
            assert!(said().unwrap_err().starts_with("it belongs to user 65534, "), "{:?}", said());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
