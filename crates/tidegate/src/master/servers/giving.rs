//! What server processes are given: settings with all that belongs to them, and what changes beside them.

use super::{ACCESS_PAUSE, Servers, State, sealing};
use crate::link::{Link, ToServer};
use crate::master::Revision;
use crate::master::logs::Logs;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;
use tidegate_config::credentials::Credential;
use tidegate_config::settings::{Level, LogTarget};
use tidegate_core::access_data::{self, AccessFile, DataPlace};
use tidegate_core::log;
use tidegate_core::tls::TlsUpdate;

/// What for a process is given settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// It serves by them.
    Serve,
    /// The same, in the place of one that has ended.
    Recover,
    /// It ends, and answers by them what still comes.
    Retire,
}

impl Servers {
    pub(super) fn send_settings(&mut self, id: u64, revision: &Revision, what_for: Given) -> Result<()> {
        let Some(server) = self.list.iter_mut().find(|server| server.id == id) else { return Ok(()) };
        self.prepared += 1;
        server.asked = self.prepared;
        if server.state == State::Serving {
            server.before.get_or_insert(server.revision);
        }
        server.revision = revision.number;
        let number = server.asked;
        let (logs, mut descriptors) = revision.logs.copies().context("cannot copy a log")?;
        let (tables, memories) = revision.rates.copies().context("cannot copy the memory of limits")?;
        let of_tables = memories.len();
        descriptors.extend(memories);
        let layout = &revision.layout;
        let workers = if what_for == Given::Retire { 0 } else { layout.workers };
        let mut listeners = Vec::with_capacity(workers);
        for worker in 0..workers {
            let index = server.place * layout.workers + worker;
            let open = revision.sockets.for_worker(index, layout.total()).context("cannot copy a socket")?;
            listeners.push(open.iter().map(|listener| listener.address.clone()).collect());
            descriptors.extend(open.into_iter().map(|listener| listener.fd));
        }
        let update = TlsUpdate { files: revision.tls.clone(), ..self.tls.clone() };
        let settings = match what_for {
            Given::Retire => revision.fitted_to(&server.layout),
            Given::Serve | Given::Recover => revision.fitted(),
        };
        let off_limits = sealing::paths_of(&revision.settings);
        let message = ToServer::Prepare {
            number,
            settings,
            is_recovery: what_for == Given::Recover,
            logs,
            tables,
            memories: of_tables,
            listeners: (what_for != Given::Retire).then_some(listeners),
            off_limits,
        };
        let frame = Link::frame(&message).context("a server process cannot be told of the settings")?;
        let (places, memories) =
            copies(revision.access.files.all()).context("cannot copy what access asks of files")?;
        // One that is not told has ended, or does so now: that is what is heard of it.
        let level = self.log_level;
        server.told(|link| {
            (level.is_none() || link.order(&ToServer::LogLevel(level), Vec::new()))
                && link.order(&ToServer::Tls(update), Vec::new())
                && (places.is_empty() || link.order(&ToServer::Access(places), memories))
                && link.order_frame(frame, descriptors)
        });
        Ok(())
    }

    /// Tells every process what has changed of TLS.
    pub fn give_tls(&mut self, update: &TlsUpdate) {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            server.order(&ToServer::Tls(update.clone()), Vec::new());
        }
    }

    /// Tells every process what the error log takes, those that begin later as well.
    pub fn give_log_level(&mut self, level: Option<Level>) {
        self.log_level = level;
        for server in self.list.iter().filter(|server| !server.has_ended) {
            server.order(&ToServer::LogLevel(level), Vec::new());
        }
    }

    /// Tells every process what logins compare with now.
    pub fn give_credentials(&mut self, renewed: &[Credential]) {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            server.order(&ToServer::Credentials(renewed.to_vec()), Vec::new());
        }
    }

    /// Has every process send back a mark, once it goes by all that it was told before: those that will.
    pub fn mark(&mut self, number: u64) -> HashSet<u64> {
        let open = self.list.iter().filter(|server| !server.has_ended);
        let told = open.filter(|server| server.order(&ToServer::Mark(number), Vec::new()));
        told.map(|server| server.id).collect()
    }

    /// Gives every process what access asks of these files, which have changed.
    ///
    /// # Errors
    /// There is no descriptor left. Not all have got it.
    pub fn give_access<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a AccessFile> + Clone,
    ) -> io::Result<()> {
        for server in self.list.iter().filter(|server| !server.has_ended) {
            let (places, memories) = copies(files.clone())?;
            server.order(&ToServer::Access(places), memories);
        }
        Ok(())
    }

    /// Gives what access asks of files to those who had no descriptors for it, where it is time.
    pub(super) fn give_access_again(&mut self, now: Instant, revision: &Revision) {
        for server in &mut self.list {
            if server.access_due.take_if(|at| *at <= now).is_none() || server.has_ended {
                continue;
            }
            match copies(revision.access.files.all()) {
                Ok((places, memories)) => drop(server.order(&ToServer::Access(places), memories)),
                Err(_) => server.access_due = Some(now + ACCESS_PAUSE),
            }
        }
    }

    /// A revision was given up that processes may have prepared: what its files said is again what those of `present` do.
    pub fn restore(&mut self, present: &Revision) {
        self.give_tls(&TlsUpdate { files: present.tls.clone(), ..TlsUpdate::default() });
        if !present.access.files.is_empty()
            && let Err(error) = self.give_access(present.access.files.all())
        {
            log::error(format_args!("a server process may go by lists that were just refused: {error}"));
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

/// Files as they are passed on.
fn copies<'a>(files: impl IntoIterator<Item = &'a AccessFile>) -> io::Result<(Vec<DataPlace>, Vec<OwnedFd>)> {
    let (places, memories) = access_data::places(files);
    Ok((places, memories.iter().map(|memory| memory.try_clone()).collect::<io::Result<_>>()?))
}
