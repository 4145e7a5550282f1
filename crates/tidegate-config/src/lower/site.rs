//! A site: its names, its routes, and what is wrong among them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::{
    Claims, Server, access_log, cache, closed_targets, dead, error_pages, host_text, idle, load_hook, login,
    overlap, route, tls,
};
use crate::check::{Checker, Item, number};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::include::TopNode;
use crate::settings::gateway::Script;
use crate::settings::{
    Action, Condition, HostPattern, ListenAddress, Listener, PathPattern, Route, Settings, Site, SiteLog, Try,
};
use crate::value::{Value, covers, is_name, pattern_text};

/// Lowers a site. The caller leaves it out if errors were said meanwhile.
pub(super) fn site(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    server: &mut Server,
    claims: &mut Claims,
) -> Site {
    let names = names(checker, item, claims);
    server.rates.check(checker, &item.children);
    let mut inherited = server.inherited.clone();
    inherited.level = match &names[..] {
        [] => "the site without a name".to_owned(),
        [HostPattern::Exact(first), ..] => ["the site ", first].concat(),
        [HostPattern::Suffix(first), ..] => ["the site *", first].concat(),
    };
    inherited.names = inherited.names.with(checker, &item.children);
    inherited.apply(checker, &item.children);
    let logs_in = inherited.identification.login.is_some();
    login::check(checker, &item.children, &server.known, logs_in);
    let users = inherited.identification.login.as_ref().map(|login| login.users.clone());
    login::check_names(checker, &item.children, &server.known, users.as_deref());
    inherited.root_written_in(item);
    inherited.root_is_mistaken = item.misspells(Context::Site, &["root"]) || route::has_wrong_root(item);
    let is_https_only = tls::hsts(&mut inherited);
    let tls = item.child("tls").map(|item| tls::site(checker, item)).unwrap_or_default();
    // Also where the site is reached without TLS: nobody without a certificate gets in.
    inherited.access.requires_client_certificate |=
        tls.clients.as_ref().is_some_and(|clients| clients.is_required);
    let trusts = !inherited.trusted_proxies.is_empty();
    without_tls(checker, item, server, is_https_only && !trusts);
    let is_route = |child: &&Item| child.directive.name == "route";
    // And the site itself, behind them.
    let mut routes: Vec<Route> = Vec::with_capacity(item.children.iter().filter(is_route).count() + 1);
    let mut of_pattern: HashMap<String, u32> = HashMap::new();
    let of_site = inherited.level.clone();
    let mut written: Vec<&Item> = Vec::new();
    for child in item.children.iter().filter(is_route) {
        server.rates.check(checker, &child.children);
        let logs_in = child.child("login").map_or(logs_in, |login| !login.is_word("off"));
        login::check(checker, &child.children, &server.known, logs_in);
        let own = child.child("login").map(|login| login.texts().into_iter().next());
        let users = own.unwrap_or_else(|| users.clone());
        login::check_names(checker, &child.children, &server.known, users.as_deref());
        guards_one_path(checker, disk, item, child, inherited.root.as_deref());
        let Some(pattern) = pattern(checker, child) else {
            // The pattern is wrong; what is inside is looked at all the same.
            let pattern = PathPattern::Exact("/".to_owned());
            route::route(checker, disk, child, pattern, inherited.clone(), false);
            continue;
        };
        let text = pattern_text(&pattern);
        let before = of_pattern.entry(text.clone()).or_default();
        // Several may have the same pattern and other conditions.
        inherited.level = match std::mem::replace(before, *before + 1) {
            0 => format!("the route {text} of {of_site}"),
            before => format!("the route {text} ({}) of {of_site}", before + 1),
        };
        routes.push(route::route(checker, disk, child, pattern, inherited.clone(), false));
        written.push(child);
    }
    unreachable(checker, &routes, &written);
    overlap::check(checker, &routes, &written);
    overlap::hopeless(checker, &routes, &written);
    names_of_routes(checker, item, &routes, &written);
    let everything = PathPattern::Prefix("/".to_owned());
    let is_taken =
        routes.iter().any(|route| route.conditions.is_empty() && covers(&route.pattern, &everything));
    let says_nothing =
        ["root", "redirect", "respond", "status", "console", "fastcgi", "scgi", "cgi", "proxy"]
            .iter()
            .all(|name| item.child(name).is_none());
    paths_of_folders(&mut routes, inherited.root.as_deref());
    let is_cached = inherited.cache.is_some();
    let trusted_proxies = inherited.trusted_proxies.clone();
    let (has_request_id, sampling) = (inherited.has_request_id, inherited.sampling);
    let of_logins = server.known.takes_paths().then(|| inherited.clone());
    routes.push(if is_taken && says_nothing {
        // A route for everything leaves nothing to the site itself, so it need not say what to answer.
        let action = Action::Respond { status: 404, body: None, media_type: None };
        route::with(inherited, everything, action, item.origin())
    } else {
        route::route(checker, disk, item, everything, inherited, true)
    });
    unused_try(checker, item, &routes);
    let inheriting = routes.iter().filter(|route| !route.has_own_root);
    route::written_root(checker, disk, item, inheriting.filter_map(|route| route.action.root()));
    if let Some(own) = item.child("cache").filter(|_| is_cached) {
        cache::check_effect(checker, own, routes.iter());
    }
    sources(checker, item, &routes);
    stripped(checker, &routes, &written);
    error_pages::check(checker, disk, item, &routes);
    closed_targets::check(checker, item, &routes, &written);
    if let Some(log) = item.child("access-log") {
        server.logs.add(checker, disk, log);
    }
    let access_log = match item.child("access-log").map(|log| access_log(checker, disk, log)) {
        None => SiteLog::Inherited,
        Some(None) => SiteLog::Off,
        Some(Some(log)) => SiteLog::Own(log),
    };
    let bound = bound(checker, item, server, &names);
    if let Some(inherited) = of_logins {
        let taken = login::taken(checker, item, &server.known, &routes, &inherited);
        routes.splice(0..0, taken);
    }
    let hooks = load_hook::hooks(checker, disk, &item.children, load_hook::OF_SITES);
    let origin = item.origin();
    let mut site = Site {
        names,
        routes,
        trusted_proxies,
        has_request_id,
        sampling,
        access_log,
        bound,
        tls,
        is_https_only,
        hooks,
        left_out: None,
        origin,
    };
    load_hook::count(&mut site);
    site
}

