//! `tidegate bench queue`: every combination a run of its own, and on from where it was.

use super::peers::{Folder, bench, command};
use super::scenarios::{Application, Asked, Reply, ok};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use tidegate_testkit::{InTime, is_running, wait_for};

fn page(_: &Asked) -> Reply {
    ok("", "a page")
}

/// A scenario with variables, and a queue of four runs of it.
fn queue(ground: &Folder, url: &str, steady: &str) -> String {
    let scenario = format!(
        "target \"{url}\"\nusers \"${{USERS}}\" {{ steady \"{steady}\" }}\nthink fixed \"20ms\"\n\
         flow {{ get \"/${{WHAT}}\" }}\n"
    );
    ground.write("scenario.kdl", scenario);
    let text = "run \"scenario.kdl\" { set USERS \"1\" \"2\"; set WHAT \"a\" \"b\" }\n";
    ground.write("many.kdl", text)
}

#[test]
fn every_combination_is_run_once() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = queue(&ground, &application.url, "200ms");
    let kept = ground.0.join("kept").display().to_string();
    let made = |words: &[&str]| bench(&[&["queue", &file, "--runs-folder", &kept], words].concat());

    let plan = made(&["--plan"]);
    assert!(plan.stdout.contains("queue many: 4 runs, 4 of them to be made"), "{}", plan.stdout);
    assert!(plan.stdout.contains("scenario.kdl USERS=2 WHAT=a"), "{}", plan.stdout);
    assert_eq!(application.asked().len(), 0);
    assert!(!ground.0.join("kept").exists(), "a plan writes nothing");

    let first = made(&["--", "--no-host"]);
    assert!(matches!(first.code, 0 | 98), "{}\n{}", first.stdout, first.stderr);
    assert!(first.stdout.contains("queue many: 4 of 4 runs are made"), "{}", first.stdout);
    let listed = bench(&["ls", "--json", "--runs-folder", &kept]).json();
    let mut rows: Vec<(String, u64)> = listed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["label"].as_str().unwrap().to_owned(), row["users"].as_u64().unwrap()))
        .collect();
    rows.sort();
    let expected =
        [("USERS=1 WHAT=a", 1), ("USERS=1 WHAT=b", 1), ("USERS=2 WHAT=a", 2), ("USERS=2 WHAT=b", 2)];
    assert_eq!(rows, expected.map(|(label, users)| (label.to_owned(), users)));
    assert!(application.asked().iter().any(|asked| asked.line == "GET /b"));

    // What is made is not made again; what was taken away is.
    let asked = application.asked().len();
    let again = made(&[]);
    assert_eq!(again.stdout.matches("made before").count(), 4, "{}", again.stdout);
    assert_eq!(application.asked().len(), asked);
    let id = listed["runs"][0]["id"].as_str().unwrap();
    fs::remove_dir_all(format!("{kept}/{id}")).unwrap();
    let once = made(&["--", "--no-host"]);
    assert_eq!(once.stdout.matches("made before").count(), 3, "{}", once.stdout);

    // The page that it names is there to be made.
    let export = once.stdout.lines().find(|line| line.contains("bench export")).unwrap();
    let ids = export.split_whitespace().skip_while(|word| *word != "export").nth(1).unwrap();
    let page = ground.0.join("series.html").display().to_string();
    let export = bench(&["export", ids, "-o", &page, "--runs-folder", &kept]);
    assert_eq!(export.code, 0, "{}", export.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("USERS=2 WHAT=b"));
}

