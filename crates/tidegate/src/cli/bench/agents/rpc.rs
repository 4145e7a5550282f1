//! The link between a controller and an agent: one gRPC method, `tidegate.bench.Agents/Session`, with a stream of frames each
//! way, whoever has dialled. `tonic` has the framing, `hyper` the HTTP/2, both on a thread of their own; what comes goes to a
//! closure, and never more than [`IN_HAND`] frames of a link that nobody has taken in. A link that goes on with a run names its session
//! in the head of the call. One whose sender is dropped ends when all that was sent is taken in, and [`FLUSH`] later in any case.

use super::super::super::complain;
use super::codec::FrameCodec;
use super::keys::Security;
use anyhow::{Context, Result, anyhow};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};
use tidegate_bench::agent::messages::Frame;
use tidegate_bench::agent::{LOST, MOST_AGENTS, MOST_BYTES, REJOINING};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::{Request, Response, Status, Streaming};

/// The one method.
const PATH: &str = "/tidegate.bench.Agents/Session";

/// Frames that wait to be sent at most.
const TO_SEND: usize = 4_096;

/// Frames of a link that came and were not yet taken in, at most.
const IN_HAND: usize = 64;

/// Time for a connect, a handshake, the first answer.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The same where a link is made again: the whole of it may take no longer than [`LOST`].
const HANDSHAKE_AGAIN: Duration = Duration::from_secs(3);

/// Between the first two tries to reach somebody who is not there yet; twice as long after each, up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Time that the other side has to take what was sent before a link is cut.
pub const FLUSH: Duration = Duration::from_secs(3);

/// In the head of a call: the session that it goes on with.
const SESSION: &str = "tidegate-session";

/// What libraries say before the error itself.
const WITHIN: [&str; 3] =
    ["error reading a body from connection: ", "h2 protocol error: ", "transport error: "];

/// What comes over links.
pub enum Net {
    /// A link with somebody, and the way to send; with a session, to go on with it.
    Joined { link: u64, peer: String, session: Option<u64>, sender: mpsc::Sender<Frame> },
    /// A frame; the permit is given back once it is taken in.
    Frame(u64, Frame, OwnedSemaphorePermit),
    /// It has ended.
    Closed(u64, String),
    /// Somebody could not be linked with; not the end of the matter.
    Refused(String),
    /// Nobody can be linked with.
    Failed(String),
}

/// Who takes in what comes.
pub type Inbox = Arc<dyn Fn(Net) + Send + Sync>;

/// What a link holds for as long as it is there.
pub type Alive = mpsc::Sender<Infallible>;

/// Where links belong to: who takes in what comes, and who waits for their ends.
#[derive(Clone)]
pub struct Hub {
    /// Gets everything.
    pub inbox: Inbox,
    /// Held by each link; there is none any more once no other link is to be.
    pub alive: mpsc::WeakSender<Infallible>,
    /// Frames that links have taken to send, of all of them.
    pub moved: Arc<AtomicU64>,
}

/// A connection, plain or with TLS.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

fn next_link() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// What is sent over a link; `end` is let go of when all of it was.
struct Outgoing {
    frames: mpsc::Receiver<Frame>,
    moved: Arc<AtomicU64>,
    end: Option<oneshot::Sender<()>>,
}

impl Outgoing {
    /// The way to send, the stream of it, and what ends after it.
    fn new(hub: &Hub) -> (mpsc::Sender<Frame>, Outgoing, oneshot::Receiver<()>) {
        let (sender, frames) = mpsc::channel(TO_SEND);
        let (end, ended) = oneshot::channel();
        (sender, Outgoing { frames, moved: hub.moved.clone(), end: Some(end) }, ended)
    }
}

impl Stream for Outgoing {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Frame>> {
        let next = self.frames.poll_recv(task);
        match &next {
            Poll::Ready(None) => drop(self.end.take()),
            Poll::Ready(Some(_)) => drop(self.moved.fetch_add(1, Relaxed)),
            Poll::Pending => {}
        }
        next
    }
}

