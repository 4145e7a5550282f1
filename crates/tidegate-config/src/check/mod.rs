//! Nodes to checked items: names, contexts, types and bounds, all from the table of directives.
//!
//! Called once for each node of a file and for the defaults. After it, lowering never meets a value of the
//! wrong type; what was wrong has been said and is left out.

mod item;
mod rules;
mod unknown;

pub use item::Item;
pub(crate) use item::{Cell, File, Placed, Row, duration, number};
pub(crate) use rules::{Rules, way};

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::directive::{Argument, Children, Context, Count, Directive, Kind, argument_at};
use crate::directives;
use crate::environment::{Environment, SubstitutionError, substitute};
use crate::language::Language;
use crate::source::Source;
use crate::suggest;
use crate::syntax::document::{Entry, Literal, Node};
use crate::value::{self, Foreign, Value, ValueError, Written};

/// Checks nodes and gathers what is wrong with them.
pub(crate) struct Checker<'a> {
    pub environment: &'a dyn Environment,
    pub diagnostics: Vec<Diagnostic>,
    /// Which diagnostics tell of mistakes of form.
    pub form: Vec<Range<usize>>,
    /// Where the names of directives stand that hold such a mistake, by file. What seems to be missing there
    /// may be what is broken, so nothing more is said of them as a whole.
    broken: HashMap<Arc<str>, HashSet<usize>>,
    /// Directives that are not known.
    unknown: usize,
    /// What `use` may name.
    pub rules: Rules,
    /// Which directives there are.
    pub language: &'static Language,
}

impl<'a> Checker<'a> {
    pub fn new(environment: &'a dyn Environment) -> Self {
        Self::of(&directives::SETTINGS, environment)
    }

    /// For documents in a language.
    pub fn of(language: &'static Language, environment: &'a dyn Environment) -> Self {
        Self {
            language,
            environment,
            diagnostics: Vec::new(),
            form: Vec::new(),
            broken: HashMap::new(),
            unknown: 0,
            rules: Rules::default(),
        }
    }

    /// Remembers a node with a mistake of form, and all in it that have it too.
    pub fn note_broken(&mut self, source: &Source, node: &Node) {
        if node.is_broken {
            self.broken.entry(source.name.clone()).or_default().insert(node.name_range.start);
            node.children.iter().flatten().for_each(|child| self.note_broken(source, child));
        }
    }

    /// Whether a diagnostic that tells of no mistake of form may be the consequence of one.
    pub fn is_consequence(&self, diagnostic: &Diagnostic) -> bool {
        let Some((source, range)) = &diagnostic.span else { return false };
        self.broken.get(&source.name).is_some_and(|starts| starts.contains(&range.start))
    }

    /// Checks a node of a context; `None` when it is not known there. An item with errors is returned too,
    /// without the values that were wrong, so that what is inside it is checked as well.
    pub fn item(&mut self, file: &File, node: &Node, context: Context) -> Option<Item> {
        let name = node.name_range.clone();
        let Some(directive) = self.language.find(context, &node.name) else {
            // A name that could not be read has been said to be broken.
            if node.name.is_empty() && node.is_header_broken {
                return None;
            }
            self.unknown(file, node, context);
            return None;
        };
        let mut item = Item {
            directive,
            file: file.clone(),
            name: name.clone(),
            header: name.start..node.entries.last().map_or(name.end, |entry| entry.range.end),
            arguments: Vec::new(),
            in_place: usize::MAX,
            properties: Vec::new(),
            is_faulty: false,
            children: Vec::new(),
            pairs: Vec::new(),
            rows: Vec::new(),
            unknown: Vec::new(),
        };
        let known = self.diagnostics.len();
        self.entries(&mut item, node);
        item.is_faulty = self.diagnostics[known..].iter().any(Diagnostic::is_error);
        self.children(&mut item, node);
        Some(item)
    }

