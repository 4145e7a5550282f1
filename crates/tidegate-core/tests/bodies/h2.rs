//! The same handlers over HTTP/2: content in both directions, many streams at once, and clients that do too
//! much.

use crate::handlers::pattern;
use crate::server::{PATIENCE, Server};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_http::FieldLines;
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2::{
    Connection, ErrorCode, Event, FieldSource, FrameKind, Limits, RequestParts, Section, StreamKey,
    push_frame,
};

/// What has come of an answer.
#[derive(Debug, Default)]
pub struct Answer {
    interim: Vec<u16>,
    pub status: u16,
    pub body: Vec<u8>,
    has_ended: bool,
    reset: Option<ErrorCode>,
}

pub struct Client {
    stream: TcpStream,
    pub wire: Connection,
    section: Section,
    input: Vec<u8>,
    pub out: Vec<u8>,
    pub answers: HashMap<u32, Answer>,
    goodbye: Option<ErrorCode>,
    is_closed: bool,
    /// Content is given back as it comes.
    releases: bool,
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut out = Vec::new();
        let wire = Connection::client(Limits::default(), &mut out);
        Client {
            stream,
            wire,
            section: Section::new(),
            input: Vec::new(),
            out,
            answers: HashMap::new(),
            goodbye: None,
            is_closed: false,
            releases: true,
        }
    }

    /// Begins a request; `content` is announced and still to be sent.
    pub fn ask(&mut self, method: &str, target: &str, content: Option<u64>, lines: &FieldLines) -> StreamKey {
        let parts = RequestParts {
            method,
            scheme: "http",
            authority: "x",
            target,
            protocol: None,
            fields: FieldSource::Lines(lines),
            content_length: content,
        };
        let key = self.wire.send_request(&parts, content.is_none(), &mut self.out).unwrap();
        self.answers.insert(key.id(), Answer::default());
        key
    }

    fn get(&mut self, target: &str) -> StreamKey {
        self.ask("GET", target, None, &FieldLines::new())
    }

    pub fn flush(&mut self) {
        let out = std::mem::take(&mut self.out);
        if self.stream.write_all(&out).is_err() {
            self.is_closed = true;
        }
    }

    /// Sends what is to be sent and reads once.
    fn turn(&mut self) {
        self.flush();
        let mut buffer = vec![0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing came: {:?}", self.answers)
            }
            Err(_) => self.is_closed = true,
        }
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while let Ok(read) = self.wire.read(&input[at..], 0, &mut self.section, &mut self.out) {
            at += read.consumed;
            let Some(event) = read.event else { break };
            let mut space = FieldSpace::new();
            match event {
                Event::Response { stream, is_end } => {
                    let answer = self.answers.get_mut(&stream.id()).unwrap();
                    answer.status = self.section.response(&mut space).status;
                    answer.has_ended = is_end;
                }
                Event::Interim { stream } => {
                    let status = self.section.response(&mut space).status;
                    self.answers.get_mut(&stream.id()).unwrap().interim.push(status);
                }
                Event::Data { stream, data, is_end } => {
                    let answer = self.answers.get_mut(&stream.id()).unwrap();
                    answer.body.extend_from_slice(data);
                    answer.has_ended = is_end;
                    if self.releases {
                        self.wire.release(stream, data.len(), &mut self.out);
                    }
                }
                Event::Reset { stream, code } => {
                    self.answers.get_mut(&stream.id()).unwrap().reset = Some(code);
                }
                Event::GoAway { code, .. } => self.goodbye = Some(code),
                other => panic!("{other:?}"),
            }
        }
        self.input = input[at..].to_vec();
    }

    fn until(&mut self, holds: impl Fn(&Client) -> bool) {
        while !holds(self) {
            assert!(!self.is_closed, "the server has closed: {:?}", self.goodbye);
            self.turn();
        }
        self.flush();
    }

    /// Waits for the whole answer, or its reset.
    pub fn answer(&mut self, key: StreamKey) -> Answer {
        let id = key.id();
        self.until(|client| {
            let answer = &client.answers[&id];
            answer.has_ended || answer.reset.is_some()
        });
        self.answers.remove(&id).unwrap()
    }

    pub fn fetch(&mut self, target: &str) -> Answer {
        let key = self.get(target);
        self.answer(key)
    }

    /// Sends content as the windows allow.
    pub fn upload(&mut self, key: StreamKey, content: &[u8]) {
        let mut at = self.wire.send_data(key, content, true, &mut self.out);
        while at < content.len() && self.wire.is_open(key) {
            self.turn();
            at += self.wire.send_data(key, &content[at..], true, &mut self.out);
        }
        self.flush();
    }

    pub fn post(&mut self, target: &str, content: &[u8]) -> Answer {
        let key = self.ask("POST", target, Some(content.len() as u64), &FieldLines::new());
        self.upload(key, content);
        self.answer(key)
    }
}

