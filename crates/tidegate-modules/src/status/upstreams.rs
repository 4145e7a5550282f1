//! Upstream groups in the report: their members, what was tried again, and who waits.

use super::report::{Row, Section};
use crate::gateway::balance::report::{GroupReport, MemberReport, MemberState};
use serde_json::{Value, json};
use std::fmt::Write;

/// A section for each group.
pub(super) fn sections(groups: &[GroupReport]) -> Vec<Section> {
    groups.iter().map(section).collect()
}

fn section(group: &GroupReport) -> Section {
    let demand = &group.demand;
    let refused = format!(
        "{} full, {} too old, {} down",
        demand.refused_full, demand.refused_too_old, demand.refused_down
    );
    let mut rows = vec![
        Row::new("Retries", group.retries.to_string()),
        Row::new("Ejections", group.ejections.to_string()),
        Row::new(
            "Waiting",
            format!("{} for up to {:.1} s", demand.waiting, demand.oldest_wait.as_secs_f64()),
        ),
        Row::new("Refused", refused),
        Row::new("Gone While Waiting", demand.abandoned.to_string()),
    ];
    rows.extend(group.members.iter().map(|member| {
        let backup = if member.is_backup { " (backup)" } else { "" };
        let value = format!(
            "{}{backup}, weight {}, {} in use, {} requests, {} failed",
            member.state.as_str(),
            member.weight,
            member.in_use,
            member.requests,
            member.failures
        );
        Row::new(format!("Member {}", member.name), value)
    }));
    Section { title: format!("Upstream {}", group.name), rows }
}

/// All groups as JSON.
pub(super) fn to_json(groups: &[GroupReport]) -> Value {
    let member = |member: &MemberReport| {
        json!({
            "name": member.name,
            "state": member.state.as_str(),
            "backup": member.is_backup,
            "weight": member.weight,
            "in_use": member.in_use,
            "requests": member.requests,
            "failures": member.failures,
        })
    };
    let one = |group: &GroupReport| {
        let demand = &group.demand;
        json!({
            "name": group.name,
            "retries": group.retries,
            "ejections": group.ejections,
            "waiting": demand.waiting,
            "oldest_wait": demand.oldest_wait.as_secs_f64(),
            "refused": {
                "full": demand.refused_full,
                "too_old": demand.refused_too_old,
                "down": demand.refused_down,
            },
            "abandoned": demand.abandoned,
            "members": group.members.iter().map(member).collect::<Vec<_>>(),
        })
    };
    groups.iter().map(one).collect()
}

/// What a group, or a member, says to a measure.
type OfGroup = (&'static str, &'static str, &'static str, fn(&GroupReport) -> f64);
type OfMember = (&'static str, &'static str, &'static str, fn(&MemberReport) -> f64);

/// All groups for Prometheus.
pub(super) fn write_prometheus(text: &mut String, groups: &[GroupReport]) {
    const OF_GROUPS: [OfGroup; 3] = [
        ("retries_total", "counter", "Requests tried on a further member.", |group| group.retries as f64),
        ("ejections_total", "counter", "Members put aside.", |group| group.ejections as f64),
        ("waiting", "gauge", "Requests that wait for a place.", |group| group.demand.waiting as f64),
    ];
    const OF_MEMBERS: [OfMember; 4] = [
        ("member_up", "gauge", "Whether the member is given requests.", |member| {
            f64::from(u8::from(member.state == MemberState::Up))
        }),
        ("member_in_use", "gauge", "Requests under way on the member.", |member| member.in_use as f64),
        ("member_requests_total", "counter", "Requests given to the member.", |member| {
            member.requests as f64
        }),
        ("member_failures_total", "counter", "Of them, those that failed.", |member| member.failures as f64),
    ];
    if groups.is_empty() {
        return;
    }
    for (name, kind, help, value) in OF_GROUPS {
        let _ =
            writeln!(text, "# HELP tidegate_upstream_{name} {help}\n# TYPE tidegate_upstream_{name} {kind}");
        for group in groups {
            // Neither a name nor an address holds anything that has to be escaped.
            let _ =
                writeln!(text, "tidegate_upstream_{name}{{upstream=\"{}\"}} {}", group.name, value(group));
        }
    }
    for (name, kind, help, value) in OF_MEMBERS {
        let _ =
            writeln!(text, "# HELP tidegate_upstream_{name} {help}\n# TYPE tidegate_upstream_{name} {kind}");
        for group in groups {
            for member in &group.members {
                let labels = format!("upstream=\"{}\",member=\"{}\"", group.name, member.name);
                let _ = writeln!(text, "tidegate_upstream_{name}{{{labels}}} {}", value(member));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::places::Demand;

    #[test]
    fn every_form_tells_the_same() {
        let groups = [GroupReport {
            name: "app".into(),
            members: vec![MemberReport {
                name: "10.0.0.1:3000".into(),
                state: MemberState::Ejected,
                weight: 1,
                is_backup: true,
                in_use: 1,
                requests: 7,
                failures: 2,
            }],
            ejections: 3,
            retries: 4,
            demand: Demand { waiting: 5, refused_full: 6, ..Demand::default() },
        }];
        let mut text = String::new();
        super::super::report::write_section(&mut text, &sections(&groups)[0]);
        for part in ["Upstream app:", "6 full", "ejected (backup), weight 1, 1 in use, 7 requests, 2 failed"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = to_json(&groups);
        assert_eq!((&json[0]["retries"], &json[0]["members"][0]["state"]), (&json!(4), &json!("ejected")));
        let mut text = String::new();
        write_prometheus(&mut text, &groups);
        for line in [
            "tidegate_upstream_ejections_total{upstream=\"app\"} 3",
            "tidegate_upstream_member_up{upstream=\"app\",member=\"10.0.0.1:3000\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
