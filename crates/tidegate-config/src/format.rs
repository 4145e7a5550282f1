//! `tidegate fmt`: one way to write settings, so that differences show what changed.
//!
//! Works on tokens, not on meaning: comments, order, quoting and numbers stay as they were written. Four
//! spaces for each level, one space between values, at most one blank line, a block stays on one line where
//! it was written on one and fits. Formatting twice is formatting once.

use crate::diagnostic::Diagnostic;
use crate::foreign;
use crate::source::Source;
use crate::syntax;
use crate::syntax::lexer::{Token, TokenKind};

/// The longest line that a block on one line may make.
const WIDTH: usize = 110;

/// The text as it should be written.
///
/// # Errors
/// The mistakes of form that keep it from being understood, or that it is written for another server.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let source = Source::new("<input>", text);
    format_source(&source)
}

/// As [`format()`], with diagnostics that name the source.
///
/// # Errors
/// As [`format()`].
pub fn format_source(source: &Source) -> Result<String, Vec<Diagnostic>> {
    let parsed = syntax::parse(source);
    // Much of nginx could be taken for this, and would be broken for nginx.
    if let Some(refusal) = foreign::refusal(source, &parsed) {
        return Err(vec![refusal]);
    }
    if !parsed.diagnostics.is_empty() {
        return Err(parsed.diagnostics);
    }
    let (tokens, _) = syntax::tokens(source).map_err(|diagnostic| vec![*diagnostic])?;
    let mut reader = Reader { text: &source.text, tokens: &tokens, at: 0, stray: Vec::new() };
    let block = reader.block(false);
    let mut out = String::new();
    write_parts(&mut out, &block.parts, 0);
    Ok(out)
}

/// What stands between two braces, or the whole text.
#[derive(Debug, Default)]
struct Block {
    /// A comment on the line of the opening brace.
    opening: Option<String>,
    parts: Vec<Part>,
    is_one_line: bool,
}

#[derive(Debug)]
enum Part {
    Node(Node),
    /// A comment on a line of its own.
    Comment(String),
    /// A blank line.
    Blank,
}

#[derive(Debug, Default)]
struct Node {
    pieces: Vec<Piece>,
    /// A comment behind it on its line.
    trailing: Option<String>,
}

#[derive(Debug)]
enum Piece {
    /// A name, a value, a property, a comment within the line.
    Text(String),
    /// The line goes on in the next one, with the comment that stood there.
    Continuation(Option<String>),
    Block {
        is_left_out: bool,
        block: Block,
    },
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    /// Comments that stand where nothing can follow them; they move to lines of their own.
    stray: Vec<String>,
}

