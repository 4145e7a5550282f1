//! `cargo xtask bench instructions`: instructions per operation, compared with a stored baseline.
//!
//! Each case is an example of a crate that performs an operation as many times as its last argument says.
//! It runs under callgrind with N and with 2N; the difference over N is the cost of one operation, with
//! start-up gone. The counts are exact, so they hold on a busy machine too. They depend on the compiler, on
//! valgrind and on the instruction sets of the processor: a baseline made with others is shown but not held
//! against anybody.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::profile;
use super::report::{Table, grouped};
use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Store what is measured as the new baseline
    #[arg(long)]
    update: bool,
    /// Only the cases whose name contains this
    case: Option<String>,
}

/// An operation that is counted.
struct Case {
    name: &'static str,
    package: &'static str,
    /// A file of `examples/` in the package.
    example: &'static str,
    /// Its first argument; the number of operations is the last one.
    operation: &'static str,
    /// N: enough that one operation more or less in start-up does not show.
    operations: u64,
}

/// Every case. A new one is a line here, an example in its crate, and `--update`.
const CASES: [Case; 19] = [
    codec("h1 parse request head", "parse"),
    codec("h1 parse request head, the shortest", "plain"),
    codec("h1 decode chunked body", "chunks"),
    networks("IPv4 client among 30,000 networks", "v4"),
    networks("IPv6 client among 30,000 networks", "v6"),
    routes("route among 1,000 patterns with stars", "globs"),
    routes("route among 1,000 expressions", "expressions"),
    Case {
        name: LIMIT,
        package: "tidegate-core",
        example: "limits",
        operation: "check",
        operations: 200_000,
    },
    request("cached file", "cached"),
    request("cached file, with a log", "logged"),
    request("cached file, asked for by a browser", "browser"),
    request("unchanged file (304)", "unchanged"),
    Case { operations: 3_200, ..request("cached file over HTTP/2, 32 streams", "h2") },
    request("FastCGI, kept connection", "fastcgi"),
    request("HTTP proxy, kept connection", "proxy"),
    request("stored answer", "stored"),
    request("stored answer of 64 KiB", "stored-64k"),
    request(EVENT, "event"),
    request(EVENT_BESIDE, "event-beside"),
];

/// The check of a limit, among 100,000 clients.
pub const LIMIT: &str = "limit of requests by client";

/// An event of 1 KiB, from an application to a stream of HTTP/2.
pub const EVENT: &str = "HTTP/2 event";
pub const EVENT_BESIDE: &str = "HTTP/2 event, beside 90 idle streams";
/// What the same event may cost beside streams on which nothing happens, times what it costs alone. It was 4.8 when all
/// streams were asked whenever one was woken.
pub const BESIDE_IDLE: f64 = 1.1;

const fn codec(name: &'static str, operation: &'static str) -> Case {
    Case { name, package: "tidegate-wire", example: "instructions", operation, operations: 1_000 }
}

const fn networks(name: &'static str, operation: &'static str) -> Case {
    Case { name, package: "tidegate-config", example: "networks", operation, operations: 10_000 }
}

const fn routes(name: &'static str, operation: &'static str) -> Case {
    Case { name, package: "tidegate-config", example: "routes", operation, operations: 10_000 }
}

/// From the bytes of a request on a socket to the bytes of its answer, client and application included.
const fn request(name: &'static str, operation: &'static str) -> Case {
    Case { name, package: "tidegate-modules", example: "requests", operation, operations: 1_000 }
}

/// A change beyond this is worth a word: 3 %.
const TOLERANCE: f64 = 0.03;

