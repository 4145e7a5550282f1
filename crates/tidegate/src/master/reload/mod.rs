//! Taking up new settings without closing a connection.
//!
//! Everything that can fail is done before anything changes: reading, opening logs, opening sockets, and then
//! every server process prepares. Only when all have, all take the settings up, between two requests. A mistake
//! in one site leaves that site as it was; any other mistake leaves everything as it was. A name that is served
//! and would no longer be stays as well, unless the operator has said that it may go.
//!
//! What a process cannot change in itself (how many workers it has, who it is, what it may read) takes other
//! processes: they start beside the present ones, and those drain when the new ones serve.
//!
//! The master waits for none of it: a thread reads the files, `machine` says what comes next, and orders, signals and the
//! ends of processes are dealt with meanwhile.

mod machine;
mod reading;

use super::control::{Reply, Responder};
use super::pid_file::PidFile;
use super::rates::Rates;
use super::sealing;
use super::servers::{News, Revision, START_PATIENCE, Start, State};
use super::wanted::{Waiting, Wanted};
use super::{Change, Event, Master, Order, PATIENCE, use_error_log};
use crate::descriptors;
use crate::link::close_apart;
use anyhow::{Context, Result, anyhow};
use machine::{Action, By, Preparing, Retiring, Settling, Stage};
use reading::{Draft, Found, Present, READERS, read, read_authorities};
pub use reading::{Read, Readers};
use std::sync::Arc;
use std::time::Instant;
use tidegate_config::Settings;
use tidegate_config::settings::pool::Pool;
use tidegate_core::log;
use tidegate_io::off_limits;

/// A reload that is under way.
pub struct Reload {
    purpose: Purpose,
    stage: Option<Stage>,
    /// Read, and nothing opened yet.
    draft: Option<Draft>,
    /// What its files hold may have been given to the server processes.
    is_given: bool,
    /// Opened, and not in force yet.
    next: Option<Revision>,
    by: By,
    /// Processes that were started for it.
    fresh: Vec<u64>,
    /// For what a thread reads: it asks before it does what others can see.
    _waiting: Waiting,
    /// What is to be said when it is over.
    notes: Vec<String>,
    /// [`Rotation::count`](super::rotation::Rotation) when it began: logs that were opened for it before a rotation are opened anew.
    rotations: u64,
}

/// Why settings are taken up, and who hears what came of it.
enum Purpose {
    /// Somebody has asked for it.
    Order { responder: Option<Responder>, found: Found },
    /// Files of authorities have changed.
    Authorities,
}

impl Reload {
    fn new(purpose: Purpose, rotations: u64) -> Reload {
        Reload {
            purpose,
            stage: None,
            draft: None,
            is_given: false,
            next: None,
            by: By::Present,
            fresh: Vec::new(),
            _waiting: Waiting::default(),
            notes: Vec::new(),
            rotations,
        }
    }

    /// Whether the server processes may have been given what its files hold.
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    /// When the present stage is not waited for any longer.
    pub fn deadline(&self) -> Option<Instant> {
        self.stage.as_ref().map(Stage::deadline)
    }
}

impl Master {
    /// Begins to take up what the files say now.
    pub(super) fn begin_reload(&mut self, allows_loss: bool, responder: Option<Responder>) {
        self.notifier.reloading();
        let options = self.options.clone();
        let purpose = Purpose::Order { responder, found: Found::default() };
        self.begin_reading(purpose, move |present| read(&options, &present, allows_loss));
    }

    /// Has a thread read.
    fn begin_reading(&mut self, purpose: Purpose, read: impl FnOnce(Present) -> Read + Send + 'static) {
        self.change = Some(Change::Reload(Box::new(Reload::new(purpose, self.rotation.count))));
        let waiting = Waiting::default();
        let present = self.present(waiting.wanted());
        if let Some(Change::Reload(reload)) = &mut self.change {
            reload._waiting = waiting;
        }
        let Some((number, holds)) = self.readers.next() else {
            return self.refuse_reload(&format!(
                "{READERS} earlier attempts to read the settings hang: mend the file system that does not answer first"
            ));
        };
        let sender = self.sender.clone();
        let reading = std::thread::Builder::new().name("tidegate-reload".into()).spawn(move || {
            let read = read(present);
            drop(holds);
            let _ = sender.send(Event::Read(number, Box::new(read)));
        });
        match reading {
            Ok(_) => self.follow((Some(machine::Reading::begin(number, Instant::now())), Vec::new())),
            Err(error) => self.refuse_reload(&format!("cannot start a thread: {error}")),
        }
    }

