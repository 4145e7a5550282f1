//! What each command does: loops, downloads, reports, sweep, peak, idle, compare, gate, files, urls, disk.

use super::peers::{Folder, Served, bench, peer, request};
use std::fs;
use std::io::Write;
use std::net::TcpStream;

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
    assert_eq!((&outcome.json()["requests"], &outcome.json()["answered"]), (&5.into(), &5.into()));
}

/// Bytes that are known to be wrong are so whatever becomes of the rest.
#[test]
fn wrong_bytes_count_though_a_download_does_not_end() {
    let folder = Folder::new();
    let copy = folder.write("copy", vec![b'x'; 1_000]);
    type End = fn(&mut TcpStream);
    let stays: End = |stream| assert!(!request(stream));
    let cases: [(&str, End, [&str; 2], &str); 4] = [
        ("xxy", stays, ["-t", "2s"], "check"),
        ("xxy", |_| {}, ["--timeout", "10s"], "check"),
        ("xxy", stays, ["--timeout", "2s"], "check"),
        ("xxx", stays, ["-t", "2s"], "unanswered"),
    ];
    for (content, end, times, failure) in cases {
        let url = peer(move |_, mut stream| {
            if request(&mut stream) {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
                let _ = stream.write_all(format!("{head}{content}").as_bytes());
                end(&mut stream);
            }
        });
        let run = ["downloads", "-c", "3", "--grace", "0s", "--verify", &copy, "--json", &url];
        let report = bench(&[&run[..], &times].concat()).json();
        assert_eq!(report["errors"], serde_json::json!({ failure: 3 }), "{content} {times:?}");
        let kept = report["first_failed"].as_array().unwrap();
        let failures: Vec<_> = kept.iter().map(|failed| &failed["failure"]).collect();
        assert_eq!(failures, [failure; 3], "{content} {times:?}: {report}");
        if failure == "check" {
            let first = &report["first_failed"][0];
            assert_eq!((&first["failure"], &first["status"]), (&"check".into(), &200.into()), "{first}");
            assert!(first["answer"].as_str().is_some_and(|answer| answer.ends_with("xxy")), "{first}");
        }
    }
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
    let compare = ["compare", "--blocks", "5", "-q", "--json", "--command", "true", "--command", "exit 0"];
    let compare = bench(&[&compare[..], &["--html", &page]].concat());
    assert_eq!(compare.code, 0, "{}", compare.stderr);
    assert_eq!(compare.json()["figures"][0]["a"].as_array().map(Vec::len), Some(10));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("MEASURED") && page.contains("seconds of each run"), "{page}");
    assert!(!page.contains("every target was met") && page.contains("--command true"), "{page}");
    let primary = ["compare", "--blocks", "5", "--primary", "p50", "--command", "true", "--command", "true"];
    let primary = bench(&primary);
    assert!(primary.code == 2 && primary.stderr.contains("these runs have no p50"), "{}", primary.stderr);
    let failing = bench(&["compare", "--blocks", "5", "--command", "true", "--command", "exit 3"]);
    assert!(failing.code == 1 && failing.stderr.contains("`exit 3` failed"), "{}", failing.stderr);
}

#[test]
fn a_gate_fails_what_is_proven_worse_and_nothing_else() {
    let served = Served::new();
    let one = bench(&["hit", "-n", "400", "-c", "2", "--no-host", "--json", &served.url("/1k")]).json();
    // Ten runs with this many answers a second, give or take a hundredth.
    let runs = |name: &str, rate: f64| {
        let lines = (0..10).map(|n| {
            let mut run = one.clone();
            run["verdict"] = "MEASURED".into();
            run["rate"] = (rate * (1.0 + 0.001 * f64::from(n))).into();
            format!("{run}\n")
        });
        served.folder.write(name, lines.collect::<String>())
    };
    let (base, same, slow) = (runs("base.jsonl", 1e3), runs("same.jsonl", 995.0), runs("slow.jsonl", 800.0));
    let junit = served.folder.0.join("gate.xml").display().to_string();
    let gate =
        |bound: &str, base: &str, new: &str| bench(&["gate", "--worse", bound, "--junit", &junit, base, new]);
    let kept = gate("rate=5%", &base, &same);
    assert_eq!(kept.code, 0, "{}{}", kept.stdout, kept.stderr);
    assert!(kept.stdout.contains("rate at most 5 % worse: kept"), "{}", kept.stdout);
    let broken = gate("rate=5%", &base, &slow);
    assert_eq!(broken.code, 99, "{}", broken.stdout);
    let report = fs::read_to_string(&junit).unwrap();
    assert!(report.contains("failures=\"1\" errors=\"0\"") && report.contains("<failure"), "{report}");
    // Too few answers for a percentile, another load, what is no run: no proof, and each said.
    let short = gate("p99=5%", &base, &same);
    assert!(short.code == 98 && short.stdout.contains("p99 wants 10000"), "{}", short.stdout);
    let other = served.folder.write("other.json", {
        let mut run = one.clone();
        run["load"] = "closed loop, 3 connections".into();
        run.to_string()
    });
    let unlike = gate("rate=5%", &base, &other);
    assert!(unlike.code == 98 && unlike.stdout.contains("the runs differ in load"), "{}", unlike.stdout);
    let text = served.folder.write("text.json", "no run");
    let wrong = gate("rate=5%", &base, &text);
    assert!(wrong.code == 1 && wrong.stderr.contains("text.json is no JSON"), "{}", wrong.stderr);
    let elsewhere = bench(&["gate", "--worse", "rate=5%", "--primary", "cpu", &base, &same]);
    assert!(elsewhere.code == 2 && elsewhere.stderr.contains("have no server CPU"), "{}", elsewhere.stderr);
    let none = bench(&["gate", &base, &same]);
    assert!(none.code == 2 && none.stderr.contains("--worse p90=5%"), "{}", none.stderr);
}

