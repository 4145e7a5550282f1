//! The way of an answer from its application: the head, then content with its framing taken off.

use super::about::About;
use super::complaints::Complaints;
use super::fields::{is_for_servers, may_be_trailer};
use crate::login::OwnCookies;
use std::cell::Cell;
use std::io;
use thiserror::Error;
use tidegate_client::http1::HeadReader;
use tidegate_core::interim::{Interim, InterimQueue};
use tidegate_core::{Author, buffer_pool};
use tidegate_http::words::eq_ignore_case;
use tidegate_http::{Field, FieldLines, HttpDate, Status, field, parse_decimal};
use tidegate_wire::cgi::{self, CgiError};
use tidegate_wire::fastcgi::{Event, FastCgiError, ProtocolStatus, ResponseDecoder};
use tidegate_wire::h1::{
    BodyDecoder, BodyError, BodyLength, FieldSpace, HeadLimits, ResponseError, ResponseHead, ResponseKind,
};

/// What a head of an answer may cost.
pub(super) const LIMITS: HeadLimits = HeadLimits { head_size: 64 << 10, target_size: 8 << 10, fields: 200 };

/// What is wrong with an answer. The application is at fault: 502, and its connection is not used again.
#[derive(Debug, Error)]
pub(super) enum AnswerError {
    #[error("it has answered with {0}")]
    Http(#[from] ResponseError),
    #[error("it has answered with {0}")]
    Cgi(#[from] CgiError),
    #[error("it has answered with {0}")]
    FastCgi(#[from] FastCgiError),
    #[error("in its answer is {0}")]
    Body(#[from] BodyError),
    #[error("it has no room for another request")]
    Overloaded,
    #[error("it refuses the role of a responder")]
    UnknownRole,
    #[error("it has closed the connection before its answer was complete")]
    Truncated,
    #[error("it has switched protocols unasked")]
    UnaskedSwitch,
    #[error("it has switched to {0:?}, though the request has asked for {1:?}")]
    OtherSwitch(String, String),
    #[error("its answer is longer than it has announced")]
    Excess,
    /// Who gets it has nothing that it could stand for (RFC 9110 section 15.4.5).
    #[error("it has answered with 304, though the request did not ask whether anything has changed")]
    UnaskedNotModified,
}

/// The head of an answer, as a response needs it.
pub(super) struct AnswerHead {
    pub(super) status: Status,
    /// What goes on to the client.
    pub(super) lines: FieldLines,
    /// Whether it says when it was made.
    pub(super) author: Author,
    /// Among it is a field that leads somewhere: `Location`, `Content-Location`.
    pub(super) leads: bool,
    /// What kind of content it is has been said.
    has_type: bool,
    /// Bytes of content that the application has announced.
    pub(super) len: Option<u64>,
    /// 101.
    pub(super) is_switch: bool,
    /// In a box, since few name anything.
    instead: Option<Box<Instead>>,
}

/// What an answer wants in its place.
#[derive(Default)]
struct Instead {
    /// `X-Sendfile`.
    sendfile: Option<Vec<u8>>,
    /// `X-Accel-Redirect`.
    accel_redirect: Option<Vec<u8>>,
    /// A path that is answered (RFC 3875 section 6.2.2).
    local_redirect: Option<Vec<u8>>,
}

/// Reads an answer up to the end of its head.
pub(super) enum HeadOf {
    /// HTTP/1, with a method that has the same kind of answer, and whether a switch of protocols was asked for.
    Http { reader: HeadReader, method: &'static str, may_switch: bool, body: Option<(BodyLength, bool)> },
    /// FastCGI.
    FastCgi { decoder: ResponseDecoder, stdout: Vec<u8>, complaints: Complaints },
    /// SCGI: CGI until the connection ends, and whether it has.
    Scgi { stdout: Vec<u8>, has_ended: bool },
}

impl HeadOf {
    /// Takes bytes; the head, once it is there. `memory` is asked for room for what lies behind it, `about` what complaints
    /// are about; interim answers go to `interim`, and set none of `own_cookies`.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        memory: impl FnOnce() -> Vec<u8>,
        about: impl Fn() -> About,
        interim: Option<&InterimQueue>,
        own_cookies: &OwnCookies,
    ) -> Result<Option<AnswerHead>, AnswerError> {
        match self {
            HeadOf::Http { reader, method, may_switch, body } => {
                let may_switch = *may_switch;
                // Of a connection that only ends, the request may have to be sent once more.
                if !bytes.is_empty() {
                    reader.lend(memory);
                }
                let head = reader.push(
                    bytes,
                    &LIMITS,
                    method,
                    |head| {
                        if let Some(queue) = interim {
                            let AnswerHead { status, mut lines, .. } = from_http(head);
                            own_cookies.take_out_of(&mut lines);
                            // It may wait for long: in memory of its own, and no more than it needs.
                            queue.push(Interim { status, lines: lines.clone() });
                            buffer_pool::give_back(lines.into_memory());
                        }
                    },
                    |head| {
                        *body = Some((head.body, head.keep_alive));
                        (head.kind, from_http(head))
                    },
                )?;
                match head {
                    Some((ResponseKind::Switching, _)) if !may_switch => Err(AnswerError::UnaskedSwitch),
                    head => Ok(head.map(|(_, head)| head)),
                }
            }
            HeadOf::FastCgi { decoder, stdout, complaints } => {
                let before = stdout.len();
                let mut rest = bytes;
                // Most often the first of it is all of the head, and only what lies behind that is kept.
                let mut first: Option<(AnswerHead, &[u8])> = None;
                while !rest.is_empty() && !decoder.is_complete() {
                    let step = decoder.decode(rest)?;
                    match step.event {
                        Event::Stdout(data) if stdout.is_empty() && first.is_none() => {
                            match read_cgi(data)? {
                                Some((head, len)) => {
                                    first = Some((head, data.get(len..).unwrap_or_default()))
                                }
                                None => stdout.extend_from_slice(data),
                            }
                        }
                        Event::Stdout(data) => {
                            if let Some((_, behind)) = &mut first {
                                stdout.extend_from_slice(std::mem::take(behind));
                            }
                            stdout.extend_from_slice(data);
                        }
                        Event::Stderr(data) => {
                            complaints.are_about(&about);
                            complaints.push(data);
                        }
                        Event::End(end) => check_end(end.status)?,
                        Event::Nothing | Event::Values(_) => {}
                    }
                    rest = rest.get(step.consumed..).unwrap_or_default();
                }
                if !rest.is_empty() {
                    return Err(AnswerError::Excess);
                }
                if let Some((head, behind)) = first {
                    if !behind.is_empty() {
                        *stdout = memory();
                        stdout.extend_from_slice(behind);
                    }
                    return Ok(Some(head));
                }
                if stdout.len() == before && !decoder.has_ended() {
                    return Ok(None);
                }
                match from_cgi(stdout)? {
                    None if decoder.has_ended() => Err(CgiError::Truncated.into()),
                    head => Ok(head),
                }
            }
            HeadOf::Scgi { stdout, .. } => {
                stdout.extend_from_slice(bytes);
                from_cgi(stdout)
            }
        }
    }

    /// Whether nothing at all has come.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            HeadOf::Http { reader, .. } => reader.is_empty(),
            HeadOf::FastCgi { stdout, .. } | HeadOf::Scgi { stdout, .. } => stdout.is_empty(),
        }
    }

    /// All of the content, and whether the connection can be used again, where it has come together with the head and nothing
    /// behind it: most often there is nothing to be read on. `len` is what the head has announced. Otherwise nothing is taken.
    pub(super) fn take_whole(&mut self, len: Option<u64>) -> Option<(Vec<u8>, bool)> {
        match self {
            HeadOf::Http { reader, body: Some((BodyLength::Length(len), may_keep)), .. } => {
                (reader.rest().len() as u64 == *len).then(|| (reader.take_rest(), *may_keep))
            }
            HeadOf::FastCgi { decoder, stdout, .. } => {
                let is_whole = decoder.is_complete() && len.is_none_or(|len| len == stdout.len() as u64);
                is_whole.then(|| (std::mem::take(stdout), true))
            }
            HeadOf::Http { .. } | HeadOf::Scgi { .. } => None,
        }
    }

    /// All of it, for somebody else to read on.
    pub(super) fn take(&mut self) -> HeadOf {
        std::mem::replace(self, HeadOf::Scgi { stdout: Vec::new(), has_ended: true })
    }

    /// What reads the content, and the content that is here already.
    pub(super) fn into_content(self, len: Option<u64>) -> Result<(Content, Vec<u8>), AnswerError> {
        let (framing, early, may_keep) = match self {
            HeadOf::Http { mut reader, body, .. } => {
                let (body, may_keep) = body.unwrap_or((BodyLength::Empty, false));
                let decoder = BodyDecoder::new(body, LIMITS);
                let mut content = Content {
                    framing: FramingOf::Http(decoder),
                    left: None,
                    may_keep,
                    trailers: FieldLines::new(),
                };
                let mut early = reader.take_rest();
                let count = early.len();
                let count = content.decode_in_place(&mut early, count)?;
                early.truncate(count);
                return Ok((content, early));
            }
            HeadOf::FastCgi { decoder, stdout, complaints } => {
                (FramingOf::FastCgi { decoder, complaints }, stdout, true)
            }
            HeadOf::Scgi { stdout, has_ended } => (FramingOf::UntilClose { has_ended }, stdout, false),
        };
        let mut content = Content { framing, left: len, may_keep, trailers: FieldLines::new() };
        let mut early = early;
        let count = content.within_announced(early.len())?;
        early.truncate(count);
        Ok((content, early))
    }
}

fn check_end(status: ProtocolStatus) -> Result<(), AnswerError> {
    match status {
        ProtocolStatus::RequestComplete => Ok(()),
        ProtocolStatus::UnknownRole => Err(AnswerError::UnknownRole),
        _ => Err(AnswerError::Overloaded),
    }
}

enum FramingOf {
    Http(BodyDecoder),
    FastCgi { decoder: ResponseDecoder, complaints: Complaints },
    UntilClose { has_ended: bool },
}

/// Takes the framing off the content of an answer.
pub(super) struct Content {
    framing: FramingOf,
    /// Bytes that a CGI head has announced and that are still to come.
    left: Option<u64>,
    may_keep: bool,
    trailers: FieldLines,
}

impl Content {
    /// Decodes the first `count` bytes of `buffer`, and puts the content in their place; its bytes.
    pub(super) fn decode_in_place(&mut self, buffer: &mut [u8], count: usize) -> Result<usize, AnswerError> {
        let (mut at, mut out) = (0, 0);
        while at < count {
            let input = buffer.get(at..count).unwrap_or_default();
            let (consumed, data) = match &mut self.framing {
                FramingOf::Http(decoder) => {
                    let decoded = decoder.decode(input)?;
                    (decoded.consumed, decoded.data.len())
                }
                FramingOf::FastCgi { decoder, complaints } => {
                    let step = decoder.decode(input)?;
                    let data = match step.event {
                        Event::Stdout(data) => data.len(),
                        Event::Stderr(data) => {
                            complaints.push(data);
                            0
                        }
                        // The head has gone out: what it was cannot be taken back.
                        Event::End(_) | Event::Nothing | Event::Values(_) => 0,
                    };
                    (step.consumed, data)
                }
                FramingOf::UntilClose { .. } => (input.len(), input.len()),
            };
            if consumed == 0 {
                // The answer is complete, and something follows that nobody has asked for.
                self.may_keep = false;
                break;
            }
            at += consumed;
            if data > 0 {
                if at - data != out {
                    buffer.copy_within(at - data..at, out);
                }
                out += data;
            }
        }
        if let FramingOf::Http(decoder) = &mut self.framing
            && let Some(trailers) = decoder.take_trailers()
        {
            self.trailers = to_client(trailers.iter().map(|field| (field.name, field.value)));
        }
        self.within_announced(out)
    }

    /// Content beyond what the head has announced is cut off, as its reader would.
    fn within_announced(&mut self, count: usize) -> Result<usize, AnswerError> {
        let Some(left) = &mut self.left else { return Ok(count) };
        let within = usize::try_from(*left).unwrap_or(usize::MAX).min(count);
        *left = left.saturating_sub(within as u64);
        if within < count {
            self.may_keep = false;
        }
        Ok(within)
    }

    /// Says what request an application may still complain of.
    pub(super) fn is_about(&mut self, about: impl FnOnce() -> About) {
        if let FramingOf::FastCgi { complaints, .. } = &mut self.framing {
            complaints.are_about(about);
        }
    }

    /// All of it, for somebody else to read on.
    pub(super) fn take(&mut self) -> Content {
        let over = Content {
            framing: FramingOf::UntilClose { has_ended: true },
            left: None,
            may_keep: false,
            trailers: FieldLines::new(),
        };
        std::mem::replace(self, over)
    }

    /// What reads the records of a FastCGI answer.
    pub(super) fn into_records(self) -> Option<ResponseDecoder> {
        match self.framing {
            FramingOf::FastCgi { decoder, .. } => Some(decoder),
            FramingOf::Http(_) | FramingOf::UntilClose { .. } => None,
        }
    }

    /// The connection has ended.
    pub(super) fn close(&mut self) -> Result<(), AnswerError> {
        self.may_keep = false;
        match &mut self.framing {
            FramingOf::Http(decoder) => decoder.close().map_err(|_| AnswerError::Truncated)?,
            FramingOf::FastCgi { .. } => return Err(AnswerError::Truncated),
            FramingOf::UntilClose { has_ended } => *has_ended = true,
        }
        self.check_announced()
    }

    /// Whether nothing but the end of the connection tells its end, and it has not come.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self.framing, FramingOf::UntilClose { has_ended: false })
    }

    /// Whether a record tells its end, behind the content, and it has not come.
    pub(super) fn ends_with_record(&self) -> bool {
        matches!(&self.framing, FramingOf::FastCgi { decoder, .. } if !decoder.is_complete())
    }

    /// Whether all of the answer was read.
    pub(super) fn is_complete(&self) -> bool {
        match &self.framing {
            FramingOf::Http(decoder) => decoder.is_complete(),
            FramingOf::FastCgi { decoder, .. } => decoder.is_complete(),
            FramingOf::UntilClose { has_ended } => *has_ended || self.left == Some(0),
        }
    }

    /// An answer that is complete must have been as long as it said.
    pub(super) fn check_announced(&self) -> Result<(), AnswerError> {
        if self.left.is_some_and(|left| left > 0) { Err(AnswerError::Truncated) } else { Ok(()) }
    }

    /// Whether the connection can be used again.
    pub(super) fn may_keep(&self) -> bool {
        self.may_keep && self.is_complete()
    }

    /// Bytes of the whole content that are still to come, where somebody has said so.
    pub(super) fn remaining(&self) -> Option<u64> {
        match &self.framing {
            FramingOf::Http(decoder) => decoder.remaining(),
            _ => self.left,
        }
    }

    /// Bytes of content that can be passed on as they come.
    pub(super) fn plain(&self) -> u64 {
        if let FramingOf::Http(decoder) = &self.framing { decoder.plain() } else { 0 }
    }

    /// So many of them have been.
    pub(super) fn skip(&mut self, count: u64) {
        if let FramingOf::Http(decoder) = &mut self.framing {
            decoder.skip(count);
        }
    }

    /// The trailer fields that may go on to the client.
    pub(super) fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }
}