#[test]
fn mistakes_come_before_the_first_run() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = queue(&ground, &application.url, "200ms");
    let kept = ground.0.join("kept").display().to_string();
    for (text, part) in [
        ("run \"scenario.kdl\" { set USERS \"1\" \"many\"; set WHAT \"a\" }", "with USERS=many WHAT=a"),
        ("run \"scenario.kdl\" { set USERS \"1\" }", "`WHAT` is not set"),
        ("run \"none.kdl\"", "none.kdl"),
        ("run \"none.kdl\"; run \"scenario.kdl\" { set USERS \"1\" }", "`WHAT` is not set"),
        ("run \"scenario.kdl\" { repet 3 }", "did you mean `repeat`?"),
    ] {
        ground.write("many.kdl", text);
        let told = bench(&["queue", &file, "--runs-folder", &kept]);
        assert!(told.code == 1 && told.stderr.contains(part), "{text}: {}", told.stderr);
    }
    assert_eq!(application.asked().len(), 0);
}

/// What stands behind `--` is looked at before the first run; of a run that was never made nothing is left.
#[test]
fn options_of_runs_are_looked_at_before_the_first() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = queue(&ground, &application.url, "200ms");
    let kept = ground.0.join("kept").display().to_string();
    let told = |words: &[&str]| bench(&[&["queue", &file, "--runs-folder", &kept, "--"], words].concat());
    for (words, part) in [
        (&["--nonsense"][..], "behind `--`: unexpected argument '--nonsense' found; "),
        (&["--seed", "x"], "behind `--`: invalid value 'x' for '--seed <N>'"),
        (&["other.kdl"], "behind `--`: unexpected argument 'other.kdl' found"),
        (&["--help"], "behind `--` stand options for each run"),
        (&["--out", "x"], "behind `--`: --out is not for the runs of a queue"),
        (&["--label", "x"], "behind `--`: --label is not for the runs of a queue"),
        (&["--no-keep"], "behind `--`: --no-keep is not for the runs of a queue"),
        (&["--check"], "behind `--`: --check is not for the runs of a queue"),
    ] {
        let told = told(words);
        assert!(told.code == 2 && told.stderr.contains(part), "{words:?}: {} {}", told.code, told.stderr);
        assert!(!told.stderr.contains("--out <FOLDER>"), "{words:?}: {}", told.stderr);
    }
    assert!(application.asked().is_empty() && !ground.0.join("kept").exists());

    // Each run finds out that its scenario has no rate.
    let none = told(&["--rate", "5"]);
    assert!(none.code == 1 && none.stderr.contains("could not be run: exit status: 2"), "{}", none.stderr);
    let left = fs::read_dir(&kept).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 0, "a folder of a run that was never made");

    ground.write("many.kdl", "run \"scenario.kdl\" { set USERS \"1\"; set WHAT \"a\" }\n");
    let quiet = told(&["-q", "--quiet", "--no-host"]);
    assert!(quiet.stdout.contains("queue many: 1 of 1 runs are made"), "{}{}", quiet.stdout, quiet.stderr);
}

#[test]
fn an_interrupted_queue_goes_on() {
    let ground = Folder::new();
    let application = Application::new(page);
    let file = queue(&ground, &application.url, "300ms");
    ground.write("many.kdl", "run \"scenario.kdl\" { set USERS \"1\"; set WHAT \"a\" \"b\" \"c\" }");
    let kept = ground.0.join("kept").display().to_string();
    let words = ["queue", &file, "--runs-folder", &kept, "--", "--no-host"];
    let mut child = command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("1/3 scenario.kdl USERS=1 WHAT=a: "));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // What it would still print is read to its end.
    let output = child.output_in_time();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("of 3 runs are made, the same command goes on"), "{told}");
    drop(lines);
    let rest = bench(&words);
    assert!(rest.stdout.contains("queue many: 3 of 3 runs are made"), "{}\n{}", rest.stdout, rest.stderr);
    assert!((1..3).contains(&rest.stdout.matches("made before").count()), "{}", rest.stdout);
}

