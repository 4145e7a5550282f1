//! Requests that wait for something, and the queue before them: `limits in-flight` and `limits queue`.
//!
//! What is answered at once never comes here. A `Reply::Later` becomes a [`Later`]: it takes a place, or
//! waits for one in the order of arrival, and its future is not polled before. The places are common to the
//! workers of a process. A [`Later`] belongs to a request, not to a connection: every stream may have one.
//! Dropping it frees its place, or gives up its turn (R2: `RqThrottle`, the connection queue).

use super::Ledger;
use crate::memory::Account;
use crate::response::Response;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tidegate_io::LocalFuture;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::timer::{self, Deadline};
use tidegate_stats::QueueRefusal;

/// The places and the queue, for all workers of a process.
#[derive(Default)]
pub struct InFlight(Mutex<State>);

#[derive(Default)]
struct State {
    taken: u32,
    /// By rising number, which is the order of arrival.
    waiting: VecDeque<Waiting>,
    numbers: u64,
}

struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

/// What asking for a place gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A place.
    Place,
    /// A turn, by its number.
    Turn(u64),
    /// The queue is full.
    Full,
}

impl InFlight {
    /// Asks for one of `most` places, or a turn in a queue of `length`.
    pub fn enter(&self, most: u32, length: u32) -> Entry {
        let mut state = self.lock();
        if state.taken < most && state.waiting.is_empty() {
            state.taken += 1;
            return Entry::Place;
        }
        if state.waiting.len() >= length as usize {
            return Entry::Full;
        }
        state.numbers += 1;
        let number = state.numbers;
        state.waiting.push_back(Waiting { number, waker: None });
        Entry::Turn(number)
    }

    /// Whether the turn has come, and with it a place; otherwise `waker` is woken when it comes.
    pub fn has_come(&self, number: u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        match state.position(number) {
            Some(at) => {
                match &mut state.waiting[at].waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                false
            }
            None => true,
        }
    }

    /// Gives up a turn. `false`: it has come meanwhile, and there is a place to be left.
    pub fn withdraw(&self, number: u64) -> bool {
        let mut state = self.lock();
        let at = state.position(number);
        at.is_some_and(|at| state.waiting.remove(at).is_some())
    }

