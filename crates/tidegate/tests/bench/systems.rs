//! Systems beside the load: monitors on this machine and by ssh, of which a program of that name stands in.

use super::http2::Served2;
use super::peers::{BINARY, Folder, Outcome, bench, command};
use super::scenarios::{Application, Asked, Reply, ok, scenario};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use tidegate_testkit::{InTime, is_running, wait_for};

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

#[test]
fn systems_are_started_and_stopped_in_order() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    let address = application.url.trim_start_matches("http://");
    let rest = format!(
        "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system db {{ reset \"echo reset >> {folder}/log; echo said\"; start \"echo db >> {folder}/log\"; stop \"echo stop db >> {folder}/log\"; \
         collect \"{folder}/log\" \"/nowhere/x.log\" }}\n\
         system web {{ ssh \"web.test\"; start \"echo $$ > {folder}/pid; echo web >> {folder}/log; exec sleep 1000\"; \
         ready tcp=\"{address}\"; stop \"echo stop web >> {folder}/log; exit 3\" }}"
    );
    let outcome = run(&ground, &scenario(&ground, &application.url, &rest));
    assert!(matches!(outcome.code, 0 | 98), "{}{}", outcome.stdout, outcome.stderr);
    let log = fs::read_to_string(ground.0.join("log")).unwrap();
    assert!(log.starts_with("reset\ndb\n") && log.ends_with("stop web\nstop db\n"), "{log}");
    let pid = fs::read_to_string(ground.0.join("pid")).unwrap();
    assert!(!PathBuf::from("/proc").join(pid.trim()).exists(), "what was started is still there");
    let kept = ground.0.join("run/logs/db");
    assert_eq!(fs::read_to_string(kept.join("reset.txt")).unwrap(), "said\n");
    let copied = fs::read_dir(&kept).unwrap().map_while(Result::ok).map(|entry| entry.path());
    let copied: Vec<PathBuf> =
        copied.filter(|path| path.extension().is_none_or(|ending| ending != "txt")).collect();
    assert_eq!(copied.len(), 1, "{copied:?}");
    assert_eq!(fs::read_to_string(&copied[0]).unwrap(), log);
    for note in ["`stop` of web failed (exit status 3)", "/nowhere/x.log of db was not collected"] {
        assert!(outcome.stdout.contains(note), "{note}: {}", outcome.stdout);
    }
}

