//! Routes whose `allow`, `deny`, `login` or `require` does not hold for all paths that they match, since an earlier route
//! takes some of them: `*.php` before `/adm/*` leaves `/adm/x.php` open.
//!
//! Routes that no path comes to are warned of here as well. Only what nobody can have meant: an earlier route that lies inside of the later one is an exception on purpose, and one that
//! asks something itself has been thought of. What an earlier route covers whole is `site::unreachable`'s.

use crate::check::{Checker, Item};
use crate::diagnostic::Diagnostic;
use crate::settings::{Action, Clause, Condition, PathPattern, Route};
use crate::value::{covers, is_name, pattern_text};

/// What guards a route.
const GUARDS: [&str; 5] = ["allow", "deny", "login", "require", "signed"];

/// Most earlier routes that a guarded one is compared with.
const COMPARED: usize = 200;

/// Warns of guards that are without effect for some of their paths. `routes` are those of a site in their order, and
/// `written` where each stands.
pub(super) fn check(checker: &mut Checker<'_>, routes: &[Route], written: &[&Item]) {
    let mut open: Vec<&Route> = Vec::new();
    for (route, item) in routes.iter().zip(written) {
        let guard = GUARDS.iter().find_map(|name| item.child(name)).filter(|guard| !guard.is_word("off"));
        let Some(guard) = guard else {
            let answers = !route.action.refuses() && !matches!(route.action, Action::Redirect { .. });
            if answers
                && route.conditions.is_empty()
                && item.child("access").is_none()
                && open.len() < COMPARED
            {
                open.push(route);
            }
            continue;
        };
        let is_before = |earlier: &&&Route| overlaps(&earlier.pattern, &route.pattern);
        let Some(earlier) = open.iter().find(is_before) else { continue };
        let (name, line) = (guard.directive.name, earlier.origin.line);
        let (text, first) = (pattern_text(&route.pattern), pattern_text(&earlier.pattern));
        let message = format!(
            "this `{name}` does not hold for paths that `{first}` in line {line} matches too: that route comes first"
        );
        let help = format!(
            "put the route `{text}` above it; or write the `{name}` there as well, or in the site for all its routes"
        );
        checker
            .diagnostics
            .push(Diagnostic::warning(message).at(&guard.file.source, guard.header.clone()).help(help));
    }
}

/// Warns of routes that no request comes to, since no path fits both their pattern and a `when path` in them, and of braces,
/// which a pattern has no use for.
pub(super) fn hopeless(checker: &mut Checker<'_>, routes: &[Route], written: &[&Item]) {
    for (route, item) in routes.iter().zip(written) {
        let text = pattern_text(&route.pattern);
        if is_name(&route.pattern) || matches!(route.pattern, PathPattern::Regex(_)) {
            continue;
        }
        let asks = |clause: &&Clause| match &clause.condition {
            Condition::Path(patterns) if !clause.is_negated => {
                patterns.iter().all(|pattern| are_apart(pattern, &route.pattern))
            }
            _ => false,
        };
        if let Some(clause) = route.conditions.iter().find(asks)
            && let Some(when) = item.children.iter().find(|child| child.origin() == clause.origin)
        {
            let warning =
                Diagnostic::warning(format!("no path of the route `{text}` is so: it can never match"));
            let help = "the pattern of the route and the condition both have to fit; leave one of them out";
            checker.diagnostics.push(warning.at(&when.file.source, when.header.clone()).help(help));
        }
        let braces = text.find('{').and_then(|from| Some((from, from + text.get(from..)?.find('}')?)));
        let is_word = |(from, to): &(usize, usize)| {
            text.get(from + 1..*to)
                .is_some_and(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()))
        };
        if let Some((from, to)) = braces.filter(is_word) {
            let (before, inside, behind) = (&text[..from], &text[from..=to], &text[to + 1..]);
            let warning =
                Diagnostic::warning(format!("`{inside}` in a pattern stands for itself, braces and all"));
            let help = format!(
                "write `\"{before}*{behind}\"`, where `*` is anything and `{{1}}` what it was; or `regex=`"
            );
            checker.diagnostics.push(warning.at(&item.file.source, item.header.clone()).help(help));
        }
    }
}

