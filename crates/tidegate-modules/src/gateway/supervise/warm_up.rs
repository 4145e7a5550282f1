//! The requests that a process gets before it takes work, on a thread of their own.

use super::ask::{Question, ask};
use super::driver::Waker;
use crate::gateway::pool_directory::PoolAddress;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidegate_config::settings::pool::WarmUp;

/// A process that is being warmed up. Dropping it lets the thread end by itself.
pub(super) struct WarmingUp {
    is_done: AtomicBool,
    /// What did not go well, a sentence each.
    complaints: Mutex<Vec<String>>,
}

impl WarmingUp {
    /// Sends the requests to `address`; wakes the supervisor when they are done.
    ///
    /// # Errors
    /// No thread.
    pub(super) fn begin(warm_up: WarmUp, address: PoolAddress, waker: Waker) -> io::Result<Arc<WarmingUp>> {
        let begun = Arc::new(WarmingUp { is_done: AtomicBool::new(false), complaints: Mutex::default() });
        let told = begun.clone();
        std::thread::Builder::new().name("tidegate-warm-up".into()).spawn(move || {
            told.run(&warm_up, &address);
            told.is_done.store(true, SeqCst);
            waker.wake();
        })?;
        Ok(begun)
    }

    fn run(&self, warm_up: &WarmUp, address: &PoolAddress) {
        let deadline = Instant::now() + warm_up.timeout;
        for target in &warm_up.targets {
            let script = warm_up.root.as_ref().map(|root| script_of(root, target));
            let question = Question {
                protocol: warm_up.protocol,
                target,
                host: &warm_up.host,
                script: script.as_deref(),
                root: warm_up.root.as_deref(),
            };
            let complaint = match ask(address, &question, deadline) {
                Ok(answer) if answer.status < 400 => continue,
                Ok(answer) => format!("`warm-up` {target} was answered with {}", answer.status),
                Err(problem) => format!("`warm-up` {target} failed: {problem}"),
            };
            self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(complaint);
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Whether all is done that was to be.
    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(SeqCst)
    }

    /// What did not go well, once.
    pub(super) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *self.complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn script_of(root: &std::path::Path, target: &str) -> PathBuf {
    root.join(target.split('?').next().unwrap_or_default().trim_start_matches('/'))
}
