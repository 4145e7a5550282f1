//! An application that speaks HTTP/1.1, one request after another on a connection.

use super::{After, Encode, Incoming, Reset, Stop, Upload, perform, trailer};
use crate::random::findings::Findings;
use crate::random::plan::{AnswerPlan, Ending, Framing};

struct Http1;

impl Encode for Http1 {
    fn head(&self, plan: &AnswerPlan, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("HTTP/1.1 200 OK\r\nX-Nonce: {:x}\r\n", plan.nonce.0).as_bytes());
        // Who has sent all the content that was announced and then goes silent must not be asked again on the connection.
        if plan.framing == Framing::Length && plan.ending == Ending::Stall(plan.length) {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        if plan.is_text {
            out.extend_from_slice(b"Content-Type: text/plain\r\n");
        }
        if plan.has_trailer && plan.framing == Framing::Chunked {
            out.extend_from_slice(b"Trailer: X-End\r\n");
        }
        let framing = match plan.framing {
            Framing::Length => format!("Content-Length: {}\r\n\r\n", plan.length),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
            Framing::Close => "Connection: close\r\n\r\n".to_owned(),
        };
        out.extend_from_slice(framing.as_bytes());
    }

    fn data(&self, plan: &AnswerPlan, data: &[u8], out: &mut Vec<u8>) {
        if plan.framing != Framing::Chunked {
            out.extend_from_slice(data);
            return;
        }
        out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }

    fn end(&self, plan: &AnswerPlan, out: &mut Vec<u8>) {
        if plan.framing == Framing::Chunked {
            out.extend_from_slice(b"0\r\n");
            if plan.has_trailer {
                out.extend_from_slice(format!("X-End: {:x}\r\n", plan.nonce.0).as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        }
    }

    fn garbage(&self) -> &'static [u8] {
        b"HTTP/1.1 2x0 Maybe\r\n: nothing\r\n\r\n"
    }
}

pub(super) fn serve(incoming: &mut Incoming, _: &Findings) -> Result<Option<Reset>, Stop> {
    loop {
        let plan = read_request(incoming)?;
        match perform(&plan, &Http1, incoming)? {
            After::Keep => {}
            After::Close => return Ok(None),
            After::Reset => return Ok(Some(Reset)),
        }
    }
}

fn read_request(incoming: &mut Incoming) -> Result<AnswerPlan, Stop> {
    let end = loop {
        if let Some(at) = incoming.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        incoming.fill()?;
    };
    let head: Vec<u8> = incoming.buffer.drain(..end).collect();
    let head = String::from_utf8(head).map_err(|_| Stop::Fault("a head that is not text".to_owned()))?;
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap_or_default();
    let words: Vec<&str> = start.split(' ').collect();
    let [_, target, "HTTP/1.1"] = words[..] else {
        return Err(Stop::Fault(format!("the request line {start:?}")));
    };
    let plan = AnswerPlan::parse(target).map_err(Stop::Fault)?;
    let field = |name: &str| {
        head.split("\r\n").filter_map(|line| line.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case(name))
    };
    if field("x-end").is_some() {
        return Err(Stop::Fault("a trailer in the head of a request".to_owned()));
    }
    let mut upload = Upload::of(&plan);
    if let Some((_, length)) = field("content-length") {
        let length = length.trim().parse().map_err(|_| Stop::Fault(format!("Content-Length:{length}")))?;
        upload.take_all(incoming, length)?;
    } else if field("transfer-encoding").is_some() {
        loop {
            let line = line(incoming)?;
            let length = usize::from_str_radix(&line, 16)
                .map_err(|_| Stop::Fault(format!("the chunk line {line:?}")))?;
            if length == 0 {
                loop {
                    let line = self::line(incoming)?;
                    match line.split_once(':') {
                        _ if line.is_empty() => break,
                        Some((name, value)) => trailer(&plan, name, value)?,
                        None => return Err(Stop::Fault(format!("{line:?} behind the last chunk"))),
                    }
                }
                break;
            }
            let data = incoming.take(length)?;
            upload.take(&data)?;
            if incoming.take(2)? != b"\r\n" {
                return Err(Stop::Fault("no line end behind a chunk".to_owned()));
            }
        }
    }
    upload.end()?;
    Ok(plan)
}

fn line(incoming: &mut Incoming) -> Result<String, Stop> {
    loop {
        if let Some(at) = incoming.buffer.windows(2).position(|bytes| bytes == b"\r\n") {
            let line: Vec<u8> = incoming.buffer.drain(..at + 2).take(at).collect();
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        incoming.fill()?;
    }
}
