//! A busy server: requests in flight and their queue, overload, and the status page that is served all the
//! same (FAULTS 54, 55).

use crate::client::{Client, End};
use crate::handlers::{Gate, Table};
use crate::server::Server;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use tidegate_config::settings::Settings;
use tidegate_core::decoration::Decoration;
use tidegate_core::solo::Solo;
use tidegate_core::worker::{LogSet, MakeRegistry, Registry};
use tidegate_core::{Engine, Route, Site};
use tidegate_http::FieldLines;
use tidegate_io::clock::{monotonic_ns, thread_cpu_ns};
use tidegate_io::socket::Stream;
use tidegate_stats::{ConnectionRefusal, Flush, QueueRefusal};
use tidegate_testkit::{OverWhenDropped, WAIT, join};
use tidegate_wire::h1::FieldSpace;
use tidegate_wire::h2;

const LATER: &str = "GET /later HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn requests_over_the_limit_wait_in_a_queue_and_no_longer_than_it_is() {
    let server = Server::start("limits { in-flight 1; queue length=2 age=\"1h\" }");
    let mut first = Client::connect(&server);
    first.send(LATER);
    server.until("one in flight", |stats| stats.in_flight.current == 1);
    let mut second = Client::connect(&server);
    second.send(LATER);
    server.until("one waits", |stats| stats.queued.current == 1);
    let mut third = Client::connect(&server);
    third.send(LATER);
    server.until("two wait", |stats| stats.queued.current == 2);

    let mut fourth = Client::connect(&server);
    let answer = fourth.get("/later");
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("Retry-After: 1\r\n"), "{}", answer.head);
    // What needs no waiting is served meanwhile, on that connection too.
    assert_eq!(fourth.get("/empty").status, 204);

    // A client that goes away frees its place in the queue.
    drop(second);
    server.until("one has left", |stats| stats.queued.current == 1);
    let mut fifth = Client::connect(&server);
    fifth.send(LATER);
    server.until("another one waits", |stats| stats.queued.current == 2);

    server.gate.open();
    for client in [&mut first, &mut third, &mut fifth] {
        assert_eq!(client.answer().body, b"late");
    }
    server.until("nobody in flight", |stats| stats.in_flight.current == 0);
    let stats = server.handle.stats.snapshot();
    assert_eq!(stats.in_flight.peak, 1);
    assert_eq!((stats.queued.current, stats.queued.peak, stats.requests_queued), (0, 2, 3));
    assert_eq!(stats.queue_refusals.count(QueueRefusal::Full), 1);
    assert_eq!(stats.queue_refusals.count(QueueRefusal::Client), 1);
    assert_eq!(stats.queue_delay.count(), 2);
}

#[test]
fn a_client_that_goes_away_while_in_flight_makes_room() {
    let server = Server::start("limits { in-flight 1; queue length=1 age=\"1h\" }");
    let mut gone = Client::connect(&server);
    gone.send(LATER);
    server.until("one in flight", |stats| stats.in_flight.current == 1);
    let mut waiting = Client::connect(&server);
    waiting.send("GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    server.until("one waits", |stats| stats.queued.current == 1);
    gone.reset();
    drop(gone);
    assert_eq!(waiting.answer().body, b"at once");
}

#[test]
fn a_request_that_waits_too_long_is_told_so() {
    let server = Server::start("limits { in-flight 1; queue age=\"20ms\" }");
    let mut first = Client::connect(&server);
    first.send(LATER);
    server.until("one in flight", |stats| stats.in_flight.current == 1);
    let mut second = Client::connect(&server);
    assert_eq!(second.get("/later").status, 503);
    assert_eq!(second.get("/empty").status, 204);
    server.gate.open();
    assert_eq!(first.answer().status, 200);
    let stats = server.handle.stats.snapshot();
    assert_eq!(stats.queue_refusals.count(QueueRefusal::Age), 1);
    assert_eq!((stats.queued.current, stats.queue_delay.count()), (0, 0));
}

/// Two routes of the same handlers, the first of them for the status page.
struct WithStatus(Arc<Gate>);

impl Registry for WithStatus {
    fn engine(&mut self, settings: &Arc<Settings>, _: &mut LogSet) -> io::Result<Engine> {
        let config = settings.sites[0].clone();
        let (outcomes, told) = channel();
        std::mem::forget(told);
        let handler = Rc::new(Table { gate: self.0.clone(), outcomes });
        let route = |route| Route::new(handler.clone(), Vec::new(), Decoration::of(route));
        let routes = config.routes.iter().map(route).collect();
        Ok(Engine::new(settings.clone(), vec![Site::new(config, routes, None)]))
    }

    fn ask(&mut self, _: &str) -> String {
        String::new()
    }
}

/// A client and the connection that serves it, with `/ready` as the status page.
fn with_status(limits: &str) -> (Solo, UnixStream) {
    let text = format!(
        "listen \"127.0.0.1:0\" {{ h2c }}\nlimits {{ {limits} }}\nsite {{ respond 200; route \"/ready\" {{ status }} }}\n"
    );
    let loaded = tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new());
    let make: MakeRegistry = Arc::new(|_| Box::new(WithStatus(Arc::default())));
    let (client, server) = pair();
    (Solo::new(&Arc::new(loaded.settings.unwrap()), &make, server).unwrap(), client)
}

