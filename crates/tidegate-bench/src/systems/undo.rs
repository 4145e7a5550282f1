//! What must be done to systems whatever becomes of a run, and who does it when the run itself was killed.
//!
//! A run tells each [`Undo`] to a [`Guard`] before the thing is done that it undoes: a process of this program that waits at the end of
//! a pipe. Where the run ends by itself it has nothing left to do. Where the run was killed, or ended by a second interrupt, the
//! guard does it: it has a process group of its own, so that an interrupt of the terminal does not reach it.

use super::Stopped;
use super::configure::{self, Kept};
use super::place::{Ending, GroupId, Place, begin, end, rest};
use crate::quantity::show_duration;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The command of this program that is a guard, behind `bench`.
pub const GUARD: &str = "guard";
/// How long what was started has to end once it was told to.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long it is killed, where it does not.
const KILLED: Duration = Duration::from_secs(2);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// When waiting for it is said.
const SAY: Duration = Duration::from_secs(1);

/// Something that puts a system back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Undo {
    /// A command under way, of this process group of this machine: it is of no use any more.
    Kill(u32),
    /// Its `stop`.
    Stop(Place, Stopped),
    /// What its `start` has left in this process group of this machine; of ssh that is its client.
    End(u32),
    /// The old content of this file.
    PutBack(Place, String, Kept),
}

/// What a run tells its guard, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    /// To be undone for this system.
    Begun(String, Undo),
    /// This is not to be undone any more.
    Done(String, Undo),
    /// Nothing of it is.
    Over(String),
}

/// The guard of a run, from its side.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub fn start() -> io::Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", GUARD]).process_group(0);
        // It writes nothing there. A run of a queue has the lock of the queue as its input, and so has whoever undoes what is left of
        // it: nobody goes on with the queue before that is done.
        let lock = io::stdin().as_fd().try_clone_to_owned();
        let mut child =
            command.stdin(Stdio::piped()).stdout(lock.map_or_else(|_| Stdio::null(), Stdio::from)).spawn()?;
        let input = child.stdin.take();
        Ok(Guard { child, input })
    }

    /// Tells it what is to be undone for a system.
    pub fn begun(&mut self, system: &str, undo: Undo) {
        self.tell(&Told::Begun(system.to_owned(), undo));
    }

    /// Tells it that something is not to be undone any more.
    pub fn done(&mut self, system: &str, undo: Undo) {
        self.tell(&Told::Done(system.to_owned(), undo));
    }

    /// Tells it that a system is put back.
    pub fn over(&mut self, system: &str) {
        self.tell(&Told::Over(system.to_owned()));
    }

    fn tell(&mut self, told: &Told) {
        // A guard that was killed is a guard less, and no reason to end a run.
        if let (Some(input), Ok(line)) = (&mut self.input, serde_json::to_string(told)) {
            let _ = input.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing left to do; one that somebody has stopped holds up no run.
        let until = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            rest(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a guard does: takes in what is to be undone until its input ends, and then does what is left of it. `say` gets what it does.
pub fn guard(input: impl BufRead, say: &dyn Fn(&str)) {
    watch(input, GRACE, say);
}

fn watch(input: impl BufRead, grace: Duration, say: &dyn Fn(&str)) {
    let mut left: Vec<(String, Vec<Undo>)> = Vec::new();
    for line in input.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Told::Begun(system, undo)) => match left.iter_mut().find(|(known, _)| *known == system) {
                Some((_, undos)) => undos.push(undo),
                None => left.push((system, vec![undo])),
            },
            Ok(Told::Done(system, undo)) => {
                let of = left.iter_mut().filter(|(known, _)| *known == system);
                of.for_each(|(_, undos)| undos.retain(|known| *known != undo));
            }
            Ok(Told::Over(system)) => left.retain(|(known, _)| *known != system),
            // Half a line of a run that was killed while it wrote.
            Err(_) => {}
        }
    }
    for (system, undos) in left.into_iter().rev() {
        say(&format!("the run was killed; {system} is put back"));
        for note in undo_all(&system, &undos, grace, say) {
            say(&note);
        }
    }
}