#[test]
fn answers_of_every_kind() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for size in [1, 2, 1000, 16_384, 16_385, 65_535, 65_536, 300_000] {
        for kind in ["bytes", "file", "stream", "known"] {
            let answer = client.fetch(&format!("/{kind}?{size}"));
            assert!(
                answer.status == 200 && answer.body == pattern(size),
                "{kind} of {size}: {}",
                answer.body.len()
            );
        }
        let parts = [b"<", &pattern(size)[..], b"|", &pattern(size), b">"].concat();
        assert!(client.fetch(&format!("/parts?{size}")).body == parts, "parts of {size}");
    }
    assert_eq!(client.fetch("/empty").status, 204);
    assert_eq!(client.fetch("/ready").body, b"at once");
    assert_eq!(client.fetch("/none").status, 404);
    let key = client.ask("HEAD", "/file?5", None, &FieldLines::new());
    let answer = client.answer(key);
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn answers_that_break_are_reset() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for target in ["/broken?1000", "/short?1000", "/long?1000"] {
        let answer = client.fetch(target);
        assert_eq!(answer.reset, Some(ErrorCode::INTERNAL_ERROR), "{target}");
        assert_eq!(client.fetch("/ready").status, 200, "{target}");
    }
    server.until("counted", |stats| stats.http2_resets.count(tidegate_stats::StreamReset::Unfinished) == 3);
}

#[test]
fn what_is_sent_arrives() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for size in [0, 1, 1000, 65_535, 65_536, 1_000_000] {
        let content = pattern(size);
        let answer = client.post("/echo", &content);
        assert!(answer.status == 200 && answer.body == content, "{size} bytes");
        let answer = client.post("/count", &content);
        assert_eq!(answer.body, format!("{size} of Some({size})").into_bytes());
    }
}

#[test]
fn content_is_asked_for_once_it_is_wanted() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let mut lines = FieldLines::new();
    lines.push("Expect", "100-continue");
    let key = client.ask("POST", "/echo", Some(3), &lines);
    client.until(|client| client.answers[&key.id()].interim == [100]);
    client.upload(key, b"abc");
    assert_eq!(client.answer(key).body, b"abc");
    // Answered without it: what was announced is not waited for.
    let key = client.ask("POST", "/refuse", Some(3), &lines);
    let answer = client.answer(key);
    assert_eq!((answer.status, answer.interim.len()), (403, 0));
    let key = client.ask("POST", "/refuse-later", Some(3), &lines);
    assert_eq!(client.answer(key).status, 403);
    assert_eq!(client.fetch("/ready").status, 200);
}

#[test]
fn content_nobody_takes_holds_nobody_up() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    // Ten handlers that do not read, each with its window full.
    let held: Vec<StreamKey> =
        (0..10).map(|_| client.ask("POST", "/hold", Some(200_000), &FieldLines::new())).collect();
    let sent: Vec<usize> = held
        .iter()
        .map(|key| client.wire.send_data(*key, &pattern(200_000), true, &mut client.out))
        .collect();
    assert_eq!(client.post("/echo", &pattern(100_000)).body.len(), 100_000);
    server.gate.open();
    for (key, sent) in held.into_iter().zip(sent) {
        client.upload(key, &pattern(200_000)[sent..]);
        assert_eq!(client.answer(key).body, b"200000");
    }
}

#[test]
fn content_over_the_limit() {
    let server = Server::start("limits { body-size \"100KiB\" }");
    let mut client = Client::connect(&server);
    assert_eq!(client.post("/echo", &pattern(200_000)).status, 413);
    // Without a length it is noticed on the way.
    let mut lines = FieldLines::new();
    lines.push("X-Any", "1");
    let key = client.ask("POST", "/echo", Some(50_000), &lines);
    client.upload(key, &pattern(50_000));
    assert_eq!(client.answer(key).status, 200);
    server.until("counted", |stats| stats.parse_errors.count(tidegate_stats::ParseError::BodyTooLarge) == 1);
}

