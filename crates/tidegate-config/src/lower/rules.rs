//! Rules: the conditions of routes, `match`, and `value`.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::slice;

use crate::check::{Checker, Item, Placed, way};
use crate::diagnostic::Diagnostic;
use crate::settings::rules::{ListPath, Named};
use crate::settings::{Clause, Condition, NESTING, PathPattern, Shared, TextPattern, ValueMap, Values};
use crate::suggest;
use crate::value::{
    Value, ValueError, asks_for_user, asks_for_value, is_token, read_country, read_file, read_host,
    read_network, read_pattern, read_time_window, several,
};

/// Methods of RFC 9110, PATCH, and those of WebDAV: what is close to one of them is a slip.
const METHODS: [&str; 18] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
];

/// The method that is meant by one that is not known: the nearest, or one of the same letters.
fn near_method(name: &str) -> Option<&'static str> {
    let letters = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let same = || METHODS.into_iter().find(|method| letters(method) == letters(name));
    suggest::nearest(name, METHODS).or_else(same)
}

/// A method as clients write it.
pub(super) fn method(text: &str) -> Result<String, ValueError> {
    match is_token(text) {
        true if text.bytes().any(|byte| byte.is_ascii_lowercase()) => Err(ValueError {
            message: format!("`{text}` is no method that is used"),
            help: format!("methods are compared as they are written: `\"{}\"`", text.to_ascii_uppercase()),
        }),
        true => Ok(text.to_owned()),
        false => Err(ValueError {
            message: format!("`{text}` is no method"),
            help: "write its name: `\"GET\"`".to_owned(),
        }),
    }
}

/// What has a name at a level, and behind it what has one at the level around. Most levels add nothing, and share it.
#[derive(Debug, Clone)]
pub(crate) struct Scoped<T> {
    own: Rc<HashMap<String, T>>,
    outer: Option<Rc<Scoped<T>>>,
}

impl<T> Default for Scoped<T> {
    fn default() -> Scoped<T> {
        Scoped { own: Rc::default(), outer: None }
    }
}

impl<T: Clone> Scoped<T> {
    /// A level in this one, with nothing of its own yet.
    fn below(&self) -> Scoped<T> {
        Scoped { own: Rc::default(), outer: Some(Rc::new(self.clone())) }
    }

    fn insert(&mut self, name: String, named: T) {
        Rc::make_mut(&mut self.own).insert(name, named);
    }

    fn own(&self, name: &str) -> Option<&T> {
        self.own.get(name)
    }

    fn get(&self, name: &str) -> Option<&T> {
        self.own.get(name).or_else(|| self.outer.as_ref()?.get(name))
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.own.keys().map(String::as_str).collect();
        names.extend(self.outer.iter().flat_map(|outer| outer.names()));
        names.sort_unstable();
        names
    }
}

/// What conditions and placeholders may name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    matches: Scoped<Match>,
    pub values: Values,
}

impl Names {
    /// The same with what a level adds; its own take the place of outer ones of the same name.
    pub fn with(&self, checker: &mut Checker<'_>, items: &[Item]) -> Names {
        let mut names = self.clone();
        let (mut own, mut seen) = (Vec::new(), HashSet::new());
        for item in items.iter().filter(|item| item.directive.name == "value") {
            let Some(value) = value_map(checker, item) else { continue };
            if !seen.insert(value.name.clone()) {
                twice(checker, item, "value", &value.name);
            }
            own.push(value);
        }
        names.values = self.values.below(own);
        let matches = Matches::of(checker, items);
        if !matches.in_order.is_empty() {
            names.matches = self.matches.below();
            matches.resolve(checker, &mut names);
        }
        names
    }

    /// The conditions of a route.
    pub fn conditions(&self, checker: &mut Checker<'_>, items: &[Item]) -> Vec<Clause> {
        let is_condition = |item: &&Item| matches!(item.directive.name, "when" | "unless");
        let mut clauses = Vec::new();
        for item in items.iter().filter(is_condition) {
            let Some(Value::Word(what)) = item.first() else { continue };
            let condition = condition(checker, item, what, &item.arguments[1..], self);
            let is_negated = item.directive.name == "unless";
            let origin = item.origin();
            clauses.extend(condition.map(|condition| Clause { is_negated, condition, origin }));
        }
        clauses
    }
}

fn twice(checker: &mut Checker<'_>, item: &Item, what: &str, name: &str) {
    let message = format!("the {what} `{name}` is given twice");
    checker.diagnostics.push(item.error_at(0, message).help("give one of the two another name"));
}

