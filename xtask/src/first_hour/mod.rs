//! `cargo xtask first-hour`: plays `docs/first-hour.md` on a Debian 12 with nothing else on it, and says how long that takes.
//!
//! The system comes from debootstrap, once; each play is on a copy of it (overlayfs) in namespaces of its own, where systemd is
//! process 1 and the units are those of the packages. There is no network but the loopback: what the page installs from Debian
//! is fetched before, as apt does it.

mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;
use page::Step;

/// The page that is played.
const PAGE: &str = "docs/first-hour.md";

/// What the page promises.
const MOST: Duration = Duration::from_secs(600);

/// How long a command that asks (`curl`) is asked again, until it has the answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is played.
#[derive(clap::Args)]
pub struct Arguments {
    /// The package of Debian, as `cargo xtask packages` has made it
    #[arg(long, value_name = "FILE")]
    package: PathBuf,
}

/// Plays it.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("first-hour makes a system in a folder, and takes root");
    }
    let text =
        fs::read_to_string(workspace::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let steps = page::steps(&text).context(PAGE)?;
    let package = fs::canonicalize(&arguments.package)
        .with_context(|| format!("{} is not there", arguments.package.display()))?;
    let folder = workspace::target_directory().join("first-hour");
    fs::create_dir_all(&folder)?;
    let folder = fs::canonicalize(&folder)?;
    let debian = folder.join("debian");
    let before = Instant::now();
    fetch(&debian, &page::packages(&steps))?;
    println!("first-hour: Debian is there and its packages are fetched, after {}", seconds(before.elapsed()));
    let system = System::boot(&folder, &debian)?;
    system.put(&package)?;
    let started = Instant::now();
    for step in &steps {
        let begun = Instant::now();
        let told = system.carry_out(step)?;
        println!("first-hour: {:>7}  {told}", seconds(begun.elapsed()));
    }
    let taken = started.elapsed();
    system.look_back()?;
    println!("first-hour: all {} steps of {PAGE} in {}", steps.len(), seconds(taken));
    if taken > MOST {
        bail!("the page promises ten minutes");
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Makes the system, and has apt fetch what will be installed.
fn fetch(debian: &Path, packages: &[&str]) -> Result<()> {
    if !debian.exists() {
        if workspace::find_program("debootstrap").is_none() {
            bail!("debootstrap is missing: apt-get install debootstrap");
        }
        let draft = debian.with_extension("new");
        let _ = fs::remove_dir_all(&draft);
        let mut command = Command::new("debootstrap");
        command.arg("bookworm").arg(&draft).arg("http://deb.debian.org/debian");
        workspace::run(command.stdout(Stdio::null()))?;
        fs::rename(&draft, debian)?;
    }
    for words in
        [vec!["update", "-qq"], [vec!["install", "-y", "-qq", "--download-only"], packages.to_vec()].concat()]
    {
        let mut command = Command::new("chroot");
        command.arg(debian).arg("apt-get").args(words).env("PATH", PATHS);
        workspace::run(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
    }
    Ok(())
}

const PATHS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A copy of the system that runs; it ends and goes with this value.
struct System {
    unshare: Child,
    folder: PathBuf,
    cgroup: PathBuf,
    /// Process 1 of it, as this system counts.
    init: String,
}

impl System {
    fn boot(folder: &Path, debian: &Path) -> Result<Self> {
        let name = format!("tidegate-first-hour-{}", std::process::id());
        let folder = folder.join(&name);
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(folder.join(part))?;
        }
        // A group of its own, so that what systemd sees as the root of all is not the machine's.
        let groups = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let groups = groups.into_iter().find(|groups| groups.join("cgroup.procs").exists());
        let cgroup = groups.context("there is no cgroup2 here, which systemd needs")?.join(&name);
        fs::create_dir_all(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
        let script = workspace::root().join("xtask/src/first_hour/boot.sh");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(cgroup.join("cgroup.procs"));
        command.args([
            "unshare",
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--cgroup",
            "--fork",
            "--kill-child",
        ]);
        command.args(["bash", "-euo", "pipefail"]).arg(script).args([&folder, debian]);
        let log = fs::File::create(folder.join("boot.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let unshare = command.spawn().context("cannot start unshare")?;
        let mut system = Self { unshare, folder, cgroup, init: String::new() };
        system.wait()?;
        Ok(system)
    }

    /// Until systemd has started all.
    fn wait(&mut self) -> Result<()> {
        let children = format!("/proc/{0}/task/{0}/children", self.unshare.id());
        let until = Instant::now() + PATIENCE;
        loop {
            self.init = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            let state = self.inside(&["systemctl", "is-system-running", "--wait"]).output();
            let state =
                state.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
            if !self.init.is_empty() && (state == "running" || state == "degraded") {
                return Ok(());
            }
            if let Some(status) = self.unshare.try_wait()? {
                bail!("the system ended with {status}: {}", self.boot_log());
            }
            if Instant::now() > until {
                bail!("systemd does not start: {}", self.boot_log());
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn boot_log(&self) -> String {
        fs::read_to_string(self.folder.join("boot.log")).unwrap_or_default()
    }

    /// A command of root's in the system, as a login has it.
    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--all", "--root", "--wd", "--", "env", "-i"]);
        command.args([
            &format!("PATH={PATHS}"),
            "HOME=/root",
            "LANG=C.UTF-8",
            "DEBIAN_FRONTEND=noninteractive",
        ]);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Puts a file into the folder that commands are run in.
    fn put(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("a package has a name")?.to_string_lossy();
        let mut command = self.inside(&["sh", "-c", "cat > \"/root/$0\"", &name]);
        workspace::run(command.stdin(fs::File::open(file)?))
    }

    /// Does what a step says; returns it in short.
    fn carry_out(&self, step: &Step) -> Result<String> {
        match step {
            Step::File { path, content, is_added } => {
                let draft = self.folder.join("file");
                fs::write(&draft, content)?;
                let script = if *is_added { "cat >> \"$0\"" } else { "cat > \"$0\"" };
                workspace::run(self.inside(&["sh", "-c", script, path]).stdin(fs::File::open(&draft)?))?;
                Ok(path.clone())
            }
            Step::Run { commands, expected } => {
                // What only asks may ask before there is an answer, as whoever reads the page would.
                let until =
                    Instant::now() + if commands.starts_with("curl ") { PATIENCE } else { Duration::ZERO };
                loop {
                    let script = format!("cd /root\n{commands}");
                    let told = self.inside(&["bash", "-euo", "pipefail", "-c", &script]).output()?;
                    let said = String::from_utf8_lossy(&told.stdout);
                    let missing = expected.iter().find(|line| !said.contains(line.as_str()));
                    if told.status.success() && missing.is_none() {
                        return Ok(commands.lines().collect::<Vec<_>>().join("; "));
                    }
                    if Instant::now() >= until {
                        let why =
                            missing.map(|line| format!(" and does not say {line:?}")).unwrap_or_default();
                        let errors = String::from_utf8_lossy(&told.stderr);
                        bail!("{commands}ends with {}{why}:\n{said}\n{errors}\n{}", told.status, self.log());
                    }
                    std::thread::park_timeout(Duration::from_millis(200));
                }
            }
        }
    }

    fn log(&self) -> String {
        let told = self.inside(&["cat", "/var/log/tidegate/error.log"]).output();
        told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
    }

    /// Whether the server itself has met anything that a page for beginners does not speak of.
    fn look_back(&self) -> Result<()> {
        let log = self.log();
        let is_bad =
            |line: &&str| line.contains(" error: ") || line.contains("openat2") || line.contains("landlock");
        match log.lines().find(is_bad) {
            Some(line) => bail!("the error log of the server has: {line}"),
            None => Ok(()),
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // The last of its processes may still be ending.
        let until = Instant::now() + PATIENCE;
        while remove_groups(&self.cgroup).is_err() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("first-hour: {} is left: {error}", self.folder.display());
        }
    }
}

/// Removes a control group with those in it.
fn remove_groups(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
