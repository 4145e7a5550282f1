//! Texts of the settings with placeholders: the address of `redirect`, the path of `rewrite` and `hand-to`, the values of
//! `header` and `request-header`.
//!
//! What is no placeholder is text, braces included, so that JSON may stand in a field; `{{client}}` is the text `{client}`. What a client has sent is encoded for
//! the place that it is put into, so that it ends no field, begins no parameter, and names neither a folder nor a host that
//! the text does not.

use crate::exchange::Exchange;
use crate::hosts::host;
use crate::request_values::{self, routed_path};
use crate::trace_context::TraceContext;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use tidegate_config::literal_word;
use tidegate_config::settings::{Country, PathPattern, Route, Shared, ValueMap, Values};
use tidegate_http::path::{PathError, encode_path, normal_form, normalise, without_host};
use tidegate_http::{language, query};
use tidegate_io::socket::Peer;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pieces: Vec<Piece>,
    /// It is a line of cookies: what a client has sent ends none of them, and sets none of their attributes.
    is_cookie: bool,
}

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// `{client}`: the address of the client, nothing for one of a unix socket.
    Client,
    /// `{host}`: without its port, in the one spelling that hosts are compared in.
    Host,
    /// `{method}`
    Method,
    /// `{path}`: decoded and normalised, then encoded again; begins with a slash. Where something is decided by it, it is
    /// the path that routes are chosen by; elsewhere what the client has asked for.
    Path,
    /// `{query}`: with its `?`, or `&` behind another; nothing where there is none.
    Query,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{uri}`: path and query as the client sent them; where something is decided by it, those that routes are chosen by.
    Uri,
    /// What depends on the request in other ways, and what stands there where that is empty.
    Asked(Box<Asked>, String),
}

/// A placeholder that may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `{1}`, `{id}`: a star or a group of the pattern of the route.
    Capture(PathPattern, String),
    /// `{header.NAME}`
    Field(String),
    /// `{cookie.NAME}`
    Cookie(String),
    /// `{query.NAME}`: a parameter of the query, decoded.
    Argument(String),
    /// `{language}`: which of these the client prefers.
    Language(Shared<Vec<String>>),
    /// `{country}`: of the client; nothing where it is not known.
    Country,
    /// `{client.name}`: what the client is called; nothing where that is not known yet, or it has no name.
    ClientName,
    /// `{user}`: who has logged in.
    User,
    /// `{request-id}`
    RequestId,
    /// `{trace-id}`
    TraceId,
    /// `{groups}`: the groups of who has logged in, with commas between them.
    Groups,
    /// `{value.NAME}`
    Value(Rc<ValueTemplate>),
}

/// A `value` of the settings.
#[derive(Debug, PartialEq, Eq)]
pub struct ValueTemplate {
    map: Shared<ValueMap>,
    from: Template,
}

impl ValueTemplate {
    /// From the settings.
    pub fn of(map: &Shared<ValueMap>) -> Rc<ValueTemplate> {
        map.cases.prepare(); // here rather than while a client waits
        Rc::new(ValueTemplate { from: Template::parse(&map.from, Scope::default()), map: map.clone() })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.map.name
    }

    /// See [`Template::fields`].
    pub(crate) fn fields(&self) -> Vec<&str> {
        self.from.fields()
    }

    /// See [`Template::is_about_client`].
    pub(crate) fn is_about_client(&self) -> bool {
        self.from.is_about_client()
    }

    /// What it is for a request, the same to conditions, fields and addresses; empty where nothing fits.
    pub fn result(&self, exchange: &Exchange<'_>) -> &str {
        let from = Template::fill_pieces(self.from.pieces.iter(), Purpose::Decide, exchange);
        self.map.cases.find(from.as_bytes()).unwrap_or_default()
    }
}

const NAMES: [(&str, Piece); 7] = [
    ("client", Piece::Client),
    ("host", Piece::Host),
    ("method", Piece::Method),
    ("path", Piece::Path),
    ("query", Piece::Query),
    ("scheme", Piece::Scheme),
    ("uri", Piece::Uri),
];

/// What placeholders may name where a text stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'s> {
    pattern: Option<&'s PathPattern>,
    values: Option<&'s Values>,
    languages: Option<&'s Shared<Vec<String>>>,
}

impl<'s> Scope<'s> {
    /// In a route.
    pub fn of(route: &'s Route) -> Scope<'s> {
        let languages = Some(&route.languages).filter(|languages| !languages.is_empty());
        Scope { pattern: Some(&route.pattern), values: Some(&route.values), languages }
    }

    fn piece(self, name: &str, default: &str) -> Option<Piece> {
        if let Some((_, piece)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(piece.clone());
        }
        let is_star = |pattern: &PathPattern| {
            // The path of a folder without its slash has the route of the folder, and no star.
            matches!(pattern, PathPattern::Exact(_))
                && !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_known =
            |pattern: &&PathPattern| pattern.captures().iter().any(|known| known == name) || is_star(pattern);
        let captured = self.pattern.filter(is_known);
        let asked = match (captured, name.split_once('.')) {
            (Some(pattern), _) => Asked::Capture(pattern.clone(), name.to_owned()),
            (None, None) if name == "language" => Asked::Language(self.languages?.clone()),
            (None, None) if name == "country" => Asked::Country,
            (None, None) if name == "user" => Asked::User,
            (None, None) if name == "request-id" => Asked::RequestId,
            (None, None) if name == "trace-id" => Asked::TraceId,
            (None, None) if name == "groups" => Asked::Groups,
            (None, Some(("client", "name"))) => Asked::ClientName,
            (None, Some((_, ""))) => return None,
            (None, Some(("header", name))) => Asked::Field(name.to_owned()),
            (None, Some(("cookie", name))) => Asked::Cookie(name.to_owned()),
            (None, Some(("query", name))) => Asked::Argument(name.to_owned()),
            (None, Some(("value", name))) => Asked::Value(ValueTemplate::of(self.values?.get(name)?)),
            _ => return None,
        };
        Some(Piece::Asked(Box::new(asked), default.to_owned()))
    }
}

/// What a text is filled in for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To be sent to a client or an application.
    Tell,
    /// Something is decided by it: no client may get another decision by another way to the same path.
    Decide,
}

/// Where something is put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Field,
    Path,
    Query,
}

impl Template {
    /// Reads a text.
    pub fn parse(text: &str, scope: Scope<'_>) -> Template {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(first) = rest.chars().next() {
            if let Some(word) = literal_word(rest) {
                plain.extend(["{", word, "}"]);
                rest = &rest[word.len() + 4..];
                continue;
            }
            let inside =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(inside, _)| inside);
            let piece = inside.and_then(|inside| {
                let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
                scope.piece(name, default)
            });
            if let (Some(inside), Some(piece)) = (inside, piece) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(piece);
                rest = &rest[inside.len() + 2..];
            } else {
                plain.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Template { pieces, is_cookie: false }
    }

    /// Reads the value of a field of this name.
    pub fn of_field(name: &str, text: &str, scope: Scope<'_>) -> Template {
        let is_cookie = ["Set-Cookie", "Cookie"].iter().any(|cookie| cookie.eq_ignore_ascii_case(name));
        Template { is_cookie, ..Template::parse(text, scope) }
    }

    /// Whether it is made of who asks, which no field of the request says.
    pub(crate) fn is_about_client(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Client => true,
            Piece::Asked(asked, _) => match &**asked {
                Asked::Country | Asked::ClientName | Asked::User | Asked::Groups => true,
                Asked::Value(value) => value.is_about_client(),
                _ => false,
            },
            _ => false,
        })
    }

    /// Whether it holds the language that the client prefers. Routes with `languages` say so themselves on what they answer.
    pub(crate) fn has_language(&self) -> bool {
        let is_language =
            |piece: &Piece| matches!(piece, Piece::Asked(asked, _) if matches!(**asked, Asked::Language(_)));
        self.pieces.iter().any(is_language)
    }

    /// The fields of a request that it is made of, but for languages.
    pub(crate) fn fields(&self) -> Vec<&str> {
        let asked = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Asked(asked, _) => Some(&**asked),
            _ => None,
        });
        let fields = asked.flat_map(|asked| match asked {
            Asked::Field(name) => vec![name.as_str()],
            Asked::Cookie(_) => vec!["Cookie"],
            Asked::Value(value) => value.fields(),
            _ => Vec::new(),
        });
        fields.collect()
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

    /// Whether it says who has logged in, or in which groups that user is.
    pub fn asks_for_user(&self) -> bool {
        let is_user = |piece: &Piece| matches!(piece, Piece::Asked(asked, _) if matches!(**asked, Asked::User | Asked::Groups));
        self.pieces.iter().any(is_user)
    }

    /// Whether it says by which path or with which query a request has come, in place of which `rewrite` may have put others.
    pub fn asks_for_target(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Path | Piece::Uri => true,
            Piece::Asked(asked, _) => match &**asked {
                Asked::Capture(..) => true,
                Asked::Value(value) => value.from.asks_for_target(),
                _ => false,
            },
            _ => false,
        })
    }

    /// The value of a field for a request; `None` where placeholders leave nothing of it, and the field is not sent.
    pub fn field_value(&self, exchange: &Exchange<'_>) -> Option<Cow<'_, str>> {
        match self.fixed() {
            Some(text) => Some(text.into()),
            None => Some(self.fill(exchange)).filter(|value| !value.trim().is_empty()).map(Cow::Owned),
        }
    }

    /// The text for a request, as the value of a field.
    fn fill(&self, exchange: &Exchange<'_>) -> String {
        if !self.is_cookie {
            return Self::fill_pieces(self.pieces.iter(), Purpose::Tell, exchange);
        }
        let mut text = String::new();
        for piece in &self.pieces {
            let filled = Self::fill_pieces(std::iter::once(piece), Purpose::Tell, exchange);
            match piece {
                Piece::Text(_) => text += &filled,
                Piece::Asked(asked, _) if matches!(**asked, Asked::Value(_)) => text += &filled,
                _ => text += &visible(filled.as_bytes(), NO_COOKIE_OCTETS),
            }
        }
        text
    }

    /// What requests are told apart by where something is decided: of the path that routes are chosen by, wherever the
    /// client's has led. Two whose pieces are not all the same never have the same key. Empty where every piece is.
    pub fn fill_key(&self, exchange: &Exchange<'_>) -> String {
        self.fill_key_of(|_| true, exchange)
    }

    /// The same without `{client}`, for which something else stands.
    pub(crate) fn fill_key_but_client(&self, exchange: &Exchange<'_>) -> String {
        self.fill_key_of(|piece| *piece != Piece::Client, exchange)
    }

    fn fill_key_of(&self, is_meant: impl Fn(&Piece) -> bool, exchange: &Exchange<'_>) -> String {
        let varies = |piece: &&Piece| !matches!(piece, Piece::Text(_));
        let has_many = self.pieces.iter().filter(varies).count() > 1;
        let (mut text, mut is_empty) = (String::new(), true);
        for piece in self.pieces.iter().filter(|piece| is_meant(piece)) {
            let before = text.len();
            Self::fill_piece(&mut text, piece, Purpose::Decide, exchange);
            let length = text.len() - before;
            is_empty &= length == 0;
            // Read from the end, what one client could move from a piece to the next has one meaning alone.
            if has_many && varies(&piece) {
                let _ = write!(text, "\0{length}");
            }
        }
        if is_empty { String::new() } else { text }
    }

    fn fill_pieces<'p>(
        pieces: impl Iterator<Item = &'p Piece>,
        purpose: Purpose,
        exchange: &Exchange<'_>,
    ) -> String {
        let mut text = String::new();
        pieces.for_each(|piece| Self::fill_piece(&mut text, piece, purpose, exchange));
        text
    }

    fn fill_piece(text: &mut String, piece: &Piece, purpose: Purpose, exchange: &Exchange<'_>) {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Client => {
                if let Peer::Tcp(_) = exchange.state.remote.client {
                    text.push_str(&exchange.state.remote.client.to_string());
                }
            }
            Piece::Host => text.push_str(&host(exchange.authority)),
            Piece::Method => text.push_str(exchange.method_token),
            Piece::Path if purpose == Purpose::Decide => text.push_str(&encode_path(routed_path(exchange))),
            Piece::Path => text.push_str(&path_asked_for(exchange)),
            Piece::Query => push_query(text, exchange),
            Piece::Scheme => text.push_str(exchange.scheme),
            Piece::Uri if purpose == Purpose::Decide => {
                text.push_str(&encode_path(routed_path(exchange)));
                push_query(text, exchange);
            }
            Piece::Uri => text.push_str(&uri_of(exchange.target)),
            Piece::Asked(asked, default) => asked.put(text, Place::Field, default, exchange),
        }
    }

    /// The text for a request, as an address to send a client to; `None` where it needs a host and the client has named
    /// none. Where one slash meets another between two pieces they become one: `//evil.example` in a path must not become
    /// the host of the address. Nor must what follows placeholders that are empty: a text that begins with a slash is a
    /// path, whatever is filled in.
    ///
    /// # Errors
    /// What a client names would make a `.` or `..` of a part of the path.
    pub fn address(&self, exchange: &Exchange<'_>) -> Result<Option<String>, PathError> {
        let url = self.url(exchange)?;
        Ok(url.map(|(mut text, _)| {
            without_host(&mut text);
            text
        }))
    }

    /// The text for a request as an address, and whether it says what the query is.
    fn url(&self, exchange: &Exchange<'_>) -> Result<Option<(String, bool)>, PathError> {
        let (mut text, mut place, mut has_query) = (String::new(), Place::Path, false);
        let mut filled: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        for piece in &self.pieces {
            let (start, placed) = (text.len(), place);
            match (piece, place) {
                (Piece::Text(plain), _) => {
                    text.push_str(plain);
                    if plain.contains('?') {
                        (place, has_query) = (Place::Query, true);
                    }
                }
                (Piece::Path, Place::Query) => text += &query::encode(exchange.path).replace("%2F", "/"),
                (Piece::Path, _) if exchange.has_ambiguous_path() => {
                    join(&mut text, &path_asked_for(exchange))
                }
                (Piece::Path, _) => join(&mut text, &encode_path(exchange.path)),
                (Piece::Uri, Place::Query) => text += &query::encode(uri_of(exchange.target).as_bytes()),
                (Piece::Uri, _) => {
                    let uri = uri_of(exchange.target);
                    join(&mut text, &uri);
                    if uri.contains('?') {
                        place = Place::Query;
                    }
                }
                (Piece::Query, _) => {
                    has_query = true;
                    if let Some(query) =
                        exchange.query.filter(|query| place == Place::Path || !query.is_empty())
                    {
                        text.push(if place == Place::Query { '&' } else { '?' });
                        text.push_str(query);
                        place = Place::Query;
                    }
                }
                (Piece::Host, _) => match host(exchange.authority) {
                    host if host.is_empty() => return Ok(None),
                    host => text += &host,
                },
                (Piece::Scheme, _) => text.push_str(exchange.scheme),
                // Of no use in an address, and no placeholders there.
                (Piece::Client, _) => text.push_str("{client}"),
                (Piece::Method, _) => text.push_str("{method}"),
                (Piece::Asked(asked, default), _) => {
                    asked.put(&mut text, place, default, exchange);
                    // The result of a `value` may be a whole address; of a client's there is no `?`.
                    if text.get(start..).is_some_and(|filled| filled.contains('?')) {
                        (place, has_query) = (Place::Query, true);
                    }
                }
            }
            if placed == Place::Path && matches!(piece, Piece::Path | Piece::Asked(..)) {
                filled.push(start..text.len());
            }
        }
        if filled.into_iter().any(|filled| makes_dots(&text, filled)) {
            return Err(PathError::FilledDots);
        }
        Ok(Some((text, has_query)))
    }

    /// The text for a request as a path of the same site and its query. The path is normalised as one that a client sends:
    /// whatever was put into it leads nowhere that no client could ask for. The query stays what it is where the text says
    /// nothing of it.
    ///
    /// # Errors
    /// The path is none that a request may have, as where a parameter with a slash stands in it, or what a client names
    /// would lead up.
    pub fn path_and_query(&self, exchange: &Exchange<'_>) -> Result<(Vec<u8>, Option<String>), PathError> {
        let (text, has_query) = self.url(exchange)?.unwrap_or_default();
        let (raw_path, query) =
            text.split_once('?').map_or((text.as_str(), None), |(path, query)| (path, Some(query)));
        let mut scratch = Vec::new();
        let path = normalise(raw_path, &mut scratch)?.to_vec();
        let query = match has_query {
            true => query.filter(|query| !query.is_empty()),
            false => exchange.query,
        };
        Ok((path, query.map(str::to_owned)))
    }
}