/// Measures the cases and compares; an error when one rose.
pub fn run(arguments: &Arguments) -> Result<()> {
    if workspace::find_program("valgrind").is_none() {
        bail!("valgrind is missing: cargo xtask tools");
    }
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|case| arguments.case.as_ref().is_none_or(|part| case.name.contains(part.as_str())))
        .collect();
    if chosen.is_empty() {
        bail!("no such case; there are: {}", CASES.map(|case| case.name).join(", "));
    }
    let tools = Toolset::present()?;
    let stored = Baseline::read()?;
    let mut measured = BTreeMap::new();
    for case in chosen {
        measured.insert(case.name.to_owned(), measure(case, true)?);
    }
    let comparisons = compare(&stored, &measured);
    print_table(&comparisons);
    check_idle_streams(&measured)?;
    if arguments.update {
        let mut counts = stored.counts;
        counts.retain(|name, _| CASES.iter().any(|case| case.name == name));
        counts.extend(measured);
        Baseline { tools: Some(tools), counts }.write()?;
        println!("instructions: baseline stored");
        return Ok(());
    }
    let is_comparable = stored.tools.as_ref() == Some(&tools);
    report(&comparisons, is_comparable)
}

/// Instructions of one operation of the case of this name.
pub fn of(name: &str, builds: bool) -> Result<f64> {
    if workspace::find_program("valgrind").is_none() {
        bail!("valgrind is missing: cargo xtask tools");
    }
    measure(case(name)?, builds)
}

/// The program of a case, built first where `builds` says so.
pub fn program(name: &str, builds: bool) -> Result<PathBuf> {
    binary(case(name)?, builds)
}

fn case(name: &str) -> Result<&'static Case> {
    CASES.iter().find(|case| case.name == name).context("no such case")
}

/// An error where streams on which nothing happens cost something, whatever the baseline says.
fn check_idle_streams(measured: &BTreeMap<String, f64>) -> Result<()> {
    let (Some(alone), Some(beside)) = (measured.get(EVENT), measured.get(EVENT_BESIDE)) else {
        return Ok(());
    };
    let ratio = beside / alone;
    println!("instructions: an event beside 90 idle streams costs {ratio:.2} times what it costs alone");
    if ratio > BESIDE_IDLE {
        bail!("streams on which nothing happens cost something: {ratio:.2} is more than {BESIDE_IDLE}");
    }
    Ok(())
}

/// Says what follows from the comparison; an error when a case rose or has no baseline.
fn report(comparisons: &[Comparison], is_comparable: bool) -> Result<()> {
    let names = |wanted: Change| -> Vec<&str> {
        let chosen = comparisons.iter().filter(|comparison| comparison.change == wanted);
        chosen.map(|comparison| comparison.name.as_str()).collect()
    };
    let unknown = names(Change::Unknown);
    if !unknown.is_empty() {
        bail!("no baseline for {}: cargo xtask bench instructions --update", unknown.join(", "));
    }
    if !is_comparable {
        println!(
            "instructions: {} counted; the baseline comes from another compiler, valgrind or kind of processor, \
             so NOT COMPARED",
            comparisons.len()
        );
        return Ok(());
    }
    let risen = names(Change::Risen);
    if !risen.is_empty() {
        bail!(
            "risen by more than 3 %: {}; if that is meant: cargo xtask bench instructions --update",
            risen.join(", ")
        );
    }
    let fallen = names(Change::Fallen);
    if !fallen.is_empty() {
        println!(
            "instructions: fallen by more than 3 %: {}; store it: cargo xtask bench instructions --update",
            fallen.join(", ")
        );
    }
    println!("instructions: {} counted, none risen", comparisons.len());
    Ok(())
}

/// Instructions of one operation.
fn measure(case: &Case, builds: bool) -> Result<f64> {
    let binary = binary(case, builds)?;
    let once = count(case, &binary, case.operations)?;
    let twice = count(case, &binary, case.operations * 2)?;
    let difference = twice.checked_sub(once).with_context(|| {
        format!("{}: twice the operations took fewer instructions; does it obey its argument?", case.name)
    })?;
    Ok(difference as f64 / case.operations as f64)
}

fn binary(case: &Case, builds: bool) -> Result<PathBuf> {
    if builds {
        let mut command = profile::build()?;
        command.args(["--quiet", "--package", case.package, "--example", case.example]);
        workspace::run(&mut command)?;
    }
    Ok(workspace::optimised().join("examples").join(case.example))
}

