//! Findings: what limits the server, and what to change. And which limits have turned somebody away.
//!
//! Plain data with its forms in the reports. What is found, and when, is for `tidegate-findings`; the master keeps it.

use super::ask::Format;
use super::html::Escaped;
use super::printable::printable;
use super::report::{Row, Section, date, label};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::{Display, Write};

/// What is said where there is none.
const NOTHING: &str = "nothing limits this server at the moment";

/// Something that limits the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// What it is called, here and in the documents: `queue-full`.
    pub name: String,
    /// What it is about: `the server`, or the name of a pool, a route, a member, a limit.
    pub subject: String,
    /// What happened, with the figure, and what it costs.
    pub sentence: String,
    /// What to change.
    pub change: Change,
    /// Where it is explained: a page of the documents with its anchor.
    pub page: String,
    /// When it began, seconds since 1970.
    pub since: i64,
    /// What else is seen and follows from it: name and subject of each.
    pub also_seen: Vec<String>,
}

/// What to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// For people.
    pub text: String,
    /// The setting, where it is one: `limits queue length`.
    pub setting: Option<String>,
    /// What it is now.
    pub old: Option<String>,
    /// What it should be.
    pub new: Option<String>,
}

impl Change {
    /// A setting, what it is, what it should be, and how that was computed.
    pub fn of(setting: &str, old: impl Display, new: impl Display, how: &str) -> Change {
        let (old, new) = (old.to_string(), new.to_string());
        let text = format!("set `{setting}` to `{new}` in place of `{old}` ({how})");
        Change { text, setting: Some(setting.to_owned()), old: Some(old), new: Some(new) }
    }

    /// Something else.
    pub fn told(text: impl Into<String>) -> Change {
        Change { text: text.into(), ..Change::default() }
    }
}

/// A limit that has turned somebody away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnedAway {
    /// What it is called: `limits connections`, `limit api`, `ban guessers`.
    pub limit: String,
    /// What is counted: `connections`, `requests`, `bytes`.
    pub unit: String,
    /// The setting that says so: its value, or where it stands.
    pub setting: String,
    /// How many, since the server began or the limit is there.
    pub count: u64,
    /// When that was first seen, seconds since 1970.
    pub since: i64,
    /// When it was last seen to rise, seconds since 1970.
    pub last: i64,
}

/// The section of findings; none where there are none.
pub(super) fn section(findings: &[Finding]) -> Option<Section> {
    let rows: Vec<Row> = findings.iter().flat_map(rows).collect();
    (!rows.is_empty()).then(|| Section { title: "Findings".into(), rows })
}

fn rows(finding: &Finding) -> Vec<Row> {
    let mut rows = vec![
        Row::new(finding.name.as_str(), finding.sentence.as_str()),
        Row::new("  Change", finding.change.text.as_str()),
        Row::new("  Since", format!("{}, see {}", date(finding.since), finding.page)),
    ];
    if !finding.also_seen.is_empty() {
        rows.push(Row::new("  Also Seen", finding.also_seen.join(", ")));
    }
    rows
}

/// The section of limits that have turned somebody away; none where there are none.
pub(super) fn turned_away_section(limits: &[TurnedAway]) -> Option<Section> {
    let row = |of: &TurnedAway| {
        let TurnedAway { limit, unit, setting, count, since, last } = of;
        let value = format!("{count} {unit} since {}, last {}; {setting}", date(*since), date(*last));
        Row::new(limit.as_str(), value)
    };
    let rows: Vec<Row> = limits.iter().map(row).collect();
    (!rows.is_empty()).then(|| Section { title: "Turned Away".into(), rows })
}

/// All findings as JSON.
pub(super) fn to_json(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "name": finding.name,
            "subject": finding.subject,
            "sentence": finding.sentence,
            "change": finding.change.text,
            "setting": finding.change.setting,
            "old": finding.change.old,
            "new": finding.change.new,
            "page": finding.page,
            "since": date(finding.since),
            "also_seen": finding.also_seen,
        })
    };
    findings.iter().map(one).collect()
}

/// All limits that have turned somebody away as JSON.
pub(super) fn turned_away_to_json(limits: &[TurnedAway]) -> Value {
    let one = |of: &TurnedAway| {
        json!({
            "limit": of.limit,
            "unit": of.unit,
            "setting": of.setting,
            "count": of.count,
            "since": date(of.since),
            "last": date(of.last),
        })
    };
    limits.iter().map(one).collect()
}

/// All findings for Prometheus.
pub(super) fn write_prometheus(text: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    text.push_str("# HELP tidegate_finding What limits the server.\n# TYPE tidegate_finding gauge\n");
    for Finding { name, subject, .. } in findings {
        let subject = label(subject);
        let _ = writeln!(text, "tidegate_finding{{finding=\"{name}\",subject=\"{subject}\"}} 1");
    }
}

