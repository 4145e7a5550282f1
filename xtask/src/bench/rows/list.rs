//! The rows: each figure that has a goal, and how it is made of a run.
//!
//! A ratio is taken within a round, of what Tidegate costs to what the other costs there. The best peer is the one with
//! the least median of its own.

use std::rc::Rc;

use anyhow::{Context, Result, bail};

use super::super::gateway::{self, Workload as Gateway};
use super::super::gateway_peers::Peer as GatewayPeer;
use super::super::peers::Kind;
use super::super::report::{Spread, significant};
use super::super::rounds::{FLOOR, Sample, Series};
use super::super::tls_peers::Peer as TlsPeer;
use super::super::{downloads, generators, h2, idle, instructions, static_files, tls};
use super::{Bench, Figure, Goal, Row, figure_text, process, workers};
use Goal::{AtLeast, AtMost};

type Measure = fn(&Bench) -> Result<Figure>;

const fn row(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    goal: Goal,
    measure: Measure,
) -> Row {
    Row { name, what, unit, goal, is_shown_first: false, measure }
}

/// One of the ten lines of README.md.
const fn first(row: Row) -> Row {
    Row { is_shown_first: true, ..row }
}

const BEST: &str = "CPU / best peer";
const NGINX: &str = "CPU / nginx";

