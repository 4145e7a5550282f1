//! A reload as a state machine: what server processes say goes in, what they are to be told comes out. It knows no process,
//! no socket and no clock; `reload` carries out what it asks for, while the master goes on with everything else.
//!
//! ```text
//! Reading ──▶ Settling ──Open──▶ Preparing ──InForce, Commit──▶ Committing ──────────────▶ over
//!                        │                               └──Retire──▶ Retiring ──▶ over
//!                        └──Discard or Kill──▶ over: refused
//! ```
//!
//! Up to `InForce` everything can be given up, and nothing has changed then. From there on nothing can fail: what dies is
//! started again with the new settings.

use crate::master::PATIENCE;
use crate::master::servers::{Asked, COMMIT_PATIENCE, News};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What is to be done, in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Open what the settings name and tell processes to prepare; a [`Preparing`] follows, or the end.
    Open,
    /// These take up what they have prepared.
    Commit(Vec<u64>),
    /// The settings are in force.
    InForce,
    /// These forget what they have prepared.
    Discard(Vec<u64>),
    /// These, which were started for it, are not wanted.
    Kill(Vec<u64>),
    /// Whoever served before accepts no more, and ends by these settings; a [`Retiring`] follows.
    Retire,
    /// Something to say in the error log.
    Warn(&'static str),
    /// It is over, and nothing has changed: why.
    Refuse(String),
    /// It is over.
    Done,
}

/// How far a reload is.
#[derive(Debug, PartialEq, Eq)]
pub enum Stage {
    /// The files are read, on a thread of its own.
    Reading(Reading),
    /// Processes that are about to start do so first, and take part.
    Settling(Settling),
    /// Processes get ready.
    Preparing(Preparing),
    /// They change over.
    Committing(Committing),
    /// Those before stop accepting.
    Retiring(Retiring),
}

impl Stage {
    /// Takes in what has happened. `None`: it is over.
    pub fn on(self, news: &News, now: Instant) -> (Option<Stage>, Vec<Action>) {
        match self {
            stage @ Stage::Reading(_) => (Some(stage), Vec::new()),
            Stage::Settling(stage) => stage.on(news),
            Stage::Preparing(stage) => stage.on(news, now),
            Stage::Committing(stage) => stage.on(news),
            Stage::Retiring(stage) => stage.on(news),
        }
    }

    /// When it is not waited for any longer.
    pub fn deadline(&self) -> Instant {
        match self {
            Stage::Reading(stage) => stage.until,
            Stage::Settling(stage) => stage.until,
            Stage::Preparing(stage) => stage.until,
            Stage::Committing(stage) => stage.until,
            Stage::Retiring(stage) => stage.until,
        }
    }

    /// The deadline has passed.
    pub fn on_deadline(self) -> (Option<Stage>, Vec<Action>) {
        match self {
            Stage::Reading(_) => (None, vec![Action::Refuse(Reading::given_up())]),
            Stage::Settling(_) => (None, vec![Action::Open]),
            Stage::Preparing(stage) => stage.on_deadline(),
            Stage::Committing(stage) => {
                // One that does not is ended; another takes its place.
                let (next, mut actions) = stage.end();
                actions.insert(
                    0,
                    Action::Warn(
                        "a server process has not taken up settings in time; another takes its place",
                    ),
                );
                (next, actions)
            }
            Stage::Retiring(_) => (None, vec![Action::Done]),
        }
    }
}

/// How long reading may take: a file system that hangs holds up no later order for longer.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// See [`Stage::Reading`].
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    number: u64,
    until: Instant,
}

impl Reading {
    /// The reading of this number has begun.
    pub fn begin(number: u64, now: Instant) -> Stage {
        Stage::Reading(Reading { number, until: now + READ_PATIENCE })
    }

    /// Whether this is the reading that is waited for, and not one that was given up.
    pub fn is(&self, number: u64) -> bool {
        self.number == number
    }

    fn given_up() -> String {
        let seconds = READ_PATIENCE.as_secs();
        format!(
            "the settings, or a file that they name, could not be read within {seconds} s: look for a file system that does not answer"
        )
    }
}

/// See [`Stage::Settling`].
#[derive(Debug, PartialEq, Eq)]
pub struct Settling {
    starting: BTreeSet<u64>,
    until: Instant,
}

impl Settling {
    /// Waits for these, if there are any.
    pub fn begin(starting: Vec<u64>, until: Instant) -> (Option<Stage>, Vec<Action>) {
        Settling { starting: starting.into_iter().collect(), until }.settled()
    }

