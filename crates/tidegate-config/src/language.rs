//! Other languages that are written as the settings are: the same form, the same types, bounds and units, the same words for a
//! mistake. The load generator's scenarios are one.
//!
//! A language is a table of directives. [`read`] checks a text against it and gives typed items; what they mean is the
//! owner's. Includes, inheritance and the hints for words of other servers are for the settings alone.

use crate::check::{Checker, File, Placed};
use crate::diagnostic::Diagnostic;
use crate::directive::{Context, Directive};
use crate::environment::Environment;
use crate::schema;
use crate::source::Source;
use crate::syntax;
use crate::value::Value;
use crate::{reference, suggest};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

pub use crate::check::Item;

/// The directives of a language, in the order of its reference.
#[derive(Debug)]
pub struct Language {
    parts: &'static [&'static [Directive]],
    is_settings: bool,
    /// All of them by name, those of one name in the order of the reference; made when somebody first looks one up.
    by_name: OnceLock<Vec<&'static Directive>>,
}

impl Language {
    /// Of these directives.
    pub const fn new(parts: &'static [&'static [Directive]]) -> Language {
        Language { parts, is_settings: false, by_name: OnceLock::new() }
    }

    pub(crate) const fn of_settings(parts: &'static [&'static [Directive]]) -> Language {
        Language { parts, is_settings: true, by_name: OnceLock::new() }
    }

    /// Whether it is that of the settings.
    pub(crate) fn is_settings(&self) -> bool {
        self.is_settings
    }

    /// Every directive.
    pub fn all(&self) -> impl Iterator<Item = &'static Directive> + use<> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The directive of a name within a context.
    pub fn find(&self, context: Context, name: &str) -> Option<&'static Directive> {
        let by_name = self.by_name.get_or_init(|| {
            let mut all: Vec<_> = self.all().collect();
            all.sort_by_key(|directive| directive.name);
            all
        });
        let first = by_name.partition_point(|directive| directive.name < name);
        let mut named = by_name[first..].iter().copied().take_while(|directive| directive.name == name);
        named.find(|directive| directive.contexts.contains(&context))
    }

    /// The directives that may stand in a context.
    pub fn in_context(&self, context: Context) -> impl Iterator<Item = &'static Directive> + use<> {
        self.all().filter(move |directive| directive.contexts.contains(&context))
    }

    /// The names of all directives; one that stands in several forms comes several times.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.all().map(|directive| directive.name)
    }

    /// The JSON schema of its documents in their JSON form, as that of the settings (`json_schema`): a title, a sentence, and
    /// all places, the outermost first.
    pub fn json_schema(&self, title: &str, description: &str, places: &[Context]) -> String {
        schema::of(self, title, description, places)
    }

    /// The reference page in Markdown: an introduction, and a section for each place with its title and a sentence.
    pub fn reference(&self, introduction: &str, sections: &[(&str, Context, &str)]) -> String {
        let mut out = introduction.to_owned();
        for (title, context, text) in sections {
            let _ = write!(out, "\n## {title}\n\n{text}\n");
            reference::describe_all(&mut out, self, *context);
        }
        out
    }
}

/// What a text holds.
#[derive(Debug)]
pub struct Contents {
    /// The items of its top level. One with a mistake is there too, without the values that were wrong.
    pub items: Vec<Item>,
    /// All mistakes of form and type.
    pub diagnostics: Vec<Diagnostic>,
    /// Directives of its top level that are not known.
    unknown: Vec<String>,
    /// Lines could not be read.
    is_broken: bool,
}

impl Contents {
    /// Whether a directive of these may be missing only because of a mistake that has been told: a name that is misspelt, a line that
    /// could not be read.
    pub fn may_have_lost(&self, names: &[&str]) -> bool {
        self.is_broken || is_one_misspelt(&self.unknown, names)
    }
}

fn is_one_misspelt(unknown: &[String], names: &[&str]) -> bool {
    unknown.iter().any(|word| suggest::nearest(word, names.iter().copied()).is_some())
}

/// Reads a text. Relative paths count from `folder`.
pub fn read(
    language: &'static Language,
    source: &Source,
    top: Context,
    folder: &Path,
    environment: &dyn Environment,
) -> Contents {
    let parsed = syntax::parse(source);
    let file = File { source: source.clone(), folder: folder.into() };
    let mut checker = Checker::of(language, environment);
    let items = if parsed.is_lost { Vec::new() } else { checker.items(&file, &parsed.nodes, top) };
    let is_broken = parsed.is_lost || !parsed.diagnostics.is_empty();
    let names = parsed.nodes.iter().map(|node| &node.name);
    let unknown = names.filter(|name| language.find(top, name).is_none()).cloned().collect();
    let mut diagnostics = parsed.diagnostics;
    diagnostics.append(&mut checker.diagnostics);
    Contents { items, diagnostics, unknown, is_broken }
}