fn count(case: &Case, binary: &Path, operations: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(binary)
        .arg(case.operation)
        .arg(operations.to_string())
        .stdin(Stdio::null())
        // Nothing of the surroundings may move the counts.
        .env_clear();
    let output = command.output().context("cannot start valgrind")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} ended with {}\n{log}", workspace::shown(&command), output.status);
    }
    collected(&log).with_context(|| format!("callgrind gave no count:\n{log}"))
}

/// The count in the log of callgrind: `==123== Collected : 456`.
fn collected(log: &str) -> Option<u64> {
    let (_, count) = log.lines().find(|line| line.contains("Collected :"))?.split_once("Collected :")?;
    count.trim().parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Unknown,
    Within,
    Risen,
    Fallen,
}

#[derive(Debug, PartialEq)]
struct Comparison {
    name: String,
    stored: Option<f64>,
    measured: f64,
    change: Change,
}

fn compare(stored: &Baseline, measured: &BTreeMap<String, f64>) -> Vec<Comparison> {
    let compare = |(name, &measured): (&String, &f64)| {
        let stored = stored.counts.get(name).copied();
        let change = match stored {
            None => Change::Unknown,
            Some(stored) if measured > stored * (1.0 + TOLERANCE) => Change::Risen,
            Some(stored) if measured < stored * (1.0 - TOLERANCE) => Change::Fallen,
            Some(_) => Change::Within,
        };
        Comparison { name: name.clone(), stored, measured, change }
    };
    measured.iter().map(compare).collect()
}

fn print_table(comparisons: &[Comparison]) {
    let mut table = Table::new(["operation", "instructions", "baseline", "change"]);
    for comparison in comparisons {
        let change = comparison.stored.map(|stored| (comparison.measured / stored - 1.0) * 100.0);
        table.row([
            comparison.name.clone(),
            grouped(comparison.measured),
            comparison.stored.map_or_else(|| "none".to_owned(), grouped),
            change.map_or_else(String::new, |change| format!("{change:+.1} %")),
        ]);
    }
    println!("{table}");
}

/// What decides the counts beside our code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Toolset {
    compiler: String,
    valgrind: String,
    /// Those of [`INSTRUCTION_SETS`] that the processor has.
    processor: String,
    /// See [`profile::present`].
    profile: String,
}

/// Flags of `/proc/cpuinfo` by which the C library and `memchr` choose their code.
const INSTRUCTION_SETS: [&str; 9] =
    ["sse4_2", "popcnt", "avx", "avx2", "bmi1", "bmi2", "abm", "erms", "fsrm"];

impl Toolset {
    fn present() -> Result<Self> {
        let facts = workspace::compiler_facts()?;
        let compiler = facts.lines().next().unwrap_or_default().to_owned();
        let valgrind = workspace::output(Command::new("valgrind").arg("--version"))?.trim().to_owned();
        let processor = instruction_sets(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        Ok(Self { compiler, valgrind, processor, profile: profile::present()? })
    }
}

fn instruction_sets(cpuinfo: &str) -> String {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let present =
        INSTRUCTION_SETS.into_iter().filter(|set| flags.split_whitespace().any(|flag| flag == *set));
    present.collect::<Vec<_>>().join(" ")
}

/// The stored counts: four lines that say with what, then `name: count` each.
#[derive(Debug, Default, PartialEq)]
struct Baseline {
    tools: Option<Toolset>,
    counts: BTreeMap<String, f64>,
}

impl Baseline {
    fn path() -> PathBuf {
        workspace::root().join("xtask/baseline/instructions.txt")
    }

    fn read() -> Result<Self> {
        match fs::read_to_string(Self::path()) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", Self::path().display())),
        }
    }

