//! A ring of slots of one resolution.
//!
//! The slot of the present is written anew with each observation, from what has come about in it so far, so that the end of
//! a graph is never empty for five minutes.

use super::observation::{
    CACHE_HITS, CACHE_LOOKUPS, CLASSES, CONNECTIONS, COUNTS, CPU_MASTER, CPU_SERVERS, GAUGES, IN_FLIGHT,
    Observation, RECEIVED, REFUSED, REQUESTS, RESIDENT_MASTER, RESIDENT_SERVERS, Rise, SENT, STORE_HITS,
    STORE_LOOKUPS, TLS_FULL, TLS_RESUMED, WAITING,
};
use crate::histogram::Distribution;
use crate::table::Reading;
use std::time::Duration;

/// What a value of a series is made of.
#[derive(Debug, Clone, Copy)]
enum Made {
    /// A count in each second.
    Rate(usize),
    /// Microseconds in each second, as seconds: how many processors are busy.
    Cores(usize),
    /// The mean of a value of moments.
    Mean(usize),
    /// A percentile of the time of the requests that have ended, seconds.
    Quantile(f64),
    /// The part of one count in another.
    Share(usize, usize),
}

/// The series, in their order.
const SERIES: [(&str, Made); 24] = [
    ("requests", Made::Rate(REQUESTS)),
    ("responses_1xx", Made::Rate(CLASSES)),
    ("responses_2xx", Made::Rate(CLASSES + 1)),
    ("responses_3xx", Made::Rate(CLASSES + 2)),
    ("responses_4xx", Made::Rate(CLASSES + 3)),
    ("responses_5xx", Made::Rate(CLASSES + 4)),
    ("received_bytes", Made::Rate(RECEIVED)),
    ("sent_bytes", Made::Rate(SENT)),
    ("connections", Made::Mean(CONNECTIONS)),
    ("in_flight", Made::Mean(IN_FLIGHT)),
    ("waiting", Made::Mean(WAITING)),
    ("refused", Made::Rate(REFUSED)),
    ("p50", Made::Quantile(0.5)),
    ("p90", Made::Quantile(0.9)),
    ("p99", Made::Quantile(0.99)),
    ("p999", Made::Quantile(0.999)),
    ("cpu_servers", Made::Cores(CPU_SERVERS)),
    ("cpu_master", Made::Cores(CPU_MASTER)),
    ("resident_servers", Made::Mean(RESIDENT_SERVERS)),
    ("resident_master", Made::Mean(RESIDENT_MASTER)),
    ("cache_hit_ratio", Made::Share(CACHE_HITS, CACHE_LOOKUPS)),
    ("store_hit_ratio", Made::Share(STORE_HITS, STORE_LOOKUPS)),
    ("tls_full", Made::Rate(TLS_FULL)),
    ("tls_resumed", Made::Rate(TLS_RESUMED)),
];

/// The name of a series and its values, the oldest first.
pub(super) type Series = (&'static str, Vec<Option<f32>>);

/// The values of a slot, as [`kept`] has them.
type Values = [u32; SERIES.len()];
const GAP: Values = [0; SERIES.len()];

/// How a ring keeps a value: a gap, and what is no number, is zero. So a ring of which nothing is known is memory that
/// nobody has written, and the kernel gives none for it.
fn kept(value: Option<f32>) -> u32 {
    value.filter(|value| value.is_finite()).map_or(0, |value| value.to_bits() + 1)
}

/// The value; `None` is a gap.
fn value_of(kept: u32) -> Option<f32> {
    kept.checked_sub(1).map(f32::from_bits)
}

/// The names of all series, in their order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SERIES.iter().map(|(name, _)| *name)
}

/// What has come about in a slot so far.
#[derive(Debug, Clone)]
pub(super) struct Filling {
    /// Its number: since 1970, in steps of the resolution.
    pub slot: u64,
    /// Seconds of which anything is known.
    pub seconds: f64,
    pub counts: [u64; COUNTS],
    /// Values of moments, each times the seconds that it stands for.
    pub gauges: [f64; GAUGES],
    pub times: Distribution,
}

