//! The busiest paths, hosts, clients, user agents and referrers of all workers together: out of what they say to the question
//! `busiest`.

use super::Format;
use super::report::date;
use super::requests::{cell_of, write_table};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use tidegate_stats::busiest::{Frequency, Sum};

/// Names that people are shown of each kind, and programs.
const SHOWN: usize = 20;
const TOLD: usize = 100;

/// What is counted, by its name in JSON, and what it is called.
const KINDS: [(&str, &str); 5] = [
    ("paths", "Paths"),
    ("hosts", "Hosts"),
    ("clients", "Clients"),
    ("user_agents", "User Agents"),
    ("referrers", "Referrers"),
];

/// What a worker says.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfWorker {
    since: i64,
    paths: Vec<OfSketch>,
    hosts: Vec<OfSketch>,
    clients: Vec<OfSketch>,
    user_agents: Vec<OfSketch>,
    referrers: Vec<OfSketch>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfSketch {
    total: u64,
    bound: u64,
    names: Vec<(String, u64, u64, u64)>,
}

/// The name of a kind that has come most often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusiestName {
    /// Fit to be shown.
    pub name: String,
    /// Its requests: so many or less.
    pub requests: u64,
    /// By so many less at most; where only some requests were looked at, 19 times of 20.
    pub error: u64,
    /// Of all names together.
    pub total: u64,
}

/// The busiest path and client of the last minutes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusiestNames {
    /// Without its query.
    pub path: Option<BusiestName>,
    /// Its address.
    pub client: Option<BusiestName>,
}

/// The first of the report.
pub fn busiest_names(answers: &[String]) -> BusiestNames {
    let (sums, ..) = add_up(answers);
    let [paths, _, clients, ..] = &sums;
    let first = |sum: &Sum| {
        let (bytes, of) = *sum.top(1).first()?;
        let error = of.count.saturating_sub(of.sure());
        Some(BusiestName { name: cell_of(&name(bytes)), requests: of.count, error, total: sum.total() })
    };
    BusiestNames { path: first(paths), client: first(clients) }
}

/// The report on them.
pub fn busiest_report(answers: &[String], format: Format) -> String {
    let (sums, since, silent) = add_up(answers);
    if format == Format::Json { to_json(&sums, since, silent) } else { to_text(&sums, since, silent) }
}

