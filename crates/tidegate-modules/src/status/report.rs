//! The report on the server: rows of label and value in sections, written as HTML, text or JSON.

use super::ask::Format;
use super::html;
use super::printable::printable;
use super::{CertificateInfo, ProcessInfo, RateKind, ServerInfo, Used};
use super::{
    finding, lanes, limit_store, performance, pools, providers, rates, sites, stores, times, upstreams,
    workers, xml,
};
use serde_json::{Value, json};
use std::fmt::Write;
use tidegate_http::HttpDate;
use tidegate_stats::series::{RouteFigures, write_buckets};
use tidegate_stats::{Exposition, Snapshot, openmetrics, protobuf};

/// Where values begin in the text report, as in the report of `tidegate-stats`.
const VALUE_COLUMN: usize = 40;

/// A heading and the rows below it.
pub(super) struct Section {
    pub title: String,
    pub rows: Vec<Row>,
}

/// A label, its value, and what it means.
pub(super) struct Row {
    pub label: String,
    pub value: String,
    pub help: &'static str,
}

impl Row {
    pub(super) fn new(label: impl Into<String>, value: impl Into<String>) -> Row {
        let [label, value] = [label.into(), value.into()].map(|text| printable(&text));
        Row { label, value, help: "" }
    }
}

/// What the report is made of.
pub(super) struct Server {
    pub info: ServerInfo,
    pub counted: Snapshot,
}

impl Server {
    /// The same as bytes: not every form is text.
    pub(super) fn body(&self, format: Format, refresh: Option<u32>) -> Vec<u8> {
        match format {
            Format::Protobuf => protobuf(&self.exposition().families()),
            _ => self.write(format, refresh).into_bytes(),
        }
    }

    /// As text; what is none is as the text of Prometheus.
    pub(super) fn write(&self, format: Format, refresh: Option<u32>) -> String {
        match format {
            Format::Html => {
                let mut sections = vec![self.about()];
                sections.extend(workers::sections(&self.info.by_worker));
                sections.extend(performance::listen_sockets(&self.info.in_force));
                sections.extend(pools::sections(&self.info.pools));
                sections.extend(upstreams::sections(&self.info.upstreams));
                sections.extend(times::sections(&self.info.times));
                sections.extend(stores::sections(&self.info.stores, &self.info.times));
                sections.extend(rates::sections(&self.info.rates, &self.info.times));
                sections.extend(finding::turned_away_section(&self.info.turned_away));
                sections.extend(providers::sections(&self.info.providers));
                sections.extend(limit_store::section(self.info.limit_store.as_ref()));
                sections.extend(self.counted_sections());
                sections.extend(lanes::sections(&self.info.lanes));
                sections.push(performance::section(&self.buckets()));
                sections.extend(sites::sections(&self.info.series));
                html::server(&self.info, &sections, refresh)
            }
            Format::Text => {
                let mut text = format!("Tidegate {} pid: {}\n", self.info.version, self.info.pid);
                finding::section(&self.info.findings)
                    .iter()
                    .for_each(|section| write_section(&mut text, section));
                write_section(&mut text, &self.about());
                workers::sections(&self.info.by_worker)
                    .iter()
                    .for_each(|section| write_section(&mut text, section));
                let sockets = performance::listen_sockets(&self.info.in_force);
                sockets.iter().for_each(|section| write_section(&mut text, section));
                pools::sections(&self.info.pools)
                    .iter()
                    .chain(&upstreams::sections(&self.info.upstreams))
                    .chain(&times::sections(&self.info.times))
                    .chain(&stores::sections(&self.info.stores, &self.info.times))
                    .chain(&rates::sections(&self.info.rates, &self.info.times))
                    .chain(&finding::turned_away_section(&self.info.turned_away))
                    .chain(&providers::sections(&self.info.providers))
                    .chain(&limit_store::section(self.info.limit_store.as_ref()))
                    .for_each(|section| write_section(&mut text, section));
                text.push('\n');
                text.push_str(&self.counted.to_text_with(&self.info.in_force.rows()));
                lanes::sections(&self.info.lanes)
                    .iter()
                    .for_each(|section| write_section(&mut text, section));
                write_section(&mut text, &performance::section(&self.buckets()));
                sites::sections(&self.info.series)
                    .iter()
                    .for_each(|section| write_section(&mut text, section));
                text
            }
            Format::Json => self.to_json(),
            Format::Xml => xml::write(&self.info, &self.counted, &self.buckets()),
            Format::Prometheus | Format::Protobuf => self.exposition().text,
            Format::OpenMetrics => openmetrics(&self.exposition()),
        }
    }

