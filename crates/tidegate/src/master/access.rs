//! Lists of networks and databases of countries in the master: it reads them, looks whether they have changed, and hands
//! what is in them to the server processes, which read no file.
//!
//! Once a second a thread looks. What has changed is read once it has stood still between two looks; what is no list, or no
//! database that is whole, leaves the one before in force.

use super::looks::Look;
use super::{Event, Master};
use crate::file_watch::{FileWatch, stamp_of};
use anyhow::{Error, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tidegate_config::Settings;
use tidegate_core::access_data::{AccessFile, AccessFiles, AccessReader, DataKey, keys};
use tidegate_core::log;

/// The files as they are now. Comes before reading them, so that no change is missed.
pub fn watch(settings: &Settings) -> FileWatch {
    let mut watch = FileWatch::default();
    keys(settings).iter().for_each(|key| watch.add(&key.path, stamp_of));
    watch
}

/// What was read with settings.
#[derive(Default)]
pub struct AccessReading {
    /// That were found to be good.
    pub files: Vec<AccessFile>,
    /// Their state just before.
    pub watch: FileWatch,
}

impl AccessReading {
    /// With what belongs to sites that stay as they were.
    ///
    /// # Errors
    /// A file cannot be used, and none is in force in its place.
    pub fn complete(mut self, settings: &Settings, present: &AccessState) -> Result<AccessState> {
        let files = AccessFiles::read(settings, &present.files, self.files).map_err(Error::msg)?;
        self.watch.join(&present.watch);
        Ok(AccessState { files, watch: self.watch })
    }
}

/// Files of a revision.
#[derive(Clone, Default)]
pub struct AccessState {
    /// As they were read.
    pub files: AccessFiles,
    /// Their state just before.
    pub watch: FileWatch,
}

/// What a look at the files has found.
pub struct Looked {
    look: Look,
    watch: FileWatch,
    /// That were read anew.
    fresh: Vec<AccessFile>,
    /// That were put together anew, and say what they said.
    moved: Vec<AccessFile>,
    /// That cannot be used, and why.
    wrong: Vec<(PathBuf, String)>,
    /// All files as they are now.
    files: AccessFiles,
}

impl Master {
    /// A revision is in force.
    pub(super) fn adopt_access(&mut self) {
        self.access.begin(!self.current.access.files.is_empty());
    }

    /// Has a thread look at what has changed on the disk.
    pub(super) fn look_at_access(&mut self) {
        if !self.access.is_due() {
            return;
        }
        let (settings, mut watch) = (self.current.settings.clone(), self.current.access.watch.clone());
        let (sender, mut files) = (self.sender.clone(), self.current.access.files.clone());
        self.access.start(move |look| {
            let keys = keys(&settings);
            let settled = watch.settled(keys.iter().map(|key| &*key.path), stamp_of);
            let (mut reader, mut wrong) = (AccessReader::default(), Vec::new());
            let changed: HashSet<&Path> = settled.iter().copied().collect();
            for key in keys.iter().filter(|key| changed.contains(&*key.path)) {
                wrong.extend(reader.read(key).err().map(|why| (key.path.clone(), why)));
            }
            // What cannot be passed on now is found again.
            let fresh = match reader.finish() {
                Ok(fresh) => {
                    settled.into_iter().for_each(|path| watch.take_in(path));
                    fresh
                }
                Err(error) => {
                    log::error(format_args!("lists that have changed cannot be passed on: {error}"));
                    Vec::new()
                }
            };
            fresh.iter().for_each(|file| files.renew(file.clone()));
            // Where it cannot be done now, the next change has it done.
            let moved = if fresh.is_empty() { Vec::new() } else { files.gather().unwrap_or_default() };
            let looked = Looked { look, watch, fresh, moved, wrong, files };
            let _ = sender.send(Event::LookedAtAccess(Box::new(looked)));
        });
    }

    /// The files were looked at.
    pub(super) fn have_looked_at_access(&mut self, looked: Looked) {
        if !self.access.end(looked.look) || !self.takes_what_is_found() {
            return;
        }
        let Looked { watch, fresh, moved, wrong, files, .. } = looked;
        let is_moved: HashSet<&DataKey> = moved.iter().map(|file| &file.key).collect();
        let stays = |file: &&AccessFile| !is_moved.contains(&file.key);
        let given: Vec<AccessFile> = fresh.iter().filter(stays).chain(&moved).cloned().collect();
        if !given.is_empty()
            && let Err(error) = self.servers.give_access(&given)
        {
            return log::error(format_args!("lists that have changed cannot be passed on: {error}"));
        }
        self.current.access = AccessState { files, watch };
        for (path, why) in wrong {
            let path = path.display();
            log::error(format_args!("{path} has changed, but what was read before stays in use: {why}"));
        }
        let say = |AccessFile { key, contents, .. }: &AccessFile| {
            format!("{} has changed and is in use: {contents}", key.path.display())
        };
        self.announce(fresh.iter().map(say).collect());
    }
}