/// Every row.
pub const ROWS: [Row; 45] = [
    first(row("static-1k", "1 KiB, keep-alive", BEST, AtMost(0.90), |b| best(&small(b, "1k")?))),
    row("static-1k-floor", "1 KiB, keep-alive", "CPU / a floor that parses nothing", AtMost(1.05), |b| {
        against(&small(b, "1k")?, FLOOR, cost)
    }),
    first(row("static-10k", "10 KiB, keep-alive", BEST, AtMost(0.90), |b| best(&small(b, "10k")?))),
    row("static-100k", "100 KiB, keep-alive", BEST, AtMost(0.95), |b| best(&large(b, "100k")?)),
    first(row("static-1m", "1 MiB, keep-alive", BEST, AtMost(0.95), |b| best(&large(b, "1M")?))),
    first(row("static-1k-close", "1 KiB, a connection each", NGINX, AtMost(0.60), |b| {
        against(&small(b, "1k-close")?, "nginx", cost)
    })),
    row("access-log", "1 KiB with an access log", "CPU / without", AtMost(1.05), access_log),
    row("cached-instructions", "a cached file, 1 KiB", "instructions", AtMost(3_100.0), |_| {
        instructions_of("cached file")
    }),
    first(row("idle", "idle keep-alive connection", "resident bytes", AtMost(250.0), |b| {
        let connections = b.many(15_000, 500);
        Ok(Figure::once(idle::bytes(connections)?, format!("{connections} connections")))
    })),
    first(row("tls-full", "TLS handshake in full, one GET", NGINX, AtMost(0.38), |b| {
        against(&tls_run(b, "full", tls::Workload::Full)?, "nginx", cost)
    })),
    row("tls-resumed", "TLS handshake resumed, one GET", NGINX, AtMost(0.37), |b| {
        against(&tls_run(b, "resumed", tls::Workload::Resumed)?, "nginx", cost)
    }),
    row("tls-1k", "1 KiB over TLS, keep-alive", NGINX, AtMost(0.66), |b| {
        against(&tls_run(b, "1k", tls::Workload::Small)?, "nginx", cost)
    }),
    row("tls-100k", "100 KiB over TLS, keep-alive", NGINX, AtMost(0.50), |b| {
        against(&tls_run(b, "100k", tls::Workload::Medium)?, "nginx", cost)
    }),
    row("tls-1m", "1 MiB over TLS, keep-alive", NGINX, AtMost(0.50), |b| {
        against(&tls_run(b, "1m", tls::Workload::Large)?, "nginx", cost)
    }),
    row("tls-best", "1 KiB over TLS, keep-alive", BEST, AtMost(0.93), |b| {
        best(&tls_run(b, "1k", tls::Workload::Small)?)
    }),
    row("tls-idle", "idle TLS connection", "resident bytes", AtMost(4_096.0), |b| {
        let connections = b.many(5_000, 200);
        Ok(Figure::once(tls::idle_bytes(connections)?, format!("{connections} connections")))
    }),
    row("h2-1k-rate", "1 KiB over HTTP/2, 32 streams", "requests/s / h2o", AtLeast(1.0), |b| {
        against(&h2_run(b)?, "h2o", rate)
    }),
    first(row("h2-1k-cpu", "1 KiB over HTTP/2, 32 streams", "CPU / h2o", AtMost(0.65), |b| {
        against(&h2_run(b)?, "h2o", cost)
    })),
    row(
        "events-beside-idle",
        "an event on HTTP/2 beside 90 idle streams",
        "instructions / alone",
        AtMost(instructions::BESIDE_IDLE),
        |_| {
            let alone = instructions::of(instructions::EVENT, true)?;
            let beside = instructions::of(instructions::EVENT_BESIDE, true)?;
            let detail = format!("{} against {} instructions", figure_text(beside), figure_text(alone));
            Ok(Figure::once(beside / alone, detail))
        },
    ),
    first(row("proxy-1k", "proxy, 1 KiB, kept connections", NGINX, AtMost(0.85), |b| {
        against(&gateway_run(b, "proxy-1k", Gateway::Proxy)?, "nginx", cost)
    })),
    row("proxy-100k", "proxy, 100 KiB, kept connections", NGINX, AtMost(0.90), |b| {
        against(&gateway_run(b, "proxy-100k", Gateway::ProxyLarge)?, "nginx", cost)
    }),
    row(
        "proxy-instructions",
        "proxy, 1 KiB, its client and application included",
        "instructions",
        AtMost(12_000.0),
        |_| instructions_of("HTTP proxy, kept connection"),
    ),
    first(row("fastcgi-1k", "FastCGI, 1 KiB, kept connections", NGINX, AtMost(0.72), |b| {
        against(&gateway_run(b, "fastcgi-1k", Gateway::FastCgi)?, "nginx", cost)
    })),
    row(
        "fastcgi-instructions",
        "FastCGI, 1 KiB, its client and application included",
        "instructions",
        AtMost(12_000.0),
        |_| instructions_of("FastCGI, kept connection"),
    ),
    row(
        "php-rate",
        "a hello by php-fpm, 8 children",
        "requests/s / nginx that keeps connections",
        AtLeast(1.1),
        |b| against(&gateway_run(b, "php", Gateway::Php)?, "nginx, kept", rate),
    ),
    row(
        "php-reuse",
        "php-fpm with 4 children behind 8 workers",
        "connections per request",
        AtMost(0.10),
        workers::php_reuse,
    ),
    row("downloads-rate", "10,000 downloads at 100 KiB/s", "bytes / nginx, sndbuf=64k", AtLeast(1.0), |b| {
        download(b, |side| side.delivered, true)
    }),
    first(row(
        "downloads-cpu",
        "10,000 downloads at 100 KiB/s",
        "CPU / nginx, sndbuf=64k",
        AtMost(0.90),
        |b| download(b, |side| side.cost, true),
    )),
    row("downloads-tcp", "10,000 downloads at 100 KiB/s", "GiB of TCP memory", AtMost(1.2), |b| {
        download(b, |side| side.kernel / f64::from(1 << 30), false)
    }),
    row("downloads-resident", "10,000 downloads at 100 KiB/s", "resident bytes each", AtMost(512.0), |b| {
        download(b, |side| side.resident, false)
    }),
    row(
        "generator-rate",
        "`tidegate bench hit`, 64 connections, one core",
        "requests/s / wrk",
        AtLeast(1.05),
        |b| against(&generator_run(b)?, "wrk", rate),
    ),
    row("generator-cpu", "`tidegate bench hit`, 64 connections, one core", "CPU / wrk", AtMost(0.85), |b| {
        against(&generator_run(b)?, "wrk", cost)
    }),
    row(
        "workers-flat",
        "1 KiB with 2 workers, and with as many as processors",
        "CPU / with one worker, the most",
        AtMost(1.03),
        workers::flat,
    ),
    row("workers-64", "busiest worker, 64 connections", "CPU / mean", AtMost(1.1), |b| {
        workers::busiest(b, 64)
    }),
    row("workers-1000", "busiest worker, 1,000 connections", "CPU / mean", AtMost(1.1), |b| {
        workers::busiest(b, 1_000)
    }),
    row("workers-10000", "busiest worker, 10,000 connections", "CPU / mean", AtMost(1.1), |b| {
        workers::busiest(b, 10_000)
    }),
    row("start", "from the command to the first answer", "ms", AtMost(20.0), process::start),
    row("rest", "at rest with one worker, all processes", "MB resident", AtMost(5.0), process::rest),
    row("size", "the program as packages carry it", "MB", AtMost(15.0), process::size),
    row("sites-check", "`check` with 50,000 sites", "s", AtMost(1.0), process::check_sites),
    row("sites-start", "start with 50,000 sites", "s", AtMost(2.0), process::start_sites),
    row("h2-100k", "100 KiB over HTTP/2, 32 streams", "CPU / h2o", AtMost(0.95), |b| {
        let run = b.series("h2-100k", || h2::series(&b.course, h2::Workload::Medium, &[TlsPeer::H2o]))?;
        against(&run, "h2o", cost)
    }),
    row("h2-instructions", "a cached file over HTTP/2, 32 streams", "instructions", AtMost(4_500.0), |_| {
        instructions_of("cached file over HTTP/2, 32 streams")
    }),
    row("log-instructions", "a cached file with an access log", "instructions", AtMost(3_900.0), |_| {
        instructions_of("cached file, with a log")
    }),
    row(
        "make-run",
        "what `make run` builds the first time, on two processors",
        "s",
        AtMost(150.0),
        process::first_build,
    ),
];

