//! A route: its action and the values in force for it.

use std::mem::take;
use std::path::{Path, PathBuf};

use super::inherit::Inherited;
use super::{access, cache, gateway, placeholders};
use crate::check::{Checker, Item, number};
use crate::diagnostic::Diagnostic;
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::settings::{AccessRule, AccessRules, Action, Files, Network, Origin, PathPattern, Route, Try};
use crate::value::{Value, is_name, pattern_text};

/// What says where the answers of a site or a route come from.
const ANSWERS: &[&str] =
    &["root", "alias", "redirect", "respond", "status", "console", "fastcgi", "scgi", "cgi", "proxy"];

/// Lowers a route, or the site itself as its last route.
pub(super) fn route(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    pattern: PathPattern,
    mut inherited: Inherited,
    is_site: bool,
) -> Route {
    let values = inherited.names.values.clone();
    let has_languages = match item.child("languages") {
        Some(own) => !own.is_word("off"),
        None => !inherited.languages.is_empty(),
    };
    let scope =
        placeholders::Scope { pattern: (!is_site).then_some(&pattern), values: &values, has_languages };
    placeholders::check(checker, &item.children, scope);
    let conditions = match is_site {
        true => Vec::new(),
        false => inherited.names.conditions(checker, &item.children),
    };
    // A site hands in its own values, which its routes have had too.
    if !is_site {
        inherited.apply(checker, &item.children);
        inherited.root_is_mistaken |= has_wrong_root(item);
        inherited.root_written_in(item);
        if let Some(block) = item.child("limits").filter(|_| is_name(&pattern)) {
            checker.diagnostics.push(super::limits::unreachable(block, &pattern_text(&pattern)));
        }
    }
    if item.child("try").is_some() {
        check_try(checker, item);
    } else if !is_site && (item.child("root").is_some() || item.child("alias").is_some()) {
        // Another folder is another set of files: the list of the site would hardly fit it.
        inherited.try_list.clear();
    }
    let action = action(checker, disk, item, &pattern, &mut inherited, is_site);
    if !is_site {
        written_root(checker, disk, item, action.root());
    }
    let rewrite = if is_site { None } else { rewrite(checker, item, &action, &pattern) };
    if !is_site
        && let Some(item) = item.child("try")
        && !matches!(action, Action::Files(_))
    {
        ignored_try(checker, item);
    }
    // Who may see a status page may control the server's cache: only an `allow` beside it opens it to others.
    let figures = ["status", "console"].iter().find_map(|name| item.child(name));
    if let Some(figures) = figures.filter(|_| action.always_answers() && item.child("allow").is_none()) {
        if let Some(rule) = access::refusing(&inherited.access.levels, Network::Local) {
            let warning = access::warning(Network::Local, rule);
            checker.diagnostics.push(warning.at(&figures.file.source, figures.header.clone()));
        }
        let rule = AccessRule::of(true, Network::Local, figures.origin());
        inherited.access.levels.push(AccessRules::from(vec![rule]).into());
    }
    // A site has its own; a route has them only where it says so.
    let is_own = !is_site && item.child("trusted-proxies").is_some();
    let trusted_proxies = is_own.then(|| inherited.trusted_proxies.clone());
    let cache = cache::of_route(checker, item, &inherited, &action, is_site);
    inherited.access.is_internal = !is_site && item.child("internal").is_some();
    let has_own_root = !is_site && (item.child("root").is_some() || item.child("alias").is_some());
    Route {
        trusted_proxies,
        conditions,
        rewrite,
        has_own_root,
        cache,
        ..with(inherited, pattern, action, item.origin())
    }
}