fn pair() -> (UnixStream, Stream) {
    let (client, server) = UnixStream::pair().unwrap();
    for end in [&client, &server] {
        end.set_nonblocking(true).unwrap();
    }
    (client, Stream::new(OwnedFd::from(server)))
}

fn ask(solo: &mut Solo, client: &mut UnixStream, path: &str) -> (String, bool) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    solo.on_readable().unwrap();
    let mut answer = vec![0; 4096];
    let count = client.read(&mut answer).unwrap();
    answer.truncate(count);
    let is_closed = match client.read(&mut [0; 1]) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        other => panic!("{other:?}"),
    };
    (String::from_utf8(answer).unwrap(), is_closed)
}

/// Has the worker be one whose queue has not been empty for seconds, on a clock of its own, and its turn used up.
fn overload(solo: &mut Solo) -> u64 {
    let mut now = monotonic_ns();
    for _ in 0..60 {
        now += 100_000_000;
        solo.admission().begin_turn(now, true);
        solo.admission().tick(now);
    }
    let began = thread_cpu_ns();
    while thread_cpu_ns() - began < 1_000_000 {
        std::hint::spin_loop();
    }
    now
}

#[test]
fn under_overload_requests_are_turned_away_and_the_status_page_is_served() {
    // A turn may take 40 microseconds while it sheds.
    let (mut solo, mut client) = with_status("overload-delay \"10ms\"");
    assert!(ask(&mut solo, &mut client, "/bytes?3").0.starts_with("HTTP/1.1 200"));

    let mut now = overload(&mut solo);
    for _ in 0..32 {
        let (status, is_closed) = ask(&mut solo, &mut client, "/ready");
        assert!(status.starts_with("HTTP/1.1 200") && !is_closed, "{status}");
        let (answer, is_closed) = ask(&mut solo, &mut client, "/bytes?3");
        assert!(answer.starts_with("HTTP/1.1 503") && !is_closed, "{answer}");
        assert!(answer.contains("\r\nRetry-After: 1\r\n"));
    }
    assert_eq!(solo.stats().requests_shed.value(), 32);

    // It has passed.
    for _ in 0..60 {
        now += 100_000_000;
        solo.admission().on_wake();
        solo.admission().begin_turn(now, false);
        solo.admission().tick(now);
    }
    for _ in 0..32 {
        assert!(ask(&mut solo, &mut client, "/bytes?3").0.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(solo.stats().shedding.current(), 0);
}

/// A client of HTTP/2, answer by answer: the status of each, whether it may come again, and what has come of the connection.
struct Multiplexed {
    client: UnixStream,
    wire: h2::Connection,
    section: h2::Section,
    out: Vec<u8>,
}

impl Multiplexed {
    fn new(client: UnixStream) -> Multiplexed {
        let mut out = Vec::new();
        let wire = h2::Connection::client(h2::Limits::default(), &mut out);
        Multiplexed { client, wire, section: h2::Section::new(), out }
    }

    /// The status, and the value of Retry-After.
    fn ask(&mut self, solo: &mut Solo, target: &str) -> (u16, Option<Vec<u8>>) {
        let none = FieldLines::new();
        let parts = h2::RequestParts {
            method: "GET",
            scheme: "http",
            authority: "x",
            target,
            protocol: None,
            fields: h2::FieldSource::Lines(&none),
            content_length: None,
        };
        let asked = self.wire.send_request(&parts, true, &mut self.out).unwrap();
        self.client.write_all(&std::mem::take(&mut self.out)).unwrap();
        solo.on_readable().unwrap();
        let mut received = vec![0; 16 << 10];
        let count = self.client.read(&mut received).unwrap();
        let (mut at, mut answer) = (0, None);
        loop {
            let read = self.wire.read(&received[at..count], 0, &mut self.section, &mut self.out).unwrap();
            at += read.consumed;
            match read.event {
                None => return answer.expect("an answer has come"),
                Some(h2::Event::Response { stream, .. }) => {
                    assert_eq!(stream.id(), asked.id());
                    let mut space = FieldSpace::new();
                    let head = self.section.response(&mut space);
                    let retry = head.fields.iter().find(|field| field.name == "retry-after");
                    answer = Some((head.status, retry.map(|field| field.value.to_vec())));
                }
                Some(h2::Event::Data { .. }) => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}

/// FAULTS 54: new streams too, each by itself, on a connection that stays; never the status page.
#[test]
fn under_overload_streams_are_turned_away_and_the_status_page_is_served() {
    let (mut solo, client) = with_status("overload-delay \"10ms\"");
    let mut client = Multiplexed::new(client);
    assert_eq!(client.ask(&mut solo, "/bytes?3").0, 200);
    overload(&mut solo);
    for _ in 0..32 {
        assert_eq!(client.ask(&mut solo, "/ready").0, 200);
        assert_eq!(client.ask(&mut solo, "/bytes?3"), (503, Some(b"1".to_vec())));
    }
    assert_eq!(solo.stats().requests_shed.value(), 32);
}

#[test]
fn the_status_page_needs_no_place_in_flight() {
    let (mut solo, mut client) = with_status("in-flight 1; queue length=0");
    let (mut held, server) = pair();
    // A place that somebody else holds.
    let place = solo.hold_place();
    assert!(place.is_some());
    assert!(ask(&mut solo, &mut client, "/later").0.starts_with("HTTP/1.1 503"));
    assert!(ask(&mut solo, &mut client, "/ready").0.starts_with("HTTP/1.1 200"));
    drop(place);
    solo.connect(server);
    assert!(ask(&mut solo, &mut held, "/ready").0.starts_with("HTTP/1.1 200"));
    assert_eq!(solo.stats().in_flight.current(), 0);
}

/// More comes than a worker can do: idle connections go first, then new ones are turned away.
#[test]
fn an_overloaded_worker_sheds_idle_connections_and_new_ones() {
    let server = Server::start("limits { overload-delay \"10ms\" }");
    let mut idle: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/empty").status, 204);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let end = OverWhenDropped(&is_over);
    let clients: Vec<_> = (0..24)
        .map(|_| {
            let (is_over, address) = (is_over.clone(), server.address);
            std::thread::spawn(move || {
                while !is_over.load(Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    stream.set_read_timeout(Some(WAIT)).unwrap();
                    stream.set_write_timeout(Some(WAIT)).unwrap();
                    let mut buffer = [0; 4096];
                    while !is_over.load(Relaxed)
                        && stream.write_all(b"GET /spin?2000000 HTTP/1.1\r\nHost: x\r\n\r\n").is_ok()
                        // Who is turned away comes again, as a new connection.
                        && stream.read(&mut buffer).is_ok_and(|count| count > 0)
                        && !buffer.starts_with(b"HTTP/1.1 503")
                    {}
                }
            })
        })
        .collect();
    server.until("overload", |stats| stats.overloads > 0);
    server
        .until("idle connections closed", |stats| stats.keep_alive_flush_reasons.count(Flush::Overload) > 0);
    server.until("requests turned away", |stats| stats.requests_shed > 0);
    server.until("connections turned away", |stats| {
        stats.connection_refusals.count(ConnectionRefusal::Overload) > 0
    });
    drop(end);
    clients.into_iter().for_each(|client| join(client, "a client to leave"));
    assert!(idle.iter_mut().any(|client| client.end() == End::Closed));
}