/// Most conditions that a `match` is made of, with those that it names.
const CONDITIONS_OF_MATCH: usize = 10_000;

/// A `match`, with all that it names.
#[derive(Debug, Clone)]
pub(crate) struct Match {
    clauses: Shared<Vec<Clause>>,
    /// How many conditions it is made of, those of others included.
    size: usize,
    /// How many stand in each other, itself included.
    depth: usize,
    /// What is wrong with it or with one that it names has been said.
    is_faulty: bool,
}

impl Default for Match {
    fn default() -> Match {
        Match { clauses: Shared::default(), size: 0, depth: 1, is_faulty: false }
    }
}

/// The `match` of a level, while those that name each other are resolved: what is named first. Not by recursion, since a
/// generated file may name them in a chain of any length.
struct Matches<'i> {
    in_order: Vec<(String, &'i Item)>,
    written: HashMap<String, &'i Item>,
}

/// A `match` whose lines are being read.
struct Opened<'i> {
    name: String,
    item: &'i Item,
    lines: slice::Iter<'i, Item>,
    clauses: Vec<Clause>,
    found: Match,
}

impl<'i> Opened<'i> {
    fn of(name: &str, item: &'i Item) -> Opened<'i> {
        let (lines, clauses) = (item.children.iter(), Vec::new());
        Opened { name: name.to_owned(), item, lines, clauses, found: Match::default() }
    }
}

impl<'i> Matches<'i> {
    fn of(checker: &mut Checker<'_>, items: &'i [Item]) -> Matches<'i> {
        let mut matches = Matches { in_order: Vec::new(), written: HashMap::new() };
        for item in items.iter().filter(|item| item.directive.name == "match") {
            let Some(name) = item.texts().into_iter().next() else { continue };
            if matches.written.insert(name.clone(), item).is_some() {
                twice(checker, item, "match", &name);
            }
            matches.in_order.push((name, item));
        }
        matches
    }

    /// All of the level.
    fn resolve(&self, checker: &mut Checker<'_>, names: &mut Names) {
        for (name, item) in &self.in_order {
            let is_last = self.written.get(name).is_some_and(|last| std::ptr::eq(*last, *item));
            if is_last && names.matches.own(name).is_none() {
                self.resolve_one(checker, names, Opened::of(name, item));
            }
        }
    }

    /// One, and before it those that it names.
    fn resolve_one(&self, checker: &mut Checker<'_>, names: &mut Names, first: Opened<'i>) {
        let mut is_open = HashSet::from([first.name.clone()]);
        let mut stack = vec![first];
        while let Some(mut top) = stack.pop() {
            let Some(line) = top.lines.as_slice().first() else {
                is_open.remove(&top.name);
                let name = std::mem::take(&mut top.name);
                names.matches.insert(name, top.ended(checker));
                continue;
            };
            if line.directive.name == "match" {
                let inner = line.texts().into_iter().next().unwrap_or_default();
                if is_open.contains(&inner) {
                    let open = stack.iter().chain([&top]).map(|opened| opened.name.as_str());
                    let message = format!("this `match` is made of itself: {}", way(open, &inner, " names "));
                    checker.diagnostics.push(line.error(message).help("take one of the lines out"));
                    top.lines.next();
                    top.found.is_faulty = true;
                    stack.push(top);
                    continue;
                }
                if names.matches.own(&inner).is_none()
                    && let Some(written) = self.written.get(&inner)
                {
                    is_open.insert(inner.clone());
                    stack.push(top);
                    stack.push(Opened::of(&inner, written));
                    continue;
                }
                if let Some(inner) = names.matches.get(&inner) {
                    top.names(checker, line, inner);
                }
            }
            top.lines.next();
            let condition = condition(checker, line, line.directive.name, &line.arguments, names);
            let origin = line.origin();
            top.clauses.extend(condition.map(|condition| Clause { is_negated: false, condition, origin }));
            stack.push(top);
        }
    }
}

