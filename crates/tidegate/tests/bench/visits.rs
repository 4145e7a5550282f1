//! `tidegate bench run` with a `rate`: users that come on a schedule and go.

use super::agents::{Running, controller};
use super::http2::Served2;
use super::peers::{Folder, bench, peer};
use super::scenarios::{Application, ok, scenario};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// How many visits there were: due, begun, after a wait.
fn visits(report: &Value) -> [u64; 3] {
    ["due", "begun", "waited"].map(|name| report["visits"][name].as_u64().unwrap())
}

#[test]
fn each_visit_is_a_new_user_that_does_its_operations_and_goes() {
    let folder = Folder::new();
    let application = Application::new(|_| ok("Set-Cookie: seen=1; Path=/\r\n", "a page"));
    let steps = "rate \"100/s\" arrivals=constant { ramp-up \"200ms\"; steady \"1s\"; ramp-down \"200ms\" }
        flow { get \"/first?user={user}\"; get \"/second?user={user}\" }";
    let file = scenario(&folder, &application.url, steps);
    let out = folder.0.join("run").display().to_string();
    let outcome = bench(&["run", &file, "--no-host", "--json", "--out", &out]);
    let report = outcome.json();
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
    assert_eq!(visits(&report), [100, 100, 0], "{report:#}");
    assert_eq!((&report["users"], &report["arrivals"]["rate"]), (&Value::Null, &100.0.into()));
    let ended = |place: usize| report["operations"][place]["ended"].as_u64().unwrap();
    // What a visit of the ramp-up did second may be due in the steady time, and the other way round.
    assert_eq!((ended(0), ended(1).abs_diff(100) <= 2), (100, true), "{report:#}");
    assert_eq!(report["cycle"], Value::Null);

    // Half as many come in a ramp; each visit did both, and knew no cookie of another.
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for asked in application.asked() {
        let (path, user) = asked.line.split_once("?user=").unwrap();
        let cookie = asked.fields.get("cookie").cloned().unwrap_or_default();
        seen.entry(user.to_owned()).or_default().push(format!("{path} {cookie}"));
    }
    assert!(seen.values().all(|steps| steps[..] == ["GET /first ", "GET /second seen=1"]), "{seen:?}");
    assert_eq!(seen.len(), 120);
    assert!((0..120).all(|user| seen.contains_key(&user.to_string())), "{:?}", seen.keys());
    // A connection each; the look before the run is none of the generator's.
    assert_eq!(report["requests"]["connects"], 120, "{report:#}");

    let shown = std::fs::read_to_string(format!("{out}/report.txt")).unwrap();
    assert!(shown.contains("100 visits/s (constant) of 2 operations"), "{shown}");
    assert!(shown.contains("100.00 begun, 100.00 due, 100 asked for"), "{shown}");
    let listed = bench(&["show", &out]);
    assert!(listed.stdout.contains("visits/s"), "{}\n{}", listed.stdout, listed.stderr);
    let page = std::fs::read_to_string(format!("{out}/report.html")).unwrap();
    assert!(page.contains("100 visits/s (constant)"), "{page}");
    assert!(page.contains("Visits per second: 100 asked for, 100.00 due, 100.00 begun."), "{page}");
    for part in ["Visits over time", "Visits and connections over time", "visits under way"] {
        assert!(page.contains(part), "no `{part}` on the page");
    }
    // What came in the ramps is in the chart as well.
    let seconds = std::fs::read_to_string(format!("{out}/seconds.csv")).unwrap();
    let places = ["second", "visits_due", "visits_begun"];
    let place =
        |name: &str| seconds.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    let rows: BTreeMap<&str, Vec<&str>> = seconds
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .map(|cells| (cells[place(places[0])], cells))
        .collect();
    for name in &places[1..] {
        let sum: u64 = rows.values().map(|cells| cells[place(name)].parse::<u64>().unwrap()).sum();
        assert_eq!(sum, 120, "{name}: {seconds}");
    }
    // Each visit is over in no time, so that hardly one is under way when a second ends.
    assert!(report["requests"]["most_open"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!((report["seconds"].as_f64(), report["visits"]["rate"].as_f64()), (Some(1.0), Some(100.0)));
}

#[test]
fn who_finds_no_place_waits_and_is_counted() {
    let folder = Folder::new();
    // It takes every request and answers none, so that each visit lasts as long as its patience.
    let silent = peer(|_, mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let steps = "rate \"100/s\" arrivals=constant most-users=2 { steady \"1s\" }; client timeout=\"200ms\"
        op a { get \"/\" }";
    let file = scenario(&folder, silent.trim_end_matches('/'), steps);
    let outcome = bench(&["run", &file, "--no-host", "--json", "--no-keep", "--grace", "1s"]);
    let report = outcome.json();
    let [due, begun, waited] = visits(&report);
    assert_eq!((due, outcome.code), (100, 98), "{report:#}");
    // Two at a time, each for 200 ms and more: the schedule goes on whatever the server does.
    assert!((2..=20).contains(&begun) && waited == begun - 2, "{report:#}");
    let reasons = report["reasons"].to_string();
    assert!(
        reasons.contains(&format!("{} of 100 visits that were due never began", 100 - begun)),
        "{reasons}"
    );
    assert!(report["notes"].to_string().contains("found all 2 users busy"), "{report:#}");
    assert_eq!(report["operations"][0]["failed"].as_u64(), Some(begun), "{report:#}");
    // Nobody is there at all: each fails at once, and the run ends in order.
    let nobody = peer(|_, stream| drop(stream));
    let steps = "rate \"100/s\" arrivals=constant { steady \"1s\"; ramp-down \"500ms\" }; op a { get \"/\" }";
    let file = scenario(&folder, nobody.trim_end_matches('/'), steps);
    let outcome = bench(&["run", &file, "--no-host", "--json", "--no-keep"]);
    let report = outcome.json();
    assert_eq!(visits(&report), [100, 100, 0], "{report:#}");
    assert_eq!(report["operations"][0]["failed"], 100, "{report:#}");
}

#[test]
fn agents_deal_the_visits_of_one_schedule_out() {
    let (served, folder) = (Served2::new(), Folder::new());
    let steps = "rate \"10/s\" operations=3 { steady \"2s\"; ramp-down \"500ms\" }\nthink fixed \"1ms\"\nclient h2\nop a { get \"/1k\" }";
    let file = scenario(&folder, &served.served.url, steps);
    let alone = bench(&["run", &file, "--rate", "60", "--no-host", "--json", "--no-keep"]).json();
    let (controller, address) = controller(&file, 2, &["--insecure-loopback", "--rate", "60"]);
    let agents: Vec<Running> = ["1", "3"]
        .map(|threads| {
            Running::new(&["agent", "--join", &address, "--insecure-loopback", "--threads", threads])
        })
        .into();
    let done = controller.end();
    let together = done.json();
    // The same seed is the same schedule, whoever carries it out.
    let [due, begun, _] = visits(&alone);
    assert_eq!(due, begun);
    assert_eq!(visits(&together), visits(&alone), "{}\n{}", done.stdout, done.stderr);
    assert!((60..200).contains(&due), "{alone:#}");
    assert_eq!(together["agents"].as_array().unwrap().len(), 2);
    for agent in agents {
        let agent = agent.end();
        assert_eq!(agent.code, 0, "{}", agent.stderr);
    }
}

#[test]
fn a_rate_is_planned_set_and_queued() {
    let folder = Folder::new();
    let application = Application::new(|_| ok("", "a page"));
    let steps = "rate \"${RATE}/s\" operations=4 { ramp-up \"1s\"; steady \"1s\" }\nthink fixed \"100ms\"
        op a { get \"/\" }";
    let file = scenario(&folder, &application.url, steps);
    let run = |words: &[&str]| {
        let mut command = super::peers::command();
        command.args(["run", &file]).args(words).env("RATE", "30");
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, plan, _) = run(&["--plan"]);
    assert_eq!(code, Some(0));
    for part in
        ["30 visits/s (poisson) of 4 operations", "120.00, 4 of each visit", "9.0 of visits of 0.30 s"]
    {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    assert!(run(&["--plan", "--rate", "0.5"]).1.contains("0.50 visits/s"));
    let (code, _, stderr) = run(&["--plan", "--users", "3"]);
    assert!(
        code == Some(2) && stderr.contains("its load is a `rate`") && stderr.contains("--rate"),
        "{stderr}"
    );

    let queue = folder.write("rates.kdl", "run \"scenario.kdl\" { set RATE \"20\" \"40\" }\n");
    let kept = folder.0.join("kept").display().to_string();
    let made = bench(&["queue", &queue, "--runs-folder", &kept, "--", "--no-host"]);
    assert!(made.stdout.contains("2 of 2 runs are made"), "{}\n{}", made.stdout, made.stderr);
    let listed = bench(&["ls", "--json", "--runs-folder", &kept]).json();
    let mut rates: Vec<f64> =
        listed["runs"].as_array().unwrap().iter().map(|row| row["visits"].as_f64().unwrap()).collect();
    rates.sort_by(f64::total_cmp);
    assert_eq!(rates, [20.0, 40.0]);
    let ids: Vec<&str> =
        listed["runs"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let page = folder.0.join("series.html").display().to_string();
    let exported = bench(&["export", &ids.join(","), "--runs-folder", &kept, "-o", &page]);
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("Operations per second over visits per second") && page.contains("<td>40/s"),
        "{page}"
    );
}
