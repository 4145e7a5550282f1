//! What the settings of a pool mean to its supervisor: the rules of its state machine, its places, its addresses, its user.

use super::machine::Rules;
use crate::gateway::pool_directory::PoolAddress;
use tidegate_config::settings::ListenAddress;
use tidegate_config::settings::pool::{Application, Pool, Program, WarmUp};

/// Requests that an address takes at once where the settings do not say.
const EXTERNAL_PLACES: usize = 16;

/// An address of the settings as the supervisor has it.
pub(super) fn pool_address(address: &ListenAddress) -> PoolAddress {
    match address {
        ListenAddress::Tcp(address) => PoolAddress::Tcp(*address),
        ListenAddress::Unix(path) => PoolAddress::Unix(path.clone()),
    }
}

/// What a process of the pool gets before it takes work.
pub(super) fn warm_up_of(pool: &Pool) -> Option<&WarmUp> {
    match &pool.application {
        Application::Processes(processes) => processes.warm_up.as_ref(),
        Application::External(_) => None,
    }
}

/// The user of a pool's processes, in words.
pub(super) fn account(pool: &Pool) -> String {
    let (user, group) = pool.account().unwrap_or_default();
    let user = user.unwrap_or("the user who started the server");
    group.map_or_else(|| user.to_owned(), |group| format!("{user}, group {group}"))
}

/// Requests that one process, or an address, takes at once.
pub(super) fn places_of(pool: &Pool) -> usize {
    let written = pool.places.map(|places| places as usize);
    match &pool.application {
        Application::External(_) => written.unwrap_or(EXTERNAL_PLACES),
        // One parent stands for all of its children.
        Application::Processes(processes) if matches!(processes.program, Program::Php(_)) => {
            processes.max.max(1) as usize
        }
        Application::Processes(_) => written.unwrap_or(1),
    }
}

/// What the state machine goes by; `None` for an application that is not ours to run.
pub(super) fn rules_of(pool: &Pool) -> Option<Rules> {
    let Application::Processes(processes) = &pool.application else { return None };
    let is_php = matches!(processes.program, Program::Php(_));
    Some(Rules {
        // The parent sizes its children itself.
        min: if is_php { 1 } else { processes.min as usize },
        max: if is_php { 1 } else { processes.max as usize },
        places: places_of(pool),
        idle: processes.idle,
        grow_after: processes.grow_after,
        requests: processes.requests.filter(|_| !is_php),
        start_timeout: processes.start_timeout,
        stop_timeout: processes.stop_timeout,
        is_shared: processes.socket.address.is_some(),
    })
}
