//! `tidegate bench run` with `client h2`: one connection for each user, and the resources of a page at once on it.

use super::http2::{Served2, frame, ok, peer2};
use super::peers::{Folder, Served, bench};
use super::scenarios::scenario;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
    let steps = "users 3 { steady \"2s\" }; think fixed \"20ms\"; client h2 streams=4
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
        let outcome = bench(&["run", &file, "--no-host", "--json", "--no-keep"]);
        let report = outcome.json();
        let of = &report["operations"][0];
        let (ended, failed) = (of["ended"].as_u64().unwrap(), of["failed"].as_u64().unwrap());
        assert!(ended > 2, "{place}: {report:#}");
        // What the server turns away, or closes the connection of, is sent again, and told: more than one of a hundred is too much.
        let again = report["requests"]["sent_again"].as_u64().unwrap();
        assert_eq!(again > 0, matches!(place, 1..=4), "{place}: {report:#}");
        // A server may end a connection with a goodbye, and refuse what comes before it has said how much it takes.
        let is_fault = matches!(place, 1 | 4);
        assert_eq!(
            outcome.stderr.contains("requests were sent again, since"),
            is_fault,
            "{}",
            outcome.stderr
        );
        assert!(!is_fault || matches!(outcome.code, 98 | 99), "{place}: {}", outcome.stderr);
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

