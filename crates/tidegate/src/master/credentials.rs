//! What logins compare with, such as password files: read anew when the files change, without a reload.
//!
//! The server processes, which are confined to what they serve, read none of it: a thread of the master looks and reads, and
//! what it has found goes to all of them over their links.

use super::looks::{Look, Looks};
use super::{Event, Master};
use crate::file_watch::{FileWatch, stamp_of};
use std::path::Path;
use tidegate_config::Settings;
use tidegate_config::credentials::{Broken, Credential, CredentialFiles};
use tidegate_core::log;

/// What the master knows of the files.
pub struct Credentials {
    watch: FileWatch,
    pub looks: Looks,
}

/// What a look has found.
pub struct Looked {
    look: Look,
    watch: FileWatch,
    /// Those of which a file has changed.
    read: Vec<Result<(Credential, Vec<String>), Broken>>,
}

impl Default for Credentials {
    fn default() -> Credentials {
        Credentials { watch: FileWatch::default(), looks: Looks::new("what logins compare with") }
    }
}

impl Master {
    /// A revision is in force. What may have changed since its files were read is found by reading them once more.
    pub(super) fn adopt_credentials(&mut self) {
        let has_some = !CredentialFiles::of(&self.current.settings).is_empty();
        self.credentials.watch = FileWatch::default();
        self.credentials.looks.begin(has_some);
    }

    /// Has a thread look at what has changed on the disk.
    pub(super) fn look_at_credentials(&mut self) {
        if !self.credentials.looks.is_due() {
            return;
        }
        let (settings, watch) = (self.current.settings.clone(), self.credentials.watch.clone());
        let sender = self.sender.clone();
        self.credentials.looks.start(move |of| {
            let _ = sender.send(Event::Credentials(Box::new(look(&settings, watch, of))));
        });
    }

    /// The files were looked at.
    pub(super) fn have_looked_at_credentials(&mut self, looked: Looked) {
        if !self.credentials.looks.end(looked.look) || !self.takes_what_is_found() {
            return;
        }
        self.credentials.watch = looked.watch;
        let mut renewed = Vec::new();
        for read in looked.read {
            match read {
                Ok((credential, wrong)) => {
                    if self.current.settings.renew(&credential) {
                        wrong.iter().for_each(log::error);
                        renewed.push(credential);
                    }
                }
                Err(broken) => log::error(broken),
            }
        }
        if !renewed.is_empty() {
            self.servers.give_credentials(&renewed);
            self.announce(renewed.iter().map(ToString::to_string).collect());
        }
    }
}

/// Looks at the files, and reads what has changed.
fn look(settings: &Settings, mut watch: FileWatch, look: Look) -> Looked {
    let all = CredentialFiles::of(settings);
    let mut paths: Vec<&Path> = all.iter().flat_map(|files| files.paths()).collect();
    paths.sort_unstable();
    paths.dedup();
    let settled = watch.settled(paths, stamp_of);
    let mut read = Vec::new();
    let is_settled = |path: &Path| settled.contains(&path);
    for files in all {
        // Those that belong together are read when all of them stand still.
        if !files.paths().any(is_settled)
            || files.paths().any(|path| watch.is_moving(path) && !is_settled(path))
        {
            continue;
        }
        read.push(files.read());
    }
    // One that belongs to several is read with each of them, sooner or later.
    settled.into_iter().for_each(|path| watch.take_in(path));
    Looked { look, watch, read }
}