/// Undoes what was begun of a system: stops it, ends what stays of it, and puts its files back, the last one first. Gives what went
/// wrong, a sentence each.
fn undo_all(system: &str, undos: &[Undo], grace: Duration, say: &dyn Fn(&str)) -> Vec<String> {
    let mut notes = Vec::new();
    for undo in undos {
        if let Undo::Kill(group) = undo {
            GroupId(*group).signal(Signal::KILL);
        }
    }
    let mut is_told = false;
    for undo in undos {
        if let Undo::Stop(place, stopped) = undo {
            let stopped = stop(place, stopped, None, |_| {});
            is_told |= stopped.is_ok();
            notes.extend(stopped.err().map(|why| format!("`stop` of {system} {why}")));
        }
    }
    for undo in undos {
        if let Undo::End(group) = undo {
            let (group, how) = (GroupId(*group), (grace, say));
            let outlasting = is_told.then(|| outlasted(system, group, how));
            if !matches!(outlasting, Some(None)) {
                notes.extend(end_group(system, group, how));
            }
            notes.extend(outlasting.flatten());
        }
    }
    for undo in undos.iter().rev() {
        if let Undo::PutBack(place, path, kept) = undo {
            let unsure = Undo::PutBack(place.clone(), path.clone(), Kept::Unsure);
            if *kept == Kept::There && undos.contains(&unsure) {
                continue;
            }
            let restored = configure::put_back(place, path, *kept);
            notes.extend(restored.err().map(|why| format!("{path} of {system} was not put back: {why}")));
        }
    }
    notes
}

/// Does the `stop` of a system; `begun` gets its group. The error is the end of a sentence.
pub(super) fn stop(
    place: &Place,
    stopped: &Stopped,
    log: Option<&Path>,
    begun: impl FnOnce(GroupId),
) -> Result<(), String> {
    let told = match begin(&mut place.shell(&stopped.command), log) {
        Ok(told) => told,
        Err(error) => return Err(format!("cannot be run: {error}")),
    };
    begun(told.id());
    match end(&told, stopped.within, || false) {
        Ending::Ended(status) if status.is_success() => Ok(()),
        Ending::Ended(status) => Err(format!("failed ({status})")),
        Ending::Late | Ending::Interrupted => {
            Err(format!("took longer than {}", show_duration(stopped.within)))
        }
    }
}

/// Waits for what a `stop` has told to end. What outlasts that is a sentence.
pub(super) fn outlasted(
    system: &str,
    group: GroupId,
    (grace, say): (Duration, &dyn Fn(&str)),
) -> Option<String> {
    (!has_ended(system, group, grace, say)).then(|| {
        format!(
            "`stop` of {system} left what its `start` had started ({}); it was ended after {}",
            group.members().join(", "),
            show_duration(grace)
        )
    })
}

/// Ends what has stayed of a `start`. What cannot be ended is a sentence.
pub(super) fn end_group(
    system: &str,
    group: GroupId,
    (grace, say): (Duration, &dyn Fn(&str)),
) -> Option<String> {
    group.signal_all(Signal::TERM);
    if has_ended(system, group, grace, say) {
        return None;
    }
    let until = Instant::now() + KILLED;
    while group.has_members() {
        if Instant::now() >= until {
            let left = group.members().join(", ");
            return Some(format!("what `start` of {system} had started could not be ended: {left}"));
        }
        // Whoever was being started meanwhile as well.
        group.signal_all(Signal::KILL);
        rest(LOOK);
    }
    None
}