impl Asked {
    /// Puts it somewhere, encoded for that place; the default where it is empty.
    fn put(&self, text: &mut String, place: Place, default: &str, exchange: &Exchange<'_>) {
        let value: Cow<'_, [u8]> = match self {
            Asked::Capture(pattern, name) => {
                Cow::Borrowed(pattern.capture(routed_path(exchange), name).unwrap_or_default())
            }
            Asked::Field(name) => request_values::field(exchange, name).unwrap_or_default(),
            Asked::Cookie(name) => Cow::Borrowed(request_values::cookie(exchange, name).unwrap_or_default()),
            Asked::Argument(name) => request_values::parameter(exchange, name).unwrap_or_default(),
            Asked::Language(offered) => {
                let chosen = offered.get(chosen_language(exchange, offered));
                Cow::Borrowed(chosen.map_or(&[], |language| language.as_bytes()))
            }
            Asked::Country => Cow::Owned(country_of(exchange)),
            Asked::ClientName => {
                Cow::Owned(exchange.client_name().map_or(Vec::new(), |name| name.as_bytes().into()))
            }
            Asked::User => Cow::Borrowed(exchange.user().map_or(&[], |user| user.name.as_bytes())),
            Asked::RequestId => Cow::Borrowed(exchange.request_id().unwrap_or_default().as_bytes()),
            Asked::TraceId => {
                Cow::Borrowed(exchange.trace_context().map_or("", TraceContext::trace_id).as_bytes())
            }
            Asked::Groups => {
                // No group reads as two, and one without a name is none.
                let groups = exchange.user().map_or(&[][..], |user| &user.groups);
                let named = groups.iter().map(|group| group.as_bytes()).filter(|group| !group.is_empty());
                let groups: Vec<String> = named.map(|group| name(group, b"%,", b"%, ")).collect();
                Cow::Owned(groups.join(",").into_bytes())
            }
            Asked::Value(value) => Cow::Borrowed(value.result(exchange).as_bytes()),
        };
        match (self, place) {
            _ if value.is_empty() => text.push_str(default),
            (Asked::Value(_), Place::Path) => join(text, &visible(&value, b"\"<>\\ ")),
            (Asked::Value(_), Place::Query) => *text += &visible(&value, b"\"<>\\ "),
            (Asked::Capture(..), Place::Path) => join(text, &encode_path(&value)),
            (Asked::Capture(..), Place::Field) => *text += &encode_path(&value),
            (Asked::User, Place::Field) => *text += &name(&value, b"%", b"% "),
            (_, Place::Field) => *text += &visible(&value, b""),
            (_, Place::Path | Place::Query) => *text += &query::encode(&value),
        }
    }
}

