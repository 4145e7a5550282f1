//! What a field is to HTTP/2, told from its name once and remembered with the entry of the dynamic table.
//!
//! Most fields of a request come as an index into a table; remembering makes each of them cost a look-up
//! and a copy, and no check.

use crate::h1::authority;
use crate::h1::bytes::{is_target_all, is_token, is_token_all, is_value};

/// The fields that mean something to the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldKind {
    /// Any other field with a valid name.
    #[default]
    Ordinary,
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol` (RFC 8441)
    Protocol,
    /// `:status`
    Status,
    /// A name that begins with a colon and is none of these.
    UnknownPseudo,
    /// `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade`: they speak of an
    /// HTTP/1 connection (RFC 9113 section 8.2.2).
    ConnectionSpecific,
    /// `te`
    Te,
    /// `host`
    Host,
    /// `content-length`
    ContentLength,
    /// `cookie`, which may come in crumbs (section 8.2.3).
    Cookie,
    /// `expect`
    Expect,
    /// `priority` (RFC 9218)
    Priority,
    /// Not a token in lower case.
    InvalidName,
}

/// What is known of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traits {
    /// By its name.
    pub kind: FieldKind,
    /// The value holds a control byte, or white space at an end (section 8.2.1).
    pub has_invalid_value: bool,
    /// The value is a method, a path with what may stand behind it, or an authority, by a name that asks for one.
    pub has_form: bool,
}

impl Traits {
    /// Judges name and value.
    pub fn of(name: &[u8], value: &[u8]) -> Traits {
        let mut traits = Traits::of_name(name);
        traits.judge_value(value);
        traits
    }

    /// Judges a name. Its value counts as valid until [`Traits::judge_value`] says otherwise.
    pub fn of_name(name: &[u8]) -> Traits {
        Traits { kind: kind_of(name), has_invalid_value: false, has_form: false }
    }

    /// Looks for control bytes, for white space at an end, and for the form that the name asks for.
    #[inline]
    pub fn judge_value(&mut self, value: &[u8]) {
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        self.has_invalid_value =
            is_blank(value.first()) || is_blank(value.last()) || !value.iter().all(|byte| is_value(*byte));
        self.has_form = match self.kind {
            FieldKind::Method => is_token_all(value),
            FieldKind::Path => value.starts_with(b"/") && is_target_all(value),
            FieldKind::Authority => authority::is_valid(value),
            _ => false,
        };
    }
}

fn kind_of(name: &[u8]) -> FieldKind {
    match name {
        b":method" => FieldKind::Method,
        b":scheme" => FieldKind::Scheme,
        b":authority" => FieldKind::Authority,
        b":path" => FieldKind::Path,
        b":protocol" => FieldKind::Protocol,
        b":status" => FieldKind::Status,
        [b':', ..] => FieldKind::UnknownPseudo,
        b"te" => FieldKind::Te,
        b"host" => FieldKind::Host,
        b"cookie" => FieldKind::Cookie,
        b"expect" => FieldKind::Expect,
        b"priority" => FieldKind::Priority,
        b"content-length" => FieldKind::ContentLength,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            FieldKind::ConnectionSpecific
        }
        [] => FieldKind::InvalidName,
        _ if name.iter().all(|byte| is_token(*byte) && !byte.is_ascii_uppercase()) => FieldKind::Ordinary,
        _ => FieldKind::InvalidName,
    }
}

/// Whether a field that an application or a handler gave stays behind when the response goes out over
/// HTTP/2. Compares without regard to case.
#[inline]
pub(super) fn is_connection_specific(name: &[u8]) -> bool {
    let is_one = |of: &[u8]| name.eq_ignore_ascii_case(of);
    match name.len() {
        7 => is_one(b"upgrade"),
        10 => is_one(b"connection") || is_one(b"keep-alive"),
        16 => is_one(b"proxy-connection"),
        17 => is_one(b"transfer-encoding"),
        _ => false,
    }
}
