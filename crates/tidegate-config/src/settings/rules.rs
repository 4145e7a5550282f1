//! Rules: regular expressions over paths, and the conditions of routes.
//!
//! A condition chooses a route and nothing else: it never switches a single directive, so that what holds for a request is
//! always what one route says. `core/condition.rs` asks them; here is what they are, and how they are written.

use super::{Country, HostPattern, NetworkSet, Origin, PathPattern, Shared, TimeWindow};
use memchr::memmem;
use regex::bytes;
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a compiled expression may take, and the same again for what is remembered while it runs.
const PROGRAM: usize = 1 << 20;
/// The longest expression, bytes.
pub(crate) const LONGEST: usize = 4096;

/// A regular expression over bytes. Its time is linear in what it looks at, whatever that is (RE2 syntax: no references
/// back, no looking around). `.` is any byte, line ends included: a path with `%0A` is not to slip past a rule.
#[derive(Clone)]
pub struct Regex {
    text: Arc<str>,
    compiled: bytes::Regex,
}

impl Regex {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it, in a phrase.
    pub fn new(text: &str) -> Result<Regex, String> {
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let mut builder = bytes::RegexBuilder::new(text);
        builder.unicode(false).dot_matches_new_line(true).size_limit(PROGRAM).dfa_size_limit(PROGRAM);
        let compiled = builder.build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too big: its repetitions count too far".to_owned(),
            error => error.to_string().lines().last().unwrap_or_default().trim().replace("error: ", ""),
        })?;
        Ok(Regex { text: text.into(), compiled })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What looks for it.
    pub fn compiled(&self) -> &bytes::Regex {
        &self.compiled
    }

    /// Whether it is found anywhere in the bytes.
    #[inline]
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.compiled.is_match(bytes)
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text // the program follows from it
    }
}

impl Eq for Regex {}

impl Hash for Regex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Serialize for Regex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Regex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Regex::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// What a text has to be: with `*` for any characters, or a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextPattern {
    /// The literal pieces between the stars; one piece is the whole text.
    Glob(Vec<String>),
    /// Found anywhere in it.
    Regex(Regex),
}

impl TextPattern {
    /// Reads one with stars.
    pub fn glob(text: &str) -> TextPattern {
        TextPattern::Glob(text.split('*').map(str::to_owned).collect())
    }

    /// Whether it is the empty text, as it is written.
    pub fn is_empty(&self) -> bool {
        matches!(self, TextPattern::Glob(pieces) if pieces.iter().all(String::is_empty) && pieces.len() == 1)
    }

    /// Whether a text is so.
    pub fn fits(&self, text: &[u8]) -> bool {
        match self {
            TextPattern::Glob(pieces) => fits_pieces(pieces, text),
            TextPattern::Regex(regex) => regex.is_in(text),
        }
    }
}

/// Whether a text consists of these pieces with anything between them. Greedy from the left: linear in the text for each
/// piece, never exponential.
#[inline]
pub fn fits_pieces(pieces: &[String], text: &[u8]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| text == only.as_bytes());
    };
    let Some(mut rest) = text.strip_prefix(first.as_bytes()) else { return false };
    for piece in middle.iter().filter(|piece| !piece.is_empty()) {
        let Some(at) = memmem::find(rest, piece.as_bytes()) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last.as_bytes())
}

