//! The way from the console's route to the admin API: who asks is said by this server, and by nobody else.
//!
//! Each request has a connection of its own, which the master hands out ([`StatusSource::admin`]); no path leads to it. Of what a
//! client sends, method, path, query and content go on, and the few fields that the API knows.

use super::finish;
use crate::status::StatusSource;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidegate_client::http1::HeadReader;
use tidegate_core::body::RequestBody;
use tidegate_core::body_stream::Splice;
use tidegate_core::{Author, Body, BodyStream, Chunk, Exchange, Need, Reply, Response};
use tidegate_http::path::encode_path;
use tidegate_http::{Method, Status};
use tidegate_io::timer;
use tidegate_io::watched::Watched;
use tidegate_wire::h1::{BodyDecoder, BodyLength, HeadLimits};

/// The most bytes of content that go on.
const CONTENT_MAX: usize = 4 << 20;
/// How long the API may take to begin its answer: it may have to take up settings.
const PATIENCE: Duration = Duration::from_secs(200);
/// How often a connection is asked for, and what is between: a process that has crashed is there again after a second.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;
/// What a head of an answer may be like.
const LIMITS: HeadLimits = HeadLimits { head_size: 16 << 10, target_size: 8 << 10, fields: 50 };
/// The type of a stream that goes on for as long as its client listens.
const EVENTS: &[u8] = b"text/event-stream";
/// Fields of a request that go on. Which user asks, and from where, is not among them.
const FIELDS: [&str; 4] = ["Content-Type", "If-Match", "Accept", "X-Tidegate-CSRF"];
/// Methods that go on: what a path takes of them says the API.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Passes a request on, to the path `below` the root of the API; only where its client has proved to be somebody.
pub(super) fn pass_on(source: &Rc<dyn StatusSource>, exchange: &mut Exchange<'_>, below: &[u8]) -> Reply {
    let Some(who) = who(exchange) else {
        return Reply::Ready(problem(Status::FORBIDDEN, "nobody has logged in on this route"));
    };
    if !METHODS.contains(&exchange.method_token) {
        let refusal = problem(Status::METHOD_NOT_ALLOWED, "the admin API does not take this method");
        return Reply::Ready(refusal.with("Allow", METHODS.join(", ")));
    }
    let head = head(exchange, below, &who);
    let (source, method) = (source.clone(), exchange.method);
    match exchange.state.body.take() {
        None => Reply::Later(Box::pin(ask(source, method, head, Vec::new()))),
        Some(body) if body.len.is_some_and(|len| len > CONTENT_MAX as u64) => Reply::Ready(too_large()),
        Some(body) => Reply::Preparing(
            Need::Content,
            Box::pin(async move {
                match collect(body).await {
                    Ok(content) => Reply::Later(Box::pin(ask(source, method, head, content))),
                    Err(response) => Reply::Ready(response),
                }
            }),
        ),
    }
}

/// Who the client has proved to be, as one field: by a login, else by a certificate. `None`: nobody, or a name that no field can hold
/// as it is.
fn who(exchange: &Exchange<'_>) -> Option<String> {
    let who = match exchange.user() {
        Some(user) => user.name.clone(),
        None => format!("certificate {}", exchange.client()?.subject),
    };
    let is_field = !who.is_empty() && who.trim() == who && !who.contains(char::is_control);
    is_field.then_some(who)
}

/// The head of a request, up to the length of its content.
fn head(exchange: &Exchange<'_>, below: &[u8], who: &str) -> String {
    let (method, path) = (exchange.method_token, encode_path(below));
    let query = exchange.query.map(|query| format!("?{query}")).unwrap_or_default();
    let client = exchange.state.remote.client;
    let mut head = format!(
        "{method} /{path}{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTidegate-User: {who}\r\n\
         Tidegate-Client: {client}\r\n"
    );
    for name in FIELDS {
        for value in exchange.fields.all(name) {
            let _ = write!(head, "{name}: {}\r\n", String::from_utf8_lossy(value));
        }
    }
    head
}

async fn collect(mut body: RequestBody) -> Result<Vec<u8>, Response> {
    let mut content = Vec::new();
    loop {
        match body.read(&mut content).await {
            Ok(0) => return Ok(content),
            Ok(_) if content.len() > CONTENT_MAX => return Err(too_large()),
            Ok(_) => {}
            // The engine answers for what the client has done.
            Err(_) => return Err(problem(Status::BAD_REQUEST, "the content of the request broke off")),
        }
    }
}

fn too_large() -> Response {
    problem(Status::CONTENT_TOO_LARGE, "the content of a request has 4 MiB at most here")
}

