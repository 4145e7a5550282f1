//! Hooks of the server, of sites and of upstream groups (R16): their load, looked at once a second.
//!
//! A thread of the master's own, started with the first hook: asking server processes for their figures takes as long as
//! they take. What a hook does, and when, is `supervise/hook.rs`, as for pools.

use super::status_registry::StatusRegistry;
use crate::link::Figures;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::LoadOf;
use tidegate_config::settings::pool::{Hook, Measure};
use tidegate_core::log;
use tidegate_modules::gateway::supervise::hook::{Subject, Watch};

/// How often the load is looked at (`PollTime`).
const EVERY: Duration = Duration::from_secs(1);

/// The hooks in force.
#[derive(Default)]
pub struct LoadHooks {
    thread: Mutex<Option<Sender<Hooks>>>,
}

/// Hooks, and what each looks at the load of.
type Hooks = Vec<(LoadOf, Hook)>;

impl LoadHooks {
    /// Those of a revision are in force. Those that say the same go on as they are.
    pub fn adopt(&self, settings: &Settings, status: &Arc<StatusRegistry>) {
        let hooks: Hooks = settings.load_hooks().map(|(of, hook)| (of, hook.clone())).collect();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && !hooks.is_empty() {
            let (sender, told) = channel();
            let status = status.clone();
            let started = std::thread::Builder::new().name("tidegate-load".into());
            match started.spawn(move || watch(&told, look_by(status))) {
                Ok(_) => *thread = Some(sender),
                Err(error) => log::error(format_args!("nobody looks at the load, no hook runs: {error}")),
            }
        }
        if let Some(thread) = &*thread {
            let _ = thread.send(hooks);
        }
    }
}

/// A hook, whose load it looks at, and how that is called.
struct Watched {
    of: LoadOf,
    subject: Subject,
    watch: Watch,
}

impl Watched {
    fn new((of, hook): (LoadOf, Hook)) -> Watched {
        let (kind, name) = match &of {
            LoadOf::Server => ("server", String::new()),
            LoadOf::Site(name) => ("site", name.clone()),
            LoadOf::Upstream(name) => ("upstream", name.clone()),
        };
        Watched { of, subject: Subject { kind, name }, watch: Watch::new(hook) }
    }
}

