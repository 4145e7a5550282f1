//! Strings in quotes, on one line or on several, raw or with escapes.

use super::{Lexer, TokenKind, is_forbidden, is_space, line_length, newline_length};

/// Whether a byte is a whole character that means itself in every string.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

/// The longest string, bytes.
const STRING_SIZE: usize = 64 * 1024;

impl Lexer<'_> {
    /// A string in quotes: `"…"`, `"""` over several lines, or either between `hashes` hash signs (raw).
    pub(super) fn quoted(&mut self, hashes: usize) {
        let rest = self.rest();
        let body = &rest[hashes..];
        let quotes = if body.starts_with("\"\"\"") { 3 } else { 1 };
        let is_close = |left: &[u8]| match left.split_at_checked(quotes) {
            Some((ends, behind)) => {
                ends.iter().all(|byte| *byte == b'"')
                    && behind.len() >= hashes
                    && behind.iter().take(hashes).all(|byte| *byte == b'#')
            }
            None => false,
        };
        let mut at = hashes + quotes;
        loop {
            // Most of a string is plain and ends nothing.
            at += rest.as_bytes()[at..].iter().take_while(|byte| is_plain(**byte)).count();
            let left = &rest[at..];
            let Some(character) = left.chars().next() else { break };
            if is_close(left.as_bytes()) {
                return self.finish_quoted(hashes, quotes, at + quotes + hashes);
            }
            let newline = newline_length(left);
            if newline > 0 && quotes == 1 {
                break;
            }
            at += match character {
                '\\' if hashes == 0 => self.escape(at),
                _ if newline > 0 => newline,
                _ => {
                    if is_forbidden(character) {
                        let code = u32::from(character);
                        let range = self.at + at..self.at + at + character.len_utf8();
                        let message = format!("the invisible character U+{code:04X} stands in the string");
                        self.error(
                            range,
                            message,
                            Some(&format!("delete it or write it as `\\u{{{code:x}}}`")),
                        );
                    }
                    character.len_utf8()
                }
            };
        }
        let close = format!("{}{}", &"\"\"\""[..quotes], "#".repeat(hashes));
        let place = if quotes == 1 { "on the same line" } else { "on a line of its own" };
        let help = format!("close it with `{close}` {place}");
        // An open string of several lines would swallow the rest; only its first line is marked.
        let line = line_length(rest);
        self.error(self.at..self.at + line.max(1), "this string is not closed", Some(&help));
        self.take(TokenKind::Bad, at);
    }

    fn finish_quoted(&mut self, hashes: usize, quotes: usize, length: usize) {
        let range = self.at..self.at + length;
        if length > STRING_SIZE {
            let message = format!("this string is longer than {STRING_SIZE} bytes");
            let line = line_length(self.rest());
            self.error(self.at..self.at + line, message, Some("serve it from a file"));
            return self.take(TokenKind::Quoted, length);
        }
        let token = &self.rest()[..length];
        if quotes == 3 && newline_length(&token[hashes + 3..]) == 0 {
            let help = Some("the text begins on the line below the opening `\"\"\"`");
            self.error(range, "text follows the opening `\"\"\"`", help);
            return self.take(TokenKind::Quoted, length);
        }
        if quotes == 3
            && self.errors.last().is_none_or(|error| error.range.start < range.start)
            && let Err(message) = crate::syntax::document::text(token)
        {
            let help = "the closing `\"\"\"` stands on a line of its own, and every line begins with the white space \
                        before it";
            self.error(range, message, Some(help));
        }
        self.take(TokenKind::Quoted, length);
    }

    /// The length of the escape that begins at `at` of the rest; a wrong one is recorded.
    fn escape(&mut self, at: usize) -> usize {
        let left = &self.rest()[at..];
        let behind = &left[1..];
        let Some(character) = behind.chars().next() else { return 1 };
        match character {
            'n' | 'r' | 't' | '\\' | '"' | 'b' | 'f' | 's' => return 2,
            'u' => {
                if let Some(digits) = behind[1..].strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                    let digits = digits.0;
                    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let scalar = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                    if is_hex && (1..=6).contains(&digits.len()) && scalar.is_some() {
                        return 2 + 2 + digits.len();
                    }
                }
            }
            // White space behind a backslash, line ends included, is left out of the string.
            _ if is_space(character) || newline_length(behind) > 0 => {
                let mut length = 1;
                while let Some(character) = left[length..].chars().next() {
                    let newline = newline_length(&left[length..]);
                    if newline == 0 && !is_space(character) {
                        break;
                    }
                    length += newline.max(character.len_utf8());
                }
                return length;
            }
            _ => {}
        }
        let end = self.at + at + 1 + character.len_utf8();
        let help = "a backslash itself is `\\\\`; known are `\\n` `\\r` `\\t` `\\\"` `\\\\` `\\s` `\\b` `\\f` `\\u{…}`";
        self.error(self.at + at..end, format!("`\\{character}` is no escape"), Some(help));
        1 + character.len_utf8()
    }
}
