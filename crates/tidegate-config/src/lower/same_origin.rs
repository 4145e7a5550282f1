//! `console { change }` beside what runs scripts of others: a browser asks nobody who has written the pages of one host.
//!
//! A page of any route of the host is of the origin of the console (RFC 6454 section 4). It may read what the console reads, the
//! token against requests of other sites too, and change the settings as whoever is logged in.

use super::host_text;
use super::login::{point_at, sources_by_name};
use crate::check::Checker;
use crate::diagnostic::Diagnostic;
use crate::include::TopNode;
use crate::settings::{Action, Route, Settings, Site};

/// Warns of it, once for each site.
pub(super) fn check(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let sources = sources_by_name(nodes);
    for site in &settings.sites {
        let console = site.routes.iter().find(|route| changes(&route.action));
        if let Some((console, warning)) = console.and_then(|route| Some((route, warning(route, site)?))) {
            point_at(checker, &sources, &console.origin, warning);
        }
    }
}

fn changes(action: &Action) -> bool {
    matches!(action, Action::Console { may_change: true, .. })
}

/// Whether pages come from files or from a program, which others may have written.
fn has_pages(action: &Action) -> bool {
    match action {
        Action::Files(_) | Action::Cgi(_) | Action::Fastcgi(_) | Action::Scgi(_) | Action::Proxy(_) => true,
        // These texts are the operator's, and what is handed on is answered by one of the others.
        Action::Respond { .. }
        | Action::Close
        | Action::Redirect { .. }
        | Action::HandTo { .. }
        | Action::Status
        | Action::Console { .. } => false,
    }
}

fn warning(console: &Route, site: &Site) -> Option<Diagnostic> {
    let other = site.routes.iter().find(|route| has_pages(&route.action))?;
    let message = format!(
        "pages of `{}` ({}) may change the settings: to a browser they are of one origin with the console, whose host name they \
         share",
        other.pattern, other.origin
    );
    let name = site.names.first().map(host_text).unwrap_or_default();
    let name = name.trim_start_matches(['*', '.']);
    let name = if name.is_empty() { "example.com" } else { name };
    let help = format!(
        "give the console a host name of its own, `site \"admin.{name}\" {{ respond 404; route \"{}\" {{ … }} }}`, or take `change` out",
        console.pattern
    );
    Some(Diagnostic::warning(message).help(help))
}
