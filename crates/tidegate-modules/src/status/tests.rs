//! The page as a whole, before a source that answers at once.

use super::*;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};
use tidegate_config::settings::Access;
use tidegate_config::settings::HostPattern;
use tidegate_core::gate::admit;
use tidegate_core::{Body, Head};
use tidegate_http::{Field, Fields};

#[derive(Default)]
struct Fake {
    asked: RefCell<Vec<String>>,
    refuses: bool,
}

impl StatusSource for Fake {
    fn report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        let stats = tidegate_stats::Worker::default();
        stats.requests.add(42);
        let process = ProcessInfo {
            pid: 78,
            state: "serving".into(),
            started: 1_000_000_001,
            workers: 2,
            restarts: 1,
            requests: 42,
            ..ProcessInfo::default()
        };
        let info = ServerInfo {
            certificates: Vec::new(),
            is_draining: false,
            log_lines_lost: 0,
            log_losses: Default::default(),
            version: "0.1.0".into(),
            pid: 77,
            started: 1_000_000_000,
            now: 1_000_000_061,
            now_millis: 250,
            workers: 2,
            revision: 3,
            listeners: vec!["[::]:80".into()],
            sites: vec!["<b>example.com</b>".into()],
            processes: vec![process],
            process_restarts: 1,
            pools: Vec::new(),
            times: Vec::new(),
            upstreams: Vec::new(),
            stores: Vec::new(),
            rates: Vec::new(),
            providers: Vec::new(),
            in_force: InForce::default(),
            series: SeriesFigures::default(),
            findings: Vec::new(),
            turned_away: Vec::new(),
            by_worker: Vec::new(),
            lanes: Vec::new(),
            left_out: Vec::new(),
            used: Used { cpu_micros: 12_345_678, resident: 4096, descriptors: 17 },
            limit_store: None,
            otlp: Some(OtlpReport::default()),
            used_by_master: Used::default(),
        };
        Box::pin(std::future::ready(Some(report.write(info, stats.snapshot()))))
    }

    fn admin(&self) -> LocalFuture<Option<OwnedFd>> {
        Box::pin(std::future::ready(None))
    }

    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>> {
        self.asked.borrow_mut().push(question.into());
        let answer = match question {
            "cache report" => r#"{"enabled":true,"entries":4,"hits":1,"misses":0}"#,
            "cache list" => r#"[{"path":"/<script>","flags":"C","size":9}]"#,
            _ if self.refuses => "<no>",
            _ => "ok",
        };
        Box::pin(std::future::ready(vec![answer.to_string(), answer.to_string()]))
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn has(&self, line: &str) -> bool {
        self.head.lines().any(|have| have == line)
    }
}

fn ask(source: &Rc<Fake>, method: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    let fields: Vec<Field<'_>> =
        fields.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut exchange = Exchange {
        method: Method::from_token(method),
        method_token: method,
        target,
        path: path.as_bytes(),
        query,
        authority: "example.com:8080",
        fields: Fields::new(&fields),
        ..Exchange::empty()
    };
    let page = StatusPage::new(
        source.clone(),
        Rc::new(Names::new([(&HostPattern::Exact("example.com".into()), 0)].into_iter())),
    );
    let pass = admit(&Access::default(), &exchange).unwrap();
    let response = match page.handle(&mut exchange, pass) {
        Reply::Ready(response) => response,
        Reply::Preparing(..) => panic!("a report waits for no content"),
        Reply::Later(mut future) => match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => response,
            Poll::Pending => panic!("the source answers at once"),
        },
    };
    let Head::Fields(lines) = &response.head else { panic!("prebuilt") };
    let head = String::from_utf8(lines.as_bytes().to_vec()).unwrap();
    let body = match response.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    };
    Answer { status: response.status.0, head, body }
}

