//! A crowd that asks for one thing at once, and says when the first and the last byte came to each.
//!
//! Used by `cache`. One thread reads all connections; the first of them may read slowly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::origin::stay_with_the_generator;

/// What a crowd asks for.
#[derive(Debug, Clone)]
pub struct Question {
    pub port: u16,
    pub path: String,
    /// Bytes of the content.
    pub size: u64,
    pub clients: usize,
    /// Bytes a second that the first client takes, which asks before all others. `None`: as all others.
    pub leader_rate: Option<u64>,
    /// When it is given up.
    pub patience: Duration,
}

/// What came to each client that was not slow on purpose; times since all had asked.
#[derive(Debug, Default)]
pub struct Answers {
    /// Sorted.
    pub first_byte: Vec<Duration>,
    /// Sorted.
    pub last_byte: Vec<Duration>,
    /// Clients that did not get all of a 200.
    pub errors: usize,
}

impl Answers {
    /// How long after the first client another one had its first byte, by nearest rank.
    pub fn behind_the_first(&self, percent: f64) -> Option<Duration> {
        let rank = (percent / 100.0 * self.first_byte.len() as f64).ceil() as usize;
        Some(self.first_byte.get(rank.max(1) - 1)?.saturating_sub(*self.first_byte.first()?))
    }

    /// Bytes a second of the client that was served worst.
    pub fn slowest_rate(&self, size: u64) -> Option<f64> {
        Some(size as f64 / self.last_byte.last()?.as_secs_f64())
    }
}

struct Client {
    stream: TcpStream,
    /// What came of the head, until it was whole.
    head: Vec<u8>,
    /// Bytes of content that came; `None` before it.
    content: Option<u64>,
    is_over: bool,
}

/// Asks, and waits until all have their answer.
pub fn ask(question: &Question) -> Result<Answers> {
    let question = question.clone();
    let asking = thread::spawn(move || ask_here(&question));
    asking.join().map_err(|_| anyhow::anyhow!("the crowd has panicked"))?
}

fn ask_here(question: &Question) -> Result<Answers> {
    stay_with_the_generator()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", question.path);
    let _leader = match question.leader_rate {
        Some(rate) => Some(lead(question.port, &request, rate)?),
        None => None,
    };
    let mut clients = Vec::with_capacity(question.clients);
    for index in 0..question.clients {
        let stream = TcpStream::connect(("127.0.0.1", question.port))?;
        stream.set_nodelay(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        clients.push(Client { stream, head: Vec::new(), content: None, is_over: false });
    }
    for client in &mut clients {
        client.stream.write_all(request.as_bytes())?;
        client.stream.set_nonblocking(true)?;
    }
    let begin = Instant::now();
    let mut answers = Answers::default();
    let mut open = clients.len();
    let mut events = Vec::with_capacity(256);
    let mut buffer = vec![0; 256 << 10];
    while open > 0 {
        if begin.elapsed() > question.patience {
            answers.errors += open;
            break;
        }
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout))?;
        for event in &events {
            let client = &mut clients[usize::try_from(event.data.u64())?];
            if client.is_over {
                continue;
            }
            let had_content = client.content.is_some();
            let end = client.read(&mut buffer, question.size);
            if !had_content && client.content.is_some() {
                answers.first_byte.push(begin.elapsed());
            }
            let Some(is_whole) = end else { continue };
            client.is_over = true;
            open -= 1;
            match is_whole {
                true => answers.last_byte.push(begin.elapsed()),
                false => answers.errors += 1,
            }
        }
    }
    answers.first_byte.sort_unstable();
    answers.last_byte.sort_unstable();
    Ok(answers)
}

impl Client {
    /// Reads once: nothing yet, or whether all of it came.
    fn read(&mut self, buffer: &mut [u8], size: u64) -> Option<bool> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Some(false),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return None;
            }
            Err(_) => return Some(false),
        };
        let content = match &mut self.content {
            Some(content) => {
                *content += count as u64;
                *content
            }
            None => {
                self.head.extend_from_slice(&buffer[..count]);
                let end = self.head.windows(4).position(|window| window == b"\r\n\r\n")?;
                if !self.head.starts_with(b"HTTP/1.1 200 ") {
                    return Some(false);
                }
                let content = (self.head.len() - end - 4) as u64;
                self.content = Some(content);
                content
            }
        };
        (content >= size).then_some(content == size)
    }
}

/// Its connection ends with it, however much is still to come.
struct Leader(TcpStream);

impl Drop for Leader {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// A client that asks first and takes `rate` bytes a second.
fn lead(port: u16, request: &str, rate: u64) -> Result<Leader> {
    use rustix::net::{AddressFamily, SocketType, sockopt};

    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    // What lies in its buffer it would have taken at once.
    sockopt::set_socket_recv_buffer_size(&socket, 4096)?;
    rustix::net::connect(&socket, &std::net::SocketAddr::from(([127, 0, 0, 1], port)))?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(request.as_bytes())?;
    let mut reading = stream.try_clone()?;
    let mut first = [0; 1];
    if reading.read(&mut first).context("the leader")? == 0 {
        bail!("the connection of the leader was closed");
    }
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        while matches!(reading.read(&mut buffer), Ok(1..)) {
            thread::park_timeout(Duration::from_secs_f64(buffer.len() as f64 / rate as f64));
        }
    });
    Ok(Leader(stream))
}
