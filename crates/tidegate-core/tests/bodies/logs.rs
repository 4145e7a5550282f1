//! Access lines of hostile clients, and logs that cannot be written (FAULTS 38, 51).

use crate::client::Client;
use crate::server::Server;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use tidegate_config::settings::LogTarget;
use tidegate_core::log::Writer;
use tidegate_testkit::wait_for;

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tidegate-bodies-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A pipe with a name.
fn pipe(name: &str) -> PathBuf {
    let path = place(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

/// Its reading end, which does not wait.
fn reader(path: &PathBuf) -> File {
    open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap().into()
}

/// Takes what is in the pipe; how many lines.
fn take_lines(pipe: &mut File) -> u64 {
    let (mut buffer, mut lines) = ([0; 64 << 10], 0);
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return lines,
            Ok(count) => lines += buffer[..count].iter().filter(|byte| **byte == b'\n').count() as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return lines,
            Err(error) => panic!("{error}"),
        }
    }
}

/// FAULTS 38, from the socket to the file.
#[test]
fn control_bytes_do_not_reach_the_log() {
    let path = place("control");
    let writer = {
        let server = Server::start(&format!("access-log \"{}\" format=combined", path.display()));
        let mut client = Client::connect(&server);
        client.send(b"GET /bytes?1 HTTP/1.1\r\nHost: x\r\nUser-Agent: a\x9b31m\"\\\t\xff\r\nReferer: \xc2\x85\r\n\r\n");
        assert_eq!(client.answer().status, 200);
        let mut client = Client::connect(&server);
        client.send(b"GET /bytes?1 HTTP/1.1\r\nHost: x\r\nUser-Agent: \x1b[31m\r\n\r\n");
        assert_eq!(client.answer().status, 400);
        client.finish_sending();
        client.assert_closed();
        let mut client = Client::connect(&server);
        client.send(b"GET /%0d%0a%1b HTTP/1.1\r\nHost: x\r\n\r\n");
        client.answer();
        server.writer.clone()
    };
    writer.flush(); // the worker has ended and handed its lines over
    let text = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')), "{text:?}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(r#""\xc2\x85" "a\x9b31m\x22\x5c\x09\xff""#), "{text}");
    assert!(text.contains("GET /%0d%0a%1b HTTP/1.1"), "{text}");
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_no_start() {
    let path = pipe("unread");
    let writer = Writer::start().unwrap();
    let sink = writer.sink(&LogTarget::File(path.clone())).unwrap();
    // More than a pipe holds.
    writer.write(sink, b"0123456789abcde\n".repeat(8 << 10));
    writer.flush();
    assert!(writer.lost_lines() > 0);
    std::fs::remove_file(&path).unwrap();
}

/// FAULTS 51: a pipe that is stuck holds up nobody but the log, and every line is written or counted.
#[test]
fn a_stuck_pipe_stops_nobody() {
    let path = pipe("stuck");
    let mut end = reader(&path);
    let requests = 4000;
    let writer = {
        let server = Server::start(&format!("access-log \"{}\"", path.display()));
        let mut client = Client::connect(&server);
        // Lines that fill the queue soon.
        let request = format!("GET /bytes?{}1 HTTP/1.1\r\nHost: x\r\n\r\n", "0".repeat(7000));
        for _ in 0..requests / 10 {
            client.send(request.repeat(10));
            for _ in 0..10 {
                assert_eq!(client.answer().body, [0]);
            }
        }
        assert!(server.writer.lost_lines() > 0, "the pipe was not stuck");
        // Nor do those wait who want something of the log.
        let other = place("other");
        assert!(server.writer.sink(&LogTarget::File(other.clone())).is_ok());
        std::fs::remove_file(&other).unwrap();
        assert_eq!(server.writer.reopen(), Vec::<String>::new());
        client.assert_alive();
        server.writer.clone()
    };
    let (mut written, total) = (0, requests + 1);
    let mut all = || {
        written += take_lines(&mut end);
        (written + writer.lost_lines() >= total).then_some(())
    };
    wait_for(&mut all, "every line to be written or counted");
    assert_eq!(written + writer.lost_lines(), total);
    std::fs::remove_file(&path).unwrap();
}

/// Every request has its line, however often the logs are rotated meanwhile, and the end of the server too.
#[test]
fn rotation_loses_no_line() {
    let path = place("rotated");
    let (requests, rotations) = (3000, 10);
    let rotated = |number: usize| path.with_extension(number.to_string());
    let writer = {
        let server = Server::start(&format!("access-log \"{}\" format=common", path.display()));
        let mut client = Client::connect(&server);
        // Lines long enough that buffers are handed over under way.
        let request = format!("GET /bytes?{}1 HTTP/1.1\r\nHost: x\r\n\r\n", "0".repeat(2000));
        for number in 0..requests {
            client.send(&request);
            assert_eq!(client.answer().body, [0]);
            if number % (requests / rotations) == 7 {
                std::fs::rename(&path, rotated(number)).unwrap();
                assert_eq!(server.writer.reopen(), Vec::<String>::new());
            }
        }
        server.writer.clone()
    };
    writer.flush();
    let mut lines = 0;
    let files = (0..requests).map(rotated).filter(|file| file.exists()).chain([path.clone()]);
    for file in files.collect::<Vec<_>>() {
        let text = std::fs::read(&file).unwrap();
        assert!(text.is_empty() || text.ends_with(b"\n"), "{}", file.display());
        lines += text.iter().filter(|byte| **byte == b'\n').count();
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!((lines, writer.lost_lines()), (requests, 0));
}

/// A reader that is away for a while, such as one that is restarted, finds what it missed.
#[test]
fn a_pipe_that_is_stuck_for_a_while_loses_nothing() {
    let path = pipe("pause");
    let mut end = reader(&path);
    let writer = Writer::start().unwrap();
    let sink = writer.sink(&LogTarget::File(path.clone())).unwrap();
    let lines = 64 << 10;
    // Sixteen times what a pipe holds, in buffers as workers hand them over.
    for _ in 0..16 {
        writer.write(sink, b"0123456789abcde\n".repeat(lines / 16));
    }
    let mut taken = 0;
    let mut all = || {
        taken += take_lines(&mut end);
        (taken >= lines as u64).then_some(())
    };
    wait_for(&mut all, "every line");
    assert_eq!((taken, writer.lost_lines()), (lines as u64, 0));
    std::fs::remove_file(&path).unwrap();
}

/// FAULTS 51: a full disk.
#[test]
fn what_a_full_disk_does_not_take_is_held_then_lost_and_counted() {
    let writer = Writer::start().unwrap();
    let sink = writer.sink(&LogTarget::File("/dev/full".into())).unwrap();
    let lines = b"0123456789abcde\n".repeat(4 << 10);
    for _ in 0..10 {
        writer.write(sink, lines.clone());
    }
    assert_eq!(writer.reopen(), Vec::<String>::new()); // the thread has seen it all, and lives
    assert_eq!(writer.lost_lines(), 0);
    writer.flush();
    assert_eq!(writer.lost_lines(), 10 * (4 << 10));
}
