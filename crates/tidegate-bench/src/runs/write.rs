//! What the folders of all kinds of runs have alike, and those of runs without a scenario.

use super::{Keep, of_requests};
use crate::report::{self, About, Report};
use serde_json::{Map, Value, json};
use std::fs;
use std::io;
use std::path::Path;

/// Settings of the kernel that change what a load generator sees.
const SYSCTLS: [&str; 8] = [
    "net/core/somaxconn",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_congestion_control",
    "net/core/default_qdisc",
    "net/ipv4/tcp_slow_start_after_idle",
    "fs/file-max",
];

/// Machine, kernel and its settings, versions and command of a run.
pub(crate) fn environment(about: &About, threads: u32, tls: Option<&str>) -> Value {
    let sysctl = |name: &&str| {
        let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        Some((name.replace('/', "."), json!(text.trim())))
    };
    let sysctls: Map<String, Value> = SYSCTLS.iter().filter_map(sysctl).collect();
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok();
    json!({
        "about": about,
        "sysctls": sysctls,
        "governor": governor.map(|text| text.trim().to_owned()),
        "threads": threads,
        "tls": tls,
    })
}

/// As people read it.
pub(crate) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// Writes the folder of a run of `hit`.
///
/// # Errors
/// What cannot be written, with its path.
pub fn keep_requests(folder: &Path, report: &Report, label: Option<&str>) -> io::Result<()> {
    let mut summary = report::json(report);
    if let Value::Object(summary) = &mut summary {
        // They are in `seconds.csv`.
        summary.remove("intervals");
        summary.insert("label".to_owned(), json!(label));
    }
    let outcome = &report.outcome;
    let environment = environment(&report.about, outcome.threads, outcome.tls.as_deref());
    keep_whole(
        folder,
        &summary,
        &environment,
        &[
            ("seconds.csv", of_requests(report).into_bytes()),
            ("requests.hlog", report::hdr_log(report)?),
            ("report.txt", report::screen(report).into_bytes()),
        ],
    )
}

/// Writes the folder of a search for the highest rate: its summary as JSON, and as text.
///
/// # Errors
/// What cannot be written, with its path.
pub fn keep_search(folder: &Path, summary: &Value, about: &About, text: &str) -> io::Result<()> {
    keep_whole(folder, summary, &environment(about, 0, None), &[("report.txt", text.as_bytes().to_vec())])
}

fn keep_whole(
    folder: &Path,
    summary: &Value,
    environment: &Value,
    files: &[(&str, Vec<u8>)],
) -> io::Result<()> {
    let keep = Keep::begin(folder, summary, &[("environment.json", pretty(environment))], super::head())?;
    let mut files = files.to_vec();
    files.push(("summary.json", pretty(summary)));
    keep.finish(&files)
}
