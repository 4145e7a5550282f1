//! Processors: too few of them, taken away by the host or a quota, or unevenly used; and workers that wait for a disk.

use super::{Seen, of_server, percent, time, were};
use crate::window::{Sample, Window, all, only, over, share};
use std::collections::HashMap;
use tidegate_modules::status::Change;
use tidegate_stats::ConnectionRefusal;

/// Of the time of all processors, what the host gave to others.
const STOLEN: f64 = 0.05;
/// Of the periods of a quota, those in which it was used up.
const THROTTLED: f64 = 0.05;
/// A worker that is busy for this share of its time has no room left.
const BUSY: f64 = 0.9;
/// More workers than processors, by this factor, cost more than they bring.
const TOO_MANY: f64 = 2.0;
/// Of the processors, what the server uses when that begins to matter.
const WELL_USED: f64 = 0.7;
/// The busiest worker beside the mean of all.
const UNEVEN: f64 = 1.5;
/// What is ready and waits so long was held up, seconds.
const TURN: f64 = 0.05;
/// With this share of idle processors, not by them.
const IDLE: f64 = 0.3;
/// Per cent of ten seconds in which everything waited for a disk.
const DISK: f64 = 5.0;
/// Threads that wait for a disk at a moment.
const READERS: f64 = 4.0;

pub(super) fn steal(window: &Window<'_>) -> Vec<Seen> {
    let all = window.step(|sample| sample.host.times.all);
    let stolen = share(window.step(|sample| sample.host.times.stolen), all);
    let sentence =
        || format!("the host gave this machine {} less of its processors than it asked for", percent(stolen));
    of_server(window, over(stolen, STOLEN), sentence, || {
        Change::told(
            "nothing here helps: ask the provider for processors of one's own, or move to a host that is less full",
        )
    })
}

pub(super) fn throttled(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| (sample.host.cgroup.quota, sample.info.workers));
    let Some(quota) = window.now().host.cgroup.quota else { return Vec::new() };
    let periods = window.step(|sample| sample.host.cgroup.periods);
    let used_up = share(window.step(|sample| sample.host.cgroup.throttled), periods);
    let still =
        window.step(|sample| sample.host.cgroup.throttled_micros) as f64 / 1e6 / window.step_seconds();
    let workers = window.now().info.workers;
    let sentence = || {
        format!(
            "the cgroup of the server stood still for {} of every second: its quota of {quota:.2} processors was used up in {} of all periods",
            time(still),
            percent(used_up)
        )
    };
    of_server(window, over(used_up, THROTTLED), sentence, || {
        let fitting = quota.ceil() as usize;
        if workers > fitting {
            return Change::of(
                "workers",
                workers,
                fitting,
                "as many as the quota has processors: more use it up sooner in each period",
            );
        }
        let (old, new) = (quota * 100.0, quota * 100.0 / 0.8);
        Change::of(
            "CPUQuota",
            format_args!("{old:.0}%"),
            format_args!("{new:.0}%"),
            "of the service or container, a quarter more",
        )
    })
}

/// How busy each worker thread was since the look before, 0 to 1.
fn busy_workers(window: &Window<'_>) -> Vec<f64> {
    let before: HashMap<_, _> = window
        .before()
        .host
        .workers
        .iter()
        .map(|thread| ((thread.pid, thread.name.as_str()), thread.busy_millis))
        .collect();
    let busy = |thread: &crate::ThreadUse| {
        let before = before.get(&(thread.pid, thread.name.as_str()))?;
        let millis = thread.busy_millis.saturating_sub(*before) as f64;
        Some((millis / 1000.0 / window.step_seconds()).min(1.0))
    };
    window.now().host.workers.iter().filter_map(busy).collect()
}

pub(super) fn workers_too_few(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| sample.info.workers);
    let processors = window.processors().floor() as usize;
    let busy = busy_workers(window);
    let least = busy.iter().copied().fold(f64::INFINITY, f64::min);
    let workers = window.now().info.workers.max(1);
    let ratio =
        all([over(least, BUSY), over(window.idle(), 0.1), only(!busy.is_empty() && workers < processors)]);
    let per_process = processors.div_ceil(usize::from(window.settings().processes.max(1)));
    let sentence = || {
        format!(
            "all {workers} workers are busy for {} of their time and more, and {} of the {processors} processors are idle",
            percent(least),
            percent(window.idle())
        )
    };
    of_server(window, ratio, sentence, || {
        Change::of("workers", workers, per_process, "as many as there are processors, which `auto` is")
    })
}

