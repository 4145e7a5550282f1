//! Pools of processes: too small, too large, too heavy, crashing; and the cache of compiled scripts of PHP.

use super::{Concern, FullQueue, Seen, bytes, of, percent, were};
use crate::window::{Sample, Window, all, only, over, round_up, under};
use tidegate_config::Settings;
use tidegate_config::settings::pool::{Application, Pool};
use tidegate_modules::gateway::supervise::status::{OpcacheFigures, PoolStatus};
use tidegate_modules::status::Change;

/// Processes that ended unasked in the window.
const CRASHES: f64 = 3.0;
/// Of the memory that could be had, what a full pool takes.
const MEMORY: f64 = 0.8;
/// Of the processors, what the processes of a pool use.
const BUSY: f64 = 0.9;
/// Per cent of ten seconds in which something waited for a processor.
const PRESSED: f64 = 40.0;
/// With this share of idle processors there is room for more processes.
const IDLE: f64 = 0.3;
/// How busy the places of a pool should be.
const BUSY_PLACES: f64 = 0.7;
/// Of the requests in flight, those of a pool that holds up the others.
const MOST_IN_FLIGHT: f64 = 0.5;
/// Of OPcache's memory, what is free, and what is lost to scripts that have changed.
const FREE: f64 = 0.05;
const WASTED: f64 = 0.1;

/// A value of the settings of a pool, for a window that quotes it.
fn setting_of<T: 'static>(
    name: &str,
    value: impl Fn(&Pool) -> T + 'static,
) -> impl Fn(&Settings) -> Option<T> + 'static {
    let name = name.to_owned();
    move |settings| settings.pools.iter().find(|pool| pool.name == name).map(&value)
}

/// It is a matter of this pool.
fn its(pool: &Pool) -> Concern {
    Concern::Application(pool.name.clone())
}

/// Each pool with its settings.
fn pools<'w>(window: &Window<'w>) -> impl Iterator<Item = (&'w PoolStatus, &'w Pool)> {
    let settings = window.settings();
    let found =
        |status: &'w PoolStatus| Some((status, settings.pools.iter().find(|pool| pool.name == status.name)?));
    window.now().info.pools.iter().filter_map(found)
}

/// A figure of a pool, by its name.
fn figure(sample: &Sample, name: &str, of: impl Fn(&PoolStatus) -> u64) -> u64 {
    sample.info.pools.iter().find(|pool| pool.name == name).map_or(0, of)
}

/// The setting that bounds how many requests a pool takes at once, and its value.
fn bound(pool: &Pool) -> (String, u64) {
    let places = u64::from(pool.places.unwrap_or(1));
    match &pool.application {
        Application::Processes(processes) => {
            (format!("pool {} processes max", pool.name), u64::from(processes.max))
        }
        Application::External(_) => {
            (format!("pool {} places", pool.name), pool.places.map_or(16, |_| places))
        }
    }
}

/// Requests that a pool takes at once when it has grown to its most.
fn places(pool: &Pool) -> u64 {
    let (_, most) = bound(pool);
    match &pool.application {
        Application::Processes(_) => most.saturating_mul(u64::from(pool.places.unwrap_or(1))),
        Application::External(_) => most,
    }
}

/// Its processes now, each by what it uses.
fn processes<'w>(window: &Window<'w>, status: &PoolStatus) -> Vec<&'w crate::ProcessUse> {
    let is_its = |pid: u32| status.processes.iter().any(|process| process.pid == Some(pid));
    window.now().host.processes.iter().filter(|process| is_its(process.pid)).collect()
}

/// Processors that its processes have used since the look before.
fn used(window: &Window<'_>, status: &PoolStatus) -> f64 {
    let before = |pid: u32| window.before().host.processes.iter().find(|process| process.pid == pid);
    let risen = processes(window, status)
        .into_iter()
        .filter_map(|process| Some(process.busy_millis.saturating_sub(before(process.pid)?.busy_millis)));
    risen.sum::<u64>() as f64 / 1000.0 / window.step_seconds()
}

