//! The report as files: comma-separated values for each interval, and an HDR log that other tools read
//! (`V2` format of HdrHistogram's interval logs).

use super::Report;
use crate::record::Times;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

/// One line for each interval; times in seconds.
pub fn csv(report: &Report) -> String {
    let mut out =
        "at_s,seconds,requests,succeeded,failed,bytes,open,response_p50_s,response_p90_s,response_p99_s,\
                   response_max_s,service_p50_s,service_p99_s,lateness_p99_s\n"
            .to_owned();
    let length = report.outcome.interval as f64 / 1e9;
    for interval in &report.outcome.intervals {
        let times = |pairs: &[(u64, u64)]| {
            let mut times = Times::default();
            times.add(pairs);
            times
        };
        let (response, service) = (times(&interval.response), times(&interval.service));
        let lateness = times(&interval.lateness);
        let at = |times: &Times, rank| times.percentile(rank).as_secs_f64();
        let counts = &interval.counts;
        let _ = writeln!(
            out,
            "{:.3},{:.6},{},{},{},{},{},{},{},{},{},{},{},{}",
            f64::from(interval.number) * length,
            interval.length as f64 / 1e9,
            counts.requests,
            counts.succeeded,
            counts.failed(),
            counts.bytes,
            interval.open,
            at(&response, 50.0),
            at(&response, 90.0),
            at(&response, 99.0),
            response.max().as_secs_f64(),
            at(&service, 50.0),
            at(&service, 99.0),
            at(&lateness, 99.0),
        );
    }
    out
}

/// The interval log: a histogram of response times and one of service times for each interval, in nanoseconds,
/// maxima in milliseconds.
///
/// # Errors
/// A histogram that the format cannot hold.
pub fn hdr_log(report: &Report) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let start = UNIX_EPOCH + Duration::from_secs_f64(report.outcome.started.max(0.0));
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("tidegate bench: {}", report.subject))
        .add_comment(&report.load)
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1_000_000.0)
        .begin_log_with(&mut out, &mut serializer)?;
    let length = Duration::from_nanos(report.outcome.interval);
    for interval in &report.outcome.intervals {
        for (name, pairs) in [("response", &interval.response), ("service", &interval.service)] {
            let mut times = Times::default();
            times.add(pairs);
            let at = length * interval.number;
            let lasted = Duration::from_nanos(interval.length);
            log.write_histogram(times.histogram(), at, lasted, Tag::new(name))
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
        }
    }
    Ok(out)
}
