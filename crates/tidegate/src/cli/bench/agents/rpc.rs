//! The link between a controller and an agent: one gRPC method, `tidegate.bench.Agents/Session`, with a stream of frames each
//! way, whoever has dialled. `tonic` has the framing, `hyper` the HTTP/2, both on a thread of their own; what comes goes to a
//! closure, and never more than [`IN_HAND`] frames of a link that nobody has taken in.

use super::keys::Security;
use anyhow::{Context, Result, anyhow};
use bytes::Buf;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};
use tidegate_bench::agent::messages::Frame;
use tidegate_bench::agent::{MOST_AGENTS, MOST_BYTES};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Response, Status, Streaming};

/// The one method.
const PATH: &str = "/tidegate.bench.Agents/Session";

/// Frames that wait to be sent at most.
const TO_SEND: usize = 4_096;

/// Frames of a link that came and were not yet taken in, at most.
const IN_HAND: usize = 64;

/// Time for a connect, a handshake, the first answer.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Between two tries to reach somebody who is not there yet.
const AGAIN: Duration = Duration::from_millis(200);

/// What comes over links.
pub enum Net {
    /// A link with somebody, and the way to send.
    Joined { link: u64, peer: String, sender: mpsc::Sender<Frame> },
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

/// A connection, plain or with TLS.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

fn next_link() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Takes connections of a listener, for good.
pub async fn listen(listener: TcpListener, security: Security, inbox: Inbox) {
    let places = Arc::new(Semaphore::new(MOST_AGENTS + 16));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(AGAIN).await;
            continue;
        };
        let (security, inbox) = (security.clone(), inbox.clone());
        tokio::spawn(async move {
            if let Err(error) = accept(stream, peer, &security, inbox.clone()).await {
                inbox(Net::Refused(format!("{peer}: {error:#}")));
            }
            drop(place);
        });
    }
}

async fn accept(stream: TcpStream, peer: SocketAddr, security: &Security, inbox: Inbox) -> Result<()> {
    stream.set_nodelay(true)?;
    let io: Box<dyn Io> = match security {
        Security::Plain if peer.ip().is_loopback() => Box::new(stream),
        Security::Plain => return Err(anyhow!("only this machine may do without TLS")),
        Security::Tls { acceptor, .. } => {
            Box::new(timeout(HANDSHAKE, acceptor.accept(stream)).await.context("no TLS handshake in time")??)
        }
    };
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (inbox, peer) = (inbox.clone(), peer.to_string());
        async move {
            let answer = if request.uri().path() == PATH {
                let mut grpc = tonic::server::Grpc::new(FrameCodec).max_decoding_message_size(MOST_BYTES);
                grpc.streaming(Session { inbox, peer }, request).await
            } else {
                Status::unimplemented("there is no such method").into_http()
            };
            Ok::<http::Response<Body>, Infallible>(answer)
        }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let server = server.timer(TokioTimer::new()).max_concurrent_streams(1);
    // How it ends, the session tells.
    let _ = server.serve_connection(TokioIo::new(io), service).await;
    Ok(())
}

/// A call of the method.
struct Session {
    inbox: Inbox,
    peer: String,
}

type Frames = tokio_stream::adapters::Map<ReceiverStream<Frame>, fn(Frame) -> Result<Frame, Status>>;

impl tonic::server::StreamingService<Frame> for Session {
    type Response = Frame;
    type ResponseStream = Frames;
    type Future = Ready<Result<Response<Frames>, Status>>;

    fn call(&mut self, request: Request<Streaming<Frame>>) -> Self::Future {
        let (sender, receiver) = mpsc::channel(TO_SEND);
        let link = next_link();
        (self.inbox)(Net::Joined { link, peer: self.peer.clone(), sender });
        tokio::spawn(take_in(request.into_inner(), link, self.inbox.clone()));
        let wrap: fn(Frame) -> Result<Frame, Status> = Ok;
        ready(Ok(Response::new(ReceiverStream::new(receiver).map(wrap))))
    }
}

/// Reads a link to its end.
async fn take_in(mut incoming: Streaming<Frame>, link: u64, inbox: Inbox) {
    let in_hand = Arc::new(Semaphore::new(IN_HAND));
    let reason = loop {
        let Ok(permit) = in_hand.clone().acquire_owned().await else { return };
        match incoming.message().await {
            Ok(Some(frame)) => inbox(Net::Frame(link, frame, permit)),
            Ok(None) => break "the connection was closed".to_owned(),
            Err(status) => break format!("the connection was lost ({})", sentence(&status)),
        }
    };
    inbox(Net::Closed(link, reason));
}

/// Dials until somebody is there or `patience` is over, and stays until the link ends.
pub async fn dial(address: String, security: Security, patience: Duration, inbox: Inbox) {
    let until = Instant::now() + patience;
    let stream = loop {
        match timeout(HANDSHAKE, TcpStream::connect(&address)).await {
            Ok(Ok(stream)) => break stream,
            told if Instant::now() >= until => {
                let reason = match told {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer".to_owned(),
                };
                return inbox(Net::Failed(format!("{address} cannot be reached: {reason}")));
            }
            _ => sleep(AGAIN).await,
        }
    };
    if let Err(error) = call(stream, &address, &security, &inbox).await {
        inbox(Net::Failed(format!("{address}: {error:#}")));
    }
}

async fn call(stream: TcpStream, address: &str, security: &Security, inbox: &Inbox) -> Result<()> {
    stream.set_nodelay(true)?;
    let io: Box<dyn Io> = match security {
        Security::Plain if stream.peer_addr()?.ip().is_loopback() => Box::new(stream),
        Security::Plain => return Err(anyhow!("only this machine may be reached without TLS")),
        Security::Tls { connector, peer, .. } => {
            let connecting = connector.connect(peer.clone(), stream);
            Box::new(timeout(HANDSHAKE, connecting).await.context("no TLS handshake in time")??)
        }
    };
    let (requests, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(io)).await?;
    let connection = tokio::spawn(connection);
    // The name stands in the head of one request and is looked at by nobody.
    let origin = http::Uri::from_static("http://tidegate-bench");
    let mut grpc =
        tonic::client::Grpc::with_origin(Requests(requests), origin).max_decoding_message_size(MOST_BYTES);
    let (sender, receiver) = mpsc::channel(TO_SEND);
    let request = Request::new(ReceiverStream::new(receiver));
    let calling = grpc.streaming(request, PathAndQuery::from_static(PATH), FrameCodec);
    let answer = match timeout(HANDSHAKE, calling).await.context("no answer in time")? {
        Ok(answer) => answer,
        Err(status) => {
            // What has ended the connection says more than that it has ended.
            let reason = match timeout(Duration::from_secs(1), connection).await {
                Ok(Ok(Err(error))) => sentence(&error),
                _ => sentence(&status),
            };
            return Err(anyhow!("{reason}"));
        }
    };
    let link = next_link();
    inbox(Net::Joined { link, peer: address.to_owned(), sender });
    take_in(answer.into_inner(), link, inbox.clone()).await;
    Ok(())
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
    text
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

/// Frames as protocol buffers.
#[derive(Clone, Copy)]
struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Frame;
    type Encoder = FrameCodec;
    type Decoder = FrameCodec;

    fn encoder(&mut self) -> FrameCodec {
        FrameCodec
    }

    fn decoder(&mut self) -> FrameCodec {
        FrameCodec
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Frame>, Status> {
        let frame = Frame::decode(&mut *buffer);
        buffer.advance(buffer.remaining());
        frame.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
