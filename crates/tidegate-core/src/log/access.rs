//! Access lines: one for each request, exactly once, in the formats that log tools read.

use super::{Sink, Writer, push_escaped, push_json_escaped};
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use tidegate_config::settings::AccessFormat;
use tidegate_http::{HttpDate, push_decimal};
use tidegate_io::socket::Peer;

/// A buffer this full goes to the writer.
const FLUSH_AT: usize = 64 << 10;

/// In place of a minor version: HTTP/2.
pub const HTTP_2: u8 = 20;

fn version_name(minor_version: u8) -> &'static [u8] {
    match minor_version {
        0 => b"HTTP/1.0",
        HTTP_2 => b"HTTP/2.0",
        _ => b"HTTP/1.1",
    }
}

/// What a line tells of a request.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The other end.
    pub peer: Peer,
    /// Method as sent; `-` where the request could not be read.
    pub method: &'a str,
    /// Target as sent.
    pub target: &'a str,
    /// Host and port as sent.
    pub authority: &'a str,
    /// Minor version of HTTP/1, or [`HTTP_2`].
    pub minor_version: u8,
    /// `Referer` field.
    pub referer: &'a [u8],
    /// `User-Agent` field.
    pub user_agent: &'a [u8],
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// Status code sent.
    pub status: u16,
    /// Bytes of the body sent, with its framing.
    pub bytes: u64,
    /// From the complete head to the last byte handed to the kernel, nanoseconds.
    pub nanos: u64,
}

/// An [`Entry`] that outlives its request's buffer: for responses that do not finish at once.
pub struct Record {
    text: Box<[u8]>,
    /// Ends of method, target, authority and referer in `text`.
    ends: [u32; 4],
    peer: Peer,
    minor_version: u8,
    /// Where the line goes.
    pub sink: Sink,
}

impl Record {
    /// Copies what the line needs.
    pub fn capture(entry: &Entry<'_>, sink: Sink) -> Box<Record> {
        let parts = [
            entry.method.as_bytes(),
            entry.target.as_bytes(),
            entry.authority.as_bytes(),
            entry.referer,
            entry.user_agent,
        ];
        let mut text = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        let mut ends = [0; 4];
        for (n, part) in parts.iter().enumerate() {
            text.extend_from_slice(part);
            if let Some(end) = ends.get_mut(n) {
                *end = text.len() as u32;
            }
        }
        Box::new(Record {
            text: text.into(),
            ends,
            peer: entry.peer,
            minor_version: entry.minor_version,
            sink,
        })
    }

    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        let [a, b, c, d] = self.ends.map(|end| end as usize);
        let text = |from: usize, to: usize| std::str::from_utf8(&self.text[from..to]).unwrap_or("-");
        Entry {
            peer: self.peer,
            method: text(0, a),
            target: text(a, b),
            authority: text(b, c),
            minor_version: self.minor_version,
            referer: &self.text[c..d],
            user_agent: &self.text[d..],
        }
    }
}

/// The buffers of one worker, one for each log.
pub struct AccessBuffers {
    writer: Arc<Writer>,
    buffers: Vec<(Sink, AccessFormat, Vec<u8>)>,
    /// `10/Oct/2000:13:55:36 +0000` and `2000-10-10T13:55:36Z` of the current second.
    common_time: [u8; 26],
    rfc3339_time: [u8; 20],
}

impl AccessBuffers {
    /// Without any log yet.
    pub fn new(writer: Arc<Writer>) -> AccessBuffers {
        AccessBuffers {
            writer,
            buffers: Vec::new(),
            common_time: HttpDate(0).common_log(),
            rfc3339_time: HttpDate(0).rfc3339(),
        }
    }

    /// Makes room for a log; called when settings are taken up.
    pub fn add(&mut self, sink: Sink, format: AccessFormat) {
        match self.buffers.iter_mut().find(|(open, _, _)| *open == sink) {
            Some((_, present, _)) => *present = format,
            None => self.buffers.push((sink, format, Vec::new())),
        }
    }

    /// Takes the time for the lines to come, and sends on what has waited.
    pub fn tick(&mut self, now: i64) {
        self.common_time = HttpDate(now).common_log();
        self.rfc3339_time = HttpDate(now).rfc3339();
        self.flush();
    }

    /// Whether lines wait to be sent on.
    pub fn is_waiting(&self) -> bool {
        self.buffers.iter().any(|(_, _, buffer)| !buffer.is_empty())
    }

    /// Sends on what waits.
    pub fn flush(&mut self) {
        for (sink, _, buffer) in &mut self.buffers {
            if !buffer.is_empty() {
                self.writer.write(*sink, std::mem::take(buffer));
            }
        }
    }

    /// Writes a line.
    pub fn line(&mut self, sink: Sink, entry: &Entry<'_>, ending: Ending) {
        let Some((_, format, out)) = self.buffers.iter_mut().find(|(open, _, _)| *open == sink) else {
            return;
        };
        if out.capacity() == 0 {
            out.reserve(FLUSH_AT + 4096);
        }
        match format {
            AccessFormat::Common | AccessFormat::Combined => {
                push_common(out, &self.common_time, entry, ending);
                if *format == AccessFormat::Combined {
                    for field in [entry.referer, entry.user_agent] {
                        out.extend_from_slice(b" \"");
                        push_escaped(out, if field.is_empty() { b"-" } else { field });
                        out.push(b'"');
                    }
                }
            }
            AccessFormat::Json => push_json(out, &self.rfc3339_time, entry, ending),
        }
        out.push(b'\n');
        if out.len() >= FLUSH_AT {
            self.writer.write(sink, std::mem::take(out));
        }
    }
}

fn push_peer(out: &mut Vec<u8>, peer: Peer) {
    match peer {
        Peer::Tcp(address) => match address.ip().to_canonical() {
            IpAddr::V4(v4) => {
                for (n, octet) in v4.octets().into_iter().enumerate() {
                    if n > 0 {
                        out.push(b'.');
                    }
                    push_decimal(out, u64::from(octet));
                }
            }
            IpAddr::V6(v6) => drop(write!(out, "{v6}")),
        },
        Peer::Unix => out.extend_from_slice(b"unix:"),
    }
}

fn push_common(out: &mut Vec<u8>, time: &[u8], entry: &Entry<'_>, ending: Ending) {
    push_peer(out, entry.peer);
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(time);
    out.extend_from_slice(b"] \"");
    push_escaped(out, entry.method.as_bytes());
    out.push(b' ');
    push_escaped(out, entry.target.as_bytes());
    out.push(b' ');
    out.extend_from_slice(version_name(entry.minor_version));
    out.extend_from_slice(b"\" ");
    push_decimal(out, u64::from(ending.status));
    out.push(b' ');
    push_decimal(out, ending.bytes);
}

fn push_json(out: &mut Vec<u8>, time: &[u8], entry: &Entry<'_>, ending: Ending) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(time);
    out.extend_from_slice(b"\",\"remote\":\"");
    push_peer(out, entry.peer);
    let version = version_name(entry.minor_version);
    for (name, value) in [
        ("host", entry.authority.as_bytes()),
        ("method", entry.method.as_bytes()),
        ("target", entry.target.as_bytes()),
        ("version", version),
        ("referer", entry.referer),
        ("user_agent", entry.user_agent),
    ] {
        let _ = write!(out, "\",\"{name}\":\"");
        push_json_escaped(out, value);
    }
    let _ = write!(
        out,
        "\",\"status\":{},\"bytes\":{},\"duration_us\":{}}}",
        ending.status,
        ending.bytes,
        ending.nanos / 1000
    );
}