    /// Checks the nodes of a block and that what may stand once does.
    pub fn items(&mut self, file: &File, nodes: &[Node], context: Context) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::with_capacity(nodes.len());
        self.items_into(file, nodes, context, &mut items);
        items
    }

    fn items_into(&mut self, file: &File, nodes: &[Node], context: Context, items: &mut Vec<Item>) {
        for node in nodes {
            let Some(item) = self.item(file, node, context) else { continue };
            if item.directive.name == "use" {
                self.use_rules(&item, context, items);
                continue;
            }
            self.once(items, &item);
            items.push(item);
        }
    }

    /// Refuses a second directive of a kind that may stand only once.
    pub fn once(&mut self, items: &[Item], second: &Item) {
        if second.directive.repeats {
            return;
        }
        let is_first = |known: &&Item| known.directive.name == second.directive.name;
        let Some(first) = items.iter().find(is_first) else { return };
        let origin = first.origin();
        self.diagnostics.push(
            second
                .error(format!("`{}` is given twice", second.directive.name))
                .label("given again")
                .help(format!("it stands already in {}:{}; keep one of the two", origin.file, origin.line)),
        );
    }

    /// A location of nginx with its modifier in front, in place of a pattern.
    fn modified_location(&mut self, item: &Item, node: &Node) -> bool {
        let mut texts = node.arguments().filter_map(|entry| match &entry.value {
            Literal::Text(text) => Some((text, entry)),
            _ => None,
        });
        let (Some((modifier, first)), Some((path, second))) = (texts.next(), texts.next()) else {
            return false;
        };
        if item.directive.name != "route" {
            return false;
        }
        let Some(error) = value::location_of_nginx(&format!("{modifier} {path}")) else { return false };
        let range = first.value_range.start..second.value_range.end;
        let message = format!("`route`: {}", error.message);
        self.diagnostics.push(Diagnostic::error(message).at(&item.file.source, range).help(error.help));
        true
    }

    /// `default-lifetime 200 302 "10m"`, as other servers write it.
    fn several_statuses(&mut self, item: &Item, node: &Node) -> bool {
        let mut further = node.arguments().skip(1).filter(|entry| matches!(entry.value, Literal::Integer(_)));
        let Some(second) = further.next().filter(|_| item.directive.name == "default-lifetime") else {
            return false;
        };
        if node.arguments().count() < 3 {
            return false;
        }
        let message = "`default-lifetime` takes one status";
        let help = "write a line for each: `default-lifetime 200 \"10m\"; default-lifetime 302 \"10m\"`";
        let error = Diagnostic::error(message).at(&item.file.source, second.value_range.clone());
        self.diagnostics.push(error.help(help));
        true
    }

    fn entries(&mut self, item: &mut Item, node: &Node) {
        let directive = item.directive;
        if self.modified_location(item, node) || self.several_statuses(item, node) {
            return;
        }
        let mut position = 0usize;
        let count = node.arguments().count();
        // Words that stand alone: `off` cannot be one of several.
        let mut lone_word = None;
        let mut is_surplus = false;
        for entry in &node.entries {
            let range = entry.value_range.clone();
            match &entry.name {
                Some(name) => self.property(item, entry, name, range),
                None => {
                    let argument = argument_at(directive.arguments, position, count);
                    let Some(argument) =
                        argument.filter(|argument| !self.begins_another(item, argument, entry))
                    else {
                        // One is told of; what follows it is surplus for the same reason.
                        if !is_surplus {
                            self.surplus(item, entry, &range);
                        }
                        is_surplus = true;
                        position += 1;
                        continue;
                    };
                    position += 1;
                    let value = self.value(item, argument.kind, argument.words, entry, &range);
                    if value.is_none() && !argument.is_repeated() {
                        item.in_place = item.in_place.min(item.arguments.len());
                    }
                    if let Some(value) = value {
                        if let Value::Word(word) = value
                            && argument.words.contains(&word)
                            && argument.is_repeated()
                        {
                            lone_word = Some((word, range.clone()));
                        }
                        item.arguments.push(Placed { value, range });
                    }
                }
            }
        }
        if let Some((word, range)) = lone_word
            && position > 1
        {
            let message = format!("`{word}` stands beside other values");
            let help = format!("`{} {word}` stands alone", directive.name);
            self.diagnostics.push(Diagnostic::error(message).at(&item.file.source, range).help(help));
        }
        let due = directive
            .arguments
            .iter()
            .filter(|argument| matches!(argument.count, Count::One | Count::Some))
            .count();
        // Name and value in one text: what is missing stands there.
        let is_joined = |entry: &&Entry| matches!(&entry.value, Literal::Text(text) if text.contains(':'));
        let is_joined =
            matches!(directive.arguments.first().map(|argument| argument.kind), Some(Kind::FieldName))
                && node.arguments().next().is_some_and(|first| is_joined(&first));
        if position < due
            && !node.is_header_broken
            && !is_joined
            && let Some(missing) = directive.arguments.get(position)
        {
            let expected = missing.kind.expectation_with(missing.words);
            self.diagnostics.push(
                item.error(format!("`{}` needs a value: {}", directive.name, missing.name))
                    .help(format!("expected is {expected}; for example `{}`", directive.example)),
            );
        }
    }

    /// Whether a word that may be left out is none of those that fit, and the name of a directive: what parts the two is missing.
    fn begins_another(&self, item: &Item, argument: &Argument, entry: &Entry) -> bool {
        let (Kind::Choice(words), Count::Optional, Literal::Text(text)) =
            (argument.kind, argument.count, &entry.value)
        else {
            return false;
        };
        let is_bare = matches!(item.file.source.slice(&entry.value_range).chars().next(), Some('a'..='z'));
        let contexts = item.directive.contexts;
        is_bare
            && switch_help(item.directive, &entry.value).is_none()
            && !words.contains(&text.as_str())
            && contexts.iter().any(|context| self.language.find(*context, text).is_some())
    }

    fn surplus(&mut self, item: &Item, entry: &Entry, range: &Range<usize>) {
        let directive = item.directive;
        let text = if let Literal::Text(text) = &entry.value { text.as_str() } else { "" };
        let property = directive.properties.iter().find(|property| property.name == text);
        let help = match property {
            Some(property) => format!("write `{}={}`", property.name, property.default.unwrap_or("…")),
            None if directive.name == "listen" && matches!(text, "ssl" | "tls") => {
                let address = item.arguments.first().map(|placed| item.file.source.slice(&placed.range));
                format!("write `listen {} {{ tls }}`", address.unwrap_or("\":443\""))
            }
            None if directive.name == "tls" && text == "internal" => {
                "what Caddy calls so has no word here: names that no public authority vouches for (`localhost`, addresses) get a \
                 certificate of the server's own by themselves; for others name a file, `tls { certificate \"site.pem\" \
                 key=\"site.key\" }` (`tidegate docs from-caddy`)"
                    .to_owned()
            }
            None if self.fitting_property(item, entry, range).is_some() => {
                self.fitting_property(item, entry, range).unwrap_or_default()
            }
            None if switch_help(directive, &entry.value).is_some() => {
                switch_help(directive, &entry.value).unwrap_or_default()
            }
            // A directive of the same place: what should part the two is missing.
            None if directive.contexts.iter().any(|context| self.language.find(*context, text).is_some())
                && matches!(item.file.source.slice(range).chars().next(), Some('a'..='z')) =>
            {
                format!("`{text}` is a directive: put `;` or the end of the line in front of it")
            }
            None if directive.arguments.is_empty() => {
                format!("`{}` takes no value: `{}`", directive.name, directive.synopsis())
            }
            None => format!("it is written `{}`", directive.synopsis()),
        };
        self.diagnostics.push(
            Diagnostic::error(format!("`{}` takes no further value", directive.name))
                .at(&item.file.source, range.clone())
                .help(help),
        );
    }

    /// What is said of a value that stands alone and fits one of the properties that is not given.
    fn fitting_property(&self, item: &Item, entry: &Entry, range: &Range<usize>) -> Option<String> {
        let written = match &entry.value {
            Literal::Text(text) => Written::Text { text, is_bare: false },
            Literal::Integer(number) => Written::Number(*number),
            Literal::Other => return None,
        };
        let mut properties = item.directive.properties.iter();
        let property = properties.find(|property| {
            let is_narrow = matches!(
                property.kind,
                Kind::Number { .. }
                    | Kind::Choice(_)
                    | Kind::Duration { .. }
                    | Kind::Size { .. }
                    | Kind::Rate
            );
            is_narrow
                && !item.properties.iter().any(|(known, _)| *known == property.name)
                && value::read(property.kind, &[], written, &item.file.folder).is_ok()
        })?;
        let written = format!("{}={}", property.name, item.file.source.slice(range));
        Some(match item.directive.arguments.is_empty() {
            true => format!("write `{} {written}`", item.directive.name),
            false => format!("write `{written}`"),
        })
    }

    fn property(&mut self, item: &mut Item, entry: &Entry, name: &str, range: Range<usize>) {
        let directive = item.directive;
        let known = directive.properties.iter().find(|property| property.name == name);
        let Some(property) = known else {
            let near = suggest::nearest(name, directive.properties.iter().map(|property| property.name));
            let child = match directive.children {
                Children::Block(context) => self.language.find(context, name),
                _ => None,
            };
            let names: Vec<String> =
                directive.properties.iter().map(|property| format!("`{}=`", property.name)).collect();
            let help = match (near, child) {
                (Some(near), _) => format!("did you mean `{near}=`?"),
                (None, Some(child)) => {
                    format!("it stands in the block: `{} {{ {} }}`", directive.name, child.example)
                }
                (None, None) if names.is_empty() => format!("it is written `{}`", directive.synopsis()),
                (None, None) => format!("known are {}", names.join(", ")),
            };
            let whole = entry.range.clone();
            self.diagnostics.push(
                Diagnostic::error(format!("`{}` has no property `{name}`", directive.name))
                    .at(&item.file.source, whole)
                    .help(help),
            );
            return;
        };
        if item.properties.iter().any(|(known, _)| *known == property.name) {
            let whole = entry.range.clone();
            let message = format!("`{}=` is given twice", property.name);
            self.diagnostics
                .push(Diagnostic::error(message).at(&item.file.source, whole).help("keep one of the two"));
            return;
        }
        if let Some(value) = self.value(item, property.kind, &[], entry, &range) {
            item.properties.push((property.name, Placed { value, range }));
        }
    }

    fn value(
        &mut self,
        item: &Item,
        kind: Kind,
        words: &'static [&'static str],
        entry: &Entry,
        range: &Range<usize>,
    ) -> Option<Value> {
        let filled;
        let mut is_filled = false;
        let written = match &entry.value {
            Literal::Text(text) => {
                filled = self.filled(&item.file.source, text, range)?;
                is_filled = matches!(filled, Cow::Owned(_));
                let first = item.file.source.slice(range).chars().next();
                Written::Text { text: &filled, is_bare: !matches!(first, Some('"' | '#')) }
            }
            Literal::Integer(number) => Written::Number(*number),
            // A number with a point, as it stands there; only few directives take one.
            Literal::Other if matches!(kind, Kind::Decimal { .. }) => {
                Written::Text { text: item.file.source.slice(range), is_bare: true }
            }
            Literal::Other => Written::Other,
        };
        match value::read(kind, words, written, &item.file.folder) {
            Ok(value) => match self.foreign(item, kind, written, is_filled) {
                Some(foreign) if foreign.is_error => {
                    let message = format!("`{}`: {}", item.directive.name, foreign.message);
                    let error = Diagnostic::error(message).at(&item.file.source, range.clone());
                    self.diagnostics.push(error.help(foreign.help));
                    None
                }
                // What stands behind a name that is refused is looked at once the name is right.
                Some(foreign) if item.in_place == usize::MAX => {
                    let warning = Diagnostic::warning(foreign.message).at(&item.file.source, range.clone());
                    self.diagnostics.push(warning.help(foreign.help));
                    Some(value)
                }
                _ => {
                    self.several_names(item, kind, entry, range);
                    Some(value)
                }
            },
            Err(error) => {
                let error = self.meant_by_others(item, kind, words, (written, is_filled), error);
                let error = several_in_one(item, kind, entry, written).unwrap_or(error);
                let default = item
                    .directive
                    .default
                    .filter(|_| item.directive.arguments.len() == 1 && entry.name.is_none());
                let default =
                    default.map(|default| format!("; the default is `{default}`")).unwrap_or_default();
                let switch = switch_help(item.directive, &entry.value)
                    .filter(|_| entry.name.is_none() && matches!(kind, Kind::Choice(_)));
                let help = switch.unwrap_or(error.help);
                let help = meant(item.directive.name, &entry.value).unwrap_or(help);
                self.diagnostics.push(
                    Diagnostic::error(format!("`{}`: {}", item.directive.name, error.message))
                        .at(&item.file.source, range.clone())
                        .help(format!("{help}{default}")),
                );
                None
            }
        }
    }

    /// What is said of a value that holds what other servers fill in. What has come of the environment (`is_filled`) is shown to
    /// nobody: it may be a secret.
    fn foreign(&self, item: &Item, kind: Kind, written: Written<'_>, is_filled: bool) -> Option<Foreign> {
        let Written::Text { text, .. } = written else { return None };
        let found =
            value::foreign(kind, item.directive.name, text).filter(|_| self.language.is_settings())?;
        if !is_filled || !found.shows_value {
            return Some(found);
        }
        let help = "write the placeholder in its place, and leave `${…}` as it is".to_owned();
        Some(Foreign { help, shows_value: false, ..found })
    }

    /// What is wrong with a value, where it would be right in the words of this server.
    fn meant_by_others(
        &self,
        item: &Item,
        kind: Kind,
        words: &'static [&'static str],
        (written, is_filled): (Written<'_>, bool),
        error: ValueError,
    ) -> ValueError {
        let reads = |text: &str| {
            let written = Written::Text { text, is_bare: false };
            value::read(kind, words, written, &item.file.folder).is_ok()
        };
        match self.foreign(item, kind, written, is_filled) {
            Some(foreign) if foreign.is_error => ValueError { message: foreign.message, help: foreign.help },
            Some(foreign) if foreign.meant.as_deref().is_none_or(reads) => {
                ValueError { help: foreign.help, ..error }
            }
            _ => error,
        }
    }

    /// Warns of several names in one string where a name may hold what parts them.
    fn several_names(&mut self, item: &Item, kind: Kind, entry: &Entry, range: &Range<usize>) {
        let Literal::Text(text) = &entry.value else { return };
        let is_name = |part: &str| match kind {
            Kind::FileName => part.contains('.'),
            Kind::Try => part.starts_with(['/', '{', '=', '@']),
            _ => false,
        };
        if let Some(said) = value::several(text, is_name).filter(|_| entry.name.is_none()) {
            let warning = Diagnostic::warning(said.message).at(&item.file.source, range.clone());
            self.diagnostics.push(warning.help(said.help));
        }
    }

    /// Fills in the environment variables of a string.
    pub fn filled<'t>(
        &mut self,
        source: &Source,
        text: &'t str,
        range: &Range<usize>,
    ) -> Option<Cow<'t, str>> {
        let error = match substitute(text, self.environment) {
            Ok(filled) => return Some(filled),
            Err(error) => error,
        };
        let help = match &error {
            SubstitutionError::Unset(name) if let Some(meant) = value::meant_by_variable(name) => format!(
                "as a variable of nginx it is `{{{meant}}}` where placeholders are filled in (`redirect`, `rewrite`, `header`); \
                 what is in the curly brackets of `${{…}}` is a variable of the environment"
            ),
            SubstitutionError::Unset(name) => {
                format!("set it, or give a value for when it is not: `${{{name}:-value}}`")
            }
            SubstitutionError::NotText(_) => "set it to text in UTF-8, which settings are".to_owned(),
            SubstitutionError::Nested(name) => {
                format!("give `${{{name}:-…}}` a plain value, or set the variable")
            }
            SubstitutionError::TooLong => "shorten the variable".to_owned(),
            _ => {
                "a variable is written `${NAME}`; `$${` stands for the characters `${` themselves".to_owned()
            }
        };
        self.diagnostics.push(Diagnostic::error(error.to_string()).at(source, range.clone()).help(help));
        None
    }

    fn children(&mut self, item: &mut Item, node: &Node) {
        let Some(nodes) = &node.children else {
            if !node.is_header_broken
                && item.directive.children != Children::None
                && matches!(item.directive.name, "route" | "limits" | "rules" | "match" | "value")
            {
                let help = format!("for example `{}`", item.directive.example);
                self.diagnostics
                    .push(item.error(format!("`{}` needs a block", item.directive.name)).help(help));
            }
            return;
        };
        match item.directive.children {
            Children::None if nodes.is_empty() => {}
            Children::Deferred => {}
            Children::None => {
                let range = nodes.first().map_or(item.name.clone(), |first| first.name_range.clone());
                self.diagnostics.push(
                    Diagnostic::error(format!("`{}` takes no block", item.directive.name))
                        .at(&item.file.source, range)
                        .help(format!("it is written `{}`", item.directive.synopsis())),
                );
            }
            Children::Block(context) => {
                let file = item.file.clone();
                item.children = self.items(&file, nodes, context);
                if item.children.len() < nodes.len() {
                    let unknown =
                        nodes.iter().filter(|node| self.language.find(context, &node.name).is_none());
                    item.unknown = unknown.map(|node| node.name.clone()).collect();
                }
            }
            Children::Pairs { name, value } => self.pairs(item, nodes, name, value),
            Children::Rows { name, value } => self.rows(item, nodes, name, value),
        }
    }

    fn rows(&mut self, item: &mut Item, nodes: &[Node], name: Kind, kind: Kind) {
        for node in nodes {
            let file = item.file.clone();
            let written = Written::Text { text: &node.name, is_bare: false };
            if let Err(error) = value::read(name, &[], written, &file.folder) {
                let diagnostic = Diagnostic::error(error.message).at(&file.source, node.name_range.clone());
                self.diagnostics.push(diagnostic.help(error.help));
                continue;
            }
            let mut row = Row { name: node.name.clone(), range: node.name_range.clone(), cells: Vec::new() };
            for entry in &node.entries {
                let number = self.value(item, kind, &[], entry, &entry.value_range);
                if let Some(Value::Number(number)) = number {
                    row.cells.push(Cell { name: entry.name.clone(), number, range: entry.range.clone() });
                }
            }
            if let Some(first) = node.children.iter().flatten().next() {
                let message = format!("`{}` takes no block", node.name);
                let diagnostic = Diagnostic::error(message).at(&file.source, first.name_range.clone());
                self.diagnostics.push(diagnostic.help(format!("for example `{}`", item.directive.example)));
            }
            item.rows.push(row);
        }
    }

    /// A media type in front of its extensions, as nginx has it.
    fn is_swapped(&mut self, item: &Item, node: &Node, name: Kind) -> bool {
        let extensions: Vec<String> = node
            .arguments()
            .filter_map(|entry| match &entry.value {
                Literal::Text(text) => Some(format!("\"{text}\" \"{}\"", node.name)),
                _ => None,
            })
            .collect();
        if name != Kind::Extension || !node.name.contains('/') || extensions.is_empty() {
            return false;
        }
        let message =
            format!("`{}`: the extension stands first, and its media type behind it", item.directive.name);
        let error = Diagnostic::error(message).at(&item.file.source, node.name_range.clone());
        self.diagnostics.push(error.help(format!("write `{}`", extensions.join("; "))));
        true
    }

    /// Warns of a name that never counts, since it stands further up already, or a star that takes everything.
    fn warn_of_second(&mut self, item: &Item, node: &Node, names: &mut HashSet<String>) {
        let is_first_taken = item.directive.name == "value";
        let (message, help) = match names.insert(node.name.clone()) {
            false if is_first_taken => (
                format!("`{}` stands above already, so this never fits", node.name),
                "the first that fits is taken: keep one of the two",
            ),
            false => (format!("`{}` is given twice", node.name), "keep one of the two"),
            true if is_first_taken && node.name != "*" && names.contains("*") => (
                format!("`{}` never fits: the `*` above takes everything", node.name),
                "the first that fits is taken: put it in front of the `*`",
            ),
            true => return,
        };
        let warning = Diagnostic::warning(message).at(&item.file.source, node.name_range.clone());
        self.diagnostics.push(warning.help(help));
    }

    fn pairs(&mut self, item: &mut Item, nodes: &[Node], name: Kind, value: Kind) {
        let mut names = HashSet::new();
        for node in nodes {
            if self.is_swapped(item, node, name) {
                continue;
            }
            self.warn_of_second(item, node, &mut names);
            let range = node.name_range.clone();
            let written = Written::Text { text: &node.name, is_bare: false };
            let key = match value::read(name, &[], written, &item.file.folder) {
                Ok(Value::Text(key)) => Some(key),
                Ok(_) => None,
                Err(error) => {
                    self.diagnostics.push(
                        Diagnostic::error(error.message)
                            .at(&item.file.source, range.clone())
                            .help(error.help),
                    );
                    None
                }
            };
            let [entry] = node.entries.as_slice() else {
                if node.is_header_broken {
                    continue;
                }
                self.diagnostics.push(
                    Diagnostic::error(format!("`{}` takes one value behind each name", item.directive.name))
                        .at(&item.file.source, range)
                        .help(format!("for example `{}`", item.directive.example)),
                );
                continue;
            };
            let range = entry.value_range.clone();
            if let (Some(Value::Text(value)), Some(key)) = (self.value(item, value, &[], entry, &range), key)
            {
                item.pairs.push((key, value));
            }
        }
    }
}