/// The trailers of an answer that go on to the client.
pub(super) fn to_client<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> FieldLines {
    let mut lines = FieldLines::new();
    for (name, value) in fields.filter(|(name, _)| may_be_trailer(name) && !is_for_servers(name)) {
        lines.push(name, value);
    }
    lines
}

fn from_cgi(stdout: &mut Vec<u8>) -> Result<Option<AnswerHead>, AnswerError> {
    let Some((head, len)) = read_cgi(stdout)? else { return Ok(None) };
    stdout.drain(..len);
    Ok(Some(head))
}

/// A head and its length, once it is complete.
fn read_cgi(bytes: &[u8]) -> Result<Option<(AnswerHead, usize)>, AnswerError> {
    let mut space = FieldSpace::new();
    let Some(head) = cgi::parse_head(bytes, &LIMITS, &mut space)? else { return Ok(None) };
    let mut answer = AnswerHead::new(Status(head.status), head.content_length);
    if let Some(cgi::Redirect::Local(path)) = head.redirect {
        answer.instead().local_redirect = Some(path.to_vec());
    }
    answer.take_all(head.fields.iter().filter(|field| !field.is("status")));
    Ok(Some((answer, head.len)))
}

fn from_http(head: &ResponseHead<'_, '_>) -> AnswerHead {
    let len = match head.body {
        BodyLength::Length(len) => Some(len),
        // Of an answer that has no content: to `HEAD`, or 304.
        _ => {
            let len = head.fields.iter().find(|field| field.is("content-length"));
            len.and_then(|field| parse_decimal(field.value))
        }
    };
    let mut answer = AnswerHead::new(Status(head.status), len);
    answer.is_switch = head.kind == ResponseKind::Switching;
    answer.take_all(head.fields.iter());
    if let Some(upgrade) = head.upgrade.filter(|_| answer.is_switch) {
        answer.lines.push("Connection", "upgrade");
        answer.lines.push("Upgrade", upgrade);
    }
    answer
}

