//! The server processes without any: what they are told is read, what they say is said for them.

use super::*;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::collections::HashMap;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use tidegate_core::tls::TlsFiles;

/// Server processes that are none: what they are told lies in a socket, what they say is put into their mouths.
struct Stage {
    servers: Servers,
    events: Receiver<Event>,
    told: HashMap<u64, OwnedFd>,
}

impl Stage {
    fn new(places: usize) -> Stage {
        let (sender, events) = channel();
        let pools = Pools::start(None).expect("a thread starts");
        // Nothing else can be started.
        let nobody = Path::new("/nonexistent/tidegate");
        let parts = (pools, Arc::new(Upstreams::default()));
        let mut servers = Servers::new(StatusRegistry::new(), parts, sender, nobody);
        servers.executable = nobody.to_owned();
        servers.set_places(places);
        Stage { servers, events, told: HashMap::new() }
    }

    fn add(&mut self, place: usize, start: Start, revision: &Revision) -> u64 {
        let (ours, theirs) = passing::pair().expect("a pair of sockets");
        set_socket_timeout(&theirs, Timeout::Recv, Some(START_PATIENCE)).expect("it is a socket");
        let child = Command::new("sleep").arg("1000").spawn().expect("it starts");
        self.servers.last_id += 1;
        let layout = revision.layout.clone();
        let id = self.servers.last_id;
        let begin = Begin { identity: None, readable: None, sealed: Vec::new(), spill: None };
        self.servers
            .take_in(id, (place, start), (child, ours, layout), &begin, revision)
            .expect("it is told");
        let (first, _) = passing::receive(theirs.as_fd()).unwrap().expect("it is told");
        serde_json::from_slice::<Begin>(&first).expect("who to be comes before all else");
        self.told.insert(id, theirs);
        id
    }

    fn says(&mut self, id: u64, message: ToMaster, revision: &Revision) {
        self.servers.said(id, message, revision);
    }

    fn has_prepared(&mut self, id: u64, revision: &Revision) {
        let asked = self.server(id).asked;
        self.says(id, ToMaster::Prepared(asked), revision);
    }

    /// One that serves.
    fn serving(&mut self, place: usize, revision: &Revision) -> u64 {
        let id = self.add(place, Start::ForReload, revision);
        self.has_prepared(id, revision);
        self.servers.commit(id);
        self.says(id, ToMaster::Committed, revision);
        assert_eq!(self.server(id).state, State::Serving);
        id
    }

    fn server(&self, id: u64) -> &Server {
        self.servers.list.iter().find(|server| server.id == id).expect("it is there")
    }

    /// The next order that is none of TLS.
    fn order(&self, id: u64) -> ToServer {
        loop {
            let (bytes, _) = passing::receive(self.told[&id].as_fd()).unwrap().expect("it is told");
            match serde_json::from_slice(&bytes).expect("an order") {
                ToServer::Tls(_) => {}
                order => return order,
            }
        }
    }

    fn dies(&mut self, id: u64) {
        self.server(id).kill();
        self.told.remove(&id);
        self.hears_of_the_end(id);
    }

    fn hears_of_the_end(&mut self, id: u64) {
        while !matches!(self.events.recv_timeout(START_PATIENCE).expect("it ends"), Event::Lost(lost) if lost == id)
        {
        }
        self.servers.lost(id);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.servers.list.iter().for_each(Server::kill);
    }
}

fn revision(number: u64, processes: usize) -> Revision {
    let settings = tidegate_config::from_folder(Path::new("/"), &["127.0.0.1:0".to_owned()]).unwrap();
    let sockets = Sockets::open(&settings, processes, &Sockets::default()).unwrap();
    Revision {
        number,
        sockets,
        tls: TlsFiles::default(),
        seen: CertificateWatch::default(),
        logs: Logs::default(),
        layout: Layout { processes, ..Layout::of(&settings, 1, None) },
        assigned: Vec::new(),
        warnings: HashSet::new(),
        settings: Arc::new(settings),
    }
}

#[test]
fn one_that_dies_between_prepared_and_committed_is_replaced_and_its_end_is_said() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    for (is_told, is_missed) in [(false, false), (true, true)] {
        let id = stage.add(0, Start::ForReload, &revision);
        stage.has_prepared(id, &revision);
        if is_told {
            stage.servers.commit(id);
        }
        stage.dies(id);
        assert_eq!(stage.servers.places[0].next_try.is_some(), is_missed, "told to commit: {is_told}");
        assert_eq!(stage.server(id).is_end_news, is_missed);
    }
    assert_eq!(stage.servers.places[0].restarts, 1);
}

