//! Kept runs: folders, the commands that read them, and the pages, in a real browser.

use super::peers::{Folder, Served, bench, command};
use super::scenarios::{Application, Asked, Reply, ok, scenario};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_testkit::{InTime, wait_for};

const SHORT: &str =
    "users 2 { steady \"1s\" }; think fixed \"20ms\"\nop home p90=\"30s\" { get \"/\" }\nmix { home 1 }";

fn page(_: &Asked) -> Reply {
    ok("", "a page")
}

fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut runs: Vec<PathBuf> =
        entries.map_while(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    runs.sort();
    runs
}

#[test]
fn runs_are_kept_listed_shown_and_told_apart() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = scenario(&ground, &application.url, SHORT);
    let kept = ground.0.join("kept").display().to_string();
    let run = |words: &[&str]| bench(&[words, &["--runs-folder", &kept]].concat());
    for label in ["before", "after"] {
        let outcome = run(&["run", &file, "--no-host", "--label", label]);
        assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("kept in {kept}/")), "{}", outcome.stderr);
    }
    let quiet = run(&["run", &file, "--no-host", "--no-keep"]);
    assert!(!quiet.stderr.contains("kept in"), "{}", quiet.stderr);
    let hit = run(&["hit", "-n", "50", "--no-host", "--keep", &application.url]);
    assert!(hit.stderr.contains("kept in"), "{}", hit.stderr);
    let runs = runs_in(Path::new(&kept));
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert!(runs.iter().all(|run| !run.join("running").exists() && run.join("report.html").exists()));
    fs::create_dir(format!("{kept}/empty")).unwrap();

    let listed = run(&["ls"]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (0, 4), "{}", listed.stdout);
    assert!(listed.stderr.contains("empty is left out: no run"), "{}", listed.stderr);
    let of =
        |words: &[&str]| run(&[&["ls", "--json"], words].concat()).json()["runs"].as_array().unwrap().clone();
    assert_eq!(of(&["--scenario", "AFTER"])[0]["label"], "after");
    assert_eq!(of(&["--since", "1h"]).len(), 3);
    assert_eq!(of(&["--since", "2999-01-01"]).len(), 0);
    assert_eq!(of(&["--verdict", "broken-off"]).len(), 0);
    let wrong = run(&["ls", "--verdict", "good"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("there are pass"), "{}", wrong.stderr);

    let shown = run(&["show", "last"]);
    assert!(shown.stdout.contains(&kept) && shown.stdout.contains("Requests per second"), "{}", shown.stdout);
    let unknown = run(&["show", "zebra"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("holds no run `zebra`"), "{}", unknown.stderr);
    let [a, b] = [&runs[0], &runs[1]].map(|run| run.display().to_string());
    let diff = run(&["diff", &a, &b]);
    assert!(diff.stdout.contains("proves nothing") && diff.stdout.contains("home"), "{}", diff.stdout);
    assert!(diff.stdout.lines().any(|line| line.starts_with("label")), "{}", diff.stdout);
    let page = ground.0.join("run.html");
    let export = run(&["export", &a, "-o", page.to_str().unwrap()]);
    assert_eq!(export.code, 0, "{}", export.stderr);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<svg") && !text.contains("<script") && !text.contains("<link"), "{text}");

    // Folders of scenario runs are what a gate reads.
    let gate = run_gate(&ground, &runs[0]);
    assert!(gate.contains("rate at most 5 % worse: kept"), "{gate}");
}

/// Ten copies of a run against ten others.
fn run_gate(ground: &Folder, run: &Path) -> String {
    let mut summary: Value = serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    summary["verdict"] = "PASS".into();
    let groups = ["base", "new"].map(|group| {
        for number in 0..10 {
            let folder = ground.0.join(format!("{group}/{number}"));
            fs::create_dir_all(&folder).unwrap();
            summary["operations"][0]["rate"] = json!(100.0 + 0.01 * f64::from(number));
            fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
            fs::copy(run.join("scenario.kdl"), folder.join("scenario.kdl")).unwrap();
        }
        ground.0.join(group).display().to_string()
    });
    let [base, new] = &groups;
    let gate = bench(&["gate", "--worse", "rate=5%", "--operation", "home", base, new]);
    format!("{}{}", gate.stdout, gate.stderr)
}

/// `bench serve`, and what it tells.
struct Pages {
    child: Child,
    url: String,
}

impl Pages {
    fn new(runs: &Path) -> Pages {
        let mut serve = command();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--runs-folder"]).arg(runs).stdout(Stdio::piped());
        let mut child = serve.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().unwrap().to_owned();
        Pages { child, url }
    }

    /// Asked as `host`: the whole answer.
    fn ask(&self, host: &str, path: &str) -> String {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as a folder of somebody else may hold them: with names that would be markup.
fn foreign(runs: &Path) {
    let evil = "<img src=x onerror=alert(1)>";
    // A run of `hit` is called by its URL, in which there is no room to break a line.
    let name = format!("{evil} http://127.0.0.1:8080/{}", "long".repeat(20));
    for (number, users) in [(1, 100), (2, 200), (3, 300)] {
        let folder = runs.join(format!("20261124-02474{number}-evil"));
        fs::create_dir_all(folder.join("monitors")).unwrap();
        let response = json!({ "count": 5000, "p50": 0.1, "p90": 0.2 * f64::from(number), "p99": 0.9 });
        let summary = json!({
            "scenario": name, "target": evil, "label": evil, "load": evil, "verdict": "FAIL", "reasons": [evil], "notes": [evil],
            "users": users, "rate": f64::from(users) / 5.0, "seconds": 4.0, "requests": { "bytes": users * 1000 },
            "phases": { "ramp_up": 1, "steady": 2, "ramp_down": 1 },
            "operations": [{ "name": evil, "ended": 5000, "failed": 1, "rate": 9, "response": response, "targets": { "p90": 0.5 } }],
            "failed_operations": [{ "at": 1, "operation": evil, "user": 3, "request": evil, "reason": evil, "answer": evil }],
            "about": { "date": format!("Tue, 24 Nov 2026 02:47:4{number} GMT"), "host": evil, "command": evil },
        });
        fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
        fs::write(folder.join("scenario.kdl"), format!("scenario \"{evil}\" {number}\n")).unwrap();
        fs::write(folder.join("report.txt"), evil).unwrap();
        let head =
            "second,users,connections,operation,ended,failed,response_p50_s,response_p90_s,response_p99_s\n";
        let rows: String = (0..5).map(|at| format!("{at},{users},9,{evil},50,1,0.1,0.2,0.4\n")).collect();
        fs::write(folder.join("seconds.csv"), head.to_owned() + &rows).unwrap();
        fs::write(
            folder.join("monitors").join(format!("{evil}.csv").replace('/', "")),
            format!("at,cpu.{evil}_percent\n0,5\n1,9\n"),
        )
        .unwrap();
    }
}

#[test]
fn pages_are_for_this_machine_and_escape_what_runs_say() {
    let ground = Folder::new();
    foreign(&ground.0);
    let pages = Pages::new(&ground.0);
    let all = pages.ask("localhost", "/");
    assert!(all.starts_with("HTTP/1.1 200") && all.contains("default-src 'none'"), "{all}");
    let run = "/runs/20261124-024741-evil";
    let pair = "/compare?run=20261124-024741-evil&run=20261124-024742-evil";
    let series = format!("{pair}&run=20261124-024743-evil");
    for path in [
        "/",
        run,
        pair,
        &series,
        "/?scenario=%3Cimg+src=x+onerror=alert(1)%3E",
        "/runs/20261124-024741-evil/export",
    ] {
        let answer = pages.ask("127.0.0.1:1", path);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("&lt;img src=x"), "{path}: {answer}");
        assert!(!answer.contains("<img"), "{path}: {answer}");
    }
    for path in ["/runs/..%2F..%2Fetc", "/runs/zebra", "/compare?run=%2Fetc%2F", "/none"] {
        assert!(pages.ask("localhost", path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert!(pages.ask("evil.test", "/").starts_with("HTTP/1.1 403"));
    assert!(pages.ask("localhost", "/live.js").contains("text/javascript"));
}

#[test]
fn a_run_is_read_while_it_goes_on_and_after_a_kill() {
    let served = Served::new();
    let runs = served.folder.0.join("runs");
    let rest = "users 4 { steady \"5m\" }; think fixed \"20ms\"; flow { get \"/1k\" }";
    let file = scenario(&served.folder, served.url.trim_end_matches('/'), rest);
    let mut run = command();
    run.args(["run", &file, "--no-host", "-q", "--runs-folder"]).arg(&runs);
    let child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let listed = || {
        let listed = bench(&["ls", "--json", "--runs-folder", runs.to_str().unwrap()]).json();
        listed["runs"][0]["verdict"].as_str().map(str::to_owned)
    };
    let seconds = || fs::read_to_string(runs_in(&runs).first()?.join("seconds.csv")).ok();
    wait_for(|| seconds().filter(|text| text.lines().count() > 2), "lines of seconds");
    assert_eq!(listed().as_deref(), Some("RUNNING"));
    let pages = Pages::new(&runs);
    let id = runs_in(&runs)[0].file_name().unwrap().to_str().unwrap().to_owned();
    let page = pages.ask("localhost", &format!("/runs/{id}"));
    assert!(page.contains("<script src=\"/live.js\"") && page.contains("Operations over time"), "{page}");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.output_in_time();
    assert_eq!(listed().as_deref(), Some("BROKEN-OFF"));
    let shown = bench(&["show", "last", "--runs-folder", runs.to_str().unwrap()]);
    assert!(
        shown.stdout.contains("BROKEN-OFF") && shown.stdout.contains("operations measured"),
        "{}",
        shown.stdout
    );
    assert!(!pages.ask("localhost", &format!("/runs/{id}")).contains("<script"));
}

/// What is missing, or the browser.
fn browser() -> Result<PathBuf, &'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    if find("node").is_none() || !console.join("node_modules/playwright-core").is_dir() {
        return Err("there is no node, or not what the console is tested with (cargo xtask console --test)");
    }
    find("chromium").ok_or("there is no chromium (cargo xtask tools)")
}

#[test]
fn a_browser_shows_runs() {
    let chromium = match browser() {
        Ok(chromium) => chromium,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            return eprintln!("NOT TESTED: {missing}");
        }
    };
    let served = Served::new();
    let runs = served.folder.0.join("runs");
    foreign(&runs);
    let rest = "users 4 { steady \"5m\" }; think fixed \"20ms\"; flow { get \"/1k\" }";
    let file = scenario(&served.folder, served.url.trim_end_matches('/'), rest);
    let mut run = command();
    run.args(["run", &file, "-q", "--label", "goes on", "--runs-folder"]).arg(&runs);
    let child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| (runs_in(&runs).len() > 3).then_some(()), "a folder of a run that goes on");
    let pages = Pages::new(&runs);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/test/runs.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(chromium).arg(&pages.url).arg(child.id().to_string());
    if let Some(shots) = std::env::var_os("TIDEGATE_SCREENSHOTS") {
        fs::create_dir_all(&shots).unwrap();
        node.arg(shots);
    }
    let output = node.env("HOME", &served.folder.0).output_in_time();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let _ = kill_process(Pid::from_child(&child), Signal::KILL);
    child.output_in_time();
    assert!(said.ends_with("all is well\n"), "{said}");
}

/// A folder that is used again has nothing of the run before, and all that is somebody else's.
#[test]
fn a_folder_that_is_used_again_holds_one_run() {
    let ground = Folder::new();
    let application = Application::new(page);
    let out = ground.0.join("out");
    let scripted = format!(
        "script \"s.js\"\n{SHORT}\nsystem here {{ monitor interval=\"100ms\"; reset \"echo said\" }}"
    );
    ground.write("s.js", "export const f = () => 1;");
    let first = scenario(&ground, &application.url, &scripted);
    let run = |file: &str| bench(&["run", file, "--no-host", "--out", out.to_str().unwrap()]);
    assert!(matches!(run(&first).code, 0 | 98));
    let ours =
        ["monitors/here.csv", "logs/here/reset.txt", "scenario.script.js", "report.html", "operations.hlog"];
    assert!(ours.iter().all(|name| out.join(name).exists()), "{:?}", fs::read_dir(&out).unwrap().count());
    for foreign in ["notes.txt", "monitors/mine.txt", "logs/here/mine.log"] {
        fs::write(out.join(foreign), "mine").unwrap();
    }
    fs::write(out.join("monitors/gone.csv"), "at\n").unwrap();
    assert!(matches!(run(&scenario(&ground, &application.url, SHORT)).code, 0 | 98));
    for (name, is_there) in [
        ("monitors/here.csv", false),
        ("monitors/gone.csv", false),
        ("logs/here/reset.txt", false),
        ("scenario.script.js", false),
        ("report.html", true),
        ("notes.txt", true),
        ("monitors/mine.txt", true),
        ("logs/here/mine.log", true),
    ] {
        assert_eq!(out.join(name).exists(), is_there, "{name}");
    }
    // What asks otherwise is of another kind.
    let hit = bench(&["hit", "-n", "50", "--no-host", "--out", out.to_str().unwrap(), &application.url]);
    assert!(matches!(hit.code, 0 | 98), "{}", hit.stderr);
    assert!(!out.join("operations.hlog").exists());
    let exported = ground.0.join("hit.html");
    assert_eq!(bench(&["export", out.to_str().unwrap(), "-o", exported.to_str().unwrap()]).code, 0);
    assert!(
        !fs::read_to_string(&exported).unwrap().contains("think fixed"),
        "a scenario that the run is not of"
    );
}

/// A run that is written beside its scenario and does not come about takes nothing with it.
#[test]
fn a_scenario_in_the_folder_of_its_run_stays() {
    let ground = Folder::new();
    let file = scenario(&ground, "http://127.0.0.1:1", SHORT);
    let text = fs::read_to_string(&file).unwrap();
    let out = ground.0.display().to_string();
    assert_eq!(bench(&["run", &file, "--no-host", "--out", &out]).code, 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(!ground.0.join("seconds.csv").exists());
}

/// Clients that hold connections and do nothing keep nobody out: the one that has been idle longest gives way.
#[test]
fn who_is_idle_gives_way() {
    let ground = Folder::new();
    let pages = Pages::new(&ground.0);
    let address = pages.url.trim_start_matches("http://").trim_end_matches('/');
    // Of each it is known that the server has it: a request was answered.
    let idle = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /live.js HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
        stream
    };
    let held: Vec<TcpStream> = (0..32).map(|_| idle()).collect();
    assert!(pages.ask("localhost", "/").starts_with("HTTP/1.1 200"));
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let mut rest = [0; 65_536];
        loop {
            match stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    wait_for(|| is_closed(&held[0]).then_some(()), "the end of the first");
    assert!(!is_closed(&held[31]), "the last one has given way as well");
}

/// Where standard output takes nothing, what was measured is kept all the same, and it is not said that no load could be put on.
#[test]
fn a_run_that_cannot_be_shown_is_kept() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = scenario(&ground, &application.url, SHORT);
    let out = |name: &str| ground.0.join(name).display().to_string();
    let (run, hit) = (out("run"), out("hit"));
    for words in [
        vec!["run", &file, "--no-host", "--out", &run],
        vec!["hit", "-n", "50", "--no-host", "--json", "--out", &hit, &application.url],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told =
            command().args(&words).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(97), "{words:?}: {said}");
        let sentence =
            "tidegate bench: what was measured cannot be shown: cannot write to standard output: No space";
        assert!(said.contains(sentence), "{words:?}: {said}");
    }
    for folder in [run, hit] {
        let shown = bench(&["show", &folder]);
        assert!(shown.code == 0 && !shown.stdout.contains("BROKEN-OFF"), "{}{}", shown.stdout, shown.stderr);
    }
}

