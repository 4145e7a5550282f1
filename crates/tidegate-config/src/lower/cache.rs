//! `cache`: stores of responses, their folders, and who uses them.
//!
//! At the top level the same word defines a store and uses one: a block with `memory` or `disk` defines it. What else a
//! store says is the default of those who use it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::inherit::Inherited;
use super::login::{point_at, sources_by_name};
use super::{Server, default_item, networks, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::{Children, Context};
use crate::directives;
use crate::disk::{Disk, What};
use crate::include::TopNode;
use crate::settings::cache::refusal;
use crate::settings::gateway::Gateway;
use crate::settings::{
    Action, CacheBypass, CacheDisk, CacheQuery, CacheStore, DefaultLifetime, Route, RouteCache, Settings,
    Shared, TextPattern, ValueMap, Values,
};
use crate::suggest;
use crate::syntax::document::{Literal, Node};
use crate::value::{Value, asks_for};

/// The largest object of `auto`.
const OBJECT_MOST: u64 = 1 << 30;
/// Words of which a use takes all or none from its store: together they say what of a query stands in the key.
const OF_QUERIES: [&str; 3] = ["query", "query-drop", "query-only"];

/// What stores say, by their names: those with mistakes too.
pub(crate) type Stores = BTreeMap<String, Item>;

/// Whether an item of the top level makes a store of its own.
pub(super) fn is_definition(item: &Item) -> bool {
    item.child("memory").is_some() || item.child("disk").is_some()
}

/// The stores of the top level, and what else stands there under that name; what is wrong with either is said.
pub(super) fn stores(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Vec<CacheStore> {
    let mut found: Vec<CacheStore> = Vec::new();
    let mut first_use: Option<&Item> = None;
    let written = || items.iter().filter(|item| item.directive.name == "cache");
    for item in written() {
        if is_definition(item) {
            found.extend(store(checker, disk, item, &found));
            continue;
        }
        if item.is_word("off") {
            continue;
        }
        let is_defined = written().any(|other| is_definition(other) && name_of(other) == name_of(item));
        if !item.children.is_empty() && !is_defined && !item.is_faulty {
            let message = "this store has neither `memory` nor `disk`: it can keep nothing";
            let help = "add `memory \"64MiB\"` to the block; without a block the line uses a store that stands elsewhere";
            checker.diagnostics.push(item.error(message).help(help));
            continue;
        }
        if let Some(first) = first_use {
            let message = "the whole server uses a store already, and can use no more than one";
            let help = format!(
                "it stands in {}; keep one of the two, or write this one into the sites it is for",
                first.origin()
            );
            checker.diagnostics.push(item.error(message).help(help));
        }
        first_use = first_use.or(Some(item));
    }
    found
}

fn name_of(item: &Item) -> Option<String> {
    item.texts().into_iter().next()
}

/// The store that the whole server uses.
pub(super) fn of_server(items: &[Item]) -> Option<&Item> {
    items.iter().find(|item| item.directive.name == "cache" && !is_definition(item))
}

/// What stores say, for those who use them.
pub(super) fn by_name(items: &[Item]) -> Arc<Stores> {
    let written = || items.iter().filter(|item| item.directive.name == "cache");
    // A block that defines nothing is a mistake by itself, and not that of those who use it.
    let is_meant = |item: &&Item| {
        let others = || written().any(|other| is_definition(other) && name_of(other) == name_of(item));
        is_definition(item) || !item.children.is_empty() && !item.is_word("off") && !others()
    };
    let definitions = written().filter(is_meant);
    Arc::new(definitions.filter_map(|item| Some((name_of(item)?, item.clone()))).collect())
}

fn store(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    known: &[CacheStore],
) -> Option<CacheStore> {
    if item.is_word("off") {
        let message = "`off` is no name of a store";
        checker.diagnostics.push(item.error_at(0, message).help("name it, such as `cache \"main\" { … }`"));
        return None;
    }
    let name = name_of(item)?;
    if name.is_empty() {
        checker
            .diagnostics
            .push(item.error_at(0, "a store without a name").help("name it, such as \"main\""));
        return None;
    }
    if let Some(first) = known.iter().find(|first| first.name == name) {
        let message = format!("the cache `{name}` is defined twice");
        let help = format!("it stands already in {}; give one of the two another name", first.origin);
        checker.diagnostics.push(item.error_at(0, message).help(help));
    }
    check_policy(checker, item);
    let find = |name: &str| written_or_default(&item.children, Context::CacheStore, name);
    let memory = find("memory").map_or(0, |item| number(&item));
    let mut disks: Vec<CacheDisk> = Vec::new();
    for child in item.children.iter().filter(|child| child.directive.name == "disk") {
        let others = known.iter().flat_map(|store| &store.disks).chain(&disks);
        let others: Vec<CacheDisk> = others.cloned().collect();
        disks.extend(folder(checker, disk, child, &others));
    }
    let largest = disks.iter().map(|disk| disk.size).max().unwrap_or(0).max(memory);
    let written = find("object-size").filter(|item| !item.is_word("auto"));
    let object_size = written.as_ref().map_or((largest / 4).min(OBJECT_MOST), number);
    if let Some(written) = written.filter(|_| object_size > largest) {
        let message =
            "`object-size` is larger than what there is room for in the memory or on any disk of this store";
        let help = format!(
            "lower it to {} or less, or give one of them more room",
            crate::value::size_text(largest)
        );
        checker.diagnostics.push(written.error_at(0, message).help(help));
    }
    Some(CacheStore { name, memory, disks, object_size, origin: item.origin() })
}

/// A `disk`; `others` are those before it, of all stores.
fn folder(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    others: &[CacheDisk],
) -> Option<CacheDisk> {
    let Some(Value::Path(path)) = item.first().cloned() else { return None };
    let Some(Value::Number(size)) = item.property("size") else {
        if !item.is_faulty {
            let help = format!("say how much, `{} size=\"10GiB\"`", item.written_without("size"));
            checker.diagnostics.push(item.error("`disk` has no `size=`: it would fill the disk").help(help));
        }
        return None;
    };
    let shown = path.display();
    if disk.knows_caches() && matches!(disk.what(&path), What::File | What::Special) {
        let message = format!("the folder {shown} of this cache is no folder");
        checker
            .diagnostics
            .push(item.error_at(0, message).help("name a folder that is there, or none that is"));
    }
    if path.parent().is_none() {
        let message = "the root folder of the system cannot be that of a cache";
        checker
            .diagnostics
            .push(item.error_at(0, message).help("name a folder of its own, `disk \"/var/cache/tidegate\"`"));
        return None;
    }
    let identity = |path: &Path| if disk.knows_caches() { disk.identity(path) } else { path.to_owned() };
    let real = identity(&path);
    for other in others {
        let theirs = identity(&other.path);
        let message = if real == theirs {
            format!("the folder {shown} is that of another `disk` already")
        } else if real.starts_with(&theirs) || theirs.starts_with(&real) {
            format!(
                "one of the folders {shown} and {} lies in the other, and each is to be of one `disk` alone",
                other.path.display()
            )
        } else {
            continue;
        };
        let help = format!("the other one stands in {}; give each a folder of its own", other.origin);
        checker.diagnostics.push(item.error_at(0, message).help(help));
        break;
    }
    Some(CacheDisk { path, size, origin: item.origin() })
}

/// What a use says; `None` for `off`, and where the store is not there.
pub(crate) fn usage(stores: &Stores, item: &Item) -> Option<Shared<RouteCache>> {
    if item.is_word("off") {
        return None;
    }
    let name = name_of(item)?;
    let policy = Policy { own: item, store: stores.get(&name)? };
    let word = |name: &str| match policy.find(name).as_ref().and_then(Item::first) {
        Some(Value::Word(word)) => *word,
        _ => "",
    };
    let texts = |name: &str| policy.find(name).map(|item| item.texts()).unwrap_or_default();
    let seconds = |name: &str| {
        let item = policy.find(name).filter(|item| !item.is_word("off"))?;
        Some(u32::try_from(duration(&item).as_secs()).unwrap_or(u32::MAX))
    };
    let of_query = policy.group(&OF_QUERIES);
    let bypass = policy.find("bypass-cookies");
    let cache = RouteCache {
        default_lifetimes: policy.lifetimes(),
        heuristic: word("heuristic") != "off",
        query: match of_query.child("query").and_then(Item::first) {
            Some(Value::Word("sort")) => CacheQuery::Sorted,
            Some(Value::Word("ignore")) => CacheQuery::Ignored,
            _ => CacheQuery::AsSent,
        },
        query_drop: of_query.child("query-drop").map(Item::texts).unwrap_or_default(),
        query_only: of_query.child("query-only").map(Item::texts).unwrap_or_default(),
        cookies: texts("cookies"),
        bypass: match bypass {
            Some(item) if !item.is_word("auto") => CacheBypass::Named(item.texts()), // `none` is no text
            _ => CacheBypass::Unknown,
        },
        stores_set_cookie: word("store-cookies") == "on",
        collapses: word("collapse") != "off",
        obeyed: policy.find("obey-clients").map(|item| networks(&item)).unwrap_or_default(),
        stale_while_revalidate: seconds("stale-while-revalidate"),
        stale_if_error: seconds("stale-if-error"),
        no_vary_search: word("no-vary-search") == "on",
        tag_fields: texts("tag-field").iter().map(|name| name.to_ascii_lowercase()).collect(),
        is_behind_login: false,
        store: name,
        origin: item.origin(),
    };
    Some(cache.into())
}

/// What a use says, and its store where it says nothing.
struct Policy<'i> {
    own: &'i Item,
    store: &'i Item,
}

impl Policy<'_> {
    /// The line of a name that is in force.
    fn find(&self, name: &str) -> Option<Item> {
        let written = self.own.child(name).or_else(|| self.store.child(name)).cloned();
        written.or_else(|| default_item(directives::find(Context::CacheStore, name)?, Context::CacheStore))
    }

    /// The block that says anything of what these words are about.
    fn group(&self, names: &[&str]) -> &Item {
        let says = names.iter().any(|name| self.own.child(name).is_some());
        if says { self.own } else { self.store }
    }

    /// One of the use takes the place of one of the store for the same statuses.
    fn lifetimes(&self) -> Vec<DefaultLifetime> {
        let mut lifetimes: Vec<DefaultLifetime> = Vec::new();
        for block in [self.own, self.store] {
            let written = block.children.iter().filter(|child| child.directive.name == "default-lifetime");
            for lifetime in written.filter_map(lifetime) {
                if !lifetimes.iter().any(|known| known.first == lifetime.first && known.last == lifetime.last)
                {
                    lifetimes.push(lifetime);
                }
            }
        }
        lifetimes.sort_by_key(|lifetime| (lifetime.last - lifetime.first, lifetime.first));
        lifetimes
    }
}

