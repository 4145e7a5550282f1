//! Tokens to a tree of nodes: KDL 2 by its grammar, within bounds, going on behind every mistake.
//!
//! It finds every mistake of form in a file and builds the tree of all that is sound, so that what it means is
//! examined as well and a mistake costs the node that it stands in. Only a mistake that leaves open which
//! block a line belongs to (a brace too many or too few, a string that is not closed) costs the whole file.
//! Recursion is bounded by `NESTING`, work by the number of tokens.

use std::ops::Range;

use super::document::{Entry, Literal, Node, literal, text};
use super::lexer::{SyntaxError, Token, TokenKind};
use crate::settings::NESTING;

/// Most nodes of one file.
const NODES: usize = 1_000_000;

/// What the pass found.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    pub errors: Vec<SyntaxError>,
    /// It is not certain which block what follows belongs to.
    pub is_structure_lost: bool,
}

/// Builds the tree of a token list; `errors` are those of the lexer.
pub(crate) fn parse(source: &str, tokens: &[Token], errors: Vec<SyntaxError>) -> Tree {
    let mut pass = Pass {
        source,
        tokens,
        at: 0,
        depth: 0,
        count: 0,
        out: Tree { errors, ..Tree::default() },
        lost_from: usize::MAX,
    };
    // What a broken string has swallowed may have held a brace.
    let swallowed = tokens.iter().find(|token| {
        token.kind == TokenKind::Bad
            && source.get(token.range.clone()).is_some_and(|bad| bad.contains(['{', '}', '\n']))
    });
    if let Some(token) = swallowed {
        pass.lose_structure(token.range.start);
    }
    let mut nodes = pass.nodes();
    let mut tree = pass.out;
    tree.is_structure_lost = pass.lost_from != usize::MAX;
    if tree.is_structure_lost {
        // What stands before it is examined, but for the block that may have ended too early.
        nodes.retain(|node| node.range.end <= pass.lost_from);
        if let Some(last) = nodes.iter().rposition(|node| node.children.is_some()) {
            nodes.truncate(last);
        }
    }
    tree.errors.sort_by_key(|error| error.range.start);
    let starts: Vec<usize> = tree.errors.iter().map(|error| error.range.start).collect();
    nodes.iter_mut().for_each(|node| mark(node, &starts));
    tree.nodes = nodes;
    tree
}

/// Says of a node and all below it whether a mistake stands in it.
fn mark(node: &mut Node, starts: &[usize]) {
    let has_error = |range: Range<usize>| {
        let first = starts.partition_point(|start| *start < range.start);
        starts.get(first).is_some_and(|start| *start < range.end)
    };
    node.is_broken = has_error(node.range.clone());
    if node.is_broken {
        node.is_header_broken = has_error(node.range.start..node.header_end);
        node.children.iter_mut().flatten().for_each(|child| mark(child, starts));
    }
}

/// Adds to a list that mostly stays with one: room for four, as lists begin with, would be most of what very many sites take.
fn push<T>(list: &mut Vec<T>, element: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().max(1));
    }
    list.push(element);
}

struct Pass<'a> {
    source: &'a str,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    count: usize,
    out: Tree,
    /// Where the structure is lost.
    lost_from: usize,
}

