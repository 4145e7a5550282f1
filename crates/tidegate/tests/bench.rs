//! `tidegate bench` as an operator has it: against Tidegate, against nginx, and against peers that misbehave by
//! script.
//!
//! Figures of time are never asserted; counts, words and exit codes are.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Outcome {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}\n{}", self.stdout, self.stderr))
    }
}

/// Runs `tidegate bench`. The generator may share its processor with other tests, so figures may be INVALID;
/// counts hold all the same.
fn bench(arguments: &[&str]) -> Outcome {
    let output =
        Command::new(BINARY).arg("bench").args(arguments).stdin(Stdio::null()).output().expect("it starts");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("tidegate-bench-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Tidegate server of a folder.
struct Served {
    folder: Folder,
    child: Child,
    url: String,
}

impl Served {
    fn new() -> Served {
        let folder = Folder::new();
        folder.write("1k", [b'x'; 1_024]);
        folder.write("100k", (0..100 << 10).map(|at| (at * 31 % 251) as u8).collect::<Vec<_>>());
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--control"])
            .arg(folder.0.join("control"))
            .arg(&folder.0)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Served { folder, child, url }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A peer by script: `serve` is called for each connection, with its number.
fn peer(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(number, stream));
        }
    });
    url
}

/// Reads one request head; false at the end.
fn request(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

// ---------------------------------------------------------------- the commands

#[test]
fn a_closed_loop_counts_what_it_asked_for() {
    let served = Served::new();
    let outcome = bench(&["hit", "-n", "500", "-c", "7", "--json", &served.url("/1k")]);
    let report = outcome.json();
    assert_eq!((&report["requests"], &report["answered"]), (&500.into(), &500.into()));
    assert_eq!(report["availability"], 100.0);
    assert_eq!(report["body_bytes"], 500 * 1_024);
    assert_eq!(report["statuses"]["200"], 500);
    assert_eq!(report["errors"], serde_json::json!({}));
    for name in ["latency", "service"] {
        for field in ["min", "mean", "max", "p50", "p90", "p99", "p99.99"] {
            assert!(report[name][field].as_f64().is_some_and(|time| time > 0.0), "{name}.{field}");
        }
        assert_eq!(report[name]["count"], 500);
    }
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
}

#[test]
fn connections_pipelines_and_lists_add_up() {
    let served = Served::new();
    let cases: [&[&str]; 4] = [
        &["-n", "100", "-c", "5", "--no-keepalive"],
        &["-n", "203", "-c", "3", "--pipeline", "8"],
        &["-n", "100", "-c", "4", "--threads", "2"],
        &["-n", "30", "-c", "3", "--processes", "2"],
    ];
    for case in cases {
        let url = served.url("/1k");
        let arguments: Vec<&str> = ["hit", "--json", url.as_str()].iter().chain(case).copied().collect();
        let report = bench(&arguments).json();
        let wanted: u64 = case[1].parse().unwrap();
        assert_eq!((&report["requests"], &report["succeeded"]), (&wanted.into(), &wanted.into()), "{case:?}");
        assert_eq!(report["body_bytes"], wanted * 1_024, "{case:?}");
    }
    let list = served.folder.write(
        "urls.txt",
        format!("HERE={}\n# often and seldom\n3x $(HERE)/1k\n$(HERE)/missing\n", served.url),
    );
    let report = bench(&["hit", "-n", "400", "-c", "4", "-f", &list, "--json"]).json();
    assert_eq!((&report["statuses"]["200"], &report["statuses"]["404"]), (&300.into(), &100.into()));
    assert_eq!((&report["errors"]["status"], &report["availability"]), (&100.into(), &75.0.into()));
}

#[test]
fn an_open_loop_keeps_its_schedule_whatever_the_server_does() {
    let served = Served::new();
    let run = ["hit", "--rate", "200", "-t", "1s", "-c", "4", "--json", &served.url("/1k")];
    let report = bench(&run).json();
    assert_eq!((&report["requests"], &report["demanded"]), (&200.into(), &200.0.into()));
    assert_eq!(report["lateness"]["count"], 200);

    // One that answers nothing: every arrival is counted, sent or not.
    let url = peer(|_, mut stream| while request(&mut stream) {});
    let run = ["hit", "--rate", "100", "-t", "500ms", "-c", "2", "--timeout", "300ms", "--json", &url];
    let outcome = bench(&run);
    let report = outcome.json();
    assert_eq!((&report["requests"], &report["succeeded"]), (&50.into(), &0.into()));
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("not one request succeeded"), "{}", outcome.stderr);
}

