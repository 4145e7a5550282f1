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
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_core::log;
use tidegate_modules::gateway::supervise::seal;

/// The first word of the server's question, `prove NONCE PATH`.
const QUESTION: &str = "prove ";
/// The first word of the operator's answer, `proof NONCE HASH`.
const ANSWER: &str = "proof ";
/// The first word of the line before a reply, `proved HASH`.
const PROVED: &str = "proved ";
/// How the name of the file ends.
const SUFFIX: &str = ".proof";
/// The folder of this program among those for runtime files and for data.
const FOLDER: &str = "tidegate";
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

/// Where a user's files may be, as one process sees it.
struct Surroundings {
    uid: u32,
    /// Folders for what lives as long as the machine is up: the session's, and the system's for this program.
    runtime: Vec<PathBuf>,
    /// The user's own folders, as the environment and the system name them.
    homes: Vec<PathBuf>,
}

impl Surroundings {
    /// Of this process. What its environment lacks (`sudo`, `cron`) the system knows: both ends mean the same places then.
    fn here() -> Surroundings {
        let uid = geteuid();
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let session = Path::new("/run/user").join(uid.as_raw().to_string());
        let sessions = absolute("XDG_RUNTIME_DIR").into_iter().chain([session]).map(|path| path.join(FOLDER));
        Surroundings {
            uid: uid.as_raw(),
            runtime: sessions.chain([Path::new("/run").join(FOLDER)]).collect(),
            homes: homes(),
        }
    }

    /// Whether a path lies below a folder of the user's own.
    fn is_at_home(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| path.starts_with(home))
    }

    /// Whether a folder for such files is there, or can be made where nobody else could have. Of one that is there the mode
    /// says nothing: an application of this user can change it (chmod(2) is not in landlock).
    fn is_ours(&self, folder: &Path) -> bool {
        let own = |path: &Path| {
            fs::symlink_metadata(path).ok().filter(|there| there.is_dir() && there.uid() == self.uid)
        };
        let can_be_made = || folder.parent().and_then(own).is_some_and(|above| above.mode() & 0o022 == 0);
        own(folder).is_some() || (!folder.exists() && can_be_made())
    }

    /// Where the file may be, the best place first: never in a folder for everybody, where an application could put one,
    /// and below the user's home only where there is no other: applications make nothing right in a folder on the way.
    fn places(&self, control: &Path) -> Vec<PathBuf> {
        let mut beside = control.as_os_str().to_owned();
        beside.push(SUFFIX);
        let beside = PathBuf::from(beside);
        let name = control.to_string_lossy().trim_start_matches('/').replace('/', "-") + SUFFIX;
        let runtime =
            self.runtime.iter().filter(|folder| self.is_ours(folder)).map(|folder| folder.join(&name));
        let is_beside_good = !self.is_at_home(&beside);
        let mut places: Vec<PathBuf> = Some(beside.clone()).filter(|_| is_beside_good).into_iter().collect();
        places.extend(runtime);
        places.extend(Some(beside).filter(|_| !is_beside_good));
        places.push(default_storage().with_file_name(&name));
        places.extend(self.homes.iter().map(|home| home.join(".local/share").join(FOLDER).join(&name)));
        let mut seen = std::collections::BTreeSet::new();
        places.retain(|path| seen.insert(path.clone()) && seal::shared_folder(path).is_none());
        places
    }
}

/// The folders of this process's user: as `HOME` says and as the system does.
pub(super) fn homes() -> Vec<PathBuf> {
    let said = std::env::var_os("HOME").map(PathBuf::from);
    let known = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir);
    let mut homes: Vec<PathBuf> =
        said.into_iter().chain(known).filter_map(|home| home.canonicalize().ok()).collect();
    homes.retain(|home| home.parent().is_some());
    homes.dedup();
    homes
}

fn places(control: &Path) -> Vec<PathBuf> {
    Surroundings::here().places(control)
}

/// Where the proof of a control socket would be; `None` where no place can be kept from applications.
pub fn place_for(control: &Path) -> Option<PathBuf> {
    places(&resolved(control)).into_iter().next()
}

impl Proof {
    /// Makes the file: beside the control socket, and where that is in a folder for everybody or in the user's home, in a
    /// runtime folder; among the user's own files where there is none. `None` where none can be kept from applications.
    /// The successor of an upgrade takes the secret over where it is, so that its predecessor can go on with it should
    /// the successor fail.
    pub fn make(control: &Path, has_predecessor: bool) -> Option<Proof> {
        Proof::make_in(&Surroundings::here(), control, has_predecessor)
    }

