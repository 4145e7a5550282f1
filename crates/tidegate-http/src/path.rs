//! Paths: from what the client sent to the bytes that are looked up, and back (RFC 3986 sections 2.1, 3.3
//! and 5.2.4).
//!
//! Called once for each request, before routes are matched; routes, access rules and the file system all
//! see the same normalised path. Decoding happens here and nowhere else: who decodes again lets double
//! encodings through. Keeping inside the root is the file system's own doing as well (`RESOLVE_BENEATH`).

use crate::status::Status;
use std::borrow::Cow;

/// What the peer got wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// A `%` without two hexadecimal digits behind it.
    #[error("the path holds a percent sign without two hexadecimal digits")]
    MalformedPercent,
    /// A NUL byte, which no file name has.
    #[error("the path holds a NUL byte")]
    Nul,
    /// More `..` than there are segments before it.
    #[error("the path leads above the root")]
    AboveRoot,
    /// `..;` or `.;` at the beginning of a segment: a file may be called so, and some applications take it for `..` with a
    /// parameter (RFC 3986 section 3.3), past whoever has judged the path before.
    #[error("the path holds a dot segment with a parameter")]
    DotParameter,
    /// What a client has named becomes a `.` or `..` in a path of the settings.
    #[error("what is put into the path makes a `.` or `..` of it")]
    FilledDots,
    /// `%2F`: a slash that is data. No file name can hold one, and to take it for a separator would let
    /// it slip past whoever looked at the path before.
    #[error("the path holds an encoded slash")]
    EncodedSlash,
}

impl PathError {
    /// The status to answer with: 404 where the path is well-formed but can name nothing, else 400.
    pub fn status(self) -> Status {
        match self {
            PathError::EncodedSlash => Status::NOT_FOUND,
            _ => Status::BAD_REQUEST,
        }
    }
}

/// Decodes percent-encodings once, merges slashes and resolves dot segments, encoded ones included.
///
/// The result begins with a slash and holds no empty, `.` or `..` segment and no NUL; a slash at the end
/// is kept (and `/a/.`, `/a/b/..` end in one). Its bytes need not be UTF-8: what was not valid, overlong
/// forms included, stays as it is and names whatever file has those bytes. A backslash is a byte like any.
///
/// Where there is nothing to do, as for most requests, `raw_path` itself is returned and `scratch` is not
/// touched; otherwise the result is built in `scratch`.
///
/// # Errors
/// The path does not begin with a slash, leads above the root, or holds a NUL, an encoded slash, a malformed
/// percent-encoding or a dot segment with a parameter.
#[inline]
pub fn normalise<'a>(raw_path: &'a str, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], PathError> {
    let raw_path = raw_path.as_bytes();
    if is_normal(raw_path) { Ok(raw_path) } else { rebuild(raw_path, scratch, Slash::Refused) }
}

/// Whether the path holds an encoded slash, which [`normalise`] refuses.
pub fn has_encoded_slash(raw_path: &str) -> bool {
    raw_path.as_bytes().windows(3).any(|bytes| matches!(bytes, b"%2F" | b"%2f"))
}

/// Both readings of a path with encoded slashes, for what passes it on as it was sent and cannot know which of
/// them the next one follows. As a separator it ends a segment, with all that [`normalise`] makes of one; as
/// data it stays `%2F` within its segment.
///
/// # Errors
/// One of the readings is refused, for what [`normalise`] refuses except encoded slashes; or an encoded slash stands beside a dot
/// segment, or it matters which of both are resolved first.
pub fn both_readings(raw_path: &str) -> Result<(Vec<u8>, Vec<u8>), PathError> {
    let (mut as_separator, mut as_data) = (Vec::new(), Vec::new());
    let separated = |path: &str| path.replace("%2F", "/").replace("%2f", "/");
    rebuild(separated(raw_path).as_bytes(), &mut as_separator, Slash::Refused)?;
    rebuild(raw_path.as_bytes(), &mut as_data, Slash::Kept)?;
    let resolved = without_dot_segments(raw_path);
    if has_dot_segment(&separated(&resolved)) {
        return Err(PathError::EncodedSlash); // who takes it for slashes may leave the dot segments that come of it
    }
    if let Cow::Owned(resolved) = resolved {
        let mut once_more = Vec::new();
        if rebuild(separated(&resolved).as_bytes(), &mut once_more, Slash::Refused)? != as_separator {
            return Err(PathError::EncodedSlash);
        }
    }
    Ok((as_separator, as_data))
}

