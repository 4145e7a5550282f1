//! A scripted name server: says what a transcript has written, and nothing for what it is to keep silent about.
//!
//! Read and written here by RFC 1035, over UDP and TCP on one port of loopback; no code of the server.

use crate::token::{Token, tokens};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Seconds that its records live.
const TTL: u32 = 1;
/// What goes into an answer over UDP.
const DATAGRAM: usize = 1200;

/// A name, in lower case, and a type.
type Key = (Vec<Vec<u8>>, u16);

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Records(Vec<Vec<u8>>),
    Failure,
    Silence,
}

type Records = HashMap<Key, Answer>;

/// A name server. It ends when it is dropped.
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    records: Mutex<Records>,
    asked: AtomicUsize,
    is_over: AtomicBool,
}

fn lock(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NameServer {
    /// Listens on a free port.
    pub fn start() -> Result<NameServer, String> {
        let failed = |error: std::io::Error| format!("no name server can be started: {error}");
        let (udp, tcp) = listen().map_err(failed)?;
        let address = udp.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            records: Mutex::default(),
            asked: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let (of_udp, of_tcp) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || of_udp.serve_datagrams(&udp)),
            std::thread::spawn(move || of_tcp.serve_connections(&tcp)),
        ];
        Ok(NameServer { address, shared, threads })
    }

    /// Where it is asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(SeqCst)
    }

    /// Says this from now on: a line for each record.
    pub fn say(&self, text: &str) -> Result<(), String> {
        let mut records = Records::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            read(line, &mut records).map_err(|why| format!("`{line}`: {why}"))?;
        }
        *lock(&self.shared.records) = records;
        Ok(())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        // Both threads wait for something to come.
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"", self.address));
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Both on one port: one that is free for UDP may be taken for TCP.
fn listen() -> std::io::Result<(UdpSocket, TcpListener)> {
    let mut last = std::io::Error::other("no port is free");
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        match TcpListener::bind(udp.local_addr()?) {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Shared {
    fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            if self.is_over.load(SeqCst) {
                return;
            }
            if let Some(answer) = buffer.get(..count).and_then(|query| self.answer(query, DATAGRAM)) {
                let _ = socket.send_to(&answer, from);
            }
        }
    }

    fn serve_connections(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_over.load(SeqCst) {
                return;
            }
            if let Ok(stream) = stream {
                let _ = self.converse(stream);
            }
        }
    }

    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        loop {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query)?;
            let Some(answer) = self.answer(&query, usize::from(u16::MAX)) else { return Ok(()) };
            let length = u16::try_from(answer.len()).unwrap_or(0).to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat())?;
        }
    }

    /// The answer to a query, shortened to what fits; `None` where it keeps silent.
    fn answer(&self, query: &[u8], most: usize) -> Option<Vec<u8>> {
        let (key, end) = question(query)?;
        self.asked.fetch_add(1, SeqCst);
        let records = lock(&self.records);
        let said = records.get(&key);
        let is_known = records.keys().any(|(name, _)| *name == key.0);
        let (code, found): (u8, &[Vec<u8>]) = match said {
            Some(Answer::Silence) => return None,
            Some(Answer::Failure) => (2, &[]),
            Some(Answer::Records(found)) => (0, found),
            None => (if is_known { 0 } else { 3 }, &[]),
        };
        let mut answer = query.get(..2)?.to_vec();
        answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(query.get(12..end)?);
        let mut count = 0u16;
        for data in found {
            let length = u16::try_from(data.len()).ok()?;
            if answer.len() + 12 + data.len() > most {
                answer[2] |= 2; // truncated
                break;
            }
            answer.extend_from_slice(&[0xc0, 12]);
            answer.extend_from_slice(&key.1.to_be_bytes());
            answer.extend_from_slice(&[0, 1]);
            answer.extend_from_slice(&TTL.to_be_bytes());
            answer.extend_from_slice(&length.to_be_bytes());
            answer.extend_from_slice(data);
            count += 1;
        }
        answer[6..8].copy_from_slice(&count.to_be_bytes());
        Some(answer)
    }
}

