//! A site: its names, its routes, and what is wrong among them.

use std::sync::Arc;

use super::inherit::Inherited;
use super::{access_log, host_text, route, tls};
use crate::check::{Checker, Item};
use crate::diagnostic::Diagnostic;
use crate::disk::Disk;
use crate::settings::{Action, HostPattern, PathPattern, Route, Site};
use crate::value::{Value, covers, pattern_text};

/// Lowers a site. The caller leaves it out if errors were said meanwhile. `others` are the sites so far.
pub(super) fn site(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    outer: &Inherited,
    others: &[Arc<Site>],
) -> Site {
    let names = names(checker, item, others);
    let mut inherited = outer.clone();
    inherited.apply(checker, &item.children);
    let is_https_only = tls::hsts(&mut inherited);
    let mut routes: Vec<Route> = Vec::new();
    let mut written: Vec<&Item> = Vec::new();
    for child in item.children.iter().filter(|child| child.directive.name == "route") {
        let Some(Value::Pattern(pattern)) = child.first().cloned() else {
            // The pattern is wrong; what is inside is looked at all the same.
            route::route(checker, disk, child, PathPattern::Exact("/".to_owned()), &inherited, false);
            continue;
        };
        routes.push(route::route(checker, disk, child, pattern, &inherited, false));
        written.push(child);
    }
    unreachable(checker, &routes, &written);
    let everything = PathPattern::Prefix("/".to_owned());
    let is_taken = routes.iter().any(|route| covers(&route.pattern, &everything));
    let says_nothing = ["root", "redirect", "respond", "status", "fastcgi", "scgi", "cgi", "proxy"]
        .iter()
        .all(|name| item.child(name).is_none());
    routes.push(if is_taken && says_nothing {
        // A route for everything leaves nothing to the site itself, so it need not say what to answer.
        let action = Action::Respond { status: 404, body: String::new(), media_type: None };
        route::with(inherited.clone(), everything, action, item.origin())
    } else {
        route::route(checker, disk, item, everything, &inherited, true)
    });
    let access_log = item.child("access-log").map(|log| access_log(checker, disk, log));
    let tls = item.child("tls").map(|item| tls::site(checker, item)).unwrap_or_default();
    let trusted_proxies = inherited.trusted_proxies.clone();
    Site { names, routes, trusted_proxies, access_log, tls, is_https_only, origin: item.origin() }
}

fn names(checker: &mut Checker<'_>, item: &Item, others: &[Arc<Site>]) -> Vec<HostPattern> {
    let mut names: Vec<HostPattern> = Vec::new();
    for placed in &item.arguments {
        let Value::Host(host) = &placed.value else { continue };
        let error = |message: String| Diagnostic::error(message).at(&item.file.source, placed.range.clone());
        if names.contains(host) {
            let message = format!("`{}` stands twice in this site", host_text(host));
            checker.diagnostics.push(error(message).help("take one of the two out"));
            continue;
        }
        if let Some(other) = others.iter().find(|other| other.names.contains(host)) {
            let message = format!("`{}` is the name of another site already", host_text(host));
            let help = format!(
                "it stands in {}:{}; give it to one of the two",
                other.origin.file, other.origin.line
            );
            checker.diagnostics.push(error(message).help(help));
        }
        names.push(host.clone());
    }
    // A site whose names are all wrong is not one without a name.
    if item.header == item.name
        && let Some(other) = others.iter().find(|other| other.names.is_empty())
    {
        let message = "there is another site without a name already";
        let help =
            format!("it stands in {}:{}; give one of the two a name", other.origin.file, other.origin.line);
        checker.diagnostics.push(item.error(message).help(help));
    }
    names
}

/// Warns of routes that an earlier one leaves nothing for.
fn unreachable(checker: &mut Checker<'_>, routes: &[Route], written: &[&Item]) {
    for (at, (later, item)) in routes.iter().zip(written).enumerate() {
        let Some(earlier) = routes[..at].iter().find(|earlier| covers(&earlier.pattern, &later.pattern))
        else {
            continue;
        };
        let message = format!("the route `{}` can never match", pattern_text(&later.pattern));
        let help = format!(
            "`{}` in line {} matches all that it matches and comes first; put the narrower route above it",
            pattern_text(&earlier.pattern),
            earlier.origin.line
        );
        checker
            .diagnostics
            .push(Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help));
    }
}
