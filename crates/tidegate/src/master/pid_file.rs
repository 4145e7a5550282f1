//! The file that holds the process number, for service managers.
//!
//! Written whole or not at all, taken over by a successor, removed at the end unless somebody else's by then.

use super::control::beside;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use tidegate_core::log;

/// A pid file that this process has written.
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file, in place of one that is there.
    pub fn write(path: &Path) -> Result<PidFile> {
        let own = std::process::id();
        let draft = beside(path);
        fs::write(&draft, format!("{own}\n"))
            .and_then(|()| fs::rename(&draft, path))
            .inspect_err(|_| drop(fs::remove_file(&draft)))
            .with_context(|| {
                format!(
                    "cannot write the pid file {}; let the user that runs tidegate write into its folder, \
                     or name another with `pid-file`",
                    path.display()
                )
            })?;
        Ok(PidFile { path: path.to_owned() })
    }

    /// One that is about to be written.
    pub fn at(path: &Path) -> PidFile {
        PidFile { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it anew if somebody else has who did not stay.
    pub fn put_back(&self) {
        if !self.names_us()
            && let Err(error) = PidFile::write(&self.path)
        {
            log::error(format_args!("{error:#}"));
        }
    }

    /// Removes the file if it still names this process.
    pub fn remove(&self) {
        if self.names_us() {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn names_us(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == std::process::id().to_string())
    }
}