fn lifetime(item: &Item) -> Option<DefaultLifetime> {
    let (first, last) = match item.first()? {
        Value::Number(status) => (u16::try_from(*status).ok()?, u16::try_from(*status).ok()?),
        Value::Word("2xx") => (200, 299),
        Value::Word("3xx") => (300, 399),
        Value::Word("4xx") => (400, 499),
        _ => return None,
    };
    match item.arguments.get(1).map(|placed| &placed.value) {
        Some(Value::Duration(lifetime)) => Some(DefaultLifetime { first, last, lifetime: *lifetime }),
        _ => None,
    }
}

/// Says what is wrong with the policy in a block.
fn check_policy(checker: &mut Checker<'_>, block: &Item) {
    let mut known: Vec<DefaultLifetime> = Vec::new();
    for item in block.children.iter().filter(|child| child.directive.name == "default-lifetime") {
        let Some(lifetime) = lifetime(item) else { continue };
        let is_one = lifetime.first == lifetime.last;
        if let Some(why) = refusal(lifetime.first).filter(|_| is_one) {
            let message = format!(
                "a response with status {} is not stored by `default-lifetime`: {why}",
                lifetime.first
            );
            let help = "take the line out; where an application says itself how long one of its answers holds, that counts";
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
        if known.iter().any(|other| (other.first, other.last) == (lifetime.first, lifetime.last)) {
            let message = format!(
                "the lifetime for {} is given twice",
                item.file.source.slice(&item.arguments[0].range)
            );
            checker.diagnostics.push(item.error_at(0, message).help("keep one of the two"));
        }
        known.push(lifetime);
    }
    for word in ["query-drop", "query-only", "cookies", "bypass-cookies"] {
        block.child(word).into_iter().for_each(|item| check_names(checker, item));
    }
    let drop = block.child("query-drop");
    if let (Some(_), Some(only)) = (drop, block.child("query-only")) {
        let message = "`query-only` stands beside `query-drop`, and says all that is in the key";
        checker.diagnostics.push(only.error(message).help("keep one of the two"));
    }
    let is_ignored = block.child("query").is_some_and(|query| query.is_word("ignore"));
    if let Some(item) = drop.or(block.child("query-only")).filter(|_| is_ignored) {
        let message = format!(
            "`{}` stands beside `query ignore`, which leaves all of the query out",
            item.directive.name
        );
        checker.diagnostics.push(item.error(message).help("keep one of the two"));
    }
    if let (Some(key), Some(bypass)) = (block.child("cookies"), block.child("bypass-cookies")) {
        let leads_past = |name: &String| {
            bypass.texts().iter().any(|pattern| TextPattern::glob(pattern).fits(name.as_bytes()))
        };
        if let Some(name) = key.texts().iter().find(|name| leads_past(name)) {
            let message =
                format!("`{name}` stands in `cookies`, and a request with it never comes to the cache");
            checker.diagnostics.push(bypass.error(message).help("take it out of one of the two"));
        }
    }
}

/// Says which names are none, or stand for all where that is not meant to be said so.
fn check_names(checker: &mut Checker<'_>, item: &Item) {
    let names = item.arguments.iter().map(|placed| &placed.value).enumerate();
    for (at, name) in names {
        let Value::Text(name) = name else { continue };
        let word = item.directive.name;
        let (message, help) = if name.is_empty() {
            (
                format!("an empty name in `{word}`"),
                "write the name, with `*` for anything in it, or take it out",
            )
        } else if name.bytes().all(|byte| byte == b'*') && word != "bypass-cookies" {
            let help = match word {
                "query-drop" => "write `query ignore` to leave the whole query out of the key",
                "query-only" => "take the line out: without it the whole query stands in the key",
                _ => "name the cookies: with all in the key, each client would have responses of its own",
            };
            (format!("`{name}` in `{word}` stands for every name"), help)
        } else {
            continue;
        };
        checker.diagnostics.push(item.error_at(at, message).help(help));
    }
}

/// Checks the uses of a level.
pub(super) fn check_uses(checker: &mut Checker<'_>, stores: &Stores, items: &[Item]) {
    for item in items.iter().filter(|item| item.directive.name == "cache") {
        let is_top = item.directive.children == Children::Block(Context::CacheStore);
        if is_top && is_definition(item) {
            continue; // see `stores`
        }
        if item.is_word("off") {
            if !item.children.is_empty() {
                checker
                    .diagnostics
                    .push(item.error("`cache off` has a block").help("take out the `off` or the block"));
            }
            continue;
        }
        let Some(name) = name_of(item) else { continue };
        // Said where stores are.
        let is_empty_store = is_top && !item.children.is_empty();
        if !stores.contains_key(&name) && !is_empty_store {
            let near = suggest::nearest(&name, stores.keys().map(String::as_str));
            let help = near.map_or_else(
                || format!("define it at the top level: `cache \"{name}\" {{ memory \"64MiB\" }}`"),
                |near| format!("did you mean `{near}`?"),
            );
            checker.diagnostics.push(item.error_at(0, format!("no cache is named `{name}`")).help(help));
        }
        check_policy(checker, item);
    }
}

/// What a route keeps where. Files are kept by a route that says so itself, and what is made of settings nowhere.
pub(super) fn of_route(
    checker: &mut Checker<'_>,
    item: &Item,
    inherited: &Inherited,
    action: &Action,
    is_site: bool,
) -> Option<Shared<RouteCache>> {
    let own = item.child("cache").filter(|own| !is_site && !own.is_word("off"));
    let mut cache = inherited.cache.clone();
    if let Some(own) = own
        && let Some(what) = made_here(action)
    {
        let message = format!("`cache` does nothing here: {what}");
        let warning = Diagnostic { severity: Severity::Warning, ..own.error(message) };
        checker.diagnostics.push(warning.help("write it where an application answers, or take it out"));
        return None;
    }
    let is_file = matches!(action, Action::Files(_));
    if made_here(action).is_some() || is_file && own.is_none() {
        return None;
    }
    let is_behind_login = inherited.identification.login.is_some()
        || !inherited.identification.certificates.is_empty()
        || inherited.access.requires_client_certificate;
    let says = own.and_then(|own| {
        let store = inherited.stores.get(&name_of(own)?)?;
        Some(Policy { own, store }.find("heuristic")?.is_word("on"))
    });
    let known = cache.as_deref().map(|cache| RouteCache {
        is_behind_login,
        heuristic: cache.heuristic && (!is_file || says == Some(true)),
        ..cache.clone()
    });
    if let Some(cache) = &known {
        check_told(checker, item, cache, &inherited.names.values);
    }
    if known.as_ref() != cache.as_deref() {
        cache = known.map(Shared::from);
    }
    cache
}

/// Warns of what an application is told of a client that has no part in the key: what it answers goes to others as well.
fn check_told(checker: &mut Checker<'_>, item: &Item, cache: &RouteCache, values: &Values) {
    let is_fitting = |patterns: &[String], name: &str| {
        patterns.iter().any(|pattern| TextPattern::glob(pattern).fits(name.as_bytes()))
    };
    let is_query_kept = |name: &str| {
        cache.query != CacheQuery::Ignored
            && !is_fitting(&cache.query_drop, name)
            && (cache.query_only.is_empty() || is_fitting(&cache.query_only, name))
    };
    let told = item.child("proxy").into_iter().flat_map(|proxy| &proxy.children);
    let told = told.filter(|child| child.directive.name == "request-header");
    for child in told {
        let mut texts = child.texts().into_iter();
        let (Some(field), Some(value)) = (texts.next(), texts.next()) else { continue };
        // Every application is told it by the second, whatever the settings say.
        let says_address =
            ["X-Real-IP", "X-Forwarded-For"].iter().any(|name| name.eq_ignore_ascii_case(&field));
        let is_apart = |name: &str| match name.split_once('.') {
            Some(("cookie", cookie)) => !is_fitting(&cache.cookies, cookie),
            Some(("query", parameter)) => !is_query_kept(parameter),
            Some(("header", _)) => true,
            // Host, scheme, path and language are in the key. What identifies one request chooses no answer.
            _ => {
                matches!(name, "client.name" | "country" | "user" | "groups")
                    || name == "client" && !says_address
            }
        };
        let map_of = |name: &str| values.get(name.strip_prefix("value.")?);
        let told = asks_for(&value, is_apart).map(|name| (name, String::new()));
        let Some((name, made)) = told.or_else(|| {
            let is_made_apart = |map: &Shared<ValueMap>| asks_for(&map.from, is_apart).is_some();
            let value = asks_for(&value, |name| map_of(name).is_some_and(is_made_apart))?;
            Some((asks_for(&map_of(value)?.from, is_apart)?, format!("`{{{value}}}`, which is made of ")))
        }) else {
            continue;
        };
        let message = format!(
            "the application is told {made}`{{{name}}}` of the client, which is not in the key of the cache: what it makes of \
             it goes to other clients as well"
        );
        let help = match name.strip_prefix("cookie.") {
            Some(cookie) => {
                format!("write `cookies \"{cookie}\"` in the block of `cache`, or `cache off` in this route")
            }
            None => {
                "take it out where the answer depends on it, or write `cache off` in this route".to_owned()
            }
        };
        let warning = Diagnostic { severity: Severity::Warning, ..child.error(message) };
        checker.diagnostics.push(warning.help(help));
    }
}

/// What answers without anything that could be stored.
fn made_here(action: &Action) -> Option<&'static str> {
    match action {
        Action::Files(_) | Action::Fastcgi(_) | Action::Scgi(_) | Action::Cgi(_) | Action::Proxy(_) => None,
        Action::HandTo { .. } => Some("another route answers, and what that one says counts"),
        Action::Redirect { .. } => Some("a redirect is made at once"),
        Action::Respond { .. } | Action::Close => Some("what `respond` says is made at once"),
        Action::Status | Action::Console { .. } => Some("these figures are made anew each time"),
    }
}