/// The path that [`normalise`] makes of one, encoded. An encoded slash stays `%2F`.
///
/// # Errors
/// As [`normalise`], except for encoded slashes.
pub fn normal_form(raw_path: &str) -> Result<String, PathError> {
    // The one byte that no path holds stands for it, so that `%252F` stays another path.
    let mut normal = Vec::new();
    rebuild(raw_path.as_bytes(), &mut normal, Slash::Marked)?;
    Ok(encode_path(&normal).replace("%00", "%2F"))
}

/// A path as it was sent, without its dot segments: each segment that stays keeps its encoding. [`normalise`] makes the same
/// of both, so that whoever gets this one sees no other path than the one that was decided about.
pub fn without_dot_segments(raw_path: &str) -> Cow<'_, str> {
    if !has_dot_segment(raw_path) {
        return Cow::Borrowed(raw_path);
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in raw_path.split('/').skip(1) {
        let dots = dots_of(segment);
        is_folder = dots.is_some();
        match dots {
            None => kept.push(segment),
            Some(".") => {}
            Some(_) => {
                // Of several slashes in a row one counts.
                while kept.pop_if(|segment| segment.is_empty()).is_some() {}
                kept.pop();
            }
        }
    }
    if is_folder {
        kept.push("");
    }
    Cow::Owned(format!("/{}", kept.join("/")))
}

/// Whether a path holds `.` or `..` as a segment, encoded or not.
fn has_dot_segment(path: &str) -> bool {
    let begins_so = |pair: &[u8]| matches!(pair, [b'/', b'.' | b'%']);
    path.as_bytes().windows(2).any(begins_so) && path.split('/').any(|segment| dots_of(segment).is_some())
}

/// `.` or `..`, where a segment is one of them, encoded or not.
fn dots_of(segment: &str) -> Option<&'static str> {
    if !segment.starts_with(['.', '%']) {
        return None;
    }
    match segment.replace("%2e", ".").replace("%2E", ".").as_str() {
        "." => Some("."),
        ".." => Some(".."),
        _ => None,
    }
}

/// How many bytes behind the first slash of a reference would make clients read it as one that names a host (RFC 3986
/// section 4.2, `//host`). Browsers take a backslash for a slash, and leave tabs and line ends out before they look.
fn host_mark(reference: &str) -> usize {
    let Some(rest) = reference.strip_prefix('/') else { return 0 };
    let others = rest.trim_start_matches(['/', '\\', '\t', '\r', '\n']);
    let mark = &rest[..rest.len() - others.len()];
    if mark.contains(['/', '\\']) { mark.len() } else { 0 }
}

/// Whether a reference that begins with a slash names a host, to any client.
pub fn names_host(reference: &str) -> bool {
    host_mark(reference) > 0
}

/// Makes a path of a reference that begins with a slash, whatever follows it: without what would name a host.
pub fn without_host(reference: &mut String) {
    let mark = host_mark(reference);
    if mark > 0 {
        reference.drain(1..=mark);
    }
}