impl Reader<'_> {
    fn kind(&self) -> Option<TokenKind> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    fn text(&self) -> &str {
        self.tokens.get(self.at).and_then(|token| self.text.get(token.range.clone())).unwrap_or("")
    }

    fn skip_spaces(&mut self) {
        while self.kind() == Some(TokenKind::Space) {
            self.at += 1;
        }
    }

    /// Reads up to the closing brace, which is left to the caller, or to the end.
    fn block(&mut self, has_brace: bool) -> Block {
        let mut block = Block { is_one_line: true, ..Block::default() };
        let mut newlines = 0usize;
        loop {
            match self.kind() {
                None | Some(TokenKind::Close) => break,
                Some(TokenKind::Space | TokenKind::Semicolon) => self.at += 1,
                Some(TokenKind::Continuation) => {
                    // There is nothing to go on with, but a comment behind it stays.
                    if let Some(comment) = self.comment() {
                        block.parts.push(Part::Comment(comment));
                    }
                    block.is_one_line = false;
                    self.at += 1;
                }
                Some(TokenKind::Newline) => {
                    newlines += 1;
                    block.is_one_line = false;
                    self.at += 1;
                }
                Some(TokenKind::LineComment) => {
                    let comment = self.text().trim_end().to_owned();
                    self.at += 1;
                    if has_brace && newlines == 0 && block.parts.is_empty() && block.opening.is_none() {
                        block.opening = Some(comment);
                    } else {
                        blank(&mut block.parts, &mut newlines);
                        block.parts.push(Part::Comment(comment));
                    }
                    block.is_one_line = false;
                }
                Some(TokenKind::BlockComment) if self.ends_line() => {
                    blank(&mut block.parts, &mut newlines);
                    block.parts.push(Part::Comment(self.text().to_owned()));
                    self.at += 1;
                }
                Some(_) => {
                    blank(&mut block.parts, &mut newlines);
                    let outer = self.stray.len(); // of the node that this block belongs to
                    let node = self.node();
                    block.is_one_line &= node.fits_one_line();
                    block.parts.push(Part::Node(node));
                    for comment in self.stray.drain(outer..) {
                        block.is_one_line &= !comment.starts_with("//");
                        block.parts.push(Part::Comment(comment));
                    }
                    newlines = 0;
                }
            }
        }
        block
    }

    /// Whether nothing but other comments and the end of the line or of the block follows the token.
    fn ends_line(&self) -> bool {
        let mut behind = self.tokens.iter().skip(self.at + 1).map(|token| token.kind);
        let next = behind.find(|kind| !matches!(kind, TokenKind::Space | TokenKind::BlockComment));
        next.is_none_or(|kind| {
            matches!(
                kind,
                TokenKind::Newline
                    | TokenKind::Close
                    | TokenKind::Semicolon
                    | TokenKind::LineComment
                    | TokenKind::Continuation
            )
        })
    }

    fn node(&mut self) -> Node {
        let mut node = Node::default();
        let mut prefix = String::new();
        loop {
            match self.kind() {
                None | Some(TokenKind::Close | TokenKind::Newline) => break,
                Some(TokenKind::Semicolon) => {
                    self.at += 1;
                    break;
                }
                Some(TokenKind::Space) => self.at += 1,
                Some(TokenKind::LineComment) => break,
                Some(TokenKind::BlockComment) => {
                    node.pieces.push(Piece::Text(self.text().to_owned()));
                    self.at += 1;
                }
                Some(TokenKind::Continuation) => {
                    let comment = self.comment();
                    node.pieces.push(Piece::Continuation(comment));
                    self.at += 1;
                }
                Some(TokenKind::Slashdash) => {
                    prefix.push_str("/-");
                    self.at += 1;
                    self.skip_gap();
                }
                Some(TokenKind::Annotation) => {
                    prefix.push_str(self.text());
                    self.at += 1;
                    self.skip_gap();
                }
                Some(TokenKind::Open) => {
                    self.at += 1;
                    let block = self.block(true);
                    if self.kind() == Some(TokenKind::Close) {
                        self.at += 1;
                    }
                    let is_left_out = !std::mem::take(&mut prefix).is_empty();
                    node.pieces.push(Piece::Block { is_left_out, block });
                }
                Some(_) => {
                    let text = self.entry();
                    node.pieces.push(Piece::Text(std::mem::take(&mut prefix) + &text));
                }
            }
        }
        // A line that goes on with nothing ends there; its comments stay.
        let mut comments = Vec::new();
        while matches!(node.pieces.last(), Some(Piece::Continuation(_))) {
            if let Some(Piece::Continuation(Some(comment))) = node.pieces.pop() {
                comments.push(comment);
            }
        }
        node.trailing = comments.pop();
        self.stray.extend(comments.into_iter().rev());
        self.skip_spaces();
        if self.kind() == Some(TokenKind::LineComment) && node.trailing.is_none() {
            node.trailing = Some(self.text().trim_end().to_owned());
            self.at += 1;
        }
        node
    }

    /// The comment within a continuation.
    fn comment(&self) -> Option<String> {
        self.text().split_once("//").map(|(_, comment)| format!("//{}", comment.trim_end()))
    }

    /// A value, or a property without the spaces around its `=`.
    fn entry(&mut self) -> String {
        let mut out = self.text().to_owned();
        self.at += 1;
        let (behind, stray) = (self.at, self.stray.len());
        self.skip_gap();
        if self.kind() != Some(TokenKind::Equals) {
            self.at = behind;
            self.stray.truncate(stray);
            return out;
        }
        self.at += 1;
        self.skip_gap();
        out.push('=');
        if self.kind() == Some(TokenKind::Annotation) {
            out.push_str(self.text());
            self.at += 1;
            self.skip_gap();
        }
        out.push_str(self.text());
        self.at += 1;
        out
    }

    /// Skips what may stand between the parts of a value; comments move to lines of their own.
    fn skip_gap(&mut self) {
        loop {
            match self.kind() {
                Some(TokenKind::Space | TokenKind::Newline) => {}
                Some(TokenKind::BlockComment | TokenKind::LineComment) => {
                    self.stray.push(self.text().trim_end().to_owned());
                }
                Some(TokenKind::Continuation) => self.stray.extend(self.comment()),
                _ => return,
            }
            self.at += 1;
        }
    }
}