/// The question of a query, and where it ends.
fn question(query: &[u8]) -> Option<(Key, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(query.get(at..at + length)?.to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    query.get(at + 3)?;
    Some(((labels, kind), at + 4))
}

/// A line: `PTR ADDRESS NAME...`, `PTR ADDRESS many:COUNT`, `A NAME ADDRESS...`, `SILENT ADDRESS|NAME`,
/// `FAILS ADDRESS|NAME`.
fn read(line: &str, records: &mut Records) -> Result<(), String> {
    let mut words = Vec::new();
    for token in tokens(line)? {
        words.push(match token {
            Token::Word(word) => word.into_bytes(),
            Token::Quoted(bytes) => bytes,
        });
    }
    let [kind, of, values @ ..] = words.as_slice() else {
        return Err("expected a type, a name or an address, and values".into());
    };
    let address = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let name = match address(of) {
        Some(address) => reverse(address),
        None => labels(of),
    };
    let (kinds, answer): (&[u16], Answer) = match kind.as_slice() {
        b"PTR" => {
            let mut found = Vec::new();
            for value in values {
                let many = value.strip_prefix(b"many:").and_then(|count| std::str::from_utf8(count).ok());
                match many.and_then(|count| count.parse::<usize>().ok()) {
                    Some(count) => {
                        found.extend(
                            (0..count).map(|at| encode(&labels(format!("n{at}.many.test").as_bytes()))),
                        );
                    }
                    None => found.push(encode(&labels(value))),
                }
            }
            (&[12], Answer::Records(found))
        }
        b"A" => {
            let (mut of_v4, mut of_v6) = (Vec::new(), Vec::new());
            for value in values {
                match address(value).ok_or("an address is needed")? {
                    IpAddr::V4(address) => of_v4.push(address.octets().to_vec()),
                    IpAddr::V6(address) => of_v6.push(address.octets().to_vec()),
                }
            }
            records.insert((name.clone(), 28), Answer::Records(of_v6));
            (&[1], Answer::Records(of_v4))
        }
        b"SILENT" => (&[1, 12, 28], Answer::Silence),
        b"FAILS" => (&[1, 12, 28], Answer::Failure),
        _ => return Err("expected `PTR`, `A`, `SILENT` or `FAILS`".into()),
    };
    for kind in kinds {
        records.insert((name.clone(), *kind), answer.clone());
    }
    Ok(())
}

fn labels(name: &[u8]) -> Vec<Vec<u8>> {
    name.split(|byte| *byte == b'.').map(<[u8]>::to_vec).collect()
}

/// Where the name of an address is kept (RFC 1035 section 3.5, RFC 3596 section 2.5).
fn reverse(address: IpAddr) -> Vec<Vec<u8>> {
    let mut text = String::new();
    match address {
        IpAddr::V4(address) => {
            address.octets().iter().rev().for_each(|octet| text += &format!("{octet}."));
            text += "in-addr.arpa";
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            octets.iter().rev().for_each(|octet| text += &format!("{:x}.{:x}.", octet & 15, octet >> 4));
            text += "ip6.arpa";
        }
    }
    labels(text.as_bytes())
}

fn encode(labels: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in labels {
        bytes.push(u8::try_from(label.len()).unwrap_or(63).min(63));
        bytes.extend(label.iter().take(63));
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_mistakes_said() {
        let mut records = Records::new();
        for line in
            ["PTR 192.0.2.1 a.test", "A a.test 192.0.2.1 2001:db8::1", "SILENT b.test", "PTR ::1 \"a\\nb\""]
        {
            assert_eq!(read(line, &mut records), Ok(()), "{line}");
        }
        let name = [&b"1"[..], b"2", b"0", b"192", b"in-addr", b"arpa"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(records.get(&(name, 12)), Some(&Answer::Records(vec![b"\x01a\x04test\0".to_vec()])));
        for line in ["MX a.test b.test", "A a.test b.test", "PTR"] {
            assert!(read(line, &mut records).is_err(), "{line}");
        }
    }
}