impl Pass<'_> {
    fn kind(&self) -> Option<TokenKind> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    fn range(&self) -> Range<usize> {
        let end = self.tokens.last().map_or(0, |token| token.range.end);
        self.tokens.get(self.at).map_or(end..end, |token| token.range.clone())
    }

    /// Where the token before the present one ends.
    fn behind(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |token| token.range.end)
    }

    fn error(&mut self, range: Range<usize>, message: &str, help: &str) {
        self.out.errors.push(SyntaxError { range, message: message.to_owned(), help: Some(help.to_owned()) });
    }

    fn lose_structure(&mut self, from: usize) {
        self.lost_from = self.lost_from.min(from);
    }

    /// `node-space`: white space, comments and line continuations; says whether there was any.
    fn skip_node_space(&mut self) -> bool {
        let start = self.at;
        while matches!(
            self.kind(),
            Some(TokenKind::Space | TokenKind::BlockComment | TokenKind::Continuation)
        ) {
            self.at += 1;
        }
        self.at > start
    }

    /// `line-space`: the same with line ends and comments to their end.
    fn skip_line_space(&mut self) {
        while self.skip_node_space()
            || matches!(self.kind(), Some(TokenKind::Newline | TokenKind::LineComment))
        {
            if matches!(self.kind(), Some(TokenKind::Newline | TokenKind::LineComment)) {
                self.at += 1;
            }
        }
    }

    /// All nodes up to the end of the text, or up to the brace that closes the block.
    fn nodes(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        loop {
            self.skip_line_space();
            match self.kind() {
                None => return nodes,
                Some(TokenKind::Close) if self.depth > 0 => return nodes,
                Some(TokenKind::Close) => {
                    let range = self.range();
                    self.lose_structure(range.start);
                    self.error(
                        range,
                        "this `}` closes nothing",
                        "delete it, or find the `{` that is missing above",
                    );
                    self.at += 1;
                }
                Some(TokenKind::Semicolon) => {
                    let range = self.range();
                    self.error(range.clone(), "this `;` ends nothing", "delete it");
                    self.at += 1;
                    // It belongs to what stands before it, if anything does.
                    if let Some(last) = nodes.last_mut() {
                        let last: &mut Node = last;
                        last.range.end = range.end;
                    }
                }
                Some(TokenKind::Slashdash) => {
                    let start = self.range().start;
                    self.at += 1;
                    self.skip_line_space();
                    if matches!(self.kind(), None | Some(TokenKind::Close | TokenKind::Semicolon)) {
                        let help = "it leaves out the directive that follows it";
                        self.error(start..start + 2, "nothing follows this `/-`", help);
                    } else {
                        drop(self.node());
                    }
                }
                Some(_) => push(&mut nodes, self.node()),
            }
            if self.count > NODES {
                let range = self.range();
                self.lose_structure(range.start);
                let message = "there are more than 1000000 directives in this file";
                self.error(range, message, "split it with `include`");
                self.at = self.tokens.len();
            }
        }
    }

    fn node(&mut self) -> Node {
        self.count += 1;
        let start = self.range().start;
        self.annotation();
        let name_range = self.range();
        let mut name = String::new();
        match self.kind() {
            Some(TokenKind::Word | TokenKind::Quoted) => {
                name = self.text(&name_range);
                self.at += 1;
            }
            Some(TokenKind::Bad) => self.at += 1,
            Some(TokenKind::Open) => self.error(
                name_range.clone(),
                "a block begins here without its directive",
                "the `{` stands on the line of its directive: `site \"example.com\" {`",
            ),
            _ => {
                self.error(
                    name_range.clone(),
                    "a directive begins with its name",
                    "numbers, `=` and `#…` can only follow a name",
                );
                // What ends the line is left to `entries`.
                if matches!(self.kind(), Some(TokenKind::Literal | TokenKind::Equals)) {
                    self.at += 1;
                }
            }
        }
        let mut node = Node {
            name,
            header_end: name_range.end,
            name_range,
            entries: Vec::new(),
            children: None,
            range: start..start,
            is_header_broken: false,
            is_broken: false,
        };
        self.entries(&mut node);
        node.range.end = self.behind().max(node.header_end);
        node
    }

    /// What follows the name of a node, up to and with what ends it.
    fn entries(&mut self, node: &mut Node) {
        let mut is_block_left_out = false;
        // One mistake is said once, however much follows it.
        let mut follows_block = false;
        loop {
            let spaced = self.skip_node_space();
            let range = self.range();
            match self.kind() {
                None | Some(TokenKind::Close) => return,
                Some(TokenKind::Newline | TokenKind::Semicolon | TokenKind::LineComment) => {
                    self.at += 1;
                    return;
                }
                Some(TokenKind::Open) if node.children.is_none() => node.children = Some(self.children()),
                Some(TokenKind::Open) => {
                    self.say_what_follows(range, &mut follows_block);
                    drop(self.children());
                }
                Some(TokenKind::Slashdash) => {
                    self.at += 1;
                    self.skip_line_space();
                    match self.kind() {
                        Some(TokenKind::Open) => {
                            is_block_left_out = true;
                            drop(self.children());
                        }
                        Some(kind) if kind.begins_value() => {
                            if !spaced {
                                let help = "values are parted by spaces";
                                self.error(range.clone(), "a space is missing before this", help);
                            }
                            if node.children.is_some() || is_block_left_out {
                                let message = "only a block may be left out here";
                                self.error(range, message, "begin a new line before the `/-`");
                            }
                            drop(self.entry());
                        }
                        _ => {
                            self.error(range, "nothing follows this `/-`", "it leaves out what is behind it")
                        }
                    }
                }
                Some(TokenKind::Equals) => {
                    let is_directive =
                        node.entries.is_empty() && crate::directives::names().any(|name| name == node.name);
                    self.at += 1;
                    self.skip_node_space();
                    let is_value = self.kind().is_some_and(TokenKind::begins_value);
                    let value = self.source.get(self.range()).filter(|_| is_directive && is_value);
                    let help = match value {
                        Some(value) => format!("write `{} {value}`", node.name),
                        None if node.entries.is_empty() && (!spaced || is_directive) => {
                            format!(
                                "`{}` is a directive: its values stand behind a space, without `=`",
                                node.name
                            )
                        }
                        None => "a property is `name=value`".to_owned(),
                    };
                    self.error(range, "`=` stands without the name of a property before it", &help);
                    if self.kind().is_some_and(TokenKind::begins_value) {
                        self.at += 1;
                    }
                    node.header_end = node.header_end.max(self.behind());
                }
                Some(kind) => {
                    if node.children.is_some() || is_block_left_out {
                        self.say_what_follows(range.clone(), &mut follows_block);
                        if kind == TokenKind::Word && !self.is_before_equals() {
                            return; // a directive, read as if a `;` were there
                        }
                    } else if !spaced && kind != TokenKind::Bad {
                        // What is broken has been said by the lexer.
                        let message = "a space is missing before this";
                        self.error(range.clone(), message, "values are parted by spaces");
                    }
                    let entry = self.entry();
                    if node.children.is_none() {
                        node.header_end = node.header_end.max(self.behind());
                        entry.into_iter().for_each(|entry| push(&mut node.entries, entry));
                    }
                }
            }
        }
    }

    fn say_what_follows(&mut self, range: Range<usize>, is_said: &mut bool) {
        if !std::mem::replace(is_said, true) {
            let help = "begin a new line, or put `;` between: `a { … }; b`";
            self.error(range, "something follows the block on its line", help);
        }
    }

    /// Whether the present token is the name of a property.
    fn is_before_equals(&self) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|token| token.kind == TokenKind::Equals)
    }

    /// A type in round brackets before a name or a value: it is read, and means nothing here.
    fn annotation(&mut self) -> bool {
        let is_there = self.kind() == Some(TokenKind::Annotation);
        if is_there {
            self.at += 1;
            self.skip_node_space();
        }
        is_there
    }

    /// A value or a property; nothing where it is broken.
    fn entry(&mut self) -> Option<Entry> {
        let start = self.range();
        let has_type = self.annotation();
        let first = self.range();
        let kind = self.kind();
        let value = self.value()?;
        let behind_value = self.at;
        self.skip_node_space();
        if self.kind() != Some(TokenKind::Equals) {
            self.at = behind_value;
            return Some(Entry { name: None, value, range: start.start..first.end, value_range: first });
        }
        let name = match value {
            Literal::Text(name) if kind != Some(TokenKind::Literal) => name,
            _ => {
                let help = "a property is `name=value`";
                self.error(first.clone(), "a property cannot be named by a number", help);
                String::new()
            }
        };
        if has_type {
            let help = "a type stands before a value: `name=(type)value`";
            self.error(start.clone(), "a type stands before the name of a property", help);
        }
        self.at += 1;
        self.skip_node_space();
        self.annotation();
        let value_range = self.range();
        let value = self.value()?;
        Some(Entry { name: Some(name), value, range: start.start..value_range.end, value_range })
    }

    fn value(&mut self) -> Option<Literal> {
        let range = self.range();
        match self.kind() {
            Some(TokenKind::Word | TokenKind::Quoted) => {
                self.at += 1;
                Some(Literal::Text(self.text(&range)))
            }
            Some(TokenKind::Literal) => {
                self.at += 1;
                Some(literal(self.source.get(range).unwrap_or_default()))
            }
            Some(TokenKind::Bad) => {
                self.at += 1;
                None
            }
            _ => {
                let last = self.at.saturating_sub(1);
                let at = self.tokens.get(last).map_or(0..0, |token| token.range.clone());
                self.error(
                    at,
                    "a value is missing here",
                    "a property is `name=value`, a type stands before a value",
                );
                None
            }
        }
    }

    /// What a string token says. The lexer has seen to its form.
    fn text(&self, range: &Range<usize>) -> String {
        text(self.source.get(range.clone()).unwrap_or_default()).unwrap_or_default()
    }

    fn children(&mut self) -> Vec<Node> {
        let open = self.range();
        self.at += 1;
        if self.depth >= NESTING {
            self.error(
                open.clone(),
                &format!("blocks are nested more than {NESTING} deep here"),
                "settings need four levels at most",
            );
            self.lose_structure(open.start);
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
                    break;
                }
            }
            return Vec::new();
        }
        self.depth += 1;
        let nodes = self.nodes();
        self.depth -= 1;
        if self.kind() == Some(TokenKind::Close) {
            self.at += 1;
        } else {
            self.lose_structure(open.start);
            self.error(open, "this block is not closed", "close it with `}`");
        }
        nodes
    }
}