impl Opened<'_> {
    /// A line names another one.
    fn names(&mut self, checker: &mut Checker<'_>, line: &Item, inner: &Match) {
        let found = &mut self.found;
        found.is_faulty |= inner.is_faulty;
        found.size = found.size.saturating_add(inner.size);
        found.depth = found.depth.max(inner.depth + 1);
        if found.depth > NESTING && !found.is_faulty {
            found.is_faulty = true;
            let message = format!("`match` stand more than {NESTING} deep in each other here");
            let help = "write the conditions of the innermost ones where they are named";
            checker.diagnostics.push(line.error(message).help(help));
        }
    }

    /// All of its lines have been read.
    fn ended(mut self, checker: &mut Checker<'_>) -> Match {
        let item = self.item;
        if item.children.is_empty() {
            let help = "for example `match \"bots\" { header \"User-Agent\" \"*AhrefsBot*\" }`";
            checker.diagnostics.push(item.error("a `match` without conditions").help(help));
        }
        self.found.size = self.found.size.saturating_add(self.clauses.len());
        if self.found.size > CONDITIONS_OF_MATCH && !self.found.is_faulty {
            self.found.is_faulty = true;
            let message = format!("this `match` is made of more than {CONDITIONS_OF_MATCH} conditions");
            checker.diagnostics.push(item.error(message).help("name fewer others in it, each of them once"));
        }
        if self.found.is_faulty {
            return Match { is_faulty: true, ..Match::default() };
        }
        Match { clauses: self.clauses.into(), ..self.found }
    }
}

/// A condition from its values; what is wrong has been said where there is none.
fn condition(
    checker: &mut Checker<'_>,
    item: &Item,
    what: &'static str,
    placed: &[Placed],
    names: &Names,
) -> Option<Condition> {
    let mut texts = Vec::with_capacity(placed.len());
    for placed in placed {
        let Value::Text(text) = &placed.value else { return None };
        texts.push((text.as_str(), placed));
    }
    let regex = match item.property("regex") {
        Some(Value::Regex(regex)) => Some(regex),
        _ => None,
    };
    let takes_regex = matches!(what, "cookie" | "header" | "path" | "query" | "value");
    let refused = |message: String, help: &str| item.error(message).help(help.to_owned());
    if regex.is_some() && !takes_regex {
        let message = format!("`{what}` takes no regular expression");
        let help = "`cookie`, `header`, `path`, `query` and `value` do";
        checker.diagnostics.push(refused(message, help));
        return None;
    }
    let example = item.directive.example;
    if texts.is_empty() && !(what == "path" && regex.is_some()) {
        let message = format!("`{what}` says not what it has to be");
        checker.diagnostics.push(refused(message, &format!("for example `{example}`")));
        return None;
    }
    if matches!(what, "scheme" | "file" | "match")
        && let Some((_, second)) = texts.get(1)
    {
        let message = format!("`{what}` takes one value");
        let diagnostic = Diagnostic::error(message).at(&item.file.source, second.range.clone());
        checker.diagnostics.push(diagnostic.help("write a route for each"));
        return None;
    }
    let mut reader = Reader { checker, item };
    Some(match what {
        "method" => {
            let methods = reader.all(&texts, method)?;
            let unknown = methods.iter().find(|name| !METHODS.contains(&name.as_str()));
            let near = unknown.and_then(|name| Some((name, near_method(name)?)));
            if let Some((name, near)) = near {
                let warning = Diagnostic::warning(format!("`{name}` is no method that is known"));
                let warning = warning.at(&item.file.source, item.header.clone());
                reader.checker.diagnostics.push(warning.help(format!("did you mean `\"{near}\"`?")));
            }
            Condition::Method(methods)
        }
        "path" => {
            let mut patterns = reader.all(&texts, |text| match text.starts_with('@') {
                true => Err(ValueError {
                    message: format!("`{text}` is the name of a route, and no path"),
                    help: "write a path: `\"/shop/*\"`".to_owned(),
                }),
                false => read_pattern(text),
            })?;
            patterns.extend(regex.map(PathPattern::Regex));
            Condition::Path(patterns)
        }
        "host" => Condition::Host(reader.all(&texts, read_host)?),
        "client" => {
            let networks = reader.all(&texts, read_network)?;
            Condition::Client(networks.into_iter().collect::<crate::settings::NetworkSet>().into())
        }
        "client-list" => {
            let folder = reader.item.file.folder.clone();
            Condition::ClientList(reader.all(&texts, |text| read_file(text, &folder).map(ListPath))?)
        }
        "country" => Condition::Country(reader.all(&texts, read_country)?),
        "time" => Condition::Time(reader.all(&texts, read_time_window)?),
        "scheme" => Condition::Scheme(reader.one(&texts, |text| match text {
            "http" | "https" => Ok(text.to_owned()),
            _ => Err(ValueError {
                message: format!("`{text}` is no scheme that is spoken here"),
                help: "write `\"http\"` or `\"https\"`".to_owned(),
            }),
        })?),
        "file" => {
            let folder = reader.item.file.folder.clone();
            Condition::File(reader.one(&texts, |text| read_file(text, &folder))?)
        }
        "match" => {
            let name = reader.one(&texts, |text| Ok(text.to_owned()))?;
            let Some(found) = names.matches.get(&name) else {
                let near = suggest::nearest(&name, names.matches.names());
                let help = near.map_or_else(
                    || format!("add it: `match \"{name}\" {{ header \"User-Agent\" \"*bot*\" }}`"),
                    |near| format!("did you mean `{near}`?"),
                );
                reader.refuse(&texts, format!("no `match` is called `{name}`"), help);
                return None;
            };
            Condition::Match(name, found.clauses.clone())
        }
        _ => {
            let (name, _) = texts.first().copied()?;
            let is_field = what == "header";
            if is_field && !is_token(name) || name.is_empty() {
                let message = format!("`{name}` is no name of a {}", if is_field { "field" } else { what });
                reader.refuse(&texts, message, format!("the name comes first: `{example}`"));
                return None;
            }
            if what == "value" && names.values.get(name).is_none() {
                let near = suggest::nearest(name, names.values.names());
                let help = near.map_or_else(
                    || format!("add it: `value \"{name}\" from=\"{{cookie.group}}\" {{ \"b\" \"new\"; \"*\" \"old\" }}`"),
                    |near| format!("did you mean `{near}`?"),
                );
                reader.refuse(&texts, format!("no `value` is called `{name}`"), help);
                return None;
            }
            let patterns = texts.iter().skip(1).map(|(text, _)| TextPattern::glob(text));
            let patterns = patterns.chain(regex.map(TextPattern::Regex)).collect();
            let named = Named { name: name.to_owned(), patterns };
            match what {
                "header" => Condition::Header(named),
                "query" => Condition::Query(named),
                "cookie" => Condition::Cookie(named),
                _ => Condition::Value(named),
            }
        }
    })
}

