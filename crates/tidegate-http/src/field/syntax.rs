//! The grammar that fields share: tokens, comma lists, parameters and quoted strings (RFC 9110
//! section 5.6).
//!
//! Called by the modules of this crate that read a field, and by others for fields that have no module.
//! Everything is borrowed; only a quoted string with an escape in it is ever copied.

use std::borrow::Cow;

/// Which bytes may stand in a token (RFC 9110 section 5.6.2).
pub static TCHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether this byte may stand in a token.
#[inline]
pub fn is_tchar(byte: u8) -> bool {
    TCHAR[byte as usize]
}

/// Whether these bytes are a token: at least one, all of them `tchar`.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_tchar(byte))
}

/// Cuts off optional white space (spaces and tabs) at both ends.
#[inline]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma list (RFC 9110 section 5.6.1): white space around each is cut off, empty ones
/// are left out, and a comma inside a quoted string separates nothing. A quoted string that is never
/// closed runs to the end of the value.
///
/// Not for entity tags, in which a backslash escapes nothing: see [`crate::etag::entity_tags`].
#[inline]
pub fn list_elements(value: &[u8]) -> Elements<'_> {
    Elements { rest: value }
}

/// Iterator of [`list_elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = unquoted_position(self.rest, b',').unwrap_or(self.rest.len());
            let element = trim(&self.rest[..end]);
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

/// What stands between semicolons outside quoted strings, white space around each cut off: the pairs of an element of `Forwarded`
/// (RFC 7239 section 4). `None` where a quoted string is never closed.
pub fn semicolon_parts(element: &[u8]) -> Option<impl Iterator<Item = &[u8]> + Clone> {
    let mut rest = Some(element);
    let parts = std::iter::from_fn(move || {
        let value = rest?;
        let end = unquoted_position(value, b';');
        rest = end.map(|end| &value[end + 1..]);
        Some(trim(&value[..end.unwrap_or(value.len())]))
    });
    let mut bytes = element.iter();
    let mut is_quoted = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if is_quoted => drop(bytes.next()),
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    (!is_quoted).then_some(parts)
}

/// Where `separator` first stands outside a quoted string.
fn unquoted_position(bytes: &[u8], separator: u8) -> Option<usize> {
    let mut position = 0;
    let mut is_quoted = false;
    while let Some(&byte) = bytes.get(position) {
        match byte {
            b'\\' if is_quoted => position += 1,
            b'"' => is_quoted = !is_quoted,
            _ if byte == separator && !is_quoted => return Some(position),
            _ => {}
        }
        position += 1;
    }
    None
}

/// Splits `text/html; charset=utf-8` into what stands before the first semicolon and the parameters
/// behind it (RFC 9110 section 5.6.6).
#[inline]
pub fn parameters(element: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = unquoted_position(element, b';').unwrap_or(element.len());
    (trim(&element[..end]), Parameters { rest: element.get(end + 1..).unwrap_or_default() })
}

/// Iterator over parameters. Empty ones (`;;`) are left out; behind a malformed one it ends.
#[derive(Debug, Clone)]
pub struct Parameters<'a> {
    rest: &'a [u8],
}

/// One parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// A token; compare without regard to case.
    pub name: &'a str,
    /// A token or a quoted string, as sent.
    raw: &'a [u8],
}

/// The peer sent something that is not a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed parameter")]
pub struct ParameterError;

impl<'a> Parameter<'a> {
    /// The value as sent, quotes and escapes included.
    #[inline]
    pub fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// The value without quotes and escapes; a copy only where there are escapes.
    pub fn value(self) -> Cow<'a, [u8]> {
        if self.raw.first() == Some(&b'"') {
            unquote(self.raw).unwrap_or_default()
        } else {
            Cow::Borrowed(self.raw)
        }
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, ParameterError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = unquoted_position(self.rest, b';').unwrap_or(self.rest.len());
            let text = trim(&self.rest[..end]);
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let parameter = parse_parameter(text);
            if parameter.is_none() {
                self.rest = &[];
            }
            return Some(parameter.ok_or(ParameterError));
        }
        None
    }
}

/// `name=value`, with no white space around the equals sign.
fn parse_parameter(text: &[u8]) -> Option<Parameter<'_>> {
    let equals = memchr::memchr(b'=', text)?;
    let (name, raw) = (&text[..equals], &text[equals + 1..]);
    if !is_token(name) || !(is_token(raw) || is_quoted_string(raw)) {
        return None;
    }
    Some(Parameter { name: std::str::from_utf8(name).ok()?, raw })
}

/// What a quoted string means: without its quotes, and with each escape resolved. `None` when the bytes
/// are not one whole quoted string (RFC 9110 section 5.6.4).
pub fn unquote(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !is_quoted_string(raw) {
        return None;
    }
    let inner = &raw[1..raw.len() - 1];
    if memchr::memchr(b'\\', inner).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        text.push(if byte == b'\\' { *bytes.next()? } else { byte });
    }
    Some(Cow::Owned(text))
}

/// Whether the bytes are one quoted string, from the opening quote to the closing one.
fn is_quoted_string(raw: &[u8]) -> bool {
    let [b'"', inner @ .., b'"'] = raw else { return false };
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        let text = match byte {
            b'"' => return false,
            // The quote that closes the string cannot be the escaped one.
            b'\\' => match bytes.next() {
                Some(&escaped) => escaped,
                None => return false,
            },
            other => other,
        };
        if (text < 0x20 && text != b'\t') || text == 0x7f {
            return false;
        }
    }
    true
}