/// The listeners that a site answers on.
fn bound(
    checker: &mut Checker<'_>,
    site: &Item,
    server: &Server,
    names: &[HostPattern],
) -> Vec<ListenAddress> {
    let Some(item) = site.child("bind") else { return Vec::new() };
    let listeners = &server.settings.listeners;
    let mut bound = Vec::with_capacity(item.arguments.len());
    for placed in &item.arguments {
        let Value::Address(address) = &placed.value else { continue };
        if !listeners.iter().any(|listener| listener.address == *address) {
            let known: Vec<String> =
                listeners.iter().map(|listener| format!("`\"{}\"`", listener.address)).collect();
            let error = Diagnostic::error(format!("nothing listens on `{address}`"));
            let help = format!("name a `listen` of the top level: {}", known.join(", "));
            checker.diagnostics.push(error.at(&item.file.source, placed.range.clone()).help(help));
        }
        bound.push(address.clone());
    }
    let names: Vec<String> = names.iter().map(host_text).collect();
    let is_default = |listener: &&Listener| {
        listener.default_site.as_ref().is_some_and(|name| names.contains(name))
            && !bound.contains(&listener.address)
    };
    if let Some(listener) = listeners.iter().find(is_default) {
        let message =
            format!("the site is the default of `listen \"{}\"`, which it is not bound to", listener.address);
        checker
            .diagnostics
            .push(item.error(message).help("bind it there, too, or let another be the default"));
    }
    bound
}

/// Which paths a route is for.
fn pattern(checker: &mut Checker<'_>, route: &Item) -> Option<PathPattern> {
    let regex = route.properties.iter().find(|(name, _)| *name == "regex");
    let regex = regex.map(|(_, placed)| match &placed.value {
        Value::Regex(regex) => Some(PathPattern::Regex(regex.clone())),
        _ => None,
    });
    match (route.first(), regex) {
        (Some(Value::Pattern(pattern)), None) => Some(pattern.clone()),
        (None, Some(regex)) => regex,
        (Some(_), Some(_)) => {
            let message = "the route has a pattern and a regular expression";
            checker
                .diagnostics
                .push(route.error_at(0, message).help("keep the one that says all that is meant"));
            None
        }
        // What is wrong with a value has been said.
        _ if route.header != route.name => None,
        _ => {
            let message = "`route` needs a value: pattern";
            let help = format!(
                "for example `{}`, or `route regex=#\"^/u/(?<id>[0-9]+)$\"#`",
                route.directive.example
            );
            checker.diagnostics.push(route.error(message).help(help));
            None
        }
    }
}

