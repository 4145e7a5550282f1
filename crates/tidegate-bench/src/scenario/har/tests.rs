//! What recordings come to: one of Chromium, and what other browsers and the specification have.

use super::*;
use crate::scenario::load_text;
use serde_json::{Value, json};
use std::path::Path;

/// A visit of a shop, recorded by Chromium; fields that nobody reads are taken out.
const SHOP: &str = include_str!("shop.har");

/// What is made is a scenario, written the one way.
fn read(text: &str) -> Recording {
    let recording = Recording::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let loaded = load_text("har.kdl", &recording.scenario, Path::new("."), &BTreeMap::new());
    assert!(loaded.diagnostics.is_empty(), "{}\n{}", loaded.render(false), recording.scenario);
    assert_eq!(tidegate_config::format(&recording.scenario).as_ref(), Ok(&recording.scenario));
    recording
}

#[test]
fn a_recording_of_chromium() {
    let recording = read(SHOP);
    let (_, scenario) = recording.scenario.split_once('\n').unwrap();
    assert_eq!(scenario, include_str!("shop.kdl"));
    assert_eq!(recording.others, BTreeMap::from([("http://127.0.0.2:18481".to_owned(), 1)]));
    let counts = (recording.operations, recording.steps, recording.assets, recording.missing);
    assert_eq!(counts, (6, 7, 7, 0));
    assert_eq!((recording.left_out, recording.without_content), (5, 1));
}

/// A request with its answer, so many seconds after noon.
fn entry(at: f64, method: &str, url: &str, status: u16, kind: &str) -> Value {
    json!({
        "startedDateTime": format!("2026-11-28T12:00:{at:06.3}+01:00"),
        "time": 100,
        "request": { "method": method, "url": url, "httpVersion": "HTTP/2.0", "headers": [] },
        "response": { "status": status, "content": { "mimeType": kind }, "redirectURL": "" },
    })
}

fn file(entries: &[Value]) -> String {
    json!({ "log": { "version": "1.2", "entries": entries } }).to_string()
}

/// Without a word of the browser the type of the answer tells what is of a page.
#[test]
fn what_a_request_is_of() {
    let shown = |entries: &[Value]| {
        let recording = read(&file(entries));
        let steps = recording.scenario.lines().map(str::trim);
        let steps = steps.filter(|line| line.starts_with("get ") || line.starts_with("post "));
        let steps: Vec<&str> = steps.map(|line| line.trim_end_matches(" {")).collect();
        (steps.join("; "), recording.assets, recording.left_out)
    };
    let mut entries = vec![
        // Not in order.
        entry(2.0, "GET", "https://a.test/api", 200, "application/json"),
        entry(1.0, "GET", "https://a.test/", 200, "text/html; charset=utf-8"),
        entry(1.2, "GET", "https://a.test/a.css", 200, "text/css"),
        entry(1.3, "GET", "https://a.test/a.js", 404, "application/javascript"),
        entry(1.4, "GET", "https://a.test/a.woff2", 200, "font/woff2"),
        entry(1.4, "GET", "https://a.test/b.woff2?x", 404, "text/plain"),
        entry(1.4, "OPTIONS", "https://a.test/api", 204, ""),
        entry(1.4, "GET", "https://a.test/gone", 0, ""),
        entry(1.4, "GET", "data:image/png;base64,xx", 200, "image/png"),
    ];
    let all = ("get \"/\"; get \"/api\"".to_owned(), 2, 4);
    assert_eq!(shown(&entries), all);
    assert_eq!(read(&file(&entries)).missing, 1);
    assert!(read(&file(&entries)).scenario.contains("client h2"));
    // What Chromium's types and the fields of all browsers say goes before.
    for (kind, dest, steps) in [
        ("fetch", None, "get \"/\"; get \"/api\"; get \"/odd\""),
        ("ping", Some("empty"), "get \"/\"; get \"/api\""),
        ("image", None, "get \"/\"; get \"/api\""),
        ("other", Some("iframe"), "get \"/\"; get \"/api\"; get \"/odd\""),
        ("document", Some("image"), "get \"/\"; get \"/api\""),
    ] {
        let mut odd = entry(2.2, "GET", "https://a.test/odd", 200, "text/html");
        odd["_resourceType"] = kind.into();
        odd["request"]["headers"] =
            dest.map_or(json!([]), |dest| json!([{ "name": "Sec-Fetch-Dest", "value": dest }]));
        entries.push(odd);
        assert_eq!(shown(&entries).0, steps, "{kind} {dest:?}");
        entries.pop();
    }
}

/// Redirects are followed by the step before, unless they lead away.
#[test]
fn redirects_are_of_the_step_before() {
    let redirected = |mut from: Value, to: &str| {
        from["response"]["redirectURL"] = to.into();
        from
    };
    let recording = read(&file(&[
        redirected(entry(0.0, "GET", "http://a.test/", 301, ""), "https://a.test/"),
        redirected(entry(0.2, "GET", "https://a.test/", 302, ""), "home?x=1#top"),
        entry(0.4, "GET", "https://a.test/home?x=1", 200, "text/html"),
        redirected(entry(5.0, "POST", "https://a.test/pay", 303, ""), "https://bank.test/"),
        entry(5.2, "GET", "https://bank.test/", 200, "text/html"),
        entry(9.0, "GET", "https://a.test/home?x=1", 200, "text/html"),
    ]));
    assert_eq!(recording.target, "https://a.test");
    assert_eq!((recording.operations, recording.steps), (3, 3));
    let text = &recording.scenario;
    assert!(text.contains("sequence home post-pay home-2"), "{text}");
    assert!(text.contains("op home {\n    think fixed \"4500ms\"\n    get \"/\"\n}"), "{text}");
    assert!(text.contains("post \"/pay\" {\n        expect status=303\n    }"), "{text}");
    let others: Vec<_> = recording.others.into_iter().collect();
    assert_eq!(others, [("http://a.test".to_owned(), 1), ("https://bank.test".to_owned(), 1)]);
}

