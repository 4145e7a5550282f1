//! `ban`: the gate of a route that refuses who has been answered with certain statuses too often, and has them counted.

use super::bans::{Bans, Client, Terms};
use super::{Identity, Nodes, RateStore, Table};
use crate::answer;
use crate::exchange::Exchange;
use crate::gate::{Gate, Verdict};
use crate::log;
use crate::notes;
use crate::reply::Need;
use crate::response::Response;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tidegate_config::duration_text;
use tidegate_config::settings::{Ban, LimitStore, Shared};
use tidegate_http::{Method, Status, delay_seconds};
use tidegate_io::socket::Peer;
use tidegate_io::{clock, timer};

/// Answers of a process that are held back at once; further ones are given at once.
const HELD_BACK: u32 = 1000;

static HELD: AtomicU32 = AtomicU32::new(0);

/// Refuses who is banned. One for each `ban` of a route on each worker.
pub struct BanGate(Rc<Rule>);

pub(crate) struct Rule {
    settings: Shared<Ban>,
    bans: Arc<Bans>,
    /// The servers that hear of it.
    nodes: Option<Arc<Nodes>>,
}

/// A client whose answer may count.
pub(crate) struct Watch {
    rule: Rc<Rule>,
    client: Client,
    /// It shows credentials: a 401 says that they are none.
    is_guess: bool,
}

impl BanGate {
    /// The gate of a ban, over the table that all of its name share; told to other servers that use the same `store`, where it
    /// is shared.
    ///
    /// # Errors
    /// There is no descriptor or no memory left for its table.
    pub fn new(
        settings: &Shared<Ban>,
        tables: &RateStore,
        store: Option<&LimitStore>,
    ) -> io::Result<BanGate> {
        let Table::Ban(bans) = tables.table(Identity::of_ban(settings))? else {
            return Err(io::Error::other("the table of a ban is of another kind"));
        };
        let nodes = if settings.is_shared { tables.nodes(store) } else { None };
        Ok(BanGate(Rc::new(Rule { settings: settings.clone(), bans, nodes })))
    }
}

impl BanGate {
    fn refusal(&self, exchange: &Exchange<'_>, left: Duration) -> Response {
        let settings = &*self.0.settings;
        if settings.answer.is_none() {
            exchange.close_unanswered();
        }
        let status = settings.answer.map_or(Status::TOO_MANY_REQUESTS, Status);
        let response = answer::refused(exchange, status, Refused(settings));
        if !matches!(status, Status::TOO_MANY_REQUESTS | Status::SERVICE_UNAVAILABLE) {
            return response;
        }
        response.with("Retry-After", delay_seconds(left).to_string())
    }
}

impl BanGate {
    /// A request that was answered before it came to any route counts where its status does.
    pub(crate) fn count_unrouted(&self, client: Peer, status: Status) {
        if let Some(client) = Client::of(client) {
            Watch { rule: self.0.clone(), client, is_guess: true }.on_answer(status);
        }
    }
}

impl BanGate {
    /// Has the answer to a request count that this gate is not asked about.
    pub(crate) fn watch(&self, exchange: &mut Exchange<'_>) {
        let remote = exchange.state.remote;
        if remote.is_proxy || remote.passes_on(&exchange.fields) || !self.counts_first(exchange) {
            return;
        }
        if let (Some(client), Some(holds)) = (Client::of(remote.client), &exchange.state.holds) {
            holds.watch(Watch { rule: self.0.clone(), client, is_guess: true });
        }
    }

    fn counts_first(&self, exchange: &mut Exchange<'_>) -> bool {
        exchange.state.counts_first(Arc::as_ptr(&self.0.bans) as usize)
    }
}

impl Gate for BanGate {
    fn precedes_access(&self) -> bool {
        true
    }

    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let rule = &self.0;
        if notes::takes_reason(&|| format!("watched by {}; nobody is counted here", Said(&rule.settings))) {
            return Verdict::Pass;
        }
        if !self.counts_first(exchange) {
            return Verdict::Pass;
        }
        let remote = exchange.state.remote;
        if remote.is_proxy || remote.passes_on(&exchange.fields) {
            return Verdict::Pass; // whoever asks by it would be banned with it
        }
        let Some(client) = Client::of(remote.client) else { return Verdict::Pass };
        let Some(left) = rule.bans.left(client, clock::monotonic_ns()) else {
            if let Some(holds) = &exchange.state.holds {
                let is_guess = is_guess(exchange);
                holds.watch(Watch { rule: rule.clone(), client, is_guess });
            }
            return Verdict::Pass;
        };
        rule.bans.count_refused();
        if rule.settings.is_tracked {
            return Verdict::Pass;
        }
        let refusal = self.refusal(exchange, left);
        match rule.settings.tarpit.and_then(HeldBack::take) {
            Some(held) => {
                exchange.ends_when_finished();
                Verdict::Wait(Need::Turn, Box::pin(held.then(refusal)))
            }
            None => Verdict::Refuse(refusal),
        }
    }
}

/// Whether a request shows who it claims to be: by a field, or by a form. Every client that may log in is asked to by a 401
/// first, and has guessed nothing by then.
fn is_guess(exchange: &Exchange<'_>) -> bool {
    exchange.fields.contains("authorization") || exchange.method == Method::Post
}

/// An answer that is held back, one of a bounded number.
struct HeldBack(Duration);

impl HeldBack {
    fn take(time: Duration) -> Option<HeldBack> {
        let held = HeldBack(time);
        (HELD.fetch_add(1, Relaxed) < HELD_BACK).then_some(held)
    }

    async fn then(self, refusal: Response) -> Verdict {
        timer::after(self.0).await;
        Verdict::Refuse(refusal)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Relaxed);
    }
}

impl Watch {
    /// It has been answered.
    pub(crate) fn on_answer(&self, status: Status) {
        let Ban { name, statuses, count, within, lasts, .. } = &*self.rule.settings;
        if !statuses.contains(&status.0) || (status == Status::UNAUTHORIZED && !self.is_guess) {
            return;
        }
        let terms = Terms { count: *count, within: *within, lasts: *lasts };
        let now = clock::monotonic_ns();
        if self.rule.bans.count(self.client, terms, now) {
            log::warn(format_args!("{} is banned for {} by `{name}`", self.client, duration_text(*lasts)));
            if let Some(nodes) = &self.rule.nodes {
                nodes.banned(name, self.client, *lasts, now);
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("client", &self.client).finish_non_exhaustive()
    }
}

struct Refused<'a>(&'a Ban);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "banned by {}; `tidegate bans lift ADDRESS` lifts it", Said(self.0))
    }
}

struct Said<'a>(&'a Ban);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ban { name, count, statuses, origin, within, lasts, .. } = self.0;
        let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let (statuses, within, lasts) =
            (statuses.join(" or "), duration_text(*within), duration_text(*lasts));
        let everywhere = if self.0.is_shared { ", on all servers of the `limit-store`" } else { "" };
        write!(
            f,
            "the ban `{name}` ({origin}): {count} answers with {statuses} within {within} ban a client for {lasts}{everywhere}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_held_back_than_a_process_may() {
        let take = || HeldBack::take(Duration::from_secs(1));
        let held: Vec<_> = (0..HELD_BACK).map(|_| take().unwrap()).collect();
        assert!(take().is_none() && take().is_none());
        drop(held);
        assert!(take().is_some());
    }
}
