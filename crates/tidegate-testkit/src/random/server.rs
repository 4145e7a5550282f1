//! The server of a run: its processes, its log, and what is asked of it and of `/proc` between the waves.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::Address;
use crate::process::{Binary, Launch, Log, Place, Running, Signal};
use crate::run::addresses;
use crate::wait::is_running;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A server that runs.
pub(super) struct Server {
    binary: Binary,
    place: Place,
    running: Box<dyn Running>,
    pub(super) log: Arc<Log>,
    pub(super) addresses: Vec<Address>,
    processes: Mutex<Processes>,
}

/// The processes of the server.
#[derive(Debug, Clone, Default)]
struct Processes {
    /// The master: that of the start, until an upgrade.
    master: u32,
    is_the_first: bool,
    /// Those that serve.
    serving: Vec<u32>,
    /// What upgrades have replaced, and what has not ended yet of it.
    replaced: Vec<u32>,
}

impl Server {
    /// Starts it with `tidegate.kdl` of the folder, and waits for all its listeners.
    pub(super) fn start(binary: &Path, folder: &Path, listeners: usize) -> Result<Server, String> {
        let place = Place {
            folder: folder.to_owned(),
            config: folder.join("tidegate.kdl"),
            control: folder.join("control"),
        };
        let (binary, log) = (Binary::new(binary), Arc::new(Log::default()));
        let running = binary.launch(&place, log.clone())?;
        let found = log.wait_for(START, |lines| {
            let found = addresses(lines);
            (found.len() >= listeners).then_some(found)
        });
        let addresses = found.ok_or_else(|| format!("the server did not start:\n{}", log.text()))?;
        let server = Server { binary, place, running, log, addresses, processes: Mutex::default() };
        let first = Processes { is_the_first: true, ..server.current_processes()? };
        *server.lock() = first;
        Ok(server)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report of `tidegate status --json`.
    pub(super) fn status(&self) -> Result<Value, String> {
        let control = self.place.control.display().to_string();
        let words = ["status", "--json", "--control", &control].map(str::to_owned);
        let outcome = self.binary.command(&words, &self.place)?;
        if outcome.code != 0 {
            return Err(format!("`tidegate status` ended with {}: {}", outcome.code, outcome.stderr));
        }
        serde_json::from_str(&outcome.stdout).map_err(|error| format!("the status report: {error}"))
    }

    /// Has it take up these settings; an error where it does not do what is right for them.
    pub(super) fn reload(&self, text: &str, is_sound: bool) -> Result<(), String> {
        fs::write(&self.place.config, text).map_err(|error| error.to_string())?;
        let control = self.place.control.display().to_string();
        let words = ["reload", "--control", &control].map(str::to_owned);
        let outcome = self.binary.command(&words, &self.place)?;
        match (outcome.code, is_sound) {
            (0, true) | (1, false) => Ok(()),
            (code, _) => {
                let what = if is_sound { "the same settings" } else { "settings with a mistake" };
                Err(format!("`tidegate reload` with {what} ended with {code}: {}", outcome.stderr))
            }
        }
    }

    /// Replaces the program by itself, with these settings; an error where that fails.
    pub(super) fn upgrade(&self, text: &str) -> Result<(), String> {
        fs::write(&self.place.config, text).map_err(|error| error.to_string())?;
        let control = self.place.control.display().to_string();
        let words = ["upgrade", "--control", &control].map(str::to_owned);
        let outcome = self.binary.command(&words, &self.place)?;
        if outcome.code != 0 {
            return Err(format!("`tidegate upgrade` ended with {}: {}", outcome.code, outcome.stderr));
        }
        let now = self.current_processes()?;
        let mut current = self.lock();
        let mut before = std::mem::replace(&mut *current, now.clone());
        current.replaced = std::mem::take(&mut before.replaced);
        current.replaced.extend(before.serving.iter().chain([&before.master]));
        if now.master == before.master || now.serving.iter().any(|pid| before.serving.contains(pid)) {
            return Err(format!("an upgrade has replaced {before:?} by {now:?}"));
        }
        Ok(())
    }

    /// Processes that an upgrade has replaced and that still run.
    pub(super) fn replaced(&self) -> Vec<u32> {
        let mut processes = self.lock();
        processes.replaced.retain(|pid| is_running(*pid));
        processes.replaced.clone()
    }

    pub(super) fn was_upgraded(&self) -> bool {
        !self.lock().is_the_first
    }

    fn current_processes(&self) -> Result<Processes, String> {
        let status = self.status()?;
        let all = status["server"]["processes"].as_array().ok_or("a status without processes")?;
        let mut pids: Vec<u32> =
            all.iter().filter_map(|process| process["pid"].as_u64()).map(|pid| pid as u32).collect();
        pids.sort_unstable();
        let master = status["server"]["pid"].as_u64().ok_or("a status without the master")? as u32;
        match pids.is_empty() {
            true => Err("no process serves".to_owned()),
            false => Ok(Processes { master, serving: pids, ..Processes::default() }),
        }
    }

    /// What has ended or panicked, if anything has.
    pub(super) fn what_ended(&mut self) -> Option<String> {
        if let Some(line) = self.panic() {
            return Some(line);
        }
        let processes = self.lock().clone();
        match self.running.exit_code() {
            // It has a successor.
            Ok(Some(0)) if !processes.is_the_first => {}
            Ok(Some(code)) => return Some(format!("the server ended with {code}")),
            Ok(None) => {}
            Err(error) => return Some(error),
        }
        let mut all = processes.serving.iter().chain([&processes.master]);
        let gone = all.find(|pid| !is_running(**pid));
        gone.map(|pid| format!("the server process {pid} has ended"))
    }

    fn panic(&self) -> Option<String> {
        let text = self.log.text();
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.contains("panicked at"))?;
        Some(lines[at..lines.len().min(at + 2)].join(" "))
    }

