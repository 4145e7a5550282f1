//! Totals of each day, for years.

use super::Unusable;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const DAY: u64 = 86_400;
/// Days that are kept: ten years. The oldest go first.
const DAYS: usize = 3_660;
/// Statuses of a day that are counted apart; a further one counts in its class alone. Applications may answer with any.
pub const STATUSES_OF_A_DAY: usize = 32;

/// A day by UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// Days since 1970-01-01.
    pub day: u64,
    /// What was counted on it.
    #[serde(flatten)]
    pub totals: DayTotals,
}

impl Day {
    /// When it begins, seconds since 1970.
    pub fn begins(&self) -> u64 {
        self.day.saturating_mul(DAY)
    }

    /// With its statuses in order, each once and no more than there may be.
    fn in_order(self) -> Day {
        let mut totals = DayTotals::default();
        totals.add(&self.totals);
        Day { day: self.day, totals }
    }

    /// Days that came from elsewhere, without those that are yet to come: a clock was wrong then.
    ///
    /// # Errors
    /// There cannot be so many.
    pub fn checked(days: Vec<Day>, now: u64) -> Result<Vec<Day>, Unusable> {
        let until_now = days.into_iter().filter(|day| day.day <= now / DAY);
        let days: Vec<Day> = until_now.take(DAYS + 1).map(Day::in_order).collect();
        if days.len() > DAYS { Err(Unusable::TooMuch) } else { Ok(days) }
    }
}

/// What was counted on a day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DayTotals {
    /// Requests that have begun.
    pub requests: u64,
    /// Of these, over HTTP/2; the others are HTTP/1.
    pub http2_requests: u64,
    /// Bytes that clients have sent.
    pub received_bytes: u64,
    /// Bytes that clients were sent.
    pub sent_bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// TLS handshakes, resumed or not.
    pub tls_handshakes: u64,
    /// Connections and requests that were turned away because of load.
    pub refused: u64,
    /// Responses by class, 1xx to 5xx.
    pub responses: [u64; 5],
    /// Responses by status, in order, [`STATUSES_OF_A_DAY`] different ones at most.
    pub statuses: Vec<(u16, u64)>,
}

impl DayTotals {
    fn add(&mut self, more: &DayTotals) {
        let pairs = [
            (&mut self.requests, more.requests),
            (&mut self.http2_requests, more.http2_requests),
            (&mut self.received_bytes, more.received_bytes),
            (&mut self.sent_bytes, more.sent_bytes),
            (&mut self.connections, more.connections),
            (&mut self.tls_handshakes, more.tls_handshakes),
            (&mut self.refused, more.refused),
        ];
        let classes = self.responses.iter_mut().zip(more.responses);
        for (count, more) in pairs.into_iter().chain(classes) {
            *count = count.saturating_add(more);
        }
        for (status, count) in &more.statuses {
            match self.statuses.binary_search_by_key(status, |(known, _)| *known) {
                Ok(at) => self.statuses[at].1 = self.statuses[at].1.saturating_add(*count),
                Err(at) if self.statuses.len() < STATUSES_OF_A_DAY => {
                    self.statuses.insert(at, (*status, *count))
                }
                Err(_) => {}
            }
        }
    }
}

/// All days of which anything is known, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Days(VecDeque<Day>);

impl Days {
    /// Counts what has come about at `second`, since 1970.
    pub(super) fn add(&mut self, second: u64, totals: &DayTotals) {
        self.add_to(second / DAY, totals);
    }

    fn add_to(&mut self, day: u64, totals: &DayTotals) {
        let at = self.0.partition_point(|known| known.day < day);
        if self.0.get(at).is_none_or(|known| known.day != day) {
            self.0.insert(at, Day { day, totals: DayTotals::default() });
        }
        if let Some(known) = self.0.get_mut(at) {
            known.totals.add(totals);
        }
        while self.0.len() > DAYS {
            self.0.pop_front();
        }
    }

    pub(super) fn merge(&mut self, other: Days) {
        other.0.into_iter().for_each(|Day { day, totals }| self.add_to(day, &totals));
    }

    /// Takes in days that are told elsewhere too: of each the one that has counted more.
    pub(super) fn reconcile(&mut self, other: impl IntoIterator<Item = Day>) {
        for Day { day, totals } in other {
            match self.0.iter_mut().find(|known| known.day == day) {
                Some(known) if known.totals.requests < totals.requests => known.totals = totals,
                Some(_) => {}
                None => self.add_to(day, &totals),
            }
        }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Day> {
        self.0.iter()
    }
}

impl FromIterator<Day> for Days {
    /// In any order, and as many as there are: the newest are kept.
    fn from_iter<I: IntoIterator<Item = Day>>(days: I) -> Days {
        let mut all = Days::default();
        days.into_iter().for_each(|Day { day, totals }| all.add_to(day, &totals));
        all
    }
}
