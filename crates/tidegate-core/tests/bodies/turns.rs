//! The end of a turn, wherever it comes: what was made for one connection reaches its client and nobody else (FAULTS 71).

use crate::handlers::pattern;
use crate::server;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tidegate_core::conn::Next;
use tidegate_core::solo::Solo;
use tidegate_http::FieldLines;
use tidegate_io::socket::Stream;
use tidegate_wire::h2::{Connection, Event, FieldSource, Limits, RequestParts, Section};

fn pair() -> (UnixStream, Stream) {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, Stream::new(server.into()))
}

/// All that has come.
fn drain(client: &mut UnixStream) -> Vec<u8> {
    let mut received = Vec::new();
    match client.read_to_end(&mut received) {
        Ok(_) => received,
        Err(error) if error.kind() == ErrorKind::WouldBlock => received,
        Err(error) => panic!("{error}"),
    }
}

/// A client of HTTP/2 that has asked for these sizes.
struct Multiplexed {
    client: UnixStream,
    wire: Connection,
    section: Section,
    received: Vec<u8>,
    /// What is to come, and what has come of it, by stream.
    answers: BTreeMap<u32, (usize, Vec<u8>, bool)>,
}

impl Multiplexed {
    fn ask(client: UnixStream, sizes: impl Iterator<Item = usize>) -> Multiplexed {
        let mut out = Vec::new();
        let mut wire = Connection::client(Limits::default(), &mut out);
        let none = FieldLines::new();
        let answers = sizes.map(|size| {
            let target = format!("/bytes?{size}");
            let parts = RequestParts {
                method: "GET",
                scheme: "http",
                authority: "x",
                target: &target,
                protocol: None,
                fields: FieldSource::Lines(&none),
                content_length: None,
            };
            let key = wire.send_request(&parts, true, &mut out).unwrap();
            (key.id(), (size, Vec::new(), false))
        });
        let answers = answers.collect();
        let mut asked = Multiplexed { client, wire, section: Section::new(), received: Vec::new(), answers };
        asked.client.write_all(&out).unwrap();
        asked
    }

    fn read(&mut self) {
        let new = drain(&mut self.client);
        self.received.extend_from_slice(&new);
        let (mut at, mut out) = (0, Vec::new());
        loop {
            let read = self.wire.read(&self.received[at..], 0, &mut self.section, &mut out).unwrap();
            at += read.consumed;
            match read.event {
                None => break,
                Some(Event::Response { stream, is_end }) => {
                    self.answers.get_mut(&stream.id()).unwrap().2 = is_end;
                }
                Some(Event::Data { stream, data, is_end }) => {
                    let (_, body, has_ended) = self.answers.get_mut(&stream.id()).unwrap();
                    body.extend_from_slice(data);
                    *has_ended = is_end;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        self.received.drain(..at);
    }
}

#[test]
fn what_a_turn_leaves_behind_goes_to_nobody_else() {
    let (make, gate, _told) = server::registry();
    gate.open();
    let (client, stream) = pair();
    let mut solo = Solo::new(&Arc::new(server::settings("")), &make, stream).unwrap();
    // Each read takes a piece of a request or two, so that turns end in the midst of all that was asked.
    solo.read_at_most(48);
    let mut first = Multiplexed::ask(client, (0..60).map(|n| n * 7));
    let mut turns = 0;
    loop {
        let next = solo.turn();
        turns += 1;
        let (mut client, stream) = pair();
        client.write_all(b"GET /bytes?20 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let former = solo.connect_beside(stream);
        while solo.turn() == Next::Again {}
        let answer = drain(&mut client);
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &answer[at + 4..]);
        assert!(
            answer.starts_with(b"HTTP/1.1 200 OK\r\n"),
            "turn {turns}: {:?}",
            answer.escape_ascii().to_string()
        );
        assert_eq!(body, Some(&*pattern(20)), "turn {turns}");
        drop(client);
        solo.close();
        solo.change_to(former);
        if next != Next::Again {
            break;
        }
    }
    assert!(turns > 1, "no turn has ended before all was done");
    first.read();
    for (id, (size, body, has_ended)) in &first.answers {
        assert!(*has_ended && *body == pattern(*size), "stream {id}: {} of {size} bytes", body.len());
    }
}

/// Counted to its end: begun, with a response, be it 499, and timed.
fn assert_one_lost(solo: &Solo, what: &str) {
    let counted = solo.stats().snapshot();
    let responses = counted.responses.total();
    assert_eq!((counted.requests, responses, counted.latency.count()), (1, 1, 1), "{what}");
    assert_eq!(counted.requests_under_way(), 0, "{what}");
}

#[test]
fn a_request_is_counted_where_its_answer_finds_nobody() {
    let (make, gate, _told) = server::registry();
    gate.open();
    for target in ["bytes?20", "bytes?200000", "known?20", "stream?20", "refuse", "later", "fail"] {
        let (make, settings) = (make.clone(), Arc::new(server::settings("")));
        // Each is a worker of its own.
        let run = move || {
            let (mut client, stream) = pair();
            let mut solo = Solo::new(&settings, &make, stream).unwrap();
            client.write_all(format!("GET /{target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
            drop(client);
            while solo.turn() == Next::Again {}
            solo.close();
            assert_one_lost(&solo, target);
        };
        std::thread::spawn(run).join().unwrap();
    }
}

/// A client, and the worker that it is connected to.
fn served() -> (UnixStream, Solo) {
    let (make, _, _) = server::registry();
    let (client, stream) = pair();
    (client, Solo::new(&Arc::new(server::settings("")), &make, stream).unwrap())
}

/// Content in the smallest of chunks holds nobody up for longer than other content.
#[test]
fn a_turn_takes_no_more_than_some_chunks() {
    const CHUNKS: usize = 8192;
    let (mut client, mut solo) = served();
    client.write_all(b"POST /count HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    client.write_all(&b"1\r\nu\r\n".repeat(CHUNKS)).unwrap();
    client.write_all(b"0\r\n\r\n").unwrap();
    let mut turns = 1;
    while solo.turn() == Next::Again {
        turns += 1;
    }
    while solo.is_answering() {
        solo.wait(std::time::Duration::from_secs(10)).unwrap();
    }
    assert!(turns >= CHUNKS / 1024, "{turns}");
    let answer = String::from_utf8(drain(&mut client)).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("\r\n\r\n{CHUNKS} of")),
        "{answer}"
    );
}

/// Whoever sends many requests at once gets all answers, and others have their turns between them.
#[test]
fn a_turn_takes_no_more_than_some_requests() {
    const REQUESTS: usize = 1000;
    let (mut client, mut solo) = served();
    client.write_all(&b"GET /bytes?5 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(REQUESTS)).unwrap();
    let (mut turns, mut received) = (0, Vec::new());
    loop {
        let next = solo.turn();
        turns += 1;
        received.extend(drain(&mut client));
        if next != Next::Again
            && received.windows(12).filter(|front| front == b"HTTP/1.1 200").count() == REQUESTS
        {
            break;
        }
        assert!(turns < 2 * REQUESTS, "it goes on");
    }
    assert!(turns > REQUESTS / 64, "{turns}");
}