/// A route with the values in force.
pub(super) fn with(inherited: Inherited, pattern: PathPattern, action: Action, origin: Origin) -> Route {
    let root_origin = action.root().map(|_| inherited.root_origin);
    Route {
        pattern,
        conditions: Vec::new(),
        values: inherited.names.values,
        action,
        rewrite: None,
        root_origin,
        has_own_root: false,
        access: inherited.access,
        identification: inherited.identification,
        rates: inherited.rates,
        bandwidths: inherited.bandwidths,
        bans: inherited.bans,
        trusted_proxies: None,
        fields: inherited.fields,
        more_fields: inherited.more_fields,
        removed_fields: inherited.removed_fields,
        languages: inherited.languages,
        cors: inherited.cors,
        cache_control: inherited.cache_control,
        cache: None,
        early_hints: inherited.early_hints,
        error_pages: inherited.error_pages,
        intercepts: inherited.intercepts,
        bucket: inherited.bucket,
        slow_after: inherited.slow_after,
        server_timing: inherited.server_timing,
        compress: inherited.compress,
        limits: (inherited.limits != *inherited.limits_of_server).then_some(inherited.limits),
        origin,
    }
}

fn action(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    pattern: &PathPattern,
    inherited: &mut Inherited,
    is_site: bool,
) -> Action {
    // The root of a site is for its routes too, so it may stand beside an answer of the site's own.
    let answers: &[&str] = if is_site {
        &["redirect", "respond", "status", "console", "fastcgi", "scgi", "cgi", "proxy"]
    } else {
        &[
            "redirect", "respond", "hand-to", "status", "console", "fastcgi", "scgi", "cgi", "proxy", "root",
            "alias",
        ]
    };
    // Scripts lie below a root: it may stand beside them.
    let takes_root = ["fastcgi", "scgi", "cgi"].iter().any(|name| item.child(name).is_some());
    let takes_alias = item.child("cgi").is_some();
    let is_beside = |name: &str| takes_root && name == "root" || takes_alias && name == "alias";
    let is_answer = |name: &str| answers.contains(&name) && !is_beside(name);
    let mut given = item.children.iter().filter(|child| is_answer(child.directive.name));
    let first = given.next();
    if let (Some(first), Some(second)) = (first, given.next()) {
        let (one, other) = (first.directive.name, second.directive.name);
        let message = format!("`{other}` stands beside `{one}`, and only one of them can answer");
        checker
            .diagnostics
            .push(second.error(message).help("keep one, or put the other into a `route` of its own"));
    }
    match first.map(|first| (first.directive.name, first)) {
        Some(("redirect", redirect)) => Action::Redirect {
            to: redirect.texts().pop().unwrap_or_default(),
            status: match redirect.property("status") {
                Some(Value::Number(status)) => u16::try_from(status).unwrap_or_default(),
                _ => 0,
            },
        },
        Some(("respond", respond)) => respond_action(checker, respond),
        Some(("hand-to", to)) => hand_to(checker, item, to),
        // Nothing else says how to answer.
        None if item.child("rewrite").is_some() && item.child("try").is_none() => {
            hand_to(checker, item, item.child("rewrite").unwrap_or(item))
        }
        Some(("status", _)) => Action::Status,
        Some(("console", child)) => console(checker, child, pattern, inherited),
        Some(("fastcgi", child)) => gateway::fastcgi(checker, disk, child, inherited),
        Some(("scgi", child)) => gateway::scgi(checker, disk, child, pattern, inherited),
        Some(("cgi", child)) => cgi(checker, disk, item, child, pattern, inherited),
        Some(("proxy", child)) => gateway::proxy(checker, disk, child, inherited),
        _ => files(checker, disk, item, pattern, inherited),
    }
}

