//! What goes wrong: bad input, peers that misbehave or die.

use super::http2::{ok, peer2};
use super::peers::{Folder, answer, bench, peer, request};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[test]
fn bad_input_gets_one_sentence() {
    let folder = Folder::new();
    let list = folder.write("urls.txt", "http://127.0.0.1/\nhttp://127.0.0.1/ GOT\n");
    let refused = format!("http://{}/", tidegate_testkit::NOBODY);
    let scenario = folder.write(
        "s.kdl",
        "scenario \"s\"\ntarget \"http://127.0.0.1:1\"\nusers 1 { steady \"1s\" }\nthink fixed \"1s\"\nmix { a 1 }\n\
         op a { get \"/\" }\n",
    );
    let elsewhere = ["run", &scenario, "--no-keep", "--agents", "192.0.2.1:7400", "--insecure-loopback"];
    let cases: [(&[&str], i32, &str); 31] = [
        (&elsewhere, 2, "goes with a loopback address, and 192.0.2.1:7400 is none; use --keys"),
        (
            &["agent", "--join", "192.0.2.1:7400", "--insecure-loopback"],
            2,
            "goes with a loopback address, and 192.0.2.1:7400 is none; use --keys",
        ),
        (&["run", &scenario, "--no-keep", "--keys", "none"], 2, "--keys is of agents, and there are none"),
        (&["run", &scenario, "--no-keep", "--insecure-loopback"], 2, "is of agents, and there are none"),
        (&["run", &scenario, "--no-keep", "--agents-program", "x"], 2, "--agents <AGENTS>"),
        (
            &["hit", "http://me:secret@127.0.0.1/"],
            2,
            "http://127.0.0.1: a name and a password do not go into a URL",
        ),
        (&["hit", "http://does-not-exist.invalid/"], 1, "the host does-not-exist.invalid cannot be resolved"),
        (&["hit", &refused], 1, "refuses connections: nothing listens there"),
        (&["hit", "-f", &list], 1, "urls.txt:2: `GOT` is not POST"),
        (&["hit", "-f", "/does/not/exist"], 1, "cannot read /does/not/exist"),
        (&["hit", "ftp://127.0.0.1/"], 2, "not an http URL"),
        (&["compare", "ftp://127.0.0.1/", "http://127.0.0.1/"], 2, "not an http URL"),
        (&["hit", "--insecure", "https://a%20b/"], 1, "is no host name"),
        (&["hit", "-H", "Content-Length: 3", "http://127.0.0.1/"], 2, "Content-Length is set from the body"),
        (&["hit", "-H", "transfer-encoding: chunked", "http://127.0.0.1/"], 2, "is set from the body"),
        (&["hit", "-H", "nothing", "http://127.0.0.1/"], 2, "write 'Name: value'"),
        (&["hit", "-X", "BAD METHOD", "http://127.0.0.1/"], 2, "a method is one word"),
        (&["hit", "--expect", "colour=red", "http://127.0.0.1/"], 2, "is no check"),
        (&["hit", "--target", "p99=50", "http://127.0.0.1/"], 2, "with its unit"),
        (&["hit", "--target", "conforming=95", "http://127.0.0.1/"], 2, "--min-bitrate"),
        (&["downloads", "--verify", "sha256=12", "http://127.0.0.1/"], 2, "no SHA-256"),
        (&["hit", "--roots", "/does/not/exist", "https://127.0.0.1/"], 1, "cannot read /does/not/exist"),
        (&["hit", "--h3", "http://127.0.0.1/"], 2, "has not learnt HTTP/3 yet"),
        (&["hit", "-m", "2", "http://127.0.0.1/"], 2, "--h2"),
        (&["hit", "--h2", "--pipeline", "2", "http://127.0.0.1/"], 2, "cannot be used with"),
        (&["hit", "--h2", "-m", "2", "--no-keepalive", "http://127.0.0.1/"], 2, "leave --streams away"),
        (&["hit", "--h2", "--slow-readers", "25%:10KiB", "http://127.0.0.1/"], 2, "go with HTTP/1.1 only"),
        (&["hit", "--h2", "http://127.0.0.1/", "http://127.0.0.2/"], 2, "must be of one server"),
        (&["hit", "--tls-resume", "101", "http://127.0.0.1/"], 2, "101 is not in 0..=100"),
        (&["hit", "--target", "fast=yes", "http://127.0.0.1/"], 2, "`fast=yes` is no target"),
        (&["hit", "-t", "soon", "http://127.0.0.1/"], 2, "`soon` is no duration"),
    ];
    for (arguments, code, sentence) in cases {
        let outcome = bench(arguments);
        assert_eq!(outcome.code, code, "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(sentence), "{arguments:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{arguments:?}");
    }
}

#[test]
fn peers_that_misbehave_are_counted_by_kind() {
    // Connection 0 is the look before the run.
    let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(65);
    let hinted = [&*hints, b"HTTP/1.1 204 No Content\r\n\r\n"].concat();
    let large = format!("HTTP/1.1 200 OK\r\nX-Large: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(300_000));
    let answers: [(&str, &[u8]); 6] = [
        ("head_too_large", large.as_bytes()),
        ("malformed", &hinted),
        ("truncated", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ("malformed", b"SSH-2.0-OpenSSH\r\n\r\n"),
        ("closed", b""),
        ("status", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    ];
    for (kind, answer) in answers {
        let bytes = answer.to_vec();
        let url = peer(move |_, mut stream| {
            if request(&mut stream) {
                let _ = stream.write_all(&bytes);
            }
        });
        let report = bench(&["hit", "-n", "6", "-c", "2", "--json", &url]).json();
        assert_eq!(
            (&report["errors"][kind], &report["requests"]),
            (&6.into(), &6.into()),
            "{kind}: {report}"
        );
    }
}

/// Of a request that is never answered it is known how long somebody waited: no time is measured without it.
#[test]
fn who_is_not_answered_has_waited() {
    let silent = |number: usize| number % 20 == 19;
    let count = Arc::new(AtomicUsize::new(0));
    let of_server = count.clone();
    let http1 = peer(move |_, mut stream| {
        while request(&mut stream) && !silent(of_server.fetch_add(1, SeqCst)) {
            answer(&mut stream, "200 OK", "x");
        }
        // Held until the client has gone.
        request(&mut stream);
    });
    let http2 = peer2(move |_, id, stream| {
        if !silent(id as usize / 2) {
            let _ = stream.write_all(&ok(id));
        }
    });
    let loads: [&[&str]; 2] = [&["-n", "100"], &["-t", "1s", "--rate", "100"]];
    for (protocol, url) in [(&[][..], &http1), (&["--h2"][..], &http2)] {
        for load in loads {
            let run = ["hit", "-c", "4", "--timeout", "300ms", "--json", "--target", "max=250ms", url];
            let allowed = ["--target", "errors=100"];
            let outcome = bench(&[&run[..], load, protocol, &allowed].concat());
            let report = outcome.json();
            let given_up = report["errors"]["timeout"].as_u64().unwrap();
            // By a schedule some may be due that cannot be sent, which are in `latency` alone.
            let unsent = report["errors"]["unsent"].as_u64().unwrap_or(0);
            assert!(given_up > 0 && report["failed"] == given_up + unsent, "{report}");
            assert_eq!(report["without_answer"], given_up + unsent);
            for (times, beside) in [("latency", 0), ("service", unsent), ("wait", unsent)] {
                let count = report[times]["count"].as_u64().map(|count| count + beside);
                assert_eq!((times, count), (times, report["requests"].as_u64()), "{report}");
                assert!(report[times]["max"].as_f64().is_some_and(|max| max >= 0.3), "{times}: {report}");
            }
            assert_eq!(report["latency_expected"]["count"], report["succeeded"], "{report}");
            assert!(matches!(outcome.code, 98 | 99), "{load:?}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("the longest response time is"), "{load:?}: {}", outcome.stderr);
            assert!(report["notes"].to_string().contains("requests got no answer"), "{report}");
        }
    }
}

/// A server that answers nothing has no times of answers.
#[test]
fn nothing_answered_is_no_table_of_times() {
    let silent = peer(|_, mut stream| while request(&mut stream) {});
    let outcome = bench(&["hit", "-q", "-n", "2", "-c", "2", "--timeout", "300ms", &silent]);
    let (screen, has) = (&outcome.stdout, |part: &str| outcome.stdout.contains(part));
    assert!(has("2 of 2 requests got no answer") && has(", without an answer"), "{screen}");
    assert!(!has("Share of the requests") && !has("Waiting (first byte)") && !has("0.00 µs"), "{screen}");
}

#[test]
fn a_target_that_dies_leaves_what_was_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // The look before the run, then one connection with 25 answers, then nothing listens any more.
        drop(listener.accept());
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..25 {
            request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let outcome = bench(&["hit", "-c", "1", "-t", "10m", "--give-up", "1s", "--json", &url]);
    let report = outcome.json();
    assert_eq!(report["succeeded"], 25);
    assert!(report["failed"].as_u64().is_some_and(|failed| failed > 0));
    assert!(outcome.stderr.contains("accepted no more connections"), "{}", outcome.stderr);
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.code);
}
