//! Deadlines for async functions on a worker: what waits for an application, a queue or a retry.
//!
//! Connections have a wheel of their own, which is coarser. Deadlines are monotonic: a jump of the wall
//! clock moves none (FAULTS 47). A deadline that is dropped wakes nobody.
//!
//! Most deadlines are timeouts that never pass: armed and dropped with each request. Those that are far off lie in a wheel,
//! where both cost next to nothing, and move among the others, which are sorted, shortly before they pass. One that is dropped
//! leaves its node in the wheel to the next, which only has to move it later; left there, the node goes with its tick.

use crate::clock::monotonic_ns;
use crate::runtime;
use crate::slab::{Key, Slab};
use crate::wheel::{TICK, Wheel};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Nanoseconds of a tick of the wheel.
const TICK_NS: u64 = TICK.as_nanos() as u64;
/// What passes in more ticks than the first is far off. What passes in more than the last, days, is seldom enough to be
/// among the others at once.
const FAR: std::ops::Range<u64> = 3..1 << 20;

/// The deadlines of one worker.
pub(crate) struct Timers {
    /// Those that pass soon, by time and by order of arrival.
    near: BTreeMap<(u64, u64), Waker>,
    armed: u64,
    far: Slab<Far>,
    /// By the index in `far`: the ticks in which those pass.
    wheel: Wheel,
    /// When the wheel began.
    origin: u64,
    /// Until the next tick, or the next deadline, there is nothing to do: most turns of a worker need not look.
    quiet_until: u64,
    /// Room for the indexes of those whose tick has come.
    due: Vec<u32>,
}

struct Far {
    at: u64,
    number: u64,
    waker: Waker,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            near: BTreeMap::new(),
            armed: 0,
            far: Slab::default(),
            wheel: Wheel::default(),
            origin: monotonic_ns(),
            quiet_until: 0,
            due: Vec::new(),
        }
    }
}

impl Timers {
    /// When there may be something to do next, monotonic nanoseconds: no later than the next deadline passes.
    pub(crate) fn next(&self) -> Option<u64> {
        let near = self.near.first_key_value().map(|((at, _), _)| *at);
        let far = self.wheel.next_tick().map(|tick| self.time_of(tick));
        near.into_iter().chain(far).min()
    }

    /// Moves those that pass soon among the others. `false` where none passes by `now`.
    pub(crate) fn advance(&mut self, now: u64) -> bool {
        if now < self.quiet_until {
            return false;
        }
        let tick = self.tick_of(now);
        self.wheel.advance(tick, &mut self.due);
        for index in self.due.drain(..) {
            if let Some(Far { at, number, waker }) =
                self.far.key_of(index).and_then(|key| self.far.remove(key))
            {
                self.near.insert((at, number), waker);
            }
        }
        let first = self.near.first_key_value().map(|((at, _), _)| *at);
        self.quiet_until = first.unwrap_or(u64::MAX).min(self.time_of(tick + 1));
        first.is_some_and(|at| at <= now)
    }

    /// Wakes one whose deadline has passed.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<Waker> {
        let first = self.near.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The tick in which a time lies; there are enough for eight years.
    fn tick_of(&self, time: u64) -> u32 {
        u32::try_from(time.saturating_sub(self.origin) / TICK_NS).unwrap_or(u32::MAX).min(u32::MAX / 2)
    }

    /// When a tick begins.
    fn time_of(&self, tick: u32) -> u64 {
        self.origin.saturating_add(u64::from(tick) * TICK_NS)
    }

    fn arm(&mut self, at: u64, now: u64, waker: Waker) -> Armed {
        self.armed += 1;
        let number = self.armed;
        if !FAR.contains(&(at.saturating_sub(now) / TICK_NS)) {
            self.quiet_until = self.quiet_until.min(at);
            self.near.insert((at, number), waker);
            return Armed { number, far: None };
        }
        let key = self.far.insert(Far { at, number, waker });
        // The tick begins before it passes, so that it is among the others by then.
        let tick = self.tick_of(at);
        self.wheel.arm_at(key.index(), tick);
        Armed { number, far: Some(key) }
    }

    /// Another one is to be woken, where it is still waited for.
    fn rearm(&mut self, at: u64, armed: &Armed, waker: &Waker) {
        let far = armed.far.and_then(|key| self.far.get_mut(key)).map(|far| &mut far.waker);
        if let Some(known) = far.or_else(|| self.near.get_mut(&(at, armed.number)))
            && !known.will_wake(waker)
        {
            known.clone_from(waker);
        }
    }

    /// Whether it is still far off.
    fn is_far(&self, armed: &Armed) -> bool {
        armed.far.is_some_and(|key| self.far.get(key).is_some())
    }