#[test]
fn a_system_that_does_not_start_gets_no_load() {
    for (web, sentence) in [
        (
            "reset \"echo no data >&2; exit 2\"",
            "`reset` of web failed (exit status 2); no load was put on (it said last: no data; ",
        ),
        ("start \"exit 4\"; ready tcp=\"127.0.0.1:1\"", "`start` of web failed (exit status 4)"),
        (
            "start \"sleep 1000\"; ready tcp=\"127.0.0.1:1\" within=\"300ms\"",
            "`start` of web was not ready within 300 ms",
        ),
        ("reset \"sleep 1000\" within=\"100ms\"", "`reset` of web took longer than 100 ms"),
    ] {
        let ground = Folder::new();
        let folder = ground.0.display().to_string();
        let application = Application::new(application);
        let rest = format!(
            "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
             system db {{ start \"true\"; stop \"touch {folder}/stopped\" }}\nsystem web {{ {web} }}"
        );
        let outcome = run(&ground, &scenario(&ground, &application.url, &rest));
        assert_eq!(outcome.code, 1, "{web}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(sentence), "{web}: {}", outcome.stderr);
        assert!(ground.0.join("stopped").exists(), "{web}");
        assert!(application.asked().is_empty(), "{web}");
    }
}

#[test]
fn an_interrupt_stops_systems() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    let address = application.url.trim_start_matches("http://");
    let rest = format!(
        "users 1 {{ steady \"10m\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ start \"echo $$ > {folder}/pid; exec sleep 1000\"; ready tcp=\"{address}\"; \
         stop \"touch {folder}/stopped; kill $(cat {folder}/pid)\" }}"
    );
    let file = scenario(&ground, &application.url, &rest);
    let mut run = command();
    run.args(["run", &file, "--no-host", "--quiet", "--out"]).arg(ground.0.join("run"));
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_for(|| (!application.asked().is_empty()).then_some(()), "load");
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(ground.0.join("stopped").exists());
    let pid = fs::read_to_string(ground.0.join("pid")).unwrap();
    assert!(!PathBuf::from("/proc").join(pid.trim()).exists(), "what was started is still there");
}

#[test]
fn a_file_is_written_for_the_run_and_put_back() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    ground.write("x.conf", "old\n");
    ground.write(
        "x.template",
        "workers ${WORKERS_OF_TEST};\nhost $host ${host};\nname ${NAME_OF_TEST:-none};\n",
    );
    let rest = format!(
        "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ configure \"{folder}/x.conf\" from=\"x.template\"; reset \"cat {folder}/x.conf > {folder}/seen\" }}\n\
         system far {{ ssh \"far.test\"; collect \"{folder}/new.conf\"; configure \"{folder}/new.conf\" from=\"x.template\"; stop \"cat {folder}/new.conf > {folder}/there\" }}"
    );
    let file = scenario(&ground, &application.url, &rest);
    let check = command().args(["run", &file, "--check"]).output_in_time();
    let told = String::from_utf8(check.stderr).unwrap();
    assert!(
        told.contains("x.template:1:9: error: the environment variable `WORKERS_OF_TEST` is not set"),
        "{told}"
    );

    let kept = |workers: &str| {
        let path = format!("{}:{}", ssh_of(&ground).display(), std::env::var("PATH").unwrap());
        let mut run = command();
        run.args(["run", &file, "--no-host", "--out"]).arg(ground.0.join(workers));
        let output =
            run.env("PATH", path).env("WORKERS_OF_TEST", workers).stdin(Stdio::null()).output_in_time();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 98)), "{said}");
        ground.0.join(workers)
    };
    let runs = ["4", "8"].map(kept);
    let written = "workers 8;\nhost $host ${host};\nname none;\n";
    for seen in ["seen", "there"] {
        assert_eq!(fs::read_to_string(ground.0.join(seen)).unwrap(), written, "{seen}");
    }
    assert_eq!(fs::read_to_string(ground.0.join("x.conf")).unwrap(), "old\n");
    assert!(!ground.0.join("new.conf").exists());
    let left = fs::read_dir(&ground.0).unwrap().map_while(Result::ok).map(|entry| entry.file_name());
    let left: Vec<String> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.contains("tidegate-before")), "{left:?}");
    assert_eq!(fs::read_to_string(runs[1].join("settings/web/1-x.conf")).unwrap(), written);
    // Collected is what there was in the run, not what is put back.
    assert_eq!(fs::read_to_string(runs[1].join("logs/far/1-new.conf")).unwrap(), written);

    // What tells the runs apart are their settings.
    let [a, b] = runs.each_ref().map(|run| run.display().to_string());
    let diff = bench(&["diff", &a, &b]).stdout;
    assert!(diff.contains("settings/web/1-x.conf differs:") && diff.contains("+workers 8;"), "{diff}");
}

