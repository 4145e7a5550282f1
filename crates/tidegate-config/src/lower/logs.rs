//! The files that logs go to: lines of two kinds in one file can be read by nobody.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::check::{Checker, Item};
use crate::disk::{Disk, What};
use crate::settings::{AccessFormat, CollectorAddress, LogTarget, Origin};
use crate::value::Value;

/// The files that lines go to, and what the lines look like.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    files: HashMap<PathBuf, (Option<AccessFormat>, Origin)>,
    /// What is no file, and how lines of requests look there.
    elsewhere: Vec<(LogTarget, AccessFormat, Origin)>,
}

impl Logs {
    /// Remembers the file of an `access-log` or `error-log`; says so when lines of another kind go there too.
    pub fn add(&mut self, checker: &mut Checker<'_>, disk: &dyn Disk, item: &Item) {
        let path = match item.first() {
            Some(Value::LogTarget(LogTarget::File(path))) => path,
            Some(Value::LogTarget(target)) => return self.add_elsewhere(checker, item, target),
            _ => return,
        };
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

impl Logs {
    /// The same where lines of several kinds may meet: those of requests are still written in one format.
    fn add_elsewhere(&mut self, checker: &mut Checker<'_>, item: &Item, target: &LogTarget) {
        if item.directive.name != "access-log" {
            return;
        }
        let format = match item.property("format") {
            Some(Value::LogFormat(format)) => format,
            _ => AccessFormat::Combined,
        };
        let origin = item.origin();
        let known = self.elsewhere.iter().find(|(known, ..)| known == target);
        match known {
            None => self.elsewhere.push((target.clone(), format, origin)),
            Some((_, known, first)) if *known != format => {
                let message = format!("lines in another format go to {target} already");
                let help = format!("see {first}; write both in the same format");
                checker.diagnostics.push(item.error_at(0, message).help(help));
            }
            Some(_) => {}
        }
    }
}

/// The facilities of syslog by their names, in the order of their numbers (RFC 5424 section 6.2.1); those between are the
/// business of systems.
pub(crate) const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// Where a log goes, with what a daemon that collects is told of us.
pub(super) fn target(checker: &mut Checker<'_>, item: &Item) -> Option<LogTarget> {
    let Some(Value::LogTarget(target)) = item.first() else { return None };
    let mut target = target.clone();
    let LogTarget::Collector(to) = &mut target else {
        for name in ["facility", "tag", "protocol"] {
            if item.property(name).is_some() {
                let message =
                    format!("`{name}` says something to a daemon that collects logs, and `{target}` is none");
                let help = "take it out, or name `syslog` or `journald`";
                checker.diagnostics.push(item.error(message).help(help));
            }
        }
        return Some(target);
    };
    if let Some(Value::Word(name)) = item.property("facility") {
        let number = FACILITIES.iter().position(|known| *known == name).unwrap_or_default();
        // 12 to 15 have no name that programs use.
        to.facility = number as u8 + if number >= 12 { 4 } else { 0 };
    }
    if let Some(Value::Text(tag)) = item.property("tag") {
        to.tag = tag;
    }
    if item.property("protocol").is_some() {
        match &mut to.at {
            CollectorAddress::Unix { is_rfc5424, .. } => *is_rfc5424 = true,
            CollectorAddress::Udp(_) | CollectorAddress::Tcp(_) => {}
            CollectorAddress::Journal(_) => {
                let message = "the journal has a protocol of its own".to_owned();
                checker.diagnostics.push(item.error(message).help("take `protocol` out"));
            }
        }
    }
    Some(target)
}

/// A path that is the same for every way of writing it, also where the file is still to be made.
pub(super) fn resolved(disk: &dyn Disk, path: &Path) -> PathBuf {
    match (disk.what(path), path.parent(), path.file_name()) {
        (What::Missing, Some(folder), Some(name)) => disk.identity(folder).join(name),
        _ => disk.identity(path),
    }
}
