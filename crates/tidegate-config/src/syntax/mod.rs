//! The form of a settings file: text in, a tree and all mistakes of form out.
//!
//! Called by loading and by `format`. Two steps: `lexer` (tokens) and `grammar` (the tree, `document`). KDL 2 by its
//! grammar; `tests/kdl.rs` holds it to the official cases and names the few that settings refuse.

pub(crate) mod document;
pub(crate) mod grammar;
pub(crate) mod lexer;
mod unquoted;

use std::ops::Range;

use crate::diagnostic::Diagnostic;
use crate::source::Source;
use crate::{directives, foreign};
use document::Node;
use lexer::{SyntaxError, Token};

/// The largest file of settings, bytes.
pub(crate) const FILE_SIZE: usize = 16 * 1024 * 1024;
/// Most tokens of one file: they bound the memory that reading one takes.
const TOKENS: usize = 4_000_000;
/// Most mistakes of form that are told of one file.
const ERRORS: usize = 100;

/// A file, as far as it could be read.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// The top level; nodes with mistakes of form are marked, and what is broken in them is left out.
    pub nodes: Vec<Node>,
    /// The mistakes of form, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Where each of `diagnostics` stands.
    starts: Vec<usize>,
    /// A mistake stands outside of every node, or leaves open which node a line belongs to: it concerns the
    /// whole file.
    pub is_lost: bool,
    /// The text of what begins a line and is followed by a string: all that can be said of a file that is lost.
    pub outline: Vec<(String, Vec<String>)>,
}

impl Parsed {
    /// Which of `diagnostics` stand in a node.
    pub fn mistakes_in(&self, node: &Node) -> Range<usize> {
        let index = |offset: usize| self.starts.partition_point(|start| *start < offset);
        index(node.range.start)..index(node.range.end)
    }

    /// Says of each directive of another server, in place of what is wrong with its form, what it is here. A directive that
    /// is one of ours as well, and means something else there, is told both.
    pub fn explain_foreign(&mut self, source: &Source) {
        let mut heads = Vec::new();
        self.nodes.iter().for_each(|node| foreign_heads(source, node, &mut heads));
        for head in heads.into_iter().rev() {
            let index = |at: usize| self.starts.partition_point(|start| *start < at);
            let mut mistakes = index(head.range.start)..index(head.range.end);
            if mistakes.is_empty() {
                mistakes = index(head.behind.start)..index(head.behind.end);
            }
            if head.is_ours {
                let hint = foreign::hint_of_another(source.slice(&head.name_range));
                if let Some(first) = self.diagnostics.get_mut(mistakes.start).filter(|_| !mistakes.is_empty())
                {
                    *first = first.clone().help_if(hint);
                }
            } else if !mistakes.is_empty() {
                let word = source.slice(&head.name_range);
                let error = Diagnostic::error(format!("unknown directive `{word}`"));
                let error = error.at(source, head.name_range.clone()).help(head.hint);
                self.diagnostics.splice(mistakes.clone(), [error]);
                self.starts.splice(mistakes, [head.name_range.start]);
            }
        }
    }
}

/// A directive that another server has, in a node with a mistake of form.
struct ForeignHead {
    /// From the name to the block.
    range: Range<usize>,
    /// Behind the block, on its line: what others write in braces is a block here.
    behind: Range<usize>,
    name_range: Range<usize>,
    hint: String,
    is_ours: bool,
}

fn foreign_heads(source: &Source, node: &Node, heads: &mut Vec<ForeignHead>) {
    if !node.is_broken {
        return;
    }
    // A name that cannot stand without quotes is none, and is what others begin a line with.
    let name = if node.name.is_empty() { source.slice(&node.name_range) } else { node.name.as_str() };
    if let Some(hint) = foreign::hint_of_line(node).or_else(|| foreign::hint(name)) {
        let children = node.children.as_deref().unwrap_or_default();
        let end = children.first().map_or(node.range.end, |child| child.range.start);
        let behind = children.last().map_or(end, |child| child.range.end);
        heads.push(ForeignHead {
            range: node.name_range.start..end,
            behind: behind..node.range.end,
            name_range: node.name_range.clone(),
            hint,
            is_ours: directives::all().any(|directive| directive.name == name),
        });
    }
    node.children.iter().flatten().for_each(|child| foreign_heads(source, child, heads));
}

