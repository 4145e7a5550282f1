//! Something that a service publishes and that is kept here: its keys, or what it says of itself.
//!
//! One for each source of users in each server process. It is asked for when somebody needs it, by one worker at a time, however
//! many requests wait for it. What is old is used on while it is asked for anew, and while the service is away, up to a bound.

use crate::status::ProviderReport;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::log;
use tidegate_http::FieldLines;
use tidegate_http::cache_control::CacheControl;
use tidegate_io::clock::{monotonic_ns, wall_seconds};
use tidegate_io::locking::lock;
use tidegate_io::oneshot::{Promise, Promised, promise};
use tidegate_io::runtime;

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
    /// Has what was found out by it forgotten, when it is another than before.
    forget: Box<dyn Fn() + Send + Sync>,
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

/// What there is of it at a moment.
pub enum Known<T> {
    /// This can be used.
    Value(Arc<T>),
    /// Nothing can. It is asked for, and this ends when that has ended.
    Asked(Promised<()>),
    /// Nothing can, and nobody asks: that has failed a moment ago, or too many wait.
    Away,
}

/// Somebody asks for it. Dropped, it has failed.
struct Fetch<T> {
    of: Arc<Fetched<T>>,
    is_settled: bool,
}

impl<T> State<T> {
    /// Nothing is known yet.
    fn empty() -> State<T> {
        State {
            value: None,
            fresh_until: 0,
            usable_until: 0,
            not_before: 0,
            failures: 0,
            asked_again: None,
            under_way: None,
            news: News::default(),
        }
    }
}

impl<T: PartialEq + 'static> Fetched<T> {
    /// Nothing is known yet.
    pub fn new(what: String, forget: impl Fn() + Send + Sync + 'static) -> Arc<Fetched<T>> {
        let state = State::empty();
        let forget = Box::new(forget);
        Arc::new(Fetched { what, state: Mutex::new(state), fresh_until: AtomicU64::new(0), forget })
    }

    /// Begins with what another has of the same service.
    pub fn begin_as(&self, other: &Fetched<T>) {
        let theirs = lock(&other.state);
        let (value, fresh_until) = (theirs.value.clone(), theirs.fresh_until);
        let (usable_until, news) = (theirs.usable_until, theirs.news.clone());
        drop(theirs);
        *lock(&self.state) = State { value, fresh_until, usable_until, news, ..State::empty() };
        self.fresh_until.store(fresh_until, Relaxed);
    }

    /// Whether it is as fresh as it has to be: then nothing else has to be looked at.
    #[inline]
    pub fn is_fresh(&self, now: u64) -> bool {
        now < self.fresh_until.load(Relaxed)
    }

    /// What there is at `now`, monotonic nanoseconds. Where it is due, `ask` is carried out in the background of this worker,
    /// whoever still waits for it.
    pub fn get<A>(self: &Arc<Self>, now: u64, ask: impl FnOnce() -> A) -> Known<T>
    where
        A: Future<Output = Result<(T, Duration), String>> + 'static,
    {
        let (known, fetch) = self.look(now);
        if let Some(fetch) = fetch {
            fetch.carry_out(ask());
        }
        known
    }

    /// The same for a request that needs what `lacking` does not have.
    pub fn newer_than<A>(self: &Arc<Self>, lacking: &Arc<T>, now: u64, ask: impl FnOnce() -> A) -> Known<T>
    where
        A: Future<Output = Result<(T, Duration), String>> + 'static,
    {
        let (known, fetch) = self.look_for_newer(lacking, now);
        if let Some(fetch) = fetch {
            fetch.carry_out(ask());
        }
        known
    }

    /// What can be used once nobody asks any more.
    pub async fn once_asked(&self, known: Known<T>) -> Option<Arc<T>> {
        match known {
            Known::Value(value) => Some(value),
            Known::Asked(promised) => {
                promised.await;
                self.usable(monotonic_ns())
            }
            Known::Away => None,
        }
    }

    /// What can be used; nobody is asked.
    pub fn usable(&self, now: u64) -> Option<Arc<T>> {
        let state = lock(&self.state);
        state.value.clone().filter(|_| now < state.usable_until)
    }

    /// What there is, who waits for it and whether it is to be asked for is one decision: between two of them another worker
    /// might end what is waited for.
    fn look(self: &Arc<Self>, now: u64) -> (Known<T>, Option<Fetch<T>>) {
        let mut state = lock(&self.state);
        if now >= state.usable_until {
            state.value = None;
        }
        let is_due = now >= state.fresh_until && now >= state.not_before && state.under_way.is_none();
        let fetch = is_due.then(|| self.begin(&mut state));
        (state.value.clone().map_or_else(|| state.wait(), Known::Value), fetch)
    }

    fn look_for_newer(self: &Arc<Self>, lacking: &Arc<T>, now: u64) -> (Known<T>, Option<Fetch<T>>) {
        let mut state = lock(&self.state);
        if let Some(newer) = state.value.as_ref().filter(|value| !Arc::ptr_eq(value, lacking)) {
            return (Known::Value(newer.clone()), None);
        }
        let is_soon = state.asked_again.is_some_and(|last| now.saturating_sub(last) < nanoseconds(AGAIN));
        let is_due = !is_soon && now >= state.not_before && state.under_way.is_none();
        let fetch = is_due.then(|| {
            state.asked_again = Some(now);
            self.begin(&mut state)
        });
        (state.wait(), fetch)
    }

    fn begin(self: &Arc<Self>, state: &mut State<T>) -> Fetch<T> {
        state.under_way = Some(Vec::new());
        Fetch { of: self.clone(), is_settled: false }
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
}

