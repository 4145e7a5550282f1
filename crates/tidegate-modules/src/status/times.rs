//! How long parts of the server have kept requests waiting, in the report: applications and the members of groups in sections of
//! their own, stores of responses and limits in theirs.

use super::report::{Row, Section, label};
use super::sites::{distribution, times};
use serde_json::{Value, json};
use std::fmt::Write;
use tidegate_stats::{Distribution, Exposition, Schema, Timed, TimesFigures};

/// What is told of a kind of part: its name in JSON, for people, for Prometheus after `tidegate_`, and what it is.
struct Told {
    json: &'static str,
    row: &'static str,
    metric: &'static str,
    help: &'static str,
    times: fn(&TimesFigures) -> &Distribution,
}

const fn told(
    [json, row, metric, help]: [&'static str; 4],
    times: fn(&TimesFigures) -> &Distribution,
) -> Told {
    Told { json, row, metric, help, times }
}

const QUEUE: &str = "Time that requests waited for a place on an application.";
const CONNECT: &str = "Time that it took to connect to an application.";
const RESPONSE: &str = "Time from the first byte sent to an application to the head of its answer.";

const OF_APPLICATIONS: [Told; 3] = [
    told(["queue", "Queue", "application_queue_seconds", QUEUE], |of| &of.queue),
    told(["connect", "Connect", "application_connect_seconds", CONNECT], |of| &of.connect),
    told(["response", "Response Time", "application_response_seconds", RESPONSE], |of| &of.response),
];
/// In families of their own, so that nothing is added up twice.
const OF_MEMBERS: [Told; 3] = [
    told(["queue", "Queue", "upstream_member_queue_seconds", QUEUE], |of| &of.queue),
    told(["connect", "Connect", "upstream_member_connect_seconds", CONNECT], |of| &of.connect),
    told(["response", "Response Time", "upstream_member_response_seconds", RESPONSE], |of| &of.response),
];
const OF_CACHES: [Told; 2] = [
    told(
        [
            "fetch",
            "Fetches",
            "cache_store_fetch_seconds",
            "Time that it took to have the head of an answer fetched for a store.",
        ],
        |of| &of.response,
    ),
    told(
        [
            "collapsed_wait",
            "Waits for a Fetch",
            "cache_store_collapsed_wait_seconds",
            "Time that requests waited for what was being fetched for another.",
        ],
        |of| &of.queue,
    ),
];
const OF_LIMITS: [Told; 1] = [told(
    [
        "wait",
        "Waits",
        "limit_wait_seconds",
        "Time that requests waited for a place, of those that had one in the end.",
    ],
    |of| &of.queue,
)];

fn all_of(what: &Timed) -> &'static [Told] {
    match what {
        Timed::Application(_) => &OF_APPLICATIONS,
        Timed::Member { .. } => &OF_MEMBERS,
        Timed::Cache(_) => &OF_CACHES,
        Timed::Limit(_) => &OF_LIMITS,
    }
}

fn labels(what: &Timed) -> String {
    match what {
        Timed::Application(name) => format!("application=\"{}\"", label(name)),
        Timed::Member { of, member } => format!("upstream=\"{}\",member=\"{}\"", label(of), label(member)),
        Timed::Cache(name) => format!("cache=\"{}\"", label(name)),
        Timed::Limit(name) => format!("limit=\"{}\"", label(name)),
    }
}

/// What has been timed of a part.
fn timed(of: &TimesFigures) -> impl Iterator<Item = (&'static Told, &Distribution)> {
    let all = all_of(&of.what).iter().map(move |told| (told, (told.times)(of)));
    all.filter(|(_, times)| !times.is_empty())
}

/// Rows of a part; `of` stands behind what they are called.
fn rows<'t>(figures: &'t TimesFigures, of: &'t str) -> impl Iterator<Item = Row> + use<'t> {
    let row = move |(told, distribution): (&Told, &Distribution)| {
        let text = format!("{} times; {}", distribution.count(), times(distribution));
        Row::new(format!("{}{of}", told.row), text)
    };
    timed(figures).map(row)
}

/// Rows of a store or a limit, to go with what else is told of it.
pub(super) fn rows_of(all: &[TimesFigures], what: &Timed) -> Vec<Row> {
    let (Timed::Application(name) | Timed::Member { of: name, .. } | Timed::Cache(name) | Timed::Limit(name)) =
        what;
    let of = format!(" of {name}");
    all.iter().filter(|figures| figures.what == *what).flat_map(|figures| rows(figures, &of)).collect()
}

/// Adds them to the JSON of a store or a limit.
pub(super) fn add_to_json(told: &mut Value, all: &[TimesFigures], what: &Timed) {
    for (of, times) in all.iter().filter(|figures| figures.what == *what).flat_map(timed) {
        told[of.json] = distribution(times);
    }
}

/// A section for each application, with a row for each phase of it and of its members.
pub(super) fn sections(all: &[TimesFigures]) -> Vec<Section> {
    let section = |figures: &TimesFigures| {
        let Timed::Application(name) = &figures.what else { return None };
        let mut of_it: Vec<Row> = rows(figures, "").collect();
        for figures in all {
            if let Timed::Member { of, member } = &figures.what
                && of == name
            {
                of_it.extend(rows(figures, &format!(" {member}")));
            }
        }
        (!of_it.is_empty()).then(|| Section { title: format!("Application {name}"), rows: of_it })
    };
    all.iter().filter_map(section).collect()
}

/// Applications and members as JSON.
pub(super) fn to_json(all: &[TimesFigures]) -> Value {
    let one = |of: &TimesFigures| {
        let mut one = match &of.what {
            Timed::Application(name) => json!({ "application": name }),
            Timed::Member { of, member } => json!({ "application": of, "member": member }),
            Timed::Cache(_) | Timed::Limit(_) => return None,
        };
        for (told, times) in timed(of) {
            one[told.json] = distribution(times);
        }
        Some(one)
    };
    all.iter().filter_map(one).collect()
}

/// Appends all for Prometheus.
pub(super) fn write_prometheus(out: &mut Exposition, all: &[TimesFigures]) {
    let kinds: [&[Told]; 4] = [&OF_APPLICATIONS, &OF_MEMBERS, &OF_CACHES, &OF_LIMITS];
    for Told { metric, help, .. } in kinds.into_iter().flatten() {
        let mut is_first = true;
        for figures in all {
            let Some((_, times)) = timed(figures).find(|(told, _)| told.metric == *metric) else { continue };
            let name = format!("tidegate_{metric}");
            if std::mem::take(&mut is_first) {
                let _ = writeln!(out.text, "# HELP {name} {help}\n# TYPE {name} histogram");
            }
            out.histogram(&name, &labels(&figures.what), times, Schema::Fine);
        }
    }
}
