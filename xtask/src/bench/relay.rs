//! The floor of the gateway benches: passes one fixed request on for every request, and one fixed answer back.
//!
//! It reads nothing but where messages end: what it costs is what the kernel costs, at one read and one write for each
//! side of a request. Started by the bench as `xtask relay`, a process of its own. Level-triggered epoll, blocking
//! sockets that are asked only when they are ready, one thread; connections to the application are opened at the start
//! and kept, requests wait in turn for a free one.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{canned, events};

#[derive(clap::Args)]
pub struct Arguments {
    port: u16,
    /// Where the application listens: `unix:/run/app.sock` for FastCGI, `127.0.0.1:8000` for HTTP
    application: String,
    /// Bytes of an answer's content
    size: usize,
    /// Connections to the application
    #[arg(long)]
    connections: usize,
    /// The script that FastCGI asks for
    #[arg(long, default_value = "/app.fcgi")]
    script: String,
}

/// The key of the listener; clients have their place in the list, connections to the application theirs from
/// [`APPLICATION`] on.
const LISTENER: u64 = u64::MAX;
const APPLICATION: u64 = 1 << 32;

/// An `END_REQUEST` record: version 1, type 3, request 1, 8 bytes of content (FastCGI 1.0, section 5.5).
const END_REQUEST: [u8; 8] = [1, 3, 0, 1, 0, 8, 0, 0];
const END_REQUEST_LENGTH: usize = 16;

struct Client {
    stream: OwnedFd,
    /// It said that this request is its last.
    ends: bool,
}

/// A connection to the application.
struct Upstream {
    stream: OwnedFd,
    /// Whose answer it brings.
    client: Option<usize>,
    /// Bytes of that answer that have come.
    received: usize,
}

struct Relay {
    poller: OwnedFd,
    clients: Vec<Option<Client>>,
    upstreams: Vec<Upstream>,
    free: Vec<usize>,
    waiting: VecDeque<usize>,
    exchange: Exchange,
}

/// What is said to each side, and when the application has said all.
struct Exchange {
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Bytes of an answer of the application; `None` where it ends with `END_REQUEST`.
    length: Option<usize>,
}

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poller, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let upstreams: Vec<Upstream> =
        (0..arguments.connections).map(|_| connect(&arguments.application)).collect::<Result<_>>()?;
    for (place, upstream) in upstreams.iter().enumerate() {
        epoll::add(
            &poller,
            &upstream.stream,
            EventData::new_u64(APPLICATION + place as u64),
            EventFlags::IN,
        )?;
    }
    let mut relay = Relay {
        poller,
        clients: Vec::new(),
        free: (0..upstreams.len()).collect(),
        upstreams,
        waiting: VecDeque::new(),
        exchange: Exchange::new(arguments),
    };
    println!("listening on http://127.0.0.1:{}", arguments.port);
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        events::wait(&relay.poller, &mut events)?;
        for event in &events {
            match event.data.u64() {
                LISTENER => relay.accept(listener.accept()?.0)?,
                key if key >= APPLICATION => relay.pass_back((key - APPLICATION) as usize, &mut buffer)?,
                key => relay.pass_on(key as usize, &mut buffer)?,
            }
        }
    }
}

fn connect(application: &str) -> Result<Upstream> {
    let stream = match application.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path).map(OwnedFd::from),
        None => TcpStream::connect(application).and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(OwnedFd::from(stream))
        }),
    };
    let stream = stream.with_context(|| format!("cannot reach {application}"))?;
    Ok(Upstream { stream, client: None, received: 0 })
}

impl Exchange {
    fn new(arguments: &Arguments) -> Self {
        let answer = canned::answer(arguments.size, "keep-alive");
        if arguments.application.starts_with("unix:") {
            return Self { request: fastcgi_request(&arguments.script), answer, length: None };
        }
        let request = "GET /app.fcgi HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\n\
                       X-Forwarded-Proto: http\r\n\r\n";
        // The application of the bench is the canned server as well.
        Self { request: request.into(), length: Some(answer.len()), answer }
    }

    /// Whether these are the last bytes of an answer, of which so many have come.
    fn is_over(&self, received: usize, bytes: &[u8]) -> bool {
        match self.length {
            Some(length) => received >= length,
            None => {
                let end =
                    bytes.len().checked_sub(END_REQUEST_LENGTH).and_then(|at| bytes[at..].first_chunk());
                end == Some(&END_REQUEST)
            }
        }
    }
}

