//! Which crate may use which: the direction of dependencies, as the table below draws it.
//!
//! Called by `tidy`. It looks at direct dependencies only; that suffices, because every edge is checked.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// A crate of the workspace and the crates of the workspace that it may use.
struct Rule {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// The leaves know nothing of each other, save that `wire` speaks in the words of `http` and `tls` runs on
/// `io`. What stands higher uses what stands lower, never sideways.
const RULES: [Rule; 15] = [
    Rule { name: "tidegate-http", may_use: &[] },
    Rule { name: "tidegate-wire", may_use: &["tidegate-http"] },
    Rule { name: "tidegate-io", may_use: &[] },
    Rule { name: "tidegate-tls", may_use: &["tidegate-io"] },
    Rule { name: "tidegate-config", may_use: &[] },
    Rule { name: "tidegate-stats", may_use: &[] },
    Rule { name: "tidegate-cache", may_use: &["tidegate-http", "tidegate-io"] },
    Rule { name: "tidegate-client", may_use: LEAVES },
    Rule { name: "tidegate-core", may_use: LEAVES },
    Rule {
        name: "tidegate-modules",
        may_use: &[
            "tidegate-http",
            "tidegate-wire",
            "tidegate-io",
            "tidegate-tls",
            "tidegate-config",
            "tidegate-stats",
            "tidegate-cache",
            "tidegate-client",
            "tidegate-core",
        ],
    },
    Rule {
        name: "tidegate-bench",
        may_use: &[
            "tidegate-http",
            "tidegate-wire",
            "tidegate-io",
            "tidegate-tls",
            "tidegate-config",
            "tidegate-stats",
            "tidegate-client",
        ],
    },
    Rule { name: "tidegate-findings", may_use: &["tidegate-config", "tidegate-stats", "tidegate-modules"] },
    Rule {
        name: "tidegate",
        may_use: &[
            "tidegate-findings",
            "tidegate-http",
            "tidegate-wire",
            "tidegate-io",
            "tidegate-tls",
            "tidegate-config",
            "tidegate-stats",
            "tidegate-cache",
            "tidegate-client",
            "tidegate-core",
            "tidegate-modules",
            "tidegate-bench",
        ],
    },
    Rule { name: TESTKIT, may_use: LEAVES },
    // Free of the product, so that it builds when the product does not.
    Rule { name: "xtask", may_use: &[] },
];

const LEAVES: &[&str] =
    &["tidegate-http", "tidegate-wire", "tidegate-io", "tidegate-tls", "tidegate-config", "tidegate-stats"];

/// Every crate may use it, for tests only.
const TESTKIT: &str = "tidegate-testkit";

/// A crate of the workspace and what it uses of the workspace.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub uses: Vec<Use>,
}

#[derive(Debug)]
pub struct Use {
    pub name: String,
    pub is_for_tests: bool,
}

/// Reads the members from the answer of `cargo metadata --no-deps`.
pub fn members(metadata: &Value) -> Result<Vec<Member>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let members = packages.iter().map(|package| {
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        // A dependency with a path is one of the workspace; the others have a registry.
        let uses =
            dependencies.iter().filter(|dependency| dependency["path"].is_string()).map(|dependency| {
                let name = dependency["name"].as_str().unwrap_or_default().to_owned();
                Use { name, is_for_tests: dependency["kind"] == "dev" }
            });
        Member { name: package["name"].as_str().unwrap_or_default().to_owned(), uses: uses.collect() }
    });
    Ok(members.collect())
}

/// Compares what the members use with the rules.
pub fn check(members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let Some(rule) = RULES.iter().find(|rule| rule.name == member.name) else {
            let message = "is in no rule of xtask/src/tidy/direction.rs; say there what it may use";
            findings.push(Finding::new(&member.name, message));
            continue;
        };
        for used in &member.uses {
            if used.name == TESTKIT {
                if !used.is_for_tests {
                    findings
                        .push(Finding::new(&member.name, format!("{TESTKIT} is for dev-dependencies only")));
                }
            } else if !rule.may_use.contains(&used.name.as_str()) {
                findings.push(Finding::new(&member.name, format!("must not use {}", used.name)));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(name: &str, used: &str, is_for_tests: bool) -> usize {
        let uses = vec![Use { name: used.into(), is_for_tests }];
        check(&[Member { name: name.into(), uses }]).len()
    }

    #[test]
    fn edges() {
        let table = [
            ("tidegate-wire", "tidegate-http", false, 0),
            ("tidegate-http", "tidegate-wire", false, 1),
            ("tidegate-io", "tidegate-http", false, 1),
            ("tidegate-tls", "tidegate-io", false, 0),
            ("tidegate-config", "tidegate-http", false, 1),
            ("tidegate-core", "tidegate-modules", false, 1),
            ("tidegate-modules", "tidegate-core", false, 0),
            ("tidegate-cache", "tidegate-http", false, 0),
            ("tidegate-cache", "tidegate-core", false, 1),
            ("tidegate-core", "tidegate-cache", false, 1),
            ("tidegate-modules", "tidegate-cache", false, 0),
            ("tidegate-bench", "tidegate-core", false, 1),
            ("tidegate-bench", "tidegate-client", false, 0),
            ("tidegate", "tidegate-modules", false, 0),
            ("tidegate", "tidegate-testkit", true, 0),
            ("tidegate-http", "tidegate-testkit", true, 0),
            ("tidegate", "tidegate-testkit", false, 1),
            ("tidegate-unheard-of", "tidegate-http", false, 1),
        ];
        for (name, used, is_for_tests, expected) in table {
            assert_eq!(broken(name, used, is_for_tests), expected, "{name} uses {used}");
        }
    }

    #[test]
    fn reads_the_answer_of_cargo() {
        let metadata = serde_json::json!({ "packages": [{ "name": "a", "dependencies": [
            { "name": "b", "path": "/b", "kind": null },
            { "name": "c", "path": "/c", "kind": "dev" },
            { "name": "libc", "kind": null },
        ]}]});
        let members = members(&metadata).unwrap();
        let uses: Vec<_> =
            members[0].uses.iter().map(|used| (used.name.as_str(), used.is_for_tests)).collect();
        assert_eq!(uses, [("b", false), ("c", true)]);
    }
}
