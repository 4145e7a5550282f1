//! The logs: opened by the master, written by the server processes, which need not be allowed to open them.

use anyhow::{Result, anyhow};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::LogTarget;
use tidegate_core::log::{self, ApplicationLog, Writer, open_file};

/// The log files of one revision, open.
#[derive(Default)]
pub struct Logs(Vec<(LogTarget, File)>);

impl Logs {
    /// Opens every log that the settings name, so that one that cannot be written is known before anything
    /// has changed. Those that are open in `present` are taken from there.
    pub fn open(settings: &Settings, present: &Logs) -> Result<Logs> {
        let mut logs: Vec<(LogTarget, File)> = Vec::new();
        for (target, directive) in Logs::targets(settings) {
            if logs.iter().any(|(open, _)| open == target) {
                continue;
            }
            let opened = match present.file(target) {
                Some(file) => file.try_clone().map(Some),
                None => open_file(target),
            };
            if let Some(file) = opened.map_err(|error| anyhow!(unwritable(target, directive, &error)))? {
                logs.push((target.clone(), file));
            }
        }
        Ok(Logs(logs))
    }

    /// Every log that the settings name, and the directive that names it.
    pub fn targets(settings: &Settings) -> impl Iterator<Item = (&LogTarget, &'static str)> {
        let of_sites = settings.sites.iter().filter_map(|site| site.access_log.as_ref());
        let access = of_sites.chain([&settings.access_log]).flatten().map(|log| &log.target);
        let of_pools = settings.pools.iter().filter_map(|pool| pool.log.target.as_ref());
        let all =
            access.map(|target| (target, "access-log")).chain(of_pools.map(|target| (target, "output")));
        all.chain([(&settings.error_log.target, "error-log")])
    }

    /// Opens the files anew after a rotation. The sentences say what failed: the old file stays in use.
    pub fn reopen(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for (target, file) in &mut self.0 {
            match open_file(target) {
                Ok(Some(fresh)) => *file = fresh,
                Ok(None) => {}
                Err(error) => failures.push(format!("cannot reopen {target}: {error}")),
            }
        }
        failures
    }

    /// The open file of a log.
    pub fn file(&self, target: &LogTarget) -> Option<&File> {
        self.0.iter().find(|(open, _)| open == target).map(|(_, file)| file)
    }

    /// Copies for a server process.
    pub fn copies(&self) -> io::Result<(Vec<LogTarget>, Vec<OwnedFd>)> {
        let targets = self.0.iter().map(|(target, _)| target.clone()).collect();
        let files: io::Result<Vec<OwnedFd>> =
            self.0.iter().map(|(_, file)| Ok(OwnedFd::from(file.try_clone()?))).collect();
        Ok((targets, files?))
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
