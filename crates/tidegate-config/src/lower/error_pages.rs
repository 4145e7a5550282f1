//! `error-page`: pages that cannot be shown, and errors that have none.

use std::collections::HashSet;

use super::inherit::Inherited;
use super::site::matches;
use crate::check::{Checker, Item, number};
use crate::diagnostic::Diagnostic;
use crate::disk::{Disk, What};
use crate::settings::{Action, Condition, Network, PathPattern, Route, Whom};

/// What the server answers before any site is asked.
const BEFORE_SITES: [u16; 5] = [408, 417, 421, 425, 505];

/// Warns of pages for errors that are answered before any site is asked. `inherited` is what the level of `items` has made of it.
pub(super) fn unshown(checker: &mut Checker<'_>, items: &[Item], inherited: &Inherited) {
    let mut written = items.iter().filter(|item| item.directive.name == "error-page").peekable();
    if written.peek().is_none()
        || inherited.intercepts
        || any(items, &|item| item.directive.name == "intercept")
    {
        return;
    }
    let (own, of_server) = (&inherited.limits, &inherited.limits_of_server);
    // A level inside may have smaller ones.
    let is_limits = |item: &Item| item.directive.name == "limits";
    let has_inner = items.iter().any(|item| any(&item.children, &is_limits));
    let is_limit = |code| match code {
        _ if has_inner => false,
        414 => own.target_size >= of_server.target_size,
        431 => own.head_size >= of_server.head_size,
        _ => false,
    };
    let is_answered =
        |code| any(items, &|item| item.directive.name == "respond" && number(item) == u64::from(code));
    for item in written.filter(|item| !item.texts().is_empty()) {
        let codes = item.numbers().filter_map(|code| u16::try_from(code).ok());
        let is_early = |code: &u16| BEFORE_SITES.contains(code) || is_limit(*code);
        let codes: Vec<u16> = codes.filter(|code| is_early(code) && !is_answered(*code)).collect();
        if codes.is_empty() {
            continue;
        }
        let shown: Vec<String> = codes.iter().map(u16::to_string).collect();
        let shown = shown.join(", ");
        let message =
            format!("the server answers {shown} before a site is asked, and shows no error page for it");
        let warning = Diagnostic::warning(message).at(&item.file.source, item.header.clone());
        checker.diagnostics.push(warning.help(match codes.iter().any(|code| is_limit(*code)) {
            true => {
                "take it out; those of 414 and 431 are shown where the site or the route has `limits` of its own, with a \
                 `target-size` or a `head-size` below that of the server"
            }
            false => "take it out: the server's own short page is sent",
        }));
    }
}

/// Whether any of these, or of what stands inside, is so.
fn any(items: &[Item], is_so: &dyn Fn(&Item) -> bool) -> bool {
    items.iter().any(|item| is_so(item) || any(&item.children, is_so))
}

/// Warns of error pages that are no files, where files answer for their paths, and of those that nobody may have.
pub(super) fn check(checker: &mut Checker<'_>, disk: &dyn Disk, site: &Item, routes: &[Route]) {
    let mut seen: HashSet<&str> = HashSet::new();
    let pages = routes.iter().flat_map(|route| &route.error_pages).map(|(_, page)| page.as_str());
    for page in pages.filter(|page| seen.insert(page)) {
        let route = routes.iter().find(|route| matches(&route.pattern, page));
        let Some(Action::Files(files)) = route.map(|route| &route.action) else { continue };
        // What `try` finds is for the moment of the request.
        let below = page.strip_prefix(files.strip_prefix.as_deref().unwrap_or_default());
        let (Some(below), true) = (below, files.try_list.is_empty()) else { continue };
        let path = files.root.join(below.trim_start_matches('/'));
        let problem = match disk.what(&path) {
            What::Missing => "does not exist",
            What::Dangling => "is a link that leads nowhere",
            What::Folder => "is a folder",
            What::File | What::Special | What::Hidden => continue,
        };
        let message = format!("the error page `{page}` cannot be shown: {} {problem}", path.display());
        let help = "make the file; without it the server's own short page is sent";
        for item in error_pages(site, None, page) {
            let warning = Diagnostic::warning(&*message).at(&item.file.source, item.header.clone());
            checker.diagnostics.push(warning.help(help));
        }
    }
    unseen_pages(checker, site, routes);
}

/// The lines of a site that name an error page, of one status or of any; the site itself where they stand around it.
fn error_pages<'i>(site: &'i Item, code: Option<u16>, page: &str) -> Vec<&'i Item> {
    let blocks = std::iter::once(site).chain(site.children.iter());
    let names_it = |item: &&Item| {
        item.directive.name == "error-page"
            && item.texts().iter().any(|text| text == page)
            && code.is_none_or(|code| item.numbers().any(|named| named == u64::from(code)))
    };
    let written: Vec<&Item> = blocks.flat_map(|block| &block.children).filter(names_it).collect();
    if written.is_empty() { vec![site] } else { written }
}

/// Warns of error pages that whoever gets the error may not have: the page is asked for as the client would ask.
fn unseen_pages(checker: &mut Checker<'_>, site: &Item, routes: &[Route]) {
    let mut said: HashSet<(u16, &str)> = HashSet::new();
    for (code, page) in routes.iter().flat_map(|route| &route.error_pages) {
        if !said.insert((*code, page)) {
            continue;
        }
        let is_spared = |route: &&Route| {
            route.conditions.iter().any(|clause| match &clause.condition {
                Condition::Path(paths) => {
                    paths.iter().any(|pattern| matches(pattern, page)) == clause.is_negated
                }
                _ => false,
            })
        };
        let on_the_way = routes.iter().filter(|route| matches(&route.pattern, page) && !is_spared(route));
        let mut on_the_way = on_the_way.scan(false, |is_over, route| {
            let is_asked = !*is_over;
            *is_over |= route.conditions.is_empty();
            is_asked.then_some(route)
        });
        let found = on_the_way.find_map(|route| {
            let is_last = route.conditions.is_empty();
            let login = route.identification.login.as_ref().filter(|_| *code == 401 && is_last);
            let allows = route.access.levels.iter().filter_map(|rules| rules.last_allow());
            let mut some = allows.filter(|rule| rule.whom != Whom::Network(Network::All));
            let allow = some.next().filter(|_| *code == 403 && is_last).map(|rule| &rule.origin);
            let says = matches!(&route.action, Action::Respond { status, .. } if status == code);
            match (login, allow) {
                (Some(login), _) => Some((
                    format!("`login` ({}) asks for a password for it, too", login.origin),
                    format!("write `route \"{page}\" {{ login off }}`"),
                )),
                (_, Some(origin)) => Some((
                    format!("`allow` ({origin}) keeps it from the same clients"),
                    format!("write `route \"{page}\" {{ access off }}`"),
                )),
                _ if says && !matches!(&route.pattern, PathPattern::Exact(path) if path == page) => Some((
                    format!("`respond` ({}) answers for its path as well", route.origin),
                    format!("write `unless path \"{page}\"` in that route"),
                )),
                _ => None,
            }
        });
        let Some((why, help)) = found else { continue };
        for item in error_pages(site, Some(*code), page) {
            let message = format!("nobody sees the error page `{page}` of {code}: {why}");
            let warning = Diagnostic::warning(message).at(&item.file.source, item.header.clone());
            checker.diagnostics.push(warning.help(&*help));
        }
    }
}
