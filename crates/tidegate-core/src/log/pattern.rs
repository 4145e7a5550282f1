//! Access lines of a pattern that the settings give (`access-log … format="{client} {status}"`).
//!
//! Whatever a client has sent is escaped, so that it cannot end the line or close a quote (FAULTS 38).

use super::access::{AccessRecord, Ending, Times, push_peer};
use super::texts::Texts;
use crate::client_names::ClientNames;
use crate::trace::Asked;
use std::sync::Arc;
use tidegate_config::settings::{LogPart, TimeUnit};
use tidegate_http::push_decimal;
use tidegate_io::socket::Peer;

/// Appends a line, without its end; `texts` is for what others have chosen.
pub(super) fn push(
    out: &mut Vec<u8>,
    parts: &[LogPart],
    times: &Times,
    entry: &AccessRecord<'_>,
    ending: &Ending<'_>,
    names: &Arc<ClientNames>,
    texts: &mut Texts,
) {
    let mut push_value = |out: &mut Vec<u8>, value: &[u8]| {
        texts.push(out, if value.is_empty() { b"-" } else { value });
    };
    let (path, query) = match entry.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (entry.target, None),
    };
    for part in parts {
        match part {
            LogPart::Text(text) => out.extend_from_slice(text.as_bytes()),
            LogPart::Client => push_peer(out, entry.client),
            LogPart::ClientName => match entry.client.ip().and_then(|client| names.hint(client)) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => push_peer(out, entry.client),
            },
            LogPart::ClientPort => match entry.client {
                // A proxy tells no port of its client.
                Peer::Tcp(address) if address.port() != 0 => push_decimal(out, u64::from(address.port())),
                Peer::Tcp(_) | Peer::Unix => out.push(b'-'),
            },
            LogPart::User => push_value(out, entry.user().unwrap_or_default().as_bytes()),
            LogPart::Scheme => out.extend_from_slice(entry.scheme.as_bytes()),
            LogPart::TlsVersion => push_value(out, entry.tls.map_or("", |tls| tls.version).as_bytes()),
            LogPart::TlsCipher => push_value(out, entry.tls.map_or("", |tls| tls.suite).as_bytes()),
            LogPart::Host => push_value(out, entry.authority.as_bytes()),
            LogPart::Method => push_value(out, entry.method.as_bytes()),
            LogPart::Target => push_value(out, entry.target.as_bytes()),
            LogPart::Path => push_value(out, path.as_bytes()),
            LogPart::Query => push_value(out, query.unwrap_or_default().as_bytes()),
            LogPart::Protocol => {
                out.extend_from_slice(entry.version.name().as_bytes());
            }
            LogPart::Status => push_decimal(out, u64::from(ending.status)),
            LogPart::Bytes => push_decimal(out, ending.bytes()),
            LogPart::BytesIn => push_decimal(out, ending.received),
            LogPart::BytesOut => push_decimal(out, ending.sent),
            LogPart::DurationMicroseconds => push_decimal(out, ending.nanos / 1_000),
            LogPart::DurationMilliseconds => push_fraction(out, ending.nanos / 1_000, 1_000),
            LogPart::DurationSeconds => push_fraction(out, ending.nanos / 1_000, 1_000_000),
            LogPart::Time => out.extend_from_slice(&times.common),
            LogPart::TimeIso => out.extend_from_slice(&times.rfc3339),
            LogPart::TimeUnix => push_decimal(out, times.seconds.max(0) as u64),
            LogPart::RequestId => {
                push_value(out, entry.trace.and_then(|trace| trace.id()).unwrap_or_default().as_bytes())
            }
            LogPart::TraceId => push_value(out, entry.trace.map_or("", |trace| trace.trace_id()).as_bytes()),
            LogPart::Site => push_value(out, entry.trace.map_or("", |trace| trace.site()).as_bytes()),
            LogPart::Route => push_value(out, entry.trace.map_or("", |trace| trace.route()).as_bytes()),
            LogPart::Upstream => {
                push_tries(out, entry, |out, asked| push_value(out, asked.member().as_bytes()))
            }
            LogPart::UpstreamStatus => push_tries(out, entry, |out, asked| match asked.status() {
                Some(status) => push_decimal(out, u64::from(status)),
                None => out.push(b'-'),
            }),
            LogPart::UpstreamTime(stage, unit) => {
                push_tries(out, entry, |out, asked| match asked.nanos(*stage) {
                    Some(nanos) => push_fraction(
                        out,
                        nanos / 1_000,
                        match unit {
                            TimeUnit::Seconds => 1_000_000,
                            TimeUnit::Milliseconds => 1_000,
                        },
                    ),
                    None => out.push(b'-'),
                })
            }
            LogPart::Request(name) => push_value(out, entry.fields.first(name).unwrap_or_default()),
            LogPart::Response(name) => {
                push_value(out, ending.fields.and_then(|fields| fields.first(name)).unwrap_or_default());
            }
        }
    }
}

