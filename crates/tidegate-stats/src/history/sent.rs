//! A history on its way to a successor, which may be another version: series are told by their names, and whatever comes is
//! checked before it is believed.

use super::level::{Filling, Level};
use super::{Day, History, LEVELS, MARKS, Moment};
use crate::histogram::Distribution;
use serde::{Deserialize, Serialize};

/// A history as it travels.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SentHistory {
    levels: Vec<SentLevel>,
    days: Vec<Day>,
    marks: Vec<(u64, String)>,
}

/// A level as it travels.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SentLevel {
    /// Seconds of a slot.
    pub resolution: u64,
    /// The number of the newest slot, which is the last one of each series.
    pub newest: u64,
    /// By name.
    pub series: Vec<(String, Vec<Option<f32>>)>,
    pub filling: Option<SentFilling>,
}

/// What has come about in the newest slot. Its parts have no names: where another version has more or fewer, it is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SentFilling {
    pub seconds: f64,
    pub counts: Vec<u64>,
    pub gauges: Vec<f64>,
    pub times: Distribution,
}

/// Why what came is no history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It has more days, marks or levels than there can be.
    TooMuch,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::TooMuch => out.write_str("it has more than a history can have"),
        }
    }
}

impl std::error::Error for Unusable {}

impl History {
    /// For a successor.
    pub fn to_send(&self) -> SentHistory {
        SentHistory {
            levels: self.levels.iter().filter_map(Level::to_send).collect(),
            days: self.days.iter().cloned().collect(),
            marks: self.marks.iter().map(|mark| (mark.at, mark.what.clone())).collect(),
        }
    }

    /// What a predecessor has sent, to be taken over with [`History::inherit`], without what is told of a time to come.
    ///
    /// # Errors
    /// It has more than a history can have.
    pub fn from_sent(sent: SentHistory, now: Moment) -> Result<History, Unusable> {
        if sent.levels.len() > LEVELS.len() || sent.marks.len() > MARKS {
            return Err(Unusable::TooMuch);
        }
        let mut history = History::of_one_that_runs(now);
        for level in &sent.levels {
            if let Some(own) = history.levels.iter_mut().find(|own| own.resolution() == level.resolution) {
                own.take(level, now.wall);
            }
        }
        history.inherit_days(Day::checked(sent.days, now.wall)?);
        sent.marks.iter().for_each(|(at, what)| history.mark(*at, what));
        Ok(history)
    }
}

impl Filling {
    fn to_send(&self) -> SentFilling {
        let (counts, gauges) = (self.counts.to_vec(), self.gauges.to_vec());
        SentFilling { seconds: self.seconds, counts, gauges, times: self.times.clone() }
    }

    fn of(slot: u64, sent: &SentFilling) -> Option<Filling> {
        let is_sound = |value: &f64| value.is_finite() && *value >= 0.0;
        let is_sound = is_sound(&sent.seconds) && sent.gauges.iter().all(is_sound);
        let (counts, gauges) = (sent.counts.as_slice().try_into(), sent.gauges.as_slice().try_into());
        let (counts, gauges) = (counts.ok()?, gauges.ok()?);
        let filling = Filling { slot, seconds: sent.seconds, counts, gauges, times: sent.times.clone() };
        is_sound.then_some(filling)
    }
}

impl Level {
    /// `None`: nothing is known.
    fn to_send(&self) -> Option<SentLevel> {
        let newest = self.newest()?;
        let (.., series) = self.read();
        let series = series.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        let filling = self.filling().filter(|filling| filling.slot == newest).map(Filling::to_send);
        Some(SentLevel { resolution: self.resolution(), newest, series, filling })
    }

    fn take(&mut self, sent: &SentLevel, now: u64) {
        if sent.newest > now / self.resolution() {
            return; // by a clock that was wrong
        }
        for (name, values) in &sent.series {
            self.set(name, sent.newest, values);
        }
        let filling = sent.filling.as_ref().and_then(|filling| Filling::of(sent.newest, filling));
        self.set_filling(sent.newest, filling);
    }
}