    fn on(mut self, news: &News) -> (Option<Stage>, Vec<Action>) {
        if let News::Committed { id, .. } | News::Ended(id) = news {
            self.starting.remove(id);
        }
        self.settled()
    }

    fn settled(self) -> (Option<Stage>, Vec<Action>) {
        if self.starting.is_empty() {
            return (None, vec![Action::Open]);
        }
        (Some(Stage::Settling(self)), Vec::new())
    }
}

/// Who takes the new settings up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Those that serve.
    Present,
    /// Others, which take their place.
    Fresh,
}

/// See [`Stage::Preparing`].
#[derive(Debug, PartialEq, Eq)]
pub struct Preparing {
    by: By,
    /// Those that were asked.
    asked: BTreeMap<u64, Asked>,
    ready: BTreeSet<u64>,
    until: Instant,
}

impl Preparing {
    /// These were told to prepare.
    pub fn begin(
        by: By,
        asked: Vec<(u64, Asked)>,
        patience: Duration,
        now: Instant,
    ) -> (Option<Stage>, Vec<Action>) {
        let asked = asked.into_iter().collect();
        Preparing { by, asked, ready: BTreeSet::new(), until: now + patience }.advance(now)
    }

    fn on(mut self, news: &News, now: Instant) -> (Option<Stage>, Vec<Action>) {
        match news {
            News::Prepared(id) if self.asked.contains_key(id) => drop(self.ready.insert(*id)),
            News::Failed(id, why) if self.asked.contains_key(id) => return self.refused(why.clone()),
            News::Ended(id) => match (self.by, self.asked.remove(id)) {
                (By::Fresh, Some(Asked { pid, .. })) => {
                    return self.refused(format!(
                        "server process {pid} has ended at its start; what it said is above, or in the error log"
                    ));
                }
                // Another takes its place, with what is in force by then.
                (By::Present, _) | (By::Fresh, None) => drop(self.ready.remove(id)),
            },
            _ => {}
        }
        self.advance(now)
    }

    fn advance(self, now: Instant) -> (Option<Stage>, Vec<Action>) {
        if self.ready.len() < self.asked.len() {
            return (Some(Stage::Preparing(self)), Vec::new());
        }
        // It may be the settings that have ended them.
        if self.asked.is_empty() {
            return self
                .refused("every server process has ended while it got ready; reload once more".into());
        }
        let ids: Vec<u64> = self.asked.keys().copied().collect();
        let stage = Committing {
            by: self.by,
            waits_for: self.asked.into_iter().map(|(id, asked)| (id, asked.place)).collect(),
            lost: BTreeSet::new(),
            until: now + COMMIT_PATIENCE,
        };
        (Some(Stage::Committing(stage)), vec![Action::InForce, Action::Commit(ids)])
    }

    fn on_deadline(self) -> (Option<Stage>, Vec<Action>) {
        let hung =
            self.asked.iter().find(|(id, _)| !self.ready.contains(id)).map_or(0, |(_, asked)| asked.pid);
        self.refused(format!(
            "server process {hung} does not answer; when it hangs, end it with \"kill -9 {hung}\": another takes its place"
        ))
    }

    fn refused(self, why: String) -> (Option<Stage>, Vec<Action>) {
        let ids: Vec<u64> = self.asked.into_keys().collect();
        let undo = match self.by {
            By::Present => Action::Discard(ids),
            By::Fresh => Action::Kill(ids),
        };
        (None, vec![undo, Action::Refuse(why)])
    }
}

/// See [`Stage::Committing`].
#[derive(Debug, PartialEq, Eq)]
pub struct Committing {
    by: By,
    /// With the place of each.
    waits_for: BTreeMap<u64, usize>,
    /// Places of those that have ended, in which no successor serves yet: others do not make room before.
    lost: BTreeSet<usize>,
    until: Instant,
}

impl Committing {
    fn on(mut self, news: &News) -> (Option<Stage>, Vec<Action>) {
        match *news {
            // One that was started with the settings before is among those that make room.
            News::Committed { id, place, is_current }
                if self.waits_for.remove(&id).is_none() && is_current =>
            {
                self.lost.remove(&place);
            }
            News::Ended(id) => {
                let place = self.waits_for.remove(&id).filter(|_| self.by == By::Fresh);
                self.lost.extend(place);
            }
            _ => {}
        }
        let is_over = self.waits_for.is_empty() && self.lost.is_empty();
        if is_over { self.end() } else { (Some(Stage::Committing(self)), Vec::new()) }
    }