impl PathPattern {
    /// Whether a decoded, normalised path matches.
    #[inline]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            PathPattern::Exact(exact) => path == exact.as_bytes(),
            PathPattern::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
            PathPattern::Suffix(suffix) => path.ends_with(suffix.as_bytes()),
            PathPattern::Pieces(pieces) => fits_pieces(pieces, path),
            PathPattern::Regex(regex) => regex.is_in(path),
        }
    }

    /// A path that it matches, as short as can be told; `None` where none is found.
    pub fn shortest(&self) -> Option<String> {
        let text = match self {
            PathPattern::Exact(text) | PathPattern::Prefix(text) | PathPattern::Suffix(text) => text.clone(),
            PathPattern::Pieces(pieces) => pieces.concat(),
            PathPattern::Regex(regex) => {
                let mut text = String::new();
                shortest(&parse(regex.as_str())?, &mut text)?;
                text
            }
        };
        let text = if text.starts_with('/') { text } else { format!("/{text}") };
        self.matches(text.as_bytes()).then_some(text)
    }

    /// The names that placeholders have for the parts of a path: `1` for the first star or group and so on, and those of
    /// named groups.
    pub fn captures(&self) -> Vec<String> {
        let numbers = |count: usize| (1..=count).map(|number| number.to_string());
        match self {
            PathPattern::Exact(_) => Vec::new(),
            PathPattern::Prefix(_) | PathPattern::Suffix(_) => numbers(1).collect(),
            PathPattern::Pieces(pieces) => numbers(pieces.len().saturating_sub(1)).collect(),
            PathPattern::Regex(regex) => {
                let compiled = regex.compiled();
                let names = compiled.capture_names().flatten().map(str::to_owned);
                numbers(compiled.captures_len().saturating_sub(1)).chain(names).collect()
            }
        }
    }

    /// The part of a path that a placeholder of this name stands for; nothing where the pattern has none of this name, or
    /// does not match.
    pub fn capture<'p>(&self, path: &'p [u8], name: &str) -> Option<&'p [u8]> {
        let number = name.parse::<usize>().ok();
        match (self, number) {
            (PathPattern::Prefix(prefix), Some(1)) => path.strip_prefix(prefix.as_bytes()),
            (PathPattern::Suffix(suffix), Some(1)) => path.strip_suffix(suffix.as_bytes()),
            (PathPattern::Pieces(pieces), Some(number)) => star(pieces, path, number),
            (PathPattern::Regex(regex), _) => {
                let captures = regex.compiled().captures(path)?;
                let group = number.map_or_else(|| captures.name(name), |number| captures.get(number));
                group.map(|group| group.as_bytes())
            }
            _ => None,
        }
    }
}

/// An expression as it is understood here.
pub(crate) fn parse(expression: &str) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).dot_matches_new_line(true);
    parser.build().parse(expression).ok()
}

/// Appends a text that an expression matches.
fn shortest(hir: &Hir, text: &mut String) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(str::from_utf8(&literal.0).ok()?),
        HirKind::Class(class) => {
            let has = |byte: u8| match class {
                Class::Bytes(bytes) => {
                    bytes.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
                }
                Class::Unicode(characters) => {
                    let found =
                        |range: &ClassUnicodeRange| (range.start()..=range.end()).contains(&char::from(byte));
                    characters.ranges().iter().any(found)
                }
            };
            let mut usual = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'!'..=b'~');
            text.push(char::from(usual.find(|byte| has(*byte))?));
        }
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min.min(64) {
                shortest(&repetition.sub, text)?;
            }
        }
        HirKind::Capture(capture) => shortest(&capture.sub, text)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| shortest(part, text))?,
        HirKind::Alternation(parts) => shortest(parts.first()?, text)?,
    }
    Some(())
}

/// What the star of this number stands for, counted from 1: the way [`fits_pieces`] goes.
fn star<'p>(pieces: &[String], path: &'p [u8], number: usize) -> Option<&'p [u8]> {
    let [first, middle @ .., last] = pieces else { return None };
    let mut rest = path.strip_prefix(first.as_bytes())?;
    for (at, piece) in middle.iter().enumerate() {
        let found = memmem::find(rest, piece.as_bytes())?;
        if at + 1 == number {
            return rest.get(..found);
        }
        rest = &rest[found + piece.len()..];
    }
    (number == middle.len() + 1).then(|| rest.strip_suffix(last.as_bytes()))?
}

/// What a request has to be for a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Condition {
    /// Its method is one of these.
    Method(Vec<String>),
    /// Its path matches one of these.
    Path(Vec<PathPattern>),
    /// Its host is one of these.
    Host(Vec<HostPattern>),
    /// `http` or `https`.
    Scheme(String),
    /// A line of the field is so; without values there is one.
    Header(Named),
    /// A parameter of the query is so, decoded; without values there is one.
    Query(Named),
    /// A cookie is so; without values there is one.
    Cookie(Named),
    /// The result of a `value` is so.
    Value(Named),
    /// The client belongs to one of these networks.
    Client(Shared<NetworkSet>),
    /// The client's address is in one of these list files, absolute.
    ClientList(Vec<ListPath>),
    /// The client is of one of these countries.
    Country(Vec<Country>),
    /// It is one of these times.
    Time(Vec<TimeWindow>),
    /// There is a file or folder of this name, absolute.
    File(#[serde(with = "crate::path_encoding::path")] PathBuf),
    /// All lines of the `match` of this name hold.
    Match(String, Shared<Vec<Clause>>),
}

