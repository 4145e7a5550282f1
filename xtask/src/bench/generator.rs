//! The load generator, `tidegate bench`, as the benches of operation use it: started on a processor of its own,
//! its JSON report read back.
//!
//! Used where the figure is what clients see (times, failures, completeness) and not what a request costs.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::host;
use crate::workspace;

/// What clients saw.
#[derive(Debug, Clone)]
pub struct Load {
    /// Requests begun.
    pub requests: u64,
    /// Those that failed, by what they failed of.
    pub errors: BTreeMap<String, u64>,
    /// Answered, as expected or not, per second.
    pub rate: f64,
    pub seconds: f64,
    /// From the moment a request should have started to its last byte.
    pub latency: Latency,
    /// The same of those answered as expected alone.
    pub expected: Latency,
    /// The report itself.
    pub report: Value,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Latency {
    pub median: Duration,
    pub p99: Duration,
    pub longest: Duration,
}

impl Load {
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The most that the processes of the generator held resident, bytes.
    pub fn memory(&self) -> Result<u64> {
        self.report["generator"]["memory"].as_u64().context("a report without the generator's memory")
    }

    /// Percent of requests that were answered as expected.
    pub fn availability(&self) -> f64 {
        if self.requests == 0 {
            return 0.0;
        }
        100.0 * (1.0 - self.failed() as f64 / self.requests as f64)
    }

    /// `reset 3, timeout 1`; empty when nothing failed.
    pub fn errors_text(&self) -> String {
        let kinds = self.errors.iter().filter(|(_, count)| **count > 0);
        kinds
            .map(|(kind, count)| format!("{} {count}", kind.replace('_', " ")))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Adds another run; of times the worse stays.
    pub fn add(&mut self, other: &Load) {
        self.requests += other.requests;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        let seconds = self.seconds + other.seconds;
        if seconds > 0.0 {
            self.rate = (self.rate * self.seconds + other.rate * other.seconds) / seconds;
        }
        self.seconds = seconds;
        self.latency.median = self.latency.median.max(other.latency.median);
        self.latency.p99 = self.latency.p99.max(other.latency.p99);
        self.latency.longest = self.latency.longest.max(other.latency.longest);
    }

    fn parse(text: &str) -> Result<Load> {
        let report: Value = serde_json::from_str(text).with_context(|| format!("no report:\n{text}"))?;
        let latency = |kind: &str| {
            let seconds = |name: &str| {
                Duration::from_secs_f64(report[kind][name].as_f64().unwrap_or_default().clamp(0.0, 1e6))
            };
            Latency { median: seconds("p50"), p99: seconds("p99"), longest: seconds("max") }
        };
        let errors = report["errors"].as_object().context("a report without errors by kind")?;
        Ok(Load {
            requests: report["requests"].as_u64().context("a report without a count of requests")?,
            errors: errors
                .iter()
                .filter(|(kind, _)| *kind != "total")
                .map(|(kind, count)| (kind.clone(), count.as_u64().unwrap_or_default()))
                .collect(),
            rate: report["rate"].as_f64().unwrap_or_default(),
            seconds: report["seconds"].as_f64().unwrap_or_default(),
            latency: latency("latency"),
            expected: latency("latency_expected"),
            report,
        })
    }
}

/// The program under `target/release`, which is both server and generator.
pub fn tidegate() -> PathBuf {
    workspace::optimised().join("tidegate")
}

/// A generator that runs.
pub struct Running {
    child: Child,
    shown: String,
    /// Its report and what it complains of, read while it runs: it would wait for a pipe that is full.
    output: [JoinHandle<std::io::Result<String>>; 2],
}

/// Starts `tidegate bench` with these arguments on the generator's processor.
pub fn start(arguments: &[String]) -> Result<Running> {
    let mut command = host::pinned(host::GENERATOR_PROCESSOR, &tidegate().to_string_lossy());
    command.arg("bench").args(arguments).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = workspace::shown(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
    let report = child.stdout.take().context("no pipe for its report")?;
    let complaints = child.stderr.take().context("no pipe for what it complains of")?;
    let output = [thread::spawn(move || read(report)), thread::spawn(move || read(complaints))];
    Ok(Running { child, shown, output })
}

fn read(mut pipe: impl Read) -> std::io::Result<String> {
    let mut text = Vec::new();
    pipe.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl Running {
    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Has it give way to whatever else runs on its processor: where it hammers at a server that turns requests
    /// away, it must not slow down the application beside it.
    pub fn go_last(&self) -> Result<()> {
        let mut command = Command::new("chrt");
        command.args(["--all-tasks", "--idle", "--pid", "0", &self.child.id().to_string()]);
        workspace::output(&mut command).map(drop)
    }

    /// Ends it; nobody wants its report.
    pub fn stop(mut self) {
        super::server::end(&mut self.child);
    }

    /// Waits for its report. A missed target (99) and a measurement that is not to be trusted (98) have one
    /// too; what they mean is for the caller, who sees the verdict in it.
    pub fn finish(mut self) -> Result<Load> {
        let status = self.child.wait()?;
        let [report, complaints] = self.output.map(JoinHandle::join);
        let text = |read: thread::Result<_>| read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (report, complaints) = (text(report)?, text(complaints)?);
        if !matches!(status.code(), Some(0 | 98 | 99)) {
            bail!("{} ended with {status}\n{complaints}", self.shown);
        }
        Load::parse(&report)
    }
}

/// Runs it to its end.
pub fn run(arguments: &[String]) -> Result<Load> {
    start(arguments)?.finish()
}

/// Words of a command line.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports() {
        let text = r#"{"requests": 200, "errors": {"reset": 1, "timeout": 0, "status": 1}, "rate": 99.0,
            "seconds": 2.0, "latency": {"p50": 0.001, "p99": 0.25, "max": 1.5}}"#;
        let mut load = Load::parse(text).unwrap();
        assert_eq!(load.failed(), 2);
        assert_eq!(load.availability(), 99.0);
        assert_eq!(load.errors_text(), "reset 1, status 1");
        assert_eq!(load.latency.p99, Duration::from_millis(250));
        load.add(&load.clone());
        assert_eq!((load.requests, load.failed(), load.seconds), (400, 4, 4.0));
        assert!(Load::parse("{}").is_err());
    }
}
