//! The package of Debian: the tree of files, the user, the service, and an upgrade that loses no request.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::architecture::Architecture;
use super::commit_time;
use super::tree::{Places, Tree, settle, source};
use crate::workspace;

/// Settings of the machine's owner, which an upgrade asks about before it changes them.
const SETTINGS: &str = "/etc/tidegate/tidegate.kdl\n/etc/logrotate.d/tidegate\n";

/// Makes the package; returns its path.
pub fn make(
    output: &Path,
    architecture: Architecture,
    program: &Path,
    version: &str,
    maintainer: &str,
    notices: &[PathBuf],
) -> Result<PathBuf> {
    if workspace::find_program("dpkg-deb").is_none() {
        bail!("dpkg-deb is missing: the package of Debian can only be made where dpkg is");
    }
    let folder = output.join("deb");
    let _ = fs::remove_dir_all(&folder);
    let tree = Tree::new(&folder);
    let places = Places::below("/usr");
    tree.fill(&places, architecture, program, notices)?;
    let documents = places.documents();
    tree.file(&format!("{documents}/copyright"), 0o644, &copyright()?)?;
    let control = control(program, version, maintainer, architecture, size(&folder)?)?;
    tree.file("/DEBIAN/md5sums", 0o644, sums(&folder)?.as_bytes())?;
    tree.file("/DEBIAN/control", 0o644, control.as_bytes())?;
    tree.file("/DEBIAN/conffiles", 0o644, SETTINGS.as_bytes())?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.file(&format!("/DEBIAN/{script}"), 0o755, &source(&format!("dist/debian/{script}"))?)?;
    }
    let time = commit_time()?;
    settle(&folder, time)?;
    let package = output.join(format!("tidegate_{version}_{}.deb", architecture.name()));
    workspace::run(
        Command::new("dpkg-deb")
            .args(["--build", "--root-owner-group", "-Zxz"])
            .args([&folder, &package])
            .env("SOURCE_DATE_EPOCH", time.to_string())
            .stdout(std::process::Stdio::null()),
    )?;
    fs::remove_dir_all(&folder)?;
    Ok(package)
}

fn control(
    program: &Path,
    version: &str,
    maintainer: &str,
    architecture: Architecture,
    size: u64,
) -> Result<String> {
    let libraries = libraries(program, architecture)?;
    let architecture = architecture.name();
    Ok(format!(
        "Package: tidegate\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {size}\n\
         Depends: {libraries}\n\
         Recommends: ca-certificates, logrotate\n\
         Suggests: php-cgi\n\
         Provides: httpd, httpd-cgi\n\
         Section: httpd\n\
         Priority: optional\n\
         Description: web server that holds under the flood, and explains what it does\n \
         Static files over HTTP/1.1 and HTTP/2, TLS with certificates that it gets by itself,\n \
         applications behind FastCGI, SCGI, CGI, HTTP and gRPC, which it starts and watches.\n \
         Settings are checked before they count and change without closing a connection.\n",
    ))
}

/// What the program is linked with, and how new it has to be.
fn libraries(program: &Path, architecture: Architecture) -> Result<String> {
    let told = workspace::output(Command::new(architecture.tool("objdump")).args(["-T"]).arg(program))?;
    let newest = told
        .split(['(', ')', ' ', '\n'])
        .filter_map(|word| word.strip_prefix("GLIBC_"))
        .filter_map(|version| version.split_once('.'))
        .filter_map(|(major, minor)| {
            Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
        })
        .max();
    // Packed relocations are read by 2.36 and later, and no symbol says so.
    let (major, minor) = newest.context("the program names no version of the C library")?.max((2, 36));
    Ok(format!("libc6 (>= {major}.{minor}), libgcc-s1"))
}

fn copyright() -> Result<Vec<u8>> {
    let mut text = b"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
        Upstream-Name: Tidegate\n\nFiles: *\nCopyright: the Tidegate contributors\nLicense: MIT or Apache-2.0\n\n\
        License: MIT\n"
        .to_vec();
    for line in String::from_utf8(source("LICENSE-MIT")?)?.lines() {
        text.extend(if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }.into_bytes());
    }
    text.extend(b"\nLicense: Apache-2.0\n See /usr/share/common-licenses/Apache-2.0.\n");
    Ok(text)
}

/// Of all files, in KiB.
fn size(folder: &Path) -> Result<u64> {
    let told = workspace::output(Command::new("du").args(["-sk", "--apparent-size"]).arg(folder))?;
    told.split_whitespace().next().and_then(|size| size.parse().ok()).context("du names no size")
}

fn sums(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    gather(folder, folder, &mut files)?;
    files.sort();
    workspace::output(Command::new("md5sum").current_dir(folder).args(files))
}

fn gather(folder: &Path, root: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, root, files)?;
        } else {
            debug_assert!(fs::metadata(&path)?.permissions().mode() & 0o400 != 0);
            let path = path.strip_prefix(root)?.to_owned();
            // Settings are their owner's: dpkg knows the sums of those itself.
            if !path.starts_with("etc") {
                files.push(path);
            }
        }
    }
    Ok(())
}