/// All workers together: what each kind sums up to, since when, and how many have said nothing.
fn add_up(answers: &[String]) -> ([Sum; KINDS.len()], i64, u64) {
    let mut sums: [Sum; KINDS.len()] = Default::default();
    let (mut since, mut silent) = (None, 0);
    for answer in answers {
        let Ok(told) = serde_json::from_str::<OfWorker>(answer) else {
            silent += 1;
            continue;
        };
        since = Some(since.map_or(told.since, |since: i64| since.min(told.since)));
        let kinds = [told.paths, told.hosts, told.clients, told.user_agents, told.referrers];
        for (sum, sketches) in sums.iter_mut().zip(&kinds) {
            for OfSketch { total, bound, names } in sketches {
                let names = names.iter().map(|(name, count, error, variance)| {
                    (name.as_bytes(), Frequency { count: *count, error: *error, variance: *variance })
                });
                sum.add(*total, *bound, names);
            }
        }
    }
    (sums, since.unwrap_or(0), silent)
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn to_json(sums: &[Sum], since: i64, silent: u64) -> String {
    let mut told = Map::new();
    told.insert("since".into(), json!(date(since)));
    told.insert("silent_workers".into(), json!(silent));
    for ((kind, _), sum) in KINDS.iter().zip(sums) {
        let told_of = |(bytes, of): (&[u8], Frequency)| {
            json!({
                "name": name(bytes), "requests": of.count, "error": of.error, "deviation": of.deviation(),
            })
        };
        let top: Vec<Value> = sum.top(TOLD).into_iter().map(told_of).collect();
        let of_kind = json!({
            "requests": sum.total(), "error_bound": sum.bound(), "is_estimated": sum.is_estimated(), "top": top,
        });
        told.insert((*kind).to_owned(), of_kind);
    }
    format!("{}\n", Value::Object(told))
}

fn to_text(sums: &[Sum], since: i64, silent: u64) -> String {
    let mut text = format!("Since {}\n", date(since));
    for ((_, title), sum) in KINDS.iter().zip(sums) {
        let _ = writeln!(text, "\nBusiest {title}:\n-----");
        let mut table = vec![["Requests", "Share", "Error", "Name"].map(str::to_owned)];
        table.extend(sum.top(SHOWN).into_iter().map(|(bytes, of)| {
            let share = of.count as f64 / sum.total().max(1) as f64 * 100.0;
            [of.count.to_string(), format!("{share:.1}%"), error(&of), cell_of(&name(bytes))]
        }));
        write_table(&mut text, &table);
        let estimated = if sum.is_estimated() { ", estimated from some of them" } else { "" };
        let (total, bound) = (sum.total(), sum.bound());
        let _ = writeln!(text, "{total} requests{estimated}; what is not kept has {bound} at most");
    }
    if silent > 0 {
        let _ = writeln!(text, "\n{silent} workers do not answer");
    }
    text
}

/// By how much a count may be wrong: less, because the name has taken the place of another, and either way, because not all
/// requests were looked at.
fn error(of: &Frequency) -> String {
    match (of.error, of.deviation()) {
        (0, 0) => "-".to_owned(),
        (error, 0) => format!("<= {error}"),
        (error, deviation) => format!("-{} +{deviation}", error.saturating_add(deviation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up_and_nothing_reaches_the_terminal() {
        let answers = [
            r#"{"since":60,"paths":[{"total":30,"bound":0,"names":[["/a",20,0,0],["/\u001b[2J",10,0,0]]},{"total":5,"bound":1,"names":[["/a",5,1,0]]}]}"#,
            r#"{"since":3,"paths":[{"total":8,"bound":2,"names":[["/b",8,2,0]]}],"clients":[{"total":8,"names":[["192.0.2.7",8,0,0]]}]}"#,
            "this worker does not answer",
        ]
        .map(str::to_owned);
        let text = busiest_report(&answers, Format::Text);
        assert!(text.starts_with("Since 1970-01-01T00:00:03Z\n\nBusiest Paths:\n-----\n"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[5], "27        62.8%  <= 3   /a");
        assert!(lines[6].ends_with("/?[2J") && lines[7].ends_with("/b"), "{text}");
        assert_eq!(lines[8], "43 requests; what is not kept has 3 at most");
        assert!(text.contains("\n1 workers do not answer") && !text.contains('\u{1b}'), "{text}");
        let json: Value = serde_json::from_str(&busiest_report(&answers, Format::Json)).unwrap();
        assert_eq!(
            json["paths"]["top"][0],
            json!({ "name": "/a", "requests": 27, "error": 3, "deviation": 0 })
        );
        assert_eq!((&json["paths"]["error_bound"], &json["hosts"]["requests"]), (&json!(3), &json!(0)));
        assert_eq!(json["clients"]["top"][0]["name"], "192.0.2.7");
        let BusiestNames { path, client } = busiest_names(&answers);
        let of = |name: &str, requests, error, total| {
            Some(BusiestName { name: name.into(), requests, error, total })
        };
        assert_eq!((path, client), (of("/a", 27, 3, 43), of("192.0.2.7", 8, 0, 8)));
        assert_eq!(busiest_names(&[]), BusiestNames::default());
    }

    /// Names that came once, and happened to be looked at while each look stood for 16, are not exactly 16.
    #[test]
    fn what_was_not_all_looked_at_is_told_as_an_estimate() {
        let answers = [
            r#"{"since":60,"hosts":[{"total":50000,"bound":0,"names":[["once",16,0,240],["often",48000,0,6000000],["exact",15,0,0]]},{"total":100,"bound":3,"names":[]}]}"#.to_owned(),
        ];
        let text = busiest_report(&answers, Format::Text);
        let lines: Vec<&str> = text.lines().skip_while(|line| *line != "Busiest Hosts:").skip(3).collect();
        assert_eq!(lines[0], "48003     95.8%  -4902 +4899  often");
        assert_eq!(lines[1], "18        0.0%   <= 3         exact");
        assert_eq!(lines[2], "19        0.0%   -34 +31      once");
        assert_eq!(lines[3], "50100 requests, estimated from some of them; what is not kept has 3 at most");
        let json: Value = serde_json::from_str(&busiest_report(&answers, Format::Json)).unwrap();
        assert_eq!(
            json["hosts"]["top"][2],
            json!({ "name": "once", "requests": 19, "error": 3, "deviation": 31 })
        );
        assert_eq!(
            (&json["hosts"]["is_estimated"], &json["paths"]["is_estimated"]),
            (&json!(true), &json!(false))
        );
        let clients = answers[0].replace("hosts", "clients");
        let client = busiest_names(&[clients]).client.expect("there is one");
        assert_eq!((client.requests, client.error), (48_003, 4_902));
    }
}