impl<T> State<T> {
    fn wait(&mut self) -> Known<T> {
        let Some(waiting) = &mut self.under_way else { return Known::Away };
        waiting.retain(Promise::is_wanted);
        if waiting.len() >= WAITING {
            return Known::Away;
        }
        let (promise, promised) = promise();
        waiting.push(promise);
        Known::Asked(promised)
    }
}

impl<T: PartialEq + 'static> Fetch<T> {
    /// There is no run-time where requests are explained, or where the worker ends: then it has failed.
    fn carry_out(self, asked: impl Future<Output = Result<(T, Duration), String>> + 'static) {
        let task = async move { self.settle(asked.await, monotonic_ns()) };
        runtime::try_with(|runtime| runtime.spawn(task));
    }

    /// What has come of it, at `now`.
    fn settle(mut self, got: Result<(T, Duration), String>, now: u64) {
        self.is_settled = true;
        let mut state = lock(&self.of.state);
        let waiting = state.under_way.take();
        match got {
            Ok((value, lifetime)) => {
                if state.news.mistake.is_some() {
                    log::info(format_args!("{} can be had again", self.of.what));
                }
                // Also one that is too old to be used was the one before.
                let had_one = state.news.success.is_some();
                state.news = News { success: Some(wall_seconds()), mistake: None };
                (state.failures, state.not_before) = (0, 0);
                if state.value.as_deref() != Some(&value) {
                    state.value = Some(Arc::new(value));
                    // Before anybody can see that it is fresh.
                    if had_one {
                        (self.of.forget)();
                    }
                }
                state.fresh_until = now.saturating_add(nanoseconds(lifetime));
                state.usable_until = state.fresh_until.saturating_add(nanoseconds(BEYOND));
                self.of.fresh_until.store(state.fresh_until, Relaxed);
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
            }
        }
        drop(state);
        drop(waiting); // which wakes who waits
    }
}