    fn disarm(&mut self, at: u64, armed: &Armed) {
        if armed.far.and_then(|key| self.far.remove(key)).is_none() {
            self.near.remove(&(at, armed.number));
        }
    }
}

/// Where a deadline waits among the timers.
#[derive(Clone, Copy)]
struct Armed {
    number: u64,
    /// Where it is, or was, far off.
    far: Option<Key>,
}

/// Waits until a time has passed. Fires up to a millisecond late, never early.
#[must_use = "a deadline does nothing unless it is awaited"]
pub struct Deadline {
    at: u64,
    /// Its place among the timers, while it waits there.
    armed: Option<Armed>,
}

/// A deadline so far from now.
pub fn after(time: Duration) -> Deadline {
    at(monotonic_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// A deadline at a monotonic time, nanoseconds.
pub fn at(at: u64) -> Deadline {
    Deadline { at, armed: None }
}

impl Deadline {
    /// When it passes, monotonic nanoseconds.
    pub fn time(&self) -> u64 {
        self.at
    }

    /// Polls it for the first time, by a clock that the caller has read in this turn: `now`, monotonic nanoseconds.
    pub fn arm(&mut self, cx: &mut Context<'_>, now: u64) -> Poll<()> {
        debug_assert!(self.armed.is_none(), "invariant: it was not polled before");
        if now >= self.at {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        self.armed = Some(runtime::with(|runtime| runtime.timers.borrow_mut().arm(self.at, now, waker)));
        Poll::Pending
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(armed) = self.armed else { return self.arm(cx, monotonic_ns()) };
        runtime::with(|runtime| {
            let mut timers = runtime.timers.borrow_mut();
            // Only a time that has passed, or soon will, takes it from there.
            if !timers.is_far(&armed) && monotonic_ns() >= self.at {
                return Poll::Ready(());
            }
            timers.rearm(self.at, &armed, cx.waker());
            Poll::Pending
        })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(armed) = self.armed {
            runtime::try_with(|runtime| runtime.timers.borrow_mut().disarm(self.at, &armed));
        }
    }
}

/// The result of `future`, or `None` when it takes longer than `time`.
pub async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut deadline = std::pin::pin!(after(time));
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => deadline.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_expire_in_order_and_not_early() {
        let mut timers = Timers::default();
        let begin = timers.origin;
        for at in [30, 10, 20, 10] {
            let _ = timers.arm(begin + at, begin, Waker::noop().clone());
        }
        assert_eq!(timers.next(), Some(begin + 10));
        assert!(timers.take_expired(begin + 9).is_none());
        assert!(timers.take_expired(begin + 10).is_some());
        assert!(timers.take_expired(begin + 10).is_some());
        assert_eq!(timers.next(), Some(begin + 20));
        assert!(timers.take_expired(begin + 10).is_none());
        assert!(timers.take_expired(u64::MAX).is_some());
        assert_eq!(timers.next(), Some(begin + 30));
    }

    /// Against the obvious model: sorted times. Whoever does as `next` says is never late.
    #[test]
    fn what_is_far_off_passes_when_it_is_due() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut timers = Timers::default();
            let mut now = timers.origin;
            let mut waiting: Vec<(u64, Armed)> = Vec::new();
            for _ in 0..200 {
                if random.u8(..) < 160 || waiting.is_empty() {
                    let most = 1 << random.u32(20..38);
                    let at = now + random.u64(..most);
                    waiting.push((at, timers.arm(at, now, Waker::noop().clone())));
                } else if random.bool() {
                    let (at, armed) = waiting.swap_remove(random.usize(..waiting.len()));
                    timers.disarm(at, &armed);
                } else {
                    let first = waiting.iter().map(|(at, _)| *at).min().unwrap();
                    while now < first {
                        let next = timers.next().unwrap();
                        assert!(next <= first, "{next} is later than {first}");
                        now = next.max(now + 1);
                        assert_eq!(timers.advance(now), now >= first, "whether one passes");
                        assert!(now >= first || timers.take_expired(now).is_none(), "early");
                    }
                    let due = waiting.extract_if(.., |(at, _)| *at <= now).count();
                    assert_eq!(std::iter::from_fn(|| timers.take_expired(now)).count(), due);
                }
            }
            assert_eq!(timers.near.len() + timers.far.len(), waiting.len());
            for (at, armed) in waiting {
                timers.disarm(at, &armed);
            }
            assert!(timers.near.is_empty() && timers.far.is_empty());
            assert!(!timers.advance(u64::MAX), "there are none"); // in no time
            assert!(timers.next().is_none() && timers.near.is_empty());
        }
    }
}
