//! TLS with the servers of a directory: the terms for each.
//!
//! Who signs their certificates may change without a reload, and a process that serves reads no file: whatever the store of
//! the process has is taken, and kept, since what nobody keeps is let go of there.

use super::connection::Fault;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_config::settings::Directory;
use tidegate_config::settings::gateway::BackendTls;
use tidegate_core::tls::TlsStore;
use tidegate_tls::Connector;

/// The terms for each server.
pub struct Ways {
    store: Arc<TlsStore>,
    kept: Mutex<Vec<Option<Arc<Connector>>>>,
}

impl Ways {
    /// Those that the store has now.
    pub fn new(directory: &Directory, store: Arc<TlsStore>) -> Ways {
        let ways = Ways { store, kept: Mutex::new(vec![None; directory.servers.len()]) };
        ways.renew(directory);
        ways
    }

    /// Takes what the store has now.
    pub fn renew(&self, directory: &Directory) {
        for (server, settings) in directory.servers.iter().enumerate() {
            if let Some(terms) = settings.security.tls() {
                // Without any, connecting says so.
                let _ = self.way(server, terms);
            }
        }
    }

    /// The terms for a server.
    ///
    /// # Errors
    /// It is not known who signs its certificate.
    pub fn way(&self, server: usize, terms: &BackendTls) -> Result<Arc<Connector>, Fault> {
        let found = self.store.connector(terms);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = kept.get_mut(server) else {
            return Err(Fault::Terms("there is no such server".into()));
        };
        match (found, &kept) {
            (Ok(found), _) => Ok(kept.insert(found).clone()),
            (Err(_), Some(kept)) => Ok(kept.clone()),
            (Err(error), None) => Err(Fault::Terms(error.to_string())),
        }
    }
}
