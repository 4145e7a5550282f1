//! Responses, free of protocol version: what handlers return, filters wrap and connections write.

use crate::body::BodySink;
use crate::body_stream::BodyStream;
use crate::buffer_pool;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use tidegate_http::{FieldLines, Status, vary};
use tidegate_io::paged::PagedFile;
use tidegate_io::shared_bytes::SharedPiece;
use tidegate_wire::{h1, h2};

/// One response: status, fields and body. The connection adds `Server`, framing and connection fields; handlers never set
/// those. It adds `Date` as well, unless an application has said it.
pub struct Response {
    /// Status code.
    pub status: Status,
    /// Field section.
    pub head: Head,
    /// Content.
    pub body: Body,
    /// Whose words these are.
    pub author: Author,
}

/// Who has made a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Author {
    /// The server. An `error-page` may take its place.
    #[default]
    Server,
    /// An application, or who has written the settings. An `error-page` takes its place only where it is to intercept.
    Application,
    /// The same, and it says when it has made it (`Date`): the connection does not.
    DatedApplication,
    /// The server, which is too busy: `busy-answer` takes its place.
    Busy,
    /// The server, in a stream of its own that goes on for as long as somebody listens. How long that is says nothing about the
    /// server: statistics count none of its time.
    Live,
}

impl Author {
    /// Whether these are not the words of the server.
    pub fn is_application(self) -> bool {
        matches!(self, Author::Application | Author::DatedApplication)
    }
}

/// A field section.
pub enum Head {
    /// Encoded field lines; route fields and filters are still to be applied.
    Fields(FieldLines),
    /// Encoded field lines to which nothing is added any more.
    Final(FieldLines),
    /// Encoded once and shared; final: its maker has applied all that the route asks for.
    Prebuilt(Rc<Message>),
}

/// Content of a response.
pub enum Body {
    /// None at all.
    Empty,
    /// Bytes made for this response.
    Bytes(Vec<u8>),
    /// The bytes that lie behind the head of a prebuilt message.
    Prebuilt(Rc<Message>),
    /// Bytes in memory that others send as well, sent from where they lie.
    Shared(SharedPiece),
    /// A piece of a file, sent by the kernel.
    File(FilePiece),
    /// Several pieces one after the other (`multipart/byteranges`).
    Parts(Vec<Part>),
    /// The connection goes on as a tunnel, behind a 101 (RFC 9110 section 7.8).
    Tunnel {
        /// What goes to the client; its end is the end of the connection.
        stream: Box<dyn BodyStream>,
        /// Takes what the client sends.
        sink: BodySink,
    },
    /// Pulled as the client takes it; of known length, or to be sent in chunks.
    Stream {
        /// Bytes in all, where known.
        len: Option<u64>,
        /// Trailers may come behind a known length, which therefore does not end the message. Behind an unknown one they
        /// always may.
        has_trailers: bool,
        /// Where they come from.
        stream: Box<dyn BodyStream>,
    },
}

/// Bytes `offset..end` of an open file.
#[derive(Clone)]
pub struct FilePiece {
    /// Shared with the cache.
    pub file: Rc<PagedFile>,
    /// First byte.
    pub offset: u64,
    /// Behind the last byte.
    pub end: u64,
    /// A part of it was not in memory: the pool reads in front of the sender from then on.
    reads_ahead: bool,
}

/// A piece of a composed body.
pub enum Part {
    /// Literal bytes.
    Bytes(Vec<u8>),
    /// From memory that others send from as well.
    Shared(SharedPiece),
    /// From a file.
    File(FilePiece),
}

impl Head {
    /// The fields.
    pub fn lines(&self) -> &FieldLines {
        match self {
            Head::Fields(lines) | Head::Final(lines) => lines,
            Head::Prebuilt(message) => message.lines(),
        }
    }

    /// It has been sent: the next answer may have its memory.
    #[inline]
    pub(crate) fn recycle(self) {
        if let Head::Fields(lines) | Head::Final(lines) = self {
            buffer_pool::give_back(lines.into_memory());
        }
    }
}