    fn buckets(&self) -> Vec<(String, RouteFigures)> {
        performance::buckets(&self.info.in_force, &self.info.series)
    }

    fn to_json(&self) -> String {
        let info = &self.info;
        let server = json!({
            "version": info.version,
            "pid": info.pid,
            "started": date(info.started),
            "now": date(info.now),
            "at": info.now as f64 + f64::from(info.now_millis) / 1e3,
            "uptime": self.uptime(),
            "workers": info.workers,
            "revision": info.revision,
            "state": self.state(),
            "log_lines_lost": info.log_lines_lost,
            "process_restarts": info.process_restarts,
            "used": { "servers": used_to_json(&info.used), "master": used_to_json(&info.used_by_master) },
            "processes": info.processes.iter().map(|process| self.process_to_json(process)).collect::<Vec<_>>(),
            "listeners": info.listeners,
            "sites": info.sites,
            "left_out": info.left_out.iter().map(left_out).collect::<Vec<_>>(),
            "certificates": info.certificates.iter().map(|info| self.certificate(info)).collect::<Vec<_>>(),
        });
        let pools = pools::to_json(&info.pools);
        let upstreams = upstreams::to_json(&info.upstreams);
        let applications = times::to_json(&info.times);
        let caches = stores::to_json(&info.stores, &info.times);
        let rates = |kind| rates::to_json((&info.rates, &info.times), kind);
        let (limits, bandwidths, bans) =
            (rates(RateKind::Limit), rates(RateKind::Bandwidth), rates(RateKind::Ban));
        let providers = providers::to_json(&info.providers);
        let limit_store = limit_store::to_json(info.limit_store.as_ref());
        let (sites, buckets) = (sites::to_json(&info.series), performance::to_json(&self.buckets()));
        let findings = finding::to_json(&info.findings);
        let turned_away = finding::turned_away_to_json(&info.turned_away);
        let (workers, lanes) = (workers::to_json(&info.by_worker), lanes::to_json(&info.lanes));
        let listeners = performance::listen_sockets_to_json(&info.in_force);
        let stats = self.counted.to_json();
        format!(
            "{{\"findings\":{findings},\"turned_away\":{turned_away},\"server\":{server},\"workers\":{workers},\"listeners\":{listeners},\"lanes\":{lanes},\"pools\":{pools},\"upstreams\":{upstreams},\"applications\":{applications},\"caches\":{caches},\"limits\":{limits},\"bandwidths\":{bandwidths},\"bans\":{bans},\"providers\":{providers},\"limit_store\":{limit_store},\"sites\":{sites},\"buckets\":{buckets},\"stats\":{stats}}}\n"
        )
    }

    fn process_to_json(&self, process: &ProcessInfo) -> Value {
        json!({
            "pid": process.pid,
            "state": process.state,
            "started": date(process.started),
            "uptime": self.since(process.started),
            "workers": process.workers,
            "restarts": process.restarts,
            "requests": process.requests,
            "connections": process.connections,
            "used": used_to_json(&process.used),
        })
    }

    /// All metrics.
    pub(super) fn exposition(&self) -> Exposition {
        let info = &self.info;
        let mut out = Exposition::default();
        self.counted.write_prometheus(&mut out);
        info.series.write_prometheus(&mut out);
        write_buckets(&mut out, &self.buckets());
        performance::write_listen_sockets(&mut out, &self.info.in_force);
        times::write_prometheus(&mut out, &info.times);
        self.write_facts(&mut out.text);
        out
    }

