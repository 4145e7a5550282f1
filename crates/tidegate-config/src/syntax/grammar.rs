//! Tokens to well-formed nodes: finds every mistake of form in a file, and an outline of its top level.
//!
//! Runs before the `kdl` crate sees the text. The crate recurses without bound on broken input (a few
//! thousand stray braces overflow its stack) and takes exponential time on nested `/-`; so it is given only
//! text that passed here, with comments and `/-` parts blanked out. It also lets us word the errors.

use std::ops::Range;

use super::lexer::{SyntaxError, Token, TokenKind};

/// The deepest nesting of blocks; settings need four.
const BLOCK_DEPTH: usize = 16;
/// Most nodes of one file.
const NODES: usize = 100_000;

/// A node of the top level, as far as it could be made out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutlineNode {
    /// Its name.
    pub name: Range<usize>,
    /// Its words and quoted strings that are no properties.
    pub arguments: Vec<Range<usize>>,
}

/// What the pass found.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub nodes: Vec<OutlineNode>,
    pub errors: Vec<SyntaxError>,
    /// What the `kdl` crate must not see: comments, continuations, `/-` parts.
    pub blanks: Vec<Range<usize>>,
}

/// Checks the form of a token list.
pub(crate) fn check(tokens: &[Token]) -> Outline {
    let mut pass = Pass { tokens, at: 0, depth: 0, count: 0, out: Outline::default() };
    pass.nodes();
    pass.out
}

struct Pass<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    count: usize,
    out: Outline,
}

