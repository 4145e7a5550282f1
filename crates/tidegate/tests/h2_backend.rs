//! An application behind `proxy "h2c://…"`, played by another HTTP/2 implementation: what it does to the requests of one
//! client must not be felt by others that share its connection (FAULTS 57), and what it has turned away unread is sent
//! again.

mod running;

use bytes::Bytes;
use h2::{Reason, RecvStream, server};
use http::{Request, Response};
use running::{Folder, Server, WAIT};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// What the application has seen, and what it waits for.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// What becomes of the first connection.
    first: First,
    /// `/held` is answered.
    go: Notify,
    /// `/nothing` was told to end.
    ended: Notify,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum First {
    /// It is served as any other.
    #[default]
    Served,
    /// It is turned away once a request has come on it.
    TurnedAway,
    /// Its first request is answered, and then nothing comes on it any more.
    Dead,
}

/// Starts the application on a thread of its own.
fn application(first: First) -> (SocketAddr, Arc<Seen>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Seen { first, ..Seen::default() }));
    let known = seen.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let number = known.connections.fetch_add(1, SeqCst);
                match if number == 0 { known.first } else { First::Served } {
                    First::Served => tokio::spawn(serve(stream, known.clone())),
                    First::TurnedAway => tokio::spawn(turn_away(stream)),
                    First::Dead => tokio::spawn(die(stream)),
                };
            }
        });
    });
    (address, seen)
}

/// Says GOAWAY with stream 0 as the last that was looked at, as soon as a request has come, and reads on.
async fn turn_away(stream: tokio::net::TcpStream) {
    answer_one(stream, &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
}

/// Answers its first request with 204 and nothing else, and reads on: a connection that has died on the way looks like this.
async fn die(stream: tokio::net::TcpStream) {
    answer_one(stream, &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89]).await;
}

/// Sends `frame` as soon as a request has come, and reads on.
async fn answer_one(mut stream: tokio::net::TcpStream, frame: &[u8]) {
    const PREFACE: usize = 24;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let _ = stream.write_all(&settings).await;
    let (mut input, mut at, mut has_said) = (Vec::new(), PREFACE, false);
    while stream.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
        while let Some([a, b, c, kind]) = input.get(at..at + 4) {
            if *kind == 1 && !has_said {
                has_said = true;
                let _ = stream.write_all(frame).await;
            }
            at += 9 + (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c));
        }
    }
}

async fn serve(stream: tokio::net::TcpStream, seen: Arc<Seen>) {
    let Ok(mut connection) = server::Builder::new().max_concurrent_streams(500).handshake(stream).await
    else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, seen.clone()));
    }
}

async fn answer(request: Request<RecvStream>, mut respond: server::SendResponse<Bytes>, seen: Arc<Seen>) {
    match request.uri().path() {
        "/reset" => respond.send_reset(Reason::INTERNAL_ERROR),
        "/999" => {
            let _ = respond.send_response(Response::builder().status(999).body(()).unwrap(), true);
        }
        "/unchanged" => {
            let _ = respond.send_response(Response::builder().status(304).body(()).unwrap(), true);
        }
        "/nothing" => {
            let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
            while (0..1000).all(|_| stream.send_data(Bytes::new(), false).is_ok()) {
                tokio::task::yield_now().await;
            }
            seen.ended.notify_one();
        }
        path => {
            if path == "/held" {
                seen.go.notified().await;
            }
            let mut body = request.into_body();
            let mut count = 0;
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
                count += piece.len();
            }
            let trailers = body.trailers().await.ok().flatten();
            let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
            let Some(trailers) = trailers else {
                let _ = stream.send_data(Bytes::from(format!("took {count}")), true);
                return;
            };
            // What came behind the content of the request goes back behind that of the answer.
            let names: Vec<&str> = trailers.keys().map(|name| name.as_str()).collect();
            let said = format!("took {count} and {}", names.join(" "));
            let _ = stream.send_data(Bytes::from(said), false);
            let _ = stream.send_trailers(trailers);
        }
    }
}

struct Client {
    stream: BufReader<TcpStream>,
    /// Of the last answer in chunks.
    trailers: String,
}

impl Client {
    fn connect(server: &Server<'_>) -> Client {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        Client { stream: BufReader::new(stream), trailers: String::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }

    /// Status and content of the next answer.
    fn answer(&mut self) -> (u16, String) {
        let (mut status, mut length, mut is_chunked) = (0, 0, false);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.get(..3).unwrap().parse().unwrap();
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            } else if line == "transfer-encoding: chunked" {
                is_chunked = true;
            } else if line.is_empty() {
                break;
            }
        }
        let mut content = Vec::new();
        if is_chunked {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                let mut piece = vec![0; size + 2];
                self.stream.read_exact(&mut piece).unwrap();
                content.extend_from_slice(&piece[..size]);
                if size == 0 {
                    // Trailers: what was read for an empty line is the beginning of the first of them.
                    while !piece.ends_with(b"\r\n\r\n") && piece != b"\r\n" {
                        self.stream.read_until(b'\n', &mut piece).unwrap();
                    }
                    self.trailers = String::from_utf8(piece).unwrap().trim_end().to_owned();
                    break;
                }
            }
        } else {
            content.resize(length, 0);
            self.stream.read_exact(&mut content).unwrap();
        }
        (status, String::from_utf8(content).unwrap())
    }
}

