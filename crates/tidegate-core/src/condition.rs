//! Conditions of routes: whether a request is one that a route is for, and which clause says that it is not.
//!
//! Asked by `site`, for each route whose pattern fits. Nothing here waits: of files it asks what the kernel knows without a
//! disk, and has the rest found out behind its back.

use crate::access_data::AccessView;
use crate::exchange::Exchange;
use crate::hosts;
use crate::request_values;
use crate::template::ValueTemplate;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;
use tidegate_config::settings::{Clause, ClientFacts, Condition, Network, PathPattern, Route};
use tidegate_http::Method;
use tidegate_io::blocking;
use tidegate_io::file::{Patience, is_there};
use tidegate_io::runtime;
use tidegate_io::unanswered;

/// What the conditions of a site ask about that no request says.
#[derive(Default)]
pub(crate) struct Facts {
    files: HashMap<PathBuf, Rc<Presence>>,
    /// Those of the site, whichever route asks.
    values: HashMap<String, Rc<ValueTemplate>>,
}

impl Facts {
    /// Of all routes of a site. Looks at the files that they name.
    pub(crate) fn of(routes: &[Route]) -> Facts {
        let mut facts = Facts::default();
        for route in routes {
            let conditions = route.conditions.iter().flat_map(|clause| clause.condition.parts());
            for condition in conditions {
                match condition {
                    Condition::File(path) if !facts.files.contains_key(path) => {
                        facts.files.insert(path.clone(), Rc::new(Presence::of(path)));
                    }
                    Condition::Value(named) if !facts.values.contains_key(&named.name) => {
                        let map = route.values.get(&named.name).map(ValueTemplate::of);
                        facts.values.extend(map.map(|map| (named.name.clone(), map)));
                    }
                    _ => {}
                }
            }
        }
        facts
    }

    /// The first clause that keeps a request from a route.
    pub(crate) fn first_unmet<'c>(
        &self,
        clauses: &'c [Clause],
        view: &AccessView,
        exchange: &Exchange<'_>,
    ) -> Option<&'c Clause> {
        clauses.iter().find(|clause| !self.holds(clause, view, exchange))
    }

    fn holds(&self, clause: &Clause, view: &AccessView, exchange: &Exchange<'_>) -> bool {
        self.is_met(&clause.condition, view, exchange) != clause.is_negated
    }

    fn is_met(&self, condition: &Condition, view: &AccessView, exchange: &Exchange<'_>) -> bool {
        match condition {
            Condition::Method(methods) => methods.iter().any(|method| {
                method == exchange.method_token || method == "GET" && exchange.method == Method::Head
            }),
            Condition::Path(patterns) => patterns.iter().any(|pattern| pattern.matches(exchange.path)),
            Condition::Host(patterns) => {
                let host = hosts::host(exchange.authority);
                patterns.iter().any(|pattern| pattern.matches(&host))
            }
            Condition::Scheme(scheme) => scheme == exchange.scheme,
            Condition::Header(named) => named.fits(request_values::field(exchange, &named.name).as_deref()),
            Condition::Query(named) => {
                named.fits(request_values::parameter(exchange, &named.name).as_deref())
            }
            Condition::Cookie(named) => named.fits(request_values::cookie(exchange, &named.name)),
            Condition::Value(named) => {
                let result = self.values.get(&named.name).map(|value| value.result(exchange));
                named.fits(result.filter(|result| !result.is_empty()).map(str::as_bytes))
            }
            Condition::Client(networks) => {
                let remote = &exchange.state.remote;
                let client = remote.client.ip();
                // Whoever has a proxy on this machine would otherwise be of this machine.
                match remote.is_stand_in() {
                    false => networks.covers(client),
                    true => {
                        networks.iter().any(|network| *network != Network::Local && network.covers(client))
                    }
                }
            }
            Condition::ClientList(lists) => {
                let client = exchange.state.remote.client.ip();
                let facts = view.at(exchange.now);
                client.is_some_and(|client| lists.iter().any(|list| facts.is_listed(&list.0, client)))
            }
            Condition::Country(countries) => {
                countries.contains(&view.country(exchange.state.remote.client.ip()))
            }
            Condition::Time(windows) => windows.iter().any(|window| window.holds_at(exchange.now)),
            Condition::File(path) => self.files.get(path).is_some_and(|file| file.is_there()),
            Condition::Match(_, clauses) => clauses.iter().all(|clause| self.holds(clause, view, exchange)),
        }
    }
}

