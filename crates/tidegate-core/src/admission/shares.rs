//! Places that several parties share: nobody can take them all, and everybody is sure of one.
//!
//! A party may take a place while it holds less than a multiple (its [`Key::weight`]) of what is free. So the more one
//! holds, the less it may add, and something is always left: a party of weight 8 ends at eight ninths, two of them at
//! eight seventeenths each. No party has to be known beforehand, and what a party that is quiet could use is not lost
//! to the others (Choudhury, Hahne: Dynamic queue length thresholds for shared-memory packet switches, 1998). Whoever
//! holds nothing is let in even when everything is taken: there are no more such places than there are parties.
//!
//! Who finds no place waits in the line of its own claim, so that those who cannot be served yet never stand in front
//! of those who can. Free places go to the one who has waited longest among the first of all lines that may take one; where
//! the parties are known, before all others to one that holds nothing.
//!
//! The queue around it is [`turns`](super::turns). Before one application the parties are known, and the number is firm
//! ([`Sharing`]).

use smallvec::SmallVec;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// One of those who share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// A hash of what it is.
    pub party: u64,
    /// How many times what is free it may hold.
    pub weight: u32,
}

/// On whose account a place is taken. The first is the one that is sure of a place.
pub type Claim<const N: usize> = [Key; N];

/// Who shares, and whether the number of places is firm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Parties come from anywhere. Whoever holds nothing is sure of a place, also of one more than there are.
    #[default]
    Open,
    /// Members are known ([`Shares::join`]), each the only key of its claims, and there is never a place more: while one
    /// of them holds nothing, the last place is kept for it. A member that is alone may take everything. Who has left
    /// ([`Shares::part`]) keeps the places that it holds, and no place is kept for it.
    Among,
}

/// What asking for a place gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
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

/// So many are looked through one by one, which costs less than a hash where there are few.
const FEW: usize = 8;

/// How many places each party holds.
#[derive(Default)]
struct Held {
    /// No more than [`FEW`].
    few: SmallVec<[(u64, u32); FEW]>,
    /// Those that have found no room there.
    many: ByParty<u32>,
}

impl Held {
    #[inline]
    fn of(&self, party: u64) -> u32 {
        match self.few.iter().find(|(known, _)| *known == party) {
            Some((_, held)) => *held,
            None if self.many.is_empty() => 0,
            None => self.many.get(&party).copied().unwrap_or(0),
        }
    }

    /// One more; how many there were.
    #[inline]
    fn add(&mut self, party: u64) -> u32 {
        let known = self.few.iter_mut().find(|(known, _)| *known == party).map(|(_, held)| held);
        let held = match known {
            Some(held) => held,
            None => self.take_up(party),
        };
        *held += 1;
        *held - 1
    }

    fn take_up(&mut self, party: u64) -> &mut u32 {
        let free = self.few.iter().position(|(_, held)| *held == 0);
        let is_full = free.is_none() && self.few.len() >= FEW;
        if is_full || (!self.many.is_empty() && self.many.contains_key(&party)) {
            return self.many.entry(party).or_insert(0);
        }
        let at = match free {
            Some(at) => at,
            None => {
                self.few.push((party, 0));
                self.few.len() - 1
            }
        };
        let slot = &mut self.few[at];
        *slot = (party, 0);
        &mut slot.1
    }

    /// One less; how many are left. `None` where it held nothing.
    #[inline]
    fn sub(&mut self, party: u64) -> Option<u32> {
        if let Some((_, held)) = self.few.iter_mut().find(|(known, _)| *known == party) {
            *held = held.checked_sub(1)?;
            return Some(*held);
        }
        let is_kept = self.many.len() <= KEPT;
        let held = self.many.get_mut(&party)?;
        *held = held.checked_sub(1)?;
        let left = *held;
        if left == 0 && !is_kept {
            self.many.remove(&party);
        }
        Some(left)
    }
}

struct Line<const N: usize, W> {
    claim: Claim<N>,
    /// By rising number, which is the order of arrival. Never empty.
    waiting: VecDeque<(u64, W)>,
}