/// The path of a list file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPath(#[serde(with = "crate::path_encoding::path")] pub PathBuf);

/// Something that has a name, and what it may be. What is not there fits the empty text (`""`) and no other pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Of a field, a cookie, a parameter, a `value`.
    pub name: String,
    /// Any of them; none: it is there, whatever it is.
    pub patterns: Vec<TextPattern>,
}

impl Named {
    /// Whether a value fits, or that there is none.
    pub fn fits(&self, value: Option<&[u8]>) -> bool {
        match value {
            Some(value) => {
                self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.fits(value))
            }
            None => self.patterns.iter().any(TextPattern::is_empty),
        }
    }
}

/// A line of `when`, `unless` or `match`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clause {
    /// It must not hold.
    pub is_negated: bool,
    /// What must hold.
    pub condition: Condition,
    /// Where it was written.
    pub origin: Origin,
}

impl Condition {
    /// This one and all that it is made of.
    pub fn parts(&self) -> Vec<&Condition> {
        match self {
            Condition::Match(_, clauses) => {
                let parts = clauses.iter().flat_map(|clause| clause.condition.parts());
                std::iter::once(self).chain(parts).collect()
            }
            _ => vec![self],
        }
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let word = if self.is_negated { "unless" } else { "when" };
        write!(f, "{word} {}", self.condition)
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Method(methods) => write_all(f, "method", methods),
            Condition::Path(patterns) => {
                f.write_str("path")?;
                patterns.iter().try_for_each(|pattern| match pattern {
                    PathPattern::Regex(_) => write!(f, " {pattern}"),
                    other => write!(f, " \"{other}\""),
                })
            }
            Condition::Host(hosts) => write_all(f, "host", hosts),
            Condition::Scheme(scheme) => write!(f, "scheme \"{scheme}\""),
            Condition::Header(named) => write!(f, "header {named}"),
            Condition::Query(named) => write!(f, "query {named}"),
            Condition::Cookie(named) => write!(f, "cookie {named}"),
            Condition::Value(named) => write!(f, "value {named}"),
            Condition::Client(networks) => write_all(f, "client", networks),
            Condition::ClientList(lists) => {
                f.write_str("client-list")?;
                lists.iter().try_for_each(|list| write!(f, " \"{}\"", list.0.display()))
            }
            Condition::Country(countries) => write_all(f, "country", countries),
            Condition::Time(windows) => write_all(f, "time", windows),
            Condition::File(path) => write!(f, "file \"{}\"", path.display()),
            Condition::Match(name, _) => write!(f, "match \"{name}\""),
        }
    }
}

fn write_all(f: &mut Formatter<'_>, what: &str, values: &[impl Display]) -> fmt::Result {
    f.write_str(what)?;
    values.iter().try_for_each(|value| write!(f, " \"{value}\""))
}

impl Display for Named {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name)?;
        self.patterns.iter().try_for_each(|pattern| match pattern {
            TextPattern::Glob(pieces) => write!(f, " \"{}\"", pieces.join("*")),
            TextPattern::Regex(regex) => write!(f, " regex=\"{}\"", regex.as_str()),
        })
    }
}

/// How a field of `header` or `request-header` is put beside what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FieldMode {
    /// It stands beside those of its name.
    Add,
    /// It is only set where there is none.
    Missing,
}

/// A field that takes the place of no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreField {
    /// Its name.
    pub name: String,
    /// Placeholders not yet filled in.
    pub value: String,
    /// When it is sent.
    pub mode: FieldMode,
}