/// Routes are chosen anew, and what this one says of answers is lost.
fn hand_to(checker: &mut Checker<'_>, route: &Item, item: &Item) -> Action {
    const OF_ANSWERS: [&str; 15] = [
        "header",
        "expires",
        "cache-control",
        "compress",
        "error-page",
        "intercept",
        "early-hints",
        // And of files.
        "index",
        "listing",
        "precompressed",
        "charset",
        "types",
        "default-type",
        "symlinks",
        "hidden",
    ];
    for child in route.children.iter().filter(|child| OF_ANSWERS.contains(&child.directive.name)) {
        let (name, how) = (child.directive.name, item.directive.name);
        let message =
            format!("`{name}` beside `{how}`: another route answers, and this one adds nothing to it");
        let help = "write it in the route that answers";
        let warning = Diagnostic::warning(message).at(&child.file.source, child.header.clone());
        checker.diagnostics.push(warning.help(help));
    }
    Action::HandTo { to: item.texts().pop().unwrap_or_default() }
}

/// The path that what answers is asked for; nothing where the route is handed on anyway.
fn rewrite(checker: &mut Checker<'_>, item: &Item, action: &Action, pattern: &PathPattern) -> Option<String> {
    let rewrite = item.child("rewrite")?;
    if let (Some(_), PathPattern::Prefix(prefix), Some(to)) =
        (item.child("alias"), pattern, rewrite.texts().pop())
    {
        // Of a path with placeholders only its beginning is known.
        let (fixed, is_whole) = to.split_once('{').map_or((to.as_str(), true), |(fixed, _)| (fixed, false));
        let may_lie_below = fixed.starts_with(prefix.as_str()) || !is_whole && prefix.starts_with(fixed);
        if !may_lie_below && !fixed.contains('%') {
            let message = format!("`rewrite` leads to `{to}`, where the `alias` of `{prefix}*` has nothing");
            let help =
                format!("`alias` cuts off `{prefix}`: begin the path with it, or write `root` in its place");
            checker.diagnostics.push(rewrite.error_at(0, message).help(help));
            return None;
        }
    }
    let needless = match action {
        Action::HandTo { .. } if item.child("hand-to").is_none() => return None,
        Action::HandTo { .. } => "hand-to",
        Action::Redirect { .. } => "redirect",
        Action::Respond { .. } | Action::Close => "respond",
        Action::Status => "status",
        Action::Console { .. } => "console",
        _ => return rewrite.texts().pop(),
    };
    let message = format!("`rewrite` stands beside `{needless}`, which looks at no path");
    checker.diagnostics.push(rewrite.error(message).help("keep one of the two"));
    None
}

/// Its pages and its data lie below the part before the star.
fn console(checker: &mut Checker<'_>, item: &Item, pattern: &PathPattern, inherited: &Inherited) -> Action {
    let prefix = match pattern {
        PathPattern::Prefix(prefix) if prefix.ends_with('/') => prefix.clone(),
        _ => {
            let message =
                "`console` cannot stand in this route: it is several pages, which lie below a folder";
            let help = "end the pattern in `/*`, as in `route \"/.console/*\" { console }`";
            checker.diagnostics.push(item.error(message).help(help));
            String::new()
        }
    };
    let change = item.child("change");
    if let Some(change) = change {
        check_change(checker, change, inherited);
    }
    Action::Console { prefix, may_change: change.is_some() }
}

/// What changes something needs to know who does.
fn check_change(checker: &mut Checker<'_>, item: &Item, inherited: &Inherited) {
    let of_certificate = &inherited.identification.certificates;
    if inherited.identification.login.is_none() && of_certificate.is_empty() {
        let message =
            "`change` stands in a route that lets in whoever comes: nobody would know who changes what";
        let help = "write a `login` in the route, or a `require certificate`; or take `change` out";
        checker.diagnostics.push(item.error(message).help(help));
    }
    if !inherited.applications.has_admin {
        let message = "`change` goes through the admin API, and there is none";
        let help = "write `admin { }` at the top level, or take `change` out";
        checker.diagnostics.push(item.error(message).help(help));
    }
}