impl Part {
    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        if let Part::Bytes(bytes) = self { bytes.capacity() } else { 0 }
    }
}

impl Response {
    /// Bytes of memory that it holds for itself.
    pub(crate) fn held(&self) -> usize {
        let body = match &self.body {
            Body::Bytes(bytes) => bytes.capacity(),
            Body::Parts(parts) => parts.iter().map(Part::held).sum(),
            Body::Stream { stream, .. } | Body::Tunnel { stream, .. } => stream.held(),
            Body::Empty | Body::Prebuilt(_) | Body::Shared(_) | Body::File(_) => 0,
        };
        let head = match &self.head {
            Head::Fields(lines) | Head::Final(lines) => lines.capacity(),
            Head::Prebuilt(_) => 0,
        };
        size_of::<Response>() + head + body
    }
}

impl Body {
    /// Bytes in all, where known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Prebuilt(message) => Some(message.body_len() as u64),
            Body::Shared(piece) => Some(piece.len()),
            Body::File(piece) => Some(piece.len()),
            Body::Parts(parts) => Some(parts.iter().map(Part::len).sum()),
            Body::Stream { len, .. } => *len,
            Body::Tunnel { .. } => None,
        }
    }

    /// Whether it is known to hold nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl FilePiece {
    /// See [`PagedFile::poll_warm`]: how far it can be sent now. Once it had to be waited for, the pool reads
    /// in front.
    #[inline]
    pub fn poll_warm(&mut self, waker: Option<&Waker>) -> Poll<io::Result<u64>> {
        let poll = self.file.poll_warm(self.offset, self.end, waker);
        match &poll {
            Poll::Pending => self.reads_ahead = true,
            Poll::Ready(Ok(warm)) if self.reads_ahead => self.file.read_ahead(*warm, self.end),
            Poll::Ready(_) => {}
        }
        poll
    }

    /// The bytes `offset..end` of `file`.
    pub fn new(file: Rc<PagedFile>, offset: u64, end: u64) -> FilePiece {
        FilePiece { file, offset, end, reads_ahead: false }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.offset)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Shared(piece) => piece.len(),
            Part::File(piece) => piece.len(),
        }
    }
}

impl Response {
    /// Whether its fields say when it was made: then the connection does not.
    #[inline]
    pub(crate) fn is_dated(&self) -> bool {
        debug_assert!(
            self.author == Author::DatedApplication || !self.head.lines().contains("Date"),
            "invariant: it would have two dates"
        );
        self.author == Author::DatedApplication
    }

    /// A response without fields or content.
    pub fn empty(status: Status) -> Response {
        Response {
            status,
            head: Head::Fields(FieldLines::default()),
            body: Body::Empty,
            author: Author::Server,
        }
    }

    /// A response with content of one media type.
    pub fn content(status: Status, media_type: &str, body: impl Into<Vec<u8>>) -> Response {
        let mut lines = FieldLines::default();
        lines.push("Content-Type", media_type);
        Response { status, head: Head::Fields(lines), body: Body::Bytes(body.into()), author: Author::Server }
    }

