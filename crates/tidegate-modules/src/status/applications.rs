//! How long applications have kept requests waiting, in the report: pools, groups, addresses, and the members of groups.

use super::report::{Row, Section, label};
use super::sites::{distribution, times};
use serde_json::{Value, json};
use std::fmt::Write;
use tidegate_stats::{ApplicationFigures, Distribution, Exposition, Schema};

type Phase = (&'static str, &'static str, &'static str, fn(&ApplicationFigures) -> &Distribution);

/// What is told of each: its name for programs, for people, and what it is.
const PHASES: [Phase; 3] = [
    ("queue", "Queue", "Time that requests waited for a place on an application.", |of| &of.queue),
    ("connect", "Connect", "Time that it took to connect to an application.", |of| &of.connect),
    (
        "response",
        "Response Time",
        "Time from the first byte sent to an application to the head of its answer.",
        |of| &of.response,
    ),
];

/// A section for each application, with a row for each phase of it and of its members.
pub(super) fn sections(told: &[ApplicationFigures]) -> Vec<Section> {
    let all = told.iter().filter(|of| of.member.is_empty());
    let section = |all: &ApplicationFigures| {
        let of_it = told.iter().filter(|of| of.application == all.application);
        let rows = of_it.flat_map(|of| {
            let of_member = if of.member.is_empty() { String::new() } else { format!(" {}", of.member) };
            let timed = PHASES.iter().filter(|(.., phase)| !phase(of).is_empty());
            let row = move |(_, name, _, phase): &Phase| {
                let count = phase(of).count();
                Row::new(format!("{name}{of_member}"), format!("{count} times; {}", times(phase(of))))
            };
            timed.map(row).collect::<Vec<_>>()
        });
        Section { title: format!("Application {}", all.application), rows: rows.collect() }
    };
    all.map(section).filter(|section| !section.rows.is_empty()).collect()
}

/// All of them as JSON.
pub(super) fn to_json(told: &[ApplicationFigures]) -> Value {
    let one = |of: &ApplicationFigures| {
        let mut one = json!({ "application": of.application });
        if !of.member.is_empty() {
            one["member"] = json!(of.member);
        }
        for (name, .., phase) in PHASES {
            if !phase(of).is_empty() {
                one[name] = distribution(phase(of));
            }
        }
        one
    };
    told.iter().map(one).collect()
}

/// Appends them for Prometheus: those of whole applications, and those of members in families of their own, so that nothing is
/// added up twice.
pub(super) fn write_prometheus(out: &mut Exposition, told: &[ApplicationFigures]) {
    for is_of_member in [false, true] {
        let stem = if is_of_member { "upstream_member" } else { "application" };
        for (name, _, help, phase) in PHASES {
            let timed =
                |of: &&ApplicationFigures| of.member.is_empty() != is_of_member && !phase(of).is_empty();
            let name = format!("tidegate_{stem}_{name}_seconds");
            for (at, of) in told.iter().filter(timed).enumerate() {
                if at == 0 {
                    let _ = writeln!(out.text, "# HELP {name} {help}\n# TYPE {name} histogram");
                }
                let application = label(&of.application);
                let labels = match is_of_member {
                    false => format!("application=\"{application}\""),
                    true => format!("upstream=\"{application}\",member=\"{}\"", label(&of.member)),
                };
                out.histogram(&name, &labels, phase(of), Schema::Fine);
            }
        }
    }
}
