//! The tokens of a head without a fault (RFC 9112 sections 3 to 5): what every message goes through.
//!
//! Nothing here says what is wrong. Whatever is not as it has to be, or not all there, is `None`; then `first_fault` of the
//! same head names the fault, or says that there is none so far. Both read one grammar: a head that has come to its empty
//! line reads here, or has a fault there.

use super::bytes::{
    ascii, plain_target_len, plain_token_len, plain_value_len, target_len, token_len, trim, value_len,
};
use super::{FieldSpace, HeadLimits, Version};
use tidegate_http::Field;

/// The bytes of a head that have not been read.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'b>(pub(crate) &'b [u8]);

impl<'b> Tokens<'b> {
    /// The first bytes, by the shorter of two lengths behind which their end stands, and what comes behind both. The longer length
    /// is for what is rare.
    #[inline(always)]
    fn split(
        self,
        plain: usize,
        len: impl FnOnce(&[u8]) -> usize,
        end: &[u8],
    ) -> Option<(&'b [u8], Tokens<'b>)> {
        let at = |len| {
            let (token, rest) = self.0.split_at_checked(len)?;
            Some((token, Tokens(rest.strip_prefix(end)?)))
        };
        at(plain).or_else(|| at(len(self.0)))
    }

    /// A token, such as a method or a name, and what ends it. Inlined: calls would cost a short head a tenth of its parse.
    #[inline(always)]
    pub(super) fn token(self, end: &[u8; 1]) -> Option<(&'b str, Tokens<'b>)> {
        let (token, rest) = self.split(plain_token_len(self.0), token_len, end)?;
        (!token.is_empty()).then_some((ascii(token)?, rest))
    }

    /// The name of a field and its colon. What most call themselves is text that is known.
    #[inline(always)]
    fn name(self) -> Option<(&'b str, Tokens<'b>)> {
        let (name, rest) = self.split(plain_token_len(self.0), token_len, b":")?;
        let name = match usual_name(name) {
            Some(usual) => usual,
            None => ascii(name)?,
        };
        (!name.is_empty()).then_some((name, rest))
    }

    /// A method and its space: most often this one.
    #[inline]
    pub(super) fn method(self) -> Option<(&'b str, Tokens<'b>)> {
        match self.0.strip_prefix(b"GET ") {
            Some(rest) => Some(("GET", Tokens(rest))),
            None => self.token(b" "),
        }
    }

    /// A request target and its space.
    #[inline]
    pub(super) fn target(self) -> Option<(&'b str, Tokens<'b>)> {
        let (target, rest) = self.split(plain_target_len(self.0), target_len, b" ")?;
        Some((ascii(target)?, rest))
    }

    /// The version that ends a request line. What is later than 1.1 is read as the highest that there is (RFC 9110 section
    /// 2.5).
    #[inline]
    pub(super) fn version_line(self) -> Option<(Version, Tokens<'b>)> {
        if let Some(rest) = self.0.strip_prefix(b"HTTP/1.1\r\n") {
            return Some((Version::Http11, Tokens(rest)));
        }
        let ([minor @ b'0'..=b'9', b'\r', b'\n'], rest) =
            self.0.strip_prefix(b"HTTP/1.")?.split_first_chunk()?
        else {
            return None;
        };
        Some((version(*minor), Tokens(rest)))
    }

    /// Version, status and reason of a status line. The space before a reason may be missing.
    #[inline]
    pub(super) fn status_line(self) -> Option<(Version, u16, &'b [u8], Tokens<'b>)> {
        let (line, rest) = self.0.split_first_chunk()?;
        let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', hundreds, tens, ones] =
            line
        else {
            return None;
        };
        let (b'1'..=b'5', b'0'..=b'9', b'0'..=b'9') = (hundreds, tens, ones) else { return None };
        let digits = [hundreds, tens, ones].map(|digit| u16::from(*digit - b'0'));
        let status = digits.into_iter().fold(0, |status, digit| 10 * status + digit);
        let (reason, rest) = match rest {
            [b'\r', b'\n', rest @ ..] => (&[][..], Tokens(rest)),
            [b' ', rest @ ..] => Tokens(rest).value()?,
            _ => return None,
        };
        Some((version(*minor), status, reason, rest))
    }

    /// Bytes of a value as they are, to the end of the line.
    #[inline]
    fn value(self) -> Option<(&'b [u8], Tokens<'b>)> {
        self.split(plain_value_len(self.0), value_len, b"\r\n")
    }

