//! Interim responses (1xx, RFC 9110 section 15.2) on their way from whoever makes an answer to the connection.
//!
//! A handler asks for the way with [`Exchange::interim`](crate::Exchange::interim) and
//! puts into it what shall go out before the answer; the connection looks into it whenever it has polled the
//! answer. Both ends live on one worker, so no waker is stored.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tidegate_http::{FieldLines, Status};

/// Interim responses that wait; beyond them further ones are left out, which no client minds.
const MOST: usize = 16;

/// One interim response.
#[derive(Debug, Clone)]
pub struct Interim {
    /// 102 to 199; 100 and 101 are the connection's own.
    pub status: Status,
    /// Its fields.
    pub lines: FieldLines,
}

/// Interim responses of one request.
#[derive(Debug, Clone)]
pub struct InterimQueue(Rc<RefCell<VecDeque<Interim>>>);

thread_local! {
    /// Queues of requests that are over, empty: few requests have any interim response, and each that is passed on has a
    /// queue.
    static SPARE: RefCell<Vec<InterimQueue>> = const { RefCell::new(Vec::new()) };
}

/// Queues that are kept.
const SPARES: usize = 64;

impl Default for InterimQueue {
    fn default() -> InterimQueue {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        spare.unwrap_or_else(|| InterimQueue(Rc::default()))
    }
}

impl Drop for InterimQueue {
    fn drop(&mut self) {
        if Rc::strong_count(&self.0) > 1 {
            return;
        }
        if self.0.borrow().capacity() > 0 {
            self.0.replace(VecDeque::new()); // what nobody has taken is for nobody
        }
        // There are none any more where the worker itself ends.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(InterimQueue(self.0.clone()));
            }
        });
    }
}

impl InterimQueue {
    /// Sends an interim response. 100 and 101 mean something to a connection, and are left out.
    pub fn push(&self, interim: Interim) {
        let mut waiting = self.0.borrow_mut();
        if interim.status.is_informational() && interim.status.0 > 101 && waiting.len() < MOST {
            waiting.push_back(interim);
        }
    }

    /// Bytes of those that wait.
    pub(crate) fn held(&self) -> usize {
        self.0.borrow().iter().map(|interim| size_of::<Interim>() + interim.lines.capacity()).sum()
    }

    /// Whether there is nothing to be told.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Interim> {
        self.0.borrow_mut().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_request_has_left_is_not_for_the_next() {
        let queue = InterimQueue::default();
        let other = queue.clone();
        let memory = Rc::as_ptr(&queue.0);
        queue.push(Interim { status: Status::EARLY_HINTS, lines: FieldLines::new() });
        drop(queue);
        assert!(InterimQueue::default().is_empty(), "somebody holds it still");
        assert!(!other.is_empty());
        drop(other);
        let next: Vec<InterimQueue> = (0..3).map(|_| InterimQueue::default()).collect();
        assert!(next.iter().any(|queue| Rc::as_ptr(&queue.0) == memory), "it is used again");
        assert!(next.iter().all(InterimQueue::is_empty));
    }
}
