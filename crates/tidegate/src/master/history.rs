//! The history of the server: kept by the master, so that it outlives reloads and server processes, and handed to its
//! successor in an upgrade.
//!
//! A thread of its own looks once a second, just behind the full second: asking server processes takes as long as it takes, and
//! a second in which nobody has answered is a gap. `tidegate_stats::history` holds what was seen, the status registry has it
//! and shows it.

use super::status_registry::StatusRegistry;
use super::totals::{self, Totals};
use crate::link::Figures;
use crate::version::VERSION;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_core::log;
use tidegate_io::clock;
use tidegate_io::usage::Usage;
use tidegate_modules::status::{Format, HistoryRange, history_report};
use tidegate_stats::history::{Day, History, Moment, Observation, SentHistory};

/// Seconds since 1970, and the time of the clock that only goes forward.
fn now() -> Moment {
    let wall = u64::try_from(clock::wall().0).unwrap_or(0);
    Moment { wall, monotonic: Duration::from_nanos(clock::monotonic_ns()) }
}

/// What the server shows at this moment.
fn observation(figures: &Figures) -> Observation {
    let (servers, master) = (figures.used, Usage::without_descriptors());
    let (hits, asked) = figures.stores.iter().fold((0u64, 0u64), |(hits, asked), store| {
        let requests = &store.requests;
        (hits.saturating_add(requests.hits + requests.collapsed), asked.saturating_add(requests.asked()))
    });
    Observation::of(&figures.counted)
        .storing(hits, asked)
        .using((servers.cpu_micros, servers.resident), (master.cpu_micros, master.resident))
}

/// The history, where one is kept.
#[derive(Default)]
pub struct HistoryKeeper {
    state: Mutex<State>,
    totals: Totals,
}

#[derive(Default)]
struct State {
    history: Option<History>,
    /// Settings have said before whether there is one.
    is_begun: bool,
    /// When the predecessor has told what it had counted, and what that was.
    before: Option<(u64, Observation)>,
    /// A predecessor may still tell what there was: until then the file of totals is its own.
    awaits_predecessor: bool,
    /// A successor was told what has been counted, and is told what comes behind that: here it ends.
    is_told: bool,
    /// The successor has it, and goes on with it.
    is_handed_over: bool,
    /// Where the totals of days go.
    totals_path: Option<PathBuf>,
    /// What lay there is in the days of the history: another file would lose what it has.
    totals_known: bool,
}

impl State {
    /// What is to be written, and where: not before it is known what lies there.
    fn totals(&self) -> Option<(PathBuf, Vec<Day>)> {
        let history = self.history.as_ref().filter(|_| self.totals_known && !self.is_handed_over)?;
        Some((self.totals_path.clone()?, history.days().cloned().collect()))
    }
}