    /// All field lines and the empty line behind them, where there are no more than the limit. What is behind.
    #[inline]
    pub(crate) fn fields(self, limits: &HeadLimits, space: &mut FieldSpace<'b>) -> Option<Tokens<'b>> {
        space.clear();
        let slots = limits.field_slots();
        let mut tokens = self;
        loop {
            if let [b'\r', b'\n', rest @ ..] = tokens.0 {
                return Some(Tokens(rest));
            }
            let (name, rest) = tokens.name()?;
            let (value, rest) = rest.value()?;
            if space.as_slice().len() >= slots {
                return None;
            }
            space.push(Field { name, value: trimmed(value) });
            tokens = rest;
        }
    }
}

/// A name as most clients and applications write it: to look it up costs less than to see that it is ASCII.
#[inline]
fn usual_name(name: &[u8]) -> Option<&'static str> {
    macro_rules! of {
        ($($usual:literal)+) => {{
            $(if name == $usual.as_bytes() {
                return Some($usual);
            })+
            None
        }};
    }
    match name.len() {
        3 => of!("Age" "DNT"),
        4 => of!("Host" "Date" "ETag" "Vary"),
        6 => of!("Accept" "Cookie" "Server" "Origin" "Status" "Pragma"),
        7 => of!("Referer" "Expires"),
        8 => of!("Location"),
        10 => of!("User-Agent" "Connection" "Set-Cookie" "Keep-Alive"),
        12 => of!("Content-Type" "X-Powered-By"),
        13 => of!("Cache-Control" "Last-Modified" "If-None-Match" "Accept-Ranges" "Authorization"),
        14 => of!("Content-Length" "Sec-Fetch-Mode" "Sec-Fetch-Dest" "Sec-Fetch-Site"),
        15 => of!("Accept-Encoding" "Accept-Language"),
        16 => of!("Content-Encoding"),
        17 => of!("If-Modified-Since" "Transfer-Encoding"),
        25 => of!("Upgrade-Insecure-Requests"),
        _ => None,
    }
}

/// The version of this last digit.
#[inline]
fn version(minor: u8) -> Version {
    if minor == b'0' { Version::Http10 } else { Version::Http11 }
}

/// A value without the white space at its ends, which most often is one space.
#[inline]
fn trimmed(value: &[u8]) -> &[u8] {
    match value {
        [b' ', rest @ ..] if !matches!(rest, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) => rest,
        _ => trim(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::{is_target, is_token, is_value};
    use super::*;

    /// Every byte at every place of a target, a value and a name, among its neighbours.
    #[test]
    fn tokens_end_where_the_grammar_says() {
        for len in [1, 7, 8, 9, 16, 19, 32, 35] {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut token = vec![b'a'; len];
                    token[at] = byte;
                    let what = format!("{byte:#x} at {at} of {len}");

                    let bytes = [&token[..], b" x"].concat();
                    let target = Tokens(&bytes).target().map(|(target, rest)| (target.len(), rest.0.len()));
                    let expected = match byte {
                        b' ' => Some((at, len - at - 1 + 2)),
                        _ => is_target(byte).then_some((len, 1)),
                    };
                    assert_eq!(target, expected, "{what}");

                    let bytes = [&token[..], b"\r\n"].concat();
                    let value = Tokens(&bytes).value().map(|(value, rest)| (value, rest.0));
                    assert_eq!(value, is_value(byte).then_some((&token[..], &b""[..])), "{what}");

                    let bytes = [&token[..], b": b\r\n\r\n"].concat();
                    let mut space = FieldSpace::new();
                    let is_read = Tokens(&bytes).fields(&HeadLimits::default(), &mut space).is_some();
                    assert_eq!(is_read, is_token(byte) || (byte == b':' && at > 0), "{what}");
                }
            }
        }
    }

    #[test]
    fn usual_names_are_what_was_sent() {
        for sent in [
            "Host: a",
            "hOST: a",
            "Content-Length: 1",
            "Content-length: 1",
            "Upgrade-Insecure-Requests: 1",
            "X: y",
        ] {
            let bytes = [sent.as_bytes(), b"\r\n\r\n"].concat();
            let mut space = FieldSpace::new();
            assert!(Tokens(&bytes).fields(&HeadLimits::default(), &mut space).is_some(), "{sent}");
            let fields = space.as_slice().iter().map(|field| (field.name, field.value));
            let expected = sent.split_once(": ").map(|(name, value)| (name, value.as_bytes()));
            assert_eq!(fields.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn status_lines() {
        type Read = Option<(u16, &'static [u8])>;
        let rows: [(&[u8], Read); 12] = [
            (b"HTTP/1.1 200 OK\r\n", Some((200, b"OK"))),
            (b"HTTP/1.0 599 \r\n", Some((599, b""))),
            (b"HTTP/1.9 100\r\n", Some((100, b""))),
            (b"HTTP/1.1 404 n\xe4\r\n", Some((404, b"n\xe4"))),
            (b"HTTP/1.1 404 a\tb c\r\n", Some((404, b"a\tb c"))),
            (b"HTTP/1.1 099 x\r\n", None),
            (b"HTTP/1.1 600 x\r\n", None),
            (b"HTTP/1.1 2000\r\n", None),
            (b"HTTP/1.1 200 x\n", None),
            (b"HTTP/1.1 200 x\r", None),
            (b"HTTP/2.0 200 x\r\n", None),
            (b"HTTP/1.1 200 x\0\r\n", None),
        ];
        for (line, expected) in rows {
            let read = Tokens(line).status_line().map(|(_, status, reason, _)| (status, reason));
            assert_eq!(read, expected, "{}", line.escape_ascii());
        }
    }
}
