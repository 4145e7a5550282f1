//! The kinds of processors that packages are made for: what builds programs for each, and what runs them here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace;

/// A kind of processor, by the name that Debian and container images have for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    Amd64,
    Arm64,
}

/// What a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The C library of the distribution, loaded at the start.
    Gnu,
    /// musl, as part of the program.
    Musl,
}

impl Architecture {
    /// That of this machine.
    pub fn here() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("no packages are made for {other}"),
        }
    }

    pub fn is_here(self) -> bool {
        Self::here().is_ok_and(|here| here == self)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn processor(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// What rustc calls it.
    pub fn target(self, library: Library) -> String {
        let processor = self.processor();
        match library {
            Library::Gnu => format!("{processor}-unknown-linux-gnu"),
            Library::Musl => format!("{processor}-unknown-linux-musl"),
        }
    }

    /// A program of binutils or gcc that knows it.
    pub fn tool(self, name: &str) -> String {
        if self.is_here() { name.to_owned() } else { format!("{}-linux-gnu-{name}", self.processor()) }
    }

    /// The compiler of C.
    pub fn compiler(self, library: Library) -> String {
        match library {
            Library::Gnu => self.tool("gcc"),
            Library::Musl if self.is_here() => "musl-gcc".to_owned(),
            Library::Musl => format!("{}-linux-musl-gcc", self.processor()),
        }
    }

    /// Fails where something is missing to build, pack and run its programs, with what installs it: before a build of
    /// minutes, and not behind it.
    pub fn prepared(self, library: Library) -> Result<()> {
        let (name, cross) = (self.name(), format!("{}-linux-gnu", self.processor().replace('_', "-")));
        let mut wanted = vec![(
            self.tool("objcopy"),
            if self.is_here() { "binutils".to_owned() } else { format!("binutils-{cross}") },
        )];
        if !self.is_here() {
            wanted.push((self.tool("gcc"), format!("gcc-{cross} libc6-dev-{name}-cross")));
            wanted.push((self.emulator(), "qemu-user-static".to_owned()));
        }
        if library == Library::Musl {
            let package = if self.is_here() {
                "musl-tools".to_owned()
            } else {
                format!("musl-dev:{name}, after: dpkg --add-architecture {name} && apt-get update")
            };
            wanted.push((self.compiler(library), package));
        }
        for (program, package) in wanted {
            if workspace::find_program(&program).is_none() {
                bail!("{program} is missing: apt-get install {package}");
            }
        }
        let target = self.target(library);
        let told = Command::new("rustup").args(["target", "list", "--installed"]).output();
        let installed =
            told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
        let is_host = self.is_here() && library == Library::Gnu;
        if !is_host && !installed.lines().any(|line| line == target) {
            bail!("the target is missing: rustup target add {target}");
        }
        Ok(())
    }

    fn emulator(self) -> String {
        format!("qemu-{}-static", self.processor())
    }

    /// A command that runs a program of it, by qemu where this machine is another.
    pub fn command(self, program: &Path) -> Command {
        if self.is_here() {
            return Command::new(program);
        }
        let mut command = Command::new(self.emulator());
        command.arg("-L").arg(format!("/usr/{}-linux-gnu", self.processor())).arg(program);
        command
    }
}
