//! The logs: opened by the master, written by the server processes, which need not be allowed to open them.

use super::wanted::Wanted;
use crate::descriptors;
use crate::link::close_apart;
use crate::revision::COMMAND_LINE;
use anyhow::{Context, Result, anyhow};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::LogTarget;
use tidegate_core::log::{self, ApplicationLog, Writer, open_file};
use tidegate_io::descriptors::is_exhaustion;
use tidegate_io::off_limits;

/// The log files of one revision, open.
#[derive(Default)]
pub struct Logs(Vec<(LogTarget, File)>);

impl Logs {
    /// Opens every log that the settings name, but for those that are open already, so that one that cannot be written is
    /// known before anything has changed. Asks file systems, which may hang: not for the master's thread while it serves.
    pub fn open(settings: &Settings, are_open: &HashSet<LogTarget>, wanted: &Wanted) -> Result<Logs> {
        let mut logs = Vec::new();
        let mut known = are_open.clone();
        for (target, directive) in Logs::targets(settings) {
            if known.insert(target.clone()) {
                wanted.ask()?;
                let opened = open_file(target);
                let opened = opened.map_err(|error| match is_exhaustion(&error) {
                    true => anyhow::Error::from(error).context(format!("cannot open the log {target}")),
                    false => anyhow!(unwritable(target, directive, &error)),
                })?;
                logs.extend(opened.map(|file| (target.clone(), file)));
            }
        }
        Ok(Logs(logs))
    }

    /// Examines those that were opened before it was known what is off limits.
    ///
    /// # Errors
    /// An application has led one to a secret of the server.
    pub fn examine(&self) -> Result<()> {
        for (target, file) in &self.0 {
            let examined = match target {
                LogTarget::File(path) => off_limits::examine_at(path, file.as_fd()),
                LogTarget::Stdout | LogTarget::Stderr | LogTarget::Collector(_) => Ok(()),
            };
            examined.with_context(|| format!("cannot write the log {target}"))?;
        }
        Ok(())
    }

    /// With those of `present` that the settings name as well.
    pub fn joined(mut self, settings: &Settings, present: &Logs) -> io::Result<Logs> {
        let mut known = self.open_targets();
        for (target, _) in Logs::targets(settings) {
            if let Some(file) = present.file(target).filter(|_| known.insert(target.clone())) {
                self.0.push((target.clone(), file.try_clone()?));
            }
        }
        Ok(self)
    }

    /// Those that are open.
    pub fn open_targets(&self) -> HashSet<LogTarget> {
        self.0.iter().map(|(target, _)| target.clone()).collect()
    }

    /// Every log that the settings name, and the directive or option that names it.
    pub fn targets(settings: &Settings) -> impl Iterator<Item = (&LogTarget, &'static str)> {
        let of_sites = settings.sites.iter().filter_map(|site| site.access_log.own());
        let of_sites = of_sites.map(|log| (&log.target, "access-log"));
        let said_by = match &*settings.written.access_log.file == COMMAND_LINE {
            true => "--access-log",
            false => "access-log",
        };
        let access = of_sites.chain(settings.access_log.iter().map(move |log| (&log.target, said_by)));
        let of_pools = settings.pools.iter().filter_map(|pool| pool.log.target.as_ref());
        let all = access.chain(of_pools.map(|target| (target, "output")));
        all.chain([(&settings.error_log.target, "error-log")])
    }

    /// Takes these files in place of its own, after a rotation.
    pub fn replace(&mut self, mut fresh: Logs) {
        for (target, file) in &mut self.0 {
            if let Some((_, fresh)) = fresh.0.iter_mut().find(|(other, _)| other == target) {
                std::mem::swap(file, fresh);
            }
        }
        close_apart(fresh.0);
    }

    /// With these, which take the place of its own.
    pub fn add(&mut self, more: Logs) {
        let known = more.open_targets();
        let (stale, kept) =
            std::mem::take(&mut self.0).into_iter().partition(|(target, _)| known.contains(target));
        self.0 = kept;
        self.0.extend(more.0);
        close_apart::<(LogTarget, File)>(stale);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The open file of a log.
    pub fn file(&self, target: &LogTarget) -> Option<&File> {
        self.0.iter().find(|(open, _)| open == target).map(|(_, file)| file)
    }

    /// Copies for a server process.
    pub fn copies(&self) -> io::Result<(Vec<LogTarget>, Vec<OwnedFd>)> {
        self.copies_where(|_| true)
    }

    /// Of those that are meant.
    pub fn copies_where(
        &self,
        is_meant: impl Fn(&LogTarget) -> bool,
    ) -> io::Result<(Vec<LogTarget>, Vec<OwnedFd>)> {
        let (mut targets, mut files) = (Vec::new(), Vec::new());
        for (target, file) in self.0.iter().filter(|(target, _)| is_meant(target)) {
            targets.push(target.clone());
            files.push(OwnedFd::from(file.try_clone()?));
        }
        Ok((targets, files))
    }
}

/// Opens a log anew after a rotation. An error is a sentence: the old file stays in use. Asks file systems, as [`Logs::open`].
pub fn reopen(target: LogTarget) -> Result<Logs, String> {
    match open_file(&target) {
        Ok(file) => Ok(Logs(file.map(|file| (target, file)).into_iter().collect())),
        Err(error) if is_exhaustion(&error) => {
            let what_for = format!("open the log {target} anew, and goes on with the one of before");
            Err(descriptors::none_left(descriptors::MASTER, &what_for, None))
        }
        Err(error) => Err(format!("cannot reopen {target}: {error}")),
    }
}

/// Sends what applications write where the settings want it. Their logs were provided to `writer`.
pub fn use_pool_logs(writer: &Arc<Writer>, settings: &Settings) -> io::Result<()> {
    let mut logs = HashMap::new();
    for pool in &settings.pools {
        let own = pool.log.target.as_ref();
        let sink =
            own.map(|target| Ok::<_, io::Error>((writer.clone(), writer.sink(target)?))).transpose()?;
        logs.insert(pool.name.clone(), ApplicationLog { sink, limit: pool.log.limit });
    }
    log::set_application_logs(logs);
    Ok(())
}

fn unwritable(target: &LogTarget, directive: &str, error: &io::Error) -> String {
    let LogTarget::File(path) = target else { return format!("cannot write to {target}: {error}") };
    let folder = path.parent().unwrap_or(path);
    let what = match error.kind() {
        io::ErrorKind::NotFound => format!("the folder {} does not exist; make it", folder.display()),
        io::ErrorKind::PermissionDenied => format!(
            "the user that runs tidegate may not write it; give that permission (to the folder {} if the \
             file does not exist)",
            folder.display()
        ),
        io::ErrorKind::IsADirectory => "it is a folder; name a file in it".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot write the log {}: {what}, or name another path with `{directive}`", path.display())
}
