//! Records: the header, and what is inside, found in any split of the bytes (FastCGI 1.0 section 3.3).

use thiserror::Error;

/// Bytes of a record's header.
pub const HEADER: usize = 8;
/// The most bytes that one record holds, so that with its padding the next one is aligned.
pub const MOST_CONTENT: usize = 65_528;

const VERSION: u8 = 1;

/// What a peer sent that is no FastCGI; its connection must not be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FastCgiError {
    /// A record of another version: most likely the peer speaks something else.
    #[error("a record of version {0}; the peer does not speak FastCGI")]
    Version(u8),
    /// A type of record that this side never gets.
    #[error("a record of type {0}, which is not expected here")]
    UnexpectedType(u8),
    /// A record of a request that is not under way.
    #[error("a record of request {0}, which is not under way")]
    UnexpectedRequest(u16),
    /// BEGIN_REQUEST or END_REQUEST whose content is not 8 bytes.
    #[error("a record of type {0} with content of a wrong length")]
    Length(u8),
    /// Parameters that are longer than the limit.
    #[error("too many bytes of parameters")]
    TooLarge,
    /// Parameters whose lengths do not add up.
    #[error("parameters whose lengths do not fit")]
    Params,
}

/// The types of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// A request begins.
    BeginRequest = 1,
    /// The client has gone.
    AbortRequest = 2,
    /// A request has ended.
    EndRequest = 3,
    /// Variables.
    Params = 4,
    /// Content of the request.
    Stdin = 5,
    /// The answer.
    Stdout = 6,
    /// Complaints.
    Stderr = 7,
    /// The file that a filter changes.
    Data = 8,
    /// What the application can do is asked.
    GetValues = 9,
    /// What the application can do.
    GetValuesResult = 10,
    /// The application does not know a record.
    UnknownType = 11,
}

impl RecordType {
    fn of(number: u8) -> Option<RecordType> {
        Some(match number {
            1 => RecordType::BeginRequest,
            2 => RecordType::AbortRequest,
            3 => RecordType::EndRequest,
            4 => RecordType::Params,
            5 => RecordType::Stdin,
            6 => RecordType::Stdout,
            7 => RecordType::Stderr,
            8 => RecordType::Data,
            9 => RecordType::GetValues,
            10 => RecordType::GetValuesResult,
            11 => RecordType::UnknownType,
            _ => return None,
        })
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The type.
    pub kind: RecordType,
    /// The request; 0 for records about the application as a whole.
    pub id: u16,
    /// Bytes of content.
    pub content: u16,
    /// Bytes behind the content that mean nothing.
    pub padding: u8,
}

impl RecordHeader {
    /// Reads a header. Whether the record may come here is for the caller to say.
    ///
    /// # Errors
    /// The version is not 1, or the type is unknown.
    pub fn parse(bytes: [u8; HEADER]) -> Result<RecordHeader, FastCgiError> {
        let [version, kind, id_high, id_low, content_high, content_low, padding, _] = bytes;
        if version != VERSION {
            return Err(FastCgiError::Version(version));
        }
        Ok(RecordHeader {
            kind: RecordType::of(kind).ok_or(FastCgiError::UnexpectedType(kind))?,
            id: u16::from_be_bytes([id_high, id_low]),
            content: u16::from_be_bytes([content_high, content_low]),
            padding,
        })
    }
}

/// A header as bytes.
pub(super) fn header(kind: RecordType, id: u16, content: u16, padding: u8) -> [u8; HEADER] {
    let [id_high, id_low] = id.to_be_bytes();
    let [content_high, content_low] = content.to_be_bytes();
    [VERSION, kind as u8, id_high, id_low, content_high, content_low, padding, 0]
}

/// Appends one record, padded to a multiple of 8. `content` holds at most [`MOST_CONTENT`] bytes; the rest
/// of a longer one is not written.
pub(super) fn append_record(out: &mut Vec<u8>, kind: RecordType, id: u16, content: &[u8]) {
    let content = content.get(..MOST_CONTENT).unwrap_or(content);
    let padding = padding(content.len());
    out.extend_from_slice(&header(kind, id, content.len() as u16, padding));
    out.extend_from_slice(content);
    append_padding(out, padding);
}

pub(super) fn padding(content: usize) -> u8 {
    (content.wrapping_neg() & 7) as u8
}

pub(super) fn append_padding(out: &mut Vec<u8>, padding: u8) {
    out.extend_from_slice([0u8; 8].get(..usize::from(padding)).unwrap_or_default());
}

/// Finds records in what arrives. Fixed memory, whatever the peer sends.
#[derive(Debug, Clone)]
pub(super) struct Records {
    head: [u8; HEADER],
    /// Bytes of `head` that are there.
    have: u8,
    record: Option<RecordHeader>,
    /// Bytes of content still to come.
    content: u16,
    /// Bytes of padding still to come.
    padding: u8,
}

/// What a step over the bytes has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'i> {
    /// Nothing whole yet.
    Nothing,
    /// A record begins.
    Begin(RecordHeader),
    /// Some of its content, never empty.
    Content(RecordHeader, &'i [u8]),
}

impl Records {
    pub(super) const fn new() -> Records {
        Records { head: [0; HEADER], have: 0, record: None, content: 0, padding: 0 }
    }

