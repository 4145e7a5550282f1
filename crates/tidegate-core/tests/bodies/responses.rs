//! Responses of every kind on a real socket (FAULTS 28).

use crate::client::{Client, End};
use crate::handlers::pattern;
use crate::server::Server;
use tidegate_core::body::HIGH_WATER;

/// What comes back from a path, for one kind each.
fn expected(kind: &str, size: usize) -> Vec<u8> {
    match kind {
        "/parts" => [b"<", pattern(size).as_slice(), b"|", &pattern(size), b">"].concat(),
        _ => pattern(size),
    }
}

const KINDS: [&str; 5] = ["/bytes", "/file", "/parts", "/stream", "/known"];
const SIZES: [usize; 6] = [0, 1, 4096, 33_000, HIGH_WATER + 1, 3_000_000];

#[test]
fn every_kind_arrives() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for kind in KINDS {
        for size in SIZES {
            let answer = client.get(&format!("{kind}?{size}"));
            assert!(answer.is_complete && answer.body == expected(kind, size), "{kind} {size}");
            assert_eq!(answer.head.contains("chunked"), kind == "/stream", "{}", answer.head);
        }
    }
}

#[test]
fn every_kind_arrives_at_an_old_client() {
    let server = Server::start("");
    for kind in KINDS {
        for size in SIZES {
            let mut client = Client::connect(&server);
            client.send(format!("GET {kind}?{size} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
            let answer = client.answer();
            assert!(answer.is_complete && answer.body == expected(kind, size), "{kind} {size}");
            assert_eq!(answer.head.contains("Connection: keep-alive"), kind != "/stream", "{kind}");
        }
    }
}

/// Filters see what is open; what is finished is for those alone that say so when the settings are loaded.
#[test]
fn who_filters_what() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for (path, all, open, body) in [
        ("/final?capitals", true, false, "FINAL"),
        ("/ready?capitals", true, true, "AT ONCE"),
        ("/final", false, false, "final"),
        ("/ready", false, false, "at once"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()), "{path}");
        let has = (answer.head.contains("\r\nX-All: 1\r\n"), answer.head.contains("\r\nX-Open: 1\r\n"));
        assert_eq!(has, (all, open), "{path}: {}", answer.head);
    }
}

#[test]
fn head_has_the_head_alone() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for path in ["/bytes?9", "/file?9", "/parts?9", "/stream?9", "/known?9", "/broken?9", "/ready", "/empty"]
    {
        let with_body = Client::connect(&server).get(path).head;
        let head = client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n")).answer_to("HEAD").head;
        let lines = |head: &str| -> Vec<String> {
            head.lines().filter(|line| !line.starts_with("Date:")).map(str::to_owned).collect()
        };
        assert_eq!(lines(&head), lines(&with_body), "{path}");
    }
    client.assert_alive();
}

#[test]
fn a_stream_that_breaks_is_seen_to_break() {
    let server = Server::start("");
    for path in ["/broken?100", "/short?100", "/long?100"] {
        let mut client = Client::connect(&server);
        let answer = client.get(path);
        assert_eq!(answer.status, 200);
        assert!(!answer.is_complete || answer.body.len() < 100, "{path}: {answer:?}");
        assert!(pattern(100).starts_with(&answer.body), "{path}: nothing is made up");
        client.assert_closed();
    }
    // Without framing only a reset tells.
    let mut client = Client::connect(&server);
    client.send("GET /broken?100 HTTP/1.0\r\n\r\n");
    assert!(client.head().contains("200 OK"));
    assert_eq!(client.end(), End::Reset);
}

/// A file that has become shorter: what has been sent counts as what it is, a response that was cut, and not as one that
/// found nobody (499), also where it is seen in the turn that has sent the head.
#[test]
fn a_file_that_has_become_shorter_is_counted_by_its_status() {
    let server = Server::start("");
    for (n, size) in [1_usize, 100_000, 3_000_000].into_iter().enumerate() {
        let mut client = Client::connect(&server);
        let answer = client.get(&format!("/cut-file?{size}"));
        assert_eq!((answer.status, answer.is_complete), (200, false), "{size}");
        assert!(pattern(size).starts_with(&answer.body), "{size}: nothing is made up");
        client.assert_closed();
        server.until("it is counted", |stats| stats.responses_cut == n as u64 + 1);
        let responses = server.handle.stats.snapshot().responses;
        assert_eq!((responses.count(200), responses.total()), (n as u64 + 1, n as u64 + 1), "{size}");
    }
}

#[test]
fn an_answer_for_a_client_that_only_listens_any_more() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.send("GET /bytes?2 HTTP/1.1\r\nHost: x\r\n\r\nGET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().body, [0, 1]);
    client.finish_sending();
    server.gate.open();
    assert_eq!(client.answer().body, b"late");
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn a_slow_reader_is_reset() {
    // Making such an answer holds up the worker here.
    let server = Server::impatient("limits { send-rate \"1MiB\"; overload-delay off }");
    for path in ["/stream?50000000", "/file?50000000", "/parts?50000000", "/bytes?50000000"] {
        let before = timeouts(&server);
        let mut client = Client::connect(&server);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        while timeouts(&server) == before {
            Client::connect(&server).assert_alive();
        }
        assert_eq!(client.end(), End::Reset, "{path}");
    }
}

fn timeouts(server: &Server) -> u64 {
    server.handle.stats.snapshot().timeouts.count(tidegate_stats::Timeout::Write)
}
