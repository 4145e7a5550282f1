//! Agents that ssh starts, of which a program of that name stands in.

use super::super::peers::{BINARY, Folder, Outcome, Served, command};
use super::{Running, operations, scenario};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tidegate_testkit::{InTime, is_running, wait_for};

/// An `ssh` that does here what it is to do there: with the address at which it would have come, and the end of its input for the end of a
/// connection. It says which hosts it was asked for, and the process of each.
fn with_ssh(ground: &Folder, command: &mut Command) {
    let folder = ground.0.join("bin");
    fs::create_dir_all(&folder).unwrap();
    let ground = ground.0.display();
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = \"-o BatchMode=yes -o\" ] || exit 255\nshift 4\n\
         echo \"$1\" >> {ground}/hosts\necho $$ >> {ground}/pids\necho 'Welcome to this machine'\n\
         case $1 in\n\
         *gone*) echo \"ssh: connect to host $1 port 22: Connection refused\" >&2; exit 255;;\n\
         *old*) echo '{{\"version\":\"0.0.9\",\"address\":\"127.0.0.1:1\"}}'; exec cat;;\n\
         *walled*) echo '{{\"version\":\"{version}\",\"address\":\"127.0.0.1:1\"}}'; exec cat;;\n\
         *mute*) exec cat;;\n\
         esac\n\
         SSH_CONNECTION=\"127.0.0.1 50000 127.0.0.2 22\" exec sh -c \"exec $2\"\n",
        version = env!("CARGO_PKG_VERSION"),
    );
    let path = folder.join("ssh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    command.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
}

fn run(ground: &Folder, arguments: &[&str]) -> Outcome {
    let mut run = command();
    with_ssh(ground, run.arg("run").args(arguments));
    let output = run.output_in_time();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn processes(ground: &Folder) -> Vec<u32> {
    let pids = fs::read_to_string(ground.0.join("pids")).unwrap_or_default();
    pids.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn agents_by_ssh_need_nothing_but_ssh() {
    let (served, ground) = (Served::new(), Folder::new());
    let path = scenario(&ground, &served.url, "2s");
    // One more that is there already, with keys of its own.
    let place = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let there = Running::new(&["agent", "--listen", &address, "--once", "--insecure-loopback"]);
    let agents = format!("ssh:bench@east.test,{address},ssh:west.test:2222");
    let kept = ground.0.join("run");
    let outcome = run(
        &ground,
        &[
            &path,
            "--agents",
            &agents,
            "--insecure-loopback",
            "--agents-program",
            BINARY,
            "--json",
            "--out",
            kept.to_str().unwrap(),
        ],
    );
    assert!(matches!(outcome.code, 0 | 98), "{}", outcome.stderr);
    let json = outcome.json();
    assert_eq!(operations(&json), 120, "{}", outcome.stdout);
    let made = json["agents"].to_string();
    assert_eq!(made.matches("127.0.0.2:").count(), 2, "{made}");
    assert_eq!(there.end().code, 0);
    let hosts = fs::read_to_string(ground.0.join("hosts")).unwrap();
    let mut hosts: Vec<&str> = hosts.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["bench@east.test", "ssh://west.test:2222"]);
    for process in processes(&ground) {
        assert!(!is_running(process), "agent {process} is still there");
    }
    // What their machines were like is in the folder of the run, a file for each.
    let mut files: Vec<String> = fs::read_dir(kept.join("monitors"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    for (number, file) in (1..).zip(&files) {
        assert!(file.starts_with(&format!("agent-{number}-")), "{files:?}");
        let text = fs::read_to_string(kept.join("monitors").join(file)).unwrap();
        let columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        for name in ["at", "cpu.0.user_share", "tasks.running", "memory.used_bytes", "tcp.retransmits"] {
            assert!(columns.contains(&name), "{file} has no {name}: {columns:?}");
        }
        assert!(text.lines().count() > 1, "{text}");
    }
    let page = fs::read_to_string(kept.join("report.html")).unwrap();
    for number in 1..=3 {
        let title = format!("Processors of agent-{number}-");
        assert!(page.contains(&title), "no `{title}` on the page");
    }
    assert!(json["agents"][0]["host"]["busy"].as_f64().unwrap() > 0.0, "{made}");
}

#[test]
fn who_cannot_be_started_is_named() {
    let ground = Folder::new();
    let path = scenario(&ground, "http://127.0.0.1:1", "1s");
    for (agents, patience, parts) in [
        (
            "ssh:gone.test",
            "60s",
            ["ssh:gone.test: the agent ended before it was there", "Connection refused"],
        ),
        ("ssh:old.test", "60s", ["ssh:old.test: the agent is of version 0.0.9", env!("CARGO_PKG_VERSION")]),
        (
            "ssh:u@walled.test",
            "60s",
            ["the agent listens on 127.0.0.1:1, which cannot be reached", "--listen-agents"],
        ),
        ("ssh:mute.test", "300ms", ["ssh:mute.test: no agent was there after 300 ms", "nothing was run"]),
        ("ssh:east.test", "60s", ["refuses connections", "127.0.0.1:1"]),
    ] {
        let arguments = [
            &path,
            "--no-keep",
            "--agents",
            agents,
            "--agents-patience",
            patience,
            "--agents-program",
            BINARY,
        ];
        let outcome = run(&ground, &arguments);
        assert_eq!(outcome.code, 1, "{agents}: {}", outcome.stderr);
        for part in parts {
            assert!(outcome.stderr.contains(part), "{agents}: no `{part}` in {}", outcome.stderr);
        }
        for process in processes(&ground) {
            assert!(!is_running(process), "{agents}: {process} is still there");
        }
    }
    let other = run(
        &ground,
        &[&path, "--no-keep", "--agents", "ssh:east.test", "--agents-program", "/nowhere/tidegate"],
    );
    assert!(other.stderr.contains("--agents-program"), "{}", other.stderr);
}

#[test]
fn agents_by_ssh_end_with_the_controller() {
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let (served, ground) = (Served::new(), Folder::new());
        let path = scenario(&ground, &served.url, "10m");
        let mut run = command();
        let arguments = ["run", &path, "--no-keep", "--agents", "ssh:east.test", "--agents-program", BINARY];
        with_ssh(&ground, run.args(arguments));
        let mut controller = Running::of(&mut run);
        controller.line("they start in");
        kill_process(Pid::from_child(&controller.child), signal).unwrap();
        assert_eq!(controller.child.wait().unwrap().code(), code);
        let process = processes(&ground)[0];
        wait_for(|| (!is_running(process)).then_some(()), "the end of the agent");
    }
}

#[test]
fn an_interrupt_before_the_start_ends_all_that_was_started() {
    let ground = Folder::new();
    let path = scenario(&ground, "http://127.0.0.1:1", "1s");
    // One that never says where it is, and none that dials.
    for over in [
        &["--agents", "ssh:mute.test"][..],
        &["--agents", "2", "--listen-agents", "127.0.0.1:0", "--insecure-loopback"],
    ] {
        let mut run = command();
        with_ssh(&ground, run.args(["run", &path, "--no-keep"]).args(over));
        let mut controller = Running::of(&mut run);
        if over.len() == 2 {
            wait_for(|| (!processes(&ground).is_empty()).then_some(()), "ssh");
        } else {
            controller.line("waiting for 2 agents");
        }
        kill_process(Pid::from_child(&controller.child), Signal::INT).unwrap();
        assert_eq!(controller.child.wait().unwrap().code(), Some(130), "{over:?}");
        controller.line("interrupted before the start; nothing was run");
    }
    assert!(processes(&ground).into_iter().all(|process| !is_running(process)));
}
