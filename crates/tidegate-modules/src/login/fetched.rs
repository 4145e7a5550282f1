//! Something that a service publishes and that is kept here: its keys, or what it says of itself.
//!
//! One for each source of users in each server process. It is asked for when somebody needs it, by one worker at a time, however
//! many requests wait for it. What is old is used on while it is asked for anew, and while the service is away, up to a bound.

use crate::status::ProviderReport;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::log;
use tidegate_http::FieldLines;
use tidegate_http::cache_control::CacheControl;
use tidegate_io::clock::wall_seconds;
use tidegate_io::locking::lock;
use tidegate_io::oneshot::{Promise, Promised, promise};

/// How long it is kept: at least, at most, and where its service does not say.
const LEAST: Duration = Duration::from_secs(60);
const MOST: Duration = Duration::from_secs(24 * 3600);
const USUAL: Duration = Duration::from_secs(3600);
/// How long it is used beyond that while the service is away.
const BEYOND: Duration = Duration::from_secs(24 * 3600);
/// How long after a failure it is asked for again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often it is asked for because it lacks something.
const AGAIN: Duration = Duration::from_secs(30);
/// Requests that wait for it at once.
const WAITING: usize = 1024;

/// How long an answer is good for.
pub fn lifetime(lines: &FieldLines) -> Duration {
    let control = CacheControl::parse(lines.all("cache-control"));
    let most = if control.no_store || control.no_cache { Some(Duration::ZERO) } else { control.max_age };
    most.unwrap_or(USUAL).clamp(LEAST, MOST)
}

/// What is kept of it.
pub struct Fetched<T> {
    /// What it is, in messages: `the keys of https://…`.
    what: String,
    state: Mutex<State<T>>,
    /// Until when nothing has to be looked at, monotonic nanoseconds.
    fresh_until: AtomicU64,
}

struct State<T> {
    value: Option<Arc<T>>,
    fresh_until: u64,
    usable_until: u64,
    /// No sooner is it asked for.
    not_before: u64,
    failures: u32,
    /// When it was last asked for because it lacked something.
    asked_again: Option<u64>,
    /// It is asked for, and these wait.
    under_way: Option<Vec<Promise<()>>>,
    /// When it was last there, seconds since 1970, and why it was not since.
    news: News,
}

/// How asking has gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct News {
    /// When it last went well, seconds since 1970.
    success: Option<i64>,
    /// When it did not, and why; nothing once it has gone well again.
    mistake: Option<(i64, String)>,
}

/// What there is at a moment.
pub struct Look<T> {
    /// What can be used.
    pub value: Option<Arc<T>>,
    /// Whoever looks is to ask for it, and has to [`settle`](Fetch::settle) that.
    pub fetch: Option<Fetch<T>>,
}

/// Somebody asks for it. Dropped, it has failed.
pub struct Fetch<T> {
    of: Arc<Fetched<T>>,
    is_settled: bool,
}

impl<T: PartialEq> Fetched<T> {
    /// Nothing is known yet.
    pub fn new(what: String) -> Arc<Fetched<T>> {
        let state = State {
            value: None,
            fresh_until: 0,
            usable_until: 0,
            not_before: 0,
            failures: 0,
            asked_again: None,
            under_way: None,
            news: News::default(),
        };
        Arc::new(Fetched { what, state: Mutex::new(state), fresh_until: AtomicU64::new(0) })
    }

    /// Whether it is as fresh as it has to be: then nothing else has to be looked at.
    #[inline]
    pub fn is_fresh(&self, now: u64) -> bool {
        now < self.fresh_until.load(Relaxed)
    }

    /// What there is at `now`, monotonic nanoseconds.
    pub fn look(self: &Arc<Self>, now: u64) -> Look<T> {
        let mut state = lock(&self.state);
        if now >= state.usable_until {
            state.value = None;
        }
        let is_due = now >= state.fresh_until && now >= state.not_before && state.under_way.is_none();
        Look { value: state.value.clone(), fetch: is_due.then(|| self.begin(&mut state)) }
    }