/// Asks, and passes the answer on as it comes.
async fn ask(source: Rc<dyn StatusSource>, method: Method, mut head: String, content: Vec<u8>) -> Response {
    let Some(connection) = connection(&*source).await else {
        return problem(Status::SERVICE_UNAVAILABLE, "there is no admin API for now: the error log says why");
    };
    if !content.is_empty() {
        let _ = write!(head, "Content-Length: {}\r\n", content.len());
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(&content);
    let answered = async {
        let watched = Watched::new(connection)?;
        watched.assume_writable();
        // Where there is no place, the answer is there before the request was taken.
        let _ = send(&watched, &request).await;
        receive(watched, method).await
    };
    match timer::within(PATIENCE, answered).await {
        Some(Ok(response)) => response,
        Some(Err(_)) => {
            problem(Status::BAD_GATEWAY, "the admin API has broken off: it is started again at once")
        }
        None => problem(Status::GATEWAY_TIMEOUT, "the admin API does not answer"),
    }
}

/// A connection, also where the process of the API is just being started.
async fn connection(source: &dyn StatusSource) -> Option<OwnedFd> {
    for _ in 0..TRIES {
        if let Some(connection) = source.admin().await {
            return Some(connection);
        }
        timer::after(PAUSE).await;
    }
    None
}

async fn send(watched: &Watched, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        let sent =
            poll_fn(|cx| watched.poll_write(cx, |fd| Ok(rustix::net::send(fd, bytes, flags)?))).await?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

fn poll_receive(watched: &Watched, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    let flags = rustix::net::RecvFlags::empty();
    watched.poll_read(cx, |fd| Ok(rustix::net::recv(fd, &mut *buffer, flags)?.0))
}

async fn receive(watched: Watched, method: Method) -> io::Result<Response> {
    let (mut reader, mut buffer) = (HeadReader::default(), vec![0; PIECE]);
    loop {
        let count = poll_fn(|cx| poll_receive(&watched, cx, &mut buffer)).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let token = if method == Method::Head { "HEAD" } else { "GET" };
        let bytes = buffer.get(..count).unwrap_or_default();
        let head = reader.push(
            bytes,
            &LIMITS,
            token,
            |_| {},
            |head| {
                let known = |name: &str| {
                    let field = head.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
                    field.map(|field| field.value.to_vec())
                };
                (Status(head.status), head.body, ["Content-Type", "ETag"].map(|name| (name, known(name))))
            },
        );
        if let Some((status, body, fields)) = head.map_err(io::Error::other)? {
            let is_stream = fields.iter().any(|(_, value)| value.as_deref() == Some(EVENTS));
            let author = if is_stream { Author::Live } else { Author::Server };
            let mut response = Response::empty(status).by(author);
            for (name, value) in fields {
                if let Some(value) = value {
                    response = response.with(name, value);
                }
            }
            // A stream of events is neither kept nor packed.
            let mut response = finish(response.with("Cache-Control", "no-store, no-transform"));
            let len = if let BodyLength::Length(len) = body { Some(len) } else { None };
            if body != BodyLength::Empty {
                let decoder = BodyDecoder::new(body, LIMITS);
                let stream = Answer { watched, decoder, raw: reader.take_rest(), at: 0 };
                response.body = Body::Stream { len, has_trailers: false, stream: Box::new(stream) };
            }
            return Ok(response);
        }
    }
}

/// The content of an answer.
struct Answer {
    watched: Watched,
    decoder: BodyDecoder,
    /// What has come and was not decoded yet.
    raw: Vec<u8>,
    at: usize,
}

impl BodyStream for Answer {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        loop {
            if self.decoder.is_complete() {
                return Poll::Ready(Ok(Chunk::End));
            }
            let rest = self.raw.get(self.at..).unwrap_or_default();
            let input = rest.get(..buffer.len()).unwrap_or(rest);
            if input.is_empty() {
                self.raw.resize(PIECE, 0);
                self.at = 0;
                let received = poll_receive(&self.watched, cx, &mut self.raw);
                self.raw.truncate(if let Poll::Ready(Ok(count)) = &received { *count } else { 0 });
                if ready!(received)? == 0 {
                    self.decoder.close().map_err(io::Error::other)?;
                    return Poll::Ready(Ok(Chunk::End));
                }
                continue;
            }
            let decoded = self.decoder.decode(input).map_err(io::Error::other)?;
            let count = decoded.data.len();
            if let Some(place) = buffer.get_mut(..count) {
                place.copy_from_slice(decoded.data);
            }
            self.at += decoded.consumed;
            if count > 0 {
                return Poll::Ready(Ok(Chunk::of(count)));
            }
        }
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn held(&self) -> usize {
        self.raw.capacity()
    }
}

/// What is wrong (RFC 9457). The sentence is ours, never the client's.
pub(super) fn problem(status: Status, detail: &str) -> Response {
    let body = serde_json::json!({ "title": status.reason(), "status": status.0, "detail": detail });
    finish(
        Response::content(status, "application/problem+json", body.to_string())
            .with("Cache-Control", "no-store"),
    )
}