    fn make_in(surroundings: &Surroundings, control: &Path, has_predecessor: bool) -> Option<Proof> {
        let control = resolved(control);
        let places = surroundings.places(&control);
        let taken_over = |path: &PathBuf| {
            let key = Key::new(HMAC_SHA256, &secret_in(path).ok()?);
            Some(Proof { path: path.clone(), control: control.clone(), key })
        };
        let taken_over =
            Some(&places).filter(|_| has_predecessor).and_then(|places| places.iter().find_map(taken_over));
        taken_over.or_else(|| {
            let made = places.iter().find_map(|path| Proof::at(path.clone(), control.clone()).ok())?;
            // One of an earlier start that was kept elsewhere would be believed as well.
            places.iter().filter(|path| **path != made.path).for_each(|path| drop(fs::remove_file(path)));
            Some(made)
        })
    }

    fn at(path: PathBuf, control: PathBuf) -> Result<Proof> {
        ensure!(!path.as_os_str().as_bytes().contains(&b'\n'), "a path of one line");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.parent().context("it has a folder")?)?;
        put_folder_right(&path);
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

    /// Says where others could have read it, and puts that right: an application that can neither read nor write it can change
    /// its mode all the same.
    fn look(&self) {
        let is_open = fs::symlink_metadata(&self.path).is_ok_and(|there| there.mode() & 0o077 != 0);
        if is_open {
            put_right(&self.path);
            log::error(format_args!(
                "the secret of the control socket in {} was its owner's alone and could be read by others: whoever changed \
                 its mode is of this server's user, as its applications are; a restart makes a new one",
                self.path.display()
            ));
        }
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
        self.look();
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
    places(&resolved(control)).iter().for_each(|path| drop(fs::remove_file(path)));
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
        let control = resolved(control);
        Operator { places: places(&control), control }
    }

    /// Whether the server of this socket asks for a proof: one that does not is none of ours. It does where there is a file of
    /// this user's, whatever its mode and content: those an application could have changed.
    pub fn is_asked(&self) -> bool {
        let is_own = |there: fs::Metadata| there.uid() == geteuid().as_raw();
        self.places.iter().any(|path| {
            let there = fs::symlink_metadata(path).or_else(|_| {
                put_folder_right(path);
                fs::symlink_metadata(path)
            });
            there.is_ok_and(is_own)
        })
    }

