//! Taking up new settings without closing a connection.
//!
//! Everything that can fail is done before anything changes: reading, opening logs, opening sockets, and then
//! every server process prepares. Only when all have, all take the settings up, between two requests. A mistake
//! in one site leaves that site as it was; any other mistake leaves everything as it was. A name that is served
//! and would no longer be stays as well, unless the operator has said that it may go.
//!
//! What a process cannot change in itself (how many workers it has, who it is, what it may read) takes other
//! processes: they start beside the present ones, and those drain when the new ones serve.

use super::control::Reply;
use super::logs::Logs;
use super::pid_file::PidFile;
use super::servers::{Layout, Revision, START_PATIENCE, Servers, State};
use super::sockets::Sockets;
use super::{Master, PATIENCE, sealing, use_error_log, users};
use crate::certificates::CertificateWatch;
use crate::link::ToServer;
use crate::revision::{self, Kept, keep_served};
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_core::log;
use tidegate_core::tls::TlsFiles;

impl Master {
    /// Loads the settings and takes them up; the reply says what came of it, mistakes included.
    pub fn reload(&mut self, allows_loss: bool) -> Reply {
        let mut loaded = self.options.load();
        let Kept { mistaken, missing, lost } = keep_served(&mut loaded, &self.current.settings, allows_loss);
        let has_errors = loaded.has_errors();
        let mut said = loaded.render(false);
        let Some(mut settings) = loaded.settings else {
            said.push_str(&format!("nothing has changed: revision {} stays in force\n", self.current.number));
            return Reply::failed(said);
        };
        if !missing.is_empty() {
            said.push_str(&format!(
                "no site of {} is written for {} any more: what is served stays as it was; run `tidegate reload \
                 --allow-loss` to have it go\n",
                self.options.settings,
                missing.join(", ")
            ));
        }
        let mut notes = self.what_takes_more(&settings);
        if !lost.is_empty() {
            notes.push(format!("no longer served: {}", lost.join(", ")));
        }
        let outcome = users::assign(&mut settings, users::can_be_anybody()).and_then(|assigned| {
            let unsealed = sealing::seal(&mut settings, self.sealed_control.as_ref());
            self.take_up(settings, &mut notes)?;
            notes.extend(unsealed.iter().filter(|new| !self.unsealed.contains(new)).cloned());
            self.unsealed = unsealed;
            notes.extend(assigned.iter().filter(|new| !self.assigned.contains(new)).map(ToString::to_string));
            self.assigned = assigned;
            Ok(())
        });
        match outcome {
            Err(error) => {
                said.push_str(&format!("{error:#}\n"));
                said.push_str(&format!(
                    "nothing has changed: revision {} stays in force\n",
                    self.current.number
                ));
                Reply::failed(said)
            }
            Ok(()) => {
                for note in notes {
                    said.push_str(&format!("{note}\n"));
                }
                said.push_str(&format!("revision {} is in force", self.current.number));
                let kept: Vec<String> = mistaken.into_iter().chain(missing).collect();
                if !kept.is_empty() {
                    said.push_str(&format!(", but for {}, left as it was", kept.join(", ")));
                }
                said.push('\n');
                if has_errors || !kept.is_empty() { Reply::failed(said) } else { Reply::ok(said) }
            }
        }
    }

    /// What a reload leaves alone.
    fn what_takes_more(&self, settings: &Settings) -> Vec<String> {
        let mut notes = Vec::new();
        if self.options.control.is_none() && settings.control != self.current.settings.control {
            notes.push(
                "the control socket stays where it is: another takes `tidegate upgrade` or a restart".into(),
            );
        }
        notes
    }

    pub(super) fn take_up(&mut self, settings: Settings, notes: &mut Vec<String>) -> Result<()> {
        let seen = CertificateWatch::begin(&settings);
        let files = TlsFiles::read(&settings, &self.current.tls)?;
        self.take_up_with(settings, files, seen, notes)
    }