    fn present(&self, wanted: Wanted) -> Present {
        let Revision { settings, tls, assigned, warnings, written, logs, sockets, .. } = &self.current;
        Present {
            access: self.current.access.clone(),
            settings: settings.clone(),
            files: tls.clone(),
            assigned: assigned.clone(),
            warnings: warnings.clone(),
            written: written.clone(),
            control: self.sealed_control.clone(),
            logs: logs.open_targets(),
            addresses: sockets.addresses(),
            watch: self.tls.watch(),
            wanted,
        }
    }

    /// Certificates of authorities have changed on the disk: they are part of the terms of sites, which are made anew
    /// from the same settings. Pairs stay as they are: one that is broken meanwhile is no reason to keep these.
    pub(super) fn begin_authorities(&mut self) {
        let seen = self.tls.watch();
        self.begin_reading(Purpose::Authorities, move |present| read_authorities(&present, seen));
    }

    /// The files have been read. What one has read that was given up is not wanted any more.
    pub(super) fn take_read(&mut self, number: u64, read: Read) {
        let Some(Change::Reload(reload)) = &mut self.change else { return close_apart(vec![read]) };
        if !matches!(&reload.stage, Some(Stage::Reading(reading)) if reading.is(number)) {
            return close_apart(vec![read]);
        }
        if let Purpose::Order { found, .. } = &mut reload.purpose {
            *found = read.found;
        }
        reload.notes.extend(read.notes);
        self.have_read(read.outcome);
    }

    fn have_read(&mut self, outcome: Result<Option<Draft>>) {
        let Some(Change::Reload(reload)) = &mut self.change else { return };
        match outcome {
            Ok(Some(draft)) => reload.draft = Some(draft),
            Ok(None) => {
                self.change = None;
                return self.begin_next();
            }
            Err(why) => {
                let why = self.explained(why);
                return self.refuse_reload(&why);
            }
        }
        let starting = self.servers.starting();
        self.follow(Settling::begin(starting, Instant::now() + START_PATIENCE));
    }

    /// Something has become of a server process.
    pub(super) fn advance_reload(&mut self, news: &News) {
        if let Some(stage) = self.stage() {
            self.follow(stage.on(news, Instant::now()));
        }
    }

    /// The time for the present stage may be over.
    pub(super) fn look_at_reload(&mut self, now: Instant) {
        let Some(Change::Reload(reload)) = &self.change else { return };
        if reload.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(stage) = self.stage()
        {
            self.follow(stage.on_deadline());
        }
    }

    fn stage(&mut self) -> Option<Stage> {
        match &mut self.change {
            Some(Change::Reload(reload)) => reload.stage.take(),
            _ => None,
        }
    }

    /// Carries out what a stage asks for.
    fn follow(&mut self, (stage, actions): (Option<Stage>, Vec<Action>)) {
        if let Some(Change::Reload(reload)) = &mut self.change {
            reload.stage = stage;
        }
        for action in actions {
            match action {
                Action::Open => match self.open_next() {
                    Ok(begun) => self.follow(begun),
                    Err(why) => {
                        let why = self.explained(why);
                        self.refuse_reload(&why);
                    }
                },
                Action::Commit(ids) => ids.iter().for_each(|id| self.servers.commit(*id)),
                Action::InForce => self.put_in_force(),
                Action::Discard(ids) => ids.iter().for_each(|id| self.servers.discard(*id)),
                Action::Kill(ids) => ids.iter().for_each(|id| self.servers.kill(*id)),
                Action::Retire => {
                    let retired = self.retire();
                    self.follow(Retiring::begin(retired, Instant::now()));
                }
                Action::Warn(what) => log::error(what),
                Action::Refuse(why) => self.refuse_reload(&why),
                Action::Done => self.finish_reload(),
            }
        }
    }

