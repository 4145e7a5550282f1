//! `value`: texts that follow from others, and who may name them.
//!
//! One may have as many cases as a site has addresses that have moved, and stand in each route of each site: it is there once,
//! and what a text is found by is made once and shared by all workers.

use super::rules::TextPattern;
use super::{PathPattern, RouteIndex, Shared};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter;
use std::sync::OnceLock;

/// The `value` that a route may name, by their names: those of its site in front of those of the top level.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    levels: Vec<Shared<BTreeMap<String, Shared<ValueMap>>>>,
}

impl Values {
    /// A level in this one.
    pub fn below(&self, own: Vec<ValueMap>) -> Values {
        if own.is_empty() {
            return self.clone();
        }
        let own: BTreeMap<_, _> = own.into_iter().map(|map| (map.name.clone(), map.into())).collect();
        Values { levels: iter::once(own.into()).chain(self.levels.iter().cloned()).collect() }
    }

    /// The one of a name.
    pub fn get(&self, name: &str) -> Option<&Shared<ValueMap>> {
        self.levels.iter().find_map(|level| level.get(name))
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().flat_map(|level| level.keys()).map(String::as_str)
    }
}

/// A `value`: a text that follows from another one, like a map of nginx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueMap {
    /// What placeholders call it by: `{value.NAME}`.
    pub name: String,
    /// The text that is looked up, placeholders not yet filled in.
    pub from: String,
    /// The first pattern that fits gives the result; where none does it is empty.
    pub cases: Cases,
}

/// Patterns with what follows from each, in their order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cases {
    list: Vec<(TextPattern, String)>,
    #[serde(skip)]
    index: OnceLock<Index>,
}

/// Where to look for a text.
#[derive(Debug)]
struct Index {
    /// The places of patterns without a star, sorted by what they say; of several that say the same the first.
    exact: Vec<u32>,
    /// The places of the others, in their order.
    others: Vec<u32>,
    /// Which of the others may fit; `None`: they are few.
    candidates: Option<RouteIndex>,
}

impl FromIterator<(TextPattern, String)> for Cases {
    fn from_iter<I: IntoIterator<Item = (TextPattern, String)>>(cases: I) -> Cases {
        Cases { list: cases.into_iter().collect(), index: OnceLock::new() }
    }
}

impl Clone for Cases {
    fn clone(&self) -> Cases {
        self.list.iter().cloned().collect()
    }
}

impl PartialEq for Cases {
    fn eq(&self, other: &Cases) -> bool {
        self.list == other.list // the index follows from it
    }
}

impl Eq for Cases {}

impl Cases {
    /// As they were written.
    pub fn list(&self) -> &[(TextPattern, String)] {
        &self.list
    }

    /// Makes what they are found by, if nobody has yet.
    pub fn prepare(&self) {
        self.index();
    }

    /// What follows from a text: of the first pattern that fits.
    pub fn find(&self, text: &[u8]) -> Option<&str> {
        let index = self.index();
        let exact = self.exact(index, text);
        let others: &mut dyn Iterator<Item = u32> = match &index.candidates {
            Some(candidates) => {
                &mut candidates.candidates(text).filter_map(|at| index.others.get(at).copied())
            }
            None => &mut index.others.iter().copied(),
        };
        let mut before = others.take_while(|place| exact.is_none_or(|exact| *place < exact));
        let fits = |place: &u32| self.pattern(*place).is_some_and(|pattern| pattern.fits(text));
        let place = before.find(fits).or(exact)?;
        self.list.get(place as usize).map(|(_, result)| result.as_str())
    }

    fn pattern(&self, place: u32) -> Option<&TextPattern> {
        self.list.get(place as usize).map(|(pattern, _)| pattern)
    }

