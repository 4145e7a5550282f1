//! Gates that wait: over both protocols, with content behind them, given up with their client, and on the way of requests
//! of the server's own.

use crate::client::{Client, End};
use crate::h2;
use crate::handlers::{Gate, pattern};
use crate::server::Server;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tidegate_config::settings::Settings;
use tidegate_core::decoration::Decoration;
use tidegate_core::explain::{Asked, Foreseen, Notes};
use tidegate_core::worker::{LogSet, Registry};
use tidegate_core::{Engine, Exchange, Handler, MayStore, Need, Pass, Reply, Response, Route, Site, Verdict};
use tidegate_http::{Field, FieldLines, Fields, Status};
use tidegate_io::socket::Peer;
use tidegate_wire::h2::ErrorCode;

/// Decides by a field of the request, whether at once or when the test says so.
struct Porter {
    gate: Arc<Gate>,
    outcomes: Sender<String>,
}

/// Tells when a verdict was given up before it was there.
struct GivenUp(Option<Sender<String>>);

impl GivenUp {
    fn decided(mut self) {
        self.0 = None;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(outcomes) = self.0.take() {
            let _ = outcomes.send("given up".into());
        }
    }
}

fn refusal() -> Verdict {
    Verdict::Refuse(Response::content(Status::FORBIDDEN, "text/plain", "not you"))
}

impl tidegate_core::Gate for Porter {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let (gate, given_up) = (self.gate.clone(), GivenUp(Some(self.outcomes.clone())));
        match exchange.field("x-gate").unwrap_or_default() {
            b"refuse" => {
                given_up.decided();
                refusal()
            }
            word @ (b"wait, pass" | b"wait, refuse" | b"wait, wait, pass") => {
                let (refuses, again) = (word.ends_with(b"refuse"), word.starts_with(b"wait, wait"));
                let _ = self.outcomes.send("asked".into());
                Verdict::Wait(
                    Need::Decision,
                    Box::pin(async move {
                        gate.pass().await;
                        given_up.decided();
                        match (refuses, again) {
                            (true, _) => refusal(),
                            (_, true) => Verdict::Wait(
                                Need::Decision,
                                Box::pin(async move {
                                    gate.pass().await;
                                    Verdict::Pass
                                }),
                            ),
                            _ => Verdict::Pass,
                        }
                    }),
                )
            }
            _ => {
                given_up.decided();
                Verdict::Pass
            }
        }
    }
}

/// Answers with what has come of the request, and tells that it was called.
struct Content(Sender<String>);

/// Leads to other paths and routes.
struct Leading;

impl Handler for Leading {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        match exchange.path {
            b"/index" => exchange.hand_on(b"/page", stored),
            b"/index-of-a-program" => exchange.hand_on(b"/program", stored),
            _ => exchange.hand_on_to("@name"),
        }
    }

    fn explain(&self, _: &Exchange<'_>, _: &mut dyn FnMut(String)) -> Foreseen {
        Foreseen::Handler
    }
}

impl Handler for Content {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        let path = String::from_utf8_lossy(exchange.path).into_owned();
        let _ = self.0.send(format!("content of {path}"));
        let Some(mut body) = exchange.state.body.take() else { return Reply::Ready(text(path.into_bytes())) };
        Reply::Later(Box::pin(async move {
            let mut content = path.into_bytes();
            while let Ok(1..) = body.read(&mut content).await {}
            text(content)
        }))
    }

    fn explain(&self, _: &Exchange<'_>, _: &mut dyn FnMut(String)) -> Foreseen {
        Foreseen::Handler
    }
}

fn stored(MayStore(may_store): MayStore, exchange: &mut Exchange<'_>) -> Reply {
    let method = exchange.method_token;
    let target = exchange.target;
    Reply::Ready(text(format!("file for {method} {target}, stored: {may_store}").into_bytes()))
}

fn text(body: impl Into<Vec<u8>>) -> Response {
    Response::content(Status::OK, "text/plain", body)
}

struct Behind {
    gate: Arc<Gate>,
    outcomes: Sender<String>,
}

impl Registry for Behind {
    fn engine(&mut self, settings: &Arc<Settings>, _: &mut LogSet) -> io::Result<Engine> {
        Ok(self.made(settings))
    }

    fn ask(&mut self, _: &str) -> String {
        String::new()
    }
}

impl Behind {
    fn made(&self, settings: &Arc<Settings>) -> Engine {
        let config = settings.sites[0].clone();
        let handler: Rc<dyn Handler> = Rc::new(Content(self.outcomes.clone()));
        let route = |route: &tidegate_config::settings::Route| {
            // What leads elsewhere stands open; what it leads to does not.
            if ["/index*", "/try"].contains(&route.pattern.to_string().as_str()) {
                return Route::new(Rc::new(Leading), Vec::new(), Decoration::of(route));
            }
            let porter = Porter { gate: self.gate.clone(), outcomes: self.outcomes.clone() };
            Route::new(handler.clone(), Vec::new(), Decoration::of(route)).behind(vec![Rc::new(porter)])
        };
        let routes = config.routes.iter().map(route).collect();
        Engine::new(settings.clone(), vec![Site::new(config, routes, None)])
    }
}