    /// The same with files that were read, as they were seen before that.
    pub(super) fn take_up_with(
        &mut self,
        settings: Settings,
        files: TlsFiles,
        seen: CertificateWatch,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        // Who is about to start does so with what is in force, and takes part.
        self.wait_until(START_PATIENCE, |servers| servers.in_state(State::Starting).is_empty());
        let (identity, warning) = users::identity(settings.user.as_ref())?;
        notes.extend(warning.filter(|_| settings.user != self.current.settings.user));
        let layout = Layout::of(&settings, revision::workers(&settings), identity);
        let logs = Logs::open(&settings, &self.current.logs)?;
        let sockets = Sockets::open(&settings, layout.total(), &self.current.sockets)?;
        let number = self.current.number + 1;
        let next = Revision { number, settings: Arc::new(settings), sockets, tls: files, seen, logs, layout };
        self.tls.check(&next)?;
        let replaced = self.bring_up(&next)?;
        self.current.sockets.remove_files(&next.sockets);
        let previous = std::mem::replace(&mut self.current, next);
        if replaced {
            self.servers.set_places(self.current.layout.processes);
            let count = self.current.layout.processes;
            notes.push(format!(
                "{count} new server processes took over; the previous ones finish what is open"
            ));
        }
        let settings = self.current.settings.clone();
        if let Err(error) = use_error_log(&self.writer, &self.current.logs, &settings) {
            notes.push(format!("{error:#}"));
        }
        if let Err(error) = self.move_pid_file(&settings) {
            notes.push(format!("{error:#}"));
        }
        self.pools.adopt(&settings);
        self.upstreams.adopt(&settings, self.tls.store());
        drop(previous);
        self.tls.adopt(&mut self.current);
        self.take_number();
        Ok(())
    }

    /// Has the server processes take `next` up, or puts others in their place; whether it was others. After
    /// an error all is as it was.
    fn bring_up(&mut self, next: &Revision) -> Result<bool> {
        let present = self.servers.in_state(State::Serving);
        let suits = self.servers.list.iter().filter(|server| server.state == State::Serving);
        let suits = suits.filter(|server| server.layout.suits(&next.layout)).count();
        if suits == next.layout.processes && suits == present.len() {
            for id in &present {
                self.servers.prepare(*id, next)?;
            }
            if let Err(error) = self.take_up_in_all(&present, PATIENCE) {
                present.iter().for_each(|id| self.servers.tell(*id, &ToServer::Discard));
                return Err(error);
            }
            return Ok(false);
        }
        let mut fresh = Vec::with_capacity(next.layout.processes);
        let mut outcome = Ok(());
        for place in 0..next.layout.processes {
            match self.servers.start(place, next, false) {
                Ok(id) => fresh.push(id),
                Err(error) => outcome = Err(error),
            }
        }
        if let Err(error) = outcome.and_then(|()| self.take_up_in_all(&fresh, START_PATIENCE)) {
            fresh.iter().for_each(|id| self.servers.kill(*id));
            return Err(error);
        }
        // One that ended meanwhile may have a successor with the old settings by now.
        let old = self.servers.list.iter().filter(|server| !fresh.contains(&server.id));
        let old: Vec<u64> =
            old.filter(|server| server.state != State::Draining).map(|server| server.id).collect();
        old.iter().for_each(|id| self.servers.drain(*id, false, self.current.settings.drain_timeout));
        // Who connects from now on sees the new settings.
        self.wait_until(PATIENCE, |servers| servers.have_done(&old));
        Ok(true)
    }

    /// Waits until these processes have prepared, and has them commit; an error when one of them cannot.
    pub(super) fn take_up_in_all(&mut self, ids: &[u64], patience: Duration) -> Result<()> {
        let find = |servers: &Servers, id: u64| servers.list.iter().any(|server| server.id == id);
        let served = self.servers.list.iter().filter(|server| server.was_serving());
        let served: Vec<u64> = served.map(|server| server.id).collect();
        let mut fresh = ids.iter().filter(|id| !served.contains(id));
        self.wait_until(patience, |servers| {
            let mut asked = servers.list.iter().filter(|server| ids.contains(&server.id));
            asked.all(|server| server.reply.is_some())
        });
        for server in self.servers.list.iter().filter(|server| ids.contains(&server.id)) {
            match &server.reply {
                Some(Ok(())) => {}
                // What serves and ends is replaced, by one that begins with what is in force by then.
                Some(Err(_)) if server.has_ended && server.was_serving() => {}
                Some(Err(why)) => return Err(anyhow!("{why}")),
                None => {
                    return Err(anyhow!(
                        "server process {0} does not answer; when it hangs, end it with \"kill -9 {0}\": another takes \
                         its place",
                        server.pid
                    ));
                }
            }
        }
        if fresh.any(|id| !find(&self.servers, *id)) {
            bail!("a server process has ended at its start; what it said is above, or in the error log");
        }
        ids.iter().for_each(|id| self.servers.tell(*id, &ToServer::Commit));
        if !self.wait_until(PATIENCE, |servers| servers.have_done(ids)) {
            // It has prepared, so it will; until then it serves as before.
            log::error("a server process takes long to take up settings");
        }
        Ok(())
    }

    fn move_pid_file(&mut self, settings: &Settings) -> Result<()> {
        let present = self.pid_file.as_ref().map(PidFile::path);
        if present == settings.pid_file.as_deref() {
            return Ok(());
        }
        let next = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
        if let Some(old) = std::mem::replace(&mut self.pid_file, next) {
            old.remove();
        }
        Ok(())
    }
}
