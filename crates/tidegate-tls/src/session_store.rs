//! Sessions with servers that may be resumed, for [`Connector`](crate::Connector).
//!
//! Rustls' own keeps eight tickets for a name. Who opens many connections to one server at once needs as many:
//! each ticket is used once (RFC 8446 section C.4).

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of which sessions are kept; beyond it those of some other name are forgotten.
const NAMES: usize = 256;
/// Tickets that are kept for a name; the oldest goes first.
const TICKETS: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct SessionStore {
    names: Mutex<HashMap<ServerName<'static>, Known>>,
}

#[derive(Default)]
struct Known {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl SessionStore {
    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Known>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, name: ServerName<'static>, change: impl FnOnce(&mut Known) -> R) -> R {
        let mut names = self.lock();
        if names.len() >= NAMES
            && !names.contains_key(&name)
            && let Some(other) = names.keys().next().cloned()
        {
            names.remove(&other);
        }
        change(names.entry(name).or_default())
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionStore({} names)", self.lock().len())
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.with(name, |known| known.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().get(name).and_then(|known| known.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.with(name, |known| known.tls12 = Some(session));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().get(name).and_then(|known| known.tls12.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(known) = self.lock().get_mut(name) {
            known.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.with(name, |known| {
            if known.tls13.len() >= TICKETS {
                known.tls13.pop_front();
            }
            known.tls13.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().get_mut(name)?.tls13.pop_back()
    }
}
