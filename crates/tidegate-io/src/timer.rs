//! Deadlines for async functions on a worker: what waits for an application, a queue or a retry.
//!
//! Connections have the wheel, which is cheaper and coarser. Deadlines are monotonic: a jump of the wall
//! clock moves none (FAULTS 47). A deadline that is dropped leaves nothing behind.

use crate::clock::monotonic_ns;
use crate::runtime;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The deadlines of one worker, by time and by order of arrival.
#[derive(Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(u64, u64), Waker>,
    armed: u64,
}

impl Timers {
    /// When the next one passes, monotonic nanoseconds.
    pub(crate) fn next(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes one whose deadline has passed.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<Waker> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// Waits until a time has passed. Fires up to a millisecond late, never early.
#[must_use = "a deadline does nothing unless it is awaited"]
pub struct Deadline {
    at: u64,
    /// Its place among the timers while it waits there, and whom it wakes.
    armed: Option<(u64, Waker)>,
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

    fn arm(&mut self, waker: &Waker) {
        runtime::with(|runtime| {
            let mut timers = runtime.timers.borrow_mut();
            let number = self.armed.as_ref().map_or(timers.armed + 1, |(number, _)| *number);
            timers.armed = timers.armed.max(number);
            timers.waiting.insert((self.at, number), waker.clone());
            self.armed = Some((number, waker.clone()));
        });
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if monotonic_ns() >= self.at {
            return Poll::Ready(());
        }
        // Only a time that has passed takes it from among the timers, so it is still there.
        if self.armed.as_ref().is_none_or(|(_, waker)| !waker.will_wake(cx.waker())) {
            self.arm(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some((number, _)) = self.armed {
            runtime::try_with(|runtime| runtime.timers.borrow_mut().waiting.remove(&(self.at, number)));
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
        for (at, number) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            timers.waiting.insert((at, number), Waker::noop().clone());
        }
        assert_eq!(timers.next(), Some(10));
        assert!(timers.take_expired(9).is_none());
        assert!(timers.take_expired(10).is_some());
        assert!(timers.take_expired(10).is_some());
        assert_eq!(timers.next(), Some(20));
        assert!(timers.take_expired(10).is_none());
        assert!(timers.take_expired(u64::MAX).is_some());
        assert_eq!(timers.next(), Some(30));
    }
}
