//! Parts of a connection that are woken apart, such as the streams of HTTP/2.
//!
//! Each [`Part`] has a waker of its own, which is a number like that of a connection. A wake-up notes the part with its
//! connection and puts the connection into the ready queue once, however many of its parts were woken; the connection
//! then asks [`Parts::take_woken`] which they were, and leaves the others alone. Whoever holds the waker of a part that is
//! gone reaches nobody.

use crate::runtime::{self, Runtime};
use crate::slab::{Key, Slab};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

/// The parts of one connection.
pub struct Parts(Rc<Woken>);

struct Woken {
    connection: Key,
    /// Each part at most once.
    parts: RefCell<Vec<Key>>,
}

/// A part of a connection, as long as it is held.
pub struct Part(Key);

struct PartEntry {
    /// What the connection knows it by.
    number: u32,
    is_woken: bool,
    of: Rc<Woken>,
}

/// The parts of all connections of a worker.
#[derive(Default)]
pub(crate) struct Table(RefCell<Slab<PartEntry>>);

impl Table {
    /// Notes that a part was woken. Returns the connection where that has to be run for it.
    pub(crate) fn wake(&self, key: Key) -> Option<Key> {
        let mut table = self.0.borrow_mut();
        let entry = table.get_mut(key)?;
        if std::mem::replace(&mut entry.is_woken, true) {
            return None;
        }
        let mut parts = entry.of.parts.borrow_mut();
        parts.push(key);
        (parts.len() == 1).then_some(entry.of.connection)
    }
}

impl Parts {
    /// For a connection that has no parts yet.
    pub fn of(connection: Key) -> Parts {
        Parts(Rc::new(Woken { connection, parts: RefCell::default() }))
    }

    /// A new part. `number` is what [`Parts::take_woken`] tells of it.
    pub fn add(&self, number: u32) -> Part {
        let entry = PartEntry { number, is_woken: false, of: self.0.clone() };
        Part(runtime::with(|runtime| runtime.parts.0.borrow_mut().insert(entry)))
    }

    /// Appends the numbers of the parts that were woken since the last call.
    pub fn take_woken(&self, into: &mut Vec<u32>) {
        let mut parts = self.0.parts.borrow_mut();
        if parts.is_empty() {
            return;
        }
        runtime::with(|runtime| {
            let mut table = runtime.parts.0.borrow_mut();
            for key in parts.drain(..) {
                if let Some(entry) = table.get_mut(key) {
                    entry.is_woken = false;
                    into.push(entry.number);
                }
            }
        });
    }

    /// Bytes of memory held.
    pub fn held(&self) -> usize {
        size_of::<Woken>() + self.0.parts.borrow().capacity() * size_of::<Key>()
    }
}

impl Part {
    /// Wakes this part of its connection.
    pub fn waker(&self) -> Waker {
        runtime::part_waker(self.0)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let gone = runtime::try_with(|runtime: &Rc<Runtime>| runtime.parts.0.borrow_mut().remove(self.0));
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Poller;

    #[test]
    fn a_connection_learns_which_of_its_parts_were_woken() {
        let poller = Poller::new().unwrap();
        let runtime = Runtime::install(poller.registry().unwrap()).unwrap();
        let mut connections = Slab::default();
        let (first, second) = (connections.insert(()), connections.insert(()));
        let (one, other) = (Parts::of(first), Parts::of(second));
        let parts: Vec<Part> = (0..100).map(|number| one.add(number)).collect();
        let alone = other.add(7);
        let mut ready = Vec::new();
        runtime.take_ready(&mut ready);
        assert_eq!(ready, []);

        // Two of a hundred, one of them twice: the connection is run once.
        parts[3].waker().wake();
        parts[41].waker().wake_by_ref();
        parts[3].waker().wake();
        runtime.take_ready(&mut ready);
        assert_eq!(ready, [first]);
        let mut woken = Vec::new();
        other.take_woken(&mut woken);
        assert_eq!(woken, [0_u32; 0]);
        one.take_woken(&mut woken);
        assert_eq!(woken, [3, 41]);

        // From another thread, and again: what was taken can be woken anew.
        ready.clear();
        let (waker, late) = (alone.waker(), parts[3].waker());
        std::thread::spawn(move || {
            waker.wake();
            late.wake();
        })
        .join()
        .unwrap();
        runtime.on_remote();
        runtime.take_ready(&mut ready);
        assert_eq!(ready, [second, first]);
        woken.clear();
        one.take_woken(&mut woken);
        other.take_woken(&mut woken);
        assert_eq!(woken, [3, 7]);

        // A part that is gone wakes nobody, also where its place is taken.
        ready.clear();
        woken.clear();
        let late = alone.waker();
        drop(alone);
        let next = other.add(8);
        late.wake();
        runtime.take_ready(&mut ready);
        assert_eq!(ready, []);
        next.waker().wake();
        drop(next);
        other.take_woken(&mut woken);
        assert_eq!(woken, [0_u32; 0]);
    }
}
