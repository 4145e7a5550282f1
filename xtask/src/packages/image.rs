//! The container image as an OCI layout, made without a registry and without a container engine.
//!
//! Nothing but the program, its settings and a page: the root file system may be read-only, the user is not root, and the
//! program is process 1. (OCI image specification: `oci-layout`, `index.json`, `blobs/sha256`.)

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::architecture::Architecture;
use super::commit_time;
use super::tree::{Tree, settle, source};
use crate::workspace;

/// Whom the program runs as: a number that is nobody's on the host.
const USER: &str = "65532";

/// Folders of that user; all else is root's and only read.
const OWN: [&str; 4] = ["run/tidegate", "var/lib/tidegate", "var/log/tidegate", "tmp"];

/// Makes the image; returns the archive of its layout.
pub fn make(
    output: &Path,
    architecture: Architecture,
    program: &Path,
    version: &str,
    is_static: bool,
) -> Result<PathBuf> {
    if !is_static && !architecture.is_here() {
        bail!("an image for {} takes a static program: --image-program FILE", architecture.name());
    }
    let time = commit_time()?;
    let root = output.join("image-root");
    let _ = fs::remove_dir_all(&root);
    fill(&Tree::new(&root), program, is_static)?;
    settle(&root, time)?;
    let tmp = root.join("tmp");
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))?;

    let layout = output.join("image");
    let _ = fs::remove_dir_all(&layout);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = output.join("layer.tar");
    archive(&root, &layer, time)?;
    let difference = digest(&layer)?;
    workspace::run(Command::new("gzip").args(["-9nf"]).arg(&layer))?;
    let layer =
        keep(&blobs, &fs::read(output.join("layer.tar.gz"))?, "application/vnd.oci.image.layer.v1.tar+gzip")?;
    fs::remove_file(output.join("layer.tar.gz"))?;

    let created = workspace::output(Command::new("date").args([
        "-u",
        "-d",
        &format!("@{time}"),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]))?;
    let config = json!({
        "architecture": architecture.name(),
        "os": "linux",
        "created": created.trim(),
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "8080/tcp": {} },
            "Entrypoint": ["/usr/bin/tidegate"],
            "Cmd": ["serve", "--config", "/etc/tidegate/tidegate.kdl", "--control", "/run/tidegate/tidegate.sock"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Labels": { "org.opencontainers.image.title": "Tidegate", "org.opencontainers.image.version": version },
            // Not of the specification; engines that know it ask, and others leave it.
            "Healthcheck": { "Test": ["CMD", "/usr/bin/tidegate", "status", "--control", "/run/tidegate/tidegate.sock"] },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{difference}")] },
        "history": [{ "created": created.trim(), "created_by": "cargo xtask packages" }],
    });
    let config = keep(&blobs, &serde_json::to_vec(&config)?, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest =
        keep(&blobs, &serde_json::to_vec(&manifest)?, "application/vnd.oci.image.manifest.v1+json")?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    settle(&layout, time)?;
    let image = output.join(format!("tidegate-{version}-{}.oci.tar", architecture.name()));
    workspace::run(tar(&layout, time).arg("-cf").arg(&image).args(["oci-layout", "index.json", "blobs"]))?;
    fs::remove_dir_all(&layout)?;
    fs::remove_dir_all(&root)?;
    Ok(image)
}

fn fill(tree: &Tree, program: &Path, is_static: bool) -> Result<()> {
    tree.file(
        "/usr/bin/tidegate",
        0o755,
        &fs::read(program).with_context(|| format!("cannot read {}", program.display()))?,
    )?;
    tree.file("/etc/tidegate/tidegate.kdl", 0o644, &source("dist/image/tidegate.kdl")?)?;
    tree.file("/srv/www/index.html", 0o644, &source("dist/welcome/index.html")?)?;
    let users = format!(
        "root:x:0:0:root:/:/sbin/nologin\ntidegate:x:{USER}:{USER}:Tidegate:/var/lib/tidegate:/sbin/nologin\n"
    );
    tree.file("/etc/passwd", 0o644, users.as_bytes())?;
    tree.file("/etc/group", 0o644, format!("root:x:0:\ntidegate:x:{USER}:\n").as_bytes())?;
    tree.file("/etc/nsswitch.conf", 0o644, b"hosts: files dns\n")?;
    // The last three are mounted by the engine, which cannot make them where the root is read-only.
    for folder in OWN.into_iter().chain(["dev", "proc", "sys"]) {
        tree.folder(folder)?;
    }
    // What certificates of others are verified by, as this machine has it.
    let authorities = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if authorities.exists() {
        tree.file("/etc/ssl/certs/ca-certificates.crt", 0o644, &fs::read(authorities)?)?;
    } else {
        println!("packages: the image has no authorities: apt-get install ca-certificates");
    }
    if !is_static {
        for library in libraries(program)? {
            let bytes = fs::read(&library).with_context(|| format!("cannot read {library}"))?;
            tree.file(&library, 0o755, &bytes)?;
        }
    }
    Ok(())
}

/// The libraries that a program is started with, by their paths.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let told = workspace::output(Command::new("ldd").arg(program))?;
    let paths = told.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    Ok(paths.map(str::to_owned).collect())
}

/// `tar` in a folder, with nothing of the machine in what it writes.
pub fn tar(folder: &Path, time: u64) -> Command {
    let mut command = Command::new("tar");
    command.arg("-C").arg(folder).args([
        "--format=gnu",
        "--sort=name",
        "--numeric-owner",
        &format!("--mtime=@{time}"),
    ]);
    command.args(["--owner=0", "--group=0"]);
    command
}

fn archive(root: &Path, layer: &Path, time: u64) -> Result<()> {
    let mut all = tar(root, time);
    all.args(OWN.map(|own| format!("--exclude=./{own}")));
    workspace::run(all.arg("-cf").arg(layer).arg("."))?;
    let mut own = tar(root, time);
    own.args([format!("--owner={USER}"), format!("--group={USER}")]);
    workspace::run(own.arg("-rf").arg(layer).args(OWN.map(|own| format!("./{own}"))))
}

fn digest(path: &Path) -> Result<String> {
    let told = workspace::output(Command::new("sha256sum").arg(path))?;
    Ok(told.split_whitespace().next().context("sha256sum says nothing")?.to_owned())
}

/// Stores a blob under its digest; returns its descriptor.
fn keep(blobs: &Path, bytes: &[u8], media_type: &str) -> Result<Value> {
    let unnamed = blobs.join("new");
    fs::write(&unnamed, bytes)?;
    let digest = digest(&unnamed)?;
    fs::rename(&unnamed, blobs.join(&digest))?;
    Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
}
