//! Arguments that make no sense, and files that cannot be written.

use super::peers::{BINARY, Folder, answer, bench, peer, request};
use super::scenarios::scenario;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tidegate_testkit::InTime;

fn server() -> String {
    peer(|_, mut stream| {
        while request(&mut stream) {
            answer(&mut stream, "200 OK", "x");
        }
    })
}

#[test]
fn what_cannot_be_asked_for_is_a_wrong_argument() {
    let url = &server();
    let table: [(&[&str], &str); 7] = [
        (&["-H", "Bad Name: x"], "name"),
        (&["-H", "X-A: a\nX-B: b"], "value"),
        (&["--source", "203.0.113.9"], "this machine does not have that address"),
        (&["--source", "::1"], "name one of IPv4"),
        (&["--label", "new"], "add --keep or --out"),
        (&["--label", "new", "--runs", "2"], "add --keep or --out"),
        (&["--server-pid", "999999999"], "there is no such process"),
    ];
    for (words, part) in table {
        let told = bench(&[&["hit", "-n", "1", "-c", "1", "-q", url], words].concat());
        assert!(told.code == 2 && told.stderr.contains(part), "{words:?}: {} {}", told.code, told.stderr);
    }
    let told = bench(&["hit", "-n", "1", &format!("{url}a<b")]);
    assert!(
        told.code == 2 && told.stderr.contains("must be percent-encoded"),
        "{} {}",
        told.code,
        told.stderr
    );
}

#[test]
fn a_file_that_cannot_be_written_takes_none_away() {
    let (folder, url) = (Folder::new(), server());
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (html, missing, run) = (path("hit.html"), path("missing/hit.hlog"), path("run"));
    let files = ["--csv", "/dev/full", "--hlog", &missing, "--html", &html, "--out", &run];
    let told = bench(&[&["hit", "-n", "10", "--no-host", url.as_str()], &files[..]].concat());
    assert_eq!(told.code, 97, "{}", told.stderr);
    let line = told.stderr.lines().last().unwrap_or_default();
    for file in ["/dev/full", &missing] {
        assert!(line.contains(&format!("cannot write {file}: ")), "{line}");
    }
    assert!(folder.0.join("hit.html").exists() && folder.0.join("run/report.txt").exists(), "{line}");
    let (csv, svg) = (path("sweep.csv"), path("sweep.svg"));
    let words = ["sweep", "--rate", "50:50", "-t", "200ms", "--warmup", "0s", "-q", "--no-host", &url];
    let told = bench(&[&words[..], &["--csv", "/dev/full", "--svg", &svg, "--html", &csv]].concat());
    assert_eq!(told.code, 97, "{}", told.stderr);
    assert!(folder.0.join("sweep.svg").exists() && folder.0.join("sweep.csv").exists(), "{}", told.stderr);
}

/// RFC 9112 section 9.6: a client that says `close` sends nothing more on the connection.
#[test]
fn who_says_close_asks_once_on_a_connection() {
    let seconds = Arc::new(AtomicUsize::new(0));
    let counted = seconds.clone();
    let url = peer(move |_, mut stream| {
        if request(&mut stream) {
            answer(&mut stream, "200 OK", "x");
            counted.fetch_add(usize::from(request(&mut stream)), SeqCst);
        }
    });
    let told = bench(&["hit", "-n", "6", "-c", "2", "-H", "Connection: close", "--json", &url]);
    let report = told.json();
    assert_eq!((&report["succeeded"], &report["sent_again"]), (&6.into(), &0.into()), "{report:#}");
    assert_eq!((report["connects"].as_u64(), seconds.load(SeqCst)), (Some(6), 0));
}

/// Who sends what nobody has asked for is told so, and is not asked again.
#[test]
fn idle_connections_ask_once() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let url = peer(move |_, mut stream| {
        while request(&mut stream) {
            counted.fetch_add(1, SeqCst);
            answer(&mut stream, "200 OK", "x");
            answer(&mut stream, "200 OK", "y");
        }
    });
    let told = bench(&["idle", "-c", "5", "-t", "500ms", "--no-host", "--json", &url]);
    let report = told.json();
    assert_eq!((&report["surplus"], &report["dropped"]), (&5.into(), &0.into()), "{report:#}");
    assert_eq!((requests.load(SeqCst), told.code), (5, 99), "{}", told.stderr);
}

#[test]
fn what_a_scenario_comes_to_is_told_whatever_it_takes() {
    let folder = Folder::new();
    let load = "users 1000 { ramp-up \"1s\"; steady \"1s\" }; think fixed \"1s\"; client connections=1\nflow { get \"/\" }";
    let file = scenario(&folder, "http://127.0.0.1:1", load);
    let run = |words: &str| {
        let line = format!("ulimit -n 300; exec {BINARY} bench run {file} {words}");
        let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output_in_time();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, plan, _) = run("--plan");
    assert!(code == Some(0) && plan.contains("1000"), "{plan}");
    let (code, _, told) = run("--no-keep");
    let advice = "1000 users with 1 connection each are more than one process may hold; raise `ulimit -n` above 1200, lower --users, \
                  or share the load out over --agents";
    assert!(code == Some(2) && told.contains(advice), "{told}");
}
