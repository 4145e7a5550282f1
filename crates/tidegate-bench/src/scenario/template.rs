//! Texts with `{name}` in them, resolved to places of variables when the scenario is read.

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
    /// As it is, without line ends: they would end a field.
    Plain,
    /// As it is: content.
    Raw,
    /// In a path or query: what may not stand there is percent-encoded, what is so already stays.
    Path,
    /// In `application/x-www-form-urlencoded`.
    Form,
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
        value: impl Fn(u16) -> Option<&'v str>,
    ) -> Result<(), u16> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => encode(out, value(*variable).ok_or(*variable)?, encoding),
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

    /// As it was written, with the names of its variables.
    pub(crate) fn shown(&self, variables: &[String]) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
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

fn encode(out: &mut Vec<u8>, value: &str, encoding: Encoding) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        let stays = match encoding {
            Encoding::Plain => !matches!(byte, b'\r' | b'\n' | 0),
            Encoding::Raw => true,
            Encoding::Path => byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte),
            Encoding::Form => byte.is_ascii_alphanumeric() || b"*-._".contains(&byte),
        };
        if stays {
            out.push(byte);
        } else if encoding == Encoding::Plain {
            out.push(b' ');
        } else if encoding == Encoding::Form && byte == b' ' {
            out.push(b'+');
        } else {
            out.push(b'%');
            out.extend([byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Option<u16> {
        ["a", "b", "c"].iter().position(|known| *known == name).map(|place| place as u16)
    }

    #[test]
    fn variables_are_filled_in_and_encoded() {
        let value = |variable: u16| {
            [Some("x y&ü"), None, Some("1\r\n2")].get(usize::from(variable)).copied().flatten()
        };
        let table = [
            ("/p?q={a}", Encoding::Path, Ok("/p?q=x%20y&%C3%BC")),
            ("q={a}&r=1", Encoding::Form, Ok("q=x+y%26%C3%BC&r=1")),
            ("{{\"k\": \"{a}\"}", Encoding::Plain, Ok("{\"k\": \"x y&ü\"}")),
            ("{a}\n{c}", Encoding::Plain, Ok("x y&ü\n1  2")),
            ("{a}\n{c}", Encoding::Raw, Ok("x y&ü\n1\r\n2")),
            ("{a}{b}", Encoding::Plain, Err(1)),
            ("", Encoding::Plain, Ok("")),
        ];
        for (text, encoding, expected) in table {
            let mut out = Vec::new();
            let written = Template::parse(text, place).unwrap().write(&mut out, encoding, value);
            assert_eq!(
                written.map(|()| String::from_utf8(out).unwrap()),
                expected.map(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_is_shown_with_names() {
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(Template::parse("/x/{b}?{a}", place).unwrap().shown(&names), "/x/{b}?{a}");
    }

    #[test]
    fn what_is_no_template_says_why() {
        assert_eq!(Template::parse("{d}", place), Err(TemplateError::Unknown("d".into())));
        assert_eq!(Template::parse("{a", place), Err(TemplateError::Open));
    }
}
