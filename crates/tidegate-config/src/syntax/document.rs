//! What a settings file says, as a tree: nodes, values, blocks, each with the place where it stands.
//!
//! Made by `grammar` from the tokens of `lexer`, read by `check`. What a string or a number means is decided
//! here (KDL 2, sections "Quoted String", "Multi-line String", "Raw String" and "Number").

use std::ops::Range;

use super::lexer::{is_space, newline_length};

/// A node: a directive as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub name: String,
    /// Where the name stands.
    pub name_range: Range<usize>,
    pub entries: Vec<Entry>,
    pub children: Option<Vec<Node>>,
    /// From its first byte to behind its block.
    pub range: Range<usize>,
    /// Where the last value in front of the block ends.
    pub header_end: usize,
    /// A mistake of form stands in its name or its values.
    pub is_header_broken: bool,
    /// A mistake of form stands in it or in its block.
    pub is_broken: bool,
}

/// A value of a node, with a name when it is a property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub name: Option<String>,
    pub value: Literal,
    /// The value, with the name of a property.
    pub range: Range<usize>,
    /// The value alone.
    pub value_range: Range<usize>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Text(String),
    Integer(i128),
    /// `#true`, `1.5`, a number too large for any directive.
    Other,
}

impl Node {
    /// The first node of a text that is known to be sound, such as a default of the table.
    pub fn parse(text: &str) -> Option<Node> {
        let source = crate::source::Source::new(crate::source::DEFAULT, text);
        let parsed = super::parse(&source);
        parsed.diagnostics.is_empty().then_some(())?;
        parsed.nodes.into_iter().next()
    }

    /// The values that are no properties.
    pub fn arguments(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.name.is_none())
    }
}

/// What a bare word, a number or a keyword means. The lexer has seen to it that it is one.
pub(super) fn literal(text: &str) -> Literal {
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    let digits: String = digits.chars().filter(|character| *character != '_').collect();
    let number = i128::from_str_radix(&digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']));
    match number.and_then(|number| if is_negative { number.checked_neg() } else { Some(number) }) {
        Some(number) => Literal::Integer(number),
        None => Literal::Other,
    }
}

/// Whether a word that begins like a number is one.
pub(super) fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |text: &str, radix: u32| {
        text.starts_with(|character: char| character.is_digit(radix))
            && text.chars().all(|character| character.is_digit(radix) || character == '_')
    };
    match unsigned.get(..2) {
        Some("0x") => return digits(&unsigned[2..], 16),
        Some("0o") => return digits(&unsigned[2..], 8),
        Some("0b") => return digits(&unsigned[2..], 2),
        _ => {}
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole, 10)
        && fraction.is_none_or(|fraction| digits(fraction, 10))
        && exponent.is_none_or(|exponent| digits(exponent, 10))
}

/// The text of a string token; the error of one whose lines do not fit together.
pub(super) fn text(token: &str) -> Result<String, &'static str> {
    let hashes = token.len() - token.trim_start_matches('#').len();
    let is_raw = hashes > 0;
    let Some(inside) = token.get(hashes..token.len().saturating_sub(hashes)) else {
        return Ok(token.to_owned());
    };
    if !inside.starts_with('"') {
        return Ok(token.to_owned());
    }
    if let Some(lines) = inside.strip_prefix("\"\"\"").and_then(|inside| inside.strip_suffix("\"\"\""))
        && inside.len() >= 6
    {
        return text_of_lines(lines, is_raw);
    }
    let inside = inside.get(1..inside.len() - 1).unwrap_or_default();
    let is_plain = is_raw || !inside.contains('\\');
    Ok(if is_plain { inside.to_owned() } else { unescape(&without_escaped_space(inside)) })
}