/// Whether it is a date. An application says the same one for a second, and that is read once.
fn is_date(value: &[u8]) -> bool {
    thread_local! {
        static LAST: Cell<[u8; 29]> = const { Cell::new([0; 29]) };
    }
    if value == LAST.get() {
        return true;
    }
    let is_date = HttpDate::parse(value, 0).is_some();
    if let Some(text) = value.try_into().ok().filter(|_| is_date) {
        LAST.set(text);
    }
    is_date
}

/// Whether a field says who may have a response, or for how long.
fn is_for_caches(field: &Field<'_>) -> bool {
    const FOR_CACHES: [&str; 8] = [
        "cache-control",
        "cdn-cache-control",
        "tidegate-cache-control",
        "age",
        "expires",
        "pragma",
        "set-cookie",
        "vary",
    ];
    FOR_CACHES.iter().any(|name| field.is(name))
}

/// Whether `Connection` names a field as one that ends here (RFC 9110 section 7.6.1).
fn named_by_connection<'f>(fields: impl Iterator<Item = &'f Field<'f>>, name: &str) -> bool {
    fields.filter(|field| field.is("connection")).any(|field| {
        field::list_elements(field.value).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    })
}

impl AnswerHead {
    /// The head of an answer over HTTP/2, where no connection field can stand.
    pub(super) fn of(status: Status, len: Option<u64>, lines: &FieldLines) -> AnswerHead {
        let mut head = AnswerHead::new(status, len);
        for (name, value) in lines.iter() {
            head.take(name, value);
        }
        head
    }

