//! Memory and descriptors: of the process, of its cgroup, of the machine.

use super::{Concern, Seen, bytes, of_server, percent, were};
use crate::window::{Sample, Window, all, only, over, round_up};
use tidegate_modules::status::Change;
use tidegate_stats::{AcceptError, ConnectionRefusal};

/// Of the descriptors that a process may hold, those that it holds.
const DESCRIPTORS: f64 = 0.85;
/// Of the connections for which there are descriptors, those that are open.
const HALF: f64 = 0.5;
/// What a process needs beside connections; as `descriptors.rs` of the binary has it.
const OWN: u64 = 64;
const SHARE: u64 = 64;
/// Per cent of ten seconds in which everything waited for memory.
const PRESSED: f64 = 5.0;
/// Pages that the server had to read back in a second.
const FAULTS: f64 = 10.0;
/// Of the memory for TCP, what is used.
const TCP_SHARE: f64 = 0.9;

/// Server processes there are.
fn processes(sample: &Sample) -> u64 {
    sample.info.processes.iter().filter(|process| process.pid != 0).count().max(1) as u64
}

pub(super) fn descriptors(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| sample.host.descriptors);
    let refused = |sample: &Sample| sample.counted.connection_refusals.count(ConnectionRefusal::Descriptors);
    // One that waits is tried again, and fails again: that is no further connection.
    let failed = |sample: &Sample| sample.counted.accept_errors.count(AcceptError::ProcessDescriptors);
    let sample = window.now();
    let limit = sample.host.descriptors.unwrap_or(u64::MAX);
    let held = sample.info.used.descriptors / processes(sample);
    let ratio =
        over(held as f64, DESCRIPTORS * limit as f64).max(window.events(refused)).max(window.events(failed));
    let wanted = wanted_descriptors(window);
    let sentence = || {
        let refused = were(window.risen(refused), "connection");
        format!(
            "a server process holds {held} of {limit} descriptors; {refused} turned away {} for want of one, and accepting has failed {} times",
            window.span(),
            window.risen(failed)
        )
    };
    of_server(window, ratio, sentence, || {
        Change::of(
            "LimitNOFILE",
            limit,
            wanted,
            "of the service, or `ulimit -Hn`: twice what the settings may need; then restart the server",
        )
    })
}

/// What the settings may need in each process, twice, as a power of two.
fn wanted_descriptors(window: &Window<'_>) -> u64 {
    let settings = window.settings();
    let (limits, processes) = (&settings.limits, u64::from(settings.processes.max(1)));
    let files = window.now().counted.cache_descriptors.limit;
    let all = u64::from(limits.connections) + 2 * u64::from(limits.in_flight) + files;
    (2 * all.div_ceil(processes)).next_power_of_two()
}

pub(super) fn descriptors_too_few(window: &Window<'_>) -> Vec<Seen> {
    let Some(limit) = window.now().host.descriptors else { return Vec::new() };
    let window = &window
        .quoting(|settings| settings.limits.connections)
        .quoting_bound(|sample| sample.host.descriptors);
    let settings = window.settings();
    let connections = u64::from(settings.limits.connections);
    let room = limit.saturating_sub(OWN + limit / SHARE).saturating_mul(u64::from(settings.processes.max(1)));
    let open = window.now().counted.connections.current;
    // Settings that ask for more than there is limit nobody before it is used.
    let ratio = all([over(open as f64, HALF * room.max(1) as f64), only(connections > room)]);
    let sentence = || {
        format!(
            "{open} connections are open, and the descriptors of the process suffice for {room}, not for the {connections} of `limits \
             connections`: beyond them accepting stops"
        )
    };
    of_server(window, ratio, sentence, || {
        let how = format!(
            "of the service, or `ulimit -Hn`; or set `limits connections {room}`, so that who comes too much is told so"
        );
        Change::of("LimitNOFILE", limit, wanted_descriptors(window), &how)
    })
}

pub(super) fn system_descriptors(window: &Window<'_>) -> Vec<Seen> {
    let failed = |sample: &Sample| sample.counted.accept_errors.count(AcceptError::SystemDescriptors);
    let sentence = || {
        format!(
            "{} not accepted {}: the machine has no more descriptors, for nobody",
            were(window.risen(failed), "connection"),
            window.span()
        )
    };
    of_server(window, window.events(failed), sentence, || {
        Change::told(
            "raise `fs.file-max` (`sysctl`), or find who holds them: `cat /proc/sys/fs/file-nr`, `lsof`",
        )
    })
}