/// Which of the languages of a route is `{language}` for a request: the first where its client wants none of them.
pub fn chosen_language(exchange: &Exchange<'_>, offered: &[String]) -> usize {
    language::preferred(exchange.fields.all("accept-language"), offered).unwrap_or(0)
}

/// The code of the country that the client of a request is in.
fn country_of(exchange: &Exchange<'_>) -> Vec<u8> {
    let country = exchange.country();
    country
        .filter(|country| *country != Country::UNKNOWN)
        .map_or(Vec::new(), |country| country.as_str().into())
}

/// What stands in no value of a cookie (RFC 6265 section 4.1.1).
const NO_COOKIE_OCTETS: &[u8] = b" \",;\\";

/// The name of a user or group, so that no two read as one, nor are taken for one by whoever cuts spaces off: with spaces at
/// its ends it has none. `but` and, of such a name, `but_spaces` are written as `%XX`.
fn name(value: &[u8], but: &[u8], but_spaces: &[u8]) -> String {
    visible(value, if value.trim_ascii() == value { but } else { but_spaces })
}

/// A value of visible ASCII and spaces: other bytes, and those named, as `%XX`.
fn visible(value: &[u8], but: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b' '..=b'~' if !but.contains(&byte) => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// Whether a part of a path that was filled in has become a `.` or `..`, alone or with what stands beside it.
fn makes_dots(text: &str, filled: Range<usize>) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    let start = path.get(..filled.start).and_then(|before| before.rfind('/')).map_or(0, |at| at + 1);
    let end =
        path.get(filled.end..).and_then(|behind| behind.find('/')).map_or(path.len(), |at| filled.end + at);
    path.get(start..end).unwrap_or_default().split('/').any(|segment| {
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        matches!(plain.as_str(), "." | "..")
    })
}

