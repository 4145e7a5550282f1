//! The files of an installation: where each of them belongs, and with which mode.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::architecture::Architecture;
use crate::workspace;

/// Where things go, as paths from the root.
pub struct Places {
    /// The program.
    pub program: String,
    /// What `share`, `lib/systemd` and `lib/sysusers.d` lie below.
    prefix: String,
}

impl Places {
    /// Everything below a prefix, settings in `/etc`.
    pub fn below(prefix: &str) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        Self { program: format!("{prefix}/bin/tidegate"), prefix }
    }

    /// Documents.
    pub fn documents(&self) -> String {
        format!("{}/share/doc/tidegate", self.prefix)
    }
}

/// A folder that files are put into as if it were the root.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where a path of the root lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn folder(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))
    }

    pub fn file(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let target = self.path(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        // A program that runs cannot be written to, and need not be: it keeps the file that it has.
        let _ = fs::remove_file(&target);
        fs::write(&target, content).with_context(|| format!("cannot write {}", target.display()))?;
        fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// The same, unless the file is there already: settings are their owner's.
    fn file_if_missing(&self, path: &str, content: &[u8]) -> Result<()> {
        if self.path(path).exists() { Ok(()) } else { self.file(path, 0o644, content) }
    }

    /// Puts everything where it belongs.
    pub fn fill(
        &self,
        places: &Places,
        architecture: Architecture,
        program: &Path,
        notices: &[PathBuf],
    ) -> Result<()> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        self.file(&places.program, 0o755, &bytes)?;
        self.manual(places, architecture, program)?;
        self.completions(places, architecture, program)?;
        self.service(places)?;
        let welcome = format!("{}/share/tidegate/welcome", places.prefix);
        let settings = String::from_utf8(source("dist/tidegate.kdl")?)?;
        let settings = settings.replace("/usr/share/tidegate/welcome", &welcome);
        self.file_if_missing("/etc/tidegate/tidegate.kdl", settings.as_bytes())?;
        self.folder("/etc/tidegate/sites")?;
        let page = String::from_utf8(source("dist/welcome/index.html")?)?;
        let page = page.replace("/usr/share/", &format!("{}/share/", places.prefix));
        self.file(&format!("{welcome}/index.html"), 0o644, page.as_bytes())?;
        self.documents(places, notices)
    }

    fn service(&self, places: &Places) -> Result<()> {
        let unit = String::from_utf8(source("dist/tidegate.service")?)?;
        let unit = unit
            .replace("/usr/local/bin/tidegate", &places.program)
            .replace("/usr/share/doc/tidegate", &places.documents());
        let units = format!("{}/lib/systemd/system", places.prefix);
        self.file(&format!("{units}/tidegate.service"), 0o644, unit.as_bytes())?;
        self.file(&format!("{units}/tidegate.socket"), 0o644, &source("dist/tidegate.socket")?)?;
        let users = format!("{}/lib/sysusers.d/tidegate.conf", places.prefix);
        self.file(&users, 0o644, &source("dist/tidegate.sysusers")?)?;
        self.file_if_missing("/etc/logrotate.d/tidegate", &source("dist/tidegate.logrotate")?)
    }

    fn manual(&self, places: &Places, architecture: Architecture, program: &Path) -> Result<()> {
        let folder = format!("{}/share/man/man1", places.prefix);
        self.folder(&folder)?;
        let here = self.path(&folder);
        workspace::run(
            architecture.command(program).arg("man").arg("--output").arg(&here).stdout(Stdio::null()),
        )?;
        for entry in fs::read_dir(&here)? {
            let path = entry?.path();
            let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tidegate"));
            if is_ours && path.extension().is_some_and(|extension| extension == "1") {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
                // Without name and time, so that the bytes are the same each time.
                workspace::run(Command::new("gzip").args(["-9nf"]).arg(&path))?;
            }
        }
        Ok(())
    }

    fn completions(&self, places: &Places, architecture: Architecture, program: &Path) -> Result<()> {
        for (shell, path) in [
            ("bash", "bash-completion/completions/tidegate"),
            ("zsh", "zsh/site-functions/_tidegate"),
            ("fish", "fish/vendor_completions.d/tidegate.fish"),
        ] {
            let text = workspace::output(architecture.command(program).args(["completions", shell]))?;
            self.file(&format!("{}/share/{path}", places.prefix), 0o644, text.as_bytes())?;
        }
        Ok(())
    }

    /// Documents in the folders that they have in the repository, so that their links lead somewhere.
    fn documents(&self, places: &Places, notices: &[PathBuf]) -> Result<()> {
        let folder = places.documents();
        let listed = workspace::output(
            Command::new("git").current_dir(workspace::root()).args(["ls-files", "docs", "examples", "dist"]),
        )?;
        let plain =
            ["README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "LICENSE-MIT", "LICENSE-APACHE"];
        for path in plain.into_iter().chain(listed.lines()) {
            let from = workspace::root().join(path);
            let mode =
                fs::metadata(&from).with_context(|| format!("cannot read {path}"))?.permissions().mode();
            let mode = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
            self.file(&format!("{folder}/{path}"), mode, &source(path)?)?;
        }
        for notice in notices {
            let name = notice.file_name().context("a notice has a name")?.to_string_lossy();
            self.file(&format!("{folder}/{name}"), 0o644, &fs::read(notice)?)?;
        }
        Ok(())
    }
}

/// A file of the repository.
pub fn source(path: &str) -> Result<Vec<u8>> {
    fs::read(workspace::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Gives all below a folder the same times, and folders the mode that everybody may enter.
pub fn settle(folder: &Path, time: u64) -> Result<()> {
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    workspace::run(
        Command::new("find").arg(folder).args(["-type", "d", "-exec", "chmod", "755", "{}", "+"]),
    )?;
    workspace::run(Command::new("find").arg(folder).args([
        "-exec",
        "touch",
        "-h",
        "-d",
        &format!("@{time}"),
        "{}",
        "+",
    ]))
}