/// Which pages of other sites may have answers (the Fetch standard, section 3.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cors {
    /// `https://app.example.com`, with a star perhaps; `*` for all.
    pub origins: Vec<TextPattern>,
    /// Methods that they may use.
    pub methods: Vec<String>,
    /// Fields that they may send; `*` for whatever they ask for.
    pub headers: Vec<String>,
    /// Fields that they may read.
    pub expose: Vec<String>,
    /// They may act as the user whom the browser knows.
    pub takes_credentials: bool,
    /// How long browsers may remember it.
    pub max_age: Duration,
}

impl Cors {
    /// Whether every origin may, so that the answer is the same for all.
    pub fn is_for_all(&self) -> bool {
        self.origins.iter().any(|origin| *origin == TextPattern::glob("*"))
    }

    /// Whether an origin may.
    pub fn allows(&self, origin: &[u8]) -> bool {
        // What a star stands for is labels of a host, or a port, and nothing else.
        let authority = origin
            .iter()
            .position(|byte| *byte == b':')
            .and_then(|at| origin.get(at..)?.strip_prefix(b"://"));
        authority.is_some_and(is_host_and_port) && self.origins.iter().any(|pattern| pattern.fits(origin))
    }
}

/// Whether an authority is what that of an origin can be (RFC 6454 section 6.2): labels with dots between them, or an address
/// in brackets, and digits behind a colon, perhaps.
fn is_host_and_port(authority: &[u8]) -> bool {
    let is_ipv6 = |address: &[u8]| str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    let is_label = |label: &[u8]| {
        !label.is_empty() && label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let is_name =
        |host: &[u8]| host.strip_suffix(b".").unwrap_or(host).split(|byte| *byte == b'.').all(is_label);
    let (is_host, port) = match authority.strip_prefix(b"[") {
        Some(rest) => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => (is_ipv6(&rest[..end]), &rest[end + 1..]),
            None => return false,
        },
        None => {
            let end = authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len());
            (is_name(&authority[..end]), &authority[end..])
        }
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_host && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stars_and_groups_stand_for() {
        let glob = |text: &str| crate::value::read_pattern(text).unwrap();
        let regex = |text: &str| PathPattern::Regex(Regex::new(text).unwrap());
        for (pattern, path, name, expected) in [
            (glob("/old/*"), "/old/a/b", "1", Some("a/b")),
            (glob("/old/*"), "/new/a", "1", None),
            (glob("*.php"), "/x/y.php", "1", Some("/x/y")),
            (glob("/*/"), "/a/b/", "1", Some("a/b")),
            (glob("/a/*/b/*.c"), "/a/1/2/b/3/b/4.c", "1", Some("1/2")),
            (glob("/a/*/b/*.c"), "/a/1/2/b/3/b/4.c", "2", Some("3/b/4")),
            (glob("/a/*/b/*.c"), "/a/1/2/b/3/b/4.c", "3", None),
            (glob("/x"), "/x", "1", None),
            (regex("^/u/(?<id>[0-9]+)$"), "/u/12", "id", Some("12")),
            (regex("^/u/(?<id>[0-9]+)$"), "/u/12", "1", Some("12")),
            (regex("^/u/(?<id>[0-9]+)$"), "/u/x", "id", None),
            (regex("^/(a)|(b)$"), "/b", "1", None),
        ] {
            let found = pattern.capture(path.as_bytes(), name).map(|part| str::from_utf8(part).unwrap());
            assert_eq!(found, expected, "{pattern:?} {path} {name}");
            assert!(expected.is_none() || pattern.captures().iter().any(|known| known == name));
            assert!(expected.is_none() || pattern.matches(path.as_bytes()));
        }
    }

    #[test]
    fn patterns() {
        for (pattern, path, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/static/*", "/static/x/y.css", true),
            ("/static/*", "/static", false),
            ("*.php", "/x/y.php", true),
            ("*.php", "/x/y.phps", false),
            ("/a/*/b", "/a/x/y/b", true),
            ("/a/*/b", "/a/b", false),
            ("/a*a", "/a", false),
            ("*x*y*", "/1x2y3", true),
            ("*x*y*", "/1y2x3", false),
        ] {
            let read = crate::value::read_pattern(pattern).unwrap();
            assert_eq!(read.matches(path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn shortest_paths() {
        for (pattern, expected) in [
            ("/a/*", Some("/a/")),
            ("*.php", Some("/.php")),
            ("/a/*/b", Some("/a//b")),
            ("~^/u/(?<id>[0-9]+)/(x|y)?$", Some("/u/0/")),
            ("~^/(de|en)/.{2}$", Some("/de/aa")),
            ("~[.]jpg$", Some("/.jpg")),
            ("~^x", None),
        ] {
            let read = match pattern.strip_prefix('~') {
                Some(expression) => PathPattern::Regex(Regex::new(expression).unwrap()),
                None => crate::value::read_pattern(pattern).unwrap(),
            };
            assert_eq!(read.shortest().as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn expressions_are_bounded_and_see_line_ends() {
        assert!(Regex::new("^/admin/.*$").unwrap().is_in(b"/admin/a\nb"));
        assert!(!Regex::new("^/admin$").unwrap().is_in(b"/admin\n"));
        assert!(Regex::new("^/\\w+/\u{fc}$").unwrap().is_in("/a/\u{fc}".as_bytes()));
        assert!(Regex::new("^/.$").unwrap().is_in(b"/\xff"));
        for bad in ["(", "(?=x)", "(a)\\1", "a{1000}{1000}{1000}", "[\u{fc}-\u{fd}]", &"a".repeat(5000)] {
            let why = Regex::new(bad).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{bad}: {why}");
        }
    }

    #[test]
    fn origins() {
        let cors = |origins: &[&str]| Cors {
            origins: origins.iter().map(|origin| TextPattern::glob(origin)).collect(),
            methods: Vec::new(),
            headers: Vec::new(),
            expose: Vec::new(),
            takes_credentials: false,
            max_age: Duration::ZERO,
        };
        for (allowed, origin, expected) in [
            ("https://a.test", "https://a.test", true),
            ("https://a.test", "http://a.test", false),
            ("https://a.test", "https://a.test.evil", false),
            ("https://*.a.test", "https://x.y.a.test", true),
            ("https://*.a.test", "https://a.test", false),
            ("https://*.a.test", "https://evil/.a.test", false),
            ("https://*.a.test", "https://evil#.a.test", false),
            ("https://*.a.test", "null", false),
            ("https://a.test:*", "https://a.test:8443", true),
            ("https://a.test:*", "https://a.test:", false),
            ("https://*.a.test", "https://evil.test:x.a.test", false),
            ("https://*.a.test", "https://evil:80.a.test", false),
            ("https://*.a.test", "https://.a.test", false),
            ("https://*.a.test", "https://x..a.test", false),
            ("https://*.a.test", "https://[::1].a.test", false),
            ("https://*.a.test.", "https://x.a.test.", true),
            ("http://[::1]:*", "http://[::1]:80", true),
            ("http://*", "http://[::1]:80", true),
            ("http://*", "http://[::1", false),
        ] {
            assert_eq!(cors(&[allowed]).allows(origin.as_bytes()), expected, "{allowed} {origin}");
        }
        assert!(cors(&["*"]).is_for_all() && !cors(&["https://*"]).is_for_all());
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let named = |patterns: &[&str]| Named {
            name: "x".into(),
            patterns: patterns.iter().map(|text| TextPattern::glob(text)).collect(),
        };
        let fits = |patterns: &[&str], value: Option<&str>| named(patterns).fits(value.map(str::as_bytes));
        assert!(fits(&[""], None) && !fits(&[], None) && fits(&[], Some("")));
        assert!(!fits(&["*"], None) && fits(&["*"], Some("")) && fits(&["", "*"], None));
        assert!(fits(&["", "https://a/*"], Some("https://a/x")));
        assert!(!fits(&["", "https://a/*"], Some("https://b/")));
        assert!(fits(&["b"], Some("b")) && !fits(&["b"], Some("B")));
        let regex =
            Named { name: "x".into(), patterns: vec![TextPattern::Regex(Regex::new("^.*$").unwrap())] };
        assert!(!regex.fits(None) && regex.fits(Some(b"")));
    }
}
