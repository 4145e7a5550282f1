//! Routes whose `allow`, `deny`, `login` or `require` does not hold for all paths that they match, since an earlier route
//! takes some of them: `*.php` before `/adm/*` leaves `/adm/x.php` open.
//!
//! Only what nobody can have meant: an earlier route that lies inside of the later one is an exception on purpose, and one that
//! asks something itself has been thought of. What an earlier route covers whole is `site::unreachable`'s.

use crate::check::{Checker, Item};
use crate::diagnostic::Diagnostic;
use crate::settings::{Action, PathPattern, Route};
use crate::value::{covers, pattern_text};

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
