//! Responses as the generator reads them: where each one ends, what its head says, nothing copied.
//!
//! Sans-io; the connection feeds it what came. An idle reader holds no buffer: bytes are kept only while a head
//! is cut in two. Heads go through the parser of `tidegate-wire`, so that what a strict client would refuse is
//! an error here too.

use crate::record::Failure;
use tidegate_http::Field;
use tidegate_wire::h1::{
    BodyDecoder, BodyError, BodyLength, FieldSpace, HeadLimits, HeadScanner, ResponseError, ResponseKind,
    parse_response,
};

/// Heads of up to 64 KiB: a generator should not be stricter than browsers.
pub(crate) const LIMITS: HeadLimits = HeadLimits { head_size: 64 << 10, target_size: 8 << 10, fields: 200 };

/// Interim responses before the one that is final. More than that is a server that never comes to an end, and at full speed.
pub(crate) const INTERIM_MAX: u8 = 64;

/// Why a response is no good. The server is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFault {
    Head(ResponseError),
    Body(BodyError),
    /// 101, of which nobody asked.
    Switched,
    /// The connection ended in the middle of a head or before one.
    NoResponse,
}

impl From<ResponseError> for ResponseFault {
    fn from(fault: ResponseError) -> Self {
        ResponseFault::Head(fault)
    }
}

impl From<BodyError> for ResponseFault {
    fn from(fault: BodyError) -> Self {
        ResponseFault::Body(fault)
    }
}

impl ResponseFault {
    /// What it is of an answer that cannot be read to its end.
    pub fn failure(&self) -> Failure {
        match self {
            ResponseFault::Head(ResponseError::HeadTooLarge) => Failure::HeadTooLarge,
            _ => Failure::Malformed,
        }
    }
}

/// What one call found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fed<'i> {
    /// Bytes of the input used up.
    pub consumed: usize,
    /// Bytes of the body among them.
    pub data: &'i [u8],
    /// Whether the response has ended.
    pub is_complete: bool,
}

/// Reads the responses of one connection, one after the other.
#[derive(Default)]
pub(crate) struct ResponseReader {
    state: State,
    scanner: HeadScanner,
    held: Vec<u8>,
    /// Interim heads of the response under way.
    interim: u8,
    decoder: Option<Box<BodyDecoder>>,
    /// Of the head read last.
    pub status: u16,
    pub keep_alive: bool,
    /// Of the response under way, without framing.
    pub body_bytes: u64,
    /// What `Content-Length` announced.
    pub announced: Option<u64>,
    /// Heads are kept in `head`, for who reads their fields.
    pub keeps_head: bool,
    /// The bytes of the head read last.
    pub head: Vec<u8>,
    /// The requests are of HTTP/1.0: a connection stays only where the answer says so, of whatever version that is.
    pub is_http10: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Length(u64),
    Chunked,
    UntilClose,
}

impl ResponseReader {
    /// One that keeps heads.
    pub fn with_heads() -> Self {
        ResponseReader { keeps_head: true, ..ResponseReader::default() }
    }

    /// Whether nothing of the next response has come.
    pub fn is_between(&self) -> bool {
        self.state == State::Head && self.held.is_empty()
    }

    /// Whether a head was read and its body is still to end.
    pub fn is_in_body(&self) -> bool {
        self.state != State::Head
    }

    /// Bytes still to come, where that was announced.
    pub fn remaining(&self) -> Option<u64> {
        if let State::Length(remaining) = self.state { Some(remaining) } else { None }
    }

