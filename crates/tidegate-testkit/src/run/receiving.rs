//! What comes back: responses and what must be true of them, bytes, the end of a connection.

use super::{Failure, Participant, Player};
use crate::backend::{read_fastcgi, read_scgi};
use crate::client::{Filled, WAIT};
use crate::fixture::counting;
use crate::h2;
use crate::pattern::contains;
use crate::response::{Response, read, read_request, show};
use crate::step::{BodyCheck, Check, Ending, Expected, Http2Step, Message};
use crate::token::{substitute, substitute_text};
use sha2::{Digest, Sha256};
use std::time::Instant;

impl Player<'_> {
    pub(super) fn response(&mut self, expected: &Expected) -> Result<(), Failure> {
        let until = Instant::now() + WAIT;
        let read = match &expected.message {
            Message::Response => match self.participant() {
                Ok(Participant { connection: Some(client), http2: Some(http2), .. }) => {
                    http2.response(client, until)
                }
                _ => read(self.connection()?, expected.has_body, until),
            },
            Message::Request(_) => read_request(self.connection()?, until),
            Message::FastCgi(_) => read_fastcgi(self.connection()?, until),
            Message::Scgi => read_scgi(self.connection()?, until),
        };
        let response = read.map_err(|problem| format!("expected a message, received:\n{problem}"))?;
        match &expected.message {
            Message::Request(line) if !line.filled(&self.variables)?.matches(response.reason.as_bytes()) => {
                return Err(format!("another request was received:\n{}", response.describe()).into());
            }
            Message::FastCgi(Some(flag)) if *flag != response.reason => {
                return Err(format!("the connection shall {}, not {flag}", response.reason).into());
            }
            _ => {}
        }
        let is_response = expected.message == Message::Response;
        let is_version = expected.version.as_ref().is_none_or(|version| *version == response.version);
        let is_reason =
            expected.reason.as_ref().is_none_or(|reason| reason.matches(response.reason.as_bytes()));
        if is_response && (!is_version || !is_reason || !expected.statuses.contains(&response.status)) {
            return Err(format!("another status was received:\n{}", response.describe()).into());
        }
        for (source, check) in &expected.checks {
            if let Err(message) = self.check(check, &response) {
                let message = format!("{message}\nreceived:\n{}", response.describe());
                return Err(Failure { source: Some(source.clone()), message });
            }
        }
        self.participant()?.last = Some(response);
        Ok(())
    }

    /// What a client of HTTP/2 does, or waits for.
    pub(super) fn http2(&mut self, step: &Http2Step) -> Result<(), String> {
        let variables = self.variables.clone();
        let participant = self.participant()?;
        let client = participant.connection.as_mut().ok_or("the client is not connected: `connect` first")?;
        let http2 = participant.http2.as_mut().ok_or("the client speaks HTTP/1")?;
        let deadline = Instant::now() + WAIT;
        let is_same = |expected: &String, found: String| match *expected == found {
            true => Ok(()),
            false => Err(format!("the code was {found}")),
        };
        match step {
            Http2Step::Ask { lines, is_open } => {
                let mut bytes = Vec::new();
                for line in lines {
                    bytes.extend(http2.ask(&substitute_text(line, &variables)?, !is_open)?);
                }
                client.send(&bytes)
            }
            Http2Step::Content { bytes, is_end } => {
                let bytes = http2.content(&substitute(bytes, &variables)?, *is_end);
                client.send(&bytes)
            }
            Http2Step::Upload(length) => http2.upload(client, &counting(*length), deadline),
            Http2Step::Fill => http2.fill(client, deadline),
            Http2Step::Frame { kind, flags, stream, payload, times } => {
                let mut bytes = Vec::new();
                h2::push_frame(&mut bytes, *kind, *flags, *stream, payload);
                client.send(&bytes.repeat(usize::try_from(*times).unwrap_or(0)))
            }
            Http2Step::Reset(code) => is_same(code, http2.reset(client, deadline)?),
            Http2Step::Goodbye { code, after } => {
                let goodbye = http2.goodbye(client, deadline)?;
                match after {
                    Some(id) if *id != goodbye.last => Err(format!("the last stream is {}", goodbye.last)),
                    _ => is_same(code, goodbye.code),
                }
            }
        }
    }

    fn check(&self, check: &Check, response: &Response) -> Result<(), String> {
        match check {
            Check::Field { name, value } => {
                let value = value.filled(&self.variables)?;
                match response.values(name).any(|received| value.matches(received.as_bytes())) {
                    true => Ok(()),
                    false => Err(format!("no field line `{name}` with this value")),
                }
            }
            Check::NoField { name, value } => {
                let value = value.as_ref().map(|value| value.filled(&self.variables)).transpose()?;
                let is_excluded =
                    |received: &str| value.as_ref().is_none_or(|value| value.matches(received.as_bytes()));
                match response.values(name).any(is_excluded) {
                    true => Err(format!("field `{name}` is there")),
                    false => Ok(()),
                }
            }
            Check::Trailer { name, value } => {
                let mut trailers = response.trailers.iter();
                match trailers
                    .any(|(of, received)| of.eq_ignore_ascii_case(name) && value.matches(received.as_bytes()))
                {
                    true => Ok(()),
                    false => Err(format!("no such trailer field; trailers: {:?}", response.trailers)),
                }
            }
            Check::Body(check) => self.check_body(check, &response.body),
        }
    }

    fn check_body(&self, check: &BodyCheck, body: &[u8]) -> Result<(), String> {
        let fill = |text: &[u8]| substitute(text, &self.variables);
        let holds = match check {
            BodyCheck::Exact(expected) => fill(expected)? == body,
            BodyCheck::Starts(expected) => body.starts_with(&fill(expected)?),
            BodyCheck::Ends(expected) => body.ends_with(&fill(expected)?),
            BodyCheck::Contains(expected) => contains(body, &fill(expected)?),
            BodyCheck::Lacks(expected) => !contains(body, &fill(expected)?),
            BodyCheck::Length(length) => u64::try_from(body.len()) == Ok(*length),
            BodyCheck::Sha256(expected) => {
                let digest = Sha256::digest(body);
                let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                if digest != *expected {
                    return Err(format!("the digest is {digest}"));
                }
                true
            }
            BodyCheck::File { path, range } => {
                let path = self.folder.join(path)?;
                let file = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let expected = match range {
                    Some((start, end)) => file.get(*start..*end).ok_or("the file has no such range")?,
                    None => &file,
                };
                if expected != body {
                    let same = expected.iter().zip(body).take_while(|(a, b)| a == b).count();
                    let lengths = (expected.len(), body.len());
                    return Err(format!(
                        "expected {} bytes, received {}, the first {same} agree",
                        lengths.0, lengths.1
                    ));
                }
                true
            }
        };
        if holds { Ok(()) } else { Err(format!("the body of {} bytes is another", body.len())) }
    }

    pub(super) fn take(&mut self, count: u64) -> Result<(), String> {
        let (mut left, until) = (usize::try_from(count).unwrap_or(usize::MAX), Instant::now() + WAIT);
        let client = self.connection()?;
        loop {
            let taken = left.min(client.received.len());
            client.received.drain(..taken);
            left -= taken;
            if left == 0 {
                return Ok(());
            }
            let filled = client.fill(until)?;
            if filled != Filled::More {
                return Err(format!("{filled:?} {left} bytes before the end"));
            }
        }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), String> {
        let expected = substitute(bytes, &self.variables)?;
        let client = self.connection()?;
        let deadline = Instant::now() + WAIT;
        while client.received.len() < expected.len() {
            let filled = client.fill(deadline)?;
            if filled != Filled::More {
                return Err(format!("{filled:?} after {}", show(&client.received)));
            }
        }
        if !client.received.starts_with(&expected) {
            return Err(format!("received {}", show(&client.received)));
        }
        client.received.drain(..expected.len());
        Ok(())
    }

    pub(super) fn ending(&mut self, ending: Ending) -> Result<(), String> {
        let client = self.connection()?;
        if ending == Ending::Quiet {
            let filled = client.fill_now()?;
            return match (client.received.is_empty(), filled) {
                (true, Filled::TimedOut) => Ok(()),
                _ => Err(format!("expected nothing, received {} ({filled:?})", show(&client.received))),
            };
        }
        let deadline = Instant::now() + WAIT;
        let ended = loop {
            if ending == Ending::Drained {
                client.received.clear();
            } else if !client.received.is_empty() {
                return Err(format!(
                    "expected the end of the connection, received {}",
                    show(&client.received)
                ));
            }
            match client.fill(deadline)? {
                Filled::More => {}
                ended => break ended,
            }
        };
        match (ending, ended) {
            (Ending::Eof, Filled::Eof) | (Ending::Reset, Filled::Reset) => Ok(()),
            (Ending::Closed | Ending::Drained, Filled::Eof | Filled::Reset) => Ok(()),
            (_, Filled::TimedOut) => Err(format!("the connection is still open after {WAIT:?}")),
            _ => Err(format!("the connection ended with {ended:?}")),
        }
    }
}
