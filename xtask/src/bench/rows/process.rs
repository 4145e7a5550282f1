//! Rows about the program itself: how soon it serves, what it holds at rest, how large it is, many sites, and how long
//! it takes to build it the first time.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::server::{end, free_port};
use super::super::{cpu, generator, host};
use super::{Bench, Figure};
use crate::workspace;

/// A folder of its own below `target/bench`, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = workspace::target_directory().join(format!("bench/{name}-{}", std::process::id()));
        let folder = Self(path);
        fs::create_dir_all(folder.documents())?;
        fs::write(folder.documents().join("1k.bin"), [b'x'; 1024])?;
        Ok(folder)
    }

    /// What is served. The settings are not among it, which each site would be warned of.
    fn documents(&self) -> PathBuf {
        self.0.join("documents")
    }

    fn settings(&self, text: &str) -> Result<PathBuf> {
        let path = self.0.join("tidegate.kdl");
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("bench: {} is left over: {error}", self.0.display());
        }
    }
}

/// A server that has given its first answer.
struct Started {
    child: Child,
    /// From the command to the answer.
    took: Duration,
}

impl Started {
    fn new(folder: &Folder, settings: &PathBuf, port: u16, patience: Duration) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(generator::tidegate()).arg("serve").arg("--config");
        command.arg(settings).arg("--control").arg(folder.0.join("control"));
        let log = fs::File::create(folder.0.join("output.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let begun = Instant::now();
        let child = command.spawn().context("cannot start tidegate")?;
        let mut started = Self { child, took: Duration::ZERO };
        while !answers(port) {
            if begun.elapsed() > patience || started.child.try_wait()?.is_some() {
                let log = fs::read_to_string(folder.0.join("output.log")).unwrap_or_default();
                bail!("it does not answer within {patience:?}: {}", log.lines().last().unwrap_or_default());
            }
            // Often enough for a figure of milliseconds, without taking the processor from who is to be measured.
            std::thread::park_timeout(Duration::from_micros(200));
        }
        started.took = begun.elapsed();
        Ok(started)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Whether a server answers a request with 200.
pub fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut first = [0; 12];
    // One that accepts and says nothing is asked again, until whoever waits has no more patience.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    stream.write_all(b"GET /1k.bin HTTP/1.1\r\nHost: s0.test\r\nConnection: close\r\n\r\n").is_ok()
        && stream.read_exact(&mut first).is_ok()
        && first.starts_with(b"HTTP/1.1 200")
}

fn one_site(folder: &Folder, port: u16) -> String {
    format!(
        "workers 1\nlisten \"127.0.0.1:{port}\"\naccess-log off\nsite {{ root \"{}\" }}\n",
        folder.documents().display()
    )
}

/// Milliseconds from the command to the first answer.
pub fn start(bench: &Bench) -> Result<Figure> {
    let folder = Folder::new("start")?;
    let mut times = Vec::new();
    for _ in 0..bench.many(11, 2) {
        let port = free_port()?;
        let settings = folder.settings(&one_site(&folder, port))?;
        times.push(Started::new(&folder, &settings, port, Duration::from_secs(20))?.took.as_secs_f64() * 1e3);
    }
    Figure::of(times, "master and one server process with one worker")
}

/// Megabytes that all processes hold once they have answered a request.
pub fn rest(_: &Bench) -> Result<Figure> {
    let folder = Folder::new("rest")?;
    let port = free_port()?;
    let settings = folder.settings(&one_site(&folder, port))?;
    let server = Started::new(&folder, &settings, port, Duration::from_secs(20))?;
    let processes = cpu::process_tree(server.child.id())?;
    // Whatever it still does after the start is done when it uses no more time.
    let mut used = cpu::time_used(&processes)?;
    for _ in 0..20 {
        std::thread::park_timeout(Duration::from_millis(250));
        let now = cpu::time_used(&processes)?;
        if now == used {
            break;
        }
        used = now;
    }
    let bytes = cpu::resident_bytes(&processes)?;
    let detail = format!("{} processes; what no file backs, shared pages shared out", processes.len());
    Ok(Figure::once(bytes as f64 / 1e6, detail))
}

/// Megabytes of the program as packages carry it: its debug lines are in a file of their own.
pub fn size(_: &Bench) -> Result<Figure> {
    let program = generator::tidegate();
    let length = |path: &PathBuf| Ok::<_, anyhow::Error>(fs::metadata(path)?.len() as f64 / 1e6);
    let whole = length(&program).context("there is no program")?;
    let folder = Folder::new("size")?;
    let stripped = folder.0.join("tidegate");
    workspace::output(Command::new("strip").arg("-o").args([&stripped, &program]).stdin(Stdio::null()))?;
    Ok(Figure::once(length(&stripped)?, format!("{whole:.1} MB with its debug lines")))
}

/// Settings with so many sites of one root.
fn many_sites(folder: &Folder, port: u16, sites: u32) -> Result<PathBuf> {
    let mut text = format!("workers 1\nlisten \"127.0.0.1:{port}\"\naccess-log off\n");
    for number in 0..sites {
        writeln!(
            text,
            "site \"s{number}.test\" \"www.s{number}.test\" {{ root \"{}\" }}",
            folder.documents().display()
        )?;
    }
    folder.settings(&text)
}

/// Seconds that `check` takes with many sites.
pub fn check_sites(bench: &Bench) -> Result<Figure> {
    let (folder, sites) = (Folder::new("sites")?, bench.many(50_000, 500));
    let settings = many_sites(&folder, free_port()?, sites)?;
    let mut times = Vec::new();
    for _ in 0..bench.many(3, 1) {
        let mut command = Command::new(generator::tidegate());
        command.args(["check", "--config"]).arg(&settings).stdin(Stdio::null());
        let begun = Instant::now();
        workspace::output(&mut command)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Figure::of(times, format!("{sites} sites, two names each"))
}

/// Seconds from the command to the first answer with many sites.
pub fn start_sites(bench: &Bench) -> Result<Figure> {
    let (folder, sites) = (Folder::new("sites")?, bench.many(50_000, 500));
    let mut times = Vec::new();
    for _ in 0..bench.many(3, 1) {
        let port = free_port()?;
        let settings = many_sites(&folder, port, sites)?;
        times.push(Started::new(&folder, &settings, port, Duration::from_secs(60))?.took.as_secs_f64());
    }
    Figure::of(times, format!("{sites} sites, two names each"))
}

/// Seconds that the commands of `make run` take on two processors with nothing built, its sources fetched.
pub fn first_build(bench: &Bench) -> Result<Figure> {
    if bench.is_quick {
        bail!("a build of everything is not quick");
    }
    let folder = Folder::new("first")?;
    let target = folder.0.join("target");
    workspace::output(workspace::cargo().args(["fetch", "--quiet", "--locked"]))?;
    let cargo = |arguments: &[&str]| {
        let program = workspace::cargo().get_program().to_string_lossy().into_owned();
        let mut command = host::pinned("0-1", &program);
        command.args(arguments).current_dir(workspace::root()).env("CARGO_TARGET_DIR", &target);
        for kept in ["CARGO_BUILD_JOBS", "CARGO_PROFILE_RELEASE_LTO", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS"] {
            command.env_remove(kept);
        }
        workspace::output(&mut command)
    };
    let begun = Instant::now();
    cargo(&["run", "--quiet", "--package", "xtask", "--", "site"])?;
    cargo(&["build", "--quiet", "--release", "--locked", "--package", "tidegate"])?;
    Ok(Figure::once(begun.elapsed().as_secs_f64(), "xtask, the sample site and the release build"))
}