pub(super) fn workers_too_many(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| sample.info.workers);
    let (workers, processors) = (window.now().info.workers, window.processors());
    let ratio = all([over(workers as f64, TOO_MANY * processors), over(window.busy(), WELL_USED)]);
    let new = (processors.ceil() as usize).div_ceil(usize::from(window.settings().processes.max(1)));
    let sentence = || {
        format!(
            "{workers} workers share {processors:.1} processors, of which {} are in use: they wait for each other",
            percent(window.busy())
        )
    };
    of_server(window, ratio, sentence, || {
        Change::of("workers", workers, new, "as many as there are processors, which `auto` is")
    })
}

pub(super) fn worker_imbalance(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.limits.streams);
    let busy = busy_workers(window);
    let most = busy.iter().copied().fold(0.0, f64::max);
    let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    let ratio = all([over(most, UNEVEN * mean.max(0.01)), over(most, WELL_USED), only(busy.len() > 1)]);
    let sentence = || {
        format!(
            "one of {} workers is busy for {} of its time, and all together for {}: few connections make most of the work, and a connection \
             stays with its worker",
            busy.len(),
            percent(most),
            percent(mean)
        )
    };
    of_server(window, ratio, sentence, || {
        let streams = window.settings().limits.streams;
        let fewer = (streams / 2).max(16);
        Change::of(
            "limits streams",
            streams,
            fewer,
            "so that heavy clients of HTTP/2 open more connections; or find them: `tidegate status requests`",
        )
    })
}

/// The longest of a hundred waits of what was ready.
fn turns(window: &Window<'_>) -> f64 {
    window.step_times(|sample| &sample.counted.turn_delay).quantile(0.99).as_secs_f64()
}

pub(super) fn worker_blocked(window: &Window<'_>) -> Vec<Seen> {
    let ratio = all([over(turns(window), TURN), over(window.idle(), IDLE)]);
    let sentence = || {
        format!(
            "what was ready waited {} for a worker, although {} of the processors are idle: something holds the workers up",
            time(turns(window)),
            percent(window.idle())
        )
    };
    of_server(window, ratio, sentence, || {
        Change::told(
            "see which routes are slow (`tidegate status slow`) and whether a file system that is hung, or a log on one, is theirs; report it if none is",
        )
    })
}

pub(super) fn overload(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting_bound(|sample| sample.info.workers);
    let shed = |sample: &Sample| {
        sample.counted.requests_shed + sample.counted.connection_refusals.count(ConnectionRefusal::Overload)
    };
    let turned = |sample: &Sample| shed(sample) + sample.counted.overloads;
    let served =
        window.rate(|sample| sample.counted.requests) - window.rate(|sample| sample.counted.requests_shed);
    let (workers, processors) = (window.now().info.workers, window.processors().floor() as usize);
    let sentence = || {
        format!(
            "{} turned away {} by workers that were overloaded {} times: they could serve {served:.0} requests a second, and more came",
            were(window.risen(shed), "request"),
            window.span(),
            window.risen(|sample| sample.counted.overloads)
        )
    };
    of_server(window, window.events(turned), sentence, || {
        let idle = window.idle();
        if workers < processors && idle > IDLE {
            return Change::of("workers", workers, processors, "as many as there are processors");
        }
        if idle > IDLE {
            return Change::told(format!(
                "{} of the processors are idle, and workers are held up by something else: see which bucket takes the time (*Performance \
                 Counters*) and what is slow (`tidegate status slow`)",
                percent(idle)
            ));
        }
        Change::told(format!(
            "the processors are the limit, of which {} are in use: add processors or servers, see which bucket takes the time (*Performance \
             Counters*), or bound who asks for the most with `limit`",
            percent(1.0 - idle)
        ))
    })
}

pub(super) fn disk_waits(window: &Window<'_>) -> Vec<Seen> {
    let window = &window.quoting(|settings| settings.file_cache.memory);
    let queue = window.now().counted.native_queue.current;
    let pressure = window.now().host.pressure.disk;
    let reading = window.now().counted.native_threads.current;
    // What others of the machine do with the disk is no matter of this server.
    let presses = all([over(pressure, DISK), over(reading as f64, READERS)]);
    let ratio = over(queue as f64, 1.0).max(presses);
    let memory = window.settings().file_cache.memory;
    let sentence = || {
        format!(
            "{queue} calls wait for a thread that waits for a disk, and everything waited for a disk {pressure:.0} % of the time: files are read cold"
        )
    };
    of_server(window, ratio, sentence, || {
        let size = tidegate_config::size_text;
        let new = memory.saturating_mul(2).max(1 << 20);
        match window.now().host.available {
            Some(available) if new < available / 4 => Change::of(
                "file-cache memory",
                size(memory),
                size(new),
                "the machine has memory for what is asked for often",
            ),
            _ => Change::told("more memory, or a faster disk: what is asked for does not fit into memory"),
        }
    })
}
