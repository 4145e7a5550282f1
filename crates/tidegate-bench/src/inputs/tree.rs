//! A tree of files to be served, and the list of their URLs.

use super::sizes::Sizes;
use super::weights;
use crate::random::Random;
use crate::run::Stop;
use rustix::fs::statvfs;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// Folders of files, of sizes and bytes that a seed repeats: `d000/f000.bin` and so on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tree {
    /// Folders, 1 to 100,000.
    pub folders: u32,
    /// Files in each, 1 to 100,000.
    pub files: u32,
    /// Their sizes.
    pub sizes: Sizes,
    /// Equal seeds give equal trees.
    pub seed: u64,
}

/// What a tree became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why there is no tree.
#[derive(Debug, Error)]
pub enum TreeError {
    /// Nothing is written between files of somebody.
    #[error("{0} is there already and holds something; name a folder that is new or empty")]
    NotEmpty(PathBuf),
    /// The file system is too small.
    #[error("{wanted} bytes do not fit: the file system of {folder} has {free} left")]
    Full {
        /// Where it should lie.
        folder: PathBuf,
        /// Its bytes.
        wanted: u64,
        /// Bytes that are left.
        free: u64,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, io::Error),
    /// Somebody did not want to wait.
    #[error("interrupted; the folder holds a part of the tree")]
    Interrupted,
}

impl Tree {
    /// The tree of the tuning guide of Sun ONE Web Server 6.1: 400 folders of 100 files of 5 to 250 kB.
    pub const SUN_ONE: Tree =
        Tree { folders: 400, files: 100, sizes: Sizes::Uniform(5_000, 250_000), seed: 1 };
    /// The small files of HEANET's benchmarks: 100 to 10,000 bytes.
    pub const HEANET: Tree = Tree { folders: 10, files: 100, sizes: Sizes::Uniform(100, 10_000), seed: 1 };

    /// Paths and sizes, in order.
    pub fn entries(&self) -> impl Iterator<Item = (String, u64)> {
        let mut random = Random::new(self.seed, 5);
        let Tree { folders, files, sizes, .. } = *self;
        let all = (0..folders).flat_map(move |folder| (0..files).map(move |file| (folder, file)));
        all.map(move |(folder, file)| (format!("d{folder:03}/f{file:03}.bin"), sizes.draw(&mut random)))
    }

    /// Writes it into a folder that is new or empty.
    ///
    /// # Errors
    /// [`TreeError`]. What was written stays.
    pub fn write(&self, folder: &Path, stop: &Stop) -> Result<Written, TreeError> {
        let fails = |path: &Path| {
            let path = path.to_owned();
            move |error| TreeError::Write(path, error)
        };
        fs::create_dir_all(folder).map_err(fails(folder))?;
        if fs::read_dir(folder).map_err(fails(folder))?.next().is_some() {
            return Err(TreeError::NotEmpty(folder.to_owned()));
        }
        self.fits(folder)?;
        let mut written = Written { files: 0, bytes: 0 };
        for (number, (path, size)) in self.entries().enumerate() {
            if stop.is_stopped() {
                return Err(TreeError::Interrupted);
            }
            let path = folder.join(path);
            if number % self.files as usize == 0 {
                let parent = path.parent().unwrap_or(folder);
                fs::create_dir(parent).map_err(fails(parent))?;
            }
            // Each file has a stream of its own: its bytes do not depend on the others.
            fill(&path, size, Random::new(self.seed, 1_000 + number as u64)).map_err(fails(&path))?;
            written.files += 1;
            written.bytes += size;
        }
        Ok(written)
    }

    fn fits(&self, folder: &Path) -> Result<(), TreeError> {
        let Ok(system) = statvfs(folder) else { return Ok(()) };
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        let block = system.f_frsize.max(1);
        let wanted = self
            .entries()
            .fold(0u64, |sum, (_, size)| sum.saturating_add(size.div_ceil(block).saturating_mul(block)));
        if wanted <= free { Ok(()) } else { Err(TreeError::Full { folder: folder.to_owned(), wanted, free }) }
    }

    /// The list of its URLs below `base`, one a line, each as often as `popularity` says.
    pub fn urls(&self, base: &str, popularity: Popularity) -> String {
        let base = base.trim_end_matches('/');
        let mut paths: Vec<String> = self.entries().map(|(path, _)| path).collect();
        // Which file is asked for most has nothing to do with where it lies.
        Random::new(self.seed, 6).shuffle(&mut paths);
        let weights = weights(&popularity.counts(paths.len()));
        let mut out = String::new();
        for (path, weight) in paths.iter().zip(weights) {
            let _ = match weight {
                1 => writeln!(out, "{base}/{path}"),
                weight => writeln!(out, "{weight}x {base}/{path}"),
            };
        }
        out
    }
}

