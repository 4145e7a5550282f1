//! `tidegate bench files`: a tree of files to be served.

use super::super::print;
use super::load::url;
use super::output::{interrupted, stop_on_signals, write};
use super::{usage, wrong};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_bench::inputs::{Popularity, Sizes, Tree, TreeError};
use tidegate_bench::quantity::show_bytes;

/// Makes a tree of files to be served, and the list of their URLs.
///
/// Sizes and bytes come from --seed: the same arguments make the same tree on every machine. The bytes are random, so
/// that nothing compresses them. The list has every file; --popularity says how often each is asked for, and
/// `tidegate bench hit -f` takes it.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate bench files --like sun-one tree          400 folders of 100 files of 5 to 250 kB
  tidegate bench files --folders 10 --files 1000 --sizes lognormal:10KiB:1.5 tree
  tidegate bench files --urls urls.txt --base http://127.0.0.1/ --popularity zipf:1.0 tree

Exit codes: 0 the tree is there, 1 it cannot be written, 2 the arguments are wrong, 130 interrupted; a part is there")]
pub struct Arguments {
    /// A folder that is new or empty
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The tree of an old benchmark; the other options change it
    #[arg(long, value_enum)]
    like: Option<Like>,
    /// Folders [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    folders: Option<u32>,
    /// Files in each [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: Option<u32>,
    /// One size (10KiB), two (5kB..250kB), or a distribution with a tail (lognormal:10KiB:1.5) [default: 10KiB]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<Sizes>,
    /// For whatever is drawn by lot
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the list of URLs
    #[arg(long, value_name = "FILE", requires = "base")]
    urls: Option<PathBuf>,
    /// What stands before each path in the list
    #[arg(long, value_name = "URL", value_parser = url, requires = "urls")]
    base: Option<String>,
    /// How often each file is asked for: uniform, or zipf:1.0, where the n-th is asked for 1/n as often
    #[arg(long, value_name = "POPULARITY", default_value = "uniform", requires = "urls")]
    popularity: Popularity,
}

#[derive(Clone, Copy, ValueEnum)]
enum Like {
    /// 400 folders of 100 files of 5 to 250 kB: Sun ONE Web Server 6.1's tuning guide
    SunOne,
    /// 10 folders of 100 files of 100 to 10,000 B: HEANET's mirror
    Heanet,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let like = match arguments.like {
        Some(Like::SunOne) => Tree::SUN_ONE,
        Some(Like::Heanet) => Tree::HEANET,
        None => Tree { sizes: Sizes::Fixed(10 << 10), ..Tree::HEANET },
    };
    let tree = Tree {
        folders: arguments.folders.unwrap_or(like.folders),
        files: arguments.files.unwrap_or(like.files),
        sizes: arguments.sizes.unwrap_or(like.sizes),
        seed: arguments.seed,
    };
    let count = u64::from(tree.folders) * u64::from(tree.files);
    if count > 10_000_000 {
        return Err(wrong(format!("{count} files are too many; 10000000 are the most")));
    }
    if arguments.urls.is_some() && count > 500_000 {
        return Ok(usage("a list holds 500000 URLs at most; make fewer files, or leave --urls out"));
    }
    let stop = stop_on_signals()?;
    let written = match tree.write(&arguments.folder, &stop) {
        Err(error @ TreeError::Interrupted) => {
            super::complain(&format!("tidegate bench: {error}\n"));
            return Ok(interrupted());
        }
        written => written?,
    };
    print(&format!(
        "{} files in {} folders, {} ({}), seed {}: {}\n",
        written.files,
        tree.folders,
        show_bytes(written.bytes as f64),
        tree.sizes,
        tree.seed,
        arguments.folder.display()
    ))?;
    write(arguments.urls.as_deref(), || {
        Ok(tree.urls(arguments.base.as_deref().unwrap_or_default(), arguments.popularity).into_bytes())
    })?;
    Ok(ExitCode::SUCCESS)
}
