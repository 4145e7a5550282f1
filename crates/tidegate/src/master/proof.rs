//! The proof that whoever commands over the control socket is nothing that the server has started.
//!
//! A server that an ordinary user starts runs applications as that user, and the mode of the socket does not tell them
//! apart. What tells them apart is a file that they cannot open (`supervise/seal.rs`): the server names it, whoever
//! commands opens it and sends the descriptor. The file is empty, so nothing is given away by asking for it.

use super::acme::default_storage;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::process::geteuid;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_io::passing;
use tidegate_modules::gateway::supervise::seal;

/// The first word of the server's question.
const WORD: &str = "prove ";
/// How the name of the file ends.
const SUFFIX: &str = ".proof";

/// The file, open.
#[derive(Debug)]
pub struct Proof {
    path: PathBuf,
    file: OwnedFd,
}

impl Proof {
    /// Makes the file: beside the control socket, and where that is in a folder for everybody among the user's own
    /// files. `None` where neither can be kept from applications.
    pub fn make(control: &Path) -> Option<Proof> {
        let mut beside = control.as_os_str().to_owned();
        beside.push(SUFFIX);
        // The successor of an upgrade has the same name, and leaves the file as it is.
        let name = control.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let own = default_storage().with_file_name(format!("{name}{SUFFIX}"));
        let places = [PathBuf::from(beside), own].into_iter();
        places.filter(|path| seal::shared_folder(path).is_none()).find_map(|path| Proof::at(path).ok())
    }

    fn at(path: PathBuf) -> Result<Proof> {
        let folder = path.parent().context("it has a folder")?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        ensure!(is_ours(&file)?, "something else lies there");
        Ok(Proof { path, file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, unless a successor's lies there.
    pub fn remove(&self) {
        let ours = fstat(&self.file).ok().map(|there| (there.st_dev, there.st_ino));
        let there = fs::symlink_metadata(&self.path).ok().map(|there| (there.dev(), there.ino()));
        if there.is_some() && there == ours {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Asks the other end for it. The sentence says why not.
    pub fn ask(&self, mut stream: &UnixStream) -> Result<(), String> {
        use std::io::Write;
        let question = [WORD.as_bytes(), self.path.as_os_str().as_encoded_bytes(), b"\n"].concat();
        let refusal =
            || "who commands this server has to open the file that it names: applications may not".to_owned();
        stream.write_all(&question).map_err(|_| refusal())?;
        let is_shown = passing::receive_one(stream.as_fd()).is_ok_and(|file| self.is_shown(&file));
        if is_shown { Ok(()) } else { Err(refusal()) }
    }

    /// Whether a descriptor is one that reads the file: one that only names it anybody can have (`O_PATH`).
    fn is_shown(&self, file: &OwnedFd) -> bool {
        let reads = fcntl_getfl(file)
            .is_ok_and(|flags| !flags.contains(OFlags::PATH) && !flags.contains(OFlags::WRONLY));
        let (Ok(shown), Ok(ours)) = (fstat(file), fstat(&self.file)) else { return false };
        reads && (shown.st_dev, shown.st_ino) == (ours.st_dev, ours.st_ino)
    }
}

/// An empty file of this user's.
fn is_ours(file: &OwnedFd) -> Result<bool> {
    let there = fstat(file)?;
    let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    Ok(is_file && there.st_size == 0 && there.st_uid == geteuid().as_raw())
}

/// What the server asks for, where a line is such a question.
pub fn question(line: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = line.strip_prefix(WORD.as_bytes())?.strip_suffix(b"\n")?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

/// Shows the file that the server asks for. Whoever asks may be anybody who has put a socket there: nothing is sent but
/// an empty file of our own that is named as such.
pub fn show(stream: &UnixStream, path: &Path) -> Result<()> {
    let refused = || format!("the server asks to be shown {}, which cannot be done", path.display());
    ensure!(path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes()), refused());
    let file =
        open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .with_context(refused)?;
    ensure!(is_ours(&file).with_context(refused)?, refused());
    passing::send_one(stream.as_fd(), file.as_fd()).with_context(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    fn proof(name: &str) -> Proof {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}{SUFFIX}", std::process::id()));
        Proof::at(path).unwrap()
    }

    fn asked(proof: &Proof, answer: impl FnOnce(&UnixStream, PathBuf)) -> Result<(), String> {
        let (here, there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let here = here;
                proof.ask(&here)
            });
            let mut line = Vec::new();
            BufReader::new(&there).read_until(b'\n', &mut line).unwrap();
            answer(&there, question(&line).unwrap());
            drop(there);
            asking.join().unwrap()
        })
    }

    #[test]
    fn whoever_opens_the_file_may_and_nobody_else() {
        let proof = proof("asked");
        assert_eq!(asked(&proof, |stream, path| show(stream, &path).unwrap()), Ok(()));
        assert!(asked(&proof, |_, _| {}).is_err(), "says nothing");
        assert!(asked(&proof, |mut stream, _| stream.write_all(b"me\n").unwrap()).is_err(), "other bytes");
        let send = |flags: OFlags, path: PathBuf| {
            asked(&proof, |stream, _| {
                let file = open(path, flags, Mode::empty()).unwrap();
                passing::send_one(stream.as_fd(), file.as_fd()).unwrap();
            })
        };
        assert!(send(OFlags::PATH, proof.path().into()).is_err(), "only named");
        assert!(send(OFlags::WRONLY, proof.path().into()).is_err(), "not read");
        assert!(send(OFlags::RDONLY, "/dev/null".into()).is_err(), "another file");
        assert_eq!(send(OFlags::RDONLY, proof.path().into()), Ok(()));
        let path = proof.path().to_owned();
        proof.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_stranger_is_shown_nothing_but_a_proof() {
        let proof = proof("strange");
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(show(&here, Path::new("/etc/passwd")).is_err());
        fs::write(proof.path(), "not empty").unwrap();
        assert!(show(&here, proof.path()).is_err());
        let link = proof.path().with_extension("link.proof");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert!(show(&here, &link).is_err());
        fs::remove_file(&link).unwrap();
        proof.remove();
    }
}
