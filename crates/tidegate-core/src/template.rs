//! Texts of the settings with placeholders: the address of `redirect`, the values of `header` and `request-header`.
//!
//! What is no placeholder is text, braces included, so that JSON may stand in a field.

use crate::exchange::Exchange;
use tidegate_http::Target;
use tidegate_http::path::{encode_path, normalise};
use tidegate_io::socket::Peer;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pieces: Vec<Piece>,
}

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// `{client}`: the address of the client, nothing for one of a unix socket.
    Client,
    /// `{host}`: without its port.
    Host,
    /// `{method}`
    Method,
    /// `{path}`: decoded and normalised, then encoded again; begins with a slash.
    Path,
    /// `{query}`: with its `?`; nothing where there is none.
    Query,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{uri}`: path and query as the client sent them.
    Uri,
}

const NAMES: [(&str, Piece); 7] = [
    ("{client}", Piece::Client),
    ("{host}", Piece::Host),
    ("{method}", Piece::Method),
    ("{path}", Piece::Path),
    ("{query}", Piece::Query),
    ("{scheme}", Piece::Scheme),
    ("{uri}", Piece::Uri),
];

impl Template {
    /// Reads a text.
    pub fn parse(text: &str) -> Template {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(first) = rest.chars().next() {
            if let Some((name, piece)) = NAMES.iter().find(|(name, _)| rest.starts_with(name)) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(piece.clone());
                rest = &rest[name.len()..];
            } else {
                plain.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Template { pieces }
    }

    /// Its pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The text, where it is the same for every request.
    pub fn fixed(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for a request, as the value of a field.
    pub fn fill(&self, exchange: &Exchange<'_>) -> String {
        Self::fill_pieces(self.pieces.iter(), exchange)
    }

    /// The same without `{client}`, where something else stands for it.
    pub(crate) fn fill_without_client(&self, exchange: &Exchange<'_>) -> String {
        Self::fill_pieces(self.pieces.iter().filter(|piece| **piece != Piece::Client), exchange)
    }

    fn fill_pieces<'p>(pieces: impl Iterator<Item = &'p Piece>, exchange: &Exchange<'_>) -> String {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Client => {
                    if let Peer::Tcp(_) = exchange.state.remote.client {
                        text += &exchange.state.remote.client.to_string();
                    }
                }
                Piece::Host => text.push_str(host_of(exchange.authority)),
                Piece::Method => text.push_str(exchange.method_token),
                Piece::Path => text += &path_asked_for(exchange),
                Piece::Query => {
                    if let Some(query) = exchange.query {
                        text.push('?');
                        text.push_str(query);
                    }
                }
                Piece::Scheme => text.push_str(exchange.scheme),
                Piece::Uri => text += &uri_of(exchange.target),
            }
        }
        text
    }
}

/// The path that the client has asked for, also where `index` or `try` have led on to another.
fn path_asked_for(exchange: &Exchange<'_>) -> String {
    let mut scratch = Vec::new();
    let target = Target::parse(exchange.method, exchange.target).ok().filter(|_| exchange.state.hops > 0);
    let raw_path = target.as_ref().and_then(Target::path);
    let path = raw_path.and_then(|raw_path| normalise(raw_path, &mut scratch).ok());
    encode_path(path.unwrap_or(exchange.path))
}

/// The host of an authority, brackets included, without the port.
pub fn host_of(authority: &str) -> &str {
    match authority.bytes().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(at) if authority[at..].starts_with(':') => &authority[..at],
        _ => authority,
    }
}

/// Path and query of a request target, beginning with exactly one slash. Browsers take a backslash for a
/// slash, so it is encoded.
pub fn uri_of(target: &str) -> String {
    let rooted = match target.split_once("://") {
        // Absolute form; in origin form a `://` can only stand behind the first slash.
        Some((_, rest)) if !target.starts_with('/') => rest.find(['/', '?']).map_or("", |at| &rest[at..]),
        _ => target,
    };
    format!("/{}", rooted.trim_start_matches(['/', '\\']).replace('\\', "%5C"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_placeholder_is_text() {
        for (text, fixed) in [
            ("nosniff", true),
            ("", true),
            ("{\"group\":\"default\",\"max_age\":1}", true),
            ("{unknown}{", true),
            ("{path", true),
            ("a{client}b", false),
            ("{path}", false),
        ] {
            assert_eq!(Template::parse(text).fixed(), fixed.then_some(text), "{text}");
        }
        let pieces = [Piece::Text("{".into()), Piece::Path, Piece::Query, Piece::Text("}".into())];
        assert_eq!(Template::parse("{{path}{query}}").pieces(), pieces);
    }
}