    /// Opens what can fail to open, and has processes prepare.
    fn open_next(&mut self) -> Result<(Option<Stage>, Vec<Action>)> {
        let Some(Change::Reload(reload)) = &mut self.change else { return Ok((None, Vec::new())) };
        let Some(draft) = reload.draft.take() else { return Ok((None, Vec::new())) };
        reload.is_given = true;
        let Draft { mut settings, layout, files, seen, access, assigned, warnings, written, logs, sockets } =
            draft;
        let logs = logs.joined(&settings, &self.current.logs).context("cannot copy a log")?;
        let sockets = sockets.joined(&settings, layout.total(), &self.current.sockets)?;
        sealing::keep_ports(&mut settings, &sockets);
        let rates = Rates::open(&settings, &self.current.rates)?;
        let number = self.current.number + 1;
        let settings = Arc::new(settings);
        let next = Revision {
            number,
            settings,
            sockets,
            tls: files,
            seen,
            access,
            logs,
            rates,
            layout,
            assigned,
            warnings,
            written,
        };
        self.tls.check(&next)?;
        let serving = self.servers.serving();
        let suits = |server: &&super::servers::Server| {
            server.state == State::Serving && server.layout.suits(&next.layout)
        };
        let suitable = self.servers.list.iter().filter(suits).count();
        let now = Instant::now();
        let begun = if suitable == next.layout.processes && suitable == serving.len() {
            reload.by = By::Present;
            self.servers.prepare(&serving, &next)?;
            Preparing::begin(By::Present, self.servers.numbers(&serving), PATIENCE, now)
        } else {
            reload.by = By::Fresh;
            let mut outcome = Ok(());
            for place in 0..next.layout.processes {
                match self.servers.start(place, &next, Start::ForReload) {
                    Ok(id) => reload.fresh.push(id),
                    Err(error) => outcome = Err(error),
                }
            }
            if let Err(error) = outcome {
                reload.fresh.iter().for_each(|id| self.servers.kill(*id));
                return Err(error);
            }
            Preparing::begin(By::Fresh, self.servers.numbers(&reload.fresh), START_PATIENCE, now)
        };
        reload.next = Some(next);
        Ok(begun)
    }

