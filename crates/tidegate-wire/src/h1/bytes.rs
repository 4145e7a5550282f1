//! Byte classes of the grammar (RFC 9110 section 5.6, RFC 3986 section 2). Used by every parser here.

use ascii::{AsAsciiStr, AsciiStr};
use tidegate_http::words;

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const REG_NAME: u8 = 8;
const WORD: u8 = 16;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let b = at as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric()
            || matches!(b, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
        {
            class |= TOKEN;
        }
        if matches!(b, 0x21..=0x7e) && !matches!(b, b'"' | b'#' | b'<' | b'>') {
            class |= TARGET;
        }
        if matches!(b, b'\t' | b' '..=0x7e | 0x80..) {
            class |= VALUE;
        }
        if b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&'..=b',' | b';' | b'=')
        {
            class |= REG_NAME;
        }
        if b.is_ascii_alphanumeric() || b == b'-' {
            class |= WORD;
        }
        table[at] = class;
        at += 1;
    }
    table
}

/// `tchar` of RFC 9110 section 5.6.2.
#[inline]
pub(crate) fn is_token(b: u8) -> bool {
    CLASS[usize::from(b)] & TOKEN != 0
}

/// At least one `tchar`, and nothing else.
pub(crate) fn is_token_all(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all_are(bytes, TOKEN)
}

/// Bytes of a token that stand at the beginning.
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    class_len(bytes, TOKEN)
}

/// The same, up to a byte that is rare in tokens, and not those at the very end.
#[inline(always)]
pub(crate) fn plain_token_len(bytes: &[u8]) -> usize {
    words::find_16(bytes, |byte| !(byte | b' ').is_ascii_lowercase() & (byte != b'-'))
}

/// Whether there is nothing but letters, digits and `-`.
pub(crate) fn is_word_all(bytes: &[u8]) -> bool {
    all_are(bytes, WORD)
}

/// A byte of a request target. RFC 3986 has fewer, but browsers send `\ ^ { | }` and the grave accent
/// unencoded in queries, so these pass. What they always encode is refused: `" # < >`, control bytes and
/// everything beyond ASCII.
#[inline]
pub(crate) fn is_target(b: u8) -> bool {
    CLASS[usize::from(b)] & TARGET != 0
}

/// Whether there is nothing but bytes of a request target.
#[inline]
pub(crate) fn is_target_all(bytes: &[u8]) -> bool {
    bytes.get(plain_target_len(bytes)..).is_none_or(|rest| all_are(rest, TARGET))
}

/// Bytes of a request target that stand at the beginning.
pub(crate) fn target_len(bytes: &[u8]) -> usize {
    class_len(bytes, TARGET)
}

/// The same, up to a byte that is rare in targets, and not those at the very end.
#[inline(always)]
pub(crate) fn plain_target_len(bytes: &[u8]) -> usize {
    words::find_16(bytes, |byte| (byte.wrapping_sub(b'$') > b'~' - b'$') | (byte & !2 == b'<'))
}

/// A byte of a field value: `field-vchar`, space, tab (RFC 9110 section 5.5).
#[inline]
pub(crate) fn is_value(b: u8) -> bool {
    CLASS[usize::from(b)] & VALUE != 0
}

/// Bytes of a field value that stand at the beginning.
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    class_len(bytes, VALUE)
}

/// The same, up to a byte that is rare in values.
#[inline]
pub(crate) fn plain_value_len(bytes: &[u8]) -> usize {
    words::before_control(bytes)
}

/// Bytes of a class that stand at the beginning.
#[inline(never)]
fn class_len(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|byte| CLASS[usize::from(*byte)] & class == 0).unwrap_or(bytes.len())
}

/// Whether all bytes are of a class. Each is looked at: that costs half as much as asking behind each whether to go on.
#[inline(never)]
fn all_are(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |all, byte| all & CLASS[usize::from(*byte)]) != 0
}

/// What is ASCII, as text.
#[inline]
pub(crate) fn ascii(bytes: &[u8]) -> Option<&str> {
    bytes.as_ascii_str().ok().map(AsciiStr::as_str)
}

/// The others, told without a table.
#[inline]
pub(crate) fn is_control(b: u8) -> bool {
    (b < b' ' && b != b'\t') || b == 0x7f
}

/// Whether there is nothing but bytes of a `reg-name`, and one of them at least.
pub(crate) fn is_reg_name_all(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all_are(bytes, REG_NAME)
}

/// Bytes of a `reg-name` that stand at the beginning.
#[inline]
pub(crate) fn reg_name_len(bytes: &[u8]) -> usize {
    class_len(bytes, REG_NAME)
}

/// `unreserved` or `sub-delims` of RFC 3986, what a `reg-name` consists of beside percent-encoded bytes.
#[inline]
pub(crate) fn is_reg_name(b: u8) -> bool {
    CLASS[usize::from(b)] & REG_NAME != 0
}

/// Without spaces and tabs at both ends (`OWS`). `trim_ascii` would also take line ends.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_grammar() {
        for b in 0..=255u8 {
            let token = b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            assert_eq!(is_token(b), token, "{b:#x}");
            let reg_name = b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b);
            assert_eq!(is_reg_name(b), reg_name, "{b:#x}");
            assert_eq!(is_value(b), b == b'\t' || b >= b' ' && b != 0x7f, "{b:#x}");
            assert_eq!(is_control(b), !is_value(b), "{b:#x}");
            assert_eq!(is_target(b), b.is_ascii_graphic() && !b"\"#<>".contains(&b), "{b:#x}");
            let word = b.is_ascii_alphanumeric() || b == b'-';
            for at in [0, 5, 16, 19] {
                let mut bytes = [b'a'; 20];
                bytes[at] = b;
                let all = (
                    is_token_all(&bytes),
                    is_target_all(&bytes),
                    is_reg_name_all(&bytes),
                    is_word_all(&bytes),
                );
                assert_eq!(all, (token, is_target(b), reg_name, word), "{b:#x} at {at}");
            }
        }
    }
}