#[test]
fn what_another_run_has_written_is_left_alone() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    ground.write("x.conf", "of another run\n");
    ground.write("x.conf.tidegate-before", "old\n");
    ground.write("x.template", "mine\n");
    let rest = format!(
        "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ configure \"{folder}/x.conf\" from=\"x.template\" }}"
    );
    let outcome = run(&ground, &scenario(&ground, &application.url, &rest));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(".tidegate-before: another run has written"), "{}", outcome.stderr);
    assert_eq!(fs::read_to_string(ground.0.join("x.conf")).unwrap(), "of another run\n");
    assert_eq!(fs::read_to_string(ground.0.join("x.conf.tidegate-before")).unwrap(), "old\n");
    assert!(application.asked().is_empty());

    ground.write("y.template", "${A_VARIABLE_THAT_NOBODY_SETS}");
    for (web, part) in [
        (
            format!(
                "configure \"{folder}/a\" from=\"x.template\"; configure \"{folder}/a\" from=\"x.template\""
            ),
            "is written twice",
        ),
        ("configure \"etc/a\" from=\"x.template\"".to_owned(), "etc/a is no whole path"),
        ("configure \"/etc/a\"".to_owned(), "does not say what is to be written"),
        ("configure \"/etc/a\" from=\"none\"".to_owned(), "none cannot be read"),
        ("configure \"/etc/a\" from=\"y.template\"".to_owned(), "`A_VARIABLE_THAT_NOBODY_SETS` is not set"),
    ] {
        let rest = format!(
            "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\nsystem web {{ {web} }}"
        );
        let told = bench(&["run", &scenario(&ground, &application.url, &rest), "--check"]);
        assert!(told.stderr.contains(part), "{web}: {}", told.stderr);
    }
}