/// Keeps one blank line where there was at least one, but none at the start of a block.
fn blank(parts: &mut Vec<Part>, newlines: &mut usize) {
    // The first newline ends the line before.
    if *newlines > 1 && !parts.is_empty() {
        parts.push(Part::Blank);
    }
    *newlines = 0;
}

impl Node {
    fn fits_one_line(&self) -> bool {
        self.trailing.is_none()
            && self.pieces.iter().all(|piece| match piece {
                Piece::Text(text) => !text.contains(is_line_end),
                Piece::Continuation(_) => false,
                Piece::Block { block, .. } => block.fits_one_line(),
            })
    }

    /// The node on one line, where it can be.
    fn one_line(&self) -> Option<String> {
        if !self.pieces.iter().all(|piece| match piece {
            Piece::Text(text) => !text.contains(is_line_end),
            Piece::Continuation(_) => false,
            Piece::Block { block, .. } => block.fits_one_line(),
        }) {
            return None;
        }
        let pieces: Vec<String> = self
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Continuation(_) => String::new(),
                Piece::Block { is_left_out, block } => {
                    format!("{}{}", if *is_left_out { "/-" } else { "" }, block.one_line())
                }
            })
            .collect();
        Some(pieces.join(" "))
    }
}

impl Block {
    fn fits_one_line(&self) -> bool {
        let last = self.parts.len().saturating_sub(1);
        self.is_one_line
            && self.opening.is_none()
            && self.parts.iter().enumerate().all(|(at, part)| match part {
                Part::Node(node) => node.fits_one_line(),
                Part::Comment(text) => at == last && !text.contains(is_line_end),
                Part::Blank => false,
            })
    }

    fn one_line(&self) -> String {
        if self.parts.is_empty() {
            return "{}".to_owned();
        }
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Node(node) => node.one_line().unwrap_or_default(),
                Part::Comment(text) => text.clone(),
                Part::Blank => String::new(),
            })
            .collect();
        format!("{{ {} }}", parts.join("; "))
    }
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn write_parts(out: &mut String, parts: &[Part], level: usize) {
    for part in parts {
        match part {
            Part::Blank => {}
            Part::Comment(text) => {
                indent(out, level);
                out.push_str(text);
            }
            Part::Node(node) => write_node(out, node, level),
        }
        out.push('\n');
    }
}

fn write_node(out: &mut String, node: &Node, level: usize) {
    indent(out, level);
    if let Some(line) = node.one_line()
        && (level * 4 + line.chars().count() <= WIDTH || !node.has_filled_block())
    {
        out.push_str(&line);
    } else {
        let mut is_first = true;
        for piece in &node.pieces {
            if !is_first {
                out.push(' ');
            }
            is_first = false;
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Continuation(comment) => {
                    out.push('\\');
                    if let Some(comment) = comment {
                        out.push(' ');
                        out.push_str(comment);
                    }
                    out.push('\n');
                    indent(out, level + 1);
                    is_first = true;
                }
                Piece::Block { is_left_out, block } => {
                    out.push_str(if *is_left_out { "/-" } else { "" });
                    write_block(out, block, level);
                }
            }
        }
    }
    if let Some(comment) = &node.trailing {
        out.push(' ');
        out.push_str(comment);
    }
}

impl Node {
    fn has_filled_block(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Block { block, .. } if !block.parts.is_empty()))
    }
}

fn write_block(out: &mut String, block: &Block, level: usize) {
    if block.parts.is_empty() && block.opening.is_none() {
        return out.push_str("{}");
    }
    out.push('{');
    if let Some(comment) = &block.opening {
        out.push(' ');
        out.push_str(comment);
    }
    out.push('\n');
    write_parts(out, &block.parts, level + 1);
    indent(out, level);
    out.push('}');
}

