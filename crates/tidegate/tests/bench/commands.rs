//! What each command does: loops, downloads, reports, sweep, peak, idle, compare.

use super::peers::{Served, bench, peer, request};
use std::fs;

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
