//! What was issued, on a disk: certificates, keys, accounts, answers to challenges, and locks, so that several
//! nodes can share one folder.
//!
//! ```text
//! certificates/NAME/certificate.pem     accounts/AUTHORITY.json     local/{root.pem,root.key}
//! challenges/TOKEN                      locks/NAME
//! ```
//!
//! A file is written beside its place and moved there, so that a reader sees the old one or the new one. That is
//! why a certificate and its key are one file: no end of the process, and no second writer, leaves a pair that does
//! not fit. A lock is a file that its holder touches; one that nobody has touched for a minute belongs to a node
//! that has died.

use crate::certificate::Pair;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fchown, fstat, open};
use rustix::io::Errno;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A lock that was not touched for so long is nobody's.
pub const STALE: Duration = Duration::from_secs(60);
/// How often a lock that is held is to be touched.
pub const TOUCH: Duration = Duration::from_secs(10);
/// Answers to challenges that are looked at at once.
const ANSWERS: usize = 1000;

/// The folder of what was issued, which several nodes may share.
#[derive(Debug)]
pub struct Storage {
    root: PathBuf,
}

/// The locks of others that were met: what was seen of each, and when.
#[derive(Debug, Default)]
pub struct Seen(HashMap<String, (Mark, Instant)>);

/// What tells one touch of a lock from the next.
type Mark = (u64, i64, i64);

/// A lock that is held. Dropping it gives it up.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
}

impl Storage {
    /// Opens the folder, and makes it where it is not there: for this user alone.
    ///
    /// # Errors
    /// A folder cannot be made, or something in it cannot be opened or taken away from others.
    pub fn open(root: &Path) -> io::Result<Storage> {
        for folder in ["", "certificates", "accounts", "local", "challenges", "locks"] {
            let path = if folder.is_empty() { root.to_owned() } else { root.join(folder) };
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        keep_to_ourselves(&root.canonicalize()?, 3)?;
        Ok(Storage { root: root.to_owned() })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        self.root.join("certificates").join(file_name(name))
    }

    /// The certificate of a name; `None` where there is none.
    pub fn certificate(&self, name: &str) -> Option<Pair> {
        let (path, key_beside) = self.certificate_paths(name);
        let kept = Pair::read(&path, &path).ok()?;
        let has_key = PrivateKeyDer::from_pem_slice(&kept.key).is_ok();
        if has_key { Some(kept) } else { Pair::read(&path, &key_beside).ok() }
    }

    /// Keeps the certificate of a name in the place of the one before. `pem` holds its key as well.
    ///
    /// # Errors
    /// The folder or the file cannot be written, and the pair before is as it was; or a key that lies beside the file
    /// cannot be removed.
    pub fn keep_certificate(&self, name: &str, pem: &str) -> io::Result<Pair> {
        let (path, key_beside) = self.certificate_paths(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.folder_of(name))?;
        write(&path, pem.as_bytes())?;
        remove(&key_beside)?;
        Ok(Pair::in_one_file(&path.display().to_string(), pem.as_bytes()))
    }

    /// The file of a pair, and where builds before kept its key.
    fn certificate_paths(&self, name: &str) -> (PathBuf, PathBuf) {
        let folder = self.folder_of(name);
        (folder.join("certificate.pem"), folder.join("key.pem"))
    }

    /// The credentials of an account with an authority, JSON.
    pub fn account(&self, authority: &str) -> Option<String> {
        fs::read_to_string(self.account_path(authority)).ok()
    }

    /// Keeps the credentials of an account.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_account(&self, authority: &str, credentials: &str) -> io::Result<()> {
        write(&self.account_path(authority), credentials.as_bytes())
    }

    fn account_path(&self, authority: &str) -> PathBuf {
        self.root.join("accounts").join(format!("{}.json", file_name(authority)))
    }

    /// The local authority's own certificate and key.
    pub fn local_root(&self) -> (PathBuf, PathBuf) {
        let folder = self.root.join("local");
        (folder.join("root.pem"), folder.join("root.key"))
    }

