//! The top level: listeners, limits, the file cache, logs, the server's own files.

use std::path::{Path, PathBuf};

use super::inherit::Inherited;
use super::{access_log, check_folder, check_log, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::directive::Context;
use crate::disk::Disk;
use crate::include::TopNode;
use crate::settings::{ErrorLog, FileCache, Level, Limits, ListenAddress, Listener, LogTarget, Settings};
use crate::value::Value;

/// The top level lowered; the sites are added to `settings` one by one.
pub(crate) struct Server {
    pub settings: Settings,
    /// What the top level sets for every site.
    pub inherited: Inherited,
    /// For each listener the item that names its default site.
    pub default_sites: Vec<Option<Item>>,
}

/// Lowers everything of the top level but the sites.
pub(crate) fn server(checker: &mut Checker<'_>, disk: &dyn Disk, nodes: &[TopNode]) -> Server {
    let mut items: Vec<Item> = Vec::new();
    for TopNode { file, node } in nodes.iter().filter(|top| top.node.name().value() != "site") {
        let Some(item) = checker.item(file, node, Context::Top) else { continue };
        if let Some(first) = items.iter().find(|known| known.directive.name == item.directive.name) {
            checker.once(first, &item);
        }
        items.push(item);
    }
    let (listeners, default_sites) = listeners(checker, disk, &items);
    let find = |name: &str| written_or_default(&items, Context::Top, name);
    let pools = super::pool::pools(checker, disk, &items);
    let settings = Settings {
        workers: find("workers").and_then(|item| match item.first() {
            Some(Value::Number(count)) => u16::try_from(*count).ok(),
            _ => None,
        }),
        listeners,
        sites: Vec::new(),
        upstreams: super::upstream::upstreams(checker, &items, &pools),
        pools,
        limits: limits(checker, &items),
        file_cache: file_cache(checker, &items),
        access_log: find("access-log").and_then(|item| access_log(checker, disk, &item)),
        error_log: find("error-log").map_or(FALLBACK_ERROR_LOG, |item| error_log(checker, disk, &item)),
        server_field: find("server-field").and_then(|item| item.texts().pop()),
        pid_file: own_file(checker, disk, &items, "pid-file", "the pid file"),
        control: own_file(checker, disk, &items, "control", "the control socket"),
        drain_timeout: find("drain-timeout").map(|item| duration(&item)).unwrap_or_default(),
    };
    let inherited = Inherited::top(checker, &items);
    Server { settings, inherited, default_sites }
}

/// What an `error-log` with mistakes in it becomes; the mistakes have been said.
const FALLBACK_ERROR_LOG: ErrorLog = ErrorLog { target: LogTarget::Stderr, level: Level::Info };

fn listeners(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    items: &[Item],
) -> (Vec<Listener>, Vec<Option<Item>>) {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut default_sites = Vec::new();
    for item in items.iter().filter(|item| item.directive.name == "listen") {
        let Some(Value::Address(address)) = item.first() else { continue };
        let is_chosen_by_kernel = matches!(address, ListenAddress::Tcp(address) if address.port() == 0);
        let same = listeners.iter().find(|known| known.address == *address);
        if let Some(same) = same.filter(|_| !is_chosen_by_kernel) {
            let help = format!(
                "it is listened on already in {}:{}; take one of the two out",
                same.origin.file, same.origin.line
            );
            checker.diagnostics.push(item.error_at(0, "this address is given twice").help(help));
            continue;
        }
        if let ListenAddress::Unix(path) = address {
            check_folder(checker, disk, item, path, "the socket");
        }
        let backlog = written_or_default(&item.children, Context::Listen, "backlog");
        let default_site = item.child("default-site");
        listeners.push(Listener {
            address: address.clone(),
            backlog: backlog.map_or(0, |item| small(&item)),
            default_site: default_site.and_then(|item| match item.first() {
                Some(Value::Host(host)) => Some(super::host_text(host)),
                _ => None,
            }),
            origin: item.origin(),
        });
        default_sites.push(default_site.cloned());
    }
    (listeners, default_sites)
}

fn limits(checker: &mut Checker<'_>, items: &[Item]) -> Limits {
    let block = items.iter().find(|item| item.directive.name == "limits");
    let children = block.map_or(&[][..], |item| &item.children);
    let find = |name: &str| written_or_default(children, Context::Limits, name);
    let amount = |name: &str| find(name).map_or(0, |item| number(&item));
    let count = |name: &str| find(name).map_or(0, |item| small(&item));
    let few = |name: &str| u16::try_from(amount(name)).unwrap_or(u16::MAX);
    let time = |name: &str| find(name).map(|item| duration(&item)).unwrap_or_default();
    let limits = Limits {
        connections: count("connections"),
        head_size: count("head-size"),
        target_size: count("target-size"),
        fields: few("fields"),
        body_size: amount("body-size"),
        head_timeout: time("head-timeout"),
        body_rate: count("body-rate"),
        send_rate: count("send-rate"),
        rate_grace: time("rate-grace"),
        keep_alive_timeout: time("keep-alive-timeout"),
        keep_alive_requests: find("keep-alive-requests")
            .filter(|item| !item.is_word("unlimited"))
            .map(|item| small(&item)),
        discard_size: amount("discard-size"),
        linger_timeout: time("linger-timeout"),
        ranges: few("ranges"),
        unsent_size: count("unsent-size"),
    };
    let written = ["target-size", "head-size"]
        .iter()
        .find_map(|name| children.iter().find(|item| item.directive.name == *name && item.first().is_some()));
    if limits.target_size > limits.head_size
        && let Some(item) = written
    {
        let message = "`target-size` is larger than `head-size`, which the target is part of";
        checker
            .diagnostics
            .push(item.error(message).help("raise `head-size` above it, or lower `target-size`"));
    }
    limits
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

fn error_log(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> ErrorLog {
    let target = match item.first() {
        Some(Value::LogTarget(target)) => target.clone(),
        _ => LogTarget::Stderr,
    };
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
    check_folder(checker, disk, item, path, what);
    Some(Path::to_owned(path))
}

/// A number that the table bounds below 2^32.
fn small(item: &Item) -> u32 {
    u32::try_from(number(item)).unwrap_or(u32::MAX)
}