    /// Takes the next bytes, to the end of the head, of a piece of body or of the response. Call it again
    /// with what it left.
    ///
    /// # Errors
    /// The head or the framing of the body is not valid, or the connection would become a tunnel or change
    /// its protocol.
    #[inline]
    pub fn feed<'i>(&mut self, input: &'i [u8], method: &str) -> Result<Fed<'i>, ResponseFault> {
        match self.state {
            State::Head => self.feed_head(input, method),
            State::Length(remaining) => Ok(self.take_length(input, 0, remaining)),
            State::UntilClose => {
                self.body_bytes += input.len() as u64;
                Ok(Fed { consumed: input.len(), data: input, is_complete: false })
            }
            State::Chunked => {
                let Some(decoder) = &mut self.decoder else { return Err(ResponseFault::NoResponse) };
                let decoded = decoder.decode(input)?;
                let is_complete = decoder.is_complete();
                self.body_bytes += decoded.data.len() as u64;
                if is_complete {
                    self.state = State::Head;
                }
                Ok(Fed { consumed: decoded.consumed, data: decoded.data, is_complete })
            }
        }
    }

    /// The server has closed. `Ok(true)`: that completes a response.
    ///
    /// # Errors
    /// The connection ends inside of a head, or inside of a body of known length or in chunks.
    pub fn close(&mut self) -> Result<bool, ResponseFault> {
        match self.state {
            State::UntilClose => {
                self.state = State::Head;
                Ok(true)
            }
            State::Head if self.held.is_empty() => Ok(false),
            State::Head => Err(ResponseFault::NoResponse),
            State::Length(_) | State::Chunked => Err(ResponseFault::Body(BodyError::Truncated)),
        }
    }

    /// Takes body bytes that were discarded unseen.
    pub fn skip(&mut self, count: u64) -> bool {
        if let State::Length(remaining) = self.state {
            self.body_bytes += count;
            let left = remaining.saturating_sub(count);
            self.state = if left == 0 { State::Head } else { State::Length(left) };
            return left == 0;
        }
        false
    }

    #[inline]
    fn feed_head<'i>(&mut self, input: &'i [u8], method: &str) -> Result<Fed<'i>, ResponseFault> {
        if !self.held.is_empty() {
            return self.feed_held(input, method);
        }
        match head(input, method, self.is_http10)? {
            Some(head) => {
                self.keep(input, &head);
                self.begin(input, head)
            }
            None => {
                self.scanner = HeadScanner::new();
                self.scanner.needs_parse(input, &LIMITS);
                self.held.extend_from_slice(input);
                Ok(Fed { consumed: input.len(), data: &[], is_complete: false })
            }
        }
    }

    #[cold]
    fn feed_held<'i>(&mut self, input: &'i [u8], method: &str) -> Result<Fed<'i>, ResponseFault> {
        let before = self.held.len();
        self.held.extend_from_slice(input);
        if !self.scanner.needs_parse(&self.held, &LIMITS) {
            return Ok(Fed { consumed: input.len(), data: &[], is_complete: false });
        }
        let Some(mut head) = head(&self.held, method, self.is_http10)? else {
            return Ok(Fed { consumed: input.len(), data: &[], is_complete: false });
        };
        // A head that ended in what was held would have been read then.
        let held = std::mem::take(&mut self.held);
        self.keep(&held, &head);
        head.len = head.len.saturating_sub(before);
        self.begin(input, head)
    }

    fn keep(&mut self, bytes: &[u8], head: &Head) {
        if self.keeps_head && !head.is_interim {
            self.head.clear();
            self.head.extend_from_slice(bytes.get(..head.len).unwrap_or_default());
        }
    }

    #[inline]
    fn begin<'i>(&mut self, input: &'i [u8], head: Head) -> Result<Fed<'i>, ResponseFault> {
        if head.is_interim {
            if self.interim >= INTERIM_MAX {
                return Err(ResponseFault::Head(ResponseError::TooManyInterim));
            }
            self.interim += 1;
            return Ok(Fed { consumed: head.len, data: &[], is_complete: false });
        }
        self.interim = 0;
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        self.body_bytes = 0;
        self.announced = None;
        Ok(match head.body {
            BodyLength::Empty => {
                self.announced = Some(0);
                Fed { consumed: head.len, data: &[], is_complete: true }
            }
            BodyLength::Length(length) => {
                self.announced = Some(length);
                self.take_length(input, head.len, length)
            }
            BodyLength::Chunked => {
                let decoder = BodyDecoder::new(head.body, LIMITS);
                match &mut self.decoder {
                    Some(place) => **place = decoder,
                    place => *place = Some(Box::new(decoder)),
                }
                self.state = State::Chunked;
                Fed { consumed: head.len, data: &[], is_complete: false }
            }
            BodyLength::UntilClose => {
                self.state = State::UntilClose;
                Fed { consumed: head.len, data: &[], is_complete: false }
            }
        })
    }

    #[inline]
    fn take_length<'i>(&mut self, input: &'i [u8], from: usize, remaining: u64) -> Fed<'i> {
        let rest = input.get(from..).unwrap_or_default();
        let take = usize::try_from(remaining).unwrap_or(usize::MAX).min(rest.len());
        let left = remaining - take as u64;
        self.body_bytes += take as u64;
        self.state = if left == 0 { State::Head } else { State::Length(left) };
        Fed { consumed: from + take, data: rest.get(..take).unwrap_or_default(), is_complete: left == 0 }
    }
}

struct Head {
    len: usize,
    status: u16,
    keep_alive: bool,
    is_interim: bool,
    body: BodyLength,
}