    /// Keeps the local authority.
    ///
    /// # Errors
    /// A file cannot be written. The new key may be in place then without its certificate: who reads them has to
    /// look whether they fit.
    pub fn keep_local_root(&self, certificate: &str, key: &str) -> io::Result<()> {
        let (certificate_path, key_path) = self.local_root();
        write(&key_path, key.as_bytes())?;
        write(&certificate_path, certificate.as_bytes())
    }

    /// Lets every node answer a challenge. `None`: it is over.
    ///
    /// # Errors
    /// The file cannot be written, or is there and cannot be removed.
    pub fn set_answer(&self, token: &str, answer: Option<&str>) -> io::Result<()> {
        let path = self.root.join("challenges").join(file_name(token));
        match answer {
            Some(answer) => write(&path, answer.as_bytes()),
            None => remove(&path),
        }
    }

    /// The answers that any node has to give: token and answer.
    pub fn answers(&self) -> Vec<(String, String)> {
        let Ok(entries) = fs::read_dir(self.root.join("challenges")) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let read = |name: String| {
            let answer = fs::read_to_string(self.root.join("challenges").join(&name)).ok()?;
            Some((name, answer))
        };
        names.filter(|name| !name.contains('.')).filter_map(read).take(ANSWERS).collect()
    }

    /// Takes the lock of a name; `None` while somebody else has it. `seen` is the caller's memory of locks that
    /// others hold, `now` its clock: only what did not change for [`STALE`] on that clock is taken away, so that
    /// the clocks of nodes need not agree.
    ///
    /// # Errors
    /// The file of the lock is not there and cannot be made, or one that was found stale cannot be removed.
    pub fn lock(&self, name: &str, seen: &mut Seen, now: Instant) -> io::Result<Option<Lock>> {
        let path = self.root.join("locks").join(file_name(name));
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                seen.0.remove(name);
                // For who looks into the folder; nothing depends on it.
                let _ = writeln!(file, "process {}", std::process::id());
                return Ok(Some(Lock { path }));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let Ok(metadata) = fs::metadata(&path) else { return Ok(None) }; // given up just now
        let mark = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        let known = seen.0.entry(name.to_owned()).or_insert((mark, now));
        if known.0 != mark {
            *known = (mark, now);
        }
        if now.saturating_duration_since(known.1) >= STALE {
            seen.0.remove(name);
            // Two that find it stale at once: the one that moves it away has it, the other finds nothing.
            let aside =
                self.root.join("locks").join(format!("{}.stale.{}", file_name(name), std::process::id()));
            if fs::rename(&path, &aside).is_ok() {
                fs::remove_file(aside)?;
            }
        }
        Ok(None)
    }
}

impl Lock {
    /// Tells the other nodes that its holder lives.
    ///
    /// # Errors
    /// The file cannot be opened, as where another node has taken the lock away, or its time cannot be set.
    pub fn touch(&self) -> io::Result<()> {
        let file = fs::OpenOptions::new().append(true).open(&self.path)?;
        file.set_modified(std::time::SystemTime::now())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Letters, digits, `-` and `_` as they are; everything else, the star of a wildcard too, as `%XX`. A name is
/// lower case before, so that no two names are one file.
fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            byte => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// Takes everything below a folder away from everybody else: it may have been made by hand, copied, or left by a server
/// that ran as the user that applications now have. Links are left alone.
fn keep_to_ourselves(path: &Path, depth: usize) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match open(path, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOENT) => return Ok(()), // a link, or removed meanwhile
        opened => opened?,
    };
    let seen = fstat(&opened)?;
    let is_folder = FileType::from_raw_mode(seen.st_mode) == FileType::Directory;
    let own = rustix::process::geteuid();
    if seen.st_uid != own.as_raw() && own.is_root() {
        fchown(&opened, Some(own), Some(rustix::process::getegid()))?;
    }
    if seen.st_mode & 0o077 != 0 {
        fchmod(&opened, Mode::from_raw_mode(seen.st_mode & 0o700))?;
    }
    if is_folder && depth > 0 {
        for entry in fs::read_dir(path)? {
            keep_to_ourselves(&entry?.path(), depth - 1)?;
        }
    }
    Ok(())
}

/// What is not there is removed already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
