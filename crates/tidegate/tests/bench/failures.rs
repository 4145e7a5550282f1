//! What goes wrong: bad input, peers that misbehave or die.

use super::peers::{Folder, bench, peer, request};
use std::io::Write;
use std::net::TcpListener;

#[test]
fn bad_input_gets_one_sentence() {
    let folder = Folder::new();
    let list = folder.write("urls.txt", "http://127.0.0.1/\nhttp://127.0.0.1/ GOT\n");
    let refused = format!("http://{}/", tidegate_testkit::NOBODY);
    let cases: [(&[&str], i32, &str); 25] = [
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
    let answers: [(&str, &[u8]); 5] = [
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
