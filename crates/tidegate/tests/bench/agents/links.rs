//! Links that break for a moment, that stall, and that lead to somebody else.

use super::super::peers::{Folder, Served, bench, peer};
use super::super::scenarios::{Application, Asked, Reply, ok};
use super::{Running, controller, operations, scenario};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tidegate_testkit::wait_for;

/// What stands between a controller and an agent, and can cut the connection.
struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn new(to: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (to, connections) = (to.to_owned(), open.clone());
        std::thread::spawn(move || {
            for one in listener.incoming().map_while(Result::ok) {
                let Ok(other) = TcpStream::connect(&to) else { continue };
                for (mut from, mut into) in [(&one, &other), (&other, &one)]
                    .map(|(from, into)| (from.try_clone().unwrap(), into.try_clone().unwrap()))
                {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(Shutdown::Write);
                    });
                }
                connections.lock().unwrap().extend([one, other]);
            }
        });
        Relay { address, open }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn page(_: &Asked) -> Reply {
    ok("", "a page")
}

/// Waits until an application was asked so many times more.
fn more(application: &Application, count: usize) {
    let before = application.asked().len();
    wait_for(|| (application.asked().len() >= before + count).then_some(()), "load");
}

/// What a link that broke for a moment leaves behind: nothing but a note.
fn assert_whole(json: &Value, operations_due: u64) {
    assert_eq!(operations(json), operations_due, "{json:#}");
    let reasons = json["reasons"].to_string();
    assert!(!reasons.contains("lost") && !reasons.contains("not whole"), "{reasons}");
    let notes = json["notes"].to_string();
    assert!(notes.contains("was lost 2 times and made again; nothing is missing"), "{notes}");
    let agent = &json["agents"][0];
    assert_eq!(agent["operations"], operations_due, "{agent}");
    // Of each of its operations the lateness, second by second: the buckets have what the sums have.
    assert_eq!(json["response"]["count"], operations_due, "{json:#}");
}

#[test]
fn a_link_that_an_agent_has_dialled_may_break_for_a_moment() {
    let (application, folder) = (Application::new(page), Folder::new());
    let path = scenario(&folder, &application.url, "4s");
    let (controller, address) = controller(&path, 1, &["--insecure-loopback"]);
    let relay = Relay::new(&address);
    let through = relay.address.to_string();
    let agent = Running::new(&["agent", "--join", &through, "--insecure-loopback"]);
    controller.line("they start in");
    for _ in 0..2 {
        more(&application, 30);
        relay.cut();
        agent.line("the load goes on");
        agent.line("the link to the controller is back");
    }
    let done = controller.end();
    assert!(matches!(done.code, 0 | 98), "{}", done.stderr);
    // Both sides know of the end.
    assert!(!done.stderr.contains("may not know"), "{}", done.stderr);
    assert_whole(&done.json(), 240);
    let agent = agent.end();
    assert_eq!(agent.code, 0, "{}", agent.stderr);
    assert!(agent.stderr.contains("done, 240 operations"), "{}", agent.stderr);
}

#[test]
fn a_link_that_the_controller_has_dialled_may_break_for_a_moment() {
    let (application, folder) = (Application::new(page), Folder::new());
    let path = scenario(&folder, &application.url, "4s");
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let agent = Running::new(&["agent", "--listen", &address, "--once", "--insecure-loopback"]);
    // The relay has nobody to connect to before.
    drop(wait_for(|| TcpStream::connect(&address).ok(), "the agent"));
    let relay = Relay::new(&address);
    let through = relay.address.to_string();
    let controller =
        Running::new(&["run", &path, "--agents", &through, "--insecure-loopback", "--no-keep", "--json"]);
    controller.line("they start in");
    for _ in 0..2 {
        more(&application, 30);
        relay.cut();
        controller.line("it is made again");
        agent.line("the link to the controller is back");
    }
    let done = controller.end();
    assert!(matches!(done.code, 0 | 98), "{}", done.stderr);
    // Both sides know of the end.
    assert!(!done.stderr.contains("may not know"), "{}", done.stderr);
    assert_whole(&done.json(), 240);
    let agent = agent.end();
    assert_eq!(agent.code, 0, "{}", agent.stderr);
    assert!(agent.stderr.contains("done, 240 operations"), "{}", agent.stderr);
}

#[test]
fn an_agent_that_stalls_is_lost_after_its_patience() {
    let (served, folder) = (Served::new(), Folder::new());
    let path = scenario(&folder, &served.url, "60s");
    let (controller, address) = controller(&path, 2, &["--insecure-loopback"]);
    let mut agents: Vec<Running> = ["east", "west"]
        .into_iter()
        .map(|name| Running::new(&["agent", "--join", &address, "--insecure-loopback", "--name", name]))
        .collect();
    controller.line("they start in");
    let stalled = agents.pop().unwrap();
    kill_process(Pid::from_child(&stalled.child), Signal::STOP).unwrap();
    let done = controller.end();
    assert_eq!(done.code, 98, "{}", done.stderr);
    let reasons = done.json()["reasons"].to_string();
    assert!(reasons.contains("(west, 127.0.0.1:") && reasons.contains("silent for 10.0 s"), "{reasons}");
    kill_process(Pid::from_child(&stalled.child), Signal::CONT).unwrap();
    let stalled = stalled.end();
    assert_eq!(stalled.code, 1, "{}", stalled.stderr);
    assert_eq!(agents.pop().unwrap().end().code, 0);
}

