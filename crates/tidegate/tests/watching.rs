//! What an operator sees of a server: figures by site and route, requests under way, and what Prometheus thinks of it.
//!
//! The counts are compared with what the clients here have asked for, exactly.

mod running;

use running::posts::serving;
use running::{Folder, Server, WAIT, get, run, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

const HOSTS: [&str; 2] = ["a.test", "b.test"];

/// Asks, whatever the answer is. How many bytes were sent and received.
fn ask(server: &Server<'_>, host: &str, path: &str) -> (u64, u64) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    (request.len() as u64, answer.len() as u64)
}

/// Requests of a route, once all that were asked are counted.
fn requests(status: &Value, site: &str, route: &str) -> u64 {
    let named = |list: &Value, name: &str, wanted: &str| {
        let list = list.as_array().cloned().unwrap_or_default();
        list.into_iter().find(|entry| entry[name] == wanted).unwrap_or_default()
    };
    let site = named(&status["sites"], "name", site);
    named(&site["routes"], "route", route)["requests"].as_u64().unwrap_or(0)
}

// ---------------------------------------------------------------- sites and routes

/// Over two processes, a reload and the kill of a process nothing is lost and nothing is counted twice.
#[test]
fn counts_of_sites_agree_with_those_of_their_clients() {
    let folder = Folder::new("watching-counts");
    let text = |more: &str| {
        format!(
            "processes 2\nworkers 2\nlisten \"127.0.0.1:0\"\n\
             site \"a.test\" {{ respond 200 \"a\"; route \"/x/*\" {{ respond 200 \"x\" }}; {more} }}\n\
             site \"b.test\" {{ respond 404 \"b\" }}\n"
        )
    };
    let server = Server::with_config(&folder, &text(""));
    let pids = serving(&server, 2, &[]);
    let (mut plain, mut below, mut other) = (0, 0, 0);
    let (mut sent, mut received) = ([0, 0], [0, 0]);
    let mut round = |count: u64| {
        for number in 0..count {
            for (site, path) in [(0, "/".to_owned()), (0, format!("/x/{number}")), (1, format!("/{number}"))]
            {
                let (asked, answered) = ask(&server, HOSTS[site], &path);
                (sent[site], received[site]) = (sent[site] + asked, received[site] + answered);
            }
        }
        (plain, below, other) = (plain + count, below + count, other + count);
        wait_for(
            || {
                let status = server.status();
                let of = |site, route| requests(&status, site, route);
                let counted = (of("a.test", "/*"), of("a.test", "/x/*"), of("b.test", "/*"));
                assert!(counted.0 <= plain && counted.1 <= below && counted.2 <= other, "{counted:?}");
                (counted == (plain, below, other)).then_some(())
            },
            "all requests to be counted",
        );
    };
    round(40);
    folder.write("tidegate.kdl", &text("route \"/y\" { respond 200 \"y\" }"));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    round(20);
    // What it had counted when it was asked last stays.
    kill_process(pids[0], Signal::KILL).unwrap();
    serving(&server, 2, &[pids[0]]);
    round(20);
    let status = server.status();
    assert_eq!(status["sites"].as_array().unwrap().len(), 2, "{}", status["sites"]);
    assert_eq!(status["sites"][1]["responses"]["4xx"], 80);
    assert_eq!(status["buckets"][0]["requests"], 240);
    // Each came on a connection of its own.
    let listener = &status["listeners"][0];
    assert_eq!(
        (&listener["connections_accepted"], &listener["connections_refused"]),
        (&240.into(), &0.into())
    );
    assert_eq!(listener["default_site"], "a.test");
    for site in 0..2 {
        let told = &status["sites"][site];
        assert_eq!(
            (&told["received_bytes"], &told["sent_bytes"]),
            (&sent[site].into(), &received[site].into())
        );
    }
}

/// Of a download that is given up the bytes count that were sent: those that the client has, and what the kernel held.
#[test]
fn downloads_that_are_given_up_count_what_was_sent() {
    let folder = Folder::new("watching-downloads");
    const SIZE: u64 = 64 << 20;
    std::fs::create_dir_all(folder.path("www")).unwrap();
    std::fs::File::create(folder.path("www/big")).unwrap().set_len(SIZE).unwrap();
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite \"a.test\" { root \"www\" }\n";
    let server = Server::with_config(&folder, text);
    const TAKEN: usize = 1 << 20;
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(b"GET /big HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        stream.read_exact(&mut vec![0; TAKEN]).unwrap();
        // With unread bytes behind it, closing is a reset.
    }
    let site = wait_for(
        || {
            let site = server.status()["sites"][0].clone();
            (site["requests"] == 3).then_some(site)
        },
        "the downloads to be counted",
    );
    let sent = site["sent_bytes"].as_u64().unwrap();
    assert!(sent >= 3 * TAKEN as u64 && sent < 3 * SIZE, "{sent}");
    let status = server.status();
    assert_eq!(status["stats"]["sent_bytes"], sent, "the server has sent nothing else");
    assert_eq!((&site["first_byte"]["count"], &site["duration"]["count"]), (&3.into(), &3.into()));
}

/// A file that becomes shorter under a download ends where it ends: its connection is cut, since the length was announced.
#[test]
fn a_download_of_a_file_that_becomes_shorter_is_cut() {
    let folder = Folder::new("watching-shorter");
    const LEFT: u64 = (8 << 20) + 77;
    std::fs::create_dir_all(folder.path("www")).unwrap();
    let file = std::fs::File::create(folder.path("www/big")).unwrap();
    file.set_len(64 << 20).unwrap();
    // However seldom it is looked after its client.
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nlimits { rate-grace \"1h\" }\nsite { root \"www\" }\n";
    let server = Server::with_config(&folder, text);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    file.set_len(LEFT).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!((answer.len() - head) as u64, LEFT);
    assert_eq!(server.status()["stats"]["responses_cut"], 1);
}

/// What clients make up names no series: hosts, methods, paths and fields.
#[test]
fn what_clients_make_up_makes_no_series() {
    let folder = Folder::new("watching-names");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite \"a.test\" { respond 200 \"a\" }\nsite { respond 404 \"b\" }\n";
    let server = Server::with_config(&folder, text);
    let families = |server: &Server<'_>| {
        let said = server.tell(&["status", "--prometheus"]).stdout;
        let series = said.lines().filter(|line| !line.starts_with('#'));
        series.filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let one_of_each = |number: u32| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let (method, version) = (["GET", "PUT", "BREW", "X-Y"][number as usize % 4], "HTTP/1.1");
        let request = format!(
            "{method} /{number}?{number} {version}\r\nHost: h{number}.test\r\nX-{number}: {number}\r\n\
             User-Agent: agent-{number}\r\nReferer: http://{number}/\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    };
    (0..4).for_each(one_of_each);
    let counted = |count: u64| {
        wait_for(
            || (server.status()["stats"]["latency"]["count"] == count).then_some(()),
            "the requests to be counted",
        );
    };
    counted(4);
    let before = families(&server);
    (4..300).for_each(one_of_each);
    counted(300);
    assert_eq!(families(&server), before);
    assert!(before.iter().any(|name| name.contains("site=\"(any)\",route=\"/*\"")), "{before:?}");
}

// ---------------------------------------------------------------- Prometheus

#[test]
fn promtool_finds_nothing_wrong() {
    let folder = Folder::new("watching-promtool");
    let text = "workers 2\nlisten \"127.0.0.1:0\"\n\
                cache \"main\" { memory \"1MiB\"; disk \"stored\" size=\"8MiB\" }\n\
                site \"a.test\" { cache \"main\"; respond 200 \"a\"; route \"/app\" { proxy \"http://127.0.0.1:9\" }; route \"/x\" { bucket \"odd\"; respond 500 }; \
                route regex=\"\\\\.(a|b)$\" { respond 404 } }\n";
    let server = Server::with_config(&folder, text);
    for path in ["/", "/x", "/y.a", "/%zz", "/app"] {
        ask(&server, "a.test", path);
    }
    let said = server.tell(&["status", "--prometheus"]).stdout;
    assert!(said.contains("tidegate_requests_total{site=\"a.test\",route=\"/x\",class=\"5xx\"} 1"), "{said}");
    for what in ["connections_accepted_total", "request_duration_seconds_count"] {
        let line = format!("tidegate_listener_{what}{{listener=\"http://{}\"}} 5\n", server.address);
        assert!(said.contains(&line), "{line}: {said}");
    }
    for line in [
        "requests_total{cache=\"main\",result=\"miss\"} 1",
        "memory_limit_bytes{cache=\"main\"} 1048576",
        "disk_up{cache=\"main\",disk=",
    ] {
        assert!(said.contains(&format!("\ntidegate_cache_store_{line}")), "{line}: {said}");
    }
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        assert!(std::env::var_os("CI").is_none(), "promtool is missing: cargo xtask tools");
        eprintln!("NOT TESTED: promtool is missing (cargo xtask tools)");
        return;
    };
    promtool.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    let outcome = promtool.wait_with_output().unwrap();
    let (told, complaints) =
        (String::from_utf8_lossy(&outcome.stdout).into_owned(), String::from_utf8_lossy(&outcome.stderr));
    assert!(outcome.status.success(), "{told}{complaints}");
}

// ---------------------------------------------------------------- requests under way

#[test]
fn requests_under_way_are_shown_and_ended() {
    let folder = Folder::new("watching-requests");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let text = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\naccess-log \"access.log\" format=\"{{target}} {{status}} {{upstream}}\"\n\
         site \"a.test\" {{ route \"/app/*\" {{ proxy \"http://{address}\" }}; respond 200 }}\n"
    );
    let server = Server::with_config(&folder, &text);
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.write_all(b"GET /app/slow?x=1 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let (mut application, _) = backend.accept().unwrap();
    let mut head = [0; 4096];
    assert!(application.read(&mut head).unwrap() > 0, "the application has the request");
    let table = || {
        let said = server.tell(&["status", "requests", "--json"]).stdout;
        serde_json::from_str::<Value>(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    let shown = table();
    assert_eq!((&shown["count"], &shown["silent_workers"]), (&1.into(), &0.into()), "{shown}");
    let row = &shown["requests"][0];
    for (name, value) in [
        ("client", "127.0.0.1"),
        ("site", "a.test"),
        ("route", "/app/*"),
        ("phase", "answering"),
        ("protocol", "HTTP/1.1"),
        ("method", "GET"),
        ("target", "/app/slow?x=1"),
        ("host", "a.test"),
    ] {
        assert_eq!(row[name], value, "{name} of {row}");
    }
    assert!(
        row["upstream"].as_str().is_some_and(|upstream| upstream.contains(&address.to_string())),
        "{row}"
    );
    assert!(row["age"].as_f64().is_some_and(|age| age > 0.0), "{row}");
    let text = server.tell(&["status", "requests"]).stdout;
    assert!(text.starts_with("Sessions:\n-----\n") && text.contains("/app/*"), "{text}");
    let id = row["id"].as_str().unwrap().to_owned();
    // Another id is not it.
    let wrong = server.tell(&["cancel", &format!("{id}0")]);
    assert_eq!(wrong.code, Some(1), "{}", wrong.stdout);
    assert_eq!(table()["count"], 1);
    let outcome = server.tell(&["cancel", &id]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let ended = client.read(&mut head);
    let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
    assert!(!matches!(application.read(&mut head), Ok(1..)), "the application is left");
    assert_eq!(table()["count"], 0);
    assert_eq!(server.tell(&["cancel", &id]).code, Some(1), "once");
    assert_eq!(server.tell(&["status", "slow", "--json"]).code, Some(0));
    assert_eq!(run(&folder, &["cancel", "no such thing"]).code, Some(2));
}

/// Who waits for an application is told as waiting, with its name, in the table, in the gauge and in the history.
#[test]
fn who_waits_for_an_application_is_queued() {
    let folder = Folder::new("watching-queued");
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap();
    let text = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\nsite \"a.test\" {{\n\
         proxy \"http://{address}\" {{ connections 1; queue length=1 age=\"30s\" }}\n}}\n"
    );
    let server = Server::with_config(&folder, &text);
    let begin = |path: &str| {
        let mut client = TcpStream::connect(&server.address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        client
    };
    let first = begin("/first");
    let (application, _) = backend.accept().unwrap();
    let second = begin("/second");
    let shown = |phase: &str| {
        let said = server.tell(&["status", "requests", "--json"]).stdout;
        let table: Value = serde_json::from_str(&said).unwrap();
        table["requests"].as_array().unwrap().iter().find(|row| row["phase"] == phase).cloned()
    };
    let row = wait_for(|| shown("queued"), "a request that waits");
    assert_eq!((&row["target"], &row["upstream"]), (&"/second".into(), &address.to_string().into()), "{row}");
    assert_eq!(shown("answering").unwrap()["target"], "/first");
    assert_eq!(server.status()["stats"]["gateway_queued"]["current"], 1);
    let last = |name: &str| history(&server, "10m")["series"][name].as_array().unwrap().last().cloned();
    wait_for(|| (last("waiting")?.as_f64()? > 0.0).then_some(()), "one that waits in the history");
    let refused = get(&server.address, "/third");
    assert!(refused.is_err_and(|answer| answer.to_string().contains("503")), "there is no room");
    let risen = || {
        history(&server, "10m")["series"]["refused"]
            .as_array()
            .unwrap()
            .iter()
            .any(|value| value.as_f64() > Some(0.0))
    };
    wait_for(|| risen().then_some(()), "the refusal in the history");
    let ended = server.tell(&["cancel", "--upstream", &address.to_string()]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    wait_for(
        || (server.status()["stats"]["gateway_queued"]["current"] == 0).then_some(()),
        "nobody who waits",
    );
    drop((first, second, application));
}

// ---------------------------------------------------------------- history

/// What the history has of a range, or of all days.
fn history(server: &Server<'_>, range: &str) -> Value {
    let said = server.tell(&["status", "history", "--range", range, "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

fn requests_of_days(server: &Server<'_>) -> u64 {
    let history = history(server, "days");
    let days = history["days"].as_array().unwrap().iter();
    days.map(|day| day["requests"].as_u64().unwrap()).sum()
}

fn wait_for_history(server: &Server<'_>, requests: u64) {
    let seen = || {
        let seen = requests_of_days(server);
        assert!(seen <= requests, "{seen} of {requests}: nothing is counted twice");
        (seen == requests).then_some(())
    };
    wait_for(seen, "the history to have seen all requests");
}

fn marks(history: &Value) -> Vec<&str> {
    history["marks"].as_array().unwrap().iter().filter_map(|mark| mark["what"].as_str()).collect()
}

/// The history goes on over a reload, the kill of a server process and an upgrade, and each is marked.
#[test]
fn the_history_outlives_reloads_kills_and_upgrades() {
    let folder = Folder::new("watching-history");
    let text = |more: &str| {
        format!(
            "workers 1\nlisten \"127.0.0.1:0\"\nsite \"a.test\" {{ respond 200 \"a\"; route \"/.perf\" {{ status }}; {more} }}\n"
        )
    };
    let server = Server::with_config(&folder, &text(""));
    let mut asked = 0;
    let mut round = |count: u64| {
        for _ in 0..count {
            ask(&server, "a.test", "/");
        }
        asked += count;
        wait_for_history(&server, asked);
    };
    round(30);
    folder.write("tidegate.kdl", &text("route \"/y\" { respond 200 \"y\" }"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    round(20);
    let pid = server.processes()[0];
    kill_process(pid, Signal::KILL).unwrap();
    serving(&server, 1, &[pid]);
    // Whoever has looked at the whole has looked at sites and routes as well.
    let status = server.status();
    let sites = status["sites"].as_array().unwrap().iter();
    let of_sites: u64 = sites.map(|site| site["requests"].as_u64().unwrap()).sum();
    assert_eq!(of_sites, 50, "{}", status["sites"]);
    round(10);
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    wait_for(|| (requests_of_days(&server) == 60).then_some(()), "the successor to have the history");
    round(5);
    let told = history(&server, "10m");
    let replaced = format!("server process {} replaced", pid.as_raw_nonzero());
    let marks = marks(&told);
    for mark in ["revision 2", &replaced, "upgrade to "] {
        assert!(marks.iter().any(|known| known.starts_with(mark)), "{mark}: {marks:?}");
    }
    // Rates of seconds, each of which is some milliseconds longer or shorter, add up to what was asked for.
    let series = told["series"].as_object().unwrap();
    let sum = |name: &str| series[name].as_array().unwrap().iter().filter_map(Value::as_f64).sum::<f64>();
    for name in ["requests", "responses_2xx"] {
        assert!(sum(name) > 0.0 && sum(name).is_finite(), "{name}: {}", sum(name));
    }
    let length = (told["until"].as_u64().unwrap() - told["from"].as_u64().unwrap()) as usize;
    assert!(series.values().all(|values| values.as_array().unwrap().len() == length), "{length}");
    assert!(
        series
            .values()
            .flat_map(|values| values.as_array().unwrap())
            .all(|value| value.is_null() || value.as_f64() >= Some(0.0))
    );
    // The page tells the same.
    let page: Value = serde_json::from_str(&server.body("/.perf?history=6h&format=json")).unwrap();
    assert_eq!(page["resolution"], 10);
    assert!(server.body("/.perf?history=days&format=text").contains("Requests"));
}

/// What is kept over a stop are the totals of days.
#[test]
fn totals_of_days_outlive_a_stop() {
    let folder = Folder::new("watching-totals");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nstatistics { totals \"totals.json\" }\nsite \"a.test\" { respond 200 \"a\" }\n";
    for round in 1..=3 {
        let mut server = Server::with_config(&folder, text);
        assert_eq!(requests_of_days(&server), (round - 1) * 4);
        for _ in 0..4 {
            ask(&server, "a.test", "/");
        }
        // What has come about since the last look is in them as well.
        assert_eq!(server.tell(&["stop"]).code, Some(0));
        server.wait();
        assert!(folder.path("totals.json").exists());
    }
    // Whoever takes over goes on with them.
    let mut server = Server::with_config(&folder, text);
    let upgraded = server.tell(&["upgrade"]);
    assert_eq!(upgraded.code, Some(0), "{}{}", upgraded.stdout, upgraded.stderr);
    server.wait();
    wait_for_history(&server, 12);
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    let kept: Value = serde_json::from_slice(&std::fs::read(folder.path("totals.json")).unwrap()).unwrap();
    let kept = kept["days"].as_array().unwrap().iter().map(|day| day["requests"].as_u64().unwrap());
    assert_eq!(kept.sum::<u64>(), 12);
    // What somebody has put there is no reason not to start, and stays.
    folder.write("totals.json", "{\"days\": nonsense");
    let mut server = Server::with_config(&folder, text);
    // A thread of its own writes the log: the line may stand behind those of the start.
    let said = "the totals of days begin anew";
    if !server.seen.iter().any(|line| line.contains(said)) {
        server.line(said);
    }
    assert_eq!(requests_of_days(&server), 0);
    ask(&server, "a.test", "/");
    assert_eq!(server.tell(&["stop"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(folder.path("totals.json")).unwrap(), "{\"days\": nonsense");
}

/// A process that does not answer is a gap, and holds up neither the history nor the end of the server.
#[test]
fn who_does_not_answer_is_a_gap_in_the_history() {
    let folder = Folder::new("watching-silence");
    let text = "workers 1\nlisten \"127.0.0.1:0\"\nsite \"a.test\" { respond 200 \"a\" }\n";
    let mut server = Server::with_config(&folder, text);
    ask(&server, "a.test", "/");
    wait_for_history(&server, 1);
    let pid = server.processes()[0];
    kill_process(pid, Signal::STOP).unwrap();
    let gap = || {
        let told = history(&server, "10m");
        let requests = told["series"]["requests"].as_array().unwrap().clone();
        let until = told["until"].as_u64().unwrap();
        // Without anybody who answers, nothing is written.
        (!requests.is_empty()).then_some(until)
    };
    let before = gap().unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    let goes_on = || gap().filter(|until| *until > before + 1);
    wait_for(goes_on, "the history to go on");
    kill_process(pid, Signal::STOP).unwrap();
    assert_eq!(server.tell(&["stop", "--now"]).code, Some(0));
    server.wait();
}
