//! Splits Rust source into code and comments, line by line.
//!
//! Used by the source checks, which look for words in one and not in the other. It knows just enough of
//! the language: strings of every kind, characters beside lifetimes, nested block comments. What stands in
//! a string appears in neither half.

/// A line of source, taken apart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Line {
    /// The code, strings emptied.
    pub code: String,
    /// The text of comments, markers left out.
    pub comment: String,
}

/// Splits a whole file.
pub fn split(source: &str) -> Vec<Line> {
    let mut lexer = Lexer { rest: source, lines: vec![Line::default()] };
    while let Some(next) = lexer.rest.chars().next() {
        lexer.step(next);
    }
    lexer.lines
}

struct Lexer<'a> {
    rest: &'a str,
    lines: Vec<Line>,
}

impl Lexer<'_> {
    fn step(&mut self, next: char) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let comment = &self.rest[2..end];
            self.line().comment.push_str(comment);
            self.rest = &self.rest[end..];
        } else if self.rest.starts_with("/*") {
            self.block_comment();
        } else if next == '"' {
            self.string();
        } else if next == 'r' && !self.follows_a_word() && self.raw_hashes().is_some() {
            self.raw_string();
        } else if next == '\'' {
            self.character_or_lifetime();
        } else {
            if next == '\n' {
                self.lines.push(Line::default());
            } else {
                self.line().code.push(next);
            }
            self.skip(next.len_utf8());
        }
    }

    fn line(&mut self) -> &mut Line {
        self.lines.last_mut().expect("invariant: there is always a line")
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// Drops text that belongs to neither half, keeping the count of lines.
    fn drop_text(&mut self, bytes: usize) {
        let breaks = self.rest[..bytes].matches('\n').count();
        self.lines.extend(std::iter::repeat_n(Line::default(), breaks));
        self.skip(bytes);
    }

    fn follows_a_word(&mut self) -> bool {
        // `br"` and `cr"` are strings too, while the `r` of `for` is the end of a word.
        let code = &self.line().code;
        let before = code.strip_suffix(['b', 'c']).unwrap_or(code);
        before.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_')
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while !self.rest.is_empty() {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.skip(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.skip(2);
                if depth == 0 {
                    return;
                }
            } else {
                let next = self.rest.chars().next().expect("invariant: not empty");
                if next == '\n' {
                    self.lines.push(Line::default());
                } else {
                    self.line().comment.push(next);
                }
                self.skip(next.len_utf8());
            }
        }
    }

    fn string(&mut self) {
        self.line().code.push_str("\"\"");
        let mut is_escaped = false;
        let end = self.rest[1..].char_indices().find(|&(_, character)| {
            let ends = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        });
        self.drop_text(end.map_or(self.rest.len(), |(index, _)| index + 2));
    }

    /// The number of `#` of a raw string that begins here.
    fn raw_hashes(&self) -> Option<usize> {
        let after = self.rest.strip_prefix('r')?;
        let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
        after[hashes..].starts_with('"').then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().expect("invariant: asked before");
        self.line().code.push_str("\"\"");
        let closing = format!("\"{}", "#".repeat(hashes));
        let start = hashes + 2;
        let end = self.rest[start..].find(&closing);
        self.drop_text(end.map_or(self.rest.len(), |index| start + index + closing.len()));
    }

    fn character_or_lifetime(&mut self) {
        let mut characters = self.rest.char_indices().skip(1);
        let first = characters.next();
        let second = characters.next();
        let length = match (first, second) {
            (Some((_, '\\')), Some((escaped, _))) => {
                // The escaped character itself may be a quote, so the search begins behind it.
                let from = escaped + 1;
                self.rest.get(from..).and_then(|rest| rest.find('\'')).map(|index| from + index + 1)
            }
            (Some(_), Some((index, '\''))) => Some(index + 1),
            _ => None,
        };
        match length {
            Some(length) => {
                self.line().code.push_str("''");
                self.drop_text(length);
            }
            None => {
                self.line().code.push('\'');
                self.skip(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        split(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn code_without_strings_and_comments() {
        let table: [(&str, &[&str]); 12] = [
            ("a // b", &["a "]),
            ("a /* b /* c */ d */ e", &["a  e"]),
            ("a(\"unsafe // x\")", &["a(\"\")"]),
            (r#"a("\"unsafe\\") b"#, &["a(\"\") b"]),
            ("r#\"unsafe \" x\"# y", &["\"\" y"]),
            ("br\"x\" y", &["b\"\" y"]),
            ("for r in x", &["for r in x"]),
            ("'\"' b", &["'' b"]),
            (r"'\'' b '\\' c '\u{41}' d", &["'' b '' c '' d"]),
            ("&'a str", &["&'a str"]),
            ("\"one\ntwo\" three", &["\"\"", " three"]),
            ("b'x' 'é'", &["b'' ''"]),
        ];
        for (source, expected) in table {
            assert_eq!(code(source), expected, "{source}");
        }
    }

    #[test]
    fn comments_apart() {
        let lines = split("x // one\n/* two\nthree */ y");
        let comments: Vec<_> = lines.iter().map(|line| line.comment.trim()).collect();
        assert_eq!(comments, ["one", "two", "three"]);
    }

    #[test]
    fn unfinished_input_ends() {
        for source in ["\"abc", "r#\"abc", "/* abc", "'", "'\\", "'\\'", "r", "'a"] {
            split(source);
        }
    }
}
