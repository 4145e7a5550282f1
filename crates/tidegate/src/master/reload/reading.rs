//! What a reload reads and opens: settings and all that they name, in a way that changes nothing for clients.
//!
//! `read` runs on a thread of its own, since files may be slow and sites many; the master goes on with what it has to say
//! ([`Read`]).

use super::super::access::AccessState;
use super::super::logs::Logs;
use super::super::sealing::ControlPaths;
use super::super::servers::Layout;
use super::super::sockets::{Addresses, NewSockets};
use super::super::wanted::Wanted;
use super::super::{cache_folders, sealing, users};
use crate::certificates::CertificateWatch;
use crate::revision::{self, Kept, Reading, ServeOptions, keep_served};
use anyhow::{Result, anyhow};
use std::collections::HashSet;
use std::sync::Arc;
use tidegate_config::settings::{LogTarget, Origin, Site};
use tidegate_config::{Diagnostic, Loaded, Settings, WrittenSettings};
use tidegate_core::log;
use tidegate_core::tls::{TlsFiles, key_of, pair_files};
use tidegate_io::off_limits;

/// What reading has found, beside the settings.
#[derive(Default)]
pub(super) struct Found {
    /// Mistakes and warnings.
    pub(super) said: String,
    /// Sites that stay as they were.
    pub(super) kept: Vec<String>,
    pub(super) has_errors: bool,
}

/// Settings as they were read, with what belongs to them.
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) layout: Layout,
    pub(super) files: TlsFiles,
    /// The state of those files just before they were read.
    pub(super) seen: CertificateWatch,
    /// What access asks of files.
    pub(super) access: AccessState,
    pub(super) assigned: Vec<users::Assigned>,
    pub(super) warnings: HashSet<String>,
    /// The settings as they were written.
    pub(super) written: Arc<WrittenSettings>,
    /// Those that were not open before.
    pub(super) logs: Logs,
    /// Of addresses that were not listened on before.
    pub(super) sockets: NewSockets,
}

/// What the thread that reads has to say.
pub struct Read {
    pub(super) found: Found,
    pub(super) notes: Vec<String>,
    /// An error is a sentence, or nothing where `found` says it all. `None`: there is nothing to take up.
    pub(super) outcome: Result<Option<Draft>>,
}

/// The threads that read. One that hangs is left, and nobody waits for it: they are counted.
#[derive(Default)]
pub struct Readers {
    /// Each that has not ended holds one more of it.
    reads: Arc<()>,
    last: u64,
}

impl Readers {
    /// The number of a thread that is about to be started, and what it holds on to; nothing where too many hang.
    pub(super) fn next(&mut self) -> Option<(u64, Arc<()>)> {
        if Arc::strong_count(&self.reads) > READERS {
            return None;
        }
        self.last += 1;
        Some((self.last, self.reads.clone()))
    }
}

/// Threads that read at the same time, all but one of them without an end in sight.
pub(super) const READERS: usize = 4;

/// Reads settings and everything that they name, without changing anything. On a thread of its own: files may be slow, and
/// sites many.
pub(super) fn read(options: &ServeOptions, present: &Present, allows_loss: bool) -> Read {
    let Reading { mut loaded, pairs, mut seen, access } = options.load();
    let Kept { mistaken, missing, lost, unlisted, closed, sites } =
        keep_served(&mut loaded, &present.settings, allows_loss);
    loaded.answer_for_rejected(|files| pairs.contains_key(&key_of(files)));
    loaded.is_refused_by_a_server();
    let (said, warnings) = sayings(&loaded, &present.warnings);
    let mut found = Found { said, kept: Vec::new(), has_errors: loaded.has_errors() };
    let mut notes = Vec::new();
    let mut written = std::mem::take(&mut loaded.written);
    let Some(settings) = loaded.settings else {
        return Read { found, notes, outcome: Err(anyhow!("")) };
    };
    if !sites.is_empty() {
        let stays = |site: &Arc<Site>| sites.iter().any(|kept| Arc::ptr_eq(kept, site));
        let fresh =
            settings.sites.iter().filter(|site| !stays(site)).map(|site| site.origin.clone()).collect();
        let earlier: Vec<Origin> = sites.iter().map(|site| site.origin.clone()).collect();
        written.keep(fresh, &earlier, &present.written);
    }
    let written = Arc::new(written);
    if !missing.is_empty() {
        found.said.push_str(&format!(
            "no site of {} is written for {} any more: what is served stays as it was; run `tidegate reload \
             --allow-loss` to have it go\n",
            options.settings,
            missing.join(", ")
        ));
    }
    if !unlisted.is_empty() {
        found.said.push_str(&format!(
            "no `listen` of {} is written for {} any more: what is listened on stays as it was; run `tidegate reload \
             --allow-loss` to have it go\n",
            options.settings,
            unlisted.join(", ")
        ));
    }
    if options.control.is_none() && settings.control != present.settings.control {
        notes.push(
            "the control socket stays where it is: another takes `tidegate upgrade` or a restart".into(),
        );
    }
    if !lost.is_empty() {
        notes.push(format!("no longer served: {}", lost.join(", ")));
    }
    if !closed.is_empty() {
        notes.push(format!("no longer listened on: {}", closed.join(", ")));
    }
    found.kept = mistaken.into_iter().chain(missing).chain(unlisted).collect();
    seen.extend(&settings);
    let outcome = TlsFiles::read(&settings, &present.files, &pairs).map_err(anyhow::Error::from);
    let outcome = outcome.and_then(|files| {
        let access = access.complete(&settings, &present.access)?;
        Draft::of(settings, (files, access), seen, present, &mut notes)
    });
    let outcome = outcome.map(|draft| Some(Draft { warnings, written, ..draft }));
    Read { found, notes, outcome }
}