/// Reads the values of a condition, each at its place.
struct Reader<'r, 'c> {
    checker: &'r mut Checker<'c>,
    item: &'r Item,
}

impl Reader<'_, '_> {
    fn all<T>(
        &mut self,
        texts: &[(&str, &Placed)],
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<Vec<T>> {
        let mut out = Vec::with_capacity(texts.len());
        for (text, placed) in texts {
            match read(text) {
                Ok(value) => out.push(value),
                Err(error) => {
                    let several = several(text, |part| read(part).is_ok());
                    let ValueError { message, help } = several.unwrap_or(error);
                    let error = Diagnostic::error(format!("`{}`: {message}", self.item.directive.name));
                    let error = error.at(&self.item.file.source, placed.range.clone());
                    self.checker.diagnostics.push(error.help(help));
                }
            }
        }
        (out.len() == texts.len()).then_some(out)
    }

    fn one<T>(
        &mut self,
        texts: &[(&str, &Placed)],
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        self.all(texts.get(..1)?, read)?.pop()
    }

    fn refuse(&mut self, texts: &[(&str, &Placed)], message: String, help: String) {
        let range = texts.first().map_or(self.item.header.clone(), |(_, placed)| placed.range.clone());
        let error = Diagnostic::error(message).at(&self.item.file.source, range);
        self.checker.diagnostics.push(error.help(help));
    }
}

/// A `value`.
fn value_map(checker: &mut Checker<'_>, item: &Item) -> Option<ValueMap> {
    let name = item.texts().into_iter().next()?;
    let Some(Value::Text(from)) = item.property("from") else {
        let message = "`value` says not what is looked up";
        checker
            .diagnostics
            .push(item.error(message).help(format!("for example `{}`", item.directive.example)));
        return None;
    };
    if asks_for_user(&from) {
        // Routes may be chosen by it, before anybody has been asked who it is.
        let message = "who has logged in is not known yet where a `value` is looked up";
        let help =
            "write `{user}` where it is wanted; to let some in, write `require user` or `require group`";
        checker.diagnostics.push(item.error(message).help(help));
        return None;
    }
    if let Some(other) = asks_for_value(&from) {
        // Which of them comes first, and what a circle of them means, nobody would guess.
        let message = format!("`{{{other}}}`: a `value` is not looked up by another one");
        let help = "write in `from` what the other one is looked up by, and its cases here";
        checker.diagnostics.push(item.error(message).help(help));
        return None;
    }
    let cases = item.pairs.iter().map(|(pattern, result)| (TextPattern::glob(pattern), result.clone()));
    Some(ValueMap { name, from, cases: cases.collect() })
}
