//! The application of the gateway benches: answers every FastCGI request with the same bytes.
//!
//! Started by `gateway` and `queue` as `xtask responder`, a process of its own on the generator's processor, and
//! by the pool of `kills`. A thread for each connection, or as many as there are workers, each of which serves
//! one connection at a time as the children of php-fpm do. One read and one write for each request; of the
//! request it looks only for the end of its content, and whether the connection stays.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(clap::Args)]
pub struct Arguments {
    /// The unix socket to listen on; `-` for one that is standard input
    socket: PathBuf,
    /// Bytes of the body
    size: usize,
    /// Workers, each of one connection at a time; without it there is no bound
    #[arg(long)]
    workers: Option<u32>,
    /// Milliseconds that each answer takes
    #[arg(long, default_value_t = 0)]
    time: u64,
}

/// Connections that wait for a worker, as with php-fpm.
const BACKLOG: i32 = 511;

const HEADER: usize = 8;
const BEGIN_REQUEST: u8 = 1;
const STDIN: u8 = 5;

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    let listener = listen(&arguments.socket)?;
    let answer: &'static [u8] = answer(arguments.size).leak();
    let time = Duration::from_millis(arguments.time);
    println!("listening on unix:{}", arguments.socket.display());
    let Some(workers) = arguments.workers else {
        for stream in listener.incoming() {
            let stream = stream?;
            let serve = move || serve(stream, answer, time);
            std::thread::Builder::new().stack_size(256 << 10).spawn(serve)?;
        }
        return Ok(());
    };
    let listener = &listener;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    serve(stream, answer, time);
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

/// Ends with the connection, in order or not: the other side may leave at any time.
fn serve(mut stream: UnixStream, answer: &[u8], time: Duration) {
    let (mut buffer, mut have) = (vec![0; 64 << 10], 0);
    let (mut answer, mut number) = (Cow::Borrowed(answer), [0, 1]);
    let mut keeps = true;
    loop {
        let mut at = 0;
        while let Some(header) = buffer[at..have].first_chunk::<HEADER>() {
            let content = usize::from(header[4]) << 8 | usize::from(header[5]);
            let end = at + HEADER + content + usize::from(header[6]);
            if end > have {
                break;
            }
            if header[1] == BEGIN_REQUEST {
                keeps = buffer[at + HEADER + 2] & 1 == 1;
                // HAProxy counts its requests on; most others begin with 1 again.
                if header[2..4] != number {
                    number = [header[2], header[3]];
                    renumber(answer.to_mut(), number);
                }
            }
            if header[1] == STDIN && content == 0 {
                if !time.is_zero() {
                    work(time);
                }
                if stream.write_all(&answer).is_err() || !keeps {
                    return;
                }
            }
            at = end;
        }
        buffer.copy_within(at..have, 0);
        have -= at;
        if have == buffer.len() {
            buffer.resize(have * 2, 0);
        }
        match stream.read(&mut buffer[have..]) {
            Ok(count) if count > 0 => have += count,
            _ => return,
        }
    }
}

/// Takes so long, without using the processor.
fn work(time: Duration) {
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
