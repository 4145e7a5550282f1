//! The report for a terminal: one screen that users of ab and of siege both recognise.

use super::Report;
use crate::host::Host;
use crate::quantity::{show_bytes, show_duration};
use crate::record::Times;
use crate::verdict::Judgement;
use std::fmt::Write;

/// A report as text, for a terminal.
pub fn screen(report: &Report) -> String {
    let counts = &report.totals.counts;
    let seconds = report.outcome.seconds();
    let per_second = |value: u64| if seconds > 0.0 { value as f64 / seconds } else { 0.0 };
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<24}{value}");
    };
    line("Target", report.subject.clone());
    line("Load", report.load.clone());
    line("Command", report.about.command.clone());
    line("On", report.about.sentence());
    line("Elapsed time", format!("{seconds:.3} s"));
    line("Complete requests", format!("{}", counts.answered));
    line("Failed requests", failures(report));
    line("Availability", format!("{:.2} %", counts.availability()));
    let demanded = report.demanded.map_or_else(String::new, |rate| format!(" (demanded {rate:.2})"));
    line("Requests per second", format!("{:.2}{demanded}", report.rate()));
    line(
        "Transfer",
        format!(
            "{}/s, {} received, {} of bodies, {} sent",
            show_bytes(per_second(counts.bytes)),
            show_bytes(counts.bytes as f64),
            show_bytes(counts.body_bytes as f64),
            show_bytes(counts.bytes_sent as f64)
        ),
    );
    line("Statuses", statuses(report));
    line("Concurrency", format!("{:.2} requests on average", report.concurrency()));
    let dropped = if counts.dropped > 0 {
        format!(", {} dropped by the server", counts.dropped)
    } else {
        String::new()
    };
    line(
        "Connections",
        format!("{} opened, {} open at most{dropped}", counts.connects, report.outcome.most_open()),
    );
    if let Some(bytes) = report.bytes_per_connection() {
        line("Memory of the server", format!("{bytes:.0} bytes more for each open connection"));
    }
    let handshakes = counts.tls_full + counts.tls_resumed;
    if handshakes > 0 {
        let each = if seconds > 0.0 { handshakes as f64 / seconds } else { 0.0 };
        let share = 100.0 * counts.tls_resumed as f64 / handshakes as f64;
        line(
            "TLS handshakes",
            format!(
                "{} in full, {} resumed ({share:.1} %), {each:.2}/s",
                counts.tls_full, counts.tls_resumed
            ),
        );
    }
    if let Some(spoken) = &report.outcome.tls {
        line("TLS", spoken.clone());
    }
    let (longest, shortest) = (report.totals.response.max(), report.totals.response.min());
    if counts.answered > 0 {
        line("Longest, shortest", format!("{}, {}", show_duration(longest), show_duration(shortest)));
    } else if report.totals.response.count() > 0 {
        line("Longest", format!("{}, without an answer", show_duration(longest)));
    }
    if let Some(bitrate) = report.min_bitrate {
        let share = 100.0 * counts.conforming as f64 / counts.answered.max(1) as f64;
        line("Conforming", format!("{} ({share:.2} %) at {bitrate} bit/s or more", counts.conforming));
    }
    if report.totals.speed.count() > 0 {
        let speed = |percent| show_bytes(report.totals.speed.number_at(percent) as f64);
        line(
            "Speed of a reader",
            format!("{}/s min, {}/s median, {}/s max", speed(0.0), speed(50.0), speed(100.0)),
        );
    }
    let digests = report.digests();
    if let Some((crc, count)) = digests.iter().next() {
        let others = digests.len() - 1;
        let more = if others == 0 { "all alike".to_owned() } else { format!("and {others} other checksums") };
        line("CRC-32 of bodies", format!("{crc:08x} in {count}, {more}"));
    }
    line("Generator", generator(report));
    if let Some(host) = &report.host {
        line("This host", show_host(host));
    }
    out.push('\n');
    // Where nothing was answered there are no times of answers.
    if counts.answered > 0 {
        out.push_str(&connection_times(report));
        out.push('\n');
        out.push_str(&percentiles(report));
        out.push('\n');
    }
    out.push_str(&failed(report));
    out.push_str(&show_judgement(&report.judgement));
    out
}

/// Characters of an answer that fit on a screen; JSON and HTML have more.
const ANSWER_WIDTH: usize = 160;

