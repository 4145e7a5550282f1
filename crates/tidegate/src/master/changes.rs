//! What changes the server and takes its time: reloads and upgrades, of which one is under way at most.
//!
//! What is asked for meanwhile waits for its end. The master goes on with everything else: it comes back here with what server
//! processes and the new program say.

use super::control::{ControlSocket, HeldSocket, Reply, Request, Responder};
use super::pid_file::PidFile;
use super::reload::Reload;
use super::upgrade::{self, Estate, Starting, Successor};
use super::{Ending, Event, Master, PATIENCE, SIGINT, SIGTERM, SIGUSR1, WAITING};
use crate::revision;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;
use tidegate_core::log;

/// What takes its time and may not be done twice at once.
pub(super) enum Change {
    Reload(Box<Reload>),
    Upgrade(Upgrade),
}

/// An order for a change.
pub(super) enum Order {
    Reload { allows_loss: bool, responder: Option<Responder> },
    Upgrade { executable: Option<PathBuf>, allows_loss: bool, responder: Option<Responder> },
    Authorities,
}

/// How far an upgrade is.
pub(super) enum Upgrade {
    /// The new program starts; its thread bounds how long that takes.
    Starting { starting: Starting, responder: Option<Responder>, held: Option<HeldSocket>, rotations: u64 },
    /// It serves; the processes before it are about to accept no more.
    HandingOver {
        successor: Successor,
        responder: Option<Responder>,
        /// [`Rotation::count`](super::rotation::Rotation) when it was started: it may have opened its logs before a rotation.
        rotations: u64,
        waits_for: BTreeSet<u64>,
        until: Instant,
    },
}

impl Master {
    /// Has a change made as soon as none is under way.
    pub(super) fn ask_for(&mut self, order: Order) {
        if self.waiting.iter().any(|other| order.is_covered_by(other)) {
            return;
        }
        if self.change.is_none() {
            return self.begin(order);
        }
        if self.waiting.len() < WAITING {
            return self.waiting.push_back(order);
        }
        let said = format!("{WAITING} orders wait for the one under way already; try again when it is done");
        match order.into_responder() {
            Some(responder) => responder.send(Reply::failed(said)),
            None => log::error(said),
        }
    }

    fn begin(&mut self, order: Order) {
        match order {
            Order::Reload { allows_loss, responder } => self.begin_reload(allows_loss, responder),
            Order::Upgrade { executable, allows_loss, responder } => {
                self.begin_upgrade(executable, allows_loss, responder);
            }
            Order::Authorities => self.begin_authorities(),
        }
    }

    /// The server ends: what is under way is given up, and whoever waits for it hears so. A new program that starts is ended
    /// before this returns. One that serves already, of an upgrade that was about to be over, is told to end as well.
    pub(super) fn give_up_changes(&mut self, is_hurried: bool) -> Option<Successor> {
        for responder in std::mem::take(&mut self.waiting).into_iter().filter_map(Order::into_responder) {
            responder.send(Reply::failed("the server was told to end: this was not begun\n"));
        }
        let (left, responder) = match self.change.take()? {
            Change::Reload(reload) => {
                self.give_up_reload(*reload);
                return None;
            }
            Change::Upgrade(Upgrade::Starting { starting, responder, held, .. }) => {
                self.disk.run("the control socket", move || drop(held));
                (starting.give_up(is_hurried), responder)
            }
            Change::Upgrade(Upgrade::HandingOver { successor, responder, .. }) => {
                (Some(successor), responder)
            }
        };
        if let Some(successor) = &left {
            successor.end(is_hurried);
        }
        if let Some(responder) = responder {
            responder.send(Reply::failed(match &left {
                Some(successor) => format!(
                    "the server was told to end, and with it process {}, which was taking over\n",
                    successor.pid
                ),
                None => "the server was told to end before the new program served\n".into(),
            }));
        }
        left
    }

    /// A change is over: the next one that waits begins.
    pub(super) fn begin_next(&mut self) {
        while self.change.is_none()
            && let Some(order) = self.waiting.pop_front()
        {
            self.begin(order);
        }
    }

    fn begin_upgrade(
        &mut self,
        executable: Option<PathBuf>,
        allows_loss: bool,
        responder: Option<Responder>,
    ) {
        // First, so that none begins behind the question whether one is under way.
        self.admin.set_upgrading(true);
        if let Some(why) = self.admin.waits() {
            self.admin.set_upgrading(false);
            return report_failed_upgrade(why, responder);
        }
        let executable = executable.unwrap_or_else(|| self.options.executable.clone());
        let estate = Estate {
            sockets: &self.current.sockets,
            rates: &self.current.rates,
            purges: self.servers.purges.as_ref(),
            tickets: self.tls.tickets(),
            names: revision::served_names(&self.current.settings),
            allows_loss,
        };
        let control = self.control.as_ref().map(ControlSocket::place);
        let held = self.disk.run("the control socket", move || control.map(HeldSocket::hold));
        match upgrade::launch(&executable, &self.options.arguments, estate, self.sender.clone()) {
            Ok(starting) => {
                log::info(format_args!("upgrade: starting {}", executable.display()));
                let held = held.flatten();
                let rotations = self.rotation.count;
                self.change =
                    Some(Change::Upgrade(Upgrade::Starting { starting, responder, held, rotations }));
            }
            Err(error) => {
                self.admin.set_upgrading(false);
                self.disk.run("the control socket", move || drop(held));
                report_failed_upgrade(&format!("{error:#}"), responder);
            }
        }
    }

