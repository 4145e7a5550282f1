//! Error codes (RFC 9113 section 7), and what a peer can do wrong to a connection or to one stream.

use super::frame::FrameKind;
use super::hpack::DecodeError;
use std::fmt;
use thiserror::Error;

/// Why a stream was reset or a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(
    /// As on the wire; any number may come.
    pub u32,
);

macro_rules! codes {
    ($($number:literal $name:ident $doc:literal)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: ErrorCode = ErrorCode($number);)*

            /// The name of the registry; empty for an unknown code.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    _ => "",
                }
            }
        }
    };
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => write!(f, "unknown ({:#x})", self.0),
            name => f.write_str(name),
        }
    }
}

codes! {
    0x0 NO_ERROR "No error: a graceful end."
    0x1 PROTOCOL_ERROR "A rule was broken that has no code of its own."
    0x2 INTERNAL_ERROR "The sender of the code is at fault."
    0x3 FLOW_CONTROL_ERROR "More was sent than the window allows."
    0x4 SETTINGS_TIMEOUT "Settings were not acknowledged in time."
    0x5 STREAM_CLOSED "A frame for a stream that was closed."
    0x6 FRAME_SIZE_ERROR "A frame of a length that it cannot have."
    0x7 REFUSED_STREAM "Nothing was done with the stream; it may be tried again."
    0x8 CANCEL "The stream is not needed any more."
    0x9 COMPRESSION_ERROR "A field block could not be read."
    0xa CONNECT_ERROR "The connection behind a CONNECT broke."
    0xb ENHANCE_YOUR_CALM "The peer does too much."
    0xc INADEQUATE_SECURITY "The transport is too weak."
    0xd HTTP_1_1_REQUIRED "HTTP/1.1 has to be used."
}

/// What a peer can do too much of. Each is bounded by default and counted under its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flood {
    /// Streams opened and reset by the peer (rapid reset, FAULTS 17).
    Reset,
    /// Streams that the peer made us reset (FAULTS 18).
    ProvokedReset,
    /// Field blocks of too many frames, or too long to be read (FAULTS 19).
    Continuation,
    /// Field sections that are small only while compressed (FAULTS 20).
    FieldSection,
    /// PING
    Ping,
    /// SETTINGS, acknowledgements that nobody waits for included.
    Settings,
    /// DATA without data that ends nothing.
    EmptyData,
    /// PRIORITY and PRIORITY_UPDATE
    Priority,
    /// WINDOW_UPDATE
    WindowUpdate,
    /// Frames of unknown types, or for streams that are over.
    Ignored,
}

impl Flood {
    /// How many kinds there are.
    pub const COUNT: usize = 10;

    /// All kinds, in the order of their numbers.
    pub const ALL: [Flood; Flood::COUNT] = [
        Flood::Reset,
        Flood::ProvokedReset,
        Flood::Continuation,
        Flood::FieldSection,
        Flood::Ping,
        Flood::Settings,
        Flood::EmptyData,
        Flood::Priority,
        Flood::WindowUpdate,
        Flood::Ignored,
    ];

    /// What it is a flood of.
    pub const fn name(self) -> &'static str {
        match self {
            Flood::Reset => "resets",
            Flood::ProvokedReset => "provoked resets",
            Flood::Continuation => "continuation frames",
            Flood::FieldSection => "oversized field sections",
            Flood::Ping => "pings",
            Flood::Settings => "settings",
            Flood::EmptyData => "empty data frames",
            Flood::Priority => "priority frames",
            Flood::WindowUpdate => "window updates",
            Flood::Ignored => "ignored frames",
        }
    }
}

