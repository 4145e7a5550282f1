//! A directive as it was written, once every value in it is of the right type: what lowering goes by.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::directive::{Context, Directive};
use crate::settings::Origin;
use crate::source::Source;
use crate::suggest;
use crate::value::{self, Value, Written};

/// A file being read: its text and the folder that its relative paths count from.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub source: Source,
    pub folder: Arc<Path>,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub value: Value,
    pub range: Range<usize>,
}

/// A name with its numbers, in a block of rows.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub name: String,
    /// Of the name.
    pub range: Range<usize>,
    pub cells: Vec<Cell>,
}

/// A number of a row, under a name where it is written so.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub name: Option<String>,
    pub number: u64,
    pub range: Range<usize>,
}

/// A directive as written, every value of the right type.
#[derive(Debug, Clone)]
pub struct Item {
    pub(crate) directive: &'static Directive,
    pub(crate) file: File,
    /// The range of the name.
    pub(crate) name: Range<usize>,
    /// Name and values, without the block.
    pub(crate) header: Range<usize>,
    pub(crate) arguments: Vec<Placed>,
    /// So many of them stand where the table has them: behind one that was wrong, others have moved up.
    pub(crate) in_place: usize,
    pub(crate) properties: Vec<(&'static str, Placed)>,
    /// Something among them was wrong, which has been said.
    pub(crate) is_faulty: bool,
    pub(crate) children: Vec<Item>,
    /// The names and values of a block of pairs (`types`).
    pub(crate) pairs: Vec<(String, String)>,
    /// The rows of such a block.
    pub(crate) rows: Vec<Row>,
    /// Directives of its block that are not known.
    pub(crate) unknown: Vec<String>,
}

impl Item {
    /// Where it stands.
    pub(crate) fn origin(&self) -> Origin {
        self.file.source.origin(self.name.start)
    }

    /// The first child of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Item> {
        self.children.iter().find(|child| child.directive.name == name)
    }

    /// The property of a name: as written, else its default.
    pub(crate) fn property(&self, name: &str) -> Option<Value> {
        let written = self.properties.iter().find(|(known, _)| *known == name);
        if let Some((_, placed)) = written {
            return Some(placed.value.clone());
        }
        let property = self.directive.properties.iter().find(|property| property.name == name)?;
        let text = property.default?;
        value::read(property.kind, &[], Written::Text { text, is_bare: true }, Path::new("/")).ok()
    }

    /// The first argument.
    pub(crate) fn first(&self) -> Option<&Value> {
        self.arguments.first().map(|placed| &placed.value)
    }

    /// Whether its first argument is a word, `off` for instance.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self.first(), Some(Value::Word(first)) if *first == word)
    }

    /// Whether a directive of its block that is not known was meant to be one of these: so that none of them is missing.
    pub(crate) fn misspells(&self, context: Context, names: &[&str]) -> bool {
        self.unknown.iter().any(|word| suggest::means(word, context, names))
    }

    /// The line as it was written, without one of its properties.
    pub(crate) fn written_without(&self, property: &str) -> String {
        let slice = |placed: &Placed| self.file.source.slice(&placed.range);
        let mut line = self.directive.name.to_owned();
        for placed in &self.arguments {
            line.extend([" ", slice(placed)]);
        }
        for (name, placed) in self.properties.iter().filter(|(name, _)| *name != property) {
            line.extend([" ", *name, "=", slice(placed)]);
        }
        line
    }

    /// The numbers among its arguments.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.arguments.iter().filter_map(|placed| match placed.value {
            Value::Number(number) => Some(number),
            _ => None,
        })
    }

    /// The texts among its arguments.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.arguments
            .iter()
            .filter_map(
                |placed| if let Value::Text(text) = &placed.value { Some(text.clone()) } else { None },
            )
            .collect()
    }

    /// An error that points at the whole directive.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(message).at(&self.file.source, self.header.clone())
    }

    /// An error that points at an argument, or at the directive where there is no such argument.
    pub fn error_at(&self, argument: usize, message: impl Into<String>) -> Diagnostic {
        let range = self.arguments.get(argument).map_or(self.header.clone(), |placed| placed.range.clone());
        Diagnostic::error(message).at(&self.file.source, range)
    }
}

/// The typed first argument of an item; the table guarantees the type.
pub(crate) fn number(item: &Item) -> u64 {
    match item.first() {
        Some(Value::Number(number)) => *number,
        _ => 0,
    }
}

/// The duration that is an item's first argument.
pub(crate) fn duration(item: &Item) -> Duration {
    match item.first() {
        Some(Value::Duration(duration)) => *duration,
        _ => Duration::ZERO,
    }
}