    /// Connects. The socket of a server that asks for a proof is never a symbolic link, which could lead to another server.
    ///
    /// # Errors
    /// Nobody listens there, or it is a link.
    pub fn connect(&self) -> io::Result<UnixStream> {
        if !self.is_asked() {
            return UnixStream::connect(&self.control);
        }
        let socket = open(&self.control, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&socket)?.st_mode) == FileType::Symlink {
            return Err(io::Error::other(
                "a symbolic link lies there, which an application may have put in the place of the server's socket",
            ));
        }
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
    }

    /// Answers the question of a server to this command; `None` where the line is no question. The secret is read where
    /// the server of this socket keeps it, and nowhere else: whoever asks may be anybody who has put a socket there.
    pub fn answer(&self, mut stream: &UnixStream, line: &[u8], command: &str) -> Result<Option<Proven>> {
        let Some((nonce, path)) = question(line) else { return Ok(None) };
        if !self.places.contains(&path) {
            bail!(
                "the server asks for the secret in {}, which is not where that of the control socket {} is kept; give its \
                 path as the server has it, with the XDG_RUNTIME_DIR, HOME and XDG_DATA_HOME that it was started with",
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

/// Lets the user enter the folder of a file again, and nobody else write to it where it is one for such files.
fn put_folder_right(path: &Path) {
    let Some(folder) = path.parent() else { return };
    let Ok(there) = fs::symlink_metadata(folder) else { return };
    let is_for_these = folder.file_name() == Some(OsStr::new(FOLDER));
    let mode = there.mode() & 0o7777;
    let right = if is_for_these { mode & !0o002 } else { mode } | 0o700;
    if there.is_dir() && there.uid() == geteuid().as_raw() && mode != right {
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(right));
    }
}

/// Makes a file of this user's such that its owner alone reads it.
fn put_right(path: &Path) {
    put_folder_right(path);
    let there = fs::symlink_metadata(path);
    let is_wrong = |there: fs::Metadata| {
        there.is_file() && there.uid() == geteuid().as_raw() && there.mode() & 0o777 != 0o600
    };
    if there.is_ok_and(is_wrong) {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
}

/// The secret in a file of this user's.
fn secret_in(path: &Path) -> Result<Bytes> {
    put_right(path);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let there = fstat(&file)?;
    ensure!(FileType::from_raw_mode(there.st_mode) == FileType::RegularFile, "it is no file");
    ensure!(there.st_uid == geteuid().as_raw(), "it is another user's");
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
        for stream in [&here, &there] {
            stream.set_read_timeout(Some(tidegate_testkit::WAIT)).unwrap();
        }
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

    /// An ordinary user's home stays free wherever there is a runtime folder.
    #[test]
    fn a_home_is_on_the_way_only_where_there_is_no_other_place() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("home");
        for path in ["home", "home/server", "run", "run/session", "open", "srv"] {
            fs::create_dir(folder.join(path)).unwrap();
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(0o700)).unwrap();
        }
        // A folder for everybody is another user's, as `/tmp` is root's.
        let is_for_everybody = std::os::unix::fs::chown(folder.join("open"), Some(65534), None).is_ok();
        fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o1777)).unwrap();
        let with = |runtime: &[&str]| Surroundings {
            uid: geteuid().as_raw(),
            runtime: runtime.iter().map(|path| folder.join(path)).collect(),
            homes: vec![folder.join("home")],
        };
        let first = |surroundings: &Surroundings, control: &str| {
            surroundings.places(&folder.join(control))[0].strip_prefix(&folder).unwrap().to_owned()
        };
        let name = |control: &str| {
            let control = folder.join(control).display().to_string();
            control.trim_start_matches('/').replace('/', "-") + SUFFIX
        };
        let session = ["run/session/tidegate"];
        let kept = |control: &str| Path::new("run/session/tidegate").join(name(control));
        assert_eq!(first(&with(&session), "srv/control"), Path::new("srv/control.proof"));
        let mut controls = vec!["home/control", "home/server/control"];
        if is_for_everybody {
            controls.push("open/control");
        } else {
            eprintln!("SKIPPED: only root can give a folder to another user");
        }
        for control in controls {
            assert_eq!(first(&with(&session), control), kept(control));
            // One that another could make first is passed over, and so is one that is not there.
            assert_eq!(first(&with(&["open/tidegate", "none/tidegate", session[0]]), control), kept(control));
        }
        assert_eq!(first(&with(&[]), "home/control"), Path::new("home/control.proof"));
        assert_eq!(
            first(&with(&["open/tidegate"]), "home/control"),
            Path::new("home/control.proof"),
            "without a runtime folder"
        );
        let in_home = folder.join("home/.local/share/tidegate").join(name("open/control"));
        assert!(with(&[]).places(&folder.join("open/control")).contains(&in_home));
        // A predecessor that knew no runtime folder is followed to where it keeps its own, and a new start is not.
        let control = folder.join("home/control");
        let before = Proof::make_in(&with(&[]), &control, false).unwrap();
        let next = Proof::make_in(&with(&session), &control, true).unwrap();
        assert_eq!(before.path(), next.path());
        let next = Proof::make_in(&with(&session), &control, false).unwrap();
        assert_eq!(next.path(), folder.join(kept("home/control")));
        assert!(!before.path().exists(), "the old one would be believed");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// An application can change modes of what it can neither read nor write.
    #[test]
    fn modes_change_nothing_of_who_is_asked_and_believed() {
        let folder = folder("modes");
        let kept = folder.join("session").join(FOLDER);
        fs::create_dir_all(&kept).unwrap();
        let surroundings = || Surroundings {
            uid: geteuid().as_raw(),
            runtime: vec![kept.clone()],
            homes: vec![folder.join("home")],
        };
        let control = folder.join("home/control");
        fs::create_dir(folder.join("home")).unwrap();
        let proof = Proof::make_in(&surroundings(), &control, false).unwrap();
        assert_eq!(proof.path().parent(), Some(&*kept));
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (of_folder, of_file) in [(0o777, 0o600), (0o700, 0o644), (0, 0o666), (0o700, 0)] {
            set(&kept, of_folder);
            set(proof.path(), of_file);
            let operator = Operator { places: surroundings().places(&control), control: control.clone() };
            assert!(operator.is_asked(), "{of_folder:o} {of_file:o}");
            let (server, client) =
                asked(&proof, "stop", |stream, line| operator.answer(stream, &line, "stop").unwrap());
            assert!(server.is_ok() && client.is_some(), "{of_folder:o} {of_file:o}");
            assert_eq!(fs::metadata(proof.path()).unwrap().mode() & 0o777, 0o600);
            assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o002, 0);
        }
        fs::write(proof.path(), "short").unwrap();
        let operator = Operator { places: surroundings().places(&control), control };
        assert!(operator.is_asked(), "whatever it holds");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_socket_is_not_followed() {
        let folder = folder("link");
        let (control, other) = (folder.join("control"), folder.join("other"));
        let _proof = Proof::make(&control, false).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
        std::os::unix::fs::symlink(&other, &control).unwrap();
        let said = Operator::of(&control).connect().unwrap_err().to_string();
        assert!(said.contains("a symbolic link lies there"), "{said}");
        fs::remove_file(&control).unwrap();
        fs::rename(&other, &control).unwrap();
        Operator::of(&control).connect().unwrap();
        drop(listener);
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
