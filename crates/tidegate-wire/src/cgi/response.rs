//! The head that a script answers (RFC 3875 section 6). The gateway turns every error into 502 and gives up
//! the application's connection (FAULTS 15).

use crate::h1::bytes::ascii;
use crate::h1::tokens::Tokens;
use crate::h1::{FieldError, FieldSpace, HeadLimits, first_fault, is_token_all, is_value, trim};
use thiserror::Error;
use tidegate_http::{Field, parse_decimal, words};

/// One head, borrowed from the buffer it was read from.
#[derive(Debug, Clone, Copy)]
pub struct CgiHead<'h, 'b> {
    /// Bytes of the buffer that belong to the head, the empty line included.
    pub len: usize,
    /// 200 to 599: from `Status` or the status line, 302 with a `Location` alone, else 200.
    pub status: u16,
    /// All field lines in the order they came, `Status` and `Content-Length` included.
    pub fields: &'h [Field<'b>],
    /// Bytes of the content, if the script says so.
    pub content_length: Option<u64>,
    /// Where the script sends the client, or the server.
    pub redirect: Option<Redirect<'b>>,
}

/// What `Location` means (RFC 3875 sections 6.2.2 to 6.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect<'b> {
    /// A path of this server and nothing else: the server answers as if that had been asked for.
    Local(&'b [u8]),
    /// The client is told.
    Client(&'b [u8]),
}

/// Why a head is refused. The application is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CgiError {
    /// A field line that is none.
    #[error("{0}; {advice}", advice = advice(*.0))]
    Field(#[from] FieldError),
    /// The head is longer than the limit.
    #[error("the response head is too large")]
    HeadTooLarge,
    /// `Status` that is no number from 200 to 599, or stands twice.
    #[error("invalid Status")]
    InvalidStatus,
    /// `Content-Length` that is no number, or stands twice.
    #[error("invalid Content-Length")]
    InvalidLength,
    /// `Transfer-Encoding`: where the content ends is not the script's to say.
    #[error("Transfer-Encoding, which a script must not send")]
    Coding,
    /// `Location` stands twice.
    #[error("Location more than once")]
    RepeatedLocation,
    /// Neither a field nor a status.
    #[error(
        "an empty line where a field should be: a script writes at least one, such as `Content-Type: text/plain`, and then \
         the empty line"
    )]
    Empty,
    /// The output ends inside the head.
    #[error("the output ends before the head does")]
    Truncated,
}

/// What a script has to write in place of a line that is no field.
fn advice(error: FieldError) -> &'static str {
    match error {
        FieldError::BareCr => {
            "lines of its head end in LF or CR LF: CR CR LF is what a script with DOS line ends writes where CR LF is added"
        }
        _ => "its output begins with fields, such as `Content-Type: text/plain`, and an empty line",
    }
}

/// Reads a head from the start of `buf`. `Ok(None)`: more is needed. Lines may end in LF alone.
///
/// What it says of some bytes it says of all longer ones that begin with them.
///
/// # Errors
/// A line is no field, the head is empty or exceeds a limit, `Status` or `Content-Length` is invalid,
/// `Location` stands twice, or there is a `Transfer-Encoding`. Never [`CgiError::Truncated`]: the caller
/// knows the end.
pub fn parse_head<'h, 'b>(
    buf: &'b [u8],
    limits: &HeadLimits,
    space: &'h mut FieldSpace<'b>,
) -> Result<Option<CgiHead<'h, 'b>>, CgiError> {
    let view = buf.get(..limits.head_size).unwrap_or(buf);
    let mut head = Reading::default();
    let len = match tokenise(view, limits, space) {
        Some(len) => {
            space.fields.iter().try_for_each(|field| head.take(field))?;
            Some(len)
        }
        None => read_lines(view, limits, &mut head, space)?,
    };
    let Some(len) = len else { return Ok(None) };
    if space.fields.is_empty() && head.status.is_none() {
        return Err(CgiError::Empty);
    }
    let redirect = head.redirect(space.fields.len());
    Ok(Some(CgiHead {
        len,
        status: head.status.unwrap_or(if redirect.is_some() { 302 } else { 200 }),
        fields: &space.fields,
        content_length: head.length,
        redirect,
    }))
}

/// The length of a head and its fields, token by token as the heads of HTTP. What does not read so, because it is not whole, is no
/// head, begins with a status line or has lines that end in LF alone, [`read_lines`] reads.
fn tokenise<'b>(view: &'b [u8], limits: &HeadLimits, space: &mut FieldSpace<'b>) -> Option<usize> {
    let Tokens(rest) = Tokens(view).fields(limits, space)?;
    Some(view.len() - rest.len())
}

