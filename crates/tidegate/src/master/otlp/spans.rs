//! Sampled requests as spans of OTLP: one for each request, by the semantic conventions for HTTP servers, and below it one for each
//! member that was asked, whose id is the one that the member was told.
//!
//! Server processes keep what was not collected in bounded buffers (`core/spans.rs`), and here a bounded number waits for a
//! collector that is away; what has no room is counted.

use super::resource::{Origin, id_of, number, scope, text};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use serde::Deserialize;
use std::net::SocketAddr;

/// Spans that wait for a collector.
const WAITING_MAX: usize = 4096;
/// Methods that spans are called by; any other is `_OTHER`.
const METHODS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// What a worker tells.
#[derive(Deserialize)]
struct Told {
    lost: u64,
    spans: Vec<Row>,
}

/// A request. Times are nanoseconds.
#[derive(Deserialize)]
struct Row {
    /// Since 1970.
    ended: u64,
    nanos: u64,
    status: u16,
    received: u64,
    sent: u64,
    trace_id: String,
    span_id: String,
    parent_id: String,
    tracestate: String,
    site: String,
    route: String,
    client: String,
    scheme: String,
    method: String,
    host: String,
    target: String,
    protocol: String,
    user_agent: String,
    tries: Vec<Try>,
}

/// A member that was asked.
#[derive(Deserialize)]
struct Try {
    member: String,
    span_id: String,
    /// What it was asked for; empty where it is not asked by HTTP.
    url: String,
    status: u16,
    /// Before the end of the request.
    began_ago: u64,
    #[serde(default)]
    connected: Option<u64>,
    #[serde(default)]
    first_byte: Option<u64>,
    #[serde(default)]
    complete: Option<u64>,
}

/// Spans on their way to a collector.
#[derive(Default)]
pub(super) struct Waiting {
    spans: Vec<Span>,
    /// Requests that had no room, here or in a worker.
    lost: u64,
}

impl Waiting {
    /// Takes what workers tell. What is no answer is left out.
    pub(super) fn collect(&mut self, answers: &[String]) {
        for answer in answers {
            let Ok(told) = serde_json::from_str::<Told>(answer) else { continue };
            self.lost = self.lost.saturating_add(told.lost);
            for row in told.spans {
                match spans(&row) {
                    Some(spans) if self.spans.len() + spans.len() <= WAITING_MAX => self.spans.extend(spans),
                    _ => self.lost = self.lost.saturating_add(1),
                }
            }
        }
    }

