//! Files of settings: read for an editor, and replaced as a whole.
//!
//! What is replaced was a part of the settings before. A new file is made beside the old one, written and synced before it takes its
//! name, so that a full disk or a crash leaves the old one. The folder is held open meanwhile: whoever may move things about in
//! it cannot lead the writing elsewhere, and one that others may write to is refused.

use crate::admin::messages::FileText;
use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::process::geteuid;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tidegate_config::Document;

/// The longest file of settings that is read, bytes.
const FILE_MAX: u64 = 16 << 20;

/// The texts of these files now.
pub fn read_all(documents: &[Document]) -> Result<Vec<FileText>> {
    documents.iter().map(|document| read(&document.path)).collect()
}

/// The text of one.
pub fn read(path: &Path) -> Result<FileText> {
    let at = || format!("{} cannot be read", path.display());
    // What has become a pipe meanwhile is not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).with_context(at)?);
    ensure!(file.metadata().with_context(at)?.is_file(), "{} is no regular file", path.display());
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).with_context(at)?;
    ensure!(bytes.len() as u64 <= FILE_MAX, "{} is larger than {} MiB", path.display(), FILE_MAX >> 20);
    let Ok(text) = String::from_utf8(bytes) else {
        bail!("{} is no UTF-8 text: an editor would lose what is none", path.display())
    };
    let Some(path) = path.to_str() else {
        bail!("{} has a name that is no text: it cannot be edited here", path.display())
    };
    Ok(FileText { path: path.to_owned(), text })
}

/// What tells these texts from all others.
pub fn tag_of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> String {
    let mut digest = Digest::new(&SHA256);
    for (path, text) in files {
        for part in [path, text] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
    }
    let mut tag = String::new();
    for byte in digest.finish().as_ref().iter().take(16) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag
}

/// Puts a text in the place of `before`, which the file has to hold still.
///
/// # Errors
/// A sentence; the file is as it was.
pub fn replace(path: &Path, before: &str, text: &str) -> Result<()> {
    let at = || format!("{} cannot be written", path.display());
    // Where it is a link, what it leads to is written.
    let real: PathBuf = path.canonicalize().with_context(at)?;
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
        bail!("{} is no file", path.display())
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder_fd = rustix::fs::open(folder, flags, Mode::empty()).with_context(at)?;
    examine(&folder_fd, folder)?;
    let there = statat(&folder_fd, name, AtFlags::SYMLINK_NOFOLLOW).with_context(at)?;
    ensure!(FileType::from_raw_mode(there.st_mode) == FileType::RegularFile, "{} is no regular file", at());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let old = File::from(openat(&folder_fd, name, flags, Mode::empty()).with_context(at)?);
    let mut held = Vec::new();
    old.take(FILE_MAX + 1).read_to_end(&mut held).with_context(at)?;
    ensure!(held == before.as_bytes(), "{} has been changed by somebody else at this moment", path.display());
    discard_drafts(&folder_fd, &name.to_string_lossy());
    let draft = format!(".{}.{:016x}.new", name.to_string_lossy(), random());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new = openat(&folder_fd, &draft, flags, Mode::RUSR | Mode::WUSR).with_context(at)?;
    let written = fill(new, text, (there.st_uid, there.st_gid, there.st_mode))
        .and_then(|()| Ok(renameat(&folder_fd, &draft, &folder_fd, name)?));
    if written.is_err() {
        let _ = unlinkat(&folder_fd, &draft, AtFlags::empty());
    }
    written.with_context(at)?;
    // The name as well; where that fails it is in force all the same.
    let _ = rustix::fs::fsync(&folder_fd);
    Ok(())
}

/// Who may move things about in the folder could have anything written in the name of this process.
fn examine(folder: &OwnedFd, path: &Path) -> Result<()> {
    let there = rustix::fs::fstat(folder)?;
    let is_trusted = there.st_uid == 0 || there.st_uid == geteuid().as_raw();
    ensure!(
        is_trusted && there.st_mode & 0o002 == 0,
        "the folder {} is others' or may be written to by everybody: what lies there is not written by this server; \
         `chmod o-w` it, or edit the file by hand",
        path.display()
    );
    Ok(())
}

/// Takes drafts of a file away that a server has left which was killed while it wrote them: one change is made at a time.
fn discard_drafts(folder: &OwnedFd, name: &str) {
    let is_draft = |there: &str| {
        let random = there.strip_prefix('.').and_then(|rest| rest.strip_prefix(name)?.strip_prefix('.'));
        let random = random.and_then(|rest| rest.strip_suffix(".new"));
        random.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    // What cannot be read or removed is in nobody's way.
    for entry in rustix::fs::Dir::read_from(folder).into_iter().flatten().filter_map(Result::ok) {
        if is_draft(&entry.file_name().to_string_lossy()) {
            let _ = unlinkat(folder, entry.file_name(), AtFlags::empty());
        }
    }
}

fn fill(new: OwnedFd, text: &str, (uid, gid, mode): (u32, u32, u32)) -> Result<()> {
    let mut file = File::from(new);
    file.write_all(text.as_bytes())?;
    let there = rustix::fs::fstat(&file)?;
    if (there.st_uid, there.st_gid) != (uid, gid) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid)).context("it cannot be given its owner")?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o7777))?;
    file.sync_all()?;
    Ok(())
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Where there is no chance, two at the same time do not happen either.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let folder = folder.join(format!("admin-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_behind_its_link() {
        let folder = folder("replace");
        let (file, link) = (folder.join("a.kdl"), folder.join("link.kdl"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a.kdl", &link).unwrap();
        fs::write(folder.join(".a.kdl.0123456789abcdef.new"), "left by one that was killed").unwrap();
        replace(&link, "old", "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside it");
        let why = replace(&file, "old", "newer").unwrap_err().to_string();
        assert!(why.contains("changed by somebody else"), "{why}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_others_may_move_about_is_not_written() {
        let folder = folder("open");
        let file = folder.join("a.kdl");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let why = replace(&file, "old", "new").unwrap_err().to_string();
        assert!(why.contains("may be written to by everybody"), "{why}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// As on a full disk: what cannot be written to its end is gone, and the old text is there.
    #[test]
    fn what_cannot_be_written_leaves_the_old_file() {
        let full = rustix::fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let why = fill(full, "new", (0, 0, 0o600)).unwrap_err();
        assert!(format!("{why:#}").contains("No space left"), "{why:#}");
    }

    #[test]
    fn a_tag_knows_where_one_text_ends() {
        let one = tag_of([("a", "bc"), ("d", "")]);
        assert_ne!(one, tag_of([("ab", "c"), ("d", "")]));
        assert_ne!(one, tag_of([("a", "bc")]));
        assert_eq!(one, tag_of([("a", "bc"), ("d", "")]));
    }
}
