//! Looks for the route of a path among a thousand, as many times as asked, for `cargo xtask bench instructions`.
//!
//! `routes globs N`, `routes expressions N`. With a third argument, `time`, it says how long one took.

use std::hint::black_box;
use std::time::Instant;
use tidegate_config::settings::{PathPattern, Regex, RouteIndex};

const ROUTES: usize = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, ..] = arguments.as_slice() else {
        return eprintln!("routes globs|expressions N [time]");
    };
    let pattern = |n: usize| match (kind.as_str(), n % 4) {
        ("globs", 0) => PathPattern::Prefix(format!("/shop/{n}/")),
        ("globs", 1) => PathPattern::Suffix(format!("-{n}.html")),
        ("globs", 2) => PathPattern::Pieces(vec![format!("/blog{n}/"), "/page/".into(), String::new()]),
        ("globs", _) => PathPattern::Exact(format!("/about/{n}")),
        (_, 0) => expression(&format!("^/u{n}/(?<id>[0-9]+)$")),
        (_, 1) => expression(&format!("^/(?:de|en)/item-{n}/(.*)$")),
        (_, 2) => expression(&format!("(?:-|/)part{n}\\.(?:jpe?g|png)$")),
        (_, _) => expression(&format!("^/api/v[0-9]+/things{n}(?:/|$)")),
    };
    let path = |n: usize| match (kind.as_str(), n % 4) {
        ("globs", 0) => format!("/shop/{n}/a/b/c.css"),
        ("globs", 1) => format!("/a/b/c-{n}.html"),
        ("globs", 2) => format!("/blog{n}/2026/11/page/7"),
        ("globs", _) => format!("/about/{n}"),
        (_, 0) => format!("/u{n}/4711"),
        (_, 1) => format!("/en/item-{n}/colours/red"),
        (_, 2) => format!("/pictures/summer-part{n}.jpg"),
        (_, _) => format!("/api/v2/things{n}/9"),
    };
    let patterns: Vec<PathPattern> = (0..ROUTES).map(pattern).collect();
    let paths: Vec<String> = (0..ROUTES).map(path).collect();
    let index = RouteIndex::of(patterns.iter()).expect("there are many");
    let first = |path: &[u8]| index.candidates(path).find(|at| patterns[*at].matches(path));
    // Expressions are prepared while they run for the first time.
    for (n, path) in paths.iter().enumerate() {
        assert_eq!(first(path.as_bytes()), Some(n), "{path}");
    }
    let count: usize = count.parse().unwrap_or(0);
    let (begun, mut found) = (Instant::now(), 0);
    for n in 0..count {
        // In no order that a processor could guess.
        let path = &paths[n.wrapping_mul(7919) % ROUTES];
        found += usize::from(black_box(first(black_box(path.as_bytes()))).is_some());
    }
    assert_eq!(found, count);
    if arguments.len() > 2 && count > 0 {
        println!("{} ns", begun.elapsed().as_nanos() / count as u128);
    }
}

fn expression(text: &str) -> PathPattern {
    PathPattern::Regex(Regex::new(text).expect("a sound expression"))
}
