//! Scenarios over several machines, as the command line has it: `bench agent` is one of them, `bench agent-keys` lets them know
//! each other, and [`controller`] is what `bench run --agents` does, with agents that `ssh` starts for one run. What is said is
//! `tidegate_bench::agent`; how it gets there, `rpc`.

pub mod agent;
mod codec;
pub mod controller;
pub mod keys;
mod places;
mod rpc;
mod ssh;

use super::wrong;
use anyhow::{Context, Result};
use rpc::{FLUSH, Hub, Inbox, Net};
use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The thread that has the links; the engine's threads stay on their reactors.
struct Network {
    hub: Hub,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Has links until this is dropped, whose events go to `inbox`.
    fn start(inbox: Inbox) -> Result<Network> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let (alive, mut links) = mpsc::channel(1);
        let moved = Arc::new(AtomicU64::new(0));
        let hub = Hub { inbox, alive: alive.downgrade(), moved: moved.clone() };
        let run = move || {
            runtime.block_on(async move {
                // A sender that is gone says it as well.
                let _ = ended.await;
                drop(alive);
                // Each link ends when the other side has taken in what was sent. Over one that does not, nothing moves any more.
                let mut before = moved.load(Relaxed);
                while timeout(FLUSH * 2, links.recv()).await.is_err() {
                    let now = moved.load(Relaxed);
                    if now == std::mem::replace(&mut before, now) {
                        return;
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("agents".to_owned()).spawn(run);
        let thread = thread.context("cannot start a thread")?;
        Ok(Network { hub, handle, end: Some(end), thread: Some(thread) })
    }

    /// Takes links of a listener.
    fn listen(&self, listener: TcpListener, security: keys::Security) {
        self.spawn(|hub| async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => rpc::listen(listener, security, hub).await,
                Err(error) => (hub.inbox)(Net::Failed(format!("cannot listen: {error}"))),
            }
        });
    }

    /// Lets something run beside, which may end.
    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Hub) -> F) {
        self.handle.spawn(work(self.hub.clone()));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// That what is meant by `text` is this machine: there is no TLS then.
fn only_of_this_machine(at: impl IntoIterator<Item = SocketAddr>, text: &impl fmt::Display) -> Result<()> {
    if at.into_iter().all(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    Err(wrong(format!("--insecure-loopback goes with a loopback address, and {text} is none; use --keys")))
}

/// A listener for links, which without TLS is for this machine alone.
fn bind(address: SocketAddr, security: &keys::Security) -> Result<TcpListener> {
    if matches!(security, keys::Security::Plain) {
        only_of_this_machine([address], &address)?;
    }
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
