//! Requests as an application reads them (FastCGI 1.0 sections 4 and 5): for scripted applications in tests
//! and benches. One request at a time.

use super::Role;
use super::record::{FastCgiError, Piece, RecordType, Records};

/// The most bytes of variables that a request may have.
const MOST_PARAMS: usize = 1 << 20;

/// What one step over the bytes has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEvent<'i> {
    /// Only framing.
    Nothing,
    /// A request has begun.
    Begin {
        /// Its number.
        id: u16,
        /// What is asked for.
        role: Role,
        /// Whether the connection shall stay open.
        keeps_connection: bool,
    },
    /// All variables are there: [`RequestDecoder::params`].
    Params,
    /// The next bytes of the content, never empty.
    Stdin(&'i [u8]),
    /// The content is complete, and the request with it.
    StdinEnd,
    /// The client has gone.
    Abort,
    /// It is asked what the application can do.
    GetValues,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestStep<'i> {
    /// Bytes used. Never 0 unless the input is empty.
    pub consumed: usize,
    /// What they are.
    pub event: RequestEvent<'i>,
}

/// Reads the requests of one connection.
#[derive(Debug, Clone)]
pub struct RequestDecoder {
    records: Records,
    id: Option<u16>,
    begin: [u8; 8],
    begin_len: u8,
    params: Vec<u8>,
}

impl Default for RequestDecoder {
    fn default() -> Self {
        RequestDecoder { records: Records::new(), id: None, begin: [0; 8], begin_len: 0, params: Vec::new() }
    }
}

impl RequestDecoder {
    /// The variables of the present request, joined; see [`Pairs`](super::Pairs).
    pub fn params(&self) -> &[u8] {
        &self.params
    }

    /// Takes framing and the next data. Call it again with what it left; after an error never again.
    ///
    /// # Errors
    /// A record has a version, type, length or request number that cannot come here, or the variables are
    /// malformed or too large.
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<RequestStep<'i>, FastCgiError> {
        let (consumed, piece) = self.records.step(input)?;
        let event = match piece {
            Piece::Nothing => RequestEvent::Nothing,
            Piece::Begin(record) => self.begin(record.kind, record.id, record.content)?,
            Piece::Content(record, data) => match record.kind {
                RecordType::BeginRequest => self.take_begin(record.id, data),
                RecordType::Params => {
                    if self.params.len().saturating_add(data.len()) > MOST_PARAMS {
                        return Err(FastCgiError::TooLarge);
                    }
                    self.params.extend_from_slice(data);
                    RequestEvent::Nothing
                }
                RecordType::Stdin => RequestEvent::Stdin(data),
                _ => RequestEvent::Nothing,
            },
        };
        Ok(RequestStep { consumed, event })
    }

    fn begin<'i>(
        &mut self,
        kind: RecordType,
        id: u16,
        content: u16,
    ) -> Result<RequestEvent<'i>, FastCgiError> {
        match kind {
            RecordType::GetValues if id == 0 => return Ok(RequestEvent::GetValues),
            RecordType::BeginRequest if content != 8 => return Err(FastCgiError::Length(kind as u8)),
            RecordType::BeginRequest if self.id.is_some() => return Err(FastCgiError::UnexpectedRequest(id)),
            RecordType::BeginRequest => {
                self.begin_len = 0;
                self.params.clear();
                return Ok(RequestEvent::Nothing);
            }
            RecordType::Params | RecordType::Stdin | RecordType::AbortRequest if self.id == Some(id) => {}
            RecordType::Params | RecordType::Stdin | RecordType::AbortRequest => {
                return Err(FastCgiError::UnexpectedRequest(id));
            }
            _ => return Err(FastCgiError::UnexpectedType(kind as u8)),
        }
        Ok(match (kind, content) {
            (RecordType::Params, 0) => {
                super::Pairs::new(&self.params).find_map(Result::err).map_or(Ok(()), Err)?;
                RequestEvent::Params
            }
            (RecordType::Stdin, 0) => {
                self.id = None;
                RequestEvent::StdinEnd
            }
            (RecordType::AbortRequest, _) => {
                self.id = None;
                RequestEvent::Abort
            }
            _ => RequestEvent::Nothing,
        })
    }

    fn take_begin<'i>(&mut self, id: u16, data: &[u8]) -> RequestEvent<'i> {
        for (slot, byte) in self.begin.iter_mut().skip(usize::from(self.begin_len)).zip(data) {
            *slot = *byte;
            self.begin_len += 1;
        }
        if !self.records.is_content_complete() {
            return RequestEvent::Nothing;
        }
        self.id = Some(id);
        let [high, low, flags, ..] = self.begin;
        let role = Role::of(u16::from_be_bytes([high, low]));
        RequestEvent::Begin { id, role, keeps_connection: flags & 1 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastcgi::{self, Pairs, Params};
    use proptest::prelude::*;

    type Variables = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(pieces: &[&[u8]]) -> (Vec<String>, Variables, Vec<u8>) {
        let (mut decoder, mut said, mut pairs, mut stdin) =
            (RequestDecoder::default(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let step = decoder.decode(rest).unwrap();
                rest = &rest[step.consumed..];
                match step.event {
                    RequestEvent::Nothing => {}
                    RequestEvent::Stdin(data) => stdin.extend_from_slice(data),
                    event => said.push(format!("{event:?}")),
                }
                if step.event == RequestEvent::Params {
                    pairs = Pairs::new(decoder.params())
                        .map(|pair| pair.map(|(name, value)| (name.to_vec(), value.to_vec())).unwrap())
                        .collect();
                }
            }
        }
        (said, pairs, stdin)
    }

    proptest! {
        /// What the client role writes, the application reads, however it is cut.
        #[test]
        fn a_request_comes_through(
            pairs in proptest::collection::vec((0usize..300, 0usize..70_000), 0..4),
            stdin in 0usize..140_000,
            cuts in proptest::collection::vec(0usize..300_000, 0..4),
        ) {
            let pairs: Vec<_> = pairs.iter().map(|(n, v)| (vec![b'N'; *n], vec![b'v'; *v])).collect();
            let stdin = vec![b's'; stdin];
            let mut out = Vec::new();
            fastcgi::begin_request(&mut out, 7, Role::Responder, true);
            let mut params = Params::begin(&mut out, 7);
            pairs.iter().for_each(|(name, value)| params.push(name, value));
            params.finish();
            prop_assert_eq!(out.len() % 8, 0);
            fastcgi::append_stdin(&mut out, 7, &stdin);
            fastcgi::end_stdin(&mut out, 7);
            let seen = read(&crate::fuzzing::cut(&out, &cuts));
            let begin = "Begin { id: 7, role: Responder, keeps_connection: true }";
            prop_assert_eq!(seen, (vec![begin.into(), "Params".into(), "StdinEnd".into()], pairs, stdin));
        }
    }
}
