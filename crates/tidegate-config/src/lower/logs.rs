//! The files that logs go to: lines of two kinds in one file can be read by nobody.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::check::{Checker, Item};
use crate::disk::{Disk, What};
use crate::settings::{AccessFormat, LogTarget, Origin};
use crate::value::Value;

/// The files that lines go to, and what the lines look like.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    files: HashMap<PathBuf, (Option<AccessFormat>, Origin)>,
}

impl Logs {
    /// Remembers the file of an `access-log` or `error-log`; says so when lines of another kind go there too.
    pub fn add(&mut self, checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) {
        let Some(Value::LogTarget(LogTarget::File(path))) = item.first() else { return };
        let format = match (item.directive.name, item.property("format")) {
            ("error-log", _) => None,
            (_, Some(Value::LogFormat(format))) => Some(format),
            _ => Some(AccessFormat::Combined),
        };
        let origin = item.origin();
        let (known, first) =
            self.files.entry(resolved(disk, path)).or_insert_with(|| (format.clone(), origin.clone()));
        if *known != format {
            let what = match (&known, &format) {
                (Some(_), Some(_)) => "lines in another format",
                _ => "lines of another log",
            };
            let message = format!("{what} go to {} already", path.display());
            let help = format!("see {first}; give each a file of its own");
            checker.diagnostics.push(item.error_at(0, message).help(help));
        }
    }
}

/// A path that is the same for every way of writing it, also where the file is still to be made.
pub(super) fn resolved(disk: &dyn Disk, path: &Path) -> PathBuf {
    match (disk.what(path), path.parent(), path.file_name()) {
        (What::Missing, Some(folder), Some(name)) => disk.identity(folder).join(name),
        _ => disk.identity(path),
    }
}
