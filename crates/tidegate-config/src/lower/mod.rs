//! Checked items to `Settings`: the only part of loading that is written by hand for each directive.
//!
//! `server` lowers the top level, `site` one site, `route` what a route does, `inherit` what comes down from
//! the top level to a site to a route. Bounds and defaults are not known here: they come from the table.

mod access;
mod admin;
pub(crate) mod cache;
mod closed_targets;
mod dead;
mod directory;
mod dns;
mod error_pages;
mod forward;
mod gateway;
mod idle;
pub(crate) mod inherit;
mod limit_store;
pub(crate) mod limits;
mod listen;
mod load_hook;
mod login;
pub(crate) mod logs;
mod openid;
mod otlp;
mod overlap;
mod placeholders;
mod pool;
mod rates;
mod route;
pub(crate) mod rules;
mod same_origin;
mod server;
mod service;
mod site;
pub(crate) mod tls;
mod tokens;
mod upstream;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::check::{Checker, File, Item};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::{Context, Directive};
use crate::directives;
use crate::disk::{Disk, What};
use crate::environment::Environment;
use crate::include::TopNode;
use crate::load::{LeftOut, RejectedSite};
use crate::settings::gateway::Destination;
use crate::settings::{
    AccessFormat, AccessLog, AcmeChallenge, Action, HostPattern, Listener, Listing, LogTarget, NetworkSet,
    Origin, PathPattern, Route, Sampling, Settings, Site,
};
use crate::source::Source;
use crate::suggest;
use crate::syntax::document::{Literal, Node};
use crate::value::Value;

pub(crate) use server::{Server, server};

/// Which name is whose, of all sites of the files, those with mistakes too: a mistake in one site must not
/// hand its names to another.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// `None` for being without a name.
    sites: HashMap<Option<HostPattern>, Origin>,
    /// What more than one site claims.
    contested: Vec<Option<HostPattern>>,
}

impl Claims {
    /// Gives a name to the site at `origin`. Where one has it already, that one's place: [`Claims::contest`] says that another
    /// site wants it.
    pub fn claim(&mut self, name: Option<HostPattern>, origin: &Origin) -> Option<Origin> {
        match self.sites.entry(name) {
            Entry::Vacant(place) => {
                place.insert(origin.clone());
                None
            }
            Entry::Occupied(place) => Some(place.get().clone()),
        }
    }

    /// More than one site claims a name.
    pub fn contest(&mut self, name: Option<HostPattern>) {
        self.contested.push(name);
    }
}

