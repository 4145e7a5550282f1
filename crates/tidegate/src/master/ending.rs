//! How the server ends: what it still waits for, what it leaves behind, and who hears of it.

use super::control::{Reply, Request, Responder};
use super::servers::State;
use super::sockets::Sockets;
use super::upgrade::Successor;
use super::{Event, Master, PATIENCE, kept_bans, totals};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::time::{Duration, Instant};
use tidegate_core::log;

/// How long the end waits for processes that were ended by force.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often the end looks whether a change of the settings has come to its own.
const LOOK: Duration = Duration::from_millis(20);

/// How the server ends.
pub(super) struct Ending {
    /// Whether connections between requests are closed at once.
    pub(super) close_idle: bool,
    /// Whether nothing is waited for.
    pub(super) now: bool,
    /// The new process, which has taken over what is on the disk.
    pub(super) successor: Option<Successor>,
    /// That one was told to end as well.
    pub(super) is_followed: bool,
    /// Who waits for the end.
    pub(super) waiting: Vec<Responder>,
}

impl Ending {
    pub(super) fn drain() -> Ending {
        Ending { close_idle: true, now: false, successor: None, is_followed: false, waiting: Vec::new() }
    }

    pub(super) fn now() -> Ending {
        Ending { now: true, ..Ending::drain() }
    }
}

impl Master {
    pub(super) fn end(mut self, mut ending: Ending) {
        // Told to end in the last moment of an upgrade: what is on the disk is the successor's all the same, which ends too.
        if let Some(successor) = self.give_up_changes(ending.now) {
            ending.successor.get_or_insert(successor);
            ending.is_followed = true;
        }
        if !ending.now {
            self.otlp.collect();
        }
        self.status_registry.set_draining();
        self.servers.is_ending = true;
        self.servers.forced.clear();
        self.disk.run("the settings that nobody has confirmed", self.admin.ending());
        if ending.successor.is_some() {
            self.control = None; // its place is the successor's
            self.next_alive = None;
        } else {
            self.notifier.stopping();
            let files = self.current.sockets.files_beside(&Sockets::default());
            self.disk.run("the files of sockets", move || files.remove());
        }
        // With the copies of the server processes these are the last: from here on connecting is refused.
        self.current.sockets = Sockets::default();
        let patience = if ending.now { Duration::ZERO } else { self.current.settings.drain_timeout };
        let until = Instant::now() + patience + END_PATIENCE;
        let open = self.drain(&mut ending);
        let mut said = match open {
            0 if self.servers.forced.is_empty() => "ended; nothing was open any more".to_owned(),
            0 => "ended".to_owned(),
            1 => "ended; 1 connection was cut".to_owned(),
            open => format!("ended; {open} connections were cut"),
        };
        match &*self.servers.forced {
            [] => {}
            [one] => {
                said +=
                    &format!("; what was open in server process {one}, which did not react, was cut as well")
            }
            all => {
                said += &format!(
                    "; what was open in {} server processes, which did not react, was cut as well",
                    all.len()
                )
            }
        }
        self.pools.end();
        if ending.successor.is_some() {
            self.hear_predecessor_out(&mut ending, until);
        }
        self.settle_admin();
        if !ending.now {
            self.otlp.finish(ending.successor.is_none());
        }
        let (figures, otlp) = (self.status_registry.last_figures(), self.status_registry.otlp());
        if let Some(successor) = &ending.successor {
            self.status_registry.history.hand_over(|history| successor.tell(&figures, otlp, history));
            if ending.is_followed && !successor.has_ended(until) {
                said += &format!("; process {}, which was taking over, still ends", successor.pid);
            }
        }
        if let (Some(path), None) = (self.current.settings.bans_file.clone(), &ending.successor) {
            let lines = kept_bans::lines(&self.current.rates);
            self.disk.run("who is banned", move || kept_bans::keep(&path, &lines));
        }
        if let Some((path, days)) = self.status_registry.history.totals() {
            self.disk.run("the totals of days", move || totals::keep(&path, days));
        }
        log::info(&said);
        self.writer.flush();
        if let Some(control) = self.control.take() {
            self.disk.run("the control socket", move || control.remove());
        }
        if let Some(pid_file) = self.pid_file.take() {
            self.disk.run("the pid file", move || pid_file.remove());
        }
        for responder in ending.waiting {
            responder.send_and_wait(Reply::ok(format!("{said}\n")));
        }
    }

    /// A change of the settings that was under way waits for this thread to say that it is not taken up, and puts the files back.
    fn settle_admin(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.admin.is_changing() && Instant::now() < until {
            match self.next_event(Some(Instant::now() + LOOK)) {
                Some(Event::Order(_, responder)) => responder.send(Reply::failed("the server is ending")),
                Some(event) => drop(self.obey_servers(event)),
                None => {}
            }
        }
        self.disk.run("the settings that nobody has confirmed", self.admin.last_look());
    }

    /// Waits for the server processes; how many connections had to be cut.
    fn drain(&mut self, ending: &mut Ending) -> u64 {
        let patience = if ending.now { Duration::ZERO } else { self.current.settings.drain_timeout };
        if !ending.now {
            log::info(format_args!("ending: requests in flight have {patience:?}"));
        }
        let all: Vec<u64> = self.servers.list.iter().map(|server| server.id).collect();
        for id in all {
            let is_draining = self.servers.list.iter().any(|s| s.id == id && s.state == State::Draining);
            if !is_draining || ending.close_idle {
                self.servers.drain(id, ending.close_idle, patience);
            }
        }
        if ending.now {
            self.hurry();
        }
        let (mut cut, mut counted) = (0, Vec::new());
        while !self.servers.list.is_empty() {
            match self.next_event(None) {
                Some(Event::Signal(SIGTERM | SIGINT)) => self.hurry(),
                Some(Event::Signal(SIGUSR1)) => self.reopen_logs(),
                Some(Event::Order(Request::Stop { config: Some(other), .. }, responder))
                    if !self.options.is_from(&other) =>
                {
                    responder.send(self.not_meant(&other));
                }
                Some(Event::Order(Request::Stop { now, .. }, responder)) => {
                    ending.waiting.push(responder);
                    if now {
                        self.hurry();
                    }
                }
                Some(Event::Order(_, responder)) => responder.send(Reply::failed("the server is ending")),
                Some(event) => drop(self.obey_servers(event)),
                None => {}
            }
            while self.servers.next_news().is_some() {}
            self.look_at_logs(Instant::now());
            for server in self.servers.list.iter().filter(|server| server.cut > 0) {
                if !counted.contains(&server.id) {
                    counted.push(server.id);
                    cut += server.cut;
                }
            }
        }
        cut
    }

    /// What is still open is cut.
    fn hurry(&mut self) {
        let late: Vec<u64> = self.servers.list.iter().filter(|s| !s.has_ended).map(|s| s.id).collect();
        late.into_iter().for_each(|id| self.servers.stop_now(id));
    }

    /// Ends all server processes at once.
    pub(super) fn cut_servers(&mut self) {
        self.servers.is_ending = true;
        let all: Vec<u64> = self.servers.list.iter().map(|server| server.id).collect();
        all.into_iter().for_each(|id| self.servers.kill(id));
        let deadline = Instant::now() + END_PATIENCE;
        // The last word of a process is an event, and no news.
        while !self.servers.list.is_empty() && Instant::now() < deadline {
            if let Some(event) = self.next_event(Some(deadline))
                && let Some(other) = self.obey_servers(event)
            {
                self.deferred.push_back(other);
            }
            while self.servers.next_news().is_some() {}
        }
    }
}
