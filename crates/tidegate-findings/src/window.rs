//! Samples of the last minutes, and the arithmetic of rules: what has risen since, rates, shares, and ratios to thresholds.

use crate::host::Host;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_modules::status::ServerInfo;
use tidegate_stats::{Distribution, Snapshot};

/// Events in the whole window that are many, however they are spread.
const MANY: f64 = 10.0;
/// Requests in the window without which shares mean nothing.
const ENOUGH: u64 = 100;

/// The server and its machine at a moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time since the first of them was taken.
    pub at: Duration,
    /// What the server is.
    pub info: ServerInfo,
    /// What its workers have counted.
    pub counted: Snapshot,
    /// What the machine tells.
    pub host: Host,
    /// The settings in force.
    pub settings: Arc<Settings>,
}

impl Sample {
    /// Lets go of what is looked at in the newest one alone.
    pub(crate) fn thin(&mut self) {
        self.info.certificates = Vec::new();
        self.info.sites = Vec::new();
        self.info.listeners = Vec::new();
        self.info.findings = Vec::new();
        self.info.turned_away = Vec::new();
        self.info.in_force = Default::default();
        // What has counted nothing reads the same when it is not there.
        self.info.rates.retain(|rate| rate.refused > 0 || rate.crowded > 0);
        self.host.folders = Vec::new();
        self.info.series.without_exemplars();
        for site in &mut self.info.series.sites {
            site.unrouted.times = Default::default();
            for (_, route) in &mut site.routes {
                let times = &mut route.times;
                (times.total, times.first_byte) = Default::default();
            }
        }
    }
}

/// A value that a finding quotes, and whether it is still in force.
#[derive(Clone)]
pub struct Quoted(Rc<dyn Fn(&Sample) -> bool>);

impl Quoted {
    /// Whether the value was the same when this was sampled.
    pub fn is_in_force(&self, sample: &Sample) -> bool {
        (self.0)(sample)
    }
}

impl fmt::Debug for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Quoted")
    }
}

/// Samples in their order; one at least.
pub struct Window<'w> {
    samples: &'w [Sample],
    now: &'w Sample,
    quoted: Vec<Quoted>,
}

