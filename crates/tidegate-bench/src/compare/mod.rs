//! Two subjects against each other: runs in randomised ABBA blocks, and what the difference between them
//! proves. The sample is the run.
//!
//! Three answers: they differ, they are the same within a margin, or the runs cannot tell. One figure is the question,
//! decided at 5 %; the others are asked beside it and share another 5 %, so that a comparison of ten figures is not ten
//! lots in a lottery.

mod figure;
mod gate;

pub use figure::{Figure, FigureSyntax};
pub use gate::{Bound, BoundSyntax, Held, StoredRun, StoredRunError, comparable, stored_runs};

use crate::quantity::show_share;
use crate::random::Random;
use crate::report::table;
use crate::statistics::{Block, Ratio, holm, median, noise_floor};
use serde_json::{Value, json};
use std::fmt::Write;

/// Blocks of four runs that a comparison wants at least: fewer cannot exclude chance.
pub const LEAST_BLOCKS: u32 = 5;

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

/// A figure of all runs.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Which.
    pub figure: Figure,
    /// Its values.
    pub blocks: Vec<Block>,
    /// Answers of the run that had the fewest.
    pub answers: u64,
}

/// What a comparison of one figure proves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conclusion {
    /// They differ, and this one is better.
    Differs(Side),
    /// They are the same within the margin.
    Same,
    /// The runs allow both.
    Unknown,
    /// There are too few runs to say anything.
    TooFewRuns,
    /// There are too few answers in a run for this percentile.
    TooFewAnswers,
}

/// The comparison of one figure.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Which figure.
    pub figure: Figure,
    /// Whether it is the question; the others are asked beside it.
    pub is_primary: bool,
    /// Of the runs of the first.
    pub a: Vec<f64>,
    /// Of the runs of the second.
    pub b: Vec<f64>,
    /// B to A.
    pub ratio: Ratio,
    /// The p value, raised by how many were asked beside it where it is not the question.
    pub p: f64,
    /// How far the same subject lies from itself, as a share.
    pub noise: f64,
    /// Up to which difference two are called the same, as a share.
    pub margin: f64,
    /// Answers of the run that had the fewest.
    pub answers: u64,
    /// What it proves.
    pub conclusion: Conclusion,
}

/// Compares all figures, `primary` as the question. The same `seed` gives the same answer. `margin` is the share up to
/// which two are called the same.
pub fn compare(measured: &[Measured], primary: Figure, margin: f64, seed: u64) -> Vec<Comparison> {
    compare_with(measured, |measured, _| measured.figure == primary, margin, seed)
}

/// The same for figures of several subjects in one, such as operations: the first is the question.
pub fn compare_first(measured: &[Measured], margin: f64, seed: u64) -> Vec<Comparison> {
    compare_with(measured, |_, place| place == 0, margin, seed)
}

fn compare_with(
    measured: &[Measured],
    is_primary: impl Fn(&Measured, usize) -> bool,
    margin: f64,
    seed: u64,
) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = measured
        .iter()
        .enumerate()
        .map(|(place, measured)| Comparison::alone(measured, is_primary(measured, place), margin, seed))
        .collect();
    let beside = |comparison: &&mut Comparison| !comparison.is_primary && comparison.has_enough();
    let raised = holm(&all.iter_mut().filter(beside).map(|comparison| comparison.p).collect::<Vec<_>>());
    for (comparison, p) in all.iter_mut().filter(beside).zip(raised) {
        comparison.p = p;
    }
    for comparison in &mut all {
        comparison.conclude();
    }
    all
}

impl Comparison {
    fn alone(measured: &Measured, is_primary: bool, margin: f64, seed: u64) -> Comparison {
        let blocks = &measured.blocks;
        let ratio = Ratio::new(blocks);
        let conclusion = match measured {
            _ if ratio.value.is_nan() || measured.least_runs() < 2 * LEAST_BLOCKS as usize => {
                Conclusion::TooFewRuns
            }
            _ if measured.answers < measured.figure.answers_needed() => Conclusion::TooFewAnswers,
            _ => Conclusion::Unknown,
        };
        Comparison {
            figure: measured.figure,
            is_primary,
            a: blocks.iter().flat_map(|block| block.a.clone()).collect(),
            b: blocks.iter().flat_map(|block| block.b.clone()).collect(),
            ratio,
            p: ratio.p,
            noise: noise_floor(blocks, seed),
            margin,
            answers: measured.answers,
            conclusion,
        }
    }

    /// Whether there are runs and answers enough to conclude anything.
    pub fn has_enough(&self) -> bool {
        !matches!(self.conclusion, Conclusion::TooFewRuns | Conclusion::TooFewAnswers)
    }

