//! Request targets in their four forms (RFC 9112 section 3.2).
//!
//! Called by the codecs with what stands between method and version, and with `:path` in HTTP/2 and 3.
//! The path is not decoded here: that is for [`crate::path`].

use crate::authority::{Authority, AuthorityError};
use crate::method::Method;
use std::borrow::Cow;

/// A request target, borrowed from the request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/where?q=now`, the ordinary form.
    Origin {
        /// Begins with a slash.
        path: &'a str,
        /// Behind the first question mark, without it.
        query: Option<&'a str>,
    },
    /// `http://www.example.org/pub/`, the form for a proxy; every server has to take it.
    Absolute {
        /// As sent; compare without regard to case.
        scheme: &'a str,
        /// Takes the place of the `Host` field.
        authority: Authority<'a>,
        /// Begins with a slash; `/` where the target has none. `*` for an OPTIONS without path and query,
        /// which asks about the server as a whole (section 3.2.4).
        path: &'a str,
        /// Behind the first question mark, without it.
        query: Option<&'a str>,
    },
    /// `www.example.com:80`, for CONNECT only. The port is there.
    Authority(Authority<'a>),
    /// `*`, for OPTIONS only.
    Asterisk,
}

/// What the peer got wrong. All of these are answered with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nothing there.
    #[error("the request target is empty")]
    Empty,
    /// White space, a control character, or a byte that is not ASCII.
    #[error("the request target holds a space, a control character or a non-ASCII character")]
    InvalidCharacter,
    /// A `#`: fragments stay with the client.
    #[error("the request target holds a fragment")]
    Fragment,
    /// A form that this method cannot have, or none of the four.
    #[error("the request target has a form that does not suit the method")]
    WrongForm,
    /// CONNECT without a port.
    #[error("the request target of CONNECT has no port")]
    MissingPort,
    /// Host or port are not valid.
    #[error("the authority in the request target is not valid: {0}")]
    Authority(#[from] AuthorityError),
}

impl<'a> Target<'a> {
    /// Reads a target. Visible ASCII that the grammar of a URI does not allow (`|`, `"`, `{`) is let
    /// through in path and query: clients send it, and no reading of it is ambiguous.
    ///
    /// # Errors
    /// The target is empty, holds a byte that none may hold, has a form that does not suit the method, or
    /// names an authority that is not valid or, with CONNECT, has no port.
    pub fn parse(method: Method, text: &'a str) -> Result<Target<'a>, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        check_characters(text.as_bytes())?;
        if method == Method::Connect {
            let authority = Authority::parse(text.as_bytes())?;
            return match authority.port {
                Some(_) => Ok(Target::Authority(authority)),
                None => Err(TargetError::MissingPort),
            };
        }
        if text.starts_with('/') {
            let (path, query) = split_query(text);
            return Ok(Target::Origin { path, query });
        }
        if text == "*" {
            return if method == Method::Options {
                Ok(Target::Asterisk)
            } else {
                Err(TargetError::WrongForm)
            };
        }
        parse_absolute(method, text)
    }

    /// The path, still encoded; `None` where the target has none.
    #[inline]
    pub fn path(&self) -> Option<&'a str> {
        match *self {
            Target::Origin { path, .. } => Some(path),
            Target::Absolute { path, .. } if path != "*" => Some(path),
            _ => None,
        }
    }

    /// The query, still encoded, without its question mark.
    #[inline]
    pub fn query(&self) -> Option<&'a str> {
        match *self {
            Target::Origin { query, .. } | Target::Absolute { query, .. } => query,
            _ => None,
        }
    }

    /// Host and port, where the target names them.
    #[inline]
    pub fn authority(&self) -> Option<Authority<'a>> {
        match *self {
            Target::Absolute { authority, .. } | Target::Authority(authority) => Some(authority),
            _ => None,
        }
    }
}

/// A request target in origin form, where it has a path: the absolute form of it is the same URI (RFC 9112 section 3.2.2), and
/// whoever is told of the target is told of one and the same. Path and query stay as they were sent.
#[inline]
pub fn origin_form(target: &str) -> Cow<'_, str> {
    if target.starts_with('/') { Cow::Borrowed(target) } else { of_absolute(target) }
}

#[cold]
fn of_absolute(target: &str) -> Cow<'_, str> {
    let Some((_, rest)) = target.split_once("://") else { return Cow::Borrowed(target) };
    match rest.find(['/', '?']).map(|at| &rest[at..]) {
        None => Cow::Borrowed("/"),
        Some(rooted) if rooted.starts_with('/') => Cow::Borrowed(rooted),
        Some(query) => Cow::Owned(format!("/{query}")),
    }
}

fn check_characters(text: &[u8]) -> Result<(), TargetError> {
    for &byte in text {
        if !byte.is_ascii_graphic() {
            return Err(TargetError::InvalidCharacter);
        }
        if byte == b'#' {
            return Err(TargetError::Fragment);
        }
    }
    Ok(())
}

fn parse_absolute(method: Method, text: &str) -> Result<Target<'_>, TargetError> {
    let (scheme, rest) = text.split_once("://").ok_or(TargetError::WrongForm)?;
    if !is_scheme(scheme.as_bytes()) {
        return Err(TargetError::WrongForm);
    }
    let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let authority = Authority::parse(authority.as_bytes())?;
    let (path, query) = match split_query(rest) {
        ("", None) if method == Method::Options => ("*", None),
        ("", query) => ("/", query),
        both => both,
    };
    Ok(Target::Absolute { scheme, authority, path, query })
}

#[inline]
fn split_query(text: &str) -> (&str, Option<&str>) {
    match memchr::memchr(b'?', text.as_bytes()) {
        Some(mark) => (&text[..mark], Some(&text[mark + 1..])),
        None => (text, None),
    }
}

fn is_scheme(scheme: &[u8]) -> bool {
    scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
