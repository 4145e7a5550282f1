//! The static program for whoever wants neither package nor container: an archive with the program, its licences and where
//! to begin.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::architecture::Architecture;
use super::commit_time;
use super::image::tar;
use super::tree::{Tree, settle, source};
use crate::workspace;

/// Makes the archive; returns its path.
pub fn make(
    output: &Path,
    architecture: Architecture,
    program: &Path,
    version: &str,
    notices: &[PathBuf],
) -> Result<PathBuf> {
    let time = commit_time()?;
    let name = format!("tidegate-{version}-{}-static", architecture.name());
    let folder = output.join("static");
    let _ = fs::remove_dir_all(&folder);
    let tree = Tree::new(&folder);
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    tree.file(&format!("{name}/tidegate"), 0o755, &read(program)?)?;
    for path in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "dist/tidegate.kdl"] {
        let plain = path.trim_start_matches("dist/");
        tree.file(&format!("{name}/{plain}"), 0o644, &source(path)?)?;
    }
    for notice in notices {
        let plain = notice.file_name().context("a notice has a name")?.to_string_lossy();
        tree.file(&format!("{name}/{plain}"), 0o644, &read(notice)?)?;
    }
    settle(&folder, time)?;
    let plain = output.join(format!("{name}.tar"));
    workspace::run(tar(&folder, time).arg("-cf").arg(&plain).arg(&name))?;
    workspace::run(std::process::Command::new("gzip").args(["-9nf"]).arg(&plain))?;
    fs::remove_dir_all(&folder)?;
    Ok(output.join(format!("{name}.tar.gz")))
}
