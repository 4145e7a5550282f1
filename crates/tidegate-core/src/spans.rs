//! Sampled requests as they end, for whoever tells a collector of traces.
//!
//! Who collects asks each worker again and again, and says for how long it may stay away; in between, a bounded buffer keeps
//! what it has not been told. What does not fit is counted. `conn/send` `tally` tells of requests; while nobody collects that is
//! one look at a flag. Only a site with `trace-context begin` has requests that are sampled.

use crate::log::{AccessRecord, push_json_escaped, push_json_member};
use crate::tail::TailEnd;
use crate::trace::Trace;
use std::fmt::Write;
use tidegate_config::settings::UpstreamStage;
use tidegate_io::clock::wall;

/// Bytes of rows that wait to be asked for.
const BUFFER: usize = 256 << 10;
/// Seconds for which somebody may stay away.
const LEASE_MAX: u32 = 2 * 3600;

/// What was not asked for yet.
#[derive(Default)]
pub(crate) struct Spans {
    /// When who collects has gone, seconds; `None`: nobody does.
    until: Option<u32>,
    rows: Vec<u8>,
    /// Requests that had no room.
    lost: u64,
}

impl Spans {
    /// Whether anybody collects.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.until.is_some()
    }

    /// Who has gone is forgotten.
    pub(crate) fn on_second(&mut self, second: u32) {
        if self.until.is_some_and(|until| until.wrapping_sub(second) > LEASE_MAX) {
            *self = Spans::default();
        }
    }

    /// Tells of a request, if it is sampled.
    #[cold]
    pub(crate) fn tell(&mut self, end: &TailEnd, entry: Option<&AccessRecord<'_>>) {
        let Some(entry) = entry else { return };
        let Some(trace) =
            entry.trace.filter(|trace| trace.context().is_some_and(|context| context.is_sampled()))
        else {
            return;
        };
        let before = self.rows.len();
        if before > 0 {
            self.rows.push(b',');
        }
        push_row(&mut self.rows, end, entry, trace);
        if self.rows.len() > BUFFER {
            self.rows.truncate(before);
            self.lost += 1;
        }
    }

    /// What was not told yet, as a JSON object, to one who comes again within `lease` seconds; with the first question it begins to
    /// collect.
    pub(crate) fn take(&mut self, lease: u32, second: u32) -> String {
        self.until = Some(second.wrapping_add(lease.min(LEASE_MAX)));
        let mut out = format!("{{\"lost\":{},\"spans\":[", std::mem::take(&mut self.lost)).into_bytes();
        out.append(&mut std::mem::take(&mut self.rows));
        out.extend_from_slice(b"]}");
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn push_row(row: &mut Vec<u8>, end: &TailEnd, entry: &AccessRecord<'_>, trace: &Trace) {
    let Some(context) = trace.context() else { return };
    let (seconds, subsecond) = wall();
    let ended = u64::try_from(seconds).unwrap_or(0) * 1_000_000_000 + u64::from(subsecond);
    let TailEnd { status, received, sent, nanos, .. } = end;
    let mut head = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        head,
        "{{\"ended\":{ended},\"nanos\":{nanos},\"status\":{status},\"received\":{received},\"sent\":{sent}"
    );
    row.extend_from_slice(head.as_bytes());
    for (name, value) in [
        ("trace_id", context.trace_id().as_bytes()),
        ("span_id", context.span_id().as_bytes()),
        ("parent_id", context.parent_id().as_bytes()),
        ("tracestate", context.tracestate().as_bytes()),
        ("site", trace.site().as_bytes()),
        ("route", trace.route().as_bytes()),
        ("client", entry.client.to_string().as_bytes()),
        ("scheme", entry.scheme.as_bytes()),
        ("method", entry.method.as_bytes()),
        ("host", entry.authority.as_bytes()),
        ("target", entry.target.as_bytes()),
        ("protocol", entry.version.name().as_bytes()),
        ("user_agent", entry.user_agent),
    ] {
        push_json_member(row, name, value);
    }
    row.extend_from_slice(b",\"tries\":[");
    let mut is_first = true;
    trace.each_try(|asked| {
        row.extend_from_slice(if is_first { b"{\"member\":\"" } else { b",{\"member\":\"" });
        is_first = false;
        push_json_escaped(row, asked.member().as_bytes());
        row.extend_from_slice(b"\",\"span_id\":\"");
        row.extend_from_slice(asked.span_id().as_bytes());
        row.extend_from_slice(b"\",\"url\":\"");
        push_json_escaped(row, asked.url().as_bytes());
        let mut told =
            format!("\",\"began_ago\":{},\"status\":{}", asked.began_ago(), asked.status().unwrap_or(0));
        for (name, stage) in [
            ("connected", UpstreamStage::Connected),
            ("first_byte", UpstreamStage::FirstByte),
            ("complete", UpstreamStage::Complete),
        ] {
            if let Some(nanos) = asked.nanos(stage) {
                let _ = write!(told, ",\"{name}\":{nanos}");
            }
        }
        row.extend_from_slice(told.as_bytes());
        row.push(b'}');
    });
    row.extend_from_slice(b"]}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::EntryFields;
    use std::rc::Rc;
    use tidegate_io::socket::Peer;
    use tidegate_stats::series::SeriesId;

    fn tell(spans: &mut Spans, trace: Option<&Rc<Trace>>) {
        let entry = AccessRecord {
            scheme: "http",
            client: Peer::Unix,
            method: "GET",
            target: "/\"",
            authority: "a.test",
            version: tidegate_http::Version::Http11,
            referer: b"",
            user_agent: b"\xff",
            tls: None,
            identity: None,
            trace,
            fields: EntryFields::Kept(&[]),
        };
        let end = TailEnd { series: SeriesId::NONE, status: 200, received: 1, sent: 2, nanos: 3 };
        spans.tell(&end, Some(&entry));
    }

    #[test]
    fn what_is_sampled_is_told_once_and_bounded() {
        let mut spans = Spans::default();
        assert!(!spans.is_active());
        assert_eq!(spans.take(5, 10), "{\"lost\":0,\"spans\":[]}");
        let (sampled, other) = (Trace::sampled(true), Trace::sampled(false));
        for trace in [None, Some(&other), Some(&Trace::made(None, "a", "/", &[]))] {
            tell(&mut spans, trace);
        }
        assert_eq!(spans.take(5, 10), "{\"lost\":0,\"spans\":[]}", "none of these is sampled");
        tell(&mut spans, Some(&sampled));
        tell(&mut spans, Some(&sampled));
        let told = spans.take(5, 10);
        assert_eq!(told.matches("\"target\":\"/\\\"\"").count(), 2, "{told}");
        (0..BUFFER / 100).for_each(|_| tell(&mut spans, Some(&sampled)));
        let told = spans.take(5, 10);
        assert!(told.len() < BUFFER + 100 && !told.starts_with("{\"lost\":0,"), "{}", told.len());
        let told = told.matches("\"ended\"").count();
        assert!(told > 100 && told < BUFFER / 100, "{told}");
    }

    #[test]
    fn who_stays_away_is_forgotten() {
        let mut spans = Spans::default();
        spans.take(5, u32::MAX - 2);
        for second in [u32::MAX, 0, 2] {
            spans.on_second(second);
            assert!(spans.is_active(), "{second}");
        }
        spans.on_second(3);
        assert!(!spans.is_active());
    }
}