#[test]
fn downloads_are_paced_and_checked() {
    let served = Served::new();
    let copy = served.folder.0.join("100k").display().to_string();
    let url = served.url("/100k");
    for verify in ["crc", "none", copy.as_str()] {
        let run = ["downloads", "-c", "20", "--limit", "400KiB", "--verify", verify, "--json", &url];
        let report = bench(&run).json();
        assert_eq!((&report["succeeded"], &report["body_bytes"]), (&20.into(), &(20 * (100 << 10)).into()));
        assert_eq!(report["connects"], 20, "each reader has a connection of its own");
        assert!(report["speed"]["max"].as_u64().is_some_and(|speed| speed < 1 << 20), "{}", report["speed"]);
    }
    let other = served.folder.write("other", vec![0; 100 << 10]);
    let run = [
        "downloads",
        "-c",
        "5",
        "--limit",
        "none",
        "--verify",
        &other,
        "--target",
        "errors=0",
        "--json",
        &url,
    ];
    let outcome = bench(&run);
    assert_eq!(outcome.json()["errors"]["check"], 5);
}

#[test]
fn verdicts_and_exit_codes() {
    let served = Served::new();
    let url = served.url("/1k");
    let run = |target: &str| bench(&["hit", "-n", "50", "-c", "2", "--target", target, "--json", &url]);
    let met = run("availability=99");
    assert!(matches!(met.code, 0 | 98), "{}", met.stderr);
    let missed = run("p50=1us");
    assert!(matches!(missed.code, 98 | 99), "{}", missed.stderr);
    assert!(missed.stderr.contains("p50 of the response time"), "{}", missed.stderr);
    let wrong = bench(&["hit", "-n", "10", "--expect", "length=7", "--json", &url]);
    assert_eq!((wrong.code, &wrong.json()["errors"]["check"]), (99, &10.into()));
    let failed = &wrong.json()["first_failed"][0];
    assert_eq!(
        (&failed["request"], &failed["failure"], &failed["status"]),
        (&"GET /1k".into(), &"check".into(), &200.into())
    );
    assert!(
        failed["answer"].as_str().is_some_and(|answer| answer.starts_with("HTTP/1.1 200 OK")),
        "{failed}"
    );
    let right = bench(&["hit", "-n", "10", "--expect", "status=200,length=1024,regex=^x+$", "--json", &url]);
    assert_eq!(right.json()["succeeded"], 10);
}

#[test]
fn reports_are_written() {
    let served = Served::new();
    let place = |name: &str| served.folder.0.join(name).display().to_string();
    let (html, csv, hlog) = (place("r.html"), place("r.csv"), place("r.hlog"));
    let url = served.url("/1k?a=<b>");
    let files = ["--html", &html, "--csv", &csv, "--hlog", &hlog];
    let outcome =
        bench(&[&["hit", "-n", "200", "-c", "2", &url.replace(['<', '>'], "%3C")][..], &files].concat());
    assert!(
        outcome.stdout.contains("Availability") && outcome.stdout.contains("Verdict: "),
        "{}",
        outcome.stdout
    );
    let page = fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    assert!(fs::read_to_string(csv).unwrap().lines().count() >= 2);
    let hlog = fs::read_to_string(hlog).unwrap();
    assert!(hlog.lines().any(|line| line.starts_with("Tag=response,") && line.contains(",HIST")), "{hlog}");
}

