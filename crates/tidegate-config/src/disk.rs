//! What loading needs to know of the file system, and nothing more.
//!
//! A parameter of loading, so that the fuzz target and the table's own tests never touch a disk.

use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::syntax::FILE_SIZE;

/// Most entries of a folder that a pattern of `include` looks at.
const FOLDER_ENTRIES: usize = 100_000;
/// Most files that one pattern of `include` finds.
const FOUND: usize = 100_000;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Missing,
    /// A symbolic link that leads nowhere.
    Dangling,
    Folder,
    File,
    /// A device, a socket, a pipe.
    Special,
    /// There, but not for us to look at.
    Hidden,
}

/// The questions that loading asks of the file system.
pub(crate) trait Disk {
    /// What a path is, symbolic links followed.
    fn what(&self, path: &Path) -> What;
    /// Whether this process may write to a file or into a folder.
    fn may_write(&self, path: &Path) -> bool;
    /// Whether this process may look into a folder.
    fn may_enter(&self, path: &Path) -> bool;
    /// A regular file no larger than a file of settings may be.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;
    /// A path that is the same for all names of one file.
    fn identity(&self, path: &Path) -> PathBuf;
    /// Whether it is to be asked about the folders of caches.
    fn knows_caches(&self) -> bool {
        true
    }
}

/// The file system of this machine.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn what(&self, path: &Path) -> What {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => What::Folder,
            Ok(metadata) if metadata.is_file() => What::File,
            Ok(_) => What::Special,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => What::Hidden,
            Err(_) if fs::symlink_metadata(path).is_ok() => What::Dangling,
            Err(_) => What::Missing,
        }
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn may_enter(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.what(path) {
            What::File => {}
            What::Missing => return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file")),
            What::Dangling => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "it is a link that leads nowhere"));
            }
            What::Hidden => {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it may not be read"));
            }
            What::Folder => return Err(io::Error::other("it is a folder")),
            What::Special => return Err(io::Error::other("it is no regular file")),
        }
        // What has become a pipe meanwhile is not waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(FILE_SIZE).unwrap_or(u64::MAX).saturating_add(1);
        io::Read::read_to_end(&mut io::Read::take(file, limit), &mut bytes)?;
        if bytes.len() > FILE_SIZE {
            let why = format!("it is larger than {} MiB", FILE_SIZE >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(bytes)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            if names.len() >= FOLDER_ENTRIES {
                return Err(io::Error::other(format!("it holds more than {FOLDER_ENTRIES} files")));
            }
            names.push(entry?.file_name());
        }
        Ok(names)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}

/// The same, where some files have other texts.
pub(crate) struct WithTexts<'a> {
    /// By absolute paths.
    pub texts: &'a HashMap<PathBuf, String>,
    /// See [`Disk::knows_caches`].
    pub knows_caches: bool,
}

impl Disk for WithTexts<'_> {
    fn knows_caches(&self) -> bool {
        self.knows_caches
    }

    fn what(&self, path: &Path) -> What {
        RealDisk.what(path)
    }

    fn may_write(&self, path: &Path) -> bool {
        RealDisk.may_write(path)
    }

    fn may_enter(&self, path: &Path) -> bool {
        RealDisk.may_enter(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.texts.get(path) {
            Some(text) => Ok(text.clone().into_bytes()),
            None => RealDisk.read(path),
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.names(folder)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        RealDisk.identity(path)
    }
}

/// A file system that is asked each question once: very many sites may have the same root, and what was true for the first is
/// said of all of them.
pub(crate) struct AskedOnce<'a> {
    disk: &'a dyn Disk,
    what: RefCell<HashMap<OsString, What>>,
    may_enter: RefCell<HashMap<OsString, bool>>,
}

impl<'a> AskedOnce<'a> {
    /// For one reading of the settings: what changes later is for the next.
    pub fn new(disk: &'a dyn Disk) -> Self {
        Self { disk, what: RefCell::default(), may_enter: RefCell::default() }
    }
}