/// What another language asks of an item.
impl Item {
    /// The name of the directive.
    pub fn name(&self) -> &'static str {
        self.directive.name
    }

    /// The items of its block.
    pub fn block(&self) -> &[Item] {
        &self.children
    }

    /// Whether a directive of these may be missing in its block only because its name is misspelt, which has been said.
    pub fn may_have_lost(&self, names: &[&str]) -> bool {
        is_one_misspelt(&self.unknown, names)
    }

    /// Whether something among its values was wrong, which has been said.
    pub fn has_faults(&self) -> bool {
        self.is_faulty
    }

    /// The argument at a place as a text, a word or a path included.
    pub fn text(&self, argument: usize) -> Option<String> {
        text(&self.argument(argument)?.value)
    }

    /// All arguments that are texts, up to one that was wrong.
    pub fn all_texts(&self) -> Vec<String> {
        let in_place = self.arguments.iter().take(self.in_place);
        let texts = in_place.filter_map(|placed| match &placed.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }

    /// The argument at a place of the table, where those before it are right.
    fn argument(&self, argument: usize) -> Option<&Placed> {
        self.arguments.get(argument).filter(|_| argument < self.in_place)
    }

    /// The argument at a place as a number: of a size the bytes, of a share millionths.
    pub fn number(&self, argument: usize) -> Option<u64> {
        number(&self.argument(argument)?.value)
    }

    /// The argument at a place as a time.
    pub fn duration(&self, argument: usize) -> Option<Duration> {
        duration(&self.argument(argument)?.value)
    }

    /// The argument at a place as a rate: so many a second.
    pub fn rate(&self, argument: usize) -> Option<f64> {
        match self.argument(argument)?.value {
            Value::Rate(count, time) => Some(count.get() as f64 / time.as_secs_f64()),
            _ => None,
        }
    }

    /// A property as a text, as written or by default.
    pub fn text_of(&self, property: &str) -> Option<String> {
        text(&self.property(property)?)
    }

    /// A property as a number.
    pub fn number_of(&self, property: &str) -> Option<u64> {
        number(&self.property(property)?)
    }

    /// A property as a time.
    pub fn duration_of(&self, property: &str) -> Option<Duration> {
        duration(&self.property(property)?)
    }

    /// A property as a path in the file system.
    pub fn path_of(&self, property: &str) -> Option<PathBuf> {
        match self.property(property)? {
            Value::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The rows of its block: names, each with where it stands and its numbers.
    pub fn rows(&self) -> impl Iterator<Item = RowView<'_>> {
        self.rows.iter().map(|row| RowView { item: self, row })
    }

    /// Line and column, both from 1.
    pub fn position(&self) -> (u32, u32) {
        self.file.source.position(self.name.start)
    }

    /// An error that points at a property, or at the directive where it was not written.
    pub fn error_of(&self, property: &str, message: impl Into<String>) -> Diagnostic {
        let written = self.properties.iter().find(|(name, _)| *name == property);
        let range = written.map_or(self.header.clone(), |(_, placed)| placed.range.clone());
        Diagnostic::error(message).at(&self.file.source, range)
    }
}

/// A row of a block.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'i> {
    item: &'i Item,
    row: &'i crate::check::Row,
}

impl<'i> RowView<'i> {
    /// Its name.
    pub fn name(&self) -> &'i str {
        &self.row.name
    }

    /// Its numbers, each with its name where it is written with one, and with its place.
    pub fn numbers(&self) -> impl Iterator<Item = (Option<&'i str>, u64, Range<usize>)> {
        self.row.cells.iter().map(|cell| (cell.name.as_deref(), cell.number, cell.range.clone()))
    }

    /// An error that points at the name, or at one of the places of its numbers.
    pub fn error(&self, at: Option<Range<usize>>, message: impl Into<String>) -> Diagnostic {
        let range = at.unwrap_or_else(|| self.row.range.clone());
        Diagnostic::error(message).at(&self.item.file.source, range)
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Word(word) => Some((*word).to_owned()),
        Value::Path(path) => Some(path.display().to_string()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Number(number) = value { Some(*number) } else { None }
}

fn duration(value: &Value) -> Option<Duration> {
    if let Value::Duration(duration) = value { Some(*duration) } else { None }
}