#[test]
fn sweep_peak_idle_and_compare() {
    let served = Served::new();
    let url = served.url("/1k");
    let sweep =
        bench(&["sweep", "--rate", "50:100:x2", "-t", "300ms", "--warmup", "100ms", "-q", "--json", &url]);
    let steps = sweep.json();
    assert_eq!(steps.as_array().map(Vec::len), Some(2), "{}", sweep.stderr);
    assert_eq!((&steps[1]["demanded"], &steps[1]["report"]["requests"]), (&100.0.into(), &30.into()));

    let peak = ["--from", "50", "--to", "100", "-t", "200ms", "--warmup", "0s", "--confirm", "1"];
    let peak = bench(&[&["peak", "-q", "--json", "--target", "errors=0", &url][..], &peak].concat());
    assert!(peak.json()["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{}", peak.stderr);

    let idle = bench(&["idle", "-c", "30", "-t", "500ms", "--json", &url]).json();
    assert_eq!((&idle["most_open"], &idle["failed"], &idle["connects"]), (&30.into(), &0.into(), &30.into()));
    assert!(idle["generator"]["memory"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{idle}");

    let page = served.folder.0.join("compare.html").display().to_string();
    let compare = ["compare", "--blocks", "2", "-q", "--json", "--command", "true", "--command", "exit 0"];
    let compare = bench(&[&compare[..], &["--html", &page]].concat());
    assert_eq!(compare.code, 0, "{}", compare.stderr);
    assert_eq!(compare.json()["figures"][0]["a"].as_array().map(Vec::len), Some(4));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("MEASURED") && page.contains("seconds of each run"), "{page}");
    assert!(!page.contains("every target was met") && page.contains("--command true"), "{page}");
    let failing = bench(&["compare", "--blocks", "2", "--command", "true", "--command", "exit 3"]);
    assert!(failing.code == 1 && failing.stderr.contains("`exit 3` failed"), "{}", failing.stderr);
}

// ---------------------------------------------------------------- what is never a PASS

/// An answer with a body.
fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

#[test]
fn without_a_target_it_is_measured_and_with_failures_it_fails() {
    let served = Served::new();
    let (here, missing) = (served.url("/1k"), served.url("/missing"));
    let run = |arguments: &[&str]| {
        let outcome = bench(&[&["hit", "-n", "200", "-c", "2", "--json"], arguments].concat());
        (outcome.code, outcome.json()["verdict"].as_str().unwrap().to_owned(), outcome.stderr)
    };
    let (code, verdict, _) = run(&[&here]);
    assert!(matches!((code, verdict.as_str()), (0, "MEASURED") | (98, "INVALID")), "{code} {verdict}");
    for target in [&[][..], &["--target", "p99=10s"]] {
        let (code, _, stderr) = run(&[&[here.as_str(), missing.as_str()], target].concat());
        assert!(matches!(code, 98 | 99), "{stderr}");
        assert!(stderr.contains("100 of 200 requests failed"), "{stderr}");
    }
    let (code, _, stderr) = run(&[&here, &missing, "--target", "availability=40"]);
    assert!(matches!(code, 0 | 98), "{stderr}");
}

#[test]
fn a_rate_that_is_not_reached_fails() {
    // Answers once in 20 ms, one connection after the other: 50 a second, of 300 asked for.
    let turn = std::sync::Arc::new(std::sync::Mutex::new(()));
    let url = peer(move |_, mut stream| {
        while request(&mut stream) {
            let _turn = turn.lock();
            std::thread::park_timeout(Duration::from_millis(20));
            answer(&mut stream, "200 OK", "x");
        }
    });
    let base = ["hit", "--rate", "300", "-t", "1s", "-c", "4", "--json", &url];
    for (grace, sentence) in [("0s", "could not be sent"), ("60s", "the rate was not reached")] {
        let outcome = bench(&[&base[..], &["--grace", grace, "--target", "errors=1000000"]].concat());
        assert!(matches!(outcome.code, 98 | 99), "{grace}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(sentence), "{grace}: {}", outcome.stderr);
    }
    let steps = bench(&["sweep", "--rate", "300:300", "-t", "1s", "--grace", "60s", "-q", "--json", &url]);
    assert!(matches!(steps.code, 98 | 99), "{}", steps.stderr);
}

#[test]
fn bodies_that_differ_fail() {
    let url = peer(|number, mut stream| {
        while request(&mut stream) {
            answer(&mut stream, "200 OK", if number % 2 == 0 { "even" } else { "odd!" });
        }
    });
    let outcome = bench(&["downloads", "-c", "4", "--limit", "none", "--json", &url]);
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the bodies of one URL differ"), "{}", outcome.stderr);
    // Two URLs may have two bodies.
    let served = Served::new();
    let run = ["downloads", "-c", "4", "--limit", "none", "--json", &served.url("/1k"), &served.url("/100k")];
    let outcome = bench(&run);
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
}

#[test]
fn idle_connections_that_are_dropped_are_counted_and_not_opened_again() {
    let connects = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = connects.clone();
    let url = peer(move |_, mut stream| {
        counted.fetch_add(1, SeqCst);
        if request(&mut stream) {
            answer(&mut stream, "200 OK", "x");
        }
    });
    let outcome = bench(&["idle", "-c", "20", "-t", "1s", "--json", &url]);
    assert_eq!((&outcome.json()["dropped"], &outcome.json()["failed"]), (&20.into(), &0.into()));
    assert_eq!(connects.load(SeqCst), 21, "one look before the run, and one connect each");
    assert!(
        outcome.code == 99 && outcome.stderr.contains("dropped 20 idle connections"),
        "{}",
        outcome.stderr
    );
    let served = Served::new();
    let kept = bench(&["idle", "-c", "20", "-t", "1s", "--target", "errors=0", "--json", &served.url("/1k")]);
    assert!(matches!(kept.code, 0 | 98), "{}", kept.stderr);
    let each = kept.json()["server_bytes_per_connection"].as_f64();
    assert!(each.is_some(), "{}", kept.stdout);
}

#[test]
fn bytes_behind_an_answer_are_told() {
    let url = peer(|_, mut stream| {
        while request(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz");
        }
    });
    let outcome = bench(&["hit", "-n", "1", "-c", "1", "--json", &url]);
    assert!(outcome.json()["surplus"].as_u64().is_some_and(|count| count > 0), "{}", outcome.stdout);
    assert!(outcome.code == 99 && outcome.stderr.contains("behind a complete answer"), "{}", outcome.stderr);
}

#[test]
fn reports_say_when_where_and_how() {
    let served = Served::new();
    let page = served.folder.0.join("peak.html").display().to_string();
    let url = served.url("/1k");
    let run = ["peak", "-q", "--from", "50", "--to", "50", "-t", "200ms", "--warmup", "0s", "--confirm", "1"];
    bench(&[&run[..], &["--target", "errors=0", "--html", &page, &url]].concat());
    let page = fs::read_to_string(page).unwrap();
    for part in
        ["--target errors=0", "GMT", "processors", env!("CARGO_PKG_VERSION"), "Answers per second over"]
    {
        assert!(page.contains(part), "{part}");
    }
    let about = &bench(&["hit", "-n", "10", "--json", &url]).json()["about"];
    for name in ["date", "host", "kernel", "processors", "version", "command"] {
        assert!(about[name].as_str().is_some_and(|text| !text.is_empty()), "{about}");
    }
}

#[test]
fn an_interrupted_run_has_an_exit_code_of_its_own() {
    let answered = std::sync::Arc::new(std::sync::Barrier::new(2));
    let seen = answered.clone();
    let url = peer(move |number, mut stream| {
        let mut first = number > 0;
        while request(&mut stream) {
            answer(&mut stream, "200 OK", "x");
            if std::mem::take(&mut first) {
                seen.wait();
            }
        }
    });
    let run = ["bench", "hit", "-c", "1", "-t", "10m", "--target", "p99=1m", "--json", &url];
    let child = Command::new(BINARY).args(run).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    answered.wait();
    let end = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(end.success());
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{report}");
    assert_ne!(report["verdict"], "PASS");
}

// ---------------------------------------------------------------- what goes wrong

#[test]
fn bad_input_gets_one_sentence() {
    let folder = Folder::new();
    let list = folder.write("urls.txt", "http://127.0.0.1/\nhttp://127.0.0.1/ GOT\n");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = format!("http://{free}/");
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
    let answers: [(&str, &[u8]); 4] = [
        ("truncated", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ("malformed", b"SSH-2.0-OpenSSH\r\n\r\n"),
        ("closed", b""),
        ("status", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    ];
    for (kind, answer) in answers {
        let url = peer(move |_, mut stream| {
            if request(&mut stream) {
                let _ = stream.write_all(answer);
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
    let begun = Instant::now();
    let outcome = bench(&["hit", "-c", "1", "-t", "10m", "--give-up", "1s", "--json", &url]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    let report = outcome.json();
    assert_eq!(report["succeeded"], 25);
    assert!(report["failed"].as_u64().is_some_and(|failed| failed > 0));
    assert!(outcome.stderr.contains("accepted no more connections"), "{}", outcome.stderr);
    assert!(matches!(outcome.code, 98 | 99), "{}", outcome.code);
}

// ---------------------------------------------------------------- HTTP/2

/// A Tidegate server that speaks HTTP/2 without TLS and with it, and logs.
struct Served2 {
    served: Served,
    tls: String,
    log: PathBuf,
}

impl Served2 {
    fn new() -> Served2 {
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
    fn logged(&self, count: usize) -> Vec<String> {
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
    let output = bench.wait_with_output().unwrap();
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
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:status: 200` and no content.
fn ok(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &[0x88])
}

/// A peer of HTTP/2 by script: `answer` is called for each request, with the numbers of connection and stream.
/// Connection 0 is the look before the run.
fn peer2(answer: impl Fn(usize, u32, &mut TcpStream) + Send + Sync + 'static) -> String {
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
    let cases: [(&str, u64, Script); 6] = [
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
    ];
    for (place, (kind, failed, script)) in cases.into_iter().enumerate() {
        let url = peer2(script);
        let run = ["hit", "--h2", "-n", "12", "-c", "2", "-m", "1", "--timeout", "10s", "--json", &url];
        let report = bench(&run).json();
        assert_eq!(report["requests"], 12, "{place}: {report}");
        assert_eq!(report["succeeded"], 12 - failed, "{place}: {report}");
        if failed > 0 {
            assert_eq!(report["errors"][kind], failed, "{place}: {report}");
        }
    }
}

// ---------------------------------------------------------------- nginx

/// Requests and bytes equal the access log, for kept and closed connections and for errors.
#[test]
fn figures_equal_the_access_log_of_nginx() {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "nginx is missing: cargo xtask tools --for bench");
        eprintln!("NOT TESTED: nginx is missing (cargo xtask tools --for bench)");
        return;
    }
    let folder = Folder::new();
    folder.write("1k", [b'x'; 1_024]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = folder.0.display();
    let settings = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ keepalive_requests 37; log_format b '$status $bytes_sent $body_bytes_sent';\n\
         access_log {here}/access.log b; client_body_temp_path {here}/b; proxy_temp_path {here}/p;\n\
         fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;\n\
         server {{ listen 127.0.0.1:{port}; root {here}; }} }}\n"
    );
    let settings = folder.write("nginx.conf", settings);
    let nginx = Command::new("nginx")
        .args(["-p", &here.to_string(), "-c", &settings])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _nginx = Ended(nginx.unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let log = folder.0.join("access.log");
    let url = format!("http://127.0.0.1:{port}/1k");
    let missing = format!("http://127.0.0.1:{port}/missing");
    for extra in [&[][..], &["--no-keepalive"], &["--pipeline", "4"]] {
        let before = logged(&log);
        let run = ["hit", "-n", "1000", "-c", "10", "--json", url.as_str(), missing.as_str()];
        let report = bench(&[&run[..], extra].concat()).json();
        // nginx writes a line when a request is over for it, which may be after the answer was read.
        let deadline = Instant::now() + Duration::from_secs(20);
        let lines = loop {
            let lines = logged(&log) - before;
            if lines >= 1_000 || Instant::now() > deadline {
                break lines;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        };
        assert_eq!((&report["requests"], lines), (&1_000.into(), 1_000), "{extra:?}");
        let (mut bytes, mut bodies, mut missing) = (0, 0, 0);
        for line in fs::read_to_string(&log).unwrap().lines().skip(before) {
            let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
            bytes += fields[1];
            bodies += fields[2];
            missing += u64::from(fields[0] == 404);
        }
        assert_eq!((&report["bytes"], &report["body_bytes"]), (&bytes.into(), &bodies.into()), "{extra:?}");
        assert_eq!(report["errors"]["status"], missing, "{extra:?}");
    }
}

/// A process that ends with the test, also where that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn logged(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().count())
}
