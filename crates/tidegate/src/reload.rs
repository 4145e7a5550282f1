//! Taking up new settings without closing a connection.
//!
//! Everything that can fail is done before anything changes: reading, opening logs, opening sockets. Then
//! each worker takes the settings up between two requests. A mistake in one site leaves that site as it was;
//! any other mistake leaves everything as it was.

use crate::control::Reply;
use crate::master::{self, Master};
use crate::pid_file::PidFile;
use crate::revision::{self, keep_rejected};
use crate::sockets::Sockets;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_core::listen::Listener;
use tidegate_core::worker::Command;

/// How long a worker may take to take settings up.
const PATIENCE: Duration = Duration::from_secs(10);

impl Master {
    /// Loads the settings and takes them up; the reply says what came of it, mistakes included.
    pub fn reload(&mut self) -> Reply {
        let mut loaded = self.options.load();
        let kept = keep_rejected(&mut loaded, &self.settings);
        let has_errors = loaded.has_errors();
        let mut said = loaded.render(false);
        let Some(settings) = loaded.settings else {
            said.push_str(&format!("nothing has changed: revision {} stays in force\n", self.revision));
            return Reply::failed(said);
        };
        let mut notes = self.what_takes_more(&settings);
        match self.take_up(&settings, &mut notes) {
            Err(error) => {
                said.push_str(&format!("{error:#}\n"));
                said.push_str(&format!("nothing has changed: revision {} stays in force\n", self.revision));
                Reply::failed(said)
            }
            Ok(()) => {
                for note in notes {
                    said.push_str(&format!("{note}\n"));
                }
                said.push_str(&format!("revision {} is in force", self.revision));
                if !kept.is_empty() {
                    said.push_str(&format!(", but for {}, left as it was", kept.join(", ")));
                }
                said.push('\n');
                if has_errors { Reply::failed(said) } else { Reply::ok(said) }
            }
        }
    }

    /// What a reload leaves alone.
    fn what_takes_more(&self, settings: &Settings) -> Vec<String> {
        let mut notes = Vec::new();
        let (wanted, present) = (revision::workers(settings), self.workers.len());
        if wanted != present {
            notes.push(format!("workers stay {present}: {wanted} take `tidegate upgrade` or a restart"));
        }
        if self.options.control.is_none() && settings.control != self.settings.control {
            notes.push(
                "the control socket stays where it is: another takes `tidegate upgrade` or a restart".into(),
            );
        }
        notes
    }

    fn take_up(&mut self, settings: &Settings, notes: &mut Vec<String>) -> Result<()> {
        master::open_logs(&self.writer, settings)?;
        let sockets = Sockets::open(settings, self.workers.len(), &self.sockets)?;
        let fitted = sockets.fit(settings, self.workers.len());
        if let Err(error) = self.tell_all(&fitted, &sockets) {
            // Those that took it up go back; this cannot fail for a reason that the settings gave.
            let back = self.tell_all(&self.settings, &self.sockets);
            return Err(match back {
                Ok(()) => error,
                Err(again) => error.context(format!("and going back failed ({again:#}); restart the server")),
            });
        }
        self.sockets.remove_files(&sockets);
        self.sockets = sockets;
        if let Err(error) = master::use_error_log(&self.writer, settings) {
            notes.push(format!("{error:#}"));
        }
        if let Err(error) = self.move_pid_file(settings) {
            notes.push(format!("{error:#}"));
        }
        self.settings = fitted;
        self.pools.adopt(&self.settings);
        self.revision = self.source.next_revision(&self.settings, self.listening());
        Ok(())
    }

    /// Gives every worker the settings and its copies of the sockets, and waits until all have answered.
    fn tell_all(&self, settings: &Arc<Settings>, sockets: &Sockets) -> Result<()> {
        let count = self.workers.len();
        let copies: std::io::Result<Vec<Vec<Listener>>> =
            (0..count).map(|worker| sockets.for_worker(worker, count)).collect();
        let mut answers = Vec::with_capacity(count);
        for (worker, listeners) in self.workers.iter().zip(copies.context("cannot copy a socket")?) {
            let (reply, answer) = channel();
            worker.send(Command::Adopt(settings.clone(), listeners, reply));
            answers.push(answer);
        }
        let mut outcome = Ok(());
        for (number, answer) in answers.iter().enumerate() {
            match answer.recv_timeout(PATIENCE) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => outcome = Err(error.into()),
                // It has ended; the one that takes its place begins with whatever is in force by then.
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) => bail!("worker {number} does not answer"),
            }
        }
        outcome
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