impl<'w> Window<'w> {
    /// Of these samples.
    ///
    /// # Panics
    /// Where there is none.
    pub fn new(samples: &'w [Sample]) -> Window<'w> {
        let now = samples.last().expect("whoever looks has taken a sample");
        Window { samples, now, quoted: Vec::new() }
    }

    /// The part of it in which a setting was what it is now: what has happened before is the fault of another value.
    pub fn quoting<T: PartialEq + 'static>(&self, value: impl Fn(&Settings) -> T + 'static) -> Window<'w> {
        let settings = self.now.settings.clone();
        let present = value(&settings);
        // Most often nothing was changed at all.
        self.since(move |sample| {
            Arc::ptr_eq(&sample.settings, &settings) || value(&sample.settings) == present
        })
    }

    /// The same of what the machine bounds, or the server has made of its settings.
    pub fn quoting_bound<T: PartialEq + 'static>(
        &self,
        value: impl Fn(&Sample) -> T + 'static,
    ) -> Window<'w> {
        let present = value(self.now);
        self.since(move |sample| value(sample) == present)
    }

    fn since(&self, is_in_force: impl Fn(&Sample) -> bool + 'static) -> Window<'w> {
        let other = self.samples.iter().rposition(|sample| !is_in_force(sample));
        let first = other.map_or(0, |place| (place + 1).min(self.samples.len() - 1));
        let quoted = self.quoted.iter().cloned().chain([Quoted(Rc::new(is_in_force))]).collect();
        Window { samples: &self.samples[first..], now: self.now, quoted }
    }

    /// What a finding of this window quotes.
    pub fn quoted(&self) -> Vec<Quoted> {
        self.quoted.clone()
    }

    /// The newest.
    pub fn now(&self) -> &'w Sample {
        self.now
    }

    /// The one before.
    pub fn before(&self) -> &'w Sample {
        self.samples.len().checked_sub(2).and_then(|place| self.samples.get(place)).unwrap_or(self.now)
    }

    /// The oldest.
    pub fn first(&self) -> &'w Sample {
        self.samples.first().unwrap_or(self.now)
    }

    /// The settings in force.
    pub fn settings(&self) -> &'w Settings {
        &self.now.settings
    }

    /// Seconds from the oldest to the newest; a little more than none where there is only one.
    pub fn seconds(&self) -> f64 {
        self.now.at.saturating_sub(self.first().at).as_secs_f64().max(f64::EPSILON)
    }

    /// Seconds from the one before to the newest.
    pub fn step_seconds(&self) -> f64 {
        self.now.at.saturating_sub(self.before().at).as_secs_f64().max(f64::EPSILON)
    }

    /// `5m`.
    pub fn length(&self) -> String {
        let seconds = self.now.at.saturating_sub(self.first().at).as_secs();
        tidegate_config::duration_text(Duration::from_secs(seconds.max(1)))
    }

    /// `in the last 5m`.
    pub fn span(&self) -> String {
        format!("in the last {}", self.length())
    }

    /// How much a count has risen in the window.
    pub fn risen(&self, count: impl Fn(&Sample) -> u64) -> u64 {
        count(self.now).saturating_sub(count(self.first()))
    }

    /// How much a count has risen since the look before.
    pub fn step(&self, count: impl Fn(&Sample) -> u64) -> u64 {
        count(self.now).saturating_sub(count(self.before()))
    }

    /// How much a count has risen from each look to the next, the newest last.
    pub fn steps(&self, count: impl Fn(&Sample) -> u64) -> Vec<u64> {
        self.samples.windows(2).map(|pair| count(&pair[1]).saturating_sub(count(&pair[0]))).collect()
    }

    /// The most that a count has risen from one look to the next.
    pub fn worst_step(&self, count: impl Fn(&Sample) -> u64) -> u64 {
        self.steps(count).into_iter().max().unwrap_or(0)
    }

    /// The most that a count has risen in a second, by the mean from one look to the next.
    pub fn worst_rate(&self, count: impl Fn(&Sample) -> u64) -> f64 {
        let rate = |pair: &[Sample]| {
            let seconds = pair[1].at.saturating_sub(pair[0].at).as_secs_f64().max(1.0);
            count(&pair[1]).saturating_sub(count(&pair[0])) as f64 / seconds
        };
        self.samples.windows(2).map(rate).fold(0.0, f64::max)
    }

    /// How much a count rises in a second.
    pub fn rate(&self, count: impl Fn(&Sample) -> u64) -> f64 {
        self.risen(count) as f64 / self.seconds()
    }

    /// The most that a value was.
    pub fn peak(&self, value: impl Fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(value).max().unwrap_or(0)
    }

    /// Times that were recorded in the window.
    pub fn times(&self, of: impl Fn(&Sample) -> &Distribution) -> Distribution {
        of(self.now).since(of(self.first()))
    }

    /// The same of what need not be there.
    pub fn times_of(&self, of: impl Fn(&Sample) -> Option<&Distribution>) -> Distribution {
        let none = Distribution::default();
        of(self.now).unwrap_or(&none).since(of(self.first()).unwrap_or(&none))
    }

    /// Times that were recorded since the look before.
    pub fn step_times(&self, of: impl Fn(&Sample) -> &Distribution) -> Distribution {
        of(self.now).since(of(self.before()))
    }

    /// The same of what need not be there.
    pub fn step_times_of(&self, of: impl Fn(&Sample) -> Option<&Distribution>) -> Distribution {
        let none = Distribution::default();
        of(self.now).unwrap_or(&none).since(of(self.before()).unwrap_or(&none))
    }

    /// How far counted events are from being news: one in each of the last two looks, or many in the window.
    pub fn events(&self, count: impl Fn(&Sample) -> u64) -> f64 {
        let steps = self.steps(&count);
        let lately = match steps.as_slice() {
            [.., before, last] => *before.min(last) as f64,
            _ => 0.0,
        };
        lately.max(self.risen(count) as f64 / MANY)
    }

    /// Whether there were enough requests for shares to mean anything.
    pub fn is_busy(&self) -> bool {
        self.risen(|sample| sample.counted.requests) >= ENOUGH
    }

    /// Processors that this server may use.
    pub fn processors(&self) -> f64 {
        self.now.host.processors.unwrap_or(1.0).max(0.1)
    }

    /// The share of the processors that nobody uses, 0 to 1: of the machine, or of what this server may use where that is less.
    pub fn idle(&self) -> f64 {
        let all = self.step(|sample| sample.host.times.all);
        let idle = self.step(|sample| sample.host.times.idle);
        let of_machine = if all > 0 { idle as f64 / all as f64 } else { 1.0 };
        of_machine.min(1.0 - self.busy()).clamp(0.0, 1.0)
    }

    /// The share of its processors that the server processes use, 0 to 1.
    pub fn busy(&self) -> f64 {
        let used = self.step(|sample| sample.info.used.cpu_micros) as f64 / 1e6;
        (used / self.step_seconds() / self.processors()).clamp(0.0, 1.0)
    }
}

/// How far a value is above a threshold: 1 at it.
pub fn over(value: f64, threshold: f64) -> f64 {
    let ratio = value / threshold;
    if ratio.is_nan() { 0.0 } else { ratio.max(0.0) }
}

/// How far a value is below a threshold: 1 at it.
pub fn under(value: f64, threshold: f64) -> f64 {
    over(threshold, value)
}

/// All of these have to hold.
pub fn all(ratios: impl IntoIterator<Item = f64>) -> f64 {
    ratios.into_iter().fold(f64::INFINITY, f64::min)
}

/// What has to hold and has no threshold.
pub fn only(holds: bool) -> f64 {
    if holds { f64::INFINITY } else { 0.0 }
}

/// A share, 0 where there is nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A whole number that is a multiple of `of`, no less than the value.
pub fn round_up(value: f64, of: u64) -> u64 {
    let whole = if value.is_finite() { value.clamp(0.0, 1e15).ceil() as u64 } else { 0 };
    whole.max(1).div_ceil(of.max(1)).saturating_mul(of.max(1))
}