/// Reads the certificates of authorities alone, for settings that stay.
pub(super) fn read_authorities(present: &Present, seen: CertificateWatch) -> Read {
    let (settings, mut files) = (Settings::clone(&present.settings), present.files.clone());
    let (found, mut notes) = (Found::default(), Vec::new());
    let stayed = match files.read_authorities(&settings) {
        Ok(stayed) => stayed,
        Err(error) => return Read { found, notes, outcome: Err(error.into()) },
    };
    for stayed in &stayed {
        log::error(format_args!(
            "the certificates of an authority have changed, but those before stay in use: {stayed}"
        ));
    }
    let is_same = files == present.files;
    let draft = || Draft::of(settings, (files, present.access.clone()), seen, present, &mut notes);
    let outcome = (!is_same).then(draft).transpose();
    Read { found, notes, outcome }
}

/// All mistakes, and those warnings that are new; and what all warnings are.
fn sayings(loaded: &Loaded, known: &HashSet<String>) -> (String, HashSet<String>) {
    let warnings = loaded.diagnostics.iter().filter(|found| !found.is_error());
    let warnings: HashSet<String> = warnings.map(Diagnostic::identity).collect();
    let is_new = |found: &&Diagnostic| found.is_error() || !known.contains(&found.identity());
    let new: Vec<&Diagnostic> = loaded.diagnostics.iter().filter(is_new).collect();
    let mut said = new.iter().map(|found| found.render(false)).collect::<Vec<_>>().join("\n");
    let (left, s) = match loaded.diagnostics.len() - new.len() {
        0 => return (said, warnings),
        1 => (1, ""),
        left => (left, "s"),
    };
    said.push_str(&format!("{left} warning{s} as before: `tidegate check` shows them\n"));
    (said, warnings)
}

/// What is in force, for the thread that reads.
pub(super) struct Present {
    pub(super) settings: Arc<Settings>,
    pub(super) files: TlsFiles,
    pub(super) access: AccessState,
    pub(super) assigned: Vec<users::Assigned>,
    pub(super) warnings: HashSet<String>,
    pub(super) written: Arc<WrittenSettings>,
    /// What of the control socket applications do not reach.
    pub(super) control: Option<Arc<ControlPaths>>,
    /// Logs that are open.
    pub(super) logs: HashSet<LogTarget>,
    /// What is listened on. No descriptor: one that hangs would keep an address taken.
    pub(super) addresses: Addresses,
    /// Files of TLS that were seen before.
    pub(super) watch: CertificateWatch,
    /// Whether anybody still waits.
    pub(super) wanted: Wanted,
}

impl Draft {
    fn of(
        mut settings: Settings,
        (files, access): (TlsFiles, AccessState),
        seen: CertificateWatch,
        present: &Present,
        notes: &mut Vec<String>,
    ) -> Result<Draft> {
        let control = present.control.as_deref();
        let before = sealing::seal(&mut Settings::clone(&present.settings), control);
        let unsealed = sealing::seal(&mut settings, control);
        notes.extend(unsealed.into_iter().filter(|new| !before.contains(new)));
        let mut assigned = users::assign(&mut settings, users::can_be_anybody())?;
        for new in &mut assigned {
            // A pool that stays because its site does has been given its user before, and does not name it.
            let of = |settings: &Settings| {
                let pool = settings.pools.iter().find(|pool| new.what == format!("pool {}", pool.name));
                pool.cloned().map(sealing::without)
            };
            let is_same = of(&settings).is_some_and(|pool| of(&present.settings) == Some(pool));
            if let Some(known) = present.assigned.iter().find(|known| is_same && known.what == new.what) {
                new.said.clone_from(&known.said);
            }
        }
        let (identity, warning) = users::identity(settings.user.as_ref())?;
        notes.extend(warning.filter(|_| settings.user != present.settings.user));
        notes.extend(cache_folders::make(&settings, identity.as_ref()));
        let layout = Layout::of(&settings, revision::workers(&settings), identity).sealed(&settings);
        let warnings = present.warnings.clone();
        for pair in pair_files(&settings) {
            present.watch.examine(&pair.key).map_err(anyhow::Error::msg)?;
        }
        present.wanted.ask()?;
        off_limits::add(&sealing::paths_of(&settings));
        let logs = Logs::open(&settings, &present.logs, &present.wanted)?;
        // Last: others can see it.
        let sockets = NewSockets::open(&settings, layout.total(), &present.addresses, &present.wanted)?;
        let written = present.written.clone();
        Ok(Draft { settings, layout, files, seen, access, assigned, warnings, written, logs, sockets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_hang_are_bounded_in_number() {
        let mut readers = Readers::default();
        let mut hung: Vec<_> = (0..READERS).map(|_| readers.next().expect("one more")).collect();
        assert!(readers.next().is_none());
        hung.pop();
        let (number, _holds) = readers.next().expect("one has ended");
        assert!(hung.iter().all(|(other, _)| *other < number), "each has a number of its own");
    }
}
