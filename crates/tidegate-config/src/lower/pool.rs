//! A pool: what the application is, how it is run, and what stands before it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{load_hook, written_or_default};
use crate::check::{Checker, Item, duration, number};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive::Context;
use crate::disk::{Disk, What};
use crate::settings::pool::{
    Application, IoPriority, Pass, Php, Place, Pool, PoolLog, Processes, Program, Queue, Resources, Socket,
    Temporary, WarmUp, WarmUpProtocol,
};
use crate::settings::{HostPattern, ListenAddress, Origin};
use crate::syntax::document::Node;
use crate::value::Value;

/// What a pool is, one of them.
pub(super) const KINDS: [&str; 4] = ["command", "php", "cgi-stubs", "address"];
/// What says nothing about an application that is not ours to run.
const OF_PROCESSES: [&str; 13] = [
    "temporary",
    "processes",
    "socket",
    "requests",
    "folder",
    "user",
    "group",
    "umask",
    "environment",
    "resources",
    "start-timeout",
    "stop-timeout",
    "warm-up",
];

/// Lowers the pools, in source order.
pub(super) fn pools(checker: &mut Checker<'_>, disk: &dyn Disk, items: &[Item]) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    let mut taken: HashMap<String, Origin> = HashMap::new();
    for item in items.iter().filter(|item| item.directive.name == "pool") {
        let Some(name) = item.texts().pop() else { continue };
        if let Some(origin) = taken.get(&name) {
            let help =
                format!("it stands already in {}:{}; give one of the two another", origin.file, origin.line);
            checker.diagnostics.push(item.error_at(0, format!("two pools are named `{name}`")).help(help));
            continue;
        }
        let Some(application) = application(checker, disk, item) else { continue };
        let hooks = load_hook::hooks(checker, disk, &item.children, load_hook::OF_POOLS);
        let queue = within(item, "queue");
        let log = within(item, "output");
        let target = log.as_ref().and_then(|item| super::logs::target(checker, item));
        if let (Some(target), Some(item)) = (&target, &log) {
            super::check_log(checker, disk, item, target);
        }
        taken.insert(name.clone(), item.origin());
        pools.push(Pool {
            name,
            application,
            places: within(item, "places").and_then(|item| match item.first() {
                Some(Value::Number(places)) => u32::try_from(*places).ok(),
                _ => None,
            }),
            queue: Queue {
                length: queue.as_ref().map_or(0, |item| amount(item, "length")),
                age: queue.as_ref().map(|item| time(item, "age")).unwrap_or_default(),
            },
            log: PoolLog {
                target,
                limit: match log.as_ref().and_then(|item| item.property("limit")) {
                    Some(Value::Number(limit)) => limit,
                    _ => 1 << 20,
                },
            },
            hooks,
            origin: item.origin(),
        });
    }
    pools
}

/// The pool that starts CGI scripts where the settings name none: as if `pool "cgi" { cgi-stubs }` stood
/// there, with as many processes as its reference says.
pub(super) fn plain_cgi(checker: &mut Checker<'_>) -> Option<Pool> {
    let text = "pool \"cgi\" { cgi-stubs; processes min=2 max=32 }";
    let node = Node::parse(text)?;
    let source = crate::source::Source::new(crate::source::DEFAULT, text);
    let file = crate::check::File { source, folder: std::sync::Arc::from(Path::new("/")) };
    let item = checker.item(&file, &node, Context::Top)?;
    pools(checker, &crate::disk::NoDisk, &[item]).pop()
}

/// A directive of the block: as written, else its default.
fn within(item: &Item, name: &str) -> Option<Item> {
    written_or_default(&item.children, Context::Pool, name)
}

