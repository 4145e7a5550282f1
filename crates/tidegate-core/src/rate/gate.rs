//! `limit`: the gate of a route that lets requests in at a rate.

use super::{Buckets, Rate, Ruling};
use crate::answer;
use crate::exchange::Exchange;
use crate::gate::{Gate, Verdict};
use crate::notes;
use crate::response::Response;
use crate::template::{Piece, Scope, Template};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{RequestRate, Shared};
use tidegate_http::Status;
use tidegate_io::clock;

/// Lets requests in at a rate, by whatever tells clients apart. One for each `limit` of a route on each worker.
pub struct RateGate {
    settings: Shared<RequestRate>,
    rate: Rate,
    by: Template,
    table: Arc<Buckets>,
}

impl RateGate {
    /// The gate of a limit, over the table that all of its name share.
    pub fn new(settings: &Shared<RequestRate>, scope: Scope<'_>, table: Arc<Buckets>) -> RateGate {
        let (rate, by) = (Rate::from(&**settings), Template::parse(&settings.by, scope));
        RateGate { settings: settings.clone(), rate, by, table }
    }

    /// What is counted by itself.
    fn key(&self, exchange: &Exchange<'_>) -> SmallVec<[u8; 64]> {
        match self.by.pieces() {
            [Piece::Client] => exchange.state.remote.customer(),
            pieces if pieces.contains(&Piece::Client) => {
                let mut key = exchange.state.remote.customer();
                key.extend_from_slice(self.by.fill_key(exchange).as_bytes());
                key
            }
            _ => SmallVec::from_slice(self.by.fill_key(exchange).as_bytes()),
        }
    }

    fn refusal(&self, exchange: &Exchange<'_>, retry_after: Duration) -> Response {
        let rate = &*self.settings;
        let name = quoted(&rate.name);
        // At least a second: who comes back at once is refused again.
        let seconds = retry_after.as_secs().saturating_add(u64::from(retry_after.subsec_nanos() > 0)).max(1);
        answer::refused(exchange, Status::TOO_MANY_REQUESTS, Refused(rate))
            .with("Retry-After", seconds.to_string())
            .with("RateLimit", format!("{name};r=0;t={seconds}"))
            .with("RateLimit-Policy", format!("{name};q={};w={}", rate.count, rate.period.as_secs()))
    }
}

impl Gate for RateGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        // Nobody is counted for the sake of an explanation.
        if notes::takes_reason(&|| format!("counted by {}; nobody is counted here", Said(&self.settings))) {
            return Verdict::Pass;
        }
        if !exchange.state.counts_first(Arc::as_ptr(&self.table) as usize) {
            return Verdict::Pass;
        }
        match self.table.charge(&self.key(exchange), self.rate, clock::monotonic_ns()) {
            Ruling::Beyond { retry_after } if !self.settings.is_tracked => {
                Verdict::Refuse(self.refusal(exchange, retry_after))
            }
            Ruling::Within { .. } | Ruling::Beyond { .. } => Verdict::Pass,
        }
    }
}

/// A name as a string of structured fields (RFC 9651 section 3.3.3), which holds printable ASCII alone.
fn quoted(name: &str) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '_' };
    format!("\"{}\"", name.chars().map(plain).collect::<String>())
}

/// Why somebody is refused, for the error log and for `explain`.
struct Refused<'a>(&'a RequestRate);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused by {}", Said(self.0))
    }
}

/// What a limit says.
struct Said<'a>(&'a RequestRate);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequestRate { name, burst, by, origin, .. } = self.0;
        write!(f, "the limit `{name}` ({origin}): {}, {burst} at once, by `{by}`", self.0.rate())
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
