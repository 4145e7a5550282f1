//! Which job of the pool is next: fair between devices, and between the files of a device.
//!
//! Used by `blocking` alone, under its lock. A disk that answers slowly, or no longer, holds the threads
//! that wait for it. So a device may have as many jobs running as there are threads still free: one alone
//! gets half of them, the next half of the rest, and a device that has none running always gets one. Within
//! a device the files take turns, so that a file with a thousand readers delays another one by one job.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`; 0 for look-ups.
    pub file: u64,
}

impl QueueKey {
    /// For what waits for no disk.
    pub const NO_DISK: QueueKey = QueueKey { device: u64::MAX, file: 0 };

    /// For a disk of which nobody knows yet what device it is: a queue of its own, each time another one.
    pub fn of_unknown_device() -> QueueKey {
        // Below `NO_DISK`; the kernel counts devices from the other end.
        static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
        QueueKey { device: LAST.fetch_sub(1, Relaxed) - 1, file: 0 }
    }

    /// Whether a device of a key is one of the kernel's.
    pub fn is_device(device: u64) -> bool {
        device < u64::MAX - u64::from(u32::MAX)
    }

    /// Of the file with this device and inode.
    pub fn of_file((device, file): (u64, u64)) -> QueueKey {
        QueueKey { device, file }
    }

    /// For looking things up on a device.
    pub fn of_device(device: u64) -> QueueKey {
        QueueKey { device, file: 0 }
    }
}

/// Jobs that wait, and how many run.
pub(crate) struct DeviceQueues<J> {
    threads: usize,
    devices: VecDeque<Device<J>>,
    busy: usize,
    waiting: usize,
}

struct Device<J> {
    id: u64,
    running: usize,
    waiting: usize,
    /// Files with jobs, the next one first.
    turns: VecDeque<u64>,
    jobs: HashMap<u64, VecDeque<J>>,
}

impl<J> DeviceQueues<J> {
    /// For a pool of so many threads.
    pub(crate) const fn new(threads: usize) -> DeviceQueues<J> {
        DeviceQueues { threads, devices: VecDeque::new(), busy: 0, waiting: 0 }
    }

    /// Jobs that have not been started.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Jobs of a device that have not been started.
    pub(crate) fn waiting_for(&self, device: u64) -> usize {
        self.devices.iter().find(|present| present.id == device).map_or(0, |device| device.waiting)
    }

    /// Each device with its jobs that run and those that wait.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (u64, usize, usize)> + '_ {
        self.devices.iter().map(|device| (device.id, device.running, device.waiting))
    }

    /// Jobs that run.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Takes a job.
    pub(crate) fn push(&mut self, queue_key: QueueKey, job: J) {
        self.waiting += 1;
        let place =
            self.devices.iter().position(|device| device.id == queue_key.device).unwrap_or_else(|| {
                let (turns, jobs) = (VecDeque::new(), HashMap::new());
                self.devices.push_back(Device { id: queue_key.device, running: 0, waiting: 0, turns, jobs });
                self.devices.len() - 1
            });
        let device = &mut self.devices[place];
        device.waiting += 1;
        let jobs = device.jobs.entry(queue_key.file).or_default();
        if jobs.is_empty() {
            device.turns.push_back(queue_key.file);
        }
        jobs.push_back(job);
    }

    /// The next job that may run, counted as running from now on, and its device.
    pub(crate) fn start(&mut self) -> Option<(u64, J)> {
        let free = self.threads.saturating_sub(self.busy);
        let may = |device: &Device<J>| device.running < free && !device.turns.is_empty();
        let place = self.devices.iter().position(may)?;
        let mut device = self.devices.remove(place)?;
        let started = device.next();
        let id = device.id;
        device.running += 1;
        device.waiting -= 1;
        self.devices.push_back(device); // the others come first now
        self.busy += 1;
        self.waiting -= 1;
        started.map(|job| (id, job))
    }

    /// A job of `device` has run.
    pub(crate) fn finish(&mut self, device: u64) {
        self.busy -= 1;
        if let Some(place) = self.devices.iter().position(|present| present.id == device) {
            let device = &mut self.devices[place];
            device.running -= 1;
            if device.running == 0 && device.turns.is_empty() {
                self.devices.remove(place);
            }
        }
    }
}

impl<J> Device<J> {
    fn next(&mut self) -> Option<J> {
        let file = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&file)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&file);
        } else {
            self.turns.push_back(file);
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn start_all(queues: &mut DeviceQueues<&'static str>) -> Vec<u64> {
        std::iter::from_fn(|| queues.start().map(|(device, _)| device)).collect()
    }

    #[test]
    fn a_stuck_device_leaves_threads_to_others() {
        let mut queues = DeviceQueues::new(8);
        for _ in 0..100 {
            queues.push(QueueKey { device: 1, file: 7 }, "stuck");
        }
        assert_eq!(start_all(&mut queues).len(), 4);
        assert_eq!(queues.devices().collect::<Vec<_>>(), [(1, 4, 96)]);
        for _ in 0..100 {
            queues.push(QueueKey { device: 2, file: 7 }, "stuck too");
        }
        assert_eq!(start_all(&mut queues).len(), 2);
        queues.push(QueueKey { device: 3, file: 7 }, "healthy");
        assert_eq!(start_all(&mut queues), [3]);
        queues.push(QueueKey { device: 3, file: 8 }, "healthy");
        assert!(start_all(&mut queues).is_empty());
        queues.finish(3);
        assert_eq!(start_all(&mut queues), [3]);
    }

    #[test]
    fn files_take_turns() {
        let mut queues = DeviceQueues::new(2);
        for job in ["a1", "a2", "a3"] {
            queues.push(QueueKey { device: 1, file: 1 }, job);
        }
        queues.push(QueueKey { device: 1, file: 2 }, "b1");
        let mut order = Vec::new();
        while let Some((device, job)) = queues.start() {
            order.push(job);
            queues.finish(device);
        }
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
        assert!(queues.devices.is_empty() && queues.waiting() == 0 && queues.busy() == 0);
    }

    proptest! {
        /// Whatever comes and goes: never more than there are threads, nothing is forgotten, and where jobs
        /// wait some run.
        #[test]
        fn bounded_and_complete(steps in proptest::collection::vec((0u64..4, 0u64..3, any::<bool>()), 0..200)) {
            let mut queues = DeviceQueues::new(6);
            let (mut pushed, mut running) = (0, Vec::new());
            for (device, file, pushes) in steps {
                if pushes {
                    queues.push(QueueKey { device, file }, "job");
                    pushed += 1;
                } else if let Some(device) = running.pop() {
                    queues.finish(device);
                }
                running.extend(start_all(&mut queues));
                prop_assert!(running.len() <= 6 && running.len() == queues.busy());
                prop_assert!(queues.waiting() == 0 || !running.is_empty());
                prop_assert!(queues.waiting() <= pushed);
            }
            while let Some(device) = running.pop() {
                queues.finish(device);
                running.extend(start_all(&mut queues));
            }
            prop_assert_eq!(queues.waiting(), 0);
        }
    }
}
