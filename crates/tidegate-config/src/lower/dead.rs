//! Whether several patterns together leave anything for another one, where there are expressions among them.
//!
//! Patterns with stars alone need no such look: a path with a letter in the place of each star that stands in no pattern is
//! matched by one of the others, if by any, and that one matches all then (`covers`). With expressions both sides become
//! automata that are walked at once: a path that the later pattern matches and none of the earlier ones is a way to a state
//! in which only the one accepts. Where there is none, no request ever comes so far.

use std::collections::{HashSet, VecDeque};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::{Dot, Hir, Look, Repetition};

use crate::settings::PathPattern;
use crate::settings::rules::parse;

/// Bytes that an automaton may take; nothing is said of what needs more.
const SIZE: usize = 256 << 10;
/// Pairs of states that are looked at for one pattern; the same beyond them.
const PAIRS: usize = 20_000;

/// Whether every path that `later` matches is matched by one of `earlier`; `None` where that would take too long to tell.
pub(super) fn is_covered(later: &PathPattern, earlier: &[&PathPattern]) -> Option<bool> {
    let union: Option<Vec<Hir>> = earlier.iter().map(|pattern| whole(pattern)).collect();
    let later = automaton(&whole(later)?)?;
    let earlier = automaton(&Hir::alternation(union?))?;
    // Every path begins with a slash.
    let first = (later.next_state(begin(&later)?, b'/'), earlier.next_state(begin(&earlier)?, b'/'));
    let (mut seen, mut ahead) = (HashSet::from([first]), VecDeque::from([first]));
    let bytes: Vec<u8> = (0..=255).collect();
    while let Some((mine, theirs)) = ahead.pop_front() {
        let accepts = |dfa: &Dfa, state| dfa.is_match_state(dfa.next_eoi_state(state));
        if accepts(&later, mine) && !accepts(&earlier, theirs) {
            return Some(false);
        }
        for byte in &bytes {
            let next = (later.next_state(mine, *byte), earlier.next_state(theirs, *byte));
            if later.is_dead_state(next.0) || !seen.insert(next) {
                continue;
            }
            if later.is_quit_state(next.0) || earlier.is_quit_state(next.1) || seen.len() > PAIRS {
                return None;
            }
            ahead.push_back(next);
        }
    }
    Some(true)
}

type Dfa = dense::DFA<Vec<u32>>;

fn automaton(hir: &Hir) -> Option<Dfa> {
    let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(SIZE));
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir).ok()?;
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(SIZE))
        .determinize_size_limit(Some(SIZE));
    dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()
}

fn begin(dfa: &Dfa) -> Option<StateID> {
    dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()
}

/// What a pattern matches, as an expression for the whole of a path.
fn whole(pattern: &PathPattern) -> Option<Hir> {
    let any = || {
        let sub = Box::new(Hir::dot(Dot::AnyByte));
        Hir::repetition(Repetition { min: 0, max: None, greedy: true, sub })
    };
    let mut parts = vec![Hir::look(Look::Start)];
    match pattern {
        PathPattern::Regex(regex) => parts.extend([any(), parse(regex.as_str())?, any()]),
        other => {
            for (at, piece) in other.to_string().split('*').enumerate() {
                if at > 0 {
                    parts.push(any());
                }
                parts.push(Hir::literal(piece.as_bytes()));
            }
        }
    }
    parts.push(Hir::look(Look::End));
    Some(Hir::concat(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Regex;
    use crate::value::read_pattern;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        match text.strip_prefix('~') {
            Some(expression) => PathPattern::Regex(Regex::new(expression).unwrap()),
            None => read_pattern(text).unwrap(),
        }
    }

    #[test]
    fn unions() {
        for (later, earlier, expected) in [
            ("/a*", &["~^/a[a-m]", "~^/a[^a-m]", "/a"][..], true),
            ("/a*", &["~^/a[a-m]", "~^/a[^a-m]"], false),
            ("~^/u/[0-9]+$", &["/u/*"], true),
            ("~^/u/[0-9]+$", &["~^/u/[0-4]", "~^/u/[5-9]"], true),
            ("~^/u/[0-9]+$", &["~^/u/[0-4]", "~^/u/[6-9]"], false),
            ("~\\.jpe?g$", &["*.jpg", "*.jpeg"], true),
            ("~(?i)\\.jpg$", &["*.jpg"], false),
            ("~(?x) ^/a # a ) comment", &["/a*"], true),
            ("~^x", &["/y"], true),
            ("~(a|b){30}(a|b){30}(c|d|[e-z]{30}){20}", &["~^/(x.{9}y.{9}){20}"], false),
        ] {
            let patterns: Vec<PathPattern> = earlier.iter().map(|text| pattern(text)).collect();
            let found = is_covered(&pattern(later), &patterns.iter().collect::<Vec<_>>());
            assert!(found.is_none_or(|found| found == expected), "{later} {earlier:?} {found:?}");
            assert!(found.is_some() || later.contains("{30}"), "{later} {earlier:?}");
        }
    }

    proptest! {
        /// Against all short paths.
        #[test]
        fn what_is_dead_is_dead(
            texts in prop::collection::vec("~\\^/(a|\\[ab\\]|\\[\\^a\\])(b|\\.|\\$|b\\*)?|(/|\\*)(a|b|\\*)?(a|\\*)?b?", 1..5),
            later in "~\\^/(a|b|\\[ab\\])\\+\\$|(/|\\*)(a|b|\\*)?(a|\\*)?b?"
        ) {
            let (later, earlier) = (pattern(&later), texts.iter().map(|text| pattern(text)).collect::<Vec<_>>());
            let Some(is_dead) = is_covered(&later, &earlier.iter().collect::<Vec<_>>()) else { return Ok(()) };
            let mut paths = vec![b"/".to_vec()];
            let mut at = 0;
            while let Some(path) = paths.get(at).filter(|path| path.len() < 6).cloned() {
                paths.extend(b"/abx".iter().map(|byte| [path.as_slice(), &[*byte]].concat()));
                at += 1;
            }
            let is_alive = |path: &Vec<u8>| later.matches(path) && !earlier.iter().any(|pattern| pattern.matches(path));
            prop_assert_eq!(is_dead, !paths.iter().any(is_alive), "{:?} {:?}", later, texts);
        }
    }
}