pub(super) fn crashes(window: &Window<'_>) -> Vec<Seen> {
    let pool = |(status, pool): (&PoolStatus, &Pool)| {
        let ended = window.risen(|sample| figure(sample, &pool.name, |pool| pool.restarts));
        let why = status.last_failure.as_deref().unwrap_or("nobody knows how");
        let sentence = || {
            let ended = were(ended, "process").replace("processs", "processes");
            format!(
                "pool {}: {ended} lost {}, the last of them: {why}; each takes the requests with it that it had",
                pool.name,
                window.span()
            )
        };
        let seen = of(window, pool.name.as_str(), over(ended as f64, CRASHES), sentence, || {
            Change::told(format!(
                "look at what it writes before it ends (the error log, or the `output` of pool {}); nothing here keeps it alive",
                pool.name
            ))
        });
        seen.map(|seen| seen.concerning([its(pool)]))
    };
    pools(window).filter_map(pool).collect()
}

pub(super) fn memory(window: &Window<'_>) -> Vec<Seen> {
    let sample = window.now();
    let pool = |(status, pool): (&PoolStatus, &Pool)| {
        let Application::Processes(settings) = &pool.application else { return None };
        let window = &window.quoting(setting_of(&pool.name, |pool| bound(pool).1));
        let processes = processes(window, status);
        let largest = processes.iter().map(|process| process.private).max().unwrap_or(0);
        let held: u64 = processes.iter().map(|process| process.private).sum();
        let of_cgroup =
            sample.host.cgroup.memory_most.map(|most| most.saturating_sub(sample.host.cgroup.memory));
        let free = [sample.host.available, of_cgroup].into_iter().flatten().min()?.saturating_add(held);
        let full = largest.saturating_mul(u64::from(settings.max));
        let fitting = ((0.8 * free as f64 / largest.max(1) as f64).floor() as u64).max(1);
        let sentence = || {
            format!(
                "pool {}: a process takes {} of memory, its {} processes would take {}, and {} could be had: beyond that the kernel swaps or kills",
                pool.name,
                bytes(largest),
                settings.max,
                bytes(full),
                bytes(free)
            )
        };
        let ratio = over(full as f64, MEMORY * free.max(1) as f64);
        let seen = of(window, pool.name.as_str(), ratio, sentence, || {
            let setting = format!("pool {} processes max", pool.name);
            Change::of(&setting, settings.max, fitting, "what fits into 80 % of the memory")
        });
        seen.map(|seen| seen.concerning([its(pool), Concern::Machine, Concern::Memory]))
    };
    pools(window).filter_map(pool).collect()
}

pub(super) fn too_large(window: &Window<'_>) -> Vec<Seen> {
    let processors = window.processors();
    let pool = |(status, pool): (&PoolStatus, &Pool)| {
        let Application::Processes(settings) = &pool.application else { return None };
        let window = &window.quoting(setting_of(&pool.name, |pool| bound(pool).1));
        let used = used(window, status);
        let in_use = status.demand.in_use as f64;
        let pressure = window.now().host.pressure.processor;
        let ratio = all([
            over(used, BUSY * processors),
            over(pressure, PRESSED),
            over(in_use, 2.0 * processors),
            only(f64::from(settings.max) > processors.ceil()),
        ]);
        // So many of them keep the processors busy.
        let new = round_up((processors * in_use / used.max(0.1)).min(f64::from(settings.max) - 1.0), 1)
            .max(processors.ceil() as u64);
        let sentence = || {
            format!(
                "pool {}: {in_use:.0} requests at once share {processors:.1} processors, {} of which it uses: each takes longer, and none is done sooner",
                pool.name,
                percent(used / processors)
            )
        };
        let seen = of(window, pool.name.as_str(), ratio, sentence, || {
            let how = "the processors, divided by the share of one that a request uses; the others wait in the queue";
            Change::of(&format!("pool {} processes max", pool.name), settings.max, new, how)
        });
        seen.map(|seen| seen.concerning([its(pool), Concern::Machine]))
    };
    pools(window).filter_map(pool).collect()
}