/// Whether no path matches both, as far as that is plain.
fn are_apart(one: &PathPattern, other: &PathPattern) -> bool {
    match (one, other) {
        (PathPattern::Exact(path), pattern) | (pattern, PathPattern::Exact(path)) => {
            !matches!(pattern, PathPattern::Regex(_)) && !pattern.matches(path.as_bytes())
        }
        _ => match (ends(one), ends(other)) {
            (Some((begin, end)), Some((other_begin, other_end))) => {
                let begins = begin.starts_with(other_begin) || other_begin.starts_with(begin);
                !begins || !(end.ends_with(other_end) || other_end.ends_with(end))
            }
            _ => false,
        },
    }
}

/// Whether some paths, but not all of either, match both.
fn overlaps(earlier: &PathPattern, later: &PathPattern) -> bool {
    let (Some((begin, end)), Some((other_begin, other_end))) = (ends(earlier), ends(later)) else {
        return false;
    };
    let begins = begin.starts_with(other_begin) || other_begin.starts_with(begin);
    let ends = end.ends_with(other_end) || other_end.ends_with(end);
    begins && ends && !covers(earlier, later) && !covers(later, earlier)
}

/// What stands before the first star and behind the last one; `None` where there is none, or an expression.
fn ends(pattern: &PathPattern) -> Option<(&str, &str)> {
    match pattern {
        PathPattern::Prefix(begin) => Some((begin, "")),
        PathPattern::Suffix(end) => Some(("", end)),
        PathPattern::Pieces(pieces) => Some((pieces.first()?, pieces.last()?)),
        PathPattern::Exact(_) | PathPattern::Regex(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    fn said(routes: &str) -> Vec<String> {
        let environment: BTreeMap<String, String> = BTreeMap::new();
        let text = format!("listen \":1\"\nsite {{ respond 200\n{routes}\n}}");
        let loaded = crate::load_str("a.kdl", &text, Path::new("/"), &environment);
        loaded.diagnostics.into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn a_route_that_no_path_comes_to_is_warned_of() {
        for (route, word) in [
            ("route \"/x\" { when path \"/y\"; respond 200 }", Some("can never match")),
            ("route \"/x/*\" { when path \"/y/*\" \"/z\"; respond 200 }", Some("can never match")),
            ("route \"/x/*\" { when path \"/y/*\" \"/x/z\"; respond 200 }", None),
            ("route \"/x/*\" { when path \"*.php\"; respond 200 }", None),
            ("route \"/x/*\" { unless path \"/y\"; respond 200 }", None),
            ("route \"/{lang}/docs\" { respond 200 }", Some("`{lang}` in a pattern")),
            ("route \"/{}/docs\" { respond 200 }", None),
            ("route regex=#\"^/a{2}$\"# { respond 200 }", None),
            ("route \"/x\" { when method \"GTE\"; respond 200 }", Some("`GTE` is no method")),
            ("route \"/x\" { when method \"BREW\" \"GET\"; respond 200 }", None),
        ] {
            let found = said(route);
            let is_found = word.is_some_and(|word| found.iter().any(|message| message.contains(word)));
            assert_eq!((is_found, found.is_empty()), (word.is_some(), word.is_none()), "{route}: {found:?}");
        }
    }

    #[test]
    fn a_guard_that_an_earlier_route_goes_around_is_warned_of() {
        let php = "route \"*.php\" { respond 200 \"x\" }";
        for (routes, is_said) in [
            (format!("{php}\nroute \"/adm/*\" {{ allow \"10.0.0.0/8\"; respond 200 }}"), true),
            (format!("{php}\nroute \"/adm/*\" {{ deny \"10.0.0.0/8\"; respond 200 }}"), true),
            (format!("{php}\nroute \"/adm/*.html\" {{ deny \"10.0.0.0/8\"; respond 200 }}"), false),
            (format!("{php}\nroute \"/adm/*.x.php\" {{ deny \"10.0.0.0/8\"; respond 200 }}"), false),
            (format!("{php}\nroute \"/adm/*\" {{ respond 200 }}"), false),
            (format!("route \"/adm/*\" {{ allow \"10.0.0.0/8\"; respond 200 }}\n{php}"), false),
            ("route \"*.php\" { allow \"::1\"; respond 200 }\nroute \"/adm/*\" { allow \"::1\"; respond 200 }".into(), false),
            ("route \"*.php\" { respond 404 }\nroute \"/adm/*\" { allow \"::1\"; respond 200 }".into(), false),
            ("route \"/adm/open/*\" { respond 200 }\nroute \"/adm/*\" { allow \"::1\"; respond 200 }".into(), false),
        ] {
            let found = said(&routes);
            let is_found = found.iter().any(|message| message.contains("does not hold for paths"));
            assert_eq!(is_found, is_said, "{routes}: {found:?}");
        }
    }
}