#[test]
fn one_started_for_recovery_commits_when_ready_and_others_when_told() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.add(0, Start::ForReload, &revision);
    stage.has_prepared(id, &revision);
    assert_eq!(stage.server(id).state, State::Starting(Start::ForReload));
    let old = stage.serving(0, &revision);
    let start = Start::Recovery { replaces: Some(old) };
    let next = stage.add(0, start, &revision);
    stage.has_prepared(next, &revision);
    assert_eq!(stage.server(next).state, State::Committing(start));
    assert!(matches!(stage.order(next), ToServer::Prepare { is_recovery: true, .. }));
    assert!(matches!(stage.order(next), ToServer::Commit));
    stage.says(next, ToMaster::Committed, &revision);
    assert_eq!((stage.server(next).state, stage.server(old).state), (State::Serving, State::Draining));
}

#[test]
fn a_recovery_with_settings_of_before_leaves_those_with_newer_ones_alone() {
    let (mut stage, before, now) = (Stage::new(1), revision(1, 1), revision(2, 1));
    let late = stage.add(0, Start::Recovery { replaces: None }, &before);
    stage.has_prepared(late, &before);
    let fresh = stage.serving(0, &now);
    stage.says(late, ToMaster::Committed, &now);
    assert_eq!(stage.server(fresh).state, State::Serving);
    assert_eq!(stage.server(late).state, State::Draining, "it serves what is no longer in force");
}

#[test]
fn one_that_was_told_to_drain_does_not_come_back() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.add(0, Start::Recovery { replaces: None }, &revision);
    stage.servers.drain(id, false, START_PATIENCE);
    stage.has_prepared(id, &revision);
    stage.says(id, ToMaster::Committed, &revision);
    assert_eq!(stage.server(id).state, State::Draining);
    assert!(stage.server(id).deadline.is_some());
}

/// FAULTS 67.
#[test]
fn where_one_cannot_be_told_to_prepare_all_forget_it() {
    let (mut stage, revision) = (Stage::new(2), revision(1, 2));
    let ids = [stage.serving(0, &revision), stage.serving(1, &revision)];
    ids.iter().for_each(|id| while !matches!(stage.order(*id), ToServer::Commit) {});
    let mut told = 0;
    let outcome = stage.servers.prepare_with(&ids, |servers, id| {
        told += 1;
        if told == 2 {
            anyhow::bail!("no descriptor is left");
        }
        servers.send_settings(id, &revision, false)
    });
    assert_eq!(outcome.unwrap_err().to_string(), "no descriptor is left");
    assert!(matches!(stage.order(ids[0]), ToServer::Prepare { .. }));
    assert!(matches!(stage.order(ids[0]), ToServer::Discard));
}

#[test]
fn one_that_takes_no_order_is_ended_and_replaced() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.serving(0, &revision);
    // It reads nothing, and has been told so much that the commit does not fit.
    while stage.server(id).link.send(&ToServer::Tls(TlsUpdate::default()), Vec::new()) {}
    stage.servers.commit(id);
    let pid = Pid::from_raw(stage.server(id).pid.cast_signed()).expect("a number");
    stage.told.remove(&id); // as the kernel closes what a process has that is killed
    stage.hears_of_the_end(id);
    while !matches!(stage.events.recv_timeout(START_PATIENCE).expect("it is killed"), Event::Gone(gone, _) if gone == id)
    {
    }
    assert!(rustix::process::test_kill_process(pid).is_err());
    assert!(stage.servers.places[0].next_try.is_some());
}

#[test]
fn one_that_does_not_take_settings_up_in_time_is_ended_and_replaced() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.serving(0, &revision);
    assert_eq!(stage.server(id).deadline, None);
    stage.servers.commit(id);
    let patience = stage.server(id).deadline.expect("it has so long").duration_since(Instant::now());
    assert!(patience <= COMMIT_PATIENCE);
    stage.says(id, ToMaster::Committed, &revision);
    assert_eq!(stage.server(id).deadline, None);
    stage.servers.commit(id);
    stage.servers.list[0].deadline = Some(Instant::now());
    stage.servers.tick(&revision);
    while !has_ended_for_good(&stage, id) {}
    stage.told.remove(&id);
    stage.hears_of_the_end(id);
    assert!(stage.servers.places[0].next_try.is_some());
}

/// Waits until the process was killed.
fn has_ended_for_good(stage: &Stage, id: u64) -> bool {
    let handle = stage.server(id).handle.as_ref().expect("it is watched");
    let mut fds = [rustix::event::PollFd::new(handle, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, None).is_ok()
}
