//! One field section, decoded (RFC 9113 section 8): checked while it comes in, lent when it is complete.
//!
//! A worker keeps one `Section` for all of its connections: blocks are decoded one at a time, so a request
//! costs no allocation and an idle connection no buffer. It is bounded by [`HeadLimits`]: what comes behind
//! the limit is read, since the tables of both sides must stay alike, but not kept.

use super::error::Malformed;
use super::field_kind::{FieldKind, Traits};
use super::hpack::FIELD_OVERHEAD;
use super::priority::Priority;
use crate::h1::authority;
use crate::h1::bytes::{ascii, is_token_all};
use crate::h1::framing::content_length;
use crate::h1::trailers::FORBIDDEN;
use crate::h1::{FieldSpace, HeadLimits, MAX_FIELDS, MAX_METHOD};
use tidegate_http::{Field, Fields};

/// What a section is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Purpose {
    /// Nobody wants it: decoded for the tables only.
    #[default]
    Ignored,
    Request {
        allows_protocol: bool,
    },
    Response,
    Trailers,
}

/// The field section that was read last.
#[derive(Debug, Default)]
pub struct Section {
    purpose: Purpose,
    limits: HeadLimits,
    /// Names of the ordinary fields, one behind the other.
    names: Vec<u8>,
    /// Values of all fields.
    values: Vec<u8>,
    spans: Vec<Span>,
    /// Cookie crumbs, joined.
    cookie: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    /// Where in `values`: method, scheme, authority, path, protocol, status.
    pseudo: [Option<Range>; 6],
    /// Which of them have the form that their names ask for.
    has_form: [bool; 6],
    /// Where those values end, which come first.
    pseudo_end: usize,
    host: Option<Range>,
    fault: Option<Malformed>,
    refusal: Option<u16>,
    size: usize,
    is_behind_pseudo: bool,
    content_length: Option<u64>,
    expects_continue: bool,
    priority: Option<Priority>,
    status: u16,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    /// Where the name ends; it begins where the one before ends.
    name_end: u32,
    value: Range,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u32,
    end: u32,
}

const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;
const STATUS: usize = 5;

/// A request's head, borrowed from its section.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'h, 'b> {
    /// A token of at most [`MAX_METHOD`] bytes.
    pub method: &'b str,
    /// `http`, `https`, or what else the client says; empty for CONNECT.
    pub scheme: &'b str,
    /// `host` or `host:port`, valid: of `:authority`, else of `host`.
    pub authority: &'b str,
    /// `/path?query`, or `*` for OPTIONS. For CONNECT, the authority.
    pub target: &'b str,
    /// `:protocol` of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'b str>,
    /// The fields; cookie crumbs are one line, and `host` is there in any case.
    pub fields: Fields<'h>,
    /// As announced.
    pub content_length: Option<u64>,
    /// The client waits for 100 before it sends its content.
    pub expects_continue: bool,
    /// The `priority` field.
    pub priority: Option<Priority>,
}

/// A response's head, borrowed from its section.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'h> {
    /// From 100 to 599, never 101.
    pub status: u16,
    /// The fields.
    pub fields: Fields<'h>,
    /// As announced.
    pub content_length: Option<u64>,
}

impl Section {
    /// An empty section, which holds no memory.
    pub fn new() -> Section {
        Section::default()
    }

    /// The request that an event told of.
    pub fn request<'h, 'b>(&'b self, space: &'h mut FieldSpace<'b>) -> RequestHead<'h, 'b> {
        // Looked at once for all; what is refused may hold anything, and is then looked at one by one.
        let pseudo = ascii(self.values.get(..self.pseudo_end).unwrap_or_default());
        let text = |range: Range| match &pseudo {
            Some(all) => {
                all.get(range.start as usize..range.end as usize).unwrap_or_else(|| self.text(range))
            }
            None => self.text(range),
        };
        let [method, scheme, authority, path, protocol, _] = self.pseudo;
        let authority = authority.or(self.host).map_or("", text);
        RequestHead {
            method: method.map_or("", text),
            scheme: scheme.map_or("", text),
            authority,
            target: path.map_or(authority, text),
            protocol: protocol.map(text),
            fields: self.fields(space),
            content_length: self.content_length,
            expects_continue: self.expects_continue,
            priority: self.priority,
        }
    }

