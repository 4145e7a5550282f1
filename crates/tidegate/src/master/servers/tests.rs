//! The server processes without any: what they are told is read, what they say is said for them.

use super::*;
use crate::link::Found;
use crate::master::rates::Rates;
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
        let (id, link, gives) = self.servers.watch(ours).expect("threads start");
        let child = Command::new("sleep").arg("1000").spawn().expect("it starts");
        self.servers.take_in(id, (place, start), (child, link, gives), revision).expect("it is told");
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
        access: Default::default(),
        logs: Logs::default(),
        rates: Rates::default(),
        layout: Layout { processes, ..Layout::of(&settings, 1, None) },
        assigned: Vec::new(),
        warnings: HashSet::new(),
        written: Arc::default(),
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

/// One that aborts again and again, each time after it has served for a while, does not spin; one that somebody kills is
/// replaced at once.
#[test]
fn those_that_crash_in_the_same_way_wait_longer_and_longer() {
    for (how, waits) in [("signal 6", [0, 0, 100, 200, 400, 800]), (KILLED, [0; 6])] {
        let (mut stage, revision) = (Stage::new(1), revision(1, 1));
        for wait in waits {
            let id = stage.serving(0, &revision);
            let server = stage.servers.list.iter_mut().find(|server| server.id == id).expect("it is there");
            server.serving_since = Instant::now().checked_sub(2 * SOUND);
            let before = Instant::now();
            stage.dies(id);
            stage.servers.gone(id, how);
            let next = stage.servers.places[0].next_try.take().expect("there will be another");
            assert!(next >= before + Duration::from_millis(wait), "{how}: {wait}");
            assert_eq!(
                pause(stage.servers.places[0].crashes.saturating_sub(1)).as_millis(),
                u128::from(wait)
            );
        }
        let id = stage.serving(0, &revision);
        stage.server(id);
        let server = stage.servers.list.iter_mut().find(|server| server.id == id).expect("it is there");
        server.serving_since = Instant::now().checked_sub(2 * STEADY);
        stage.dies(id);
        stage.servers.gone(id, how);
        assert_eq!(stage.servers.places[0].crashes, 0, "it has served for long");
    }
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

/// It says so once: a worker has ended before there was anything to serve, or a first commit has failed.
#[test]
fn one_that_has_to_leave_before_it_serves_is_replaced_once_it_does() {
    for start in [Start::ForReload, Start::Recovery { replaces: None }] {
        for is_early in [true, false] {
            let (mut stage, revision) = (Stage::new(1), revision(1, 1));
            let id = stage.add(0, start, &revision);
            if is_early {
                stage.says(id, ToMaster::Leaving, &revision);
            }
            stage.has_prepared(id, &revision);
            stage.servers.commit(id);
            if !is_early {
                stage.says(id, ToMaster::Leaving, &revision);
            }
            assert_eq!(stage.servers.places[0].restarts, 0, "others rely on it until it serves");
            stage.says(id, ToMaster::Committed, &revision);
            assert_eq!(stage.servers.places[0].restarts, 1, "{start:?}, early: {is_early}");
            assert_eq!(stage.server(id).state, State::Serving, "until another does");
            let next = stage.add(0, Start::Recovery { replaces: None }, &revision);
            stage.has_prepared(next, &revision);
            stage.says(next, ToMaster::Committed, &revision);
            assert_eq!(stage.server(id).state, State::Draining);
        }
    }
}

/// As processes that end so soon are.
#[test]
fn those_that_have_to_leave_one_after_the_other_are_replaced_more_and_more_slowly() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    for round in 1..=3 {
        stage.servers.places[0].next_try = None;
        stage.servers.places[0].failures = round - 1;
        let id = stage.serving(0, &revision);
        stage.says(id, ToMaster::Leaving, &revision);
        assert!(stage.servers.places[0].failures >= round);
    }
    let wait = stage.servers.places[0].next_try.expect("it waits").saturating_duration_since(Instant::now());
    assert!(wait > Duration::ZERO && wait <= pause(3), "{wait:?}");
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
        servers.send_settings(id, &revision, Given::Serve)
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
    // The thread that writes may have taken one more.
    while stage.server(id).order(&ToServer::Commit, Vec::new()) {}
    let pid = Pid::from_raw(stage.server(id).pid.cast_signed()).expect("a number");
    stage.told.remove(&id); // as the kernel closes what a process has that is killed
    stage.hears_of_the_end(id);
    while !matches!(stage.events.recv_timeout(START_PATIENCE).expect("it is killed"), Event::Gone(gone, _) if gone == id)
    {
    }
    assert!(rustix::process::test_kill_process(pid).is_err());
    assert!(stage.servers.places[0].next_try.is_some());
}

/// FAULTS 67: no process is left that nobody knows of.
#[test]
fn one_that_cannot_be_told_its_settings_is_ended() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.add(0, Start::ForReload, &revision);
    let told = stage.servers.or_end(id, Err(anyhow::anyhow!("no descriptor is left")));
    assert_eq!(told.unwrap_err().to_string(), "no descriptor is left");
    assert_eq!(stage.server(id).state, State::Draining);
    while !has_ended_for_good(&stage, id) {}
}

/// A process that could not be started leaves no thread that waits for it.
#[test]
fn a_link_without_a_process_ends() {
    let mut stage = Stage::new(1);
    let (ours, theirs) = passing::pair().expect("a pair of sockets");
    let (_, link, gives) = stage.servers.watch(ours).expect("threads start");
    drop((gives, theirs));
    tidegate_testkit::wait_for(|| (!link.is_open()).then_some(()), "the end of the link");
}

