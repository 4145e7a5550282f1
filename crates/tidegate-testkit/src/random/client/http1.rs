//! A client of HTTP/1.1: pipelines, reads at its own pace, leaves when it likes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Client, PATIENCE, limit_of};
use crate::random::answer::{AnswerCheck, Broken, End};
use crate::random::content;
use crate::random::findings::Invariant;
use crate::random::pause::rest;
use crate::random::session::{Batch, ClientBehaviour, Request};
use crate::random::socket::{Got, Socket};

const HEAD_MAX: usize = 64 << 10;

/// An open connection.
struct Connection {
    socket: Socket,
    buffer: Vec<u8>,
    /// Answers so far.
    answers: u64,
    last_used: Instant,
    /// Bytes of the answers to the batch, and when it was sent.
    read: u64,
    began: Instant,
    /// Has read nothing for as long as its conduct says, which is once in a batch.
    has_paused: bool,
}

/// Why no answer came.
enum NoAnswer {
    /// The connection ended.
    Ended(&'static str),
    /// The client was to leave here.
    Left,
    Broken(Broken),
}

impl From<Broken> for NoAnswer {
    fn from(broken: Broken) -> NoAnswer {
        NoAnswer::Broken(broken)
    }
}

/// How far an answer got, and whether the connection goes on behind it.
enum Outcome {
    KeptAlive,
    Closed,
}

pub(super) fn play(client: &mut Client<'_>) -> Result<(), Broken> {
    let mut connection = None;
    let session = client.session;
    for batch in &session.batches {
        if client.is_over() {
            break;
        }
        connection = play_batch(client, connection, batch)?;
        client.rest(batch.gap);
    }
    Ok(())
}

/// Plays one batch; the connection where it stays.
fn play_batch(
    client: &mut Client<'_>,
    kept: Option<Connection>,
    batch: &Batch,
) -> Result<Option<Connection>, Broken> {
    let mut kept = kept;
    // A connection that was closed while it was idle is no failure, once.
    for attempt in 0..2 {
        let is_reused = kept.is_some();
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match client.connect()? {
                Some(socket) => Connection {
                    socket,
                    buffer: Vec::new(),
                    answers: 0,
                    last_used: Instant::now(),
                    read: 0,
                    began: Instant::now(),
                    has_paused: false,
                },
                None => return Ok(None),
            },
        };
        (connection.read, connection.began, connection.has_paused) = (0, Instant::now(), false);
        let idle = connection.last_used.elapsed();
        match exchange(client, connection, batch)? {
            Ended::Done(connection) => return Ok(connection),
            Ended::BeforeAny if is_reused && attempt == 0 => {
                client.note(format!("closed by the server after {idle:?} of silence; once more"));
            }
            Ended::BeforeAny => return Ok(None),
        }
    }
    Ok(None)
}

enum Ended {
    Done(Option<Connection>),
    /// It was closed before any byte of an answer, and had served before.
    BeforeAny,
}

fn exchange(client: &mut Client<'_>, mut connection: Connection, batch: &Batch) -> Result<Ended, Broken> {
    let had_served = connection.answers > 0;
    let mut bytes = Vec::new();
    for request in &batch.requests {
        encode(request, &mut bytes);
        client.note(format!("> {} {} ({:?})", request.method, request.target, batch.conduct));
    }
    batch.requests.iter().for_each(|request| client.asks(request));
    if let ClientBehaviour::Unfinished { is_reset } = batch.conduct {
        // Not in the last request only: what was complete before it is under way.
        let end = bytes.len() * 2 / 3;
        let _ = connection.socket.write(&bytes[..end]);
        if is_reset {
            connection.socket.reset();
        }
        return Ok(Ended::Done(None));
    }
    // What cannot be sent was refused; the answer, or its absence, says it.
    let sent = connection.socket.write(&bytes);
    if let Err(error) = &sent {
        client.note(format!("cannot send: {error}"));
    }
    match batch.conduct {
        ClientBehaviour::NeverRead { time } => {
            client.rest(time);
            return Ok(Ended::Done(None));
        }
        ClientBehaviour::HalfClose => {
            let _ = connection.socket.finish_sending();
        }
        _ => {}
    }
    for (number, request) in batch.requests.iter().enumerate() {
        let is_slow = matches!(batch.conduct, ClientBehaviour::Slow { .. } | ClientBehaviour::Pause { .. });
        let mut excuse = client.excuse(batch);
        if connection.answers > 0
            && number == 0
            && client.shared.keep_alive < connection.last_used.elapsed() * 2
        {
            excuse = crate::random::answer::Excuse::Client; // it may be closed at this very moment
        }
        let mut check = AnswerCheck::new(request, excuse, is_slow);
        match read_answer(client, &mut connection, batch, request, &mut check) {
            Ok(outcome) => {
                client.shared.tally.answers.fetch_add(1, Relaxed);
                connection.answers += 1;
                connection.last_used = Instant::now();
                if matches!(outcome, Outcome::Closed) {
                    // What was pipelined behind it is not answered, and the server has said so.
                    return Ok(Ended::Done(None));
                }
            }
            Err(NoAnswer::Ended(_))
                if number == 0 && had_served && check.received() == 0 && connection.read == 0 =>
            {
                return Ok(Ended::BeforeAny);
            }
            Err(NoAnswer::Ended(how)) => {
                client.note(format!("{how} behind {} bytes of content", check.received()));
                // A client that has not been told may be told by the next attempt.
                check.end(End::Cut(how))?;
                return Ok(Ended::Done(None));
            }
            Err(NoAnswer::Left) => {
                if let ClientBehaviour::Abort { is_reset: true, .. } = batch.conduct {
                    connection.socket.reset();
                }
                return Ok(Ended::Done(None));
            }
            Err(NoAnswer::Broken(broken)) => return Err(broken),
        }
    }
    if batch.conduct == ClientBehaviour::HalfClose {
        return Ok(Ended::Done(None));
    }
    Ok(Ended::Done(Some(connection)))
}

