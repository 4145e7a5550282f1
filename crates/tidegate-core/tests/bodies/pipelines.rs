//! However requests are pipelined and cut, the answers are those of the same requests sent one by one.

use crate::handlers::Gate;
use crate::server;
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tidegate_core::conn::Next;
use tidegate_core::solo::Solo;
use tidegate_io::socket::Stream;

/// A client and the connection that serves it, on one thread.
struct Pair {
    solo: Solo,
    client: UnixStream,
    gate: Arc<Gate>,
}

impl Pair {
    fn new() -> Pair {
        let (make, gate, told) = server::registry();
        std::mem::forget(told); // what handlers tell is not asked for
        let (client, server) = pair();
        let solo = Solo::new(&Arc::new(server::settings("")), &make, server).unwrap();
        gate.open();
        Pair { solo, client, gate }
    }

    fn reconnect(&mut self) {
        let (client, server) = pair();
        self.client = client;
        self.solo.connect(server);
        self.gate.open();
    }

    /// Sends these pieces, the next one when the server has nothing left to do with the one before but to
    /// wait for it; all that comes back. `None`: the server has closed.
    fn exchange(&mut self, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut answers = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let is_last = index + 1 == pieces.len();
            if self.client.write_all(piece).is_err() {
                break;
            }
            let mut next = self.solo.turn();
            loop {
                let count = self.drain(&mut answers);
                next = match next {
                    Next::Close => {
                        self.drain(&mut answers);
                        return (answers, false);
                    }
                    Next::Again => self.solo.turn(),
                    Next::Wait if count > 0 => self.solo.turn(),
                    Next::Wait if is_last && self.solo.is_answering() => {
                        self.solo.wait(server::PATIENCE).unwrap()
                    }
                    Next::Wait => break,
                };
            }
        }
        (answers, true)
    }

    fn drain(&mut self, into: &mut Vec<u8>) -> usize {
        let (mut buffer, mut total) = ([0; 16 << 10], 0);
        loop {
            match self.client.read(&mut buffer) {
                Ok(0) => return total,
                Ok(count) => {
                    into.extend_from_slice(&buffer[..count]);
                    total += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return total,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn pair() -> (UnixStream, Stream) {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, Stream::new(server.into()))
}

/// Without what differs between two answers to the same request.
fn without_dates(mut bytes: Vec<u8>) -> String {
    let needle = b"\r\nDate: ";
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(needle.len()).position(|window| window == needle) {
        at += found + needle.len();
        bytes[at..at + 29].fill(b'-');
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let without = prop::sample::select(vec![
        "GET /bytes?3 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /bytes?40000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /file?100 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /parts?10 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /stream?20 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /known?20 HTTP/1.1\r\nHost: x\r\n\r\n",
        "HEAD /stream?20 HTTP/1.1\r\nHost: x\r\n\r\n",
        "HEAD /parts?5 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /empty HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /known?20 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "\r\nGET /../up HTTP/1.1\r\nHost: x\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    ]);
    let path = prop::sample::select(vec!["/echo", "/count", "/refuse", "/hold", "/nothing"]);
    let with = (path, prop::collection::vec(0..200_usize, 0..4), any::<bool>(), any::<bool>());
    prop_oneof![
        4 => without.prop_map(|request| request.as_bytes().to_vec()),
        4 => with.prop_map(|(path, sizes, is_chunked, expects)| {
            // What follows a refused expectation is not read; see `requests`.
            let expects = if expects && matches!(path, "/echo" | "/count") { "Expect: 100-continue\r\n" } else { "" };
            let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{expects}").into_bytes();
            if is_chunked {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for size in sizes.into_iter().filter(|size| *size > 0) {
                    bytes.extend(format!("{size:x};q=\"\\r\"\r\n{}\r\n", "c".repeat(size)).into_bytes());
                }
                bytes.extend(b"0\r\nX-Trailer: 1\r\n\r\n");
            } else {
                let size: usize = sizes.iter().sum();
                bytes.extend(format!("Content-Length: {size}\r\n\r\n{}", "l".repeat(size)).into_bytes());
            }
            bytes
        }),
    ]
}

#[test]
fn pipelined_is_one_by_one() {
    let mut pair = Pair::new();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..8);
    let input = (prop::collection::vec(request(), 1..6), cuts);
    let pair = std::cell::RefCell::new(&mut pair);
    runner
        .run(&input, |(requests, cuts)| {
            let pair = &mut **pair.borrow_mut();
            pair.reconnect();
            let mut expected = Vec::new();
            for request in &requests {
                let (answers, is_open) = pair.exchange(&[request]);
                prop_assert!(is_open);
                expected.extend(answers);
            }
            let whole = requests.concat();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len())).collect();
            ends.extend([0, whole.len()]);
            ends.sort_unstable();
            ends.dedup();
            let pieces: Vec<&[u8]> = ends.windows(2).map(|ends| &whole[ends[0]..ends[1]]).collect();
            pair.reconnect();
            let (answers, _) = pair.exchange(&pieces);
            prop_assert_eq!(without_dates(answers), without_dates(expected));
            Ok(())
        })
        .unwrap();
}

#[test]
fn every_byte_on_its_own() {
    let mut pair = Pair::new();
    let requests = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nT: x\r\n\r\n\
        GET /stream?9 HTTP/1.1\r\nHost: x\r\n\r\nPOST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\nhello, world\
        GET /bytes?2 HTTP/1.1\r\nHost: x\r\n\r\n";
    let (expected, _) = pair.exchange(&[requests.as_bytes()]);
    assert!(expected.ends_with(&[0, 1]));
    pair.reconnect();
    let pieces: Vec<&[u8]> = requests.as_bytes().chunks(1).collect();
    let (answers, is_open) = pair.exchange(&pieces);
    assert!(is_open);
    assert_eq!(without_dates(answers), without_dates(expected));
}
