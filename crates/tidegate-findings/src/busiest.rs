//! Whose requests and which path a finding comes from most, where a single one makes much of all requests: what clients name is
//! not in samples, it is asked for when there is a finding that it is of use to.
//!
//! The counts are those of `tidegate status busiest`, with their error. They are in the sentence alone: what clients choose makes
//! no label of a metric.

use tidegate_modules::status::{BusiestName, BusiestNames, Finding};

/// The share of all requests, for certain, that is worth a name.
const SHARE: f64 = 0.25;

/// What is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Client,
    Path,
}

/// What a rule is helped by.
const NAMED: &[(&str, &[Named])] = &[
    ("overload", &[Named::Client, Named::Path]),
    ("connections-limit", &[Named::Client]),
    ("address-limit", &[Named::Client]),
    ("under-throttled", &[Named::Client, Named::Path]),
    ("queue-full", &[Named::Client, Named::Path]),
    ("queue-age", &[Named::Client, Named::Path]),
    ("link-full", &[Named::Client, Named::Path]),
    ("pool-queue-full", &[Named::Client]),
    ("upstream-queue-full", &[Named::Client]),
    ("compress-again", &[Named::Path]),
    ("not-found-storm", &[Named::Client, Named::Path]),
    ("retry-storm", &[Named::Client, Named::Path]),
];

fn named(finding: &Finding) -> &'static [Named] {
    NAMED.iter().find(|(name, _)| *name == finding.name).map_or(&[], |(_, named)| named)
}

/// Adds names to the sentences of findings that are helped by one. `busiest` is asked where there is such a finding.
pub fn name_busiest(findings: &mut [Finding], busiest: impl FnOnce() -> BusiestNames) {
    if findings.iter().all(|finding| named(finding).is_empty()) {
        return;
    }
    let BusiestNames { path, client } = busiest();
    for finding in findings {
        let of = |named: &Named| match named {
            Named::Client => told(client.as_ref()?, "come from the client"),
            Named::Path => told(path.as_ref()?, "are for the path"),
        };
        let said: Vec<String> = named(finding).iter().filter_map(of).collect();
        if !said.is_empty() {
            finding.sentence += &format!("; of all requests of the last minutes {}", said.join(", "));
        }
    }
}

/// `64 % come from the client 192.0.2.7 (3 % less at most)`; nothing where that is not much.
fn told(BusiestName { name, requests, error, total }: &BusiestName, what: &str) -> Option<String> {
    let share = |count: u64| count as f64 / (*total).max(1) as f64;
    let is_much = share(requests.saturating_sub(*error)) >= SHARE;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let error = match share(*error) {
        0.0 => String::new(),
        error if error < 0.01 => " (1 % less at most)".to_owned(),
        error => format!(" ({} less at most)", percent(error)),
    };
    is_much.then(|| format!("{} {what} {name}{error}", percent(share(*requests))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str) -> Finding {
        Finding { name: name.into(), sentence: "so it is".into(), ..Finding::default() }
    }

    fn busiest(name: &str, requests: u64, error: u64) -> Option<BusiestName> {
        Some(BusiestName { name: name.into(), requests, error, total: 1000 })
    }

    #[test]
    fn who_makes_much_of_it_is_named_with_the_error() {
        let mut findings = ["overload", "compress-again", "steal", "address-limit"].map(finding);
        let names =
            || BusiestNames { path: busiest("/big.js", 300, 1), client: busiest("192.0.2.7", 640, 30) };
        name_busiest(&mut findings, names);
        let client = "64 % come from the client 192.0.2.7 (3 % less at most)";
        let path = "30 % are for the path /big.js (1 % less at most)";
        let said = |names: &str| format!("so it is; of all requests of the last minutes {names}");
        assert_eq!(findings[0].sentence, said(&format!("{client}, {path}")));
        assert_eq!(findings[1].sentence, said(path));
        assert_eq!(findings[2].sentence, "so it is");
        assert_eq!(findings[3].sentence, said(client));
    }

    #[test]
    fn what_is_not_sure_to_be_much_is_not_named() {
        for (client, is_named) in [
            (busiest("a", 250, 0), true),
            (busiest("a", 249, 0), false),
            (busiest("a", 900, 700), false),
            (None, false),
        ] {
            let mut findings = [finding("overload")];
            name_busiest(&mut findings, || BusiestNames { path: None, client: client.clone() });
            assert_eq!(findings[0].sentence.contains("client a"), is_named, "{client:?}");
        }
        let mut findings = [finding("steal")];
        name_busiest(&mut findings, || unreachable!("nobody needs it"));
    }

    #[test]
    fn rules_that_are_helped_are_rules() {
        assert!(NAMED.iter().all(|(name, _)| crate::names().any(|rule| rule == *name)));
    }
}
