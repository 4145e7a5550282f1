//! Conditions of routes: whether a request is one that a route is for, and which clause says that it is not.
//!
//! Asked by `site`, for each route whose pattern fits. Nothing here waits: of files it asks what the kernel knows without a
//! disk, and has the rest found out behind its back.

use crate::exchange::Exchange;
use crate::hosts;
use crate::template::ValueTemplate;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tidegate_config::settings::{Clause, Condition, HostPattern, Network, PathPattern, Route};
use tidegate_http::{Method, query};
use tidegate_io::blocking;
use tidegate_io::file::{Patience, is_there};
use tidegate_io::runtime;

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
        exchange: &Exchange<'_>,
    ) -> Option<&'c Clause> {
        clauses.iter().find(|clause| !self.holds(clause, exchange))
    }

    fn holds(&self, clause: &Clause, exchange: &Exchange<'_>) -> bool {
        self.is_met(&clause.condition, exchange) != clause.is_negated
    }

    fn is_met(&self, condition: &Condition, exchange: &Exchange<'_>) -> bool {
        match condition {
            Condition::Method(methods) => methods.iter().any(|method| {
                method == exchange.method_token || method == "GET" && exchange.method == Method::Head
            }),
            Condition::Path(patterns) => patterns.iter().any(|pattern| pattern.matches(exchange.path)),
            Condition::Host(patterns) => {
                let host = hosts::host(exchange.authority);
                patterns.iter().any(|pattern| is_host(pattern, &host))
            }
            Condition::Scheme(scheme) => scheme == exchange.scheme,
            Condition::Header(named) => named.fits_any(exchange.fields.all(&named.name)),
            Condition::Query(named) => {
                let values: SmallVec<[Cow<'_, [u8]>; 4]> =
                    query::values(exchange.query.unwrap_or_default(), &named.name).collect();
                named.fits_any(values.iter().map(|value| &**value))
            }
            Condition::Cookie(named) => named.fits_any(cookies(exchange, &named.name)),
            Condition::Value(named) => {
                let result = self.values.get(&named.name).map(|value| value.result(exchange));
                named.fits_any(std::iter::once(result.unwrap_or_default().as_bytes()))
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
            Condition::File(path) => self.files.get(path).is_some_and(|file| file.is_there()),
            Condition::Match(_, clauses) => clauses.iter().all(|clause| self.holds(clause, exchange)),
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

/// Both are in the one spelling of hosts.
fn is_host(pattern: &HostPattern, host: &str) -> bool {
    match pattern {
        HostPattern::Exact(name) => name == host,
        HostPattern::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
    }
}

/// The values of the cookies of a name (RFC 6265 section 5.4), in order.
pub(crate) fn cookies<'e>(
    exchange: &Exchange<'e>,
    name: &'e str,
) -> impl Iterator<Item = &'e [u8]> + use<'e> {
    let pairs = exchange.fields.all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
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
    /// Looks once, and waits for it: settings are being put in force.
    fn of(path: &Path) -> Presence {
        let known = Cell::new(is_there(path, Patience::Wait).unwrap_or(false));
        Presence { path: path.to_owned(), known, is_looked_at: Cell::new(false) }
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
