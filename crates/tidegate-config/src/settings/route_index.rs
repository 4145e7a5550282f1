//! Which patterns of a list may match a path, without a look at each: for sites with many routes.
//!
//! Every pattern says how the paths begin, or how they end, that it can match: what stands before its first star or behind its
//! last, and of an expression that is bound by `^` or `$` the literals that it begins or ends with. Two trees of those, one
//! from either end, give the few candidates for a path, in their order. Of an expression that says more by a literal in its
//! middle, that one is looked for. Whoever asks still asks each candidate.

use super::PathPattern;
use super::rules::parse;
use aho_corasick::automaton::{Automaton, OverlappingState};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, Input};
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use regex_syntax::hir::{Hir, HirKind, Look};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Lists of up to so many patterns are as quickly looked through one by one.
const FEW: usize = 12;
/// Expressions cost more than that.
const FEW_EXPRESSIONS: usize = 2;

/// Patterns by how the paths begin or end that they match.
#[derive(Debug)]
pub struct RouteIndex {
    beginnings: Tree,
    ends: Tree,
    /// Literals that paths hold, and for each the patterns that ask for it.
    middles: Option<(NFA, Vec<Vec<u32>>)>,
}

/// The places of patterns that may match a path, in their order.
#[derive(Debug)]
pub struct Candidates<'i> {
    /// What is left of each list, none of them empty.
    lists: SmallVec<[&'i [u32]; 24]>,
}

/// Texts with the places of patterns, as a tree in which a node is what several of them begin with.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

/// What paths begin or end with, whose place that is, and whether the path ends there.
type Text = (Vec<u8>, u32, bool);

#[derive(Debug, Default)]
struct Node {
    /// What leads here from the node above.
    label: Box<[u8]>,
    /// The first bytes of the labels below, sorted, and their nodes.
    below: Vec<(u8, u32)>,
    /// Patterns for all paths that come here.
    here: Vec<u32>,
    /// Patterns for the path that ends here.
    whole: Vec<u32>,
}

impl RouteIndex {
    /// Of patterns in their order; `None` where looking at each costs as little.
    pub fn of<'p>(patterns: impl Iterator<Item = &'p PathPattern>) -> Option<RouteIndex> {
        let patterns: Vec<&PathPattern> = patterns.collect();
        let expressions = patterns.iter().filter(|pattern| matches!(pattern, PathPattern::Regex(_))).count();
        if patterns.len() <= FEW && expressions <= FEW_EXPRESSIONS {
            return None;
        }
        // What stands between stars is looked for where many say no more.
        let has_many_middles = patterns.iter().filter(|pattern| middle(pattern).is_some()).nth(FEW).is_some();
        let (mut beginnings, mut ends) = (Vec::new(), Vec::new());
        let mut middles: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for (pattern, place) in patterns.into_iter().zip(0u32..) {
            if let Some(middle) = middle(pattern).filter(|_| has_many_middles) {
                middles.entry(middle.as_bytes().to_vec()).or_default().push(place);
                continue;
            }
            match pattern {
                PathPattern::Exact(text) => beginnings.push((text.as_bytes().to_vec(), place, true)),
                PathPattern::Prefix(text) => beginnings.push((text.as_bytes().to_vec(), place, false)),
                PathPattern::Suffix(text) => ends.push((reversed(text.as_bytes()), place, false)),
                PathPattern::Pieces(pieces) => {
                    let (first, last) =
                        (pieces.first().map_or("", String::as_str), pieces.last().map_or("", String::as_str));
                    // The longer end tells more; every path begins with a slash.
                    match last.len() > first.len() {
                        true => ends.push((reversed(last.as_bytes()), place, false)),
                        false => beginnings.push((first.as_bytes().to_vec(), place, false)),
                    }
                }
                PathPattern::Regex(regex) => match literals(regex.as_str()) {
                    Bound::Beginning(literals) => {
                        beginnings.extend(literals.into_iter().map(|literal| (literal, place, false)));
                    }
                    Bound::End(literals) => {
                        ends.extend(literals.into_iter().map(|literal| (reversed(&literal), place, false)));
                    }
                    Bound::Middle(literal) => middles.entry(literal).or_default().push(place),
                },
            }
        }
        let mut automaton = None;
        if !middles.is_empty() {
            match NFA::new(middles.keys()) {
                Ok(nfa) => automaton = Some((nfa, middles.into_values().collect())),
                // There are too many of them: each is asked.
                Err(_) => {
                    beginnings.extend(middles.into_values().flatten().map(|place| (Vec::new(), place, false)))
                }
            }
        }
        Some(RouteIndex { beginnings: Tree::of(beginnings), ends: Tree::of(ends), middles: automaton })
    }

    /// The patterns that may match a path.
    #[inline]
    pub fn candidates(&self, path: &[u8]) -> Candidates<'_> {
        let mut lists = SmallVec::new();
        self.beginnings.look_up(path.len(), |at| path[at], &mut lists);
        self.ends.look_up(path.len(), |at| path[path.len() - 1 - at], &mut lists);
        if let Some((automaton, places)) = &self.middles {
            let input = Input::new(path).anchored(Anchored::No);
            let mut state = OverlappingState::start();
            while automaton.try_find_overlapping(&input, &mut state).is_ok()
                && let Some(found) = state.get_match()
            {
                lists.push(&places[found.pattern().as_usize()]);
            }
        }
        Candidates { lists }
    }
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let least = self.lists.iter().filter_map(|list| list.first()).min().copied()?;
        // An expression may stand in several lists.
        self.lists.retain(|list| {
            if list.first() == Some(&least) {
                *list = &list[1..];
            }
            !list.is_empty()
        });
        Some(least as usize)
    }
}

