//! Texts with `{name}` in them, resolved to places of variables when the scenario is read.
//!
//! What a variable holds is data, and is encoded for the place where it stands (`Encoding`), so that no value changes the meaning
//! of what is around it. The one exception is a link that a page has given: it stands where a path begins.

use thiserror::Error;

/// A text with variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(u16),
}

/// Why a text is no template. The scenario is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    /// Nobody takes this.
    #[error("`{{{0}}}` is filled by nothing")]
    Unknown(String),
    /// A bracket without its other.
    #[error("a `{{` has no `}}`; write `{{{{` for the bracket itself")]
    Open,
}

/// How what a variable holds is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// In a request target. What it begins with is a link, which `page::resolve` makes a path. Elsewhere all but unreserved
    /// characters (RFC 3986 section 2.3) is percent-encoded, `/` as well once a `?` has come.
    Target,
    /// In `application/x-www-form-urlencoded`.
    Form,
    /// In JSON: between quotation marks escaped (RFC 8259 section 7), elsewhere as it is.
    Json,
    /// As it is: other content.
    Raw,
    /// In a field: a control character is a space (RFC 9110 section 5.5), since the end of a line would end the field.
    Field,
}

impl Template {
    /// Reads a text; `place` finds variables. `{{` is a bracket.
    pub(crate) fn parse(text: &str, place: impl Fn(&str) -> Option<u16>) -> Result<Template, TemplateError> {
        let mut pieces = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('{') {
            plain.push_str(rest.get(..at).unwrap_or_default());
            rest = rest.get(at + 1..).unwrap_or_default();
            if let Some(behind) = rest.strip_prefix('{') {
                plain.push('{');
                rest = behind;
                continue;
            }
            let (name, behind) = rest.split_once('}').ok_or(TemplateError::Open)?;
            let variable = place(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Variable(variable));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template { pieces })
    }

    /// Writes the text; `Err` is the first variable that holds nothing.
    pub(crate) fn write<'v>(
        &self,
        out: &mut Vec<u8>,
        encoding: Encoding,
        value: impl Fn(u16) -> Option<&'v [u8]>,
    ) -> Result<(), u16> {
        let (begin, mut is_quoted) = (out.len(), false);
        for (number, piece) in self.pieces.iter().enumerate() {
            let variable = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    is_quoted ^= encoding == Encoding::Json && leaves_quotes(text, is_quoted);
                    continue;
                }
                Piece::Variable(variable) => *variable,
            };
            let value = value(variable).ok_or(variable)?;
            let is_query = || out.get(begin..).is_some_and(|written| written.contains(&b'?'));
            match encoding {
                Encoding::Target if number == 0 => {
                    // Of a link the browser keeps the fragment to itself.
                    let link = value.split(|byte| *byte == b'#').next().unwrap_or_default();
                    out.extend_from_slice(link.trim_ascii());
                }
                Encoding::Target if is_query() => percent_encode(out, value, is_unreserved),
                Encoding::Target => percent_encode(out, value, |byte| is_unreserved(byte) || byte == b'/'),
                Encoding::Form => form_encode(out, value),
                Encoding::Json if is_quoted => {
                    // JSON is UTF-8 (RFC 8259 section 8.1): what is none cannot stand in it as it is.
                    let escaped = serde_json::Value::from(String::from_utf8_lossy(value)).to_string();
                    let inside = escaped.strip_prefix('"').and_then(|inside| inside.strip_suffix('"'));
                    out.extend_from_slice(inside.unwrap_or_default().as_bytes());
                }
                Encoding::Json | Encoding::Raw => out.extend_from_slice(value),
                Encoding::Field => {
                    out.extend(value.iter().map(|byte| if is_of_field(*byte) { *byte } else { b' ' }));
                }
            }
        }
        Ok(())
    }

    /// The text, where no variable is in it.
    pub fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text that it begins with.
    pub(crate) fn beginning(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            Some(Piece::Variable(_)) | None => "",
        }
    }

    /// The first character of its own, not of a variable, that is not one of these.
    pub(crate) fn first_other(&self, is_one: impl Fn(char) -> bool) -> Option<char> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Text(text) => text.chars().find(|character| !is_one(*character)),
            Piece::Variable(_) => None,
        })
    }

    /// As it was written, with the names of its variables.
    pub(crate) fn shown(&self, variables: &[String]) -> String {
        self.shown_as(variables, str::to_owned)
    }

    /// As it has to be written for a request target: percent-encoded where that has to be.
    pub(crate) fn shown_encoded(&self, variables: &[String]) -> String {
        self.shown_as(variables, |text| {
            let mut out = Vec::new();
            percent_encode(&mut out, text.as_bytes(), is_of_target);
            String::from_utf8_lossy(&out).replace('{', "{{")
        })
    }

    fn shown_as(&self, variables: &[String], show: impl Fn(&str) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => show(text),
            Piece::Variable(place) => {
                format!("{{{}}}", variables.get(usize::from(*place)).map_or("", String::as_str))
            }
        };
        self.pieces.iter().map(piece).collect()
    }

    /// The places of its variables.
    pub fn variables(&self) -> impl Iterator<Item = u16> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(*variable),
            Piece::Text(_) => None,
        })
    }
}