/// Whether a path is looked at by a condition, and is not the same to it as another one.
pub(crate) fn tells_apart(clauses: &[Clause], one: &[u8], other: &[u8]) -> bool {
    let mut parts = clauses.iter().flat_map(|clause| clause.condition.parts());
    parts.any(|part| match part {
        Condition::Path(patterns) => {
            let fits = |path: &[u8]| patterns.iter().any(|pattern: &PathPattern| pattern.matches(path));
            fits(one) != fits(other)
        }
        Condition::Value(_) => true, // it may follow from the path
        _ => false,
    })
}

/// How long the first look at a file may take.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Looks that were given up and still wait: with so many a file system is known to hang, and what else takes time is taken for
/// absent at once.
const GIVEN_UP: usize = 4;
static GIVEN_UP_LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Whether a file is there; not, where that cannot be told in time. It is looked at again when somebody asks.
fn looked_up(path: PathBuf) -> bool {
    if GIVEN_UP_LOOKS.load(Relaxed) >= GIVEN_UP || unanswered::examine(&path).is_err() {
        return false;
    }
    let (found, told) = channel();
    // Whoever comes second to the end of it sees to the count.
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_here = is_over.clone();
    let look = move || {
        let _ = found.send(is_there(&path, Patience::Wait).unwrap_or(false));
        if is_over.swap(true, Relaxed) {
            GIVEN_UP_LOOKS.fetch_sub(1, Relaxed);
        }
    };
    if std::thread::Builder::new().name("tidegate-look".into()).spawn(look).is_err() {
        return false;
    }
    told.recv_timeout(FIRST_LOOK).unwrap_or_else(|_| {
        GIVEN_UP_LOOKS.fetch_add(1, Relaxed);
        if is_over_here.swap(true, Relaxed) {
            GIVEN_UP_LOOKS.fetch_sub(1, Relaxed);
        }
        false
    })
}

/// Whether a file is there, found out without waiting for a disk.
struct Presence {
    path: PathBuf,
    /// As it was when it was looked at last.
    known: Cell<bool>,
    /// Somebody is looking.
    is_looked_at: Cell<bool>,
}

impl Presence {
    /// Looks once, and waits for it, but not for a file system that does not answer: settings are being put in force, and this
    /// is a worker's thread.
    fn of(path: &Path) -> Presence {
        let known = match is_there(path, Patience::Cached) {
            Ok(known) => known,
            Err(_) => looked_up(path.to_owned()),
        };
        Presence { path: path.to_owned(), known: Cell::new(known), is_looked_at: Cell::new(false) }
    }

    /// What the kernel knows. Where it would have to ask a disk, what was known before: the pool asks, and the kernel knows
    /// the next time.
    fn is_there(self: &Rc<Self>) -> bool {
        match is_there(&self.path, Patience::Cached) {
            Ok(known) => self.known.set(known),
            Err(_) => self.look(),
        }
        self.known.get()
    }

    #[cold]
    fn look(self: &Rc<Self>) {
        if self.is_looked_at.replace(true) {
            return;
        }
        let path = self.path.clone();
        let Ok(pending) = blocking::run(move || is_there(&path, Patience::Wait)) else {
            return self.is_looked_at.set(false);
        };
        let presence = self.clone();
        runtime::with(|runtime| {
            runtime.spawn(async move {
                if let Ok(known) = pending.await {
                    presence.known.set(known);
                }
                presence.is_looked_at.set(false);
            });
        });
    }
}
