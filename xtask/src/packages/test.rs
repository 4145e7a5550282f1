//! `cargo xtask package-test`: packages as people meet them. The `.deb` is installed, upgraded under load and purged in a copy of
//! this system that is thrown away (overlayfs in a mount namespace of its own, so it takes root); the image's root runs
//! read-only, without root, as process 1.
//!
//! The steps are shell, since that is what they are for whoever does them by hand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context, Result, bail};

use super::{Arguments as PackageArguments, commit_time};
use crate::workspace;

/// What is tested.
#[derive(clap::Args)]
pub struct Arguments {
    /// Pack this program for the test; without it the one of `cargo build`
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Put this static program into the image; without it the one that is packed, with its libraries
    #[arg(long, value_name = "FILE")]
    image_program: Option<PathBuf>,
}

/// Runs all of it.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("package-test installs packages in a copy of this system, and takes root");
    }
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => {
            workspace::run(workspace::cargo().args(["build", "--quiet", "--package", "tidegate"]))?;
            workspace::target_directory().join("debug/tidegate")
        }
    };
    let program =
        std::fs::canonicalize(&program).with_context(|| format!("{} is not there", program.display()))?;
    let output = workspace::target_directory().join("packages/test");
    let _ = std::fs::remove_dir_all(&output);
    std::fs::create_dir_all(&output)?;
    // Debug lines are not part of the test, and packing them would take minutes.
    let stripped = output.join("tidegate");
    workspace::run(Command::new("objcopy").arg("--strip-all").args([&program, &stripped]))?;
    let program = stripped;
    let packages = [("first", "0.0.1"), ("second", "0.0.2"), ("again", "0.0.2")];
    for (folder, version) in packages {
        super::run(&PackageArguments {
            architecture: None,
            program: Some(program.clone()),
            image_program: arguments.image_program.clone(),
            without_notices: true,
            version: Some(version.to_owned()),
            maintainer: "Test <test@localhost.invalid>".to_owned(),
            output: output.join(folder),
        })?;
    }
    same_bytes(&output.join("second"), &output.join("again"))?;
    println!("package-test: the same commit gives the same bytes");
    let ground = Ground::new()?;
    script(&ground.0, &output, "deb-test.sh")?;
    println!(
        "package-test: the package installs, upgrades under load without a request lost, and leaves nothing"
    );
    script(&ground.0, &output, "image-test.sh")?;
    println!("package-test: the image runs read-only, without root, as process 1");
    prefix(&ground.0, &program)?;
    println!("package-test: install puts everything below its prefix, and says so in the unit");
    debug_assert!(commit_time()? > 0);
    Ok(())
}

/// A folder of the test's own that goes with it.
pub(super) struct Ground(PathBuf);

impl Ground {
    pub(super) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-packages-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn same_bytes(first: &Path, second: &Path) -> Result<()> {
    let mut compared = 0;
    for entry in std::fs::read_dir(first)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?;
        if path.is_file() {
            let (one, other) = (std::fs::read(&path)?, std::fs::read(second.join(name))?);
            if one != other {
                bail!("{} is different each time", path.display());
            }
            compared += 1;
        }
    }
    if compared < 2 {
        bail!("only {compared} packages were made");
    }
    Ok(())
}

/// Runs a script of this folder in a mount and process namespace of its own; it fails where a command in it does.
fn script(ground: &Path, packages: &Path, name: &str) -> Result<()> {
    let path = workspace::root().join("xtask/src/packages").join(name);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"]);
    command.args(["bash", "-euo", "pipefail"]).arg(path).args([ground, packages]);
    workspace::run(command.stdin(std::process::Stdio::null()))
}

fn prefix(ground: &Path, program: &Path) -> Result<()> {
    let destdir = ground.join("installed");
    super::install(&super::InstallArguments {
        program: Some(program.to_owned()),
        destdir: destdir.clone(),
        prefix: "/opt/tidegate".to_owned(),
    })?;
    let read = |path: &str| {
        std::fs::read_to_string(destdir.join(path)).with_context(|| format!("{path} was not installed"))
    };
    let unit = read("opt/tidegate/lib/systemd/system/tidegate.service")?;
    if !unit.contains("ExecStart=/opt/tidegate/bin/tidegate serve") {
        bail!("the unit starts another program:\n{unit}");
    }
    let document = unit.lines().find_map(|line| line.strip_prefix("Documentation=file:/"));
    read(document.context("the unit names no document")?)?;
    read("etc/tidegate/tidegate.kdl")?;
    for path in ["opt/tidegate/share/man/man1/tidegate.1.gz", "opt/tidegate/bin/tidegate"] {
        std::fs::metadata(destdir.join(path)).with_context(|| format!("{path} was not installed"))?;
    }
    Ok(())
}
