//! What samples prove. Pure functions; the sample is the run, never the request.
//!
//! Requests of one run depend on each other: they share a cache, a schedule, a neighbour on the machine. Runs
//! in randomised blocks do so less, so comparisons take one figure from each run.

use crate::random::Random;
use statrs::distribution::{ContinuousCDF, Normal};

/// The middle value; the mean of the two middle ones of an even number. NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => (sorted.get(middle - 1).unwrap_or(upper) + upper) / 2.0,
        (Some(middle), _) => *middle,
        (None, _) => f64::NAN,
    }
}

/// A value that a share of `share` does not exceed (nearest rank). NaN of nothing.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(f64::NAN)
}

/// How many observations at the start belong to the warm-up: MSER-5 (White, Cobb and Spratt, 2000). The series
/// is cut where what remains, in means of five, has the smallest standard error; never more than half of it.
pub fn warmup_length(series: &[f64]) -> usize {
    let means: Vec<f64> =
        series.chunks_exact(5).map(|batch| batch.iter().sum::<f64>() / batch.len() as f64).collect();
    let mut best = (f64::INFINITY, 0);
    for cut in 0..=means.len() / 2 {
        let rest = means.get(cut..).unwrap_or_default();
        if rest.len() < 2 {
            break;
        }
        let count = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / count;
        let statistic = rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count * count);
        if statistic < best.0 {
            best = (statistic, cut);
        }
    }
    best.1 * 5
}

/// An estimate and the interval that holds the truth with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Figures of the runs of one ABBA block.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Of the first subject.
    pub a: Vec<f64>,
    /// Of the second.
    pub b: Vec<f64>,
}

const RESAMPLES: usize = 4_000;

/// The ratio of the medians, B to A, with a percentile bootstrap over whole blocks: what the blocks share stays
/// shared.
pub fn median_ratio(blocks: &[Block], seed: u64) -> Estimate {
    let ratio = |chosen: &mut dyn Iterator<Item = &Block>| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for block in chosen {
            a.extend_from_slice(&block.a);
            b.extend_from_slice(&block.b);
        }
        median(&b) / median(&a)
    };
    let value = ratio(&mut blocks.iter());
    if blocks.len() < 2 {
        return Estimate { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let mut random = Random::new(seed, 2);
    let ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let numbers: Vec<usize> = blocks.iter().map(|_| random.below(blocks.len())).collect();
            ratio(&mut numbers.iter().filter_map(|number| blocks.get(*number)))
        })
        .collect();
    Estimate { value, low: quantile(&ratios, 0.025), high: quantile(&ratios, 0.975) }
}

/// The difference that the same subject shows against itself: the 95 % point of how far the medians of two
/// random halves of its runs lie apart, as a share. What is smaller than this is noise.
pub fn noise_floor(runs: &[f64], seed: u64) -> f64 {
    if runs.len() < 4 {
        return f64::INFINITY;
    }
    let mut random = Random::new(seed, 3);
    let mut shuffled = runs.to_vec();
    let apart: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            random.shuffle(&mut shuffled);
            let (one, other) = shuffled.split_at(shuffled.len() / 2);
            (median(one) / median(other) - 1.0).abs()
        })
        .collect();
    quantile(&apart, 0.95)
}

/// The two-sided p value of the Mann-Whitney U test. Exact up to 20 runs a side without ties, else by the
/// normal approximation with corrections for ties and continuity.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let (n, m) = (a.len(), b.len());
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|value| (*value, true)).chain(b.iter().map(|value| (*value, false))).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Ranks; those of equal values are their mean.
    let (mut rank_sum, mut ties, mut first) = (0.0, 0.0, 0);
    while let Some((value, _)) = all.get(first).copied() {
        let count = all.iter().skip(first).take_while(|(other, _)| *other == value).count();
        let rank = first as f64 + (count as f64 + 1.0) / 2.0;
        let of_a = all.iter().skip(first).take(count).filter(|(_, is_a)| *is_a).count();
        rank_sum += rank * of_a as f64;
        ties += (count as f64).powi(3) - count as f64;
        first += count;
    }
    let u = rank_sum - (n * (n + 1)) as f64 / 2.0;
    if ties == 0.0 && n <= 20 && m <= 20 {
        return exact_p(n, m, u.min((n * m) as f64 - u) as usize);
    }
    let (n, m) = (n as f64, m as f64);
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    2.0 * (1.0 - Normal::standard().cdf(distance / variance.sqrt()))
}