#[test]
fn both_directions_at_once() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let key = client.ask("POST", "/duplex", Some(6), &FieldLines::new());
    client.wire.send_data(key, b"abc", false, &mut client.out);
    client.until(|client| client.answers[&key.id()].body == b"ABC");
    client.upload(key, b"def");
    assert_eq!(client.answer(key).body, b"ABCDEF");
}

#[test]
fn many_streams_at_once() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let keys: Vec<(StreamKey, usize)> = (0..100)
        .map(|n| {
            let size = n * n * 20;
            let kind = ["bytes", "file", "stream", "known"][n % 4];
            (client.get(&format!("/{kind}?{}", size + 1)), size + 1)
        })
        .collect();
    let late = client.get("/later");
    for (key, size) in keys {
        let answer = client.answer(key);
        assert!(answer.body == pattern(size), "{size}: {}", answer.body.len());
    }
    assert_eq!(client.answers[&late.id()].status, 0);
    server.gate.open();
    assert_eq!(client.answer(late).body, b"late");
    server.until("counted", |stats| stats.http2_streams == 101);
}

/// One wake-up, one stream: those that wait cost nothing when another one is woken, whether it can send or not.
#[test]
fn who_is_not_woken_is_not_asked() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let idle: Vec<StreamKey> = (0..90).map(|_| client.get("/event")).collect();
    client.until(|client| idle.iter().all(|key| client.answers[&key.id()].body == b"x"));
    // Each was asked twice: for its byte, and in vain for the next.
    client.fetch("/ticks?1");
    let before = server.gate.polls.load(Relaxed);
    assert_eq!(before, 180);
    assert_eq!(client.fetch("/ticks?500").body.len(), 500);
    let answer = client.fetch("/bytes?1000000");
    assert_eq!(answer.body.len(), 1_000_000);
    // Also where the windows are closed again and again.
    client.releases = false;
    let blocked = client.get("/bytes?1000000");
    client.until(|client| client.answers[&blocked.id()].body.len() == 65_535);
    assert_eq!(client.fetch("/empty").status, 204);
    assert_eq!(server.gate.polls.load(Relaxed), before, "streams were asked that nobody has woken");
    // When they are woken they go on.
    client.wire.reset(blocked, ErrorCode::CANCEL, &mut client.out);
    server.gate.open();
    for key in idle {
        assert_eq!(client.answer(key).body, b"x");
    }
    assert_eq!(server.gate.polls.load(Relaxed), before + 90);
}

/// Content that is taken while the client takes none of the answer makes room for more of it.
#[test]
fn what_is_taken_while_the_answer_waits_opens_the_window() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.releases = false;
    let key = client.ask("POST", "/gulp", Some(400_000), &FieldLines::new());
    client.until(|client| client.answers[&key.id()].body.len() == 65_535);
    let content = pattern(400_000);
    let sent = client.wire.send_data(key, &content, true, &mut client.out);
    assert!(sent < content.len());
    client.flush();
    server.until("there", |stats| stats.received_bytes > sent as u64);
    server.gate.open();
    client.upload(key, &content[sent..]);
    assert_eq!(server.told(), "400000");
}

/// What waits keeps its head, in one form or another: it counts for `limits memory`.
#[test]
fn heads_of_requests_that_wait_are_weighed() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    let mut lines = FieldLines::new();
    lines.push("x-large", "a".repeat(10_000).as_bytes());
    let waiting: Vec<_> = (0..50).map(|_| client.ask("GET", "/later", None, &lines)).collect();
    client.flush();
    server.until("weighed", |stats| stats.buffer.current > 50 * 10_000);
    server.gate.open();
    for key in waiting {
        assert_eq!(client.answer(key).body, b"late");
    }
    server.until("given back", |stats| stats.buffer.current < 100_000);
}

/// A client that goes on asking after it was told to stop is served what may have been on its way, and no more.
#[test]
fn a_client_that_does_not_stop_asking_is_not_served_for_ever() {
    let server = Server::start("limits { keep-alive-requests 2; streams 10 }");
    let mut client = Client::connect(&server);
    // Nothing is read, so the server is not told either that the client knows.
    for _ in 0..10 {
        for _ in 0..10 {
            client.get("/empty");
        }
        client.flush();
    }
    client.until(|client| client.is_closed);
    let served = client.answers.values().filter(|answer| answer.status == 204).count();
    assert!((2..=13).contains(&served), "{served}");
}