#[test]
fn somebody_else_than_an_agent_is_named_at_once() {
    let folder = Folder::new();
    let path = scenario(&folder, "http://127.0.0.1:1", "1s");
    let keys = folder.0.join("keys");
    let keys = keys.to_str().unwrap();
    assert_eq!(bench(&["agent-keys", keys, "--agents", "1"]).code, 0);
    let (ours, agents) = (format!("{keys}/controller"), format!("{keys}/agent-1"));
    let garbage = peer(|_, mut stream| {
        let _ = stream.write_all(b"SSH-2.0-something else\r\n");
        let _ = stream.read(&mut [0; 256]);
    });
    let silent = peer(|_, _| {});
    // What it reads never ends: the other side gives up first.
    let mute = peer(|_, mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    for (url, how, part) in [
        (&garbage, vec!["--insecure-loopback"], "does not speak as `tidegate bench` without keys does"),
        (&garbage, vec!["--keys", &ours], "does not speak as `tidegate bench` with keys does"),
        (&silent, vec!["--insecure-loopback"], "does not speak"),
        (
            &mute,
            vec!["--insecure-loopback", "--agents-patience", "300ms"],
            "0 of 1 agents were there after 300 ms, all but",
        ),
    ] {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let mut run = vec!["run", &path, "--no-keep", "--agents", address];
        run.extend(&how);
        let outcome = bench(&run);
        assert_eq!(outcome.code, 1, "{how:?}: {}", outcome.stderr);
        let line = outcome.stderr.lines().last().unwrap_or_default();
        assert!(
            line.contains(address) && line.contains("nothing was run") && line.contains(part),
            "{how:?}: {line}"
        );
    }

    // An agent with keys says who came with none, or with those of another authority, and serves the next all the same.
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let agent = Running::new(&["agent", "--listen", &address, "--keys", &agents]);
    let mut stream = wait_for(|| TcpStream::connect(&address).ok(), "the agent");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    agent.line("was refused: it does not speak as `tidegate bench` with keys does");
    let foreign = folder.0.join("foreign");
    let foreign = foreign.to_str().unwrap();
    assert_eq!(bench(&["agent-keys", foreign, "--agents", "1"]).code, 0);
    let theirs = format!("{foreign}/controller");
    for keys in [&theirs, &agents] {
        let outcome = bench(&["run", &path, "--no-keep", "--agents", &address, "--keys", keys]);
        assert_eq!(outcome.code, 1, "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains(&address)
                && outcome.stderr.contains("keys of one `tidegate bench agent-keys`"),
            "{keys}: {}",
            outcome.stderr
        );
    }
    // It reads the scenario, and its target cannot be reached.
    let outcome = bench(&["run", &path, "--no-keep", "--agents", &address, "--keys", &ours]);
    assert!(outcome.stderr.contains("127.0.0.1:1"), "{}", outcome.stderr);
    agent.line("the controller is");
}

#[test]
fn garbage_does_not_count_as_an_agent() {
    let (served, folder) = (Served::new(), Folder::new());
    let path = scenario(&folder, &served.url, "1s");
    let (controller, address) = controller(&path, 1, &["--insecure-loopback"]);
    for bytes in [
        &b"\x16\x03\x01\0\0"[..],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxx",
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        controller.line("was refused: it does not speak as `tidegate bench`");
    }
    let agent = Running::new(&["agent", "--join", &address, "--insecure-loopback"]);
    let done = controller.end();
    assert_eq!(operations(&done.json()), 60, "{}", done.stderr);
    assert_eq!(agent.end().code, 0);
}

/// Before the start a link that breaks is made again, whoever has dialled.
#[test]
fn a_link_that_breaks_before_the_start_is_made_again() {
    let (application, folder) = (Application::new(page), Folder::new());
    let path = scenario(&folder, &application.url, "1s");
    let join = |address: &str, name: &str| {
        Running::new(&["agent", "--join", address, "--insecure-loopback", "--name", name])
    };
    let (run, address) = controller(&path, 2, &["--insecure-loopback"]);
    let relay = Relay::new(&address);
    let east = join(&relay.address.to_string(), "east");
    run.line("1 of 2 agents are there: agent (east, ");
    relay.cut();
    east.line("was lost before the start");
    run.line("1 of 2 agents are there: agent (east, ");
    let west = join(&address, "west");
    let done = run.end();
    assert_eq!(operations(&done.json()), 60, "{}", done.stderr);
    for agent in [east, west] {
        let agent = agent.end();
        assert!(agent.code == 0 && agent.stderr.contains("done, 30 operations"), "{}", agent.stderr);
    }

    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let places = [free(), free()];
    let listen =
        |address: &str| Running::new(&["agent", "--listen", address, "--once", "--insecure-loopback"]);
    let east = listen(&places[0]);
    drop(wait_for(|| TcpStream::connect(&places[0]).ok(), "the agent"));
    let relay = Relay::new(&places[0]);
    let agents = format!("{},{}", relay.address, places[1]);
    let run =
        Running::new(&["run", &path, "--agents", &agents, "--insecure-loopback", "--no-keep", "--json"]);
    run.line("1 of 2 agents are there: ");
    relay.cut();
    run.line("is lost: ");
    east.line("was lost before the start");
    run.line("1 of 2 agents are there: ");
    let west = listen(&places[1]);
    let done = run.end();
    assert_eq!(operations(&done.json()), 60, "{}", done.stderr);
    for agent in [east, west] {
        assert_eq!(agent.end().code, 0);
    }
}
