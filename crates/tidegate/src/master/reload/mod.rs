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

use super::control::{Reply, Responder};
use super::logs::Logs;
use super::pid_file::PidFile;
use super::sealing::ControlPaths;
use super::servers::{Layout, News, Revision, START_PATIENCE, State};
use super::sockets::Sockets;
use super::{Change, Event, Master, Order, PATIENCE, sealing, use_error_log, users};
use crate::certificates::CertificateWatch;
use crate::link::ToServer;
use crate::revision::{self, Kept, Reading, ServeOptions, keep_served};
use anyhow::{Result, anyhow};
use machine::{Action, By, Preparing, Retiring, Settling, Stage};
use std::sync::Arc;
use std::time::Instant;
use tidegate_config::Settings;
use tidegate_core::log;
use tidegate_core::tls::TlsFiles;

/// A reload that is under way.
pub struct Reload {
    purpose: Purpose,
    /// `None` while the files are read.
    stage: Option<Stage>,
    /// Read, and nothing opened yet.
    draft: Option<Draft>,
    /// Opened, and not in force yet.
    next: Option<Revision>,
    by: By,
    /// Processes that were started for it.
    fresh: Vec<u64>,
    /// What is to be said when it is over.
    notes: Vec<String>,
}

/// Why settings are taken up, and who hears what came of it.
enum Purpose {
    /// Somebody has asked for it.
    Order { responder: Option<Responder>, found: Found },
    /// Files of authorities have changed.
    Authorities,
}

/// What reading has found, beside the settings.
#[derive(Default)]
pub struct Found {
    /// Mistakes and warnings.
    said: String,
    /// Sites that stay as they were.
    kept: Vec<String>,
    has_errors: bool,
}

/// Settings as they were read, with what belongs to them.
struct Draft {
    settings: Settings,
    layout: Layout,
    files: TlsFiles,
    /// The state of those files just before they were read.
    seen: CertificateWatch,
    assigned: Vec<users::Assigned>,
}

/// What the thread that reads has to say.
pub struct Read {
    found: Found,
    notes: Vec<String>,
    /// An error is a sentence, or nothing where `found` says it all.
    outcome: Result<Draft>,
}

/// Reads settings and everything that they name, without changing anything. On a thread of its own: files may be slow, and
/// sites many.
fn read(options: &ServeOptions, present: &Present, allows_loss: bool) -> Read {
    let Reading { mut loaded, pairs, mut seen } = options.load();
    let Kept { mistaken, missing, lost, unlisted, closed } =
        keep_served(&mut loaded, &present.settings, allows_loss);
    let mut found = Found { said: loaded.render(false), kept: Vec::new(), has_errors: loaded.has_errors() };
    let mut notes = Vec::new();
    let Some(settings) = loaded.settings else {
        return Read { found, notes, outcome: Err(anyhow!("")) };
    };
    if !missing.is_empty() {
        found.said.push_str(&format!(
            "no site of {} is written for {} any more: what is served stays as it was; run `tidegate reload \
             --allow-loss` to have it go\n",
            options.settings,
            missing.join(", ")
        ));
    }
    if !unlisted.is_empty() {
        found.said.push_str(&format!(
            "no `listen` of {} is written for {} any more: what is listened on stays as it was; run `tidegate reload \
             --allow-loss` to have it go\n",
            options.settings,
            unlisted.join(", ")
        ));
    }
    if options.control.is_none() && settings.control != present.settings.control {
        notes.push(
            "the control socket stays where it is: another takes `tidegate upgrade` or a restart".into(),
        );
    }
    if !lost.is_empty() {
        notes.push(format!("no longer served: {}", lost.join(", ")));
    }
    if !closed.is_empty() {
        notes.push(format!("no longer listened on: {}", closed.join(", ")));
    }
    found.kept = mistaken.into_iter().chain(missing).chain(unlisted).collect();
    seen.extend(&settings);
    let outcome = TlsFiles::read(&settings, &present.files, &pairs).map_err(anyhow::Error::from);
    let outcome = outcome.and_then(|files| Draft::of(settings, files, seen, present, &mut notes));
    Read { found, notes, outcome }
}

