//! The errors of the codec to the slots they are counted in.

use super::transport::TransportError;
use tidegate_stats::{Handshake, ParseError, TlsError};
use tidegate_tls::{Resumption, SessionError};
use tidegate_wire::h1::{FieldError, FramingError, RequestError};
use tidegate_wire::h2::Malformed;

pub(super) fn kind_of(error: RequestError) -> ParseError {
    match error {
        RequestError::TargetByte { .. } | RequestError::TargetForm => ParseError::Target,
        RequestError::TargetTooLong => ParseError::TargetTooLong,
        RequestError::MissingVersion | RequestError::InvalidVersion | RequestError::UnsupportedVersion => {
            ParseError::Version
        }
        RequestError::HeadTooLarge => ParseError::HeadTooLarge,
        RequestError::Field(error) => kind_of_field(error),
        RequestError::Framing(error) => kind_of_framing(error),
        RequestError::MissingHost
        | RequestError::RepeatedHost
        | RequestError::InvalidHost
        | RequestError::ContradictingHost => ParseError::Host,
        RequestError::InvalidMethod | RequestError::MethodTooLong | RequestError::EmptyLines => {
            ParseError::RequestLine
        }
        _ => ParseError::Other,
    }
}

fn kind_of_field(error: FieldError) -> ParseError {
    match error {
        FieldError::ObsoleteFold => ParseError::FoldedField,
        FieldError::InvalidValue | FieldError::BareCr => ParseError::ControlCharacter,
        FieldError::BareLf => ParseError::BareLineFeed,
        FieldError::TooMany => ParseError::HeadTooLarge,
        _ => ParseError::Field,
    }
}

fn kind_of_framing(error: FramingError) -> ParseError {
    match error {
        FramingError::BothLengthAndCoding => ParseError::AmbiguousLength,
        FramingError::DuplicateLength | FramingError::InvalidLength => ParseError::ContentLength,
        _ => ParseError::TransferEncoding,
    }
}

/// A request of HTTP/2 that was answered by a reset.
pub(super) fn kind_of_malformed(error: Malformed) -> ParseError {
    match error {
        Malformed::FieldName | Malformed::ForbiddenTrailer | Malformed::TrailersNotLast => ParseError::Field,
        Malformed::FieldValue => ParseError::ControlCharacter,
        Malformed::UnknownPseudo
        | Malformed::RepeatedPseudo
        | Malformed::LatePseudo
        | Malformed::MissingPseudo
        | Malformed::ConnectWithPath
        | Malformed::UnexpectedProtocol
        | Malformed::Method
        | Malformed::Scheme => ParseError::RequestLine,
        Malformed::ConnectionField | Malformed::TransferCoding => ParseError::TransferEncoding,
        Malformed::Path => ParseError::Target,
        Malformed::MissingAuthority
        | Malformed::Authority
        | Malformed::ContradictingHost
        | Malformed::RepeatedHost => ParseError::Host,
        Malformed::ContentLength | Malformed::LengthMismatch => ParseError::ContentLength,
        Malformed::Status | Malformed::FinalInterim | Malformed::DataBeforeHead => ParseError::Other,
    }
}

pub(super) fn kind_of_handshake(resumption: Resumption) -> Handshake {
    match resumption {
        Resumption::Full => Handshake::Full,
        Resumption::Resumed => Handshake::Resumed,
        Resumption::Refused => Handshake::Refused,
    }
}

/// `None` for what is no failure of TLS but of the network.
pub(super) fn kind_of_transport(error: &TransportError) -> Option<TlsError> {
    let error = match error {
        TransportError::Tls(error) => error,
        TransportError::Proxy(_) => return Some(TlsError::Proxy),
        TransportError::Socket(_) => return None,
    };
    Some(match error {
        SessionError::NotTls => TlsError::NotTls,
        SessionError::UnknownName | SessionError::NoCertificate => TlsError::NoCertificate,
        SessionError::NothingInCommon(_) => TlsError::NothingInCommon,
        SessionError::ClientCertificate(_) => TlsError::ClientCertificate,
        SessionError::Refused(_) => TlsError::Refused,
        SessionError::Misbehaved(_) => TlsError::Misbehaved,
        SessionError::Left => TlsError::Left,
        SessionError::Socket(_) => return None,
    })
}
