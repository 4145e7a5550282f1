//! What is said of arguments that are wrong, and the exit code for it: 2, where nothing was done.

mod running;

use running::{Folder, command, run};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn wrong_arguments_end_with_2_and_say_what_to_write() {
    let folder = Folder::new("wrong-arguments");
    let keys = folder.path("keys").display().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        // What only the command itself can judge.
        (&["cancel"], &["by its id", "--older-than"]),
        (&["cancel", "no/id"], &["tidegate status requests"]),
        (&["cancel", "--site", ""], &["no name of a site"]),
        (&["tail", "--method", "get"], &["write `GET`"]),
        (&["cache", "warm"], &["--from", "--sitemap"]),
        (&["cache", "purge", "--tag", ""], &["no name of a tag"]),
        (&["status", "settings", "list"], &["settings are only shown", "tidegate reload"]),
        (&["status", "history", "list"], &["the history is only shown"]),
        (&["status", "requests", "list"], &["requests are only shown", "tidegate cancel ID"]),
        (&["status", "slow", "list"], &["requests that were slow are only shown: `tidegate status slow`"]),
        (&["status", "busiest", "start"], &["only shown: `tidegate status busiest`"]),
        (&["status", "findings", "stop"], &["findings are only shown"]),
        (&["status", "cache", "--range", "6h"], &["tidegate status history --range 6h"]),
        (&["status", "requests", "--xml"], &["only the report on the server is there as XML"]),
        (&["serve", "--listen", "foo", "."], &["`foo` is no address to listen on"]),
        (&["serve", "--listen", "127.0.0.1:70000", "."], &["the port is larger than 65535"]),
        (&["serve", "--listen", ":1", "--listen", ":1", "."], &["given twice"]),
        (&["serve", "--console", "--listen", ":1", "."], &["--listen 127.0.0.1:8080"]),
        // What is missing, and what may stand in its place.
        (&["spawn"], &["-p <PORT>|-s <PATH>", "-f <COMMAND>|PROGRAM"]),
        (&["spawn", "-s", "q.sock"], &["<-f <COMMAND>|PROGRAM>"]),
        (&["bench", "agent"], &["--listen <ADDRESS>|--join <HOST:PORT>"]),
        (&["bench", "agent", "--join", "foo", "--keys", &keys], &["bench.example:7400"]),
        (&["bench", "agent", "--join", ":7400", "--keys", &keys], &["bench.example:7400"]),
        (&["bench", "agent", "--join", "foo:0", "--keys", &keys], &["bench.example:7400"]),
        // What a parser of the standard library refuses.
        (&["serve", "--workers", "x"], &["'--workers <N>'", "write a whole number"]),
        (&["serve", "--workers", "99999999999999999999"], &["'--workers <N>'", "write a smaller one"]),
        (&["top", "--interval", "x"], &["write a whole number"]),
        (&["cache", "ls", "--most", "x"], &["write a whole number"]),
        (&["sign-url", "--keys", "k", "--expires", "x", "/"], &["write a whole number"]),
        (&["sign-url", "--keys", "k", "--client", "x", "/"], &["write an address, such as 192.0.2.7"]),
        (&["spawn", "-p", "x", "--", "true"], &["write a whole number"]),
        (&["bench", "run", "--users", "x", "a.kdl"], &["write a whole number"]),
        (&["bench", "hit", "--connections", "x", "http://a"], &["write a whole number"]),
        (&["bench", "hit", "--seed", "x", "http://a"], &["write a whole number"]),
        (&["bench", "serve", "--listen", "x"], &["write an address and a port, such as 127.0.0.1:8080"]),
    ];
    for (arguments, expected) in cases {
        let outcome = run(&folder, arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        for part in *expected {
            assert!(outcome.stderr.contains(part), "{arguments:?}: {part:?} not in {}", outcome.stderr);
        }
        for text in ["invalid digit", "syntax"] {
            assert!(!outcome.stderr.contains(text), "{arguments:?}: {}", outcome.stderr);
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let folder = Folder::new("full");
    let config = folder.write("tidegate.kdl", "listen \"127.0.0.1:1\"\nsite { respond 200 }\n");
    let commands: &[&[&str]] = &[
        &["check", "--config", &config],
        &["docs"],
        &["man"],
        &["explain", "--config", &config, "http://a/"],
    ];
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(&folder, arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space"), "{arguments:?}: {said}");
    }
    let outcome = run(&folder, &["man", "--output", "new"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("`mkdir -p new`"), "{}", outcome.stderr);
    let outcome = run(&folder, &["serve", "--listen", "127.0.0.1:0", "--access-log", "no/such/log"]);
    assert!(outcome.stderr.contains("name another path with `--access-log`"), "{}", outcome.stderr);
}

/// Nobody waits in silence for a controller that is not there.
#[test]
fn an_agent_that_dials_in_vain_says_why() {
    let folder = Folder::new("dials");
    // Nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let arguments = ["bench", "agent", "--join", &gone, "--insecure-loopback"];
    let mut agent =
        command(&folder, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(agent.stderr.take().unwrap()).read_line(&mut said).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(said.contains(&format!("{gone} cannot be reached: Connection refused")), "{said}");
    assert!(said.contains("it is dialled for 60 s"), "{said}");
}