#[test]
fn forms() {
    let prometheus = "text/plain; version=0.0.4; charset=utf-8";
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let protobuf =
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    for (target, accept, media_type) in [
        ("/.perf", None, "text/html; charset=utf-8"),
        ("/.perf", Some("*/*"), "text/html; charset=utf-8"),
        ("/.perf", Some("text/html,application/xhtml+xml,*/*;q=0.8"), "text/html; charset=utf-8"),
        ("/.perf", Some("application/json"), "application/json"),
        ("/.perf", Some("text/plain"), "text/plain; charset=utf-8"),
        ("/.perf", Some("text/plain;version=0.0.4"), prometheus),
        ("/.perf", Some(scraper), openmetrics),
        ("/.perf?format=openmetrics", None, openmetrics),
        ("/.perf?format=protobuf", None, protobuf),
        ("/.perf", Some(&format!("{protobuf},{scraper}")), protobuf),
        (
            "/.perf",
            Some(
                "application/vnd.google.protobuf;proto=another;encoding=delimited,text/plain;version=0.0.4;q=0.1",
            ),
            prometheus,
        ),
        ("/.perf?format=xml", Some("text/html"), "application/xml; charset=utf-8"),
        ("/.perf.xml", None, "application/xml; charset=utf-8"),
        ("/.perf", Some("image/png"), "text/html; charset=utf-8"),
        ("/.perf?format=json", Some("text/html"), "application/json"),
        ("/.perf?format=text&other=1", None, "text/plain; charset=utf-8"),
        ("/.perf?format=prometheus", None, prometheus),
        ("/.perf/status.json", None, "application/json"),
        ("/.perf/metrics", Some("*/*"), prometheus),
        ("/.perf?cache&format=json", None, "application/json"),
        ("/.perf?list&format=text", None, "text/plain; charset=utf-8"),
        ("/.perf?findings", None, "text/plain; charset=utf-8"),
        ("/.perf?findings&format=json", None, "application/json"),
    ] {
        let fields: Vec<_> = accept.map(|value| ("Accept", value)).into_iter().collect();
        let answer = ask(&Rc::default(), "GET", target, &fields);
        assert_eq!(answer.status, 200, "{target}");
        assert!(answer.has(&format!("Content-Type: {media_type}")), "{target} {accept:?}: {}", answer.head);
        assert!(answer.has("Cache-Control: no-store"));
        if media_type == "application/json" {
            let value: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            assert!(value.is_object());
        }
    }
    for target in [
        "/.perf?format=yaml",
        "/.perf?findings&format=xml",
        "/.perf?format=prometheus&busiest",
        "/.perf?refresh=x",
        "/.perf?refresh=-1",
    ] {
        assert_eq!(ask(&Rc::default(), "GET", target, &[]).status, 400, "{target}");
    }
}

#[test]
fn the_report_on_the_server() {
    let page = ask(&Rc::default(), "GET", "/.perf?refresh=5", &[]);
    assert!(page.has("Refresh: 5"), "{}", page.head);
    for part in ["1 min 1 s", "2001-09-09T01:46:40Z", "[::]:80", "Total Requests</th><td>42<", "process 77"] {
        assert!(page.body.contains(part), "{part}");
    }
    assert!(page.body.contains("&lt;b&gt;example.com") && !page.body.contains("<b>"));
    assert!(!page.body.contains("<script"));

    let text = ask(&Rc::default(), "GET", "/.perf?format=text", &[]).body;
    assert!(text.starts_with("Tidegate 0.1.0 pid: 77\n"), "{text}");
    assert!(text.contains("ConnectionQueue:\n-----\n"));

    let json = ask(&Rc::default(), "GET", "/.perf?format=json", &[]).body;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["server"]["uptime"], &value["server"]["process_restarts"]), (&61.into(), &1.into()));
    assert_eq!(value["findings"], serde_json::json!([]), "always there");
    assert_eq!(value["stats"]["requests"], 42);
    assert!(!ask(&Rc::default(), "GET", "/.perf?refresh=0", &[]).head.contains("Refresh"));
}

#[test]
fn the_report_on_the_cache() {
    let fake = Rc::<Fake>::default();
    let page = ask(&fake, "GET", "/.perf?cache", &[]).body;
    assert_eq!(*fake.asked.borrow(), ["cache report"]);
    for part in ["The file cache is enabled.", "CacheEntries</th><td>8<", "Stop the cache", "method=\"post\""]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("Start the cache"));

    let list = ask(&fake, "GET", "/.perf?cache&list", &[]).body;
    assert!(list.contains("/&lt;script&gt;") && !list.contains("<script"));
    let json = ask(&fake, "HEAD", "/.perf?list&format=json", &[]).body;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["list"][0]["workers"], 2);
    assert_eq!(value["cache"]["entries"], 8);
}