fn application(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) -> Option<Application> {
    let mut given = item.children.iter().filter(|child| KINDS.contains(&child.directive.name));
    let first = given.next();
    if let (Some(first), Some(second)) = (first, given.next()) {
        let (one, other) = (first.directive.name, second.directive.name);
        let message = format!("`{other}` stands beside `{one}`, and a pool is only one of them");
        checker.diagnostics.push(second.error(message).help("make two pools of them, or keep one"));
    }
    let Some(kind) = first else {
        let message = "this pool does not say what it is";
        let help =
            "add `command \"/usr/bin/php-cgi\"`, `php`, `cgi-stubs` or `address \"unix:/run/app.sock\"`";
        checker.diagnostics.push(item.error(message).help(help));
        return None;
    };
    if kind.directive.name != "address" {
        return Some(Application::Processes(Box::new(processes(checker, disk, item, kind)?)));
    }
    for child in item.children.iter().filter(|child| OF_PROCESSES.contains(&child.directive.name)) {
        let message = format!("`{}` says nothing about an `address`", child.directive.name);
        let help = "take it out: what runs there is not ours to start";
        checker.diagnostics.push(child.error(message).help(help));
    }
    address(checker, kind).map(Application::External)
}

/// An address to connect to: one that listeners may have, but a definite one.
fn address(checker: &mut Checker<'_>, item: &Item) -> Option<ListenAddress> {
    let Some(Value::Address(address)) = item.first() else { return None };
    if let ListenAddress::Tcp(socket) = address
        && (socket.ip().is_unspecified() || socket.port() == 0)
    {
        let message = format!("nothing can be reached at {socket}");
        checker
            .diagnostics
            .push(item.error_at(0, message).help("name address and port, such as `\"127.0.0.1:9000\"`"));
        return None;
    }
    Some(address.clone())
}

fn processes(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, kind: &Item) -> Option<Processes> {
    let program = program(checker, disk, kind)?;
    let counts = written_or_default(&item.children, Context::Pool, "processes");
    let count = |name: &str| match counts.as_ref().and_then(|item| item.property(name)) {
        Some(Value::Number(count)) => u32::try_from(count).ok(),
        _ => None,
    };
    let span = |name: &str, otherwise: Duration| match counts.as_ref().and_then(|item| item.property(name)) {
        Some(Value::Duration(span)) => span,
        _ => otherwise,
    };
    let min = count("min").unwrap_or(1.min(count("max").unwrap_or(1)));
    let max = count("max").unwrap_or(min.max(8));
    if let Some(item) = counts.as_ref().filter(|_| min > max) {
        let message = format!("`min={min}` is more than `max={max}`");
        checker.diagnostics.push(item.error(message).help("raise `max`, or lower `min`"));
    }
    let socket = socket(checker, disk, item, &program)?;
    let text = |name: &str| item.child(name).and_then(|item| item.texts().pop());
    let folder = item.child("folder").and_then(path);
    if let (Some(folder), Some(item)) = (&folder, item.child("folder"))
        && !matches!(disk.what(folder), What::Folder | What::Hidden)
    {
        let message = format!("the folder {} is not there", folder.display());
        checker
            .diagnostics
            .push(item.error_at(0, message).help(format!("make it: `mkdir -p {}`", folder.display())));
    }
    let warm_up = item.child("warm-up").and_then(|item| warm_up(checker, disk, item, &program, socket.pass));
    let umask = item.child("umask").and_then(|item| umask(checker, item));
    let environment = item.child("environment").map(|item| item.pairs.clone()).unwrap_or_default();
    if let Some(item) = item.child("environment")
        && let Some((name, _)) = environment
            .iter()
            .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        let message = format!("`{}` cannot be a variable", name.escape_default());
        checker
            .diagnostics
            .push(item.error(message).help("a name holds no `=`, and neither it nor its value a zero byte"));
    }
    let temporary = temporary(checker, item, &program);
    Some(Processes {
        program,
        temporary,
        min,
        max,
        idle: span("idle", Duration::from_secs(60)),
        grow_after: span("grow-after", Duration::from_millis(100)),
        socket,
        requests: within(item, "requests").and_then(|item| match item.first() {
            Some(Value::Number(requests)) => Some(*requests),
            _ => None,
        }),
        folder,
        user: text("user"),
        group: text("group"),
        umask,
        environment,
        resources: item.child("resources").map(resources).unwrap_or_default(),
        start_timeout: within(item, "start-timeout").map(|item| duration(&item)).unwrap_or_default(),
        stop_timeout: within(item, "stop-timeout").map(|item| duration(&item)).unwrap_or_default(),
        warm_up,
        sealed: Default::default(),
    })
}