/// What is in force, for the thread that reads.
struct Present {
    settings: Arc<Settings>,
    files: TlsFiles,
    assigned: Vec<users::Assigned>,
    /// What of the control socket applications do not reach.
    control: Option<Arc<ControlPaths>>,
}

impl Draft {
    fn of(
        mut settings: Settings,
        files: TlsFiles,
        seen: CertificateWatch,
        present: &Present,
        notes: &mut Vec<String>,
    ) -> Result<Draft> {
        let control = present.control.as_deref();
        let before = sealing::seal(&mut Settings::clone(&present.settings), control);
        let unsealed = sealing::seal(&mut settings, control);
        notes.extend(unsealed.into_iter().filter(|new| !before.contains(new)));
        let mut assigned = users::assign(&mut settings, users::can_be_anybody())?;
        for new in &mut assigned {
            // A pool that stays because its site does has been given its user before, and does not name it.
            let of = |settings: &Settings| {
                settings.pools.iter().find(|pool| new.what == format!("pool {}", pool.name)).cloned()
            };
            let is_same = of(&settings).is_some_and(|pool| of(&present.settings) == Some(pool));
            if let Some(known) = present.assigned.iter().find(|known| is_same && known.what == new.what) {
                new.said.clone_from(&known.said);
            }
        }
        let (identity, warning) = users::identity(settings.user.as_ref())?;
        notes.extend(warning.filter(|_| settings.user != present.settings.user));
        let layout = Layout::of(&settings, revision::workers(&settings), identity).sealed(&settings);
        Ok(Draft { settings, layout, files, seen, assigned })
    }
}

