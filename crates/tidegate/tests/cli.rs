//! The command as an operator has it: real processes, sockets, signals and files.
//!
//! Nothing here sleeps and hopes: every wait is for a line, a process or an answer, and ends after `WAIT`.

mod running;

use running::{Folder, KeepAlive, Load, Server, WAIT, exchange, exchange_with, get, run, site, wait_for};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

// ---------------------------------------------------------------- starting and ending

#[test]
fn serves_until_told_to_end() {
    let folder = Folder::new("serve");
    let mut server = Server::with_config(&folder, &site("hello"));
    assert_eq!(server.body("/"), "hello");
    let mut idle = KeepAlive::new(&server.address);
    assert_eq!(idle.get("/"), ("hello".into(), true));
    server.signal(Signal::TERM);
    assert!(idle.is_closed_by_the_server(), "idle connections are closed at once");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!folder.path("control").exists(), "the control socket is removed");
    assert!(TcpStream::connect(&server.address).is_err());
}

#[test]
fn ends_at_once_on_interrupt() {
    let folder = Folder::new("interrupt");
    let mut server = Server::with_config(&folder, &site("hello"));
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_signal_cuts_what_is_in_flight() {
    let folder = Folder::new("second");
    let mut server = Server::with_config(&folder, &site("hello"));
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    wait_for(
        || (server.status()["stats"]["connections"]["current"] == 1).then_some(()),
        "the connection to be accepted",
    );
    server.signal(Signal::TERM);
    server.line("requests in flight");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    server.line("1 connection was cut");
}

#[test]
fn listens_on_several_addresses_and_writes_its_pid_file() {
    let folder = Folder::new("addresses");
    let config = folder.write(
        "tidegate.kdl",
        "workers 1\npid-file \"t.pid\"\nlisten \"127.0.0.1:0\"\nlisten \"unix:web.sock\"\n\
         site { respond 200 \"hello\" }\n",
    );
    let mut server = Server::start(&folder, &["--config", &config]);
    let line = server.line("listening on unix:");
    assert!(line.ends_with("/web.sock"), "{line}");
    let stream = UnixStream::connect(folder.path("web.sock")).unwrap();
    assert_eq!(exchange(stream, "/").unwrap(), "hello");
    let pid = fs::read_to_string(folder.path("t.pid")).unwrap();
    assert_eq!(pid.trim(), server.child.id().to_string());
    // The control socket lies beside the pid file, and is the owner's alone.
    let mode = fs::metadata(folder.path("tidegate.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A mistake in the file does not hide the server from its operator.
    fs::write(&config, "pid-file \"t.pid\"\nsiet {\n").unwrap();
    assert_eq!(run(&folder, &["stop", "--config", &config]).code, Some(0));
    assert_eq!(server.wait().code(), Some(0));
    for name in ["t.pid", "tidegate.sock", "web.sock"] {
        assert!(!folder.path(name).exists(), "{name}");
    }
}

#[test]
fn two_servers_without_settings_run_beside_each_other() {
    let folder = Folder::new("two");
    let first = Server::start(&folder, &[".", "--listen", "127.0.0.1:0"]);
    let second = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
    let notice = second.seen.join("\n");
    assert!(notice.contains(&format!("process {}", first.child.id())), "{notice}");
    assert_ne!(first.address, second.address);
    assert_eq!(run(&folder, &["stop"]).code, Some(0), "the default finds the first");
    // Asked for by name it is an error.
    let config = folder.write("tidegate.kdl", &site("x"));
    let server = Server::with_config(&folder, &site("x"));
    let control = folder.path("control").display().to_string();
    let outcome = run(&folder, &["serve", "--config", &config, "--control", &control]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains(&server.child.id().to_string()), "{}", outcome.stderr);
    assert_eq!(server.body("/"), "x", "and the living server keeps its socket");
    assert_eq!(server.tell(&["status"]).code, Some(0));
}

// ---------------------------------------------------------------- what cannot be served

#[test]
fn bad_input_is_answered_with_what_to_do() {
    let folder = Folder::new("bad");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let text = format!("listen \"{taken}\"\nsite {{ respond 204 }}\n");
    let config = folder.write("taken.kdl", &text);
    folder.write("plain", "a file");
    let (address, port) = (taken.to_string(), taken.port().to_string());
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["serve", "--listen", &address],
            &["cannot listen on", "another program", "ss -tanp", &port, "--listen"],
        ),
        (&["serve", "--config", &config], &["taken.kdl:1", "another program", "`listen`"]),
        (&["serve", "no/such/folder"], &["no/such/folder does not exist", "tidegate serve DIR"]),
        (&["serve", "plain"], &["plain is no folder"]),
        (
            &["serve", "--listen", "127.0.0.1:0", "--access-log", "no/such/access.log"],
            &["cannot write the log", "does not exist; make it", "access-log"],
        ),
        (&["serve", "--listen", "127.0.0.1:0", "--access-log", "."], &["it is a folder", "access-log"]),
        (
            &["serve", "--listen", "127.0.0.1:0", "--control", "no/such/control"],
            &["control socket", "make the folder", "--control"],
        ),
        (&["serve", "--listen", "unix:no/such/web.sock"], &["web.sock", "does not exist"]),
        (&["serve", "--config", "none.kdl"], &["none.kdl"]),
        (&["check"], &["tidegate.kdl", "--config"]),
        (&["status"], &["no server runs", "--control"]),
        (&["explain", "--dir", ".", "ftp//x"], &["ftp//x"]),
    ];
    for (arguments, expected) in cases {
        let outcome = run(&folder, arguments);
        assert_eq!(outcome.code, Some(1), "{arguments:?}: {}", outcome.stderr);
        for part in *expected {
            assert!(outcome.stderr.contains(part), "{arguments:?}: {part:?} not in {}", outcome.stderr);
        }
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    }
    assert_eq!(run(&folder, &["serve", "--no-such"]).code, Some(2));
    assert_eq!(run(&folder, &["serve", "--workers", "0"]).code, Some(2));
}

#[test]
fn check_tells_what_the_keys_of_all_limits_come_to() {
    let folder = Folder::new("keys");
    let settings = |keys: usize| {
        let site = |number| {
            format!(
                "site \"{number}.test\" {{ respond 200; limit \"l{number}\" requests=\"1/s\" keys={keys} }}\n"
            )
        };
        format!(
            "listen \"127.0.0.1:0\"\nlimits {{ memory \"32MiB\" }}\n{}",
            (0..20).map(site).collect::<String>()
        )
    };
    folder.write("tidegate.kdl", &settings(100_000));
    let outcome = run(&folder, &["check"]);
    assert!(outcome.stderr.contains("20 tables of limits"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("62 MiB once all `keys` are used"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("(32 MiB, `limits memory`)"), "{}", outcome.stderr);
    folder.write("tidegate.kdl", &settings(10_000));
    let outcome = run(&folder, &["check"]);
    assert!(!outcome.stderr.contains("tables of limits"), "{}", outcome.stderr);
}

#[test]
fn check_tells_five_mistakes_in_one_run() {
    let folder = Folder::new("check");
    let config = folder.write(
        "bad.kdl",
        "workers 0\nlisten \"127.0.0.1:99999\"\nlimits { head-tiemout \"5s\" }\n\
         site \"a.example\" { root \"/no/such/folder\" }\nsite \"b.example\" { respond 2000 \"x\" }\n",
    );
    let outcome = run(&folder, &["check", "--config", &config]);
    assert_eq!(outcome.code, Some(1));
    for line in 1..=5 {
        assert!(outcome.stderr.contains(&format!("bad.kdl:{line}:")), "{}", outcome.stderr);
    }
    assert!(
        outcome.stderr.contains("head-timeout") && outcome.stderr.contains("errors"),
        "{}",
        outcome.stderr
    );
    let json = run(&folder, &["check", "--json", "--config", &config]);
    let findings: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(findings.as_array().unwrap().len() >= 5 && json.code == Some(1));
    folder.write("tidegate.kdl", &site("x"));
    let good = run(&folder, &["check"]);
    assert_eq!(good.code, Some(0));
    assert!(good.stdout.contains("0 errors"), "{}", good.stdout);
}

// ---------------------------------------------------------------- reload

#[test]
fn reload_swaps_settings_and_keeps_connections() {
    let folder = Folder::new("reload");
    let mut server = Server::with_config(&folder, &site("one"));
    let mut kept = KeepAlive::new(&server.address);
    assert_eq!(kept.get("/"), ("one".into(), true));

    folder.write("tidegate.kdl", &site("two"));
    let outcome = server.tell(&["reload"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "revision 2 is in force\n"));
    assert_eq!(kept.get("/"), ("two".into(), true), "on the connection from before");
    assert_eq!(server.body("/"), "two", "on the address from before, though it was port 0");

    folder.write("tidegate.kdl", &site("three").replace("respond", "respnd"));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("did you mean `respond`"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("revision 2 stays in force"), "{}", outcome.stderr);
    assert_eq!(kept.get("/"), ("two".into(), true));

    folder.write("tidegate.kdl", &site("four"));
    server.signal(Signal::HUP);
    server.line("revision 3 is in force");
    assert_eq!(kept.get("/"), ("four".into(), true));
    assert_eq!(server.status()["server"]["revision"], 3);
}

#[test]
fn reload_opens_and_closes_addresses() {
    let folder = Folder::new("listeners");
    let base = "workers 2\nsite { respond 200 \"x\" }\nlisten \"127.0.0.1:0\"\n";
    let server = Server::with_config(&folder, base);
    let load = Load::on(&server.address);
    folder.write("tidegate.kdl", &format!("{base}listen \"unix:web.sock\"\n"));
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    let stream = UnixStream::connect(folder.path("web.sock")).unwrap();
    assert_eq!(exchange(stream, "/").unwrap(), "x");
    // What cannot be opened leaves everything as it was.
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("{base}listen \"{}\"\n", foreign.local_addr().unwrap());
    folder.write("tidegate.kdl", &taken);
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("another program"), "{}", outcome.stderr);
    assert!(UnixStream::connect(folder.path("web.sock")).is_ok());
    // One that is not written any more stays until somebody says that it may go.
    folder.write("tidegate.kdl", base);
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.stderr.contains("no `listen` of") && outcome.stderr.contains("--allow-loss"),
        "{}",
        outcome.stderr
    );
    assert!(UnixStream::connect(folder.path("web.sock")).is_ok());
    let outcome = server.tell(&["upgrade"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("the settings no longer listen on unix:"), "{}", outcome.stderr);
    let outcome = server.tell(&["reload", "--allow-loss"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("no longer listened on: unix:"), "{}", outcome.stdout);
    assert!(UnixStream::connect(folder.path("web.sock")).is_err());
    for _ in 0..20 {
        assert_eq!(server.tell(&["reload"]).code, Some(0));
    }
    load.end();
}

#[test]
fn a_site_with_a_mistake_keeps_its_last_good_revision() {
    let folder = Folder::new("rejected");
    let sites = |a: &str, b: &str| {
        format!("workers 1\nlisten \"127.0.0.1:0\"\nsite \"localhost\" {{ {a} }}\nsite {{ {b} }}\n")
    };
    let server = Server::with_config(&folder, &sites("respond 200 \"a1\"", "respond 200 \"b1\""));
    folder.write("tidegate.kdl", &sites("respnd 200 \"a2\"", "respond 200 \"b2\""));
    let outcome = server.tell(&["reload"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("revision 2 is in force, but for site localhost"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("stays as it was"), "{}", outcome.stderr);
    assert_eq!(server.body("/"), "a1");
    let stream = TcpStream::connect(&server.address).unwrap();
    assert_eq!(exchange_with("other.example", stream, "/").unwrap(), "b2");
}

#[test]
fn logs_are_opened_anew_after_a_rotation() {
    let folder = Folder::new("rotate");
    let text = format!("access-log \"access.log\"\nerror-log \"error.log\"\n{}", site("x"));
    let server = Server::with_config(&folder, &text);
    assert_eq!(server.body("/old"), "x");
    let contains =
        |name: &str, text: &str| fs::read_to_string(folder.path(name)).ok()?.contains(text).then_some(());
    wait_for(|| contains("access.log", "/old"), "the access line");
    fs::rename(folder.path("access.log"), folder.path("access.log.1")).unwrap();
    server.signal(Signal::USR1);
    wait_for(|| contains("error.log", "opened anew"), "the logs to be opened anew");
    assert_eq!(server.body("/new"), "x");
    wait_for(|| contains("access.log", "/new"), "the access line in the new file");
}

// ---------------------------------------------------------------- upgrade

#[test]
fn upgrade_keeps_the_port_answering() {
    let folder = Folder::new("upgrade");
    let pid_file = format!("pid-file \"t.pid\"\n{}", site("one"));
    let mut server = Server::with_config(&folder, &pid_file);
    let mut idle = KeepAlive::new(&server.address);
    assert_eq!(idle.get("/"), ("one".into(), true));
    let load = Load::on(&server.address);
    folder.write("tidegate.kdl", &pid_file.replace("one", "two"));
    let outcome = server.tell(&["upgrade"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let successor = server.status()["server"]["pid"].as_u64().unwrap();
    assert_ne!(successor, u64::from(server.child.id()));
    assert_eq!(idle.get("/"), ("one".into(), false), "a kept connection gets its answer, and its end");
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.body("/"), "two", "new settings are taken up on the way");
    assert_eq!(fs::read_to_string(folder.path("t.pid")).unwrap().trim(), successor.to_string());

    // And once more, from one that has inherited its sockets itself, to another number of workers.
    folder.write("tidegate.kdl", &pid_file.replace("one", "three").replace("workers 2", "workers 1"));
    assert_eq!(server.tell(&["upgrade"]).code, Some(0));
    let status = server.status();
    assert_ne!(status["server"]["pid"].as_u64().unwrap(), successor);
    assert_eq!(status["server"]["workers"], 1);
    for _ in 0..20 {
        assert_eq!(server.body("/"), "three", "both sockets of the address are served");
    }
    load.end();
}

#[test]
fn a_broken_program_leaves_the_old_one_serving() {
    let folder = Folder::new("broken");
    let mut server = Server::with_config(&folder, &format!("pid-file \"pid\"\n{}", site("one")));
    let pid = server.child.id();
    let load = Load::on(&server.address);
    // One that ends when it has taken the names of the old one.
    let control = folder.path("control");
    let steals =
        format!("#!/bin/sh\nrm {0}\necho 1 > {1}\nexit 7\n", control.display(), folder.path("pid").display());
    let steals = folder.write("steals", &steals);
    fs::set_permissions(&steals, fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = server.tell(&["upgrade", "--binary", &steals]);
    assert!(outcome.stderr.contains(&format!("process {pid} goes on")), "{}", outcome.stderr);
    assert_eq!(server.status()["server"]["pid"], pid);
    assert_eq!(fs::read_to_string(folder.path("pid")).unwrap(), format!("{pid}\n"));
    assert!(!folder.path(&format!("control.{pid}")).exists(), "its second name is gone");
    let crashes = folder.write("crashes", "#!/bin/sh\nexit 7\n");
    fs::set_permissions(&crashes, fs::Permissions::from_mode(0o755)).unwrap();
    let plain = folder.write("plain", "no program");
    for (binary, said) in
        [(crashes.as_str(), "exit status: 7"), (&plain, "cannot start"), ("none", "cannot start")]
    {
        let outcome = server.tell(&["upgrade", "--binary", binary]);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains(said), "{binary}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("process {pid} goes on")), "{}", outcome.stderr);
    }
    // A sound program with settings that cannot be served: what is wrong with them comes back.
    folder.write("tidegate.kdl", "listen \"127.0.0.1:0\"\nsiet { }\n");
    let outcome = server.tell(&["upgrade"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("siet"), "{}", outcome.stderr);
    server.signal(Signal::USR2);
    server.line("the upgrade failed");
    assert_eq!(server.status()["server"]["pid"], pid);
    assert_eq!(server.body("/"), "one");
    load.end();
}

// ---------------------------------------------------------------- the other commands

#[test]
fn stop_waits_for_the_end() {
    let folder = Folder::new("stop");
    let mut server = Server::with_config(&folder, &site("x"));
    let outcome = server.tell(&["stop"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("ended"), "{}", outcome.stdout);
    assert!(TcpStream::connect(&server.address).is_err());
    assert_eq!(server.wait().code(), Some(0));
    let again = server.tell(&["stop"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("no server runs"), "{}", again.stderr);
}

#[test]
fn status_reports_in_three_forms() {
    let folder = Folder::new("status");
    let server = Server::with_config(&folder, &site("x"));
    for _ in 0..3 {
        server.body("/");
    }
    let status = server.status();
    assert_eq!(status["stats"]["requests"], 3);
    assert_eq!(status["stats"]["responses"]["2xx"], 3);
    assert_eq!(status["server"]["workers"], 2);
    assert_eq!(status["server"]["pid"], server.child.id());
    assert_eq!(status["server"]["listeners"][0], format!("http://{}", server.address));
    let text = server.tell(&["status"]).stdout;
    assert!(text.contains("KeepAliveInfo") && text.contains("Settings Revision"), "{text}");
    let prometheus = server.tell(&["status", "--prometheus"]).stdout;
    assert!(prometheus.contains("\ntidegate_requests_received_total 3\n"), "{prometheus}");
    let of_site = "\ntidegate_requests_total{site=\"(any)\",route=\"/*\",class=\"2xx\"} 3\n";
    assert!(prometheus.contains(of_site), "{prometheus}");
    assert!(prometheus.contains("\ntidegate_settings_revision 1\n"), "{prometheus}");
}

#[test]
fn a_stalled_command_holds_up_nobody() {
    let folder = Folder::new("stalled");
    let server = Server::with_config(&folder, &site("x"));
    let mut stalled = UnixStream::connect(folder.path("control")).unwrap();
    stalled.write_all(b"sta").unwrap();
    assert_eq!(server.tell(&["reload"]).code, Some(0));
    let mut foreign = UnixStream::connect(folder.path("control")).unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut reply = String::new();
    foreign.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("failed\n"), "{reply}");
}

#[test]
fn explain_walks_the_way_of_a_request() {
    let folder = Folder::new("explain");
    let config = folder.write(
        "tidegate.kdl",
        "listen \"127.0.0.1:8080\"\nlisten \"0.0.0.0:80\"\nsite \"a.example\" {\n    respond 200 \"a\"\n    \
         route \"/x/*\" { respond 404; deny \"all\" }\n}\nsite { respond 200 \"b\" }\n",
    );
    let explain = |arguments: &[&str]| {
        let all: Vec<&str> = ["explain", "--config", &config].iter().chain(arguments).copied().collect();
        run(&folder, &all)
    };
    let outcome = explain(&["HEAD", "http://a.example/./y"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for part in [
        "HEAD http://a.example",
        "0.0.0.0:80",
        "tidegate.kdl:2",
        "looked up as /y",
        "site a.example",
        "no route fits: the site's own",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {}", outcome.stdout);
    }
    let refused = explain(&["http://A.example:8080/x/1"]).stdout;
    assert!(refused.contains("127.0.0.1:8080") && refused.contains("403"), "{refused}");
    let by_host = explain(&["/y", "-H", "Host: a.example"]).stdout;
    assert!(by_host.contains("site a.example"), "{by_host}");
    assert_eq!(explain(&["http://a.example/../.."]).code, Some(1));
    assert_eq!(explain(&["/", "-H", "no field"]).code, Some(2));
}

/// It made a store, with its folders, and stored the file that it was asked about.
#[test]
fn explain_makes_no_store() {
    let folder = Folder::new("explain-cache");
    let config = folder.write(
        "tidegate.kdl",
        "listen \"127.0.0.1:0\"\ncache \"main\" { memory \"4MiB\"; disk \"cached\" size=\"64MiB\" }\nsite {\n    root \"site\"\n    \
         route \"/*\" { cache \"main\" { default-lifetime 200 \"10m\" }; }\n}\n",
    );
    fs::create_dir(folder.0.join("site")).unwrap();
    fs::write(folder.0.join("site/a.txt"), "hello").unwrap();
    let outcome = run(&folder, &["explain", "--config", &config, "http://a.example/a.txt"]);
    assert!(
        outcome.stdout.contains("cache `main` (") && outcome.stdout.contains("200 OK"),
        "{}",
        outcome.stdout
    );
    assert!(!outcome.stdout.contains("Cache-Status"), "{}", outcome.stdout);
    assert!(!folder.0.join("cached").exists(), "{}", outcome.stderr);
}

#[test]
fn fmt_writes_files_the_one_way() {
    let folder = Folder::new("fmt");
    let config = folder.write("a.kdl", "// why\nlisten    \"127.0.0.1:0\"\nsite {\nrespond 200\n}\n");
    assert_eq!(run(&folder, &["fmt", "--check", &config]).code, Some(1));
    assert_eq!(run(&folder, &["fmt", &config]).code, Some(0));
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.starts_with("// why\nlisten \"127.0.0.1:0\"\n"), "{text}");
    assert_eq!(run(&folder, &["fmt", "--check", &config]).code, Some(0));
    folder.write("b.kdl", "site {");
    let outcome = run(&folder, &["fmt", "b.kdl"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("b.kdl:1"), "{}", outcome.stderr);
    assert_eq!(fs::read_to_string(folder.path("b.kdl")).unwrap(), "site {");
}

#[test]
fn helps_completes_and_documents_itself() {
    let folder = Folder::new("help");
    let commands =
        ["serve", "check", "fmt", "explain", "status", "reload", "stop", "upgrade", "completions", "man"];
    for name in commands {
        let outcome = run(&folder, &[name, "--help"]);
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.stdout.contains("Examples:") && outcome.stdout.contains("Exit codes:"), "{name}");
    }
    assert!(run(&folder, &["--version"]).stdout.starts_with("tidegate "));
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&folder, &["completions", shell]).stdout;
        assert!(completions.contains("explain"), "{shell}");
        // What only the server itself starts is offered to nobody.
        for hidden in ["guard", "cgi-stub", "launch", "schema"] {
            assert!(!completions.contains(hidden), "{shell} offers {hidden}");
        }
    }
    assert_eq!(run(&folder, &["man", "--output", "."]).code, Some(0));
    assert!(folder.path("tidegate.1").exists());
    for name in commands {
        let page = fs::read_to_string(folder.path(&format!("tidegate-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains("Examples"), "{name}");
    }
    assert!(run(&folder, &["man"]).stdout.matches(".TH ").count() > commands.len());
    let schema = run(&folder, &["schema"]).stdout;
    assert!(serde_json::from_str::<serde_json::Value>(&schema).is_ok());
    assert!(run(&folder, &["reference"]).stdout.contains("keep-alive-timeout"));
}

// ---------------------------------------------------------------- faults

/// FAULTS 41: without a descriptor to spare, who is connected is served, accepting rests instead of
/// spinning, and who waits is served as soon as there is one.
#[test]
fn descriptors_that_run_out_stop_nobody_who_is_connected() {
    let folder = Folder::new("descriptors");
    let config =
        "listen \"127.0.0.1:0\"\nworkers 1\nsite { respond 200 \"here\"; route \"/.perf\" { status } }\n";
    let server = Server::with_config(&folder, config);
    let mut connected = KeepAlive::new(&server.address);
    assert_eq!(connected.get("/").0, "here");
    let mut refused = || {
        let report = connected.get("/.perf?format=json").0;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["stats"]["accept_errors"]["process_descriptors"].as_u64().unwrap()
    };
    assert_eq!(refused(), 0);

    let pid = server.processes()[0];
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64;
    let tight = Rlimit { current: Some(open + 3), ..getrlimit(Resource::Nofile) };
    let limit = prlimit(Some(pid), Resource::Nofile, tight).unwrap();
    let mut others: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    for other in &mut others {
        other.set_read_timeout(Some(WAIT)).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    let before = wait_for(|| Some(refused()).filter(|count| *count > 0), "accepting to fail");
    let began = Instant::now();
    for _ in 0..50 {
        refused();
    }
    // It rests for 100 ms each time.
    let most = 2 + began.elapsed().as_millis() as u64 / 50;
    assert!(refused() - before <= most, "accepting spins");

    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    for other in &mut others {
        let mut answer = [0; 15];
        other.read_exact(&mut answer).unwrap();
        // On a busy machine some have waited so long that they were told (see below).
        assert!(&answer == b"HTTP/1.1 200 OK" || answer.starts_with(b"HTTP/1.1 503"), "{answer:?}");
    }
    assert_eq!(wait_for(|| get(&server.address, "/").ok(), "recovery"), "here");
}

/// A root is one descriptor, however many sites and workers have it.
#[test]
fn many_sites_with_one_root_need_few_descriptors() {
    let folder = Folder::new("many-sites");
    fs::create_dir_all(folder.path("site")).unwrap();
    fs::write(folder.path("site/a.txt"), "here").unwrap();
    let mut config = "workers 4\nlisten \"127.0.0.1:0\"\n".to_owned();
    for number in 0..1000 {
        config
            .push_str(&format!("site \"s{number}.test\" {{ root \"{}\" }}\n", folder.path("site").display()));
    }
    let server = Server::with_config(&folder, &config);
    let stream = TcpStream::connect(&server.address).unwrap();
    assert_eq!(exchange_with("s999.test", stream, "/a.txt").unwrap(), "here");
    for pid in server.processes() {
        let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count();
        assert!(open < 100, "{open} descriptors");
    }
}

/// What a process may read is more than a socket takes before the process reads it, and more folders than are held open.
#[test]
fn many_sites_with_roots_of_their_own_start_and_need_few_descriptors() {
    let folder = Folder::new("many-roots");
    let root = |number: usize| folder.path(&format!("{:0>80}/{number}/www", number % 7));
    let mut config = "workers 1\nlisten \"127.0.0.1:0\"\n".to_owned();
    for number in 0..2000 {
        fs::create_dir_all(root(number)).unwrap();
        config.push_str(&format!("site \"s{number}.test\" {{ root \"{}\" }}\n", root(number).display()));
    }
    for number in [0, 1999] {
        fs::write(root(number).join("a.txt"), format!("of {number}")).unwrap();
    }
    let server = Server::with_config(&folder, &config);
    for number in [0, 1999, 0] {
        let stream = TcpStream::connect(&server.address).unwrap();
        let body = exchange_with(&format!("s{number}.test"), stream, "/a.txt").unwrap();
        assert_eq!(body, format!("of {number}"));
    }
    for pid in server.processes() {
        let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count();
        assert!(open < 400, "{open} descriptors");
    }
}

/// Descriptors that only the cache keeps are for those who come.
#[test]
fn cached_descriptors_are_given_back() {
    let folder = Folder::new("cached-descriptors");
    fs::create_dir_all(folder.path("site")).unwrap();
    for number in 0..60 {
        fs::write(folder.path(&format!("site/{number}")), vec![b'x'; 50_000]).unwrap();
    }
    // Two workers: what one of them lacks the other keeps.
    let config =
        format!("listen \"127.0.0.1:0\"\nworkers 2\nsite {{ root \"{}\" }}\n", folder.path("site").display());
    let server = Server::with_config(&folder, &config);
    let mut connected: Vec<KeepAlive> = (0..16).map(|_| KeepAlive::new(&server.address)).collect();
    for number in 0..60 {
        for one in &mut connected {
            assert_eq!(one.get(&format!("/{number}")).0.len(), 50_000);
        }
    }
    let kept = || server.status()["stats"]["cache_descriptors"]["current"].as_u64().unwrap_or(0);
    wait_for(|| (kept() >= 60).then_some(()), "files that are kept open");
    let pid = server.processes()[0];
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64;
    let tight = Rlimit { current: Some(open + 2), ..getrlimit(Resource::Nofile) };
    prlimit(Some(pid), Resource::Nofile, tight).unwrap();
    let mut others: Vec<KeepAlive> = (0..50).map(|_| KeepAlive::new(&server.address)).collect();
    for one in &mut others {
        assert_eq!(one.get("/0").0.len(), 50_000);
    }
    let stats = &server.status()["stats"];
    assert_eq!(stats["connection_refusals"]["descriptors"], 0);
    assert!(stats["cache_evictions"].as_u64().unwrap() > 0);
}

/// FAULTS 41: when there is no descriptor for long, those who wait are told so instead of being left to hang.
#[test]
fn who_waits_in_vain_for_a_descriptor_is_told() {
    let folder = Folder::new("no-descriptor");
    let config =
        "listen \"127.0.0.1:0\"\nworkers 1\nsite { respond 200 \"here\"; route \"/.perf\" { status } }\n";
    let server = Server::with_config(&folder, config);
    let mut connected = KeepAlive::new(&server.address);
    assert_eq!(connected.get("/").0, "here");
    let pid = server.processes()[0];
    let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64;
    let tight = Rlimit { current: Some(open + 1), ..getrlimit(Resource::Nofile) };
    let limit = prlimit(Some(pid), Resource::Nofile, tight).unwrap();
    let mut others: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut refused = 0;
    for other in &mut others {
        other.set_read_timeout(Some(WAIT)).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    for other in &mut others {
        let mut answer = [0; 12];
        other.read_exact(&mut answer).unwrap();
        refused += u64::from(&answer == b"HTTP/1.1 503");
    }
    assert!(refused >= 6, "{refused}");
    assert_eq!(connected.get("/").0, "here");
    // Whoever asks how the server is gets an answer all the same.
    let report = get(&server.address, "/.perf?format=json").unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["stats"]["connection_refusals"]["descriptors"].as_u64().unwrap() >= refused);
    drop(others);

    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    let other = wait_for(|| get(&server.address, "/").ok().filter(|body| body == "here"), "recovery");
    assert_eq!(other, "here");
    let stats = &server.status()["stats"];
    assert_eq!(stats["connection_refusals"]["descriptors"].as_u64().unwrap(), refused);
}

/// Why the server of a settings file is not found, and what to do about it.
#[test]
fn a_file_that_does_not_lead_to_a_server_is_told_apart() {
    let folder = Folder::new("whose");
    let said = |arguments: &[&str]| {
        let outcome = run(&folder, arguments);
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        outcome.stderr
    };
    let gone = said(&["status", "--config", "gone.kdl"]);
    assert!(
        gone.contains("gone.kdl cannot be read: there is no such file") && gone.contains("--control"),
        "{gone}"
    );
    folder.write("plain.kdl", "listen \":1\"\nsite { respond 204 }\n");
    let plain = said(&["stop", "--config", "plain.kdl"]);
    assert!(plain.contains("plain.kdl names neither `control` nor `pid-file`"), "{plain}");
    // A byte that is no UTF-8 keeps nobody from telling the server.
    let text =
        |control: &str| [control.as_bytes(), b"listen \":1\"\n// caf\xe9\nsite { respond 204 }\n"].concat();
    fs::write(folder.path("bad.kdl"), text("")).unwrap();
    let bad = said(&["reload", "--config", "bad.kdl"]);
    assert!(bad.contains("bad.kdl:2:7: error") && bad.contains("UTF-8"), "{bad}");
    let server = Server::with_config(&folder, &site("x"));
    fs::write(folder.path("tidegate.kdl"), text("control \"control\"\n")).unwrap();
    let bad = said(&["reload", "--config", "tidegate.kdl"]);
    assert!(bad.contains("tidegate.kdl:3:7: error"), "{bad}");
    assert!(bad.contains("nothing has changed: revision 1 stays in force"), "{bad}");
    drop(server);
}

/// Whoever asks for an upgrade hears what it takes away; where it is refused nothing is left out.
#[test]
fn an_upgrade_says_what_it_takes_away() {
    let folder = Folder::new("takes-away");
    let two = "workers 1\nlisten \"127.0.0.1:0\"\nsite \"a.test\" { respond 200 \"a\" }\nsite \"b.test\" { respond 204 }\n";
    let server = Server::with_config(&folder, two);
    folder.write("tidegate.kdl", &two.replace("respond 204", "respnd 204"));
    let outcome = server.tell(&["upgrade"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("the running server goes on with what it has"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("left out"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the settings no longer serve b.test"), "{}", outcome.stderr);
    folder.write("tidegate.kdl", &two.replace("site \"b.test\" { respond 204 }\n", ""));
    let outcome = server.tell(&["upgrade", "--allow-loss"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("the settings no longer serve b.test\nprocess "), "{}", outcome.stdout);
}

/// What a server says before it has read the command is told, and not that it broke off.
#[test]
fn a_refusal_before_the_command_was_read_is_told() {
    let folder = Folder::new("refused-early");
    let path = folder.path("control");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        // What it leaves unread resets the connection.
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(b"failed\ntoo many commands at once; try again").unwrap();
    });
    let said = run(&folder, &["status", "--control", path.to_str().unwrap()]);
    running::join(server, "the refusal");
    assert_eq!((said.code, &*said.stderr), (Some(1), "too many commands at once; try again\n"));
}

/// What Prometheus itself says of the figures, at a path without a query.
#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let Ok(_) = Command::new("promtool").arg("--version").output() else {
        return eprintln!("SKIPPED: promtool is not installed (`cargo xtask tools` installs it)");
    };
    let folder = Folder::new("promtool");
    let text = "listen \"127.0.0.1:0\"\nupstream \"app\" { member \"unix:/nowhere\"; member \"127.0.0.1:1\" }\n\
        limit \"all\" requests=\"1000/s\"\n\
        site { respond 200 \"x\"; route \"/metrics\" { status }; route \"/app\" { proxy \"http://app\" } }\n";
    let server = Server::with_config(&folder, text);
    server.body("/");
    get(&server.address, "/app").unwrap_err();
    let metrics = server.body("/metrics");
    for name in [
        "build_info{version=",
        "process_cpu_seconds_total{",
        "process_open_fds{",
        "process_resident_memory_bytes{",
    ] {
        assert!(metrics.contains(&format!("\ntidegate_{name}")), "{name}: {metrics}");
    }
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success() && text.trim().is_empty(),
        "{text}{}\n{metrics}",
        String::from_utf8_lossy(&said.stdout)
    );
}