/// Lowers every site by itself. Those with a mistake are added to `left_out`, which holds what was lost with
/// whole files already; what more than one site claims comes back.
pub(crate) fn sites(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    nodes: &[TopNode],
    server: &mut Server,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Option<HostPattern>> {
    let mut claims = Claims::default();
    claims.sites.reserve(nodes.len());
    for lost in left_out.iter() {
        let site = &lost.site;
        for host in site.names.iter().filter_map(|name| crate::value::host(name)) {
            if claims.claim(Some(host.clone()), &site.origin).is_some() {
                claims.contest(Some(host));
            }
        }
    }
    for TopNode { file, node, mistakes, lost } in nodes.iter().filter(|top| top.node.name == "site") {
        let start = checker.diagnostics.len();
        let Some(item) = checker.item(file, node, Context::Top) else { continue };
        // The names of what was lost with a whole file are claimed already, by that file.
        let mut of_file = Claims::default();
        let claims = if lost.is_some() { &mut of_file } else { &mut claims };
        let site = site::site(checker, disk, &item, server, claims);
        access::without_database(checker, &server.settings, file, node, &site);
        let end = checker.diagnostics.len();
        if let Some(lost) = lost.and_then(|at| left_out.get_mut(at)) {
            lost.diagnostics.push(start..end);
            lost.read.push(Arc::new(site));
        } else if !node.is_broken && !checker.diagnostics[start..].iter().any(Diagnostic::is_error) {
            server.settings.sites.push(Arc::new(site));
        } else {
            let names = item.arguments.iter().filter_map(|placed| match &placed.value {
                Value::Host(host) => Some(host_text(host)),
                _ => None,
            });
            let mut names: Vec<String> = names.collect();
            // What is left out must still be called by something.
            let mut written = node.arguments().filter_map(|entry| match &entry.value {
                Literal::Text(name) => Some(name.clone()),
                _ => None,
            });
            let has_unread_names = node.is_header_broken || names.len() < node.arguments().count();
            if names.is_empty() {
                names.extend(written.next());
            }
            let origin = item.origin();
            let read = vec![Arc::new(site)];
            let before = server.settings.sites.len();
            let site = RejectedSite { names, has_unread_names, origin, is_whole_file: false, before };
            left_out.push(LeftOut { site, diagnostics: vec![mistakes.clone(), start..end], read });
        }
    }
    claims.contested
}

/// Adds the pool that starts CGI scripts where a route wants it and nobody has written it.
pub(crate) fn implied_pools(checker: &mut Checker<'_>, settings: &mut Settings) {
    let is_wanted = settings.sites.iter().flat_map(|site| &site.routes).any(|route| match &route.action {
        Action::Cgi(application) => application.gateway.to == Destination::Named("cgi".to_owned()),
        _ => false,
    });
    if is_wanted && !settings.pools.iter().any(|pool| pool.name == "cgi") {
        settings.pools.extend(pool::plain_cgi(checker));
    }
}

/// Adds a group for each host that routes and logins name in place of one: it is looked up as any member is.
pub(crate) fn implied_upstreams(checker: &mut Checker<'_>, settings: &mut Settings) {
    let routes = settings.sites.iter().flat_map(|site| &site.routes);
    let of_routes = routes.filter_map(|route| {
        let gateway = match &route.action {
            Action::Proxy(proxy) => &proxy.gateway,
            Action::Fastcgi(application) | Action::Scgi(application) => &application.gateway,
            _ => return None,
        };
        Some((&gateway.to, &route.origin))
    });
    let of_users =
        settings.users.iter().flat_map(|users| users.gateways().map(|gateway| (&gateway.to, &users.origin)));
    let mut hosts: Vec<(String, Origin)> = Vec::new();
    for (to, origin) in of_routes.chain(of_users) {
        match to {
            Destination::Named(name)
                if name.contains(':') && !hosts.iter().any(|(known, _)| known == name) =>
            {
                hosts.push((name.clone(), origin.clone()));
            }
            _ => {}
        }
    }
    for (host, origin) in hosts {
        settings.upstreams.extend(upstream::of_host(checker, &host, &origin));
    }
}

/// Checks what only shows once all is read: something to listen on, something to serve, names that exist.
pub(crate) fn consistency(
    checker: &mut Checker<'_>,
    server: &Server,
    left_out: &[LeftOut],
    nodes: &[TopNode],
    main: &Source,
) {
    let settings = &server.settings;
    let has = |name: &str| nodes.iter().any(|top| top.node.name == name);
    let is_misspelt = |name: &str| {
        nodes.iter().any(|top| {
            let word = &top.node.name;
            directives::find(Context::Top, word).is_none() && suggest::means(word, Context::Top, &[name])
        })
    };
    if !has("listen") && !is_misspelt("listen") {
        let message = format!("{} names nothing to listen on", main.name);
        checker.diagnostics.push(
            Diagnostic::error(message)
                .help("add `listen \"127.0.0.1:8080\"`, or `listen \":80\"` for every address"),
        );
    }
    if !has("site") && left_out.is_empty() && !is_misspelt("site") {
        let message = format!("{} holds no site", main.name);
        checker.diagnostics.push(Diagnostic::error(message).help("add `site { root \"/srv/www\" }`"));
    }
    upstream::reach(checker, settings);
    cache::check_roots(checker, settings, nodes);
    certificates(checker, server, left_out);
    login::without_tls(checker, settings, nodes);
    login::limits_of_nobody(checker, settings, nodes);
    access::without_database_around(checker, settings, nodes);
    if left_out.is_empty() && !checker.diagnostics.iter().any(Diagnostic::is_error) {
        idle::check(checker, server, nodes);
        same_origin::check(checker, settings, nodes);
        site::of_other_hosts(checker, settings, nodes);
    }
    let is_plain = |site: &Arc<Site>| site.is_https_only && site.trusted_proxies.is_empty();
    let hsts = nodes.iter().find(|top| top.node.name == "hsts");
    if let Some(top) = hsts.filter(|_| server.has_no_tls() && settings.sites.iter().any(is_plain)) {
        let warning = Diagnostic::warning(tls::HSTS_WITHOUT_TLS).help(tls::HSTS_HELP);
        checker.diagnostics.push(warning.at(&top.file.source, top.node.name_range.clone()));
    }
    if settings.listeners.iter().all(|listener| listener.default_site.is_none()) {
        return;
    }
    let known: Vec<String> = settings.sites.iter().flat_map(|site| &site.names).map(host_text).collect();
    let rejected = left_out.iter().flat_map(|left| left.site.names.iter().map(String::as_str));
    let is_known: HashSet<&str> = known.iter().map(String::as_str).chain(rejected).collect();
    for (listener, item) in settings.listeners.iter().zip(&server.listeners) {
        let (Some(name), Some(item)) = (&listener.default_site, item.child("default-site")) else { continue };
        if is_known.contains(name.as_str()) {
            continue;
        }
        let near = suggest::nearest(name, known.iter().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `site \"{name}\" {{ … }}`, or take the line out"),
        };
        checker.diagnostics.push(item.error_at(0, format!("no site is named `{name}`")).help(help));
    }
}

/// Says so where TLS is spoken and no certificate can be shown: every handshake would fail without a word.
fn certificates(checker: &mut Checker<'_>, server: &Server, left_out: &[LeftOut]) {
    let sites = &server.settings.sites;
    let can_have_one = |site: &Arc<Site>| !site.names.is_empty() || !site.tls.certificates.is_empty();
    // The name of a site that is left out says enough.
    let is_any = sites.iter().any(can_have_one) || left_out.iter().any(|left| !left.site.names.is_empty());
    let nameless = sites.iter().find(|site| !can_have_one(site));
    let is_got = |site: &Arc<Site>| !site.names.is_empty() && site.tls.certificates.is_empty();
    let is_plain = |listener: &Listener| listener.tls.is_none();
    let cannot_be_shown = server.settings.acme.challenges == [AcmeChallenge::Http01]
        && sites.iter().any(is_got)
        && !server.settings.listeners.iter().any(is_plain);
    let is_automatic =
        |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.certificate.is_none());
    let listeners = server.settings.listeners.iter().zip(&server.listeners);
    for (listener, item) in listeners {
        if let (Some(site), true) = (nameless, is_any)
            && is_automatic(listener)
            && listener.default_site.is_none()
            && let Some(tls) = item.child("tls")
        {
            let message = format!(
                "the site without a name ({}) has no certificate: who asks for a name that no site has cannot connect \
                 here",
                site.origin
            );
            let help = "give it one, `tls { certificate \"site.pem\" key=\"site.key\" }`, or let a site with a name \
                        answer here: `default-site \"example.com\"`";
            let warning = Diagnostic { severity: Severity::Warning, ..tls.error(message) };
            checker.diagnostics.push(warning.help(help));
        }
        if cannot_be_shown && let Some(tls) = item.child("tls").filter(|_| is_automatic(listener)) {
            let message = "no certificate can be got for here: `challenge \"http-01\"` is shown without TLS, and all listeners \
                           have it";
            let warning = Diagnostic { severity: Severity::Warning, ..tls.error(message) };
            checker
                .diagnostics
                .push(warning.help("add `listen \":80\"`, or `\"tls-alpn-01\"` to `challenge`"));
        }
        if is_any || !is_automatic(listener) {
            continue;
        }
        let message =
            "nobody can connect here: `tls` names no certificate, and no site has a name to get one for";
        let help = "give the site its name, `site \"example.com\" { … }`, or name the files: `tls \
                    certificate=\"site.pem\" key=\"site.key\"`";
        checker.diagnostics.push(item.child("tls").unwrap_or(item).error(message).help(help));
    }
}