/// What there is to say of each member that was asked.
fn push_tries(out: &mut Vec<u8>, entry: &AccessRecord<'_>, mut push: impl FnMut(&mut Vec<u8>, &Asked<'_>)) {
    let start = out.len();
    if let Some(trace) = entry.trace {
        trace.each_try(|asked| {
            if out.len() > start {
                out.extend_from_slice(b", ");
            }
            push(out, asked);
        });
    }
    if out.len() == start {
        out.push(b'-');
    }
}

/// `12.345`: a number of `unit`ths, with all its digits.
pub(super) fn push_fraction(out: &mut Vec<u8>, number: u64, unit: u64) {
    push_decimal(out, number / unit);
    out.push(b'.');
    let mut rest = number % unit;
    let mut digit = unit / 10;
    while digit > 0 {
        out.push(b'0' + (rest / digit) as u8);
        rest %= digit;
        digit /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::EntryFields;
    use super::*;
    use crate::trace::Trace;
    use crate::user::{Identity, User};
    use std::rc::Rc;
    use std::sync::Arc;
    use tidegate_config::settings::{LogTarget, UpstreamStage};
    use tidegate_http::{Field, FieldLines, Fields};

    #[test]
    fn every_placeholder() {
        let fields = [Field { name: "x-a", value: b"in \"q\"\x1b" }];
        let identity = Rc::new(Identity::default());
        identity.certify(Arc::new(User { name: "anna \"b\"".into(), groups: Vec::new(), unlisted: None }));
        let trace = Trace::made(Some("a1"), "example.com", "/a*", &[("192.0.2.1:80", 0), ("a\x1b", 200)]);
        let entry = AccessRecord {
            scheme: "http",
            client: Peer::Tcp("[::ffff:192.0.2.7]:4711".parse().unwrap()),
            method: "GET",
            target: "/a%20b?c=d",
            authority: "example.com",
            version: tidegate_http::Version::Http11,
            referer: b"",
            user_agent: b"",
            tls: None,
            identity: Some(&identity),
            trace: Some(&trace),
            fields: EntryFields::All(Fields::new(&fields)),
        };
        let mut lines = FieldLines::default();
        lines.push("Content-Type", "text/plain");
        let ending = Ending {
            status: 206,
            received: 100,
            sent: 1250,
            overhead: 250,
            nanos: 1_002_003_004,
            fields: Some(&lines),
        };
        let times = Times {
            common: *b"10/Oct/2000:13:55:36 +0000",
            rfc3339: *b"2000-10-10T13:55:36Z",
            seconds: 971_186_136,
        };
        let cases = [
            (LogPart::Text("say \u{e9}".into()), "say \u{e9}"),
            (LogPart::Client, "192.0.2.7"),
            (LogPart::ClientName, "192.0.2.7"),
            (LogPart::ClientPort, "4711"),
            (LogPart::User, "anna \\x22b\\x22"),
            (LogPart::Scheme, "http"),
            (LogPart::TlsVersion, "-"),
            (LogPart::TlsCipher, "-"),
            (LogPart::Host, "example.com"),
            (LogPart::Method, "GET"),
            (LogPart::Target, "/a%20b?c=d"),
            (LogPart::Path, "/a%20b"),
            (LogPart::Query, "c=d"),
            (LogPart::Protocol, "HTTP/1.1"),
            (LogPart::Status, "206"),
            (LogPart::Bytes, "1000"),
            (LogPart::BytesIn, "100"),
            (LogPart::BytesOut, "1250"),
            (LogPart::DurationMicroseconds, "1002003"),
            (LogPart::DurationMilliseconds, "1002.003"),
            (LogPart::DurationSeconds, "1.002003"),
            (LogPart::Time, "10/Oct/2000:13:55:36 +0000"),
            (LogPart::TimeIso, "2000-10-10T13:55:36Z"),
            (LogPart::TimeUnix, "971186136"),
            (LogPart::RequestId, "a1"),
            (LogPart::Site, "example.com"),
            (LogPart::Route, "/a*"),
            (LogPart::Upstream, "192.0.2.1:80, unix:a\\x1b"),
            (LogPart::UpstreamStatus, "-, 200"),
            (LogPart::UpstreamTime(UpstreamStage::Connected, TimeUnit::Seconds), "-, 0.001000"),
            (LogPart::UpstreamTime(UpstreamStage::FirstByte, TimeUnit::Milliseconds), "-, 2.000"),
            (LogPart::UpstreamTime(UpstreamStage::Complete, TimeUnit::Milliseconds), "3.000, 3.000"),
            (LogPart::Request("X-A".into()), "in \\x22q\\x22\\x1b"),
            (LogPart::Request("X-B".into()), "-"),
            (LogPart::Response("content-type".into()), "text/plain"),
            (LogPart::Response("ETag".into()), "-"),
        ];
        for (part, expected) in cases {
            let mut out = Vec::new();
            push(
                &mut out,
                std::slice::from_ref(&part),
                &times,
                &entry,
                &ending,
                &Arc::default(),
                &mut Texts::to(&LogTarget::Stdout),
            );
            assert_eq!(String::from_utf8_lossy(&out), expected, "{part:?}");
        }
    }
}