    /// They differ where the interval excludes equality, the test agrees, and the difference is over the noise floor.
    fn conclude(&mut self) {
        if !self.has_enough() {
            return;
        }
        let (low, high) = self.ratio.interval;
        let excludes = low > 1.0 || high < 1.0;
        let (least, most) = self.ratio.narrow;
        self.conclusion = if excludes && self.p < 0.05 && (self.ratio.value - 1.0).abs() > self.noise {
            let is_b = (self.ratio.value > 1.0) == self.figure.is_better_when_more();
            Conclusion::Differs(if is_b { Side::B } else { Side::A })
        } else if least > 1.0 / (1.0 + self.margin) && most < 1.0 + self.margin {
            Conclusion::Same
        } else {
            Conclusion::Unknown
        };
    }

    /// In one sentence.
    pub fn sentence(&self, a: &str, b: &str) -> String {
        let name = self.figure;
        let (low, high) = self.ratio.interval;
        let percent = |share: f64| share * 100.0;
        match self.conclusion {
            Conclusion::Differs(side) => {
                let winner = if side == Side::A { a } else { b };
                format!("{name}: {winner} is better; {b} has {:.3} of {a}", self.ratio.value)
            }
            Conclusion::Same => format!("{name}: the same within ±{}", show_share(self.margin)),
            Conclusion::Unknown => format!(
                "{name}: no difference is proven, nor that there is none: {b} has {low:.3} to {high:.3} of {a}; differences up to \
                 {:.1} % could not be told from none here",
                percent((high - 1.0).max(1.0 - low).max(self.noise))
            ),
            Conclusion::TooFewRuns => format!(
                "{name}: too few runs to tell: {} and {}, and {} of each are the least",
                self.a.len(),
                self.b.len(),
                2 * LEAST_BLOCKS
            ),
            Conclusion::TooFewAnswers => format!(
                "{name}: not compared: a run had {} answers, and {name} wants {}; take longer runs",
                self.answers,
                self.figure.answers_needed()
            ),
        }
    }

    /// What it proves, in a word or two.
    pub fn word(&self) -> &'static str {
        match self.conclusion {
            Conclusion::Differs(Side::A) => "A is better",
            Conclusion::Differs(Side::B) => "B is better",
            Conclusion::Same => "same",
            Conclusion::Unknown => "unknown",
            Conclusion::TooFewRuns => "too few runs",
            Conclusion::TooFewAnswers => "too few answers",
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
        let conclusion = self.word().to_lowercase();
        json!({
            "figure": self.figure.to_string(),
            "primary": self.is_primary,
            "a": self.a,
            "b": self.b,
            "median_a": finite(median(&self.a)),
            "median_b": finite(median(&self.b)),
            "ratio": finite(self.ratio.value),
            "interval": [finite(self.ratio.interval.0), finite(self.ratio.interval.1)],
            "p": self.p,
            "noise_floor": finite(self.noise),
            "margin": self.margin,
            "conclusion": conclusion,
            "differs": matches!(self.conclusion, Conclusion::Differs(_)),
        })
    }
}

impl Measured {
    /// Runs of the subject that has fewer.
    fn least_runs(&self) -> usize {
        let of =
            |side: fn(&Block) -> &Vec<f64>| self.blocks.iter().map(|block| side(block).len()).sum::<usize>();
        of(|block| &block.a).min(of(|block| &block.b))
    }
}

/// What the columns of [`rows`] are.
pub const COLUMNS: [&str; 7] = ["", "median A", "median B", "B/A", "95 % interval", "p", "noise floor"];

/// A row of cells for each figure.
pub fn rows(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let row = |comparison: &Comparison| {
        let figure = comparison.figure;
        let (low, high) = comparison.ratio.interval;
        let mut cells = vec![
            format!("{figure}{}", if comparison.is_primary { " *" } else { "" }),
            figure.show(median(&comparison.a)),
            figure.show(median(&comparison.b)),
        ];
        cells.extend(match comparison.has_enough() {
            true => [
                format!("{:.3}", comparison.ratio.value),
                format!("{low:.3} to {high:.3}"),
                format!("{:.4}", comparison.p),
                format!("±{:.1} %", comparison.noise * 100.0),
            ],
            false => ["-"; 4].map(str::to_owned),
        });
        cells
    };
    comparisons.iter().map(row).collect()
}