/// Warns of a route that keeps people out of a folder's own path, and not of what lies below it: elsewhere a slash at the end
/// means both.
fn guards_one_path(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    site: &Item,
    route: &Item,
    root: Option<&Path>,
) {
    const GUARDS: [&str; 10] = [
        "internal",
        "login",
        "require",
        "allow",
        "deny",
        "limit",
        "ban",
        "require-client-certificate",
        "signed",
        "methods",
    ];
    // What keeps everybody out; a folder without a page of its own is another matter.
    let refuses = |child: &Item| {
        child.directive.name == "respond" && matches!(number(child), 401 | 403 | 404 | 410 | 451)
    };
    let Some(Value::Pattern(PathPattern::Exact(path))) = route.first() else { return };
    let is_guard =
        |child: &&Item| (GUARDS.contains(&child.directive.name) || refuses(child)) && !child.is_word("off");
    let guard = route.children.iter().find(is_guard);
    let Some(guard) = guard.filter(|_| path.len() > 1) else { return };
    let below = path.trim_end_matches('/');
    // Without a slash at its end it may be that of a file; where the files say that it is a folder, it is not.
    let is_folder = |root: &Path| disk.what(&root.join(below.trim_start_matches('/'))) == What::Folder;
    if !path.ends_with('/') && !root.is_some_and(is_folder) {
        return;
    }
    // What lies below it may have a route of its own.
    let all_below = PathPattern::Prefix(format!("{below}/"));
    let is_all_below =
        |item: &Item| matches!(item.first(), Some(Value::Pattern(known)) if *known == all_below);
    if site.children.iter().any(|item| item.directive.name == "route" && is_all_below(item)) {
        return;
    }
    let message = format!(
        "`{}` holds here for the path `{path}` alone, not for what lies below it",
        guard.directive.name
    );
    let warning = Diagnostic { severity: Severity::Warning, ..route.error_at(0, message) };
    checker.diagnostics.push(warning.help(format!("write `route \"{below}/*\"` for all of it")));
}

/// Warns of what needs TLS where it is not spoken, or asks for what nobody is asked for.
fn without_tls(checker: &mut Checker<'_>, site: &Item, server: &Server, is_plain_https: bool) {
    let mut warn = |item: &Item, message: &str, help: &str| {
        let warning = Diagnostic::warning(message).at(&item.file.source, item.header.clone());
        checker.diagnostics.push(warning.help(help));
    };
    let tls = site.child("tls");
    if server.has_no_tls() {
        let is_meant =
            |tls: &&Item| ["certificate", "client-certificates"].iter().any(|name| tls.child(name).is_some());
        if let Some(tls) = tls.filter(is_meant) {
            let requires = |clients: &Item| matches!(clients.property("mode"), Some(Value::Word("required")));
            let message = match tls.child("client-certificates").is_some_and(requires) {
                true => {
                    "no `listen` speaks TLS, so nobody can show a client certificate: what demands one is answered 403"
                }
                false => "no `listen` speaks TLS: this is never used, and the site is served unencrypted",
            };
            warn(tls, message, "write `listen \":443\" { tls }`, or take this out");
        }
        if let Some(hsts) = site.child("hsts").filter(|_| is_plain_https) {
            warn(hsts, tls::HSTS_WITHOUT_TLS, tls::HSTS_HELP);
        }
    }
    if tls.is_some_and(|tls| tls.child("client-certificates").is_some()) {
        return;
    }
    let routes = site.children.iter().filter(|child| child.directive.name == "route");
    for block in std::iter::once(site).chain(routes) {
        let of_names = block.children.iter().find(|child| {
            child.directive.name == "require" && matches!(child.first(), Some(Value::Word("certificate")))
        });
        let required = block.child("require-client-certificate").filter(|item| !item.is_word("off"));
        if let Some(required) = required.or(of_names) {
            let message =
                "nobody gets in here: the site has no `client-certificates`, so nobody is asked for one";
            let help = "add `tls { client-certificates \"authorities.pem\" mode=optional }` to the site, or take this out";
            warn(required, message, help);
        }
    }
}

