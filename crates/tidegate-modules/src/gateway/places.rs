//! The queue before a pool, an upstream or a member: as many requests at once as there are places, the
//! others wait in the order of their arrival, up to a length and an age. Sites that share them have a share each.
//!
//! One for the process, shared by its workers: their order is one order, but for a place that a worker leaves: it goes first to
//! who waits on that worker, which has the connection that was used in it. Given to another worker it would cost a connection
//! each time, for many applications serve as many connections as they have processes. The rules are in `queue`, which has
//! neither lock nor clock; those are of `core/admission/turns`.
//!
//! Why it exists: with 1,000 clients on 8 workers of 20 ms a server that connects for each request answers
//! 1 to 3 % of them, since the socket's backlog is full and every further connect fails at once.

mod queue;

use queue::{PlaceArrival, Queue};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use thiserror::Error;
use tidegate_core::admission::turns::{Turn, Turns, Woken};
use tidegate_http::delay_seconds;
use tidegate_io::clock::monotonic_ns;

pub use queue::PlacesReport;

/// How many may be served at once, how many may wait, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Requests under way at once; 0 lets nobody through until there are some.
    pub places: usize,
    /// Requests that wait at most; 0 refuses at once what finds no place.
    pub queue_length: usize,
    /// How long a request may wait; `None` is without bound.
    pub queue_age: Option<Duration>,
}

impl PlaceLimits {
    /// So many that nobody ever waits.
    pub const UNLIMITED: PlaceLimits =
        PlaceLimits { places: usize::MAX, queue_length: usize::MAX, queue_age: None };
}

/// Why a request got no place. Each is answered 503 with `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("the queue is full")]
    Full {
        /// When to come again.
        retry_after: Duration,
    },
    /// It has waited as long as it may.
    #[error("the request has waited too long in the queue")]
    TooOld {
        /// When to come again.
        retry_after: Duration,
    },
    /// Nothing that could serve it is alive, and none will be for a while.
    #[error("the application is down")]
    Down {
        /// When to come again.
        retry_after: Duration,
    },
}

impl Refused {
    /// When the client may come again, whole seconds, one at least: the value of `Retry-After`.
    pub fn retry_after_seconds(&self) -> u64 {
        let (Refused::Full { retry_after } | Refused::TooOld { retry_after } | Refused::Down { retry_after }) =
            self;
        delay_seconds(*retry_after)
    }
}

/// What is called when somebody begins to wait where nobody did.
type OnPressure = Box<dyn Fn() + Send + Sync>;

/// The places before one application, and the queue before them.
pub struct Places {
    queue: Turns<Queue>,
    /// Mirrors the queue's own count: balancing reads it without the lock.
    in_use: AtomicUsize,
    on_pressure: OnceLock<OnPressure>,
}

impl Places {
    /// Places with nobody in them.
    pub fn new(limits: PlaceLimits) -> Arc<Places> {
        Arc::new(Places {
            queue: Turns::new(Queue::new(limits)),
            in_use: AtomicUsize::new(0),
            on_pressure: OnceLock::new(),
        })
    }

    /// Waits for a place, among those of its site in the order of the first polls. Dropping the future gives up its turn. The
    /// future wants a worker's thread where `queue_age` is set.
    pub fn take(self: &Arc<Self>, site: u64) -> Take {
        Take { places: self.clone(), site, turn: None }
    }

    /// A place, if one is free for this site and nobody of it waits.
    pub fn try_take(self: &Arc<Self>, site: u64) -> Option<Place> {
        let mut queue = self.lock();
        let is_granted = queue.try_enter(site);
        self.mirror(&queue);
        drop(queue);
        is_granted.then(|| Place { places: self.clone(), site })
    }

    /// A route of this site (a hash) leads here for as long as this is held: the places are shared out among such sites.
    pub fn join(self: &Arc<Self>, site: u64) -> Membership {
        self.lock().join(site);
        Membership { places: self.clone(), site }
    }

    /// Changes the limits. More places serve those who wait at once; fewer take effect as requests end; a
    /// shorter queue refuses those who came last.
    pub fn set_limits(&self, limits: PlaceLimits) {
        self.change(|queue, woken| queue.set_limits(limits, monotonic_ns(), woken));
    }

    /// Changes only the number of places.
    pub fn set_places(&self, places: usize) {
        self.change(|queue, woken| {
            let limits = PlaceLimits { places, ..queue.limits() };
            queue.set_limits(limits, monotonic_ns(), woken);
        });
    }

    /// Says that nobody can be served for so long, or (`None`) that they can again. Who waits is refused
    /// at once, and so is who comes.
    pub fn set_down(&self, retry_after: Option<Duration>) {
        self.change(|queue, woken| queue.set_down(retry_after, woken));
    }

