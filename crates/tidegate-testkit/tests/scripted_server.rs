//! The runner against a scripted server in this process: what passes, what fails, and what a failure says.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_testkit::{Launch, Log, Outcome, Place, Running, Signal, Transcript};

/// Answers each request head by its target; counts them.
#[derive(Default)]
struct Scripted {
    requests: Arc<AtomicU32>,
}

impl Launch for Scripted {
    fn launch(&self, _: &Place, log: Arc<Log>) -> Result<Box<dyn Running>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        log.push(format!("listening on http://{address}"));
        let requests = self.requests.clone();
        let for_thread = log.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, log) = (requests.clone(), for_thread.clone());
                std::thread::spawn(move || serve(stream, &requests, &log));
            }
        });
        Ok(Box::new(Handle { log, has_ended: false }))
    }

    fn command(&self, arguments: &[String], _: &Place) -> Result<Outcome, String> {
        match arguments.first().map(String::as_str) {
            Some("status") => {
                let stdout = format!("{{\"requests\":{}}}", self.requests.load(Ordering::Relaxed));
                Ok(Outcome { code: 0, stdout, stderr: String::new() })
            }
            _ => Ok(Outcome { code: 2, stdout: String::new(), stderr: "unknown command\n".to_owned() }),
        }
    }
}

struct Handle {
    log: Arc<Log>,
    has_ended: bool,
}

impl Running for Handle {
    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.has_ended = signal == Signal::Terminate;
        self.log.push(format!("received {signal:?}"));
        Ok(())
    }

    fn exit_code(&mut self) -> Result<Option<i32>, String> {
        Ok(self.has_ended.then_some(0))
    }
}

fn serve(mut stream: TcpStream, requests: &AtomicU32, log: &Log) {
    let mut received = Vec::new();
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        received.push(byte[0]);
        if !received.ends_with(b"\r\n\r\n") {
            continue;
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let head = String::from_utf8_lossy(&received).into_owned();
        received.clear();
        let target = head.split(' ').nth(1).unwrap_or_default();
        log.push(format!("request {target}"));
        let answer = match target {
            "/hello" => {
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"abc\"\r\nVary: Accept, Origin\r\n\r\nhello"
            }
            "/conditional" if head.contains("If-None-Match: \"abc\"") => "HTTP/1.1 304 Not Modified\r\n\r\n",
            "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
            "/chunked" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nDigest: x\r\n\r\n"
            }
            "/two" => "HTTP/1.1 204 No Content\r\n\r\nsurplus",
            "/bad" => "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "/panic" => {
                log.push("thread 'worker' panicked at src/x.rs".to_owned());
                "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
            }
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        };
        let closes = answer.contains("Connection: close");
        if stream.write_all(answer.as_bytes()).is_err() || closes {
            return;
        }
    }
}

fn play(steps: &str) -> Result<(), String> {
    Transcript::parse(&format!("# t0001 test\n{steps}"))
        .expect("a valid transcript")
        .run(&Scripted::default())
}

#[test]
fn everything_that_holds_passes() {
    play(
        r#"
file site/a.txt "hello"
dir site/empty
link site/b.txt "${DIR}/site/a.txt"
client c1
  > GET /hello HTTP/1.1
  > Host: x
  >
  < HTTP/1.1 200 OK
  < etag: "abc"
  < Vary: ~*Origin
  < !Location
  < !Vary: Origin
  <body "hello"
  <body-length 5
  <body-starts "he"
  <body-ends "lo"
  <body-contains "ell"
  <body-lacks "x"
  <body-sha256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
  <body-file site/b.txt
  save tag ETag
  > GET /conditional HTTP/1.1
  > If-None-Match: ${tag}
  >
  < 304
client c2
  >raw "GET /chun"
  expect stats.requests == 2
  >raw "ked HTTP/1.1\r\n\r\n"
  < 200|206
  <body-file site/a.txt 0..5
  <trailer Digest: x
client c1
  <quiet
  >repeat 2 "GET /none HTTP/1.1\r\n\r\n"
  < HTTP/1.1 404
  < 404 Not Found
  > GET /head HTTP/1.1
  >
  < 200
  <body none
  <eof
  connect
  > GET /none HTTP/1.1
  >
  <raw "HTTP/1.1 404 Not"
  <raw " Found\r\nContent-Length: 0\r\n\r\n"
  shutdown
  <closed
client c3
  > GET /hello HTTP/1.1
  >
  > GET /hello HTTP/1.1
  >
  shutdown
  <drained
expect log contains "request /hello"
expect log lacks "panicked"
expect get /hello contains "hell"
expect get /none status == 404
expect file site/a.txt is "hello"
expect stats.requests >= 7
run tidegate frobnicate --control ${CONTROL}
  exit 2
  stderr is "~unknown*"
  stdout is ""
server hup
expect log contains "received Hangup"
server term
server exit 0
"#,
    )
    .unwrap_or_else(|message| panic!("{message}"));
}

#[test]
fn every_failure_says_where_and_why() {
    let get = |target: &str| format!("client c\n  > GET {target} HTTP/1.1\n  >\n");
    for (steps, parts) in [
        (format!("{}  < 404\n", get("/hello")), ["line 5: < 404", "another status", "200 OK", "hello"]),
        (format!("{}  < HTTP/1.0 200\n", get("/hello")), ["line 5", "another status", "HTTP/1.1", ""]),
        (
            format!("{}  < 200\n  < Vary: b\n", get("/hello")),
            ["line 6: < Vary: b", "`Vary`", "Accept, Origin", ""],
        ),
        (format!("{}  < 200\n  < !ETag\n", get("/hello")), ["line 6", "`ETag` is there", "", ""]),
        (format!("{}  < 200\n  <body \"bye\"\n", get("/hello")), ["line 6", "another", "hello", ""]),
        (format!("{}  < 200\n", get("/bad")), ["line 5", "more than one Content-Length", "ab", ""]),
        (format!("{}  < 204\n", get("/two")), ["at the end", "more than was expected", "surplus", ""]),
        (format!("{}  < 204\n  <eof\n", get("/two")), ["line 6: <eof", "surplus", "", ""]),
        (format!("{}  < 200\n  <body none\n  <reset\n", get("/head")), ["line 7", "ended with Eof", "", ""]),
        (format!("{}  < 200\n  <body none\n  < 200\n", get("/head")), ["line 7", "closed before", "", ""]),
        (format!("{}  < 500\n", get("/panic")), ["panicked", "the server wrote", "src/x.rs", ""]),
        (format!("{}  < 200\n  save x Nope\n", get("/hello")), ["line 6", "no Nope", "", ""]),
        ("run tidegate x\n  exit 0\n".to_owned(), ["line 3: exit 0", "exit code 2", "unknown command", ""]),
        ("server term\nserver exit 3\n".to_owned(), ["line 3", "ended with 0", "", ""]),
        ("file ../x \"\"\n".to_owned(), ["line 2", "leaves the transcript's folder", "", ""]),
        ("client c\n  > ${NONE}\n".to_owned(), ["line 3", "${NONE}", "CONFIG", "PORT"]),
    ] {
        let message = play(&steps).expect_err(&steps);
        for part in parts.iter().chain(&["t0001 test"]) {
            assert!(message.contains(part), "no {part:?} in:\n{message}");
        }
    }
}
