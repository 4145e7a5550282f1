//! Scenarios over several machines, as the command line has it: `bench agent` is one of them, `bench agent-keys` lets them know
//! each other, and [`controller`] is what `bench run --agents` does. What is said is `tidegate_bench::agent`; how it gets there, `rpc`.

pub mod agent;
pub mod controller;
pub mod keys;
mod rpc;

use super::wrong;
use anyhow::{Context, Result};
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time that links have at the end to take what was sent to them.
const FLUSH: Duration = Duration::from_millis(300);

/// The thread that has the links; the engine's threads stay on their reactors.
struct Network {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Runs `work`, which may end, until this is dropped.
    fn start(work: impl Future<Output = ()> + Send + 'static) -> Result<Network> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let run = move || {
            runtime.block_on(async move {
                tokio::spawn(work);
                // A sender that is gone says it as well.
                let _ = ended.await;
                tokio::time::sleep(FLUSH).await;
            });
        };
        let thread = std::thread::Builder::new().name("agents".to_owned()).spawn(run);
        let thread = thread.context("cannot start a thread")?;
        Ok(Network { end: Some(end), thread: Some(thread) })
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

/// A listener for links, which without TLS is for this machine alone.
fn bind(address: SocketAddr, security: &keys::Security) -> Result<TcpListener> {
    if matches!(security, keys::Security::Plain) && !address.ip().is_loopback() {
        return Err(wrong(format!(
            "--insecure-loopback goes with a loopback address, and {address} is none; use --keys"
        )));
    }
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
