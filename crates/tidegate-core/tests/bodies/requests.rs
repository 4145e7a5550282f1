//! Content of requests on its way to handlers (FAULTS 9, 10, 13, 16, 27).

use crate::client::{Client, End};
use crate::handlers::pattern;
use crate::server::Server;
use std::io::{ErrorKind, Write};
use std::time::Duration;
use tidegate_core::body::HIGH_WATER;

/// A `POST` of `body` with its length.
fn post(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The head of a `POST` with these field lines.
fn head(path: &str, lines: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
const EXPECT: &str = "Content-Length: 5\r\nExpect: 100-continue\r\n";

#[test]
fn what_is_sent_arrives() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for size in [1, 2, 1000, HIGH_WATER - 1, HIGH_WATER, HIGH_WATER + 1, 500_000] {
        let body = pattern(size);
        let answer = client.send(post("/echo", &body)).answer();
        assert!(answer.status == 200 && answer.body == body, "{size} bytes");
        let answer = client.send(post("/count", &body)).answer();
        assert_eq!(answer.body, format!("{size} of Some({size})").into_bytes());
    }
    let chunks = "4;a=b\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\n\r\n";
    let answer = client.send(head("/echo", CHUNKED) + chunks).answer();
    assert_eq!(answer.body, b"Wikipedia in \r\n\r\nchunks.");
    let answer = client.send(head("/count", CHUNKED) + "0\r\n\r\n").answer();
    assert_eq!(answer.body, b"0 of None");
    client.assert_alive();
}

#[test]
fn trailers_are_no_content_and_no_request() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let request = head("/echo", CHUNKED) + "2\r\nab\r\n0\r\nX-Check: 1\r\nX-More: 2\r\n\r\n";
    assert_eq!(client.send(request).answer().body, b"ab");
    client.assert_alive();
    let answer = client.send(head("/echo", CHUNKED) + "2\r\nab\r\n0\r\nContent-Length: 1\r\n\r\n").answer();
    assert_eq!(answer.status, 400);
    client.assert_closed();
}

#[test]
fn requests_behind_content() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let mut both = post("/echo", "first");
    both.extend(post("/echo", "second"));
    both.extend(b"GET /bytes?2 HTTP/1.1\r\nHost: x\r\n\r\n");
    client.send(both);
    assert_eq!(client.answer().body, b"first");
    assert_eq!(client.answer().body, b"second");
    assert_eq!(client.answer().body, [0, 1]);
}

/// The next head has begun while the content before it waits: what was looked at of the one must not count
/// for the other.
#[test]
fn half_a_request_behind_content() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let body = pattern(HIGH_WATER + 5000);
    client.send(post("/hold", &body)).send("GET /bytes?2 HT");
    server.gate.open();
    assert_eq!(client.answer().body, body.len().to_string().into_bytes());
    client.send("TP/1.1\r\nHost: x\r\n").send("\r\n");
    assert_eq!(client.answer().body, [0, 1]);
    client.assert_alive();
}

#[test]
fn continue_is_sent_when_the_handler_reads() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for _ in 0..2 {
        client.send(head("/echo", EXPECT));
        assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(client.send("hello").answer().body, b"hello");
    }
    client.send(head("/hold", EXPECT));
    server.gate.open();
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.send("hello").answer().body, b"5");
    client.assert_alive();
}

#[test]
fn continue_is_not_sent_to_an_old_client() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.send("POST /echo HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"hello"[..]));
    client.assert_closed();
}

/// Whether content follows is the client's choice then, so the connection cannot go on.
#[test]
fn a_refusal_takes_the_place_of_continue() {
    let server = Server::start("");
    server.gate.open();
    for path in ["/refuse", "/refuse-later", "/hold-and-refuse"] {
        let mut client = Client::connect(&server);
        let answer = client.send(head(path, EXPECT)).answer();
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.head.contains("Connection: close"), "{path}: {}", answer.head);
        client.send("GET /bytes?3 HTTP/1.1\r\nHost: x\r\n\r\n").finish_sending();
        client.assert_closed();
    }
}

