//! Text to tokens: the lexical half of KDL 2, losing nothing, comments and white space included.
//!
//! Used by `grammar` (which finds all mistakes of a file) and by `format` (which keeps what people wrote).
//! It only finds where tokens begin and end and whether they are well formed; what a string or a number
//! *means* is for `document`. A newline always ends a broken token, so one slip spoils one line.

mod quoted;

use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Space,
    Newline,
    /// `// …`, without the line end.
    LineComment,
    /// `/* … */`, nested ones included.
    BlockComment,
    /// A backslash at the end of a line, with what follows it up to and including the line end.
    Continuation,
    /// `/-`
    Slashdash,
    Open,
    Close,
    Equals,
    Semicolon,
    /// A quoted or raw string.
    Quoted,
    /// A string without quotes.
    Word,
    /// A number, or `#true` and its like.
    Literal,
    /// A type in round brackets, `(u8)`.
    Annotation,
    /// What could not be read; an error was recorded.
    Bad,
}

impl TokenKind {
    /// Whether a value or a property can begin with it.
    pub fn begins_value(self) -> bool {
        matches!(self, Self::Word | Self::Quoted | Self::Literal | Self::Annotation | Self::Bad)
    }
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub range: Range<usize>,
}

/// A mistake of form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub range: Range<usize>,
    pub message: String,
    pub help: Option<String>,
}

/// The deepest nesting of block comments.
const COMMENT_DEPTH: usize = 32;

/// The longest comment that may follow a word at once, bytes.
const COMMENT_AT_WORD: usize = 1024;