fn encode(request: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, request.host).as_bytes(),
    );
    for (name, value) in &request.fields {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        if name == "TE" {
            out.extend_from_slice(b"Connection: TE\r\n");
        }
    }
    let Some((nonce, length)) = request.upload else {
        out.extend_from_slice(b"\r\n");
        return;
    };
    let content = content::content(nonce, length);
    if request.is_chunked {
        let announced = if request.trailer.is_some() { "Trailer: X-End\r\n" } else { "" };
        out.extend_from_slice(format!("{announced}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
        for piece in content.chunks(5000) {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        let trailer = request.trailer.map(|nonce| format!("X-End: {:x}\r\n", nonce.0)).unwrap_or_default();
        out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    } else {
        out.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
        out.extend_from_slice(&content);
    }
}

fn read_answer(
    client: &mut Client<'_>,
    connection: &mut Connection,
    batch: &Batch,
    request: &Request,
    check: &mut AnswerCheck,
) -> Result<Outcome, NoAnswer> {
    let (status, fields) = loop {
        let (status, fields) = read_head(client, connection, batch)?;
        if status >= 200 {
            break (status, fields);
        }
    };
    client.note(format!("< {status} {}", summary(&fields)));
    client.hears(limit_of(request), status)?;
    check.head(status, &fields)?;
    let field = |name: &str| {
        fields.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let outcome = if closes { Outcome::Closed } else { Outcome::KeptAlive };
    if request.method == "HEAD" || status == 204 || status == 304 {
        check.end(End::Complete)?;
        return Ok(outcome);
    }
    if field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let line = read_line(client, connection, batch)?;
            let size = line.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size.trim(), 16)
                .map_err(|_| (Invariant::Answer, format!("the chunk line {line:?}")))?;
            if size == 0 {
                check.trailers(&read_fields(client, connection, batch)?)?;
                break;
            }
            read_content(client, connection, batch, check, Some(size))?;
            let end = read_line(client, connection, batch)?;
            if !end.is_empty() {
                return Err((Invariant::Answer, format!("{end:?} behind a chunk")).into());
            }
        }
    } else if let Some(length) = field("content-length") {
        let length: u64 =
            length.parse().map_err(|_| (Invariant::Answer, format!("Content-Length: {length}")))?;
        read_content(client, connection, batch, check, Some(length))?;
    } else {
        match read_content(client, connection, batch, check, None) {
            Err(NoAnswer::Ended("closed")) => {}
            Err(other) => return Err(other),
            Ok(()) => {}
        }
        check.end(End::Complete)?;
        return Ok(Outcome::Closed);
    }
    check.end(End::Complete)?;
    client.shared.tally.bytes.fetch_add(check.received(), Relaxed);
    Ok(outcome)
}

