//! `Server-Timing` (W3C Server Timing): how long an answer has taken to make, for clients that the settings name.

use crate::exchange::Exchange;
use crate::response::{Head, Response};
use crate::site::Site;
use crate::trace::Trace;
use std::rc::Rc;
use tidegate_io::clock::monotonic_ns;

/// A client is to be told.
pub(crate) struct ServerTiming {
    /// When the head of its request was complete: monotonic, nanoseconds.
    started: u64,
    trace: Option<Rc<Trace>>,
}

impl Site {
    /// Whether the client of a request is told, by its route. Who is behind a proxy that nobody has named may be anybody.
    pub(crate) fn server_timing(&self, index: usize, exchange: &Exchange<'_>) -> Option<ServerTiming> {
        let told = &self.config.routes.get(index)?.server_timing;
        let remote = &exchange.state.remote;
        let is_told =
            !told.is_empty() && told.covers(remote.client.ip()) && !remote.may_stand_in(&exchange.fields);
        // The answer to a request of the server's own is inside that to a client's.
        let is_clients = exchange.state.hops == 0 && exchange.state.asked.is_none();
        (is_told && is_clients)
            .then(|| ServerTiming { started: exchange.started, trace: exchange.state.trace() })
    }
}

impl ServerTiming {
    /// Tells of an answer whose head is made now. A finished one is shared with others, and is left as it is.
    pub(crate) fn tell(&self, mut response: Response) -> Response {
        if let Head::Fields(lines) = &mut response.head {
            lines.push("Server-Timing", self.value());
        }
        response
    }

    fn value(&self) -> String {
        let millis = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
        let mut value = String::new();
        if let Some(trace) = self.trace.as_ref().filter(|trace| trace.tries() > 0) {
            let times = trace.times();
            for (name, nanos) in
                [("queue", times.queue), ("connect", times.connect), ("app", times.application)]
            {
                value += &format!("{name};dur={}, ", millis(nanos));
            }
        }
        value + &format!("total;dur={}", millis(monotonic_ns().saturating_sub(self.started)))
    }
}