impl Reload {
    fn new(purpose: Purpose) -> Reload {
        Reload {
            purpose,
            stage: None,
            draft: None,
            next: None,
            by: By::Present,
            fresh: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Opens logs anew that were opened for it.
    pub fn reopen_logs(&mut self) -> Vec<String> {
        self.next.as_mut().map(|next| next.logs.reopen()).unwrap_or_default()
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
        let (options, present) = (self.options.clone(), self.present());
        let sender = self.sender.clone();
        let reading = std::thread::Builder::new().name("tidegate-reload".into()).spawn(move || {
            let _ = sender.send(Event::Read(Box::new(read(&options, &present, allows_loss))));
        });
        let purpose = Purpose::Order { responder, found: Found::default() };
        self.change = Some(Change::Reload(Box::new(Reload::new(purpose))));
        if let Err(error) = reading {
            self.refuse_reload(&format!("cannot start a thread: {error}"));
        }
    }

    fn present(&self) -> Present {
        let Revision { settings, tls, assigned, .. } = &self.current;
        Present {
            settings: settings.clone(),
            files: tls.clone(),
            assigned: assigned.clone(),
            control: self.sealed_control.clone(),
        }
    }

    /// Certificates of authorities have changed on the disk: they are part of the terms of sites, which are made anew
    /// from the same settings. Pairs stay as they are: one that is broken meanwhile is no reason to keep these.
    pub(super) fn begin_authorities(&mut self) {
        let mut reload = Reload::new(Purpose::Authorities);
        let (settings, seen) = (Settings::clone(&self.current.settings), self.tls.watch());
        let mut files = self.current.tls.clone();
        let read = files.read_authorities(&settings).map_err(anyhow::Error::from);
        for stayed in read.iter().flatten() {
            log::error(format_args!(
                "the certificates of an authority have changed, but those before stay in use: {stayed}"
            ));
        }
        if read.is_ok() && files == self.current.tls {
            return self.begin_next();
        }
        let present = self.present();
        let draft = read.and_then(|_| Draft::of(settings, files, seen, &present, &mut reload.notes));
        self.change = Some(Change::Reload(Box::new(reload)));
        self.have_read(draft);
    }

    /// The files have been read.
    pub(super) fn take_read(&mut self, read: Read) {
        let Some(Change::Reload(reload)) = &mut self.change else { return };
        if let Purpose::Order { found, .. } = &mut reload.purpose {
            *found = read.found;
        }
        reload.notes.extend(read.notes);
        self.have_read(read.outcome);
    }

    fn have_read(&mut self, outcome: Result<Draft>) {
        let Some(Change::Reload(reload)) = &mut self.change else { return };
        match outcome {
            Ok(draft) => reload.draft = Some(draft),
            Err(why) => return self.refuse_reload(&format!("{why:#}")),
        }
        let starting = self.servers.in_state(State::Starting);
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
                    Err(why) => self.refuse_reload(&format!("{why:#}")),
                },
                Action::Commit(ids) => ids.iter().for_each(|id| self.servers.tell(*id, &ToServer::Commit)),
                Action::InForce => self.put_in_force(),
                Action::Discard(ids) => ids.iter().for_each(|id| self.servers.tell(*id, &ToServer::Discard)),
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
        let Some(Draft { settings, layout, files, seen, assigned }) = reload.draft.take() else {
            return Ok((None, Vec::new()));
        };
        let logs = Logs::open(&settings, &self.current.logs)?;
        let sockets = Sockets::open(&settings, layout.total(), &self.current.sockets)?;
        let number = self.current.number + 1;
        let settings = Arc::new(settings);
        let next = Revision { number, settings, sockets, tls: files, seen, logs, layout, assigned };
        self.tls.check(&next)?;
        let serving = self.servers.in_state(State::Serving);
        let suits = |server: &&super::servers::Server| {
            server.state == State::Serving && server.layout.suits(&next.layout)
        };
        let suitable = self.servers.list.iter().filter(suits).count();
        let now = Instant::now();
        let begun = if suitable == next.layout.processes && suitable == serving.len() {
            reload.by = By::Present;
            for id in &serving {
                // What has been prepared by the first of them goes with the next `Prepare`.
                self.servers.prepare(*id, &next)?;
            }
            Preparing::begin(By::Present, self.servers.numbers(&serving), PATIENCE, now)
        } else {
            reload.by = By::Fresh;
            let mut outcome = Ok(());
            for place in 0..next.layout.processes {
                match self.servers.start(place, &next, false) {
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
        self.current.sockets.remove_files(&next.sockets);
        let previous = std::mem::replace(&mut self.current, next);
        let assigned = self.current.assigned.iter().filter(|new| !previous.assigned.contains(new));
        notes.extend(assigned.map(ToString::to_string));
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
        drop(previous);
        self.tls.adopt(&mut self.current);
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
        before.iter().for_each(|id| self.servers.drain(*id, false, self.current.settings.drain_timeout));
        before
    }

    /// It is over, and nothing has changed.
    fn refuse_reload(&mut self, why: &str) {
        let number = self.current.number;
        // What the store of certificates has taken in for it goes.
        self.tls.settle(&self.current);
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

    fn end_reload(&mut self, say: impl FnOnce(Purpose, Vec<String>) -> (Option<Responder>, Reply)) {
        let Some(Change::Reload(reload)) = self.change.take() else { return };
        if matches!(reload.purpose, Purpose::Order { .. }) {
            self.notifier.ready(&format!("revision {} is in force", self.current.number));
        }
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
        self.begin_next();
    }

    /// The first server processes: all of them, or an error that says what is wrong. Nobody can give orders yet.
    pub(super) fn start_servers(&mut self) -> Result<()> {
        self.servers.set_places(self.current.layout.processes);
        let mut outcome = Ok(());
        for place in 0..self.current.layout.processes {
            outcome = outcome.and_then(|()| self.servers.start(place, &self.current, false).map(drop));
        }
        outcome = outcome.and_then(|()| {
            let asked = self.servers.numbers(&self.servers.in_state(State::Starting));
            let (mut stage, mut actions) = Preparing::begin(By::Fresh, asked, START_PATIENCE, Instant::now());
            loop {
                for action in actions {
                    match action {
                        Action::Commit(ids) => {
                            ids.iter().for_each(|id| self.servers.tell(*id, &ToServer::Commit));
                        }
                        Action::Refuse(why) => return Err(anyhow!("{why}")),
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
        let next = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
        if let Some(old) = std::mem::replace(&mut self.pid_file, next) {
            old.remove();
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
