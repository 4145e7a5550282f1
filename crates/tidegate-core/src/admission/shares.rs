//! Places that several parties share: nobody can take them all, and everybody is sure of one.
//!
//! A party may take a place while it holds less than a multiple (its [`Key::weight`]) of what is free. So the more one
//! holds, the less it may add, and something is always left: a party of weight 8 ends at eight ninths, two of them at
//! eight seventeenths each. No party has to be known beforehand, and what a party that is quiet could use is not lost
//! to the others (Choudhury, Hahne: Dynamic queue length thresholds for shared-memory packet switches, 1998). Whoever
//! holds nothing is let in even when everything is taken: there are no more such places than there are parties.
//!
//! Who finds no place waits in the line of its own claim, so that those who cannot be served yet never stand in front
//! of those who can. Free places go to the one who has waited longest among the first of all lines that may take one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::task::Waker;

/// One of those who share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// A hash of what it is.
    pub party: u64,
    /// How many times what is free it may hold.
    pub weight: u32,
}

/// On whose account a place is taken. The first is the one that is sure of a place.
pub type Claim = [Key; 2];

/// What asking for a place gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A place.
    Place,
    /// A turn, by its number.
    Turn(u64),
    /// As many wait as may.
    Full,
}

/// Parties are hashes already.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type ByParty<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// So many parties stay known when they hold nothing: most come again at once.
const KEPT: usize = 32;

struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

struct Line {
    claim: Claim,
    /// By rising number, which is the order of arrival. Never empty.
    waiting: VecDeque<Waiting>,
}

/// The places, and the lines before them.
#[derive(Default)]
pub struct Shares {
    taken: u32,
    /// Whoever holds nothing is not in here, beyond [`KEPT`].
    held: ByParty<u32>,
    lines: HashMap<(u64, u64), Line>,
    waiting: u32,
    numbers: u64,
}

fn line_of(claim: &Claim) -> (u64, u64) {
    (claim[0].party, claim[1].party)
}

impl Shares {
    /// Asks for one of `most` places, or for a turn where no more than `length` wait.
    pub fn enter(&mut self, claim: &Claim, most: u32, length: u32) -> Entry {
        let line = match self.waiting {
            0 => 0,
            _ => self.lines.get(&line_of(claim)).map_or(0, |line| line.waiting.len()),
        };
        if line == 0 && self.may_take(claim, most) {
            self.take(claim);
            return Entry::Place;
        }
        // The lines share their room as the places are shared.
        let free = length.saturating_sub(self.waiting);
        if length == 0 || (line > 0 && line as u64 >= u64::from(free) * u64::from(claim[0].weight)) {
            return Entry::Full;
        }
        self.numbers += 1;
        self.waiting += 1;
        let number = self.numbers;
        let line = self.lines.entry(line_of(claim));
        let line = line.or_insert_with(|| Line { claim: *claim, waiting: VecDeque::new() });
        line.waiting.push_back(Waiting { number, waker: None });
        Entry::Turn(number)
    }