pub(super) fn too_small(window: &Window<'_>) -> Vec<Seen> {
    let pool = |(status, pool): (&PoolStatus, &Pool)| {
        let (setting, most) = bound(pool);
        let window = &window.quoting(setting_of(&pool.name, |pool| (bound(pool).1, pool.places)));
        let (places, demand) = (places(pool), &status.demand);
        let idle = window.idle();
        let ratio = all([
            over(demand.waiting as f64, 1.0),
            over(demand.in_use as f64, places.max(1) as f64),
            over(idle, IDLE),
        ]);
        let wanted = (demand.in_use + demand.waiting) as f64 / BUSY_PLACES;
        let new = round_up(wanted * most as f64 / places.max(1) as f64, 1).max(most + 1);
        let sentence = || {
            format!(
                "pool {}: all {places} places are taken and {} requests wait, the first for {:.1} s, while {} of the processors are idle",
                pool.name,
                demand.waiting,
                demand.oldest_wait.as_secs_f64(),
                percent(idle)
            )
        };
        let in_flight = window.now().counted.in_flight.current as f64;
        let mut concerns = vec![its(pool)];
        if (demand.in_use + demand.waiting) as f64 >= MOST_IN_FLIGHT * in_flight {
            concerns.push(Concern::InFlight);
        }
        let seen = of(window, pool.name.as_str(), ratio, sentence, || {
            Change::of(
                &setting,
                most,
                new,
                "what is under way and waits, at 70 %; each process takes memory of its own",
            )
        });
        seen.map(|seen| seen.concerning(concerns))
    };
    pools(window).filter_map(pool).collect()
}

pub(super) fn queue_full(window: &Window<'_>) -> Vec<Seen> {
    let pool = |(_, pool): (&PoolStatus, &Pool)| {
        let window =
            &window.quoting(setting_of(&pool.name, |pool| (pool.queue.clone(), bound(pool).1, pool.places)));
        let refused = |sample: &Sample| figure(sample, &pool.name, |pool| pool.demand.refused_full);
        let length = pool.queue.length;
        let sentence = || {
            let refused = were(window.risen(refused), "request");
            format!(
                "pool {}: {refused} refused {} since its queue was full, which has room for {length}",
                pool.name,
                window.span()
            )
        };
        let seen = of(window, pool.name.as_str(), window.events(refused), sentence, || {
            let queue = FullQueue {
                setting: &format!("pool {} queue length", pool.name),
                length,
                age: pool.queue.age,
                rate: window.worst_rate(|sample| figure(sample, &pool.name, |pool| pool.demand.requests)),
                refused: window.worst_step(refused),
                instead: "let answers come sooner, or more at once where there are processors and memory for more processes",
            };
            queue.change()
        });
        seen.map(|seen| seen.concerning([its(pool)]))
    };
    pools(window).filter_map(pool).collect()
}

pub(super) fn opcache_full(window: &Window<'_>) -> Vec<Seen> {
    const MEBIBYTE: u64 = 1 << 20;
    let figures = |status: &PoolStatus| status.opcache.as_ref().and_then(|opcache| opcache.figures);
    let pool = |(status, pool): (&PoolStatus, &Pool)| {
        let OpcacheFigures { used, free, wasted, .. } = figures(status)?;
        let name = pool.name.clone();
        let window = &window.quoting_bound(move |sample| {
            let status = sample.info.pools.iter().find(|pool| pool.name == name)?;
            figures(status)
                .map(|figures| figures.used.saturating_add(figures.free).saturating_add(figures.wasted))
        });
        let all = used.saturating_add(free).saturating_add(wasted).max(1);
        let of_all = |part: u64| part as f64 / all as f64;
        let emptied = window.risen(|sample| {
            figure(sample, &pool.name, |status| {
                figures(status).map_or(0, |figures| figures.restarts_out_of_memory)
            })
        });
        let ratio =
            under(of_all(free), FREE).max(over(of_all(wasted), WASTED)).max(over(emptied as f64, 1.0));
        let new = round_up(1.5 * used.saturating_add(wasted) as f64, 32 * MEBIBYTE) / MEBIBYTE;
        let sentence = || {
            format!(
                "pool {}: OPcache has {} left and {} lost to scripts that have changed, and was emptied {emptied} times {}: scripts are compiled again",
                pool.name,
                bytes(free),
                bytes(wasted),
                window.span()
            )
        };
        let seen = of(window, pool.name.as_str(), ratio, sentence, || {
            let how = "MiB, in php.ini: 1.5 times what its scripts take; then `tidegate pool restart`";
            Change::of("opcache.memory_consumption", all / MEBIBYTE, new, how)
        });
        seen.map(|seen| seen.concerning([its(pool)]))
    };
    pools(window).filter_map(pool).collect()
}
