//! Two subjects against each other: runs in randomised ABBA blocks, and what the difference between them
//! proves. The sample is the run.

use crate::random::Random;
use crate::report::table;
use crate::statistics::{Block, Estimate, mann_whitney, median, median_ratio, noise_floor};
use serde_json::{Value, json};
use std::fmt::Write;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// The order of runs: each block is ABBA or BAAB, by lot, so that a drift of the machine favours neither.
pub fn order(blocks: u32, seed: u64) -> Vec<[Side; 4]> {
    let mut random = Random::new(seed, 4);
    let (a, b) = (Side::A, Side::B);
    (0..blocks).map(|_| if random.next() & 1 == 0 { [a, b, b, a] } else { [b, a, a, b] }).collect()
}

/// A figure of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Answers per second; more is better.
    Rate,
    /// Median of the response time, seconds.
    Median,
    /// 99th percentile, seconds.
    P99,
    /// Seconds of a command.
    Seconds,
    /// Processor time of the server per answer, seconds.
    ServerCpu,
}

impl Figure {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Rate => "rate",
            Figure::Median => "p50",
            Figure::P99 => "p99",
            Figure::Seconds => "seconds",
            Figure::ServerCpu => "server CPU",
        }
    }

    fn is_better_when_more(self) -> bool {
        self == Figure::Rate
    }

    fn show(self, value: f64) -> String {
        match self {
            Figure::Rate => format!("{value:.1}/s"),
            _ => crate::quantity::show_duration(std::time::Duration::from_secs_f64(value.clamp(0.0, 1e9))),
        }
    }
}

/// What a comparison of one figure proves.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Which figure.
    pub figure: Figure,
    /// Of the runs of the first.
    pub a: Vec<f64>,
    /// Of the runs of the second.
    pub b: Vec<f64>,
    /// B to A.
    pub ratio: Estimate,
    /// Two-sided, Mann-Whitney.
    pub p: f64,
    /// How far the same subject lies from itself, as a share.
    pub noise: f64,
}

impl Comparison {
    /// Of the runs in all blocks. The same `seed` gives the same intervals.
    pub fn new(figure: Figure, blocks: &[Block], seed: u64) -> Comparison {
        let a: Vec<f64> = blocks.iter().flat_map(|block| block.a.clone()).collect();
        let b: Vec<f64> = blocks.iter().flat_map(|block| block.b.clone()).collect();
        let ratio = median_ratio(blocks, seed);
        let p = mann_whitney(&a, &b);
        // The noisier of the two sets the floor.
        let noise = noise_floor(&a, seed).max(noise_floor(&b, seed));
        Comparison { figure, a, b, ratio, p, noise }
    }

    /// Whether the two differ: the interval excludes equality, the test agrees, and the difference is over the
    /// noise floor.
    pub fn differs(&self) -> bool {
        let excludes = self.ratio.low > 1.0 || self.ratio.high < 1.0;
        excludes && self.p < 0.05 && (self.ratio.value - 1.0).abs() > self.noise
    }

    /// In one sentence.
    pub fn sentence(&self, a: &str, b: &str) -> String {
        let name = self.figure.name();
        if !self.differs() {
            return if self.noise.is_finite() {
                format!(
                    "{name}: no difference is proven; one of less than {:.1} % could not be seen here",
                    self.noise * 100.0
                )
            } else {
                format!("{name}: too few runs to tell; use more --blocks")
            };
        }
        let is_b_better = (self.ratio.value > 1.0) == self.figure.is_better_when_more();
        let winner = if is_b_better { b } else { a };
        format!("{name}: {winner} is better; {b} has {:.3} of {a}", self.ratio.value)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
        json!({
            "figure": self.figure.name(),
            "a": self.a,
            "b": self.b,
            "median_a": finite(median(&self.a)),
            "median_b": finite(median(&self.b)),
            "ratio": finite(self.ratio.value),
            "interval": [finite(self.ratio.low), finite(self.ratio.high)],
            "p": self.p,
            "noise_floor": finite(self.noise),
            "differs": self.differs(),
        })
    }
}

/// A row of cells for each figure.
pub fn rows(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let row = |comparison: &Comparison| {
        let figure = comparison.figure;
        vec![
            figure.name().to_owned(),
            figure.show(median(&comparison.a)),
            figure.show(median(&comparison.b)),
            format!("{:.3}", comparison.ratio.value),
            format!("{:.3} to {:.3}", comparison.ratio.low, comparison.ratio.high),
            format!("{:.4}", comparison.p),
            format!("±{:.1} %", comparison.noise * 100.0),
        ]
    };
    comparisons.iter().map(row).collect()
}

/// Comparisons as text, for a terminal: a table, and a sentence for each. `a` and `b` name the subjects.
pub fn screen(a: &str, b: &str, comparisons: &[Comparison]) -> String {
    let mut table_rows = vec![
        ["", "median A", "median B", "B/A", "95 % interval", "p", "noise floor"].map(str::to_owned).to_vec(),
    ];
    table_rows.extend(rows(comparisons));
    let runs = comparisons.first().map_or(0, |comparison| comparison.a.len());
    let mut out =
        format!("A: {a}\nB: {b}\n{runs} runs of each, in ABBA blocks by lot\n\n{}\n", table(&table_rows));
    for comparison in comparisons {
        let _ = writeln!(out, "{}.", comparison.sentence("A", "B"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_balanced_and_drawn_by_lot() {
        let blocks = order(40, 9);
        for block in &blocks {
            assert_eq!(block.iter().filter(|side| **side == Side::A).count(), 2);
            assert_eq!(block.first(), block.last());
        }
        let begin_with_a = blocks.iter().filter(|block| block[0] == Side::A).count();
        assert!((8..=32).contains(&begin_with_a), "{begin_with_a}");
        assert_eq!(blocks, order(40, 9));
    }

    #[test]
    fn a_drift_is_not_a_difference() {
        // The machine gets slower with every run; the subjects are the same.
        let mut time = 0.0;
        let blocks: Vec<Block> = order(8, 3)
            .iter()
            .map(|sides| {
                let mut block = Block::default();
                for side in sides {
                    time += 1.0;
                    let value = 1_000.0 - time;
                    if *side == Side::A { block.a.push(value) } else { block.b.push(value) }
                }
                block
            })
            .collect();
        let comparison = Comparison::new(Figure::Rate, &blocks, 1);
        assert!(!comparison.differs(), "{comparison:?}");
        assert!(comparison.sentence("A", "B").contains("no difference is proven"));
    }

    #[test]
    fn a_difference_names_the_better() {
        let block = |n: u32| Block {
            a: vec![100.0 + f64::from(n) * 0.1, 100.5 + f64::from(n) * 0.1],
            b: vec![120.0 + f64::from(n) * 0.1, 119.0 + f64::from(n) * 0.1],
        };
        let blocks: Vec<Block> = (0..6).map(block).collect();
        let rate = Comparison::new(Figure::Rate, &blocks, 1);
        assert!(rate.sentence("A", "B").starts_with("rate: B is better"), "{}", rate.sentence("A", "B"));
        assert!(Comparison::new(Figure::P99, &blocks, 1).sentence("A", "B").starts_with("p99: A is better"));
        let few = Comparison::new(Figure::Rate, &blocks[..1], 1);
        assert!(few.sentence("A", "B").contains("too few runs"));
    }
}