/// A host pattern as one writes it.
pub(crate) fn host_text(host: &HostPattern) -> String {
    match host {
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Suffix(suffix) => format!("*{suffix}"),
    }
}

/// The item that a directive's default text stands for.
pub(crate) fn default_item(directive: &Directive, context: Context) -> Option<Item> {
    struct Nothing;
    impl Environment for Nothing {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }
    let text = directive.default?;
    let node = Node::parse(text)?;
    let file = File { source: Source::new(crate::source::DEFAULT, text), folder: Arc::from(Path::new("/")) };
    Checker::new(&Nothing).item(&file, &node, context)
}

/// What `trace-context` says.
pub(crate) fn sampling(item: &Item) -> Option<Sampling> {
    let Some(Value::Number(millionths)) = item.property("sample") else { return None };
    item.is_word("begin").then(|| Sampling::of_millionths(millionths))
}

/// The networks that an item names; none where it is a word such as `none`.
pub(crate) fn networks(item: &Item) -> NetworkSet {
    let networks = item.arguments.iter().filter_map(|placed| match placed.value {
        Value::Network(network) => Some(network),
        _ => None,
    });
    networks.collect()
}

/// The item of a name in a block: as written, else the default of the table.
fn written_or_default(items: &[Item], context: Context, name: &str) -> Option<Item> {
    let written = items.iter().find(|item| item.directive.name == name).cloned();
    written.or_else(|| default_item(directives::find(context, name)?, context))
}