/// Random bytes, which nothing compresses.
fn fill(path: &Path, size: u64, mut random: Random) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    let mut left = size;
    while left > 0 {
        let bytes = random.next().to_le_bytes();
        let part = bytes.get(..left.min(8) as usize).unwrap_or(&bytes);
        file.write_all(part)?;
        left -= part.len() as u64;
    }
    file.flush()
}

/// How often each of many files is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// All as often.
    Uniform,
    /// The n-th most popular as 1/n to this power; 0.6 to 1.0 were seen on the web (Breslau and others, 1999).
    Zipf(f64),
}

/// A popularity that is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no popularity; write uniform, or zipf:1.0 with an exponent above 0, at most 3")]
pub struct PopularitySyntax(String);

impl Popularity {
    fn counts(self, count: usize) -> Vec<u64> {
        match self {
            Popularity::Uniform => vec![1; count],
            Popularity::Zipf(exponent) => {
                let most = (count as f64).powf(exponent).min(1e12);
                (1..=count).map(|rank| (most / (rank as f64).powf(exponent)).round() as u64).collect()
            }
        }
    }
}

impl FromStr for Popularity {
    type Err = PopularitySyntax;

    fn from_str(text: &str) -> Result<Popularity, PopularitySyntax> {
        let exponent = text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok());
        match exponent.filter(|exponent| *exponent > 0.0 && *exponent <= 3.0) {
            Some(exponent) => Ok(Popularity::Zipf(exponent)),
            None if text == "uniform" => Ok(Popularity::Uniform),
            None => Err(PopularitySyntax(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidegate-bench-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_seed_repeats_a_tree() {
        let (one, other) = (folder("tree-one"), folder("tree-other"));
        let tree = Tree { folders: 3, files: 4, sizes: Sizes::Uniform(1, 3_000), seed: 7 };
        let stop = Stop::default();
        let written = tree.write(&one, &stop).unwrap();
        assert_eq!(tree.write(&other, &stop).unwrap(), written);
        assert_eq!(written.files, 12);
        let mut bytes = 0;
        for (path, size) in tree.entries() {
            let (first, second) = (fs::read(one.join(&path)).unwrap(), fs::read(other.join(&path)).unwrap());
            assert_eq!((first.len() as u64, &first), (size, &second), "{path}");
            bytes += size;
        }
        assert_eq!(bytes, written.bytes);
        assert!(matches!(tree.write(&one, &stop), Err(TreeError::NotEmpty(_))));
        let other_seed = Tree { seed: 8, ..tree };
        assert!(tree.entries().ne(other_seed.entries()));
        fs::remove_dir_all(one).unwrap();
        fs::remove_dir_all(other).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        let large = folder("tree-large");
        let tree = Tree { folders: 1, files: 100_000, sizes: Sizes::Fixed(1 << 40), seed: 1 };
        let error = tree.write(&large, &Stop::default()).unwrap_err();
        assert!(matches!(error, TreeError::Full { .. }), "{error}");
        assert_eq!(fs::read_dir(&large).unwrap().count(), 0);
        fs::remove_dir_all(large).unwrap();
    }

    #[test]
    fn the_list_holds_every_file_once_and_the_popular_more_often() {
        let tree = Tree { folders: 2, files: 50, ..Tree::HEANET };
        let even = tree.urls("http://127.0.0.1/t/", Popularity::Uniform);
        assert_eq!(even.lines().count(), 100);
        assert!(even.lines().all(|line| line.starts_with("http://127.0.0.1/t/d00")), "{even}");
        let zipf = tree.urls("http://127.0.0.1", Popularity::Zipf(1.0));
        let first = zipf.lines().next().unwrap();
        assert!(first.starts_with("100x http://127.0.0.1/d0"), "{first}");
        assert!(!zipf.lines().last().unwrap().contains('x'), "the last comes once");
        assert!("zipf:4".parse::<Popularity>().is_err() && "Zipf".parse::<Popularity>().is_err());
    }

    #[test]
    fn the_trees_of_the_old_articles() {
        assert_eq!(Tree::SUN_ONE.entries().count(), 40_000);
        let sizes: Vec<u64> = Tree::SUN_ONE.entries().map(|(_, size)| size).collect();
        assert!(sizes.iter().all(|size| (5_000..=250_000).contains(size)));
        assert!(Tree::HEANET.entries().all(|(_, size)| (100..=10_000).contains(&size)));
    }
}