#[test]
fn an_early_answer_keeps_the_connection() {
    let server = Server::start("");
    server.gate.open();
    for path in ["/refuse", "/refuse-later", "/hold-and-refuse", "/peek"] {
        let mut client = Client::connect(&server);
        client.send(head(path, "Content-Length: 10\r\n")).send("hello");
        let answer = client.answer();
        assert!([200, 403].contains(&answer.status) && !answer.head.contains("close"), "{path}");
        client.send("world").assert_alive();
        client.send(head(path, CHUNKED)).send("5\r\nhello\r\n");
        client.answer();
        client.send("0\r\n\r\n").assert_alive();
    }
}

#[test]
fn too_much_to_drop_ends_the_connection() {
    let server = Server::start("limits { discard-size \"1KiB\" }");
    server.gate.open();
    for path in ["/refuse", "/refuse-later", "/hold-and-refuse"] {
        let mut client = Client::connect(&server);
        let answer = client.send(head(path, "Content-Length: 2000\r\n")).answer();
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.head.contains("Connection: close"), "{path}: {}", answer.head);
        client.finish_sending();
        client.assert_closed();
    }
    // The answer is the handler's, however much more comes behind it.
    for path in ["/refuse", "/refuse-later"] {
        let mut client = Client::connect(&server);
        client.send(head(path, CHUNKED)).send("5\r\nhello\r\n");
        assert_eq!(client.answer().status, 403);
        client.send(format!("7d0\r\n{}\r\n", "x".repeat(2000))).finish_sending();
        client.assert_closed();
    }
}

/// A handler that let go of the content must not leave a connection without a deadline.
#[test]
fn content_that_nobody_reads_has_to_come_as_well() {
    let server = Server::impatient("");
    server.gate.open();
    for path in ["/refuse", "/refuse-later", "/hold-and-refuse", "/peek"] {
        let mut client = Client::connect(&server);
        client.send(head(path, "Content-Length: 10\r\n")).send("h");
        assert!([200, 403].contains(&client.answer().status), "{path}");
        client.assert_closed();
    }
}

#[test]
fn over_the_limit_by_its_length() {
    let server = Server::start("limits { body-size \"1KiB\" }");
    for lines in ["Content-Length: 1025\r\n", "Content-Length: 1025\r\nExpect: 100-continue\r\n"] {
        let mut client = Client::connect(&server);
        let answer = client.send(head("/echo", lines)).answer();
        assert_eq!(answer.status, 413);
        assert!(answer.head.contains("Connection: close"));
        client.finish_sending();
        client.assert_closed();
    }
    let mut client = Client::connect(&server);
    assert_eq!(client.send(post("/echo", pattern(1024))).answer().body, pattern(1024));
}

#[test]
fn over_the_limit_in_the_middle() {
    let server = Server::start("limits { body-size \"1KiB\" }");
    for path in ["/echo", "/count"] {
        let mut client = Client::connect(&server);
        client.send(head(path, CHUNKED)).send(format!("400\r\n{}\r\n", "x".repeat(1024)));
        let answer = client.send("1\r\ny\r\n0\r\n\r\n").answer();
        assert_eq!(answer.status, 413, "{path}");
        assert!(answer.head.contains("Connection: close"));
        client.finish_sending();
        client.assert_closed();
    }
    let mut client = Client::connect(&server);
    let whole = format!("400\r\n{}\r\n0\r\n\r\n", "x".repeat(1024));
    assert_eq!(client.send(head("/count", CHUNKED)).send(whole).answer().body, b"1024 of None");
}

#[test]
fn malformed_in_the_middle() {
    let server = Server::start("");
    for broken in ["x\r\n", "2\r\nabc\r\n0\r\n\r\n", "2\nab\r\n", "-1\r\n", "0\r\nno colon\r\n\r\n"] {
        let mut client = Client::connect(&server);
        let answer = client.send(head("/echo", CHUNKED)).send("2\r\nab\r\n").send(broken).answer();
        assert_eq!(answer.status, 400, "{broken:?}");
        client.finish_sending();
        client.assert_closed();
    }
    // Begun already: cut off, without a final chunk.
    let mut client = Client::connect(&server);
    client.send(head("/duplex", CHUNKED)).send("2\r\nab\r\n");
    client.head();
    client.send("x\r\n");
    assert_eq!(server.told(), "the client sent a malformed body");
    client.finish_sending();
    client.end();
}