pub(super) fn memory_limit(window: &Window<'_>) -> Vec<Seen> {
    let window = &window
        .quoting(|settings| settings.limits.unsent_size)
        .quoting_bound(|sample| sample.counted.buffer.limit);
    let short = |sample: &Sample| {
        sample.counted.memory_resets + sample.counted.connection_refusals.count(ConnectionRefusal::Memory)
    };
    let sample = window.now();
    let limit = sample.counted.buffer.limit;
    let new = round_up(1.5 * limit.max(1) as f64, 16 << 20);
    let sentence = || {
        format!(
            "{} reset or refused {}: what connections own has reached {} (`limits memory`), since clients do not take their answers",
            were(window.risen(short), "connection"),
            window.span(),
            bytes(limit)
        )
    };
    of_server(window, window.events(short), sentence, || {
        let size = tidegate_config::size_text;
        if sample.host.available.is_none_or(|available| new < available / 2) {
            return Change::of(
                "limits memory",
                size(limit),
                size(new),
                "half as much again, which the machine has",
            );
        }
        let unsent = window.settings().limits.unsent_size;
        let less = (unsent / 2).max(16 << 10);
        Change::of(
            "limits unsent-size",
            size(unsent.into()),
            size(less.into()),
            "the machine has no more memory: hold less for each connection",
        )
    })
}

pub(super) fn cgroup_memory(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| sample.host.cgroup.memory_most);
    let Some(most) = window.now().host.cgroup.memory_most else { return Vec::new() };
    let cgroup = &window.now().host.cgroup;
    let held =
        |sample: &Sample| sample.host.cgroup.memory_events.saturating_add(sample.host.cgroup.memory_kills);
    let pressure = window.now().host.pressure.memory;
    // That a bound is met is usual where files are cached: what counts is that something waits, or is killed.
    let waits = all([window.events(held), over(pressure, PRESSED)]);
    let ratio = waits.max(window.events(|sample| sample.host.cgroup.memory_kills * 10));
    let kills = window.risen(|sample| sample.host.cgroup.memory_kills);
    let new = round_up(1.3 * cgroup.memory_peak.max(most) as f64, 16 << 20);
    let sentence = || {
        format!(
            "the cgroup of the server was held to its {} of memory {} times {}, {kills} of its processes were killed, and everything in it \
             waited {pressure:.0} % of the time",
            bytes(most),
            window.risen(held),
            window.span()
        )
    };
    let seen = of_server(window, ratio, sentence, || {
        let size = tidegate_config::size_text;
        Change::of(
            "MemoryMax",
            size(most),
            size(new),
            "of the service or container: 1.3 times the most that was used; or `file-cache memory` and pools smaller",
        )
    });
    let concerns: &[Concern] = match kills {
        0 => &[Concern::Machine, Concern::Memory],
        _ => &[Concern::Machine, Concern::Memory, Concern::Kills],
    };
    seen.into_iter().map(|seen| seen.concerning(concerns)).collect()
}

pub(super) fn swapping(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.file_cache.memory);
    let own = |sample: &Sample| {
        let is_server = |pid: u32| sample.info.processes.iter().any(|process| process.pid == pid);
        let processes = sample.host.processes.iter().filter(|process| is_server(process.pid));
        processes.map(|process| process.major_faults).sum::<u64>()
    };
    let faults = window.step(own) as f64 / window.step_seconds();
    let swapped = window.step(|sample| sample.host.swapped_in);
    let ratio = all([over(faults, FAULTS), only(swapped > 0)]);
    let memory = window.settings().file_cache.memory;
    let sentence = || {
        format!(
            "the server waits for {faults:.0} pages of its memory a second, which were swapped out: each holds up a worker for a disk"
        )
    };
    of_server(window, ratio, sentence, || {
        let size = tidegate_config::size_text;
        Change::of(
            "file-cache memory",
            size(memory),
            size(memory / 2),
            "or fewer processes in pools, or more memory: the machine has too little for all that runs",
        )
    })
}

pub(super) fn tcp_memory(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.limits.unsent_size);
    let aborts = |sample: &Sample| sample.host.tcp.memory_aborts;
    let used = window.now().host.tcp_pages.map_or(0.0, |(used, most)| used as f64 / most as f64);
    let ratio = window.events(aborts).max(over(used, TCP_SHARE));
    let ended = window.risen(aborts);
    let sentence = || {
        let used = percent(used);
        if ended == 0 {
            return format!(
                "sockets use {used} of the memory for TCP (`net.ipv4.tcp_mem`), beyond which the kernel ends connections"
            );
        }
        // The one is of the window, the other of its end: by then those connections have given theirs back.
        format!(
            "the kernel ended {} {} for want of memory for TCP (`net.ipv4.tcp_mem`), of which sockets use {used} by now",
            were(ended, "connection").trim_end_matches(" were").trim_end_matches(" was"),
            window.span()
        )
    };
    of_server(window, ratio, sentence, || {
        let (old, size) = (window.settings().limits.unsent_size, tidegate_config::size_text);
        let new = (old / 2).max(16 << 10);
        Change::of(
            "limits unsent-size",
            size(old.into()),
            size(new.into()),
            "what the kernel holds for each connection; or double `net.ipv4.tcp_mem`",
        )
    })
}