/// What stands between stars, where the ends say less.
fn middle(pattern: &PathPattern) -> Option<&str> {
    let PathPattern::Pieces(pieces) = pattern else { return None };
    let [first, middles @ .., last] = pieces.as_slice() else { return None };
    let longest = middles.iter().max_by_key(|piece| piece.len())?;
    (longest.len() > first.len().max(last.len()).max(1)).then_some(longest)
}

fn reversed(text: &[u8]) -> Vec<u8> {
    text.iter().rev().copied().collect()
}

/// What all paths begin or end with that an expression can be found in.
enum Bound {
    Beginning(Vec<Vec<u8>>),
    End(Vec<Vec<u8>>),
    /// Or hold somewhere.
    Middle(Vec<u8>),
}

fn literals(expression: &str) -> Bound {
    let all = || Bound::Beginning(vec![Vec::new()]);
    let Some(hir) = parse(expression) else { return all() };
    let extract = |kind: ExtractKind, hir: &Hir| {
        let found = Extractor::new().kind(kind).extract(hir);
        let found: Vec<Vec<u8>> =
            found.literals()?.iter().map(|literal| literal.as_bytes().to_vec()).collect();
        (!found.is_empty() && found.iter().all(|literal| literal.len() > 1)).then_some(found)
    };
    let bound = if hir.properties().look_set_prefix().contains(Look::Start)
        && let Some(found) = extract(ExtractKind::Prefix, &hir)
    {
        Bound::Beginning(found)
    } else if hir.properties().look_set_suffix().contains(Look::End)
        && let Some(found) = extract(ExtractKind::Suffix, &hir)
    {
        Bound::End(found)
    } else {
        all()
    };
    let (Bound::Beginning(ends) | Bound::End(ends)) = &bound else { return bound };
    let said = ends.iter().map(Vec::len).min().unwrap_or(0);
    match longest(&hir) {
        Some(literal) if literal.len() > said.max(1) => Bound::Middle(literal.to_vec()),
        _ => bound,
    }
}

/// The longest literal that stands in everything an expression can be found in.
fn longest(hir: &Hir) -> Option<&[u8]> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(&literal.0),
        HirKind::Capture(capture) => longest(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => longest(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(longest).max_by_key(|literal| literal.len()),
        _ => None,
    }
}

impl Tree {
    fn of(mut texts: Vec<Text>) -> Tree {
        texts.sort();
        texts.dedup();
        let mut tree = Tree { nodes: vec![Node::default()] };
        // Not by recursion: paths may lead on from each other as often as one is long.
        let mut open = vec![(0, texts.as_slice(), 0)];
        while let Some((node, texts, depth)) = open.pop() {
            tree.fill(node, texts, depth, &mut open);
        }
        tree
    }