fn respond_action(checker: &mut Checker<'_>, item: &Item) -> Action {
    let body = item.texts().pop();
    if item.is_word("close") {
        if body.is_some() || item.property("type").is_some() {
            let message = "`respond close` gives no answer, and so has no text";
            let help = "take the text out, or write a status in place of `close`";
            checker.diagnostics.push(item.error(message).help(help));
        }
        return Action::Close;
    }
    let status = u16::try_from(number(item)).unwrap_or_default();
    if status == 444 {
        let warning = Diagnostic::warning("444 is no status of HTTP, and clients would be sent it");
        let warning = warning.at(&item.file.source, item.header.clone());
        checker.diagnostics.push(
            warning.help("what nginx does with it is `respond close`: the connection ends without an answer"),
        );
    }
    if body.as_ref().is_some_and(|body| !body.is_empty()) && matches!(status, 204 | 205 | 304) {
        let message = format!("a response of status {status} has no text");
        checker.diagnostics.push(item.error_at(1, message).help("take the text out, or answer 200"));
    }
    if status == 304 || status == 206 {
        let message = format!("{status} is no status for a fixed answer");
        checker.diagnostics.push(item.error_at(0, message).help("it only makes sense for files; answer 200"));
    }
    let media_type = match item.property("type") {
        Some(Value::Text(media_type)) => Some(media_type),
        _ => None,
    };
    Action::Respond { status, body, media_type }
}

/// The folder of a route, and what is cut off the front of a path before it is looked up there.
fn below(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    pattern: &PathPattern,
    inherited: &Inherited,
) -> (Option<PathBuf>, Option<String>) {
    let alias = item.child("alias");
    let root = match alias.map(|alias| (alias, alias.first())) {
        Some((alias, Some(Value::Path(path)))) => {
            check_root(checker, disk, alias, path);
            Some(path.clone())
        }
        Some(_) => Some(PathBuf::new()),
        None => inherited.root.clone(),
    };
    let strip_prefix = alias.and_then(|alias| match pattern {
        PathPattern::Prefix(prefix) => {
            if !prefix.is_empty() && !prefix.ends_with('/') {
                let message = format!(
                    "`alias` in `{prefix}*`: `{prefix}x` and `{prefix}/x` are both `x` in its folder"
                );
                let help = format!("write `route \"{prefix}/*\"`, for paths below `{prefix}/` alone");
                let warning = Diagnostic::warning(message).at(&alias.file.source, alias.header.clone());
                checker.diagnostics.push(warning.help(help));
            }
            Some(prefix.clone())
        }
        _ => {
            let message = "`alias` cannot stand in this route: it cuts off the part before the star";
            let help =
                "end the pattern in its one star, as in `route \"/docs/*\" { alias \"/usr/share/doc\" }`";
            checker.diagnostics.push(alias.error(message).help(help));
            None
        }
    });
    (root, strip_prefix)
}

/// CGI scripts below the root or the alias.
fn cgi(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    cgi: &Item,
    pattern: &PathPattern,
    inherited: &Inherited,
) -> Action {
    let (root, strip_prefix) = below(checker, disk, item, pattern, inherited);
    gateway::cgi(checker, disk, cgi, root, strip_prefix.unwrap_or_default(), inherited)
}

fn files(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    pattern: &PathPattern,
    inherited: &mut Inherited,
) -> Action {
    let (root, strip_prefix) = below(checker, disk, item, pattern, inherited);
    let context = if item.directive.name == "site" { Context::Site } else { Context::Route };
    let is_misspelt = inherited.root_is_mistaken || item.misspells(context, ANSWERS);
    if root.is_none() && !is_misspelt {
        let (message, help) = if item.directive.name == "site" {
            (
                "this site says neither where its files are nor what to answer",
                "add `root \"/srv/www\"`, `redirect \"https://…\"` or `respond 404` for what its routes leave",
            )
        } else {
            (
                "this route has no files to serve, for its site has no `root`",
                "add `root` to the site or the route, or say what to answer: `proxy` (what the site says is for the site's own \
                 requests alone), `redirect`, `respond`, `status`",
            )
        };
        checker.diagnostics.push(item.error(message).help(help));
    }
    let mut action = plain_files(inherited);
    if let Action::Files(files) = &mut action {
        files.root = root.unwrap_or_default();
        files.strip_prefix = strip_prefix;
    }
    action
}