#[test]
fn only_a_post_from_here_changes_anything() {
    let own: &[(&str, &str)] = &[("Origin", "http://example.com:8080"), ("Sec-Fetch-Site", "same-origin")];
    for (method, fields, status) in [
        ("GET", own, 405),
        ("HEAD", own, 405),
        ("PUT", own, 405),
        ("OPTIONS", own, 204),
        ("POST", &[("Sec-Fetch-Site", "cross-site")], 403),
        ("POST", &[("Sec-Fetch-Site", "same-site")], 403),
        ("POST", &[("Origin", "http://evil.example")], 403),
        ("POST", &[("Origin", "http://example.com")], 403),
        ("POST", &[("Origin", "null")], 403),
        ("POST", &[("Origin", "http://example.com:8080"), ("Origin", "http://evil.example")], 403),
        ("POST", own, 303),
        ("POST", &[], 303),
        ("POST", &[("Sec-Fetch-Site", "none")], 303),
    ] {
        let fake = Rc::<Fake>::default();
        let answer = ask(&fake, method, "/.perf?cache&stop", fields);
        assert_eq!(answer.status, status, "{method} {fields:?}");
        let expected: &[&str] = if status == 303 { &["cache stop"] } else { &[] };
        assert_eq!(*fake.asked.borrow(), expected, "{method} {fields:?}");
        if status == 405 {
            assert!(answer.has("Allow: POST"), "{method}");
        }
        if status == 303 {
            assert!(answer.has("Location: ?cache"));
        }
    }
    let asked = ask(&Rc::default(), "GET", "/.perf?restart", &[]).body;
    assert!(asked.contains("<button>Restart the cache</button>"), "{asked}");
    assert_eq!(ask(&Rc::default(), "POST", "/.perf", &[]).status, 405);
    assert_eq!(ask(&Rc::default(), "DELETE", "/.perf?cache", &[]).status, 405);
}

#[test]
fn a_change_that_fails_is_told() {
    let fake = Rc::new(Fake { refuses: true, ..Fake::default() });
    let answer = ask(&fake, "POST", "/.perf?cache&start", &[]);
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("2 of 2 workers") && answer.body.contains("&lt;no&gt;"), "{}", answer.body);
    let answer = ask(&Rc::default(), "POST", "/.perf?restart&format=json", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"workers\":2}\n"));
}

#[test]
fn explaining() {
    let mut said = Vec::new();
    let page = StatusPage::new(Rc::<Fake>::default(), Rc::default());
    for query in [None, Some("cache"), Some("stop"), Some("format=x")] {
        let exchange = Exchange { query, ..Exchange::empty() };
        page.explain(&exchange, &mut |sentence| said.push(sentence));
    }
    assert_eq!(said.len(), 4);
    assert!(said[0].contains("server") && said[1].contains("file cache") && said[2].contains("POST"));
}

#[test]
fn the_fields_are_those_that_are_told_before() {
    let page = StatusPage::new(Rc::<Fake>::default(), Rc::default());
    for query in [
        "",
        "cache",
        "list",
        "findings",
        "slow&format=json",
        "format=json",
        "format=prometheus&refresh=9",
        "cache&refresh=9",
        "refresh=0",
    ] {
        let exchange = Exchange { query: Some(query), ..Exchange::empty() };
        let Foreseen::Head(foreseen) = page.explain(&exchange, &mut |_| {}) else {
            panic!("{query}: not foreseen")
        };
        let answer = ask(&Rc::default(), "GET", &format!("/.perf?{query}"), &[]);
        let Head::Fields(lines) = &foreseen.head else { panic!("prebuilt") };
        let told = String::from_utf8(lines.as_bytes().to_vec()).unwrap();
        assert_eq!((foreseen.status.0, told), (answer.status, answer.head), "{query}");
    }
}

#[test]
fn a_name_that_is_not_ours_may_be_anybodys() {
    let names = [HostPattern::Exact("a.test".into()), HostPattern::Suffix(".b.test".into())];
    let names = Names::new(names.iter().map(|name| (name, 0)));
    for (authority, is_ours) in [
        ("", true),
        ("127.0.0.1:8080", true),
        ("10.1.2.3", true),
        ("[::1]:80", true),
        ("localhost", true),
        ("LocalHost:8080", true),
        ("x.localhost.", true),
        ("A.test:80", true),
        ("a.test.", true),
        ("x.b.test", true),
        ("b.test", false),
        ("evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("a.test.evil.example:8080", false),
        ("notlocalhost", false),
        ("0x7f.1", false),
    ] {
        assert_eq!(is_our_host(authority, &names), is_ours, "{authority}");
    }
}
