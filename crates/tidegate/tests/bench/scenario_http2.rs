//! `tidegate bench run` with `client h2`: one connection for each user, and the resources of a page at once on it.

use super::http2::{Served2, frame, ok, peer2};
use super::peers::{Folder, Served, bench};
use super::scenarios::scenario;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

#[test]
fn a_page_and_its_resources_are_streams_of_one_connection() {
    let served = Served2::new();
    let root = |name: &str, text: &str| drop(served.served.folder.write(&format!("root/{name}"), text));
    let images: String = (0..12).map(|number| format!("<img class=thumb src=/{number}.png>")).collect();
    root(
        "page.html",
        &format!("<link rel=stylesheet href=/s.css><a class=next href=next.html>on</a>{images}"),
    );
    root("next.html", "<h1>Next</h1>");
    root("s.css", "a{}");
    (0..12).for_each(|number| root(&format!("{number}.png"), "picture"));
    let steps = "users 3 { steady \"600ms\" }; think fixed \"20ms\"; client h2 streams=4
        op walk p90=\"30s\" {
            get \"/page.html\" { assets; cached; count \"img.thumb\" mean=12; take next css=\"a.next\" attribute=href }
            get \"{next}\" { expect status=200 contains=\"Next\" header=\"Content-Type: text/html\" }
            post \"/page.html\" form=\"user={user}\" { expect status=405 }
            head \"/1k\" { expect header=\"Content-Length: 1024\" }
        }";
    let mut asked = 0;
    for target in [&served.served.url, &served.tls] {
        let folder = Folder::new();
        let file = scenario(&folder, target, steps);
        let outcome = bench(&["run", &file, "--insecure", "--no-host", "--json", "--no-keep"]);
        let report = outcome.json();
        assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
        assert_eq!(report["failed_operations"], serde_json::json!([]), "{report:#}");
        let walk = &report["operations"][0];
        assert!(walk["ended"].as_u64().is_some_and(|count| count >= 3) && walk["failed"] == 0, "{walk}");
        assert_eq!((&report["protocol"], &report["requests"]["connects"]), (&"h2".into(), &3.into()));
        // Who has a page and what it loads asks whether they have changed.
        let statuses = &report["requests"]["statuses"];
        assert!(statuses["304"].as_u64().is_some_and(|count| count >= 13), "{statuses}");
        let requests = &report["requests"];
        asked += requests["answered"].as_u64().unwrap() + requests["unmeasured"].as_u64().unwrap();
    }
    let lines = served.logged(asked as usize);
    assert_eq!(lines.len() as u64, asked);
    assert!(lines.iter().all(|line| line.starts_with("HTTP/2.0 ")), "{:?}", lines[0]);
}

/// What `hit` makes of these is the same.
#[test]
fn resets_and_goodbyes_fail_an_operation_or_are_sent_anew() {
    type Script = fn(usize, u32, &mut TcpStream);
    let cases: [(&str, Script); 7] = [
        ("stream_reset", |_, id, stream| drop(stream.write_all(&frame(3, 0, id, &[0, 0, 0, 2])))),
        // Turned away again and again.
        ("stream_reset", |_, id, stream| drop(stream.write_all(&frame(3, 0, id, &[0, 0, 0, 7])))),
        // Turned away once on each connection.
        ("", |_, id, stream| {
            let refused = frame(3, 0, id, &[0, 0, 0, 7]);
            drop(stream.write_all(&if id == 1 { refused } else { ok(id) }));
        }),
        // A goodbye after each answer, and one that has not read what came.
        ("", |number, id, stream| {
            let last = if number % 2 == 0 { 0 } else { id };
            let goodbye = frame(7, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
            let answer = if last == 0 { Vec::new() } else { ok(id) };
            drop(stream.write_all(&[answer, goodbye].concat()));
        }),
        // A connection that is gone when the second request comes: it may have been idle too long.
        ("", |_, id, stream| {
            if id == 1 {
                drop(stream.write_all(&ok(id)));
            } else {
                drop(stream.shutdown(Shutdown::Both));
            }
        }),
        ("go_away", |_, id, stream| {
            let goodbye = frame(7, 0, 0, &[id.to_be_bytes(), [0, 0, 0, 2]].concat());
            drop(stream.write_all(&goodbye));
            drop(stream.shutdown(Shutdown::Write));
        }),
        ("malformed", |_, id, stream| drop(stream.write_all(&frame(0, 1, id, b"no head")))),
    ];
    let folder = Folder::new();
    for (place, (kind, script)) in cases.into_iter().enumerate() {
        let url = peer2(script);
        let steps = "users 2 { steady \"300ms\" }; think fixed \"10ms\"; client h2; op a { get \"/\" }";
        let file = scenario(&folder, url.trim_end_matches('/'), steps);
        let report = bench(&["run", &file, "--no-host", "--json", "--no-keep"]).json();
        let of = &report["operations"][0];
        let (ended, failed) = (of["ended"].as_u64().unwrap(), of["failed"].as_u64().unwrap());
        assert!(ended > 2, "{place}: {report:#}");
        if kind.is_empty() {
            assert_eq!(failed, 0, "{place}: {report:#}");
        } else {
            assert_eq!(
                (failed, &report["requests"]["errors"][kind]),
                (ended, &ended.into()),
                "{place}: {report:#}"
            );
        }
    }
}

/// A server that takes few requests at once gets no more; one that answers nothing fails what waits.
#[test]
fn as_many_streams_as_the_server_takes() {
    let folder = Folder::new();
    let silent = peer2(|_, _, _| {});
    let steps =
        "users 2 { steady \"500ms\" }; think fixed \"10ms\"; client h2 timeout=\"100ms\"; op a { get \"/\" }";
    let file = scenario(&folder, silent.trim_end_matches('/'), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep"]).json();
    let of = &report["operations"][0];
    assert!(
        of["failed"] == of["ended"] && of["ended"].as_u64().is_some_and(|count| count >= 2),
        "{report:#}"
    );
    assert!(report["requests"]["errors"]["timeout"].as_u64().is_some_and(|count| count >= 2), "{report:#}");

    // HTTP/1.1 alone: one sentence before the run.
    let plain = Served::new();
    let file = scenario(&folder, &plain.url, steps);
    let outcome = bench(&["run", &file, "--no-host", "--no-keep"]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("does not speak HTTP/2 without TLS"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("`client h2`"), "{}", outcome.stderr);
}
