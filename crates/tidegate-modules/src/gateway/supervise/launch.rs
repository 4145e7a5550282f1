//! The last step before an application runs: in its own process, sets what the settings ask for and becomes
//! the program.
//!
//! The server starts itself with a hidden command (`tidegate launch`), so that limits, user and folder are
//! set where it is safe to do so: in a process of one thread, with ordinary calls, and not between `fork` and
//! `exec`. What fails is said in one sentence on standard error, which the supervisor reads.

use super::seal;
use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{
    Resource, Rlimit, Signal, chdir, getpid, nice, set_parent_process_death_signal, setrlimit, umask,
};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tidegate_config::path_encoding;
use tidegate_config::settings::pool::{IoPriority, Resources, Sealed};
use tidegate_io::process::{IoClass, set_io_priority};
use tidegate_io::syscall_filter;

/// What this program is run as, also once its file has been replaced by a newer one.
pub(super) const OURSELVES: &str = "/proc/self/exe";
/// Where programs are looked for when the environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The descriptor that systemd and those who follow it pass a listening socket as.
const LISTEN_FD: i32 = 3;

/// Everything that is set before a program runs. `None` leaves a thing as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Working folder.
    #[serde(with = "path_encoding::optional_path")]
    pub folder: Option<PathBuf>,
    /// Root folder (`chroot`), entered before the working folder.
    #[serde(with = "path_encoding::optional_path")]
    pub root: Option<PathBuf>,
    /// User, by name or number.
    pub user: Option<String>,
    /// Group, by name or number; with a user and without this, the user's.
    pub group: Option<String>,
    /// File mode mask.
    pub umask: Option<u32>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Bytes of a core dump.
    pub core: Option<u64>,
    /// Added to the niceness.
    pub nice: Option<u8>,
    /// Disks: `true` only when idle, `false` behind others.
    pub io_idle: Option<bool>,
    /// The listening socket that came as standard input goes on as descriptor 3, with `LISTEN_FDS`.
    pub listens_on_three: bool,
    /// Leads a session of its own, so that a terminal that closes does not end it.
    pub has_session: bool,
    /// What is kept out of its reach ([`seal`]); empty for a program that has another user than the server.
    #[serde(with = "path_encoding::paths")]
    pub sealed: Vec<PathBuf>,
    /// Ports that it may not listen on; nothing where `sealed` is empty.
    pub ports: Vec<u16>,
    /// The parent that is to outlive it: when that is killed, so is the program.
    pub keeper: Option<u32>,
}

impl Launch {
    /// Takes the resources that settings name.
    pub fn with_resources(mut self, resources: &Resources) -> Launch {
        self.descriptors = resources.descriptors;
        self.memory = resources.memory;
        self.core = resources.core;
        self.nice = resources.nice;
        self.io_idle = resources.io.map(|io| io == IoPriority::Idle);
        self
    }

    /// Keeps this from the program.
    pub fn keeping(mut self, sealed: &Sealed) -> Launch {
        self.sealed.clone_from(&sealed.paths);
        self.ports.clone_from(&sealed.ports);
        self
    }