fn names(checker: &mut Checker<'_>, item: &Item, claims: &mut Claims) -> Vec<HostPattern> {
    let origin = item.origin();
    let mut names: Vec<HostPattern> = Vec::with_capacity(item.arguments.len());
    for placed in &item.arguments {
        let Value::Host(host) = &placed.value else { continue };
        let error = |message: String| Diagnostic::error(message).at(&item.file.source, placed.range.clone());
        if let Some(other) = claims.claim(Some(host.clone()), &origin) {
            if names.contains(host) {
                let message = format!("`{}` stands twice in this site", host_text(host));
                checker.diagnostics.push(error(message).help("take one of the two out"));
                continue;
            }
            claims.contest(Some(host.clone()));
            let message = format!("`{}` is the name of another site already", host_text(host));
            let help = format!("it stands in {other}; give it to one of the two");
            checker.diagnostics.push(error(message).help(help));
        }
        names.push(host.clone());
    }
    // A site whose names are all wrong is not one without a name.
    if item.header == item.name
        && let Some(other) = claims.claim(None, &origin)
    {
        claims.contest(None);
        let message = "there is another site without a name already";
        let help = format!("it stands in {other}; give one of the two a name");
        checker.diagnostics.push(item.error(message).help(help));
    }
    names
}

/// `try` leads to routes that there are, and each route with a name has a `try` that leads to it.
fn names_of_routes(checker: &mut Checker<'_>, site: &Item, routes: &[Route], written: &[&Item]) {
    let named: HashSet<&str> = routes
        .iter()
        .filter_map(|route| match &route.pattern {
            PathPattern::Exact(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let mut used: HashSet<&str> = HashSet::new();
    for item in std::iter::once(site).chain(written.iter().copied()).filter_map(|item| item.child("try")) {
        for (at, placed) in item.arguments.iter().enumerate() {
            let Value::Try(Try::Route(name)) = &placed.value else { continue };
            used.insert(name);
            if !named.contains(name.as_str()) {
                let message = format!("this site has no route `{name}`");
                let help = format!("add it: `route \"{name}\" {{ proxy \"http://127.0.0.1:3000\" }}`");
                checker.diagnostics.push(item.error_at(at, message).help(help));
            }
        }
    }
    for (route, item) in routes.iter().zip(written).filter(|(route, _)| is_name(&route.pattern)) {
        let name = pattern_text(&route.pattern);
        if let Some(clause) = item.child("when").or(item.child("unless")) {
            let message =
                format!("`{}` in the route `{name}`, which is chosen by its name", clause.directive.name);
            let help = "no condition is asked for here; write it in the routes that lead here";
            checker.diagnostics.push(clause.error(message).help(help));
        }
        if let Some(word) = item.child("internal") {
            let message = format!("`internal` in the route `{name}`, which no client reaches anyway");
            let warning = Diagnostic::warning(message).at(&word.file.source, word.header.clone());
            checker.diagnostics.push(warning.help("take it out: no path matches a name"));
        }
        if !used.contains(name.as_str()) {
            let message = format!("nothing leads to the route `{name}`");
            let help =
                format!("no path matches a name; write `try \"{{path}}\" \"{name}\"` where it is meant");
            checker
                .diagnostics
                .push(Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help));
        }
    }
}

/// A folder's path without its slash leads to it, also where a route begins with the folder: the same route again
/// for that path alone. Behind all that were written, so that one for that very path has the first word.
fn paths_of_folders(routes: &mut Vec<Route>, of_site: Option<&Path>) {
    let folders = routes.iter().filter_map(|route| {
        let PathPattern::Prefix(prefix) = &route.pattern else { return None };
        let path = prefix.strip_suffix('/').filter(|path| !path.is_empty())?;
        let leads_to_it = match &route.action {
            // What lies below the root of the site is found there.
            Action::Files(files) => files.strip_prefix.is_some() || Some(&*files.root) != of_site,
            Action::Console { .. } => true,
            _ => false,
        };
        leads_to_it.then(|| Route { pattern: PathPattern::Exact(path.to_owned()), ..route.clone() })
    });
    let folders: Vec<Route> = folders.collect();
    routes.extend(folders);
}

/// Says so when a `try` has no files to look for: beside an application, nothing looks at it.
fn unused_try(checker: &mut Checker<'_>, site: &Item, routes: &[Route]) {
    let Some(item) = site.child("try") else { return };
    if !routes.iter().any(|route| matches!(route.action, Action::Files(_))) {
        route::ignored_try(checker, item);
    }
}

/// Endings of scripts that run as programs or not at all.
const SCRIPTS: [&str; 4] = [".php", ".phtml", ".cgi", ".pl"];

/// Warns where `index` or `try` lead to scripts that are sent as files; and where everything is for an application that runs
/// scripts alone, and nothing leads to them.
fn sources(checker: &mut Checker<'_>, site: &Item, routes: &[Route]) {
    let is_script = |name: &str| SCRIPTS.iter().any(|ending| name.to_ascii_lowercase().ends_with(ending));
    // Whether all that may answer for a path sends files.
    let is_sent = |path: &str| {
        // What a program of the site runs is never sent, wherever it lies.
        if routes.iter().any(|route| route.action.owns_source(path.as_bytes())) {
            return false;
        }
        let mut asked = routes.iter().filter(|route| matches(&route.pattern, path));
        asked
            .find_map(|route| match &route.action {
                Action::Files(_) if route.conditions.is_empty() => Some(true),
                Action::Files(_) => None,
                _ => Some(false),
            })
            .unwrap_or(false)
    };
    let of_site = site.children.iter().find(|item| matches!(item.directive.name, "index"));
    for route in routes {
        let Action::Files(files) = &route.action else { continue };
        let folder = match &route.pattern {
            PathPattern::Prefix(prefix) if prefix.ends_with('/') => prefix.as_str(),
            _ => "/",
        };
        let of_index = files.index.iter().map(|name| (name, format!("{folder}{name}")));
        let of_try = files.try_list.iter().filter_map(|entry| match entry {
            Try::Path(path) => Some((path, path.replace("{path}", &format!("{folder}x")))),
            _ => None,
        });
        let named: Vec<_> =
            of_index.map(|one| ("index", one)).chain(of_try.map(|one| ("try", one))).collect();
        let found = named.iter().find(|(_, (name, path))| {
            let path = path.split('?').next().unwrap_or_default();
            is_script(name.split('?').next().unwrap_or_default()) && is_sent(path)
        });
        let Some((directive, (name, _))) = found else { continue };
        let blocks = site.children.iter().filter(|item| item.directive.name == "route");
        let block = blocks.into_iter().find(|block| block.origin() == route.origin);
        let item = block.and_then(|block| block.child(directive)).or(site.child(directive)).unwrap_or(site);
        let message =
            format!("`{directive}` names `{name}`, and nothing runs it: whoever asks gets its source");
        let ending = name.rsplit('.').next().and_then(|ending| ending.split('?').next()).unwrap_or_default();
        let help = match ending {
            "php" | "phtml" => format!(
                "add `route \"*.{ending}\" {{ fastcgi \"unix:/run/php/php-fpm.sock\" }}`, or a `pool` that runs PHP"
            ),
            _ => format!("add a route that runs it: `route \"*.{ending}\" {{ cgi }}`"),
        };
        let warning = Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help);
        if !checker.diagnostics.contains(&warning) {
            checker.diagnostics.push(warning);
        }
    }
    let Some(Action::Fastcgi(application) | Action::Scgi(application)) =
        routes.last().map(|route| &route.action)
    else {
        return;
    };
    let (Script::Suffixes(suffixes), Some(index)) = (&application.script, of_site) else { return };
    let name =
        index.texts().into_iter().find(|name| suffixes.iter().any(|suffix| name.ends_with(suffix.as_str())));
    let Some(name) = name else { return };
    let Some(item) = ["fastcgi", "scgi"].iter().find_map(|name| site.child(name)) else { return };
    let (how, suffix) = (item.directive.name, suffixes.first().map_or("", String::as_str));
    let to = item.arguments.first().map_or("", |placed| item.file.source.slice(&placed.range));
    let message = format!(
        "`{how}` answers for the whole site here, so `index` is asked of nobody: `/` and every path that names no `{suffix}` is 404"
    );
    let help =
        format!("write `try \"{{path}}\" \"/{name}\"; route \"*{suffix}\" {{ {how} {to} }}` in its place");
    checker
        .diagnostics
        .push(Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help));
}