/// The same line by line, for what the fields mean, or the first fault. `Ok(None)`: more is needed.
fn read_lines<'b>(
    view: &'b [u8],
    limits: &HeadLimits,
    head: &mut Reading<'b>,
    space: &mut FieldSpace<'b>,
) -> Result<Option<usize>, CgiError> {
    space.fields.clear();
    let mut at = 0;
    loop {
        let rest = view.get(at..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', rest) else {
            let is_full = view.len() >= limits.head_size;
            return if is_full { Err(CgiError::HeadTooLarge) } else { Ok(None) };
        };
        let line = rest.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_first = at == 0;
        at += end + 1;
        if line.is_empty() {
            return Ok(Some(at));
        }
        if is_first && line.starts_with(b"HTTP/") {
            head.status_line(line)?;
            continue;
        }
        let field = field(line)?;
        head.take(&field)?;
        if space.fields.len() >= limits.field_slots() {
            return Err(FieldError::TooMany.into());
        }
        space.fields.try_push(field).map_err(|_| FieldError::TooMany)?;
    }
}

/// What the fields mean so far.
#[derive(Default)]
struct Reading<'b> {
    status: Option<u16>,
    length: Option<u64>,
    location: Option<&'b [u8]>,
}

impl<'b> Reading<'b> {
    /// `HTTP/1.1 200 OK` of a script that does without the server's parsing.
    fn status_line(&mut self, line: &[u8]) -> Result<(), CgiError> {
        let code = match line {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', code @ ..] => code,
            _ => return Err(CgiError::InvalidStatus),
        };
        self.status = Some(status(code)?);
        Ok(())
    }

    fn take(&mut self, field: &Field<'b>) -> Result<(), CgiError> {
        match field.name.len() {
            6 if field.is("status") => {
                let first = self.status.replace(status(field.value)?);
                first.map_or(Ok(()), |_| Err(CgiError::InvalidStatus))?;
            }
            8 if field.is("location") => {
                let first = self.location.replace(field.value);
                first.map_or(Ok(()), |_| Err(CgiError::RepeatedLocation))?;
            }
            14 if field.is("content-length") => {
                let digits = Some(field.value).filter(|digits| digits.len() <= 18);
                let length = digits.and_then(parse_decimal).ok_or(CgiError::InvalidLength)?;
                if self.length.replace(length).is_some() {
                    return Err(CgiError::InvalidLength);
                }
            }
            17 if field.is("transfer-encoding") => return Err(CgiError::Coding),
            _ => {}
        }
        Ok(())
    }

    /// A local one stands alone; beside a status, a type or anything else it is the client's.
    fn redirect(&self, fields: usize) -> Option<Redirect<'b>> {
        let location = self.location.filter(|location| !location.is_empty())?;
        let is_path = location.starts_with(b"/") && !location.starts_with(b"//");
        Some(if is_path && fields == 1 && self.status.is_none() {
            Redirect::Local(location)
        } else {
            Redirect::Client(location)
        })
    }
}

