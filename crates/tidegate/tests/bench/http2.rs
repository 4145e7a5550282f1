//! The same over HTTP/2.

use super::peers::{BINARY, Folder, Served, bench, logged, peer};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_testkit::InTime;

/// A Tidegate server that speaks HTTP/2 without TLS and with it, and logs.
pub(super) struct Served2 {
    pub served: Served,
    pub tls: String,
    log: PathBuf,
}

impl Served2 {
    pub fn new() -> Served2 {
        let folder = Folder::new();
        fs::create_dir_all(folder.0.join("root")).unwrap();
        folder.write("root/1k", [b'x'; 1_024]);
        folder.write("body", vec![b'b'; 200_000]);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        folder.write("site.pem", certificate.self_signed(&key).unwrap().pem());
        folder.write("site.key", key.serialize_pem());
        let log = folder.0.join("access.log");
        let config = format!(
            "access-log \"{}\" format=\"{{protocol}} {{status}} {{bytes}}\"\n\
             listen \"127.0.0.1:0\" {{ h2c }}\n\
             listen \"127.0.0.1:0\" {{ tls certificate=\"site.pem\" key=\"site.key\" }}\n\
             site {{ root \"root\" }}\n",
            log.display()
        );
        let config = folder.write("tidegate.kdl", config);
        let mut child = Command::new(BINARY)
            .args(["serve", "--config", &config, "--control"])
            .arg(folder.0.join("control"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let [url, tls] = ["http", "https"].map(|scheme| {
            let start = format!("listening on {scheme}://");
            let address = lines.find_map(|line| line.strip_prefix(&start).map(str::to_owned)).unwrap();
            format!("{scheme}://{}", address.trim_end_matches('/'))
        });
        std::thread::spawn(move || lines.for_each(drop));
        Served2 { served: Served { folder, child, url }, tls, log }
    }

    /// Waits for so many lines, and returns all.
    pub fn logged(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while logged(&self.log) < count && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn http2_figures_equal_the_servers_log() {
    let served = Served2::new();
    let cases: [&[&str]; 5] = [
        &["-n", "300", "-c", "3", "-m", "8"],
        &["-n", "200", "-c", "4", "--threads", "2"],
        &["-n", "600", "-c", "1", "-m", "1000"],
        &["-n", "60", "-c", "5", "--no-keepalive"],
        &["-n", "60", "-c", "4", "-m", "3", "--processes", "2"],
    ];
    let mut asked = 0;
    for base in [&served.served.url, &served.tls] {
        for case in cases {
            let url = format!("{base}/1k");
            let check = ["hit", "--h2", "--insecure", "--json", "--expect", "length=1024,regex=^x+$", &url];
            let report = bench(&[&check[..], case].concat()).json();
            let wanted: u64 = case[1].parse().unwrap();
            assert_eq!(
                (&report["protocol"], &report["load"].as_str().unwrap().contains("HTTP/2")),
                (&"h2".into(), &true)
            );
            assert_eq!(report["errors"], serde_json::json!({}), "{url} {case:?}");
            assert_eq!(
                (&report["requests"], &report["succeeded"]),
                (&wanted.into(), &wanted.into()),
                "{url} {case:?}"
            );
            assert_eq!(
                (&report["body_bytes"], &report["latency"]["count"]),
                (&(wanted * 1_024).into(), &wanted.into())
            );
            // A thread that comes late finds nothing left.
            let connects = report["connects"].as_u64().unwrap();
            let most: u64 = case[3].parse().unwrap();
            let is_kept = !case.contains(&"--no-keepalive");
            assert!(
                if is_kept { connects <= most } else { connects == wanted },
                "{url} {case:?}: {connects}"
            );
            asked += wanted as usize;
        }
    }
    let lines = served.logged(asked);
    assert_eq!(lines.len(), asked);
    assert!(lines.iter().all(|line| line == "HTTP/2.0 200 1024"), "{:?}", lines[0]);
    // Bodies, a list, and an answer that is not the expected one.
    let body = format!("@{}", served.served.folder.0.join("body").display());
    let url = served.served.url("/1k");
    let report =
        bench(&["hit", "--h2", "-m", "4", "-n", "20", "-c", "2", "-d", &body, "--json", &url]).json();
    assert_eq!(
        (&report["statuses"]["405"], &report["errors"]["status"]),
        (&20.into(), &20.into()),
        "{report}"
    );
    let missing = served.served.url("/missing");
    let report = bench(&["hit", "--h2", "-m", "4", "-n", "40", "--json", &url, &missing]).json();
    assert_eq!((&report["statuses"]["200"], &report["statuses"]["404"]), (&20.into(), &20.into()));
    let report = bench(&["hit", "--h2", "-n", "10", "--expect", "length=7", "--json", &url]).json();
    assert_eq!(report["errors"]["check"], 10);
}

#[test]
fn an_open_loop_of_http2_keeps_its_schedule() {
    let served = Served2::new();
    for streams in ["1", "8"] {
        let url = served.served.url("/1k");
        let run = ["hit", "--h2", "-m", streams, "--rate", "200", "-t", "1s", "-c", "2", "--json", &url];
        let report = bench(&run).json();
        assert_eq!((&report["requests"], &report["succeeded"]), (&200.into(), &200.into()), "{report}");
        assert_eq!((&report["lateness"]["count"], &report["connects"]), (&200.into(), &2.into()));
    }
    assert_eq!(served.logged(400).len(), 400);
    // One that answers nothing: two connections take four each, every arrival is counted.
    let url = peer2(|_, _, _| {});
    let run = [
        "hit",
        "--h2",
        "-m",
        "4",
        "--rate",
        "100",
        "-t",
        "200ms",
        "-c",
        "2",
        "--timeout",
        "200ms",
        "--json",
        &url,
    ];
    let report = bench(&run).json();
    assert_eq!((&report["requests"], &report["succeeded"]), (&20.into(), &0.into()), "{report}");
    assert!(report["errors"]["timeout"].as_u64().is_some_and(|count| count >= 8), "{report}");
}

#[test]
fn an_http2_server_that_is_closed_in_the_middle_leaves_what_was_measured() {
    let mut served = Served2::new();
    let url = served.served.url("/1k");
    let run = ["bench", "hit", "--h2", "-m", "4", "-c", "3", "-t", "10m", "--give-up", "1s", "--json", &url];
    let bench = Command::new(BINARY)
        .args(run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(served.logged(100).len() >= 100);
    served.served.child.kill().unwrap();
    let output = bench.output_in_time();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["succeeded"].as_u64().is_some_and(|count| count >= 100), "{report}");
    assert!(report["errors"]["refused"].as_u64().is_some_and(|count| count > 0), "{}", report["errors"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("accepted no more connections"), "{stderr}");
    assert!(matches!(output.status.code(), Some(98 | 99)));
}

#[test]
fn a_server_without_http2_is_told_apart_before_the_run() {
    let served = Served::new();
    let silent = peer(|_, mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let closing = peer(|_, mut stream| drop(stream.read(&mut [0; 24])));
    for (url, sentence) in [
        (served.url("/1k"), "does not speak HTTP/2 without TLS: it answers in HTTP/1"),
        (silent, "it does not answer to the beginning of it"),
        (closing, "does not speak HTTP/2 without TLS"),
    ] {
        let outcome = bench(&["hit", "--h2", "-n", "1", "--timeout", "300ms", &url]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(sentence), "{url}: {}", outcome.stderr);
    }
}

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:status: 200` and no content.
pub(super) fn ok(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &[0x88])
}

/// A peer of HTTP/2 by script: `answer` is called for each request, with the numbers of connection and stream.
/// Connection 0 is the look before the run.
pub(super) fn peer2(answer: impl Fn(usize, u32, &mut TcpStream) + Send + Sync + 'static) -> String {
    peer(move |number, mut stream| {
        let _ = stream.read_exact(&mut [0; 24]);
        let _ = stream.write_all(&frame(4, 0, 0, &[]));
        let mut header = [0; 9];
        while stream.read_exact(&mut header).is_ok() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let _ = stream.read_exact(&mut vec![0; length as usize]);
            if header[3] == 1 {
                answer(number, u32::from_be_bytes([header[5], header[6], header[7], header[8]]), &mut stream);
            }
        }
    })
}

#[test]
fn resets_and_goodbyes_are_counted_by_kind_or_sent_anew() {
    type Script = fn(usize, u32, &mut TcpStream);
    let cases: [(&str, u64, Script); 9] = [
        ("stream_reset", 12, |_, id, stream| drop(stream.write_all(&frame(3, 0, id, &[0, 0, 0, 2])))),
        // Turned away again and again.
        ("stream_reset", 12, |_, id, stream| drop(stream.write_all(&frame(3, 0, id, &[0, 0, 0, 7])))),
        // Turned away once.
        ("none", 0, |_, id, stream| {
            let refused = frame(3, 0, id, &[0, 0, 0, 7]);
            drop(stream.write_all(&if id == 1 { refused } else { ok(id) }));
        }),
        // The first connection says goodbye unread; others answer.
        ("none", 0, |number, id, stream| {
            let goodbye = frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0]);
            drop(stream.write_all(&if number == 1 { goodbye } else { ok(id) }));
        }),
        // A goodbye that leaves the one that was read without an answer.
        ("go_away", 12, |_, id, stream| {
            let last = id.to_be_bytes();
            drop(stream.write_all(&frame(7, 0, 0, &[last[0], last[1], last[2], last[3], 0, 0, 0, 2])));
            drop(stream.shutdown(std::net::Shutdown::Write));
        }),
        ("malformed", 12, |_, id, stream| drop(stream.write_all(&frame(0, 1, id, b"no head")))),
        // Interim answers, and then one that is final.
        ("malformed", 12, |_, id, stream| {
            let hints = frame(1, 4, id, b"\x08\x03103").repeat(65);
            drop(stream.write_all(&[hints, ok(id)].concat()));
        }),
        // A field of 4000 bytes, twenty times by its place in the table.
        ("head_too_large", 12, |_, id, stream| {
            let field = [&b"\x88\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4000], &[0xbe; 20]].concat();
            drop(stream.write_all(&frame(1, 5, id, &field)));
        }),
        // A field of 100,000 bytes, in pieces.
        ("head_too_large", 12, |_, id, stream| {
            let first = frame(1, 1, id, b"\x88\x00\x01a\x7f\xa1\x8c\x06");
            let pieces =
                (1..=10).flat_map(|piece| frame(9, if piece == 10 { 4 } else { 0 }, id, &[b'x'; 10_000]));
            drop(stream.write_all(&first.into_iter().chain(pieces).collect::<Vec<u8>>()));
        }),
    ];
    for (place, (kind, failed, script)) in cases.into_iter().enumerate() {
        let url = peer2(script);
        let run = ["hit", "--h2", "-n", "12", "-c", "2", "-m", "1", "--timeout", "10s", "--json", &url];
        let report = bench(&run).json();
        assert_eq!(report["requests"], 12, "{place}: {report}");
        assert_eq!(report["succeeded"], 12 - failed, "{place}: {report}");
        // Times are those of all; what was turned away is told.
        assert_eq!(report["latency"]["count"], 12, "{place}: {report}");
        let is_sent_again = report["sent_again"].as_u64().is_some_and(|count| count > 0);
        assert_eq!(is_sent_again, matches!(place, 1..=3), "{place}: {report}");
        let notes = report["notes"].to_string();
        assert_eq!(notes.contains("requests were sent again"), is_sent_again, "{place}: {notes}");
        if failed > 0 {
            assert_eq!(report["errors"][kind], failed, "{place}: {report}");
            assert_eq!(report["first_failed"][0]["failure"], kind, "{place}: {report}");
        }
    }
}