#[test]
fn resets_of_one_clients_requests_are_not_felt_by_others() {
    let (address, seen) = application(First::Served);
    let folder = Folder::new("h2-resets");
    let config =
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"h2c://{address}\"; access-log off }}\n");
    let server = Server::with_config(&folder, &config);
    let mut honest = Client::connect(&server);
    honest.get("/held");
    // Far more than a client of ours might reset.
    let mut greedy = Client::connect(&server);
    for _ in 0..1000 {
        greedy.get("/reset");
        assert_eq!(greedy.answer().0, 502);
    }
    seen.go.notify_one();
    assert_eq!(honest.answer(), (200, "took 0".to_owned()));
    assert_eq!(seen.connections.load(SeqCst), 1, "the one connection has carried all of them");
}

#[test]
fn frames_without_content_end_one_request_and_not_the_others() {
    let (address, seen) = application(First::Served);
    let folder = Folder::new("h2-empty");
    let config =
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"h2c://{address}\"; access-log off }}\n");
    let server = Server::with_config(&folder, &config);
    let mut honest = Client::connect(&server);
    honest.get("/held");
    let mut flooded = Client::connect(&server);
    flooded.get("/nothing");
    let mut received = Vec::new();
    let _ = flooded.stream.read_to_end(&mut received); // cut short, in order or by a reset
    let received = String::from_utf8(received).unwrap();
    assert!(received.starts_with("HTTP/1.1 200 ") && !received.ends_with("0\r\n\r\n"), "{received}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WAIT, seen.ended.notified()).await }).unwrap();
    seen.go.notify_one();
    assert_eq!(honest.answer(), (200, "took 0".to_owned()));
    assert_eq!(seen.connections.load(SeqCst), 1, "the one connection has carried all of them");
}

#[test]
fn a_status_that_there_is_not_is_a_bad_gateway() {
    let (address, _) = application(First::Served);
    let folder = Folder::new("h2-999");
    let config =
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"h2c://{address}\"; access-log off }}\n");
    let server = Server::with_config(&folder, &config);
    let mut client = Client::connect(&server);
    client.get("/999");
    assert_eq!(client.answer().0, 502);
    client.get("/after");
    assert_eq!(client.answer(), (200, "took 0".to_owned()));
}

#[test]
fn a_304_that_nobody_asked_for_is_a_bad_gateway() {
    let (address, seen) = application(First::Served);
    let folder = Folder::new("h2-304");
    // What the server has written into the request makes none of a client that has nothing.
    let config = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n\
         site {{ proxy \"h2c://{address}\" {{ request-header \"If-None-Match\" \"1\" }}; access-log off }}\n"
    );
    let server = Server::with_config(&folder, &config);
    let mut client = Client::connect(&server);
    client.get("/unchanged");
    assert_eq!(client.answer().0, 502);
    client.send("GET /unchanged HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"1\"\r\n\r\n");
    assert_eq!(client.answer().0, 304);
    client.get("/after");
    assert_eq!(client.answer(), (200, "took 0".to_owned()));
    assert_eq!(seen.connections.load(SeqCst), 1, "the one connection has carried all of them");
}

#[test]
fn a_dead_connection_is_given_up_after_a_request_that_waited_in_vain() {
    let (address, seen) = application(First::Dead);
    let folder = Folder::new("h2-dead");
    let config = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n\
         site {{ proxy \"h2c://{address}\" {{ timeout \"300ms\" }}; access-log off }}\n"
    );
    let server = Server::with_config(&folder, &config);
    let mut client = Client::connect(&server);
    client.get("/first");
    assert_eq!(client.answer().0, 204);
    client.get("/second");
    assert_eq!(client.answer().0, 504);
    let served = || {
        client.get("/third");
        (client.answer() == (200, "took 0".to_owned())).then_some(())
    };
    running::wait_for(served, "an answer on another connection");
    assert!(seen.connections.load(SeqCst) > 1);
}

#[test]
fn an_upload_that_was_turned_away_unread_is_sent_again() {
    let (address, seen) = application(First::TurnedAway);
    let folder = Folder::new("h2-goaway");
    // Longer than what is waited for: it begins with its first half, which is held.
    let config = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n\
         site {{ proxy \"h2c://{address}\" {{ request-buffer \"16KiB\" }}; access-log off }}\n"
    );
    let server = Server::with_config(&folder, &config);
    let mut client = Client::connect(&server);
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    client.send(&"x".repeat(10_000));
    // Its first half is on its way when the application turns it away; the rest comes when it has.
    running::wait_for(|| (seen.connections.load(SeqCst) > 1).then_some(()), "a second connection");
    client.send(&"y".repeat(10_000));
    assert_eq!(client.answer(), (200, "took 20000".to_owned()));
}

/// Both ways, with another implementation at the far end; what belongs in a head is left out on the way there.
#[test]
fn trailers_go_there_and_back() {
    let (address, _) = application(First::Served);
    let folder = Folder::new("h2-trailers");
    let config =
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite {{ proxy \"h2c://{address}\"; access-log off }}\n");
    let server = Server::with_config(&folder, &config);
    let mut client = Client::connect(&server);
    for te in ["TE: trailers\r\nConnection: TE\r\n", ""] {
        client.send(&format!("POST /trailers HTTP/1.1\r\nHost: x\r\n{te}Transfer-Encoding: chunked\r\n\r\n"));
        client.send("5\r\nhello\r\n0\r\nX-Sum: 7\r\nAuthorization: x\r\nRemote-User: root\r\n\r\n");
        assert_eq!(client.answer(), (200, "took 5 and x-sum".to_owned()));
        assert_eq!(client.trailers, if te.is_empty() { "" } else { "x-sum: 7" });
    }
}