/// Warns of a `strip-prefix` that no path of its route begins with.
fn stripped(checker: &mut Checker<'_>, routes: &[Route], written: &[&Item]) {
    for (route, item) in routes.iter().zip(written) {
        let (Action::Proxy(proxy), None) = (&route.action, &route.rewrite) else { continue };
        let Some(prefix) = proxy.strip_prefix.as_deref().filter(|prefix| !prefix.is_empty()) else {
            continue;
        };
        let begins = match &route.pattern {
            pattern if is_name(pattern) => continue,
            PathPattern::Exact(text) | PathPattern::Prefix(text) => text.as_str(),
            PathPattern::Pieces(pieces) => pieces.first().map_or("", String::as_str),
            PathPattern::Suffix(_) | PathPattern::Regex(_) => continue,
        };
        if begins.starts_with(prefix)
            || prefix.starts_with(begins) && !matches!(route.pattern, PathPattern::Exact(_))
        {
            continue;
        }
        let Some(strip) = item.child("proxy").and_then(|proxy| proxy.child("strip-prefix")) else { continue };
        let text = pattern_text(&route.pattern);
        let message = format!("no path of the route `{text}` begins with `{prefix}`: nothing is cut off");
        let own = begins.trim_end_matches('/');
        let help = format!("write `strip-prefix \"{own}\"`, or take it out");
        checker
            .diagnostics
            .push(Diagnostic::warning(message).at(&strip.file.source, strip.header.clone()).help(help));
    }
}