/// The first requests that failed.
fn failed(report: &Report) -> String {
    let mut out = String::new();
    let mut shown = None;
    for failed in &report.outcome.failed {
        if out.is_empty() {
            out.push_str("The first that failed\n");
        }
        let status = failed.status.map_or_else(String::new, |status| format!(" ({status})"));
        let sentence = failed.failure.sentence();
        let _ = writeln!(out, "  {:.3} s  {}  {sentence}{status}", failed.at, failed.request);
        // The same answer again would push the verdict off the screen.
        if let Some(answer) = failed.answer.as_ref().filter(|answer| shown != Some(*answer)) {
            let _ = writeln!(out, "           {}", answer.get(..ANSWER_WIDTH).unwrap_or(answer));
            shown = Some(answer);
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// Columns of equal width, the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ =
                if column == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn failures(report: &Report) -> String {
    let counts = &report.totals.counts;
    if counts.failed() == 0 {
        return "0".to_owned();
    }
    let kinds: Vec<String> =
        counts.failures.iter().map(|(failure, count)| format!("{count} {}", failure.sentence())).collect();
    format!("{} ({})", counts.failed(), kinds.join(", "))
}

fn statuses(report: &Report) -> String {
    let parts: Vec<String> =
        report.totals.counts.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn generator(report: &Report) -> String {
    let cpu = report.outcome.cpu();
    let each = cpu * 1e6 / report.totals.counts.answered.max(1) as f64;
    let mut text = format!(
        "{:.0} % of a processor in the busiest thread, {each:.2} µs per request, {} of memory",
        report.outcome.busiest_worker() * 100.0,
        show_bytes(report.outcome.memory as f64)
    );
    if report.is_open_loop {
        let _ = write!(
            text,
            ", late by {} at p99, {} at most",
            show_duration(report.totals.lateness.percentile(99.0)),
            show_duration(report.totals.lateness.max())
        );
    }
    text
}

fn show_host(host: &Host) -> String {
    let mut parts = vec![format!("processors {:.0} % busy", host.busy() * 100.0)];
    if let Some(cpu) = host.server_cpu() {
        parts.push(format!("{cpu:.2} of them by the server"));
    }
    if let Some(bytes) = host.server_resident() {
        parts.push(format!("which held {}", show_bytes(bytes as f64)));
    }
    parts.push(format!("run queue {}", host.run_queue()));
    parts.push(format!("{} segments sent again", host.retransmits()));
    parts.push(format!("{} listen drops", host.listen_drops()));
    parts.join(", ")
}

fn connection_times(report: &Report) -> String {
    let mut rows = vec![["Times", "min", "mean", "+/-sd", "median", "max"].map(str::to_owned).to_vec()];
    let mut row = |name: &str, times: &Times| {
        let show = |time| if times.count() == 0 { "-".to_owned() } else { show_duration(time) };
        rows.push(vec![
            name.to_owned(),
            show(times.min()),
            show(times.mean()),
            show(times.deviation()),
            show(times.percentile(50.0)),
            show(times.max()),
        ]);
    };
    row("  Connect", &report.totals.connect);
    if report.totals.handshake.count() > 0 {
        row("  TLS handshake", &report.totals.handshake);
    }
    row("  Waiting (first byte)", &report.totals.wait);
    row("  Service (sent to end)", &report.totals.service);
    row("  Total (meant to end)", &report.totals.response);
    if report.totals.counts.failed() > 0 {
        row("  of what was expected", &report.totals.expected);
    }
    table(&rows)
}

fn percentiles(report: &Report) -> String {
    let mut out = match report.totals.without_answer() {
        0 => "Share of the requests answered within\n".to_owned(),
        count => format!("Share of the requests answered, or given up ({count}), within\n"),
    };
    for percent in super::PERCENTILES {
        let time = show_duration(report.totals.response.percentile(percent));
        let _ = writeln!(out, "  {:>6}  {time}", format!("{percent}%"));
    }
    let _ =
        writeln!(out, "  {:>6}  {} (longest request)", "100%", show_duration(report.totals.response.max()));
    out
}

/// Notes, the verdict and its reasons, a line each.
pub fn show_judgement(judgement: &Judgement) -> String {
    let mut out = String::new();
    for note in &judgement.notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    let _ = write!(out, "Verdict: {}", judgement.verdict);
    match judgement.reasons.as_slice() {
        [] => out.push('\n'),
        reasons => {
            out.push('\n');
            for reason in reasons {
                let _ = writeln!(out, "  {reason}.");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".into()], vec!["bcd".to_owned(), "200".into()]];
        assert_eq!(table(&rows), "a      1\nbcd  200\n");
    }
}
