//! What responses have said of the queries of their paths (`No-Vary-Search`), where the settings want to hear of it.
//!
//! A key is written by what the last response for its path has said; each worker finds that out for itself. What is found under
//! such a key is for a request only if its own response says so.

use super::policy::authority;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tidegate_core::Exchange;
use tidegate_http::FieldLines;
use tidegate_http::cache::NoVarySearch;

/// Paths of a route that a worker knows. One more, and it forgets all of them, which costs a fetch each.
const MOST: usize = 1024;

/// What a worker knows of the paths of a route.
#[derive(Default)]
pub(super) struct Searches(RefCell<HashMap<String, Rc<NoVarySearch>>>);

impl Searches {
    /// What the last response for the path of a request has said.
    pub(super) fn of(&self, exchange: &Exchange<'_>) -> Option<Rc<NoVarySearch>> {
        self.0.borrow().get(&place(exchange)).cloned()
    }

    /// A response to the request has these fields.
    pub(super) fn learn(&self, exchange: &Exchange<'_>, lines: &FieldLines) {
        let place = place(exchange);
        let mut known = self.0.borrow_mut();
        match NoVarySearch::parse(lines) {
            None => drop(known.remove(&place)),
            Some(search) if known.get(&place).is_some_and(|known| **known == search) => {}
            Some(search) => {
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(place, Rc::new(search));
            }
        }
    }
}

/// Whether a response that was made for the path and query `stored` is one for those `asked`, by what it says itself.
pub(super) fn is_same(stored: &str, asked: &str, lines: &FieldLines) -> bool {
    let query = |target: &str| target.split_once('?').map(|(_, query)| query.to_owned());
    stored == asked
        || NoVarySearch::parse(lines)
            .is_some_and(|search| search.is_same(query(stored).as_deref(), query(asked).as_deref()))
}

/// Host and path, which a host cannot pretend to be the end of.
fn place(exchange: &Exchange<'_>) -> String {
    let authority = authority(exchange);
    let target = exchange.resolved_target();
    let path = target.split('?').next().unwrap_or_default();
    let host = authority.host.to_ascii_lowercase();
    format!("{}://{host}:{}{path}", exchange.scheme, authority.port.unwrap_or_default())
}
