//! The rules. Each is a name, how many looks running it takes, what it follows from, and a function from the window to what is
//! seen. `docs/findings.md` has a section for each, in the same order.

mod admission;
mod applications;
mod content;
mod house;
mod keep_alive;
mod memory;
mod network;
mod pools;
mod processors;

use crate::window::Window;
use tidegate_modules::status::Change;

/// The page that explains findings.
pub const PAGE: &str = "docs/findings.md";

/// Looks running for what may pass by itself.
const STEADY: u32 = 3;
/// For counted events, which have their own measure, and for facts.
const AT_ONCE: u32 = 1;

/// A rule.
pub(crate) struct Rule {
    /// What its finding is called.
    pub name: &'static str,
    /// Looks running at the threshold or above.
    pub looks: u32,
    /// Findings that this one follows from.
    pub suppressed_by: &'static [&'static str],
    /// What is seen in a window: something for each subject.
    pub look: fn(&Window<'_>) -> Vec<Seen>,
}

/// What a rule sees of a subject.
pub(crate) struct Seen {
    pub subject: String,
    /// How far the figure is above its threshold: 1 at it.
    pub ratio: f64,
    pub sentence: String,
    pub change: Change,
}

const fn rule(
    name: &'static str,
    looks: u32,
    suppressed_by: &'static [&'static str],
    look: fn(&Window<'_>) -> Vec<Seen>,
) -> Rule {
    Rule { name, looks, suppressed_by, look }
}

/// All rules: what the machine lacks first, then what the settings bound, then the applications, then the rest.
pub(crate) const RULES: &[Rule] = &[
    rule("steal", STEADY, &[], processors::steal),
    rule("throttled", STEADY, &["steal"], processors::throttled),
    rule("workers-too-few", STEADY, &["throttled"], processors::workers_too_few),
    rule("workers-too-many", STEADY, &[], processors::workers_too_many),
    rule("worker-imbalance", STEADY, &[], processors::worker_imbalance),
    rule(
        "worker-blocked",
        STEADY,
        &["steal", "throttled", "swapping", "disk-waits"],
        processors::worker_blocked,
    ),
    rule(
        "overload",
        AT_ONCE,
        &["steal", "throttled", "workers-too-few", "pool-too-large"],
        processors::overload,
    ),
    rule("disk-waits", STEADY, &["swapping"], processors::disk_waits),
    rule("cgroup-memory", AT_ONCE, &["pool-memory"], memory::cgroup_memory),
    rule("swapping", STEADY, &["pool-memory"], memory::swapping),
    rule("memory-limit", AT_ONCE, &[], memory::memory_limit),
    rule("tcp-memory", AT_ONCE, &[], memory::tcp_memory),
    rule("descriptors", AT_ONCE, &[], memory::descriptors),
    rule("descriptors-too-few", STEADY, &["descriptors"], memory::descriptors_too_few),
    rule("system-descriptors", AT_ONCE, &[], memory::system_descriptors),
    rule("connections-limit", AT_ONCE, &["descriptors-too-few"], admission::connections_limit),
    rule("address-limit", AT_ONCE, &[], admission::address_limit),
    rule("under-throttled", STEADY, &["application-slow"], admission::under_throttled),
    rule(
        "queue-full",
        AT_ONCE,
        &["under-throttled", "application-slow", "pool-too-small"],
        admission::queue_full,
    ),
    rule(
        "queue-age",
        AT_ONCE,
        &["under-throttled", "application-slow", "pool-too-small"],
        admission::queue_age,
    ),
    rule("somaxconn", AT_ONCE, &[], admission::somaxconn),
    rule("backlog-overflow", AT_ONCE, &["somaxconn", "steal", "throttled"], admission::backlog_overflow),
    rule("keep-alive-flushed", STEADY, &["memory-limit"], keep_alive::flushed),
    rule("keep-alive-too-short", STEADY, &[], keep_alive::too_short),
    rule("keep-alive-refused", STEADY, &[], keep_alive::refused),
    rule("retransmits", STEADY, &["link-full"], network::retransmits),
    rule("link-full", STEADY, &[], network::link_full),
    rule("application-slow", AT_ONCE, &["pool-too-large", "application-down"], applications::slow),
    rule("application-down", AT_ONCE, &["pool-crashes"], applications::down),
    rule("pool-crashes", AT_ONCE, &["pool-memory"], pools::crashes),
    rule("pool-memory", STEADY, &[], pools::memory),
    rule("pool-too-large", STEADY, &[], pools::too_large),
    rule("pool-too-small", STEADY, &["application-slow", "pool-crashes"], pools::too_small),
    rule(
        "pool-queue-full",
        AT_ONCE,
        &["pool-too-small", "pool-crashes", "application-slow"],
        pools::queue_full,
    ),
    rule("opcache-full", AT_ONCE, &[], pools::opcache_full),
    rule("member-flaps", AT_ONCE, &[], applications::member_flaps),
    rule("upstream-queue-full", AT_ONCE, &["application-slow", "member-flaps"], applications::queue_full),
    rule("upstream-reconnects", STEADY, &["application-down"], applications::reconnects),
    rule("retries-amplify", STEADY, &["application-down"], applications::retries),
    rule("file-cache-small", STEADY, &[], content::file_cache_small),
    rule("tickets", STEADY, &[], content::tickets),
    rule("certificate-ends", AT_ONCE, &[], content::certificate_ends),
    rule("not-found-storm", STEADY, &[], content::not_found_storm),
    rule("files-cut", AT_ONCE, &[], content::files_cut),
    rule("limit-keys", AT_ONCE, &[], content::limit_keys),
    rule("log-slow", AT_ONCE, &["disk-full"], house::log_slow),
    rule("disk-full", STEADY, &[], house::disk_full),
    rule("server-crashes", AT_ONCE, &["cgroup-memory"], house::server_crashes),
    rule("names-unanswered", AT_ONCE, &[], house::names_unanswered),
    rule("directory-fails", AT_ONCE, &[], house::directory_fails),
];

/// The names of all rules, in their order.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.name)
}

/// What most rules are about.
const SERVER: &str = "the server";

/// Of the server as a whole.
fn of_server(ratio: f64, sentence: impl FnOnce() -> String, change: impl FnOnce() -> Change) -> Vec<Seen> {
    of(SERVER, ratio, sentence, change).into_iter().collect()
}

/// Of a subject. What is far below its threshold is not put into words.
fn of(
    subject: impl Into<String>,
    ratio: f64,
    sentence: impl FnOnce() -> String,
    change: impl FnOnce() -> Change,
) -> Option<Seen> {
    // Tests lower thresholds tenfold.
    (ratio >= 0.05).then(|| Seen { subject: subject.into(), ratio, sentence: sentence(), change: change() })
}

/// `37 %`
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `1.25 s`, `80 ms`
fn time(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.0} ms", seconds * 1000.0) }
}

/// `1.5 MiB`
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut scaled, mut unit) = (count as f64, 0);
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{count} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// `1 request was`, `3 requests were`
fn were(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one} was") } else { format!("{count} {one}s were") }
}