fn program(checker: &mut Checker<'_>, disk: &dyn Disk, kind: &Item) -> Option<Program> {
    match kind.directive.name {
        "php" => Some(Program::Php(match kind.first() {
            Some(Value::Word("fpm")) => Php::Fpm,
            Some(Value::Word("cgi")) => Php::Cgi,
            _ => Php::Any,
        })),
        "cgi-stubs" => Some(Program::Cgi { expiration: time(kind, "expiration") }),
        _ => {
            let arguments = kind.texts();
            let program = arguments.first()?;
            if program.is_empty() || program.contains('\0') {
                checker
                    .diagnostics
                    .push(kind.error_at(0, "this names no program").help("name one, such as `\"php-cgi\"`"));
                return None;
            }
            let missing = missing_program(checker, disk, kind, 0, program);
            checker.diagnostics.extend(missing);
            let mut arguments = arguments;
            if let Some(first) = arguments.first_mut()
                && first.contains('/')
            {
                // A relative path counts from the folder of the file, as everywhere.
                *first = kind.file.folder.join(&*first).to_string_lossy().into_owned();
            }
            Some(Program::Command(arguments))
        }
    }
}

fn temporary(checker: &mut Checker<'_>, item: &Item, program: &Program) -> Temporary {
    if let Some(written) = item.child("temporary").filter(|_| !matches!(program, Program::Php(_))) {
        let message = "`temporary` stands in a pool with `php` only";
        let help = "take it out: other programs are told by their own settings, or `environment`";
        checker.diagnostics.push(written.error(message).help(help));
    }
    let written = within(item, "temporary");
    Temporary {
        place: match written.as_ref().and_then(Item::first) {
            Some(Value::Word("memory")) => Place::Memory,
            Some(Value::Word("off")) => Place::Off,
            Some(Value::Path(folder)) => Place::Folder(folder.clone()),
            _ => Place::Auto,
        },
        size: match written.as_ref().and_then(|item| item.property("size")) {
            Some(Value::Number(size)) => size,
            _ => 1 << 30,
        },
    }
}

fn socket(checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item, program: &Program) -> Option<Socket> {
    let written = item.child("socket");
    if let (Some(written), false) = (written, matches!(program, Program::Command(_))) {
        let message = "`socket` stands in a pool with `command` only";
        checker
            .diagnostics
            .push(written.error(message).help("take it out: this application has its own way"));
    }
    let socket = within(item, "socket")?;
    let pass = match socket.property("pass") {
        Some(Value::Word("descriptor")) => Pass::Descriptor,
        Some(Value::Word("port")) => Pass::Port,
        Some(Value::Word("path")) => Pass::Path,
        _ => Pass::Stdin,
    };
    let address = match socket.first() {
        Some(Value::Address(_)) => Some(address(checker, &socket)?),
        _ => None,
    };
    if let (Some(address), Pass::Port | Pass::Path, Some(written)) = (&address, pass, written) {
        let message = "processes that bind their sockets themselves cannot share one";
        checker
            .diagnostics
            .push(written.error(message).help("write `socket auto`, or `pass=stdin` or `pass=descriptor`"));
        let _ = address;
    }
    if let (Some(ListenAddress::Unix(path)), Some(written)) = (&address, written) {
        super::check_folder(checker, disk, written, path, "the socket");
    }
    Some(Socket { address, pass })
}

