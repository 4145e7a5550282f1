//! Which operation a user does next: a matrix of transitions (Markov), independent draws (flat), or a row that repeats.

use crate::random::Random;

/// Which operation follows which. Operations are numbers in the order of the scenario.
#[derive(Debug, Clone, PartialEq)]
pub enum Mix {
    /// The next one depends on the last.
    Matrix {
        /// What a user begins with.
        start: usize,
        /// For each operation the probabilities of those that follow, which add up to 1.
        rows: Vec<Vec<f64>>,
    },
    /// Each is drawn by its share, whatever was before; they add up to 1.
    Flat(Vec<f64>),
    /// Always in this order, and again from the beginning.
    Sequence(Vec<usize>),
}

/// The share of an operation that is as good as never due: what is left of one that nothing leads back to.
pub(super) const NEVER: f64 = 1e-9;

/// Why an operation is never due in the steady time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// Its share is nothing, and nothing leads to it.
    Unreached,
    /// Users that stay come to it in the beginning, and nothing leads back to it.
    Left,
    /// It comes later than a visit of so many operations goes.
    Beyond(u32),
}

impl Absence {
    /// In words, of the operation of a name.
    pub fn sentence(self, name: &str) -> String {
        match self {
            Absence::Unreached => format!("no user ever comes to `{name}`"),
            Absence::Left => format!("users leave `{name}` for good: nothing leads back to it"),
            Absence::Beyond(1) => format!("no visit of one operation comes to `{name}`"),
            Absence::Beyond(operations) => format!("no visit of {operations} operations comes to `{name}`"),
        }
    }
}

/// Rounds of the power iteration: far more than a chain of a thousand operations needs.
const ROUNDS: usize = 20_000;

impl Mix {
    /// What user begins with, and where a sequence then is.
    pub(crate) fn first(&self, random: &mut Random) -> (usize, usize) {
        match self {
            Mix::Matrix { start, .. } => (*start, 0),
            Mix::Flat(shares) => (draw(shares, random), 0),
            Mix::Sequence(order) => (order.first().copied().unwrap_or(0), 0),
        }
    }

    /// What follows `last`, and the new place in a sequence.
    pub(crate) fn next(&self, last: usize, place: usize, random: &mut Random) -> (usize, usize) {
        match self {
            Mix::Matrix { start, rows } => (rows.get(last).map_or(*start, |row| draw(row, random)), 0),
            Mix::Flat(shares) => (draw(shares, random), 0),
            Mix::Sequence(order) => {
                let place = (place + 1) % order.len().max(1);
                (order.get(place).copied().unwrap_or(0), place)
            }
        }
    }

    /// The share of each of `count` operations in the long run; of a matrix its stationary distribution.
    pub fn shares(&self, count: usize) -> Vec<f64> {
        match self {
            Mix::Matrix { start, rows } => stationary(*start, rows),
            Mix::Flat(shares) => shares.clone(),
            Mix::Sequence(order) => {
                let mut shares = vec![0.0; count];
                for operation in order {
                    if let Some(share) = shares.get_mut(*operation) {
                        *share += 1.0 / order.len() as f64;
                    }
                }
                shares
            }
        }
    }

    /// The share of each of `count` operations in walks of so many from the beginning.
    pub(crate) fn shares_of_visit(&self, count: usize, operations: u32) -> Vec<f64> {
        match self {
            Mix::Flat(shares) => shares.clone(),
            Mix::Sequence(order) => {
                let mut shares = vec![0.0; count];
                for operation in order.iter().cycle().take(operations as usize) {
                    if let Some(share) = shares.get_mut(*operation) {
                        *share += 1.0 / f64::from(operations);
                    }
                }
                shares
            }
            Mix::Matrix { start, rows } => {
                let mut at = vec![0.0; count];
                if let Some(first) = at.get_mut(*start) {
                    *first = 1.0;
                }
                let mut shares = vec![0.0; count];
                for _ in 0..operations {
                    let mut next = vec![0.0; count];
                    for ((share, here), row) in shares.iter_mut().zip(&at).zip(rows) {
                        *share += here / f64::from(operations);
                        for (to, probability) in next.iter_mut().zip(row) {
                            *to += here * probability;
                        }
                    }
                    at = next;
                }
                shares
            }
        }
    }

    /// Which of `count` operations any user ever comes to, if only once.
    pub fn reached(&self, count: usize) -> Vec<bool> {
        let mut reached = vec![false; count];
        let mut due = match self {
            Mix::Matrix { start, .. } => vec![*start],
            Mix::Flat(shares) => {
                (0..shares.len()).filter(|at| shares.get(*at).is_some_and(|share| *share > 0.0)).collect()
            }
            Mix::Sequence(order) => order.clone(),
        };
        while let Some(at) = due.pop() {
            let Some(known) = reached.get_mut(at).filter(|known| !**known) else { continue };
            *known = true;
            if let Mix::Matrix { rows, .. } = self {
                let row = rows.get(at).into_iter().flatten().enumerate();
                due.extend(row.filter(|(_, share)| **share > 0.0).map(|(to, _)| to));
            }
        }
        reached
    }

    /// In a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Mix::Matrix { .. } => "matrix",
            Mix::Flat(_) => "flat",
            Mix::Sequence(_) => "sequence",
        }
    }
}

