//! Dependencies come from crates.io and under licences that go with ours: those that `deny.toml` names.
//!
//! Called by `tidy`. Cargo itself knows source and licence of each package, so that this needs no other tool and no
//! network; where `cargo deny` is installed, it has its say as well. Neither looks for security advisories here.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;
use crate::workspace;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The licences of `deny.toml`: the strings of its only `allow`.
pub fn allowed(deny: &str) -> Result<Vec<String>> {
    let (_, list) = deny.split_once("\nallow = [").context("deny.toml has no list `allow`")?;
    let (list, _) = list.split_once(']').context("the list `allow` of deny.toml does not end")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Has `cargo deny` look at the same, where it is installed; whether it is.
pub fn run_cargo_deny() -> Result<bool> {
    if workspace::find_program("cargo-deny").is_none() {
        return Ok(false);
    }
    let mut command = workspace::cargo();
    command.args(["deny", "--locked", "--offline", "--log-level", "error"]);
    workspace::run(command.args(["check", "licenses", "sources", "bans"]))?;
    Ok(true)
}

/// A dependency as cargo describes it.
#[derive(Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub licence: Option<String>,
}

/// A package of a lock file.
#[derive(Debug, PartialEq, Eq)]
pub struct LockedPackage {
    pub name: String,
    pub version: String,
    /// `None` for the crates of the workspace.
    pub source: Option<String>,
}

/// Reads from the answer of `cargo metadata` the packages that are not ours.
pub fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let foreign = packages.iter().filter(|package| !package["source"].is_null()).map(|package| Package {
        name: text(&package["name"]).unwrap_or_default(),
        version: text(&package["version"]).unwrap_or_default(),
        licence: text(&package["license"]),
    });
    Ok(foreign.collect())
}

/// Checks that each licence is one we can take.
pub fn check(packages: &[Package], allowed: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let place = format!("{} {}", package.name, package.version);
        match &package.licence {
            None => findings.push(Finding::new(place, "names no licence")),
            Some(licence) if !is_allowed(licence, allowed) => {
                let message = format!("licence {licence} is not in the list of deny.toml");
                findings.push(Finding::new(place, message));
            }
            Some(_) => {}
        }
    }
    findings
}

/// Reads a `Cargo.lock`, which is regular enough for it: a block per package, a line per key.
pub fn locked_packages(lock: &str) -> Vec<LockedPackage> {
    lock.split("[[package]]")
        .skip(1)
        .map(|block| {
            let key = |key: &str| {
                let value = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
                value.map(|value| value.trim_matches('"').to_owned())
            };
            LockedPackage {
                name: key("name").unwrap_or_default(),
                version: key("version").unwrap_or_default(),
                source: key("source"),
            }
        })
        .collect()
}

/// Checks that everything locked comes from crates.io.
pub fn check_sources(lock: &str, packages: &[LockedPackage]) -> Vec<Finding> {
    let strangers = packages.iter().filter_map(|package| {
        let source = package.source.as_deref().filter(|&source| source != CRATES_IO)?;
        Some(Finding::new(lock, format!("{} comes from {source}, not from crates.io", package.name)))
    });
    strangers.collect()
}

/// Packages locked in more than one version: a warning, as one cannot always help it.
pub fn duplicates(packages: &[LockedPackage]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
    several.map(|(name, versions)| format!("{name} in versions {}", versions.join(", "))).collect()
}

fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Before SPDX expressions, a slash stood for OR.
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut reader = Expression { allowed, words: &words };
    let is_allowed = reader.any();
    is_allowed && reader.words.is_empty()
}

/// An SPDX expression being read: `OR` of `AND` of licences or parentheses.
struct Expression<'a> {
    allowed: &'a [String],
    words: &'a [&'a str],
}

impl Expression<'_> {
    fn any(&mut self) -> bool {
        let mut allowed = self.all();
        while self.take("OR") {
            // Both sides are read, whatever the first one says.
            allowed |= self.all();
        }
        allowed
    }

    fn all(&mut self) -> bool {
        let mut allowed = self.one();
        while self.take("AND") {
            allowed &= self.one();
        }
        allowed
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let allowed = self.any();
            return self.take(")") && allowed;
        }
        let Some((&licence, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        let mut licence = licence.to_owned();
        if self.take("WITH") {
            let Some((&exception, rest)) = self.words.split_first() else { return false };
            self.words = rest;
            licence = format!("{licence} WITH {exception}");
        }
        self.allowed.contains(&licence)
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((&first, rest)) if first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = include_str!("../../../deny.toml");

    #[test]
    fn the_list_is_read() {
        let list =
            "# x\n[licenses]\nallow = [\n    \"MIT\",\n    \"Apache-2.0 WITH LLVM-exception\",\n]\n[bans]\n";
        assert_eq!(allowed(list).unwrap(), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
        assert!(allowed("[licenses]\n").is_err());
    }

    #[test]
    fn expressions() {
        let table = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-2.0-only) AND (GPL-2.0-only OR ISC)", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
            ("", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT OR", true),
            ("MIT MIT", false),
        ];
        let allowed = allowed(DENY).unwrap();
        for (expression, expected) in table {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    const LOCK: &str = r#"version = 4

[[package]]
name = "a"
version = "1.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "00"

[[package]]
name = "a"
version = "2.0.0"
source = "git+https://example.org/a"
dependencies = [
 "ours",
]

[[package]]
name = "ours"
version = "0.1.0"
"#;

    #[test]
    fn lock_files() {
        let locked = locked_packages(LOCK);
        assert_eq!(locked.len(), 3);
        assert_eq!(locked[2], LockedPackage { name: "ours".into(), version: "0.1.0".into(), source: None });
        assert_eq!(check_sources("Cargo.lock", &locked).len(), 1);
        assert_eq!(duplicates(&locked), ["a in versions 1.0.0, 2.0.0"]);
    }

    #[test]
    fn a_package_without_licence() {
        let package = Package { name: "a".into(), version: "1.0.0".into(), licence: None };
        assert_eq!(check(&[package], &["MIT".into()]).len(), 1);
    }
}