#[inline]
fn head(bytes: &[u8], method: &str, is_http10: bool) -> Result<Option<Head>, ResponseFault> {
    let mut space = FieldSpace::new();
    let Some(head) = parse_response(bytes, &LIMITS, &mut space, method)? else { return Ok(None) };
    if matches!(head.kind, ResponseKind::Switching | ResponseKind::Tunnel) {
        return Err(ResponseFault::Switched);
    }
    Ok(Some(Head {
        len: head.len,
        status: head.status,
        keep_alive: head.keep_alive && (!is_http10 || says_keep_alive(head.fields)),
        is_interim: head.kind == ResponseKind::Interim,
        body: head.body,
    }))
}

/// `Connection: keep-alive`, perhaps among others.
#[cold]
fn says_keep_alive(fields: &[Field<'_>]) -> bool {
    let values = fields.iter().filter(|field| field.is("connection"));
    values
        .flat_map(|field| field.value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_http_1_0_a_connection_stays_where_the_answer_says_so() {
        for (field, stays) in
            [("", false), ("Connection: upgrade, Keep-Alive\r\n", true), ("Connection: close\r\n", false)]
        {
            for version in ["HTTP/1.1", "HTTP/1.0"] {
                let text = format!("{version} 200 OK\r\n{field}Content-Length: 1\r\n\r\nx");
                let mut reader = ResponseReader { is_http10: true, ..ResponseReader::default() };
                assert!(reader.feed(text.as_bytes(), "GET").unwrap().is_complete);
                assert_eq!(reader.keep_alive, stays, "{text}");
            }
        }
    }

    /// Status, body and whether the connection stays, of each response, and how it ended.
    type Seen = (Vec<(u16, Vec<u8>, bool)>, Result<bool, ResponseFault>);

    fn read(pieces: &[&[u8]]) -> Seen {
        let mut reader = ResponseReader { keeps_head: true, ..ResponseReader::default() };
        let (mut all, mut body) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut input = *piece;
            while !input.is_empty() {
                let fed = match reader.feed(input, "GET") {
                    Ok(fed) => fed,
                    Err(fault) => return (all, Err(fault)),
                };
                body.extend_from_slice(fed.data);
                if fed.is_complete {
                    assert!(reader.head.starts_with(b"HTTP/1.1 ") && reader.head.ends_with(b"\r\n\r\n"));
                    all.push((reader.status, std::mem::take(&mut body), reader.keep_alive));
                }
                assert!(fed.consumed > 0);
                input = &input[fed.consumed..];
            }
        }
        let end = reader.close();
        if end == Ok(true) {
            all.push((reader.status, body, reader.keep_alive));
        }
        (all, end)
    }

    #[test]
    fn interim_responses_without_end_are_none() {
        let hint: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let end: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
        let most = usize::from(INTERIM_MAX);
        let of = |interim: usize| [hint.repeat(interim), end.to_vec()].concat();
        // Each response has as many.
        let (seen, ended) = read(&[&of(most), &of(most)]);
        assert_eq!((seen.len(), ended), (2, Ok(false)));
        for size in [1, 1000, usize::MAX] {
            let bytes = of(most + 1);
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let refused = ResponseFault::Head(ResponseError::TooManyInterim);
            assert_eq!(read(&pieces), (Vec::new(), Err(refused)), "{size}");
        }
    }

    const STREAM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\
        HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end";

    #[test]
    fn responses_of_every_framing() {
        let (all, end) = read(&[STREAM]);
        assert_eq!(end, Ok(true));
        assert_eq!(
            all,
            [
                (200, b"hi".to_vec(), true),
                (204, vec![], true),
                (404, b"abcde".to_vec(), true),
                (200, b"to the end".to_vec(), false),
            ]
        );
    }

    #[test]
    fn faults() {
        let table: [(&[u8], ResponseFault); 5] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ResponseFault::Body(BodyError::Truncated)),
            (b"SSH-2.0", ResponseFault::Head(ResponseError::InvalidVersion)),
            (b"HTTP/1.1 200 OK\r\nContent-Le", ResponseFault::NoResponse),
            (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ResponseFault::Switched),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz",
                ResponseFault::Body(BodyError::InvalidChunkSize),
            ),
        ];
        for (bytes, fault) in table {
            assert_eq!(read(&[bytes]).1, Err(fault), "{}", bytes.escape_ascii());
        }
        assert_eq!(read(&[]), (vec![], Ok(false)));
    }

    proptest! {
        #[test]
        fn any_split_reads_the_same(cuts in proptest::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &STREAM[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[STREAM]));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes]);
            let _ = read(&[&bytes]);
        }
    }
}