fn indent(out: &mut String, level: usize) {
    for _ in 0..level {
        out.push_str("    ");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `check` refuses in a sentence is not rewritten, and not complained of line by line.
    #[test]
    fn files_of_other_servers_are_left_alone() {
        for text in [
            "server {\n    listen 80;\n    server_name a.test;\n    location / {\n        proxy_pass http://127.0.0.1:3000;\n    }\n}\n",
            "user www-data;\nevents {\n    worker_connections 768;\n}\nhttp {\n    gzip on;\n    include /etc/nginx/conf.d/*.conf;\n    log_format a '$x';\n}\n",
        ] {
            let refused = format(text).unwrap_err();
            let [one] = refused.as_slice() else { panic!("{refused:?}") };
            assert_eq!(one.message, "this file is written for nginx");
        }
    }

    #[test]
    fn writes_settings_one_way() {
        let cases = [
            ("", ""),
            ("listen   \":80\";workers   4", "listen \":80\"\nworkers 4\n"),
            ("a {b;c  x = 1}", "a { b; c x=1 }\n"),
            ("a {\nb;c}", "a {\n    b\n    c\n}\n"),
            ("\n\n// one\n\n\n\nb // two\n/* three */\n", "// one\n\nb // two\n/* three */\n"),
            ("a { // open\n\n  b\n\n} // shut\n", "a { // open\n    b\n} // shut\n"),
            ("a {}", "a {}\n"),
            ("/-  a { b }\nc /- d /* e */ f", "/-a { b }\nc /-d /* e */ f\n"),
            ("a \\ // why\n   b", "a \\ // why\n    b\n"),
            ("a \"\"\"\n   x\n   \"\"\"", "a \"\"\"\n   x\n   \"\"\"\n"),
            ("a { b; /* c */ }", "a { b; /* c */ }\n"),
            ("a; // b\nc", "a // b\nc\n"),
            ("(t)\\ // c\na { b }", "(t)a { b }\n// c\n"),
            ("a { (t)\\ // c\nb }", "a {\n    (t)b\n    // c\n}\n"),
            ("// top\n\na", "// top\n\na\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(format(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn breaks_a_block_that_is_too_long() {
        let text = format!("a {{ b \"{}\"; c }}", "x".repeat(120));
        let expected = format!("a {{\n    b \"{}\"\n    c\n}}\n", "x".repeat(120));
        assert_eq!(format(&text), Ok(expected));
    }

    #[test]
    fn refuses_what_is_broken() {
        assert!(format("a {").is_err());
    }

    /// The values of nodes, for comparison: names, values, order; nothing of how they are written.
    fn meaning(nodes: &[syntax::document::Node]) -> String {
        let nodes = nodes.iter().map(|node| {
            let entries: Vec<String> =
                node.entries.iter().map(|entry| format!("{:?}={:?}", entry.name, entry.value)).collect();
            let children = node.children.as_deref().map(meaning).filter(|children| !children.is_empty());
            format!("{}({}){:?}", node.name, entries.join(","), children)
        });
        nodes.collect::<Vec<_>>().join(";")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 16))]
        #[test]
        fn formatting_keeps_the_meaning_and_is_idempotent(pieces in prop::collection::vec(prop::sample::select(vec![
            "a", "b ", "\"q\"", " ", "  ", "\n", "\n\n", ";", "{", "}", "{ ", " }", "=", "x=1", " y = \"z\" ", "// c\n",
            "/* d */", "/* e\n */", "/-", "\\\n", "\\ // c\n", "#true", " 5", "\"\"\"\n  t\n  \"\"\"", "#\"r\"#", "a {", "}\n", "(t)", "( /* f */ t ) ",
        ]), 0..24)) {
            let text = pieces.concat();
            if let Ok(formatted) = format(&text) {
                let again = format(&formatted);
                prop_assert_eq!(again.as_deref(), Ok(formatted.as_str()), "from {:?}", text);
                for comment in ["// c", "/* d */", "/* e", "/* f */"] {
                    let kept = formatted.matches(comment).count();
                    prop_assert_eq!(kept, text.matches(comment).count(), "from {:?} to {:?}", text, formatted);
                }
                let (before, after) = (Source::new("", &text), Source::new("", &formatted));
                let (before, after) = (syntax::parse(&before), syntax::parse(&after));
                prop_assert!(after.diagnostics.is_empty(), "from {:?} to {:?}", text, formatted);
                prop_assert_eq!(
                    meaning(&before.nodes), meaning(&after.nodes), "from {:?} to {:?}", text, formatted
                );
            }
        }
    }
}