/// What of a path as it was sent stands behind a decoded prefix; `None` where it does not begin so.
pub fn behind_prefix<'a>(raw_path: &'a str, prefix: &str) -> Option<&'a str> {
    let (raw, mut at) = (raw_path.as_bytes(), 0);
    for expected in prefix.bytes() {
        let (byte, len) = match raw.get(at..)? {
            [b'%', high, low, ..] => (hex_digit(*high)? << 4 | hex_digit(*low)?, 3),
            [byte, ..] => (*byte, 1),
            [] => return None,
        };
        // A slash that was encoded is none.
        if byte != expected || byte == b'/' && len == 3 {
            return None;
        }
        at += len;
    }
    raw_path.get(at..).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What becomes of `%2F`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    Refused,
    /// It stays `%2F`.
    Kept,
    /// A NUL byte stands for it.
    Marked,
}

/// Path and query of a target in origin form that a codec has let through, where the path is normal as it is: the ordinary
/// request in one look. Its path needs no [`normalise`].
#[inline]
pub fn split_normal(target: &str) -> Option<(&str, Option<&str>)> {
    if !target.starts_with('/') {
        return None;
    }
    let len = plain_len(target.as_bytes());
    if len == target.len() {
        return Some((target, None));
    }
    let query = target.get(len..)?.strip_prefix('?')?;
    Some((target.get(..len)?, Some(query)))
}

/// Whether the path can be used as it is.
#[inline]
fn is_normal(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && (plain_len(path) == path.len() || is_normal_throughout(path))
}

/// Bytes in front of one that is not always used as it is, begins a query or is not visible ASCII, or of a segment that is empty
/// or begins with a dot.
#[inline]
fn plain_len(path: &[u8]) -> usize {
    let is_plain = |(at, byte): (usize, &u8)| {
        let is_behind_slash = || at > 0 && path.get(at - 1) == Some(&b'/');
        IS_PLAIN[usize::from(*byte)] || (matches!(byte, b'/' | b'.') && !is_behind_slash())
    };
    path.iter().enumerate().position(|place| !is_plain(place)).unwrap_or(path.len())
}

/// Bytes that are used as they are wherever they stand.
static IS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b'%' + 1;
    while byte < 0x7f {
        table[byte as usize] = !matches!(byte, b'.' | b'/' | b'?');
        byte += 1;
    }
    table
};

#[inline(never)]
fn is_normal_throughout(path: &[u8]) -> bool {
    let mut is_segment_start = false;
    for (position, &byte) in path.iter().enumerate() {
        match byte {
            b'%' | 0 => return false,
            b'/' if is_segment_start => return false,
            b'.' if is_segment_start && is_dot_segment(&path[position..]) => return false,
            _ => {}
        }
        is_segment_start = byte == b'/';
    }
    true
}

/// Whether these bytes begin with a `.` or `..` segment.
fn is_dot_segment(bytes: &[u8]) -> bool {
    matches!(bytes, [b'.'] | [b'.', b'/' | b';', ..] | [b'.', b'.'] | [b'.', b'.', b'/' | b';', ..])
}

/// Whether a decoded segment is `.` or `..` with a parameter, which [`normalise`] refuses.
fn is_dot_parameter(segment: &[u8]) -> bool {
    matches!(segment, [b'.', b';', ..] | [b'.', b'.', b';', ..])
}

/// Whether some request path names an entry of a folder that is called so.
pub fn is_reachable(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && !is_dot_parameter(name)
        && !name.contains(&b'/')
        && !name.contains(&0)
}

fn rebuild<'a>(raw_path: &[u8], out: &'a mut Vec<u8>, slash: Slash) -> Result<&'a [u8], PathError> {
    out.clear();
    let [b'/', rest @ ..] = raw_path else { return Err(PathError::NotAbsolute) };
    let mut is_folder = false;
    // Only slashes that were sent as such separate; `decode` refuses the others.
    for segment in rest.split(|&byte| byte == b'/') {
        let start = out.len();
        out.push(b'/');
        decode(segment, out, slash)?;
        if is_dot_parameter(&out[start + 1..]) {
            return Err(PathError::DotParameter);
        }
        is_folder = matches!(&out[start + 1..], b"" | b"." | b"..");
        if !is_folder {
            continue;
        }
        let leads_up = out.len() - start == 3;
        out.truncate(start);
        if leads_up {
            let parent = memchr::memrchr(b'/', out).ok_or(PathError::AboveRoot)?;
            out.truncate(parent);
        }
    }
    if is_folder {
        out.push(b'/');
    }
    Ok(out)
}