    /// From here on nothing can fail: who has prepared is about to commit, and who starts does so with these settings.
    fn put_in_force(&mut self) {
        let Some(Change::Reload(reload)) = &mut self.change else { return };
        let Some(next) = reload.next.take() else { return };
        let by = reload.by;
        let mut notes = std::mem::take(&mut reload.notes);
        let files = self.current.sockets.files_beside(&next.sockets);
        self.disk.run("the files of sockets that are not listened on any more", move || files.remove());
        let mut previous = std::mem::replace(&mut self.current, next);
        off_limits::set(sealing::paths_of(&self.current.settings));
        let assigned = self.current.assigned.iter().filter(|new| !previous.assigned.contains(new));
        notes.extend(assigned.map(ToString::to_string));
        for pool in &self.current.settings.pools {
            let before = previous.settings.pools.iter().find(|before| before.name == pool.name);
            let before = before.and_then(Pool::account);
            if before.is_some() && before != pool.account() {
                notes.push(format!(
                    "pool {}: processes of the user before get no further requests, and end",
                    pool.name
                ));
            }
        }
        self.servers.leave_behind(self.current.number);
        match by {
            By::Present => self.servers.catch_up(&self.current),
            By::Fresh => {
                let count = self.current.layout.processes;
                self.servers.set_places(count);
                notes.push(match count {
                    1 => "1 new server process took over; the previous one finishes what is open".to_owned(),
                    count => format!(
                        "{count} new server processes took over; the previous ones finish what is open"
                    ),
                });
            }
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
        close_apart(vec![std::mem::take(&mut previous.logs)]);
        drop(previous);
        self.current.rates.release_others();
        self.tls.adopt(&mut self.current);
        self.adopt_access();
        self.take_number();
        if let Some(Change::Reload(reload)) = &mut self.change {
            reload.notes = notes;
        }
    }

    /// Has those drain who served before: whom.
    fn retire(&mut self) -> Vec<u64> {
        let Some(Change::Reload(reload)) = &self.change else { return Vec::new() };
        // One that has ended meanwhile may have a successor by now: with the new settings it stays.
        let number = self.current.number;
        let is_before = |server: &&super::servers::Server| {
            !reload.fresh.contains(&server.id) && server.state != State::Draining && server.revision < number
        };
        let before = self.servers.list.iter().filter(is_before).map(|server| server.id);
        let before: Vec<u64> = before.collect();
        before.iter().for_each(|id| self.servers.retire(*id, &self.current));
        before
    }

    /// Why it was in vain, with what to do where descriptors have run out.
    fn explained(&self, why: anyhow::Error) -> String {
        let needed = descriptors::needed_by_the_master(&self.current.settings);
        format!("{:#}", descriptors::explain(why, "take up the settings", needed))
    }

    /// It is over, and nothing has changed.
    fn refuse_reload(&mut self, why: &str) {
        let number = self.current.number;
        // What was taken in for it goes: files may have changed between the reading of the one and of the other.
        if matches!(&self.change, Some(Change::Reload(reload)) if reload.is_given()) {
            self.tls.restore(&self.current);
            self.servers.restore(&self.current);
        }
        self.tls.settle(&self.current);
        self.current.rates.release_others();
        off_limits::set(sealing::paths_of(&self.current.settings));
        self.end_reload(|purpose, _| match purpose {
            Purpose::Order { responder, found } => {
                let mut said = found.said;
                if !why.is_empty() {
                    said.push_str(&format!("{why}\n"));
                }
                said.push_str(&format!("nothing has changed: revision {number} stays in force\n"));
                (responder, Reply::failed(said))
            }
            Purpose::Authorities => {
                let what = "the certificates of authorities have changed, but those before stay in use";
                (None, Reply::failed(format!("{what}: {why}")))
            }
        });
    }

    /// It is over, and the settings are in force.
    fn finish_reload(&mut self) {
        let number = self.current.number;
        self.tls.settle(&self.current);
        self.end_reload(|purpose, notes| match purpose {
            Purpose::Order { responder, found: Found { mut said, kept, has_errors } } => {
                for note in notes {
                    said.push_str(&format!("{note}\n"));
                }
                said.push_str(&format!("revision {number} is in force"));
                if !kept.is_empty() {
                    said.push_str(&format!(", but for {}", left(&kept)));
                }
                said.push('\n');
                let is_whole = !has_errors && kept.is_empty();
                (responder, if is_whole { Reply::ok(said) } else { Reply::failed(said) })
            }
            Purpose::Authorities => {
                (None, Reply::ok("the certificates of authorities have changed and are in use"))
            }
        });
    }

    /// The server ends meanwhile. What is not in force yet is given up: a process that drains must not take it up.
    pub(super) fn give_up_reload(&mut self, reload: Reload) {
        let is_in_force = matches!(reload.stage, Some(Stage::Committing(_) | Stage::Retiring(_)));
        if !is_in_force {
            self.servers.serving().into_iter().for_each(|id| self.servers.discard(id));
            if reload.is_given {
                self.servers.restore(&self.current);
            }
            reload.fresh.iter().for_each(|id| self.servers.kill(*id));
        }
        self.leave_no_trace(reload.draft, reload.next);
        let number = self.current.number;
        if let Purpose::Order { responder: Some(responder), .. } = reload.purpose {
            responder.send(if is_in_force {
                Reply::ok(format!("revision {number} is in force, and the server was told to end\n"))
            } else {
                Reply::failed(format!(
                    "the server was told to end before this was done: revision {number} stays in force until then\n"
                ))
            });
        }
    }

    /// Of what is not in force.
    fn leave_no_trace(&self, draft: Option<Draft>, next: Option<Revision>) {
        close_apart(draft.into_iter().collect());
        if let Some(next) = next {
            let files = next.sockets.files_beside(&self.current.sockets);
            close_apart(vec![next.logs]);
            self.disk.run("the files of sockets of settings that are not in force", move || files.remove());
        }
    }

    fn end_reload(&mut self, say: impl FnOnce(Purpose, Vec<String>) -> (Option<Responder>, Reply)) {
        let Some(Change::Reload(reload)) = self.change.take() else { return };
        if matches!(reload.purpose, Purpose::Order { .. }) {
            self.notifier.ready(&format!("revision {} is in force", self.current.number));
        }
        let is_rotated = reload.rotations != self.rotation.count;
        self.leave_no_trace(reload.draft, reload.next);
        tidegate_io::allocator::trim(); // of the settings of before, and of what reading them has taken
        let (responder, reply) = say(reload.purpose, reload.notes);
        let said = reply.text.trim_end();
        if reply.is_ok {
            log::info(said);
        } else {
            log::error(said);
        }
        if let Some(responder) = responder {
            responder.send(reply);
        }
        if is_rotated {
            self.reopen_logs();
        }
        self.begin_next();
    }

    /// The first server processes: all of them, or an error that says what is wrong. Nobody can give orders yet.
    pub(super) fn start_servers(&mut self) -> Result<()> {
        self.servers.set_places(self.current.layout.processes);
        let mut outcome = Ok(());
        for place in 0..self.current.layout.processes {
            outcome =
                outcome.and_then(|()| self.servers.start(place, &self.current, Start::ForReload).map(drop));
        }
        outcome = outcome.and_then(|()| {
            let asked = self.servers.numbers(&self.servers.starting());
            let (mut stage, mut actions) = Preparing::begin(By::Fresh, asked, START_PATIENCE, Instant::now());
            loop {
                for action in actions {
                    match action {
                        Action::Commit(ids) => ids.iter().for_each(|id| self.servers.commit(*id)),
                        Action::Refuse(why) => return Err(anyhow!("{why}")),
                        Action::Warn(what) if self.servers.serving().is_empty() => return Err(anyhow!(what)),
                        Action::Warn(what) => log::error(what),
                        _ => {}
                    }
                }
                let Some(present) = stage else { return Ok(()) };
                (stage, actions) = match self.next_news(present.deadline()) {
                    Some(news) => present.on(&news, Instant::now()),
                    None => present.on_deadline(),
                };
            }
        });
        if outcome.is_err() {
            self.cut_servers();
        }
        outcome
    }

    fn move_pid_file(&mut self, settings: &Settings) -> Result<()> {
        let present = self.pid_file.as_ref().map(PidFile::path);
        if present == settings.pid_file.as_deref() {
            return Ok(());
        }
        let old = self.pid_file.take();
        if let Some(path) = settings.pid_file.clone() {
            self.pid_file = Some(PidFile::at(&path));
            let written = self.disk.run("the pid file", move || PidFile::write(&path).map(drop));
            if let Some(Err(error)) = written {
                self.pid_file = old;
                return Err(error);
            }
        }
        if let Some(old) = old {
            self.disk.run("the pid file before", move || old.remove());
        }
        Ok(())
    }
}

/// Sites that stay, as the end of a sentence.
fn left(kept: &[String]) -> String {
    match kept {
        [rest @ .., last] if !rest.is_empty() => {
            format!("{} and {last}, left as they were", rest.join(", "))
        }
        one => format!("{}, left as it was", one.concat()),
    }
}

impl Order {
    /// Whether another one that waits makes this one needless.
    pub(super) fn is_covered_by(&self, other: &Order) -> bool {
        match (self, other) {
            (Order::Reload { allows_loss, responder: None }, Order::Reload { allows_loss: other, .. }) => {
                allows_loss == other
            }
            (Order::Authorities, Order::Authorities | Order::Reload { .. }) => true,
            _ => false,
        }
    }
}
