//! The application of the gateway benches: answers every FastCGI request with the same bytes.
//!
//! Started by `gateway` and `queue` as `xtask responder`, a process of its own on the generator's processor, and
//! by the pool of `kills`. One thread for all connections, or as many as there are workers, each of which serves
//! one connection at a time as the children of php-fpm do. One read and one write for each request; of the
//! request it looks only for the end of its content, and whether the connection stays.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::events;

#[derive(clap::Args)]
pub struct Arguments {
    /// The unix socket to listen on; `-` for one that is standard input
    socket: PathBuf,
    /// Bytes of the body
    size: usize,
    /// Workers, each of one connection at a time; without it one thread has all connections
    #[arg(long)]
    workers: Option<u32>,
    /// Milliseconds that each answer takes
    #[arg(long, default_value_t = 0)]
    time: u64,
}

/// Connections that wait for a worker, as with php-fpm.
const BACKLOG: i32 = 511;

/// The key of the listener.
const LISTENER: u64 = u64::MAX;

const HEADER: usize = 8;
const BEGIN_REQUEST: u8 = 1;
const STDIN: u8 = 5;

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    let listener = listen(&arguments.socket)?;
    let answer: &'static [u8] = answer(arguments.size).leak();
    let time = Duration::from_millis(arguments.time);
    println!("listening on unix:{}", arguments.socket.display());
    let Some(workers) = arguments.workers else { return serve_all(&listener, answer, time) };
    let listener = &listener;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(move || {
                // An answer takes its time and not the kernel's slack of 50 µs on top of it (prctl(2)).
                let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
                while let Ok((stream, _)) = listener.accept() {
                    let mut session = Session::new(stream, answer);
                    while session.turn(time) {}
                }
            });
        }
    });
    Ok(())
}

fn listen(socket: &Path) -> Result<UnixListener> {
    if socket == Path::new("-") {
        return Ok(std::io::stdin().as_fd().try_clone_to_owned()?.into());
    }
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    // Listening once more sets the length anew.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The records of an answer.
fn answer(size: usize) -> Vec<u8> {
    let mut content =
        format!("Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n").into_bytes();
    content.resize(content.len() + size, b'x');
    let mut answer = Vec::new();
    for piece in content.chunks(32 << 10) {
        answer.extend([1, 6, 0, 1, (piece.len() >> 8) as u8, piece.len() as u8, 0, 0]);
        answer.extend_from_slice(piece);
    }
    answer.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    answer
}

/// Makes the records those of another request.
fn renumber(mut records: &mut [u8], number: [u8; 2]) {
    while let Some((header, rest)) = records.split_at_mut_checked(HEADER) {
        header[2..4].copy_from_slice(&number);
        let content = usize::from(header[4]) << 8 | usize::from(header[5]);
        records = rest.get_mut(content + usize::from(header[6])..).unwrap_or_default();
    }
}

/// One connection.
struct Session<'a> {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have come.
    have: usize,
    answer: Cow<'a, [u8]>,
    number: [u8; 2],
    keeps: bool,
}

impl<'a> Session<'a> {
    fn new(stream: UnixStream, answer: &'a [u8]) -> Session<'a> {
        let (answer, buffer) = (Cow::Borrowed(answer), vec![0; 64 << 10]);
        Session { stream, buffer, have: 0, answer, number: [0, 1], keeps: true }
    }

    /// One read, and the answers to what is complete; `false` when the connection is over, in order or not: the
    /// other side may leave at any time.
    fn turn(&mut self, time: Duration) -> bool {
        match self.stream.read(&mut self.buffer[self.have..]) {
            Ok(count) if count > 0 => self.have += count,
            _ => return false,
        }
        let mut at = 0;
        while let Some(&header) = self.buffer[at..self.have].first_chunk::<HEADER>() {
            let content = usize::from(header[4]) << 8 | usize::from(header[5]);
            let end = at + HEADER + content + usize::from(header[6]);
            if end > self.have {
                break;
            }
            if header[1] == BEGIN_REQUEST {
                self.keeps = self.buffer[at + HEADER + 2] & 1 == 1;
                // HAProxy counts its requests on; most others begin with 1 again.
                if header[2..4] != self.number {
                    self.number = [header[2], header[3]];
                    renumber(self.answer.to_mut(), self.number);
                }
            }
            if header[1] == STDIN && content == 0 {
                if !time.is_zero() {
                    work(time);
                }
                if self.stream.write_all(&self.answer).is_err() || !self.keeps {
                    return false;
                }
            }
            at = end;
        }
        self.buffer.copy_within(at..self.have, 0);
        self.have -= at;
        if self.have == self.buffer.len() {
            self.buffer.resize(self.have * 2, 0);
        }
        true
    }
}

/// All connections on one thread: what wakes and puts to sleep a thread for each request costs the server that
/// wakes it more than all else, and no two servers alike. Sockets block; they are asked only when they are ready.
fn serve_all(listener: &UnixListener, answer: &[u8], time: Duration) -> Result<()> {
    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poller, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let (mut sessions, mut next) = (HashMap::new(), 0);
    let mut events = Vec::with_capacity(512);
    loop {
        events::wait(&poller, &mut events)?;
        for event in &events {
            let key = event.data.u64();
            if key == LISTENER {
                let session = Session::new(listener.accept()?.0, answer);
                epoll::add(&poller, &session.stream, EventData::new_u64(next), EventFlags::IN)?;
                sessions.insert(next, session);
                next += 1;
            } else if let Entry::Occupied(mut session) = sessions.entry(key)
                && !session.get_mut().turn(time)
            {
                session.remove();
            }
        }
    }
}

/// Takes so long, without using the processor.
pub fn work(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_request() {
        let mut records = answer(70_000);
        let before = records.clone();
        renumber(&mut records, [1, 2]);
        assert_eq!(records[2..4], [1, 2]);
        assert_eq!(records[records.len() - 14..][..2], [1, 2]);
        let changed = before.iter().zip(&records).filter(|(before, after)| before != after).count();
        assert_eq!(changed, 2 * 4);
        renumber(&mut records, [0, 1]);
        assert_eq!(records, before);
    }
}