/// Warns of conditions that ask for hosts which the site is never asked for, and of a name that stands for no host.
pub(super) fn of_other_hosts(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let sources = login::sources_by_name(nodes);
    for (at, site) in settings.sites.iter().enumerate() {
        if site.names.iter().any(|name| matches!(name, HostPattern::Exact(name) if name == "_")) {
            let message = "`_` is a name like any other here: no client asks for a host that is called so";
            let help = "write `site { … }` for what no other site claims";
            login::point_at(checker, &sources, &site.origin, Diagnostic::warning(message).help(help));
        }
        // It may be asked for what no site claims.
        let is_default = |listener: &Listener| match &listener.default_site {
            Some(name) => site.names.iter().any(|own| host_text(own) == *name),
            None => at == 0 && settings.sites.iter().all(|site| !site.names.is_empty()),
        };
        if site.names.is_empty() || settings.listeners.iter().any(is_default) {
            continue;
        }
        for clause in site.routes.iter().flat_map(|route| &route.conditions) {
            let Condition::Host(hosts) = &clause.condition else { continue };
            let is_asked = |host: &HostPattern| site.names.iter().any(|name| idle::overlaps(name, host));
            if clause.is_negated || hosts.iter().any(is_asked) {
                continue;
            }
            let message =
                format!("this never holds: the site is asked for {} alone", idle::listed(&site.names));
            let help = "name the host in the `site`, or write a site of its own for it";
            login::point_at(checker, &sources, &clause.origin, Diagnostic::warning(message).help(help));
        }
    }
}

/// Whether a pattern matches a path.
pub(super) fn matches(pattern: &PathPattern, path: &str) -> bool {
    pattern.matches(path.as_bytes())
}

/// Warns of routes that an earlier one leaves nothing for.
fn unreachable(checker: &mut Checker<'_>, routes: &[Route], written: &[&Item]) {
    let mut seen = Seen::default();
    for (at, (later, item)) in routes.iter().zip(written).enumerate() {
        let earlier = seen.first_that_covers(&later.pattern);
        seen.add(later);
        let text = pattern_text(&later.pattern);
        let (message, help) = if let Some(earlier) = earlier {
            let help = format!(
                "`{}` in line {} matches all that it matches and comes first; put the narrower route above it",
                pattern_text(&earlier.pattern),
                earlier.origin.line
            );
            (format!("the route `{text}` can never match"), help)
        } else if is_regex(&later.pattern)
            || at <= TOGETHER && routes[..at].iter().any(|route| is_regex(&route.pattern))
        {
            if at > TOGETHER || is_name(&later.pattern) {
                continue;
            }
            let above: Vec<&Route> = routes[..at]
                .iter()
                .filter(|route| route.conditions.is_empty() && !is_name(&route.pattern))
                .collect();
            let patterns: Vec<&PathPattern> = above.iter().map(|route| &route.pattern).collect();
            if dead::is_covered(&later.pattern, &patterns) != Some(true) {
                continue;
            }
            let lines: Vec<String> = above.iter().map(|route| route.origin.line.to_string()).collect();
            let help = match lines.as_slice() {
                [] => "no path is so: each begins with `/`, and holds no `.`, `..` or doubled `/`".to_owned(),
                [line] => format!(
                    "the route in line {line} matches all that it matches; put the narrower route above it"
                ),
                lines => format!(
                    "the routes in lines {} together match all that it matches; put the narrower route above them",
                    lines.join(", ")
                ),
            };
            (format!("the route `{text}` can never match"), help)
        } else {
            continue;
        };
        checker
            .diagnostics
            .push(Diagnostic::warning(message).at(&item.file.source, item.header.clone()).help(help));
    }
}

