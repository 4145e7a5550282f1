//! Names the commit in the version of optimised builds, packs the documents, and has the linker pack the relocations of the program (`DT_RELR`): a megabyte less to carry and to read at each start.
//!
//! The dynamic linker must know them, which that of glibc does since 2.36. Where the C library is another or older, or
//! cannot be asked, they stay as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match commit() {
        Some(commit) => println!("cargo::rustc-env=TIDEGATE_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=TIDEGATE_VERSION={version}"),
    }
    documents();
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|present| present == value);
    let is_here = std::env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    if is_here && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && knows_packed() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The documents, for `tidegate docs`, and the site of them for `tidegate docs --serve`: an archive each.
fn documents() {
    let folder = Path::new("../../docs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut pages = files(folder);
    pages.retain(|(name, _)| !name.contains('/') && name.ends_with(".md"));
    // The recipes, which a page links to, and the page that the repository begins with.
    let (recipes, readme) = (Path::new("../../examples/recipes"), Path::new("../../README.md"));
    for path in [recipes, readme] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    pages.extend(files(recipes).into_iter().map(|(name, text)| (format!("recipes/{name}"), text)));
    pages.extend(std::fs::read(readme).ok().map(|text| ("readme.md".to_owned(), text)));
    archive("pages", &pages);
    // `cargo xtask packages` names the folder that mdBook has filled. A build without it serves no site, and says so.
    println!("cargo::rerun-if-env-changed=TIDEGATE_BOOK");
    let book = std::env::var_os("TIDEGATE_BOOK").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let site = book.map(|folder| {
        println!("cargo::rerun-if-changed={}", folder.display());
        let site = files(&folder);
        if !site.iter().any(|(name, _)| name == "index.html") {
            println!("cargo::error=TIDEGATE_BOOK names {}, where no index.html is", folder.display());
        }
        site
    });
    archive("site", &site.unwrap_or_default());
}

/// The files below a folder by their paths from it, in the order of those.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned);
            match (name, std::fs::read(&path)) {
                _ if path.is_dir() => folders.push(path),
                (Some(name), Ok(content)) => found.push((name, content)),
                _ => println!("cargo::error={} cannot be read", path.display()),
            }
        }
    }
    found.sort();
    found
}

/// Writes files as one archive: of each its name, a line feed, its length, a line feed and its bytes; all of it compressed
/// with zstd, since what pages share then costs once. `src/cli/docs.rs` reads it.
fn archive(name: &str, files: &[(String, Vec<u8>)]) {
    let mut plain = Vec::new();
    for (name, content) in files {
        plain.extend(format!("{name}\n{}\n", content.len()).into_bytes());
        plain.extend(content);
    }
    let output = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let written = zstd::encode_all(plain.as_slice(), 19)
        .and_then(|packed| std::fs::write(output.join(format!("{name}.zst")), packed));
    if let Err(error) = written {
        println!("cargo::error=the archive of the documents cannot be written: {error}");
    }
}

/// The commit that is built: what `TIDEGATE_COMMIT` says, where there is no repository, else what git says. A build to
/// develop with names none, so that a commit alone links nothing anew.
fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("TIDEGATE_COMMIT") {
        return Some(commit).filter(|commit| !commit.is_empty());
    }
    std::env::var("PROFILE").is_ok_and(|profile| profile == "release").then_some(())?;
    let git = |arguments: &[&str]| {
        let told = Command::new("git").args(arguments).output().ok().filter(|told| told.status.success())?;
        Some(String::from_utf8_lossy(&told.stdout).trim().to_owned())
    };
    // Its sources are those of a repository of its own, and not of one that they were unpacked into.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = PathBuf::from(git(&["rev-parse", "--git-path", file])?);
        let path = if path.is_absolute() { path } else { Path::new(".").join(path) };
        println!("cargo::rerun-if-changed={}", path.display());
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// `glibc 2.36` and later.
fn knows_packed() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
    let version = told.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| {
        matches!((major.parse::<u32>(), minor.parse::<u32>()), (Ok(major), Ok(minor)) if (major, minor) >= (2, 36))
    })
}