fn start() -> Server {
    Server::serving(settings(""), |gate, outcomes| Behind { gate, outcomes })
}

fn settings(limits: &str) -> Settings {
    let text = "listen \"127.0.0.1:0\" { h2c }\nsite { respond 200\n\
        route \"/index*\" { respond 200 }\nroute \"/try\" { respond 200 }\n\
        route \"/program\" { proxy \"http://127.0.0.1:9\" }\nroute \"@name\" { respond 200 } }\n";
    let text = format!("{limits}\n{text}");
    let loaded = tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new());
    assert!(!loaded.has_errors(), "{}", loaded.render(false));
    loaded.settings.unwrap()
}

fn lines(gate: &str) -> FieldLines {
    let mut lines = FieldLines::new();
    lines.push("X-Gate", gate);
    lines
}

fn request(method: &str, path: &str, gate: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nX-Gate: {gate}\r\n{more}\r\n")
}

#[test]
fn who_waits_at_a_gate_gets_the_content_or_the_refusal() {
    for (gate, status, body) in [
        ("pass", 200, "/page"),
        ("refuse", 403, "not you"),
        ("wait, pass", 200, "/page"),
        ("wait, wait, pass", 200, "/page"),
        ("wait, refuse", 403, "not you"),
    ] {
        let server = start();
        let (mut one, mut two) = (Client::connect(&server), h2::Client::connect(&server));
        one.send(request("GET", "/page", gate, ""));
        let key = two.ask("GET", "/page", None, &lines(gate));
        two.flush();
        if gate.starts_with("wait") {
            assert_eq!((server.told(), server.told()), ("asked".into(), "asked".into()));
            assert_eq!(server.told_until_now(), 0, "{gate}: nobody has been let in");
            // Others are served meanwhile, over the same connection where there can be some.
            assert_eq!(two.fetch("/other").body, b"/other");
            assert_eq!(Client::connect(&server).get("/other").body, b"/other");
            assert_eq!(
                (server.told(), server.told()),
                ("content of /other".into(), "content of /other".into())
            );
            server.gate.open();
        }
        let (first, second) = (one.answer(), two.answer(key));
        assert_eq!((first.status, first.body.as_slice()), (status, body.as_bytes()), "{gate}");
        assert_eq!((second.status, second.body.as_slice()), (status, body.as_bytes()), "{gate}");
        let is_let_in = status == 200;
        assert_eq!(
            server.told_until_now(),
            if is_let_in { 2 } else { 0 },
            "{gate}: handlers that were called"
        );
        assert_eq!(one.get("/other").status, 200, "{gate}");
        assert_eq!(two.fetch("/other").status, 200, "{gate}");
    }
}

/// FAULTS 58: who waits for a verdict takes nothing from those whose content is still to come, and has a bound.
#[test]
fn who_waits_at_a_gate_does_not_count_as_content_to_come() {
    let settings = settings("limits { incoming-bodies 1; in-flight 6; queue length=0 }");
    let server = Server::serving(settings, |gate, outcomes| Behind { gate, outcomes });
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send(request("GET", "/page", "wait, pass", ""));
        assert_eq!(server.told(), "asked");
    }
    // One client has half of the places.
    let mut fourth = Client::connect(&server);
    fourth.send(request("GET", "/page", "wait, pass", ""));
    assert_eq!((server.told().as_str(), server.told().as_str()), ("asked", "given up"));
    assert_eq!(fourth.answer().status, 503);
    server.gate.open();
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn explain_asks_no_gate_that_would_wait() {
    let (outcomes, told) = std::sync::mpsc::channel();
    let settings = Arc::new(settings(""));
    let engine = Behind { gate: Arc::default(), outcomes }.made(&settings);
    let notes = Notes::default();
    let fields = [Field { name: "x-gate", value: b"wait, refuse" }];
    let exchange = Exchange { target: "/page", fields: Fields::new(&fields), ..Exchange::empty() };
    let asked = Asked { listener: 0, peer: Peer::Unix, raw_path: "/page", client: None, size: 9, exchange };
    let Reply::Ready(response) = engine.rehearse(asked, &notes) else { panic!("nothing is waited for") };
    assert_eq!(response.status, Status::OK);
    assert!(
        notes
            .take()
            .iter()
            .any(|note| note.contains("a gate of the route decides, and nobody is asked here"))
    );
    assert_eq!(notes.undecided().as_deref(), Some("a gate of the route"), "200 is known of nobody");
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told, ["asked", "given up", "content of /page"], "the verdict was never polled");
}