    /// How many requests were lost since this was asked last.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// All that wait; `None`: there are none.
    pub(super) fn message(&self, origin: &Origin, service: &str) -> Option<ExportTraceServiceRequest> {
        let spans = ScopeSpans { scope: Some(scope()), spans: self.spans.clone(), ..ScopeSpans::default() };
        let resource_spans = ResourceSpans {
            resource: Some(origin.resource(service)),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        (!self.spans.is_empty()).then(|| ExportTraceServiceRequest { resource_spans: vec![resource_spans] })
    }

    /// They were taken, or never will be: how many requests they were.
    pub(super) fn clear(&mut self) -> u64 {
        let spans = std::mem::take(&mut self.spans);
        spans.iter().filter(|span| span.kind == i32::from(SpanKind::Server)).count() as u64
    }
}

/// Of a request, and of the members that it was sent to; `None` where its ids are none.
fn spans(row: &Row) -> Option<Vec<Span>> {
    let server = Span {
        trace_id: id_of(&row.trace_id, 16)?,
        span_id: id_of(&row.span_id, 8)?,
        parent_span_id: id_of(&row.parent_id, 8).unwrap_or_default(),
        trace_state: row.tracestate.clone(),
        flags: 1,
        name: format!("{} {}", method(&row.method), row.route).trim_end().to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: row.ended.saturating_sub(row.nanos),
        end_time_unix_nano: row.ended,
        attributes: attributes(row),
        status: outcome(row.status >= 500),
        ..Span::default()
    };
    let tries = row.tries.iter().map(|tried| client(row, &server, tried)).collect::<Option<Vec<_>>>()?;
    Some([server].into_iter().chain(tries).collect())
}

fn attributes(row: &Row) -> Vec<KeyValue> {
    let (path, query) = row.target.split_once('?').unwrap_or((&row.target, ""));
    let version = row.protocol.strip_prefix("HTTP/").unwrap_or_default();
    let error = if row.status >= 500 { row.status.to_string() } else { String::new() };
    let known = method(&row.method);
    let texts = [
        ("http.request.method", known),
        ("http.request.method_original", if known == row.method { "" } else { &row.method }),
        ("http.route", &row.route),
        ("url.scheme", &row.scheme),
        ("url.path", path),
        ("url.query", query),
        ("server.address", &row.host),
        ("client.address", &row.client),
        ("network.protocol.version", version),
        ("user_agent.original", &row.user_agent),
        ("error.type", &error),
        ("tidegate.site", &row.site),
    ];
    let numbers = [
        ("http.response.status_code", row.status.into()),
        ("http.request.size", row.received),
        ("http.response.size", row.sent),
    ];
    let texts = texts.into_iter().filter(|(_, value)| !value.is_empty());
    texts
        .map(|(name, value)| text(name, value))
        .chain(numbers.into_iter().map(|(name, value)| number(name, value)))
        .collect()
}

/// Of a member that was asked for the request of `server`.
fn client(row: &Row, server: &Span, tried: &Try) -> Option<Span> {
    let began = row.ended.saturating_sub(tried.began_ago);
    let mut attributes = Vec::new();
    if !tried.url.is_empty() {
        attributes.push(text("http.request.method", method(&row.method)));
        attributes.push(text("url.full", &tried.url));
    }
    match tried.member.parse::<SocketAddr>() {
        Ok(address) => {
            attributes.push(text("server.address", &address.ip().to_string()));
            attributes.push(number("server.port", address.port().into()));
        }
        Err(_) if tried.member.is_empty() => {}
        Err(_) => attributes.push(text("server.address", &tried.member)),
    }
    match tried.status {
        0 => attributes.push(text("error.type", "no_answer")),
        status => attributes.push(number("http.response.status_code", status.into())),
    }
    let stages = [("connected", tried.connected), ("first_byte", tried.first_byte)];
    let event = |(name, nanos): (&str, Option<u64>)| {
        Some(Event {
            time_unix_nano: began.saturating_add(nanos?),
            name: name.to_owned(),
            ..Event::default()
        })
    };
    Some(Span {
        trace_id: server.trace_id.clone(),
        span_id: id_of(&tried.span_id, 8)?,
        parent_span_id: server.span_id.clone(),
        flags: 1,
        name: method(&row.method).to_owned(),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: began.saturating_add(tried.complete.unwrap_or(0)),
        attributes,
        events: stages.into_iter().filter_map(event).collect(),
        status: outcome(tried.status == 0 || tried.status >= 400),
        ..Span::default()
    })
}

/// Nothing where it is no error: whether it is a success, the application knows.
fn outcome(is_error: bool) -> Option<Status> {
    is_error.then(|| Status { message: String::new(), code: StatusCode::Error.into() })
}

fn method(method: &str) -> &str {
    METHODS.iter().find(|known| **known == method).copied().unwrap_or("_OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"ended":5000000000,"nanos":1000000000,"status":502,"received":10,"sent":20,
        "trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"00f067aa0ba902b7","parent_id":"","tracestate":"a=1",
        "site":"a.test","route":"/x/*","client":"192.0.2.1","scheme":"https","method":"BREW","host":"a.test","target":"/x/1?y=2",
        "protocol":"HTTP/1.1","user_agent":"","tries":[
        {"member":"192.0.2.7:80","span_id":"00f067aa0ba902b8","url":"http://a.test/1?y=2","began_ago":900000000,"status":0,"complete":100000000},
        {"member":"/run/app.sock","span_id":"00f067aa0ba902b9","url":"","began_ago":700000000,"status":200,"connected":1000,"first_byte":2000,"complete":600000000}]}"#;

    fn told(row: &str, count: usize) -> String {
        format!("{{\"lost\":2,\"spans\":[{}]}}", vec![row; count].join(","))
    }

    #[test]
    fn a_request_and_its_tries() {
        let mut waiting = Waiting::default();
        waiting.collect(&[told(ROW, 1), "this worker does not answer".to_owned()]);
        let message = waiting.message(&Origin::new(0), "web").unwrap();
        let spans = &message.resource_spans[0].scope_spans[0].spans;
        let [server, first, second] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(
            (server.name.as_str(), server.kind, server.trace_state.as_str()),
            ("_OTHER /x/*", 2, "a=1")
        );
        assert_eq!((server.start_time_unix_nano, server.end_time_unix_nano), (4_000_000_000, 5_000_000_000));
        assert_eq!((server.trace_id[0], server.span_id[1], server.parent_span_id.len()), (0x4b, 0xf0, 0));
        for expected in [
            text("http.request.method_original", "BREW"),
            text("url.query", "y=2"),
            text("network.protocol.version", "1.1"),
            text("error.type", "502"),
            number("http.response.status_code", 502),
            number("http.response.size", 20),
        ] {
            assert!(server.attributes.contains(&expected), "{expected:?} in {server:?}");
        }
        assert!(!server.attributes.iter().any(|known| known.key == "user_agent.original"));
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (4_100_000_000, 4_200_000_000));
        assert_eq!(first.status.as_ref().map(|status| status.code), Some(2));
        assert!(first.attributes.contains(&number("server.port", 80)));
        assert!(second.attributes.contains(&text("server.address", "/run/app.sock")));
        assert_eq!((second.status.clone(), second.events[1].time_unix_nano), (None, 4_300_002_000));
        for child in [first, second] {
            assert_eq!((&child.parent_span_id, &child.trace_id), (&server.span_id, &server.trace_id));
        }
        assert_eq!((first.span_id.last(), second.span_id.last()), (Some(&0xb8), Some(&0xb9)));
        assert!(first.attributes.contains(&text("url.full", "http://a.test/1?y=2")), "{first:?}");
        assert!(!second.attributes.iter().any(|known| known.key == "http.request.method"), "{second:?}");
        assert_eq!(
            (waiting.take_lost(), waiting.take_lost(), waiting.clear(), waiting.clear()),
            (2, 0, 1, 0)
        );
        assert!(waiting.message(&Origin::new(0), "web").is_none());
    }

    #[test]
    fn what_waits_is_bounded_and_ids_are_ids() {
        let mut waiting = Waiting::default();
        waiting.collect(&[told(ROW, 2000)]);
        assert!(waiting.spans.len() <= WAITING_MAX);
        let lost = waiting.take_lost();
        assert_eq!(lost + waiting.clear(), 2002);
        for wrong in ["", "00f067aa0ba902b", "00f067aa0ba902b7ff", "zz f067aa0ba902b7", "é0f067aa0ba902b7"] {
            assert_eq!(id_of(wrong, 8), None, "{wrong}");
        }
        waiting.collect(&[told(&ROW.replace("00f067aa0ba902b7", "none"), 1)]);
        assert_eq!((waiting.spans.len(), waiting.take_lost()), (0, 3));
    }
}
