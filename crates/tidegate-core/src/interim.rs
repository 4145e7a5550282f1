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
#[derive(Debug, Clone, Default)]
pub struct InterimQueue(Rc<RefCell<VecDeque<Interim>>>);

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
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Interim> {
        self.0.borrow_mut().pop_front()
    }
}
