//! File systems that do not answer: which they are, and what lies there.
//!
//! A network file system whose server is away, or a FUSE whose process hangs, has everybody wait who asks for it, and nothing
//! ends the wait. A process that begins beside one has every mount point asked by another process, waits for the answers
//! for a while, and stays away from those that have not come: what lies there is an error at once.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Types of file systems where another machine or process answers, as `mountinfo` names them.
const REMOTE: [&str; 12] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "afs", "glusterfs", "lustre", "gfs2", "ocfs2"];
/// Links that are followed at most, as by the kernel.
const LINKS: usize = 40;

static MOUNTS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// A mount point that has not answered, and the process that goes on asking.
#[derive(Debug)]
pub struct Waiting {
    /// Where it is.
    pub mount: PathBuf,
    asks: Child,
    ended: OwnedFd,
}

/// Asks all mount points that may hang, each by a process of its own that `ask` names and that ends when it has an answer
/// (with [`answer`]). Those that have none within `patience` are stayed away from; one that no process can ask about is not.
///
/// # Errors
/// It cannot be found out what is mounted.
pub fn find(patience: Duration, ask: impl Fn(&Path) -> Command) -> io::Result<Vec<Waiting>> {
    let waiting = unanswered(mounts(&std::fs::read("/proc/self/mountinfo")?), patience, ask);
    let mounts: Vec<PathBuf> = waiting.iter().map(|one| one.mount.clone()).collect();
    IS_ANY.store(!mounts.is_empty(), Relaxed);
    *MOUNTS.write().unwrap_or_else(PoisonError::into_inner) = mounts;
    Ok(waiting)
}

/// Those of some mount points that do not answer. Whoever has answered is waited for, also where another cannot be asked.
fn unanswered(mounts: Vec<PathBuf>, patience: Duration, ask: impl Fn(&Path) -> Command) -> Vec<Waiting> {
    let asked: Vec<Waiting> = mounts
        .into_iter()
        .filter_map(|mount| {
            let command = ask(&mount);
            Waiting::begin(mount, command).ok()
        })
        .collect();
    let deadline = Instant::now() + patience;
    let mut waiting = Vec::new();
    for mut one in asked {
        let left = deadline.saturating_duration_since(Instant::now());
        if one.has_ended(Some(left)) {
            let _ = one.asks.wait();
        } else {
            waiting.push(one);
        }
    }
    waiting
}

/// Waits for the file system at a mount point, for as long as it takes.
pub fn answer(mount: &Path) {
    // Unlike what is known of a file, this is kept by nobody.
    let _ = rustix::fs::statfs(mount);
}

impl Waiting {
    fn begin(mount: PathBuf, mut ask: Command) -> io::Result<Waiting> {
        let mut asks = ask.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        match pidfd_open(Pid::from_child(&asks), PidfdFlags::empty()) {
            Ok(ended) => Ok(Waiting { mount, asks, ended }),
            Err(error) => {
                // It may hang, and nobody else waits for it.
                std::thread::spawn(move || asks.wait());
                Err(error.into())
            }
        }
    }

    /// Waits until it answers.
    pub fn wait(mut self) {
        while !self.has_ended(None) {}
        let _ = self.asks.wait();
    }

    fn has_ended(&self, patience: Option<Duration>) -> bool {
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        loop {
            match poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], patience.as_ref()) {
                Err(Errno::INTR) => {}
                outcome => return outcome.is_ok_and(|count| count > 0),
            }
        }
    }
}

/// An error where a path leads to a file system that does not answer. Asks none that does not.
///
/// # Errors
/// It does.
pub fn examine(path: &Path) -> io::Result<()> {
    if IS_ANY.load(Relaxed) && leads_there(path) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the file system that it lies on does not answer",
        ));
    }
    Ok(())
}

fn leads_there(path: &Path) -> bool {
    let mounts = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
    let parts = |path: &Path| -> Vec<OsString> {
        let parts =
            path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        parts.map(|part| part.as_os_str().to_owned()).rev().collect()
    };
    let (mut at, mut pending, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = pending.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        if mounts.contains(&next) {
            return true;
        }
        match std::fs::read_link(&next) {
            Ok(target) if links < LINKS => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                pending.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    false
}

/// The mount points of file systems that may hang, by `proc_pid_mountinfo(5)`.
fn mounts(info: &[u8]) -> Vec<PathBuf> {
    let mut mounts: Vec<PathBuf> = info.split(|byte| *byte == b'\n').filter_map(mount_of).collect();
    mounts.sort();
    mounts.dedup();
    mounts
}

fn mount_of(line: &[u8]) -> Option<PathBuf> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let kind = str::from_utf8(fields.get(separator + 1)?).ok()?;
    let may_hang = REMOTE.contains(&kind) || kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.");
    may_hang.then(|| unescaped(fields[4]))
}

/// Blanks and the like are octal there.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_mounted_that_may_hang_which_others_keep() {
        let info = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            30 21 0:30 / /srv/web rw,relatime shared:5 master:2 - nfs4 host:/web rw,hard\n\
            31 21 0:31 / /home/a\\040b/m rw - fuse.sshfs host: rw\n\
            32 21 0:32 / /mnt/x rw - fuse /dev/fuse rw\n\
            33 21 0:33 / /proc rw - proc proc rw\n\nbroken - fuse\n";
        let expected = ["/home/a b/m", "/mnt/x", "/srv/web"].map(PathBuf::from);
        assert_eq!(mounts(info), expected);
    }

    #[test]
    fn who_has_answered_is_waited_for_though_another_cannot_be_asked() {
        let file = std::env::temp_dir().join(format!("tidegate-asked-{}", std::process::id()));
        let ask = |mount: &Path| {
            let mut command = Command::new(if mount == Path::new("/none") { "/nothing/runs" } else { "sh" });
            command.args(["-c", &format!("echo $$ > {}", file.display())]);
            command
        };
        let mounts = ["/fast", "/none"].map(PathBuf::from).to_vec();
        assert!(unanswered(mounts, Duration::from_secs(60), ask).is_empty());
        let number: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        assert!(!Path::new(&format!("/proc/{number}")).exists(), "it is reaped");
        std::fs::remove_file(&file).unwrap();
    }

    /// The mounts are the process's: one test has all of it.
    #[test]
    fn a_path_leads_there_by_links_too_and_nothing_is_asked() {
        let folder = std::env::temp_dir().join(format!("tidegate-unanswered-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("mount/inner")).unwrap();
        std::fs::create_dir_all(folder.join("beside")).unwrap();
        let folder = folder.canonicalize().unwrap();
        std::os::unix::fs::symlink("../mount/inner", folder.join("beside/link")).unwrap();
        std::os::unix::fs::symlink(folder.join("beside"), folder.join("further")).unwrap();
        let paths = ["mount", "mount/inner", "beside/link", "further/link/x", "beside/../mount/y"];
        assert!(paths.iter().all(|path| examine(&folder.join(path)).is_ok()));
        *MOUNTS.write().unwrap() = vec![folder.join("mount")];
        IS_ANY.store(true, Relaxed);
        for path in paths {
            assert_eq!(examine(&folder.join(path)).unwrap_err().kind(), io::ErrorKind::TimedOut, "{path}");
        }
        for path in ["", "beside", "further/none", "mountain", "mount/.."] {
            let is_there = examine(&folder.join(path)).is_ok();
            assert_eq!(is_there, path != "mount/..", "{path}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
