//! Which worker of a process has a connection.
//!
//! The kernel gives each connection to the listening socket of one worker, by a hash of its addresses and ports. Of thousands
//! one worker gets as many as another; of 64 on four workers one commonly gets 20 to 24 and another ten, and the processors of
//! those have as unequal work. So a worker that has accepted one while another has fewer hands it over, before anything of it was read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tidegate_config::settings::Settings;
use tidegate_io::Remote;
use tidegate_io::locking::lock;
use tidegate_io::socket::{Peer, Stream};

/// A worker that has more connections hands none over: of so many the hash makes no two workers differ by much, and each
/// that is handed over wakes a thread.
const MOST: u32 = 256;
/// Connections that a worker must have more than another one.
const LEAD: u32 = 2;
/// A worker that has not taken for so long what was handed over to it is busy, whatever it has: nanoseconds.
const PATIENCE: u64 = 1_000_000;
/// Nor does it get more than this before it has taken any.
const AT_ONCE: u32 = 16;

/// The workers of a process, by their numbers.
#[derive(Default)]
pub(crate) struct Placement {
    seats: Box<[Seat]>,
}

/// One worker. Each writes to its own at every connection, and looks at all.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Connections that it has; the most there can be where it is to get none.
    present: AtomicU32,
    /// Those that were handed over to it and that it has not taken yet.
    coming: AtomicU32,
    /// When the first of these was, monotonic nanoseconds.
    since: AtomicU64,
    /// As long as it takes any.
    desk: Mutex<Option<Desk>>,
}

struct Desk {
    remote: Arc<Remote>,
    /// By which it serves: listeners have the same places with everybody who serves by the same.
    settings: Arc<Settings>,
    arrivals: Vec<Arrival>,
}

/// A connection that was accepted and not looked at.
pub(crate) struct Arrival {
    pub stream: Stream,
    pub peer: Peer,
    /// The place of its listener.
    pub listener: usize,
}

impl Placement {
    /// Of so many workers.
    pub(crate) fn of(workers: usize) -> Placement {
        Placement { seats: (0..workers).map(|_| Seat::default()).collect() }
    }

    /// A worker takes connections from now on.
    pub(crate) fn open(&self, worker: usize, remote: Arc<Remote>, settings: Arc<Settings>) {
        if let Some(seat) = self.seats.get(worker) {
            *lock(&seat.desk) = Some(Desk { remote, settings, arrivals: Vec::new() });
        }
    }

    /// It takes none until it says so again. What it still has to take.
    pub(crate) fn close(&self, worker: usize) -> Vec<Arrival> {
        self.seats.get(worker).map_or_else(Vec::new, |seat| {
            let desk = lock(&seat.desk).take();
            seat.coming.store(0, Relaxed);
            seat.present.store(u32::MAX, Relaxed);
            desk.map_or_else(Vec::new, |desk| desk.arrivals)
        })
    }

    /// What was handed over to a worker since it looked last.
    pub(crate) fn take(&self, worker: usize) -> Vec<Arrival> {
        let Some(seat) = self.seats.get(worker) else { return Vec::new() };
        if seat.coming.load(Relaxed) == 0 {
            return Vec::new(); // whoever hands one over wakes the worker behind that
        }
        let mut desk = lock(&seat.desk);
        seat.coming.store(0, Relaxed);
        desk.as_mut().map_or_else(Vec::new, |desk| std::mem::take(&mut desk.arrivals))
    }