/// A run that is killed, or interrupted twice, leaves nothing behind.
#[test]
fn a_run_that_is_killed_leaves_its_systems_as_they_were() {
    for signals in [vec![Signal::KILL], vec![Signal::INT, Signal::INT]] {
        let ground = Folder::new();
        let folder = ground.0.display().to_string();
        let application = Application::new(application);
        let address = application.url.trim_start_matches("http://");
        ground.write("x.conf", "old\n");
        ground.write("x.template", "new\n");
        // Whoever interrupts once has to wait for the `stop`: the second interrupt falls into it.
        let rest = format!(
            "users 1 {{ steady \"10m\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
             system web {{ configure \"{folder}/x.conf\" from=\"x.template\"; \
             start \"echo $$ > {folder}/pid; exec sleep 1000\"; ready tcp=\"{address}\"; \
             stop \"echo >> {folder}/stopped; kill $(cat {folder}/pid); [ -e {folder}/again ] || sleep 1000; true\" }}"
        );
        let file = scenario(&ground, &application.url, &rest);
        let mut run = command();
        run.args(["run", &file, "--no-host", "--quiet", "--out"]).arg(ground.0.join("run"));
        let run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        wait_for(|| (!application.asked().is_empty()).then_some(()), "load");
        assert_eq!(fs::read_to_string(ground.0.join("x.conf")).unwrap(), "new\n");
        let stopped = || fs::read_to_string(ground.0.join("stopped")).map_or(0, |text| text.lines().count());
        for (number, signal) in (0..).zip(&signals) {
            wait_for(|| (stopped() == number).then_some(()), "the stop that is interrupted");
            if number + 1 == signals.len() {
                ground.write("again", "");
            }
            kill_process(Pid::from_child(&run), *signal).unwrap();
        }
        assert!(!run.wait().unwrap().success(), "{signals:?}");
        wait_for(
            || (fs::read_to_string(ground.0.join("x.conf")).ok()? == "old\n").then_some(()),
            "the settings that were there before",
        );
        assert_eq!(stopped(), signals.len(), "{signals:?}");
        let pid = fs::read_to_string(ground.0.join("pid")).unwrap();
        let pid: u32 = pid.trim().parse().unwrap();
        assert!(!is_running(pid), "{signals:?}: what was started is still there");
    }
}

#[test]
fn a_system_is_asked_by_https() {
    let served = Served2::new();
    let ground = Folder::new();
    let application = Application::new(application);
    let url = format!("{}/1k", served.tls);
    let rest = format!(
        "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ start \"true\"; ready url=\"{url}\"; monitor url=\"{url}\" }}\n\
         system plain {{ start \"true\"; ready url=\"{}\" within=\"200ms\" }}",
        application.url.replace("http:", "https:")
    );
    let outcome = run(&ground, &scenario(&ground, &application.url, &rest));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("`start` of plain was not ready within 200 ms"), "{}", outcome.stderr);
}

#[test]
fn what_a_stop_leaves_is_ended_and_told() {
    let ground = Folder::new();
    let application = Application::new(application);
    let address = application.url.trim_start_matches("http://");
    let rest = format!(
        "users 1 {{ steady \"1s\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ start \"exec sleep 1234\"; ready tcp=\"{address}\"; stop \"true\" }}"
    );
    let outcome = run(&ground, &scenario(&ground, &application.url, &rest));
    let note = "`stop` of web left what its `start` had started (sleep ";
    assert!(outcome.stdout.contains(note), "{}", outcome.stdout);
    assert!(
        outcome.stderr.contains("what `start` of web has started is waited for, 10.0 s at most: sleep "),
        "{}",
        outcome.stderr
    );
}

/// What cannot be put back is a note with its path; what cannot be written is a sentence with its reason, and nothing is left of it.
#[test]
fn what_configure_cannot_do_is_said() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    ground.write("x.conf", "old\n");
    ground.write("x.template", "new\n");
    std::os::unix::fs::symlink("nowhere", ground.0.join("dangling")).unwrap();
    let outcome = |name: &str, more: &str| {
        let rest = format!(
            "users 1 {{ steady \"200ms\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
             system web {{ ssh \"web.test\"; configure \"{folder}/{name}\" from=\"x.template\"; {more} }}"
        );
        run(&ground, &scenario(&ground, &application.url, &rest))
    };
    let gone = outcome("x.conf", &format!("reset \"rm {folder}/x.conf.tidegate-before\""));
    assert!(matches!(gone.code, 0 | 98), "{}", gone.stderr);
    let note = format!(
        "{folder}/x.conf of web was not put back: what was kept beside it is gone (`{folder}/x.conf.tidegate-before`"
    );
    assert!(gone.stdout.contains(&note), "{}", gone.stdout);
    let names = || {
        let names = fs::read_dir(&ground.0).unwrap().flatten();
        names
            .map(|entry| entry.file_name())
            .filter(|name| name != "run")
            .collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    for (name, reason) in [
        (
            "dangling",
            format!("failed: {folder}/dangling is a link that leads to no file; no load was put on"),
        ),
        ("missing/x.conf", "failed: cannot create ".to_owned()),
    ] {
        let told = outcome(name, "");
        assert_eq!(told.code, 1, "{}", told.stderr);
        assert!(told.stderr.contains(&format!("`configure` of web {reason}")), "{}", told.stderr);
        assert!(!told.stderr.contains("was not put back"), "{}", told.stderr);
        assert_eq!(names(), before);
    }
}

/// What has left the group of its `start` ends with the run as well.
#[test]
fn what_is_in_another_session_ends_with_the_run() {
    let ground = Folder::new();
    let folder = ground.0.display().to_string();
    let application = Application::new(application);
    let address = application.url.trim_start_matches("http://");
    let rest = format!(
        "users 1 {{ steady \"10m\" }}\nthink fixed \"20ms\"\nflow {{ get \"/\" }}\n\
         system web {{ start \"setsid sleep 1000 & echo $! > {folder}/pid; sleep 1000\"; ready tcp=\"{address}\" }}"
    );
    let file = scenario(&ground, &application.url, &rest);
    for signal in [Signal::INT, Signal::KILL] {
        let asked = application.asked().len();
        let _ = fs::remove_file(ground.0.join("pid"));
        let mut run = command();
        run.args(["run", &file, "--no-host", "--quiet", "--out"]).arg(ground.0.join("run"));
        let run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        wait_for(|| (application.asked().len() > asked).then_some(()), "load");
        // Nothing of it is waited for before there is load.
        let pid = || fs::read_to_string(ground.0.join("pid")).ok()?.trim().parse().ok();
        let pid: u32 = wait_for(pid, "its number");
        kill_process(Pid::from_child(&run), signal).unwrap();
        let _ = run.wait().unwrap();
        wait_for(|| (!is_running(pid)).then_some(()), "the end of what is in another session");
    }
}