fn status(value: &[u8]) -> Result<u16, CgiError> {
    let [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = value else {
        return Err(CgiError::InvalidStatus);
    };
    if !matches!(rest, [] | [b' ' | b'\t', ..]) || !rest.iter().all(|b| is_value(*b)) {
        return Err(CgiError::InvalidStatus);
    }
    let digit = |b: &u8| u16::from(b - b'0');
    Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
}

fn field(line: &[u8]) -> Result<Field<'_>, CgiError> {
    let colon = memchr::memchr(b':', line);
    let parts = colon.and_then(|colon| Some((line.get(..colon)?, line.get(colon + 1..)?)));
    let Some((name, value)) = parts.filter(|(name, _)| is_token_all(name)) else {
        // The line is read again, with the end that says that it is one, for the name of its fault.
        let fault = first_fault(&[line, b"\r\n\r\n"].concat(), usize::MAX);
        return Err(fault.unwrap_or(FieldError::InvalidName).into());
    };
    if words::before_control(value) < value.len() && !value.iter().all(|b| is_value(*b)) {
        let is_cr = value.contains(&b'\r');
        return Err(if is_cr { FieldError::BareCr } else { FieldError::InvalidValue }.into());
    }
    let name = ascii(name).ok_or(FieldError::InvalidName)?;
    Ok(Field { name, value: trim(value) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample;

    /// Lines of heads, some of which mean something, and some something that is wrong.
    const LINES: &[&str] = &[
        "Status: 404 Not Found",
        "Status: 99",
        "Location: /a",
        "Content-Length: 7",
        "Content-Length: x",
        "Transfer-Encoding: a",
        "X-Name:\tvalue ",
        "Y:",
    ];

    /// Bytes, status, length and fields of a head.
    type Seen = (usize, u16, Option<u64>, String);

    fn read(bytes: &[u8]) -> Result<Option<Seen>, CgiError> {
        let limits = HeadLimits { head_size: 200, target_size: 100, fields: 4 };
        let mut space = FieldSpace::new();
        let head = parse_head(bytes, &limits, &mut space)?;
        Ok(head.map(|head| {
            let redirect = head.redirect.map(|redirect| match redirect {
                Redirect::Local(to) => format!("local {}", to.escape_ascii()),
                Redirect::Client(to) => format!("client {}", to.escape_ascii()),
            });
            (head.len, head.status, head.content_length, redirect.unwrap_or_default())
        }))
    }

    #[test]
    fn heads() {
        let cases: [(&[u8], u16, Option<u64>, &str); 13] = [
            (b"Content-Type: text/html\r\n\r\n", 200, None, ""),
            (b"Content-Type: text/html\n\n", 200, None, ""),
            (b"Content-type:text/html\r\n\n", 200, None, ""),
            (b"Status: 404 Not Found\r\nContent-Length: 10\r\n\r\n", 404, Some(10), ""),
            (b"status:204\n\n", 204, None, ""),
            (b"Location: /a?b\r\n\r\n", 302, None, "local /a?b"),
            (b"Location: //host/\r\n\r\n", 302, None, "client //host/"),
            (b"Location: /a\r\nContent-Type: text/html\r\n\r\n", 302, None, "client /a"),
            (b"Location: /a\r\nStatus: 201\r\n\r\n", 201, None, "client /a"),
            (b"Location: http://x/\n\n", 302, None, "client http://x/"),
            (b"HTTP/1.1 403 Forbidden\r\nX: y\r\n\r\n", 403, None, ""),
            (b"HTTP/1.0 200\r\n\r\n", 200, None, ""),
            (b"Content-Type: text/plain\r\nLocation:\r\n\r\n", 200, None, ""),
        ];
        for (bytes, status, length, redirect) in cases {
            let seen = read(bytes).unwrap().unwrap();
            assert_eq!(seen, (bytes.len(), status, length, redirect.to_owned()), "{}", bytes.escape_ascii());
            assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(None));
        }
    }

    #[test]
    fn what_is_refused() {
        let long = [b"X: ".to_vec(), vec![b'a'; 300]].concat();
        let cases: [(&[u8], CgiError); 20] = [
            (b"\r\n", CgiError::Empty),
            (b"<html>\n", FieldError::InvalidName.into()),
            (b"PHP Warning\n", FieldError::SpaceBeforeColon.into()),
            (b": x\n", FieldError::EmptyName.into()),
            (b" X: y\n", FieldError::ObsoleteFold.into()),
            (b"A: b\r\n c\r\n", FieldError::ObsoleteFold.into()),
            (b"A : b\n", FieldError::SpaceBeforeColon.into()),
            (b"A: b\0\n", FieldError::InvalidValue.into()),
            (b"A: b\rc\n", FieldError::BareCr.into()),
            (b"Status: 99\n", CgiError::InvalidStatus),
            (b"Status: 100 Continue\n", CgiError::InvalidStatus),
            (b"Status: 2000\n", CgiError::InvalidStatus),
            (b"Status: 200\nStatus: 200\n", CgiError::InvalidStatus),
            (b"HTTP/2 200\n", CgiError::InvalidStatus),
            (b"Content-Length: -1\n", CgiError::InvalidLength),
            (b"Content-Length: 1\nContent-Length: 1\n", CgiError::InvalidLength),
            (b"Transfer-Encoding: chunked\n", CgiError::Coding),
            (b"Location: a\nLocation: b\n", CgiError::RepeatedLocation),
            (b"A: 1\nB: 2\nC: 3\nD: 4\nE: 5\n", FieldError::TooMany.into()),
            (&long, CgiError::HeadTooLarge),
        ];
        for (bytes, error) in cases {
            assert_eq!(read(bytes), Err(error), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        /// Whatever reads token by token is the same head line by line, with the same first fault in what its fields mean.
        #[test]
        fn both_ways_of_reading_agree(
            lines in vec(sample::select(LINES), 0..8),
            changes in vec((any::<usize>(), sample::select(&b"\r\n\t :\xfc\x7f9"[..])), 0..3),
            fields in 1usize..20,
        ) {
            let mut bytes: Vec<u8> = lines.iter().flat_map(|line| [line.as_bytes(), b"\r\n"].concat()).collect();
            bytes.extend(b"\r\n");
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let limits = HeadLimits { head_size: 120, target_size: 100, fields };
            let view = bytes.get(..limits.head_size).unwrap_or(&bytes);
            let (mut one, mut other) = (FieldSpace::new(), FieldSpace::new());
            if let Some(len) = tokenise(view, &limits, &mut one) {
                let mut head = Reading::default();
                let taken = one.fields.iter().try_for_each(|field| head.take(field));
                let mut read = Reading::default();
                match read_lines(view, &limits, &mut read, &mut other) {
                    Ok(seen) => prop_assert_eq!((seen, taken), (Some(len), Ok(()))),
                    Err(error) => prop_assert_eq!(taken, Err(error)),
                }
                if taken.is_ok() {
                    prop_assert_eq!(one.as_slice(), other.as_slice());
                }
            }
        }

        #[test]
        fn what_is_said_early_holds(bytes in "(Status: [0-9]{2,4}|Location: [a-z/]{0,4}|[A-Z a:]{0,6}|\r)?(\n|\r\n)(X: y\n){0,3}\n?") {
            let bytes = bytes.as_bytes();
            let whole = read(bytes);
            for end in 0..bytes.len() {
                match read(&bytes[..end]) {
                    Ok(None) => {}
                    early => prop_assert_eq!(early, whole.clone()),
                }
            }
        }
    }
}