impl HistoryKeeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A predecessor will tell what there was.
    pub fn await_predecessor(&self) {
        self.state().awaits_predecessor = true;
    }

    /// New settings are in force: whether there is a history from now on, and where the totals of days go. A history that there is
    /// goes on; one that ends leaves its totals.
    pub fn adopt(&self, is_on: bool, totals_path: Option<PathBuf>) {
        let mut state = self.state();
        let has_moved = state.totals_path != totals_path;
        if !is_on {
            if let Some((path, days)) = state.totals() {
                self.totals.begin_writing(path, days);
            }
            (state.history, state.totals_known) = (None, false);
        } else if state.history.is_none() {
            let is_new = !state.is_begun;
            state.history = Some(if is_new { History::new(now()) } else { History::of_one_that_runs(now()) });
        } else if has_moved {
            state.totals_known = false;
        }
        state.is_begun = true;
        let has_days = state.history.as_ref().is_some_and(|history| history.days().len() > 0);
        state.totals_path = totals_path;
        let is_missing = state.history.is_some() && !state.totals_known && !state.awaits_predecessor;
        drop(state);
        if is_missing {
            self.load_totals(has_days);
        }
    }

    /// Takes in the totals of days that lie in the file. `is_moved`: the days here may tell of the same requests.
    fn load_totals(&self, is_moved: bool) {
        let path = self.state().totals_path.clone();
        let Some(days) = path.as_deref().map_or(Some(Vec::new()), totals::load) else { return };
        let mut state = self.state();
        if state.totals_path != path {
            return; // other settings have come meanwhile
        }
        let Some(history) = &mut state.history else { return };
        match is_moved {
            true => history.reconcile_days(days),
            false => history.inherit_days(days),
        }
        state.totals_known = true;
    }

    /// The predecessor has ended. One that has sent no history has left its totals in the file.
    pub fn predecessor_has_ended(&self) {
        let mut state = self.state();
        state.awaits_predecessor = false;
        let is_missing = state.history.is_some() && !state.totals_known;
        drop(state);
        if is_missing {
            self.load_totals(false);
        }
    }

    /// Takes in what this server's own processes show.
    pub fn record(&self, figures: &Figures) {
        let mut state = self.state();
        let State { history, is_told: false, .. } = &mut *state else { return };
        if let Some(history) = history {
            history.record(now(), observation(figures));
        }
    }

    /// Notes what has changed the server.
    pub fn mark(&self, what: &str) {
        if let Some(history) = &mut self.state().history {
            history.mark(now().wall, what);
        }
    }

    /// Gives it to a successor, once, with what has been counted: from then on it is the successor's, where `tell` says that it was
    /// told. One whose totals are not known yet stays: the successor finds them where they are.
    pub fn hand_over(&self, tell: impl FnOnce(Option<SentHistory>) -> bool) {
        let state = self.state();
        let is_whole = state.totals_known && !state.is_handed_over;
        let history = state.history.as_ref().filter(|_| is_whole).map(History::to_send);
        let has_history = history.is_some();
        drop(state);
        if tell(history) {
            let mut state = self.state();
            state.is_told = true;
            state.is_handed_over |= has_history;
        }
    }

    /// The predecessor has said what it had counted, once when this server took over and once more at its end. What it has
    /// counted in between was finished in that time.
    pub fn hear_before(&self, figures: &Figures) {
        let (wall, observed) = (now().wall, observation(figures));
        let mut state = self.state();
        let known = state.before.replace((wall, observed.clone()));
        match (known, &mut state.history) {
            (Some((then, before)), Some(history)) => history.spread(then, wall, &before, &observed),
            (None, Some(history)) => history.mark(wall, &format!("upgrade to {VERSION}")),
            (_, None) => {}
        }
    }

    /// Goes on with what a predecessor has sent: a frame with figures, and perhaps a history beside them.
    pub fn inherit(&self, frame: &[u8]) {
        #[derive(Deserialize)]
        struct Beside {
            #[serde(default)]
            history: Option<Box<SentHistory>>,
        }
        let now = now();
        let sent = match serde_json::from_slice(frame) {
            Ok(Beside { history: None }) => return,
            Ok(Beside { history: Some(sent) }) => {
                History::from_sent(*sent, now).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.state();
        let Some(history) = &mut state.history else { return };
        match sent {
            Ok(sent) => {
                history.inherit(sent);
                drop(state);
                self.load_totals(true); // these settings may have them in another file
            }
            Err(why) => log::warn(format_args!(
                "the history of the server before cannot be used, and begins anew: {why}"
            )),
        }
    }

    /// The report.
    pub fn report(&self, range: HistoryRange, format: Format) -> String {
        history_report(self.state().history.as_ref(), range, format)
    }

    /// Answers `RANGE text` or `RANGE json`; `None`: it is neither.
    pub fn answer(&self, question: &str) -> Option<String> {
        let (range, format) = question.split_once(' ')?;
        let format = if format == "json" { Format::Json } else { Format::Text };
        Some(self.report(HistoryRange::from_name(range)?, format))
    }

    /// Writes the totals of days when it is time.
    fn look_at_totals(&self) {
        self.totals.look(|| self.totals());
    }

    /// The totals of days and where they are to be written, unless a successor has them.
    pub fn totals(&self) -> Option<(PathBuf, Vec<Day>)> {
        self.state().totals()
    }
}

/// The thread that looks.
#[derive(Default)]
pub struct HistoryTicker {
    thread: Option<Sender<()>>,
}

impl HistoryTicker {
    /// New settings are in force: looks from now on, or no longer.
    pub fn adopt(&mut self, settings: &Settings, status: &Arc<StatusRegistry>) {
        let is_on = settings.statistics.history;
        status.history.adopt(is_on, totals::path_for(settings));
        if !is_on {
            self.thread = None;
        } else if self.thread.is_none() {
            let (sender, ends) = channel();
            let status = status.clone();
            let started = std::thread::Builder::new().name("tidegate-past".into());
            match started.spawn(move || watch(&ends, || look(&status))) {
                Ok(_) => self.thread = Some(sender),
                Err(error) => log::error(format_args!("no history is kept: no thread: {error}")),
            }
        }
    }
}

fn look(status: &StatusRegistry) {
    status.look();
    status.history.look_at_totals();
}

/// Looks just behind each full second, so that each has one look, until the other end of `ends` is gone. Only the part of a second
/// that is left is taken from the clock on the wall: one that is set makes a look a second early or late, and no more.
fn watch(ends: &Receiver<()>, mut look: impl FnMut()) {
    loop {
        let (_, nanos) = clock::wall();
        let left = Duration::from_nanos(1_000_000_000u64.saturating_sub(nanos.into()) + 5_000_000);
        match ends.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => look(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stats::Worker;

    fn figures(requests: u64) -> Figures {
        let stats = Worker::default();
        stats.requests.add(requests);
        Figures { counted: stats.snapshot(), ..Figures::default() }
    }

    fn requests_of_days(keeper: &HistoryKeeper) -> u64 {
        let state = keeper.state();
        state.history.as_ref().unwrap().days().map(|day| day.totals.requests).sum()
    }

    fn frame(keeper: &HistoryKeeper) -> Vec<u8> {
        let mut frame = Vec::new();
        keeper.hand_over(|history| {
            frame = serde_json::to_vec(&serde_json::json!({ "history": history, "counted": {} })).unwrap();
            true
        });
        frame
    }

    /// A keeper with a history, of a server that begins.
    fn begun(totals: Option<PathBuf>) -> HistoryKeeper {
        let keeper = HistoryKeeper::default();
        keeper.adopt(true, totals);
        keeper
    }

    /// One that takes over.
    fn heir(totals: Option<PathBuf>) -> HistoryKeeper {
        let keeper = HistoryKeeper::default();
        keeper.await_predecessor();
        keeper.adopt(true, totals);
        keeper
    }

    /// A file of totals that says so many requests of a day long ago; its folder goes with it.
    struct Kept(PathBuf);

    impl Kept {
        fn with(name: &str, requests: u64) -> Kept {
            let name = format!("tidegate-history-{name}-{}", std::process::id());
            let kept = Kept(std::env::temp_dir().join(name));
            std::fs::create_dir_all(&kept.0).unwrap();
            let mut day = Day { day: 19_000, ..Day::default() };
            day.totals.requests = requests;
            assert!(totals::keep(&kept.path(), vec![day]));
            kept
        }

        fn path(&self) -> PathBuf {
            self.0.join("totals.json")
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_successor_has_the_history_and_what_is_finished_later() {
        let (old, new) = (begun(Some("/no/such/totals".into())), heir(Some("/no/such/totals".into())));
        old.record(&figures(100));
        let frame = frame(&old);
        assert!(old.totals().is_none(), "they are the successor's");
        old.hand_over(|history| {
            assert!(history.is_none(), "once");
            true
        });
        new.hear_before(&figures(100));
        new.inherit(&frame);
        new.record(&figures(7));
        new.hear_before(&figures(103));
        assert_eq!(requests_of_days(&new), 110);
        let report = new.answer("10m json").unwrap();
        assert!(report.contains("upgrade to "), "{report}");
        assert!(new.answer("1y json").is_none() && new.answer("days").is_none());
    }

    #[test]
    fn a_successor_that_was_not_told_has_no_history() {
        let old = begun(Some("/no/such/totals".into()));
        old.hand_over(|history| {
            assert!(history.is_some());
            false
        });
        assert!(old.totals().is_some(), "it is gone, and nobody else would write them");
    }

    #[test]
    fn what_lies_in_the_file_is_known_before_it_is_written_anew() {
        let file = Kept::with("known", 40);
        let new = heir(Some(file.path()));
        new.record(&figures(2));
        assert!(new.totals().is_none(), "the predecessor still has them");
        new.hand_over(|history| {
            assert!(history.is_none(), "whoever comes next finds them in the file");
            true
        });
        new.adopt(true, Some(file.path()));
        assert!(new.totals().is_none(), "a reload changes nothing of it");
        new.record(&figures(900)); // which the successor was told, too
        new.predecessor_has_ended();
        assert_eq!((requests_of_days(&new), new.totals().is_some()), (42, true));
        new.adopt(true, Some(file.path()));
        assert_eq!(requests_of_days(&new), 42, "once");
        // Somewhere else there may be others, and some of the same.
        let other = Kept::with("other", 50);
        new.adopt(true, Some(other.path()));
        assert_eq!((requests_of_days(&new), new.totals().unwrap().0), (52, other.path()));
    }

    #[test]
    fn off_and_on_counts_nothing_twice() {
        let file = Kept::with("twice", 40);
        let keeper = begun(Some(file.path()));
        keeper.record(&figures(10));
        keeper.adopt(false, None);
        assert!(keeper.totals().is_none());
        // A thread writes them.
        while keeper.totals.is_writing() {
            std::thread::yield_now();
        }
        keeper.adopt(true, Some(file.path()));
        keeper.record(&figures(500));
        keeper.record(&figures(503));
        assert_eq!(requests_of_days(&keeper), 40 + 10 + 3, "nobody has looked meanwhile");
    }

    #[test]
    fn a_history_that_is_none_is_an_empty_one() {
        for broken in [
            &br#"{"history":7}"#[..],
            br#"{"history":{"levels":[{"resolution":1,"newest":99999999999}]}}"#,
            br#"{"history":{"days":[{"day":99999999}]}}"#,
            br#"{"counted":{}}"#,
            b"{",
        ] {
            let keeper = HistoryKeeper::default();
            keeper.inherit(broken); // without one
            keeper.adopt(true, None);
            keeper.record(&figures(1));
            keeper.inherit(broken);
            assert_eq!(requests_of_days(&keeper), 1);
            assert!(keeper.answer("10m json").unwrap().contains("\"marks\":[]"));
        }
    }

    #[test]
    fn without_a_history_nothing_is_kept() {
        let keeper = HistoryKeeper::default();
        keeper.record(&figures(1));
        keeper.mark("revision 2");
        assert!(keeper.totals().is_none());
        assert!(keeper.answer("6h text").unwrap().contains("statistics off"));
        keeper.adopt(true, Some("/no/such/totals".into()));
        assert!(keeper.totals().is_some());
        keeper.adopt(false, None);
        assert!(keeper.totals().is_none());
    }

    #[test]
    fn the_thread_ends_when_it_is_told() {
        let (sender, ends) = channel();
        let mut looks = 0;
        drop(sender);
        watch(&ends, || looks += 1);
        assert_eq!(looks, 0);
    }
}