    /// Leaves a place; of `most` places, those that are free go to who waits longest.
    pub fn leave(&self, most: u32) {
        let mut state = self.lock();
        state.taken = state.taken.saturating_sub(1);
        while state.taken < most
            && let Some(next) = state.waiting.pop_front()
        {
            state.taken += 1;
            if let Some(waker) = next.waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn position(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()
    }
}

/// A response that is still being made, with its place among those in flight.
pub struct Later {
    future: LocalFuture<Response>,
    account: Account,
    place: Place,
    ledger: Rc<Ledger>,
}

enum Place {
    /// It needs none.
    Exempt,
    Taken,
    Queued {
        turn: u64,
        /// Monotonic, nanoseconds.
        since: u64,
        deadline: Deadline,
    },
    Refused(QueueRefusal),
    /// There is no memory for what waits.
    Shed,
    Done,
}

impl Later {
    pub(super) fn new(
        ledger: Rc<Ledger>,
        future: LocalFuture<Response>,
        is_exempt: bool,
        is_short: bool,
    ) -> Later {
        let place = if is_exempt { Place::Exempt } else { Place::of(&ledger, is_short) };
        Later { future, account: Account::default(), place, ledger }
    }

    /// Moves it on. Its task is woken when there is more to do. `has_left`: the client has finished sending
    /// and may be gone; one that waits for a place gives up its turn to those who are there, and gets the
    /// busy answer in case it listens.
    pub fn poll(&mut self, cx: &mut Context<'_>, has_left: bool) -> Poll<Response> {
        if let Place::Queued { turn, since, deadline } = &mut self.place {
            let (turn, since) = (*turn, *since);
            let places = &self.ledger.shared.in_flight;
            let given_up = if has_left {
                Some(QueueRefusal::Client)
            } else {
                Pin::new(deadline).poll(cx).is_ready().then_some(QueueRefusal::Age)
            };
            match given_up {
                Some(why) if places.withdraw(turn) => self.place = Place::Refused(why),
                None if !places.has_come(turn, cx.waker()) => return Poll::Pending,
                _ => {
                    self.ledger.stats.queue_delay.record_nanos(monotonic_ns().saturating_sub(since));
                    self.ledger.enter_flight();
                    self.place = Place::Taken;
                }
            }
            self.ledger.stats.queued.sub(1);
        }
        if let Place::Shed = self.place {
            self.ledger.stats.requests_shed.add(1);
            self.place = Place::Done;
            return Poll::Ready(self.ledger.busy());
        }
        if let Place::Refused(why) = self.place {
            self.ledger.stats.queue_refusals.add(why, 1);
            self.place = Place::Done;
            return Poll::Ready(self.ledger.busy());
        }
        let polled = self.account.charge(|| self.future.as_mut().poll(cx));
        if polled.is_ready() {
            self.leave();
        }
        polled
    }

    /// Bytes of what the answer is made of, as far as they are told ([`crate::memory::Weight`]).
    pub fn held(&self) -> usize {
        size_of::<Later>() + self.account.held()
    }

    fn leave(&mut self) {
        let ledger = &self.ledger;
        match std::mem::replace(&mut self.place, Place::Done) {
            Place::Taken => ledger.leave_flight(),
            Place::Queued { turn, .. } => {
                ledger.stats.queued.sub(1);
                ledger.stats.queue_refusals.add(QueueRefusal::Client, 1);
                if !ledger.shared.in_flight.withdraw(turn) {
                    ledger.shared.in_flight.leave(ledger.limits().in_flight);
                }
            }
            Place::Exempt | Place::Refused(_) | Place::Shed | Place::Done => {}
        }
    }
}

impl Place {
    fn of(ledger: &Ledger, is_short: bool) -> Place {
        if is_short {
            return Place::Shed;
        }
        let limits = ledger.limits();
        match ledger.shared.in_flight.enter(limits.in_flight, limits.queue_length) {
            Entry::Place => {
                ledger.enter_flight();
                Place::Taken
            }
            Entry::Turn(turn) => {
                ledger.stats.queued.add(1);
                ledger.stats.requests_queued.add(1);
                Place::Queued { turn, since: monotonic_ns(), deadline: timer::after(limits.queue_age) }
            }
            Entry::Full => Place::Refused(QueueRefusal::Full),
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let places = InFlight::default();
        assert_eq!(places.enter(1, 2), Entry::Place);
        let (first, second) = (places.enter(1, 2), places.enter(1, 2));
        let (Entry::Turn(first), Entry::Turn(second)) = (first, second) else { panic!("two turns") };
        assert_eq!(places.enter(1, 2), Entry::Full);
        let come = |turn| places.has_come(turn, Waker::noop());
        assert!(!come(first) && !come(second));
        places.leave(1);
        assert!(come(first) && !come(second));
        // A free place is not for who comes now while others wait.
        assert!(places.withdraw(second));
        places.leave(1);
        assert_eq!(places.enter(1, 2), Entry::Place);
    }

    #[test]
    fn a_turn_that_has_come_cannot_be_withdrawn() {
        let places = InFlight::default();
        places.enter(1, 1);
        let Entry::Turn(turn) = places.enter(1, 1) else { panic!("a turn") };
        places.leave(1);
        assert!(!places.withdraw(turn));
        assert_eq!(places.enter(1, 0), Entry::Full, "its place is taken until it is left");
        places.leave(1);
        assert_eq!(places.enter(1, 0), Entry::Place);
    }

    #[test]
    fn who_waits_is_woken_once() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let (places, count) = (InFlight::default(), Arc::new(Count(AtomicUsize::new(0))));
        places.enter(1, 1);
        let Entry::Turn(turn) = places.enter(1, 1) else { panic!("a turn") };
        let waker = Waker::from(count.clone());
        assert!(!places.has_come(turn, &waker) && !places.has_come(turn, &waker));
        places.leave(1);
        places.leave(1);
        assert_eq!(count.0.load(Relaxed), 1);
    }

    proptest! {
        /// However places are taken, left and given up, never more than `most` are taken, nobody waits
        /// beside a free one, turns come in order, and in the end all are free.
        #[test]
        fn places_are_neither_lost_nor_doubled(
            most in 1u32..4,
            length in 0u32..5,
            steps in proptest::collection::vec((0u8..3, 0usize..8), 1..200),
        ) {
            let places = InFlight::default();
            let (mut taken, mut turns) = (0u32, Vec::<u64>::new());
            for (what, which) in steps {
                match what {
                    0 => match places.enter(most, length) {
                        Entry::Place => taken += 1,
                        Entry::Turn(turn) => turns.push(turn),
                        Entry::Full => prop_assert_eq!(turns.len(), length as usize),
                    },
                    1 if taken > 0 => {
                        places.leave(most);
                        taken -= 1;
                    }
                    2 if !turns.is_empty() => {
                        let turn = turns.remove(which % turns.len());
                        prop_assert!(places.withdraw(turn));
                    }
                    _ => {}
                }
                while turns.first().is_some_and(|turn| places.has_come(*turn, Waker::noop())) {
                    turns.remove(0);
                    taken += 1;
                }
                prop_assert!(turns.iter().all(|turn| !places.has_come(*turn, Waker::noop())));
                prop_assert!(taken <= most);
                prop_assert!(turns.is_empty() || taken == most);
            }
            for turn in turns {
                places.withdraw(turn);
            }
            for _ in 0..taken {
                places.leave(most);
            }
            for _ in 0..most {
                prop_assert_eq!(places.enter(most, 0), Entry::Place);
            }
        }
    }
}
