//! `cargo xtask bench soak`: half an hour of mixed load, slow clients, reloads and killed processes, in which
//! descriptors and memory must stay flat.
//!
//! Not part of the tests: it is about time. What is compared is the middle of the first and of the last
//! fifth of the samples, each taken a few seconds after the last disturbance.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::generator::{self, words};
use super::peers::Kind;
use super::reload::Operator;
use super::report::{Spread, Table, grouped};
use super::server::{Server, Setup};
use super::{applications, cpu, host, static_files};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Requests per second of the mixed load
    #[arg(long, default_value_t = 2_000)]
    rate: u32,
    /// Use the release binary that is there
    #[arg(long)]
    no_build: bool,
    /// Serve with debug assertions and overflow checks (the profile `checked`), so that a bug of ours ends it
    #[arg(long)]
    checked: bool,
}

/// Seconds between two samples; a reload comes with each, a kill with every fourth.
const EVERY: Duration = Duration::from_secs(15);
/// Growth that is taken for noise.
const MOST_GROWTH: f64 = 1.10;

struct Sample {
    descriptors: f64,
    resident: f64,
}

/// Runs it and prints what was seen; an error when something has grown.
pub fn run(arguments: &Arguments) -> Result<()> {
    host::prepare()?;
    if !arguments.no_build {
        static_files::build()?; // it is the generator, too
        if arguments.checked {
            workspace::run(workspace::cargo().args([
                "build",
                "--quiet",
                "--locked",
                "--profile",
                "checked",
                "--package",
                "tidegate",
            ]))?;
        }
    }
    let mut setup = Setup::new(Duration::from_secs(20), 4_000)?;
    if arguments.checked {
        setup.program = workspace::target_directory().join("checked/tidegate");
    }
    setup.site_directives =
        "compress \"gzip\" min=\"1KiB\"; route \"/post\" { respond 200 \"taken\" }; route \"/folder/*\" { listing }"
            .to_owned();
    let paths = applications::add(&mut setup)?;
    for (name, size) in [("1k.bin", 1 << 10), ("100k.bin", 100 << 10), ("10M.bin", 10 << 20)] {
        setup.add_document(name, size)?;
    }
    fs::create_dir(setup.documents.join("folder"))?;
    for number in 0..500 {
        setup.add_document(&format!("folder/{number}.txt"), 100)?;
    }
    let server = Server::start(Kind::Tidegate, true, &setup)?;
    let operator = Operator { server: &server };
    operator.wait_until_it_listens()?;
    let base = format!("http://127.0.0.1:{}", server.port);
    let list = setup.write(
        "urls.txt",
        &format!(
            "{base}/1k.bin\n{base}/1k.bin\n{base}/1k.bin\n{base}/100k.bin\n{base}/folder/\n\
             {base}/post POST field=value\n"
        ),
    )?;
    println!("{}, {}\n", host::today(), host::description());
    let seconds = (arguments.minutes * 60.0) as u64;
    let mixed = generator::start(&words(&format!(
        "hit -f {} -c 500 -t {seconds}s --rate {} --slow-readers 5%:20KiB --slow-writers 5%:1KiB",
        list.display(),
        arguments.rate
    )))?;
    let downloads = generator::start(&words(&format!(
        "downloads -c 200 --limit 200KiB -t {seconds}s --verify none {base}/10M.bin"
    )))?;
    // Applications have bursts and long silences between them, in which what is idle is put away.
    let urls: String = paths.iter().map(|path| format!("{base}{path}\n")).collect();
    let applications = setup.write("applications.txt", &urls)?;
    let burst = format!("hit -f {} -c 64 -t 2s", applications.display());
    let (mut bursts, mut failed_in_bursts) = (0, 0);
    let mut expected = operator.server_processes()?;
    let mut samples = Vec::new();
    let (mut reloads, mut kills) = (0u64, 0u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() + EVERY < end {
        host::rest(EVERY);
        let resident = cpu::resident_bytes(&server.processes()?)? as f64;
        samples.push(Sample { descriptors: operator.descriptors()? as f64, resident });
        let present = operator.server_processes()?;
        if !expected.is_empty() && expected != present {
            bail!("a server process has ended by itself: {expected:?} have become {present:?}");
        }
        expected = present;
        let load = generator::start(&words(&burst))?.finish()?;
        bursts += load.requests;
        failed_in_bursts += load.failed() - load.errors.get("unanswered").copied().unwrap_or_default();
        operator.order("reload")?;
        reloads += 1;
        if samples.len().is_multiple_of(4) {
            for process in operator.server_processes()? {
                if let Some(process) = rustix::process::Pid::from_raw(process) {
                    rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
                    kills += 1;
                }
            }
            expected.clear(); // those that come are looked at with the next sample
        }
    }
    let (mixed, downloads) = (mixed.finish()?, downloads.finish()?);
    let fifth = (samples.len() / 5).max(1);
    let (first, last) = (&samples[..fifth], &samples[samples.len() - fifth..]);
    let mut table = Table::new(["what", "at first", "at last", "ratio"]);
    let mut grown = Vec::new();
    for (what, figure, unit) in [
        ("descriptors", (|sample: &Sample| sample.descriptors) as fn(&Sample) -> f64, 1.0),
        ("resident KiB", |sample: &Sample| sample.resident, 1024.0),
    ] {
        let middle =
            |samples: &[Sample]| Spread::of(samples.iter().map(figure)).map_or(0.0, |spread| spread.median);
        let (first, last) = (middle(first), middle(last));
        table.row([
            what.to_owned(),
            grouped(first / unit),
            grouped(last / unit),
            format!("{:.2}", last / first),
        ]);
        if last > first * MOST_GROWTH {
            grown.push(what);
        }
    }
    println!("{table}");
    println!("{} samples, {reloads} reloads, {kills} killed processes", samples.len());
    for (what, load) in [("mixed load", &mixed), ("downloads", &downloads)] {
        println!(
            "{what}: {} requests, {:.4} % answered as expected; failed: {}",
            grouped(load.requests as f64),
            load.availability(),
            load.errors_text()
        );
    }
    println!("applications: {} requests in bursts, {failed_in_bursts} failed", grouped(bursts as f64));
    if failed_in_bursts > 0 {
        bail!("requests to applications have failed in bursts between silences");
    }
    if !grown.is_empty() {
        bail!("has grown: {}", grown.join(", "));
    }
    Ok(())
}
