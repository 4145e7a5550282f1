//! What the server needs beside its clients: logs, disks, its own processes, name servers, directories.

use super::{Concern, Seen, bytes, concerning, of, of_server, percent, were};
use crate::Folder;
use crate::window::{Sample, Window, over, under};
use std::collections::BTreeMap;
use std::path::Path;
use tidegate_modules::status::Change;

/// Of a file system, what is left.
const LEFT: f64 = 0.05;

pub(super) fn log_slow(window: &Window<'_>) -> Vec<Seen> {
    let named =
        window.now().info.log_losses.keys().filter_map(|log| {
            let lost = |sample: &Sample| sample.info.log_losses.get(log).copied().unwrap_or(0);
            let folder = Path::new(log).parent().filter(|folder| folder.is_absolute());
            let seen = lost_lines(window, log, lost)?;
            Some(seen.concerning(
                folder.map(|folder| Concern::Folder(folder.into())).into_iter().collect::<Vec<_>>(),
            ))
        });
    let mut seen: Vec<Seen> = named.collect();
    // What was lost by a log that is closed meanwhile is known of all together alone.
    if seen.is_empty() {
        let others = |sample: &Sample| {
            sample.info.log_lines_lost.saturating_sub(sample.info.log_losses.values().sum())
        };
        seen.extend(lost_lines(window, "logs that are closed", others));
    }
    seen
}

fn lost_lines(window: &Window<'_>, log: &str, lost: impl Fn(&Sample) -> u64) -> Option<Seen> {
    let sentence = || {
        format!(
            "{} lost {} by {log}: whoever takes it does not take it fast enough",
            were(window.risen(&lost), "log line"),
            window.span()
        )
    };
    of(window, log, window.events(&lost), sentence, || {
        Change::told("write less (`access-log` with `only=errors`), or to a disk or a daemon that keeps up")
    })
}

pub(super) fn disk_full(window: &Window<'_>) -> Vec<Seen> {
    let mut mounts: BTreeMap<&Path, Vec<&Folder>> = BTreeMap::new();
    for folder in window.now().host.folders.iter().filter(|folder| folder.size > 0) {
        mounts.entry(&folder.mount).or_default().push(folder);
    }
    mounts.into_iter().filter_map(|(mount, folders)| file_system(window, mount, &folders)).collect()
}

/// A file system, and what is written to it.
fn file_system(window: &Window<'_>, mount: &Path, folders: &[&Folder]) -> Option<Seen> {
    let Folder { free, size, .. } = folders.first()?;
    let left = *free as f64 / (*size).max(1) as f64;
    let mount = mount.display().to_string();
    let written: Vec<_> =
        folders.iter().map(|folder| format!("{} ({})", folder.purpose, folder.path.display())).collect();
    let sentence = || {
        format!(
            "the file system {mount} has {} left, {} of it: when it is full, what is written there is lost: {}",
            bytes(*free),
            percent(left),
            written.join(", ")
        )
    };
    let seen = of(window, mount.clone(), under(left, LEFT), sentence, || {
        Change::told(format!(
            "make room there (`du -xh {mount} | sort -h | tail -n 50` shows what takes the most), rotate logs, or write elsewhere"
        ))
    })?;
    let concerns: Vec<_> = folders.iter().map(|folder| Concern::Folder(folder.path.clone())).collect();
    Some(seen.concerning(concerns))
}

pub(super) fn server_crashes(window: &Window<'_>) -> Vec<Seen> {
    // Those that finish what is open had the places of others, which tell of them too.
    let of_now = |sample: &Sample| -> u64 {
        let now = sample.info.processes.iter().filter(|process| process.state != "draining");
        now.map(|process| process.restarts).sum()
    };
    let ended = window.risen(of_now);
    let sentence = || {
        let ended = were(ended, "server process").replace("processs", "processes");
        format!("{ended} replaced {} after ending by mistake, with the connections they had", window.span())
    };
    let seen = of_server(window, over(ended as f64, 1.0), sentence, || {
        Change::told(
            "the error log says how each ended; a signal 9 is the kernel's, for want of memory, anything else is a fault worth reporting",
        )
    });
    concerning(seen, Concern::Kills)
}

pub(super) fn names_unanswered(window: &Window<'_>) -> Vec<Seen> {
    let silent = |sample: &Sample| sample.counted.dns_unanswered + sample.counted.dns_refused;
    let sentence = || {
        format!(
            "{} without an answer of name servers {}: rules by the name of a client wait for them, and answer 503",
            were(window.risen(silent), "client"),
            window.span()
        )
    };
    of_server(window, window.events(silent), sentence, || {
        Change::told(
            "name servers that answer, near by, in `dns`; or rules by address (`allow`, `deny`) in place of `name=`",
        )
    })
}

pub(super) fn limit_store_fails(window: &Window<'_>) -> Vec<Seen> {
    let store = |sample: &Sample| sample.info.limit_store.clone();
    let Some(present) = store(window.now()) else { return Vec::new() };
    let failed = |sample: &Sample| store(sample).map_or(0, |store| store.failures);
    let sentence = || {
        let why = present.trouble.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!(
            "{} not answered {} by the store of limits at {}{why}: each server keeps to its part of what is `shared`",
            were(window.risen(failed), "question"),
            window.span(),
            present.address
        )
    };
    of_server(window, window.events(failed), sentence, || {
        Change::told(
            "see to the store that `limit-store` names, its password and its memory, or name another one",
        )
    })
}

pub(super) fn directory_fails(window: &Window<'_>) -> Vec<Seen> {
    let failed = |sample: &Sample| sample.counted.directory_failures + sample.counted.logins_unanswered;
    let sentence = || {
        format!(
            "{} not answered {}, by a directory that is away or too slow: who is not in the user cache cannot log in",
            were(window.risen(failed), "login"),
            window.span()
        )
    };
    of_server(window, window.events(failed), sentence, || {
        Change::told(
            "name a second server in `ldap`, and let the `cache` of `users` remember for longer, so that those who are known get in meanwhile",
        )
    })
}