    fn new(status: Status, len: Option<u64>) -> AnswerHead {
        AnswerHead {
            status,
            lines: FieldLines::in_memory(buffer_pool::take()),
            author: Author::Application,
            leads: false,
            has_type: false,
            len,
            is_switch: false,
            instead: None,
        }
    }

    fn instead(&mut self) -> &mut Instead {
        self.instead.get_or_insert_default()
    }

    /// The file that is to be sent in its place: the value of `X-Sendfile`.
    pub(super) fn sendfile(&self) -> Option<&[u8]> {
        self.instead.as_ref()?.sendfile.as_deref()
    }

    /// The same as a path: the value of `X-Accel-Redirect`.
    pub(super) fn accel_redirect(&self) -> Option<&[u8]> {
        self.instead.as_ref()?.accel_redirect.as_deref()
    }

    /// A path of this server that is answered in its place.
    pub(super) fn local_redirect(&self) -> Option<&[u8]> {
        self.instead.as_ref()?.local_redirect.as_deref()
    }

    /// The fields, but those that `Connection` names: none of those that are for every cache on the way, which it is not to name
    /// (RFC 9110 section 7.6.1).
    fn take_all<'f>(&mut self, fields: impl Iterator<Item = &'f Field<'f>> + Clone) {
        // Most that have one name nothing but what ends here in any case.
        let ends_anyway = |option: &[u8]| {
            option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"upgrade")
        };
        let names_more =
            |field: &Field<'_>| field.is("connection") && !field::list_elements(field.value).all(ends_anyway);
        let names_any = fields.clone().any(names_more);
        for field in fields.clone() {
            let is_named = || named_by_connection(fields.clone(), field.name);
            if !names_any || is_for_caches(field) || !is_named() {
                self.take(field.name, field.value);
            }
        }
    }

    /// A field, where it belongs: with the client, or here. It was read by a codec.
    fn take(&mut self, name: &str, value: &[u8]) {
        let is = |other: &str| eq_ignore_case(name.as_bytes(), other.as_bytes());
        let ends_here = match name.len() {
            2 => is("te"),
            // It is the application's to say when it has made its answer (RFC 9110 section 6.6.1).
            4 if is("date") => {
                if self.author == Author::Application && is_date(value) {
                    self.author = Author::DatedApplication;
                    self.lines.push_read("Date", value);
                }
                true
            }
            6 => is("server"),
            7 => is("upgrade"),
            8 => {
                self.leads |= is("location");
                false
            }
            10 if is("x-sendfile") => {
                self.instead().sendfile = Some(value.to_vec());
                true
            }
            10 => is("connection") || is("keep-alive"),
            // The first is meant, as with other servers: who gets two of them chooses, and not everybody alike.
            12 if is("content-type") => std::mem::replace(&mut self.has_type, true),
            14 => is("content-length"),
            16 if is("x-accel-redirect") => {
                self.instead().accel_redirect = Some(value.to_vec());
                true
            }
            16 => {
                self.leads |= is("content-location");
                is("proxy-connection")
            }
            17 => is("transfer-encoding"),
            _ => false,
        };
        if !ends_here && !is_for_servers(name) {
            self.lines.push_read(name, value);
        }
    }
}