    /// Puts texts at a node that they have the first `depth` bytes in common with; those that go on are left for later.
    fn fill<'t>(
        &mut self,
        node: usize,
        texts: &'t [Text],
        depth: usize,
        open: &mut Vec<(usize, &'t [Text], usize)>,
    ) {
        let ended = texts.iter().take_while(|(text, ..)| text.len() == depth).count();
        let (here, mut rest) = texts.split_at(ended);
        let places = |is_whole: bool| {
            let mut places: Vec<u32> =
                here.iter().filter(|(.., whole)| *whole == is_whole).map(|(_, place, _)| *place).collect();
            places.sort_unstable();
            places
        };
        (self.nodes[node].here, self.nodes[node].whole) = (places(false), places(true));
        while let Some((first, ..)) = rest.first() {
            let byte = first[depth];
            let count = rest.iter().take_while(|(text, ..)| text[depth] == byte).count();
            let (group, others) = rest.split_at(count);
            rest = others;
            // Sorted, so that what the first and the last have in common all of them have.
            let last = &group[count - 1].0;
            let common = first.iter().zip(last).skip(depth).take_while(|(one, other)| one == other).count();
            let label = first[depth..depth + common].into();
            let below = self.nodes.len();
            self.nodes.push(Node { label, ..Node::default() });
            self.nodes[node].below.push((byte, u32::try_from(below).unwrap_or(u32::MAX)));
            open.push((below, group, depth + common));
        }
    }

    #[inline]
    fn look_up<'i>(
        &'i self,
        length: usize,
        byte: impl Fn(usize) -> u8,
        lists: &mut SmallVec<[&'i [u32]; 24]>,
    ) {
        let (mut node, mut at) = (&self.nodes[0], 0);
        loop {
            if !node.here.is_empty() {
                lists.push(&node.here);
            }
            if at == length {
                if !node.whole.is_empty() {
                    lists.push(&node.whole);
                }
                return;
            }
            let next = byte(at);
            let Ok(found) = node.below.binary_search_by_key(&next, |(byte, _)| *byte) else { return };
            node = &self.nodes[node.below[found].1 as usize];
            let end = at + node.label.len();
            if end > length || !node.label.iter().zip(at..).all(|(label, at)| *label == byte(at)) {
                return;
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Regex;
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        match text.strip_prefix('~') {
            Some(expression) => PathPattern::Regex(Regex::new(expression).unwrap()),
            None => crate::value::read_pattern(text).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn no_pattern_that_matches_is_missing(
            texts in prop::collection::vec(
                "/|\\*|(/|\\*)(a|b|ab)(b|\\*|/\\*|/\\*/b|\\*\\.x|)|/\\*a\\*|\
                 ~\\^/(a|b|\\(a\\|ab\\)|\\[ab\\]\\+|\\(\\?i\\)a)(b|\\*|\\$|/x|)|~(a|b)\\(/x\\|\\.x\\)\\$|~(a|b)\\+|~\\^|~\\$|~b\\+x/\\+a|~\\^/\\.\\+xa|~\\(a\\|\\^/b\\)x",
                13..60
            ),
            paths in prop::collection::vec("/[abAx./]{0,6}", 1..20)
        ) {
            let patterns: Vec<PathPattern> = texts.iter().map(|text| pattern(text)).collect();
            let index = RouteIndex::of(patterns.iter()).unwrap();
            for path in paths {
                let path = path.as_bytes();
                let slow: Vec<usize> = (0..patterns.len()).filter(|at| patterns[*at].matches(path)).collect();
                let candidates: Vec<usize> = index.candidates(path).collect();
                prop_assert!(candidates.is_sorted_by(|one, other| one < other));
                let fast: Vec<usize> = candidates.into_iter().filter(|at| patterns[*at].matches(path)).collect();
                prop_assert_eq!(fast, slow, "{:?}", texts);
            }
        }
    }

    #[test]
    fn candidates_are_few() {
        let texts: Vec<String> = (0..1000)
            .flat_map(|n| {
                [
                    format!("/shop{n}/*"),
                    format!("*-{n}.html"),
                    format!("~^/u{n}/([0-9]+)$"),
                    format!("~\\.x{n}$"),
                ]
            })
            .collect();
        let patterns: Vec<PathPattern> = texts.iter().map(|text| pattern(text)).collect();
        let index = RouteIndex::of(patterns.iter()).unwrap();
        for path in ["/shop17/a-9.html", "/u999/17", "/a/b.x500", "/nothing"] {
            let count = index.candidates(path.as_bytes()).count();
            assert!(count < 10, "{count} for {path}");
        }
        assert!(RouteIndex::of(patterns.iter().take(2)).is_none());
    }
}
