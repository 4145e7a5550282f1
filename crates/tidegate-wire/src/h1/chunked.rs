//! The chunked transfer coding, read (RFC 9112 section 7.1). Used by [`BodyDecoder`](super::BodyDecoder).
//!
//! A state machine over single bytes for what frames the chunks, so it needs no buffer and any cut of the
//! input gives the same result. Chunk data is not touched byte by byte.

use super::bytes::is_token;
use super::{BodyError, HeadLimits, Trailers};

/// Bytes of chunk extensions, from each semicolon to the line end, for which no chunk behind them has as many of content.
const MAX_EXTENSIONS: u16 = 4096;
/// Hexadecimal digits of a size, leading zeros included.
const MAX_DIGITS: u8 = 16;

#[derive(Debug, Clone)]
pub(super) struct Chunked {
    state: State,
    /// The size being read, then the bytes of the chunk that are still to come.
    remaining: u64,
    digits: u8,
    extensions: u16,
    /// Made when the first trailer comes.
    trailers: Option<Box<Trailers>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    /// White space before a semicolon.
    BeforeSemicolon,
    /// Behind a semicolon, before a name.
    BeforeName,
    Name,
    /// White space behind a name: `=` or the next semicolon must follow.
    AfterName,
    /// Behind `=`.
    BeforeValue,
    Value,
    Quoted,
    /// Behind a backslash in a quoted string.
    QuotedPair,
    AfterQuoted,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailers,
    Complete,
}

impl Chunked {
    pub fn new() -> Self {
        Chunked { state: State::Size, remaining: 0, digits: 0, extensions: 0, trailers: None }
    }

    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    pub fn trailers(&mut self) -> Option<Box<Trailers>> {
        self.trailers.take()
    }

    /// Where in `input` the next data begins and how long it is. All before it was framing and is used up.
    /// No data: all of `input` that belongs to the body was framing.
    ///
    /// # Errors
    /// The framing or the trailer section is malformed or exceeds a limit.
    pub fn advance(&mut self, input: &[u8], limits: &HeadLimits) -> Result<(usize, usize), BodyError> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Data => {
                    let len = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(rest.len());
                    self.remaining = self.remaining.saturating_sub(len as u64);
                    if self.remaining == 0 {
                        self.state = State::DataReturn;
                    }
                    return Ok((at, len));
                }
                State::Trailers => {
                    let (taken, is_over) = self.trailers.get_or_insert_default().take(rest, limits)?;
                    at += taken;
                    if is_over {
                        self.state = State::Complete;
                    }
                }
                State::Complete => break,
                _ => {
                    let Some(b) = rest.first() else { break };
                    self.state = self.step(*b)?;
                    at += 1;
                }
            }
        }
        Ok((at, 0))
    }

    fn step(&mut self, b: u8) -> Result<State, BodyError> {
        let next = match (self.state, b) {
            (State::Size, b) if b.is_ascii_hexdigit() => return self.take_digit(b),
            (State::Size, _) if self.digits == 0 => return Err(BodyError::InvalidChunkSize),
            (State::DataReturn, b'\r') => return Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => return Ok(State::Size),
            (State::DataReturn, b'\n') => return Err(BodyError::BareLf),
            (State::DataLineFeed, _) => return Err(BodyError::BareCr),
            (State::DataReturn, _) => return Err(BodyError::ChunkTooLong),
            (State::SizeLineFeed, b'\n') => return Ok(self.begin_chunk()),
            (State::SizeLineFeed, _) => return Err(BodyError::BareCr),
            (State::Size | State::Name | State::Value | State::AfterQuoted, b'\r') => {
                return Ok(State::SizeLineFeed);
            }
            (_, b'\n') => return Err(BodyError::BareLf),

            (State::Size | State::BeforeSemicolon | State::AfterName | State::AfterQuoted, b';')
            | (State::Name | State::Value, b';') => State::BeforeName,
            (State::Size | State::BeforeSemicolon, b' ' | b'\t') => State::BeforeSemicolon,
            (State::Size, _) => return Err(BodyError::InvalidChunkSize),

            (State::BeforeName, b' ' | b'\t') => State::BeforeName,
            (State::BeforeName | State::Name, b) if is_token(b) => State::Name,
            (State::Name | State::AfterName, b' ' | b'\t') => State::AfterName,
            (State::Name | State::AfterName, b'=') => State::BeforeValue,

            (State::BeforeValue, b' ' | b'\t') => State::BeforeValue,
            (State::BeforeValue, b'"') => State::Quoted,
            (State::BeforeValue | State::Value, b) if is_token(b) => State::Value,
            (State::Value | State::AfterQuoted, b' ' | b'\t') => State::BeforeSemicolon,

            (State::Quoted, b'"') => State::AfterQuoted,
            (State::Quoted, b'\\') => State::QuotedPair,
            (State::Quoted | State::QuotedPair, b'\t' | b' '..=0x7e | 0x80..) => State::Quoted,
            _ => return Err(BodyError::InvalidExtension),
        };
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS { Err(BodyError::ExtensionsTooLong) } else { Ok(next) }
    }

    fn take_digit(&mut self, b: u8) -> Result<State, BodyError> {
        let digit = char::from(b).to_digit(16).unwrap_or(0);
        if self.digits == MAX_DIGITS || self.remaining > (i64::MAX as u64) >> 4 {
            return Err(BodyError::ChunkSizeOverflow);
        }
        self.digits += 1;
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(State::Size)
    }

    fn begin_chunk(&mut self) -> State {
        self.digits = 0;
        self.extensions = self.extensions.saturating_sub(u16::try_from(self.remaining).unwrap_or(u16::MAX));
        if self.remaining == 0 { State::Trailers } else { State::Data }
    }
}
