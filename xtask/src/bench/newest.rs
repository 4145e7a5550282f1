//! `cargo xtask bench peers`: the newest versions of the peers that can be had, built into `target/peers`, where all
//! benches look first.
//!
//! Debian's packages of a stable release are years older than what people compare with. The source of newer ones comes
//! through apt, from the suites below, into lists of its own: what is installed on this machine is not touched. Where
//! nothing newer can be had the package is measured, and every result says which versions it was made with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub struct Arguments {
    /// Build again what is there
    #[arg(long)]
    again: bool,
    /// Only say what is there
    #[arg(long)]
    list: bool,
}

/// A peer that is built.
struct Peer {
    program: &'static str,
    /// The argument that makes it tell its version.
    version: &'static str,
    package: &'static str,
    /// What building needs beside a C compiler and make: the program, or a file, that shows it, and its package.
    needs: &'static [(&'static str, &'static str)],
    build: fn(&Path, &Path) -> Result<PathBuf>,
}

const OPENSSL: (&str, &str) = ("/usr/include/openssl/ssl.h", "libssl-dev");
const ZLIB: (&str, &str) = ("/usr/include/zlib.h", "zlib1g-dev");

const PEERS: [Peer; 3] = [
    Peer { program: "nginx", version: "-v", package: "nginx", needs: &[OPENSSL, ZLIB], build: nginx },
    Peer {
        program: "lighttpd",
        version: "-v",
        package: "lighttpd",
        needs: &[("cmake", "cmake")],
        build: lighttpd,
    },
    Peer { program: "haproxy", version: "-v", package: "haproxy", needs: &[OPENSSL], build: haproxy },
];

/// Servers that no suite has anything newer of.
const PACKAGED: [(&str, &str); 2] = [("h2o", "-v"), ("apache2", "-v")];

/// Suites of Debian, whose newest version that can be fetched is taken.
const SUITES: [(&str, &str); 4] = [
    ("http://deb.debian.org/debian", "sid"),
    ("http://deb.debian.org/debian", "trixie-backports"),
    ("http://deb.debian.org/debian-security", "trixie-security"),
    ("http://deb.debian.org/debian", "trixie"),
];

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where the programs are put.
pub fn programs() -> PathBuf {
    workspace::target_directory().join("peers/bin")
}

/// Builds what is missing, and says what all benches will use.
pub fn run(arguments: &Arguments) -> Result<()> {
    let folder = workspace::target_directory().join("peers");
    fs::create_dir_all(programs())?;
    for peer in &PEERS {
        let is_there = programs().join(peer.program).is_file();
        if arguments.list || (is_there && !arguments.again) {
            continue;
        }
        if let Err(error) = fetch_and_build(peer, &folder) {
            println!("peers: no newer {}: {error:#}", peer.program);
        }
    }
    let built = PEERS.iter().map(|peer| (peer.program, peer.version));
    for (program, argument) in built.chain(PACKAGED) {
        println!("peers: {}", version(program, argument).unwrap_or_else(|| format!("{program} is absent")));
    }
    Ok(())
}

/// Builds what is missing, where it can be had.
pub fn build() -> Result<()> {
    run(&Arguments { again: false, list: false })
}

/// What a server says of itself, and where it comes from.
pub fn version(program: &str, argument: &str) -> Option<String> {
    let path = workspace::find_program(program)?;
    let output = Command::new(&path).arg(argument).stdin(Stdio::null()).output().ok()?;
    // nginx gives its version on standard error. wrk puts its own in front of a number: `wrk debian/4.1.0-3`.
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let line = text.lines().next()?;
    let origin = if path.starts_with(programs()) { "built from source" } else { "package" };
    let number =
        line.split([' ', '/']).find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    Some(format!("{program} {} ({origin})", number.split(['-', '+']).next().unwrap_or(number)))
}

fn fetch_and_build(peer: &Peer, folder: &Path) -> Result<()> {
    for program in ["apt-get", "cc", "make", "tar"] {
        if workspace::find_program(program).is_none() {
            bail!("{program} is missing");
        }
    }
    for (shown, package) in peer.needs {
        if workspace::find_program(shown).is_none() && !Path::new(shown).is_file() {
            bail!("{package} is missing: apt-get install {package}");
        }
    }
    let tarball = Archive::open(folder)?.newest(peer.package)?;
    let tree = folder.join("source").join(peer.program);
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree)?;
    workspace::output(
        Command::new("tar").arg("-xf").arg(&tarball).args(["--strip-components=1", "-C"]).arg(&tree),
    )?;
    println!("peers: building {}", tarball.file_name().unwrap_or_default().to_string_lossy());
    let prefix = folder.join(peer.program);
    let program = (peer.build)(&tree, &prefix)?;
    let link = programs().join(peer.program);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&program, &link).with_context(|| format!("cannot make {}", link.display()))?;
    fs::remove_dir_all(&tree).context("cannot remove the source")
}

/// Debian's source packages, in lists of our own.
struct Archive {
    folder: PathBuf,
}