    /// Appends what the server is and has used, for Prometheus.
    fn write_facts(&self, text: &mut String) {
        let info = &self.info;
        let rows = [
            ("start_time_seconds", "gauge", "When the server started, since 1970.", info.started.to_string()),
            ("settings_revision", "gauge", "Number of the settings in force.", info.revision.to_string()),
            (
                "log_lines_lost_total",
                "counter",
                "Log lines that could not be written.",
                info.log_lines_lost.to_string(),
            ),
        ];
        let restarts = info.process_restarts;
        let help = "Server processes that were replaced because they had ended by mistake.";
        let rows =
            rows.into_iter().chain([("process_restarts_total", "counter", help, restarts.to_string())]);
        let otlp = info.otlp.iter().flat_map(|otlp| {
            [
                ("otlp_messages_total", "Messages with metrics that the collector has taken.", otlp.taken),
                ("otlp_lost_total", "Messages with metrics that the collector has not taken.", otlp.lost),
                ("otlp_spans_total", "Sampled requests that the collector has taken.", otlp.spans),
                (
                    "otlp_spans_lost_total",
                    "Sampled requests that the collector has not taken.",
                    otlp.spans_lost,
                ),
            ]
            .map(|(name, help, count)| (name, "counter", help, count.to_string()))
        });
        let rows = rows.chain(otlp);
        pools::write_prometheus(text, &self.info.pools);
        upstreams::write_prometheus(text, &self.info.upstreams);
        stores::write_prometheus(text, &self.info.stores);
        rates::write_prometheus(text, &self.info.rates);
        limit_store::write_prometheus(text, info.limit_store.as_ref());
        finding::write_prometheus(text, &self.info.findings);
        for (name, kind, help, value) in rows {
            let _ = writeln!(text, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
            let _ = writeln!(text, "tidegate_{name} {value}");
        }
        text.push_str(
            "# HELP tidegate_build_info The program that runs.\n# TYPE tidegate_build_info gauge\n",
        );
        let _ = writeln!(text, "tidegate_build_info{{version=\"{}\"}} 1", label(&info.version));
        for (name, kind, help, of) in USED {
            let _ = writeln!(
                text,
                "# HELP tidegate_process_{name} {help}\n# TYPE tidegate_process_{name} {kind}"
            );
            for (part, used) in [("master", &info.used_by_master), ("servers", &info.used)] {
                let _ = writeln!(text, "tidegate_process_{name}{{part=\"{part}\"}} {}", of(used));
            }
        }
        if info.certificates.iter().any(|info| info.not_after.is_some()) {
            text.push_str(
                "# HELP tidegate_certificate_expiry_seconds When a certificate expires, since 1970.\n\
                 # TYPE tidegate_certificate_expiry_seconds gauge\n",
            );
        }
        for info in &info.certificates {
            let Some(not_after) = info.not_after else { continue };
            let source = label(&info.source);
            let _ = writeln!(text, "tidegate_certificate_expiry_seconds{{source=\"{source}\"}} {not_after}");
        }
    }

    fn certificate(&self, info: &CertificateInfo) -> Value {
        let left = info.not_after.map(|end| end.saturating_sub(self.info.now));
        json!({
            "source": info.source,
            "names": info.names,
            "key": info.key,
            "issuer": info.issuer,
            "not_after": info.not_after.map(date),
            "seconds_left": left,
            "ends_soon": left.zip(info.ends_soon_within()).is_some_and(|(left, soon)| left < soon),
        })
    }

    /// `a.test, b.test; ECDSA 256; good until 2027-01-01T00:00:00Z, 58 d`
    fn certificate_line(&self, info: &CertificateInfo) -> String {
        let Some(end) = info.not_after else { return format!("none yet ({})", info.source) };
        let left = end.saturating_sub(self.info.now);
        let until = match left {
            ..=0 => format!("EXPIRED {}", date(end)),
            left => format!("good until {}, {} d", date(end), left / 86_400),
        };
        format!("{}; {}; {until} ({})", info.names.join(", "), info.key, info.source)
    }

    fn state(&self) -> &'static str {
        if self.info.is_draining { "draining" } else { "serving" }
    }

    /// Seconds.
    fn uptime(&self) -> i64 {
        self.since(self.info.started)
    }

    /// Seconds.
    fn since(&self, then: i64) -> i64 {
        self.info.now.saturating_sub(then).max(0)
    }