    /// It lacks something that a request needs: whoever is told so is to ask for it again.
    pub fn again(self: &Arc<Self>, now: u64) -> Option<Fetch<T>> {
        let mut state = lock(&self.state);
        let is_soon = state.asked_again.is_some_and(|last| now.saturating_sub(last) < nanoseconds(AGAIN));
        if is_soon || now < state.not_before || state.under_way.is_some() {
            return None;
        }
        state.asked_again = Some(now);
        Some(self.begin(&mut state))
    }

    fn begin(self: &Arc<Self>, state: &mut State<T>) -> Fetch<T> {
        state.under_way = Some(Vec::new());
        Fetch { of: self.clone(), is_settled: false }
    }

    /// Ends when what is under way has ended; `None`: nothing is, or too many wait.
    pub fn wait(&self) -> Option<Promised<()>> {
        let mut state = lock(&self.state);
        let waiting = state.under_way.as_mut()?;
        waiting.retain(Promise::is_wanted);
        if waiting.len() >= WAITING {
            return None;
        }
        let (promise, promised) = promise();
        waiting.push(promise);
        Some(promised)
    }

    /// Whether it is asked for at the moment.
    pub fn is_under_way(&self) -> bool {
        lock(&self.state).under_way.is_some()
    }

    /// Does something while `value` is what is in use, which it stays meanwhile.
    pub fn while_it_is(&self, value: &Arc<T>, then: impl FnOnce()) {
        let state = lock(&self.state);
        if state.value.as_ref().is_some_and(|present| Arc::ptr_eq(present, value)) {
            then();
        }
    }

    /// How asking for it has gone.
    pub fn report(&self) -> ProviderReport {
        let News { success, mistake } = lock(&self.state).news.clone();
        ProviderReport { what: self.what.clone(), success, mistake }
    }

    /// Forgets when it was asked for last, so that tests need not wait.
    #[cfg(test)]
    fn pause(&self) -> u64 {
        lock(&self.state).not_before
    }
}

impl<T: PartialEq> Fetch<T> {
    /// What has come of it, at `now`; whether it is another than before.
    pub fn settle(mut self, got: Result<(T, Duration), String>, now: u64) -> bool {
        self.is_settled = true;
        let mut state = lock(&self.of.state);
        let waiting = state.under_way.take();
        let changed = match got {
            Ok((value, lifetime)) => {
                if state.news.mistake.is_some() {
                    log::info(format_args!("{} can be had again", self.of.what));
                }
                state.news = News { success: Some(wall_seconds()), mistake: None };
                (state.failures, state.not_before) = (0, 0);
                state.fresh_until = now.saturating_add(nanoseconds(lifetime));
                state.usable_until = state.fresh_until.saturating_add(nanoseconds(BEYOND));
                self.of.fresh_until.store(state.fresh_until, Relaxed);
                let is_same = state.value.as_deref() == Some(&value);
                let had_one = state.value.is_some();
                if !is_same {
                    state.value = Some(Arc::new(value));
                }
                had_one && !is_same
            }
            Err(why) => {
                let pause = PAUSE.0.saturating_mul(1 << state.failures.min(5)).min(PAUSE.1);
                state.failures = state.failures.saturating_add(1);
                state.not_before = now.saturating_add(nanoseconds(pause));
                if state.news.mistake.as_ref().is_none_or(|(_, before)| *before != why) {
                    let still = match state.value {
                        Some(_) => "what was known before stays in use",
                        None => "nobody can log in by it until then",
                    };
                    log::error(format_args!("{} cannot be had: {why}; {still}", self.of.what));
                }
                state.news.mistake = Some((wall_seconds(), why));
                false
            }
        };
        drop(state);
        drop(waiting); // which wakes who waits
        changed
    }
}

