//! When files that are in use are looked at: once a second, by a thread of its own, since a file system may hang.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// The looks at one kind of files.
#[derive(Debug, Default)]
pub struct Looks {
    /// `None`: there are no such files.
    next: Option<Instant>,
    /// A thread looks at them. One that hangs is the only one.
    is_looking: bool,
    /// Counts the revisions that were in force.
    revision: u64,
}

/// Of which revision the files are that a thread looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

impl Looks {
    /// When it is time for the next.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// A revision is in force, which has such files or none. What is found of another one is of no use from now on.
    pub fn begin(&mut self, has_files: bool) {
        self.revision += 1;
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

    /// Has a thread look, unless one does.
    pub fn start(&mut self, look: impl FnOnce(Look) + Send + 'static) {
        if self.is_looking {
            return;
        }
        let of = Look(self.revision);
        let looking = std::thread::Builder::new().name("tidegate-look".into()).spawn(move || look(of));
        self.is_looking = looking.is_ok();
    }

    /// The thread is done. Whether what it has found is of the revision in force; what is not is found again.
    pub fn end(&mut self, look: Look) -> bool {
        self.is_looking = false;
        look.0 == self.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_looks_at_a_time_and_for_the_revision_in_force() {
        let mut looks = Looks::default();
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
        looks.begin(false);
        assert!(!looks.end(look) && looks.next().is_none());
    }
}