/// Looks once a second. A reload in between is heard of at once, and is no reason to look: the rate of a moment is that of
/// one request, or of none.
fn watch(told: &Receiver<Hooks>, mut look: impl FnMut(&mut [Watched])) {
    let mut hooks: Vec<Watched> = Vec::new();
    let mut next = Instant::now() + EVERY;
    loop {
        match told.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(adopted) => adopt(&mut hooks, adopted),
            Err(RecvTimeoutError::Timeout) => {
                look(&mut hooks);
                next = Instant::now() + EVERY;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Those that say the same go on as they are.
fn adopt(hooks: &mut Vec<Watched>, adopted: Hooks) {
    let mut old = std::mem::take(hooks);
    for (of, hook) in adopted {
        let same = old.iter().position(|known| known.of == of && *known.watch.hook() == hook);
        hooks.push(match same {
            Some(at) => old.swap_remove(at),
            None => Watched::new((of, hook)),
        });
    }
}

/// What looks at the load.
fn look_by(status: Arc<StatusRegistry>) -> impl FnMut(&mut [Watched]) {
    let started = Instant::now();
    let mut before = Before::default();
    move |hooks| {
        if hooks.is_empty() {
            before = Before::default();
            return;
        }
        let figures = status.figures();
        let of_site = |name: &str| status.rates().load_of(name);
        let now = started.elapsed();
        let load = Load { figures: &figures, of_site: &of_site };
        for Watched { of, subject, watch } in hooks {
            if let Some(value) = before.value(of, watch.measure(), &load, now) {
                watch.look(subject, value, now);
            }
        }
        before.passed();
    }
}

/// The load at a moment.
struct Load<'l> {
    figures: &'l Figures,
    /// Requests under way at a site, and those that there have been.
    of_site: &'l dyn Fn(&str) -> (u64, u64),
}

/// What was counted when it was looked at last: rates follow from the difference.
#[derive(Default)]
struct Before {
    counts: HashMap<String, (u64, Duration)>,
    /// What it was at this look.
    fresh: HashMap<String, (u64, Duration)>,
}

impl Before {
    /// The load by a measure; `None` where that is not known yet.
    fn value(&mut self, of: &LoadOf, measure: Measure, load: &Load<'_>, now: Duration) -> Option<u64> {
        let counted = &load.figures.counted;
        let group = |name: &String| load.figures.groups.iter().find(|group| group.name == *name);
        let count = match (of, measure) {
            (LoadOf::Server, Measure::Queue) => return Some(counted.queued.current),
            (LoadOf::Server, Measure::Concurrency) => return Some(counted.requests_under_way()),
            (LoadOf::Server, Measure::Rate) => counted.requests,
            (LoadOf::Server, Measure::Cpu) => {
                // A worker that never rests uses a million microseconds in a second.
                let workers = counted.workers.max(1);
                return self
                    .each_second("cpu", load.figures.used.cpu_micros, now)
                    .map(|used| used / (10_000 * workers));
            }
            (LoadOf::Site(name), Measure::Concurrency) => return Some((load.of_site)(name).0),
            (LoadOf::Site(name), Measure::Rate) => (load.of_site)(name).1,
            (LoadOf::Upstream(name), Measure::Queue) => {
                return group(name).map(|group| group.demand.waiting as u64);
            }
            (LoadOf::Upstream(name), Measure::Concurrency) => {
                return group(name)
                    .map(|group| group.members.iter().map(|member| member.in_use as u64).sum());
            }
            (LoadOf::Upstream(name), Measure::Rate) => {
                group(name)?.members.iter().map(|member| member.requests).sum()
            }
            // Of these there is none: the settings are refused.
            (LoadOf::Site(_), Measure::Queue | Measure::Cpu) | (LoadOf::Upstream(_), Measure::Cpu) => {
                return None;
            }
        };
        self.each_second(&format!("{of:?}"), count, now)
    }

    /// How much a count has risen in each second since it was looked at before. Several hooks may ask at one time.
    fn each_second(&mut self, name: &str, count: u64, now: Duration) -> Option<u64> {
        let Some((before, then)) = self.counts.get(name).copied() else {
            self.fresh.insert(name.to_owned(), (count, now));
            return None;
        };
        self.fresh.insert(name.to_owned(), (count, now));
        let passed = now.saturating_sub(then).as_nanos().max(1);
        let risen = u128::from(count.saturating_sub(before)) * 1_000_000_000 / passed;
        Some(u64::try_from(risen).unwrap_or(u64::MAX))
    }

    /// What was looked at is what the next look compares with.
    fn passed(&mut self) {
        self.counts = std::mem::take(&mut self.fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: u64, cpu_micros: u64) -> Figures {
        let mut figures = Figures::default();
        figures.counted.requests = requests;
        figures.counted.workers = 2;
        figures.counted.queued.current = 3;
        figures.used.cpu_micros = cpu_micros;
        figures
    }

    /// Else the few milliseconds since the last look would make a rate of hundreds out of one request.
    #[test]
    fn a_reload_is_no_reason_to_look() {
        let text = "listen \"127.0.0.1:0\"\non rate above=100 run \"true\"\nsite { respond 200 }";
        let nothing = std::collections::BTreeMap::new();
        let loaded = tidegate_config::load_str("test.kdl", text, "/".as_ref(), &nothing);
        let settings = loaded.settings.unwrap();
        let (sender, told) = channel();
        for _ in 0..20 {
            let hooks: Hooks = settings.load_hooks().map(|(of, hook)| (of, hook.clone())).collect();
            assert_eq!(hooks.len(), 1);
            sender.send(hooks).unwrap();
        }
        drop(sender);
        let mut looks = 0;
        watch(&told, |_| looks += 1);
        assert_eq!(looks, 0, "no second has passed");
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut before = Before::default();
        let seconds = Duration::from_secs;
        let mut look = |measure, figures: &Figures, site: (u64, u64), at| {
            let load = Load { figures, of_site: &|_| site };
            let of_server = before.value(&LoadOf::Server, measure, &load, at);
            let again = before.value(&LoadOf::Server, measure, &load, at);
            assert_eq!(of_server, again, "two hooks see the same");
            let of_site = before.value(&LoadOf::Site("a".into()), measure, &load, at);
            before.passed();
            (of_server, of_site)
        };
        assert_eq!(look(Measure::Rate, &figures(100, 0), (7, 50), seconds(1)), (None, None));
        assert_eq!(look(Measure::Rate, &figures(300, 0), (7, 60), seconds(3)), (Some(100), Some(5)));
        assert_eq!(look(Measure::Concurrency, &figures(300, 0), (7, 60), seconds(4)), (Some(300), Some(7)));
        assert_eq!(look(Measure::Queue, &figures(300, 0), (7, 60), seconds(4)), (Some(3), None));
        assert_eq!(look(Measure::Cpu, &figures(0, 1_000_000), (0, 0), seconds(5)), (None, None));
        // Of two workers one has worked all the time.
        assert_eq!(look(Measure::Cpu, &figures(0, 3_000_000), (0, 0), seconds(7)), (Some(50), None));
        // Counts of a process that has come back smaller are no rate.
        assert_eq!(look(Measure::Cpu, &figures(0, 0), (0, 0), seconds(8)), (Some(0), None));
    }
}