/// The answer that is known, else the one that is given now.
fn once<T: Copy>(known: &RefCell<HashMap<OsString, T>>, path: &Path, ask: impl FnOnce() -> T) -> T {
    let answer = known.borrow().get(path.as_os_str()).copied();
    answer.unwrap_or_else(|| {
        let answer = ask();
        known.borrow_mut().insert(path.as_os_str().to_owned(), answer);
        answer
    })
}

impl Disk for AskedOnce<'_> {
    fn what(&self, path: &Path) -> What {
        once(&self.what, path, || self.disk.what(path))
    }

    fn may_write(&self, path: &Path) -> bool {
        self.disk.may_write(path)
    }

    fn may_enter(&self, path: &Path) -> bool {
        once(&self.may_enter, path, || self.disk.may_enter(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.disk.names(folder)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        self.disk.identity(path)
    }

    fn knows_caches(&self) -> bool {
        self.disk.knows_caches()
    }
}

/// A file system where every path is a folder that may be written to and no file can be read.
pub(crate) struct NoDisk;

impl Disk for NoDisk {
    fn what(&self, _: &Path) -> What {
        What::Folder
    }

    fn may_write(&self, _: &Path) -> bool {
        true
    }

    fn may_enter(&self, _: &Path) -> bool {
        true
    }

    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::NotFound, "there is no such file"))
    }

    fn names(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// Whether a path holds a star or a question mark.
pub(crate) fn is_glob(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?'])
}

/// What a path with `*` and `?` in any of its parts stands for, in the order of the names: also what is no
/// file, so that nothing is left out without a word. A folder that is not there holds nothing; the error of
/// one that cannot be looked into comes with its path.
pub(crate) fn expand(disk: &dyn Disk, path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut found = vec![PathBuf::new()];
    for component in path.components() {
        let text = component.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            for path in &mut found {
                path.push(component);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let mut names = match disk.what(folder) {
                What::Missing | What::File | What::Special => continue,
                _ => disk.names(folder).map_err(|error| (folder.clone(), error))?,
            };
            names.retain(|name| {
                let name = name.to_string_lossy();
                (!name.starts_with('.') || text.starts_with('.')) && fits(&text, &name)
            });
            names.sort_unstable();
            next.extend(names.iter().map(|name| folder.join(name)));
            if next.len() > FOUND {
                let error = io::Error::other(format!("the pattern finds more than {FOUND} files"));
                return Err((folder.clone(), error));
            }
        }
        found = next;
    }
    found.retain(|path| disk.what(path) != What::Missing);
    Ok(found)
}

/// Whether a name fits a pattern of `*` and `?`. Takes time of the product of the lengths at most.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at, in_name));
                at += 1;
            }
            Some(character) if *character == '?' || *character == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    at = star + 1;
                    in_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_file_names() {
        for (pattern, name, expected) in [
            ("*.kdl", "a.kdl", true),
            ("*.kdl", "a.kdl~", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*", "", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// A folder is asked about once, however many sites have it for their root.
    #[test]
    fn a_question_is_asked_once() {
        let folder = std::env::temp_dir().join(format!("tidegate-asked-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let disk = AskedOnce::new(&RealDisk);
        assert_eq!((disk.what(&folder), disk.may_enter(&folder)), (What::Folder, true));
        fs::remove_dir(&folder).unwrap();
        assert_eq!((disk.what(&folder), disk.may_enter(&folder)), (What::Folder, true));
        assert_eq!(AskedOnce::new(&RealDisk).what(&folder), What::Missing);
    }

    /// Half of a password file is none.
    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("tidegate-large-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        for (size, is_read) in [(FILE_SIZE, true), (FILE_SIZE + 1, false)] {
            file.set_len(size as u64).unwrap();
            let read = RealDisk.read(&path).map(|bytes| bytes.len()).map_err(|error| error.kind());
            assert_eq!(read, if is_read { Ok(size) } else { Err(io::ErrorKind::FileTooLarge) });
        }
        fs::remove_file(&path).unwrap();
    }
}