impl Archive {
    fn open(folder: &Path) -> Result<Self> {
        let archive = Self { folder: folder.join("apt") };
        let lines = SUITES.map(|(uri, suite)| format!("deb-src [signed-by={KEYS}] {uri} {suite} main\n"));
        for part in ["lists/partial", "cache/archives/partial", "source"] {
            fs::create_dir_all(archive.folder.join(part))?;
        }
        fs::write(archive.folder.join("sources.list"), lines.concat())?;
        workspace::output(archive.command("apt-get").args(["update", "-qq"]))?;
        Ok(archive)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, part) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(part).display()));
        }
        command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root"]);
        command.current_dir(self.folder.join("source")).stdin(Stdio::null());
        command
    }

    /// Fetches the source of the newest version that is there: a list may name what a mirror has no more, or not yet.
    fn newest(&self, package: &str) -> Result<PathBuf> {
        let told = workspace::output(self.command("apt-cache").args(["showsrc", "--only-source", package]))?;
        let mut versions: Vec<&str> =
            told.lines().filter_map(|line| line.strip_prefix("Version: ")).map(str::trim).collect();
        versions.sort_by(|a, b| by_version(b, a));
        versions.dedup();
        for version in &versions {
            let mut command = self.command("apt-get");
            command.args(["source", "-qq", "--download-only", "--tar-only", &format!("{package}={version}")]);
            let upstream = version.rsplit_once('-').map_or(*version, |(upstream, _)| upstream);
            if workspace::output(&mut command).is_ok()
                && let Some(tarball) = self.tarball(package, upstream)?
            {
                return Ok(tarball);
            }
        }
        bail!("none of {} can be fetched", versions.join(", "))
    }

    fn tarball(&self, package: &str, upstream: &str) -> Result<Option<PathBuf>> {
        let beginning = format!("{package}_{upstream}.orig.tar.");
        for entry in fs::read_dir(self.folder.join("source"))? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&beginning) && !name.ends_with(".asc")) {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    }
}

/// Numbers by their value and what lies between by its bytes, as far as versions of these packages need it.
fn by_version(a: &str, b: &str) -> std::cmp::Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let (mut rest, mut parts) = (text, Vec::new());
        while !rest.is_empty() {
            let digits = rest.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..digits].parse().unwrap_or(0);
            rest = &rest[digits..];
            let words = rest.find(|byte: char| byte.is_ascii_digit()).unwrap_or(rest.len());
            parts.push((number, rest[..words].to_owned()));
            rest = &rest[words..];
        }
        parts
    };
    parts(a).cmp(&parts(b))
}

fn make(tree: &Path, arguments: &[String]) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command.arg(format!("-j{jobs}")).args(arguments).current_dir(tree).stdin(Stdio::null());
    workspace::output(&mut command).map(drop)
}

/// With what its packages are compiled with, and without what needs further libraries: rewriting by expressions.
fn nginx(tree: &Path, prefix: &Path) -> Result<PathBuf> {
    let mut configure = Command::new("./configure");
    configure.arg(format!("--prefix={}", prefix.display()));
    configure.args(["--with-http_ssl_module", "--with-http_v2_module", "--with-threads", "--with-file-aio"]);
    configure.args(["--without-http_rewrite_module", "--with-cc-opt=-O2 -fno-plt"]);
    workspace::output(configure.current_dir(tree).stdin(Stdio::null()))?;
    make(tree, &[])?;
    make(tree, &["install".to_owned()])?;
    Ok(prefix.join("sbin/nginx"))
}

fn lighttpd(tree: &Path, prefix: &Path) -> Result<PathBuf> {
    let build = tree.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(tree).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()));
    configure.args(["-DCMAKE_BUILD_TYPE=Release", "-DWITH_PCRE2=OFF", "-DWITH_PCRE=OFF", "-DWITH_ZLIB=OFF"]);
    configure.args(["-DWITH_LUA=OFF", "-DWITH_BROTLI=OFF", "-DWITH_BZIP=OFF"]);
    workspace::output(configure.stdin(Stdio::null()))?;
    make(&build, &["install".to_owned()])?;
    Ok(prefix.join("sbin/lighttpd"))
}

fn haproxy(tree: &Path, prefix: &Path) -> Result<PathBuf> {
    let place = format!("PREFIX={}", prefix.display());
    make(tree, &["TARGET=linux-glibc".to_owned(), "USE_OPENSSL=1".to_owned(), place.clone()])?;
    make(tree, &["install-bin".to_owned(), place])?;
    Ok(prefix.join("sbin/haproxy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let mut versions =
            ["1.26.3-3+deb13u7", "1.30.6-2", "1.26.3-3+deb13u11", "1.9.0-1", "2.0-1~bpo13+1"].to_vec();
        versions.sort_by(|a, b| by_version(a, b));
        assert_eq!(
            versions,
            ["1.9.0-1", "1.26.3-3+deb13u7", "1.26.3-3+deb13u11", "1.30.6-2", "2.0-1~bpo13+1"]
        );
    }
}