impl Filling {
    fn new(slot: u64) -> Filling {
        let (counts, gauges) = ([0; COUNTS], [0.0; GAUGES]);
        Filling { slot, seconds: 0.0, counts, gauges, times: Distribution::default() }
    }

    fn values(&self) -> Values {
        let value = |(_, made): (&str, Made)| match made {
            Made::Rate(count) => self.counts[count] as f64 / self.seconds,
            Made::Cores(count) => self.counts[count] as f64 / 1e6 / self.seconds,
            Made::Mean(gauge) => self.gauges[gauge] / self.seconds,
            Made::Quantile(_) if self.times.is_empty() => f64::NAN,
            Made::Quantile(quantile) => self.times.quantile(quantile).as_secs_f64(),
            Made::Share(part, whole) => self.counts[part] as f64 / self.counts[whole] as f64,
        };
        SERIES.map(|series| kept(Some(value(series) as f32)))
    }
}

/// A ring of slots.
#[derive(Debug)]
pub(super) struct Level {
    resolution: u64,
    /// By the number of the slot, modulo how many there are; the values of one behind those of another.
    ring: Vec<u32>,
    /// The number of the newest slot.
    newest: Option<u64>,
    filling: Option<Filling>,
}

impl Level {
    pub(super) fn new(resolution: u64, slots: usize) -> Level {
        Level { resolution, ring: vec![0; slots.max(1) * SERIES.len()], newest: None, filling: None }
    }

    pub(super) fn resolution(&self) -> u64 {
        self.resolution
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.newest
    }

    pub(super) fn filling(&self) -> Option<&Filling> {
        self.filling.as_ref()
    }

    /// Puts a series that came from elsewhere, whose last value is of the slot `newest`, in its place. An unknown one is passed
    /// over.
    pub(super) fn set(&mut self, name: &str, newest: u64, values: &[Option<f32>]) {
        let Some(number) = names().position(|known| known == name) else { return };
        let slots = (0..=newest).rev().take(self.length());
        for (slot, value) in slots.zip(values.iter().rev()) {
            self.at(slot)[number] = kept(value.filter(|value| *value >= 0.0));
        }
    }

    /// What goes on with a slot that came from elsewhere.
    pub(super) fn set_filling(&mut self, newest: u64, filling: Option<Filling>) {
        (self.newest, self.filling) = (Some(newest), filling);
    }

    /// What has come about in the time that ends at `wall`. It counts for the slot in which that lies.
    pub(super) fn record(&mut self, wall: u64, elapsed: Duration, rise: &Rise, observed: &Observation) {
        let slot = wall.saturating_sub(1) / self.resolution;
        self.advance(slot);
        let known = self.filling.take().filter(|filling| filling.slot == slot);
        let mut filling = known.unwrap_or_else(|| Filling::new(slot));
        let seconds = elapsed.as_secs_f64();
        filling.seconds += seconds;
        for (count, more) in filling.counts.iter_mut().zip(rise.counts) {
            *count = count.saturating_add(more);
        }
        for (sum, value) in filling.gauges.iter_mut().zip(observed.gauges()) {
            *sum += value * seconds;
        }
        filling.times.merge(&rise.times);
        *self.at(slot) = filling.values();
        self.filling = Some(filling);
    }

    /// Makes a slot the newest: those in between are gaps, and those behind it, where the clock was set back, are forgotten.
    fn advance(&mut self, slot: u64) {
        let newest = self.newest.replace(slot).unwrap_or(slot);
        let (first, last) = if slot > newest { (newest + 1, slot) } else { (slot + 1, newest) };
        let first = first.max((last + 1).saturating_sub(self.length() as u64));
        (first..=last).for_each(|gone| *self.at(gone) = GAP);
    }

    fn place(&self, slot: u64) -> usize {
        (slot % self.length() as u64) as usize
    }

    /// Slots of the ring.
    fn length(&self) -> usize {
        self.ring.len() / SERIES.len()
    }

    fn values(&self, slot: u64) -> &Values {
        &self.ring.as_chunks().0[self.place(slot)]
    }

