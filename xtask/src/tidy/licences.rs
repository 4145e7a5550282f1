//! Dependencies come from crates.io and under licences that go with ours.
//!
//! Called by `tidy`. It stands where `cargo deny` would, without a database to fetch: cargo itself knows
//! source and licence of each package. It does not look for security advisories.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that ask for no more than keeping their notice.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// A package let in under another licence, and why.
struct Exception {
    package: &'static str,
    licence: &'static str,
    /// Read by whoever reviews this list.
    _reason: &'static str,
}

/// None so far.
const EXCEPTIONS: [Exception; 0] = [];

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
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let place = format!("{} {}", package.name, package.version);
        match &package.licence {
            None => findings.push(Finding::new(place, "names no licence")),
            Some(licence) if !is_allowed(&package.name, licence) => {
                let message = format!("licence {licence} is not in the list of xtask/src/tidy/licences.rs");
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

fn is_allowed(package: &str, expression: &str) -> bool {
    // Before SPDX expressions, a slash stood for OR.
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut reader = Expression { package, words: &words };
    let allowed = reader.any();
    allowed && reader.words.is_empty()
}

/// An SPDX expression being read: `OR` of `AND` of licences or parentheses.
struct Expression<'a> {
    package: &'a str,
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
        let package = self.package;
        ALLOWED.contains(&licence.as_str())
            || EXCEPTIONS.iter().any(|exception| exception.package == package && exception.licence == licence)
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
        for (expression, expected) in table {
            assert_eq!(is_allowed("some", expression), expected, "{expression}");
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
        assert_eq!(check(&[package]).len(), 1);
    }
}