/// The places, and the lines before them: of who waits it keeps a `W`, such as a waker.
pub struct Shares<const N: usize, W> {
    sharing: Sharing,
    /// Those who share, where they are known.
    members: HashSet<u64, BuildHasherDefault<AsItIs>>,
    /// Members that hold nothing.
    idle: u32,
    taken: u32,
    held: Held,
    /// Who has left a place last.
    left_last: u64,
    lines: HashMap<[u64; N], Line<N, W>>,
    waiting: u32,
    numbers: u64,
}

impl<const N: usize, W> Default for Shares<N, W> {
    fn default() -> Self {
        Shares {
            sharing: Sharing::default(),
            members: HashSet::default(),
            idle: 0,
            taken: 0,
            held: Held::default(),
            left_last: 0,
            lines: HashMap::default(),
            waiting: 0,
            numbers: 0,
        }
    }
}

fn line_of<const N: usize>(claim: &Claim<N>) -> [u64; N] {
    claim.map(|key| key.party)
}

impl<const N: usize, W> Shares<N, W> {
    /// Says who shares. More may be free by it: see [`Shares::next`].
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// One more shares, where the members are known.
    pub fn join(&mut self, party: u64) {
        let holds_nothing = self.holds_nothing(party);
        if self.members.insert(party) && holds_nothing {
            self.idle += 1;
        }
    }

    /// A member has left. More may be free by it: see [`Shares::next`].
    pub fn part(&mut self, party: u64) {
        if self.members.remove(&party) && self.holds_nothing(party) {
            self.idle -= 1;
        }
    }

    fn holds_nothing(&self, party: u64) -> bool {
        self.held.of(party) == 0
    }

    /// Places taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Turns that have not come.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The first in each line, in no order.
    pub fn first_of_lines(&self) -> impl Iterator<Item = &W> {
        self.lines.values().filter_map(|line| line.waiting.front()).map(|(_, who)| who)
    }

    /// Takes one of `most` places, if there is one for this claim and nobody with the same waits.
    pub fn try_enter(&mut self, claim: &Claim<N>, most: u32) -> bool {
        let nobody_waits = self.waiting == 0 || !self.lines.contains_key(&line_of(claim));
        let may = nobody_waits && self.may_take(claim, most);
        if may {
            self.take(claim);
        }
        may
    }

    /// Asks for one of `most` places, or for a turn where no more than `length` wait.
    pub fn enter(&mut self, claim: &Claim<N>, most: u32, length: u32, who: impl FnOnce() -> W) -> Placement {
        if self.try_enter(claim, most) {
            return Placement::Place;
        }
        // The lines share their room as the places are shared.
        let line = self.lines.get(&line_of(claim)).map_or(0, |line| line.waiting.len());
        let free = length.saturating_sub(self.waiting);
        let is_full = match self.sharing {
            Sharing::Among if self.members.len() <= 1 => free == 0,
            _ => line > 0 && line as u64 >= u64::from(free) * weight(claim),
        };
        if length == 0 || is_full {
            return Placement::Full;
        }
        self.numbers += 1;
        self.waiting += 1;
        let number = self.numbers;
        let line = self.lines.entry(line_of(claim));
        let line = line.or_insert_with(|| Line { claim: *claim, waiting: VecDeque::new() });
        line.waiting.push_back((number, who()));
        Placement::Turn(number)
    }

    /// Who waits for this turn; `None` when it has come, and with it a place.
    pub fn find(&mut self, claim: &Claim<N>, number: u64) -> Option<&mut W> {
        let line = self.lines.get_mut(&line_of(claim))?;
        let at = line.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        line.waiting.get_mut(at).map(|(_, who)| who)
    }

    /// Gives up a turn. `None`: it has come meanwhile, and there is a place to be left.
    pub fn withdraw(&mut self, claim: &Claim<N>, number: u64) -> Option<W> {
        let line = self.lines.get_mut(&line_of(claim))?;
        let at = line.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let gone = line.waiting.remove(at);
        self.has_shrunk(&line_of(claim));
        gone.map(|(_, who)| who)
    }

    /// Leaves a place. It is to be given on: see [`Shares::next`].
    pub fn leave(&mut self, claim: &Claim<N>) {
        self.taken = self.taken.saturating_sub(1);
        self.left_last = claim.first().map_or(0, |key| key.party);
        for key in claim {
            if self.held.sub(key.party) == Some(0) {
                self.idle += u32::from(self.members.contains(&key.party));
            }
        }
    }

