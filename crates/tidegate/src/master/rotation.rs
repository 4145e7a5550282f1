//! The logs, opened anew after a rotation: each by a thread of its own, since one on a file system that hangs must not keep the
//! others in the files of before. What has been opened is in use a moment later, everywhere.

use super::logs::{self, Logs};
use super::{Event, Master, PATIENCE};
use crate::descriptors;
use crate::link::close_apart;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidegate_config::settings::{Level, LogTarget};
use tidegate_core::log;

/// How long logs that have been opened wait for others, so that they are given to server processes together.
const GATHER: Duration = Duration::from_millis(200);

/// Logs that are opened anew.
#[derive(Default)]
pub(super) struct Rotation {
    /// Times that it was asked for.
    pub(super) count: u64,
    /// Logs that a thread opens, and whether it is to do so once more. One that hangs is the only one of its log.
    opening: HashMap<LogTarget, bool>,
    under_way: Option<UnderWay>,
}

/// Until all of it is in use.
struct UnderWay {
    failures: Vec<String>,
    until: Instant,
    /// Open, and not in use.
    fresh: Logs,
    give_at: Instant,
}

impl UnderWay {
    fn begin() -> UnderWay {
        let now = Instant::now();
        UnderWay {
            failures: Vec::new(),
            until: now + PATIENCE,
            fresh: Logs::default(),
            give_at: now + GATHER,
        }
    }
}

impl Rotation {
    /// A server process could not take what was opened.
    pub(super) fn was_refused(&mut self, why: &str) {
        self.under_way.get_or_insert_with(UnderWay::begin).failures.push(why.to_owned());
    }

    /// When it has to be looked at.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let under_way = self.under_way.as_ref()?;
        Some(if under_way.fresh.is_empty() {
            under_way.until
        } else {
            under_way.until.min(under_way.give_at)
        })
    }
}

impl Master {
    /// Opens the logs anew. That they are in use everywhere is said when it is so. What was before this program does so as well,
    /// for what it still finishes.
    pub(super) fn reopen_logs(&mut self) {
        if let Some(predecessor) = &self.predecessor {
            predecessor.signal(Signal::USR1);
        }
        self.rotation.count += 1;
        let before = self.rotation.under_way.replace(UnderWay::begin());
        if let (Some(before), Some(now)) = (before, &mut self.rotation.under_way) {
            now.fresh = before.fresh;
        }
        for target in self.current.logs.open_targets() {
            match self.rotation.opening.get_mut(&target) {
                Some(is_asked_again) => *is_asked_again = true,
                None => self.open_anew(target),
            }
        }
        self.look_at_logs(Instant::now());
    }

    fn open_anew(&mut self, target: LogTarget) {
        let (own, sender) = (target.clone(), self.sender.clone());
        let opening = std::thread::Builder::new().name("tidegate-reopen".into()).spawn(move || {
            let outcome = logs::reopen(own.clone());
            let _ = sender.send(Event::Reopened(own, outcome));
        });
        match opening {
            Ok(_) => drop(self.rotation.opening.insert(target, false)),
            Err(error) => {
                let under_way = self.rotation.under_way.get_or_insert_with(UnderWay::begin);
                under_way.failures.push(format!("cannot reopen {target}: cannot start a thread: {error}"));
            }
        }
    }

    /// What the error log of all processes takes, until settings are taken up; `None`: what they say.
    pub(super) fn set_log_level(&mut self, level: Option<Level>) {
        log::set_level(level);
        self.servers.give_log_level(level);
        self.status_registry.set_log_level(level);
    }

    pub(super) fn have_reopened(&mut self, target: &LogTarget, outcome: Result<Logs, String>) {
        if self.rotation.opening.remove(target) == Some(true) {
            close_apart(outcome.into_iter().collect());
            return self.open_anew(target.clone());
        }
        let under_way = self.rotation.under_way.get_or_insert_with(UnderWay::begin);
        match outcome {
            Ok(logs) => under_way.fresh.add(logs),
            Err(why) => under_way.failures.push(why),
        }
        self.look_at_logs(Instant::now());
    }

    pub(super) fn look_at_logs(&mut self, now: Instant) {
        let is_open = self.rotation.opening.is_empty();
        let is_due = |under_way: &&mut UnderWay| {
            !under_way.fresh.is_empty() && (is_open || under_way.give_at <= now || under_way.until <= now)
        };
        if let Some(under_way) = self.rotation.under_way.as_mut().filter(is_due) {
            let fresh = std::mem::take(&mut under_way.fresh);
            under_way.give_at = now + GATHER;
            under_way.until = now + PATIENCE;
            let given = self.use_logs(fresh);
            if let (Err(error), Some(under_way)) = (given, &mut self.rotation.under_way) {
                let needed = descriptors::needed_by_the_master(&self.current.settings);
                let error = descriptors::explain(error, "open the logs anew", needed);
                under_way.failures.push(format!("{error:#}"));
            }
        }
        let slow = self.servers.slow_with_logs();
        let is_over = |under_way: &mut UnderWay| is_open && slow == 0 || under_way.until <= now;
        let Some(mut done) = self.rotation.under_way.take_if(is_over) else { return };
        let mut hung: Vec<String> = self.rotation.opening.keys().map(LogTarget::to_string).collect();
        hung.sort();
        done.failures.extend(hung.iter().map(|target| {
            format!(
                "the log {target} could not be opened anew until now, and the one before stays in use: look for a file \
                 system that does not answer"
            )
        }));
        if slow > 0 {
            done.failures.push("a server process does not react, and may still write to the old logs".into());
        }
        if done.failures.is_empty() {
            log::info("the logs were opened anew");
        }
        done.failures.iter().for_each(log::error);
        self.status_registry.set_own_losses(self.writer.lost_lines(), self.writer.lost_by_log());
    }

    /// Takes these into use, here and in server processes.
    fn use_logs(&mut self, fresh: Logs) -> Result<()> {
        let targets = fresh.open_targets();
        self.current.logs.replace(fresh);
        self.servers.give_logs(&self.current.logs, &targets).context("cannot copy a log")?;
        let settings = &self.current.settings;
        let of_pools = settings.pools.iter().filter_map(|pool| pool.log.target.as_ref());
        for target in of_pools.chain([&settings.error_log.target]).filter(|target| targets.contains(target)) {
            if let Some(file) = self.current.logs.file(target) {
                self.writer.provide(target, file.try_clone()?)?;
            }
        }
        Ok(())
    }
}
