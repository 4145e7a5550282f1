//! `cargo xtask book`: the documents as a site with a search, by mdBook.
//!
//! The pages are those that are read in the repository, in the same folders, so that their links lead somewhere in both. What
//! is made here is the table of contents alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Chapters, and the pages of each, by their names in `docs/`.
const CHAPTERS: &[(&str, &[&str])] = &[
    ("To begin with", &["first-hour", "packages", "running", "settings", "recipes", "production"]),
    ("Coming from", &["from-nginx", "from-apache", "from-lighttpd", "from-caddy", "from-haproxy"]),
    (
        "What it serves",
        &["static-files", "applications", "caching", "tiers", "pools", "balancing", "http2", "tls"],
    ),
    ("Who gets in, and how much", &["access", "limits"]),
    (
        "Looking after it",
        &[
            "watching",
            "prometheus",
            "console",
            "admin",
            "logs",
            "log-shipping",
            "bench",
            "measured",
            "security",
            "testing",
        ],
    ),
];

/// Builds the site into `target/book`.
pub fn run() -> Result<()> {
    let folder = make()?;
    println!("{}", folder.join("index.html").display());
    Ok(())
}

/// Builds it; where it lies.
pub fn make() -> Result<PathBuf> {
    let Some(mdbook) = workspace::find_program("mdbook") else {
        bail!("mdbook is missing: cargo install --locked mdbook");
    };
    let sources = workspace::target_directory().join("book-source");
    let _ = fs::remove_dir_all(&sources);
    let listed = workspace::output(Command::new("git").current_dir(workspace::root()).args([
        "ls-files",
        "docs",
        "examples",
        "dist",
        "tests/transcripts/README.md",
    ]))?;
    let plain =
        ["README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "LICENSE-MIT", "LICENSE-APACHE"];
    for path in plain.into_iter().chain(listed.lines()) {
        let to = sources.join("src").join(path);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(workspace::root().join(path), &to).with_context(|| format!("cannot copy {path}"))?;
    }
    fs::write(sources.join("src/SUMMARY.md"), contents()?)?;
    let output = workspace::target_directory().join("book");
    let _ = fs::remove_dir_all(&output);
    let settings = "[book]\ntitle = \"Tidegate\"\nsrc = \"src\"\n[output.html.print]\nenable = false\n[output.html.search]\nenable = true\n";
    fs::write(sources.join("book.toml"), settings)?;
    // The fonts of the reader's own system: those of mdBook would be half of what the site takes in the program.
    fs::create_dir_all(sources.join("theme/fonts"))?;
    fs::write(sources.join("theme/fonts/fonts.css"), "")?;
    workspace::run(Command::new(mdbook).arg("build").arg(&sources).arg("--dest-dir").arg(&output))?;
    for page in CHAPTERS.iter().flat_map(|(_, pages)| *pages) {
        if !output.join(format!("docs/{page}.html")).is_file() {
            bail!("mdbook made no page of docs/{page}.md");
        }
    }
    Ok(output)
}

fn contents() -> Result<String> {
    let mut text = "# Contents\n\n[Tidegate](README.md)\n".to_owned();
    for (chapter, pages) in CHAPTERS {
        text.push_str(&format!("\n# {chapter}\n\n"));
        for page in *pages {
            text.push_str(&format!("- [{}](docs/{page}.md)\n", title(page)?));
        }
    }
    text.push_str("\n# Reference\n\n- [Settings](docs/reference/settings.md)\n- [Scenarios](docs/reference/scenarios.md)\n- [Changes](CHANGELOG.md)\n");
    text.push_str("- [Architecture](ARCHITECTURE.md)\n- [Security](SECURITY.md)\n");
    text.push_str("- [Transcripts](tests/transcripts/README.md)\n");
    let docs = workspace::root().join("docs");
    for entry in fs::read_dir(&docs)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(page) = name.strip_suffix(".md")
            && !CHAPTERS.iter().any(|(_, pages)| pages.contains(&page))
        {
            bail!("docs/{name} is in no chapter: put it into xtask/src/book.rs");
        }
    }
    Ok(text)
}

/// The first line of a page.
fn title(page: &str) -> Result<String> {
    let path = Path::new("docs").join(page).with_extension("md");
    let text = fs::read_to_string(workspace::root().join(&path))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let first = text.lines().next().and_then(|line| line.strip_prefix("# "));
    Ok(first.with_context(|| format!("{} has no title", path.display()))?.to_owned())
}