#[test]
fn both_directions_at_once() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.send(head("/duplex", &format!("{CHUNKED}Expect: 100-continue\r\n")));
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(client.head().contains("chunked"));
    for word in ["first", "other"] {
        client.send(format!("5\r\n{word}\r\n"));
        assert_eq!(client.take(10), format!("5\r\n{}\r\n", word.to_uppercase()).into_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.take(5), b"0\r\n\r\n");
    client.assert_alive();
}

#[test]
fn a_client_that_leaves_in_the_middle() {
    let server = Server::start("");
    for leaves in [Client::finish_sending as fn(&mut Client), |client| client.reset()] {
        let mut client = Client::connect(&server);
        client.send(head("/count", "Content-Length: 10\r\n")).send("hello");
        leaves(&mut client);
        drop(client);
        // A reset drops the handler with its connection; an end of stream it is told of.
        let mut client = Client::connect(&server);
        client.assert_alive();
    }
    assert!(server.told().ends_with(": the client stopped sending its body"));
    let mut client = Client::connect(&server);
    client.send(head("/duplex", "Content-Length: 10\r\n")).send("hello").finish_sending();
    assert_eq!(server.told(), "the client stopped sending its body");
    assert!(!client.answer().is_complete);
}

#[test]
fn a_slow_body() {
    let server = Server::impatient("limits { body-rate \"10KiB\" }");
    let mut client = Client::connect(&server);
    client.send(head("/echo", "Content-Length: 10\r\n")).send("hel");
    let answer = client.answer();
    assert_eq!(answer.status, 408);
    assert!(answer.head.contains("Connection: close"));
    assert_eq!(server.handle.stats.snapshot().timeouts.count(tidegate_stats::Timeout::Body), 1);
    client.finish_sending();
    client.assert_closed();
}

/// The client is not to blame for a handler that does not read.
#[test]
fn a_handler_that_waits_is_no_slow_body() {
    let server = Server::impatient("limits { body-rate \"10KiB\" }");
    let mut client = Client::connect(&server);
    let body = pattern(3 * HIGH_WATER);
    client.send(post("/hold", &body));
    // Another one runs into the deadline meanwhile, so this one would have as well.
    let mut slow = Client::connect(&server);
    slow.send(head("/echo", "Content-Length: 10\r\n"));
    assert_eq!(slow.answer().status, 408);
    server.gate.open();
    assert_eq!(client.answer().body, body.len().to_string().into_bytes());
}

#[test]
fn a_handler_that_does_not_read_stops_the_client() {
    let server = Server::start("limits { body-size \"1GiB\" }");
    let mut client = Client::connect(&server);
    let size = 64 << 20;
    client.send(head("/hold", &format!("Content-Length: {size}\r\n")));
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let piece = vec![b'x'; 64 << 10];
    let mut sent = 0;
    let refused = loop {
        match client.stream.write(&piece) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent < size, "somebody takes it all");
    };
    assert!(matches!(refused.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{refused}");
    // What the worker has taken: a full pipe and what one read may have brought beyond it.
    let taken = server.handle.stats.snapshot().received_bytes;
    assert!(taken <= (HIGH_WATER + (64 << 10) + 1024) as u64, "{taken} bytes taken");
    server.gate.open();
    client.stream.set_write_timeout(Some(crate::server::PATIENCE)).unwrap();
    while sent < size {
        let count = piece.len().min(size - sent);
        client.send(&piece[..count]);
        sent += count;
    }
    assert_eq!(client.answer().body, size.to_string().into_bytes());
    client.assert_alive();
    client.finish_sending();
    assert_eq!(client.end(), End::Closed);
}

/// FAULTS 31: refused at the limit of a head, whatever the names hash to.
#[test]
fn a_hundred_thousand_fields() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let mut request = b"GET / HTTP/1.1\r\nHost: x\r\n".to_vec();
    for number in 0..100_000 {
        request.extend(format!("x-{number}: 1\r\n").into_bytes());
    }
    client.send(request);
    let answer = client.answer();
    assert_eq!(answer.status, 431);
    client.finish_sending();
    client.assert_closed();
}