/// Whether a byte can be sent in a request target.
pub(crate) fn is_of_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"<>#".contains(&byte)
}

/// Whether a byte can be sent in a field.
pub(crate) fn is_of_field(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Appends a text, percent-encoded but for these bytes.
pub(crate) fn percent_encode(out: &mut Vec<u8>, text: &[u8], stays: impl Fn(u8) -> bool) {
    for byte in text {
        if stays(*byte) { out.push(*byte) } else { push_percent(out, *byte) }
    }
}

/// As browsers write a form (WHATWG URL, "application/x-www-form-urlencoded percent-encode set").
pub(crate) fn form_encode(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match *byte {
            b' ' => out.push(b'+'),
            byte if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) => out.push(byte),
            byte => push_percent(out, byte),
        }
    }
}

fn push_percent(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push(b'%');
    out.extend([byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]));
}

/// Whether a piece of JSON ends within quotation marks where it does not begin so, or the other way round.
fn leaves_quotes(text: &str, is_quoted: bool) -> bool {
    let (mut is_within, mut bytes) = (is_quoted, text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_within = !is_within,
            // What is escaped ends nothing.
            b'\\' if is_within => drop(bytes.next()),
            _ => {}
        }
    }
    is_within != is_quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Option<u16> {
        ["a", "b", "c", "link"].iter().position(|known| *known == name).map(|place| place as u16)
    }

    #[test]
    fn variables_are_filled_in_and_encoded() {
        let values = [Some("x/y z&=+?%20#ü"), None, Some("1\r\n\"2\\\u{1}"), Some(" /s/?q=a%20b&r=1#top ")];
        let value = |variable: u16| values.get(usize::from(variable)).copied().flatten().map(str::as_bytes);
        let in_path = "x/y%20z%26%3D%2B%3F%2520%23%C3%BC";
        let in_query = "x%2Fy%20z%26%3D%2B%3F%2520%23%C3%BC";
        let table = [
            // A value is a part of a path or of a query, whatever is in it.
            ("/p/{a}", Encoding::Target, Ok(format!("/p/{in_path}"))),
            ("/p?q={a}&r=1", Encoding::Target, Ok(format!("/p?q={in_query}&r=1"))),
            ("http://h/{a}?q={a}", Encoding::Target, Ok(format!("http://h/{in_path}?q={in_query}"))),
            // What it begins with is a link, and what follows its query is of that.
            ("{link}", Encoding::Target, Ok("/s/?q=a%20b&r=1".to_owned())),
            ("{link}&n={a}", Encoding::Target, Ok(format!("/s/?q=a%20b&r=1&n={in_query}"))),
            ("/p/{link}", Encoding::Target, Ok("/p/%20/s/%3Fq%3Da%2520b%26r%3D1%23top%20".to_owned())),
            ("q={a}&r=1", Encoding::Form, Ok("q=x%2Fy+z%26%3D%2B%3F%2520%23%C3%BC&r=1".to_owned())),
            ("{{\"k\": \"{a}\"}", Encoding::Raw, Ok("{\"k\": \"x/y z&=+?%20#ü\"}".to_owned())),
            ("{a}\n{c}", Encoding::Raw, Ok("x/y z&=+?%20#ü\n1\r\n\"2\\\u{1}".to_owned())),
            // In JSON a text is a text, and what stands bare is JSON already.
            (
                "{{\"\\\"k\": \"{c}\", \"n\": {c}, \"m\": \"\\\\\", \"o\": [\"{c}\"]}",
                Encoding::Json,
                Ok("{\"\\\"k\": \"1\\r\\n\\\"2\\\\\\u0001\", \"n\": 1\r\n\"2\\\u{1}, \"m\": \"\\\\\", \
                    \"o\": [\"1\\r\\n\\\"2\\\\\\u0001\"]}"
                    .to_owned()),
            ),
            ("{c}", Encoding::Json, Ok("1\r\n\"2\\\u{1}".to_owned())),
            ("v {c}\t{a}", Encoding::Field, Ok("v 1  \"2\\ \tx/y z&=+?%20#ü".to_owned())),
            ("{a}{b}", Encoding::Raw, Err(1)),
            ("", Encoding::Raw, Ok(String::new())),
        ];
        for (text, encoding, expected) in table {
            let mut out = b"before?\"".to_vec();
            let written = Template::parse(text, place).unwrap().write(&mut out, encoding, value);
            let out = out.split_off(8);
            assert_eq!(written.map(|()| String::from_utf8(out).unwrap()), expected, "{text}");
        }
    }

    /// What a server has sent as no UTF-8 goes back as it came, and percent-encoded byte by byte; but JSON is UTF-8.
    #[test]
    fn values_are_bytes() {
        let table: [(&str, Encoding, &[u8]); 7] = [
            ("/p/{a}?{a}", Encoding::Target, b"/p/%E9%00?%E9%00"),
            ("{a}", Encoding::Target, b"\xe9\0"),
            ("{a}", Encoding::Form, b"%E9%00"),
            ("{a}", Encoding::Raw, b"\xe9\0"),
            ("{a}", Encoding::Field, b"\xe9 "),
            ("{a}", Encoding::Json, b"\xe9\0"),
            ("\"{a}\"", Encoding::Json, b"\"\xef\xbf\xbd\\u0000\""),
        ];
        for (text, encoding, expected) in table {
            let mut out = Vec::new();
            Template::parse(text, place).unwrap().write(&mut out, encoding, |_| Some(b"\xe9\0")).unwrap();
            assert_eq!(
                out.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{text} {encoding:?}"
            );
        }
    }

    #[test]
    fn a_text_is_shown_with_names() {
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(Template::parse("/x/{b}?{a}", place).unwrap().shown(&names), "/x/{b}?{a}");
        let odd = Template::parse("/ä b/{b}?<{a}>", place).unwrap();
        assert_eq!(odd.shown_encoded(&names), "/%C3%A4%20b/{b}?%3C{a}%3E");
        assert_eq!(odd.first_other(|character| character.is_ascii()), Some('ä'));
        assert_eq!((odd.beginning(), Template::parse("{a}/", place).unwrap().beginning()), ("/ä b/", ""));
    }

    #[test]
    fn what_is_no_template_says_why() {
        assert_eq!(Template::parse("{d}", place), Err(TemplateError::Unknown("d".into())));
        assert_eq!(Template::parse("{a", place), Err(TemplateError::Open));
    }
}
