//! Logs that are pipes which several server processes write to, before and after an upgrade (FAULTS 38, 51).

mod running;

use running::{Folder, KeepAlive, Server};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// More than a pipe takes in one piece.
const LONG: usize = 6000;
const CLIENTS: usize = 8;
const REQUESTS: usize = 30;

/// Requests of many connections; every other one has a long target.
fn ask(server: &Server<'_>, name: &str) {
    let mut clients: Vec<KeepAlive> = (0..CLIENTS).map(|_| KeepAlive::new(&server.address)).collect();
    for number in 0..REQUESTS {
        for (index, client) in clients.iter_mut().enumerate() {
            let long = if number % 2 == 0 { "/x".repeat(LONG / 2) } else { String::new() };
            client.get(&format!("/{name}-{index}-{number}{long}"));
        }
    }
}

/// Reads until each of these requests has had its line: each stands by itself, once.
fn expect_whole(reader: &mut impl BufRead, names: &[&str]) {
    let mut expected: Vec<String> = Vec::new();
    for name in names {
        for number in 0..REQUESTS {
            let long = if number % 2 == 0 { "/x".repeat(LONG / 2) } else { String::new() };
            expected.extend((0..CLIENTS).map(|index| format!("BEGIN /{name}-{index}-{number}{long} END\n")));
        }
    }
    while !expected.is_empty() {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let found = expected.iter().position(|expected| *expected == line);
        let beginning: String = line.chars().take(100).collect();
        expected.swap_remove(found.unwrap_or_else(|| panic!("{} bytes: {beginning}", line.len())));
    }
}

#[test]
fn long_lines_of_several_processes_stay_whole() {
    let folder = Folder::new("log-pipe");
    let path = folder.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    // For both directions: it is there before there is a writer.
    let mut reader = BufReader::new(File::options().read(true).write(true).open(&path).unwrap());
    let text = "workers 1\nprocesses 2\nlisten \"127.0.0.1:0\"\naccess-log \"pipe\" format=\"BEGIN {target} END\"\n\
        site { respond 200 \"x\" }\n";
    let server = Server::with_config(&folder, text);
    // Nobody reads meanwhile: what does not fit into the pipe is held by both.
    ask(&server, "first");
    expect_whole(&mut reader, &["first"]);
    // Lines of old processes and of new ones.
    ask(&server, "old");
    std::thread::scope(|scope| {
        scope.spawn(move || expect_whole(&mut reader, &["old", "new"]));
        assert_eq!(server.tell(&["upgrade"]).code, Some(0));
        ask(&server, "new");
    });
}