// ---------------------------------------------------------------- runs

fn small(bench: &Bench, size: &str) -> Result<Rc<Vec<Series>>> {
    bench.series(&format!("static-{size}"), || {
        static_files::series(&bench.course, size, &[Kind::Nginx, Kind::Lighttpd, Kind::H2o], &[false])
    })
}

/// The same servers, which send large files with `sendfile`.
fn large(bench: &Bench, size: &str) -> Result<Rc<Vec<Series>>> {
    small(bench, size)
}

fn tls_run(bench: &Bench, key: &str, workload: tls::Workload) -> Result<Rc<Vec<Series>>> {
    // h2o 2.2 resumes only some of its sessions, which would void the row.
    let peers: &[TlsPeer] = match workload {
        tls::Workload::Resumed => &[TlsPeer::Nginx],
        _ => &[TlsPeer::Nginx, TlsPeer::H2o],
    };
    bench.series(&format!("tls-{key}"), || tls::series(&bench.course, workload, peers))
}

fn h2_run(bench: &Bench) -> Result<Rc<Vec<Series>>> {
    bench.series("h2-1k", || h2::series(&bench.course, h2::Workload::Small, &[TlsPeer::H2o]))
}

fn gateway_run(bench: &Bench, key: &str, workload: Gateway) -> Result<Rc<Vec<Series>>> {
    bench.series(key, || gateway::series(&bench.course, workload, &[GatewayPeer::Nginx]))
}

fn generator_run(bench: &Bench) -> Result<Rc<Vec<Series>>> {
    bench.series("generator", || generators::series(&bench.course))
}

// ---------------------------------------------------------------- figures

/// CPU microseconds of a request.
fn cost(sample: &Sample) -> f64 {
    sample.cost
}

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

fn instructions_of(case: &str) -> Result<Figure> {
    Ok(Figure::once(instructions::of(case, true)?, "callgrind"))
}

/// What Tidegate costs in parts of the cheapest peer, which is no floor.
fn best(run: &[Series]) -> Result<Figure> {
    let peers = run.iter().skip(1).filter(|series| series.server != FLOOR);
    let median = |series: &Series| Spread::of(series.samples.iter().map(cost)).map(|spread| spread.median);
    let costs = peers.filter_map(|series| Some((median(series)?, series.server.clone())));
    let (_, cheapest) = costs.min_by(|a, b| a.0.total_cmp(&b.0)).context("no peer was measured")?;
    against(run, &cheapest, cost)
}

/// Tidegate's figure in parts of another server's, round by round.
fn against(run: &[Series], other: &str, figure: fn(&Sample) -> f64) -> Result<Figure> {
    let ours = run.first().context("nothing was measured")?;
    let theirs =
        run.iter().find(|series| series.server == other).with_context(|| format!("{other} is missing"))?;
    for series in [ours, theirs] {
        let errors: u64 = series.samples.iter().map(|sample| sample.errors).sum();
        let doubt = series.samples.iter().find_map(|sample| sample.doubt.as_ref());
        if errors > 0 || doubt.is_some() {
            bail!("{}: {errors} errors; {}", series.server, doubt.map_or("", String::as_str));
        }
    }
    let ratios = |ours: &Series| -> Vec<f64> {
        ours.samples.iter().zip(&theirs.samples).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()
    };
    let is_sound = |series: &Series| series.samples.iter().all(|s| s.errors == 0 && s.doubt.is_none());
    let floor = run.iter().find(|series| series.server == FLOOR && other != FLOOR && is_sound(series));
    let floor = floor.and_then(|floor| Spread::of(ratios(floor)));
    let detail = run.iter().map(told).collect::<Vec<_>>().join("; ");
    Ok(Figure { floor, ..Figure::of(ratios(ours), format!("against {other}: {detail}"))? })
}

