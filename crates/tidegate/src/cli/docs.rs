//! `tidegate docs`: the documents of this very version, on a terminal or as a site of their own.
//!
//! The pages are part of the program, as Markdown; the reference is made anew of the table of directives. The site is part of
//! the program as packages carry it: mdBook makes it, `cargo xtask packages` names its folder, and `build.rs` packs it.

use super::{print, serve};
use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// The pages of `docs/`, packed.
const PAGES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pages.zst"));

/// The site, packed; no file in it where the program was built without.
const SITE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/site.zst"));

/// Where the site is served unless something else is said.
const LISTEN: &str = "127.0.0.1:8090";

/// What the reference is called.
const REFERENCE: &str = "reference";

/// What that of the load generator's scenarios is called.
const SCENARIOS: &str = "scenarios";

/// Shows the documents of this version.
///
/// Without a name it lists them. They are Markdown; links between them are their names, also those of recipes:
/// `../examples/recipes/wordpress.kdl` is `recipes/wordpress`. With --serve it serves them as a site, with a search, until it
/// is told to end; packages have the site, a build of one's own need not.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tidegate docs
  tidegate docs from-nginx | less
  tidegate docs recipes/wordpress > tidegate.kdl
  tidegate docs reference | grep -A 20 '### `limit`'
  tidegate docs --serve

Exit codes:
  0  done
  1  there is no such page, or this program was built without the site
  2  the arguments are wrong")]
pub struct Arguments {
    /// The page
    #[arg(conflicts_with = "serve")]
    name: Option<String>,
    /// Serve the site
    #[arg(long)]
    serve: bool,
    /// Serve the site, and listen for it there [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "name")]
    listen: Option<String>,
}

/// Shows or serves.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.serve || arguments.listen.is_some() {
        return serve_site(arguments);
    }
    match &arguments.name {
        None => print(&list()?),
        Some(name) => {
            let lower = name.to_ascii_lowercase();
            let name =
                lower.trim_start_matches("../").trim_start_matches("docs/").trim_start_matches("examples/");
            let name = name.trim_end_matches(".md").trim_end_matches(".kdl");
            match page(name)? {
                Some(text) => print(&text),
                None => {
                    let pages = pages()?;
                    let known = pages.iter().map(|(known, _)| known.as_str()).chain([REFERENCE, SCENARIOS]);
                    let near = tidegate_config::nearest(name, known);
                    let near = near.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
                    bail!("there is no page {name};{near} `tidegate docs` lists them")
                }
            }
        }
    }
}

fn page(name: &str) -> Result<Option<String>> {
    if name == REFERENCE || name == "reference/settings" {
        return Ok(Some(tidegate_config::reference()));
    }
    if name == SCENARIOS || name == "reference/scenarios" {
        return Ok(Some(tidegate_bench::scenario::reference()));
    }
    Ok(pages()?.into_iter().find(|(known, _)| known == name).map(|(_, text)| text))
}

/// The pages of `docs/`: names and texts.
pub(super) fn pages() -> Result<Vec<(String, String)>> {
    let page = |(name, text): (String, Vec<u8>)| {
        (
            name.trim_end_matches(".md").trim_end_matches(".kdl").to_owned(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    Ok(unpack(PAGES)?.into_iter().map(page).collect())
}

/// The names, and what each is about: its first line.
fn list() -> Result<String> {
    let mut list = String::new();
    for (name, text) in pages()? {
        list += &row(&name, text.lines().next().unwrap_or_default());
    }
    list += &row(REFERENCE, "Every directive of the settings");
    Ok(list + &row(SCENARIOS, "Every directive of scenario files"))
}

fn row(name: &str, title: &str) -> String {
    format!("{name:24} {}\n", title.trim_start_matches(['#', ' ', '/']))
}

/// The files of an archive: names and bytes, as `build.rs` has written them.
fn unpack(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let plain = zstd::decode_all(archive).context("the documents in this program are damaged")?;
    let mut files = Vec::new();
    let mut rest = plain.as_slice();
    while !rest.is_empty() {
        let (file, behind) = first_file(rest).context("the documents in this program are cut short")?;
        files.push(file);
        rest = behind;
    }
    Ok(files)
}

/// Its name, and what is in it.
type File = (String, Vec<u8>);

/// The first file, and what is behind it.
fn first_file(rest: &[u8]) -> Option<(File, &[u8])> {
    let line = |rest: &[u8]| rest.iter().position(|byte| *byte == b'\n');
    let (name, rest) = rest.split_at_checked(line(rest)?)?;
    let (length, rest) = rest.get(1..).and_then(|rest| rest.split_at_checked(line(rest)?))?;
    let length = std::str::from_utf8(length).ok()?.parse().ok()?;
    let (content, rest) = rest.get(1..)?.split_at_checked(length)?;
    Some(((String::from_utf8(name.to_vec()).ok()?, content.to_vec()), rest))
}

/// Serves the site from a folder that is there as long as it is served.
fn serve_site(arguments: &Arguments) -> Result<ExitCode> {
    let files = unpack(SITE)?;
    if files.is_empty() {
        bail!(
            "this program was built without the site, as `cargo build` does: `cargo xtask book` and then `tidegate serve \
             target/book` show it, and packages have it; `tidegate docs PAGE` shows a page here"
        );
    }
    #[derive(Parser)]
    struct Serving {
        #[command(flatten)]
        arguments: serve::Arguments,
    }
    let ground = Ground::new()?;
    let site = ground.0.join("site");
    for (name, content) in files {
        let path = site.join(name);
        let folder = path.parent().unwrap_or(&site);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, content))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let control = ground.0.join("control.sock").into_os_string();
    let words = [
        "docs".into(),
        site.into_os_string(),
        "--listen".into(),
        arguments.listen.clone().unwrap_or_else(|| LISTEN.to_owned()).into(),
        "--control".into(),
        control,
    ];
    serve::run(Serving::try_parse_from(words)?.arguments)
}

/// A folder that goes when it is no longer needed.
struct Ground(PathBuf);

impl Ground {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tidegate-docs-{}", std::process::id()));
        // One that is there is somebody else's.
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_titles_and_hints_lead_to_them() {
        let list = list().unwrap();
        for name in ["from-nginx", "from-apache", "recipes", "settings", "packages", REFERENCE, SCENARIOS] {
            assert!(list.lines().any(|line| line.starts_with(name)), "{name} is not in\n{list}");
            assert!(page(name).unwrap().is_some_and(|text| text.len() > 500), "{name}");
        }
        let is_titled = |(name, text): &(String, Vec<u8>)| name.contains('/') || text.starts_with(b"# ");
        assert!(unpack(PAGES).unwrap().iter().all(is_titled), "recipes alone are no pages");
        assert!(page("zebra").unwrap().is_none());
    }

    #[test]
    fn archives_that_are_cut_short_are_refused() {
        let whole = zstd::decode_all(PAGES).unwrap();
        let again = |plain: &[u8]| unpack(&zstd::encode_all(plain, 1).unwrap());
        assert_eq!(again(&whole).unwrap().len(), unpack(PAGES).unwrap().len());
        assert!(again(&whole[..whole.len() - 1]).is_err());
        assert!(again(b"name").is_err());
        assert!(again(b"name\nmany\n").is_err());
        assert!(unpack(&PAGES[..PAGES.len() / 2]).is_err());
        assert_eq!(
            again(b"a\n2\nb\nc\n0\n").unwrap(),
            [("a".into(), b"b\n".to_vec()), ("c".into(), Vec::new())]
        );
    }
}