/// Cuts a text into tokens that cover it wholly, in order; stops when there are `most`.
pub(crate) fn lex(text: &str, most: usize) -> (Vec<Token>, Vec<SyntaxError>) {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new(), errors: Vec::new() };
    if text.starts_with('\u{feff}') {
        lexer.take(TokenKind::Space, '\u{feff}'.len_utf8());
    }
    while lexer.at < text.len() && lexer.tokens.len() < most {
        lexer.step();
    }
    (lexer.tokens, lexer.errors)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
    errors: Vec<SyntaxError>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn take(&mut self, kind: TokenKind, length: usize) {
        let end = (self.at + length).min(self.text.len());
        self.tokens.push(Token { kind, range: self.at..end });
        self.at = end;
    }

    fn error(&mut self, range: Range<usize>, message: impl Into<String>, help: Option<&str>) {
        self.errors.push(SyntaxError { range, message: message.into(), help: help.map(str::to_owned) });
    }

    fn step(&mut self) {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return };
        match first {
            '{' => self.take(TokenKind::Open, 1),
            '}' => self.take(TokenKind::Close, 1),
            '=' => self.take(TokenKind::Equals, 1),
            ';' => self.take(TokenKind::Semicolon, 1),
            '"' => self.quoted(0),
            '\\' => self.continuation(),
            '(' if self.annotation() => {}
            '(' | ')' => {
                let range = self.at..self.at + 1;
                let help = "put the value in quotes; a type before a value is `(type)value`";
                self.error(range, "a round bracket stands here", Some(help));
                self.take(TokenKind::Bad, 1);
            }
            _ if rest.starts_with("//") => self.comment(TokenKind::LineComment, line_length(rest)),
            _ if rest.starts_with("/*") => self.block_comment(),
            _ if rest.starts_with("/-") => self.take(TokenKind::Slashdash, 2),
            '#' if rest.trim_start_matches('#').starts_with('"') => {
                self.quoted(rest.len() - rest.trim_start_matches('#').len());
            }
            _ if newline_length(rest) > 0 => self.take(TokenKind::Newline, newline_length(rest)),
            _ if is_space(first) => {
                let length = rest.find(|character| !is_space(character)).unwrap_or(rest.len());
                self.take(TokenKind::Space, length);
            }
            _ if is_forbidden(first) => {
                let length = first.len_utf8();
                let code = u32::from(first);
                self.error(
                    self.at..self.at + length,
                    format!("the invisible character U+{code:04X} stands in the text"),
                    Some("delete it; inside quotes it can be written as `\\u{…}`"),
                );
                self.take(TokenKind::Bad, length);
            }
            _ => self.word(),
        }
    }

    /// A string without quotes, a number or a keyword; anything that needs quotes is said to.
    fn word(&mut self) {
        let rest = self.rest();
        if self.is_comment_of_others() {
            let help = "a comment begins with `//`";
            self.error(self.at..self.at + 1, "`#` begins no comment", Some(help));
            return self.comment(TokenKind::LineComment, line_length(rest));
        }
        if let Some((length, inside)) = other_quotes(rest) {
            let help = format!("write `\"{}\"`", inside.replace('\\', "\\\\").replace('"', "\\\""));
            self.error(
                self.at..self.at + length,
                "a text stands in straight double quotes, and in no others",
                Some(&help),
            );
            return self.take(TokenKind::Word, length);
        }
        // Most words are nothing but these.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let plain = rest.bytes().take_while(|byte| is_plain(*byte)).count();
        let mut length = plain;
        for (at, character) in rest[plain..].char_indices().map(|(at, character)| (plain + at, character)) {
            let ends = matches!(character, '{' | '}' | '(' | ')' | '=' | ';' | '"' | '\\')
                || is_space(character)
                || is_forbidden(character)
                || newline_length(&rest[at..]) > 0
                // A comment may follow a word at once. One that is not closed on the line is rather a path, such
                // as `sites/*.kdl`, that needs quotes.
                || character == '/' && is_comment_on_line(&rest[at..]);
            if ends && at > 0 {
                break;
            }
            length = at + character.len_utf8();
        }
        let word = &rest[..length];
        match classify(word) {
            Ok(kind) => self.take(kind, length),
            Err((message, help)) => {
                self.errors.push(SyntaxError { range: self.at..self.at + length, message, help: Some(help) });
                self.take(TokenKind::Bad, length);
            }
        }
    }

    /// Whether a `#` begins what other servers, and shells, take for a comment: at the beginning of a line, or alone.
    fn is_comment_of_others(&self) -> bool {
        let Some(behind) = self.rest().strip_prefix('#') else { return false };
        let before = self.text[..self.at].trim_end_matches(is_space);
        let begins_line = before.is_empty() || before.ends_with(['\n', '\r', ';', '{', '}']);
        let is_alone = behind.is_empty() || behind.starts_with(is_space) || newline_length(behind) > 0;
        let is_keyword =
            ["true", "false", "null", "inf", "-inf", "nan"].iter().any(|word| behind.starts_with(word));
        is_alone || begins_line && !is_keyword
    }

    fn continuation(&mut self) {
        let rest = self.rest();
        let behind = &rest[1..];
        let mut blank = 0;
        loop {
            let after = &behind[blank..];
            let space = after.find(|character| !is_space(character)).unwrap_or(after.len());
            match comment_length(&after[space..]) {
                Some(comment) => blank += space + comment,
                None => {
                    blank += space;
                    break;
                }
            }
        }
        let after = &behind[blank..];
        let comment = if after.starts_with("//") { line_length(after) } else { 0 };
        let end = &after[comment..];
        let newline = newline_length(end);
        if newline > 0 || end.is_empty() {
            return self.comment(TokenKind::Continuation, 1 + blank + comment + newline);
        }
        let range = self.at..self.at + 1;
        self.error(
            range,
            "a backslash stands here",
            Some("it may only end a line, to go on in the next one"),
        );
        self.take(TokenKind::Bad, 1);
    }

    fn block_comment(&mut self) {
        let rest = self.rest();
        match comment_length(rest) {
            Some(length) => self.comment(TokenKind::BlockComment, length),
            None => {
                let range = self.at..self.at + 2;
                self.error(range, "this comment is not closed", Some("close it with `*/`"));
                self.take(TokenKind::Bad, rest.len());
            }
        }
    }

    /// Takes a comment. What KDL does not allow in a text it does not allow there either: such characters can
    /// make a text look like another.
    fn comment(&mut self, kind: TokenKind, length: usize) {
        let text = &self.rest()[..length];
        if let Some((at, character)) = text.char_indices().find(|(_, character)| is_forbidden(*character)) {
            let code = u32::from(character);
            let range = self.at + at..self.at + at + character.len_utf8();
            let message = format!("the invisible character U+{code:04X} stands in a comment");
            self.error(range, message, Some("delete it"));
        }
        self.take(kind, length);
    }

    /// A type in round brackets; `false`, and nothing taken, when it is none.
    fn annotation(&mut self) -> bool {
        let (start, tokens, errors) = (self.at, self.tokens.len(), self.errors.len());
        self.at += 1;
        let mut strings = 0;
        let is_type = loop {
            match self.rest().chars().next() {
                Some(')') => break strings == 1,
                None | Some('(' | '{' | '}' | ';' | '=') => break false,
                Some(_) => self.step(),
            }
            match self.tokens.last().map(|token| token.kind) {
                Some(TokenKind::Word | TokenKind::Quoted) => strings += 1,
                Some(TokenKind::Space | TokenKind::BlockComment | TokenKind::Continuation) => {}
                _ => break false,
            }
        };
        self.tokens.truncate(tokens);
        if !is_type {
            self.errors.truncate(errors);
            self.at = start;
            return false;
        }
        let length = self.at + 1 - start;
        self.at = start;
        self.take(TokenKind::Annotation, length);
        true
    }
}