fn warm_up(
    checker: &mut Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    program: &Program,
    pass: Pass,
) -> Option<WarmUp> {
    if matches!(program, Program::Cgi { .. }) {
        let message = "`warm-up` says nothing about `cgi-stubs`: each script is a process of its own";
        checker.diagnostics.push(item.error(message).help("take it out"));
        return None;
    }
    let is_php = matches!(program, Program::Php(_));
    let protocol = match item.property("protocol") {
        Some(Value::Word("fastcgi")) => WarmUpProtocol::FastCgi,
        Some(Value::Word("scgi")) => WarmUpProtocol::Scgi,
        Some(Value::Word("http")) => WarmUpProtocol::Http,
        _ if is_php || pass == Pass::Stdin => WarmUpProtocol::FastCgi,
        _ => WarmUpProtocol::Http,
    };
    if is_php && protocol != WarmUpProtocol::FastCgi {
        let message = "the processes of `php` speak FastCGI";
        checker.diagnostics.push(item.error(message).help("take `protocol` out"));
        return None;
    }
    let root = match item.property("root") {
        Some(Value::Path(path)) => Some(path),
        _ => None,
    };
    if is_php && root.is_none() {
        let message = "`warm-up` does not say where the scripts lie";
        checker.diagnostics.push(item.error(message).help("add the folder, such as `root=\"/srv/www\"`"));
        return None;
    }
    let targets = item.texts();
    for (at, target) in targets.iter().enumerate() {
        if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("`{}` is no path of a request", target.escape_default());
            let help = "begin it with `/`, and write what is not ASCII as `%` and two digits";
            checker.diagnostics.push(item.error_at(at, message).help(help));
            continue;
        }
        let path = target.split('?').next().unwrap_or_default();
        let script = root.as_ref().map(|root| root.join(path.trim_start_matches('/')));
        if let Some(script) = script.filter(|_| is_php)
            && !matches!(disk.what(&script), What::File | What::Hidden)
        {
            let message = format!("the script {} is not there", script.display());
            let help =
                "put the path right, or that of `root`; without it the process takes work all the same";
            let warning = Diagnostic { severity: Severity::Warning, ..item.error_at(at, message) };
            checker.diagnostics.push(warning.help(help));
        }
    }
    let host = match item.property("host") {
        Some(Value::Host(HostPattern::Exact(host))) => host,
        _ => {
            let message = "`host` names no single host";
            checker.diagnostics.push(item.error(message).help("write one, such as `host=\"example.com\"`"));
            return None;
        }
    };
    Some(WarmUp { targets, root, host, protocol, timeout: time(item, "timeout") })
}

fn umask(checker: &mut Checker<'_>, item: &Item) -> Option<u32> {
    let text = item.texts().pop()?;
    let mask = u32::from_str_radix(&text, 8).ok().filter(|mask| *mask <= 0o777);
    if mask.is_none() {
        let message = format!("`{text}` is no file mode mask");
        checker
            .diagnostics
            .push(item.error_at(0, message).help("write octal digits up to 777, such as `\"027\"`"));
    }
    mask
}

fn resources(item: &Item) -> Resources {
    let number = |name: &str| match item.property(name) {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    };
    Resources {
        descriptors: number("descriptors"),
        memory: number("memory"),
        core: number("core"),
        nice: number("nice").and_then(|nice| u8::try_from(nice).ok()),
        io: match item.property("io") {
            Some(Value::Word("low")) => Some(IoPriority::Low),
            Some(Value::Word("idle")) => Some(IoPriority::Idle),
            _ => None,
        },
    }
}

/// What is to be said where a program that an item names is not there: a path, which counts from the folder of the file, or a name
/// that is looked for in `PATH`.
pub(super) fn missing_program(
    checker: &Checker<'_>,
    disk: &dyn Disk,
    item: &Item,
    at: usize,
    program: &str,
) -> Option<Diagnostic> {
    let is_found = |path: &Path| matches!(disk.what(path), What::File | What::Hidden);
    let search = checker.environment.variable("PATH");
    let is_there = match (program.contains('/'), &search) {
        (true, _) => is_found(&item.file.folder.join(program)),
        (false, Some(folders)) => folders.split(':').any(|folder| is_found(&Path::new(folder).join(program))),
        (false, None) => true,
    };
    if is_there {
        return None;
    }
    let message = format!("the program `{program}` is not there");
    let help = if program.contains('/') {
        "install it, or put the path right".to_owned()
    } else {
        format!("install it, or write its whole path; looked for in {}", search.unwrap_or_default())
    };
    Some(item.error_at(at, message).help(help))
}

fn path(item: &Item) -> Option<PathBuf> {
    match item.first() {
        Some(Value::Path(path)) => Some(path.clone()),
        _ => None,
    }
}

fn amount(item: &Item, property: &str) -> u32 {
    match item.property(property) {
        Some(Value::Number(number)) => u32::try_from(number).unwrap_or(u32::MAX),
        _ => number(item).try_into().unwrap_or(u32::MAX),
    }
}

fn time(item: &Item, property: &str) -> Duration {
    match item.property(property) {
        Some(Value::Duration(time)) => time,
        _ => Duration::ZERO,
    }
}