/// Most routes that are compared with all above them taken together.
const TOGETHER: usize = 64;

fn is_regex(pattern: &PathPattern) -> bool {
    matches!(pattern, PathPattern::Regex(_))
}

/// Most patterns with stars in their middle that later routes are compared with one by one.
const COMPARED: usize = 200;

/// Routes in their order, so that the first that covers another is found without a look at each.
#[derive(Default)]
struct Seen<'a> {
    exact: HashMap<&'a str, (usize, &'a Route)>,
    prefixes: HashMap<&'a str, (usize, &'a Route)>,
    suffixes: HashMap<&'a str, (usize, &'a Route)>,
    others: Vec<(usize, &'a Route)>,
    count: usize,
}

impl<'a> Seen<'a> {
    fn add(&mut self, route: &'a Route) {
        let place = (self.count, route);
        self.count += 1;
        if !route.conditions.is_empty() {
            return; // others may come behind it
        }
        match &route.pattern {
            PathPattern::Exact(text) => drop(self.exact.entry(text).or_insert(place)),
            PathPattern::Prefix(text) => drop(self.prefixes.entry(text).or_insert(place)),
            PathPattern::Suffix(text) => drop(self.suffixes.entry(text).or_insert(place)),
            PathPattern::Pieces(_) | PathPattern::Regex(_) if self.others.len() < COMPARED => {
                self.others.push(place);
            }
            PathPattern::Pieces(_) | PathPattern::Regex(_) => {}
        }
    }

    fn first_that_covers(&self, later: &PathPattern) -> Option<&'a Route> {
        // What stands in front of its first star, and behind its last.
        let (front, back) = match later {
            PathPattern::Exact(text) => (text.as_str(), text.as_str()),
            PathPattern::Prefix(text) => (text.as_str(), ""),
            PathPattern::Suffix(text) => ("", text.as_str()),
            PathPattern::Pieces(pieces) => {
                (pieces.first().map_or("", String::as_str), pieces.last().map_or("", String::as_str))
            }
            PathPattern::Regex(_) => ("", ""),
        };
        let cuts = |text: &'_ str| -> Vec<usize> {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect()
        };
        let prefixes = cuts(front).into_iter().filter_map(|at| self.prefixes.get(&front[..at]));
        let suffixes = cuts(back).into_iter().filter_map(|at| self.suffixes.get(&back[at..]));
        let everything = self.prefixes.get("/").into_iter();
        let same = self.exact.get(front).into_iter();
        let found = prefixes.chain(suffixes).chain(everything).chain(same).chain(&self.others);
        let found = found.filter(|(_, earlier)| covers(&earlier.pattern, later));
        found.min_by_key(|(at, _)| *at).map(|(_, route)| *route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_finds_what_a_look_at_each_finds(
            texts in prop::collection::vec("(/|/a|/b|/a/|\\*|/\\*)(a|b|\\*|\\.x|)(b|\\*|\\*\\.x|/|)", 1..12)
        ) {
            let text: String = texts.iter().map(|text| format!("route \"{text}\" {{ respond 200 }}\n")).collect();
            let text = format!("listen \":1\"\nsite {{ respond 200\n{text} }}\n");
            let loaded = crate::load_str("s", &text, Path::new("/"), &crate::ProcessEnvironment);
            let Some(settings) = loaded.settings else { return Ok(()) };
            let routes = &settings.sites[0].routes;
            let mut seen = Seen::default();
            for (at, later) in routes.iter().enumerate() {
                let slow = routes[..at].iter().find(|earlier| earlier.conditions.is_empty() && covers(&earlier.pattern, &later.pattern));
                let fast = seen.first_that_covers(&later.pattern);
                prop_assert_eq!(fast.map(|route| &route.origin), slow.map(|route| &route.origin), "{}", text);
                seen.add(later);
            }
        }
    }
}
