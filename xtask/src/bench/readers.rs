//! Readers that take whatever comes as fast as it comes, and say how much that was in each second, over HTTP/1 and
//! HTTP/2.
//!
//! Used by `qos`: what a server's bandwidth is worth shows at the other end of its connections alone. One thread reads
//! them all; each has an address of its own, where clients are to be told apart.

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::CpuSet;

use super::host;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// Without TLS, known beforehand.
    Http2,
}

/// What came.
#[derive(Debug, Clone)]
pub struct Received {
    /// Bytes of each reader, in each second.
    pub seconds: Vec<Vec<u64>>,
}

impl Received {
    /// How far the second that is farthest off lies from what it should hold, percent.
    pub fn worst_second(&self, wanted: f64) -> f64 {
        let sums = self.seconds.iter().map(|readers| readers.iter().sum::<u64>() as f64);
        sums.map(|sum| 100.0 * (sum / wanted - 1.0).abs()).fold(0.0, f64::max)
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.seconds.iter().flatten().sum()
    }

    /// Jain's index of what clients got: 1 where all had as much, 1/n where one had all. `clients` says whose a reader is.
    pub fn jain(&self, clients: &[Ipv4Addr]) -> f64 {
        let mut shares = std::collections::BTreeMap::<Ipv4Addr, f64>::new();
        for readers in &self.seconds {
            for (client, bytes) in clients.iter().zip(readers) {
                *shares.entry(*client).or_default() += *bytes as f64;
            }
        }
        jain(shares.values().copied())
    }
}

/// Jain's index of some shares.
pub fn jain(shares: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = (shares.clone().count() as f64, shares.clone().sum::<f64>());
    let squares: f64 = shares.map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

/// Reads a document with as many connections as there are addresses, and counts what comes for so many seconds after a
/// while of warming up.
pub fn read(
    port: u16,
    path: &str,
    sources: &[Ipv4Addr],
    protocol: Protocol,
    warmup: Duration,
    seconds: usize,
) -> Result<Received> {
    let (path, sources) = (path.to_owned(), sources.to_vec());
    // A thread of its own, since it stays on the processor of the generator.
    let reading = thread::spawn(move || read_here(port, &path, &sources, protocol, warmup, seconds));
    reading.join().map_err(|_| anyhow::anyhow!("the readers have panicked"))?
}

fn read_here(
    port: u16,
    path: &str,
    sources: &[Ipv4Addr],
    protocol: Protocol,
    warmup: Duration,
    seconds: usize,
) -> Result<Received> {
    let mut processors = CpuSet::new();
    processors.set(host::GENERATOR_PROCESSOR.parse()?);
    rustix::thread::sched_setaffinity(None, &processors).context("cannot stay on a processor")?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut readers = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let stream = connect(*source, port)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        readers.push(Reader { stream, frames: Frames::default(), first: Vec::new() });
    }
    for reader in &mut readers {
        reader.stream.set_nonblocking(false)?;
        reader.stream.write_all(&request(path, protocol))?;
        reader.stream.set_nonblocking(true)?;
    }
    let begin = Instant::now() + warmup;
    let mut counts = vec![vec![0; readers.len()]; seconds];
    let mut events: Vec<MaybeUninit<epoll::Event>> = vec![MaybeUninit::uninit(); 256];
    let mut buffer = vec![0; 256 << 10];
    loop {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let (ready, _) = epoll::wait(&poll, &mut events[..], Some(&timeout))?;
        for event in ready.iter() {
            let index = usize::try_from(event.data.u64())?;
            let reader = &mut readers[index];
            let count = match reader.stream.read(&mut buffer) {
                Ok(0) => bail!("a connection was closed while its answer was read; {}", reader.said()),
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => return Err(error).context("cannot read an answer"),
            };
            reader.listen(&buffer[..count]);
            let count = match protocol {
                Protocol::Http1 => count as u64,
                Protocol::Http2 => reader.frames.content(&buffer[..count])?,
            };
            if let Some(since) = Instant::now().checked_duration_since(begin)
                && let Some(second) = counts.get_mut(usize::try_from(since.as_secs())?)
            {
                second[index] += count;
            }
        }
        if begin.elapsed() >= Duration::from_secs(seconds as u64) {
            return Ok(Received { seconds: counts });
        }
    }
}