    /// So many connections does a worker have; `None`: it has enough to do without another one.
    #[inline]
    pub(crate) fn count(&self, worker: usize, connections: Option<usize>) {
        if let Some(seat) = self.seats.get(worker) {
            let present = connections.and_then(|connections| u32::try_from(connections).ok());
            seat.present.store(present.unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// Whom a connection goes to that this worker has accepted; `None`: it stays. `now` is monotonic nanoseconds.
    #[inline]
    pub(crate) fn elsewhere(&self, worker: usize, now: u64) -> Option<usize> {
        if self.seats.len() < 2 {
            return None;
        }
        let own = self.seats.get(worker)?.connections();
        let others = self.seats.iter().enumerate().filter(|(number, _)| *number != worker);
        let others = others.filter(|(_, seat)| seat.takes_at_once(now));
        let (least, number) = others.map(|(number, seat)| (seat.connections(), number)).min()?;
        (own <= MOST && own >= least.saturating_add(LEAD)).then_some(number)
    }

    /// Hands a connection over to another worker.
    ///
    /// # Errors
    /// It takes none, or serves by other settings: the connection stays where it is.
    pub(crate) fn hand_over(
        &self,
        to: usize,
        arrival: Arrival,
        settings: &Arc<Settings>,
        now: u64,
    ) -> Result<(), Arrival> {
        let Some(seat) = self.seats.get(to) else { return Err(arrival) };
        let mut desk = lock(&seat.desk);
        let Some(desk) = desk.as_mut().filter(|desk| Arc::ptr_eq(&desk.settings, settings)) else {
            return Err(arrival);
        };
        desk.arrivals.push(arrival);
        if seat.coming.fetch_add(1, Relaxed) == 0 {
            seat.since.store(now, Relaxed);
            desk.remote.notify();
        }
        Ok(())
    }
}

impl Seat {
    /// Whether it is awake, as far as can be seen.
    fn takes_at_once(&self, now: u64) -> bool {
        let coming = self.coming.load(Relaxed);
        coming == 0 || (coming < AT_ONCE && now.saturating_sub(self.since.load(Relaxed)) < PATIENCE)
    }

    fn connections(&self) -> u32 {
        self.present.load(Relaxed).saturating_add(self.coming.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tidegate_io::Poller;
    use tidegate_io::runtime::Runtime;

    fn arrival() -> Arrival {
        let (one, _) = UnixStream::pair().unwrap();
        Arrival { stream: Stream::new(one.into()), peer: Peer::Unix, listener: 0 }
    }

    fn settings() -> Arc<Settings> {
        Arc::new(
            tidegate_config::from_folder(&std::env::temp_dir(), &[]).unwrap_or_else(|_| panic!("settings")),
        )
    }

    #[test]
    fn a_new_connection_goes_to_who_has_the_fewest() {
        let placement = Placement::of(3);
        let elsewhere = |worker| placement.elsewhere(worker, 0);
        let count = |worker, connections| placement.count(worker, Some(connections));
        assert_eq!(elsewhere(0), None, "nobody has any");
        count(0, 1);
        assert_eq!(elsewhere(0), None, "one more is no lead");
        count(0, 5);
        count(1, 4);
        assert_eq!(elsewhere(0), Some(2));
        placement.count(2, None);
        assert_eq!(elsewhere(0), None, "who has enough to do gets none");
        count(2, 9);
        assert_eq!([0, 1, 2].map(elsewhere), [None, None, Some(1)]);
        count(2, 300);
        assert_eq!(elsewhere(2), None, "among many the hash is even");
        assert_eq!(Placement::of(1).elsewhere(0, 0), None);
        assert_eq!(Placement::default().elsewhere(7, 0), None, "workers that nobody has told of");
    }

    #[test]
    fn what_is_handed_over_is_taken_once_and_by_who_serves_alike() {
        let runtime = Runtime::install(Poller::new().unwrap().registry().unwrap()).unwrap();
        let (placement, present) = (Placement::of(2), settings());
        let hand_over = |settings: &Arc<Settings>| placement.hand_over(1, arrival(), settings, 0);
        assert!(hand_over(&present).is_err(), "it does not serve yet");
        placement.open(1, runtime.remote(), present.clone());
        assert!(hand_over(&settings()).is_err(), "its listeners may be others");
        placement.count(0, Some(4));
        for _ in 0..3 {
            assert_eq!(placement.elsewhere(0, 0), Some(1), "those that are on their way count");
            assert!(hand_over(&present).is_ok());
        }
        assert_eq!(placement.elsewhere(0, 0), None, "four and three");
        assert_eq!((placement.take(1).len(), placement.take(1).len()), (3, 0));
        assert!(hand_over(&present).is_ok());
        assert_eq!(placement.close(1).len(), 1);
        assert!(hand_over(&present).is_err(), "it takes none any more");
        assert!(placement.close(1).is_empty() && placement.take(0).is_empty());
        assert_eq!(placement.elsewhere(0, 0), None, "nor is it thought of");
    }

    /// A worker that is deep in its work gets one, or a few at once, and no more before it has taken them.
    #[test]
    fn who_does_not_take_gets_no_more() {
        let runtime = Runtime::install(Poller::new().unwrap().registry().unwrap()).unwrap();
        let (placement, present) = (Placement::of(2), settings());
        placement.open(1, runtime.remote(), present.clone());
        placement.count(0, Some(200));
        assert!(placement.hand_over(1, arrival(), &present, 0).is_ok());
        assert_eq!(placement.elsewhere(0, PATIENCE - 1), Some(1));
        assert_eq!(placement.elsewhere(0, PATIENCE), None);
        for _ in 1..AT_ONCE {
            assert!(placement.hand_over(1, arrival(), &present, 0).is_ok());
        }
        assert_eq!(placement.elsewhere(0, 0), None);
        assert_eq!(placement.take(1).len(), AT_ONCE as usize);
        assert_eq!(placement.elsewhere(0, PATIENCE), Some(1));
    }
}