/// What a root leads to is what the process has found, and not what lay there when the settings were read.
#[test]
fn a_process_says_itself_what_it_may_read() {
    let mut stage = Stage::new(1);
    let at =
        |inode| Layout { readable: Some(vec![("/m".into(), Some((1, inode)))]), ..revision(1, 1).layout };
    let revision = Revision { layout: at(2), ..revision(1, 1) };
    let id = stage.serving(0, &revision);
    assert!(stage.server(id).layout.suits(&at(2)));
    let readable = vec![Some((1, 3)), Some((9, 9))]; // beside its roots what it reads of the system
    stage.says(id, ToMaster::Found(Found { readable, ..Found::default() }), &revision);
    assert!(stage.server(id).layout.suits(&at(3)) && !stage.server(id).layout.suits(&at(2)));
}

/// A file system that hangs keeps it, whatever signal it is sent: the end of the server does not wait for that.
#[test]
fn one_that_cannot_be_killed_is_left() {
    let (mut stage, revision) = (Stage::new(1), revision(1, 1));
    let id = stage.serving(0, &revision);
    let handle = stage.servers.list[0].handle.take(); // nothing ends it
    stage.servers.commit(id);
    for _ in 0..2 {
        assert_eq!(stage.servers.list.len(), 1);
        stage.servers.list[0].deadline = Some(Instant::now());
        stage.servers.tick(&revision);
    }
    assert!(stage.servers.list.iter().all(|server| server.id != id));
    assert_eq!(stage.servers.places[0].restarts, 1, "another takes its place");
    pidfd_send_signal(handle.expect("it was watched"), Signal::KILL).expect("it is there");
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

#[test]
fn one_that_answers_nothing_for_long_is_ended_and_one_that_answers_is_not() {
    let (mut stage, revision) = (Stage::new(3), revision(1, 3));
    let (silent, well) = (stage.serving(0, &revision), stage.serving(1, &revision));
    let busy = stage.serving(2, &revision);
    let mut now = Instant::now();
    for _ in 0..4 {
        now += Duration::from_secs(60);
        stage.servers.look_at_pulses(now);
        stage.servers.has_wellness(well, &Wellness::default(), &revision);
        // Its answers come while it takes up settings, each time.
        stage.servers.commit(busy);
        stage.servers.has_wellness(busy, &Wellness::default(), &revision);
        stage.says(busy, ToMaster::Committed, &revision);
    }
    assert!(stage.server(busy).pulse.is_some(), "it has answered");
    assert!(stage.server(silent).pulse.is_none(), "it was ended");
    stage.told.remove(&silent); // with its end of the link
    stage.hears_of_the_end(silent);
    assert_eq!(stage.server(well).state, State::Serving);
    // What was lowered does not come back.
    let lowered = Wellness { lowered: Some("descriptors".into()), silent: 0 };
    stage.servers.has_wellness(well, &lowered, &revision);
    assert_eq!(stage.server(well).state, State::Serving, "until another serves");
    assert!(stage.server(well).next_look().is_none(), "and is asked no more");
    assert_eq!(stage.servers.places[1].restarts, 1, "which is due");
}

/// What is not in force any more answers nobody who asks later.
#[test]
fn who_makes_room_ends_by_the_settings_in_force() {
    let (mut stage, before, now) = (Stage::new(2), revision(1, 2), revision(2, 2));
    let (one, other) = (stage.serving(0, &before), stage.serving(1, &before));
    let current = stage.serving(0, &now);
    for id in [one, other, current] {
        while !matches!(stage.order(id), ToServer::Commit) {}
    }
    stage.servers.retire(one, &now);
    assert!(matches!(stage.order(one), ToServer::Prepare { listeners: None, .. }));
    assert!(matches!(stage.order(one), ToServer::Commit));
    assert!(matches!(stage.order(one), ToServer::Drain { close_idle: false }));
    // One that does not reach what they name is not given them.
    let mut beyond = revision(2, 2);
    beyond.layout.spill = Some("/elsewhere".into());
    stage.servers.retire(other, &beyond);
    assert!(matches!(stage.order(other), ToServer::Drain { close_idle: false }));
    assert!(matches!(stage.order(other), ToServer::Drain { close_idle: true }));
    // One that goes by them already drains, until others are in force.
    stage.servers.retire(current, &now);
    assert!(matches!(stage.order(current), ToServer::Drain { close_idle: false }));
    stage.servers.leave_behind(2);
    stage.servers.leave_behind(3);
    assert!(matches!(stage.order(current), ToServer::Drain { close_idle: true }));
    assert_eq!(stage.server(one).state, State::Draining);
}

#[test]
fn settings_that_were_given_up_are_not_those_that_a_process_serves_by() {
    let (mut stage, before, next) = (Stage::new(1), revision(1, 1), revision(2, 1));
    let id = stage.serving(0, &before);
    for _ in 0..2 {
        stage.servers.prepare(&[id], &next).unwrap();
        assert_eq!(stage.server(id).revision, 2);
        stage.servers.discard(id);
        assert_eq!(stage.server(id).revision, 1);
    }
    stage.servers.prepare(&[id], &next).unwrap();
    stage.servers.commit(id);
    stage.servers.discard(id);
    assert_eq!(stage.server(id).revision, 2);
}