/// A text in single or curly quotes that begins here: its length with them, and what stands in them.
fn other_quotes(rest: &str) -> Option<(usize, &str)> {
    let first = rest.chars().next()?;
    let closing: &[char] = match first {
        '\'' => &['\''],
        '\u{201c}' | '\u{201d}' | '\u{201e}' => &['\u{201c}', '\u{201d}'],
        '\u{2018}' | '\u{2019}' | '\u{201a}' => &['\u{2018}', '\u{2019}'],
        _ => return None,
    };
    let line = &rest[first.len_utf8()..line_length(rest)];
    let (at, last) = line.char_indices().find(|(_, character)| closing.contains(character))?;
    Some((first.len_utf8() + at + last.len_utf8(), &line[..at]))
}

/// How the message of a word ends that needs quotes.
pub(crate) const UNQUOTED: &str = "must be in quotes";

/// A size with the unit of another manner, in ours: in quotes alone it would be the next mistake.
fn meant_size(word: &str) -> Option<String> {
    let (number, unit) = word.split_at(word.find(|character: char| !character.is_ascii_digit())?);
    let unit = match unit {
        "k" | "K" | "kB" | "KB" => "KiB",
        "M" | "MB" => "MiB",
        "G" | "GB" => "GiB",
        "T" | "TB" => "TiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Says what a bare word is, or why it needs quotes: the message and the help.
fn classify(word: &str) -> Result<TokenKind, (String, String)> {
    let quote =
        |why: &str| Err((format!("`{word}` {why}"), format!("write `\"{}\"`", word.replace('\\', "\\\\"))));
    if matches!(word, "#true" | "#false" | "#null" | "#inf" | "#-inf" | "#nan") {
        return Ok(TokenKind::Literal);
    }
    if matches!(word, "true" | "false" | "null" | "inf" | "-inf" | "nan") {
        let help = "a directive alone switches something on, and `off` behind it switches it off".to_owned();
        return Err((format!("`{word}` is no word of settings"), help));
    }
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let unsigned_start = unsigned.strip_prefix('.').unwrap_or(unsigned);
    if unsigned.starts_with(|character: char| character.is_ascii_digit()) {
        return if super::document::is_number(word) {
            Ok(TokenKind::Literal)
        } else if let Some(size) = meant_size(word) {
            Err((
                format!("`{word}` begins like a number but is none: it {UNQUOTED}"),
                format!("write `\"{size}\"`"),
            ))
        } else {
            quote(&format!("begins like a number but is none: it {UNQUOTED}"))
        };
    }
    if unsigned_start.starts_with(|character: char| character.is_ascii_digit()) {
        return quote(UNQUOTED);
    }
    if word.contains(['/', '[', ']', '#']) {
        return quote(UNQUOTED);
    }
    Ok(TokenKind::Word)
}

/// Whether a text begins with a block comment that is closed on the same line, within [`COMMENT_AT_WORD`]: a word of very many
/// slashes is looked at in time that its length bounds.
fn is_comment_on_line(text: &str) -> bool {
    if !text.starts_with("/*") {
        return false;
    }
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= COMMENT_AT_WORD);
    let near = &text[..end.unwrap_or(text.len())];
    comment_length(&near[..line_length(near)]).is_some()
}

/// The length of the block comment that begins a text, nested ones included; `None` when there is none, or it
/// is not closed.
fn comment_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0usize, 0usize);
    loop {
        match bytes.get(at..)? {
            [b'/', b'*', ..] if depth < COMMENT_DEPTH => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth > 0 => (depth, at) = (depth - 1, at + 2),
            [] => return None,
            _ if depth == 0 => return None,
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The length of the line that begins a text, without its end.
fn line_length(text: &str) -> usize {
    text.char_indices().find(|(at, _)| newline_length(&text[*at..]) > 0).map_or(text.len(), |(at, _)| at)
}

/// The length of the line end that begins a text; 0 when there is none.
pub(super) fn newline_length(text: &str) -> usize {
    match text.chars().next() {
        Some('\r') if text.as_bytes().get(1) == Some(&b'\n') => 2,
        Some(character @ ('\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')) => {
            character.len_utf8()
        }
        _ => 0,
    }
}

pub(super) fn is_space(character: char) -> bool {
    matches!(
        character,
        '\t' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// Code points that KDL does not allow literally.
fn is_forbidden(character: char) -> bool {
    matches!(character, '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> String {
        let (tokens, errors) = lex(text, usize::MAX);
        assert_eq!(tokens.iter().map(|token| token.range.len()).sum::<usize>(), text.len());
        let letters: String = tokens
            .iter()
            .map(|token| match token.kind {
                TokenKind::Space => '_',
                TokenKind::Newline => 'n',
                TokenKind::LineComment => 'l',
                TokenKind::BlockComment => 'b',
                TokenKind::Continuation => 'c',
                TokenKind::Slashdash => '-',
                TokenKind::Open => '{',
                TokenKind::Close => '}',
                TokenKind::Equals => '=',
                TokenKind::Semicolon => ';',
                TokenKind::Quoted => 'q',
                TokenKind::Word => 'w',
                TokenKind::Literal => '1',
                TokenKind::Annotation => 't',
                TokenKind::Bad => '?',
            })
            .collect();
        format!("{letters} {}", errors.len())
    }

    #[test]
    fn cuts_text_into_tokens() {
        let cases = [
            ("workers auto", "w_w 0"),
            ("a \"x\" b=1; // c\n", "w_q_w=1;_ln 0"),
            ("a { b #true } /* x /* y */ z */", "w_{_w_1_}_b 0"),
            ("a \\ // more\n b /-c", "w_c_w_-w 0"),
            ("a #\"raw \\ \" x\"#", "w_q 0"),
            ("a \"\"\"\n  x\n  \"\"\"", "w_q 0"),
            ("a \"\"\"\n x\n  \"\"\"", "w_q 1"),
            ("a \"\"\"x\"\"\"", "w_q 1"),
            ("a \"\\q \\u{41}\"", "w_q 1"),
            ("a \"open\nb", "w_?nw 1"),
            ("a 10s 5 -3 0x1f 1.", "w_?_1_1_1_? 2"),
            ("a /srv http://x true", "w_?_?_? 3"),
            ("a \u{202e}", "w_? 1"),
            ("/* open", "? 1"),
            ("a (b)c (/* x */ \"t\" )1", "w_tw_t1 0"),
            ("a (b c)d (", "w_?w_w?w_? 3"),
            ("// \u{202e}\na /* \0 */", "lnw_b 2"),
            ("a \\ /* x */ // y\nb", "w_cw 0"),
            ("a 0X1F 1_0", "w_?_1 1"),
            ("a \\b", "w_?w 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(kinds(text), expected, "{text:?}");
        }
    }
}