impl From<AnswerError> for io::Error {
    fn from(error: AnswerError) -> io::Error {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::fastcgi;

    #[test]
    fn what_connection_names_ends_here() {
        for (options, passed) in [
            (&[][..], "Close|X-Own|Cache-Control"),
            (&["Keep-Alive"], "Close|X-Own|Cache-Control"),
            (&["upgrade", "keep-alive, keep-alive"], "Close|X-Own|Cache-Control"),
            (&["keep-alive", "x-own, cache-control"], "Close|Cache-Control"),
            (&["close"], "X-Own|Cache-Control"),
        ] {
            let names = ["Close", "Keep-Alive", "X-Own", "Cache-Control", "Upgrade"];
            let named = |name| Field { name, value: b"1" };
            let connection = options.iter().map(|options| ("Connection", *options));
            let connection = connection.map(|(name, value)| Field { name, value: value.as_bytes() });
            let fields: Vec<_> = names.map(named).into_iter().chain(connection).collect();
            let mut head = AnswerHead::new(Status::OK, None);
            head.take_all(fields.iter());
            let lines: Vec<&str> = head.lines.iter().map(|(name, _)| name).collect();
            assert_eq!(lines.join("|"), passed, "{options:?}");
        }
    }

    #[test]
    fn content_is_of_one_type() {
        let mut head = AnswerHead::new(Status::OK, None);
        for (name, value) in
            [("Content-Type", "text/plain"), ("X-Own", "1"), ("content-type", "text/html"), ("X-Own", "2")]
        {
            head.take(name, value.as_bytes());
        }
        let lines: Vec<_> = head.lines.iter().map(|(name, value)| (name, value.to_vec())).collect();
        let expected =
            [("Content-Type", b"text/plain".to_vec()), ("X-Own", b"1".to_vec()), ("X-Own", b"2".to_vec())];
        assert_eq!(lines, expected);
    }

    #[test]
    fn content_is_whole_where_it_is_as_long_as_was_said() {
        let own = OwnCookies::default();
        for (content, is_whole) in [("", false), ("ab", false), ("abc", true), ("abcd", false)] {
            let head = "Content-Length: 3\r\n\r\n";
            let http = format!("HTTP/1.1 200 OK\r\n{head}{content}");
            let mut records = Vec::new();
            fastcgi::append_stdout(&mut records, 1, format!("{head}{content}").as_bytes());
            let begun = records.clone();
            fastcgi::end_request(&mut records, 1, 0, ProtocolStatus::RequestComplete);
            let of_http =
                HeadOf::Http { reader: HeadReader::default(), method: "GET", may_switch: false, body: None };
            let of_fastcgi = || HeadOf::FastCgi {
                decoder: ResponseDecoder::new(1),
                stdout: Vec::new(),
                complaints: Complaints::default(),
            };
            for (mut reader, bytes, is_whole) in [
                (of_http, http.as_bytes(), is_whole),
                (of_fastcgi(), &records, is_whole),
                (of_fastcgi(), &begun, false), // its end is still to come
            ] {
                let about = || -> About { unreachable!("nobody complains") };
                let head = reader.push(bytes, Vec::new, about, None, &own).unwrap().unwrap();
                let whole = is_whole.then(|| (content.as_bytes().to_vec(), true));
                assert_eq!(reader.take_whole(head.len), whole, "{content}");
                if !is_whole {
                    let (_, early) = reader.into_content(head.len).unwrap();
                    assert!(content.as_bytes().starts_with(&early) && early.len() == content.len().min(3));
                }
            }
        }
    }

    #[test]
    fn a_date_is_one_however_often_it_is_said() {
        for (value, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:99 GMT", false),
            ("Sunday, 06-Nov-94 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sun, 06 Nov 1994 08:49:37 GM", false),
            ("", false),
        ] {
            assert_eq!(is_date(value.as_bytes()), expected, "{value}");
        }
    }
}