    /// Whether the turn has come, and with it a place; otherwise `waker` is woken when it comes.
    pub fn has_come(&mut self, claim: &Claim, number: u64, waker: &Waker) -> bool {
        let Some((line, at)) = self.position(claim, number) else { return true };
        if let Some(waiting) = line.waiting.get_mut(at) {
            match &mut waiting.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        false
    }

    /// Gives up a turn. `false`: it has come meanwhile, and there is a place to be left.
    pub fn withdraw(&mut self, claim: &Claim, number: u64) -> bool {
        let Some((line, at)) = self.position(claim, number) else { return false };
        line.waiting.remove(at);
        if line.waiting.is_empty() {
            self.lines.remove(&line_of(claim));
        }
        self.waiting -= 1;
        true
    }

    /// Leaves a place. What is free goes to those whose turn has come, who are returned to be woken.
    #[must_use = "they sleep until they are woken"]
    pub fn leave(&mut self, claim: &Claim, most: u32) -> Vec<Waker> {
        self.taken = self.taken.saturating_sub(1);
        for key in claim {
            if let Some(held) = self.held.get_mut(&key.party) {
                *held = held.saturating_sub(1);
                if *held == 0 && self.held.len() > KEPT {
                    self.held.remove(&key.party);
                }
            }
        }
        let mut woken = Vec::new();
        if self.waiting == 0 {
            return woken;
        }
        while let Some(next) = self.next(most) {
            let Some(line) = self.lines.get_mut(&line_of(&next)) else { break };
            let first = line.waiting.pop_front();
            if line.waiting.is_empty() {
                self.lines.remove(&line_of(&next));
            }
            self.waiting -= 1;
            self.take(&next);
            woken.extend(first.and_then(|first| first.waker));
        }
        woken
    }

    /// Of the first in each line, the one that came first among those who may take a place.
    fn next(&self, most: u32) -> Option<Claim> {
        let may = self.lines.values().filter(|line| self.may_take(&line.claim, most));
        let first = may.min_by_key(|line| line.waiting.front().map_or(u64::MAX, |first| first.number));
        first.map(|line| line.claim)
    }

    fn may_take(&self, claim: &Claim, most: u32) -> bool {
        let held = |key: &Key| u64::from(self.held.get(&key.party).copied().unwrap_or(0));
        let free = u64::from(most.saturating_sub(self.taken));
        held(&claim[0]) == 0 || claim.iter().all(|key| held(key) < free * u64::from(key.weight))
    }

    fn take(&mut self, claim: &Claim) {
        self.taken += 1;
        for key in claim {
            match self.held.get_mut(&key.party) {
                Some(held) => *held += 1,
                None => drop(self.held.insert(key.party, 1)),
            }
        }
    }

    fn position(&mut self, claim: &Claim, number: u64) -> Option<(&mut Line, usize)> {
        let line = self.lines.get_mut(&line_of(claim))?;
        let at = line.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        Some((line, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    fn claim(upstream: u64, site: u64) -> Claim {
        [Key { party: upstream, weight: 8 }, Key { party: 1_000_000 + site, weight: 16 }]
    }

    fn fill(shares: &mut Shares, claim: &Claim, most: u32) -> u32 {
        let mut taken = 0;
        while shares.enter(claim, most, 0) == Entry::Place {
            taken += 1;
        }
        taken
    }

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let (mut shares, one) = (Shares::default(), claim(1, 1));
        assert_eq!(shares.enter(&one, 1, 2), Entry::Place);
        let (first, second) = (shares.enter(&one, 1, 2), shares.enter(&one, 1, 2));
        let (Entry::Turn(first), Entry::Turn(second)) = (first, second) else { panic!("two turns") };
        assert_eq!(shares.enter(&one, 1, 2), Entry::Full);
        assert!(
            !shares.has_come(&one, first, Waker::noop()) && !shares.has_come(&one, second, Waker::noop())
        );
        assert_eq!(shares.leave(&one, 1).len(), 1);
        assert!(shares.has_come(&one, first, Waker::noop()) && !shares.has_come(&one, second, Waker::noop()));
        assert!(!shares.withdraw(&one, first), "its place is taken until it is left");
        assert!(shares.withdraw(&one, second));
        assert!(shares.leave(&one, 1).is_empty());
        assert_eq!(shares.enter(&one, 1, 2), Entry::Place);
    }

    #[test]
    fn who_waits_is_woken_once() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let (mut shares, one, count) = (Shares::default(), claim(1, 1), Arc::new(Count(AtomicUsize::new(0))));
        shares.enter(&one, 1, 1);
        let Entry::Turn(turn) = shares.enter(&one, 1, 1) else { panic!("a turn") };
        let waker = Waker::from(count.clone());
        assert!(!shares.has_come(&one, turn, &waker) && !shares.has_come(&one, turn, &waker));
        shares.leave(&one, 1).into_iter().for_each(Waker::wake);
        shares.leave(&one, 1).into_iter().for_each(Waker::wake);
        assert_eq!(count.0.load(Relaxed), 1);
    }

    #[test]
    fn one_party_leaves_something_for_each_other() {
        let mut shares = Shares::default();
        let taken = fill(&mut shares, &claim(1, 1), 4096);
        assert!((3640..=3642).contains(&taken), "eight ninths: {taken}");
        // Another upstream of the same site, and another site, have what is left.
        let beside = fill(&mut shares, &claim(2, 1), 4096);
        assert!(beside > 200, "{beside}");
        assert!(fill(&mut shares, &claim(3, 2), 4096) > 100);
        // Whoever comes last still has one.
        let mut last = 0;
        for upstream in 100..5000 {
            last += u32::from(shares.enter(&claim(upstream, upstream), 4096, 0) == Entry::Place);
        }
        assert_eq!(last, 4900);
    }

    #[test]
    fn few_are_known_who_hold_nothing() {
        let mut shares = Shares::default();
        for party in 0..1000 {
            let claim = claim(party, party);
            assert_eq!(shares.enter(&claim, 4096, 0), Entry::Place);
        }
        for party in 0..1000 {
            let _ = shares.leave(&claim(party, party), 4096);
        }
        assert!(shares.taken == 0 && shares.held.len() <= KEPT, "{}", shares.held.len());
    }

    #[test]
    fn who_cannot_be_served_does_not_stand_before_who_can() {
        let (mut shares, hung, well) = (Shares::default(), claim(1, 1), claim(2, 2));
        fill(&mut shares, &hung, 8);
        assert!(matches!(shares.enter(&hung, 8, 9), Entry::Turn(_)));
        assert_eq!(shares.enter(&well, 8, 9), Entry::Place);
        let Entry::Turn(turn) = shares.enter(&well, 8, 9) else { panic!("no second place is free") };
        assert!(shares.leave(&well, 8).is_empty());
        assert!(shares.has_come(&well, turn, Waker::noop()), "the one that is sure of a place");
    }

    #[test]
    fn lines_share_their_room() {
        let (mut shares, hung, well) = (Shares::default(), claim(1, 1), claim(2, 2));
        fill(&mut shares, &hung, 8);
        let mut waiting = 0;
        while matches!(shares.enter(&hung, 8, 90), Entry::Turn(_)) {
            waiting += 1;
        }
        assert_eq!(waiting, 80);
        assert_eq!(shares.enter(&well, 8, 90), Entry::Place);
        assert!(matches!(shares.enter(&well, 8, 90), Entry::Turn(_)));
        assert_eq!(shares.enter(&hung, 8, 0), Entry::Full);
    }

    proptest! {
        /// However places are taken, left and given up: nobody waits who could be served, turns of a line come in
        /// order, no more are taken than there are but by those who are sure of one, and in the end all is free.
        #[test]
        fn places_are_neither_lost_nor_doubled(
            most in 1u32..12,
            length in 0u32..9,
            steps in proptest::collection::vec((0u8..4, 0usize..8, 0u64..3, 0u64..2), 1..200),
        ) {
            let mut shares = Shares::default();
            let (mut taken, mut turns) = (Vec::<Claim>::new(), Vec::<(Claim, u64)>::new());
            for (what, which, upstream, site) in steps {
                let claim = claim(upstream, site);
                match what {
                    0 | 1 => match shares.enter(&claim, most, length) {
                        Entry::Place => taken.push(claim),
                        Entry::Turn(turn) => turns.push((claim, turn)),
                        Entry::Full => prop_assert!(length == 0 || turns.iter().any(|(of, _)| *of == claim)),
                    },
                    2 if !taken.is_empty() => {
                        let left = taken.remove(which % taken.len());
                        let _ = shares.leave(&left, most);
                    }
                    3 if !turns.is_empty() => {
                        let (of, turn) = turns.remove(which % turns.len());
                        prop_assert!(shares.withdraw(&of, turn));
                    }
                    _ => {}
                }
                let mut come = Vec::new();
                turns.retain(|(of, turn)| {
                    let has_come = shares.has_come(of, *turn, Waker::noop());
                    if has_come {
                        come.push((*of, *turn));
                    }
                    !has_come
                });
                for (of, turn) in &come {
                    prop_assert!(turns.iter().all(|(other, later)| other != of || later > turn));
                    taken.push(*of);
                }
                for (of, _) in &turns {
                    prop_assert!(!shares.may_take(of, most));
                }
                prop_assert_eq!(shares.taken as usize, taken.len());
                prop_assert_eq!(shares.waiting as usize, turns.len());
                prop_assert!(taken.len() <= most as usize + 2, "three upstreams, of which one is within");
            }
            for (of, turn) in turns {
                prop_assert!(shares.withdraw(&of, turn));
            }
            for of in taken {
                let _ = shares.leave(&of, most);
            }
            prop_assert!(shares.held.values().all(|held| *held == 0));
            prop_assert!(shares.lines.is_empty() && shares.taken == 0 && shares.waiting == 0);
        }
    }
}