/// Reads a source as KDL.
pub(crate) fn parse(source: &Source) -> Parsed {
    match tokens(source) {
        Ok((tokens, errors)) => tree(source, &tokens, errors),
        Err(diagnostic) => {
            Parsed { diagnostics: vec![*diagnostic], starts: vec![0], is_lost: true, ..Parsed::default() }
        }
    }
}

/// Cuts a source into tokens.
pub(crate) fn tokens(source: &Source) -> Result<(Vec<Token>, Vec<SyntaxError>), Box<Diagnostic>> {
    if source.text.len() > FILE_SIZE {
        let message = format!("{} is larger than {} MiB", source.name, FILE_SIZE >> 20);
        return Err(Box::new(Diagnostic::error(message).help("split it with `include`")));
    }
    if source.is_utf16() {
        let message = format!("{} is UTF-16 text, and settings are UTF-8", source.name);
        let help = "save it as UTF-8, or convert it: `iconv -f UTF-16 -t UTF-8`";
        return Err(Box::new(Diagnostic::error(message).help(help)));
    }
    if source.is_binary() {
        let message = format!("{} is no text: a program, an archive or the like", source.name);
        let help = "name the file of settings, such as `/etc/tidegate/tidegate.kdl`";
        return Err(Box::new(Diagnostic::error(message).help(help)));
    }
    let (tokens, mut errors) = lexer::lex(&source.text, TOKENS);
    if tokens.len() >= TOKENS {
        let message = format!("{} holds more than {TOKENS} words and signs", source.name);
        return Err(Box::new(Diagnostic::error(message).help("split it with `include`")));
    }
    errors.extend(source.unread.iter().map(|range| SyntaxError {
        range: range.clone(),
        message: "bytes that are no UTF-8 text stand here".to_owned(),
        help: Some("save the file as UTF-8".to_owned()),
    }));
    Ok((tokens, errors))
}

fn tree(source: &Source, tokens: &[Token], errors: Vec<SyntaxError>) -> Parsed {
    let mut tree = grammar::parse(&source.text, tokens, errors);
    let is_in_node = |error: &SyntaxError| {
        let behind = tree.nodes.partition_point(|node| node.range.start <= error.range.start);
        let node = behind.checked_sub(1).and_then(|at| tree.nodes.get(at));
        node.is_some_and(|node| error.range.start < node.range.end)
    };
    let is_lost = tree.is_structure_lost || !tree.errors.iter().all(is_in_node);
    let outline = if is_lost { outline(&source.text, tokens) } else { Vec::new() };
    tree.errors.truncate(ERRORS);
    let starts = tree.errors.iter().map(|error| error.range.start).collect();
    let diagnostics = tree.errors.into_iter().map(|error| diagnose(source, error)).collect();
    Parsed { nodes: tree.nodes, diagnostics, starts, is_lost, outline }
}

/// The first words of all lines that do not begin with white space, with the strings behind them.
fn outline(text: &str, tokens: &[Token]) -> Vec<(String, Vec<String>)> {
    use lexer::TokenKind::{Newline, Quoted, Space, Word};
    let mut lines = Vec::new();
    let mut rest = tokens;
    while let Some((first, behind)) = rest.split_first() {
        let line = behind.iter().position(|token| token.kind == Newline).unwrap_or(behind.len());
        let slice = |token: &Token| text.get(token.range.clone()).unwrap_or_default();
        if matches!(first.kind, Word | Quoted) {
            let named = behind[..line].iter().take_while(|token| matches!(token.kind, Space | Word | Quoted));
            let names = named.filter(|token| token.kind != Space);
            let names = names.filter_map(|token| document::text(slice(token)).ok()).collect();
            lines.push((slice(first).to_owned(), names));
        }
        rest = behind.get(line + 1..).unwrap_or_default();
    }
    lines
}

fn diagnose(source: &Source, error: SyntaxError) -> Diagnostic {
    Diagnostic::error(error.message).at(source, error.range).help_if(error.help)
}
