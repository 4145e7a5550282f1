//! Which worker of a process has a connection.
//!
//! The kernel gives each connection to the listening socket of one worker, by a hash of its addresses and ports. Of thousands
//! one worker gets as many as another; of 64 on four workers one commonly gets 20 to 24 and another ten, and the processors of
//! those have as unequal work. So a worker that has accepted one while another has fewer hands it over, before anything of it was read.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
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

/// The workers of a process, by their numbers.
#[derive(Default)]
pub(crate) struct Placement {
    seats: Box<[Seat]>,
}

/// One worker. Each writes to its own at every connection, and looks at all.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Connections that it has.
    present: AtomicU32,
    /// Those that were handed over to it and that it has not taken yet.
    coming: AtomicU32,
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

    /// So many connections does a worker have.
    #[inline]
    pub(crate) fn count(&self, worker: usize, connections: usize) {
        if let Some(seat) = self.seats.get(worker) {
            seat.present.store(u32::try_from(connections).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// Whom a connection goes to that this worker has accepted; `None`: it stays.
    #[inline]
    pub(crate) fn elsewhere(&self, worker: usize) -> Option<usize> {
        if self.seats.len() < 2 {
            return None;
        }
        let own = self.seats.get(worker)?.connections();
        let others = self.seats.iter().enumerate().filter(|(number, _)| *number != worker);
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
    ) -> Result<(), Arrival> {
        let Some(seat) = self.seats.get(to) else { return Err(arrival) };
        let mut desk = lock(&seat.desk);
        let Some(desk) = desk.as_mut().filter(|desk| Arc::ptr_eq(&desk.settings, settings)) else {
            return Err(arrival);
        };
        desk.arrivals.push(arrival);
        if seat.coming.fetch_add(1, Relaxed) == 0 {
            desk.remote.notify();
        }
        Ok(())
    }
}

impl Seat {
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
        assert_eq!(placement.elsewhere(0), None, "nobody has any");
        placement.count(0, 1);
        assert_eq!(placement.elsewhere(0), None, "one more is no lead");
        placement.count(0, 5);
        placement.count(1, 4);
        assert_eq!(placement.elsewhere(0), Some(2));
        placement.count(2, 9);
        assert_eq!([0, 1, 2].map(|worker| placement.elsewhere(worker)), [None, None, Some(1)]);
        placement.count(2, 300);
        assert_eq!(placement.elsewhere(2), None, "among many the hash is even");
        assert_eq!(Placement::of(1).elsewhere(0), None);
        assert_eq!(Placement::default().elsewhere(7), None, "workers that nobody has told of");
    }

    #[test]
    fn what_is_handed_over_is_taken_once_and_by_who_serves_alike() {
        let runtime = Runtime::install(Poller::new().unwrap().registry().unwrap()).unwrap();
        let (placement, present) = (Placement::of(2), settings());
        assert!(placement.hand_over(1, arrival(), &present).is_err(), "it does not serve yet");
        placement.open(1, runtime.remote(), present.clone());
        assert!(placement.hand_over(1, arrival(), &settings()).is_err(), "its listeners may be others");
        placement.count(0, 4);
        for _ in 0..3 {
            let to = placement.elsewhere(0).expect("those that are on their way count");
            assert!(placement.hand_over(to, arrival(), &present).is_ok());
        }
        assert_eq!(placement.elsewhere(0), None, "four and three");
        assert_eq!((placement.take(1).len(), placement.take(1).len()), (3, 0));
        assert!(placement.hand_over(1, arrival(), &present).is_ok());
        assert_eq!(placement.close(1).len(), 1);
        assert!(placement.hand_over(1, arrival(), &present).is_err(), "it takes none any more");
        assert!(placement.close(1).is_empty() && placement.take(0).is_empty());
    }
}
