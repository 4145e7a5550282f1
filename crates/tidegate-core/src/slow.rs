//! The requests of a worker that were slow for their route, the last ones: for `tidegate status slow`.
//!
//! What is slow, the statistics of the route say (`tidegate_stats::series`): by default what takes longer than 99.9 % of its
//! requests. `conn/send` `tally` remembers such a request; nothing is kept of any other.

use crate::log::{AccessRecord, push_json_escaped, push_json_member};
use crate::series::push_series;
use std::collections::VecDeque;
use tidegate_config::settings::UpstreamStage;
use tidegate_stats::series::{SeriesId, SeriesName};

/// Requests that a worker remembers.
const KEPT: usize = 50;

/// The last ones.
#[derive(Default)]
pub(crate) struct SlowRequests(VecDeque<SlowRequest>);

/// One of them.
struct SlowRequest {
    series: SeriesId,
    /// When it ended: wall clock, nanoseconds.
    nanos: u64,
    /// All of its row but names of site and route, and the end.
    row: Vec<u8>,
}

/// What is known of it beside its head.
pub(crate) struct SlowEnd {
    pub series: SeriesId,
    /// When it ended: wall clock, seconds.
    pub now: i64,
    pub nanos: u64,
    pub status: u16,
    pub received: u64,
    pub sent: u64,
}

impl SlowRequests {
    /// Remembers one; the oldest goes for it.
    #[cold]
    pub(crate) fn remember(&mut self, end: &SlowEnd, entry: Option<&AccessRecord<'_>>) {
        let SlowEnd { series, now, nanos, status, received, sent } = *end;
        let took = nanos as f64 / 1e9;
        let mut row = format!(
            "{{\"at\":{now},\"took\":{took:.6},\"status\":{status},\"received\":{received},\"sent\":{sent}"
        )
        .into_bytes();
        if let Some(entry) = entry {
            push_json_member(&mut row, "client", entry.client.to_string().as_bytes());
            push_json_member(&mut row, "method", entry.method.as_bytes());
            push_json_member(&mut row, "target", entry.target.as_bytes());
            push_json_member(&mut row, "host", entry.authority.as_bytes());
            push_json_member(&mut row, "protocol", entry.version.name().as_bytes());
            push_tries(&mut row, entry);
        }
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(SlowRequest { series, nanos, row });
    }

    /// A JSON object of them, the slowest first; `name` gives site and route.
    pub(crate) fn to_json(&self, name: impl Fn(SeriesId) -> Option<SeriesName>) -> String {
        let mut slow: Vec<&SlowRequest> = self.0.iter().collect();
        slow.sort_by_key(|request| std::cmp::Reverse(request.nanos));
        let mut out = b"{\"requests\":[".to_vec();
        for (at, request) in slow.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&request.row);
            push_series(&mut out, name(request.series));
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Whom it was sent to, and how long each stage took from when it was chosen, where that was written down for a log.
fn push_tries(row: &mut Vec<u8>, entry: &AccessRecord<'_>) {
    let Some(trace) = entry.trace else { return };
    let mut is_first = true;
    trace.each_try(|asked| {
        row.extend_from_slice(if is_first { b",\"upstreams\":[{" } else { b",{" });
        is_first = false;
        row.extend_from_slice(b"\"address\":\"");
        push_json_escaped(row, asked.member().as_bytes());
        row.push(b'"');
        let stages = [
            ("connected", UpstreamStage::Connected),
            ("first_byte", UpstreamStage::FirstByte),
            ("complete", UpstreamStage::Complete),
        ];
        for (name, stage) in stages {
            if let Some(nanos) = asked.nanos(stage) {
                row.extend_from_slice(format!(",\"{name}\":{:.6}", nanos as f64 / 1e9).as_bytes());
            }
        }
        row.push(b'}');
    });
    if !is_first {
        row.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_last_are_kept_and_the_slowest_comes_first() {
        let mut slow = SlowRequests::default();
        for nanos in 1..=KEPT as u64 + 10 {
            let (series, now, status) = (SeriesId::NONE, 7, 200);
            slow.remember(
                &SlowEnd { series, now, nanos: nanos * 1_000_000_000, status, received: 1, sent: 2 },
                None,
            );
        }
        let json = slow.to_json(|_| Some((Arc::from("a.test"), Some(Arc::from("/*")))));
        let slowest = "{\"requests\":[{\"at\":7,\"took\":60.000000,\"status\":200,\"received\":1,\"sent\":2,\
                       \"site\":\"a.test\",\"route\":\"/*\"},";
        assert!(json.starts_with(slowest), "{json}");
        assert_eq!((json.matches("took").count(), slow.0.len()), (KEPT, KEPT));
        assert!(!json.contains("\"took\":10.000000"), "the oldest are gone: {json}");
    }
}
