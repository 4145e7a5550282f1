//! The top level: listeners, limits, the file cache, logs, the server's own files.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inherit::Inherited;
use super::limits::small;
use super::{access_log, check_folder, check_log, limits, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::include::TopNode;
use crate::settings::{
    AccessFormat, Busy, ErrorLog, FileCache, Level, ListenAddress, Listener, LogTarget, Origin, Settings,
    SocketAccess, User,
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
}

/// Lowers everything of the top level but the sites.
pub(crate) fn server(checker: &mut Checker<'_>, disk: &dyn Disk, nodes: &[TopNode]) -> Server {
    let mut items: Vec<Item> = Vec::new();
    for TopNode { file, node, .. } in nodes.iter().filter(|top| top.node.name != "site") {
        let Some(item) = checker.item(file, node, Context::Top) else { continue };
        if let Some(first) = items.iter().find(|known| known.directive.name == item.directive.name) {
            checker.once(first, &item);
        }
        items.push(item);
    }
    let (listeners, listener_items) = listeners(checker, disk, &items);
    let mut logs = Logs::default();
    for item in items.iter().filter(|item| item.directive.name == "access-log") {
        logs.add(checker, disk, item);
    }
    for item in items.iter().filter(|item| item.directive.name == "error-log") {
        logs.add(checker, disk, item);
    }
    let find = |name: &str| written_or_default(&items, Context::Top, name);
    let pools = super::pool::pools(checker, disk, &items);
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
        upstreams: super::upstream::upstreams(checker, &items, &pools),
        pools,
        limits: limits::server(checker, &items),
        busy: busy(checker, disk, &items),
        file_cache: file_cache(checker, &items),
        access_log: find("access-log").and_then(|item| access_log(checker, disk, &item)),
        error_log: find("error-log").map_or(FALLBACK_ERROR_LOG, |item| error_log(checker, disk, &item)),
        server_field: find("server-field").and_then(|item| item.texts().pop()),
        pid_file: own_file(checker, disk, &items, "pid-file", "the pid file"),
        control: own_file(checker, disk, &items, "control", "the control socket"),
        spill: find("spill").map_or_else(super::gateway::spill_nowhere, |item| super::gateway::spill(&item)),
        drain_timeout: find("drain-timeout").map(|item| duration(&item)).unwrap_or_default(),
    };
    let inherited = Inherited::top(checker, &items, &settings.limits.request);
    Server { settings, inherited, listeners: listener_items, logs }
}

/// What an `error-log` with mistakes in it becomes; the mistakes have been said.
const FALLBACK_ERROR_LOG: ErrorLog = ErrorLog { target: LogTarget::Stderr, level: Level::Info };

fn listeners(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> (Vec<Listener>, Vec<Item>) {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut written = Vec::new();
    // By what the kernel takes them for.
    let mut known: HashMap<ListenAddress, Origin> = HashMap::new();
    for item in items.iter().filter(|item| item.directive.name == "listen") {
        let Some(Value::Address(address)) = item.first() else { continue };
        let is_chosen_by_kernel = matches!(address, ListenAddress::Tcp(address) if address.port() == 0);
        if !is_chosen_by_kernel {
            let bound = bound(disk, address);
            if let Some(same) = known.get(&bound) {
                let help = format!("it is listened on already in {same}; take one of the two out");
                checker.diagnostics.push(item.error_at(0, "this address is given twice").help(help));
                continue;
            }
            known.insert(bound, item.origin());
        }
        if let ListenAddress::Unix(path) = address {
            check_folder(checker, disk, item, path, "the socket");
        }
        let access = socket_access(checker, item, matches!(address, ListenAddress::Unix(_)));
        let backlog = written_or_default(&item.children, Context::Listen, "backlog");
        super::tls::check_listener(checker, item);
        let default_site = item.child("default-site");
        listeners.push(Listener {
            address: address.clone(),
            backlog: backlog.map_or(0, |item| small(&item)),
            default_site: default_site.and_then(|item| match item.first() {
                Some(Value::Host(host)) => Some(super::host_text(host)),
                _ => None,
            }),
            tls: item.child("tls").map(super::tls::listen),
            proxies: super::tls::proxies(checker, item),
            redirects_to_https: item.child("redirect-to-https").map(super::tls::port),
            access,
            h2c: item.child("h2c").is_some(),
            origin: item.origin(),
        });
        written.push(item.clone());
    }
    for (listener, item) in listeners.iter().zip(&written) {
        let ListenAddress::Tcp(address) = &listener.address else { continue };
        // Every IPv4 address is part of `[::]` already: one of the two would never see a client of IPv4.
        let both = ListenAddress::Tcp((Ipv6Addr::UNSPECIFIED, address.port()).into());
        if address.ip() == Ipv4Addr::UNSPECIFIED
            && address.port() != 0
            && let Some(same) = known.get(&both)
        {
            let message = format!("`[::]:{}` takes the clients of this address already", address.port());
            let help = format!("it is listened on in {same}; take one of the two out");
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
    }
    (listeners, written)
}

/// An address as the kernel sees it: the same for every way of writing it.
fn bound(disk: &dyn Disk, address: &ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) => {
            ListenAddress::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
        }
        ListenAddress::Unix(path) => ListenAddress::Unix(resolved(disk, path)),
    }
}

/// A path that is the same for every way of writing it, also where the file is still to be made.
fn resolved(disk: &dyn Disk, path: &Path) -> PathBuf {
    match (disk.what(path), path.parent(), path.file_name()) {
        (What::Missing, Some(folder), Some(name)) => disk.identity(folder).join(name),
        _ => disk.identity(path),
    }
}

/// The files that lines go to, and what the lines look like.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    files: HashMap<PathBuf, (Option<AccessFormat>, Origin)>,
}

impl Logs {
    /// Remembers the file of an `access-log` or `error-log`; says so when lines of another kind go there too.
    pub fn add(&mut self, checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) {
        let Some(Value::LogTarget(LogTarget::File(path))) = item.first() else { return };
        let format = match (item.directive.name, item.property("format")) {
            ("error-log", _) => None,
            (_, Some(Value::LogFormat(format))) => Some(format),
            _ => Some(AccessFormat::Combined),
        };
        let origin = item.origin();
        let (known, first) =
            self.files.entry(resolved(disk, path)).or_insert_with(|| (format.clone(), origin.clone()));
        if *known != format {
            let what = match (&known, &format) {
                (Some(_), Some(_)) => "lines in another format",
                _ => "lines of another log",
            };
            let message = format!("{what} go to {} already", path.display());
            let help = format!("see {first}; give each a file of its own");
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
    }
}

/// `mode`, `owner` and `group` of a unix socket.
fn socket_access(checker: &mut Checker<'_>, item: &Item, is_unix: bool) -> SocketAccess {
    let mut access = SocketAccess::default();
    for name in ["mode", "owner", "group"] {
        let Some(child) = item.child(name) else { continue };
        if !is_unix {
            let message = format!("`{name}` is for unix sockets, and this address is none");
            checker.diagnostics.push(child.error(message).help("take it out, or listen on \"unix:/path\""));
            continue;
        }
        let Some(text) = child.texts().pop() else { continue };
        match name {
            "owner" => access.owner = Some(text),
            "group" => access.group = Some(text),
            _ => match u32::from_str_radix(&text, 8) {
                Ok(mode) if mode <= 0o777 => access.mode = Some(mode),
                _ => {
                    let message = format!("`{text}` is no permission bits");
                    checker
                        .diagnostics
                        .push(child.error_at(0, message).help("write them in octal: \"0660\""));
                }
            },
        }
    }
    access
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
