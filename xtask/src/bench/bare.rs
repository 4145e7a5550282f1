//! The floor of the generator bench: a closed loop that sends the same bytes and counts what comes, nothing else.
//!
//! What it costs is what the kernel costs; a generator can only be measured against it. Started by the bench as
//! `xtask bare`, a process of its own. Edge-triggered epoll, one thread, one `send` and one `recv` for each
//! request, no clock but one read a turn, no parsing: the length of the first answer is that of all.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::events;

#[derive(clap::Args)]
pub struct Arguments {
    port: u16,
    /// The document
    path: String,
    /// Connections
    connections: usize,
    /// Seconds
    seconds: u64,
}

/// Loads a server for a while and prints the number of answers.
pub fn run(arguments: &Arguments) -> Result<()> {
    let request = format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", arguments.path, arguments.port);
    let connect = || TcpStream::connect(("127.0.0.1", arguments.port));
    let length = length_of_answer(&mut connect()?, request.as_bytes())?;

    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    let mut streams = Vec::new();
    for place in 0..arguments.connections {
        let mut stream = connect()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poller, &stream, EventData::new_u64(place as u64), EventFlags::IN | EventFlags::ET)?;
        stream.write_all(request.as_bytes())?;
        streams.push((stream, length));
    }
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut answers = 0_u64;
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0; 64 << 10];
    while Instant::now() < end {
        events::wait(&poller, &mut events)?;
        for event in &events {
            let place = usize::try_from(event.data.u64()).expect("invariant: a place in the list");
            let (stream, left) = &mut streams[place];
            match stream.read(&mut buffer) {
                Ok(0) => bail!("the server has closed a connection"),
                Ok(count) => *left = left.checked_sub(count).context("an answer of another length")?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if *left == 0 {
                *left = length;
                answers += 1;
                // A request of a few bytes always fits a connection that has nothing under way.
                stream.write_all(request.as_bytes())?;
            }
        }
    }
    println!("{answers} answers");
    Ok(())
}

fn length_of_answer(stream: &mut TcpStream, request: &[u8]) -> Result<usize> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4 << 10];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            bail!("the server has closed the first connection");
        }
        answer.extend_from_slice(&buffer[..count]);
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let field = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let content: usize = field.context("an answer without Content-Length")?.trim().parse()?;
        if answer.len() == head + 4 + content {
            return Ok(answer.len());
        }
    }
}
