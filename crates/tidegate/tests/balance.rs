//! Upstream groups with real backends: one is killed under load, comes back, and nobody but the operator notices.

mod running;

use running::{Folder, KeepAlive, Load, Server, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;

/// A backend that can be killed with all its processes at once.
fn backend<'a>(folder: &'a Folder, address: &str, body: &str) -> Server<'a> {
    let text = format!("workers 1\nlisten \"{address}\"\nsite {{ respond 200 \"{body}\" }}\n");
    Server::through(folder, &text, |mut command| {
        command.process_group(0);
        command
    })
}

fn kill(backend: &mut Server<'_>) {
    kill_process_group(Pid::from_child(&backend.child), Signal::KILL).unwrap();
    backend.wait();
}

fn member(server: &Server<'_>, index: usize, what: &str) -> serde_json::Value {
    server.status()["upstreams"][0]["members"][index][what].clone()
}

fn requests(server: &Server<'_>, index: usize) -> u64 {
    member(server, index, "requests").as_u64().unwrap_or(0)
}

#[test]
fn a_backend_that_is_killed_under_load_costs_no_request() {
    let (one, two, front) = (Folder::new("one"), Folder::new("two"), Folder::new("front"));
    let mut first = backend(&one, "127.0.0.1:0", "one");
    let second = backend(&two, "127.0.0.1:0", "two");
    let address = first.address.clone();
    let server = Server::with_config(
        &front,
        &format!(
            "workers 2\nlisten \"127.0.0.1:0\"\n\
             upstream \"app\" {{ eject time=\"200ms\"; member \"{address}\"; member \"{}\" }}\n\
             site {{ proxy \"http://app\" }}\n",
            second.address
        ),
    );
    let loads: Vec<Load> = (0..8).map(|_| Load::on(&server.address)).collect();
    wait_for(|| (requests(&server, 0) > 50).then_some(()), "both to be asked");
    kill(&mut first);
    let before = requests(&server, 1);
    wait_for(|| (requests(&server, 1) > before + 200).then_some(()), "the other to take over");
    assert!(member(&server, 0, "failures").as_u64() > Some(0));
    wait_for(|| (member(&server, 0, "state") != "up").then_some(()), "the dead one to be put aside");

    let _first = backend(&one, &address, "one again");
    wait_for(|| (member(&server, 0, "state") == "up").then_some(()), "it to be tried");
    let before = requests(&server, 0);
    wait_for(|| (requests(&server, 0) > before + 50).then_some(()), "it to be asked as before");
    loads.into_iter().for_each(Load::end);
}

#[test]
fn caches_behind_a_front_share_the_urls_and_a_dead_one_moves_its_own_alone() {
    let (origin, one, two, front) =
        (Folder::new("origin"), Folder::new("shield-1"), Folder::new("shield-2"), Folder::new("front"));
    let text =
        "workers 1\nlisten \"127.0.0.1:0\"\nsite { respond 200 \"fine\"; cache-control \"max-age=600\" }\n";
    let origin = Server::with_config(&origin, text);
    let shield = |folder| {
        let text = format!(
            "workers 1\nlisten \"127.0.0.1:0\"\ncache \"shield\" {{ memory \"8MiB\" }}\n\
             site {{ proxy \"http://{}\"; cache \"shield\" }}\n",
            origin.address
        );
        Server::through(folder, &text, |mut command| {
            command.process_group(0);
            command
        })
    };
    let (mut first, second) = (shield(&one), shield(&two));
    let server = Server::with_config(
        &front,
        &format!(
            "workers 1\nlisten \"127.0.0.1:0\"\n\
             upstream \"shields\" {{ balance hash by=\"url\" balance-factor=125; member \"{}\"; member \"{}\" }}\n\
             site {{ proxy \"http://shields\" }}\n",
            first.address, second.address
        ),
    );
    let fetched = |count: u64, what| {
        wait_for(|| (origin.status()["stats"]["requests"] == count).then_some(()), what);
    };
    let all = || {
        let mut client = KeepAlive::new(&server.address);
        (0..60).for_each(|number| assert_eq!(client.get(&format!("/{number}")).0, "fine"));
    };
    all();
    let of_first = requests(&server, 0);
    assert!((1..60).contains(&of_first), "{of_first} of 60");
    fetched(60, "each URL to be fetched once");
    all();
    assert_eq!((requests(&server, 0), requests(&server, 1)), (2 * of_first, 120 - 2 * of_first));
    fetched(60, "each URL to be found where it is stored");
    kill(&mut first);
    all();
    fetched(60 + of_first, "those of the dead one to be fetched anew, and no others");
}

#[test]
fn a_server_process_that_takes_over_knows_what_was_found_out() {
    let (one, front) = (Folder::new("known"), Folder::new("knows"));
    let backend = backend(&one, "127.0.0.1:0", "fine");
    let port = backend.address.rsplit(':').next().unwrap();
    let server = Server::with_config(
        &front,
        &format!(
            "workers 1\nlisten \"127.0.0.1:0\"\n\
             upstream \"app\" {{ check tcp every=\"100ms\" fall=1; member \"localhost:{port}\"; member \"127.0.0.1:1\" }}\n\
             site {{ proxy \"http://app\" }}\n"
        ),
    );
    wait_for(|| (member(&server, 1, "state") == "down").then_some(()), "the check to fail");
    let load = Load::on(&server.address);
    for pid in server.processes() {
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        wait_for(|| (!server.processes().contains(&pid)).then_some(()), "the dead to be noticed");
    }
    // What it had in hand is lost with a process, and nothing else.
    load.is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    let (_, failures) = running::join(load.thread, "the load to end");
    assert!(failures.len() <= 1, "{failures:?}");
    wait_for(|| (server.processes().len() == 1).then_some(()), "the next process");
    let mut client = KeepAlive::new(&server.address);
    for _ in 0..20 {
        assert_eq!(client.get("/").0, "fine");
    }
    assert_eq!(member(&server, 1, "state"), "down");
    assert_eq!(member(&server, 1, "failures"), 0, "nobody had to find out again");
}

#[test]
fn what_one_process_finds_out_the_others_need_not() {
    let (one, front) = (Folder::new("alive"), Folder::new("shared"));
    let backend = backend(&one, "127.0.0.1:0", "fine");
    let server = Server::with_config(
        &front,
        &format!(
            "workers 1\nprocesses 3\nlisten \"127.0.0.1:0\"\n\
             upstream \"app\" {{ balance round-robin; eject failures=2 time=\"1h\" most=\"1h\"\n\
             member \"{}\"; member \"127.0.0.1:1\" }}\n\
             site {{ proxy \"http://app\" }}\n",
            backend.address
        ),
    );
    // One connection is one process.
    let mut client = KeepAlive::new(&server.address);
    wait_for(
        || {
            assert_eq!(client.get("/").0, "fine");
            (member(&server, 1, "state") == "ejected").then_some(())
        },
        "the closed port to be put aside",
    );
    assert_eq!(member(&server, 1, "failures"), 2);
    // A process that starts is told as well; once it serves, the others have long been.
    let before = server.processes();
    rustix::process::kill_process(before[0], Signal::KILL).unwrap();
    let all_new = || server.processes().len() == 3 && !server.processes().contains(&before[0]);
    wait_for(|| all_new().then_some(()), "the next process");
    for _ in 0..60 {
        assert_eq!(running::get(&server.address, "/").unwrap(), "fine");
    }
    assert_eq!(member(&server, 1, "failures"), 2, "nobody else had to find out");
    assert_eq!(server.status()["upstreams"][0]["ejections"], 1);
}