/// Waits until all of a group has ended; says so where that takes its time.
pub(super) fn has_ended(system: &str, group: GroupId, grace: Duration, say: &dyn Fn(&str)) -> bool {
    let begun = Instant::now();
    let mut is_said = false;
    while group.has_members() {
        if begun.elapsed() >= grace {
            return false;
        }
        if begun.elapsed() >= SAY && !is_said {
            is_said = true;
            let (left, grace) = (group.members().join(", "), show_duration(grace));
            say(&format!("what `start` of {system} has started is waited for, {grace} at most: {left}"));
        }
        rest(LOOK);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::place::Group;
    use std::sync::Mutex;

    fn shell(text: &str) -> Group {
        let mut command = Place::Here.shell(text);
        Group::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap()
    }

    /// Of what a guard is sure that it was kept it says that it is gone; of what was being put back when the run was killed it does not.
    #[test]
    fn a_copy_that_is_gone_is_said() {
        let path = format!("{}/tidegate-gone-{}", std::env::temp_dir().display(), std::process::id());
        let put_back = |kept| Undo::PutBack(Place::Here, path.clone(), kept);
        let say = |_: &str| {};
        let notes = undo_all("web", &[put_back(Kept::There)], LOOK, &say);
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(
            note.starts_with(&format!("{path} of web was not put back: what was kept beside it is gone"))
        );
        let both = [put_back(Kept::There), put_back(Kept::Unsure)];
        assert_eq!(undo_all("web", &both, LOOK, &say), Vec::<String>::new());
    }

    /// Whatever a `start` has started is ended, in whichever session it is.
    #[test]
    fn what_has_left_its_group_is_ended() {
        let folder = std::env::temp_dir().join(format!("tidegate-sessions-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pids = folder.join("pids");
        // One that ends when it is told to, and one that does not; it says so when it can be told.
        let text = format!(
            "(setsid sleep 1000 & echo $! >> '{0}'); (setsid sh -c 'trap \"\" TERM; echo $$ >> \"{0}\"; sleep 1000; sleep 1000' &)",
            pids.display()
        );
        let mut start = Group::start(Place::Here.lasting(&text).stdout(Stdio::null())).unwrap();
        start.go();
        let started = || std::fs::read_to_string(&pids).is_ok_and(|pids| pids.lines().count() == 2);
        let until = Instant::now() + Duration::from_secs(30);
        while !started() || start.status().is_none() {
            assert!(Instant::now() < until, "nothing is started");
            rest(LOOK);
        }
        assert!(start.id().has_members());
        assert_eq!(end_group("web", start.id(), (LOOK, &|_: &str| {})), None);
        assert!(!start.id().has_members());
        for process in std::fs::read_to_string(&pids).unwrap().lines() {
            let stat = crate::proc::text(format!("/proc/{process}/stat"));
            let state = crate::proc::state_and_group(&stat);
            assert!(state.is_none_or(|(state, _)| state == 'Z'), "{stat}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// What a run tells before it is killed, and what its guard then does, the last one first.
    #[test]
    fn a_guard_does_what_a_killed_run_has_left() {
        let folder = std::env::temp_dir().join(format!("tidegate-guard-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let stop = |name: &str| {
            let command = format!("echo {name} >> '{}/log'", folder.display());
            Undo::Stop(Place::Here, Stopped { command, within: Duration::from_secs(30) })
        };
        let [left, under_way, other] = [(); 3].map(|()| shell("sleep 1000"));
        let file = folder.join("x.conf");
        std::fs::write(&file, "new").unwrap();
        std::fs::write(folder.join("x.conf.tidegate-before"), "old").unwrap();
        let path = file.to_str().unwrap().to_owned();
        let told = [
            Told::Begun("db".into(), stop("db")),
            Told::Begun("done".into(), stop("done")),
            Told::Begun("web".into(), stop("web")),
            Told::Begun("web".into(), Undo::PutBack(Place::Here, path, Kept::There)),
            Told::Begun("db".into(), Undo::End(left.id().0)),
            Told::Begun("db".into(), Undo::Kill(under_way.id().0)),
            Told::Begun("db".into(), Undo::Kill(other.id().0)),
            Told::Done("db".into(), Undo::Kill(other.id().0)),
            Told::Over("done".into()),
        ];
        let lines: String = told.iter().map(|told| serde_json::to_string(told).unwrap() + "\n").collect();
        let said = Mutex::new(Vec::new());
        watch(format!("{lines}{{\"Begun\":[\"half").as_bytes(), LOOK, &|text: &str| {
            said.lock().unwrap().push(text.to_owned());
        });
        assert_eq!(std::fs::read_to_string(folder.join("log")).unwrap(), "web\ndb\n");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        assert!(!left.id().has_members() && !under_way.id().has_members() && other.id().has_members());
        let said = said.into_inner().unwrap();
        assert_eq!(said[0], "the run was killed; web is put back");
        assert!(
            said.iter().any(|said| said.starts_with("`stop` of db left what its `start` had started (")),
            "{said:?}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