/// Files below the root in force. What is said of files is theirs from now on, and nobody else's.
pub(super) fn plain_files(inherited: &mut Inherited) -> Action {
    Action::Files(Files {
        root: take(&mut inherited.root).unwrap_or_default(),
        strip_prefix: None,
        index: take(&mut inherited.index),
        try_list: take(&mut inherited.try_list),
        listing: take(&mut inherited.listing),
        precompressed: take(&mut inherited.precompressed),
        charset: take(&mut inherited.charset),
        types: take(&mut inherited.types),
        default_type: take(&mut inherited.default_type),
        symlinks: inherited.symlinks,
        serves_hidden: inherited.serves_hidden,
        uses_cache: inherited.uses_cache,
    })
}

/// Whether a site or a route has a `root` whose value is wrong, which has been said.
pub(super) fn has_wrong_root(item: &Item) -> bool {
    item.child("root").is_some_and(|root| !matches!(root.first(), Some(Value::Path(_))))
}

/// Looks at the `root` of a site or a route where one of these folders, which answers lie in, is that one.
pub(super) fn written_root<'a>(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    used: impl IntoIterator<Item = &'a Path>,
) {
    if let Some(written) = item.child("root")
        && let Some(Value::Path(path)) = written.first()
        && used.into_iter().any(|used| used == path)
    {
        check_root(checker, disk, written, path);
    }
}

/// Says so when a folder to serve from cannot be served from.
fn check_root(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, path: &Path) {
    let name = item.directive.name;
    let shown = path.display();
    let (message, help) = match disk.what(path) {
        What::Folder if disk.may_enter(path) => return,
        What::Folder | What::Hidden => (
            format!("the {name} {shown} may not be looked into"),
            "give the user that runs the server the right to enter it".to_owned(),
        ),
        What::Missing | What::Dangling => (
            format!("the {name} {shown} does not exist"),
            format!("make it: `mkdir -p {shown}`; a relative path counts from the folder of this file"),
        ),
        What::File | What::Special => {
            (format!("the {name} {shown} is no folder"), "name the folder that the file lies in".to_owned())
        }
    };
    checker.diagnostics.push(item.error_at(0, message).help(help));
}

/// Says that a `try` stands where no files are looked for.
pub(super) fn ignored_try(checker: &mut Checker<'_>, item: &Item) {
    let message = "`try` looks for files, and something else answers here";
    let help = "give the application a route with a name, and the files a `try` that leads to it: `root \"public\"; \
                try \"{path}\" \"@app\"; route \"@app\" { proxy \"http://127.0.0.1:3000\" }`";
    checker.diagnostics.push(item.error(message).help(help));
}

/// Says so when an entry of `try` behind a status or a route would never be looked at.
fn check_try(checker: &mut Checker<'_>, item: &Item) {
    let Some(item) = item.child("try") else { return };
    let is_last = |value: &Value| match value {
        Value::Try(Try::Status(_)) => Some("a status"),
        Value::Try(Try::Route(_)) => Some("a route"),
        _ => None,
    };
    let last = item.arguments.iter().enumerate();
    let last = last.filter_map(|(at, placed)| is_last(&placed.value).map(|what| (at, what))).next();
    if let Some((at, what)) = last
        && at + 1 < item.arguments.len()
    {
        let message = format!("nothing behind {what} is looked at");
        let written = item.file.source.slice(&item.arguments[at].range);
        let help = format!("put `{written}` last, or take out what is behind it");
        checker.diagnostics.push(item.error_at(at + 1, message).help(help));
    }
}