/// Takes connections of a listener, for good.
pub async fn listen(listener: TcpListener, security: Security, hub: Hub) {
    let places = Arc::new(Semaphore::new(MOST_AGENTS + 16));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(AGAIN.0).await;
            continue;
        };
        let (security, hub) = (security.clone(), hub.clone());
        tokio::spawn(async move {
            if let Err(error) = accept(stream, peer, &security, &hub).await {
                let why = clear(&format!("{error:#}"), &security);
                (hub.inbox)(Net::Refused(format!("{peer} was refused: {why}")));
            }
            drop(place);
        });
    }
}

async fn accept(stream: TcpStream, peer: SocketAddr, security: &Security, hub: &Hub) -> Result<()> {
    stream.set_nodelay(true)?;
    let io: Box<dyn Io> = match security {
        Security::Plain if peer.ip().is_loopback() => Box::new(stream),
        Security::Plain => return Err(anyhow!("only this machine may do without TLS")),
        Security::Tls { acceptor, .. } => {
            Box::new(timeout(HANDSHAKE, acceptor.accept(stream)).await.context("no TLS handshake in time")??)
        }
    };
    let (finished, over) = oneshot::channel();
    let call = Arc::new(Call {
        hub: hub.clone(),
        peer: peer.to_string(),
        alive: OnceLock::new(),
        finished: Mutex::new(Some(finished)),
    });
    let answered = call.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let call = call.clone();
        async move {
            let answer = if request.uri().path() == PATH {
                let mut grpc = tonic::server::Grpc::new(FrameCodec).max_decoding_message_size(MOST_BYTES);
                grpc.streaming(Session(call), request).await
            } else {
                Status::unimplemented("there is no such method").into_http()
            };
            Ok::<http::Response<Body>, Infallible>(answer)
        }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let server = server.timer(TokioTimer::new()).max_concurrent_streams(1);
    let mut connection = pin!(server.serve_connection(TokioIo::new(io), service));
    // Somebody who connects and says nothing has no place for good.
    let patience = async {
        sleep(HANDSHAKE).await;
        if answered.alive.get().is_some() {
            std::future::pending().await
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = patience => return Err(anyhow!("it asked for nothing in {} s", HANDSHAKE.as_secs())),
        _ = over => {
            connection.as_mut().graceful_shutdown();
            // What was sent is with the other side, or it is of no use.
            let _ = timeout(FLUSH, connection).await;
            return Ok(());
        }
    };
    match served {
        // How a session ends, it tells itself.
        Err(error) if answered.alive.get().is_none() => Err(anyhow!("{}", sentence(&error))),
        _ => Ok(()),
    }
}

/// A connection of somebody who has dialled, and what comes of it.
struct Call {
    hub: Hub,
    peer: String,
    /// Held once there is a link.
    alive: OnceLock<Alive>,
    /// Let go of at the end of the link.
    finished: Mutex<Option<oneshot::Sender<()>>>,
}

/// A call of the method.
struct Session(Arc<Call>);

type Frames = tokio_stream::adapters::Map<Outgoing, fn(Frame) -> Result<Frame, Status>>;

impl tonic::server::StreamingService<Frame> for Session {
    type Response = Frame;
    type ResponseStream = Frames;
    type Future = Ready<Result<Response<Frames>, Status>>;

    fn call(&mut self, request: Request<Streaming<Frame>>) -> Self::Future {
        let call = self.0.clone();
        let Some(alive) = call.hub.alive.upgrade() else {
            return ready(Err(Status::unavailable("this side is about to end")));
        };
        if call.alive.set(alive).is_err() {
            return ready(Err(Status::resource_exhausted("one call for each connection")));
        }
        let session = request.metadata().get(SESSION).and_then(|text| text.to_str().ok()?.parse().ok());
        let (sender, outgoing, ended) = Outgoing::new(&call.hub);
        let link = next_link();
        (call.hub.inbox)(Net::Joined { link, peer: call.peer.clone(), session, sender });
        tokio::spawn(async move {
            take_in(request.into_inner(), link, &call.hub.inbox, ended).await;
            let finished = call.finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            drop(finished);
        });
        let wrap: fn(Frame) -> Result<Frame, Status> = Ok;
        ready(Ok(Response::new(outgoing.map(wrap))))
    }
}

/// Reads a link to its end, or for [`FLUSH`] after all was sent that ever will be.
async fn take_in(mut incoming: Streaming<Frame>, link: u64, inbox: &Inbox, ended: oneshot::Receiver<()>) {
    let in_hand = Arc::new(Semaphore::new(IN_HAND));
    let read = async {
        loop {
            let Ok(permit) = in_hand.clone().acquire_owned().await else {
                break "it is of no use".to_owned();
            };
            match incoming.message().await {
                Ok(Some(frame)) => inbox(Net::Frame(link, frame, permit)),
                Ok(None) => break "the connection was closed".to_owned(),
                Err(status) => break format!("the connection was lost ({})", sentence(&status)),
            }
        }
    };
    let given_up = async {
        let _ = ended.await;
        sleep(FLUSH).await;
    };
    let reason = tokio::select! {
        reason = read => reason,
        () = given_up => "it was given up".to_owned(),
    };
    inbox(Net::Closed(link, reason));
}

/// Somebody to dial.
#[derive(Clone)]
pub struct Peer {
    /// Host and port.
    pub address: String,
    /// How the link is protected.
    pub security: Security,
}

/// Dials until somebody is there or `patience` is over, and stays until the link ends.
pub async fn dial(peer: Peer, patience: Duration, hub: Hub) {
    let until = Instant::now() + patience;
    let mut pause = AGAIN.0;
    let mut said = String::new();
    let stream = loop {
        let reason = match timeout(HANDSHAKE, TcpStream::connect(&peer.address)).await {
            Ok(Ok(stream)) => break stream,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        let failure = format!("{} cannot be reached: {reason}", peer.address);
        if Instant::now() + pause >= until {
            return (hub.inbox)(Net::Failed(failure));
        }
        // Whoever waits for it learns why, and not at each attempt.
        if said != failure {
            complain(&format!("tidegate bench: {failure}; it is dialled for {} s\n", patience.as_secs()));
            said = failure;
        }
        pause = rest(pause).await;
    };
    match call(stream, &peer, None, &hub, HANDSHAKE).await {
        Ok(link) => link.stay(&hub.inbox).await,
        Err(error) => {
            let why = clear(&format!("{error:#}"), &peer.security);
            (hub.inbox)(Net::Failed(format!("{}: {why}", peer.address)));
        }
    }
}

/// Why there is no link with somebody, and what to do.
fn clear(error: &str, security: &Security) -> String {
    let error = plain(error);
    let is_of_keys = ["certificate", "fatal alert"].iter().any(|part| error.contains(part));
    match security {
        Security::Tls { .. } if is_of_keys => {
            format!("{error}; both sides need keys of one `tidegate bench agent-keys`, each its own (--keys)")
        }
        Security::Tls { .. } => format!("it does not speak as `tidegate bench` with keys does ({error})"),
        Security::Plain => format!("it does not speak as `tidegate bench` without keys does ({error})"),
    }
}

/// Dials somebody with whom there was a link, for as long as that may be away: under load to go on with a session, before the start
/// without one. `given_up` is said where nobody is reached.
pub async fn dial_again(peer: Peer, session: Option<u64>, given_up: fn(String) -> Net, hub: Hub) {
    let patience = if session.is_some() { LOST } else { REJOINING };
    let until = Instant::now() + patience;
    let mut pause = AGAIN.0;
    if session.is_none() {
        // The other side may not have noticed yet.
        pause = rest(AGAIN.1).await;
    }
    loop {
        let tried = async {
            let stream = TcpStream::connect(&peer.address).await?;
            call(stream, &peer, session, &hub, HANDSHAKE_AGAIN).await
        };
        let error = match timeout(HANDSHAKE_AGAIN, tried).await {
            Ok(Ok(link)) => return link.stay(&hub.inbox).await,
            Ok(Err(error)) => error,
            Err(_) => anyhow!("no answer"),
        };
        if Instant::now() + pause >= until {
            return (hub.inbox)(given_up(format!(
                "{} cannot be reached again: {}",
                peer.address,
                plain(&format!("{error:#}"))
            )));
        }
        pause = rest(pause).await;
    }
}

/// Lets a pause pass, or half of it, so that many who dial do not all dial at once. Gives the next, which is longer.
async fn rest(pause: Duration) -> Duration {
    let chance = tidegate_bench::monotonic_ns() % 1_000;
    sleep(pause / 2 + (pause / 2) * (chance as u32) / 1_000).await;
    (pause * 2).min(AGAIN.1)
}

/// A link that was dialled.
struct Dialled {
    incoming: Streaming<Frame>,
    link: u64,
    ended: oneshot::Receiver<()>,
    connection: tokio::task::JoinHandle<hyper::Result<()>>,
    _alive: Alive,
}

impl Dialled {
    /// Takes in what comes until it ends.
    async fn stay(self, inbox: &Inbox) {
        take_in(self.incoming, self.link, inbox, self.ended).await;
        let mut connection = self.connection;
        if timeout(FLUSH, &mut connection).await.is_err() {
            connection.abort();
        }
    }
}

async fn call(
    stream: TcpStream,
    Peer { address, security }: &Peer,
    session: Option<u64>,
    hub: &Hub,
    patience: Duration,
) -> Result<Dialled> {
    stream.set_nodelay(true)?;
    let io: Box<dyn Io> = match security {
        Security::Plain if stream.peer_addr()?.ip().is_loopback() => Box::new(stream),
        Security::Plain => return Err(anyhow!("only this machine may be reached without TLS; use --keys")),
        Security::Tls { connector, peer, .. } => {
            let connecting = connector.connect(peer.clone(), stream);
            Box::new(timeout(patience, connecting).await.context("no TLS handshake in time")??)
        }
    };
    let (requests, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(io)).await?;
    let mut connection = tokio::spawn(connection);
    // The name stands in the head of one request and is looked at by nobody.
    let origin = http::Uri::from_static("http://tidegate-bench");
    let mut grpc =
        tonic::client::Grpc::with_origin(Requests(requests), origin).max_decoding_message_size(MOST_BYTES);
    let (sender, outgoing, ended) = Outgoing::new(hub);
    let mut request = Request::new(outgoing);
    if let Some(session) = session {
        request.metadata_mut().insert(SESSION, session.into());
    }
    let calling = grpc.streaming(request, PathAndQuery::from_static(PATH), FrameCodec);
    let answer = match timeout(patience, calling).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(status)) => {
            // What has ended the connection says more than that it has ended.
            let reason = match timeout(Duration::from_secs(1), &mut connection).await {
                Ok(Ok(Err(error))) => sentence(&error),
                _ => sentence(&status),
            };
            connection.abort();
            return Err(anyhow!("{reason}"));
        }
        Err(_) => {
            connection.abort();
            return Err(anyhow!("no answer in time"));
        }
    };
    let alive = hub.alive.upgrade().context("this side is about to end")?;
    let link = next_link();
    (hub.inbox)(Net::Joined { link, peer: address.clone(), session, sender });
    Ok(Dialled { incoming: answer.into_inner(), link, ended, connection, _alive: alive })
}

