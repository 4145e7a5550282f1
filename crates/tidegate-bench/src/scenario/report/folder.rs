//! A run as a folder, which says all that is known of it.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `scenario.kdl` | the file as it was read |
//! | `scenario.script.js` | its script, where it has one |
//! | `plan.txt` | what it comes to, as `--plan` shows it |
//! | `environment.json` | machine, kernel, settings of the kernel that matter, versions, command |
//! | `seconds.csv` | a line for each second and operation, while the run goes on |
//! | `running` | what is known before; gone when the run is whole |
//! | `operations.hlog` | histograms of response times, by second and operation (HdrHistogram log V2, tags) |
//! | `summary.json` | the report as JSON |
//! | `report.txt`, `report.html` | the report |

use super::{Report, begun, screen, summary};
use crate::record::Times;
use crate::report::About;
use crate::runs::{self, Keep, SCRIPT, environment, pretty};
use crate::scenario::{Scenario, estimate};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Begins the folder of a run; `source` is the text of the scenario.
///
/// # Errors
/// What cannot be written, with its path.
pub fn begin(
    folder: &Path,
    source: &[u8],
    scenario: &Scenario,
    threads: u32,
    about: &About,
    label: Option<&str>,
) -> io::Result<Keep> {
    let mut files = vec![
        ("scenario.kdl", source.to_vec()),
        ("plan.txt", estimate(scenario, threads).screen(scenario).into_bytes()),
        ("environment.json", pretty(&environment(about, threads, None))),
    ];
    files.extend(scenario.script.iter().map(|script| (SCRIPT, script.text.as_bytes().to_vec())));
    Keep::begin(folder, &begun(scenario, about, label), &files, runs::head())
}

/// Writes what the run gave.
///
/// # Errors
/// What cannot be written, with its path.
pub fn finish(keep: Keep, report: &Report) -> io::Result<()> {
    let outcome = &report.outcome;
    keep.finish(&[
        ("environment.json", pretty(&environment(&report.about, outcome.threads, outcome.tls.as_deref()))),
        ("seconds.csv", seconds(report).into_bytes()),
        ("operations.hlog", hdr_log(report)?),
        ("report.txt", screen(report).into_bytes()),
        ("summary.json", pretty(&summary(report))),
    ])
}

fn seconds(report: &Report) -> String {
    let names = || report.scenario.operations.iter().map(|operation| operation.name.as_str());
    let rows = report.outcome.seconds.iter().map(|second| runs::row(names(), second));
    runs::head().to_owned() + &rows.collect::<String>()
}

fn hdr_log(report: &Report) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let start = UNIX_EPOCH + Duration::from_secs_f64(report.outcome.started.max(0.0));
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("tidegate bench run: {}", report.scenario.name))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1_000_000.0)
        .begin_log_with(&mut out, &mut serializer)?;
    // A tag holds no comma and no white space.
    let tags: Vec<String> = report
        .scenario
        .operations
        .iter()
        .map(|operation| operation.name.replace([',', ' ', '\n', '\r', '\t'], "_"))
        .collect();
    for second in &report.outcome.seconds {
        for (tag, tally) in
            tags.iter().zip(&second.operations).filter(|(_, tally)| !tally.response.is_empty())
        {
            let times: Times = tally.times();
            let Some(tag) = Tag::new(tag) else { continue };
            let at = Duration::from_secs(u64::from(second.requests.number));
            let lasted = Duration::from_nanos(second.requests.length);
            log.write_histogram(times.histogram(), at, lasted, Some(tag))
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
        }
    }
    Ok(out)
}
