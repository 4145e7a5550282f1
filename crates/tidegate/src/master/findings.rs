//! What limits the server: a thread that samples the figures of all server processes and the machine every ten seconds, and
//! keeps what the rules of `tidegate-findings` find in them.
//!
//! Workers are asked for nothing that they have not counted anyway; what comes most often only where there is a finding that a name
//! is of use to. The thread ends with the master, which never waits for it;
//! a reload tells it of the new settings, and what it knows stays.

use super::cache_folders;
use super::status_registry::StatusRegistry;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tidegate_config::Settings;
use tidegate_config::settings::LogTarget;
use tidegate_core::log;
use tidegate_findings::{Asked, Engine, Folder, Host, Sample, TurnedAwayLog, Windows, name_busiest};
use tidegate_modules::status::ServerInfo;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(10);
/// Routes whose figures are sampled with the others. Of more, findings name none.
const ROUTES: usize = 500;
/// How long file systems may take to say how full they are.
const PATIENCE: Duration = Duration::from_secs(1);
/// Folders that are measured.
const FOLDERS: usize = 32;

/// The thread that looks.
#[derive(Default)]
pub struct FindingsWatch {
    thread: Mutex<Option<Sender<Arc<Settings>>>>,
}

impl FindingsWatch {
    /// These settings are in force.
    pub fn adopt(&self, settings: &Arc<Settings>, status: &Arc<StatusRegistry>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, told) = channel();
            let status = status.clone();
            match Builder::new().name("tidegate-find".into()).spawn(move || watch(&told, &status)) {
                Ok(_) => *thread = Some(sender),
                Err(error) => log::error(format_args!("nobody looks for what limits the server: {error}")),
            }
        }
        if let Some(thread) = &*thread {
            let _ = thread.send(settings.clone());
        }
    }
}

/// Looks at once, so that there is something to compare with, and then every ten seconds.
fn watch(told: &Receiver<Arc<Settings>>, status: &StatusRegistry) {
    let Ok(mut settings) = told.recv() else { return };
    let (begun, mut next) = (Instant::now(), Instant::now());
    let mut engine = Engine::new(Windows::default());
    let (mut turned_away, mut folders) = (TurnedAwayLog::default(), FolderSizes::default());
    loop {
        match told.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(adopted) => settings = adopted,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + EVERY;
                if let Some(mut sample) = sample(status, &settings, begun.elapsed()) {
                    sample.host.folders = folders.read(&settings);
                    let turned_away = turned_away.take(&sample);
                    engine.take(sample);
                    let mut findings = engine.findings();
                    name_busiest(&mut findings, || status.busiest_names());
                    status.set_findings(findings, turned_away);
                }
            }
        }
    }
}

/// The server and its machine now; `None` while it ends.
fn sample(status: &StatusRegistry, settings: &Arc<Settings>, at: Duration) -> Option<Sample> {
    let routes: usize = settings.sites.iter().map(|site| site.routes.len()).sum();
    let figures = if routes <= ROUTES { status.own_figures_with_series() } else { status.own_figures() };
    let mut info = status.server(&figures);
    if routes > ROUTES {
        info.series = Default::default(); // as it was when somebody asked for it
    }
    let host = Host::read(Path::new("/"), &asked(&info));
    let sample = Sample { at, counted: figures.counted, host, settings: settings.clone(), info };
    (!sample.info.is_draining).then_some(sample)
}

fn asked(info: &ServerInfo) -> Asked {
    // Those that finish what is open are idle beside the others.
    let servers = info.processes.iter().filter(|process| process.pid != 0 && process.state == "serving");
    let servers = servers.map(|process| process.pid);
    let pools = info.pools.iter().flat_map(|pool| &pool.processes);
    Asked {
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        servers: servers.collect(),
        pools: pools.filter_map(|process| process.pid).collect(),
    }
}

/// How full the file systems are that the server writes to. A thread of its own asks them, since one may hang; while it does,
/// what was told last holds.
#[derive(Default)]
struct FolderSizes {
    last: Vec<Folder>,
    waits_for: Option<Receiver<Vec<Folder>>>,
}

impl FolderSizes {
    fn read(&mut self, settings: &Settings) -> Vec<Folder> {
        if self.waits_for.is_none() {
            let (sender, measured) = channel();
            let folders = folders(settings);
            let measure = move || drop(sender.send(folders.into_iter().filter_map(measure).collect()));
            self.waits_for =
                Builder::new().name("tidegate-sizes".into()).spawn(measure).ok().map(|_| measured);
        }
        if let Some(measured) = self.waits_for.take() {
            match measured.recv_timeout(PATIENCE) {
                Ok(folders) => self.last = folders,
                Err(RecvTimeoutError::Timeout) => self.waits_for = Some(measured),
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        self.last.clone()
    }
}

/// Where the server writes, and what.
fn folders(settings: &Settings) -> Vec<(PathBuf, &'static str)> {
    let file = |target: &LogTarget| match target {
        LogTarget::File(path) => path.parent().map(Path::to_owned),
        LogTarget::Stderr | LogTarget::Stdout | LogTarget::Collector(_) => None,
    };
    let logs = settings.sites.iter().filter_map(|site| site.access_log.own());
    let logs =
        logs.chain(&settings.access_log).filter_map(|log| Some((file(&log.target)?, "the access log")));
    let error_log = file(&settings.error_log.target).map(|folder| (folder, "the error log"));
    let spill = Some((settings.spill.folder.clone(), "`spill`"));
    let storage = settings.acme.storage.clone().map(|folder| (folder, "`acme` storage"));
    let caches = cache_folders::paths(settings).into_iter().map(|folder| (folder, "`cache`"));
    let mut found: Vec<(PathBuf, &'static str)> =
        error_log.into_iter().chain(spill).chain(storage).chain(caches).chain(logs).collect();
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    found.truncate(FOLDERS);
    found
}

fn measure((path, purpose): (PathBuf, &'static str)) -> Option<Folder> {
    let told = rustix::fs::statvfs(&path).ok()?;
    let [free, size] = [told.f_bavail, told.f_blocks].map(|blocks| blocks.saturating_mul(told.f_frsize));
    let mount = mount_of(&path);
    Some(Folder { path, purpose: purpose.to_owned(), mount, free, size })
}

/// The uppermost folder of the file system that a folder is on; the folder itself where that cannot be found.
fn mount_of(path: &Path) -> PathBuf {
    let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
    let Ok(path) = path.canonicalize() else { return path.to_owned() };
    let own = device(&path);
    let above = path.ancestors().take_while(|above| device(above) == own);
    above.last().unwrap_or(&path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_file_system_that_is_mounted_above_it() {
        assert_eq!(mount_of(Path::new("/")), Path::new("/"));
        assert_eq!(mount_of(Path::new("/proc/self")), Path::new("/proc"));
        let gone = Path::new("/nothing/here");
        assert_eq!(mount_of(gone), gone);
    }
}
