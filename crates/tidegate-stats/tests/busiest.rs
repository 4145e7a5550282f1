//! The sketch of the busiest names against exact counts of the same streams.

use proptest::prelude::*;
use std::collections::HashMap;
use tidegate_stats::busiest::{Frequency, Sketch, Sum};

type Exact = HashMap<Vec<u8>, u64>;

fn count(sketch: &mut Sketch, exact: &mut Exact, stream: &[(u16, u64)]) {
    for (name, weight) in stream {
        let name = format!("/{name}").into_bytes();
        sketch.add(&name, *weight);
        *exact.entry(name).or_default() += weight;
    }
}

/// What is promised of names, some of which are kept.
fn check<'n>(
    exact: &Exact,
    (total, bound): (u64, u64),
    kept: impl Iterator<Item = (&'n [u8], Frequency)>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(total, exact.values().sum::<u64>());
    let kept: HashMap<&[u8], Frequency> = kept.collect();
    for (name, Frequency { count, error, .. }) in &kept {
        let truth = exact.get(*name).copied().unwrap_or(0);
        prop_assert!(truth <= *count && truth >= count - error, "{truth} of {count} less {error}");
        prop_assert!(*error <= bound, "{error} above {bound}");
    }
    for (name, truth) in exact {
        prop_assert!(
            *truth <= bound || kept.contains_key(name.as_slice()),
            "{truth} above {bound} is not kept"
        );
    }
    Ok(())
}

/// Few names that come often, and many that come seldom.
fn streams() -> impl Strategy<Value = Vec<(u16, u64)>> {
    let name = prop_oneof![0..8u16, 0..100u16, any::<u16>()];
    prop::collection::vec((name, 1..20u64), 0..600)
}

proptest! {
    #[test]
    fn counts_are_within_their_errors(kept in 1..40usize, stream in streams()) {
        let (mut sketch, mut exact) = (Sketch::new(kept, 32), Exact::new());
        count(&mut sketch, &mut exact, &stream);
        prop_assert!(sketch.bound() <= sketch.total() / kept as u64);
        prop_assert!(sketch.names().count() <= kept);
        check(&exact, (sketch.total(), sketch.bound()), sketch.names())?;
        sketch.clear();
        prop_assert_eq!((sketch.total(), sketch.bound(), sketch.names().count()), (0, 0, 0));
        let mut exact = Exact::new();
        count(&mut sketch, &mut exact, &stream);
        check(&exact, (sketch.total(), sketch.bound()), sketch.names())?;
    }

    #[test]
    fn sums_of_sketches_are_within_their_errors(kept in 1..20usize, parts in prop::collection::vec(streams(), 1..4)) {
        let (mut sum, mut exact) = (Sum::default(), Exact::new());
        for part in &parts {
            let mut sketch = Sketch::new(kept, 32);
            count(&mut sketch, &mut exact, part);
            sum.add(sketch.total(), sketch.bound(), sketch.names());
        }
        let all = sum.top(usize::MAX);
        check(&exact, (sum.total(), sum.bound()), all.iter().copied())?;
        let sure: Vec<u64> = all.iter().map(|(_, of)| of.sure()).collect();
        prop_assert!(sure.is_sorted_by(|one, other| one >= other), "the busiest first");
        prop_assert!(sum.top(3).len() <= 3);
    }
}

#[test]
fn long_names_are_cut_off() {
    let mut sketch = Sketch::new(4, 3);
    for name in [&b"abcd"[..], b"abce", b"abc", b"ab", b""] {
        sketch.add(name, 1);
    }
    let mut names: Vec<(&[u8], u64)> = sketch.names().map(|(name, of)| (name, of.count)).collect();
    names.sort_unstable();
    assert_eq!(names, [(&b""[..], 1), (b"ab", 1), (b"abc", 3)]);
}