/// One of several by their shares.
fn draw(shares: &[f64], random: &mut Random) -> usize {
    // In [0, 1), so that a share of nothing is never drawn.
    let mut left = 1.0 - random.unit();
    for (number, share) in shares.iter().enumerate() {
        if left < *share {
            return number;
        }
        left -= share;
    }
    shares.iter().rposition(|share| *share > 0.0).unwrap_or(0)
}

/// The stationary distribution, by iterating the lazy chain `(I + P) / 2`: it has the same one and never alternates.
fn stationary(start: usize, rows: &[Vec<f64>]) -> Vec<f64> {
    let mut shares = vec![0.0; rows.len()];
    if let Some(first) = shares.get_mut(start) {
        *first = 1.0;
    }
    for _ in 0..ROUNDS {
        let mut next: Vec<f64> = shares.iter().map(|share| share / 2.0).collect();
        for (share, row) in shares.iter().zip(rows) {
            for (to, probability) in next.iter_mut().zip(row) {
                *to += share * probability / 2.0;
            }
        }
        let moved: f64 = shares.iter().zip(&next).map(|(before, after)| (before - after).abs()).sum();
        shares = next;
        if moved < 1e-13 {
            break;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix of the documents: Home, Login, TagSearch, EventDetail, PersonDetail, AddPerson, AddEvent.
    pub(crate) fn events() -> Mix {
        let rows = [
            [0, 11, 52, 36, 0, 1, 0],
            [0, 0, 60, 20, 0, 0, 20],
            [21, 6, 41, 31, 0, 1, 0],
            [72, 21, 0, 0, 6, 1, 0],
            [52, 6, 0, 31, 11, 0, 0],
            [0, 0, 0, 0, 100, 0, 0],
            [0, 0, 0, 100, 0, 0, 0],
        ];
        let rows = rows.map(|row| row.map(|percent| f64::from(percent) / 100.0).to_vec());
        Mix::Matrix { start: 0, rows: rows.to_vec() }
    }

    #[test]
    fn the_stationary_shares_of_the_documents() {
        let expected = [26.15, 10.22, 33.45, 24.68, 2.61, 0.84, 2.04];
        let shares = events().shares(7);
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share * 100.0 - expected).abs() < 0.006, "{shares:?}");
        }
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_walk_has_the_shares() {
        let tables = [events(), Mix::Flat(vec![0.5, 0.2, 0.3, 0.0]), Mix::Sequence(vec![0, 1, 0, 2])];
        for mix in tables {
            let count = if matches!(mix, Mix::Matrix { .. }) { 7 } else { 4 };
            let shares = mix.shares(count);
            let mut random = Random::new(3, 1);
            let (mut at, mut place) = mix.first(&mut random);
            let mut seen = vec![0.0; count];
            let walk = 400_000;
            for _ in 0..walk {
                seen[at] += 1.0 / f64::from(walk);
                (at, place) = mix.next(at, place, &mut random);
            }
            for (seen, share) in seen.iter().zip(&shares) {
                assert!((seen - share).abs() < 0.005, "{mix:?}: {seen} {share}");
            }
        }
    }

    #[test]
    fn a_visit_has_the_shares_of_its_length() {
        let matrix = Mix::Matrix {
            start: 0,
            rows: vec![vec![0.0, 1.0, 0.0], vec![0.0, 0.5, 0.5], vec![0.0, 0.0, 1.0]],
        };
        let table = [
            (matrix.clone(), 1, vec![1.0, 0.0, 0.0]),
            (matrix.clone(), 2, vec![0.5, 0.5, 0.0]),
            (matrix, 4, vec![0.25, 0.4375, 0.3125]),
            (Mix::Flat(vec![0.2, 0.8, 0.0]), 3, vec![0.2, 0.8, 0.0]),
            (Mix::Sequence(vec![0, 1]), 2, vec![0.5, 0.5, 0.0]),
            (Mix::Sequence(vec![0, 1]), 5, vec![0.6, 0.4, 0.0]),
            (Mix::Sequence(vec![2]), 1, vec![0.0, 0.0, 1.0]),
        ];
        for (mix, operations, expected) in table {
            let shares = mix.shares_of_visit(3, operations);
            let is_right = shares.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-9);
            assert!(is_right, "{mix:?} by {operations}: {shares:?}");
        }
        // What is walked long enough is as what is never left.
        for (one, other) in events().shares_of_visit(7, 100_000).iter().zip(events().shares(7)) {
            assert!((one - other).abs() < 1e-4, "{one} {other}");
        }
    }

    #[test]
    fn who_logs_in_once_is_reached() {
        let mix = Mix::Matrix {
            start: 0,
            rows: vec![vec![0.0, 1.0, 0.0], vec![0.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]],
        };
        assert_eq!(mix.reached(3), [true, true, false]);
        assert_eq!(Mix::Flat(vec![1.0, 0.0]).reached(2), [true, false]);
        assert_eq!(Mix::Sequence(vec![1]).reached(2), [false, true]);
    }

    #[test]
    fn a_chain_that_alternates_has_shares_too() {
        let mix = Mix::Matrix { start: 0, rows: vec![vec![0.0, 1.0], vec![1.0, 0.0]] };
        assert_eq!(
            mix.shares(2).iter().map(|share| (share * 100.0).round()).collect::<Vec<_>>(),
            [50.0, 50.0]
        );
    }
}
