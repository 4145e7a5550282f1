//! The console as a whole, before a source that answers at once.

use super::*;
use crate::status::{Report, ServerInfo, TurnedAway};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};
use tidegate_config::settings::{Access, HostPattern};
use tidegate_core::gate::admit;
use tidegate_core::{Body, Head};
use tidegate_http::{Field, Fields};
use tidegate_io::LocalFuture;
use tidegate_stats::Snapshot;
use tidegate_stats::series::{SeriesFigures, SiteFigures};

struct Fake;

impl StatusSource for Fake {
    fn report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        let site = SiteFigures { name: "<a>".into(), ..SiteFigures::default() };
        let series = SeriesFigures { sites: vec![site], ..SeriesFigures::default() };
        let series = if report.has_series() { series } else { SeriesFigures::default() };
        let limit = TurnedAway { limit: "limits connections".into(), count: 3, ..TurnedAway::default() };
        let turned_away = vec![limit];
        let info = ServerInfo { version: "0.1.0".into(), series, turned_away, ..ServerInfo::default() };
        Box::pin(std::future::ready(Some(report.write(info, Snapshot::default()))))
    }

    fn admin(&self) -> LocalFuture<Option<OwnedFd>> {
        Box::pin(std::future::ready(None))
    }

    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>> {
        if question == "history 6h json" {
            return Box::pin(std::future::ready(vec!["{\"series\":{}}\n".to_owned()]));
        }
        if question.starts_with("history") {
            return Box::pin(std::future::ready(vec!["no such question".to_owned()]));
        }
        assert!(["requests", "slow"].contains(&question), "{question}");
        Box::pin(std::future::ready(vec![r#"{"count":1,"requests":[]}"#.to_owned()]))
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

fn ask(method: &str, target: &str, fields: &[(&str, &str)]) -> Answer {
    let fields: Vec<Field<'_>> =
        fields.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let host = fields.iter().find(|field| field.name == "Host");
    let mut exchange = Exchange {
        method: Method::from_token(method),
        method_token: method,
        target,
        path: path.as_bytes(),
        query,
        authority: host.map_or("a.test", |host| std::str::from_utf8(host.value).unwrap()),
        fields: Fields::new(&fields),
        ..Exchange::empty()
    };
    let names = Names::new([(&HostPattern::Exact("a.test".into()), 0)].into_iter());
    let console = Console::new(Rc::new(Fake), Rc::new(names), "/.console/", false);
    let pass = admit(&Access::default(), &exchange).unwrap();
    let response = match console.handle(&mut exchange, pass) {
        Reply::Ready(response) => response,
        Reply::Preparing(..) => panic!("it waits for no content"),
        Reply::Later(mut future) => match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => response,
            Poll::Pending => panic!("the source answers at once"),
        },
    };
    let Head::Fields(lines) = &response.head else { panic!("prebuilt") };
    let head = String::from_utf8(lines.as_bytes().to_vec()).unwrap();
    let body = match response.body {
        Body::Bytes(bytes) => bytes,
        _ => Vec::new(),
    };
    Answer { status: response.status.0, head, body }
}

#[test]
fn data_is_json_and_kept_by_nobody() {
    for (target, status, part) in [
        ("/.console/api/status", 200, r#""name":"<a>""#),
        ("/.console/api/status?x=1&sites=none", 200, r#""sites":[],"#),
        ("/.console/api/requests", 200, r#""count":1"#),
        ("/.console/api/slow", 200, r#""requests":[]"#),
        ("/.console/api/history?range=6h", 200, r#""series":"#),
        ("/.console/api/history", 404, r#""error":"#),
        ("/.console/api/history?range=9y", 404, r#""error":"#),
        ("/.console/api/nothing", 404, r#""error":"#),
        ("/.console/api/", 404, r#""error":"#),
    ] {
        let answer = ask("GET", target, &[("Sec-Fetch-Site", "same-origin")]);
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, status, "{target}: {body}");
        assert!(body.contains(part), "{target}: {body}");
        for line in [
            "Content-Type: application/json",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Cross-Origin-Resource-Policy: same-origin",
        ] {
            assert!(answer.head.lines().any(|have| have == line), "{target}: {line}: {}", answer.head);
        }
        assert!(answer.head.contains("default-src 'none'; script-src 'self';"), "{}", answer.head);
    }
}

#[test]
fn findings_are_those_of_the_report() {
    let answer = ask("GET", "/.console/api/findings", &[("Host", "localhost")]);
    assert_eq!(answer.status, 200);
    let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&told["findings"], &told["turned_away"][0]["limit"]),
        (&json!([]), &json!("limits connections"))
    );
}

#[test]
fn strangers_get_nothing() {
    for (method, target, fields, status) in [
        ("GET", "/.console/", &[("Host", "evil.example")][..], 403),
        ("GET", "/.console/api/status", &[("Host", "evil.example")], 403),
        ("GET", "/.console/api/status", &[("Sec-Fetch-Site", "cross-site")], 403),
        ("GET", "/.console/api/status", &[("Sec-Fetch-Site", "same-site")], 403),
        ("GET", "/.console/api/status", &[("Origin", "http://evil.example")], 403),
        ("GET", "/.console/api/status", &[("Origin", "http://a.test")], 200),
        ("GET", "/.console/api/status", &[("Sec-Fetch-Site", "none")], 200),
        // A link of another site may lead here.
        ("GET", "/.console/", &[("Sec-Fetch-Site", "cross-site")], 200),
        ("HEAD", "/.console/", &[], 200),
        ("POST", "/.console/api/status", &[], 405),
        ("DELETE", "/.console/", &[], 405),
        ("OPTIONS", "/.console/", &[], 204),
        ("GET", "/.console/nothing.js", &[], 404),
        ("GET", "/.console/../x", &[], 404),
        ("GET", "/elsewhere", &[], 404),
        ("GET", "/.console", &[], 301),
    ] {
        assert_eq!(ask(method, target, fields).status, status, "{method} {target} {fields:?}");
    }
}

/// Where the console was built its files are served; else a page that says what is missing.
#[test]
fn files_are_of_the_program() {
    let first = ask("GET", "/.console/", &[]);
    assert!(first.head.contains("Content-Type: text/html"), "{}", first.head);
    if assets::names().is_empty() {
        assert!(String::from_utf8(first.body).unwrap().contains("cargo xtask console"));
        return eprintln!("NOT TESTED: the files of the console, which is not built (cargo xtask console)");
    }
    for name in assets::names() {
        let target = format!("/.console/{name}");
        let plain = ask("GET", &target, &[]);
        let packed = ask("GET", &target, &[("Accept-Encoding", "br, gzip")]);
        assert!(packed.head.contains("Content-Encoding: gzip") && !plain.head.contains("Content-Encoding"));
        assert!(packed.body.len() < plain.body.len() && packed.body.starts_with(&[0x1f, 0x8b]), "{name}");
        let is_first = name == "index.html";
        assert_eq!(plain.head.contains("immutable"), !is_first && name != "licences.txt", "{name}");
        let tag = packed.head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
        let again = [("Accept-Encoding", "gzip"), ("If-None-Match", tag)];
        assert_eq!(ask("GET", &target, &again).status, 304, "{name}");
        assert_eq!(ask("GET", &target, &[("If-None-Match", tag)]).status, 200, "another form, {name}");
    }
    assert_eq!(ask("GET", "/.console/index.html", &[]).body, first.body);
}
