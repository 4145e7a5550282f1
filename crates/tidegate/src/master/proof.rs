//! The proof of both ends of the control socket that they are nothing that the server has started.
//!
//! A server that an ordinary user starts runs applications as that user, and the mode of the socket does not tell them
//! apart. What tells them apart is a file that they cannot open (`supervise/seal.rs`), which holds a secret. Each end
//! sends a nonce, and shows by a keyed hash (HMAC-SHA-256) that it knows the secret: the operator's over the command and
//! the place of the socket, the server's over the reply. An application that has put a socket of its own in place of the
//! server's can pass both on and change neither: no other command is done, and no other reply is believed.

use super::acme::default_storage;
use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use aws_lc_rs::rand;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_modules::gateway::supervise::seal;

/// The first word of the server's question, `prove NONCE PATH`.
const QUESTION: &str = "prove ";
/// The first word of the operator's answer, `proof NONCE HASH`.
const ANSWER: &str = "proof ";
/// The first word of the line before a reply, `proved HASH`.
const PROVED: &str = "proved ";
/// How the name of the file ends.
const SUFFIX: &str = ".proof";
/// The longest answer, bytes.
const ANSWER_MAX: u64 = 256;

type Bytes = [u8; 32];

/// Who says something, so that what one end says is nothing in the mouth of the other.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Speaker {
    Operator,
    Server,
}

/// The server's end: the file, and the secret in it.
#[derive(Debug)]
pub struct Proof {
    path: PathBuf,
    control: PathBuf,
    key: Key,
}

/// A conversation in which the operator has shown that it knows the secret.
#[derive(Debug)]
pub struct Proven {
    key: Key,
    nonces: [Bytes; 2],
}

