//! An origin for the benches of caches: what it answers its path says, and it counts how often it was asked.
//!
//! `/SIZE`, `/SIZE/NAME`, or with fields of a query: `delay` milliseconds before the head, `rate` bytes a second of
//! content. All of it may be stored for an hour. A thread for each connection, on the processor of the generator.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::CpuSet;

use super::host;

/// It serves as long as the process runs.
pub struct Origin {
    pub port: u16,
    requests: Arc<AtomicU64>,
}

/// What a path asks for.
#[derive(Debug, PartialEq)]
struct Asked {
    size: u64,
    delay: Duration,
    /// Bytes a second.
    rate: Option<u64>,
}

/// Content is written in such pieces.
const PIECE: usize = 64 << 10;

impl Origin {
    pub fn start() -> Result<Origin> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                // A server that ends its connection ends the thread.
                thread::spawn(move || serve(&stream, &counted));
            }
        });
        Ok(Origin { port, requests })
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Keeps the calling thread on the processor of the generator.
pub fn stay_with_the_generator() -> Result<()> {
    let mut processors = CpuSet::new();
    processors.set(host::GENERATOR_PROCESSOR.parse()?);
    rustix::thread::sched_setaffinity(None, &processors).context("cannot stay on a processor")
}

fn serve(stream: &TcpStream, requests: &AtomicU64) -> Result<()> {
    stay_with_the_generator()?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let asked = Asked::parse(&line).with_context(|| format!("not a request of a bench: {line:?}"))?;
        while !line.trim_end().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
        }
        requests.fetch_add(1, Ordering::Relaxed);
        thread::park_timeout(asked.delay);
        answer(stream, &asked)?;
    }
}

fn answer(mut stream: &TcpStream, asked: &Asked) -> Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nETag: \"1\"\r\n\
         Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nCache-Control: max-age=3600\r\n\r\n",
        asked.size
    );
    stream.write_all(head.as_bytes())?;
    let (begin, piece) = (Instant::now(), [b'x'; PIECE]);
    let mut sent = 0;
    while sent < asked.size {
        let length = (asked.size - sent).min(PIECE as u64);
        stream.write_all(&piece[..usize::try_from(length)?])?;
        sent += length;
        if let Some(rate) = asked.rate {
            let due = Duration::from_secs_f64(sent as f64 / rate as f64);
            thread::park_timeout(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(())
}

impl Asked {
    fn parse(line: &str) -> Option<Asked> {
        let target = line.split(' ').nth(1)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut asked =
            Asked { size: path.split('/').nth(1)?.parse().ok()?, delay: Duration::ZERO, rate: None };
        for (name, value) in query.split('&').filter_map(|field| field.split_once('=')) {
            match name {
                "delay" => asked.delay = Duration::from_millis(value.parse().ok()?),
                "rate" => asked.rate = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_asks_for() {
        let asked = |size, delay, rate| Asked { size, delay: Duration::from_millis(delay), rate };
        assert_eq!(Asked::parse("GET /1024 HTTP/1.1\r\n"), Some(asked(1024, 0, None)));
        assert_eq!(Asked::parse("GET /5/a?delay=200&rate=9 HTTP/1.1\r\n"), Some(asked(5, 200, Some(9))));
        assert_eq!(Asked::parse("GET /a HTTP/1.1\r\n"), None);
        assert_eq!(Asked::parse("GET /5?wait=1 HTTP/1.1\r\n"), None);
    }
}