/// An error with what caused it, as far as that says something new.
fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    plain(&text)
}

/// What a library says of an error, for people: none of its links, nor where in it that was, and what the end of a connection without
/// that of TLS means.
fn plain(text: &str) -> String {
    let text = WITHIN.iter().fold(text.to_owned(), |text, within| text.replace(within, ""));
    let text = text.replace(
        "peer closed connection without sending TLS close_notify",
        "the other side closed it without a word: its process has ended, or something between has cut it",
    );
    let is_link = |word: &&str| word.starts_with("https://docs.rs/");
    let words: Vec<&str> = text.split(' ').filter(|word| !is_link(word)).collect();
    words.join(" ").trim_end_matches(':').to_owned()
}

/// Requests of an HTTP/2 connection, as `tonic` wants them.
struct Requests(hyper::client::conn::http2::SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for Requests {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, task: &mut Task<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_libraries_are_for_people() {
        // As rustls says it.
        let link = "https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let of_tls = format!(
            "error reading a body from connection: peer closed connection without sending TLS close_notify: {link}"
        );
        let said =
            "the other side closed it without a word: its process has ended, or something between has cut it";
        assert_eq!(sentence(&std::io::Error::other(of_tls)), said);
        let status = Status::unavailable("see https://host:1/ of the peer");
        assert_eq!(sentence(&status), "see https://host:1/ of the peer");
    }
}