/// Says so where what is stored could be asked for as a file, or a root would be taken for what is stored.
pub(super) fn check_roots(checker: &mut Checker<'_>, settings: &Settings, nodes: &[TopNode]) {
    let sources = sources_by_name(nodes);
    let routes = || settings.sites.iter().flat_map(|site| &site.routes);
    for disk in settings.caches.iter().flat_map(|store| &store.disks) {
        let lies_with = |root: &&Path| root.starts_with(&disk.path) || disk.path.starts_with(root);
        let found =
            routes().find_map(|route| Some((route, roots(&route.action).into_iter().find(lies_with)?)));
        let Some((route, root)) = found else { continue };
        let (folder, shown) = (disk.path.display(), root.display());
        let message = match disk.path.starts_with(root) {
            true => format!(
                "the folder {folder} of this cache lies below the root {shown}: what is stored could be asked for as files"
            ),
            false => format!(
                "the root {shown} lies in the folder {folder} of this cache, which is the cache's alone"
            ),
        };
        let help = format!("the root is that of {}; name a folder elsewhere", route.origin);
        point_at(checker, &sources, &disk.origin, Diagnostic::error(message).help(help));
    }
}

/// Folders that a route answers from.
fn roots(action: &Action) -> Vec<&Path> {
    match action {
        Action::Files(files) => vec![&files.root],
        Action::Fastcgi(application) | Action::Scgi(application) | Action::Cgi(application) => {
            let mut roots = sent(&application.gateway);
            roots.extend(Some(application.root.as_path()).filter(|root| root.is_absolute()));
            roots
        }
        Action::Proxy(proxy) => sent(&proxy.gateway),
        Action::HandTo { .. }
        | Action::Redirect { .. }
        | Action::Respond { .. }
        | Action::Close
        | Action::Status
        | Action::Console { .. } => Vec::new(),
    }
}

