//! What is kept out of reach of applications, hooks and scripts that have the server's own user (FAULTS 61).
//!
//! A server that is started as root gives them another user, and file permissions do the rest. One that an ordinary user
//! starts cannot: there landlock keeps them from private keys, the storage of certificates, and the proof that the
//! control socket asks for. Which paths those are is decided here, with every revision of the settings.

use super::acme::default_storage;
use super::control::{Draft, path_for};
use super::proof::{self, place_for};
use super::sockets::Sockets;
use super::users;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_config::Settings;
use tidegate_config::settings::ListenAddress;
use tidegate_config::settings::pool::{Application, HookAction, Pool, Sealed};
use tidegate_core::tls::automatic_names;
use tidegate_modules::gateway::supervise::seal;

/// What of the control socket is sealed.
pub struct ControlPaths {
    socket: PathBuf,
    proof: Option<PathBuf>,
}

impl ControlPaths {
    /// Of a socket.
    pub fn of(draft: &Draft) -> ControlPaths {
        ControlPaths { socket: draft.path().to_owned(), proof: draft.proof().map(Path::to_owned) }
    }
}

/// What would remain in reach of what a server starts that this process were to start: for `check`, which makes nothing.
pub fn foreseen(settings: &Settings) -> Vec<String> {
    let (socket, _) = path_for(Some(settings));
    let proof = if is_possible() { place_for(&socket) } else { None };
    seal(&mut settings.clone(), Some(&ControlPaths { socket, proof }))
}

/// Whether what this process starts has its own user and can be kept from its secrets.
pub fn is_possible() -> bool {
    !users::can_be_anybody() && seal::is_possible()
}

/// Seals: every pool, hook and script is told what it does not reach. The sentences say what remains in reach.
pub fn seal(settings: &mut Settings, control: Option<&ControlPaths>) -> Vec<String> {
    if users::can_be_anybody() || !settings.sandbox || !starts_something(settings) {
        return Vec::new();
    }
    let who = format!("what the server starts as user {}", users::own_name());
    if !seal::is_possible() {
        return vec![format!(
            "this kernel has no landlock, or one before 5.19: {who} can read its keys and use its control socket; \
             start it as root with a `user`, or write `sandbox off` to say that this is meant"
        )];
    }
    let mut unsealed = Vec::new();
    let mut paths = Vec::new();
    let mut secrets: Vec<PathBuf> = settings.secrets().into_iter().map(|(path, _)| path).collect();
    secrets.extend(storage(settings));
    secrets.extend(control.and_then(|control| control.proof.clone()));
    secrets.sort();
    secrets.dedup();
    for path in secrets {
        match seal::shared_folder(&path) {
            None => {
                if let Some(folder) = seal::open_folder(&path) {
                    unsealed.push(format!(
                        "everybody may write to {}, which {} lies below: `chmod o-w {}`",
                        folder.display(),
                        path.display(),
                        folder.display()
                    ));
                }
                paths.extend(seal::with_ways(&path));
            }
            Some(folder) => unsealed.push(format!(
                "{who} can reach {}: it lies below {}, a folder for everybody; move it elsewhere",
                path.display(),
                folder.display()
            )),
        }
    }
    // In a folder for everybody they can be replaced, but not used, and so in a home: that is for applications, too.
    let is_sealed = |path: &&PathBuf| seal::shared_folder(path).is_none() && home_before(path).is_none();
    let with_ways = |path: &PathBuf| seal::with_ways(path);
    let own = settings.pid_file.iter().chain(&settings.bans_file).chain(&settings.statistics.totals);
    paths.extend(own.filter(is_sealed).flat_map(with_ways));
    match control {
        Some(ControlPaths { socket, proof: None }) => unsealed.push(format!(
            "{who} can use the control socket {}: it lies below a folder for everybody; name another place with \
             `control`",
            socket.display()
        )),
        Some(ControlPaths { socket, .. }) => {
            paths.extend(Some(socket).into_iter().filter(is_sealed).flat_map(with_ways));
        }
        None => {}
    }
    if let Some((home, path)) = paths.iter().find_map(|path| Some((home_before(path)?, path))) {
        unsealed.push(format!(
            "{who} can make, move and remove nothing right in {}, since {} is kept from it and lies below; keep that \
             elsewhere",
            home.display(),
            path.display()
        ));
    }
    unsealed.dedup();
    paths.sort();
    paths.dedup();
    let beside = seal::beside(&paths);
    give(settings, &Arc::new(Sealed { paths, ports: Vec::new(), beside }));
    unsealed
}