/// Where a resource of a page fails, the others on its connection are answered and count.
#[test]
fn figures_equal_the_servers_where_a_resource_fails() {
    let sent = Arc::new(AtomicU64::new(0));
    let (of_server, folder) = (sent.clone(), Folder::new());
    let url = peer2(move |_, id, stream| {
        let answer = |head: &[u8], id| [frame(1, 4, id, head), frame(0, 1, id, b"text")].concat();
        let reply = match id / 2 % 4 {
            0 => {
                let html = [&[0x88, 0x0f, 0x10, 9], &b"text/html"[..]].concat();
                let page = b"<img src=/a><img src=/b><img src=/c>";
                [frame(1, 4, id, &html), frame(0, 1, id, page)].concat()
            }
            // `:status: 404`, before the two that came before it.
            3 => [answer(&[0x8d], id), answer(&[0x88], id - 4), answer(&[0x88], id - 2)].concat(),
            _ => return,
        };
        of_server.fetch_add(reply.len() as u64, Relaxed);
        let _ = stream.write_all(&reply);
    });
    let steps =
        "users 2 { steady \"500ms\" }; think fixed \"10ms\"; client h2; op a { get \"/\" { assets } }";
    let file = scenario(&folder, url.trim_end_matches('/'), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1m"]).json();
    let (of, requests) = (&report["operations"][0], &report["requests"]);
    let pages = of["ended"].as_u64().unwrap();
    assert!(pages > 2 && of["failed"] == pages, "{report:#}");
    assert_eq!(requests["statuses"], serde_json::json!({ "200": 3 * pages, "404": pages }));
    assert_eq!((&requests["unmeasured"], &requests["connects"]), (&0.into(), &2.into()));
    // Each connection has an empty SETTINGS besides.
    assert_eq!(requests["bytes"], sent.load(Relaxed) + 18);
}

/// A request whose time is over fails its operation; another on the same connection, of which something comes now and then, is answered
/// and counts.
#[test]
fn one_stream_that_is_never_answered_is_one_request() {
    let folder = Folder::new();
    let url = peer2(move |_, id, stream| {
        let html = [&[0x88, 0x0f, 0x10, 9], &b"text/html"[..]].concat();
        match id {
            1 => {
                let page = b"<img src=/a><img src=/b>";
                let _ = stream.write_all(&[frame(1, 4, id, &html), frame(0, 1, id, page)].concat());
            }
            3 => {}
            _ => {
                let _ = stream.write_all(&frame(1, 4, id, &[0x88]));
                for _ in 0..15 {
                    std::thread::park_timeout(Duration::from_millis(200));
                    let _ = stream.write_all(&frame(0, 0, id, b"a piece"));
                }
                let _ = stream.write_all(&frame(0, 1, id, b"the end"));
            }
        }
    });
    let steps = "users 1 { steady \"100ms\" }; think fixed \"1s\"; client h2 timeout=\"2s\"; op a { get \"/\" { assets } }";
    let file = scenario(&folder, url.trim_end_matches('/'), steps);
    let report = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1m"]).json();
    let requests = &report["requests"];
    assert_eq!((&requests["answered"], &requests["errors"]["timeout"]), (&2.into(), &1.into()), "{report:#}");
    assert_eq!((&report["operations"][0]["failed"], &requests["connects"]), (&1.into(), &1.into()));
}

/// What a server does behind its answers, where no request fails for it.
#[test]
fn rules_that_a_server_breaks_between_requests_fail_the_run() {
    let folder = Folder::new();
    type Fault = fn(u32) -> Vec<u8>;
    let cases: [(&str, Fault); 10] = [
        ("DATA frame on a closed stream", |id| frame(0, 1, id, b"surplus")),
        ("HEADERS frame on a closed stream", |id| frame(1, 5, id, &[0x88])),
        ("DATA frame on an idle stream", |id| frame(0, 1, id + 100, b"surplus")),
        ("HEADERS frame on stream 0", |_| frame(1, 5, 0, &[0x88])),
        ("WINDOW_UPDATE by 0", |_| frame(8, 0, 0, &[0; 4])),
        ("PING frame of a wrong length", |_| frame(6, 0, 0, &[0])),
        ("setting 2 has an invalid value", |_| frame(4, 0, 0, &[0, 2, 0, 0, 0, 9])),
        ("the initial window is above", |_| frame(4, 0, 0, &[0, 4, 255, 255, 255, 255])),
        ("CONTINUATION frame outside of a field block", |id| frame(9, 4, id, &[])),
        ("PUSH_PROMISE frame", |id| frame(5, 4, id, &[0, 0, 0, 2, 0x88])),
    ];
    for (rule, fault) in cases {
        let url = peer2(move |_, id, stream| drop(stream.write_all(&[ok(id), fault(id)].concat())));
        let steps = "users 2 { steady \"200ms\" }; think fixed \"10ms\"; client h2; op a p90=\"1m\" { get \"/\"; get \"/\" }";
        let file = scenario(&folder, url.trim_end_matches('/'), steps);
        let run = bench(&["run", &file, "--no-host", "--json", "--no-keep"]);
        let report = run.json();
        assert_eq!(report["operations"][0]["failed"], 0, "{rule}: {report:#}");
        let hit = bench(&["hit", "--h2", "-n", "12", "-c", "2", "-m", "1", "--json", &url]);
        for (outcome, errors) in
            [(&run, &report["requests"]["protocol_errors"]), (&hit, &hit.json()["protocol_errors"])]
        {
            let told = errors.as_object().is_some_and(|errors| errors.keys().all(|key| key.contains(rule)));
            assert!(told && errors.to_string().contains(rule), "{rule}: {errors}");
            assert!(outcome.stderr.contains("the server broke the rules of HTTP/2"), "{}", outcome.stderr);
            assert!(matches!(outcome.code, 98 | 99), "{rule}: {}", outcome.stderr);
        }
        // Beside other tests a load of milliseconds may have had too little of the processor to be trusted: for that reason alone it
        // is not the FAIL that it else is.
        let due = if hit.stderr.contains("of the generator used") { 98 } else { 99 };
        assert_eq!((hit.code, &hit.json()["succeeded"]), (due, &12.into()), "{rule}: {}", hit.stderr);
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
    // Each counts with the time that it was waited for.
    for times in [&of["response"], &report["requests"]["response"], &report["requests"]["wait"]] {
        assert_eq!(times["count"], of["ended"], "{report:#}");
        assert!(times["p50"].as_f64().is_some_and(|time| time >= 0.1), "{report:#}");
    }
    assert_eq!(of["response_expected"]["count"], 0, "{report:#}");

    // HTTP/1.1 alone: one sentence before the run.
    let plain = Served::new();
    let file = scenario(&folder, &plain.url, steps);
    let outcome = bench(&["run", &file, "--no-host", "--no-keep"]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("does not speak HTTP/2 without TLS"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("`client h2`"), "{}", outcome.stderr);
}