    /// Whether the bytes so far end where a record ends.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0 && self.record.is_none()
    }

    /// Whether all content of the present record was given out.
    pub(super) fn is_content_complete(&self) -> bool {
        self.content == 0
    }

    /// A record that begins with the input, whose header and content are all there: nothing of it is to come but padding. `None`
    /// where it is not so, or has no content; then nothing is used.
    #[inline]
    pub(super) fn whole<'i>(
        &mut self,
        input: &'i [u8],
    ) -> Result<Option<(RecordHeader, &'i [u8])>, FastCgiError> {
        let Some((head, behind)) = input.split_first_chunk().filter(|_| self.is_between()) else {
            return Ok(None);
        };
        let record = RecordHeader::parse(*head)?;
        let Some(data) = behind.get(..usize::from(record.content)).filter(|data| !data.is_empty()) else {
            return Ok(None);
        };
        if record.padding > 0 {
            (self.record, self.padding) = (Some(record), record.padding);
        }
        Ok(Some((record, data)))
    }

    /// The bytes used, and what they are. With input that is not empty it uses at least one.
    #[inline]
    pub(super) fn step<'i>(&mut self, input: &'i [u8]) -> Result<(usize, Piece<'i>), FastCgiError> {
        let Some(record) = self.record else { return self.head(input) };
        if self.content > 0 {
            let data = input.get(..usize::from(self.content)).unwrap_or(input);
            self.content = self.content.saturating_sub(data.len() as u16);
            self.end_if_complete();
            let piece = if data.is_empty() { Piece::Nothing } else { Piece::Content(record, data) };
            return Ok((data.len(), piece));
        }
        let skipped = input.len().min(usize::from(self.padding));
        self.padding = self.padding.saturating_sub(skipped as u8);
        self.end_if_complete();
        Ok((skipped, Piece::Nothing))
    }

    fn head<'i>(&mut self, input: &[u8]) -> Result<(usize, Piece<'i>), FastCgiError> {
        // Most often it is here as a whole.
        if let (0, Some(head)) = (self.have, input.first_chunk()) {
            return Ok((HEADER, self.begin(RecordHeader::parse(*head)?)));
        }
        let mut used = 0;
        for (slot, byte) in self.head.iter_mut().skip(usize::from(self.have)).zip(input) {
            *slot = *byte;
            used += 1;
        }
        self.have = self.have.saturating_add(used as u8);
        // Whoever speaks something else is told at once, not after 8 bytes.
        if self.have > 0 && self.head[0] != VERSION {
            return Err(FastCgiError::Version(self.head[0]));
        }
        if usize::from(self.have) < HEADER {
            return Ok((used, Piece::Nothing));
        }
        let record = RecordHeader::parse(self.head)?;
        self.have = 0;
        Ok((used, self.begin(record)))
    }

    fn begin<'i>(&mut self, record: RecordHeader) -> Piece<'i> {
        self.record = Some(record);
        (self.content, self.padding) = (record.content, record.padding);
        self.end_if_complete();
        Piece::Begin(record)
    }

    fn end_if_complete(&mut self) {
        if self.content == 0 && self.padding == 0 {
            self.record = None;
        }
    }
}
