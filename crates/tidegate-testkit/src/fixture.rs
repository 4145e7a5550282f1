//! The files of a transcript: made, changed and removed below its own temporary folder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// One change to the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fixture {
    /// A file with these contents; folders on the way are made, a file of that name is overwritten in place.
    File { path: String, contents: Contents, modified: Option<u64> },
    /// A folder.
    Folder { path: String, modified: Option<u64> },
    /// A symbolic link; the target is stored as written.
    Link { path: String, target: String },
    /// A hard link or symbolic link, file or whole folder is removed.
    Remove { path: String },
    /// Permission bits.
    Mode { path: String, mode: u32 },
    /// Atomic replacement.
    Rename { from: String, to: String },
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    /// These bytes, `${NAME}` filled in.
    Text(Vec<u8>),
    /// These bytes as they are.
    Bytes(Vec<u8>),
    /// This many bytes that count 0 to 250 over and over: 251 is prime, so no power of two lines up with it.
    Counting(u64),
    /// This many zeros that take no room on the disk.
    Sparse(u64),
}

impl Contents {
    /// Reads `base64:`, `hex:`, `bytes:SIZE` or `sparse:SIZE`.
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let (kind, value) = word.split_once(':').ok_or_else(|| {
            format!("`{word}`: contents are \"text\", base64:, hex:, bytes:SIZE or sparse:SIZE")
        })?;
        match kind {
            "base64" => base64(value).map(Contents::Bytes),
            "hex" => hex(value).map(Contents::Bytes),
            "bytes" => size(value).map(Contents::Counting),
            "sparse" => size(value).map(Contents::Sparse),
            _ => Err(format!("`{kind}:` is no kind of contents")),
        }
    }
}

/// A number of bytes: `10`, `4K`, `3M`, `5G`, in powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))
}

/// The counting pattern of [`Contents::Counting`].
pub(crate) fn counting(length: u64) -> Vec<u8> {
    (0..=250u8).cycle().take(usize::try_from(length).unwrap_or(usize::MAX)).collect()
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return Err(format!("`{text}` is no hexadecimal"));
    }
    let pair =
        |at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| format!("`{text}` is no hexadecimal"));
    (0..text.len()).step_by(2).map(pair).collect()
}

/// RFC 4648 section 4; the padding may be left out.
fn base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD_NO_PAD
        .decode(text.trim_end_matches('='))
        .map_err(|error| format!("`{text}` is no base64: {error}"))
}

/// The temporary folder of one transcript; removed when dropped unless `TIDEGATE_KEEP` is set.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a new one.
    pub(crate) fn create() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tidegate-transcript-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path below it. Transcripts may not leave their folder.
    pub(crate) fn join(&self, relative: &str) -> Result<PathBuf, String> {
        let path = Path::new(relative);
        if path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            Ok(self.path.join(path))
        } else {
            Err(format!("`{relative}` leaves the transcript's folder"))
        }
    }

    /// Makes the change.
    pub(crate) fn apply(&self, fixture: &Fixture) -> Result<(), String> {
        match fixture {
            Fixture::File { path, contents, modified } => {
                let path = self.join(path)?;
                make_parent(&path)?;
                write(&path, contents).map_err(|error| format!("{}: {error}", path.display()))?;
                set_modified(&path, *modified)
            }
            Fixture::Folder { path, modified } => {
                let path = self.join(path)?;
                fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                set_modified(&path, *modified)
            }
            Fixture::Link { path, target } => {
                let path = self.join(path)?;
                make_parent(&path)?;
                std::os::unix::fs::symlink(target, &path)
                    .map_err(|error| format!("{}: {error}", path.display()))
            }
            Fixture::Mode { path, mode } => {
                let path = self.join(path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode))
                    .map_err(|error| format!("{}: {error}", path.display()))
            }
            Fixture::Remove { path } => {
                let path = self.join(path)?;
                let kind =
                    fs::symlink_metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let removed = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(|error| format!("{}: {error}", path.display()))
            }
            Fixture::Rename { from, to } => fs::rename(self.join(from)?, self.join(to)?)
                .map_err(|error| format!("{from} to {to}: {error}")),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("TIDEGATE_KEEP").is_none() {
            // What cannot be removed is left to the system's own cleaning.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn make_parent(path: &Path) -> Result<(), String> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}

fn write(path: &Path, contents: &Contents) -> std::io::Result<()> {
    match contents {
        Contents::Text(bytes) | Contents::Bytes(bytes) => fs::write(path, bytes),
        Contents::Counting(length) => fs::write(path, counting(*length)),
        Contents::Sparse(length) => fs::File::create(path)?.set_len(*length),
    }
}

fn set_modified(path: &Path, modified: Option<u64>) -> Result<(), String> {
    let Some(seconds) = modified else { return Ok(()) };
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let set = fs::File::open(path).and_then(|file| file.set_times(fs::FileTimes::new().set_modified(time)));
    set.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_decoded() {
        for (word, expected) in [
            ("base64:aGVsbG8=", Contents::Bytes(b"hello".to_vec())),
            ("base64:/+8", Contents::Bytes(vec![0xff, 0xef])),
            ("hex:00ff", Contents::Bytes(vec![0, 0xff])),
            ("bytes:4K", Contents::Counting(4096)),
            ("sparse:5G", Contents::Sparse(5 << 30)),
        ] {
            assert_eq!(Contents::parse(word).as_ref(), Ok(&expected), "{word}");
        }
        for word in ["text", "hex:0", "hex:zz", "base64:!", "bytes:x", "bytes:99999999999G", "rot13:a"] {
            assert!(Contents::parse(word).is_err(), "{word}");
        }
    }

    #[test]
    fn nothing_is_made_outside_the_folder() {
        let folder = Folder::create().expect("a temporary folder");
        for path in ["../x", "/etc/x", "a/../../x"] {
            assert!(folder.join(path).is_err(), "{path}");
        }
        let fixture =
            Fixture::File { path: "a/b".into(), contents: Contents::Counting(300), modified: Some(86400) };
        folder.apply(&fixture).expect("made");
        let path = folder.path().join("a/b");
        assert_eq!(fs::read(&path).expect("read")[250..253], [250, 0, 1]);
        let modified = fs::metadata(&path).and_then(|data| data.modified()).expect("a time");
        assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(86400));
        folder.apply(&Fixture::Remove { path: "a".into() }).expect("removed");
        assert!(!path.exists());
    }
}
