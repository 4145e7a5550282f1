//! Systems beside the load: monitors on this machine and by ssh, of which a program of that name stands in.

use super::peers::{BINARY, Folder, Outcome, bench, command};
use super::scenarios::{Application, Asked, Reply, ok, scenario};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use tidegate_testkit::InTime;

fn application(asked: &Asked) -> Reply {
    if asked.line.contains("/status?json") {
        return ok("", r#"{"pool":"www","accepted conn":5,"listen queue":3,"idle processes":1}"#);
    }
    ok("", "a page")
}

/// An `ssh` that does here what it is to do there, and says which hosts it was asked for.
fn ssh_of(ground: &Folder) -> PathBuf {
    let folder = ground.0.join("bin");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("ssh");
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = \"-o BatchMode=yes -o\" ] || exit 255\nshift 4\n\
         echo \"$1\" >> {}/hosts\n[ \"$1\" = silent ] && exec sleep 1000\nexec sh -c \"$2\"\n",
        ground.0.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Runs a scenario into `run` of the folder, with that `ssh`.
fn run(ground: &Folder, file: &str) -> Outcome {
    let path = format!("{}:{}", ssh_of(ground).display(), std::env::var("PATH").unwrap());
    let mut run = command();
    run.args(["run", file, "--no-host", "--out"]).arg(ground.0.join("run"));
    let output = run.env("PATH", path).stdin(Stdio::null()).output_in_time();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn systems_are_watched_and_drawn_and_never_hold_up_a_run() {
    let ground = Folder::new();
    let application = Application::new(application);
    let own = std::process::id();
    let url = &application.url;
    let rest = format!(
        "users 2 {{ steady \"4s\" }}\nthink fixed \"20ms\"\nop home {{ get \"/\" }}\nmix {{ home 1 }}\n\
         system here {{ monitor interval=\"100ms\" process=\"{own}\" url=\"{url}/status?json\" }}\n\
         system there {{ ssh \"bench@web.test\" program=\"{BINARY}\"; monitor interval=\"100ms\" }}\n\
         system gone {{ ssh \"gone.test\" program=\"/nowhere/tidegate\"; monitor }}\n\
         system mute {{ ssh \"silent\"; monitor }}"
    );
    let file = scenario(&ground, url, &rest);
    let outcome = run(&ground, &file);
    assert!(matches!(outcome.code, 0 | 98), "{}{}", outcome.stdout, outcome.stderr);

    let kept = ground.0.join("run");
    let table = |system: &str| fs::read_to_string(kept.join(format!("monitors/{system}.csv"))).unwrap();
    let process = format!("process.{own}.resident_bytes");
    for (system, names) in [
        ("here", vec!["cpu.0.user_share", "memory.used_bytes", &process, "php-fpm.www.queue"]),
        ("there", vec!["cpu.0.user_share", "tasks.running"]),
    ] {
        let text = table(system);
        let columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        assert_eq!(columns[0], "at", "{system}");
        for name in names {
            assert!(columns.contains(&name), "{system} has no {name}: {columns:?}");
        }
        let times: Vec<f64> =
            text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
        assert!(times.len() > 1 && times.is_sorted() && times[0] > 0.0, "{system}: {times:?}");
    }
    assert_eq!(table("gone"), "at\n");
    let hosts = fs::read_to_string(ground.0.join("hosts")).unwrap();
    let mut hosts: Vec<&str> = hosts.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["bench@web.test", "gone.test", "silent"]);

    // What was wrong is said, and no more.
    for note in ["the monitor of gone ended without a figure: ", "the monitor of mute gave no figure"] {
        assert!(outcome.stdout.contains(note), "{note}: {}", outcome.stdout);
    }
    let folder = kept.display().to_string();
    let shown = bench(&["show", &folder]);
    assert!(shown.stdout.contains("the monitor of mute gave no figure"), "{}", shown.stdout);
    let page = ground.0.join("page.html");
    assert_eq!(bench(&["export", &folder, "-o", page.to_str().unwrap()]).code, 0);
    let page = fs::read_to_string(page).unwrap();
    for part in ["Processors of here: user_share", "Processors of there: user_share", "Memory of there"] {
        assert!(page.contains(part), "no `{part}` on the page");
    }
}

#[test]
fn a_monitor_ends_with_its_input() {
    let told = bench(&["monitor", "--stdio"]);
    assert_eq!((told.code, told.stderr.as_str()), (0, ""));
    let wrong = bench(&["monitor", "--interval", "1ms"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("--interval is from"), "{}", wrong.stderr);
}

#[test]
fn a_run_that_keeps_nothing_says_that_nothing_was_watched() {
    let ground = Folder::new();
    let application = Application::new(application);
    let rest = "users 1 { steady \"1s\" }\nthink fixed \"20ms\"\nflow { get \"/\" }\nsystem here { monitor }";
    let file = scenario(&ground, &application.url, rest);
    let outcome = bench(&["run", &file, "--no-host", "--no-keep"]);
    assert!(outcome.stdout.contains("the systems were not watched"), "{}", outcome.stdout);
    let plan = bench(&["run", &file, "--plan"]);
    assert!(plan.stdout.contains("here, this machine, watched each 1.00 s"), "{}", plan.stdout);
}