/// Who has sent all of its content owes nothing, however long the handler lets the end of it lie.
#[test]
fn a_client_whose_content_is_complete_is_not_slow() {
    let server = Server::impatient("");
    let mut client = Client::connect(&server);
    let complete = client.ask("POST", "/taste", Some(3), &FieldLines::new());
    client.wire.send_data(complete, b"abc", true, &mut client.out);
    let slow = client.ask("POST", "/taste", Some(4), &FieldLines::new());
    client.wire.send_data(slow, b"abc", false, &mut client.out);
    client.until(|client| client.answers[&slow.id()].reset == Some(ErrorCode::CANCEL));
    assert_eq!(client.answers[&complete.id()].reset, None);
    server.gate.open();
    assert_eq!(client.answer(complete).body, b"3");
}

#[test]
fn a_client_that_cancels_all_the_time_is_sent_away() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for _ in 0..300 {
        let key = client.get("/later");
        client.wire.reset(key, ErrorCode::CANCEL, &mut client.out);
    }
    client.until(|client| client.goodbye.is_some());
    assert_eq!(client.goodbye, Some(ErrorCode::ENHANCE_YOUR_CALM));
    server.until("counted", |stats| {
        stats.http2_faults.count(tidegate_stats::ConnectionFault::Reset) == 1 && stats.in_flight.current == 0
    });
}

#[test]
fn what_is_cancelled_at_once_is_not_begun_with() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    for _ in 0..50 {
        let key = client.get("/begin");
        client.wire.reset(key, ErrorCode::CANCEL, &mut client.out);
    }
    let last = client.get("/begin");
    client.flush();
    assert_eq!(server.told(), "begun");
    server.gate.open();
    assert_eq!(client.answer(last).body, b"late");
    assert_eq!(server.told_until_now(), 0, "a handler has begun with what was cancelled");
    server.until("counted", |stats| stats.http2_streams == 51 && stats.in_flight.current == 0);
}

#[test]
fn cancelling_counts_over_the_connections_of_an_address() {
    let server = Server::start("limits { exempt-addresses \"192.0.2.1\" }");
    let mut sent_away = 0;
    // Fewer on each than a connection may.
    for _ in 0..20 {
        let mut client = Client::connect(&server);
        let keys: Vec<StreamKey> = (0..90).map(|_| client.get("/later")).collect();
        client.flush();
        for key in keys {
            client.wire.reset(key, ErrorCode::CANCEL, &mut client.out);
        }
        let last = client.get("/bytes?5");
        client.until(|client| client.goodbye.is_some() || client.answers[&last.id()].has_ended);
        sent_away += u32::from(client.goodbye == Some(ErrorCode::ENHANCE_YOUR_CALM));
    }
    assert!(sent_away >= 8, "{sent_away}");
    // Who cancels nothing is served.
    let mut client = Client::connect(&server);
    let key = client.get("/bytes?5");
    assert_eq!(client.answer(key).body, pattern(5));
}

#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let server = Server::impatient("");
    let mut client = Client::connect(&server);
    client.releases = false;
    let key = client.get("/bytes?1000000");
    let answer = client.answer(key);
    assert_eq!((answer.reset, answer.body.len()), (Some(ErrorCode::CANCEL), 65_535));
    assert_eq!(client.fetch("/empty").status, 204);
    server.until("counted", |stats| stats.http2_resets.count(tidegate_stats::StreamReset::Slow) == 1);
}

/// Who has finished sending gets what its windows have room for. They grow no more, so what they have none for is over at
/// once, and holds no place.
#[test]
fn what_no_window_will_have_room_for_is_given_up_with_the_client() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.fetch("/ready"); // the settings are acknowledged
    client.releases = false;
    let (whole, blocked) = (client.get("/bytes?20000"), client.get("/stream?1000000"));
    client.flush();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = client.answer(whole);
    assert!(answer.has_ended && answer.body.len() == 20_000);
    assert_eq!(client.answer(blocked).reset, Some(ErrorCode::CANCEL));
    while !client.is_closed {
        client.turn();
    }
    server.until("closed", |stats| stats.connections_closed == 1);
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let server = Server::start("");
    let mut client = Client::connect(&server);
    client.fetch("/ready");
    // Pings within their rate, and requests whose answers fill the socket.
    for _ in 0..100 {
        client.get("/bytes?60000");
    }
    let mut more = Vec::new();
    push_frame(&mut more, FrameKind::PING, 0, 0, &[0; 8]);
    client.out.extend(more.repeat(50));
    client.flush();
    server.until("begun", |stats| stats.requests == 101);
    let keys: Vec<u32> = client.answers.keys().copied().collect();
    for id in keys {
        client.until(|client| client.answers[&id].has_ended);
        assert!(client.answers[&id].body == pattern(60_000));
    }
}
