//! A server of known delays, for the truth of the generator: what it reports must be what was done to it.
//!
//! Started by `generators` as `xtask scripted`, a process of its own. One thread, edge-triggered epoll and a heap
//! of answers that are due. Delays are long beside what the machine adds to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::events;

#[derive(clap::Args)]
pub struct Arguments {
    port: u16,
    script: Script,
}

/// When an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Script {
    /// After the same time always
    Fixed,
    /// After times of an exponential distribution
    Exponential,
    /// After the same time, but for a second of every ten in which nothing is answered
    Stalling,
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Delays of an exponential distribution are dealt out from so many quantiles of it.
const QUANTILES: u64 = 10_000;

impl Script {
    pub const ALL: [Script; 3] = [Script::Fixed, Script::Exponential, Script::Stalling];

    pub fn name(self) -> &'static str {
        match self {
            Script::Fixed => "fixed",
            Script::Exponential => "exponential",
            Script::Stalling => "stalling",
        }
    }

    /// When request `number`, that came at `now`, is answered; nanoseconds.
    fn due(self, number: u64, now: u64) -> u64 {
        match self {
            Script::Fixed => now + 50 * MILLISECOND,
            Script::Exponential => {
                // In an order that jumps, so that neighbours have nothing to do with each other.
                let place = (number * 7_919 % QUANTILES) as f64;
                let share = (place + 0.5) / QUANTILES as f64;
                now + (-(1.0 - share).ln() * 100.0 * MILLISECOND as f64) as u64
            }
            Script::Stalling => {
                let phase = now % (10 * SECOND);
                let free = if phase < SECOND { now - phase + SECOND } else { now };
                free + 50 * MILLISECOND
            }
        }
    }

    /// The response time that a share of `percent` does not exceed, where nobody waits for a connection.
    pub fn percentile(self, percent: f64) -> Duration {
        let above = 1.0 - percent / 100.0;
        let milliseconds = match self {
            Script::Fixed => 50.0,
            Script::Exponential => -100.0 * above.ln(),
            // A tenth of all arrivals falls into a stall and waits for its end, from nothing to a second.
            Script::Stalling => 50.0 + (1.0 - above * 10.0).max(0.0) * 1_000.0,
        };
        Duration::from_secs_f64(milliseconds / 1e3)
    }
}

/// The keys of the listener and of the timer; connections have their place in the list.
const LISTENER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n";

/// The path at which the server tells how long its answers took so far, sorted, in nanoseconds.
const TAKEN: &[u8] = b"GET /taken ";

/// Asks a server how long its answers took, sorted.
pub fn taken(port: u16) -> Result<Vec<u64>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&[TAKEN, b"HTTP/1.1\r\n\r\n"].concat())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, content) = text.split_once("\r\n\r\n").context("an answer without content")?;
    Ok(content.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// By nearest rank, of what is sorted.
pub fn percentile(sorted: &[u64], percent: f64) -> Duration {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    Duration::from_nanos(sorted.get(rank.max(1) - 1).copied().unwrap_or_default())
}

/// Tells them on a connection that is then closed. Nobody is served meanwhile, which is why it comes last.
fn tell(mut stream: TcpStream, taken: &mut [u64]) -> Result<()> {
    taken.sort_unstable();
    let content = taken.iter().map(u64::to_string).collect::<Vec<_>>().join("\n");
    stream.set_nonblocking(false)?;
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{content}")?;
    Ok(())
}

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    rustix::net::listen(&listener, 4_096)?;
    listener.set_nonblocking(true)?;
    let poller = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poller, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    // Waiting with a timeout of epoll counts milliseconds.
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    epoll::add(&poller, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
    let mut connections = Vec::new();
    // When an answer is due, on which connection, and when its request came.
    let mut due: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    let mut taken = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut buffer = [0; 4_096];
    let mut number = 0;
    loop {
        if let Some(Reverse((at, ..))) = due.peek() {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec::try_from(Duration::from_nanos(*at))?;
            let once = Itimerspec { it_interval: zero, it_value: value };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
        }
        events::wait(&poller, &mut events)?;
        for event in &events {
            let key = event.data.u64();
            if key == TIMER {
                continue;
            }
            if key == LISTENER {
                accept(&listener, &poller, &mut connections)?;
                continue;
            }
            let place = usize::try_from(key).expect("invariant: a place in the list");
            let Some(stream) = connections[place].as_mut() else { continue };
            match read(stream, &mut buffer) {
                Some(requests) => {
                    if buffer.starts_with(TAKEN) {
                        let stream = connections[place].take();
                        buffer[0] = 0;
                        tell(stream.context("invariant: read from above")?, &mut taken)?;
                        continue;
                    }
                    for _ in 0..requests {
                        let came = now();
                        due.push(Reverse((arguments.script.due(number, came), place, came)));
                        number += 1;
                    }
                }
                None => connections[place] = None,
            }
        }
        while let Some(Reverse((_, place, came))) =
            due.peek().copied().filter(|Reverse(next)| next.0 <= now())
        {
            due.pop();
            taken.push(now() - came);
            // Whoever has left hears nothing; an answer of some bytes always fits.
            if connections[place].as_mut().is_some_and(|stream| stream.write_all(ANSWER).is_err()) {
                connections[place] = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, poller: &OwnedFd, connections: &mut Vec<Option<TcpStream>>) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let place = EventData::new_u64(connections.len() as u64);
        epoll::add(poller, &stream, place, EventFlags::IN | EventFlags::ET)?;
        connections.push(Some(stream));
    }
}

/// How many requests came; `None` when the connection is over.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    let mut requests = 0;
    loop {
        match stream.read(buffer) {
            Ok(0) => return None,
            // Requests are short: none of them comes in pieces.
            Ok(count) => requests += buffer[..count].windows(4).filter(|end| end == b"\r\n\r\n").count(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(requests),
            Err(_) => return None,
        }
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * SECOND + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_script() {
        for script in Script::ALL {
            // Arrivals a millisecond apart over one period of everything.
            let mut delays: Vec<u64> = (0..QUANTILES)
                .map(|number| {
                    let now = 100 * SECOND + number * MILLISECOND;
                    script.due(number, now) - now
                })
                .collect();
            delays.sort_unstable();
            for percent in [10.0, 50.0, 89.0, 95.0, 99.0, 99.9] {
                let seen = delays[(percent / 100.0 * QUANTILES as f64) as usize - 1] as f64;
                let told = script.percentile(percent).as_nanos() as f64;
                assert!((seen - told).abs() <= told * 0.01, "{script:?} p{percent}: {seen} {told}");
            }
        }
    }
}