    /// As an argument.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("invariant: plain data can be written as JSON")
    }

    /// From an argument.
    ///
    /// # Errors
    /// It is not what [`Launch::to_argument`] makes.
    pub fn from_argument(text: &str) -> io::Result<Launch> {
        serde_json::from_str(text).map_err(io::Error::from)
    }

    /// The command that runs a program so: this program, which becomes the other one.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, argv: &[S]) -> Command {
        let mut command = Command::new(OURSELVES);
        command.arg("launch").arg(self.to_argument()).arg("--").args(argv);
        command
    }

    /// Sets all this in the calling process and becomes the program. Returns only when something fails:
    /// what, as a sentence.
    pub fn run(&self, argv: &[OsString]) -> String {
        let Some((program, arguments)) = argv.split_first() else {
            return "no program is named".into();
        };
        let mut command = Command::new(program);
        command.args(arguments);
        match self.prepare(&mut command) {
            Ok(()) => {
                let error = command.exec();
                format!("cannot run `{}`: {error}", program.to_string_lossy())
            }
            Err(problem) => problem,
        }
    }

    fn prepare(&self, command: &mut Command) -> Result<(), String> {
        // A keeper reads its signals from a descriptor; a program takes them as usual.
        SigSet::empty().thread_set_mask().map_err(|e| format!("cannot set the signals: {e}"))?;
        let what = |what: &str| {
            let what = what.to_owned();
            move |error: &dyn std::fmt::Display| format!("cannot set {what}: {error}")
        };
        for (resource, limit, name) in [
            (Resource::Nofile, self.descriptors, "the limit of descriptors"),
            (Resource::Core, self.core, "the limit of core dumps"),
        ] {
            limit.map_or(Ok(()), |limit| limit_to(resource, limit)).map_err(|e| what(name)(&e))?;
        }
        if let Some(increment) = self.nice {
            nice(i32::from(increment)).map_err(|e| what("the priority")(&e))?;
        }
        if let Some(is_idle) = self.io_idle {
            let class = if is_idle { IoClass::Idle } else { IoClass::Low };
            set_io_priority(class).map_err(|e| what("the priority for disks")(&e))?;
        }
        if let Some(mask) = self.umask {
            umask(Mode::from_raw_mode(mask));
        }
        if self.has_session {
            rustix::process::setsid().map_err(|e| what("the session")(&e))?;
        }
        let user = self.user.as_deref().map(find_user).transpose()?;
        let group = self.group.as_deref().map(find_group).transpose()?;
        if let Some(root) = &self.root {
            rustix::process::chroot(root)
                .and_then(|()| chdir("/"))
                .map_err(|e| format!("cannot enter the root {}: {e}", root.display()))?;
        }
        if user.as_ref().is_some_and(|user| !user.uid.is_root()) {
            // Server processes may have the same user. Without the capability, or `no_new_privs` of the unit, it cannot be.
            let _ = syscall_filter::leave_others_alone();
        }
        become_user(user, group)?;
        if let Some(keeper) = self.keeper {
            // Behind the change of the user, which takes it back.
            set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(|e| what("the end with its keeper")(&e))?;
            if std::os::unix::process::parent_id() != keeper {
                return Err("its keeper has ended".into());
            }
        }
        let folder = self.folder.as_deref().unwrap_or("/".as_ref());
        chdir(folder).map_err(|e| format!("cannot enter the folder {}: {e}", folder.display()))?;
        if self.listens_on_three {
            pass_socket(command).map_err(|e| format!("cannot pass the socket on: {e}"))?;
        }
        if !self.sealed.is_empty() {
            seal::confine(&self.sealed, &self.ports)?;
            // A kernel built without filters leaves it to other users.
            let _ = syscall_filter::leave_others_alone();
        }
        // Last: the program is loaded with what is left.
        self.memory
            .map_or(Ok(()), |limit| limit_to(Resource::As, limit))
            .map_err(|e| what("the limit of memory")(&e))
    }
}

fn limit_to(resource: Resource, limit: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?)
}

/// A user that a process may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub uid: Uid,
    /// The user's own group; `None` for a number that has no entry.
    pub gid: Option<Gid>,
    /// The user's name; `None` for a number that has no entry.
    pub name: Option<String>,
}

/// A user of the system, by name or number. A number needs no entry, but then a group has to be named beside it.
///
/// # Errors
/// A sentence.
pub fn find_user(name: &str) -> Result<Account, String> {
    let number = name.parse::<u32>().ok();
    let found = match number {
        Some(number) => User::from_uid(Uid::from_raw(number)),
        None => User::from_name(name),
    };
    match (found, number) {
        (Ok(Some(user)), _) => Ok(Account { uid: user.uid, gid: Some(user.gid), name: Some(user.name) }),
        (Ok(None), Some(number)) => Ok(Account { uid: Uid::from_raw(number), gid: None, name: None }),
        (Ok(None), None) => Err(format!("there is no user `{name}` on this system")),
        (Err(error), _) => Err(format!("cannot look up the user `{name}`: {error}")),
    }
}

/// The number of a group of the system, by name or number.
///
/// # Errors
/// A sentence.
pub fn find_group(name: &str) -> Result<Gid, String> {
    if let Ok(number) = name.parse::<u32>() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!("there is no group `{name}` on this system")),
        Err(error) => Err(format!("cannot look up the group `{name}`: {error}")),
    }
}

/// Where a program looks for others: what the server itself was given.
pub(super) fn search_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| PATH.into())
}