    fn end(self) -> (Option<Stage>, Vec<Action>) {
        match self.by {
            By::Present => (None, vec![Action::Done]),
            By::Fresh => (None, vec![Action::Retire]),
        }
    }
}

/// See [`Stage::Retiring`].
#[derive(Debug, PartialEq, Eq)]
pub struct Retiring {
    waits_for: BTreeSet<u64>,
    until: Instant,
}

impl Retiring {
    /// These were told to accept no more: who connects from then on sees the new settings.
    pub fn begin(ids: Vec<u64>, now: Instant) -> (Option<Stage>, Vec<Action>) {
        Retiring { waits_for: ids.into_iter().collect(), until: now + PATIENCE }.advance()
    }

    fn on(mut self, news: &News) -> (Option<Stage>, Vec<Action>) {
        if let News::AcceptsNoMore(id) | News::Ended(id) = news {
            self.waits_for.remove(id);
        }
        self.advance()
    }

    fn advance(self) -> (Option<Stage>, Vec<Action>) {
        if self.waits_for.is_empty() {
            return (None, vec![Action::Done]);
        }
        (Some(Stage::Retiring(self)), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(30);

    /// Processes of these numbers, each in the place of its number.
    fn asked(ids: &[u64]) -> Vec<(u64, Asked)> {
        ids.iter().map(|id| (*id, Asked { place: *id as usize, pid: 10 + *id as u32 })).collect()
    }

    fn committed(id: u64) -> News {
        committed_in(id as usize, id)
    }

    fn committed_in(place: usize, id: u64) -> News {
        News::Committed { id, place, is_current: true }
    }

    /// What comes of a series of events: the actions of each, and whether it is over.
    fn play(
        begun: (Option<Stage>, Vec<Action>),
        events: &[News],
        now: Instant,
    ) -> (Vec<Action>, Option<Stage>) {
        let (mut stage, mut actions) = begun;
        for news in events {
            let Some(present) = stage.take() else { panic!("over before {news:?}: {actions:?}") };
            let (next, more) = present.on(news, now);
            stage = next;
            actions.extend(more);
        }
        (actions, stage)
    }

    fn refusal(actions: &[Action]) -> &str {
        let Some(Action::Refuse(why)) = actions.last() else { panic!("not refused: {actions:?}") };
        why
    }

    #[test]
    fn reading_is_given_up_in_time() {
        let now = Instant::now();
        let begun = (Some(Reading::begin(7, now)), Vec::new());
        let (actions, stage) = play(begun, &[News::Prepared(1), News::Ended(1)], now);
        let stage = stage.expect("it reads");
        assert!(actions.is_empty() && stage.deadline() == now + READ_PATIENCE);
        assert!(matches!(&stage, Stage::Reading(reading) if reading.is(7) && !reading.is(6)));
        let (stage, actions) = stage.on_deadline();
        assert!(
            stage.is_none() && refusal(&actions).contains("could not be read within 30 s"),
            "{actions:?}"
        );
    }

    #[test]
    fn who_starts_does_so_first_and_not_for_ever() {
        let now = Instant::now();
        assert_eq!(Settling::begin(vec![], now), (None, vec![Action::Open]));
        let begun = || Settling::begin(vec![1, 2], now + START);
        let (actions, stage) = play(begun(), &[News::Prepared(1), committed(1), committed(9)], now);
        assert!(actions.is_empty() && stage.is_some());
        let (actions, stage) = play(begun(), &[committed(1), News::Ended(2)], now);
        assert_eq!((actions, stage), (vec![Action::Open], None));
        let stage = begun().0.expect("it waits");
        assert_eq!(stage.deadline(), now + START);
        assert_eq!(stage.on_deadline(), (None, vec![Action::Open]));
    }

    #[test]
    fn settings_are_in_force_when_all_have_prepared_and_not_before() {
        let now = Instant::now();
        let begun = || Preparing::begin(By::Present, asked(&[1, 2]), START, now);
        let (actions, _) = play(begun(), &[News::Prepared(1), News::Prepared(1), committed(2)], now);
        assert!(actions.is_empty());
        let (actions, stage) = play(begun(), &[News::Prepared(1), News::Prepared(2)], now);
        assert_eq!(actions, [Action::InForce, Action::Commit(vec![1, 2])]);
        // It takes its time to commit, and one may end meanwhile.
        let (stage, actions) = stage.expect("it waits").on(&committed(2), now);
        assert!(actions.is_empty());
        assert_eq!(stage.expect("it waits").on(&News::Ended(1), now), (None, vec![Action::Done]));
    }

    #[test]
    fn one_that_cannot_has_all_forget_it() {
        let now = Instant::now();
        for (by, undo) in [(By::Present, Action::Discard(vec![1, 2])), (By::Fresh, Action::Kill(vec![1, 2]))]
        {
            let begun = Preparing::begin(by, asked(&[1, 2]), START, now);
            let (actions, stage) = play(begun, &[News::Prepared(1), News::Failed(2, "no".into())], now);
            assert_eq!((actions, stage), (vec![undo, Action::Refuse("no".into())], None));
        }
        let begun = Preparing::begin(By::Present, asked(&[1, 2]), START, now);
        let (_, stage) = play(begun, &[News::Prepared(1)], now);
        let (stage, actions) = stage.expect("it waits").on_deadline();
        assert!(stage.is_none() && actions.contains(&Action::Discard(vec![1, 2])));
        assert!(refusal(&actions).contains("\"kill -9 12\""), "{actions:?}");
    }

    #[test]
    fn who_dies_is_left_out_unless_it_was_started_for_it_or_nobody_is_left() {
        let now = Instant::now();
        let begun = |by| Preparing::begin(by, asked(&[1, 2]), START, now);
        for events in [[News::Ended(1), News::Prepared(2)], [News::Prepared(2), News::Ended(1)]] {
            let (actions, stage) = play(begun(By::Present), &events, now);
            assert_eq!(actions, [Action::InForce, Action::Commit(vec![2])]);
            assert!(stage.is_some());
        }
        let (actions, stage) = play(begun(By::Present), &[News::Ended(1), News::Ended(2)], now);
        assert!(stage.is_none() && refusal(&actions).contains("every server process has ended"));
        let (actions, stage) = play(begun(By::Fresh), &[News::Prepared(2), News::Ended(1)], now);
        assert_eq!(actions.first(), Some(&Action::Kill(vec![2])));
        assert!(stage.is_none() && refusal(&actions).contains("server process 11 has ended at its start"));
    }

    #[test]
    fn those_before_stop_accepting_when_the_others_serve() {
        let now = Instant::now();
        let begun = Preparing::begin(By::Fresh, asked(&[3]), START, now);
        let (actions, stage) = play(begun, &[News::Ended(1), News::Prepared(3), committed(3)], now);
        assert_eq!(actions, [Action::InForce, Action::Commit(vec![3]), Action::Retire]);
        assert!(stage.is_none(), "the master says whom it has told");
        // One that dies before it serves: its successor has to serve first.
        let begun = Preparing::begin(By::Fresh, asked(&[3]), START, now);
        let (actions, stage) = play(begun, &[News::Prepared(3), News::Ended(3), News::Prepared(4)], now);
        assert_eq!(actions, [Action::InForce, Action::Commit(vec![3])], "nobody retires");
        let (stage, actions) = stage.expect("it waits").on(&committed_in(3, 4), now);
        assert_eq!((stage, actions), (None, vec![Action::Retire]));
        // That of another place, or one that comes late with the settings before, is no successor.
        let begun = Preparing::begin(By::Fresh, asked(&[3, 5]), START, now);
        let events = [News::Prepared(3), News::Prepared(5), News::Ended(3), committed(5)];
        let (_, stage) = play(begun, &events, now);
        let late = News::Committed { id: 2, place: 3, is_current: false };
        let (stage, actions) = stage.expect("it waits").on(&late, now);
        assert!(actions.is_empty(), "{actions:?}");
        let (stage, actions) = stage.expect("nobody has place 3").on(&committed_in(4, 6), now);
        assert!(actions.is_empty(), "{actions:?}");
        let (stage, actions) = stage.expect("nobody has place 3").on(&committed_in(3, 7), now);
        assert_eq!((stage, actions), (None, vec![Action::Retire]));
        let (actions, stage) = play(
            Retiring::begin(vec![1, 2], now),
            &[committed(3), News::AcceptsNoMore(1), News::Ended(2)],
            now,
        );
        assert_eq!((actions, stage), (vec![Action::Done], None));
        assert_eq!(Retiring::begin(vec![], now), (None, vec![Action::Done]));
        // One that hangs holds nothing up: it is ended when its time to drain is over.
        let stage = Retiring::begin(vec![1], now).0.expect("it waits");
        assert_eq!(stage.on_deadline(), (None, vec![Action::Done]));
        let begun = Preparing::begin(By::Fresh, asked(&[3]), START, now);
        let stage = play(begun, &[News::Prepared(3)], now).1.expect("it commits");
        let (_, actions) = stage.on_deadline();
        assert!(matches!(actions[..], [Action::Warn(_), Action::Retire]), "{actions:?}");
    }
}
