//! The way to the master: commands, and the answers to them.

use super::messages::{Command, FromAdmin, Refusal, Reply};
use super::problem::Problem;
use crate::link::Link;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long the master may take. Taking up settings takes a while where there are many.
const PATIENCE: Duration = Duration::from_secs(180);
/// Commands without an answer yet.
const WAITING: usize = 256;

/// Who carries out what is asked for.
#[derive(Default)]
pub struct Master {
    link: OnceLock<Arc<Link>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next: AtomicU64,
}

impl Master {
    /// The link to it.
    pub fn set(&self, link: Arc<Link>) {
        let _ = self.link.set(link);
    }

    /// An answer has come.
    pub fn answered(&self, number: u64, reply: Reply) {
        let waits = self.waiting().remove(&number);
        if let Some(waits) = waits {
            let _ = waits.send(reply);
        }
    }

    /// Has something done; a refusal is a problem.
    pub async fn ask(&self, command: Command) -> Result<Reply, Problem> {
        let number = self.next.fetch_add(1, Relaxed);
        let (answers, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= WAITING {
                return Err(Problem::of(Refusal::Busy, "too much is asked for at once: try again"));
            }
            waiting.insert(number, answers);
        }
        let is_sent =
            self.link.get().is_some_and(|link| link.send(&FromAdmin::Command(number, command), Vec::new()));
        let reply = if is_sent { timeout(PATIENCE, answer).await.ok().and_then(Result::ok) } else { None };
        self.waiting().remove(&number);
        match reply {
            Some(Reply::Refused(refusal, why)) => Err(Problem::of(refusal, &why)),
            Some(reply) => Ok(reply),
            None => {
                let detail =
                    "the server did not say in time what has become of it: look at the revision in force";
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
            }
        }
    }

    /// The same for what is answered by a text.
    pub async fn text(&self, command: Command) -> Result<String, Problem> {
        match self.ask(command).await? {
            Reply::Text(text) => Ok(text),
            _ => Err(Problem::unexpected()),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Reply>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