/// Whatever stands in a recording, it is a text of the scenario.
#[test]
fn whatever_was_sent_is_a_text() {
    let posted = |kind: &str, data: Value| {
        let mut sent = entry(3.0, "POST", "https://a.test/x y/{z}|\"?q=ä&r=${HOME}#top", 500, "text/html");
        sent["request"]["postData"] = data;
        sent["request"]["headers"] = json!([
            { "name": "Content-Type", "value": kind },
            { "name": ":authority", "value": "a.test" },
            { "name": "Cookie", "value": "s=1" },
            { "name": "X-CSRF-Token", "value": "a\"{b}\\$${C}\u{2028}" },
            { "name": "X-Odd", "value": "a\r\nb" },
        ]);
        read(&file(&[entry(0.0, "GET", "https://a.test/404", 200, "text/html"), sent])).scenario
    };
    let parts = json!({ "params": [
        { "name": "title", "value": "{x}" }, { "name": "image", "fileName": "C:\\a.png", "contentType": "image/png" },
    ] });
    let odd_parts = json!({ "params": [{ "name": "user[name]", "value": "x" }], "text": "--x" });
    let form = json!({ "params": [{ "name": "a b", "value": "ä&=" }, { "name": "c" }] });
    let binary = json!({ "mimeType": "image/png", "text": "AAAA", "_encoding": "base64" });
    let json = json!({ "mimeType": "application/json", "text": "{\"a\": \"\n{b}\"}" });
    for (kind, data, part) in [
        (
            "application/json;charset=UTF-8",
            json,
            "body=\"{{\\\"a\\\": \\\"\\n{{b}\\\"}\" type=\"application/json;charset=UTF-8\"",
        ),
        ("application/x-www-form-urlencoded", form, "form=\"a+b=%C3%A4%26%3D&c=\""),
        (
            "multipart/form-data; boundary=x",
            parts,
            "part \"title\" \"{{x}\"\n        // The file is not in the recording; this one is made up.\n        upload \"image\" file=\"a.png\" type=\"image/png\"",
        ),
        (
            "multipart/form-data; boundary=x",
            odd_parts,
            "// Its content, multipart/form-data, is not in the recording.",
        ),
        (
            "multipart/form-data; boundary=x",
            json!({ "params": [{ "name": "f", "value": "(binary)" }] }),
            "// The file is not in the recording; this one is made up.\n        upload \"f\"",
        ),
        (
            "multipart/form-data; boundary=x",
            json!({ "mimeType": "multipart/form-data; boundary=x", "text": "--x\r\n" }),
            "// Its content, multipart/form-data, is not in the recording.",
        ),
        ("image/png", binary, "// Its content, image/png, is not in the recording."),
        ("text/plain\nop", Value::Null, "// Its content, text/plain op, is not in the recording."),
    ] {
        let text = posted(kind, data);
        assert!(text.contains(part) && text.contains("op page-404 {"), "{kind}: {part}\n{text}");
        let scenario = load_text("har.kdl", &text, Path::new("."), &BTreeMap::new()).scenario.unwrap();
        let step = &scenario.operations[1].steps[0];
        // What is sent is what was sent.
        assert_eq!(step.path.constant(), Some("/x%20y/{z}|%22?q=%C3%A4&r=${HOME}"), "{text}");
        let fields = step.fields.iter().map(|(name, value)| (name.as_str(), value.constant().unwrap()));
        let fields: Vec<_> = fields.filter(|(name, _)| *name != "Content-Type").collect();
        assert_eq!(fields, [("X-CSRF-Token", "a\"{b}\\$${C}\u{2028}")], "{text}");
        assert!(step.expect.allows_status(500) && !step.expect.allows_status(200), "{text}");
    }
}

#[test]
fn what_is_no_recording_says_so() {
    let read = |text: &str| Recording::read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(read("<html>"), "it is no HAR");
    assert_eq!(read("{\"log\": {}}"), "it is no HAR");
    for entries in [vec![], vec![entry(0.0, "GET", "chrome://new-tab/", 200, "text/html")]] {
        assert!(read(&file(&entries)).starts_with("it holds no page"));
    }
    let marked = format!("\u{feff}{}", file(&[entry(0.0, "GET", "http://a.test/", 200, "")]));
    assert!(Recording::read(marked.as_bytes()).is_ok());
}

#[test]
fn dates_are_told_in_seconds() {
    let since = |date: &str| seconds(date).unwrap() - seconds("2026-02-28T23:59:59.5Z").unwrap();
    for (date, expected) in [
        ("2026-02-28T23:59:59.750Z", 0.25),
        ("2026-03-01T00:00:00.500Z", 1.0),
        ("2026-03-01T01:00:00.500+01:00", 1.0),
        ("2026-02-28T18:30:00.5-0530", 1.0),
        ("2027-02-28T23:59:59.5", 365.0 * 86_400.0),
        ("2028-03-01T23:59:59.5Z", (365.0 + 365.0 + 2.0) * 86_400.0),
    ] {
        assert!((since(date) - expected).abs() < 1e-3, "{date}: {}", since(date));
    }
    for odd in [
        "",
        "2026-11-28",
        "yesterdayTnoon",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00Z",
        "9999999999-1-1T1:1:1Z",
    ] {
        assert_eq!(seconds(odd), None, "{odd}");
    }
}