/// The records of a request whose connection stays, with the parameters that other servers are set to send.
fn fastcgi_request(script: &str) -> Vec<u8> {
    let name = script.rsplit_once('/').map_or(script, |(_, name)| name);
    let path = format!("/{name}");
    let parameters = [
        ("REQUEST_METHOD", "GET"),
        ("QUERY_STRING", ""),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", ""),
        ("SCRIPT_NAME", &path),
        ("REQUEST_URI", &path),
        ("DOCUMENT_URI", &path),
        ("DOCUMENT_ROOT", script.strip_suffix(&path).unwrap_or("/")),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "relay"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "50000"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "8080"),
        ("SERVER_NAME", "127.0.0.1"),
        ("REDIRECT_STATUS", "200"),
        ("SCRIPT_FILENAME", script),
    ];
    let mut content = Vec::new();
    for (name, value) in parameters {
        content.push(name.len() as u8);
        // A value of 128 bytes or more has its length in four bytes (section 3.4).
        match u8::try_from(value.len()).ok().filter(|&length| length < 128) {
            Some(length) => content.push(length),
            None => content.extend((value.len() as u32 | 1 << 31).to_be_bytes()),
        }
        content.extend(name.bytes().chain(value.bytes()));
    }
    let mut request = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
    request.extend([1, 4, 0, 1, (content.len() >> 8) as u8, content.len() as u8, 0, 0]);
    request.extend(content);
    request.extend([1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]);
    request
}

impl Relay {
    fn accept(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if place == self.clients.len() {
            self.clients.push(None);
        }
        let stream = OwnedFd::from(stream);
        epoll::add(&self.poller, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
        self.clients[place] = Some(Client { stream, ends: false });
        Ok(())
    }

    /// A client has sent a request, which is one read, or is gone.
    fn pass_on(&mut self, place: usize, buffer: &mut [u8]) -> Result<()> {
        let Some(client) = self.clients[place].as_mut() else { return Ok(()) };
        let count = rustix::io::read(&client.stream, &mut *buffer).unwrap_or(0);
        if count == 0 {
            // An answer that is still to come finds nobody.
            self.waiting.retain(|&waiting| waiting != place);
            for upstream in self.upstreams.iter_mut().filter(|upstream| upstream.client == Some(place)) {
                upstream.client = None;
            }
            self.clients[place] = None;
            return Ok(());
        }
        let head = &buffer[..count];
        if !head.ends_with(b"\r\n\r\n") {
            bail!("a request in more than one piece");
        }
        client.ends = head.ends_with(b"close\r\n\r\n");
        match self.free.pop() {
            Some(upstream) => self.ask(upstream, place),
            None => {
                self.waiting.push_back(place);
                Ok(())
            }
        }
    }

    fn ask(&mut self, place: usize, client: usize) -> Result<()> {
        let upstream = &mut self.upstreams[place];
        (upstream.client, upstream.received) = (Some(client), 0);
        send(&upstream.stream, &self.exchange.request).context("the application takes no request")
    }

    /// The application has sent some of an answer; with the last of it the client gets its own.
    fn pass_back(&mut self, place: usize, buffer: &mut [u8]) -> Result<()> {
        let upstream = &mut self.upstreams[place];
        let count = rustix::io::read(&upstream.stream, &mut *buffer)?;
        if count == 0 {
            bail!("the application has closed a connection");
        }
        upstream.received += count;
        if !self.exchange.is_over(upstream.received, &buffer[..count]) {
            return Ok(());
        }
        if let Some(place) = upstream.client.take()
            && let Some(client) = self.clients[place].as_ref()
            && (send(&client.stream, &self.exchange.answer).is_err() || client.ends)
        {
            self.clients[place] = None;
        }
        match self.waiting.pop_front() {
            Some(client) => self.ask(place, client),
            None => {
                self.free.push(place);
                Ok(())
            }
        }
    }
}

/// Writes all of it; the socket blocks.
fn send(stream: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        bytes = &bytes[rustix::net::send(stream, bytes, flags)?..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(application: &str) -> Exchange {
        let application = application.to_owned();
        Exchange::new(&Arguments { port: 0, application, size: 1024, connections: 1, script: "/app".into() })
    }

    #[test]
    fn an_answer_is_over_with_its_last_bytes() {
        let http = exchange("127.0.0.1:80");
        let length = canned::answer(1024, "keep-alive").len();
        assert!(!http.is_over(length - 1, b"x") && http.is_over(length, b"x"));

        let fastcgi = exchange("unix:/run/app.sock");
        let mut records = b"content".to_vec();
        assert!(!fastcgi.is_over(7, &records));
        records.extend(END_REQUEST);
        records.extend([0; 8]);
        assert!(fastcgi.is_over(records.len(), &records));
        assert!(!fastcgi.is_over(records.len() - 1, &records[..records.len() - 1]));
    }

    #[test]
    fn a_request_has_the_parameters_of_its_script() {
        let folder = "/long".repeat(40);
        let request = fastcgi_request(&format!("{folder}/hello.php"));
        let has = |part: &[u8]| request.windows(part.len()).any(|window| window == part);
        assert!(has(b"\x0b\x0aSCRIPT_NAME/hello.php"));
        assert!(has(&[&[13, 0x80, 0, 0, 200], "DOCUMENT_ROOT/long".as_bytes()].concat()));
        assert!(request.ends_with(&[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]));
    }
}