/// A control socket with everything on the way to it resolved, so that both ends mean the same one.
fn resolved(control: &Path) -> PathBuf {
    let absolute = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
    let folder = absolute.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, absolute.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

/// Where the file may be: beside the control socket, and among the user's own files. Never in a folder for everybody,
/// where an application could put one.
fn places(control: &Path) -> impl Iterator<Item = PathBuf> {
    let mut beside = control.as_os_str().to_owned();
    beside.push(SUFFIX);
    let name = control.to_string_lossy().trim_start_matches('/').replace('/', "-");
    let own = default_storage().with_file_name(format!("{name}{SUFFIX}"));
    let places = [PathBuf::from(beside), own].into_iter();
    places.filter(|path| seal::shared_folder(path).is_none())
}

impl Proof {
    /// Makes the file: beside the control socket, and where that is in a folder for everybody among the user's own
    /// files. `None` where neither can be kept from applications. The successor of an upgrade takes the secret over, so
    /// that its predecessor can go on with it should the successor fail.
    pub fn make(control: &Path, has_predecessor: bool) -> Option<Proof> {
        let control = resolved(control);
        places(&control).find_map(|path| Proof::at(path, control.clone(), has_predecessor).ok())
    }

    fn at(path: PathBuf, control: PathBuf, has_predecessor: bool) -> Result<Proof> {
        ensure!(!path.as_os_str().as_bytes().contains(&b'\n'), "a path of one line");
        if has_predecessor && let Ok(secret) = secret_in(&path) {
            return Ok(Proof { path, control, key: Key::new(HMAC_SHA256, &secret) });
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.parent().context("it has a folder")?)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let secret = random()?;
        File::options().write(true).create_new(true).mode(0o600).open(&path)?.write_all(&secret)?;
        Ok(Proof { path, control, key: Key::new(HMAC_SHA256, &secret) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Asks the other end, which has sent this command; `hears` is its stream, with an end to its patience. The sentence says why it is not done.
    pub fn ask(&self, mut stream: &UnixStream, hears: impl Read, command: &str) -> Result<Proven, String> {
        let refusal = || {
            format!(
                "who commands this server has to know the secret in {}: applications may not",
                self.path.display()
            )
        };
        let ours = random().map_err(|error| format!("{error:#}"))?;
        let path = self.path.as_os_str().as_bytes();
        let question = [QUESTION.as_bytes(), hex(&ours).as_bytes(), b" ", path, b"\n"].concat();
        stream.write_all(&question).map_err(|_| refusal())?;
        let mut line = String::new();
        BufReader::new(hears.take(ANSWER_MAX)).read_line(&mut line).map_err(|_| refusal())?;
        let said = line.strip_prefix(ANSWER).and_then(|rest| rest.strip_suffix('\n')?.split_once(' '));
        let said = said.and_then(|(theirs, hash)| Some((unhex(theirs)?, unhex(hash)?)));
        let (theirs, hash) = said.ok_or_else(refusal)?;
        let proven = Proven { key: self.key.clone(), nonces: [ours, theirs] };
        if proven.is_said(Speaker::Operator, [self.control.as_os_str().as_bytes(), command.as_bytes()], &hash)
        {
            Ok(proven)
        } else {
            Err(refusal())
        }
    }
}

/// Removes what a server that asked for a proof has left, where its successor asks for none.
pub fn forget(control: &Path) {
    places(&resolved(control)).for_each(|path| drop(fs::remove_file(path)));
}

impl Proven {
    /// The line before a reply that shows whose it is.
    pub fn line_before(&self, reply: &[u8]) -> String {
        format!("{PROVED}{}\n", hex(&self.hash(Speaker::Server, [reply, &[]])))
    }

    /// The reply, if the line before it shows that it is the server's.
    pub fn reply<'r>(&self, said: &'r [u8]) -> Option<&'r [u8]> {
        let (line, reply) = said.split_at(said.iter().position(|byte| *byte == b'\n')? + 1);
        let hash = str::from_utf8(line).ok()?.strip_prefix(PROVED)?.strip_suffix('\n')?;
        self.is_said(Speaker::Server, [reply, &[]], &unhex(hash)?).then_some(reply)
    }

    fn message(&self, who: Speaker, parts: [&[u8]; 2]) -> Vec<u8> {
        let mut message = vec![who as u8];
        message.extend(self.nonces.iter().flatten());
        for part in parts {
            message.extend((part.len() as u64).to_le_bytes());
            message.extend(part);
        }
        message
    }

    fn hash(&self, who: Speaker, parts: [&[u8]; 2]) -> Bytes {
        let tag = hmac::sign(&self.key, &self.message(who, parts));
        tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    fn is_said(&self, who: Speaker, parts: [&[u8]; 2], hash: &Bytes) -> bool {
        hmac::verify(&self.key, &self.message(who, parts), hash).is_ok()
    }
}

/// The operator's end, for one control socket.
pub struct Operator {
    control: PathBuf,
    places: Vec<PathBuf>,
}

impl Operator {
    /// For a control socket.
    pub fn of(control: &Path) -> Operator {
        let control = resolved(&control.canonicalize().unwrap_or_else(|_| control.to_owned()));
        Operator { places: places(&control).collect(), control }
    }

    /// Whether the server of this socket asks for a proof: one that does not is none of ours.
    pub fn is_asked(&self) -> bool {
        self.places.iter().any(|path| secret_in(path).is_ok())
    }

    /// Answers the question of a server to this command; `None` where the line is no question. The secret is read where
    /// the server of this socket keeps it, and nowhere else: whoever asks may be anybody who has put a socket there.
    pub fn answer(&self, mut stream: &UnixStream, line: &[u8], command: &str) -> Result<Option<Proven>> {
        let Some((nonce, path)) = question(line) else { return Ok(None) };
        if !self.places.contains(&path) {
            bail!(
                "the server asks for the secret in {}, which is not where that of the control socket {} is kept; give its \
                 path as the server has it, with the HOME and XDG_DATA_HOME that it was started with",
                path.display(),
                self.control.display()
            );
        }
        let refused =
            || format!("the server asks for the secret in {}, which cannot be read", path.display());
        let secret = secret_in(&path).with_context(refused)?;
        let proven = Proven { key: Key::new(HMAC_SHA256, &secret), nonces: [nonce, random()?] };
        let hash = proven.hash(Speaker::Operator, [self.control.as_os_str().as_bytes(), command.as_bytes()]);
        let answer = format!("{ANSWER}{} {}\n", hex(&proven.nonces[1]), hex(&hash));
        stream.write_all(answer.as_bytes()).context("the server broke off")?;
        Ok(Some(proven))
    }
}

fn question(line: &[u8]) -> Option<(Bytes, PathBuf)> {
    let rest = line.strip_prefix(QUESTION.as_bytes())?.strip_suffix(b"\n")?;
    let (nonce, path) = rest.split_at_checked(64)?;
    let nonce = unhex(str::from_utf8(nonce).ok()?)?;
    Some((nonce, PathBuf::from(OsStr::from_bytes(path.strip_prefix(b" ")?))))
}

/// The secret in a file of this user's that nobody else reads.
fn secret_in(path: &Path) -> Result<Bytes> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let there = fstat(&file)?;
    ensure!(FileType::from_raw_mode(there.st_mode) == FileType::RegularFile, "it is no file");
    ensure!(there.st_uid == geteuid().as_raw() && there.st_mode & 0o077 == 0, "it is not this user's alone");
    let mut secret = Vec::new();
    File::from(file).take(33).read_to_end(&mut secret)?;
    secret.try_into().ok().context("it holds something else")
}

fn random() -> Result<Bytes> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok().context("the system gives no random bytes")?;
    Ok(bytes)
}

fn hex(bytes: &Bytes) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Bytes> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *place = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that nobody else writes to, unlike that for temporary files.
    fn folder(name: &str) -> PathBuf {
        let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let folder = target.join(format!("proof-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    fn line_of(stream: &UnixStream) -> Vec<u8> {
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
        line
    }

    /// What the server does with a command when the other end says this to its question.
    fn asked(
        proof: &Proof,
        command: &str,
        answer: impl FnOnce(&UnixStream, Vec<u8>) -> Option<Proven>,
    ) -> (Result<Proven, String>, Option<Proven>) {
        let (here, there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let here = here;
                proof.ask(&here, &here, command)
            });
            let line = line_of(&there);
            let operator = answer(&there, line);
            drop(there);
            (asking.join().unwrap(), operator)
        })
    }

    #[test]
    fn who_knows_the_secret_commands_and_believes_the_reply() {
        let folder = folder("asked");
        let control = folder.join("control");
        let proof = Proof::make(&control, false).unwrap();
        let operator = Operator::of(&control);
        assert!(operator.is_asked());
        let (server, client) =
            asked(&proof, "stop now", |stream, line| operator.answer(stream, &line, "stop now").unwrap());
        let (server, client) = (server.unwrap(), client.unwrap());
        let reply = |text: &str| [server.line_before(b"ok\ndone").as_bytes(), text.as_bytes()].concat();
        assert_eq!(client.reply(&reply("ok\ndone")), Some(&b"ok\ndone"[..]));
        for changed in ["ok\nnothing was done", "failed\ndone", ""] {
            assert_eq!(client.reply(&reply(changed)), None, "{changed}");
        }
        assert_eq!(client.reply(b"ok\ndone"), None, "without proof");
        // What the operator has said is no reply.
        let own = hex(&client.hash(Speaker::Operator, [b"ok\ndone", b""]));
        assert_eq!(client.reply(format!("{PROVED}{own}\nok\ndone").as_bytes()), None);
        for said in ["", "proof\n", "proof 00 00\n", "\n"] {
            let (server, _) = asked(&proof, "stop now", |mut stream, _| {
                stream.write_all(said.as_bytes()).unwrap();
                None
            });
            assert!(server.is_err(), "{said:?}");
        }
        proof.remove();
        assert!(!operator.is_asked());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// An application has moved the socket away and listens in its place.
    #[test]
    fn a_relay_can_neither_change_the_command_nor_take_it_elsewhere_or_again() {
        let folder = folder("relay");
        let (control, other) = (folder.join("control"), folder.join("other"));
        let proof = Proof::make(&control, false).unwrap();
        let operator = Operator::of(&control);
        let (server, client) = asked(&proof, "upgrade to /tmp/evil", |stream, line| {
            operator.answer(stream, &line, "status text").unwrap()
        });
        assert!(server.is_err() && client.is_some(), "another command");
        // To another server of this user, whose secret the operator could read as well.
        let others = Proof::make(&other, false).unwrap();
        let (server, _) = asked(&others, "stop", |stream, line| {
            operator.answer(stream, &line, "stop").unwrap_err();
            None
        });
        assert!(server.is_err(), "another server");
        // An answer counts once.
        let mut heard = Vec::new();
        let (server, _) = asked(&proof, "stop", |stream, line| {
            let (here, there) = UnixStream::pair().unwrap();
            operator.answer(&there, &line, "stop").unwrap();
            heard = line_of(&here);
            (&*stream).write_all(&heard).unwrap();
            None
        });
        assert!(server.is_ok(), "passed on as it is");
        let (server, _) = asked(&proof, "stop", |mut stream, _| {
            stream.write_all(&heard).unwrap();
            None
        });
        assert!(server.is_err(), "a second time");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_is_read_in_its_place_and_made_anew_with_every_start() {
        let folder = folder("place");
        let control = folder.join("control");
        let proof = Proof::make(&control, false).unwrap();
        let first = secret_in(proof.path()).unwrap();
        assert_eq!(secret_in(Proof::make(&control, true).unwrap().path()).unwrap(), first, "a successor");
        let proof = Proof::make(&control, false).unwrap();
        assert_ne!(secret_in(proof.path()).unwrap(), first, "a new start");
        // Whoever asks knows this one.
        let known = folder.join("known.proof");
        fs::copy(proof.path(), &known).unwrap();
        let question = [QUESTION, &hex(&[7; 32]), " ", known.to_str().unwrap(), "\n"].concat();
        let (here, _there) = UnixStream::pair().unwrap();
        let operator = Operator::of(&control);
        assert!(operator.answer(&here, question.as_bytes(), "status text").is_err());
        assert!(operator.answer(&here, b"ok\n", "status text").unwrap().is_none(), "no question");
        fs::write(proof.path(), "").unwrap();
        assert!(secret_in(proof.path()).is_err(), "empty");
        fs::remove_file(proof.path()).unwrap();
        std::os::unix::fs::symlink(&known, proof.path()).unwrap();
        assert!(secret_in(proof.path()).is_err(), "a link");
        forget(&control);
        assert!(!proof.path().exists() && known.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