/// What ends a connection. The peer is at fault; it is told by a GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// The first bytes are not the connection preface.
    #[error("the connection preface is wrong")]
    InvalidPreface,
    /// The first frame is not SETTINGS.
    #[error("the first frame is not SETTINGS")]
    MissingSettings,
    /// Longer than SETTINGS_MAX_FRAME_SIZE.
    #[error("{0} frame over the largest size")]
    FrameTooLarge(FrameKind),
    /// A length that frames of this type cannot have.
    #[error("{0} frame of a wrong length")]
    WrongLength(FrameKind),
    /// For stream 0, which is no stream.
    #[error("{0} frame on stream 0")]
    OnConnection(FrameKind),
    /// For a stream, but it concerns the connection.
    #[error("{0} frame on a stream")]
    OnStream(FrameKind),
    /// For a stream that nobody has opened.
    #[error("{0} frame on an idle stream")]
    OnIdleStream(FrameKind),
    /// For a stream that is over.
    #[error("{0} frame on a closed stream")]
    OnClosedStream(FrameKind),
    /// A stream that the peer may not open.
    #[error("a stream number that the peer may not use")]
    InvalidStreamNumber,
    /// Padding as long as the frame or longer.
    #[error("{0} frame with more padding than it holds")]
    TooMuchPadding(FrameKind),
    /// Between the frames of a field block.
    #[error("{0} frame inside of a field block")]
    InsideFieldBlock(FrameKind),
    /// CONTINUATION where no field block is open.
    #[error("CONTINUATION frame outside of a field block")]
    UnexpectedContinuation,
    /// PUSH_PROMISE, which neither side of ours takes.
    #[error("PUSH_PROMISE frame, which was not allowed")]
    UnexpectedPush,
    /// PRIORITY_UPDATE where it cannot be.
    #[error("invalid PRIORITY_UPDATE frame")]
    InvalidPriorityUpdate,
    /// A stream that depends on itself and could not be reset alone.
    #[error("a stream depends on itself")]
    SelfDependency,
    /// A setting with a value that it cannot have.
    #[error("setting {0} has an invalid value")]
    InvalidSetting(u16),
    /// SETTINGS_INITIAL_WINDOW_SIZE above 2^31 - 1.
    #[error("the initial window is above 2^31 - 1")]
    InitialWindowTooLarge,
    /// WINDOW_UPDATE by 0 on the connection.
    #[error("WINDOW_UPDATE by 0")]
    ZeroIncrement,
    /// A window above 2^31 - 1.
    #[error("a window above 2^31 - 1")]
    WindowOverflow,
    /// More data than the connection's window.
    #[error("more data than the window of the connection allows")]
    WindowExceeded,
    /// Field blocks cannot be read any more.
    #[error(transparent)]
    Compression(#[from] DecodeError),
    /// Too much of something.
    #[error("too many {}", .0.name())]
    Flood(Flood),
}

impl ConnectionError {
    /// The code that the peer is told.
    pub fn code(self) -> ErrorCode {
        match self {
            ConnectionError::FrameTooLarge(_) | ConnectionError::WrongLength(_) => {
                ErrorCode::FRAME_SIZE_ERROR
            }
            ConnectionError::OnClosedStream(_) => ErrorCode::STREAM_CLOSED,
            ConnectionError::InitialWindowTooLarge
            | ConnectionError::WindowOverflow
            | ConnectionError::WindowExceeded => ErrorCode::FLOW_CONTROL_ERROR,
            ConnectionError::Compression(_) => ErrorCode::COMPRESSION_ERROR,
            ConnectionError::Flood(_) => ErrorCode::ENHANCE_YOUR_CALM,
            _ => ErrorCode::PROTOCOL_ERROR,
        }
    }
}

/// What ends one stream. The peer is at fault; it is told by a RST_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamError {
    /// A head or a trailer section that breaks a rule of section 8.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Fields of a response, or behind it, beyond what is taken of a message (section 10.5.1).
    #[error("a field section larger than is taken")]
    FieldSectionTooLarge,
    /// DATA or HEADERS behind the end of the stream.
    #[error("a frame behind the end of the stream")]
    Closed,
    /// More streams at once than the settings allow.
    #[error("more streams at once than allowed")]
    TooManyStreams,
    /// WINDOW_UPDATE by 0.
    #[error("WINDOW_UPDATE by 0")]
    ZeroIncrement,
    /// A window above 2^31 - 1.
    #[error("a window above 2^31 - 1")]
    WindowOverflow,
    /// More data than the stream's window.
    #[error("more data than the window of the stream allows")]
    WindowExceeded,
    /// A stream that depends on itself.
    #[error("a stream depends on itself")]
    SelfDependency,
    /// PRIORITY of a length other than 5.
    #[error("PRIORITY frame of a wrong length")]
    PriorityLength,
    /// Empty DATA frames without end, of a server's stream.
    #[error("empty DATA frames without end")]
    EmptyData,
}