/// What is said of a time in the past.
const ALWAYS_STALE: &str = "write `cache-control \"no-cache\"`, which is what nginx sends for it";

/// What is said of a list in one string, where each part of it would be right.
fn several_in_one(item: &Item, kind: Kind, entry: &Entry, written: Written<'_>) -> Option<ValueError> {
    let Written::Text { text, .. } = written else { return None };
    let is_repeated = |argument: &Argument| argument.kind == kind && argument.is_repeated();
    let is_repeated = item.directive.arguments.iter().any(is_repeated);
    let has_lines = item.directive.repeats && is_narrow(kind) && text.contains(',');
    if entry.name.is_some() || !is_repeated && !has_lines {
        return None;
    }
    let error = value::several(text, |text| {
        value::read(kind, &[], Written::Text { text, is_bare: false }, &item.file.folder).is_ok()
    })?;
    Some(match is_repeated {
        true => error,
        false => ValueError { help: "write a line for each".to_owned(), ..error },
    })
}

/// Whether a text that is no value of this type is hardly one with a slip in it where its parts are.
fn is_narrow(kind: Kind) -> bool {
    matches!(kind, Kind::Network | Kind::Host | Kind::Address | Kind::FieldName | Kind::RequestField)
}

/// What is written in place of a value whose directive leaves no doubt of what is meant.
fn meant(directive: &str, value: &Literal) -> Option<String> {
    match (directive, value) {
        ("mode", Literal::Integer(bits)) => Some(format!(
            "write the permission bits in octal and in quotes, `mode \"0{bits}\"`; who may write may connect"
        )),
        ("bucket", Literal::Text(name)) => {
            value::meant_token(name).map(|name| format!("write `bucket \"{name}\"`"))
        }
        ("expires", Literal::Text(text)) if text == "max" => {
            Some("write `expires \"3650d\"`, which is what nginx calls so".to_owned())
        }
        ("expires", Literal::Text(text)) if text == "epoch" || text.starts_with('-') => {
            Some(ALWAYS_STALE.into())
        }
        ("expires", Literal::Integer(seconds)) if *seconds < 0 => Some(ALWAYS_STALE.into()),
        _ => None,
    }
}

/// What is said of a word such as `on`, `yes` or `0` behind a directive that is switched on by standing there.
fn switch_help(directive: &Directive, value: &Literal) -> Option<String> {
    let is_on = match value {
        Literal::Text(text) => match text.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" | "enable" | "enabled" => true,
            "no" | "false" | "off" | "disable" | "disabled" => false,
            _ => return None,
        },
        Literal::Integer(1) => true,
        Literal::Integer(0) => false,
        _ => return None,
    };
    let name = directive.name;
    let Some(argument) = directive.arguments.first() else {
        return Some(match is_on {
            true => format!("`{name}` alone switches it on"),
            false => format!(
                "`{name}` alone switches it on, and where it does not stand it is off: take the line out"
            ),
        });
    };
    let knows = |word: &str| {
        argument.words.contains(&word)
            || matches!(argument.kind, Kind::Choice(words) if words.contains(&word))
    };
    let stands_alone = matches!(argument.count, Count::Optional | Count::Any);
    match is_on {
        true if knows("on") => Some("did you mean `on`?".to_owned()),
        true if knows("off") && stands_alone => Some(format!("`{name}` alone switches it on")),
        false if knows("off") => Some(format!("write `{name} off`")),
        _ => None,
    }
}
