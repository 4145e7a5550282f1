//! What an application answers, as the server reads it (FastCGI 1.0 sections 4 and 5).

use super::ProtocolStatus;
use super::record::{FastCgiError, HEADER, Piece, RecordType, Records};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit code that a CGI program would have had.
    pub application_status: u32,
    /// What the protocol says of it.
    pub status: ProtocolStatus,
}

/// What one step over the bytes has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'i> {
    /// Only framing.
    Nothing,
    /// The next bytes of the answer, never empty.
    Stdout(&'i [u8]),
    /// The next bytes of the complaints, never empty.
    Stderr(&'i [u8]),
    /// The request has ended. The connection can be used again once [`ResponseDecoder::is_complete`].
    End(EndRequest),
    /// Bytes of the answer to GET_VALUES; see [`Pairs`](super::Pairs).
    Values(&'i [u8]),
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'i> {
    /// Bytes used. Never 0 unless the input is empty or the answer complete.
    pub consumed: usize,
    /// What they are. The data of an event is the tail of what was used.
    pub event: Event<'i>,
}

/// Reads the answer to one request.
#[derive(Debug, Clone)]
pub struct ResponseDecoder {
    id: u16,
    records: Records,
    end: [u8; 8],
    /// Bytes of `end` that are there.
    end_len: u8,
    has_ended: bool,
}

impl ResponseDecoder {
    /// For the request of this number.
    pub const fn new(id: u16) -> ResponseDecoder {
        ResponseDecoder { id, records: Records::new(), end: [0; 8], end_len: 0, has_ended: false }
    }

    /// Whether END_REQUEST was read with its padding: what follows belongs to another request.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.has_ended && self.records.is_between()
    }

    /// Whether END_REQUEST was read.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes framing and the next data. Call it again with what it left; after an error never again.
    ///
    /// # Errors
    /// A record has a version, type, length or request number that cannot come here.
    #[inline]
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<Step<'i>, FastCgiError> {
        if self.is_complete() {
            return Ok(Step { consumed: 0, event: Event::Nothing });
        }
        if let Some((record, data)) = self.records.whole(input)? {
            self.check(record.kind, record.id, record.content)?;
            return Ok(Step { consumed: HEADER + data.len(), event: self.event(record.kind, data) });
        }
        let (consumed, piece) = self.records.step(input)?;
        let event = match piece {
            Piece::Nothing => Event::Nothing,
            Piece::Begin(record) => {
                self.check(record.kind, record.id, record.content)?;
                Event::Nothing
            }
            Piece::Content(record, data) => self.event(record.kind, data),
        };
        Ok(Step { consumed, event })
    }

    #[inline]
    fn event<'i>(&mut self, kind: RecordType, data: &'i [u8]) -> Event<'i> {
        match kind {
            RecordType::Stdout => Event::Stdout(data),
            RecordType::Stderr => Event::Stderr(data),
            RecordType::GetValuesResult => Event::Values(data),
            RecordType::EndRequest => self.take_end(data),
            _ => Event::Nothing,
        }
    }

    fn check(&self, kind: RecordType, id: u16, content: u16) -> Result<(), FastCgiError> {
        match kind {
            RecordType::GetValuesResult | RecordType::UnknownType if id == 0 => Ok(()),
            RecordType::Stdout | RecordType::Stderr | RecordType::EndRequest
                if id != self.id || self.has_ended =>
            {
                Err(FastCgiError::UnexpectedRequest(id))
            }
            RecordType::EndRequest if content != 8 => Err(FastCgiError::Length(kind as u8)),
            RecordType::Stdout | RecordType::Stderr | RecordType::EndRequest => Ok(()),
            _ => Err(FastCgiError::UnexpectedType(kind as u8)),
        }
    }

    fn take_end<'i>(&mut self, data: &[u8]) -> Event<'i> {
        match data.try_into() {
            Ok(whole) => self.end = whole,
            Err(_) => {
                for (slot, byte) in self.end.iter_mut().skip(usize::from(self.end_len)).zip(data) {
                    *slot = *byte;
                    self.end_len += 1;
                }
            }
        }
        if !self.records.is_content_complete() {
            return Event::Nothing;
        }
        self.has_ended = true;
        let [a, b, c, d, status, ..] = self.end;
        Event::End(EndRequest {
            application_status: u32::from_be_bytes([a, b, c, d]),
            status: ProtocolStatus::of(status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastcgi::{append_stderr, append_stdout, append_values, end_request};
    use crate::fuzzing::{FastCgiSeen, fastcgi_response};
    use proptest::prelude::*;

    fn answer() -> Vec<u8> {
        let mut out = Vec::new();
        append_values(&mut out, &[(b"FCGI_MPXS_CONNS", b"0")]);
        append_stdout(&mut out, 1, b"Status: 200 OK\r\n");
        append_stderr(&mut out, 1, b"PHP Warning:  x");
        append_stdout(&mut out, 1, b"\r\nhello");
        append_stdout(&mut out, 1, b"");
        end_request(&mut out, 1, 3, ProtocolStatus::RequestComplete);
        out
    }

    #[test]
    fn an_answer_in_one_piece() {
        let end = EndRequest { application_status: 3, status: ProtocolStatus::RequestComplete };
        let expected = FastCgiSeen {
            stdout: b"Status: 200 OK\r\n\r\nhello".to_vec(),
            stderr: b"PHP Warning:  x".to_vec(),
            end: Some(end),
            refused: None,
            left: b"rest".len(),
        };
        let bytes = [answer(), b"rest".to_vec()].concat();
        assert_eq!(fastcgi_response(&[&bytes]), expected);
    }

    #[test]
    fn what_is_refused() {
        let stdout = |id: u16| {
            let mut out = Vec::new();
            append_stdout(&mut out, id, b"x");
            out
        };
        let cases: [(&str, Vec<u8>, FastCgiError); 8] = [
            ("HTTP", b"HTTP/1.1 200 OK".to_vec(), FastCgiError::Version(b'H')),
            ("version 0", vec![0], FastCgiError::Version(0)),
            ("another request", stdout(2), FastCgiError::UnexpectedRequest(2)),
            ("type 12", vec![1, 12, 0, 1, 0, 0, 0, 0], FastCgiError::UnexpectedType(12)),
            ("type 0", vec![1, 0, 0, 1, 0, 0, 0, 0], FastCgiError::UnexpectedType(0)),
            ("params", vec![1, 4, 0, 1, 0, 0, 0, 0], FastCgiError::UnexpectedType(4)),
            ("short end", vec![1, 3, 0, 1, 0, 4, 0, 0], FastCgiError::Length(3)),
            ("values of a request", vec![1, 10, 0, 1, 0, 0, 0, 0], FastCgiError::UnexpectedType(10)),
        ];
        for (name, bytes, error) in cases {
            assert_eq!(fastcgi_response(&[&bytes]).refused, Some(error.to_string()), "{name}");
        }
    }

    #[test]
    fn the_padding_of_the_end_is_waited_for() {
        let mut bytes = vec![1, 3, 0, 1, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut decoder = ResponseDecoder::new(1);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            rest = &rest[decoder.decode(rest).unwrap().consumed..];
        }
        assert!(decoder.has_ended() && !decoder.is_complete());
        bytes.clear();
        assert_eq!(decoder.decode(&[0, 0, 0, 9]).unwrap().consumed, 3);
        assert!(decoder.is_complete());
    }

    proptest! {
        #[test]
        fn any_split(cuts in proptest::collection::vec(0usize..200, 0..6)) {
            let bytes = answer();
            let whole = fastcgi_response(&[&bytes]);
            prop_assert_eq!(fastcgi_response(&crate::fuzzing::cut(&bytes, &cuts)), whole);
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = 1;
            }
            let whole = fastcgi_response(&[&bytes]);
            prop_assert_eq!(fastcgi_response(&crate::fuzzing::cut(&bytes, &[at])), whole);
        }
    }
}
