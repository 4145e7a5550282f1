//! `limit`: the gate of a route that lets requests in at a rate, or so many at once.

use super::holds::Permit;
use super::nodes::SharedRate;
use super::queue::{Entry, LimitQueue, Waiter};
use super::{Counts, Identity, Rate, RateStore, Ruling, Table, Total};
use crate::answer;
use crate::exchange::Exchange;
use crate::gate::{Gate, Verdict};
use crate::notes;
use crate::rate::Buckets;
use crate::reply::Need;
use crate::response::{Author, Response};
use crate::template::{Piece, Scope, Template};
use smallvec::SmallVec;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::pool::Queue;
use tidegate_config::settings::{Bound, Limit, LimitStore, Shared};
use tidegate_http::{Status, delay_seconds};
use tidegate_io::clock;
use tidegate_stats::series::Phase;
use tidegate_stats::{Elapsed, PartTimes, Timed, Worker as Stats};

/// Who comes back at once to what is full may find a place in a second as well as later.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why somebody who could have waited is refused; the queues before applications say the same.
const FULL: &str = "the queue is full";
const TOO_OLD: &str = "the request has waited too long in the queue";

/// Lets requests in by whatever tells clients apart. One for each `limit` of a route on each worker.
pub struct LimitGate {
    settings: Shared<Limit>,
    by: Key,
    meter: Meter,
    /// How long requests wait for it; `None` where none do, or too many parts of the server are timed.
    times: Option<Arc<PartTimes>>,
}

/// What is counted, and where.
enum Meter {
    Requests(Rate, Arc<Buckets>),
    Shared(SharedRate),
    Concurrent(u32, Arc<Counts>),
    Queued(u32, Arc<Counts>, Arc<LimitQueue>, Queue),
    Connections(u32, Arc<Counts>),
    Total(Arc<Total>),
}

/// What a limit says of a request.
enum Judgement {
    Within,
    /// It may not be asked for before this time has gone by.
    Beyond(Duration),
    /// As many are under way as may, and as many wait.
    Full,
    Wait(Waiter),
}

/// What tells apart whatever is counted by itself.
pub(super) struct Key(Template);

impl Key {
    pub(super) fn new(by: &str, scope: Scope<'_>) -> Key {
        Key(Template::parse(by, scope))
    }

    /// That of a request.
    pub(super) fn of(&self, exchange: &Exchange<'_>) -> SmallVec<[u8; 64]> {
        match self.0.pieces() {
            [Piece::Client] => exchange.state.remote.customer(),
            pieces if pieces.contains(&Piece::Client) => {
                let mut key = exchange.state.remote.customer();
                key.extend_from_slice(self.0.fill_key_but_client(exchange).as_bytes());
                key
            }
            _ => SmallVec::from_slice(self.0.fill_key_but_client(exchange).as_bytes()),
        }
    }
}

impl LimitGate {
    /// The gate of a limit, over the table that all of its name share; and those of other servers that use the same `store`,
    /// where it is shared.
    ///
    /// # Errors
    /// There is no descriptor or no memory left for its table.
    pub fn new(
        settings: &Shared<Limit>,
        scope: Scope<'_>,
        tables: &RateStore,
        store: Option<&LimitStore>,
        stats: &Stats,
    ) -> io::Result<LimitGate> {
        let table = tables.table(Identity::of(settings))?;
        let meter = match (settings.bound, table) {
            (Bound::Requests(rate), Table::Rate(table)) => {
                let shared = settings.lease.and_then(|lease| Some((lease, tables.nodes(store)?)));
                let leases = Identity::of_leases(settings).filter(|_| shared.is_some());
                match (shared, leases.map(|leases| tables.table(leases)).transpose()?) {
                    (Some((lease, nodes)), Some(Table::Count(leases))) => {
                        let (name, rate) = (&settings.name, Rate::from(&rate));
                        Meter::Shared(SharedRate::new(name, rate, (table, leases), lease, nodes))
                    }
                    _ => Meter::Requests(Rate::from(&rate), table),
                }
            }
            (Bound::Concurrent(most), Table::Count(table)) => {
                // One that only tracks holds up nobody.
                let queue = settings.queue.as_ref().filter(|_| !settings.is_tracked);
                let lines =
                    Identity::of_queue(settings).map(|identity| tables.table(identity)).transpose()?;
                match (queue, lines) {
                    (Some(queue), Some(Table::Queue(lines))) => {
                        Meter::Queued(most.get(), table, lines, queue.clone())
                    }
                    _ => Meter::Concurrent(most.get(), table),
                }
            }
            (Bound::Connections(most), Table::Count(table)) => Meter::Connections(most.get(), table),
            (Bound::Nothing, Table::Total(total)) => Meter::Total(total),
            _ => return Err(io::Error::other("the table of a limit is of another kind")),
        };
        let is_queued = matches!(meter, Meter::Queued(..));
        let times = is_queued.then(|| stats.times.of(Timed::Limit(settings.name.clone()))).flatten();
        Ok(LimitGate { settings: settings.clone(), by: Key::new(&settings.by, scope), meter, times })
    }

    /// Whether it counts those who have logged in: then it is asked after the login.
    pub fn is_by_user(&self) -> bool {
        self.by.0.asks_for_user()
    }