    fn write(&self) -> Result<()> {
        fs::create_dir_all(Self::path().parent().context("invariant: a file in a folder")?)?;
        fs::write(Self::path(), self.text())
            .with_context(|| format!("cannot write {}", Self::path().display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let mut fact = |key: &str| lines.next()?.strip_prefix(key).map(str::to_owned);
        let facts = ["# compiler: ", "# valgrind: ", "# processor: ", "# profile: "].map(&mut fact);
        let tools = match facts {
            [Some(compiler), Some(valgrind), Some(processor), Some(profile)] => {
                Some(Toolset { compiler, valgrind, processor, profile })
            }
            _ => None,
        };
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (name, count) = line.rsplit_once(": ").with_context(|| format!("no count in {line:?}"))?;
            let count = count.trim().parse().with_context(|| format!("no count in {line:?}"))?;
            counts.insert(name.to_owned(), count);
        }
        Ok(Self { tools, counts })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(tools) = &self.tools {
            let Toolset { compiler, valgrind, processor, profile } = tools;
            text += &format!("# compiler: {compiler}\n# valgrind: {valgrind}\n");
            text += &format!("# processor: {processor}\n# profile: {profile}\n");
        }
        text += "# instructions per operation; written by: cargo xtask bench instructions --update\n";
        for (name, count) in &self.counts {
            text += &format!("{name}: {count:.1}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_callgrind() {
        let log =
            "==12== Callgrind, a call-graph generating cache profiler\n==12== \n==12== Collected : 123456\n";
        assert_eq!(collected(log), Some(123_456));
        assert_eq!(collected("==12== nothing"), None);
    }

    #[test]
    fn instruction_sets_of_a_processor() {
        assert_eq!(instruction_sets("model\t: x\nflags\t\t: fpu avx2 avx avx512f erms\n"), "avx avx2 erms");
        assert_eq!(instruction_sets(""), "");
    }

    #[test]
    fn what_is_written_is_read() {
        let tools = Toolset {
            compiler: "rustc 1.95.0 (x)".into(),
            valgrind: "valgrind-3.19.0".into(),
            processor: "avx avx2".into(),
            profile: "none".into(),
        };
        let counts = BTreeMap::from([("h1 parse".to_owned(), 812.5), ("a: b".to_owned(), 3.0)]);
        let baseline = Baseline { tools: Some(tools), counts };
        assert_eq!(Baseline::parse(&baseline.text()).unwrap(), baseline);
        assert!(Baseline::parse("h1 parse: many").is_err());
    }

    #[test]
    fn rises_and_falls() {
        let counts = |figure| BTreeMap::from([("a".to_owned(), figure)]);
        let stored = Baseline { tools: None, counts: counts(1000.0) };
        let table = [
            (1000.0, Change::Within),
            (1030.0, Change::Within),
            (1031.0, Change::Risen),
            (970.0, Change::Within),
            (969.0, Change::Fallen),
        ];
        for (measured, expected) in table {
            assert_eq!(compare(&stored, &counts(measured))[0].change, expected, "{measured}");
        }
        assert_eq!(compare(&Baseline::default(), &counts(1.0))[0].change, Change::Unknown);
    }

    #[test]
    fn idle_streams_cost_nothing() {
        let counted =
            |beside| BTreeMap::from([(EVENT.to_owned(), 1000.0), (EVENT_BESIDE.to_owned(), beside)]);
        assert!(check_idle_streams(&counted(1100.0)).is_ok());
        assert!(check_idle_streams(&counted(1101.0)).is_err());
        assert!(check_idle_streams(&BTreeMap::new()).is_ok());
    }

    #[test]
    fn only_a_comparable_rise_fails() {
        let risen = Comparison { name: "a".into(), stored: Some(1.0), measured: 2.0, change: Change::Risen };
        let unknown = Comparison { name: "a".into(), stored: None, measured: 2.0, change: Change::Unknown };
        assert!(report(std::slice::from_ref(&risen), true).is_err());
        assert!(report(&[risen], false).is_ok());
        assert!(report(&[unknown], false).is_err());
    }
}