    /// Bytes of memory that the processes that serve have of their own.
    pub(super) fn memory(&self) -> u64 {
        self.lock().serving.iter().map(|pid| anonymous_memory(*pid)).sum()
    }

    /// Descriptors by what they are.
    pub(super) fn descriptors(&self) -> Descriptors {
        let mut count = Descriptors::default();
        let serving = self.lock().serving.clone();
        for pid in serving {
            let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
            for entry in entries.flatten() {
                match fs::read_link(entry.path()) {
                    Ok(link) if link.to_string_lossy().starts_with("socket:") => count.sockets += 1,
                    Ok(link) if link.to_string_lossy().starts_with("pipe:") => count.pipes += 1,
                    _ => count.others += 1,
                }
            }
        }
        count
    }

    /// Ends it in order; an error when it does not end.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let processes = self.lock().clone();
        let deadline = Instant::now() + Duration::from_secs(60);
        if !processes.is_the_first {
            self.command_stop()?;
            while is_running(processes.master) || processes.serving.iter().any(|pid| is_running(*pid)) {
                if Instant::now() > deadline {
                    return Err("a successor did not end within 60 s".to_owned());
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            return Ok(());
        }
        self.running.signal(Signal::Terminate)?;
        loop {
            match self.running.exit_code()? {
                Some(0) => return Ok(()),
                Some(code) => return Err(format!("the server ended with {code} when it was told to end")),
                None if Instant::now() > deadline => {
                    return Err("the server did not end within 60 s".to_owned());
                }
                None => std::thread::park_timeout(Duration::from_millis(10)),
            }
        }
    }

    fn command_stop(&self) -> Result<(), String> {
        let control = self.place.control.display().to_string();
        let outcome =
            self.binary.command(&["stop", "--control", &control].map(str::to_owned), &self.place)?;
        match outcome.code {
            0 => Ok(()),
            code => Err(format!("`tidegate stop` ended with {code}: {}", outcome.stderr)),
        }
    }

    /// The last lines of its log.
    pub(super) fn tail(&self) -> String {
        let text = self.log.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Server {
    /// A successor is no child of this process.
    fn drop(&mut self) {
        let processes = self.lock().clone();
        if !processes.is_the_first && is_running(processes.master) {
            let control = self.place.control.display().to_string();
            let words = ["stop", "--now", "--control", &control].map(str::to_owned);
            // What is left of it harms nobody but the next look at the machine.
            let _ = self.binary.command(&words, &self.place);
        }
    }
}

/// Open descriptors.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptors {
    pub(super) sockets: u64,
    pub(super) pipes: u64,
    pub(super) others: u64,
}

fn anonymous_memory(pid: u32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