    /// The limits in force.
    pub fn limits(&self) -> PlaceLimits {
        self.lock().limits()
    }

    /// Places in use: a glance without a lock, for balancing.
    #[inline]
    pub fn in_use(&self) -> usize {
        self.in_use.load(Relaxed)
    }

    /// Everything counted so far.
    pub fn report(&self) -> PlacesReport {
        self.lock().report(monotonic_ns())
    }

    /// What a supervisor wants to know, since it last asked.
    pub fn demand(&self) -> Demand {
        self.lock().demand(monotonic_ns())
    }

    /// Names what is called, on any thread, when somebody begins to wait where nobody did. Once only.
    pub fn on_pressure(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_pressure.set(Box::new(call));
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    fn mirror(&self, queue: &Queue) {
        self.in_use.store(queue.in_use(), Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut Queue, &mut Woken)) {
        self.queue.change(|queue, woken| {
            change(queue, woken);
            self.mirror(queue);
        });
    }
}

/// What those who wait ask of a pool: since the last such report where not said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Requests that wait now.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub oldest_wait: Duration,
    /// The longest wait that ended with a place.
    pub longest_wait: Duration,
    /// Places in use now.
    pub in_use: usize,
    /// Most places in use at once.
    pub peak_in_use: usize,
    /// Requests that were given a place, since the start.
    pub requests: u64,
    /// Refused since the queue was full, since the start.
    pub refused_full: u64,
    /// Refused since they had waited too long, since the start.
    pub refused_too_old: u64,
    /// Refused since the application was down, since the start.
    pub refused_down: u64,
    /// Gone away while they waited, since the start.
    pub abandoned: u64,
}

impl Demand {
    /// What stays of it when its process has ended: what was counted since the start.
    pub fn counts(&self) -> Demand {
        let Demand { requests, refused_full, refused_too_old, refused_down, abandoned, .. } = *self;
        Demand { requests, refused_full, refused_too_old, refused_down, abandoned, ..Demand::default() }
    }

    /// Takes up what has passed since the report before the last, which nobody has heard.
    pub fn take_peaks(&mut self, untold: &Demand) {
        self.longest_wait = self.longest_wait.max(untold.longest_wait);
        self.peak_in_use = self.peak_in_use.max(untold.peak_in_use);
    }

    /// Adds what the workers of another process want.
    pub fn merge(&mut self, other: &Demand) {
        self.waiting += other.waiting;
        self.oldest_wait = self.oldest_wait.max(other.oldest_wait);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.in_use += other.in_use;
        self.peak_in_use += other.peak_in_use;
        self.requests += other.requests;
        self.refused_full += other.refused_full;
        self.refused_too_old += other.refused_too_old;
        self.refused_down += other.refused_down;
        self.abandoned += other.abandoned;
    }
}

/// A place: free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    site: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.change(|queue, woken| queue.release(self.site, monotonic_ns, woken));
    }
}

/// A site is one of those that share places. See [`Places::join`].
pub struct Membership {
    places: Arc<Places>,
    site: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.places.change(|queue, woken| queue.part(self.site, monotonic_ns(), woken));
    }
}

/// A request for a place. See [`Places::take`].
#[must_use = "nobody waits unless this is awaited"]
pub struct Take {
    places: Arc<Places>,
    site: u64,
    /// While it waits; in a box, since most do not have to.
    turn: Option<Box<Turn>>,
}

impl Take {
    fn place(&self) -> Place {
        Place { places: self.places.clone(), site: self.site }
    }
}

impl Future for Take {
    type Output = Result<Place, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let site = this.site;
        if this.turn.is_none() {
            let mut queue = this.places.lock();
            let entry = queue.enter(site, monotonic_ns, cx.waker());
            this.places.mirror(&queue);
            drop(queue);
            match entry {
                PlaceArrival::Granted => return Poll::Ready(Ok(this.place())),
                PlaceArrival::Refused(refused) => return Poll::Ready(Err(refused)),
                PlaceArrival::Queued { turn, is_first } => {
                    this.turn = Some(Box::new(turn));
                    if is_first && let Some(call) = this.places.on_pressure.get() {
                        call();
                    }
                }
            }
        }
        let Some(turn) = &mut this.turn else { return Poll::Pending };
        let settled = |queue: &mut Queue, ticket, waker: &Waker| queue.settled(site, ticket, waker);
        let expire = |queue: &mut Queue, ticket| queue.expire(site, ticket);
        this.places.queue.poll_turn(turn, cx, settled, expire).map(|outcome| {
            this.turn = None;
            outcome.map(|()| this.place())
        })
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if let Some(turn) = &self.turn {
            self.places.change(|queue, woken| queue.leave(self.site, turn.ticket(), monotonic_ns, woken));
        }
    }
}

#[cfg(test)]
mod tests;