    /// The fields, made open to change where the head was a shared one.
    pub fn fields_mut(&mut self) -> &mut FieldLines {
        if let Head::Prebuilt(message) = &self.head {
            self.head = Head::Fields(message.lines().clone());
        }
        match &mut self.head {
            Head::Fields(lines) | Head::Final(lines) => lines,
            Head::Prebuilt(_) => unreachable!("invariant: replaced above"),
        }
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Response {
        self.fields_mut().push(name, value);
        self
    }

    /// The same response with a head that the Filter phase leaves alone.
    pub fn finished(mut self) -> Response {
        if let Head::Fields(lines) = self.head {
            self.head = Head::Final(lines);
        }
        self
    }

    /// The same response with a head that the Filter phase works on.
    pub fn reopened(mut self) -> Response {
        self.head = match self.head {
            Head::Fields(lines) | Head::Final(lines) => Head::Fields(lines),
            Head::Prebuilt(message) => Head::Fields(message.lines().clone()),
        };
        self
    }

    /// The same response, which says that it depends on these fields of a request. Its head is as open as it was.
    pub(crate) fn varying(mut self, fields: &[Rc<str>]) -> Response {
        let is_finished = !matches!(self.head, Head::Fields(_));
        vary::add(self.fields_mut(), fields.iter().map(|name| name.as_bytes()));
        if is_finished { self.finished() } else { self }
    }

    /// The same response as one of `author`.
    pub fn by(self, author: Author) -> Response {
        Response { author, ..self }
    }

    /// The same response under another status: an error page.
    pub fn with_status(mut self, status: Status) -> Response {
        self.fields_mut();
        self.status = status;
        self
    }
}

/// A message encoded once for HTTP/1.1 keep-alive clients: the head, and for small bodies the body behind
/// it, so that one `send(2)` answers. Its date is stamped anew at most once a second, unless it is among its lines.
pub struct Message {
    encoded: RefCell<h1::Prebuilt>,
    stamped: Cell<i64>,
    lines: FieldLines,
    server: bool,
    body_len: Option<u64>,
    /// The fields for HTTP/2, once a client of it has asked.
    block: OnceCell<h2::FieldBlock>,
}

impl Message {
    /// Encodes a head for a body of `body_len` bytes, of which `body` is held here (all of it or nothing).
    /// `None` for a status that has no body.
    pub fn new(
        status: Status,
        server: Option<&str>,
        lines: FieldLines,
        body_len: Option<u64>,
        body: &[u8],
    ) -> Rc<Message> {
        let is_dated = lines.contains("Date");
        let parts = h1::ResponseParts {
            status: status.0,
            reason: status.reason(),
            date: (!is_dated).then_some(&[b' '; 29]),
            server,
            field_lines: lines.as_bytes(),
            framing: body_len.map_or(h1::ResponseFraming::None, h1::ResponseFraming::Length),
            connection: h1::ConnectionField::None,
        };
        let encoded = RefCell::new(h1::Prebuilt::new(&parts, body));
        Rc::new(Message {
            encoded,
            stamped: Cell::new(i64::MIN),
            lines,
            server: server.is_some(),
            body_len,
            block: OnceCell::new(),
        })
    }

    /// The fields, for other protocol versions and for filters.
    pub fn lines(&self) -> &FieldLines {
        &self.lines
    }

    /// The fields as HTTP/2 sends them, `content-length` included, `date` and `server` not.
    pub(crate) fn block(&self) -> &h2::FieldBlock {
        self.block.get_or_init(|| {
            let mut block = h2::FieldBlock::of_lines(&self.lines);
            if let Some(len) = self.body_len {
                block.push("content-length", len.to_string().as_bytes());
            }
            block
        })
    }

    /// Whether it tells what the server is.
    pub(crate) fn names_server(&self) -> bool {
        self.server
    }

    /// Bytes of the body held here.
    pub fn body_len(&self) -> usize {
        self.encoded.borrow().body().len()
    }

    /// Memory that a message with such fields holds at most, beyond its content; bytes.
    pub fn most_for_head(lines: &FieldLines) -> usize {
        5 * lines.as_bytes().len() + size_of::<Message>() + 512
    }

    /// Memory held, bytes. The fields count four times: for HTTP/2 they are prepared when somebody asks.
    pub fn footprint(&self) -> usize {
        self.encoded.borrow().size() + 4 * self.lines.as_bytes().len() + size_of::<Message>()
    }

    /// The encoded message, with the date of `now`.
    #[inline]
    pub fn stamped(&self, now: i64, date: &[u8; 29]) -> Ref<'_, h1::Prebuilt> {
        if self.stamped.replace(now) != now {
            self.encoded.borrow_mut().stamp(date);
        }
        self.encoded.borrow()
    }

    /// The encoded message as it is.
    #[inline]
    pub fn encoded(&self) -> Ref<'_, h1::Prebuilt> {
        self.encoded.borrow()
    }
}
