//! Placeholders: whether each stands for something where it is written.
//!
//! A value alone cannot say, since what stars and groups stand for are placeholders of their route alone, and `value` has
//! names of its own. So whole blocks are looked through, once the pattern of their route is known.

use crate::check::{Checker, Item, Placed};
use crate::diagnostic::Diagnostic;
use crate::directive::Kind;
use crate::settings::{PathPattern, Try, Values};
use crate::value::{Value, ValueError, placeholder_names, unknown_placeholder};

/// What placeholders may name in a block.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    /// Of the route; `None` outside of one.
    pub pattern: Option<&'s PathPattern>,
    pub values: &'s Values,
    /// There are languages to choose from.
    pub has_languages: bool,
}

/// Says what is wrong with the placeholders of a block, and of all blocks in it but those of routes.
pub(super) fn check(checker: &mut Checker<'_>, items: &[Item], scope: Scope<'_>) {
    for item in items {
        if matches!(item.directive.name, "route" | "site") {
            continue;
        }
        for (placed, kind) in item.arguments.iter().enumerate().filter_map(|(at, placed)| {
            let arguments = item.directive.arguments;
            Some((placed, arguments.get(at).or(arguments.last())?.kind))
        }) {
            check_value(checker, item, placed, kind, scope);
        }
        for (name, placed) in &item.properties {
            let property = item.directive.properties.iter().find(|property| property.name == *name);
            if let Some(property) = property {
                check_value(checker, item, placed, property.kind, scope);
            }
        }
        check(checker, &item.children, scope);
    }
}

fn check_value(checker: &mut Checker<'_>, item: &Item, placed: &Placed, kind: Kind, scope: Scope<'_>) {
    let text = match &placed.value {
        Value::Text(text) | Value::Try(Try::Path(text)) => text,
        _ => return,
    };
    for name in placeholder_names(kind, text) {
        let captures = scope.pattern.map(PathPattern::captures).unwrap_or_default();
        let value = name.strip_prefix("value.").filter(|_| kind != Kind::Try);
        // A `value` is looked up wherever its routes are chosen.
        let is_language = name == "language" && kind != Kind::Try && item.directive.name != "value";
        let is_known = captures.contains(&name)
            || is_language && scope.has_languages
            || value.is_some_and(|value| scope.values.get(value).is_some());
        if is_known {
            continue;
        }
        let problem = match name.split_once('.') {
            Some(("value", _)) => "no `value` of this name",
            None if is_language => "name some to choose from, `languages \"en\" \"de\"`",
            None if name.bytes().all(|byte| byte.is_ascii_digit()) => match scope.pattern {
                Some(_) => "the pattern of the route has not as many stars or groups",
                None => "stars and groups are those of a route: write it there",
            },
            _ => "",
        };
        let values = scope.values.names().filter(|_| kind != Kind::Try).map(|value| format!("value.{value}"));
        let known: Vec<String> = captures.into_iter().chain(values).collect();
        let ValueError { message, help } = unknown_placeholder(kind, &name, &known);
        let message = if problem.is_empty() { message } else { format!("{message}: {problem}") };
        let error = Diagnostic::error(format!("`{}`: {message}", item.directive.name));
        checker.diagnostics.push(error.at(&item.file.source, placed.range.clone()).help(help));
        return;
    }
}
