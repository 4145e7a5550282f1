//! What an operator sees while it happens: `tidegate top` and `tidegate tail`, and requests ended by what they have in common.

mod running;

use running::posts::serving;
use running::{Folder, Server, WAIT, command, get, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A command that goes on until it is told to end.
struct Watcher {
    child: Child,
    lines: Receiver<String>,
}

impl Watcher {
    fn start(server: &Server<'_>, arguments: &[&str]) -> Watcher {
        let control = server.control.as_deref().unwrap();
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--control", control]).collect();
        let mut child = command(server.folder, &arguments).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Watcher { child, lines }
    }

    /// The next line that is not of a request by which it was seen to begin.
    fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(WAIT).expect("a line of the command");
            if !line.contains("/mark") {
                return line;
            }
        }
    }

    fn row(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Asks until it tells of it, which is when it has begun to watch.
    fn begun(server: &Server<'_>, arguments: &[&str]) -> Watcher {
        let watcher = Watcher::start(server, arguments);
        wait_for(
            || {
                let _ = get(&server.address, "/mark");
                watcher.lines.try_recv().ok()
            },
            "the command to begin",
        );
        watcher
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        wait_for(|| self.child.try_wait().unwrap(), "the command to end")
    }
}

fn text(more: &str) -> String {
    format!(
        "processes 2\nworkers 1\nlisten \"127.0.0.1:0\"\n\
         site {{ respond 200 \"a\"; route \"/gone/*\" {{ respond 404 }}; route \"/mark\" {{ respond 404 }}; {more} }}\n"
    )
}

// ---------------------------------------------------------------- top

