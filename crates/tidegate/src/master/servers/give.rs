//! What all server processes are given between two revisions: certificates, credentials, lists, logs.

use super::super::logs::Logs;
use super::{Servers, copies};
use crate::link::ToServer;
use std::collections::HashSet;
use std::io;
use tidegate_config::credentials::Credential;
use tidegate_config::settings::LogTarget;
use tidegate_core::access_data::AccessFile;
use tidegate_core::log;
use tidegate_core::tls::TlsUpdate;

impl Servers {
    /// Tells every process what has changed of TLS.
    pub fn give_tls(&mut self, update: &TlsUpdate) {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            server.order(&ToServer::Tls(update.clone()), Vec::new());
        }
    }

    /// Tells every process what logins compare with now: whom, each of which says when it goes by it.
    pub fn give_credentials(&mut self, renewed: &[Credential]) -> HashSet<u64> {
        let open = self.list.iter().filter(|server| !server.has_ended);
        let told = open.filter(|server| server.order(&ToServer::Credentials(renewed.to_vec()), Vec::new()));
        told.map(|server| server.id).collect()
    }

    /// Gives every process what access asks of these files, which have changed.
    pub fn give_access(&mut self, fresh: &[AccessFile]) {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            match copies(fresh) {
                Ok((keys, memory)) => drop(server.order(&ToServer::Access(keys), memory)),
                // It is looked at again with the next change, and read by the next process.
                Err(error) => log::error(format_args!("cannot copy what access asks of files: {error}")),
            }
        }
    }

    /// Gives every process these logs, which were opened anew.
    pub fn give_logs(&mut self, logs: &Logs, fresh: &HashSet<LogTarget>) -> io::Result<()> {
        for server in &mut self.list {
            let (targets, files) = logs.copies_where(|target| fresh.contains(target))?;
            server.logs_given += u32::from(server.order(&ToServer::Logs(targets), files));
        }
        Ok(())
    }
}