/// Appends what may begin with a slash.
fn join(text: &mut String, rooted: &str) {
    let is_doubled = text.ends_with('/') && rooted.starts_with('/');
    text.push_str(&rooted[usize::from(is_doubled)..]);
}

fn push_query(text: &mut String, exchange: &Exchange<'_>) {
    if let Some(query) = exchange.query {
        text.push('?');
        text.push_str(query);
    }
}

/// The path that the client has asked for, also where `index` or `try` have led on to another.
pub(crate) fn path_asked_for(exchange: &Exchange<'_>) -> String {
    let is_led_on = exchange.state.hops > 0 || exchange.state.matched.is_some();
    let asked = if is_led_on || exchange.has_ambiguous_path() { path_as_sent(exchange) } else { None };
    asked.unwrap_or_else(|| encode_path(exchange.path))
}

/// The path of the target in normal form, in which an encoded slash stays one.
fn path_as_sent(exchange: &Exchange<'_>) -> Option<String> {
    let raw_path = exchange.target.split('?').next()?;
    normal_form(raw_path).ok()
}

/// Path and query of a request target in origin form, beginning with exactly one slash. Browsers take a backslash for a
/// slash, so it is encoded.
pub fn uri_of(target: &str) -> String {
    format!("/{}", target.trim_start_matches(['/', '\\']).replace('\\', "%5C"))
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
            assert_eq!(Template::parse(text, Scope::default()).fixed(), fixed.then_some(text), "{text}");
        }
        for (text, literal) in [
            ("{{client}}", "{client}"),
            ("a{{x_y:-z}}b", "a{x_y:-z}b"),
            ("{{{client}}", "{{client}"),
            ("{\"a\":{\"b\":{}}}", "{\"a\":{\"b\":{}}}"),
        ] {
            assert_eq!(Template::parse(text, Scope::default()).fixed(), Some(literal), "{text}");
        }
        let pieces = [Piece::Text("{".into()), Piece::Path, Piece::Query, Piece::Text("}".into())];
        assert_eq!(Template::parse("{{path}{query}}", Scope::default()).pieces, pieces);
    }

    /// However many routes name it: a `value` may have as many cases as addresses that have moved.
    #[test]
    fn a_value_is_there_once() {
        let text = "listen \"127.0.0.1:1\"\nvalue \"v\" from=\"{path}\" { \"/a\" \"b\" }\nsite { value \"w\" from=\"{host}\" \
            { \"*\" \"x\" }; route \"/a\" { redirect \"/{value.v}\" }; respond 200; header \"X-V\" \"{value.v}\" }\n";
        let environment = tidegate_config::ProcessEnvironment;
        let loaded = tidegate_config::load_str("a", text, std::path::Path::new("/"), &environment);
        let settings = loaded.settings.expect("sound settings");
        let maps = settings.sites[0].routes.iter().map(|route| {
            let template = Template::parse("{value.v}", Scope::of(route));
            let [Piece::Asked(asked, _)] = template.pieces() else { panic!("{template:?}") };
            let Asked::Value(value) = &**asked else { panic!("{asked:?}") };
            assert!(value.map.is_same(route.values.get("v").unwrap()));
            value.map.clone()
        });
        let maps: Vec<_> = maps.collect();
        assert!(maps.len() == 2 && maps[0].is_same(&maps[1]));
    }
}
