//! A request on a new connection of which nothing has come back: it may wait in the backlog of a socket, behind idle
//! connections that are in its way, or for a process that is not there any more.

use super::pool::Attended;
use super::upstream::Selection;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_client::{Peer, Starving};
use tidegate_io::timer::{self, Deadline};

/// How long such a request waits until that is suspected.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long it has waited, and what is done about it after that.
pub(super) struct Backlog {
    patience: Deadline,
    suspected: Option<Suspected>,
}

struct Suspected {
    /// Idle connections are let go of meanwhile.
    _starving: Starving,
    /// Of a process of a pool.
    attended: Option<Attended>,
}

impl Backlog {
    pub(super) fn new() -> Backlog {
        Backlog { patience: timer::after(PATIENCE), suspected: None }
    }

    /// Nothing has come yet. Ready once no process is left that could accept the connection: unless one has accepted it and
    /// has ended since, which the connection tells, nobody has begun with the request.
    pub(super) fn poll_left(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Arc<Peer>,
        pick: Option<&Selection>,
    ) -> Poll<()> {
        if self.suspected.is_none() {
            std::task::ready!(Pin::new(&mut self.patience).poll(cx));
        }
        let suspected = self.suspected.get_or_insert_with(|| Suspected {
            _starving: Starving::new(peer),
            attended: pick.and_then(Selection::attended),
        });
        suspected.attended.as_ref().map_or(Poll::Pending, |attended| attended.poll_left(cx))
    }
}
