//! How large files are: a size, any between two, or a distribution.

use crate::quantity;
use crate::random::Random;
use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How large files are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// All the same.
    Fixed(u64),
    /// Any from the first to the second, each as likely.
    Uniform(u64, u64),
    /// As the files of real sites: a body and a long tail (Crovella and Bestavros, 1997). The logarithm is normal.
    LogNormal {
        /// Half of the files are smaller.
        median: u64,
        /// Standard deviation of the logarithm; 1.5 is usual.
        sigma: f64,
    },
}

/// Sizes that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` are no sizes; write one (10KiB), two (5kB..250kB), or lognormal:10KiB:1.5 (median, deviation 0.01 to 5)"
)]
pub struct SizesSyntax(String);

/// No file is larger: a tail has to end.
const LARGEST: f64 = (1u64 << 40) as f64;

impl Sizes {
    /// The size of the next file.
    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Sizes::Fixed(size) => size,
            Sizes::Uniform(least, most) => {
                least + (random.unit() * (most - least + 1) as f64).ceil().max(1.0) as u64 - 1
            }
            Sizes::LogNormal { median, sigma } => {
                // Box and Muller, 1958.
                let normal = (-2.0 * random.unit().ln()).sqrt() * (TAU * random.unit()).cos();
                (median as f64 * (sigma * normal).exp()).clamp(1.0, LARGEST) as u64
            }
        }
    }
}

impl FromStr for Sizes {
    type Err = SizesSyntax;

    fn from_str(text: &str) -> Result<Sizes, SizesSyntax> {
        let wrong = || SizesSyntax(text.to_owned());
        let size = |text: &str| quantity::size(text).ok().filter(|size| *size as f64 <= LARGEST);
        if let Some((median, sigma)) = text.strip_prefix("lognormal:").and_then(|rest| rest.split_once(':')) {
            let sigma = sigma.parse().ok().filter(|sigma| (0.01..=5.0).contains(sigma));
            let (median, sigma) = size(median).zip(sigma).ok_or_else(wrong)?;
            return Ok(Sizes::LogNormal { median, sigma });
        }
        if let Some((least, most)) = text.split_once("..") {
            let (least, most) = size(least).zip(size(most)).ok_or_else(wrong)?;
            return if least <= most { Ok(Sizes::Uniform(least, most)) } else { Err(wrong()) };
        }
        size(text).map(Sizes::Fixed).ok_or_else(wrong)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(f, "{size} B"),
            Sizes::Uniform(least, most) => write!(f, "{least} to {most} B"),
            Sizes::LogNormal { median, sigma } => {
                write!(f, "log-normal, median {median} B, deviation {sigma}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_written() {
        assert_eq!("5kB..250kB".parse(), Ok(Sizes::Uniform(5_000, 250_000)));
        assert_eq!("10KiB".parse(), Ok(Sizes::Fixed(10_240)));
        assert_eq!("lognormal:10KiB:1.5".parse(), Ok(Sizes::LogNormal { median: 10_240, sigma: 1.5 }));
        for wrong in ["", "x", "9..1", "5kB..", "lognormal:1k", "lognormal:1k:0", "lognormal:1k:9", "2000GiB"]
        {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_as_drawn() {
        let mut random = Random::new(1, 0);
        let drawn: Vec<u64> = (0..10_000).map(|_| Sizes::Uniform(5, 8).draw(&mut random)).collect();
        for size in 5..=8 {
            let count = drawn.iter().filter(|drawn| **drawn == size).count();
            assert!((2_300..2_700).contains(&count), "{size}: {count}");
        }
        assert_eq!(Sizes::Uniform(7, 7).draw(&mut random), 7);
        let tail = Sizes::LogNormal { median: 10_000, sigma: 1.5 };
        let below = (0..10_000).filter(|_| tail.draw(&mut random) < 10_000).count();
        assert!((4_800..5_200).contains(&below), "{below}");
    }
}
