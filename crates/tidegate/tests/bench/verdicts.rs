//! What is never a PASS.

use super::peers::{BINARY, Served, answer, bench, peer, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tidegate_testkit::{InTime, receive};

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
    let (seen, answered) = std::sync::mpsc::channel();
    let url = peer(move |number, mut stream| {
        let mut first = number > 0;
        while request(&mut stream) {
            answer(&mut stream, "200 OK", "x");
            if std::mem::take(&mut first) {
                seen.send(()).unwrap();
            }
        }
    });
    let run = ["bench", "hit", "-c", "1", "-t", "10m", "--target", "p99=1m", "--json", &url];
    let child = Command::new(BINARY).args(run).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    receive(&answered, "the first answer");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.output_in_time();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{report}");
    assert_ne!(report["verdict"], "PASS");
}

/// Whom the interrupt leaves without an answer the server has not failed.
#[test]
fn what_an_interrupt_cuts_off_has_not_failed() {
    let (seen, asked) = std::sync::mpsc::channel();
    let url = peer(move |number, mut stream| {
        request(&mut stream);
        answer(&mut stream, "200 OK", "x");
        if number > 0 && request(&mut stream) {
            seen.send(()).unwrap();
            request(&mut stream);
        }
    });
    let run = ["bench", "hit", "-c", "3", "-t", "10m", "--json", &url];
    let child = Command::new(BINARY).args(run).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    (0..3).for_each(|_| receive(&asked, "a request that is held"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.output_in_time();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["failed"], &report["interrupted"]), (&0.into(), &3.into()), "{report}");
    assert_eq!((&report["requests"], &report["latency"]["count"]), (&3.into(), &3.into()), "{report}");
    assert_ne!(report["verdict"], "FAIL", "{report}");
    assert!(report["notes"][0].as_str().unwrap().contains("3 requests had not ended"), "{report}");
}