/// All that the environment of a hook holds beside what it is told: the server's own may hold what only root may know.
/// Without a user it is run as the server's.
pub fn environment_of_hook(user: Option<&str>) -> Vec<(String, String)> {
    let found = match user.map(|name| (name, name.parse::<u32>())) {
        Some((name, Err(_))) => User::from_name(name),
        Some((_, Ok(number))) => User::from_uid(Uid::from_raw(number)),
        None => User::from_uid(Uid::effective()),
    };
    let mut environment = vec![("PATH".to_owned(), search_path())];
    // One without an entry has no folder of its own, and neither has one whose name cannot be looked up now.
    let (name, home) = match found {
        Ok(Some(user)) => (Some(user.name), user.dir.into_os_string().into_string().ok()),
        _ => (None, None),
    };
    environment.push(("HOME".into(), home.unwrap_or_else(|| "/".into())));
    if let Some(name) = name {
        environment.extend(["USER", "LOGNAME"].map(|variable| (variable.to_owned(), name.clone())));
    }
    environment
}

/// The user and group that `user` and `group` of the settings mean, as numbers; `None` where neither is named.
///
/// # Errors
/// A sentence.
pub fn identity_of(user: Option<&str>, group: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    let Some(name) = user else { return Ok(None) };
    let account = find_user(name)?;
    let group = group.map(find_group).transpose()?.or(account.gid);
    let group = group.ok_or_else(|| format!("user {name} has no entry, so a group is needed"))?;
    Ok(Some((account.uid.as_raw(), group.as_raw())))
}

fn become_user(user: Option<Account>, group: Option<Gid>) -> Result<(), String> {
    if let Some(user) = &user
        && user.uid == Uid::effective()
        && !user.uid.is_root()
        && group.is_none_or(|group| group == Gid::effective())
    {
        return Ok(()); // who is that user already need not be root
    }
    let group = group.or(user.as_ref().and_then(|user| user.gid));
    if let Some(Account { uid, name, .. }) = &user {
        let group = group.ok_or_else(|| format!("user {uid} has no entry, so a group is needed"))?;
        let taken = match name.as_deref().map(CString::new) {
            Some(Ok(name)) => initgroups(&name, group),
            _ => setgroups(&[group]),
        };
        taken.map_err(|e| format!("cannot take the groups of user {uid}: {e}"))?;
    }
    if let Some(group) = group {
        setgid(group).map_err(|e| format!("cannot become group {group}: {e}"))?;
    }
    if let Some(Account { uid, name, .. }) = user {
        let name = name.unwrap_or_else(|| uid.to_string());
        setuid(uid).map_err(|e| format!("cannot become user {name}: {e}"))?;
        // With the last identity of root gone there is no way back; believed only when seen.
        if !uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(format!("could become root again behind user {name}"));
        }
    }
    Ok(())
}

/// Moves the socket from standard input to descriptor 3, and says so in the manner of systemd
/// (`sd_listen_fds(3)`).
fn pass_socket(command: &mut Command) -> io::Result<()> {
    let socket = fcntl_dupfd_cloexec(io::stdin(), LISTEN_FD)?;
    if socket.as_raw_fd() != LISTEN_FD {
        return Err(io::Error::other("descriptor 3 is taken"));
    }
    fcntl_setfd(&socket, FdFlags::empty())?;
    // The program owns it from here on.
    let _ = socket.into_raw_fd();
    let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", getpid().as_raw_nonzero().to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_being_an_argument() {
        let launch = Launch {
            // No name has to be text.
            folder: Some(std::os::unix::ffi::OsStringExt::from_vec(b"/srv/\xff".into()))
                .map(|name: OsString| name.into()),
            user: Some("www-data".into()),
            umask: Some(0o27),
            io_idle: Some(true),
            sealed: vec!["/var/lib/keys".into()],
            ..Launch::default()
        };
        assert_eq!(Launch::from_argument(&launch.to_argument()).expect("our own"), launch);
        assert!(Launch::from_argument("{").is_err());
    }

    #[test]
    fn users_and_groups_are_found_or_named() {
        assert_eq!(find_user("root").map(|user| user.uid), Ok(Uid::from_raw(0)));
        assert_eq!(find_user("0").map(|user| user.name), Ok(Some("root".to_owned())));
        assert_eq!(find_user("4294000000").map(|user| user.gid), Ok(None));
        assert_eq!(identity_of(Some("4294000000"), Some("7")), Ok(Some((4_294_000_000, 7))));
        assert!(identity_of(Some("4294000000"), None).is_err(), "a number alone has no group");
        assert_eq!(identity_of(None, Some("7")), Ok(None));
        let problem = find_user("no-such-user").expect_err("nobody has this name");
        assert_eq!(problem, "there is no user `no-such-user` on this system");
        assert_eq!(find_group("12345"), Ok(Gid::from_raw(12345)));
        assert!(find_group("no-such-group").is_err());
    }
}