/// Keeps the ports of these sockets from what settings start, which have been sealed: a socket of the same user may listen
/// beside the server's own (`SO_REUSEPORT`).
pub fn keep_ports(settings: &mut Settings, sockets: &Sockets) {
    let Some(sealed) = of(settings) else { return };
    let port = |taken: &ListenAddress| match taken {
        ListenAddress::Tcp(address) => Some(address.port()),
        ListenAddress::Unix(_) => None,
    };
    let mut ports: Vec<u16> = sockets.taken().filter_map(port).collect();
    ports.sort_unstable();
    ports.dedup();
    let sealed = Arc::new(Sealed { ports, ..sealed.clone() });
    give(settings, &sealed);
}

/// Tells every pool, hook and script what it does not reach.
fn give(settings: &mut Settings, sealed: &Arc<Sealed>) {
    for pool in &mut settings.pools {
        if let Application::Processes(processes) = &mut pool.application {
            processes.sealed = sealed.clone();
        }
        for hook in &mut pool.hooks {
            if let HookAction::Run { sealed: its, .. } = &mut hook.action {
                *its = sealed.clone();
            }
        }
    }
    for hook in settings.load_hooks_mut() {
        if let HookAction::Run { sealed: its, .. } = &mut hook.action {
            *its = sealed.clone();
        }
    }
    if let Some(hook) = &mut settings.acme.dns_hook {
        hook.sealed = sealed.clone();
    }
}

/// A pool as it was before it was told what it does not reach.
pub fn without(mut pool: Pool) -> Pool {
    if let Application::Processes(processes) = &mut pool.application {
        processes.sealed = Arc::default();
    }
    for hook in &mut pool.hooks {
        if let HookAction::Run { sealed, .. } = &mut hook.action {
            *sealed = Arc::default();
        }
    }
    pool
}

/// What these settings, which have been sealed, keep from what they start.
pub fn of(settings: &Settings) -> Option<&Sealed> {
    let pools = || settings.pools.iter();
    let processes = pools().filter_map(|pool| match &pool.application {
        Application::Processes(processes) => Some(&*processes.sealed),
        _ => None,
    });
    let hooks = pools().flat_map(|pool| &pool.hooks).chain(settings.load_hooks().map(|(_, hook)| hook));
    let hooks = hooks.filter_map(|hook| match &hook.action {
        HookAction::Run { sealed, .. } => Some(&**sealed),
        _ => None,
    });
    let dns_hook = settings.acme.dns_hook.iter().map(|hook| &*hook.sealed);
    processes.chain(hooks).chain(dns_hook).find(|sealed| !sealed.paths.is_empty())
}

/// The paths of [`of`].
pub fn paths_of(settings: &Settings) -> Vec<PathBuf> {
    of(settings).map(|sealed| sealed.paths.clone()).unwrap_or_default()
}

/// The user's home, where it is on the way to this path: what is on the way is closed to what is sealed.
fn home_before(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    proof::homes().into_iter().find(|home| folder.starts_with(home))
}

/// Whether settings have programs started.
pub fn starts_something(settings: &Settings) -> bool {
    let has_processes = |application: &Application| matches!(application, Application::Processes(_));
    let of_pools = settings.pools.iter().flat_map(|pool| &pool.hooks);
    let mut hooks = of_pools.chain(settings.load_hooks().map(|(_, hook)| hook));
    settings.pools.iter().any(|pool| has_processes(&pool.application))
        || hooks.any(|hook| matches!(hook.action, HookAction::Run { .. }))
        || settings.acme.dns_hook.is_some()
}

/// The storage of certificates, where there is one or will be.
fn storage(settings: &Settings) -> Option<PathBuf> {
    let named = settings.acme.storage.clone();
    let is_used = named.is_some() || !automatic_names(settings).is_empty();
    let storage = named.unwrap_or_else(default_storage);
    Some(storage).filter(|path| is_used || path.exists())
}