/// Appends a segment with its percent-encodings resolved.
fn decode(mut segment: &[u8], out: &mut Vec<u8>, slash: Slash) -> Result<(), PathError> {
    loop {
        let literal = memchr::memchr(b'%', segment).unwrap_or(segment.len());
        if memchr::memchr(0, &segment[..literal]).is_some() {
            return Err(PathError::Nul);
        }
        out.extend_from_slice(&segment[..literal]);
        let byte = match &segment[literal..] {
            [] => return Ok(()),
            [_, high, low, rest @ ..] => {
                segment = rest;
                match (hex_digit(*high), hex_digit(*low)) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err(PathError::MalformedPercent),
                }
            }
            _ => return Err(PathError::MalformedPercent),
        };
        match byte {
            0 => return Err(PathError::Nul),
            b'/' => match slash {
                Slash::Refused => return Err(PathError::EncodedSlash),
                Slash::Kept => out.extend_from_slice(b"%2F"),
                Slash::Marked => out.push(0),
            },
            _ => out.push(byte),
        }
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Encodes a path, or a single file name, for use in a link or a `Location`: everything but unreserved
/// characters, sub-delimiters, `@` and `/` becomes `%XX`.
///
/// The colon is encoded although a segment may hold one: as a relative link, a file named
/// `javascript:x` would else be a scheme. The result still has to be escaped for HTML (`&`, `'`).
pub fn encode_path(path: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=@/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path is the same path with nothing between its first slash and what follows (the URL standard, "relative slash
    /// state"; tabs and line ends are removed before it is read).
    #[test]
    fn no_path_names_a_host() {
        for (reference, expected) in [
            ("/a//b", "/a//b"),
            ("//evil.test/x", "/evil.test/x"),
            ("///evil.test", "/evil.test"),
            ("/\\evil.test", "/evil.test"),
            ("/\t/evil.test", "/evil.test"),
            ("/\t\\\r\n/evil.test", "/evil.test"),
            ("//", "/"),
            ("/\tx", "/\tx"),
            ("/", "/"),
            ("/./\\/x", "/./\\/x"),
            ("https://a.test//x", "https://a.test//x"),
            ("a//b", "a//b"),
            ("", ""),
        ] {
            let mut text = reference.to_owned();
            without_host(&mut text);
            assert_eq!(text, expected, "{reference:?}");
            assert_eq!(names_host(reference), reference != expected, "{reference:?}");
        }
    }

    #[test]
    fn what_is_taken_as_it_is_is_normal() {
        const LETTERS: [u8; 6] = *b"/.%x\0\x01";
        for before in 0..10 {
            for number in 0..6usize.pow(5) {
                let mut path = vec![b'x'; before];
                path.extend((0..5).map(|digit| LETTERS[number / 6usize.pow(digit) % 6]));
                path.insert(0, b'/');
                assert!(is_normal_throughout(&path[..plain_len(&path)]), "{path:?}");
                assert_eq!(is_normal(&path), is_normal_throughout(&path), "{path:?}");
            }
        }
        for ordinary in ["/", "/a", "/small.bin", "/assets/app.3f2.js", "/a/b/c/d/e.f/g/"] {
            assert_eq!(split_normal(ordinary), Some((ordinary, None)));
            let with_query = format!("{ordinary}?/../%2e?#");
            assert_eq!(split_normal(&with_query), Some((ordinary, Some("/../%2e?#"))));
        }
        for other in ["", "*", "a", "http://a/", "//", "/./", "/a/..", "/%61?b", "/a//b?c", "/a b", "/\u{e9}"]
        {
            assert_eq!(split_normal(other), None, "{other}");
        }
    }
}
