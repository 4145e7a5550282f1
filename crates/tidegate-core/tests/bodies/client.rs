//! A client that sends any bytes and reads responses strictly.

use crate::server::{PATIENCE, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
}

/// A response as it came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The body ended where its framing says.
    pub is_complete: bool,
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    Reset,
}

impl Client {
    pub fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a request without content and reads the answer.
    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).answer()
    }

    /// Reads more; `None` is the end.
    fn more(&mut self) -> Option<End> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Some(End::Closed),
            Ok(count) => {
                self.read.extend_from_slice(&buffer[..count]);
                None
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(End::Reset),
            Err(error) => panic!("{error}; so far {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    fn line_end(&mut self, end: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end) {
                return Some(at + end.len());
            }
            if self.more().is_some() {
                return None;
            }
        }
    }

    /// A head, interim ones too.
    pub fn head(&mut self) -> String {
        let end = self.line_end(b"\r\n\r\n").unwrap_or_else(|| {
            panic!("the connection ended before a head: {:?}", String::from_utf8_lossy(&self.read))
        });
        String::from_utf8(self.read.drain(..end).collect()).unwrap()
    }

    /// The answer to a request other than `HEAD`.
    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    pub fn answer_to(&mut self, method: &str) -> Answer {
        let head = self.head();
        let status: u16 = head[9..12].parse().unwrap();
        assert!(status >= 200, "an interim response that was not asked for: {head}");
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let mut answer = Answer { status, head: head.clone(), body: Vec::new(), is_complete: true };
        if method == "HEAD" || status == 204 || status == 304 {
            return answer;
        }
        if field("transfer-encoding").is_some() {
            assert!(head.starts_with("HTTP/1.1"), "{head}");
            answer.is_complete = self.chunks(&mut answer.body).is_some();
        } else if let Some(len) = field("content-length") {
            let len: usize = len.parse().unwrap();
            while self.read.len() < len && self.more().is_none() {}
            answer.is_complete = self.read.len() >= len;
            let len = len.min(self.read.len());
            answer.body = self.read.drain(..len).collect();
        } else {
            assert!(head.contains("Connection: close"), "{head}");
            answer.is_complete = self.end() == End::Closed;
            answer.body = std::mem::take(&mut self.read);
        }
        answer
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let end = self.line_end(b"\r\n")?;
            let line: Vec<u8> = self.read.drain(..end).collect();
            let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap();
            while self.read.len() < size + 2 {
                if self.more().is_some() {
                    body.append(&mut self.read);
                    return None;
                }
            }
            body.extend(self.read.drain(..size));
            assert_eq!(self.read.drain(..2).as_slice(), b"\r\n");
            if size == 0 {
                return Some(());
            }
        }
    }

    /// Reads to the end of the connection.
    pub fn end(&mut self) -> End {
        loop {
            if let Some(end) = self.more() {
                return end;
            }
        }
    }

    /// The connection ends with nothing more said.
    pub fn assert_closed(&mut self) {
        self.end();
        assert!(self.read.is_empty(), "{:?}", String::from_utf8_lossy(&self.read));
    }

    /// The connection is as good as new.
    pub fn assert_alive(&mut self) {
        let answer = self.get("/bytes?3");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &[0, 1, 2][..]));
    }
}

impl Client {
    /// The next bytes, whatever they are.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert_eq!(self.more(), None, "the connection ended");
        }
        self.read.drain(..count).collect()
    }

    /// Makes closing send a reset.
    pub fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO)).unwrap();
    }
}
