//! How server processes end.

use super::Event;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::Sender;
use tidegate_core::log;

/// One has ended with lines that it could not write, by log.
pub(super) fn say_unwritten(pid: u32, lines: &BTreeMap<String, u64>) {
    for (target, count) in lines {
        log::error(format_args!(
            "{count} lines of the log {target} are lost: it could not be written until server process {pid} had to end"
        ));
    }
}

/// The link has ended: the process ends, or has.
pub(super) fn watch_end(id: u64, mut child: Child, outcome: io::Result<()>, events: &Sender<Event>) {
    let _ = events.send(Event::Lost(id));
    let mut how = String::new();
    if let Err(error) = outcome {
        how = format!("{error}; ");
        let _ = child.kill();
    }
    how += &child.wait().map_or_else(|error| error.to_string(), describe);
    let _ = events.send(Event::Gone(id, how));
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