/// Twice the probability of a U of at most `u`: the arrangements are counted, as Mann and Whitney did.
fn exact_p(n: usize, m: usize, u: usize) -> f64 {
    let most = n * m;
    // Arrangements of i of A and j of B by U.
    let mut counts = vec![vec![vec![0.0f64; most + 1]; m + 1]; n + 1];
    for i in 0..=n {
        for j in 0..=m {
            for value in 0..=i * j {
                let here = if i == 0 || j == 0 {
                    f64::from(u8::from(value == 0))
                } else {
                    // The largest is of A, which then beats all j of B, or of B.
                    let with_a = if value >= j { counts[i - 1][j][value - j] } else { 0.0 };
                    with_a + counts[i][j - 1][value]
                };
                counts[i][j][value] = here;
            }
        }
    }
    let total: f64 = counts[n][m].iter().sum();
    let tail: f64 = counts[n][m].iter().take(u + 1).sum();
    (2.0 * tail / total).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan() && quantile(&[], 0.5).is_nan());
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 1.0), 4.0);
    }

    #[test]
    fn the_warm_up_is_found() {
        let mut random = Random::new(5, 0);
        let series: Vec<f64> =
            (0..200).map(|n| 10.0 + random.unit() + if n < 30 { f64::from(30 - n) } else { 0.0 }).collect();
        let cut = warmup_length(&series);
        assert!((25..=40).contains(&cut), "{cut}");
        let steady: Vec<f64> = (0..200).map(|_| 10.0 + random.unit()).collect();
        assert!(warmup_length(&steady) <= 40);
        assert_eq!(warmup_length(&[1.0; 4]), 0);
    }

    #[test]
    fn mann_whitney_as_published() {
        // scipy.stats.mannwhitneyu([1,2,3,4], [5,6,7,8], method="exact"): 2/70.
        let p = mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]);
        assert!((p - 2.0 / 70.0).abs() < 1e-12, "{p}");
        // The ages of the example in scipy's manual: U = 17 of n = 4 and m = 5, exact p = 0.1111.
        let p = mann_whitney(&[20.0, 11.0, 17.0, 12.0], &[19.0, 22.0, 16.0, 29.0, 24.0]);
        assert!((p - 0.111_111).abs() < 1e-5, "{p}");
        assert_eq!(mann_whitney(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
        // With ties, by approximation: equal groups differ by nothing.
        let p = mann_whitney(&[1.0, 2.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 2.0, 3.0, 4.0]);
        assert!(p > 0.9, "{p}");
    }

    fn blocks(factor: f64, noise: f64, count: usize) -> Vec<Block> {
        let mut random = Random::new(2, 0);
        let mut draw = |scale: f64| scale * (1.0 + noise * (random.unit() - 0.5));
        (0..count)
            .map(|_| Block { a: vec![draw(100.0), draw(100.0)], b: vec![draw(factor), draw(factor)] })
            .collect()
    }

    #[test]
    fn a_difference_is_found_and_noise_is_not() {
        let seen = median_ratio(&blocks(110.0, 0.04, 8), 1);
        assert!(seen.low > 1.05 && seen.high < 1.15 && (seen.value - 1.1).abs() < 0.03, "{seen:?}");
        let nothing = median_ratio(&blocks(100.0, 0.1, 8), 1);
        assert!(nothing.low < 1.0 && nothing.high > 1.0, "{nothing:?}");
        assert_eq!(median_ratio(&blocks(100.0, 0.1, 1), 1).high, f64::INFINITY);
        let runs: Vec<f64> = blocks(100.0, 0.1, 8).iter().flat_map(|block| block.a.clone()).collect();
        let floor = noise_floor(&runs, 1);
        assert!((0.005..0.1).contains(&floor), "{floor}");
        assert_eq!(noise_floor(&[1.0, 2.0], 1), f64::INFINITY);
    }
}