impl<T> Drop for Fetch<T> {
    fn drop(&mut self) {
        if !self.is_settled {
            // The worker has ended: another one may ask.
            drop(lock(&self.of.state).under_way.take());
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn fetched() -> Arc<Fetched<u8>> {
        Fetched::new("the keys of `test`".into())
    }

    #[test]
    fn who_looks_first_asks_and_the_others_wait() {
        let fetched = fetched();
        let look = fetched.look(0);
        assert!(look.value.is_none() && fetched.look(0).fetch.is_none());
        assert!(fetched.again(0).is_none(), "it is under way");
        assert!(fetched.wait().is_some());
        assert!(!look.fetch.unwrap().settle(Ok((1, LEAST)), 0), "there was none before");
        assert!(fetched.wait().is_none() && fetched.is_fresh(59 * SECOND));
        let look = fetched.look(59 * SECOND);
        assert!(look.value.as_deref() == Some(&1) && look.fetch.is_none());
        // What is old is used while it is asked for.
        let look = fetched.look(60 * SECOND);
        assert_eq!(look.value.as_deref(), Some(&1));
        assert!(look.fetch.unwrap().settle(Ok((2, LEAST)), 60 * SECOND), "another one");
        let same = fetched.look(0).value.unwrap();
        assert!(!fetched.look(120 * SECOND).fetch.unwrap().settle(Ok((2, LEAST)), 120 * SECOND));
        assert!(
            Arc::ptr_eq(&same, &fetched.look(120 * SECOND).value.unwrap()),
            "who holds it need not notice"
        );
    }

    #[test]
    fn what_cannot_be_had_is_asked_for_less_and_less() {
        let fetched = fetched();
        let mut now = 0;
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            fetched.look(now).fetch.unwrap().settle(Err("away".into()), now);
            assert_eq!(fetched.pause() - now, expected * SECOND);
            assert!(fetched.look(fetched.pause() - 1).fetch.is_none() && fetched.again(now).is_none());
            now = fetched.pause();
        }
        assert!(fetched.report().mistake.is_some() && fetched.report().success.is_none());
        fetched.look(now).fetch.unwrap().settle(Ok((1, LEAST)), now);
        assert!(fetched.report().mistake.is_none() && fetched.report().success.is_some());
    }

    #[test]
    fn what_was_known_is_used_for_a_day_while_its_service_is_away() {
        let fetched = fetched();
        fetched.look(0).fetch.unwrap().settle(Ok((1, LEAST)), 0);
        let last = nanoseconds(LEAST + BEYOND);
        let look = fetched.look(last - 1);
        assert!(look.value.is_some());
        look.fetch.unwrap().settle(Err("away".into()), last - 1);
        assert!(fetched.look(last).value.is_none());
    }

    #[test]
    fn what_lacks_something_is_asked_for_again_now_and_then() {
        let fetched = fetched();
        fetched.look(0).fetch.unwrap().settle(Ok((1, MOST)), 0);
        let later = fetched.again(SECOND).unwrap();
        assert!(fetched.again(SECOND).is_none());
        later.settle(Ok((1, MOST)), SECOND);
        assert!(fetched.again(30 * SECOND).is_none());
        assert!(fetched.again(31 * SECOND).is_some());
    }

    #[test]
    fn a_worker_that_ends_lets_another_ask() {
        let fetched = fetched();
        drop(fetched.look(0).fetch);
        assert!(fetched.look(0).fetch.is_some());
    }

    #[test]
    fn how_long_it_is_kept() {
        for (value, expected) in [
            (None, USUAL),
            (Some("max-age=300"), Duration::from_secs(300)),
            (Some("public, max-age=0"), LEAST),
            (Some("no-store"), LEAST),
            (Some("max-age=99999999"), MOST),
        ] {
            let mut lines = FieldLines::new();
            value.map(|value| lines.push("Cache-Control", value));
            assert_eq!(lifetime(&lines), expected, "{value:?}");
        }
    }
}