    /// Takes the next out of its line: of the first in each, the one that came first among those who may take a place
    /// now. It has the turn, and no place before [`Shares::take`]. `choose` may prefer another of the same line, by where it
    /// stands.
    pub fn next(
        &mut self,
        most: u32,
        choose: impl FnOnce(&VecDeque<(u64, W)>) -> usize,
    ) -> Option<(Claim<N>, u64, W)> {
        if self.waiting == 0 {
            return None;
        }
        let may = self.lines.values().filter(|line| self.may_take(&line.claim, most));
        let first = may.min_by_key(|line| {
            (self.precedence(&line.claim), line.waiting.front().map_or(u64::MAX, |(number, _)| *number))
        });
        let claim = first?.claim;
        let line = &mut self.lines.get_mut(&line_of(&claim))?.waiting;
        let (number, who) = line.remove(choose(line))?;
        self.has_shrunk(&line_of(&claim));
        Some((claim, number, who))
    }

    /// Takes the one out of its line who came last of all, whose turn does not come.
    pub fn pop_last(&mut self) -> Option<(u64, W)> {
        let last =
            self.lines.values().max_by_key(|line| line.waiting.back().map_or(0, |(number, _)| *number));
        let claim = last?.claim;
        let last = self.lines.get_mut(&line_of(&claim))?.waiting.pop_back();
        self.has_shrunk(&line_of(&claim));
        last
    }

    /// Takes a place for one whose turn has come.
    pub fn take(&mut self, claim: &Claim<N>) {
        self.taken += 1;
        for key in claim {
            if self.held.add(key.party) == 0 {
                self.idle -= u32::from(self.members.contains(&key.party));
            }
        }
    }

    /// One less waits in this line.
    fn has_shrunk(&mut self, line: &[u64; N]) {
        self.waiting -= 1;
        if self.lines.get(line).is_some_and(|line| line.waiting.is_empty()) {
            self.lines.remove(line);
        }
    }

    /// Which lines come first, whoever has waited longer. Among members those that hold nothing, for whom the last place is
    /// kept; of these not the one that has just left a place, or a pool of one process would be its for as long as it waits.
    fn precedence(&self, claim: &Claim<N>) -> u8 {
        match (self.sharing, claim.first()) {
            (Sharing::Among, Some(key)) if self.held.of(key.party) > 0 => 2,
            (Sharing::Among, Some(key)) => u8::from(key.party == self.left_last),
            _ => 0,
        }
    }

    fn may_take(&self, claim: &Claim<N>, most: u32) -> bool {
        let held = |key: &Key| u64::from(self.held.of(key.party));
        let within = |free: u32| claim.iter().all(|key| held(key) < u64::from(free) * u64::from(key.weight));
        let holds_nothing = claim.first().is_none_or(|key| held(key) == 0);
        let free = most.saturating_sub(self.taken);
        match self.sharing {
            Sharing::Open => holds_nothing || within(free),
            Sharing::Among if free == 0 => false,
            Sharing::Among if within(free - u32::from(self.idle > 0)) => true,
            Sharing::Among => {
                let is_member = claim.first().is_some_and(|key| self.members.contains(&key.party));
                let is_alone = self.members.len() <= usize::from(is_member);
                is_alone || (is_member && holds_nothing)
            }
        }
    }
}

