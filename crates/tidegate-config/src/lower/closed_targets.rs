//! Paths that `rewrite`, `hand-to` and `try` lead to, and that nobody is let in to.
//!
//! Only what is certain: a path without placeholders, whose route asks for no conditions. A route for that path alone which
//! answers an error is an answer that somebody means, unless a `rewrite` would have another one made.

use super::site::matches;
use crate::check::{Checker, Item};
use crate::diagnostic::Diagnostic;
use crate::settings::{AccessRules, Action, Network, PathPattern, Route, Try, Whom};
use crate::value::Value;

/// Warns of them. `written` are the items of the first `routes`.
pub(super) fn check(checker: &mut Checker<'_>, site: &Item, routes: &[Route], written: &[&Item]) {
    for block in std::iter::once(site).chain(written.iter().copied()) {
        let leads = |item: &&Item| matches!(item.directive.name, "rewrite" | "hand-to" | "try");
        for item in block.children.iter().filter(leads) {
            let hands_on = item.directive.name != "rewrite";
            for (at, placed) in item.arguments.iter().enumerate() {
                let (Value::Text(target) | Value::Try(Try::Path(target))) = &placed.value else { continue };
                let path = target.split('?').next().unwrap_or_default();
                if !path.starts_with('/') || path.contains(['{', '%']) {
                    continue;
                }
                let Some((route, why)) = closed(routes, path, hands_on) else { continue };
                let (name, pattern, origin) = (item.directive.name, &route.pattern, &route.origin);
                let message =
                    format!("`{name}` leads to `{path}`, and the route `{pattern}` ({origin}) {why}");
                let help = "what is closed by its own path is closed on every way; where only the server is to come to a path, write \
                            `internal` in its route";
                let warning =
                    Diagnostic::warning(message).at(&item.file.source, item.arguments[at].range.clone());
                checker.diagnostics.push(warning.help(help));
            }
        }
    }
}

/// The route of a path, where it lets in nobody, and how it says so.
fn closed<'r>(routes: &'r [Route], path: &str, hands_on: bool) -> Option<(&'r Route, String)> {
    let route = routes.iter().find(|route| matches(&route.pattern, path))?;
    if !route.conditions.is_empty() {
        return None;
    }
    let denies_all = |rules: &AccessRules| {
        let first = rules.iter().next();
        first.is_some_and(|rule| {
            !rule.allows && rule.time.is_none() && rule.whom == Whom::Network(Network::All)
        })
    };
    if route.access.levels.iter().any(|rules| denies_all(rules)) {
        return Some((route, "denies it to everybody".to_owned()));
    }
    match &route.action {
        Action::Respond { status, .. } if route.action.refuses() => {
            let is_meant = hands_on && matches!(&route.pattern, PathPattern::Exact(_));
            (!is_meant).then(|| (route, format!("answers {status}")))
        }
        Action::Close => Some((route, "closes the connection".to_owned())),
        _ => None,
    }
}