    fn judge(&self, exchange: &Exchange<'_>) -> Judgement {
        let key = self.by.of(exchange);
        let of_rate = |ruling| match ruling {
            Ruling::Within { .. } => Judgement::Within,
            Ruling::Beyond { retry_after } => Judgement::Beyond(retry_after),
        };
        match &self.meter {
            Meter::Requests(rate, table) => of_rate(table.charge(&key, *rate, clock::monotonic_ns())),
            Meter::Shared(shared) => of_rate(shared.charge(&key, clock::monotonic_ns())),
            Meter::Concurrent(most, counts) => match Permit::take(counts, &key, *most) {
                Some(permit) => hold(exchange, permit),
                None => Judgement::Beyond(RETRY_AFTER),
            },
            // Where nobody sends an answer, a place would be given back at once.
            Meter::Queued(..) if exchange.state.holds.is_none() => Judgement::Within,
            Meter::Queued(most, counts, lines, queue) => match lines.enter(counts, &key, *most, queue) {
                Entry::Permit(permit) => hold(exchange, permit),
                Entry::Wait(waiter) => Judgement::Wait(waiter),
                Entry::Full => Judgement::Full,
            },
            Meter::Connections(most, counts) => match &exchange.state.holds {
                Some(holds) if !holds.connection.count(counts, &key, *most) => Judgement::Beyond(RETRY_AFTER),
                _ => Judgement::Within,
            },
            Meter::Total(total) => {
                total.add();
                Judgement::Within
            }
        }
    }

    /// What the request is counted by, once.
    fn table(&self) -> usize {
        match &self.meter {
            Meter::Requests(_, table) => Arc::as_ptr(table) as usize,
            Meter::Shared(shared) => Arc::as_ptr(shared.table()) as usize,
            Meter::Concurrent(_, table) | Meter::Connections(_, table) | Meter::Queued(_, table, ..) => {
                Arc::as_ptr(table) as usize
            }
            Meter::Total(total) => Arc::as_ptr(total) as usize,
        }
    }
}

/// Has a request hold this until it is answered. Without somebody who sends an answer it is given back at once.
fn hold(exchange: &Exchange<'_>, permit: Permit) -> Judgement {
    if let Some(holds) = &exchange.state.holds {
        holds.hold(permit);
    }
    Judgement::Within
}

/// The answer to a request that a limit does not let in; `why`, where there is more to say of it.
fn refusal(limit: &Limit, exchange: &Exchange<'_>, retry_after: Duration, why: Option<&str>) -> Response {
    // What all share is full, and nobody's fault.
    let status = if limit.is_by_request() { Status::TOO_MANY_REQUESTS } else { Status::SERVICE_UNAVAILABLE };
    let seconds = delay_seconds(retry_after);
    let response = answer::refused(exchange, status, Refused(limit, why));
    let is_busy = why.is_some() && status == Status::SERVICE_UNAVAILABLE;
    let response = if is_busy { response.by(Author::Busy) } else { response };
    let response = response.with("Retry-After", seconds.to_string());
    let Bound::Requests(rate) = limit.bound else { return response };
    let name = quoted(&limit.name);
    response
        .with("RateLimit", format!("{name};r=0;t={seconds}"))
        .with("RateLimit-Policy", format!("{name};q={};w={}", rate.count, rate.period.as_secs()))
}

/// Waits for a place, and then has the request hold it.
async fn wait(limit: Shared<Limit>, waiter: Waiter, times: Option<Arc<PartTimes>>) -> Verdict {
    let since = clock::monotonic_ns();
    let permit = waiter.await;
    let waited = clock::monotonic_ns().saturating_sub(since);
    Verdict::Decide(Box::new(move |exchange| match permit {
        Some(permit) => {
            let elapsed = Elapsed::nanos(waited);
            exchange.has_queued(elapsed);
            if let Some(times) = times {
                times.took(Phase::Queue, elapsed);
            }
            hold(exchange, permit);
            Verdict::Pass
        }
        None => Verdict::Refuse(refusal(&limit, exchange, RETRY_AFTER, Some(TOO_OLD))),
    }))
}

impl Gate for LimitGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        // Nobody is counted for the sake of an explanation, and what only counts is not worth a word.
        let is_own = Limit::is_own(&self.settings.name) && notes::listens();
        if is_own
            || notes::takes_reason(&|| format!("counted by {}; nobody is counted here", Said(&self.settings)))
        {
            return Verdict::Pass;
        }
        if !exchange.state.counts_first(self.table()) {
            return Verdict::Pass;
        }
        let refusal =
            |exchange: &_, after, why| Verdict::Refuse(refusal(&self.settings, exchange, after, why));
        match self.judge(exchange) {
            Judgement::Beyond(retry_after) if !self.settings.is_tracked => {
                refusal(exchange, retry_after, None)
            }
            Judgement::Within | Judgement::Beyond(_) => Verdict::Pass,
            Judgement::Full => refusal(exchange, RETRY_AFTER, Some(FULL)),
            Judgement::Wait(waiter) => {
                Verdict::Wait(Need::Turn, Box::pin(wait(self.settings.clone(), waiter, self.times.clone())))
            }
        }
    }
}

/// A name as a string of structured fields (RFC 9651 section 3.3.3), which holds printable ASCII alone.
fn quoted(name: &str) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '_' };
    format!("\"{}\"", name.chars().map(plain).collect::<String>())
}

/// Why somebody is refused, for the error log and for `explain`.
struct Refused<'a>(&'a Limit, Option<&'a str>);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by {}", Said(self.0))?;
        self.1.map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// What a limit says.
struct Said<'a>(&'a Limit);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { name, bound, by, origin, queue, .. } = self.0;
        write!(f, "the limit `{name}` ({origin}): {bound}, ")?;
        queue.as_ref().map_or(Ok(()), |queue| write!(f, "{queue}, "))?;
        write!(f, "by `{by}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_breaks_out_of_no_field() {
        for (name, expected) in [("api", "\"api\""), ("a\"b\\c\nd", "\"a_b_c_d\""), ("ä", "\"_\"")] {
            assert_eq!(quoted(name), expected);
        }
    }
}