#[test]
fn a_tree_a_list_and_a_log_are_asked_for_as_they_say() {
    let served = Served::new();
    let tree = served.folder.0.join("tree").display().to_string();
    let list = served.folder.0.join("urls.txt").display().to_string();
    let base = served.url("/tree");
    let files = ["files", "--folders", "2", "--files", "5", "--sizes", "100..2000", "--urls", &list];
    let files = [&files[..], &["--base", &base, "--popularity", "zipf:1.0", &tree]].concat();
    let made = bench(&files);
    assert!(made.code == 0 && made.stdout.starts_with("10 files in 2 folders"), "{}", made.stderr);
    let again = bench(&files);
    assert!(
        again.code == 1 && again.stderr.contains("is there already and holds something"),
        "{}",
        again.stderr
    );
    let report = bench(&["hit", "-n", "100", "-c", "2", "-f", &list, "--json"]).json();
    assert_eq!((&report["statuses"]["200"], &report["failed"]), (&100.into(), &0.into()));

    let log = served.folder.write(
        "access.log",
        "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /1k HTTP/1.1\" 200 1024\n".repeat(3)
            + "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /100k HTTP/1.1\" 200 102400\n",
    );
    let urls = bench(&["urls", "--base", &served.url, &log]);
    assert_eq!(urls.stdout, format!("3x {0}/1k\n{0}/100k\n", served.url), "{}", urls.stderr);
    assert!(urls.stderr.starts_with("2 of 2 URLs, 100.0 % of 4 visits"), "{}", urls.stderr);
    let empty = bench(&["urls", "--base", &served.url, &list]);
    assert!(empty.code == 1 && empty.stderr.contains("no GET that was answered"), "{}", empty.stderr);
}

#[test]
fn runs_are_repeated_and_the_best_and_the_worst_left_out() {
    let served = Served::new();
    let url = served.url("/1k");
    let hit = ["hit", "-n", "50", "-c", "2", "-q", "--no-host", "--runs", "4", "--trim"];
    let runs = bench(&[&hit[..], &["--json", &url]].concat()).json();
    let rates: Vec<f64> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["rate"].as_f64().unwrap()).collect();
    let mut middle = rates.clone();
    middle.sort_by(f64::total_cmp);
    let wanted = f64::midpoint(middle[1], middle[2]);
    assert_eq!((rates.len(), &runs["mean"]["runs"]), (4, &2.into()));
    assert!((runs["mean"]["rate"].as_f64().unwrap() - wanted).abs() < 1e-6 * wanted, "{runs}");
    let shown = bench(&[&hit[..], &[&url]].concat());
    assert_eq!(shown.stdout.matches("(left out)").count(), 2, "{}", shown.stdout);
    let few = bench(&["hit", "-n", "5", "--runs", "2", "--trim", &url]);
    assert!(few.code == 2 && few.stderr.contains("--runs 3 or more"), "{}", few.stderr);
}

#[test]
fn a_disk_is_measured() {
    let served = Served::new();
    let folder = served.folder.0.display().to_string();
    let page = served.folder.0.join("disk.html").display().to_string();
    let disk = ["disk", "--size", "16MiB", "-t", "50ms", "--files", "10", "--html", &page];
    let shown = bench(&[&disk[..], &["--readers", "2", &folder]].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in ["write in sequence", "with 2 readers", "bit/s of network", "jitter"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("<svg") && page.contains("read in sequence"), "{page}");
    let found = bench(&[&disk[..7], &["--json", &folder]].concat()).json();
    assert!(found["idle"]["read"]["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{found}");
    let small = bench(&["disk", "--size", "1MiB", &folder]);
    assert!(small.code == 2 && small.stderr.contains("16MiB at least"), "{}", small.stderr);
    let nowhere = bench(&["disk", "/nonexistent"]);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("/nonexistent"), "{}", nowhere.stderr);
}

/// HTTP/1.0: a connection stays where the answer says so, and nowhere else.
#[test]
fn http_1_0_keeps_what_the_server_keeps() {
    for (lines, connects) in [("", 4), ("Connection: Keep-Alive\r\n", 1)] {
        let application = super::scenarios::Application::new(move |_| super::scenarios::ok(lines, "x"));
        let outcome =
            bench(&["hit", "--http1.0", "-c", "1", "-n", "4", "--json", "--no-host", &application.url]);
        let report = outcome.json();
        assert_eq!((&report["answered"], &report["failed"]), (&4.into(), &0.into()), "{report:#}");
        assert_eq!(
            (report["protocol"].as_str(), &report["connects"]),
            (Some("http/1.0"), &connects.into()),
            "{report:#}"
        );
    }
    assert_eq!(bench(&["hit", "--http1.0", "--h2", "http://127.0.0.1:1/"]).code, 2);
}
