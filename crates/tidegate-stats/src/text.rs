//! The report for people: sections, labels and figures in the manner of Sun's perfdump.
//!
//! Called by the status page and by `tidegate status`. What it prints is for reading; scripts take the JSON.

use std::fmt::Write;
use std::time::Duration;

use crate::table::{Unit, View};
use crate::worker::Snapshot;

impl Snapshot {
    /// The report as plain text, lines ending with LF.
    pub fn to_text(&self) -> String {
        self.to_text_with(&[])
    }

    /// The same with lines at the ends of sections: what is not counted but belongs there. Each is a section, a label and a
    /// value.
    pub fn to_text_with(&self, more: &[(&str, &str, String)]) -> String {
        let mut text = String::with_capacity(4096);
        let mut section = "";
        line(&mut text, "Workers", &self.workers.to_string());
        for (description, view) in self.rows() {
            if section != description.section {
                self.end_section(section, more, &mut text);
                section = description.section;
                text.push('\n');
                text.push_str(section);
                text.push_str(":\n-----\n");
            }
            metric(&mut text, description.label, description.unit, view);
        }
        self.end_section(section, more, &mut text);
        text
    }

    /// Figures that are not counted but follow from several rows of a section.
    fn end_section(&self, section: &str, more: &[(&str, &str, String)], text: &mut String) {
        for (_, label, value) in more.iter().filter(|(of, ..)| *of == section) {
            line(text, label, value);
        }
        if section == "NativePool" {
            let threads = self.native_threads;
            let idle = threads.peak.saturating_sub(threads.current);
            line(text, "Idle/Peak/Limit", &format!("{idle}/{}/{}", threads.peak, threads.limit));
        }
        if section == "CacheInfo" {
            line(text, "Cache Content Hits", &self.cache_content_hits().to_string());
            let percent = self.cache_hit_ratio().unwrap_or(0.0) * 100.0;
            line(text, "Hit Ratio", &format!("{}/{} ({percent:.2}%)", self.cache_hits, self.cache_lookups()));
        }
        if section == "DnsCacheInfo" {
            let (hits, lookups) = (self.dns_cache_hits, self.dns_cache_lookups());
            let percent = if lookups == 0 { 0.0 } else { hits as f64 * 100.0 / lookups as f64 };
            line(text, "Hit Ratio", &format!("{hits}/{lookups} ({percent:.2}%)"));
        }
        if section == "UserCacheInfo" {
            let (hits, lookups) = (self.user_cache_answers(), self.user_cache_lookups());
            let percent = if lookups == 0 { 0.0 } else { hits as f64 * 100.0 / lookups as f64 };
            line(text, "Hit Ratio", &format!("{hits}/{lookups} ({percent:.2}%)"));
        }
    }
}

fn metric(text: &mut String, label: &str, unit: Unit, view: View<'_>) {
    match view {
        View::Count(count) => line(text, label, &quantity(count, unit)),
        View::Level(level) if level.limit == 0 => {
            let value = format!("{}/{}", quantity(level.current, unit), quantity(level.peak, unit));
            line(text, &format!("{label} Current/Peak"), &value);
        }
        View::Level(level) => {
            let values = [level.current, level.peak, level.limit].map(|value| quantity(value, unit));
            line(text, &format!("{label} Current/Peak/Limit"), &values.join("/"));
        }
        View::Distribution(times) => {
            line(text, &format!("{label} Average"), &duration(times.mean()));
            for (name, quantile) in
                [("50th", 0.5), ("90th", 0.9), ("99th", 0.99), ("99.9th", 0.999), ("Longest", 1.0)]
            {
                line(text, &format!("{label} {name}"), &duration(times.quantile(quantile)));
            }
        }
        View::Kinds { names, counts, .. } => {
            line(text, label, &counts.iter().sum::<u64>().to_string());
            for (name, count) in names.iter().zip(counts) {
                line(text, &format!("  {}", name.replace('_', " ")), &count.to_string());
            }
        }
        View::Statuses(statuses) => {
            line(text, label, &statuses.total().to_string());
            for class in 1..=5 {
                line(text, &format!("  {class}xx"), &statuses.class(class).to_string());
                for (status, count) in statuses.codes().filter(|(status, _)| status / 100 == class) {
                    line(text, &format!("    {status}"), &count.to_string());
                }
            }
        }
    }
}

fn line(text: &mut String, label: &str, value: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{label:<40}{value}");
}

fn quantity(value: u64, unit: Unit) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if unit != Unit::Bytes || value < 1024 {
        return if unit == Unit::Bytes { format!("{value} B") } else { value.to_string() };
    }
    let mut scaled = value as f64 / 1024.0;
    let mut name = UNITS[0];
    for next in &UNITS[1..] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        name = next;
    }
    format!("{scaled:.1} {name}")
}

fn duration(value: Duration) -> String {
    let nanos = value.as_nanos();
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_durations_are_readable() {
        for (value, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 40, "1.0 TiB")] {
            assert_eq!(quantity(value, Unit::Bytes), text);
        }
        assert_eq!(quantity(u64::MAX, Unit::Bytes), "16.0 EiB");
        assert_eq!(quantity(2048, Unit::Count), "2048");
        for (nanos, text) in
            [(999, "999 ns"), (1_500, "1.5 us"), (2_340_000, "2.34 ms"), (61_000_000_000, "61.000 s")]
        {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }
}
