//! URL lists in siege's `urls.txt` format: one URL a line, `URL POST a=b` for a form, `URL POST <file` for a
//! body from a file, `NAME=value` variables used as `$(NAME)` or `${NAME}`, `#` comments. Beside siege's: a line may begin
//! with `3x` to come three times as often, and `PUT`, `PATCH` and `DELETE` stand where `POST` does.

use crate::request::Description;
use crate::target::{TargetError, Url};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use thiserror::Error;

/// Why a list cannot be used. The list is at fault.
#[derive(Debug, Error)]
pub enum UrlsError {
    /// The file itself.
    #[error("cannot read {path}")]
    Read {
        /// Of the list.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// One of its lines.
    #[error("{path}:{line}: {fault}")]
    Line {
        /// Of the list.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        fault: LineFault,
    },
    /// Only comments.
    #[error("{0}: holds no URL")]
    Empty(String),
}

/// What is wrong with a line.
#[derive(Debug, Error)]
pub enum LineFault {
    /// Its URL.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A word where a method is expected.
    #[error(
        "`{0}` is not POST, PUT, PATCH, DELETE, HEAD or GET; write `URL POST a=b`, and %20 for a space in a URL"
    )]
    Method(String),
    /// `$(NAME)` of which nothing was said before.
    #[error("$({0}) is not set; put a line `{0}=value` above")]
    Variable(String),
    /// `0x`, or more than a million.
    #[error("the weight `{0}` is not a number from 1 to 1000000")]
    Weight(String),
    /// A weight and nothing behind it.
    #[error("a weight stands before a URL, as in `3x http://127.0.0.1/`")]
    NoUrl,
    /// The file after `<`.
    #[error("cannot read the body {0}: {1}")]
    Body(String, io::Error),
    /// Not text.
    #[error("holds bytes that are not UTF-8")]
    Text,
}

/// Reads a list. Bodies from files are found from the folder of the list.
///
/// # Errors
/// [`UrlsError`] for the first bad line: half a list would be another load.
pub fn read(path: &Path) -> Result<Vec<Description>, UrlsError> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|source| UrlsError::Read { path: name.clone(), source })?;
    parse(&bytes, &name, path.parent().unwrap_or(Path::new(".")))
}

/// What some editors begin a text in UTF-8 with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads the text of a list.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], name: &str, folder: &Path) -> Result<Vec<Description>, UrlsError> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut variables = BTreeMap::new();
    let mut list = Vec::new();
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let at = |fault| UrlsError::Line { path: name.to_owned(), line: number + 1, fault };
        let line = str::from_utf8(line).map_err(|_| at(LineFault::Text))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = expand(line, &variables).map_err(at)?;
        if let Some((variable, value)) = assignment(&line) {
            variables.insert(variable.to_owned(), value.to_owned());
            continue;
        }
        list.push(description(&line, folder).map_err(at)?);
    }
    if list.is_empty() { Err(UrlsError::Empty(name.to_owned())) } else { Ok(list) }
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    is_name(name).then(|| (name, value.trim()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn expand(line: &str, variables: &BTreeMap<String, String>) -> Result<String, LineFault> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let inside = |open, close| after.strip_prefix(open)?.split_once(close);
        match inside('(', ')').or_else(|| inside('{', '}').filter(|(name, _)| is_name(name))) {
            Some((name, behind)) => {
                let unset = || LineFault::Variable(name.to_owned());
                out.push_str(variables.get(name).ok_or_else(unset)?);
                rest = behind;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn description(line: &str, folder: &Path) -> Result<Description, LineFault> {
    let (weight, line) = weight(line)?;
    let (url, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let mut description = Description { weight, ..Description::get(Url::parse(url)?) };
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Ok(description);
    }
    let (method, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if !matches!(method, "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "GET") {
        return Err(LineFault::Method(method.to_owned()));
    }
    description.method = method.to_owned();
    let body = body.trim_start();
    if let Some(path) = body.strip_prefix('<') {
        let path = folder.join(path.trim());
        description.body =
            fs::read(&path).map_err(|error| LineFault::Body(path.display().to_string(), error))?;
        description.fields.push(("Content-Type".into(), "application/octet-stream".into()));
    } else if !body.is_empty() {
        description.body = body.as_bytes().to_vec();
        let is_json = body.starts_with(['{', '[']);
        let kind = if is_json { "application/json" } else { "application/x-www-form-urlencoded" };
        description.fields.push(("Content-Type".into(), kind.into()));
    }
    Ok(description)
}

/// `3x http://…`. A URL without a scheme may begin with a digit too, so the `x` and a space must follow.
fn weight(line: &str) -> Result<(u32, &str), LineFault> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match first.strip_suffix('x') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            match digits.parse() {
                _ if rest.is_empty() => Err(LineFault::NoUrl),
                Ok(weight @ 1..=1_000_000) => Ok((weight, rest.trim_start())),
                _ => Err(LineFault::Weight(first.to_owned())),
            }
        }
        _ => Ok((1, line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_siege() {
        let text =
            b"\xef\xbb\xbf# comment\nHOST=127.0.0.1:8080\n\nhttp://$(HOST)/a\nhttp://${HOST}/form POST a=b&c=d e\n\
            3x $(HOST)/often\n$(HOST)/$1 POST {\"a\": \"$ ${ }\"}\nhttp://$(HOST)/j POST {\"a\": 1}\n$(HOST)/gone DELETE\n";
        let list = parse(text, "urls.txt", Path::new(".")).unwrap();
        let seen: Vec<_> = list
            .iter()
            .map(|d| (d.method.as_str(), d.url.request_target.as_str(), d.body.as_slice(), d.weight))
            .collect();
        assert_eq!(
            seen,
            [
                ("GET", "/a", &b""[..], 1),
                ("POST", "/form", b"a=b&c=d e", 1),
                ("GET", "/often", b"", 3),
                ("POST", "/$1", b"{\"a\": \"$ ${ }\"}", 1),
                ("POST", "/j", b"{\"a\": 1}", 1),
                ("DELETE", "/gone", b"", 1),
            ]
        );
        assert_eq!(list[1].fields, [("Content-Type".into(), "application/x-www-form-urlencoded".into())]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let table: [(&[u8], &str); 10] = [
            (b"http://a/\nhttp://b/ c d\n", "urls.txt:2: `c` is not POST"),
            (b"http://$(HOST)/\n", "urls.txt:1: $(HOST) is not set"),
            (b"http://${HOST}/\n", "urls.txt:1: $(HOST) is not set"),
            (b"ftp://a/\n", "urls.txt:1: ftp://a/: not an http URL"),
            (b"3x\n", "urls.txt:1: a weight stands before a URL"),
            (b"0x http://a/\n", "urls.txt:1: the weight `0x`"),
            (b"http://a/ POST </does/not/exist\n", "cannot read the body"),
            (b"\xff\n", "not UTF-8"),
            (b"# nothing\n", "urls.txt: holds no URL"),
            (b"http://a:0/", "urls.txt:1: http://a:0/: the port"),
        ];
        for (text, part) in table {
            let message = parse(text, "urls.txt", Path::new(".")).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