impl Pass<'_> {
    fn kind(&self) -> Option<TokenKind> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    fn range(&self) -> Range<usize> {
        let end = self.tokens.last().map_or(0, |token| token.range.end);
        self.tokens.get(self.at).map_or(end..end, |token| token.range.clone())
    }

    fn error(&mut self, range: Range<usize>, message: &str, help: &str) {
        self.out.errors.push(SyntaxError { range, message: message.to_owned(), help: Some(help.to_owned()) });
    }

    /// Skips white space and comments within a line; says whether there was any.
    fn skip_space(&mut self) -> bool {
        let start = self.at;
        while let Some(kind) = self.kind() {
            match kind {
                TokenKind::Space => {}
                TokenKind::BlockComment | TokenKind::Continuation | TokenKind::LineComment => {
                    let range = self.range();
                    self.out.blanks.push(range);
                    if kind == TokenKind::LineComment {
                        self.at += 1;
                        break;
                    }
                }
                _ => break,
            }
            self.at += 1;
        }
        self.at > start
    }

    /// All nodes up to the end of the text, or up to the brace that closes the block.
    fn nodes(&mut self) {
        // Whether a `;` would end a node; one that ends nothing is more than the crate takes.
        let mut ends_node = false;
        loop {
            loop {
                self.skip_space();
                match self.kind() {
                    Some(TokenKind::Newline) => {}
                    Some(TokenKind::Semicolon) if ends_node => {}
                    Some(TokenKind::Semicolon) => {
                        let range = self.range();
                        self.out.blanks.push(range);
                    }
                    Some(TokenKind::Space | TokenKind::BlockComment | TokenKind::Continuation) => continue,
                    _ => break,
                }
                ends_node = false;
                self.at += 1;
            }
            ends_node = true;
            match self.kind() {
                None => return,
                Some(TokenKind::Close) if self.depth > 0 => return,
                Some(TokenKind::Close) => {
                    let range = self.range();
                    self.error(
                        range,
                        "this `}` closes nothing",
                        "delete it, or find the `{` that is missing above",
                    );
                    self.at += 1;
                }
                Some(TokenKind::Slashdash) => {
                    let start = self.range().start;
                    self.at += 1;
                    self.skip_space();
                    let outline = self.out.nodes.len();
                    if matches!(
                        self.kind(),
                        None | Some(TokenKind::Close | TokenKind::Newline | TokenKind::Semicolon)
                    ) {
                        self.error(
                            start..start + 2,
                            "nothing follows this `/-`",
                            "it leaves out the directive that begins on its line",
                        );
                    } else {
                        self.node();
                    }
                    self.out.nodes.truncate(outline);
                    self.blank_from(start);
                    ends_node = false;
                }
                Some(_) => self.node(),
            }
            if self.count > NODES {
                let range = self.range();
                self.error(
                    range,
                    "there are more than 100000 directives in this file",
                    "split it with `include`",
                );
                self.at = self.tokens.len();
            }
        }
    }

    /// Blanks everything from an offset to where the pass stands.
    fn blank_from(&mut self, start: usize) {
        let end = self.range().start;
        self.out.blanks.push(start..end);
    }

    fn node(&mut self) {
        self.count += 1;
        let name = self.range();
        match self.kind() {
            Some(TokenKind::Word | TokenKind::Quoted | TokenKind::Bad) => self.at += 1,
            Some(TokenKind::Open) => {
                self.error(
                    name.clone(),
                    "a block begins here without its directive",
                    "the `{` stands on the line of its directive: `site \"example.com\" {`",
                );
                return self.children();
            }
            _ => {
                self.error(
                    name,
                    "a directive begins with its name",
                    "numbers, `=` and `#…` can only follow a name",
                );
                self.at += 1;
                return;
            }
        }
        let top = self.depth == 0;
        if top {
            self.out.nodes.push(OutlineNode { name, arguments: Vec::new() });
        }
        self.entries(top);
    }

    fn entries(&mut self, top: bool) {
        loop {
            let spaced = self.skip_space();
            let range = self.range();
            match self.kind() {
                None | Some(TokenKind::Newline | TokenKind::Semicolon | TokenKind::Close) => return,
                Some(TokenKind::Open) => {
                    self.children();
                    return self.terminator();
                }
                Some(TokenKind::Slashdash) => {
                    self.at += 1;
                    self.skip_space();
                    match self.kind() {
                        Some(TokenKind::Open) => self.children(),
                        Some(TokenKind::Word | TokenKind::Quoted | TokenKind::Literal | TokenKind::Bad) => {
                            self.entry();
                        }
                        _ => self.error(
                            range.clone(),
                            "nothing follows this `/-`",
                            "it leaves out what is behind it",
                        ),
                    }
                    self.blank_from(range.start);
                }
                Some(TokenKind::Equals) => {
                    self.error(range, "`=` stands without a name before it", "a property is `name=value`");
                    self.at += 1;
                    self.value();
                }
                Some(_) => {
                    if !spaced {
                        self.error(
                            range.clone(),
                            "a space is missing before this",
                            "values are parted by spaces",
                        );
                    }
                    let is_argument = self.entry();
                    if top
                        && is_argument
                        && let Some(node) = self.out.nodes.last_mut()
                    {
                        node.arguments.push(range);
                    }
                }
            }
        }
    }

    /// An argument or a property; says whether it was an argument.
    fn entry(&mut self) -> bool {
        let name = self.range();
        let is_literal = self.kind() == Some(TokenKind::Literal);
        self.at += 1;
        let behind_name = self.at;
        while self.kind() == Some(TokenKind::Space) {
            self.at += 1;
        }
        if self.kind() != Some(TokenKind::Equals) {
            self.at = behind_name;
            return true;
        }
        if is_literal {
            self.error(name, "a property cannot be named by a number", "a property is `name=value`");
        }
        self.at += 1;
        while self.kind() == Some(TokenKind::Space) {
            self.at += 1;
        }
        self.value();
        false
    }

    fn value(&mut self) {
        match self.kind() {
            Some(TokenKind::Word | TokenKind::Quoted | TokenKind::Literal | TokenKind::Bad) => self.at += 1,
            _ => {
                let at = self.tokens.get(self.at.saturating_sub(1)).map_or(0..0, |token| token.range.clone());
                self.error(at, "no value follows this `=`", "a property is `name=value`");
            }
        }
    }

    fn children(&mut self) {
        let open = self.range();
        self.at += 1;
        if self.depth >= BLOCK_DEPTH {
            self.error(open, "blocks are nested more than 16 deep here", "settings need four levels at most");
            // What is inside is skipped, not read: the nesting of the pass stays bounded.
            let mut level = 1usize;
            while let Some(kind) = self.kind() {
                match kind {
                    TokenKind::Open => level += 1,
                    TokenKind::Close => level -= 1,
                    _ => {}
                }
                self.at += 1;
                if level == 0 {
                    return;
                }
            }
            return;
        }
        self.depth += 1;
        self.nodes();
        self.depth -= 1;
        if self.kind() == Some(TokenKind::Close) {
            self.at += 1;
        } else {
            self.error(open, "this block is not closed", "close it with `}`");
        }
    }

    /// What follows a block must be on a line of its own.
    fn terminator(&mut self) {
        loop {
            self.skip_space();
            let range = self.range();
            match self.kind() {
                None | Some(TokenKind::Newline | TokenKind::Semicolon | TokenKind::Close) => return,
                Some(TokenKind::Slashdash) => {
                    self.at += 1;
                    self.skip_space();
                    if self.kind() == Some(TokenKind::Open) {
                        self.children();
                        self.blank_from(range.start);
                        continue;
                    }
                    self.error(
                        range,
                        "only a block may be left out here",
                        "begin a new line before the `/-`",
                    );
                    return;
                }
                Some(_) => {
                    let help = "begin a new line, or put `;` between: `a { … }; b`";
                    return self.error(range, "something follows the block on its line", help);
                }
            }
        }
    }
}
