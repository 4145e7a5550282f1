//! `tidegate docs`: the documents of this very version, on a terminal or as a site of their own.
//!
//! The pages are part of the program, as Markdown; the reference is made anew of the table of directives. The site is built
//! by `cargo xtask book` and lies beside the installed documents.

use super::{print, serve};
use anyhow::{Result, bail};
use clap::{Args, Parser};
use std::path::PathBuf;
use std::process::ExitCode;

// The pages of `docs/`: name and text.
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// What the reference is called.
const REFERENCE: &str = "reference";

/// Shows the documents of this version.
///
/// Without a name it lists them. They are Markdown; links between them are their names. With --serve it serves them as a
/// site, with a search, where that was installed.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate docs
  tidegate docs from-nginx | less
  tidegate docs reference | grep -A 20 '### `limit`'
  tidegate docs --serve

Exit codes:
  0  done
  1  there is no such page, or no site was installed
  2  the arguments are wrong")]
pub struct Arguments {
    /// The page
    #[arg(conflicts_with = "serve")]
    name: Option<String>,
    /// Serve the site
    #[arg(long)]
    serve: bool,
    /// Where to listen for it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090", requires = "serve")]
    listen: String,
    /// The folder of the site, as `cargo xtask book` has made it
    #[arg(long, value_name = "FOLDER", requires = "serve")]
    folder: Option<PathBuf>,
}

/// Shows or serves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.serve {
        return serve_site(arguments);
    }
    match &arguments.name {
        None => print(&list()),
        Some(name) => {
            let name = name.trim_end_matches(".md").trim_start_matches("docs/");
            match page(name) {
                Some(text) => print(&text),
                None => {
                    let known = PAGES.iter().map(|(known, _)| *known).chain([REFERENCE]);
                    let near = tidegate_config::nearest(name, known);
                    let near = near.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
                    bail!("there is no page {name};{near} `tidegate docs` lists them")
                }
            }
        }
    }
}

fn page(name: &str) -> Option<String> {
    if name == REFERENCE || name == "reference/settings" {
        return Some(tidegate_config::reference());
    }
    PAGES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
}

/// The names, and what each is about: its first line.
fn list() -> String {
    let titles = PAGES.iter().map(|(name, text)| (*name, text.lines().next().unwrap_or_default()));
    let all = titles.chain([(REFERENCE, "# Every directive of the settings")]);
    all.map(|(name, title)| format!("{name:18} {}\n", title.trim_start_matches(['#', ' ']))).collect()
}

fn serve_site(arguments: &Arguments) -> Result<ExitCode> {
    let program = std::env::current_exe()?;
    let installed = program.ancestors().nth(2).map(|prefix| prefix.join("share/doc/tidegate/html"));
    let Some(folder) =
        arguments.folder.clone().or(installed).filter(|folder| folder.join("index.html").is_file())
    else {
        bail!(
            "no site was installed with this program; build it with `cargo xtask book`, and name it with --folder \
             target/book, or read the pages with `tidegate docs`"
        );
    };
    #[derive(Parser)]
    struct Serving {
        #[command(flatten)]
        arguments: serve::Arguments,
    }
    let folder = folder.into_os_string();
    let control =
        std::env::temp_dir().join(format!("tidegate-docs-{}.sock", std::process::id())).into_os_string();
    let words = [
        "docs".into(),
        folder,
        "--listen".into(),
        arguments.listen.clone().into(),
        "--control".into(),
        control,
    ];
    serve::run(Serving::try_parse_from(words)?.arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_titles_and_hints_lead_to_them() {
        let list = list();
        for name in ["from-nginx", "from-apache", "recipes", "settings", "packages", REFERENCE] {
            assert!(list.lines().any(|line| line.starts_with(name)), "{name} is not in\n{list}");
            assert!(page(name).is_some_and(|text| text.len() > 500), "{name}");
        }
        assert!(PAGES.iter().all(|(_, text)| text.starts_with("# ")));
        assert!(page("zebra").is_none());
    }
}