/// A disk that is full at the end of a run takes no report away, and leaves nothing that is there by half.
#[test]
fn a_disk_that_is_full_at_the_end_leaves_a_run_that_was_broken_off() {
    let ground = Folder::new();
    let application = Application::new(page);
    let runs = ground.0.join("runs");
    let file = scenario(&ground, &application.url, SHORT);
    // Files are written by way of this name, and this device is always full.
    let out = |name: &str| {
        let out = runs.join(name);
        fs::create_dir_all(&out).unwrap();
        std::os::unix::fs::symlink("/dev/full", out.join(".report.txt.new")).unwrap();
        out.display().to_string()
    };
    let (run, hit) = (out("run"), out("hit"));
    for (words, part) in [
        (vec!["run", &file, "--no-host", "--out", &run], "Operations per second"),
        (vec!["hit", "-n", "50", "--no-host", "--out", &hit, &application.url], "Requests"),
    ] {
        let told = bench(&words);
        assert_eq!(told.code, 97, "{words:?}: {}", told.stderr);
        assert!(told.stdout.contains(part), "{words:?}: {}", told.stdout);
        let line = told.stderr.lines().last().unwrap_or_default();
        let sentence = "tidegate bench: what was measured is shown, and is not kept whole: cannot write ";
        assert!(line.starts_with(sentence) && line.contains("No space left"), "{words:?}: {}", told.stderr);
    }
    for name in ["run", "hit"] {
        let left =
            ["report.txt", ".report.txt.new", "summary.json"].map(|file| runs.join(name).join(file).exists());
        assert_eq!(left, [false; 3], "{name}");
        let shown = bench(&["show", runs.join(name).to_str().unwrap()]);
        assert!(shown.code == 0 && shown.stdout.contains("BROKEN-OFF"), "{}{}", shown.stdout, shown.stderr);
    }
    let listed = bench(&["ls", "--runs-folder", runs.to_str().unwrap()]);
    assert_eq!(listed.stdout.matches("BROKEN-OFF").count(), 2, "{}{}", listed.stdout, listed.stderr);
    let pages = Pages::new(&runs);
    for path in ["/", "/runs/run", "/runs/hit"] {
        assert!(pages.ask("localhost", path).starts_with("HTTP/1.1 200"), "{path}");
    }
}