    fn about(&self) -> Section {
        let info = &self.info;
        let mut rows = vec![
            Row::new("Version", info.version.as_str()),
            Row::new("Process", info.pid.to_string()),
            Row::new("State", self.state()),
            Row::new("Started", date(info.started)),
            Row::new("Uptime", span(self.uptime())),
            Row::new("Workers", info.workers.to_string()),
            Row::new("Settings Revision", info.revision.to_string()),
            Row::new("Log Lines Lost", info.log_lines_lost.to_string()),
        ];
        rows.extend(info.processes.iter().map(|process| {
            let ProcessInfo { pid, state, workers, restarts, .. } = process;
            let uptime = span(self.since(process.started));
            let said = format!("{pid} {state}, {uptime}, {workers} workers, {restarts} restarts");
            Row::new("ServerProcess", said)
        }));
        rows.extend(info.listeners.iter().map(|address| Row::new("ListenSocket", address.as_str())));
        rows.extend(info.sites.iter().map(|names| Row::new("Site", names.as_str())));
        let left_out = |(names, why): &(String, String)| Row::new("SiteLeftOut", format!("{names}: {why}"));
        rows.extend(info.left_out.iter().map(left_out));
        rows.extend(
            info.certificates.iter().map(|info| Row::new("Certificate", self.certificate_line(info))),
        );
        Section { title: "Server".into(), rows }
    }

    /// The sections of the text report, taken apart: so the two say the same in the same words.
    fn counted_sections(&self) -> Vec<Section> {
        let descriptions: Vec<_> = self.counted.rows().into_iter().map(|(row, _)| row).collect();
        let text = self.counted.to_text_with(&self.info.in_force.rows());
        let mut sections: Vec<Section> = Vec::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if lines.next_if_eq(&"-----").is_some() {
                sections.push(Section { title: line.trim_end_matches(':').into(), rows: Vec::new() });
                continue;
            }
            // Before the first heading stands the number of workers, which is told above.
            let Some(section) = sections.last_mut().filter(|_| !line.is_empty()) else { continue };
            let (label, value) = line.split_at_checked(VALUE_COLUMN).unwrap_or((line, ""));
            let mut row = Row::new(label.trim_end(), value);
            let fits = |name: &str| name == section.title;
            row.help = descriptions
                .iter()
                .filter(|description| fits(description.section) && row.label.starts_with(description.label))
                .max_by_key(|description| description.label.len())
                .map_or("", |description| description.help);
            section.rows.push(row);
        }
        sections
    }
}

/// A section of the text report.
pub(super) fn write_section(text: &mut String, section: &Section) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\n{}:\n-----", section.title);
    for row in &section.rows {
        let gap = if row.label.chars().count() < VALUE_COLUMN { "" } else { " " };
        let _ = writeln!(text, "{:<VALUE_COLUMN$}{gap}{}", row.label, row.value);
    }
}

/// RFC 3339.
pub(super) fn date(seconds: i64) -> String {
    String::from_utf8_lossy(&HttpDate(seconds).rfc3339()).into_owned()
}

/// `3 d 4 h 5 min 6 s`, without leading zeros.
fn left_out((names, why): &(String, String)) -> Value {
    json!({ "site": names, "why": why })
}

fn span(seconds: i64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    parts[first..].iter().map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

/// What processes have used: name, kind, sentence, and how it is written.
type UsedRow = (&'static str, &'static str, &'static str, fn(&Used) -> String);

const USED: [UsedRow; 3] = [
    ("cpu_seconds_total", "counter", "Time of processors, of those processes too that have ended.", |used| {
        format!("{}.{:06}", used.cpu_micros / 1_000_000, used.cpu_micros % 1_000_000)
    }),
    ("resident_memory_bytes", "gauge", "Memory in use.", |used| used.resident.to_string()),
    ("open_fds", "gauge", "Open descriptors.", |used| used.descriptors.to_string()),
];

fn used_to_json(used: &Used) -> Value {
    json!({
        "cpu_seconds": used.cpu_micros as f64 / 1e6,
        "resident_bytes": used.resident,
        "descriptors": used.descriptors,
    })
}

/// As the value of a label of Prometheus.
pub(super) fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, text) in
            [(0, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min 0 s"), (90_061, "1 d 1 h 1 min 1 s")]
        {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn every_counted_row_is_on_the_page_with_its_meaning() {
        let server = Server { info: ServerInfo::default(), counted: Snapshot::default() };
        let sections = server.counted_sections();
        let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
        for (description, _) in server.counted.rows() {
            assert!(titles.contains(&description.section), "{description:?}");
            let is_shown = sections.iter().flat_map(|section| &section.rows).any(|row| {
                row.label.starts_with(description.label)
                    && row.help == description.help
                    && !row.value.is_empty()
            });
            assert!(is_shown, "{description:?}");
        }
    }
}
