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

/// Figures of the runs of one ABBA block.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Of the first subject.
    pub a: Vec<f64>,
    /// Of the second.
    pub b: Vec<f64>,
}

/// What blocks of runs say of the ratio of the second subject to the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio that the runs speak against least.
    pub value: f64,
    /// How likely runs that lie so far apart are where the subjects are the same; two-sided.
    pub p: f64,
    /// The ratios that a test at 5 % does not reject: least and most.
    pub interval: (f64, f64),
    /// Those that a test at 10 % does not reject. That it lies within a margin is a proof of sameness at 5 %
    /// (two one-sided tests; Schuirmann, 1987).
    pub narrow: (f64, f64),
}

impl Ratio {
    /// Of figures over 0. Each block is set to its own mean first, so that a machine that gets slower from block to
    /// block, or was slow during one, takes nothing away; then ranks decide, so that one run gone wrong does not
    /// (aligned ranks; Hodges and Lehmann, 1962). The interval holds what the test does not reject.
    pub fn new(blocks: &[Block]) -> Ratio {
        let logs = logarithms(blocks);
        let all = || logs.iter().flat_map(|block| block.a.iter().chain(&block.b));
        let (least, most) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
        let reach = (most - least).max(0.0) + 1.0;
        // Where the standing falls below `wanted`, as the shift grows.
        let falls_below = |wanted: f64| {
            let (mut low, mut high) = (-reach, reach);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if standing(&logs, middle) < wanted { high = middle } else { low = middle }
            }
            (low > -reach && high < reach).then_some(high)
        };
        let between = |confidence: f64| {
            let z = Normal::standard().inverse_cdf(f64::midpoint(1.0, confidence));
            (falls_below(z).map_or(0.0, f64::exp), falls_below(-z).map_or(f64::INFINITY, f64::exp))
        };
        let middle = falls_below(f64::MIN_POSITIVE).zip(falls_below(-f64::MIN_POSITIVE));
        Ratio {
            value: middle.map_or(f64::NAN, |(low, high)| f64::midpoint(low, high).exp()),
            p: 2.0 * (1.0 - Normal::standard().cdf(standing(&logs, 0.0).abs())),
            interval: between(0.95),
            narrow: between(0.90),
        }
    }
}

fn logarithms(blocks: &[Block]) -> Vec<Block> {
    let of = |values: &[f64]| values.iter().map(|value| value.max(f64::MIN_POSITIVE).ln()).collect();
    blocks.iter().map(|block| Block { a: of(&block.a), b: of(&block.b) }).collect()
}

/// How far the rank sum of B, less `shift`, lies over what the blocks make expect, in standard deviations.
fn standing(logs: &[Block], shift: f64) -> f64 {
    // Value, block and whether it is of B.
    let mut all: Vec<(f64, usize, bool)> = Vec::new();
    for (number, block) in logs.iter().enumerate() {
        let count = (block.a.len() + block.b.len()) as f64;
        let of_b = block.b.iter().map(|value| value - shift);
        let mean = (block.a.iter().sum::<f64>() + of_b.clone().sum::<f64>()) / count;
        all.extend(block.a.iter().map(|value| (value - mean, number, false)));
        all.extend(of_b.map(|value| (value - mean, number, true)));
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut ranks: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); logs.len()];
    let mut first = 0;
    while let Some((value, _, _)) = all.get(first).copied() {
        // Ranks of equal values are their mean. What differs by rounding alone is equal.
        let count = all.iter().skip(first).take_while(|(other, _, _)| other - value < 1e-12).count();
        let rank = first as f64 + f64::midpoint(count as f64, 1.0);
        for (_, block, is_b) in all.iter().skip(first).take(count) {
            if let Some((a, b)) = ranks.get_mut(*block) {
                if *is_b { b.push(rank) } else { a.push(rank) }
            }
        }
        first += count;
    }
    let (mut over, mut variance) = (0.0, 0.0);
    for (a, b) in &ranks {
        let (of_a, of_b) = (a.len() as f64, b.len() as f64);
        let count = of_a + of_b;
        let mean = (a.iter().sum::<f64>() + b.iter().sum::<f64>()) / count;
        let spread: f64 = a.iter().chain(b).map(|rank| (rank - mean).powi(2)).sum();
        if of_a > 0.0 && of_b > 0.0 {
            over += b.iter().sum::<f64>() - of_b * mean;
            variance += of_a * of_b / (count * (count - 1.0)) * spread;
        }
    }
    if variance > 0.0 { over / variance.sqrt() } else { 0.0 }
}

