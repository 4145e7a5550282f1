//! Handlers that treat content in every manner. The path of a request names the manner, its query a size.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tidegate_core::body::{RequestBody, RequestBodyError};
use tidegate_core::body_stream::Splice;
use tidegate_core::explain::Foreseen;
use tidegate_core::filter::{Filter, FilterHead, ResponseFilter};
use tidegate_core::response::FilePiece;
use tidegate_core::{Body, BodyStream, Chunk, Exchange, Handler, Part, Pass, Reply, Response};
use tidegate_http::Status;
use tidegate_io::blocking;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::paged::PagedFile;

/// Keeps handlers waiting until a test opens it, from another thread.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, Vec<Waker>)>,
    /// How often streams that wait for it were asked for content.
    pub polls: AtomicU64,
}

impl Gate {
    pub fn open(&self) {
        let wakers = {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Holds up the worker itself, as a handshake or a hash does.
    fn hold_up(&self) {
        while !self.state.lock().unwrap().0 {
            std::thread::yield_now();
        }
    }

    pub async fn pass(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The handler of all paths.
pub struct Table {
    pub gate: Arc<Gate>,
    /// What handlers have seen.
    pub outcomes: Sender<String>,
}

/// Bytes that show where they belong.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

fn text(body: impl Into<Vec<u8>>) -> Response {
    Response::content(Status::OK, "text/plain", body)
}

fn with_body(body: Body) -> Response {
    Response { body, ..Response::empty(Status::OK) }
}

async fn read_all(body: &mut Option<RequestBody>) -> Result<Vec<u8>, RequestBodyError> {
    let mut data = Vec::new();
    if let Some(body) = body {
        while body.read(&mut data).await? > 0 {}
    }
    Ok(data)
}

impl Handler for Table {
    fn handle(&self, exchange: &mut Exchange<'_>, _: Pass) -> Reply {
        let size = exchange.query.and_then(|query| query.parse().ok()).unwrap_or(0_usize);
        let mut body = exchange.state.body.take();
        let (gate, outcomes) = (self.gate.clone(), self.outcomes.clone());
        let tell = move |what: String| drop(outcomes.send(what));
        match exchange.path {
            b"/hold-up" => {
                tell("held up".into());
                gate.hold_up();
                Reply::Ready(text("late"))
            }
            b"/echo" => Reply::Later(Box::pin(async move {
                match read_all(&mut body).await {
                    Ok(data) => text(data),
                    Err(error) => {
                        tell(error.to_string());
                        Response::empty(Status::BAD_REQUEST)
                    }
                }
            })),
            b"/count" => Reply::Later(Box::pin(async move {
                let announced = body.as_ref().and_then(|body| body.len);
                let mut count = 0;
                let mut buffer = Vec::new();
                while let Some(body) = &mut body {
                    buffer.clear();
                    match body.read(&mut buffer).await {
                        Ok(0) => break,
                        Ok(read) => count += read,
                        Err(error) => {
                            tell(format!("{count}: {error}"));
                            return Response::empty(Status::BAD_REQUEST);
                        }
                    }
                }
                text(format!("{count} of {announced:?}"))
            })),
            // Answers at once and never looks at the content.
            b"/refuse" => Reply::status(Status::FORBIDDEN),
            // The same, but only after another thread has been asked.
            b"/refuse-later" => Reply::Later(Box::pin(async move {
                let asked = blocking::run(|| ()).unwrap();
                asked.await;
                drop(body);
                Response::empty(Status::FORBIDDEN)
            })),
            b"/peek" => Reply::Later(Box::pin(async move {
                let mut data = Vec::new();
                if let Some(body) = &mut body {
                    let _ = body.read(&mut data).await;
                }
                text("seen")
            })),
            // Holds the content, unread, until the gate opens.
            b"/hold" => Reply::Later(Box::pin(async move {
                gate.pass().await;
                match read_all(&mut body).await {
                    Ok(data) => text(data.len().to_string()),
                    Err(_) => Response::empty(Status::BAD_REQUEST),
                }
            })),
            // Takes what has come, and holds the rest until the gate opens.
            b"/taste" => Reply::Later(Box::pin(async move {
                let mut data = Vec::new();
                if let Some(body) = &mut body {
                    let _ = body.read(&mut data).await;
                }
                gate.pass().await;
                match read_all(&mut body).await {
                    Ok(rest) => text((data.len() + rest.len()).to_string()),
                    Err(_) => Response::empty(Status::BAD_REQUEST),
                }
            })),
            // The same, and then does not want it.
            b"/hold-and-refuse" => Reply::Later(Box::pin(async move {
                gate.pass().await;
                drop(body);
                Response::empty(Status::FORBIDDEN)
            })),
            // Tells when it is begun with.
            b"/begin" => Reply::Later(Box::pin(async move {
                tell("begun".to_owned());
                gate.pass().await;
                text("late")
            })),
            b"/later" => Reply::Later(Box::pin(async move {
                gate.pass().await;
                text("late")
            })),
            b"/gulp" => {
                let Some(body) = body else { return Reply::status(Status::BAD_REQUEST) };
                let stream = Box::new(Gulp { body, gate, taken: 0, tell: self.outcomes.clone() });
                Reply::Ready(with_body(Body::Stream { len: None, has_trailers: false, stream }))
            }
            b"/duplex" => {
                let stream = Box::new(Duplex { body, tell: self.outcomes.clone() });
                Reply::Ready(with_body(Body::Stream { len: None, has_trailers: false, stream }))
            }
            // Takes the worker for itself for a while.
            b"/spin" => {
                let until = monotonic_ns() + size as u64;
                while monotonic_ns() < until {
                    std::hint::spin_loop();
                }
                Reply::Ready(text("spun"))
            }
            b"/ready" => Reply::Later(Box::pin(async { text("at once") })),
            b"/bytes" => Reply::Ready(text(pattern(size))),
            b"/file" => Reply::Ready(with_body(Body::File(piece(size)))),
            // One that has become shorter since it was looked at.
            b"/cut-file" => {
                let FilePiece { file, offset, end, .. } = piece(size);
                Reply::Ready(with_body(Body::File(FilePiece::new(file, offset, 2 * end))))
            }
            b"/parts" => Reply::Ready(with_body(Body::Parts(vec![
                Part::Bytes(b"<".to_vec()),
                Part::File(piece(size)),
                Part::Bytes(Vec::new()),
                Part::Bytes(b"|".to_vec()),
                Part::File(piece(size)),
                Part::Bytes(b">".to_vec()),
            ]))),
            b"/final" => Reply::Ready(text("final").finished()),
            b"/empty" => Reply::status(Status::NO_CONTENT),
            b"/stream" => scripted(None, script(size)),
            b"/known" => scripted(Some(size as u64), script(size)),
            // A byte, and the rest when the gate opens.
            b"/event" => {
                let stream = Box::new(Event { gate: self.gate.clone(), has_begun: false });
                Reply::Ready(with_body(Body::Stream { len: None, has_trailers: false, stream }))
            }
            // So many bytes, with a wait in front of each.
            b"/ticks" => {
                let ticks = (0..size).flat_map(|_| [Step::Wait, Step::Give(b"x".to_vec())]);
                scripted(None, ticks.collect())
            }
            b"/broken" => {
                let mut steps = script(size);
                steps.push_back(Step::Break);
                scripted(None, steps)
            }
            b"/short" => scripted(Some(size as u64 + 1), script(size)),
            b"/long" => scripted(Some(size as u64 - 1), script(size)),
            _ => Reply::status(Status::NOT_FOUND),
        }
    }

    fn explain(&self, _: &Exchange<'_>, _: &mut dyn FnMut(String)) -> Foreseen {
        Foreseen::Handler
    }
}

/// Puts a field on responses to requests that ask for it, and makes their content capital letters.
pub struct Capitals {
    pub field: &'static str,
    pub sees_finished: bool,
}

impl Filter for Capitals {
    fn prepare(&self, exchange: &Exchange<'_>) -> Option<Box<dyn ResponseFilter>> {
        let filter = Box::new(Capitals { field: self.field, sees_finished: self.sees_finished });
        if exchange.query == Some("capitals") { Some(filter) } else { None }
    }

    fn looks_ahead(&self) -> usize {
        0
    }

    fn sees_finished(&self) -> bool {
        self.sees_finished
    }
}

impl ResponseFilter for Capitals {
    fn on_head(&mut self, head: FilterHead<'_>) -> bool {
        head.lines.push(self.field, "1");
        matches!(head.body, Body::Bytes(_))
    }

    fn wrap_body(self: Box<Self>, body: Body) -> Body {
        match body {
            Body::Bytes(mut bytes) => {
                bytes.make_ascii_uppercase();
                Body::Bytes(bytes)
            }
            body => body,
        }
    }
}

/// A file without a name that holds a pattern, from its 7th byte to its end.
fn piece(len: usize) -> FilePiece {
    use std::io::Write;
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("tidegate-bodies-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(b"before ").unwrap();
    file.write_all(&pattern(len)).unwrap();
    FilePiece::new(
        Rc::new(PagedFile::new(std::os::fd::OwnedFd::from(file).into(), (0, 0))),
        7,
        7 + len as u64,
    )
}

/// What a scripted stream does next.
enum Step {
    Give(Vec<u8>),
    /// Nothing until another thread says so.
    Wait,
    Break,
}

/// The pattern in pieces of 1, 2, 4, ... bytes, with a wait between them.
fn script(size: usize) -> VecDeque<Step> {
    let (whole, mut at, mut step) = (pattern(size), 0, 1);
    let mut steps = VecDeque::new();
    while at < size {
        let end = size.min(at + step);
        steps.push_back(Step::Give(whole[at..end].to_vec()));
        steps.push_back(Step::Wait);
        (at, step) = (end, step * 2);
    }
    steps
}

fn scripted(len: Option<u64>, steps: VecDeque<Step>) -> Reply {
    let stream = Box::new(Scripted { steps, waits_for: None });
    Reply::Ready(with_body(Body::Stream { len, has_trailers: false, stream }))
}

struct Scripted {
    steps: VecDeque<Step>,
    waits_for: Option<Pin<Box<blocking::Pending<()>>>>,
}

impl BodyStream for Scripted {
    fn held(&self) -> usize {
        0
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        loop {
            if let Some(pending) = &mut self.waits_for {
                match Future::poll(pending.as_mut(), cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => self.waits_for = None,
                }
            }
            match self.steps.pop_front() {
                None => return Poll::Ready(Ok(Chunk::End)),
                Some(Step::Break) => return Poll::Ready(Err(io::Error::other("as told"))),
                Some(Step::Wait) => self.waits_for = Some(Box::pin(blocking::run(|| ()).unwrap())),
                Some(Step::Give(mut data)) => {
                    let rest = data.split_off(data.len().min(buffer.len()));
                    buffer[..data.len()].copy_from_slice(&data);
                    if !rest.is_empty() {
                        self.steps.push_front(Step::Give(rest));
                    }
                    return Poll::Ready(Ok(Chunk::of(data.len())));
                }
            }
        }
    }
}

/// A byte at once, and a byte when the gate opens.
struct Event {
    gate: Arc<Gate>,
    has_begun: bool,
}

impl BodyStream for Event {
    fn held(&self) -> usize {
        0
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        self.gate.polls.fetch_add(1, Relaxed);
        if !std::mem::replace(&mut self.has_begun, true) {
            buffer[0] = b'x';
            return Poll::Ready(Ok(Chunk::of(1)));
        }
        let mut state = self.gate.state.lock().unwrap();
        if state.0 {
            return Poll::Ready(Ok(Chunk::End));
        }
        state.1.push(cx.waker().clone());
        Poll::Pending
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {
        self.gate.polls.fetch_add(1, Relaxed);
    }
}

/// Gives content without end, and takes that of the request only while the client takes none: from when the gate opens.
struct Gulp {
    body: RequestBody,
    gate: Arc<Gate>,
    taken: usize,
    tell: Sender<String>,
}

impl BodyStream for Gulp {
    fn held(&self) -> usize {
        0
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        buffer.fill(b'x');
        Poll::Ready(Ok(Chunk::of(buffer.len())))
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        let mut state = self.gate.state.lock().unwrap();
        if !state.0 {
            state.1 = vec![cx.waker().clone()]; // one wake-up, however often it is asked
            return;
        }
        let mut data = Vec::new();
        while let Poll::Ready(Ok(count)) = self.body.poll_read(&mut data) {
            if count == 0 {
                let _ = self.tell.send(std::mem::take(&mut self.taken).to_string());
                return;
            }
            self.taken += count;
        }
    }
}

/// Gives back what it reads while it reads it, in capitals.
struct Duplex {
    body: Option<RequestBody>,
    tell: Sender<String>,
}

impl BodyStream for Duplex {
    fn held(&self) -> usize {
        0
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(Chunk::End)) };
        let mut data = Vec::new();
        match body.poll_read(&mut data) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => {
                let _ = self.tell.send(error.to_string());
                Poll::Ready(Err(io::Error::other(error)))
            }
            // Small pieces in these tests: they fit.
            Poll::Ready(Ok(count)) => {
                data.make_ascii_uppercase();
                buffer[..count].copy_from_slice(&data);
                Poll::Ready(Ok(Chunk::of(count)))
            }
        }
    }
}
