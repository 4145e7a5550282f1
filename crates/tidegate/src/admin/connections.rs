//! Connections of the admin API: accepted, bounded in number, and slow ones ended.

use super::messages::{Begin, Socket};
use super::{App, operations};
use anyhow::{Context, Result};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::SendFlags;
use serde_json::json;
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
        let Ok(place) = places.clone().try_acquire_owned() else {
            turn_away(&fd);
            continue;
        };
        if let Ok(stream) = UnixStream::from_std(StdUnixStream::from(fd)) {
            tokio::spawn(talk(stream, Peer::Server, router.clone(), place));
        }
    }
    Ok(())
}

/// Tells the other end of a connection that there is no place for it. Whoever asked hears it even where the request was not read.
pub fn turn_away(fd: &OwnedFd) {
    let detail =
        "there are as many requests to the admin API as it has places for: try again when some are done";
    let body = json!({ "title": "Service Unavailable", "status": 503, "detail": detail }).to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    // The buffer of a new connection has room for it; who has gone needs none.
    let _ = rustix::net::send(fd, answer.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn who_is_turned_away_hears_why() {
        let (mut client, own) = StdUnixStream::pair().unwrap();
        client.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let own = OwnedFd::from(own);
        turn_away(&own);
        drop(own);
        let mut answer = vec![0; 4096];
        let count = client.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.ends_with(
                "try again when some are done\",\"status\":503,\"title\":\"Service Unavailable\"}"
            ),
            "{answer}"
        );
    }
}
