//! Values without the quotes that they need: whether they would be right with them.
//!
//! Called once a file is read. `history 10m` in quotes is the next mistake, so what the directive takes is said at once.

use super::Parsed;
use super::document::Node;
use super::lexer::UNQUOTED;
use crate::directive::{Kind, argument_at};
use crate::directives;
use crate::source::Source;
use crate::value::{self, ValueError, Written};
use std::ops::Range;
use std::path::Path;

impl Parsed {
    /// Says of each value that needs quotes what its directive takes, where it does not take this one in quotes either.
    pub fn explain_unquoted(&mut self, source: &Source) {
        for diagnostic in &mut self.diagnostics {
            let Some((_, range)) = &diagnostic.span else { continue };
            if !diagnostic.message.ends_with(UNQUOTED) {
                continue;
            }
            let Some(node) = innermost(&self.nodes, range) else { continue };
            let Some((directive, ValueError { message, help })) = refused(source, node, range) else {
                continue;
            };
            diagnostic.message = format!("`{directive}`: {message}");
            diagnostic.help = Some(help);
        }
    }
}

/// The node that a value stands in.
fn innermost<'n>(nodes: &'n [Node], range: &Range<usize>) -> Option<&'n Node> {
    let node = nodes.iter().find(|node| node.range.contains(&range.start))?;
    let below = node.children.as_deref().and_then(|children| innermost(children, range));
    below.or(Some(node)).filter(|node| node.name_range.end <= range.start)
}

/// What is said of a value in quotes, by the name of its directive: nothing where any directive of that name takes it.
fn refused<'n>(source: &Source, node: &'n Node, range: &Range<usize>) -> Option<(&'n str, ValueError)> {
    let text = source.slice(range);
    let before = source.text.get(node.name_range.end..range.start)?;
    let property = before.strip_suffix('=').and_then(|before| before.rsplit([' ', '\t']).next());
    // The value itself is left out of the node.
    let is_before = |at: usize| node.arguments().filter(|entry| entry.range.start < at).count();
    let (position, count) = (is_before(range.start), is_before(usize::MAX) + 1);
    let mut first = None;
    for directive in directives::all().filter(|directive| directive.name == node.name) {
        let (kind, words): (Kind, &'static [&'static str]) = match property {
            Some(name) => (directive.properties.iter().find(|property| property.name == name)?.kind, &[]),
            None => {
                let argument = argument_at(directive.arguments, position, count)?;
                (argument.kind, argument.words)
            }
        };
        match value::read(kind, words, Written::Text { text, is_bare: false }, Path::new("/")) {
            Ok(_) => return None,
            Err(error) => first = first.or(Some(error)),
        }
    }
    Some((&node.name, first?))
}