    /// The place of the pattern that is this text.
    fn exact(&self, index: &Index, text: &[u8]) -> Option<u32> {
        let of = |place: &u32| self.pattern(*place).and_then(whole).unwrap_or_default().as_bytes();
        let at = index.exact.binary_search_by(|place| of(place).cmp(text)).ok()?;
        index.exact.get(at).copied()
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let places = 0..u32::try_from(self.list.len()).unwrap_or(u32::MAX);
            let is_exact = |place: &u32| self.pattern(*place).is_some_and(|pattern| whole(pattern).is_some());
            let (mut exact, others): (Vec<u32>, Vec<u32>) = places.partition(is_exact);
            let text = |place: &u32| self.pattern(*place).and_then(whole);
            exact.sort_by_key(|place| (text(place), *place));
            exact.dedup_by_key(|place| text(place));
            let patterns: Vec<PathPattern> =
                others.iter().filter_map(|place| self.pattern(*place)).map(as_path).collect();
            Index { exact, others, candidates: RouteIndex::of(patterns.iter()) }
        })
    }
}

/// The text that a pattern without a star stands for.
fn whole(pattern: &TextPattern) -> Option<&str> {
    match pattern {
        TextPattern::Glob(pieces) if pieces.len() == 1 => pieces.first().map(String::as_str),
        _ => None,
    }
}

/// The same for an index that is made for paths.
fn as_path(pattern: &TextPattern) -> PathPattern {
    match pattern {
        TextPattern::Glob(pieces) => PathPattern::Pieces(pieces.clone()),
        TextPattern::Regex(regex) => PathPattern::Regex(regex.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Regex;
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> TextPattern {
        match text.strip_prefix('~') {
            Some(expression) => TextPattern::Regex(Regex::new(expression).unwrap()),
            None => TextPattern::glob(text),
        }
    }

    proptest! {
        /// Whatever they are found by, the first that fits says it.
        #[test]
        fn the_first_case_that_fits(
            texts in prop::collection::vec("|\\*|(a|b|\\*)(ab|b|\\*)(a|)|\\*(a|ab)\\*|\\*ab\\*b|~\\^ab|~b\\+|~ab\\$", 0..60),
            asked in prop::collection::vec("[ab]{0,5}", 1..20)
        ) {
            let cases: Cases = texts.iter().zip(0..).map(|(text, n)| (pattern(text), format!("{n}"))).collect();
            for text in asked {
                let slow = cases.list().iter().find(|(pattern, _)| pattern.fits(text.as_bytes()));
                prop_assert_eq!(cases.find(text.as_bytes()), slow.map(|(_, result)| result.as_str()), "{:?} {}", texts, text);
            }
        }
    }

    /// Of a hundred thousand cases few are asked, wherever their stars stand.
    #[test]
    fn few_cases_are_looked_at() {
        let texts = (0..25_000).flat_map(|n| {
            [format!("/old/{n}"), format!("/shop{n}/*"), format!("*-{n}.html"), format!("*/in-{n}-x/*")]
        });
        let cases: Cases = texts.enumerate().map(|(n, text)| (pattern(&text), n.to_string())).collect();
        for (text, expected) in [
            ("/old/24999", Some("99996")),
            ("/shop77/x", Some("309")),
            ("/a/b-12345.html", Some("49382")),
            ("/a/in-24000-x/b", Some("96003")),
            ("/nothing", None),
        ] {
            assert_eq!(cases.find(text.as_bytes()), expected, "{text}");
            let index = cases.index().candidates.as_ref().expect("there are many");
            let asked = index.candidates(text.as_bytes()).count();
            assert!(asked < 10, "{asked} of them for {text}");
        }
    }

    #[test]
    fn the_own_ones_of_a_site_come_first() {
        let map = |name: &str, from: &str| ValueMap {
            name: name.to_owned(),
            from: from.to_owned(),
            cases: Cases::default(),
        };
        let outer = Values::default().below(vec![map("a", "outer"), map("b", "outer")]);
        let inner = outer.below(vec![map("a", "inner")]);
        let from = |values: &Values, name: &str| values.get(name).map(|map| map.from.clone());
        assert_eq!(from(&inner, "a").as_deref(), Some("inner"));
        assert!(inner.get("b").unwrap().is_same(outer.get("b").unwrap()));
        assert_eq!((from(&outer, "a").as_deref(), from(&outer, "c")), (Some("outer"), None));
    }
}