fn summary(fields: &[(String, String)]) -> String {
    let shown = ["content-length", "transfer-encoding", "connection", "x-nonce", "location"];
    let shown = fields.iter().filter(|(name, _)| shown.contains(&name.to_ascii_lowercase().as_str()));
    shown.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

fn read_head(
    client: &mut Client<'_>,
    connection: &mut Connection,
    batch: &Batch,
) -> Result<(u16, Vec<(String, String)>), NoAnswer> {
    let mut lines = Vec::new();
    let mut length = 0;
    loop {
        let line = read_line(client, connection, batch)?;
        length += line.len();
        if length > HEAD_MAX {
            return Err((Invariant::Answer, "an answer whose head has no end".to_owned()).into());
        }
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let bad =
        |line: &str| -> NoAnswer { (Invariant::Answer, format!("{line:?} in the head of an answer")).into() };
    let start = lines.first().ok_or_else(|| bad(""))?;
    let status =
        start.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|digits| digits.parse().ok());
    let status = status.ok_or_else(|| bad(start))?;
    Ok((status, split_fields(&lines[1..])?))
}

/// The fields behind content.
fn read_fields(
    client: &mut Client<'_>,
    connection: &mut Connection,
    batch: &Batch,
) -> Result<Vec<(String, String)>, NoAnswer> {
    let mut lines = Vec::new();
    loop {
        let line = read_line(client, connection, batch)?;
        if line.is_empty() || lines.len() > 100 {
            return split_fields(&lines);
        }
        lines.push(line);
    }
}

fn split_fields(lines: &[String]) -> Result<Vec<(String, String)>, NoAnswer> {
    let split = |line: &String| {
        let pair = line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        pair.ok_or_else(|| (Invariant::Answer, format!("{line:?} among fields")).into())
    };
    lines.iter().map(split).collect()
}

fn read_line(
    client: &mut Client<'_>,
    connection: &mut Connection,
    batch: &Batch,
) -> Result<String, NoAnswer> {
    let mut looked_at = 0;
    loop {
        if let Some(at) = connection.buffer[looked_at..].windows(2).position(|bytes| bytes == b"\r\n") {
            let line: Vec<u8> = connection.buffer.drain(..looked_at + at + 2).collect();
            return Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned());
        }
        if connection.buffer.len() > HEAD_MAX {
            let shown = String::from_utf8_lossy(&connection.buffer[..80]).into_owned();
            return Err((Invariant::Answer, format!("no line end in {shown:?}...")).into());
        }
        looked_at = connection.buffer.len().saturating_sub(1);
        fill(client, connection, batch)?;
    }
}

fn read_content(
    client: &mut Client<'_>,
    connection: &mut Connection,
    batch: &Batch,
    check: &mut AnswerCheck,
    length: Option<u64>,
) -> Result<(), NoAnswer> {
    let mut left = length.unwrap_or(u64::MAX);
    while left > 0 {
        if connection.buffer.is_empty() {
            fill(client, connection, batch)?;
        }
        let count = left.min(connection.buffer.len() as u64);
        check.data(&connection.buffer[..count as usize])?;
        connection.buffer.drain(..count as usize);
        left -= count;
    }
    Ok(())
}

/// Reads more, at the pace of the conduct.
fn fill(client: &mut Client<'_>, connection: &mut Connection, batch: &Batch) -> Result<(), NoAnswer> {
    let mut piece = [0; 65_536];
    let most = match batch.conduct {
        ClientBehaviour::Slow { time, .. } if connection.began.elapsed() > time => {
            return Err(NoAnswer::Left);
        }
        ClientBehaviour::Slow { bytes, pause, .. } => {
            rest(pause);
            bytes.min(piece.len())
        }
        ClientBehaviour::Pause { after, time } if connection.read >= after && !connection.has_paused => {
            connection.has_paused = true;
            client.note(format!("reads nothing for {time:?}"));
            client.rest(time);
            piece.len()
        }
        ClientBehaviour::Abort { after, .. } if connection.read >= after => return Err(NoAnswer::Left),
        _ => piece.len(),
    };
    let is_paced = matches!(batch.conduct, ClientBehaviour::Slow { .. });
    let socket = &mut connection.socket;
    let piece = &mut piece[..most];
    let got = if is_paced { socket.read_full(piece, PATIENCE) } else { socket.read(piece, PATIENCE) };
    match got {
        Got::Bytes(count) => {
            connection.read += count as u64;
            connection.buffer.extend_from_slice(&piece[..count]);
            if client.is_over() { Err(NoAnswer::Left) } else { Ok(()) }
        }
        Got::End => Err(NoAnswer::Ended("closed")),
        Got::Reset => Err(NoAnswer::Ended("reset")),
        Got::Nothing if client.is_over() => Err(NoAnswer::Left),
        Got::Nothing => {
            Err((Invariant::Service, format!("nothing for {PATIENCE:?} when an answer was due")).into())
        }
    }
}
