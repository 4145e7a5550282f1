//! The top level: the file cache, the busy answer, the server's own files; `listen`, `limits` and `logs` beside it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inherit::Inherited;
use super::limits::small;
use super::logs::Logs;
use super::{access_log, check_folder, check_log, limits, listen, login, otlp, rates, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::include::TopNode;
use crate::settings::{
    Busy, CountryDatabase, ErrorLog, FileCache, Level, LogTarget, Settings, Statistics, User, Written,
};
use crate::value::Value;

/// The top level lowered; the sites are added to `settings` one by one.
pub(crate) struct Server {
    pub settings: Settings,
    /// What the top level sets for every site.
    pub inherited: Inherited,
    /// The item of each listener.
    pub listeners: Vec<Item>,
    /// Which file each log goes to, what its lines are like, and where that was written.
    pub logs: Logs,
    /// What logins may name.
    pub known: login::Known,
    /// The store that all of it uses.
    pub cache: Option<Item>,
    /// What the limits of each name say.
    pub rates: rates::Names,
}

impl Server {
    /// Whether there are listeners, and none of them speaks TLS.
    pub fn has_no_tls(&self) -> bool {
        let listeners = &self.settings.listeners;
        !listeners.is_empty() && listeners.iter().all(|listener| listener.tls.is_none())
    }
}

/// Lowers everything of the top level but the sites.
pub(crate) fn server(checker: &mut Checker<'_>, disk: &dyn Disk, nodes: &[TopNode]) -> Server {
    let mut items: Vec<Item> = Vec::new();
    for TopNode { file, node, .. } in nodes.iter().filter(|top| top.node.name != "site") {
        let Some(item) = checker.item(file, node, Context::Top) else { continue };
        checker.once(&items, &item);
        items.push(item);
    }
    let (listeners, listener_items) = listen::listeners(checker, disk, &items);
    let mut logs = Logs::default();
    for item in items.iter().filter(|item| item.directive.name == "access-log") {
        logs.add(checker, disk, item);
    }
    for item in items.iter().filter(|item| item.directive.name == "error-log") {
        logs.add(checker, disk, item);
    }
    let find = |name: &str| written_or_default(&items, Context::Top, name);
    let pools = super::pool::pools(checker, disk, &items);
    let admin = items.iter().find(|item| item.directive.name == "admin");
    let admin = admin.map(|item| super::admin::admin(checker, disk, item, &listeners));
    let settings = Settings {
        workers: find("workers").and_then(|item| match item.first() {
            Some(Value::Number(count)) => u16::try_from(*count).ok(),
            _ => None,
        }),
        processes: find("processes").map_or(1, |item| u16::try_from(number(&item)).unwrap_or(1)).max(1),
        user: find("user").and_then(|item| user(checker, &item)),
        sandbox: !find("sandbox").is_some_and(|item| matches!(item.first(), Some(Value::Word("off")))),
        listeners,
        sites: Vec::new(),
        acme: super::tls::acme(checker, &items),
        country_database: items.iter().find(|item| item.directive.name == "country-database").and_then(
            |item| match item.first() {
                Some(Value::Path(path)) => {
                    Some(CountryDatabase { path: path.clone(), origin: item.origin() })
                }
                _ => None,
            },
        ),
        dns: super::dns::dns(checker, items.iter().find(|item| item.directive.name == "dns")),
        users: login::sources(checker, disk, &items),
        url_keys: login::url_keys(checker, disk, &items),
        limit_store: items
            .iter()
            .find(|item| item.directive.name == "limit-store")
            .and_then(|item| super::limit_store::limit_store(checker, disk, item)),
        upstreams: super::upstream::upstreams(checker, disk, &items, &pools),
        pools,
        limits: limits::server(checker, &items),
        busy: busy(checker, disk, &items),
        file_cache: file_cache(checker, &items),
        caches: super::cache::stores(checker, disk, &items),
        statistics: statistics(checker, disk, &items),
        access_log: find("access-log").and_then(|item| access_log(checker, disk, &item)),
        error_log: find("error-log").map_or(FALLBACK_ERROR_LOG, |item| error_log(checker, disk, &item)),
        server_field: find("server-field").and_then(|item| item.texts().pop()),
        pid_file: own_file(checker, disk, &items, "pid-file", "the pid file"),
        bans_file: own_file(checker, disk, &items, "bans-file", "the file of bans"),
        control: own_file(checker, disk, &items, "control", "the control socket"),
        admin,
        spill: find("spill").map_or_else(super::gateway::spill_nowhere, |item| super::gateway::spill(&item)),
        written: written(&items),
        hooks: super::load_hook::hooks(checker, disk, &items, super::load_hook::OF_THE_SERVER),
        drain_timeout: find("drain-timeout").map(|item| duration(&item)).unwrap_or_default(),
    };
    one_purpose_each(checker, &items);
    let inherited = Inherited::top(checker, &items, &settings.limits.request);
    // Who is required of may be asked further in.
    let known = login::Known::of(&settings, &items);
    login::check(checker, &items, &known, true);
    let has_store = items.iter().any(|item| item.directive.name == "limit-store");
    let mut rates = rates::Names::new(has_store);
    rates.check(checker, &items);
    let cache = super::cache::of_server(&items).cloned();
    Server { settings, inherited, listeners: listener_items, logs, known, cache, rates }
}

/// What is written to one file for two purposes is lost for both.
fn one_purpose_each(checker: &mut Checker<'_>, items: &[Item]) {
    let path = |item: &Item| match item.first() {
        Some(Value::Path(path) | Value::LogTarget(LogTarget::File(path))) => Some(path.clone()),
        _ => None,
    };
    let statistics = items.iter().filter(|item| item.directive.name == "statistics");
    let totals = statistics.filter_map(|item| item.child("totals"));
    let mut known: Vec<(PathBuf, &'static str)> = Vec::new();
    for item in items.iter().chain(totals) {
        let name = item.directive.name;
        if !matches!(name, "access-log" | "error-log" | "pid-file" | "bans-file" | "control" | "totals") {
            continue;
        }
        let Some(path) = path(item) else { continue };
        let is_log = |name: &str| name.ends_with("-log");
        match known.iter().find(|(other, _)| *other == path) {
            Some((_, other)) if is_log(name) && is_log(other) => {} // said where logs are
            Some((_, other)) => {
                let message = format!("`{name}` is the file of `{other}`, too: {}", path.display());
                checker.diagnostics.push(item.error_at(0, message).help("give each a file of its own"));
            }
            None => known.push((path, name)),
        }
    }
}

/// What an `error-log` with mistakes in it becomes; the mistakes have been said.
const FALLBACK_ERROR_LOG: ErrorLog = ErrorLog { target: LogTarget::Stderr, level: Level::Info };

/// Where what concerns folders and files of this system is written.
fn written(items: &[Item]) -> Written {
    let top = |name: &str| items.iter().find(|item| item.directive.name == name);
    let origin = |item: Option<&Item>| item.map(Item::origin).unwrap_or_default();
    let of_acme = |name: &str| origin(top("acme").and_then(|block| block.child(name)));
    Written {
        spill: origin(top("spill")),
        storage: of_acme("storage"),
        dns_hook: of_acme("dns-hook"),
        error_log: origin(top("error-log")),
        access_log: origin(top("access-log")),
    }
}

fn user(checker: &mut Checker<'_>, item: &Item) -> Option<User> {
    let name = item.texts().pop()?;
    let group = match item.property("group") {
        Some(Value::Text(group)) => Some(group.clone()),
        _ => None,
    };
    if name.is_empty() || group.as_deref() == Some("") {
        let help = "name one, such as \"www-data\", or take the line out";
        checker.diagnostics.push(item.error("a user or a group without a name").help(help));
        return None;
    }
    Some(User { name, group, origin: item.origin() })
}

/// Bytes of a busy answer.
const BUSY_MOST: usize = 64 << 10;

fn busy(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Busy {
    let nothing = Busy {
        status: 503,
        retry_after: Duration::from_secs(1),
        text: String::new(),
        media_type: String::new(),
    };
    let Some(item) = written_or_default(items, Context::Top, "busy-answer") else { return nothing };
    let mut text = item.texts().pop();
    let mut media_type = "text/plain; charset=utf-8".to_owned();
    if let Some(Value::Path(path)) = item.property("file") {
        if text.is_some() {
            let problem = item.error_at(1, "`busy-answer` has a text and a file");
            checker.diagnostics.push(problem.help("take one of the two out"));
        }
        media_type = "text/html; charset=utf-8".to_owned();
        let read = disk
            .read(&path)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text")));
        match read {
            Ok(read) if read.len() > BUSY_MOST => {
                let message = format!("the file {} is longer than {BUSY_MOST} bytes", path.display());
                let help = "name a shorter one: it is sent when there is least to spare";
                checker.diagnostics.push(item.error(message).help(help));
            }
            Ok(read) => text = Some(read),
            Err(error) => {
                let problem = item.error(format!("the file {} cannot be read: {error}", path.display()));
                checker.diagnostics.push(problem.help("name a file of UTF-8 text that the server may read"));
            }
        }
    }
    if let Some(Value::Text(written)) = item.property("type") {
        media_type = written.clone();
    }
    Busy {
        status: u16::try_from(number(&item)).unwrap_or(nothing.status),
        retry_after: match item.property("retry-after") {
            Some(Value::Duration(time)) => time,
            _ => nothing.retry_after,
        },
        text: text.unwrap_or_default(),
        media_type,
    }
}

fn file_cache(checker: &mut Checker<'_>, items: &[Item]) -> FileCache {
    let block = items.iter().find(|item| item.directive.name == "file-cache");
    let children = block.map_or(&[][..], |item| &item.children);
    let find = |name: &str| written_or_default(children, Context::FileCache, name);
    let amount = |name: &str| find(name).map_or(0, |item| number(&item));
    let count = |name: &str| find(name).map_or(0, |item| small(&item));
    let is_off = block.is_some_and(|item| item.is_word("off"));
    if let Some(item) = block.filter(|item| is_off && !item.children.is_empty()) {
        checker
            .diagnostics
            .push(item.error("`file-cache off` has a block").help("take out the `off` or the block"));
    }
    FileCache {
        enabled: !is_off,
        entries: count("entries"),
        memory: amount("memory"),
        memory_file_size: count("memory-file-size"),
        descriptors: count("descriptors"),
        max_age: find("max-age").map(|item| duration(&item)).unwrap_or_default(),
    }
}

fn statistics(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Statistics {
    let block = items.iter().find(|item| item.directive.name == "statistics");
    let children = block.map_or(&[][..], |item| &item.children);
    let is_off = block.is_some_and(|item| item.is_word("off"));
    if let Some(item) = block.filter(|item| is_off && !item.children.is_empty()) {
        checker
            .diagnostics
            .push(item.error("`statistics off` has a block").help("take out the `off` or the block"));
    }
    let history = written_or_default(children, Context::Statistics, "history");
    Statistics {
        of_sites: !is_off,
        history: !is_off && !history.is_some_and(|item| item.is_word("off")),
        totals: own_file(checker, disk, children, "totals", "the file of totals"),
        otlp: children
            .iter()
            .find(|item| item.directive.name == "otlp")
            .and_then(|item| otlp::otlp(checker, disk, item)),
    }
}

fn error_log(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> ErrorLog {
    let target = super::logs::target(checker, item).unwrap_or(LogTarget::Stderr);
    check_log(checker, disk, item, &target);
    let level = match item.property("level") {
        Some(Value::Word("error")) => Level::Error,
        Some(Value::Word("warn")) => Level::Warn,
        Some(Value::Word("debug")) => Level::Debug,
        _ => Level::Info,
    };
    ErrorLog { target, level }
}

fn own_file(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: &[Item],
    name: &str,
    what: &str,
) -> Option<PathBuf> {
    let item = items.iter().find(|item| item.directive.name == name)?;
    let Some(Value::Path(path)) = item.first() else { return None };
    if path.file_name().is_none() {
        checker.diagnostics.push(
            item.error_at(0, format!("{what} needs the name of a file")).help("name a file in a folder"),
        );
        return None;
    }
    if let What::Folder = disk.what(path) {
        let message = format!("{what} cannot be {}: that is a folder", path.display());
        checker.diagnostics.push(item.error_at(0, message).help("name a file in it"));
        return None;
    }
    check_folder(checker, disk, item, path, what);
    Some(Path::to_owned(path))
}