/// At the top of the page: a list that reads without columns.
pub(super) fn write_html(page: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.push_str("<h2 id=\"findings\">Findings</h2>\n<ul>\n");
    for finding in findings {
        let _ = writeln!(
            page,
            "<li><strong>{}</strong>: {}<br>Change: {}<br><small>Since {}, see {}{}</small></li>",
            Escaped(&finding.name),
            Escaped(&finding.sentence),
            Escaped(&finding.change.text),
            date(finding.since),
            Escaped(&finding.page),
            match finding.also_seen.as_slice() {
                [] => String::new(),
                seen => format!("; also seen: {}", Escaped(&seen.join(", "))),
            },
        );
    }
    page.push_str("</ul>\n");
}

/// The report on findings alone, as text or JSON.
pub fn findings_report(findings: &[Finding], turned_away: &[TurnedAway], format: Format) -> String {
    if format == Format::Json {
        let (findings, turned_away) = (to_json(findings), turned_away_to_json(turned_away));
        return format!("{{\"findings\":{findings},\"turned_away\":{turned_away}}}\n");
    }
    let mut text = String::new();
    if findings.is_empty() {
        let _ = writeln!(text, "{NOTHING}");
    }
    for finding in findings {
        let Finding { name, sentence, change, page, since, also_seen, .. } = finding;
        let _ = writeln!(
            text,
            "{name}: {}\n  change: {}\n  since {}, see {page}",
            printable(sentence),
            printable(&change.text),
            date(*since)
        );
        if !also_seen.is_empty() {
            let _ = writeln!(text, "  also seen: {}", printable(&also_seen.join(", ")));
        }
    }
    if let Some(section) = turned_away_section(turned_away) {
        super::report::write_section(&mut text, &section);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding {
            name: "queue-full".into(),
            subject: "the \"server\"".into(),
            sentence: "7 requests were refused & lost".into(),
            change: Change::of("limits queue length", 2, 9, "because"),
            page: "docs/findings.md#queue-full".into(),
            since: 1_000_000_000,
            also_seen: vec!["overload of the server".into()],
        }
    }

    #[test]
    fn every_form_tells_the_same() {
        let turned = TurnedAway {
            limit: "limit api".into(),
            unit: "requests".into(),
            setting: "a.kdl:7".into(),
            count: 3,
            since: 1_000_000_000,
            last: 1_000_000_060,
        };
        let text = findings_report(&[finding()], std::slice::from_ref(&turned), Format::Text);
        for part in [
            "queue-full: 7 requests were refused & lost\n",
            "  change: set `limits queue length` to `9` in place of `2` (because)\n",
            "  since 2001-09-09T01:46:40Z, see docs/findings.md#queue-full\n",
            "  also seen: overload of the server\n",
            "limit api                               3 requests since 2001-09-09T01:46:40Z, last 2001-09-09T01:47:40Z; a.kdl:7\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let hostile = Finding { sentence: "no \u{1b}[31mluck\rforged".into(), ..finding() };
        let of_it = findings_report(std::slice::from_ref(&hostile), &[], Format::Text);
        assert!(of_it.starts_with("queue-full: no ?[31mluck?forged\n"), "{of_it}");
        assert_eq!(section(&[hostile]).unwrap().rows[0].value, "no ?[31mluck?forged");
        let json: Value =
            serde_json::from_str(&findings_report(&[finding()], &[turned], Format::Json)).unwrap();
        assert_eq!(
            (&json["findings"][0]["new"], &json["findings"][0]["name"], &json["turned_away"][0]["count"]),
            (&json!("9"), &json!("queue-full"), &json!(3))
        );
        let mut metrics = String::new();
        write_prometheus(&mut metrics, &[finding()]);
        let line = "tidegate_finding{finding=\"queue-full\",subject=\"the \\\"server\\\"\"} 1\n";
        assert!(metrics.ends_with(line), "{metrics}");
        let mut page = String::new();
        write_html(&mut page, &[finding()]);
        assert!(page.contains("refused &amp; lost") && page.contains("also seen: overload"), "{page}");
        assert_eq!(section(&[finding()]).unwrap().rows.len(), 4);
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert_eq!(findings_report(&[], &[], Format::Text), format!("{NOTHING}\n"));
        assert_eq!(findings_report(&[], &[], Format::Json), "{\"findings\":[],\"turned_away\":[]}\n");
        let (mut metrics, mut page) = (String::new(), String::new());
        write_prometheus(&mut metrics, &[]);
        write_html(&mut page, &[]);
        assert!(metrics.is_empty() && page.is_empty() && section(&[]).is_none());
    }
}
