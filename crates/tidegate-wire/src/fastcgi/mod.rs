//! FastCGI 1.0, both roles (Open Market, 29 April 1996).
//!
//! The gateway encodes requests with [`begin_request`], [`Params`] and [`append_stdin`] and reads what the
//! application answers with [`ResponseDecoder`]. Scripted applications in tests and benches do the reverse
//! with [`RequestDecoder`] and [`append_stdout`]. Nothing here touches a socket or a clock.
//!
//! One request at a time on a connection: an application that could take several says so only when asked, and few do.
//! Authorizers and filters are not spoken to.
//!
//! ```
//! use tidegate_wire::fastcgi::{self, Event, Params, ResponseDecoder, Role};
//!
//! let mut request = Vec::new();
//! fastcgi::begin_request(&mut request, 1, Role::Responder, true);
//! let mut params = Params::begin(&mut request, 1);
//! params.push(b"REQUEST_METHOD", b"GET");
//! params.finish();
//! fastcgi::end_stdin(&mut request, 1);
//!
//! let mut answer = Vec::new();
//! fastcgi::append_stdout(&mut answer, 1, b"Status: 204\r\n\r\n");
//! fastcgi::end_request(&mut answer, 1, 0, fastcgi::ProtocolStatus::RequestComplete);
//! let (mut decoder, mut rest) = (ResponseDecoder::new(1), answer.as_slice());
//! let mut stdout = Vec::new();
//! while !decoder.is_complete() {
//!     let step = decoder.decode(rest).unwrap();
//!     if let Event::Stdout(data) = step.event {
//!         stdout.extend_from_slice(data);
//!     }
//!     rest = &rest[step.consumed..];
//! }
//! assert_eq!(stdout, b"Status: 204\r\n\r\n");
//! ```

mod params;
mod record;
mod request;
mod response;

pub use params::{Pairs, Params, ParamsError, Prefix, append_pair};
pub use record::{FastCgiError, HEADER, MOST_CONTENT, RecordHeader, RecordType};
pub use request::{RequestDecoder, RequestEvent, RequestStep};
pub use response::{EndRequest, Event, ResponseDecoder, Step};

use record::{append_record, header};

/// What the application is asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Answers the request, as a CGI script would.
    Responder,
    /// Says whether the request may go on.
    Authorizer,
    /// Changes a file on its way out.
    Filter,
    /// A number that means nothing.
    Other(u16),
}

impl Role {
    fn number(self) -> u16 {
        match self {
            Role::Responder => 1,
            Role::Authorizer => 2,
            Role::Filter => 3,
            Role::Other(number) => number,
        }
    }

    fn of(number: u16) -> Role {
        match number {
            1 => Role::Responder,
            2 => Role::Authorizer,
            3 => Role::Filter,
            other => Role::Other(other),
        }
    }
}

/// How a request ended, on the level of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// It was carried out.
    RequestComplete,
    /// The application takes one request at a time on a connection, and was sent another one.
    CannotMultiplex,
    /// It has run out of something, such as connections to its database.
    Overloaded,
    /// It does not do this role.
    UnknownRole,
    /// A number that means nothing.
    Other(u8),
}

impl ProtocolStatus {
    fn number(self) -> u8 {
        match self {
            ProtocolStatus::RequestComplete => 0,
            ProtocolStatus::CannotMultiplex => 1,
            ProtocolStatus::Overloaded => 2,
            ProtocolStatus::UnknownRole => 3,
            ProtocolStatus::Other(number) => number,
        }
    }

    fn of(number: u8) -> ProtocolStatus {
        match number {
            0 => ProtocolStatus::RequestComplete,
            1 => ProtocolStatus::CannotMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            other => ProtocolStatus::Other(other),
        }
    }
}

/// Appends BEGIN_REQUEST. With `keeps_connection` the application does not close after its answer.
pub fn begin_request(out: &mut Vec<u8>, id: u16, role: Role, keeps_connection: bool) {
    let [high, low] = role.number().to_be_bytes();
    let content = [high, low, u8::from(keeps_connection), 0, 0, 0, 0, 0];
    append_record(out, RecordType::BeginRequest, id, &content);
}

/// Appends content of the request; nothing if it is empty, for that would end it.
pub fn append_stdin(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    append_stream(out, RecordType::Stdin, id, data);
}

/// Appends the end of the content. Every request has one.
pub fn end_stdin(out: &mut Vec<u8>, id: u16) {
    out.extend_from_slice(&header(RecordType::Stdin, id, 0, 0));
}

/// Appends ABORT_REQUEST: the client has gone.
pub fn abort_request(out: &mut Vec<u8>, id: u16) {
    out.extend_from_slice(&header(RecordType::AbortRequest, id, 0, 0));
}

/// Appends what an application answers to GET_VALUES.
pub fn append_values(out: &mut Vec<u8>, values: &[(&[u8], &[u8])]) {
    let mut pairs = Vec::new();
    for (name, value) in values {
        append_pair(&mut pairs, name, value);
    }
    append_record(out, RecordType::GetValuesResult, 0, pairs.get(..MOST_CONTENT).unwrap_or(&pairs));
}

/// Appends an answer's head and content; nothing if `data` is empty.
pub fn append_stdout(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    append_stream(out, RecordType::Stdout, id, data);
}

/// Appends what the application has to complain about; nothing if `data` is empty.
pub fn append_stderr(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    append_stream(out, RecordType::Stderr, id, data);
}

/// Appends END_REQUEST.
pub fn end_request(out: &mut Vec<u8>, id: u16, application_status: u32, status: ProtocolStatus) {
    let [a, b, c, d] = application_status.to_be_bytes();
    append_record(out, RecordType::EndRequest, id, &[a, b, c, d, status.number(), 0, 0, 0]);
}

fn append_stream(out: &mut Vec<u8>, kind: RecordType, id: u16, data: &[u8]) {
    for piece in data.chunks(MOST_CONTENT) {
        append_record(out, kind, id, piece);
    }
}
