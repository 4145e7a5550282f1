//! A figure of a run: which there are, how they are written, and what a run must hold for one to be compared.

use crate::quantity::show_duration;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// A figure of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Answers per second; more is better.
    Rate,
    /// A percentile of the response time, seconds; in thousandths of a per cent.
    Percentile(u32),
    /// Seconds of a command.
    Seconds,
    /// Processor time of the server per answer, seconds.
    ServerCpu,
}

/// A name that is no figure.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no figure; there are rate, any percentile of the response time as p99, cpu and seconds")]
pub struct FigureSyntax(String);

impl Figure {
    /// Median of the response time.
    pub const MEDIAN: Figure = Figure::Percentile(50_000);
    /// Its 99th percentile.
    pub const P99: Figure = Figure::Percentile(99_000);

    /// Whether the larger value is the better one.
    pub fn is_better_when_more(self) -> bool {
        self == Figure::Rate
    }

    /// The percentile in per cent, of those that are one.
    pub fn percent(self) -> Option<f64> {
        if let Figure::Percentile(thousandths) = self { Some(f64::from(thousandths) / 1e3) } else { None }
    }

    /// Answers that a run must have at least for this figure of it to be compared: a hundred have to lie beyond a
    /// percentile, or it is a matter of luck.
    pub fn answers_needed(self) -> u64 {
        self.percent().map_or(1, |percent| (100.0 / (1.0 - percent / 100.0)).round() as u64)
    }

    /// A value of it, with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Figure::Rate => format!("{value:.1}/s"),
            _ => show_duration(Duration::from_secs_f64(value.clamp(0.0, 1e9))),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Rate => f.write_str("rate"),
            Figure::Seconds => f.write_str("seconds"),
            Figure::ServerCpu => f.write_str("server CPU"),
            Figure::Percentile(thousandths) => write!(f, "p{}", f64::from(*thousandths) / 1e3),
        }
    }
}

impl FromStr for Figure {
    type Err = FigureSyntax;

    fn from_str(text: &str) -> Result<Figure, FigureSyntax> {
        match text {
            "rate" => Ok(Figure::Rate),
            "seconds" => Ok(Figure::Seconds),
            "cpu" => Ok(Figure::ServerCpu),
            _ => {
                let percent: Option<f64> = text.strip_prefix('p').and_then(|percent| percent.parse().ok());
                let percent = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
                let thousandths = percent.map(|percent| (percent * 1e3).round() as u32);
                thousandths.map(Figure::Percentile).ok_or_else(|| FigureSyntax(text.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["rate", "seconds", "p50", "p99", "p99.9", "p99.99"] {
            assert_eq!(name.parse::<Figure>().unwrap().to_string(), name);
        }
        assert_eq!("cpu".parse(), Ok(Figure::ServerCpu));
        for wrong in ["", "p", "p0", "p100", "99", "p-1", "pNaN", "Rate"] {
            assert!(wrong.parse::<Figure>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hundred_answers_lie_beyond_a_percentile() {
        let needed = |name: &str| name.parse::<Figure>().unwrap().answers_needed();
        assert_eq!(
            (needed("p50"), needed("p90"), needed("p99"), needed("p99.9")),
            (200, 1_000, 10_000, 100_000)
        );
        assert_eq!(needed("rate"), 1);
    }
}
