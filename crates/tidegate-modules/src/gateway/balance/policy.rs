//! Which member of a group gets a request: the policies, as functions of what is known of the candidates.
//!
//! - round robin: smooth weighted, the rule of nginx: no member gets two in a row while another is due.
//! - least connections: the smallest load for its weight.
//! - two choices: of two drawn at random, the less loaded one (Mitzenmacher, 2001). As good as the least
//!   loaded where many choose at once, and they do not all choose the same.
//! - hash: rendezvous hashing with weights (Thaler and Ravishankar, 1998; weights by Schindelhauer and
//!   Schomaker, 2005). The same key goes to the same member; one that leaves moves only its own keys.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A member that may be given the request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<'a> {
    /// Its place in the group.
    pub member: usize,
    /// By which the hash knows it, wherever it stands in the file.
    pub name: &'a str,
    /// Its share of the requests: above 0. A returning member's is smaller at first.
    pub weight: f64,
    /// Requests that it has in hand.
    pub load: usize,
}

/// The memory of smooth weighted round robin: how much each member is due.
#[derive(Debug, Default)]
pub struct Turns {
    due: Vec<f64>,
}

impl Turns {
    /// Whose turn it is; `None` without candidates.
    pub fn next(&mut self, candidates: &[Candidate<'_>]) -> Option<usize> {
        let most = candidates.iter().map(|candidate| candidate.member + 1).max()?;
        if self.due.len() < most {
            self.due.resize(most, 0.0);
        }
        let mut total = 0.0;
        for candidate in candidates {
            self.due[candidate.member] += candidate.weight;
            total += candidate.weight;
        }
        let due = |candidate: &&Candidate<'_>| self.due[candidate.member];
        // The first of those that are equally due.
        let chosen = candidates.iter().rev().max_by(|a, b| due(a).total_cmp(&due(b)))?.member;
        self.due[chosen] -= total;
        Some(chosen)
    }
}

/// The smallest load for its weight. Those that are equal in that, as all are on a quiet site, have their turns by weight.
pub fn least_loaded(candidates: &mut Vec<Candidate<'_>>, turns: &mut Turns) -> Option<usize> {
    let least = candidates.iter().map(burden).min_by(f64::total_cmp)?;
    candidates.retain(|candidate| burden(candidate) <= least);
    turns.next(candidates)
}

/// The less loaded of two, drawn by `random` with their weights as chances; the first one where they are equal.
pub fn of_two(candidates: &[Candidate<'_>], random: u64) -> Option<usize> {
    let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let first = draw(candidates, total, fraction(random as u32), None)?;
    let rest = total - candidates[first].weight;
    let second = draw(candidates, rest, fraction((random >> 32) as u32), Some(first));
    let second = second.unwrap_or(first);
    let chosen = if burden(&candidates[second]) < burden(&candidates[first]) { second } else { first };
    Some(candidates[chosen].member)
}

/// The member for a key.
pub fn by_hash(candidates: &[Candidate<'_>], key: u64) -> Option<usize> {
    // Equal in every process and on every machine of one build: keys do not move by a restart.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let score = |candidate: &Candidate<'_>| {
        let hash = hasher.hash_one((key, candidate.name));
        // 53 bits, made open at both ends: the logarithm is finite and not 0.
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        candidate.weight / -unit.ln()
    };
    candidates.iter().max_by(|a, b| score(a).total_cmp(&score(b))).map(|candidate| candidate.member)
}

/// Its load for its weight. Those that are idle are equal, whatever their weights: else all requests of a quiet site went
/// to the heaviest.
fn burden(candidate: &Candidate<'_>) -> f64 {
    candidate.load as f64 / candidate.weight
}

fn fraction(random: u32) -> f64 {
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

fn draw(candidates: &[Candidate<'_>], total: f64, at: f64, except: Option<usize>) -> Option<usize> {
    let mut left = at * total;
    let mut last = None;
    for (index, candidate) in candidates.iter().enumerate().filter(|(index, _)| Some(*index) != except) {
        last = Some(index);
        if left < candidate.weight {
            break;
        }
        left -= candidate.weight;
    }
    last // rounding may leave a little behind the last one
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn candidates(weights: &[f64], loads: &[usize]) -> Vec<Candidate<'static>> {
        let load = |member: usize| loads.get(member).copied().unwrap_or(0);
        let of = |(member, &weight)| Candidate { member, name: NAMES[member], weight, load: load(member) };
        weights.iter().enumerate().map(of).collect()
    }

    #[test]
    fn turns_are_smooth() {
        let members = candidates(&[5.0, 1.0, 1.0], &[]);
        let mut turns = Turns::default();
        let order: Vec<_> = (0..7).map(|_| turns.next(&members).unwrap()).collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]); // as in nginx
        assert_eq!(Turns::default().next(&[]), None);
    }

    #[test]
    fn the_least_loaded_for_its_weight() {
        for (weights, loads, turn, expected) in [
            (&[1.0, 1.0, 1.0][..], &[2, 1, 3][..], 0, 1),
            (&[1.0, 2.0], &[1, 2], 0, 1),
            (&[1.0, 2.0], &[0, 0], 0, 1),
            (&[1.0, 1.0], &[4, 4], 0, 0),
            (&[1.0, 1.0], &[4, 4], 1, 1),
            (&[1.0, 1.0], &[4, 4], 2, 0),
        ] {
            let mut turns = Turns::default();
            for _ in 0..turn {
                turns.next(&candidates(weights, loads));
            }
            let chosen = least_loaded(&mut candidates(weights, loads), &mut turns);
            assert_eq!(chosen, Some(expected), "{weights:?} {loads:?}");
        }
        assert_eq!(least_loaded(&mut Vec::new(), &mut Turns::default()), None);
    }

    /// Nobody has anything in hand when the next request comes.
    #[test]
    fn weights_hold_on_a_quiet_site() {
        let (mut turns, mut least, mut two) = (Turns::default(), [0; 2], [0; 2]);
        let random = std::hash::RandomState::new();
        for number in 0..3000u64 {
            let mut members = candidates(&[2.0, 1.0], &[]);
            two[of_two(&members, random.hash_one(number)).unwrap()] += 1;
            least[least_loaded(&mut members, &mut turns).unwrap()] += 1;
        }
        assert_eq!(least, [2000, 1000]);
        assert!((1800..2200).contains(&two[0]), "{two:?}");
    }

    #[test]
    fn a_key_stays_where_it_is() {
        let all = candidates(&[1.0; 5], &[]);
        let without: Vec<_> = all.iter().copied().filter(|candidate| candidate.name != "c").collect();
        let mut counts = [0; 5];
        for number in 0..5_000 {
            let before = by_hash(&all, number).unwrap();
            let after = by_hash(&without, number).unwrap();
            counts[before] += 1;
            assert!(before == after || all[before].name == "c", "{number} moved without need");
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn weights_of_the_hash() {
        let members = candidates(&[1.0, 3.0], &[]);
        let heavy = (0..8_000).filter(|&key| by_hash(&members, key) == Some(1)).count();
        assert!((5_700..6_300).contains(&heavy), "{heavy}");
    }

    proptest! {
        #[test]
        fn shares_follow_the_weights(weights in proptest::collection::vec(1u8..20, 1..6)) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let members = candidates(&weights, &[]);
            let total: f64 = weights.iter().sum();
            let mut turns = Turns::default();
            let mut counts = vec![0.0; weights.len()];
            for _ in 0..total as usize {
                counts[turns.next(&members).unwrap()] += 1.0;
            }
            prop_assert_eq!(counts, weights);
        }

        #[test]
        fn two_choices_never_take_the_worst(loads in proptest::collection::vec(0usize..50, 2..6), random: u64) {
            let members = candidates(&vec![1.0; loads.len()], &loads);
            let chosen = of_two(&members, random).unwrap();
            let worst = loads.iter().max().unwrap();
            prop_assert!(loads[chosen] < *worst || loads.iter().filter(|load| *load == worst).count() > 1);
        }

        #[test]
        fn every_policy_takes_a_candidate(
            chosen in proptest::collection::btree_set(0usize..6, 1..6),
            weights in proptest::collection::vec(0.01f64..100.0, 6),
            random: u64,
        ) {
            let members: Vec<_> =
                candidates(&weights, &[]).into_iter().filter(|candidate| chosen.contains(&candidate.member)).collect();
            prop_assert!(chosen.contains(&of_two(&members, random).unwrap()));
            prop_assert!(chosen.contains(&by_hash(&members, random).unwrap()));
            prop_assert!(chosen.contains(&least_loaded(&mut members.clone(), &mut Turns::default()).unwrap()));
            prop_assert!(chosen.contains(&Turns::default().next(&members).unwrap()));
        }
    }
}
