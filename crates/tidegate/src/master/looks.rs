//! When files that are in use are looked at: once a second, by a thread of its own, since a file system may hang.

use std::time::{Duration, Instant};
use tidegate_core::log;

const EVERY: Duration = Duration::from_secs(1);
/// What takes longer is said.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most threads of revisions before that may hang.
const HANGING: u32 = 8;

/// The looks at one kind of files.
#[derive(Debug)]
pub struct Looks {
    /// Of which files, as a message says it.
    what: &'static str,
    /// `None`: there are no such files.
    next: Option<Instant>,
    /// A thread looks at those of this revision: since when, and whether it was said that it takes long.
    looking: Option<(Instant, bool)>,
    /// Threads that look at files of revisions before, which may not be in use any more.
    hanging: u32,
    /// It was said that nobody looks, for this reason.
    is_blind: bool,
    /// Counts the revisions that were in force.
    revision: u64,
}

/// Of which revision the files are that a thread looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

impl Looks {
    /// At files of this name; none yet.
    pub fn new(what: &'static str) -> Looks {
        Looks { what, next: None, looking: None, hanging: 0, is_blind: false, revision: 0 }
    }

    /// When it is time for the next.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// A revision is in force, which has such files or none. What is found of another one is of no use from now on, and
    /// nobody waits for it: what hangs may have been named by that one alone.
    pub fn begin(&mut self, has_files: bool) {
        self.revision += 1;
        self.hanging += u32::from(self.looking.take().is_some());
        self.next = has_files.then(|| Instant::now() + EVERY);
    }

    /// Whether it is time.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.next.is_some_and(|at| at <= now);
        if is_due {
            self.next = Some(now + EVERY);
        }
        is_due
    }

    /// Has a thread look, unless one does, or too many hang.
    pub fn start(&mut self, look: impl FnOnce(Look) + Send + 'static) {
        if let Some((since, is_said)) = &mut self.looking {
            if !*is_said && since.elapsed() > PATIENCE {
                *is_said = true;
                log::error(format_args!(
                    "changes of {} are not seen: the file system of one of them does not answer",
                    self.what
                ));
            }
            return;
        }
        if self.hanging >= HANGING {
            if self.goes_blind() {
                log::error(format_args!(
                    "changes of {} are not seen: {HANGING} threads hang, each in a file system of settings before that \
                     does not answer",
                    self.what
                ));
            }
            return;
        }
        let of = Look(self.revision);
        match std::thread::Builder::new().name("tidegate-look".into()).spawn(move || look(of)) {
            Ok(_) => {
                self.looking = Some((Instant::now(), false));
                self.is_blind = false;
            }
            Err(error) if self.goes_blind() => {
                log::error(format_args!(
                    "changes of {} are not seen: no thread can be started to look at them: {error}",
                    self.what
                ));
            }
            Err(_) => {}
        }
    }

    /// Nobody can look. Whether that is to be said: once, until somebody can again.
    fn goes_blind(&mut self) -> bool {
        !std::mem::replace(&mut self.is_blind, true)
    }

    /// The thread is done. Whether what it has found is of the revision in force; what is not is found again.
    pub fn end(&mut self, look: Look) -> bool {
        let is_present = look.0 == self.revision;
        match is_present {
            true => self.looking = None,
            false => self.hanging -= 1,
        }
        is_present
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_looks_at_a_time_and_for_the_revision_in_force() {
        let mut looks = Looks::new("files");
        assert!(!looks.is_due() && looks.next().is_none());
        looks.begin(true);
        assert!(looks.next().is_some() && !looks.is_due(), "it was read a moment ago");
        let (said, heard) = channel();
        for _ in 0..2 {
            let said = said.clone();
            looks.start(move |look| said.send(look).expect("somebody hears"));
        }
        drop(said);
        let look = tidegate_testkit::receive(&heard, "the look");
        assert!(heard.recv().is_err(), "the first hung, for all that is known");
        assert!(looks.end(look));
        looks.start(|_| ());
        looks.begin(false);
        assert!(!looks.end(look) && looks.next().is_none());
    }

    /// Whoever moves a file away from where nothing answers is served by that.
    #[test]
    fn a_look_that_hangs_is_in_the_way_of_none_of_another_revision() {
        let mut looks = Looks::new("files");
        let (said, heard) = channel();
        let mut hung = Vec::new();
        for _ in 0..2 * HANGING {
            looks.begin(true);
            let said = said.clone();
            looks.start(move |look| said.send(look).expect("somebody hears"));
            if hung.len() < HANGING as usize {
                hung.push(tidegate_testkit::receive(&heard, "the look"));
            }
        }
        assert!(heard.try_recv().is_err(), "threads that hang are bounded");
        assert!(looks.is_blind && !looks.goes_blind(), "that was said, and is not said again");
        for look in hung {
            assert!(!looks.end(look));
        }
        looks.start(move |look| said.send(look).expect("somebody hears"));
        assert!(!looks.is_blind, "the next time it is said again");
        assert!(looks.end(tidegate_testkit::receive(&heard, "the look")));
    }
}
