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
    let waiting: usize = figures.groups.iter().map(|group| group.demand.waiting).sum();
    let (servers, master) = (figures.used, Usage::without_descriptors());
    Observation::of(&figures.counted)
        .waiting_for_applications(waiting as u64)
        .using((servers.cpu_micros, servers.resident), (master.cpu_micros, master.resident))
}

/// The history, where one is kept.
#[derive(Default)]
pub struct HistoryKeeper {
    state: Mutex<State>,
    /// What keeps the totals of days.
    pub totals: Totals,
}

#[derive(Default)]
struct State {
    history: Option<History>,
    /// When the predecessor has told what it had counted, and what that was.
    before: Option<(u64, Observation)>,
    /// It was handed to a successor, who goes on with it.
    is_handed_over: bool,
}

impl HistoryKeeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is one from now on. One that there is goes on.
    pub fn switch(&self, is_on: bool) {
        let mut state = self.state();
        match is_on {
            true => drop(state.history.get_or_insert_with(|| History::new(now()))),
            false => state.history = None,
        }
    }

    /// Takes in what this server's own processes show.
    pub fn record(&self, figures: &Figures) {
        let mut state = self.state();
        if let Some(history) = state.history.as_mut() {
            history.record(now(), observation(figures));
        }
    }

    /// Notes what has changed the server.
    pub fn mark(&self, what: &str) {
        if let Some(history) = &mut self.state().history {
            history.mark(now().wall, what);
        }
    }

    /// For a successor, once; from then on it is the successor's.
    pub fn hand_over(&self) -> Option<SentHistory> {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_handed_over, true) {
            return None;
        }
        state.history.as_ref().map(History::to_send)
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

    /// Goes on with what a predecessor has sent: a frame with figures, and perhaps a history beside them. Whether there was
    /// one.
    pub fn inherit(&self, frame: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Beside {
            #[serde(default)]
            history: Option<Box<SentHistory>>,
        }
        let now = now();
        let sent = match serde_json::from_slice(frame) {
            Ok(Beside { history: None }) => return false,
            Ok(Beside { history: Some(sent) }) => {
                History::from_sent(*sent, now).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match (sent, &mut self.state().history) {
            (Ok(sent), Some(history)) => history.inherit(sent),
            (Err(why), Some(_)) => {
                log::warn(format_args!(
                    "the history of the server before cannot be used, and begins anew: {why}"
                ));
                return false;
            }
            (_, None) => return false,
        }
        true
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

    /// The totals of days, unless a successor has them.
    pub fn days(&self) -> Option<Vec<Day>> {
        let state = self.state();
        let history = state.history.as_ref().filter(|_| !state.is_handed_over)?;
        Some(history.days().cloned().collect())
    }

    /// Adds the totals of days that a server before has kept in the file.
    pub fn load_totals(&self) {
        let Some(path) = self.totals.path() else { return };
        let days = totals::load(&path);
        if let Some(history) = &mut self.state().history {
            history.inherit_days(days);
        }
    }
}

/// The thread that looks.
pub struct HistoryTicker {
    thread: Option<Sender<()>>,
    /// The totals of days come from a predecessor, and not from the file.
    is_heir: bool,
}

impl HistoryTicker {
    /// Of a server that takes over from a predecessor, or of one that begins.
    pub fn new(is_heir: bool) -> HistoryTicker {
        HistoryTicker { thread: None, is_heir }
    }

    /// New settings are in force: looks from now on, or no longer.
    pub fn adopt(&mut self, settings: &Settings, status: &Arc<StatusRegistry>) {
        let is_on = settings.statistics.history;
        status.history.switch(is_on);
        status.history.totals.set_path(totals::path_for(settings));
        if !is_on {
            self.thread = None;
        } else if self.thread.is_none() {
            if !std::mem::take(&mut self.is_heir) {
                status.history.load_totals();
            }
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
    status.history.totals.look(|| status.history.days());
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
        keeper.days().unwrap().iter().map(|day| day.totals.requests).sum()
    }

    fn frame(keeper: &HistoryKeeper) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({ "history": keeper.hand_over(), "counted": {} })).unwrap()
    }

    #[test]
    fn a_successor_has_the_history_and_what_is_finished_later() {
        let (old, new) = (HistoryKeeper::default(), HistoryKeeper::default());
        old.switch(true);
        new.switch(true);
        old.record(&figures(100));
        let frame = frame(&old);
        assert!(old.days().is_none(), "they are the successor's");
        assert!(old.hand_over().is_none(), "once");
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
            keeper.switch(true);
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
        assert!(keeper.days().is_none() && keeper.hand_over().is_none());
        assert!(keeper.answer("6h text").unwrap().contains("statistics off"));
        keeper.switch(true);
        keeper.switch(false);
        assert!(keeper.days().is_none());
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