    /// The response that an event told of.
    pub fn response<'h, 'b>(&'b self, space: &'h mut FieldSpace<'b>) -> ResponseHead<'h> {
        ResponseHead { status: self.status, fields: self.fields(space), content_length: self.content_length }
    }

    /// The fields alone: trailers.
    pub fn fields<'h, 'b>(&'b self, space: &'h mut FieldSpace<'b>) -> Fields<'h> {
        space.clear();
        // Only valid names are kept, and those are ASCII.
        let names = ascii(&self.names).unwrap_or_default();
        let mut start = 0;
        for span in &self.spans {
            let name = names.get(start..span.name_end as usize).unwrap_or_default();
            start = span.name_end as usize;
            space.push(Field { name, value: self.slice(span.value) });
        }
        Fields::new(space.as_slice())
    }

    /// Bytes of the names and values that were kept.
    pub fn size(&self) -> usize {
        self.names.len() + self.values.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.names.capacity()
            + self.values.capacity()
            + self.cookie.capacity()
            + self.scratch.capacity()
            + self.spans.capacity() * size_of::<Span>()
    }

    fn slice(&self, range: Range) -> &[u8] {
        self.values.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    fn text(&self, range: Range) -> &str {
        std::str::from_utf8(self.slice(range)).unwrap_or_default()
    }

    fn pseudo_bytes(&self, which: usize) -> Option<&[u8]> {
        self.pseudo.get(which).copied().flatten().map(|range| self.slice(range))
    }

    /// Forgets the section before.
    pub(super) fn begin(&mut self, purpose: Purpose, limits: &HeadLimits) {
        self.purpose = purpose;
        self.limits = *limits;
        // Two places are ours: the joined cookie, and `host`.
        self.limits.fields = limits.fields.min(MAX_FIELDS - 2);
        self.names.clear();
        self.values.clear();
        self.spans.clear();
        self.cookie.clear();
        (self.pseudo, self.has_form) = ([None; 6], [false; 6]);
        (self.pseudo_end, self.host) = (0, None);
        (self.fault, self.refusal, self.size) = (None, None, 0);
        self.is_behind_pseudo = false;
        (self.content_length, self.expects_continue, self.priority, self.status) = (None, false, None, 0);
    }

    /// Takes a field.
    #[inline]
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], traits: Traits) {
        self.size = self.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if self.purpose == Purpose::Ignored || self.fault.is_some() {
            return;
        }
        if self.size > self.limits.head_size {
            self.refusal.get_or_insert(431);
            return;
        }
        if let Err(fault) = self.take(name, value, traits) {
            self.fault = Some(fault);
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8], traits: Traits) -> Result<(), Malformed> {
        if traits.has_invalid_value {
            return Err(Malformed::FieldValue);
        }
        let is_head = self.purpose != Purpose::Trailers;
        match traits.kind {
            FieldKind::Ordinary => {}
            FieldKind::InvalidName => return Err(Malformed::FieldName),
            FieldKind::ConnectionSpecific => return Err(Malformed::ConnectionField),
            FieldKind::UnknownPseudo => return Err(Malformed::UnknownPseudo),
            FieldKind::Te if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(Malformed::TransferCoding);
            }
            FieldKind::Host if is_head && self.host.is_some() => return Err(Malformed::RepeatedHost),
            FieldKind::Cookie if is_head && matches!(self.purpose, Purpose::Request { .. }) => {
                return self.take_crumb(value);
            }
            FieldKind::ContentLength if is_head => {
                if self.content_length.is_some() {
                    return Err(Malformed::ContentLength);
                }
                self.content_length = Some(content_length(value).ok_or(Malformed::ContentLength)?);
            }
            FieldKind::Expect if matches!(self.purpose, Purpose::Request { .. }) && !value.is_empty() => {
                self.expects_continue = true;
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    self.refusal.get_or_insert(417);
                }
            }
            FieldKind::Priority if is_head => self.priority = Some(Priority::parse(value)),
            FieldKind::Te
            | FieldKind::Host
            | FieldKind::Cookie
            | FieldKind::ContentLength
            | FieldKind::Expect
            | FieldKind::Priority => {}
            FieldKind::Method => return self.take_pseudo(METHOD, value, traits),
            FieldKind::Scheme => return self.take_pseudo(SCHEME, value, traits),
            FieldKind::Authority => return self.take_pseudo(AUTHORITY, value, traits),
            FieldKind::Path => return self.take_pseudo(PATH, value, traits),
            FieldKind::Protocol => return self.take_pseudo(PROTOCOL, value, traits),
            FieldKind::Status => return self.take_pseudo(STATUS, value, traits),
        }
        if !is_head && FORBIDDEN.iter().any(|forbidden| name == forbidden.as_bytes()) {
            return Err(Malformed::ForbiddenTrailer);
        }
        self.is_behind_pseudo = true;
        let value = self.keep_field(name, value);
        if traits.kind == FieldKind::Host && is_head {
            self.host = value;
        }
        Ok(())
    }

    fn take_pseudo(&mut self, which: usize, value: &[u8], traits: Traits) -> Result<(), Malformed> {
        let belongs = match self.purpose {
            Purpose::Request { .. } => which != STATUS,
            Purpose::Response => which == STATUS,
            Purpose::Trailers | Purpose::Ignored => false,
        };
        if !belongs {
            return Err(Malformed::UnknownPseudo);
        }
        if self.is_behind_pseudo {
            return Err(Malformed::LatePseudo);
        }
        if which == PATH && value.len() > self.limits.target_size {
            self.refusal.get_or_insert(414);
        }
        if which == METHOD && value.len() > MAX_METHOD {
            self.refusal.get_or_insert(501);
        }
        let range = self.keep_value(value);
        self.pseudo_end = self.values.len();
        if let Some(has_form) = self.has_form.get_mut(which) {
            *has_form = traits.has_form;
        }
        match self.pseudo.get_mut(which) {
            Some(slot @ None) => *slot = Some(range),
            _ => return Err(Malformed::RepeatedPseudo),
        }
        Ok(())
    }

    /// Crumbs become one line again before anyone else sees them (section 8.2.3).
    fn take_crumb(&mut self, value: &[u8]) -> Result<(), Malformed> {
        self.is_behind_pseudo = true;
        if !self.cookie.is_empty() {
            self.cookie.extend_from_slice(b"; ");
        }
        self.cookie.extend_from_slice(value);
        Ok(())
    }

    fn keep_value(&mut self, value: &[u8]) -> Range {
        let start = self.values.len() as u32;
        self.values.extend_from_slice(value);
        Range { start, end: self.values.len() as u32 }
    }

    fn keep_field(&mut self, name: &[u8], value: &[u8]) -> Option<Range> {
        if self.spans.len() >= self.limits.fields {
            self.refusal.get_or_insert(431);
            return None;
        }
        self.names.extend_from_slice(name);
        let value = self.keep_value(value);
        self.spans.push(Span { name_end: self.names.len() as u32, value });
        Some(value)
    }

    /// Appends a field of ours, in one of the places left for it.
    fn add_field(&mut self, name: &str, value: Range) {
        self.names.extend_from_slice(name.as_bytes());
        self.spans.push(Span { name_end: self.names.len() as u32, value });
    }

    /// The section is complete: what is wrong with it, if anything, or the status to refuse it with.
    pub(super) fn finish(&mut self) -> Result<Option<u16>, Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match self.purpose {
            Purpose::Ignored | Purpose::Trailers => {}
            // A section that was cut off is not judged further.
            Purpose::Request { .. } if self.refusal == Some(431) => {}
            Purpose::Request { allows_protocol } => self.finish_request(allows_protocol)?,
            Purpose::Response => {
                let digits = self.pseudo_bytes(STATUS).ok_or(Malformed::MissingPseudo)?;
                self.status = match digits {
                    // Beyond 599 is invalid (RFC 9110 section 15), as in HTTP/1.
                    [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                        u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
                    }
                    _ => return Err(Malformed::Status),
                };
                if self.status == 101 {
                    return Err(Malformed::Status);
                }
            }
        }
        Ok(self.refusal)
    }

    fn finish_request(&mut self, allows_protocol: bool) -> Result<(), Malformed> {
        let method = self.pseudo_bytes(METHOD).ok_or(Malformed::MissingPseudo)?;
        if !self.has_form[METHOD] {
            return Err(Malformed::Method);
        }
        let is_connect = method == b"CONNECT";
        let is_options = method == b"OPTIONS";
        let has_protocol = self.pseudo[PROTOCOL].is_some();
        if has_protocol && !(is_connect && allows_protocol) {
            return Err(Malformed::UnexpectedProtocol);
        }
        if is_connect && !has_protocol {
            return self.finish_connect();
        }
        if self.pseudo_bytes(PROTOCOL).is_some_and(|protocol| !is_token_all(protocol)) {
            return Err(Malformed::UnknownPseudo);
        }
        // What follows a CONNECT is no content (RFC 9110 section 9.3.6, RFC 9113 section 8.5).
        if has_protocol && self.content_length.is_some() {
            return Err(Malformed::ContentLength);
        }
        let scheme = self.pseudo_bytes(SCHEME).ok_or(Malformed::MissingPseudo)?;
        let default_port = match scheme {
            b"http" => 80,
            b"https" => 443,
            [first, rest @ ..]
                if first.is_ascii_alphabetic()
                    && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) =>
            {
                0
            }
            _ => return Err(Malformed::Scheme),
        };
        let path = self.pseudo_bytes(PATH).ok_or(Malformed::MissingPseudo)?;
        let suits = match path {
            [b'/', ..] => self.has_form[PATH],
            b"*" => is_options,
            _ => false,
        };
        if !suits {
            return Err(Malformed::Path);
        }
        let host = self.host.map(|range| self.slice(range));
        let named = self.pseudo_bytes(AUTHORITY);
        let authority = named.or(host).ok_or(Malformed::MissingAuthority)?;
        let is_valid =
            if named.is_some() { self.has_form[AUTHORITY] } else { authority::is_valid(authority) };
        if !is_valid {
            return Err(Malformed::Authority);
        }
        if let (Some(named), Some(host)) = (named, host)
            && (!authority::is_valid(host) || !authority::is_same(named, host, default_port))
        {
            return Err(Malformed::ContradictingHost);
        }
        self.complete_fields();
        Ok(())
    }

    /// RFC 9113 section 8.5.
    fn finish_connect(&mut self) -> Result<(), Malformed> {
        if self.pseudo[SCHEME].is_some() || self.pseudo[PATH].is_some() {
            return Err(Malformed::ConnectWithPath);
        }
        if self.content_length.is_some() {
            return Err(Malformed::ContentLength);
        }
        let authority = self.pseudo_bytes(AUTHORITY).ok_or(Malformed::MissingPseudo)?;
        if !authority::is_valid_with_port(authority) {
            return Err(Malformed::Authority);
        }
        let host = self.host.map(|range| self.slice(range));
        if host.is_some_and(|host| !authority::is_same(authority, host, 0)) {
            return Err(Malformed::ContradictingHost);
        }
        self.complete_fields();
        Ok(())
    }

    /// Adds what whoever reads the fields expects: the cookie in one line, and `host`.
    fn complete_fields(&mut self) {
        if !self.cookie.is_empty() {
            let cookie = std::mem::take(&mut self.cookie);
            let range = self.keep_value(&cookie);
            self.cookie = cookie;
            self.add_field("cookie", range);
        }
        if self.host.is_none()
            && let Some(authority) = self.pseudo[AUTHORITY]
        {
            self.add_field("host", authority);
        }
    }

    /// What the head says of the content's length.
    pub(super) fn announced_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The `priority` field.
    pub(super) fn announced_priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Of a response.
    pub(super) fn status(&self) -> u16 {
        self.status
    }
}