fn sent(gateway: &Gateway) -> Vec<&Path> {
    gateway.sendfile.iter().map(|folder| folder.root.as_path()).collect()
}

/// Warns of a use that holds for no route. `routes` are those of the level that it stands in.
pub(super) fn check_effect<'r>(
    checker: &mut Checker<'_>,
    item: &Item,
    mut routes: impl Iterator<Item = &'r Route>,
) {
    let is_ours = |route: &Route| route.cache.as_ref().is_some_and(|cache| cache.origin == item.origin());
    if item.is_word("off") || routes.any(is_ours) {
        return;
    }
    let message = "`cache` does nothing here: no application answers where it holds";
    let help = "files have the `file-cache`; a route whose folder is slow can say so itself, `route \"/x/*\" { root \"/mnt/x\"; \
                cache \"main\" }`";
    let warning = Diagnostic { severity: Severity::Warning, ..item.error(message) };
    checker.diagnostics.push(warning.help(help));
}

/// Warns of stores that nothing uses, and of a use by the whole server that does nothing.
pub(super) fn check_unused(checker: &mut Checker<'_>, server: &Server, nodes: &[TopNode]) {
    let settings = &server.settings;
    if let Some(item) = &server.cache {
        check_effect(checker, item, settings.sites.iter().flat_map(|site| &site.routes));
    }
    let sources = sources_by_name(nodes);
    let mut named = HashSet::new();
    for top in nodes {
        let is_definition =
            top.node.children.iter().flatten().any(|child| matches!(child.name.as_str(), "memory" | "disk"));
        if top.node.name != "cache" || !is_definition {
            gather_uses(&top.node, &mut named);
        }
    }
    for store in settings.caches.iter().filter(|store| !named.contains(store.name.as_str())) {
        let message = format!("nothing uses the cache `{}`", store.name);
        let help = format!(
            "write `cache \"{}\"` in a site or a route that leads to an application, or take it out",
            store.name
        );
        point_at(checker, &sources, &store.origin, Diagnostic::warning(message).help(help));
    }
}

fn gather_uses<'n>(node: &'n Node, named: &mut HashSet<&'n str>) {
    if node.name == "cache"
        && let Some(Literal::Text(name)) = node.arguments().next().map(|entry| &entry.value)
    {
        named.insert(name);
    }
    node.children.iter().flatten().for_each(|child| gather_uses(child, named));
}