/// What a scenario names is a part of it: another template, other runs.
#[test]
fn runs_with_another_template_are_to_be_made() {
    let ground = Folder::new();
    let application = Application::new(page);
    let here = ground.0.display();
    let scenario = format!(
        "target \"{}\"\nusers 1 {{ steady \"200ms\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ configure \"{here}/x.conf\" from=\"x.template\"; reset \"cat {here}/x.conf >> {here}/seen\" }}\n",
        application.url
    );
    ground.write("scenario.kdl", scenario);
    ground.write("x.template", "workers ${WORKERS}\n");
    let file = ground.write("many.kdl", "run \"scenario.kdl\" { set WORKERS \"1\" \"2\" }\n");
    let kept = ground.0.join("kept").display().to_string();
    let made = |words: &[&str]| bench(&[&["queue", &file, "--runs-folder", &kept], words].concat());
    let first = made(&["--", "--no-host"]);
    assert!(first.stdout.contains("queue many: 2 of 2 runs are made"), "{}{}", first.stdout, first.stderr);
    assert_eq!(fs::read_to_string(ground.0.join("seen")).unwrap(), "workers 1\nworkers 2\n");
    assert!(made(&["--plan"]).stdout.contains("2 runs, 0 of them to be made"));
    ground.write("x.template", "# more\nworkers ${WORKERS}\n");
    assert!(made(&["--plan"]).stdout.contains("2 runs, 2 of them to be made"));
}

/// A queue that is killed takes the run with it that it was making, and what that had begun; the same command goes on.
#[test]
fn a_queue_that_is_killed_leaves_nothing_behind() {
    let ground = Folder::new();
    let application = Application::new(page);
    let (here, address) = (ground.0.display(), application.url.trim_start_matches("http://"));
    let scenario = format!(
        "target \"{}\"\nusers 1 {{ steady \"${{LENGTH}}\" }}\nthink fixed \"20ms\"\nflow {{ get \"/${{WHAT}}\" }}\n\
         system web {{ configure \"{here}/x.conf\" from=\"x.template\"; \
         start \"echo $$ > {here}/pid; sleep 1000 & wait\"; ready tcp=\"{address}\" }}\n",
        application.url
    );
    ground.write("scenario.kdl", scenario);
    ground.write("x.template", "new\n");
    ground.write("x.conf", "old\n");
    let file = ground.write("many.kdl", "run \"scenario.kdl\" { set WHAT \"a\" \"b\" }\n");
    let kept = ground.0.join("kept").display().to_string();
    let words = ["queue", &file, "--runs-folder", &kept, "--", "--no-host"];
    let mut queue = command();
    let queue = queue.args(words).env("LENGTH", "10m").stdin(Stdio::null()).stdout(Stdio::null());
    let mut queue = queue.stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| (!application.asked().is_empty()).then_some(()), "load");
    assert_eq!(fs::read_to_string(ground.0.join("x.conf")).unwrap(), "new\n");
    queue.kill().unwrap();
    queue.wait().unwrap();
    // The lock of the queue is the run's until it has ended.
    let go_on = || command().args(words).env("LENGTH", "200ms").output_in_time();
    let output = wait_for(
        || {
            let output = go_on();
            (!String::from_utf8_lossy(&output.stderr).contains("another process makes")).then_some(output)
        },
        "the end of the run",
    );
    let pid = fs::read_to_string(ground.0.join("pid")).unwrap();
    assert!(!is_running(pid.trim().parse().unwrap()), "what was started is still there");
    assert_eq!(fs::read_to_string(ground.0.join("x.conf")).unwrap(), "old\n");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains("queue many: 2 of 2 runs are made"),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!told.contains("made before"), "{told}");
    // Whoever looks at its command sees one that can be typed.
    let listed = bench(&["ls", "--json", "--runs-folder", &kept]).json();
    let id = listed["runs"][0]["id"].as_str().unwrap();
    let summary = fs::read_to_string(format!("{kept}/{id}/summary.json")).unwrap();
    assert!(summary.contains("bench run") && !summary.contains("of-queue"), "{summary}");
}
