//! What a server tells collectors of OpenTelemetry, and what it does about those that are slow, away or hostile.

mod running;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use running::{Folder, Server, get, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use tidegate_testkit::receive;

/// What came to a collector.
struct Told {
    head: String,
    body: Vec<u8>,
}

/// A collector of this test: answers each message with the next of `answers`, and with the last one from then on.
fn collector(answers: Vec<Vec<u8>>) -> (String, Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, told) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        let mut last = Vec::new();
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            while let Some(message) = message(&mut stream) {
                last = answers.next().unwrap_or(last);
                let _ = stream.get_mut().write_all(&last);
                if sender.send(message).is_err() {
                    return;
                }
                if !last.starts_with(b"HTTP/1.1 200") {
                    break;
                }
            }
        }
    });
    (address, told)
}

fn message(stream: &mut BufReader<TcpStream>) -> Option<Told> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length?];
    stream.read_exact(&mut body).ok()?;
    Some(Told { head, body })
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn answer(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

fn attribute(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

/// A server with a collector and a site that answers `/x`.
fn server<'f>(folder: &'f Folder, collector: &str, more: &str) -> Server<'f> {
    let text = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\nstatistics {{ otlp \"http://{collector}/base/\" interval=\"1s\" {more} }}\n\
         site \"a.test\" \"localhost\" {{ respond 404; route \"/x\" {{ respond 200 \"x\" }} }}\n"
    );
    Server::with_config(folder, &text)
}

/// What is counted of messages: those that were taken, and those that were lost.
fn counted(server: &Server<'_>) -> (u64, u64) {
    let said = server.tell(&["status", "--prometheus"]).stdout;
    let count = |name: &str| {
        let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {said}"))
    };
    (count("tidegate_otlp_messages_total"), count("tidegate_otlp_lost_total"))
}

#[test]
fn a_collector_is_told_all_metrics() {
    let folder = Folder::new("otlp-metrics");
    let headers = folder.write("fields", "# of the test\nAuthorization: Bearer s3cret\nx-scope: a b\n");
    let (address, told) = collector(vec![ok(&[])]);
    let server = server(&folder, &address, &format!("service=\"web\" headers=\"{headers}\""));
    for _ in 0..5 {
        get(&server.address, "/x").unwrap();
    }
    // What nobody knows has no name of its own.
    for method in ["BREW", "OPEN-SESAME"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let _ = write!(stream, "{method} /y HTTP/1.0\r\nHost: a.test\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let message = wait_for(
        || {
            let told = receive(&told, "a message");
            let head = told.head.to_ascii_lowercase();
            for line in [
                "post /base/v1/metrics http/1.1\r\n",
                "content-type: application/x-protobuf\r\n",
                "authorization: bearer s3cret\r\n",
                "x-scope: a b\r\n",
            ] {
                assert!(head.contains(line), "{line} in {head}");
            }
            let message = ExportMetricsServiceRequest::decode(&told.body[..]).unwrap();
            let is_whole = requests(&message) == Some(5.0) && durations(&message).len() == 2;
            is_whole.then_some(message)
        },
        "all requests to be told",
    );
    let resource = message.resource_metrics[0].resource.clone().unwrap();
    assert!(resource.attributes.contains(&attribute("service.name", "web")), "{resource:?}");
    for name in ["service.instance.id", "service.version", "host.name"] {
        assert!(resource.attributes.iter().any(|known| known.key == name), "{name}");
    }
    let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
    let duration = metrics.iter().find(|metric| metric.name == "http.server.request.duration").unwrap();
    let Some(Data::ExponentialHistogram(histogram)) = &duration.data else { panic!("{duration:?}") };
    let conventional = |route: &str, method: &str, version: &str, status: i64| {
        let value = Some(AnyValue { value: Some(Value::IntValue(status)) });
        let status = KeyValue { key: "http.response.status_code".into(), value, ..KeyValue::default() };
        vec![
            attribute("server.address", "a.test"),
            attribute("http.route", route),
            attribute("http.request.method", method),
            attribute("url.scheme", "http"),
            attribute("network.protocol.version", version),
            status,
        ]
    };
    let all: Vec<_> =
        histogram.data_points.iter().map(|point| (point.attributes.clone(), point.count)).collect();
    let (asked, odd) = (conventional("/x", "GET", "1.1", 200), conventional("/*", "_OTHER", "1.0", 404));
    assert_eq!(all, [(asked.clone(), 5), (odd, 2)]);
    let point = histogram.data_points.iter().find(|point| point.attributes == asked).unwrap();
    let positive = point.positive.clone().unwrap();
    assert_eq!((duration.unit.as_str(), point.count, point.scale), ("s", 5, 3));
    assert_eq!(positive.bucket_counts.iter().sum::<u64>() + point.zero_count, 5);
    // All of them lie between a microsecond and a minute.
    assert!(
        positive.offset >= -160 && positive.offset + (positive.bucket_counts.len() as i32) < 48,
        "{positive:?}"
    );
    assert!(point.time_unix_nano >= point.start_time_unix_nano && point.start_time_unix_nano > 0);
    wait_for(|| (counted(&server).0 > 0).then_some(()), "it to be counted");
}

/// How many histograms the requests are told in.
fn durations(message: &ExportMetricsServiceRequest) -> Vec<u64> {
    let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
    let metric = metrics.iter().find(|metric| metric.name == "http.server.request.duration");
    let Some(Data::ExponentialHistogram(histogram)) = metric.and_then(|metric| metric.data.as_ref()) else {
        return Vec::new();
    };
    histogram.data_points.iter().map(|point| point.count).collect()
}

fn requests(message: &ExportMetricsServiceRequest) -> Option<f64> {
    let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
    let metric = metrics.iter().find(|metric| metric.name == "tidegate.requests")?;
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    let of_route = [attribute("site", "a.test"), attribute("route", "/x"), attribute("class", "2xx")];
    let point = sum.data_points.iter().find(|point| point.attributes == of_route)?;
    match point.value {
        Some(Number::AsDouble(value)) => Some(value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_taken_is_counted_and_told_once() {
    let folder = Folder::new("otlp-refused");
    let partial =
        ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "too \x1bold".into() };
    let partial = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let (address, told) = collector(vec![
        answer("503 Service Unavailable", "Retry-After: 1\r\n"),
        answer("307 Temporary Redirect", "Location: http://127.0.0.1:1/\r\n"),
        answer("307 Temporary Redirect", "Location: http://127.0.0.1:1/\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
        b"\0not HTTP\r\n\r\n".to_vec(),
        ok(&partial),
        ok(&[]),
    ]);
    let mut server = server(&folder, &address, "timeout=\"500ms\"");
    server.line("it answers 503");
    server.line("it answers 307, and redirects are not followed");
    server.line("has not taken all metrics: 3 were rejected: \"too old\"");
    server.line("takes metrics again");
    for _ in 0..7 {
        receive(&told, "a message");
    }
    let (taken, lost) = counted(&server);
    assert!(taken >= 2 && lost >= 4, "{taken} {lost}");
    assert_eq!(get(&server.address, "/x").unwrap(), "x");
}

#[test]
fn a_collector_that_never_answers_holds_up_nothing() {
    let folder = Folder::new("otlp-silent");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut server = server(&folder, &address, "timeout=\"60s\"");
    let held = silent.accept().unwrap(); // the message is on its way
    assert_eq!(get(&server.address, "/x").unwrap(), "x");
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(counted(&server), (0, 0));
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    drop(held);
}

/// However long the interval is.
#[test]
fn what_was_not_told_yet_is_told_when_the_server_stops() {
    let folder = Folder::new("otlp-last");
    let (address, told) = collector(vec![ok(&[])]);
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nstatistics {{ otlp \"http://{address}/base\" interval=\"10m\" }}\n\
         trace-context begin sample=\"100%\"\nsite \"a.test\" \"localhost\" {{ respond 404; route \"/x\" {{ respond 200 \"x\" }} }}\n"
    );
    let mut server = Server::with_config(&folder, &text);
    receive(&told, "the first message");
    (0..3).for_each(|_| drop(get(&server.address, "/x").unwrap()));
    server.signal(rustix::process::Signal::TERM);
    let last = receive(&told, "the last message");
    assert!(last.head.starts_with("POST /base/v1/metrics "), "{}", last.head);
    let metrics = ExportMetricsServiceRequest::decode(&last.body[..]).unwrap();
    assert_eq!(requests(&metrics), Some(3.0));
    assert_eq!(spans(&told).len(), 3);
    assert!(server.wait().success());
}

/// The spans of the first message that has any.
fn spans(told: &Receiver<Told>) -> Vec<Span> {
    wait_for(
        || {
            let told = receive(told, "a message");
            let message = ExportTraceServiceRequest::decode(&told.body[..]).ok();
            let message = message.filter(|_| told.head.starts_with("POST /base/v1/traces "))?;
            Some(message.resource_spans[0].scope_spans[0].spans.clone())
        },
        "spans",
    )
}

#[test]
fn a_sampled_request_is_a_span_and_its_tries_are_below_it() {
    let folder = Folder::new("otlp-traces");
    // The collector is away at first: what was sampled until it is back is told then.
    let (address, told) = collector(vec![answer("503 Service Unavailable", "Retry-After: 1\r\n"), ok(&[])]);
    // The member that is asked first breaks off, and the other one answers.
    let heads = Arc::new(Mutex::new(Vec::new()));
    let members = [(); 2].map(|()| {
        let application = TcpListener::bind("127.0.0.1:0").unwrap();
        let member = application.local_addr().unwrap();
        let heads = heads.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(application.accept().unwrap().0);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).unwrap();
            }
            let mut heads = heads.lock().unwrap();
            heads.push(head);
            if heads.len() > 1 {
                let answer = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.get_mut().write_all(answer).unwrap();
            }
        });
        member
    });
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nstatistics {{ otlp \"http://{address}/base\" interval=\"1s\" }}\n\
         trusted-proxies \"127.0.0.1\"\ntrace-context begin sample=\"0%\"\n\
         upstream \"app\" {{ member \"{}\"; member \"{}\" }}\n\
         site {{ respond 200 \"x\"; route \"/app/*\" {{ proxy \"app\" }} }}\n",
        members[0], members[1]
    );
    let server = Server::with_config(&folder, &text);
    let parent = "00f067aa0ba902b7";
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    // The first question makes workers keep what is sampled: it has been asked when there is a first message.
    receive(&told, "a message");
    get(&server.address, "/not-sampled").unwrap();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let request = format!(
        "GET /app/a%20b?c=d HTTP/1.1\r\nHost: a.test\r\nUser-Agent: test\r\ntraceparent: 00-{trace}-{parent}-01\r\n\
         tracestate: a=1\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answered = String::new();
    stream.read_to_string(&mut answered).unwrap();
    assert!(answered.starts_with("HTTP/1.1 500 "), "{answered}");
    let told = spans(&told);
    let [server_span, broken_off, client_span] = &told[..] else { panic!("{told:?}") };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (hex(&server_span.trace_id).as_str(), hex(&server_span.parent_span_id).as_str()),
        (trace, parent)
    );
    // What an application does hangs below the span in which it was asked.
    let heads = heads.lock().unwrap();
    for (head, span) in heads.iter().zip([broken_off, client_span]) {
        let passed = format!("traceparent: 00-{trace}-{}-01\r\n", hex(&span.span_id));
        assert!(head.to_ascii_lowercase().contains(&passed), "{passed} in {head}");
        assert_eq!((span.kind, &span.parent_span_id), (i32::from(SpanKind::Client), &server_span.span_id));
    }
    assert_eq!(heads.len(), 2);
    assert_eq!(server_span.kind, i32::from(SpanKind::Server));
    assert!(broken_off.attributes.contains(&attribute("error.type", "no_answer")), "{broken_off:?}");
    for (span, name, value) in [
        (server_span, "http.request.method", "GET"),
        (server_span, "url.scheme", "http"),
        (server_span, "url.path", "/app/a%20b"),
        (server_span, "http.route", "/app/*"),
        (client_span, "http.request.method", "GET"),
        (client_span, "url.full", "http://a.test/app/a%20b?c=d"),
    ] {
        assert!(span.attributes.contains(&attribute(name, value)), "{name} in {span:?}");
    }
    assert_eq!((server_span.name.as_str(), server_span.trace_state.as_str()), ("GET /app/*", "a=1"));
    assert!(server_span.attributes.contains(&attribute("user_agent.original", "test")), "{server_span:?}");
    assert_eq!(server_span.status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(client_span.name, "GET");
    assert!(client_span.attributes.contains(&attribute("server.address", "127.0.0.1")), "{client_span:?}");
    assert!(client_span.start_time_unix_nano >= server_span.start_time_unix_nano);
    assert!(client_span.end_time_unix_nano <= server_span.end_time_unix_nano);
    let said = || server.tell(&["status", "--prometheus"]).stdout;
    wait_for(|| said().contains("\ntidegate_otlp_spans_total 1\n").then_some(()), "the span to be counted");
    assert!(said().contains("\ntidegate_otlp_spans_lost_total 0\n"));
}

/// What is counted goes on behind an upgrade.
#[test]
fn an_upgrade_keeps_what_was_counted_of_messages() {
    let folder = Folder::new("otlp-upgrade");
    let (address, told) = collector(vec![ok(&[])]);
    let text = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\nstatistics {{ otlp \"http://{address}/base\" interval=\"10m\" }}\n\
         site \"a.test\" \"localhost\" {{ respond 404; route \"/x\" {{ respond 200 \"x\" }} }}\n"
    );
    let server = Server::with_config(&folder, &text);
    receive(&told, "the first message");
    wait_for(|| (counted(&server) == (1, 0)).then_some(()), "the first message to be counted");
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    receive(&told, "the first message of the new process");
    wait_for(|| (counted(&server).0 >= 2).then_some(()), "both to be counted");
}
