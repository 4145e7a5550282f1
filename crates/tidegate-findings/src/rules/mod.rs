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
mod stores;
mod upstreams;

pub(crate) use applications::gateway_of;

use crate::window::{Quoted, Window};
use std::time::Duration;
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
    /// How long was looked back, as the sentence says it: `5m`.
    pub length: String,
    /// What of the settings and the machine the words quote.
    pub quoted: Vec<Quoted>,
    /// What it is a matter of beside its subject. Something else follows from it only where it is a matter of the same.
    pub concerns: Vec<Concern>,
    /// What has caused it is gone for certain: nobody need be told for longer, whatever the figure still is.
    pub is_over: bool,
}

/// What something is a matter of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Concern {
    /// The machine, and so everything on it.
    Machine,
    /// Memory of the machine.
    Memory,
    /// Processes of the server that the kernel has killed.
    Kills,
    /// Places of `limits in-flight`.
    InFlight,
    /// An application: a pool, an upstream, or an address.
    Application(String),
    /// A log, or what is written below a folder.
    Folder(std::path::PathBuf),
}

impl Seen {
    fn concerning(self, concerns: impl Into<Vec<Concern>>) -> Seen {
        Seen { concerns: concerns.into(), ..self }
    }
}

/// Whether what is a matter of `symptom` may follow from what is one of `cause`.
pub(crate) fn follows(symptom: &[Concern], cause: &[Concern]) -> bool {
    matches!(cause, [Concern::Machine]) || symptom.iter().any(|concern| cause.contains(concern))
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
    rule("application-breaks", AT_ONCE, &["pool-crashes"], applications::breaks),
    rule("application-errors", STEADY, &[], applications::errors),
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
    rule("member-flaps", AT_ONCE, &[], upstreams::member_flaps),
    rule("upstream-queue-full", AT_ONCE, &["application-slow", "member-flaps"], upstreams::queue_full),
    rule("upstream-too-small", STEADY, &["application-slow", "member-flaps"], upstreams::too_small),
    rule(
        "application-queue-age",
        AT_ONCE,
        &[
            "pool-too-large",
            "pool-too-small",
            "pool-crashes",
            "upstream-too-small",
            "application-slow",
            "member-flaps",
        ],
        upstreams::queue_age,
    ),
    rule("upstream-reconnects", STEADY, &["application-down"], upstreams::reconnects),
    rule("retries-amplify", STEADY, &["pool-crashes", "application-down"], upstreams::retries),
    rule("file-cache-small", STEADY, &[], content::file_cache_small),
    rule("cache-too-small", STEADY, &["cache-disk-out"], stores::too_small),
    rule("cache-disk-out", AT_ONCE, &[], stores::disk_out),
    rule("cache-nothing-stored", STEADY, &[], stores::nothing_stored),
    rule("compress-again", STEADY, &[], content::compress_again),
    rule("tickets", STEADY, &[], content::tickets),
    rule("certificate-ends", AT_ONCE, &[], content::certificate_ends),
    rule("not-found-storm", STEADY, &[], content::not_found_storm),
    rule("retry-storm", STEADY, &[], content::retry_storm),
    rule("files-cut", AT_ONCE, &[], content::files_cut),
    rule("limit-keys", AT_ONCE, &[], content::limit_keys),
    rule("log-slow", AT_ONCE, &["disk-full"], house::log_slow),
    rule("disk-full", STEADY, &[], house::disk_full),
    rule("server-crashes", AT_ONCE, &["cgroup-memory"], house::server_crashes),
    rule("names-unanswered", AT_ONCE, &[], house::names_unanswered),
    rule("directory-fails", AT_ONCE, &[], house::directory_fails),
    rule("limit-store-fails", AT_ONCE, &[], house::limit_store_fails),
];

/// The names of all rules, in their order.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.name)
}

/// What is further below its threshold is nothing. Tests lower thresholds tenfold.
const WORTH_A_WORD: f64 = 0.05;

/// What most rules are about.
const SERVER: &str = "the server";

/// Of the server as a whole.
fn of_server(
    window: &Window<'_>,
    ratio: f64,
    sentence: impl FnOnce() -> String,
    change: impl FnOnce() -> Change,
) -> Vec<Seen> {
    let seen = of(window, SERVER, ratio, sentence, change);
    seen.map(|seen| seen.concerning([Concern::Machine])).into_iter().collect()
}

/// The same, where it is a matter of something else.
fn concerning(seen: Vec<Seen>, concern: Concern) -> Vec<Seen> {
    seen.into_iter().map(|seen| seen.concerning([concern.clone()])).collect()
}

/// Of a subject. What is far below its threshold is not put into words.
fn of(
    window: &Window<'_>,
    subject: impl Into<String>,
    ratio: f64,
    sentence: impl FnOnce() -> String,
    change: impl FnOnce() -> Change,
) -> Option<Seen> {
    (ratio >= WORTH_A_WORD).then(|| Seen {
        subject: subject.into(),
        ratio,
        sentence: sentence(),
        change: change(),
        length: window.length(),
        quoted: window.quoted(),
        concerns: Vec::new(),
        is_over: false,
    })
}

/// A queue that was full.
struct FullQueue<'q> {
    setting: &'q str,
    length: u32,
    age: Duration,
    /// Requests that get to their place in a second.
    rate: f64,
    /// Requests that were refused between two looks, at most.
    refused: u64,
    /// What helps where a longer queue does not.
    instead: &'q str,
}

impl FullQueue<'_> {
    /// By Little's law it is of use up to what is answered within its age: what is behind that is refused all the same, later.
    /// Nor is more of use than has ever come, of which who is refused comes again and again.
    fn change(&self) -> Change {
        let answered = self.rate * self.age.as_secs_f64();
        let (rate, age) = (self.rate, tidegate_config::duration_text(self.age));
        // The rate is never the same twice.
        if answered < (1.25 * f64::from(self.length)).max(1.0) {
            return Change::told(format!(
                "a longer queue would not help: {rate:.1} requests get a place in a second, {answered:.0} in the `age` of the queue ({age}), and \
                 `{}` is {}; {}",
                self.setting, self.length, self.instead
            ));
        }
        let came = u64::from(self.length).saturating_add(self.refused);
        let answered = answered as u64;
        let (new, why) = if came < answered {
            (
                came,
                format!("{} and the {} that were refused in ten seconds at most", self.length, self.refused),
            )
        } else {
            (answered, "what is behind that is refused all the same, later".to_owned())
        };
        let how = format!("{why}; {rate:.1} get a place in a second, {answered} in the `age` of {age}");
        Change::of(self.setting, self.length, new, &how)
    }
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