impl<T> Drop for Fetch<T> {
    fn drop(&mut self) {
        if !self.is_settled {
            // The worker has ended: another one may ask.
            let waiting = lock(&self.of.state).under_way.take();
            drop(waiting);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const SECOND: u64 = 1_000_000_000;

    fn fetched() -> Arc<Fetched<u8>> {
        Fetched::new("the keys of `test`".into(), || ())
    }

    /// What can be used at `now`, and whoever has to ask.
    fn look(fetched: &Arc<Fetched<u8>>, now: u64) -> (Option<u8>, Option<Fetch<u8>>) {
        let (known, fetch) = fetched.look(now);
        (if let Known::Value(value) = known { Some(*value) } else { None }, fetch)
    }

    fn has_to_ask(fetched: &Arc<Fetched<u8>>, now: u64) -> Fetch<u8> {
        look(fetched, now).1.expect("it is due")
    }

    #[test]
    fn who_looks_first_asks_and_the_others_wait() {
        let fetched = fetched();
        let (first, fetch) = fetched.look(0);
        let (second, none) = fetched.look(0);
        assert!(fetch.is_some() && none.is_none());
        assert!(matches!((first, second), (Known::Asked(_), Known::Asked(_))));
        fetch.unwrap().settle(Ok((1, LEAST)), 0);
        assert!(fetched.is_fresh(59 * SECOND));
        let (value, fetch) = look(&fetched, 59 * SECOND);
        assert!(value == Some(1) && fetch.is_none());
        // What is old is used while it is asked for.
        let (value, fetch) = look(&fetched, 60 * SECOND);
        assert_eq!(value, Some(1));
        fetch.unwrap().settle(Ok((2, LEAST)), 60 * SECOND);
        let same = fetched.usable(0).unwrap();
        has_to_ask(&fetched, 120 * SECOND).settle(Ok((2, LEAST)), 120 * SECOND);
        assert!(Arc::ptr_eq(&same, &fetched.usable(120 * SECOND).unwrap()), "who holds it need not notice");
    }

    /// However the steps of two workers fall: who is told to wait is waited with, and who may not be is told so.
    #[test]
    fn nobody_waits_for_what_has_ended() {
        let fetched = fetched();
        let (waiting, fetch) = fetched.look(0);
        fetch.unwrap().settle(Ok((1, LEAST)), 0);
        let Known::Asked(mut promised) = waiting else { panic!("it was asked for") };
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::Pin::new(&mut promised).poll(&mut cx).is_ready());
        let several = Fetched::<u8>::new("test".into(), || ());
        let (_own, fetch) = several.look(0);
        let waiting: Vec<Known<u8>> = (0..2 * WAITING).map(|_| several.look(0).0).collect();
        let wait = waiting.iter().filter(|known| matches!(known, Known::Asked(_))).count();
        assert_eq!(wait, WAITING - 1, "they are bounded");
        drop((waiting, fetch));
        assert!(several.look(0).1.is_some(), "it has failed, and another worker may ask");
    }

    #[test]
    fn what_cannot_be_had_is_asked_for_less_and_less() {
        let fetched = fetched();
        let mut now = 0;
        let not_before = |fetched: &Fetched<u8>| lock(&fetched.state).not_before;
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            has_to_ask(&fetched, now).settle(Err("away".into()), now);
            let next = not_before(&fetched);
            assert_eq!(next - now, expected * SECOND);
            assert!(matches!(fetched.look(next - 1), (Known::Away, None)));
            assert!(matches!(fetched.look_for_newer(&Arc::new(0), now), (Known::Away, None)));
            now = next;
        }
        assert!(fetched.report().mistake.is_some() && fetched.report().success.is_none());
        has_to_ask(&fetched, now).settle(Ok((1, LEAST)), now);
        assert!(fetched.report().mistake.is_none() && fetched.report().success.is_some());
    }

    #[test]
    fn what_was_known_is_used_for_a_day_while_its_service_is_away() {
        let fetched = fetched();
        has_to_ask(&fetched, 0).settle(Ok((1, LEAST)), 0);
        let last = nanoseconds(LEAST + BEYOND);
        let (value, fetch) = look(&fetched, last - 1);
        assert!(value.is_some());
        fetch.unwrap().settle(Err("away".into()), last - 1);
        assert!(fetched.usable(last - 1).is_some() && fetched.usable(last).is_none());
        assert!(look(&fetched, last).0.is_none());
    }

    /// Who was known by a key that was retired meanwhile has to be forgotten, however long the service was away.
    #[test]
    fn what_was_found_out_by_another_one_is_forgotten() {
        let forgotten = Arc::new(AtomicUsize::new(0));
        let count = forgotten.clone();
        let fetched = Fetched::new("test".into(), move || {
            count.fetch_add(1, Relaxed);
        });
        let settle = |value: u8, now: u64| {
            has_to_ask(&fetched, now).settle(Ok((value, LEAST)), now);
            forgotten.load(Relaxed)
        };
        assert_eq!(settle(1, 0), 0, "there was none before");
        assert_eq!(settle(1, nanoseconds(LEAST)), 0);
        assert_eq!(settle(2, nanoseconds(2 * LEAST)), 1);
        let late = nanoseconds(3 * LEAST + BEYOND);
        assert_eq!(look(&fetched, late).0, None, "too old to be used");
        assert_eq!(settle(3, late + SECOND), 2);
    }

    #[test]
    fn what_lacks_something_is_asked_for_again_now_and_then() {
        let fetched = fetched();
        has_to_ask(&fetched, 0).settle(Ok((1, MOST)), 0);
        let lacking = fetched.usable(0).unwrap();
        let (known, fetch) = fetched.look_for_newer(&lacking, SECOND);
        assert!(matches!(known, Known::Asked(_)));
        let (known, none) = fetched.look_for_newer(&lacking, SECOND);
        assert!(matches!(known, Known::Asked(_)) && none.is_none());
        fetch.unwrap().settle(Ok((1, MOST)), SECOND);
        assert!(matches!(fetched.look_for_newer(&lacking, 30 * SECOND), (Known::Away, None)));
        let (_, fetch) = fetched.look_for_newer(&lacking, 31 * SECOND);
        fetch.unwrap().settle(Ok((2, MOST)), 31 * SECOND);
        let (known, none) = fetched.look_for_newer(&lacking, 31 * SECOND);
        assert!(matches!(known, Known::Value(newer) if *newer == 2) && none.is_none(), "another has asked");
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