    /// The new program serves, or does not.
    pub(super) fn has_upgraded(&mut self) {
        let is_meant = |change: &mut Change| matches!(change, Change::Upgrade(Upgrade::Starting { .. }));
        let Some(Change::Upgrade(Upgrade::Starting { starting, responder, held, rotations })) =
            self.change.take_if(is_meant)
        else {
            return;
        };
        let outcome = starting.outcome().unwrap_or_else(|| Err("nothing is known of it".into()));
        match outcome {
            Ok(successor) => {
                self.disk.run("the control socket", move || drop(held));
                self.notifier.succeeded_by(successor.pid);
                // Who connects when this is told meets the new one.
                self.servers.is_ending = true;
                let serving = self.servers.serving();
                let patience = self.current.settings.drain_timeout;
                serving.iter().for_each(|id| self.servers.drain(*id, false, patience));
                self.change = Some(Change::Upgrade(Upgrade::HandingOver {
                    successor,
                    responder,
                    rotations,
                    waits_for: serving.into_iter().collect(),
                    until: Instant::now() + PATIENCE,
                }));
            }
            Err(why) => {
                self.admin.set_upgrading(false);
                self.put_names_back(held);
                report_failed_upgrade(&why, responder);
                self.begin_next();
            }
        }
    }

    /// A new program that has ended may have put its own in the places of the control socket and the pid file.
    fn put_names_back(&self, held: Option<HeldSocket>) {
        let pid_file = self.pid_file.as_ref().map(|file| PidFile::at(file.path()));
        self.disk.run("the control socket", move || {
            if let Some(held) = held {
                held.put_back();
            }
            if let Some(pid_file) = pid_file {
                pid_file.put_back();
            }
        });
    }

    /// When nobody accepts here any more, this server ends.
    pub(super) fn look_at_upgrade(&mut self, now: Instant) -> Option<Ending> {
        let is_over = |change: &mut Change| {
            matches!(change, Change::Upgrade(Upgrade::HandingOver { waits_for, until, .. })
                if waits_for.is_empty() || *until <= now)
        };
        let Some(Change::Upgrade(Upgrade::HandingOver { successor, responder, rotations, .. })) =
            self.change.take_if(is_over)
        else {
            return None;
        };
        if rotations != self.rotation.count {
            successor.reopen_logs();
        }
        let figures = self.status_registry.last_figures();
        self.status_registry
            .history
            .hand_over(|history| successor.tell(&figures, self.status_registry.otlp(), history));
        let said = format!(
            "{}process {} serves; process {} finishes what is open, for {} s at most",
            successor.notes,
            successor.pid,
            std::process::id(),
            self.current.settings.drain_timeout.as_secs()
        );
        log::info(format_args!("upgrade: {said}"));
        // Whether they wanted what has been taken up nobody can tell.
        for responder in std::mem::take(&mut self.waiting).into_iter().filter_map(Order::into_responder) {
            responder.send(Reply::failed(format!(
                "process {} has taken over meanwhile, with the settings as it found them: try again\n",
                successor.pid
            )));
        }
        if let Some(responder) = responder {
            responder.send_and_wait(Reply::ok(said + "\n"));
        }
        Some(Ending { close_idle: false, successor: Some(successor), ..Ending::drain() })
    }

    /// Waits for the last word of a predecessor that still finishes what is open there: the successor is told by this process
    /// what that one has counted, and by nobody else.
    pub(super) fn hear_predecessor_out(&mut self, ending: &mut Ending, until: Instant) {
        while self.predecessor.is_some() && !ending.now && Instant::now() < until {
            match self.next_event(Some(until)) {
                Some(Event::Signal(SIGTERM | SIGINT)) => return,
                Some(Event::Signal(SIGUSR1)) => self.reopen_logs(),
                Some(Event::Order(Request::Stop { .. }, responder)) => {
                    ending.waiting.push(responder);
                    return;
                }
                Some(Event::Order(_, responder)) => responder.send(Reply::failed("the server is ending")),
                Some(event) => drop(self.obey_servers(event)),
                None => {}
            }
            self.look_at_logs(Instant::now());
        }
    }
}

impl Order {
    /// Who waits for it.
    fn into_responder(self) -> Option<Responder> {
        match self {
            Order::Reload { responder, .. } | Order::Upgrade { responder, .. } => responder,
            Order::Authorities => None,
        }
    }
}

impl Change {
    /// When it has to be looked at.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Change::Reload(reload) => reload.deadline(),
            Change::Upgrade(Upgrade::Starting { .. }) => None,
            Change::Upgrade(Upgrade::HandingOver { until, .. }) => Some(*until),
        }
    }
}

fn report_failed_upgrade(why: &str, responder: Option<Responder>) {
    let said = format!("the upgrade failed, and process {} goes on: {why}", std::process::id());
    log::error(&said);
    if let Some(responder) = responder {
        responder.send(Reply::failed(said + "\n"));
    }
}
