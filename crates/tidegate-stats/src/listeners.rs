//! What each listener of a worker has counted. Names are addresses of the settings; nothing that a client sends makes one.
//!
//! A worker asks for the counts of an address when it begins to listen ([`ListenerTable::of`]) and counts without a lock; whoever reports adds
//! up what all workers say ([`add_listeners`]).

use crate::Counter;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses that a worker remembers at most. One of earlier settings makes room for a new one.
const MOST: usize = 1024;

/// What a worker has counted of an address. Only its thread writes.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    address: String,
    /// Connections accepted.
    pub accepted: Counter,
    /// Of these, those that were answered and closed at once, since a limit allowed no more.
    pub refused: Counter,
}

/// The counts of all addresses that a worker has listened on.
#[derive(Debug, Default)]
pub struct ListenerTable(Mutex<Vec<Arc<ListenerCounts>>>);

/// What was counted of an address, by one worker or by many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerFigures {
    /// As the worker listens on it, such as `127.0.0.1:80` or `unix:/run/http.sock`.
    pub address: String,
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, those that were answered and closed at once.
    pub refused: u64,
}

impl ListenerTable {
    /// The counts of an address: those that it had before, where it was listened on earlier.
    pub fn of(&self, address: &str) -> Arc<ListenerCounts> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = known.iter().find(|counts| counts.address == address) {
            return counts.clone();
        }
        if known.len() >= MOST
            && let Some(unused) = known.iter().position(|counts| Arc::strong_count(counts) == 1)
        {
            known.remove(unused);
        }
        let counts = Arc::new(ListenerCounts { address: address.to_owned(), ..ListenerCounts::default() });
        known.push(counts.clone());
        counts
    }

    /// What was counted of each so far.
    pub fn figures(&self) -> Vec<ListenerFigures> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let figures = |counts: &Arc<ListenerCounts>| ListenerFigures {
            address: counts.address.clone(),
            accepted: counts.accepted.value(),
            refused: counts.refused.value(),
        };
        known.iter().map(figures).collect()
    }
}

/// Adds what others have counted, by address.
pub fn add_listeners(sum: &mut Vec<ListenerFigures>, more: &[ListenerFigures]) {
    for of in more {
        match sum.iter_mut().find(|known| known.address == of.address) {
            Some(known) => {
                known.accepted = known.accepted.wrapping_add(of.accepted);
                known.refused = known.refused.wrapping_add(of.refused);
            }
            None => sum.push(of.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(address: &str, accepted: u64, refused: u64) -> ListenerFigures {
        ListenerFigures { address: address.into(), accepted, refused }
    }

    #[test]
    fn an_address_that_comes_again_goes_on_and_workers_add_up() {
        let table = ListenerTable::default();
        table.of("a:1").accepted.add(3);
        table.of("b:2").refused.add(1);
        table.of("a:1").accepted.add(4);
        assert_eq!(table.figures(), [figures("a:1", 7, 0), figures("b:2", 0, 1)]);
        let mut sum = vec![figures("b:2", 5, 5)];
        add_listeners(&mut sum, &table.figures());
        assert_eq!(sum, [figures("b:2", 5, 6), figures("a:1", 7, 0)]);
    }

    #[test]
    fn addresses_of_earlier_settings_make_room() {
        let table = ListenerTable::default();
        let held = table.of("held");
        for number in 0..MOST * 2 {
            table.of(&number.to_string()).accepted.add(1);
        }
        held.accepted.add(1);
        let figures = table.figures();
        assert_eq!((figures.len(), &figures[0]), (MOST, &self::figures("held", 1, 0)));
    }
}