/// What `listing` without anything else means.
pub(crate) fn plain_listing() -> Option<Listing> {
    let directive = directives::find(Context::Top, "listing")?;
    inherit::listing(&default_item(&Directive { default: Some("listing"), ..*directive }, Context::Top)?)
}

/// A route that serves files with the values given.
pub(crate) fn plain_route(mut inherited: inherit::Inherited, pattern: PathPattern, origin: Origin) -> Route {
    let action = route::plain_files(&mut inherited);
    route::with(inherited, pattern, action, origin)
}

/// `access-log` as settings.
fn access_log(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<AccessLog> {
    let target = logs::target(checker, item)?;
    check_log(checker, disk, item, &target);
    let format = match item.property("format") {
        Some(Value::LogFormat(format)) => format.clone(),
        _ => AccessFormat::Combined,
    };
    let only_errors = item.property("only").is_some();
    Some(AccessLog { target, format, only_errors })
}

/// Says so when a log could not be written.
fn check_log(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, target: &LogTarget) {
    let LogTarget::File(path) = target else { return };
    match disk.what(path) {
        What::Folder => {
            let message = format!("the log {} is a folder", path.display());
            checker.diagnostics.push(item.error_at(0, message).help("name a file in it"));
        }
        What::Missing | What::Dangling | What::Hidden => check_folder(checker, disk, item, path, "the log"),
        What::File | What::Special if !disk.may_write(path) => {
            let message = format!("the log {} may not be written to", path.display());
            let help = "give the user that runs the server the right to write to it";
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
        What::File | What::Special => {}
    }
}

/// Says so when a file could not be made because of the folder it would lie in.
fn check_folder(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, path: &Path, what: &str) {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let (problem, help) = match disk.what(folder) {
        What::Folder if disk.may_write(folder) => return,
        What::Folder => (
            "may not be written to",
            "give the user that runs the server the right to write there".to_owned(),
        ),
        What::Missing | What::Dangling => {
            ("does not exist", format!("make it: `mkdir -p {}`", folder.display()))
        }
        What::File | What::Special => ("is no folder", "name a file in a folder".to_owned()),
        What::Hidden => {
            ("may not be looked into", "give the user that runs the server the right to enter it".to_owned())
        }
    };
    let message =
        format!("{what} {} cannot be made: the folder {} {problem}", path.display(), folder.display());
    checker.diagnostics.push(item.error_at(0, message).help(help));
}
