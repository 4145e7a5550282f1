//! What came of the requests to routes with a store. Each route on each worker counts for itself; who wants to know adds up.

use crate::cache_desk::RequestFigures;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tidegate_http::cache::Reason;
use tidegate_io::clock;
use tidegate_stats::series::Phase;
use tidegate_stats::{Elapsed, PartTimes};

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Hit,
    /// With what is stale.
    StaleHit,
    Revalidated,
    Miss,
    /// Known not to be stored.
    Pass,
    Collapsed,
    Bypassed,
}

/// Of one route on one worker, which alone writes.
pub(super) struct Counts {
    events: [AtomicU64; 7],
    of: Arc<StoreCounts>,
}

/// Something that a store has kept a request waiting for took from `since`, by the monotonic clock, until now.
pub(super) fn took(times: Option<&PartTimes>, phase: Phase, since: u64) {
    if let Some(times) = times {
        times.took(phase, Elapsed::nanos(clock::monotonic_ns().saturating_sub(since)));
    }
}

/// Of all routes with the same store.
#[derive(Default)]
pub(super) struct StoreCounts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    routes: Vec<Weak<Counts>>,
    /// Of routes that are gone.
    before: [u64; 7],
    not_stored: BTreeMap<&'static str, u64>,
}

impl StoreCounts {
    /// Of one route more.
    pub(super) fn begin(self: &Arc<Self>) -> Arc<Counts> {
        let counts = Arc::new(Counts { events: Default::default(), of: self.clone() });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.routes.len() == state.routes.capacity() {
            state.routes.retain(|route| route.strong_count() > 0);
        }
        state.routes.push(Arc::downgrade(&counts));
        counts
    }

    /// What came of all requests.
    pub(super) fn requests(&self) -> RequestFigures {
        let (routes, mut sums) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.routes.iter().filter_map(Weak::upgrade).collect::<Vec<_>>(), state.before)
        };
        for route in &routes {
            route.add_to(&mut sums);
        }
        let [hits, stale_hits, revalidated, misses, passed, collapsed, bypassed] = sums;
        RequestFigures {
            hits: hits + stale_hits,
            stale_hits,
            revalidated,
            misses: misses + passed,
            passed,
            collapsed,
            bypassed,
        }
    }

    /// How many responses were not stored, by the reason; `outgrown` were found to be too large as they came in.
    pub(super) fn not_stored(&self, outgrown: u64) -> Vec<(String, u64)> {
        let mut not_stored = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.not_stored.clone()
        };
        if outgrown > 0 {
            *not_stored.entry(Reason::TooLarge.as_str()).or_default() += outgrown;
        }
        not_stored.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect()
    }
}

impl Counts {
    #[inline]
    pub(super) fn count(&self, event: Event) {
        if let Some(count) = self.events.get(event as usize) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    /// A response was not stored, after a fetch: these are few enough for a lock.
    pub(super) fn not_stored(&self, why: Reason) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.not_stored.entry(why.as_str()).or_default() += 1;
    }

    fn add_to(&self, sums: &mut [u64; 7]) {
        sums.iter_mut().zip(&self.events).for_each(|(sum, count)| *sum += count.load(Relaxed));
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let mut state = self.of.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.add_to(&mut state.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_route_has_counted_outlives_it() {
        let store = Arc::<StoreCounts>::default();
        let (one, other) = (store.begin(), store.begin());
        [Event::Hit, Event::StaleHit, Event::Pass].into_iter().for_each(|event| one.count(event));
        other.count(Event::Hit);
        one.not_stored(Reason::Private);
        drop(one);
        (0..100).for_each(|_| drop(store.begin()));
        let RequestFigures { hits, stale_hits, misses, passed, .. } = store.requests();
        assert_eq!((hits, stale_hits, misses, passed), (3, 1, 1, 1));
        assert_eq!(store.not_stored(0), [("private".to_owned(), 1)]);
        let told = [("private".to_owned(), 1), ("too-large".to_owned(), 2)];
        assert_eq!(store.not_stored(2), told);
        assert!(store.state.lock().unwrap().routes.len() < 10);
    }
}