fn weight<const N: usize>(claim: &Claim<N>) -> u64 {
    claim.first().map_or(1, |key| u64::from(key.weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Wake, Waker};

    type Two = Shares<2, Option<Waker>>;

    /// What `turns` does with them.
    impl Two {
        fn ask(&mut self, claim: &Claim<2>, most: u32, length: u32) -> Placement {
            self.enter(claim, most, length, || None)
        }

        fn has_come(&mut self, claim: &Claim<2>, number: u64, waker: &Waker) -> bool {
            self.find(claim, number).map(|known| *known = Some(waker.clone())).is_none()
        }

        fn give_on(&mut self, claim: &Claim<2>, most: u32) -> Vec<Waker> {
            self.leave(claim);
            let mut woken = Vec::new();
            while let Some((claim, _, waker)) = self.next(most, |_| 0) {
                self.take(&claim);
                woken.extend(waker);
            }
            woken
        }
    }

    fn claim(upstream: u64, site: u64) -> Claim<2> {
        [Key { party: upstream, weight: 8 }, Key { party: 1_000_000 + site, weight: 16 }]
    }

    fn fill(shares: &mut Two, claim: &Claim<2>, most: u32) -> u32 {
        let mut taken = 0;
        while shares.ask(claim, most, 0) == Placement::Place {
            taken += 1;
        }
        taken
    }

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let (mut shares, one) = (Two::default(), claim(1, 1));
        assert_eq!(shares.ask(&one, 1, 2), Placement::Place);
        let (first, second) = (shares.ask(&one, 1, 2), shares.ask(&one, 1, 2));
        let (Placement::Turn(first), Placement::Turn(second)) = (first, second) else { panic!("two turns") };
        assert_eq!(shares.ask(&one, 1, 2), Placement::Full);
        assert!(
            !shares.has_come(&one, first, Waker::noop()) && !shares.has_come(&one, second, Waker::noop())
        );
        assert_eq!(shares.give_on(&one, 1).len(), 1);
        assert!(shares.has_come(&one, first, Waker::noop()) && !shares.has_come(&one, second, Waker::noop()));
        assert!(shares.withdraw(&one, first).is_none(), "its place is taken until it is left");
        assert!(shares.withdraw(&one, second).is_some());
        assert!(shares.give_on(&one, 1).is_empty());
        assert_eq!(shares.ask(&one, 1, 2), Placement::Place);
    }

    #[test]
    fn who_waits_is_woken_once() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let (mut shares, one, count) = (Two::default(), claim(1, 1), Arc::new(Count(AtomicUsize::new(0))));
        shares.ask(&one, 1, 1);
        let Placement::Turn(turn) = shares.ask(&one, 1, 1) else { panic!("a turn") };
        let waker = Waker::from(count.clone());
        assert!(!shares.has_come(&one, turn, &waker) && !shares.has_come(&one, turn, &waker));
        shares.give_on(&one, 1).into_iter().for_each(Waker::wake);
        shares.give_on(&one, 1).into_iter().for_each(Waker::wake);
        assert_eq!(count.0.load(Relaxed), 1);
    }

    #[test]
    fn one_party_leaves_something_for_each_other() {
        let mut shares = Two::default();
        let taken = fill(&mut shares, &claim(1, 1), 4096);
        assert!((3640..=3642).contains(&taken), "eight ninths: {taken}");
        // Another upstream of the same site, and another site, have what is left.
        let beside = fill(&mut shares, &claim(2, 1), 4096);
        assert!(beside > 200, "{beside}");
        assert!(fill(&mut shares, &claim(3, 2), 4096) > 100);
        // Whoever comes last still has one.
        let mut last = 0;
        for upstream in 100..5000 {
            last += u32::from(shares.ask(&claim(upstream, upstream), 4096, 0) == Placement::Place);
        }
        assert_eq!(last, 4900);
    }

    #[test]
    fn few_are_known_who_hold_nothing() {
        let mut shares = Two::default();
        for party in 0..1000 {
            let claim = claim(party, party);
            assert_eq!(shares.ask(&claim, 4096, 0), Placement::Place);
        }
        for party in 0..1000 {
            let _ = shares.give_on(&claim(party, party), 4096);
        }
        let known = shares.held.few.len() + shares.held.many.len();
        assert!(shares.taken == 0 && known <= FEW + KEPT + 1, "{known}");
    }

    proptest! {
        /// Against a plain map, with more parties than are looked through one by one.
        #[test]
        fn counts_like_a_map(steps in proptest::collection::vec((0..60u64, any::<bool>()), 0..400)) {
            let (mut held, mut model) = (Held::default(), HashMap::<u64, u32>::new());
            for (party, is_taken) in steps {
                let count = model.entry(party).or_insert(0);
                if is_taken {
                    prop_assert_eq!(held.add(party), *count);
                    *count += 1;
                } else {
                    prop_assert_eq!(held.sub(party), count.checked_sub(1));
                    *count = count.saturating_sub(1);
                }
                prop_assert_eq!(held.of(party), *count);
                prop_assert!(held.few.len() <= FEW && !held.few.spilled());
            }
            for (party, count) in model {
                prop_assert_eq!(held.of(party), count);
            }
        }
    }

    #[test]
    fn who_cannot_be_served_does_not_stand_before_who_can() {
        let (mut shares, hung, well) = (Two::default(), claim(1, 1), claim(2, 2));
        fill(&mut shares, &hung, 8);
        assert!(matches!(shares.ask(&hung, 8, 9), Placement::Turn(_)));
        assert_eq!(shares.ask(&well, 8, 9), Placement::Place);
        let Placement::Turn(turn) = shares.ask(&well, 8, 9) else { panic!("no second place is free") };
        assert!(shares.give_on(&well, 8).is_empty());
        assert!(shares.has_come(&well, turn, Waker::noop()), "the one that is sure of a place");
    }

    #[test]
    fn lines_share_their_room() {
        let (mut shares, hung, well) = (Two::default(), claim(1, 1), claim(2, 2));
        fill(&mut shares, &hung, 8);
        let mut waiting = 0;
        while matches!(shares.ask(&hung, 8, 90), Placement::Turn(_)) {
            waiting += 1;
        }
        assert_eq!(waiting, 80);
        assert_eq!(shares.ask(&well, 8, 90), Placement::Place);
        assert!(matches!(shares.ask(&well, 8, 90), Placement::Turn(_)));
        assert_eq!(shares.ask(&hung, 8, 0), Placement::Full);
    }

    #[test]
    fn places_that_are_firm_keep_one_for_each_who_holds_none() {
        let site = |party| [Key { party, weight: 8 }];
        for (parties, most, alone, beside) in
            [(1, 4, 4, 0), (2, 4, 3, 1), (2, 2, 1, 1), (2, 1, 0, 1), (2, 64, 56, 8)]
        {
            let mut shares = Shares::<1, ()>::default();
            shares.set_sharing(Sharing::Among);
            (1..=parties).for_each(|party| shares.join(party));
            let mut fill = |party| (0..99).filter(|_| shares.try_enter(&site(party), most)).count();
            let first = if most == 1 { 0 } else { fill(1) };
            assert_eq!((first, fill(2)), (alone, beside), "{parties} parties, {most} places");
        }
        // All hold something: nothing is kept back.
        let mut shares = Shares::<1, ()>::default();
        shares.set_sharing(Sharing::Among);
        [1, 2].into_iter().for_each(|party| shares.join(party));
        assert!(shares.try_enter(&site(2), 4));
        assert_eq!((0..9).filter(|_| shares.try_enter(&site(1), 4)).count(), 3);
        assert_eq!(shares.enter(&site(1), 4, 1, || ()), Placement::Turn(1));
        assert_eq!(shares.enter(&site(1), 4, 1, || ()), Placement::Full);
        shares.leave(&site(2));
        assert!(shares.next(4, |_| 0).is_none(), "kept for the other, who has none now");
        assert!(shares.try_enter(&site(2), 4));
    }

    /// Of one place, and of several: a party with many who wait does not keep another waiting for all of them.
    #[test]
    fn who_holds_nothing_comes_before_who_came_first() {
        for most in [1, 2] {
            let mut shares = Shares::<1, Option<Waker>>::default();
            shares.set_sharing(Sharing::Among);
            let [many, few] = [1, 2].map(|party| [Key { party, weight: 8 }]);
            (1..=2).for_each(|party| shares.join(party));
            let ask = |shares: &mut Shares<1, _>, claim| shares.enter(claim, most, 64, || None);
            assert_eq!(ask(&mut shares, &many), Placement::Place);
            (0..9).for_each(|_| assert!(matches!(ask(&mut shares, &many), Placement::Turn(_))));
            if most == 2 {
                assert_eq!(ask(&mut shares, &few), Placement::Place);
            }
            assert!(matches!(ask(&mut shares, &few), Placement::Turn(_)));
            shares.leave(if most == 1 { &many } else { &few });
            let next = |shares: &mut Shares<1, _>| {
                let (claim, ..) = shares.next(most, |_| 0)?;
                shares.take(&claim);
                Some(claim[0].party)
            };
            assert_eq!(next(&mut shares), Some(2), "{most}");
            assert_eq!(next(&mut shares), None);
            // Each in turn, as long as both wait.
            shares.leave(&few);
            assert_eq!(next(&mut shares), if most == 1 { Some(1) } else { None }, "{most}");
        }
    }

    #[test]
    fn who_has_left_keeps_no_place_from_a_member() {
        let site = |party| [Key { party, weight: 8 }];
        let mut shares = Shares::<1, ()>::default();
        shares.set_sharing(Sharing::Among);
        [1, 2, 3].into_iter().for_each(|party| shares.join(party));
        assert!(shares.try_enter(&site(3), 4));
        shares.part(3); // and what it has in hand goes on
        assert_eq!((0..9).filter(|_| shares.try_enter(&site(1), 4)).count(), 2);
        assert!(!shares.try_enter(&site(3), 4), "the last one is not for who has left");
        assert!(shares.try_enter(&site(2), 4), "but for the member that holds none");
        // With its last place it is forgotten, and comes back as anybody does.
        shares.leave(&site(3));
        shares.join(3);
        assert!(!shares.try_enter(&site(1), 4), "kept for the one that has come");
        assert!(shares.try_enter(&site(3), 4));
        // Alone again, a member may take everything; another's places are left as before.
        [(1, 2), (3, 1)]
            .into_iter()
            .for_each(|(party, times)| (0..times).for_each(|_| shares.leave(&site(party))));
        [1, 3].into_iter().for_each(|party| shares.part(party));
        assert_eq!((0..9).filter(|_| shares.try_enter(&site(2), 4)).count(), 3);
    }

    proptest! {
        /// However members come and go, with places in hand or without: no place more than there are, and while a member
        /// holds none, one is free for it unless all were taken before it came.
        #[test]
        fn the_last_place_is_a_members_that_holds_none(
            most in 2u32..9,
            steps in proptest::collection::vec((0u8..4, 1u64..5), 1..200),
        ) {
            let mut shares = Shares::<1, ()>::default();
            shares.set_sharing(Sharing::Among);
            let (mut members, mut held) = (Vec::<u64>::new(), Vec::<u64>::new());
            for (what, party) in steps {
                let claim = [Key { party, weight: 8 }];
                match what {
                    0 if !members.contains(&party) => {
                        members.push(party);
                        shares.join(party);
                    }
                    1 => {
                        members.retain(|member| *member != party);
                        shares.part(party);
                    }
                    2 => {
                        let is_without = |member: &u64| !held.contains(member);
                        let others = members.iter().any(|member| *member != party && is_without(member));
                        let is_entitled = members.contains(&party) && is_without(&party);
                        let free = most - held.len() as u32;
                        let may = shares.try_enter(&claim, most);
                        prop_assert!(!may || free > 0);
                        prop_assert!(!may || is_entitled || !others || free > 1, "the last one is kept");
                        prop_assert!(may || !is_entitled || free == 0, "who holds none gets it");
                        if may {
                            held.push(party);
                        }
                    }
                    _ => {
                        if let Some(at) = held.iter().position(|of| *of == party) {
                            held.remove(at);
                            shares.leave(&claim);
                        }
                    }
                }
                let idle = members.iter().filter(|member| !held.contains(member)).count();
                prop_assert_eq!((shares.taken as usize, shares.idle as usize), (held.len(), idle));
            }
        }
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
            let mut shares = Two::default();
            let (mut taken, mut turns) = (Vec::<Claim<2>>::new(), Vec::<(Claim<2>, u64)>::new());
            for (what, which, upstream, site) in steps {
                let claim = claim(upstream, site);
                match what {
                    0 | 1 => match shares.ask(&claim, most, length) {
                        Placement::Place => taken.push(claim),
                        Placement::Turn(turn) => turns.push((claim, turn)),
                        Placement::Full => prop_assert!(length == 0 || turns.iter().any(|(of, _)| *of == claim)),
                    },
                    2 if !taken.is_empty() => {
                        let left = taken.remove(which % taken.len());
                        let _ = shares.give_on(&left, most);
                    }
                    3 if !turns.is_empty() => {
                        let (of, turn) = turns.remove(which % turns.len());
                        prop_assert!(shares.withdraw(&of, turn).is_some());
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
                prop_assert!(shares.withdraw(&of, turn).is_some());
            }
            for of in taken {
                let _ = shares.give_on(&of, most);
            }
            let few = shares.held.few.iter().map(|(_, held)| held);
            prop_assert!(few.chain(shares.held.many.values()).all(|held| *held == 0));
            prop_assert!(shares.lines.is_empty() && shares.taken == 0 && shares.waiting == 0);
        }
    }
}