/// `nginx 6.48 µs, 150,000/s, 21,000 instructions`.
fn told(series: &Series) -> String {
    let median = |figure: fn(&Sample) -> f64| {
        Spread::of(series.samples.iter().map(figure)).map(|spread| spread.median)
    };
    let (cost, rate) = (median(cost).unwrap_or_default(), median(rate).unwrap_or_default());
    let counted = Spread::of(series.samples.iter().filter_map(|sample| sample.instructions));
    let counted =
        counted.map_or_else(String::new, |spread| format!(", {} instructions", figure_text(spread.median)));
    format!("{} {} µs, {}/s{counted}", series.server, significant(cost), figure_text(rate))
}

/// Each server with an access log and without.
fn access_log(bench: &Bench) -> Result<Figure> {
    let run =
        bench.series("access-log", || static_files::series(&bench.course, "1k", &[], &[true, false]))?;
    let [with, without] = run.as_slice() else { bail!("two servers were to be measured") };
    let ratios = with.samples.iter().zip(&without.samples).map(|(with, without)| with.cost / without.cost);
    Figure::of(ratios, run.iter().map(told).collect::<Vec<_>>().join("; "))
}

/// A figure of the downloads, or what it is in parts of nginx's, round by round.
fn download(bench: &Bench, figure: fn(&downloads::Sample) -> f64, is_ratio: bool) -> Result<Figure> {
    let sides = bench.downloads()?;
    let [ours, theirs] = sides.as_slice() else { bail!("two servers were to be measured") };
    let mut detail = Vec::new();
    for side in &*sides {
        if let Some(sample) = side.samples.iter().find(|sample| !sample.failed.is_empty()) {
            bail!("{}: {}", side.server, sample.failed);
        }
        let spread = Spread::of(side.samples.iter().map(figure)).context("nothing was measured")?;
        detail.push(format!("{} {}", side.server, figure_text(spread.median)));
    }
    let ratios = ours.samples.iter().zip(&theirs.samples).map(|(ours, theirs)| match is_ratio {
        true => figure(ours) / figure(theirs),
        false => figure(ours),
    });
    Figure::of(ratios, detail.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(server: &str, costs: &[f64]) -> Series {
        let sample =
            |cost: &f64| Sample { cost: *cost, instructions: None, rate: 1e6 / cost, errors: 0, doubt: None };
        Series { server: server.to_owned(), samples: costs.iter().map(sample).collect() }
    }

    #[test]
    fn the_best_peer_is_the_cheapest_and_no_floor() {
        let run = [
            series("tidegate", &[4.0, 5.0, 4.5]),
            series("nginx", &[8.0, 8.0, 8.0]),
            series("lighttpd", &[5.0, 5.0, 5.0]),
            series(FLOOR, &[1.0, 1.0, 1.0]),
        ];
        let figure = best(&run).unwrap();
        assert_eq!(figure.spread, Spread { median: 0.9, least: 0.8, most: 1.0 });
        assert!(
            figure.detail.starts_with("against lighttpd: tidegate 4.50 µs, 222,222/s"),
            "{}",
            figure.detail
        );
        assert_eq!(figure.floor, Some(Spread { median: 0.2, least: 0.2, most: 0.2 }));
        assert!(against(&run, FLOOR, cost).unwrap().floor.is_none());
        assert!(against(&run, "apache", cost).is_err());
        assert_eq!(against(&run, "nginx", rate).unwrap().spread.median, 8.0 / 4.5);
    }

    #[test]
    fn errors_and_doubts_void_a_figure() {
        let mut run = [series("tidegate", &[4.0]), series("nginx", &[8.0])];
        run[1].samples[0].errors = 1;
        assert!(best(&run).unwrap_err().to_string().contains("nginx: 1 errors"));
        run[1].samples[0].errors = 0;
        run[0].samples[0].doubt = Some("spoke \"http/1.1\"".to_owned());
        assert!(best(&run).unwrap_err().to_string().contains("http/1.1"));
    }
}
