//! Whole requests by what they were: of each route a chain of histograms, one for each [`AnswerKey`] that it has had.
//!
//! The last kind is remembered, so that the next answer of the same kind costs a comparison; any other is looked for in the chain.
//! A kind that is new takes a histogram from the store as long as a quarter of them is left for those who have none, up to
//! [`KINDS`] for each route. Beyond that it is counted as [`AnswerKey::rest`], and without any histogram left one that the
//! route or its site has becomes that: times are told, and what they were of is not.

use super::{BLOCKS, Block, Elapsed, Rest, SeriesTable, Store};
use crate::histogram::Distribution;
use crate::series::answer::AnswerKey;
use crate::series::table::Answered;
use crate::table::Reading;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Kinds of answers of a route, in a worker.
pub(super) const KINDS: usize = 32;

/// How many histograms are left: enough for anybody; for those who have none; none.
pub(super) const PLENTY: u8 = 0;
const SPARE: u8 = 1;
const NONE: u8 = 2;

/// The bit of keys of what took steps: its first byte was timed on its own.
const IN_STEPS: u32 = 1 << 18;

/// What is remembered of the last answer: its key, and below it the number of its histogram. Both fill 32 bits.
const HANDLE_BITS: u32 = 13;
const HANDLE: u16 = (1 << HANDLE_BITS) - 1;
const _: () = assert!(BLOCKS <= HANDLE as usize && IN_STEPS.leading_zeros() >= HANDLE_BITS);

/// What a chain has counted.
#[derive(Default)]
pub(super) struct Answers {
    /// All of it.
    pub total: Distribution,
    /// What was answered at once: its first byte took as long.
    pub at_once: Distribution,
    /// By what it was: what was answered at once and what was not, apart.
    pub by_kind: Vec<(AnswerKey, Distribution)>,
}

impl SeriesTable {
    /// Counts the time of a request that has ended.
    #[inline]
    pub(super) fn count_answer(&self, rest: &Rest, answered: &Answered) {
        let key = AnswerKey::new(answered.kind, answered.status).number();
        let (key, last) = match answered.has_first_byte {
            false => (key, &rest.last[0]),
            true => (key | IN_STEPS, &rest.last[1]),
        };
        let known = last.load(Relaxed);
        let handle = known as u16 & HANDLE;
        if known >> HANDLE_BITS == key
            && let Some(block) = self.block(handle)
        {
            return self.count(handle, block, answered.elapsed);
        }
        self.look_up(rest, last, key, answered.elapsed);
    }

    /// Counts an answer of another kind than the last.
    #[inline(never)]
    fn look_up(&self, rest: &Rest, last: &AtomicU32, key: u32, elapsed: Elapsed) {
        if let Some((handle, block)) = self.find_or_make(rest, key) {
            last.store(key << HANDLE_BITS | u32::from(handle), Relaxed);
            return self.count(handle, block, elapsed);
        }
        self.folded.add(1);
        if let Some((handle, block)) = self.site_of(rest).and_then(|of_site| self.find_or_make(of_site, key))
        {
            self.count(handle, block, elapsed);
        }
    }

    fn find_or_make(&self, rest: &Rest, key: u32) -> Option<(u16, &Block)> {
        let find = |key| self.answers(rest).find(|(_, block)| block.key.load(Relaxed) == key);
        let general = AnswerKey::of(key).rest().number() | key & IN_STEPS;
        let may_be_new = || self.room.load(Relaxed) == PLENTY && self.answers(rest).count() < KINDS;
        find(key)
            .or_else(|| if may_be_new() { self.make(rest, key, SPARE) } else { None })
            .or_else(|| find(general))
            .or_else(|| if self.room.load(Relaxed) == NONE { None } else { self.make(rest, general, NONE) })
            .or_else(|| self.generalise(rest, general))
    }

    /// Takes a histogram from the store, unless as few are left as `bound` says.
    #[cold]
    fn make(&self, rest: &Rest, key: u32, bound: u8) -> Option<(u16, &Block)> {
        let mut store = self.store();
        let room = store.room();
        self.room.store(room, Relaxed);
        if room >= bound {
            return None;
        }
        let handle = store.take()?;
        let block = self.block(handle)?;
        block.key.store(key, Relaxed);
        block.next.store(rest.first.load(Relaxed), Relaxed);
        rest.first.store(handle, Relaxed);
        Some((handle, block))
    }

    /// Has a histogram be one of several kinds.
    #[cold]
    fn generalise(&self, rest: &Rest, general: u32) -> Option<(u16, &Block)> {
        let _reader = self.store(); // sees one or the other
        let is_general = |key: u32| AnswerKey::of(key).rest() == AnswerKey::of(key);
        let alike = || {
            let keyed = self.answers(rest).map(|found| (found.1.key.load(Relaxed), found));
            keyed.filter(|(key, _)| key & IN_STEPS == general & IN_STEPS)
        };
        // One that is general already stays what it is: a count that changed its name back and forth would be none.
        if let Some((_, found)) = alike().find(|(key, _)| is_general(*key)) {
            return Some(found);
        }
        let (_, found) = alike().next()?;
        found.1.key.store(general, Relaxed);
        rest.last.iter().for_each(|last| last.store(0, Relaxed));
        Some(found)
    }

    /// The chain of a route.
    pub(super) fn answers<'t>(&'t self, rest: &Rest) -> impl Iterator<Item = (u16, &'t Block)> {
        let of = |handle: u16| self.block(handle).map(|block| (handle, block));
        let first = of(rest.first.load(Relaxed));
        std::iter::successors(first, move |(_, block)| of(block.next.load(Relaxed)))
    }

    /// What it has counted.
    pub(super) fn answers_of(&self, store: &Store, rest: &Rest) -> Answers {
        let mut answers = Answers::default();
        for (handle, block) in self.answers(rest) {
            let number = block.key.load(Relaxed);
            let times = self.distribution(store, handle, block);
            answers.total.merge(&times);
            if number & IN_STEPS == 0 {
                answers.at_once.merge(&times);
            }
            answers.by_kind.push((AnswerKey::of(number), times));
        }
        answers
    }
}

impl Store {
    fn room(&self) -> u8 {
        match self.made - self.used.min(self.made) {
            0 => NONE,
            left if left <= self.made / 4 => SPARE,
            _ => PLENTY,
        }
    }
}
