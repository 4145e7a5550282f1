//! SCGI, both roles (python.ca/scgi/protocol.txt): the variables as one netstring, then the content.
//!
//! The answer is that of a CGI script, ended by the end of the connection: see [`crate::cgi`]. One request
//! for each connection.

use crate::cgi::Sink;
use thiserror::Error;
use tidegate_http::push_decimal;

/// What a peer sent that is no SCGI request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScgiError {
    /// The length in front is no number, or not followed by a colon.
    #[error("the length of the variables is no number")]
    Length,
    /// More than the limit.
    #[error("too many bytes of variables")]
    TooLarge,
    /// No comma behind the variables, or a name without a value.
    #[error("the variables do not end where they should")]
    Variables,
}

/// Writes the variables of a request.
#[derive(Debug)]
pub struct Variables<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

/// Room in front of the variables for their length and its colon.
const ROOM: usize = 12;

impl<'o> Variables<'o> {
    /// Begins a request at the end of `out`. `CONTENT_LENGTH` has to come first, so it is asked for here.
    pub fn begin(out: &'o mut Vec<u8>, content_length: u64) -> Variables<'o> {
        let begin = out.len();
        out.extend_from_slice(&[0; ROOM]);
        out.extend_from_slice(b"CONTENT_LENGTH\0");
        push_decimal(out, content_length);
        out.extend_from_slice(b"\0SCGI\x001\0");
        Variables { out, begin }
    }

    /// Appends a variable. A NUL in either would end it, so such a variable is left out, and so is a second
    /// `CONTENT_LENGTH`. Answers whether it was written.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> bool {
        append_variable(self.out, name, value)
    }

    /// Appends variables that were written before, by [`append_variable`].
    pub fn push_variables(&mut self, variables: &[u8]) {
        self.out.extend_from_slice(variables);
    }

    /// Ends the variables; the content follows.
    pub fn finish(self) {
        let Variables { out, begin } = self;
        let len = out.len().saturating_sub(begin + ROOM);
        let mut prefix = Vec::with_capacity(ROOM);
        push_decimal(&mut prefix, len as u64);
        prefix.push(b':');
        let start = (begin + ROOM).saturating_sub(prefix.len());
        if let Some(room) = out.get_mut(start..begin + ROOM) {
            room.copy_from_slice(&prefix);
        }
        out.drain(begin..start);
        out.push(b',');
    }
}

impl Sink for Variables<'_> {
    fn variable(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, value);
    }
}

/// Appends a variable: see [`Variables::push`].
pub fn append_variable(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> bool {
    if name == b"CONTENT_LENGTH" || name.contains(&0) || value.contains(&0) {
        return false;
    }
    for part in [name, value] {
        out.extend_from_slice(part);
        out.push(0);
    }
    true
}

/// The variables of a request, and the bytes they took.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// Names and values in order.
    pub variables: Vec<(&'b [u8], &'b [u8])>,
    /// Bytes of the buffer before the content.
    pub len: usize,
}

/// Reads the variables from the start of `buf`, of at most `limit` bytes. `Ok(None)`: more is needed.
///
/// # Errors
/// The length is no number or above `limit`, or the variables are malformed.
pub fn parse_request(buf: &[u8], limit: usize) -> Result<Option<Request<'_>>, ScgiError> {
    let digits = buf.iter().take_while(|b| b.is_ascii_digit()).count();
    let length = buf.get(..digits).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default();
    match buf.get(digits) {
        None if digits < ROOM - 1 => return Ok(None),
        Some(b':') if digits > 0 && (digits == 1 || !length.starts_with('0')) => {}
        _ => return Err(ScgiError::Length),
    }
    let length: usize = length.parse().map_err(|_| ScgiError::Length)?;
    if length > limit {
        return Err(ScgiError::TooLarge);
    }
    let start = digits + 1;
    let end = start.saturating_add(length);
    let (Some(content), Some(after)) = (buf.get(start..end), buf.get(end)) else { return Ok(None) };
    if *after != b',' {
        return Err(ScgiError::Variables);
    }
    let mut variables = Vec::new();
    if let Some(content) = content.strip_suffix(&[0]) {
        let mut parts = content.split(|b| *b == 0);
        while let Some(name) = parts.next() {
            variables.push((name, parts.next().ok_or(ScgiError::Variables)?));
        }
    } else if !content.is_empty() {
        return Err(ScgiError::Variables);
    }
    Ok(Some(Request { variables, len: end + 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_protocol() {
        let mut out = b"before".to_vec();
        let mut variables = Variables::begin(&mut out, 27);
        assert!(variables.push(b"REQUEST_METHOD", b"POST"));
        assert!(variables.push(b"REQUEST_URI", b"/deepthought"));
        assert!(!variables.push(b"CONTENT_LENGTH", b"1"));
        assert!(!variables.push(b"X", b"a\0b"));
        variables.finish();
        let expected = b"before70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0\
            REQUEST_URI\0/deepthought\0,";
        assert_eq!(out, expected);
        let request = parse_request(&out[6..], 4096).unwrap().unwrap();
        assert_eq!(request.len, out.len() - 6);
        assert_eq!(request.variables[3], (&b"REQUEST_URI"[..], &b"/deepthought"[..]));
    }

    #[test]
    fn what_is_refused() {
        for (bytes, error) in [
            (&b"x"[..], ScgiError::Length),
            (b":", ScgiError::Length),
            (b"-1:", ScgiError::Length),
            (b"01:", ScgiError::Length),
            (b"999999999999", ScgiError::Length),
            (b"5000:", ScgiError::TooLarge),
            (b"2:A\0,", ScgiError::Variables),
            (b"4:A\0b\0;", ScgiError::Variables),
            (b"3:A\0b,", ScgiError::Variables),
        ] {
            assert_eq!(parse_request(bytes, 4096), Err(error), "{bytes:?}");
        }
        for more in [&b""[..], b"1", b"10:", b"4:A\0b\0"] {
            assert_eq!(parse_request(more, 4096), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let whole = parse_request(&bytes, 40);
            // What is refused stays refused, what is complete stays complete.
            for end in 0..bytes.len() {
                match parse_request(&bytes[..end], 40) {
                    Ok(None) => {}
                    early => prop_assert_eq!(&early, &whole),
                }
            }
        }
    }
}