/// A string over several lines: the white space in front of its last line is taken from all of them. Escaped
/// white space goes before that, all other escapes after it.
fn text_of_lines(lines: &str, is_raw: bool) -> Result<String, &'static str> {
    const FIRST: &str = "text follows the opening `\"\"\"`";
    const LAST: &str = "text stands before the closing `\"\"\"`";
    const INDENT: &str = "the lines of this string are not indented alike";
    let lines = if is_raw { lines.to_owned() } else { without_escaped_space(lines) };
    let mut split: Vec<&str> = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(character) = lines[at..].chars().next() {
        let newline = newline_length(&lines[at..]);
        if newline > 0 {
            split.push(&lines[start..at]);
            start = at + newline;
        }
        at += newline.max(character.len_utf8());
    }
    let indent = &lines[start..];
    if !indent.chars().all(is_space) {
        return Err(LAST);
    }
    let Some((first, body)) = split.split_first() else { return Err(FIRST) };
    if !first.is_empty() {
        return Err(FIRST);
    }
    let mut out = String::with_capacity(lines.len());
    for (at, line) in body.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if !line.chars().all(is_space) {
            out.push_str(line.strip_prefix(indent).ok_or(INDENT)?);
        }
    }
    Ok(if is_raw { out } else { unescape(&out) })
}

/// Takes out every backslash before white space, and that white space.
fn without_escaped_space(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let is_blank = |character: char| is_space(character) || is_newline(character);
        let blank = behind.find(|character| !is_blank(character)).unwrap_or(behind.len());
        if blank > 0 {
            rest = &behind[blank..];
            continue;
        }
        // Another escape: both characters stay, so that `\\` does not make an escape of what follows.
        let length = 1 + behind.chars().next().map_or(0, char::len_utf8);
        out.push_str(&rest[at..at + length]);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

fn is_newline(character: char) -> bool {
    newline_length(character.encode_utf8(&mut [0; 4])) > 0
}

/// Resolves escapes; the lexer has refused wrong ones.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let mut behind = rest[at + 1..].chars();
        match behind.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('s') => out.push(' '),
            Some('u') => {
                let digits = behind.as_str().strip_prefix('{').and_then(|inner| inner.split_once('}'));
                if let Some((digits, after)) = digits {
                    out.extend(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32));
                    behind = after.chars();
                }
            }
            Some(other) => out.push(other),
            None => {}
        }
        rest = behind.as_str();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        for (token, expected) in [
            ("word", Ok("word")),
            ("\"\"", Ok("")),
            ("\"a\\tb\\\\n\\u{41}\"", Ok("a\tb\\nA")),
            ("\"a \\   \n  b\"", Ok("a b")),
            ("#\"a\\t\"b\"#", Ok("a\\t\"b")),
            ("##\"\"#\"##", Ok("\"#")),
            ("\"\"\"\n  a\n\n    b\r\n  \"\"\"", Ok("a\n\n  b")),
            ("\"\"\"\n\"\"\"", Ok("")),
            ("#\"\"\"\n a\\n\n \"\"\"#", Ok("a\\n")),
            ("\"\"\"\n  a\n b\n  \"\"\"", Err("the lines of this string are not indented alike")),
            ("\"\"\"\n  a\"\"\"", Err("text stands before the closing `\"\"\"`")),
            ("\"\"\"x\"\"\"", Err("text stands before the closing `\"\"\"`")),
        ] {
            assert_eq!(text(token), expected.map(str::to_owned), "{token:?}");
        }
    }

    #[test]
    fn numbers() {
        for (word, expected) in [
            ("0", Some(Literal::Integer(0))),
            ("-1_000", Some(Literal::Integer(-1000))),
            ("+0x1F", Some(Literal::Integer(31))),
            ("-0b1_1", Some(Literal::Integer(-3))),
            ("0o17", Some(Literal::Integer(15))),
            ("1.5", Some(Literal::Other)),
            ("1.5e-3_0", Some(Literal::Other)),
            ("99999999999999999999999999999999999999999999", Some(Literal::Other)),
            ("0X1F", None),
            ("0x", None),
            ("0x_1", None),
            ("0b2", None),
            ("1.", None),
            ("1._5", None),
            ("1e", None),
            ("1.5.6", None),
            ("1e5e6", None),
            ("10s", None),
            ("--1", None),
        ] {
            assert_eq!(is_number(word).then(|| literal(word)), expected, "{word}");
        }
    }
}