/// Comparisons as text, for a terminal: a table, and a sentence for each. `a` and `b` name the subjects, `manner` how the
/// runs followed each other.
pub fn screen(a: &str, b: &str, manner: &str, comparisons: &[Comparison]) -> String {
    let mut table_rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    table_rows.extend(rows(comparisons));
    let mut out = format!("A: {a}\nB: {b}\n{manner}\n\n{}\n", table(&table_rows));
    for comparison in comparisons {
        let _ = writeln!(out, "{}.", comparison.sentence("A", "B"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conclusion(figure: Figure, blocks: Vec<Block>, answers: u64) -> Comparison {
        compare(&[Measured { figure, blocks, answers }], figure, 0.03, 1).remove(0)
    }

    /// Runs on a machine that is noisy from run to run (`noise`), from block to block as much again, and gets slower;
    /// B has `factor` of A.
    fn simulated(random: &mut Random, count: u32, noise: f64, factor: f64) -> Vec<Block> {
        let mut normal = |scale: f64| {
            scale * (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
        };
        let mut time = 0.0;
        (0..count)
            .map(|_| {
                let level = 1_000.0 * normal(noise).exp();
                let sides = if normal(1.0) > 0.0 {
                    [Side::A, Side::B, Side::B, Side::A]
                } else {
                    [Side::B, Side::A, Side::A, Side::B]
                };
                let mut block = Block::default();
                for side in sides {
                    time += 1.0;
                    let value = level * normal(noise).exp() * (1.0 - 0.002 * time);
                    if side == Side::A { block.a.push(value) } else { block.b.push(value * factor) }
                }
                block
            })
            .collect()
    }

    #[test]
    fn false_alarms_are_rare_and_five_per_cent_are_found() {
        let mut random = Random::new(11, 0);
        let mut alarms = |factor: f64| {
            let differs = |_: &u32| {
                let blocks = simulated(&mut random, 6, 0.03, factor);
                matches!(conclusion(Figure::Rate, blocks, 1_000).conclusion, Conclusion::Differs(_))
            };
            (0..200).filter(differs).count()
        };
        let (same, planted) = (alarms(1.0), alarms(1.05));
        assert!(same <= 10, "{same} of 200 comparisons of a subject with itself found a difference");
        assert!(planted >= 160, "of 200 comparisons {planted} found a difference of 5 %");
    }

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
        let comparison = conclusion(Figure::Rate, blocks, 1_000);
        assert_eq!(comparison.conclusion, Conclusion::Same, "{comparison:?}");
        assert_eq!(comparison.sentence("A", "B"), "rate: the same within ±3 %");
    }

    fn planted(count: usize) -> Vec<Block> {
        let block = |n: usize| Block {
            a: vec![100.0 + n as f64 * 0.1, 100.5 + n as f64 * 0.1],
            b: vec![120.0 + n as f64 * 0.1, 119.0 + n as f64 * 0.1],
        };
        (0..count).map(block).collect()
    }

    #[test]
    fn a_difference_names_the_better() {
        let rate = conclusion(Figure::Rate, planted(6), 1_000);
        assert!(rate.sentence("A", "B").starts_with("rate: B is better"), "{}", rate.sentence("A", "B"));
        let p99 = conclusion(Figure::P99, planted(6), 10_000);
        assert!(p99.sentence("A", "B").starts_with("p99: A is better"), "{}", p99.sentence("A", "B"));
    }

    #[test]
    fn too_little_concludes_nothing() {
        // Four blocks, however far apart.
        let few = conclusion(Figure::Rate, planted(4), 1_000);
        assert!(
            few.sentence("A", "B").contains("too few runs to tell: 8 and 8"),
            "{}",
            few.sentence("A", "B")
        );
        let short = conclusion(Figure::P99, planted(6), 9_999);
        assert!(short.sentence("A", "B").contains("9999 answers, and p99 wants 10000"), "{short:?}");
        let none = conclusion(Figure::Rate, Vec::new(), 0);
        assert_eq!(none.conclusion, Conclusion::TooFewRuns);
        assert!(screen("a", "b", "", &[few, short, none]).contains("rate *"));
    }

    #[test]
    fn what_is_asked_beside_the_question_is_decided_together() {
        // Each alone would be a difference at 5 %, as one of ten may be by chance.
        let mut random = Random::new(4, 0);
        let measured = |figure: Figure, factor: f64, random: &mut Random| Measured {
            figure,
            blocks: simulated(random, 6, 0.03, factor),
            answers: 1_000_000,
        };
        let mut all = vec![measured(Figure::Rate, 1.0, &mut random)];
        all.extend((50..60).map(|percent| measured(Figure::Percentile(percent * 1_000), 1.0, &mut random)));
        let together = compare(&all, Figure::Rate, 0.03, 1);
        assert_eq!(together[0].p, together[0].ratio.p, "the question keeps its own");
        assert!(together[1..].iter().all(|comparison| comparison.p >= comparison.ratio.p));
        assert!(together[1..].iter().any(|comparison| comparison.p > comparison.ratio.p));
    }
}
