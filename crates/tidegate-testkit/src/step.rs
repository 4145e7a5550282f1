//! What a transcript consists of, once parsed: steps, and what is expected of a response.
//!
//! Made by `transcript.rs`, played by `run.rs`. Plain data.

use crate::backend::FastCgi;
use crate::condition::{Condition, Output};
use crate::fixture::Fixture;
use crate::h2;
use crate::pattern::Pattern;
use crate::process::Signal;
use crate::tls::{Made, TlsCheck, TlsOptions};

/// One step and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) source: Source,
    pub(crate) action: Action,
}

/// A place in the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// From 1.
    pub(crate) line: usize,
    /// The line as written.
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Fixture(Fixture),
    /// Writes the configuration file.
    Config(Vec<u8>),
    /// The steps that follow are this client's.
    Client {
        name: String,
        listener: Option<usize>,
        receive_buffer: Option<usize>,
        h2: Option<h2::Options>,
        tls: Option<TlsOptions>,
    },
    /// What a client of HTTP/2 does.
    Http2(Http2Step),
    /// Makes a certificate.
    Certificate(Made),
    /// What the handshake of the current client must have been.
    Tls(TlsCheck),
    /// A scripted application; the steps that follow are its.
    Backend {
        name: String,
        is_unix: bool,
    },
    /// A scripted name server, and what it says from now on.
    NameServer {
        name: String,
        records: Vec<u8>,
    },
    /// How often a name server was asked until now.
    Asked {
        name: String,
        times: usize,
    },
    /// The next connection to the current backend, under this name where it has one.
    Accept(Option<String>),
    /// Nobody has connected to the current backend until now.
    AcceptNobody,
    /// Records of FastCGI to send in one write.
    FastCgi(FastCgi),
    /// A new connection for the current client, which comes to nothing.
    ConnectInVain,
    /// A new connection for the current client, with these bytes in the first packet (0-RTT) where there are any.
    Connect {
        early: Vec<u8>,
    },
    /// Bytes to send in one write, `${NAME}` filled in, so many times.
    Send {
        bytes: Vec<u8>,
        times: u64,
    },
    /// So many bytes of the counting pattern.
    SendCounting(u64),
    /// Half-close.
    Shutdown,
    Close,
    Reset,
    Response(Expected),
    /// These bytes come next.
    Raw(Vec<u8>),
    /// So many bytes come next, whatever they are.
    Take(u64),
    Ending(Ending),
    /// Keeps a field's value of the last response as `${name}`.
    Save {
        name: String,
        field: String,
    },
    Server(ServerAction),
    Run {
        arguments: Vec<String>,
        checks: Vec<(Source, Output)>,
    },
    Expect(Condition),
}

/// What only a client of HTTP/2 does, or waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Http2Step {
    /// Requests in one write; the last one goes on if `is_open`.
    Ask { lines: Vec<String>, is_open: bool },
    /// Content of the last request.
    Content { bytes: Vec<u8>, is_end: bool },
    /// So many bytes of the counting pattern, as the server's windows allow it.
    Upload(u64),
    /// Content until the window is used up for good.
    Fill,
    /// A frame as it is, so many times.
    Frame { kind: u8, flags: u8, stream: u32, payload: Vec<u8>, times: u64 },
    /// The oldest request is reset with this code.
    Reset(String),
    /// A GOAWAY comes with this code.
    Goodbye { code: String, after: Option<u32> },
}

/// How a connection goes on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, without another byte.
    Eof,
    /// By a reset, without another byte.
    Reset,
    /// One of the two, without another byte.
    Closed,
    /// One of the two, whatever comes before.
    Drained,
    /// Nothing has arrived until now.
    Quiet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerAction {
    Start,
    Signal(Signal),
    /// Waits until the server has ended with this code.
    Exit(i32),
}

/// What kind of message is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// A response to a client.
    Response,
    /// A request to a backend, with this line.
    Request(Pattern),
    /// The same in FastCGI, with `keep` or `close` where it matters.
    FastCgi(Option<String>),
    /// The same in SCGI.
    Scgi,
}

/// One response, or one request to a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) message: Message,
    /// `None`: any.
    pub(crate) version: Option<String>,
    /// One of these.
    pub(crate) statuses: Vec<u16>,
    /// `None`: any.
    pub(crate) reason: Option<Pattern>,
    /// False for the answer to HEAD.
    pub(crate) has_body: bool,
    pub(crate) checks: Vec<(Source, Check)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    /// A line of this name has this value.
    Field {
        name: String,
        value: Pattern,
    },
    /// No line of this name (with this value).
    NoField {
        name: String,
        value: Option<Pattern>,
    },
    Trailer {
        name: String,
        value: Pattern,
    },
    Body(BodyCheck),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyCheck {
    Exact(Vec<u8>),
    Length(u64),
    Starts(Vec<u8>),
    Ends(Vec<u8>),
    Contains(Vec<u8>),
    Lacks(Vec<u8>),
    Sha256(String),
    /// The bytes of a file of the transcript, or those from `start` to before `end`.
    File {
        path: String,
        range: Option<(usize, usize)>,
    },
}