#[test]
fn content_waits_behind_the_gate() {
    let content = pattern(300_000);
    let expected = [b"/page", &content[..]].concat();
    for gate in ["wait, pass", "wait, refuse"] {
        for framing in ["Content-Length: 300000\r\nExpect: 100-continue\r\n", "Content-Length: 300000\r\n"] {
            let server = start();
            let mut client = Client::connect(&server);
            client.send(request("POST", "/page", gate, framing));
            let mut two = h2::Client::connect(&server);
            let key = two.ask("POST", "/page", Some(300_000), &lines(gate));
            two.flush();
            assert_eq!((server.told(), server.told()), ("asked".into(), "asked".into()));
            server.gate.open();
            let is_let_in = gate == "wait, pass";
            if framing.contains("Expect") && is_let_in {
                assert!(client.head().starts_with("HTTP/1.1 100 "));
            }
            if is_let_in || !framing.contains("Expect") {
                client.send(&content);
            }
            let answer = client.answer();
            two.upload(key, &content);
            let second = two.answer(key);
            if is_let_in {
                assert!(answer.status == 200 && answer.body == expected, "{framing}");
                assert!(second.status == 200 && second.body == expected);
                assert_eq!(server.told_until_now(), 2);
            } else {
                assert_eq!((answer.status, second.status), (403, 403), "{framing}");
                assert_eq!(server.told_until_now(), 0);
            }
        }
    }
}

#[test]
fn a_client_that_leaves_takes_its_verdict_along() {
    let server = start();
    let mut client = Client::connect(&server);
    client.send(request("GET", "/page", "wait, pass", ""));
    assert_eq!(server.told(), "asked");
    client.reset();
    drop(client);
    assert_eq!(server.told(), "given up");

    // Who has finished sending and is still there is answered; who listens no more is found out.
    let mut client = Client::connect(&server);
    client.send(request("GET", "/page", "wait, pass", ""));
    assert_eq!(server.told(), "asked");
    client.finish_sending();
    drop(client);
    assert_eq!(server.told(), "given up");

    let mut client = h2::Client::connect(&server);
    let key = client.ask("POST", "/page", Some(10), &lines("wait, refuse"));
    client.flush();
    assert_eq!(server.told(), "asked");
    client.wire.reset(key, ErrorCode::CANCEL, &mut client.out);
    client.flush();
    assert_eq!(server.told(), "given up");
    assert_eq!(client.fetch("/other").body, b"/other");
    assert_eq!(server.told(), "content of /other");
    drop(client);
    server.gate.open();
    server.until("all are counted", |stats| stats.requests_under_way() == 0);
    assert_eq!(server.told_until_now(), 0, "no handler was called for them");
}

#[test]
fn a_worker_that_ends_gives_verdicts_up() {
    let server = start();
    let mut client = Client::connect(&server);
    client.send(request("GET", "/page", "wait, pass", ""));
    assert_eq!(server.told(), "asked");
    server.handle.send(tidegate_core::worker::Command::Stop);
    assert_eq!(server.told(), "given up");
    assert!(matches!(client.end(), End::Closed | End::Reset));
}

#[test]
fn requests_of_the_servers_own_wait_at_the_gates_too() {
    for (path, is_program, content) in [
        ("/index", false, "file for POST /index, stored: false"),
        ("/index-of-a-program", true, "/programcontent"),
        ("/try", true, "/trycontent"),
    ] {
        for gate in ["pass", "wait, pass", "wait, wait, pass", "wait, refuse", "refuse"] {
            let server = start();
            let (mut one, mut two) = (Client::connect(&server), h2::Client::connect(&server));
            one.send(request("POST", path, gate, "Content-Length: 7\r\n") + "content");
            let key = two.ask("POST", path, Some(7), &lines(gate));
            two.upload(key, b"content");
            if gate.starts_with("wait") {
                assert_eq!((server.told(), server.told()), ("asked".into(), "asked".into()));
                assert_eq!(server.told_until_now(), 0);
                server.gate.open();
            }
            let is_let_in = gate.ends_with("pass");
            let expected = if is_let_in { (200, content) } else { (403, "not you") };
            let (first, second) = (one.answer(), two.answer(key));
            assert_eq!(
                (first.status, String::from_utf8_lossy(&first.body).as_ref()),
                expected,
                "{path} {gate}"
            );
            assert_eq!(
                (second.status, String::from_utf8_lossy(&second.body).as_ref()),
                expected,
                "{path} {gate}"
            );
            let called = if is_let_in && is_program { 2 } else { 0 };
            assert_eq!(server.told_until_now(), called, "{path} {gate}");
        }
    }
}