#[test]
fn top_prints_one_frame_where_there_is_no_terminal() {
    let folder = Folder::new("live-top");
    let server = Server::with_config(&folder, &text(""));
    for _ in 0..5 {
        get(&server.address, "/").unwrap();
    }
    let told = server.tell(&["top", "--sort", "requests"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let lines: Vec<&str> = told.stdout.lines().collect();
    let pid = server.child.id();
    assert!(lines[0].starts_with(&format!("Tidegate 0.1.0  pid {pid}  up ")), "{}", told.stdout);
    assert!(lines[1].contains(" req/s  out ") && lines[1].contains("99% "), "{}", told.stdout);
    assert!(told.stdout.contains("\nRoutes by requests "), "{}", told.stdout);
    assert!(told.stdout.contains("\n(any) /*"), "{}", told.stdout);
    assert!(!told.stdout.contains('\u{1b}'), "no terminal");
    let nobody = running::run(&folder, &["top", "--control", "nothing-here"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.stderr.contains("no server runs with the control socket"), "{}", nobody.stderr);
}

// ---------------------------------------------------------------- tail

/// Over both processes, a reload, and the end of a process in whose place another comes; without an access log.
#[test]
fn tail_tells_of_what_is_asked_for_and_follows_the_server() {
    let folder = Folder::new("live-tail");
    let server = Server::with_config(&folder, &text(""));
    let pids = serving(&server, 2, &[]);
    let watcher = Watcher::begun(&server, &["tail", "--json", "--status", "4xx"]);
    let is_told = |path: &str| {
        let _ = get(&server.address, "/not-shown");
        let _ = get(&server.address, path);
        let row = watcher.row();
        assert_eq!((&row["target"], &row["status"]), (&path.into(), &404.into()), "{row}");
        row
    };
    let row = is_told("/gone/1?x=1");
    for (name, value) in [
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("host", "localhost"),
        ("site", "(any)"),
        ("route", "/gone/*"),
        ("protocol", "HTTP/1.1"),
        ("scheme", "http"),
    ] {
        assert_eq!(row[name], value, "{name} of {row}");
    }
    assert!(row["took"].as_f64().is_some() && row["sent"].as_u64() > Some(100), "{row}");
    folder.write("tidegate.kdl", &text("route \"/new\" { respond 410 }"));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let _ = get(&server.address, "/new");
    let row = watcher.row();
    assert_eq!((&row["route"], &row["status"]), (&"/new".into(), &410.into()), "{row}");
    // Whichever process a client comes to; one of them is another.
    kill_process(pids[0], Signal::KILL).unwrap();
    let new = serving(&server, 2, &[pids[0]]);
    assert!(!new.contains(&pids[0]));
    // The new one is asked within a quarter of a second; what it answers before is not told.
    wait_for(
        || {
            let _ = get(&server.address, "/gone/after");
            watcher.lines.try_recv().ok()
        },
        "a line after a process was killed",
    );
    assert_eq!(watcher.end().code(), Some(0));
}

/// Also who waits for an application, and whom it was.
#[test]
fn tail_tells_whom_a_request_has_asked() {
    let folder = Folder::new("live-tail-filter");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let more = format!("route \"/app/*\" {{ proxy \"http://{address}\" }}");
    let server = Server::with_config(&folder, &text(&more));
    let watcher = Watcher::begun(&server, &["tail", "--status", "2xx,404", "--method", "GET"]);
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.set_read_timeout(Some(WAIT)).unwrap();
    client.write_all(b"GET /app/x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let (mut application, _) = backend.accept().unwrap();
    application.set_read_timeout(Some(WAIT)).unwrap();
    assert!(application.read(&mut [0; 4096]).unwrap() > 0);
    application.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    let line = watcher.line();
    let expected = format!(" GET a.test/app/x [(any) /app/* @ {address}]");
    assert!(line.contains(" 127.0.0.1 200 ") && line.ends_with(&expected), "{line}");
    assert_eq!(watcher.end().code(), Some(0));
    // Arguments that name nothing.
    for (arguments, said) in [
        (&["tail", "--status", "9xx"][..], "`9xx` is no status"),
        (&["tail", "--client", "nobody"], "`nobody` is no network"),
        (&["tail", "--slower-than", "fast"], "time"),
        (&["tail", "--method", "get"], "write `GET`"),
        (&["tail", "--site", "\u{1b}"], "is no name of a site"),
    ] {
        let told = server.tell(arguments);
        assert!(
            matches!(told.code, Some(1 | 2)) && told.stderr.contains(said),
            "{arguments:?}: {}",
            told.stderr
        );
    }
}

/// Buffers are bounded: what comes while nobody reads is counted.
#[test]
fn tail_says_what_was_lost() {
    let folder = Folder::new("live-tail-lost");
    let server = Server::with_config(&folder, &text("").replace("processes 2", "processes 1"));
    let watcher = Watcher::begun(&server, &["tail", "--json"]);
    watcher.signal(Signal::STOP);
    const REQUESTS: usize = 3_000;
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.set_read_timeout(Some(WAIT)).unwrap();
    let mut answers = client.try_clone().unwrap();
    let reading = std::thread::spawn(move || answers.read_to_end(&mut Vec::new()).unwrap());
    for number in 0..REQUESTS {
        let connection = if number + 1 == REQUESTS { "close" } else { "keep-alive" };
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\nConnection: {connection}\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
    }
    running::join(reading, "the answers");
    watcher.signal(Signal::CONT);
    let (mut told, mut lost) = (0, 0);
    while told + lost < REQUESTS {
        let row = watcher.row();
        match row["lost"].as_u64() {
            Some(count) => lost += count as usize,
            None => told += 1,
        }
    }
    assert_eq!(told + lost, REQUESTS);
    assert!(told > 500 && lost > 500, "{told} told, {lost} lost");
    assert_eq!(watcher.end().code(), Some(0));
}

#[test]
fn so_many_may_watch_and_who_has_gone_leaves_a_place() {
    let folder = Folder::new("live-tail-many");
    let server = Server::with_config(&folder, &text("").replace("processes 2", "processes 1"));
    let watchers: Vec<Watcher> =
        (0..8).map(|_| Watcher::begun(&server, &["tail", "--status", "404"])).collect();
    let refused = server.tell(&["tail"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("as many as may watch at once do already"), "{}", refused.stderr);
    for watcher in watchers {
        assert_eq!(watcher.end().code(), Some(0));
    }
    let watcher = Watcher::begun(&server, &["tail", "--status", "404"]);
    assert_eq!(watcher.end().code(), Some(0));
}

// ---------------------------------------------------------------- slow requests

/// What it has waited for in each phase is in that phase, and the phases are all of it.
#[test]
fn a_slow_request_says_where_it_has_spent_its_time() {
    let folder = Folder::new("live-slow");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let more =
        format!("route \"/app/*\" {{ slow-after \"1ms\"; proxy \"http://{address}\" {{ connections 1 }} }}");
    let server = Server::with_config(&folder, &text(&more).replace("processes 2", "processes 1"));
    let rows = |what: &str| {
        let told = server.tell(&["status", what, "--json"]).stdout;
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
        told["requests"].as_array().unwrap().clone()
    };
    // Until it has been in a phase for a while longer than this; how long that was.
    let wait_in = |target: &str, phase: &str, since: f64| {
        wait_for(
            || {
                let rows = rows("requests");
                let row = rows.iter().find(|row| row["target"] == target && row["phase"] == phase)?;
                row["age"].as_f64().filter(|age| *age > since + 0.1)
            },
            phase,
        )
    };
    let ask = |path: &str| {
        let mut client = TcpStream::connect(&server.address).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    let accept = || {
        let (mut application, _) = backend.accept().unwrap();
        application.set_read_timeout(Some(WAIT)).unwrap();
        assert!(application.read(&mut [0; 4096]).unwrap() > 0, "the application has the request");
        application
    };
    let mut first = ask("/app/first");
    let mut application = accept();
    let mut second = ask("/app/second");
    let queued = wait_in("/app/second", "queued", 0.0);
    application.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
    drop(application);
    first.read_to_end(&mut Vec::new()).unwrap();
    let mut application = accept();
    let answering = wait_in("/app/second", "answering", queued);
    application.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\no").unwrap();
    let sending = wait_in("/app/second", "sending", answering);
    application.write_all(b"k").unwrap();
    drop(application);
    second.read_to_end(&mut Vec::new()).unwrap();
    let slow = wait_for(
        || rows("slow").into_iter().find(|row| row["target"] == "/app/second"),
        "the request among the slow ones",
    );
    let of = |name: &str| slow[name].as_f64().unwrap_or_else(|| panic!("{name} of {slow}"));
    let (took, queue, connect) = (of("took"), of("queue"), of("connect"));
    let (waited, sent) = (of("application"), of("sending"));
    assert!(queue >= queued - 0.001 && took >= sending, "{queued} queued: {slow}");
    // It was seen in each of them for a tenth of a second.
    assert!(waited >= 0.09 && sent >= 0.09, "{slow}");
    let sum = queue + connect + waited + sent;
    assert!(sum <= took + 0.001 && sum >= took * 0.8, "{sum} of {took}: {slow}");
    let text = server.tell(&["status", "slow"]).stdout;
    assert!(text.contains("Queue") && text.contains("GET /app/second"), "{text}");
    // And what has come most often.
    let busiest = server.tell(&["status", "busiest"]).stdout;
    assert!(busiest.contains("Busiest Paths:") && busiest.contains("/app/second"), "{busiest}");
}

// ---------------------------------------------------------------- cancel

#[test]
fn requests_are_ended_by_what_they_have_in_common() {
    let folder = Folder::new("live-cancel");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let more = format!(
        "route \"/one/*\" {{ proxy \"http://{address}\" }}; route \"/two/*\" {{ proxy \"http://{address}\" }}"
    );
    let log = folder.path("error.log").display().to_string();
    let settings = format!("error-log \"{log}\" level=info\n{}", text(&more));
    let server = Server::with_config(&folder, &settings);
    let ask = |path: &str| {
        let mut client = TcpStream::connect(&server.address).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).unwrap();
        let (application, _) = backend.accept().unwrap();
        (client, application)
    };
    let mut one: Vec<_> = (0..3).map(|number| ask(&format!("/one/{number}"))).collect();
    let two: Vec<_> = (0..2).map(|number| ask(&format!("/two/{number}"))).collect();
    let under_way = || {
        let told = server.tell(&["status", "requests", "--json"]).stdout;
        serde_json::from_str::<Value>(&told).unwrap()["count"].as_u64().unwrap()
    };
    assert_eq!(under_way(), 5);
    let tell = |arguments: &[&str]| {
        let told = server.tell(arguments);
        (told.code, told.stdout + &told.stderr)
    };
    let (code, said) = tell(&["cancel", "--route", "/one/*", "--dry-run"]);
    assert_eq!((code, said.lines().count()), (Some(0), 4), "{said}");
    assert!(said.ends_with("3 requests would be cancelled\n"), "{said}");
    assert_eq!(under_way(), 5, "nothing has been done");
    for arguments in
        [&["cancel", "--route", "/one/*", "--client", "192.0.2.1"][..], &["cancel", "--older-than", "1h"]]
    {
        assert_eq!(tell(arguments), (Some(0), "0 requests cancelled\n".to_owned()), "{arguments:?}");
    }
    for (arguments, why) in [
        (&["cancel", "--site", "b.test", "--dry-run"][..], "no site is called \"b.test\""),
        (&["cancel", "--site", "(any)", "--route", "/x"], "no route of the site \"(any)\" is called \"/x\""),
        (&["tail", "--site", "b.test"], "no site is called \"b.test\""),
        (&["tail", "--route", "/x/*"], "no route is called \"/x/*\""),
    ] {
        let (code, said) = tell(arguments);
        assert!(code == Some(1) && said.contains(why), "{arguments:?}: {code:?} {said}");
    }
    let told = server.tell(&["status", "requests", "--json"]).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    let id = told["requests"][0]["id"].as_str().unwrap();
    let (code, said) = tell(&["cancel", id, "--dry-run"]);
    assert_eq!((code, said), (Some(0), format!("request {id} would be cancelled\n")));
    assert_eq!(tell(&["cancel", "1-2-3-4", "--dry-run"]).0, Some(1));
    assert_eq!(under_way(), 5, "nothing has been done");
    let (code, said) = tell(&["cancel", "--route", "/one/*", "--client", "127.0.0.0/8"]);
    assert_eq!((code, said.as_str()), (Some(0), "3 requests cancelled\n"));
    for (client, _) in &mut one {
        assert!(!matches!(client.read(&mut [0]), Ok(1..)), "it has ended");
    }
    assert_eq!(under_way(), 2);
    let upstream = address.to_string();
    let (_, said) = tell(&["cancel", "--upstream", &upstream, "--dry-run"]);
    assert!(said.ends_with("2 requests would be cancelled\n"), "{said}");
    let (_, said) = tell(&["cancel", "--older-than", "0s", "--site", "(any)"]);
    assert_eq!(said, "2 requests cancelled\n");
    assert_eq!(under_way(), 0);
    drop(two);
    let noted = wait_for(
        || {
            let log = std::fs::read_to_string(&log).unwrap();
            (log.matches("cancelled by an operator").count() == 2).then_some(log)
        },
        "both to be noted",
    );
    assert!(noted.contains("cancelled by an operator (route=/one/* client=127.0.0.0/8): "), "{noted}");
    // Nobody means all of them.
    let (code, said) = tell(&["cancel"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("name a request by its id, or say which are meant"), "{said}");
    assert_eq!(tell(&["cancel", "1-2-3", "--site", "a"]).0, Some(2));
}
