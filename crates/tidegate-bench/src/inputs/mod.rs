//! What a load is made of: trees of files to be served, and lists of URLs by how often each is asked for. Equal seeds give
//! equal bytes.

mod sizes;
mod tree;
mod visits;

pub use sizes::{Sizes, SizesSyntax};
pub use tree::{Popularity, PopularitySyntax, Tree, TreeError, Written};
pub use visits::{Visits, VisitsError};

/// The most that the weights of a list may add up to; a run holds a place for each.
const MOST_WEIGHT: u64 = 1_000_000;

/// Counts brought to weights of at least 1, in the same proportion, that add up to no more than a run can hold.
fn weights(counts: &[u64]) -> Vec<u32> {
    let total: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    // Each may be rounded up by one.
    let room = MOST_WEIGHT.saturating_sub(counts.len() as u64).max(1);
    let scale = if total > room { room as f64 / total as f64 } else { 1.0 };
    counts.iter().map(|count| ((*count as f64 * scale).round() as u32).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_proportions_and_fit() {
        assert_eq!(weights(&[3, 1]), [3, 1]);
        let large = weights(&[3_000_000_000, 1_000_000_000, 1]);
        assert_eq!(large[2], 1);
        assert!((f64::from(large[0]) / f64::from(large[1]) - 3.0).abs() < 1e-3, "{large:?}");
        let many = weights(&vec![1_000; 500_000]);
        assert!(many.iter().map(|weight| u64::from(*weight)).sum::<u64>() <= MOST_WEIGHT);
        assert!(weights(&[u64::MAX, u64::MAX]).iter().all(|weight| *weight > 0));
    }
}
