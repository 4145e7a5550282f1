//! Applications that speak FastCGI or SCGI.

use super::{After, Encode, Incoming, Reset, Stop, Upload, perform};
use crate::random::findings::Findings;
use crate::random::pause::rest;
use crate::random::plan::{AnswerPlan, Ending, Framing};
use std::time::Duration;

const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// How long a process that has answered for the last time takes to close its connection.
const LAST: Duration = Duration::from_millis(10);

fn cgi_head(plan: &AnswerPlan) -> String {
    let length = match plan.framing {
        Framing::Length => format!("Content-Length: {}\r\n", plan.length),
        Framing::Chunked | Framing::Close => String::new(),
    };
    let kind = if plan.is_text { "Content-Type: text/plain\r\n" } else { "" };
    format!("Status: 200 OK\r\nX-Nonce: {:x}\r\n{kind}{length}\r\n", plan.nonce.0)
}

struct FastCgi;

impl Encode for FastCgi {
    fn head(&self, plan: &AnswerPlan, out: &mut Vec<u8>) {
        record(STDOUT, cgi_head(plan).as_bytes(), out);
    }

    fn data(&self, _: &AnswerPlan, data: &[u8], out: &mut Vec<u8>) {
        record(STDOUT, data, out);
    }

    fn end(&self, _: &AnswerPlan, out: &mut Vec<u8>) {
        record(END, &[0; 8], out);
    }

    fn garbage(&self) -> &'static [u8] {
        &[9, 200, 0, 7, 0, 1, 0, 0, 0]
    }
}

fn record(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    for piece in content.chunks(65_535) {
        let (length, padding) = (piece.len() as u16, (8 - piece.len() % 8) % 8);
        out.extend([1, kind, 0, 1, (length >> 8) as u8, length as u8, padding as u8, 0]);
        out.extend_from_slice(piece);
        out.extend(std::iter::repeat_n(0, padding));
    }
}

pub(super) fn serve_fastcgi(incoming: &mut Incoming, _: &Findings) -> Result<Option<Reset>, Stop> {
    loop {
        let Some((plan, is_kept)) = read_fastcgi(incoming)? else { return Ok(None) };
        match perform(&plan, &FastCgi, incoming)? {
            After::Keep if is_kept => {}
            // A connection that the server wants to keep is the server's to close, however the content is framed. A process
            // of a pool may end behind any answer, and not at once.
            After::Close if is_kept && matches!(plan.ending, Ending::Complete) => {
                if incoming.is_process {
                    rest(LAST);
                    return Ok(None);
                }
            }
            After::Keep | After::Close => return Ok(None),
            After::Reset => return Ok(Some(Reset)),
        }
    }
}

/// One request, and whether the connection shall stay; nothing when it was given up while it was sent.
fn read_fastcgi(incoming: &mut Incoming) -> Result<Option<(AnswerPlan, bool)>, Stop> {
    let (mut params, mut is_kept) = (Vec::new(), None);
    let mut plan: Option<(AnswerPlan, Upload)> = None;
    loop {
        let head = incoming.take(8)?;
        let length = usize::from(head[4]) << 8 | usize::from(head[5]);
        let content = incoming.take(length)?;
        incoming.take(usize::from(head[6]))?;
        match (head[1], &mut plan) {
            _ if head[0] != 1 => return Err(Stop::Fault(format!("a record of version {}", head[0]))),
            // One for a request that has ended already is late, and means nothing.
            (ABORT, None) if is_kept.is_none() => {}
            (ABORT, _) => return Ok(None),
            (BEGIN, None) if length == 8 && is_kept.is_none() => is_kept = Some(content[2] & 1 == 1),
            (PARAMS, None) if length > 0 => params.extend_from_slice(&content),
            (PARAMS, None) => {
                let query = variable(&params, "QUERY_STRING")?;
                let parsed = AnswerPlan::parse(&query).map_err(Stop::Fault)?;
                let upload = Upload::of(&parsed);
                plan = Some((parsed, upload));
            }
            (STDIN, Some((_, upload))) if length > 0 => upload.take(&content)?,
            (STDIN, Some((_, upload))) => {
                upload.end()?;
                let (plan, _) = plan.take().expect("invariant: looked at just now");
                return Ok(Some((plan, is_kept == Some(true))));
            }
            (kind, _) => {
                return Err(Stop::Fault(format!("a record of type {kind}, {length} bytes, out of place")));
            }
        }
    }
}

fn variable(mut rest: &[u8], name: &str) -> Result<String, Stop> {
    fn length(rest: &mut &[u8]) -> Option<usize> {
        let (first, more) = rest.split_first()?;
        if *first < 128 {
            *rest = more;
            return Some(usize::from(*first));
        }
        let (four, more) = rest.split_at_checked(4)?;
        *rest = more;
        Some(four.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff)
    }
    let mut pair = || -> Option<(&[u8], &[u8])> {
        let (of_name, of_value) = (length(&mut rest)?, length(&mut rest)?);
        let (name, more) = rest.split_at_checked(of_name)?;
        let (value, more) = more.split_at_checked(of_value)?;
        rest = more;
        Some((name, value))
    };
    while let Some((found, value)) = pair() {
        if found == name.as_bytes() {
            return Ok(String::from_utf8_lossy(value).into_owned());
        }
    }
    Err(Stop::Fault(format!("no variable {name}")))
}

struct Scgi;

impl Encode for Scgi {
    fn head(&self, plan: &AnswerPlan, out: &mut Vec<u8>) {
        out.extend_from_slice(cgi_head(plan).as_bytes());
    }

    fn data(&self, _: &AnswerPlan, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(data);
    }

    fn end(&self, _: &AnswerPlan, _: &mut Vec<u8>) {}

    fn garbage(&self) -> &'static [u8] {
        b"Status: two hundred\r\n: nothing\r\n\r\n"
    }
}

/// SCGI has one request to a connection.
pub(super) fn serve_scgi(incoming: &mut Incoming, _: &Findings) -> Result<Option<Reset>, Stop> {
    let mut length = 0usize;
    loop {
        match incoming.take(1)?[0] {
            b':' => break,
            digit if digit.is_ascii_digit() && length < 1 << 24 => {
                length = length * 10 + usize::from(digit - b'0')
            }
            other => return Err(Stop::Fault(format!("byte {other:#x} in the length of the variables"))),
        }
    }
    let variables = incoming.take(length)?;
    if incoming.take(1)? != b"," {
        return Err(Stop::Fault("no comma behind the variables".to_owned()));
    }
    let words: Vec<&[u8]> = variables.split(|byte| *byte == 0).collect();
    let value = |name: &str| {
        let pair = words.chunks_exact(2).find(|pair| pair[0] == name.as_bytes());
        pair.map(|pair| String::from_utf8_lossy(pair[1]).into_owned())
            .ok_or_else(|| Stop::Fault(format!("no variable {name}")))
    };
    let plan = AnswerPlan::parse(&value("QUERY_STRING")?).map_err(Stop::Fault)?;
    let length = value("CONTENT_LENGTH")?.parse();
    let length = length.map_err(|_| Stop::Fault("CONTENT_LENGTH is no number".to_owned()))?;
    let mut upload = Upload::of(&plan);
    upload.take_all(incoming, length)?;
    upload.end()?;
    match perform(&plan, &Scgi, incoming)? {
        After::Reset => Ok(Some(Reset)),
        After::Keep | After::Close => Ok(None),
    }
}