const RESAMPLES: usize = 1_000;

/// The difference that the same subject shows against itself: the 95 % point of how far the medians of two random
/// halves of its runs lie apart, each block having been set to its own mean, as a share, brought to as many runs as
/// the subjects have. The noisier of the two sets it. What is smaller than this is noise.
pub fn noise_floor(blocks: &[Block], seed: u64) -> f64 {
    let mut random = Random::new(seed, 3);
    let logs = logarithms(blocks);
    let mut of = |side: fn(&Block) -> &Vec<f64>| {
        let mut apart: Vec<f64> = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            for block in &logs {
                let count = (block.a.len() + block.b.len()) as f64;
                let mean = (block.a.iter().sum::<f64>() + block.b.iter().sum::<f64>()) / count;
                let mut values: Vec<f64> = side(block).iter().map(|value| value - mean).collect();
                random.shuffle(&mut values);
                let (first, second) = values.split_at(values.len() / 2);
                one.extend_from_slice(first);
                other.extend_from_slice(second);
            }
            apart.push((median(&one) - median(&other)).abs() / 2f64.sqrt());
        }
        quantile(&apart, 0.95)
    };
    let floor = of(|block| &block.a).max(of(|block| &block.b));
    if floor.is_nan() { f64::INFINITY } else { floor.exp_m1() }
}

/// p values of several questions to the same runs, each raised by how many are asked beside it, so that the chance of
/// one false alarm in all of them stays what it is in one (Holm, 1979). In the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p.iter().copied().enumerate().collect();
    order.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (mut adjusted, mut least) = (vec![1.0; p.len()], 0.0f64);
    for (rank, (place, value)) in order.into_iter().enumerate() {
        least = least.max(value * (p.len() - rank) as f64).min(1.0);
        if let Some(slot) = adjusted.get_mut(place) {
            *slot = least;
        }
    }
    adjusted
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
    fn aligned_ranks_as_computed_by_hand() {
        // One block is Wilcoxon's test: W of B is 26 where 18 is expected, the variance 4 · 4 · 9 / 12.
        let apart = Block { a: vec![1.0, 2.0, 3.0, 4.0], b: vec![5.0, 6.0, 7.0, 8.0] };
        let z = standing(&logarithms(&[apart]), 0.0);
        assert!((z - 8.0 / 12f64.sqrt()).abs() < 1e-9, "{z}");
        // Two blocks at levels of their own: in each B is over A, and ranks 5 to 8 are all of B.
        let far = [
            Block { a: vec![1.0, 1.1], b: vec![1.2, 1.3] },
            Block { a: vec![100.0, 110.0], b: vec![121.0, 132.0] },
        ];
        assert!(standing(&logarithms(&far), 0.0) > 2.1);
        let equal = Block { a: vec![2.0, 2.0], b: vec![2.0, 2.0] };
        assert_eq!(Ratio::new(&[equal]).p, 1.0);
    }

    #[test]
    fn the_ratio_and_its_interval() {
        let block = |n: u32, factor: f64| {
            let level = 100.0 + 10.0 * f64::from(n);
            Block { a: vec![level, level * 1.01], b: vec![level * factor, level * factor * 1.01] }
        };
        let blocks: Vec<Block> = (0..6).map(|n| block(n, 1.1)).collect();
        let ratio = Ratio::new(&blocks);
        assert!((ratio.value - 1.1).abs() < 1e-3 && ratio.p < 0.001, "{ratio:?}");
        assert!(ratio.interval.0 > 1.08 && ratio.interval.1 < 1.12, "{ratio:?}");
        assert!(ratio.narrow.0 >= ratio.interval.0 && ratio.narrow.1 <= ratio.interval.1, "{ratio:?}");
        // Too little for any answer: all ratios are possible.
        let one = Ratio::new(&[Block { a: vec![1.0], b: vec![2.0] }]);
        assert_eq!(one.interval, (0.0, f64::INFINITY), "{one:?}");
        assert!(Ratio::new(&[]).value.is_nan() && noise_floor(&[], 1).is_infinite());
        let floor = noise_floor(&blocks, 1);
        assert!((0.001..0.02).contains(&floor), "{floor}");
    }

    #[test]
    fn holm_as_published() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") of R.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let wanted = [0.03, 0.06, 0.06, 0.02];
        assert!(adjusted.iter().zip(wanted).all(|(p, wanted)| (p - wanted).abs() < 1e-12), "{adjusted:?}");
        assert!(holm(&[]).is_empty());
    }
}