struct Reader {
    stream: TcpStream,
    frames: Frames,
    /// The first bytes that have come, to be told where the answer is none.
    first: Vec<u8>,
}

impl Reader {
    fn listen(&mut self, bytes: &[u8]) {
        const MOST: usize = 80;
        let room = MOST.saturating_sub(self.first.len()).min(bytes.len());
        self.first.extend_from_slice(&bytes[..room]);
    }

    fn said(&self) -> String {
        match String::from_utf8_lossy(&self.first).lines().next() {
            Some(line) => format!("it begins with {line:?}"),
            None => "nothing had come".to_owned(),
        }
    }
}

fn connect(source: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let socket: OwnedFd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(IpAddr::V4(source), 0))
        .with_context(|| format!("cannot have the address {source}"))?;
    rustix::net::connect(&socket, &SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A request for a document, and what has to come before it.
fn request(path: &str, protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Http1 => format!("GET /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes(),
        Protocol::Http2 => {
            const WINDOW: u32 = (1 << 31) - 1;
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            // SETTINGS_INITIAL_WINDOW_SIZE, then as much for the connection, which has 65,535 already.
            frame(&mut bytes, 4, 0, 0, &[&[0, 4][..], &WINDOW.to_be_bytes()].concat());
            frame(&mut bytes, 8, 0, 0, &(WINDOW - 65_535).to_be_bytes());
            // HPACK (RFC 7541): `GET` and `http` of the static table; path and authority as literals.
            let mut block = vec![0x82, 0x86, 0x04, path.len() as u8 + 1, b'/'];
            block.extend_from_slice(path.as_bytes());
            block.extend_from_slice(&[0x01, 9]);
            block.extend_from_slice(b"127.0.0.1");
            frame(&mut bytes, 1, 0x5, 1, &block);
            bytes
        }
    }
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// Frames of HTTP/2 that have come so far.
#[derive(Debug, Default)]
struct Frames {
    /// The head of the next one, as far as it is there.
    head: Vec<u8>,
    /// Bytes that are left of the present one, and whether they are content.
    left: usize,
    is_content: bool,
}

impl Frames {
    /// How many of these bytes are content.
    fn content(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let mut content = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let part = self.left.min(bytes.len());
                self.left -= part;
                bytes = &bytes[part..];
                content += if self.is_content { part as u64 } else { 0 };
                continue;
            }
            let part = (9 - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            if let [a, b, c, kind, ..] = self.head[..]
                && self.head.len() == 9
            {
                if matches!(kind, 3 | 7) {
                    bail!("the server has ended an answer over HTTP/2 before its end");
                }
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                self.is_content = kind == 0;
                self.head.clear();
            }
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(jain([1.0, 1.0].into_iter()), 1.0);
        assert_eq!(jain([4.0, 0.0].into_iter()), 0.5);
        let [one, other] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
        let received = Received { seconds: vec![vec![50, 60, 90], vec![50, 40, 110]] };
        assert_eq!(received.total(), 400);
        assert_eq!(received.worst_second(200.0), 0.0);
        assert!((received.worst_second(160.0) - 25.0).abs() < 1e-9);
        assert_eq!(received.jain(&[one, one, other]), 1.0);
    }

    #[test]
    fn content_of_frames_however_they_are_cut() {
        let mut bytes = Vec::new();
        frame(&mut bytes, 4, 0, 0, &[0; 12]);
        frame(&mut bytes, 0, 0, 1, &[1; 100]);
        frame(&mut bytes, 0, 1, 1, &[]);
        for size in [1, 5, 9, 200] {
            let mut frames = Frames::default();
            let content: u64 = bytes.chunks(size).map(|part| frames.content(part).unwrap()).sum();
            assert_eq!(content, 100, "in pieces of {size}");
        }
        frame(&mut bytes, 7, 0, 0, &[0; 8]);
        assert!(Frames::default().content(&bytes).is_err());
    }
}
