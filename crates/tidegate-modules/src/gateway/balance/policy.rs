//! Which member of a group gets a request: the policies, as functions of what is known of the candidates.
//!
//! - round robin: smooth weighted, the rule of nginx: no member gets two in a row while another is due.
//! - least connections: the smallest load for its weight.
//! - two choices: of two drawn at random, the less loaded one (Mitzenmacher, 2001). As good as the least
//!   loaded where many choose at once, and they do not all choose the same.
//! - hash: rendezvous hashing with weights (Thaler and Ravishankar, 1998; weights by Schindelhauer and
//!   Schomaker, 2005). The same key goes to the same member; one that leaves moves only its own keys.
//! - hash with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016): a member that has more than its share in hand
//!   is passed over, for the next one of the key. So a hot key is on several members, as many as it needs.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// In hand, so many are never too many: on a quiet site a share is less than one request, and keys would move for nothing.
pub const LEAST_BOUND: usize = 8;

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
    highest(candidates.iter(), key)
}

/// The same with bounded loads: of those that have less than `percent` of their share in hand, this request included,
/// the member for the key. `percent` is above 100, so there is always one.
pub fn by_bounded_hash(candidates: &[Candidate<'_>], key: u64, percent: u32) -> Option<usize> {
    let in_hand: usize = candidates.iter().map(|candidate| candidate.load).sum();
    let weights: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let each = f64::from(percent) / 100.0 * (in_hand as f64 + 1.0) / weights;
    // Rounding must not make one more of a whole number.
    let bound = |candidate: &Candidate<'_>| (each * candidate.weight - 1e-9).ceil().max(LEAST_BOUND as f64);
    let has_room = |candidate: &&Candidate<'_>| (candidate.load as f64) < bound(candidate);
    highest(candidates.iter().filter(has_room), key).or_else(|| by_hash(candidates, key))
}

/// Whom a key belongs to, of these.
fn highest<'c>(candidates: impl Iterator<Item = &'c Candidate<'c>>, key: u64) -> Option<usize> {
    let score = |candidate: &Candidate<'_>| {
        // Equal on every machine and in every version: several servers before the same members agree, also during an upgrade.
        let hash = xxh3_64_with_seed(candidate.name.as_bytes(), key);
        // 53 bits, made open at both ends: the logarithm is finite and not 0.
        let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        candidate.weight / -unit.ln()
    };
    candidates.max_by(|a, b| score(a).total_cmp(&score(b))).map(|candidate| candidate.member)
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
    use std::hash::BuildHasher;

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
        let mut taken_over = [0; 5];
        for number in 0..10_000 {
            let before = by_hash(&all, number).unwrap();
            let after = by_hash(&without, number).unwrap();
            counts[before] += 1;
            taken_over[after] += usize::from(before != after);
            assert!(before == after || all[before].name == "c", "{number} moved without need");
            assert_eq!(by_bounded_hash(&all, number, 125), Some(before), "nobody has much in hand");
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
        let others = [0, 1, 3, 4].map(|member| taken_over[member]);
        assert!(others.iter().all(|count| (400..600).contains(count)), "it is shared by all: {others:?}");
    }

    /// Keys stay where they are, whatever builds and machines the servers before the members have.
    #[test]
    fn keys_of_all_versions() {
        let members = candidates(&[1.0; 6], &[]);
        let chosen: Vec<_> = (0..12).map(|key| by_hash(&members, key).unwrap()).collect();
        assert_eq!(chosen, [0, 5, 1, 1, 5, 2, 4, 3, 5, 4, 0, 4]);
    }

    #[test]
    fn a_hot_key_is_on_as_many_members_as_it_needs() {
        let mut loads = [0; 4];
        let next =
            |loads: &[usize], percent| by_bounded_hash(&candidates(&[1.0; 4], loads), 7, percent).unwrap();
        let first = next(&loads, 125);
        for _ in 0..LEAST_BOUND {
            let chosen = next(&loads, 125);
            assert_eq!(chosen, first, "few requests are no load");
            loads[chosen] += 1;
        }
        let second = next(&loads, 125);
        assert_ne!(second, first);
        for _ in LEAST_BOUND..1_000 {
            loads[next(&loads, 125)] += 1;
        }
        assert!(loads.iter().all(|load| *load <= 313), "a quarter more than their share at most: {loads:?}");
        assert_eq!((loads[first], loads.iter().sum::<usize>()), (313, 1_000));
        loads = [0; 4];
        for _ in 0..1_000 {
            loads[next(&loads, 300)] += 1;
        }
        assert_eq!((loads[first], loads[second]), (750, 250), "those of the key, and no more");
    }

    #[test]
    fn bounds_follow_the_weights() {
        let mut loads = [0; 2];
        for _ in 0..1_000 {
            loads[by_bounded_hash(&candidates(&[1.0, 3.0], &loads), 7, 101).unwrap()] += 1;
        }
        assert!((240..=253).contains(&loads[0]), "{loads:?}");
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

        /// Whatever the keys are: nobody has more in hand than the bound at the moment of the choice.
        #[test]
        fn loads_are_bounded(
            weights in proptest::collection::vec(1u8..20, 1..6),
            keys in proptest::collection::vec(0u64..4, 1..300),
            percent in 101u32..400,
        ) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let total: f64 = weights.iter().sum();
            let mut loads = vec![0; weights.len()];
            for (count, key) in keys.into_iter().enumerate() {
                let chosen = by_bounded_hash(&candidates(&weights, &loads), key, percent).unwrap();
                loads[chosen] += 1;
                let share = (count + 1) as f64 * weights[chosen] / total;
                let bound = (f64::from(percent) / 100.0 * share - 1e-9).ceil().max(LEAST_BOUND as f64);
                prop_assert!(loads[chosen] as f64 <= bound, "{loads:?}");
            }
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
            prop_assert!(chosen.contains(&by_bounded_hash(&members, random, 125).unwrap()));
            prop_assert!(chosen.contains(&least_loaded(&mut members.clone(), &mut Turns::default()).unwrap()));
            prop_assert!(chosen.contains(&Turns::default().next(&members).unwrap()));
        }
    }
}
