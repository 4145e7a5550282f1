//! Connections of the admin API: accepted, bounded in number, and slow ones ended.

use super::messages::{Begin, Socket};
use super::{App, operations};
use anyhow::{Context, Result};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Connections at the same time, of each way that leads here.
const CONNECTIONS: usize = 64;
/// How long a head may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(10);
/// Bytes that a connection buffers.
const BUFFER: usize = 64 << 10;
/// How long it rests where nothing can be accepted: descriptors are short then, of which no event tells that there are some again.
const PAUSE: Duration = Duration::from_millis(200);

/// Where a request has come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A server process, which says who asks.
    Server,
    /// The unix socket: this user.
    Unix(u32),
    /// An address: whoever shows the token.
    Tcp {
        /// The address of the client.
        from: String,
        /// The token.
        token: Arc<str>,
    },
}

/// Serves for good.
pub async fn serve(
    app: &Arc<App>,
    begin: Begin,
    sockets: Vec<OwnedFd>,
    mut handed: mpsc::Receiver<OwnedFd>,
) -> Result<()> {
    let router = operations::router(app);
    for (socket, fd) in begin.sockets.into_iter().zip(sockets) {
        let (router, places) = (router.clone(), Arc::new(Semaphore::new(CONNECTIONS)));
        match socket {
            Socket::Unix => {
                let listener = UnixListener::from_std(fd.into()).context("cannot take the admin socket")?;
                tokio::spawn(accept_unix(listener, begin.owner, router, places));
            }
            Socket::Tcp { token, .. } => {
                let listener = TcpListener::from_std(fd.into()).context("cannot take an address")?;
                tokio::spawn(accept_tcp(listener, token.into(), router, places));
            }
        }
    }
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some(fd) = handed.recv().await {
        // With more than fit it is closed, and whoever asked hears so.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        if let Ok(stream) = UnixStream::from_std(StdUnixStream::from(fd)) {
            tokio::spawn(talk(stream, Peer::Server, router.clone(), place));
        }
    }
    Ok(())
}

async fn accept_unix(listener: UnixListener, owner: u32, router: Router, places: Arc<Semaphore>) {
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            // The mode of the file says the same, but a folder may have been opened to others, or the file given to them.
            Ok((stream, _)) => {
                let uid = stream.peer_cred().map(|peer| peer.uid());
                if let Some(uid) = uid.ok().filter(|uid| *uid == 0 || *uid == owner) {
                    tokio::spawn(talk(stream, Peer::Unix(uid), router.clone(), place));
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn accept_tcp(listener: TcpListener, token: Arc<str>, router: Router, places: Arc<Semaphore>) {
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let peer = Peer::Tcp { from: from.ip().to_string(), token: token.clone() };
                tokio::spawn(talk(stream, peer, router.clone(), place));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    place: OwnedSemaphorePermit,
) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // Who breaks off has nobody to be told.
    drop((served, place));
}