impl StreamError {
    /// The code that the peer is told.
    pub fn code(self) -> ErrorCode {
        match self {
            StreamError::Malformed(_) | StreamError::ZeroIncrement | StreamError::SelfDependency => {
                ErrorCode::PROTOCOL_ERROR
            }
            StreamError::Closed => ErrorCode::STREAM_CLOSED,
            StreamError::TooManyStreams => ErrorCode::REFUSED_STREAM,
            StreamError::WindowOverflow | StreamError::WindowExceeded => ErrorCode::FLOW_CONTROL_ERROR,
            StreamError::PriorityLength => ErrorCode::FRAME_SIZE_ERROR,
            StreamError::EmptyData | StreamError::FieldSectionTooLarge => ErrorCode::ENHANCE_YOUR_CALM,
        }
    }
}

/// A message that breaks a rule (RFC 9113 section 8.1.1): what could not be written as HTTP/1 without
/// changing its meaning is among these (FAULTS 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// A name that is not a token in lower case.
    #[error("field name that is not a token in lower case")]
    FieldName,
    /// A value with a control byte in it, or white space at an end.
    #[error("field value with a control byte or with white space at an end")]
    FieldValue,
    /// A pseudo-field that is not defined, or not for this kind of message.
    #[error("pseudo-field that does not belong here")]
    UnknownPseudo,
    /// A pseudo-field twice.
    #[error("pseudo-field more than once")]
    RepeatedPseudo,
    /// A pseudo-field behind an ordinary field.
    #[error("pseudo-field behind other fields")]
    LatePseudo,
    /// A pseudo-field that the message must have.
    #[error("missing pseudo-field")]
    MissingPseudo,
    /// A pseudo-field that a CONNECT must not have.
    #[error("CONNECT with a scheme or a path")]
    ConnectWithPath,
    /// `:protocol` that was not announced, or without CONNECT.
    #[error("unexpected :protocol")]
    UnexpectedProtocol,
    /// A field of HTTP/1 connections.
    #[error("field that belongs to an HTTP/1 connection")]
    ConnectionField,
    /// `te` with something else than `trailers`.
    #[error("te with something else than trailers")]
    TransferCoding,
    /// Not a token, or too long for one.
    #[error("invalid :method")]
    Method,
    /// Not a scheme.
    #[error("invalid :scheme")]
    Scheme,
    /// Empty, of a wrong form, or with a byte that must be encoded.
    #[error(":path does not begin with a slash, or holds a byte that has to be percent-encoded")]
    Path,
    /// Neither `:authority` nor `host`.
    #[error("no authority")]
    MissingAuthority,
    /// Not a host with an optional port.
    #[error("invalid authority")]
    Authority,
    /// `host` names another authority than `:authority`.
    #[error("host contradicts :authority")]
    ContradictingHost,
    /// `host` more than once.
    #[error("host more than once")]
    RepeatedHost,
    /// Not a number from 100 to 599, or 101.
    #[error("invalid :status")]
    Status,
    /// An interim response that ends the stream.
    #[error("interim response at the end of a stream")]
    FinalInterim,
    /// `content-length` that is not a number, or twice.
    #[error("invalid content-length")]
    ContentLength,
    /// Another length than `content-length` says.
    #[error("content of another length than content-length says")]
    LengthMismatch,
    /// A second field section that does not end the stream.
    #[error("trailers that do not end the stream")]
    TrailersNotLast,
    /// A trailer that would change framing or routing.
    #[error("trailer that only a head may have")]
    ForbiddenTrailer,
    /// DATA before the response's head.
    #[error("content before a response")]
    DataBeforeHead,
}