    fn at(&mut self, slot: u64) -> &mut Values {
        let place = self.place(slot);
        &mut self.ring.as_chunks_mut().0[place]
    }

    /// The numbers of the slots that there are.
    fn slots(&self) -> std::ops::Range<u64> {
        match self.newest {
            Some(newest) => (newest + 1).saturating_sub(self.length() as u64)..newest + 1,
            None => 0..0,
        }
    }

    /// Beginning, end and the values of each series, from the first slot of which anything is known.
    pub(super) fn read(&self) -> (u64, u64, Vec<Series>) {
        let is_known = |slot: &u64| *self.values(*slot) != GAP;
        let slots = self.slots();
        let first = slots.clone().find(is_known).unwrap_or(slots.end);
        let series = names().enumerate().map(|(number, name)| {
            let value = |slot| value_of(self.values(slot)[number]);
            (name, (first..slots.end).map(value).collect())
        });
        (first * self.resolution, slots.end * self.resolution, series.collect())
    }

    /// Adds what was counted elsewhere to rates of the time from `from` until `until`.
    pub(super) fn spread(&mut self, from: u64, until: u64, rise: &Rise) {
        let all = until.saturating_sub(from).max(1);
        let known = self.slots();
        let slots =
            (from / self.resolution).max(known.start)..(until.div_ceil(self.resolution)).min(known.end);
        for slot in slots {
            let begins = slot * self.resolution;
            let seconds = until.min(begins + self.resolution).saturating_sub(from.max(begins));
            let share = |count: u64| count as f64 * seconds as f64 / all as f64;
            if let Some(filling) = self.filling.as_mut().filter(|filling| filling.slot == slot) {
                for (count, more) in filling.counts.iter_mut().zip(rise.counts) {
                    *count = count.saturating_add(share(more).round() as u64);
                }
                let values = filling.values();
                *self.at(slot) = values;
                continue;
            }
            let resolution = self.resolution as f64;
            for (value, (_, made)) in self.at(slot).iter_mut().zip(SERIES) {
                let more = match made {
                    Made::Rate(count) => share(rise.counts[count]) / resolution,
                    Made::Cores(count) => share(rise.counts[count]) / 1e6 / resolution,
                    Made::Mean(_) | Made::Quantile(_) | Made::Share(..) => continue,
                };
                *value = kept(Some(value_of(*value).unwrap_or_default() + more as f32));
            }
        }
    }

    /// Takes over the slots of another level of the same resolution. Where both know something, both have served.
    pub(super) fn inherit(&mut self, other: &Level) {
        let Some(theirs) = other.newest else { return };
        let newest = self.newest.map_or(theirs, |own| own.max(theirs));
        self.advance(newest);
        let slots = self.slots();
        for slot in other.slots().filter(|slot| slots.contains(slot)) {
            let values = *other.values(slot);
            for ((value, theirs), (_, made)) in self.at(slot).iter_mut().zip(values).zip(SERIES) {
                let both = value_of(*value).zip(value_of(theirs)).map(|(own, theirs)| match made {
                    Made::Rate(_) | Made::Cores(_) | Made::Mean(_) => own + theirs,
                    Made::Quantile(_) | Made::Share(..) => own.max(theirs),
                });
                *value = both.map_or((*value).max(theirs), |both| kept(Some(both)));
            }
        }
        let Some(theirs) = &other.filling else { return };
        match &mut self.filling {
            Some(own) if own.slot == theirs.slot => {
                own.seconds = (own.seconds + theirs.seconds).min(self.resolution as f64);
                for (count, more) in own.counts.iter_mut().zip(theirs.counts) {
                    *count = count.saturating_add(more);
                }
                for (sum, more) in own.gauges.iter_mut().zip(theirs.gauges) {
                    *sum += more;
                }
                own.times.merge(&theirs.times);
                let (slot, values) = (own.slot, own.values());
                *self.at(slot) = values;
            }
            Some(own) if own.slot > theirs.slot => {}
            _ => self.filling = Some(theirs.clone()),
        }
    }
}
