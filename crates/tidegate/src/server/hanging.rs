//! File systems that do not answer when a server process begins in the place of one that has ended: it serves what lies
//! elsewhere, and lets another take its place when they answer again.

use super::Event;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tidegate_io::unanswered::{self, Waiting};

/// How long they may take: clients wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those that do not answer. Before there is a second thread.
pub fn find() -> Vec<Waiting> {
    let ask = |mount: &std::path::Path| {
        let mut command = Command::new("/proc/self/exe");
        command.arg("ask").arg(mount);
        command
    };
    // Where nobody can be asked all is as it would have been.
    unanswered::find(PATIENCE, ask).unwrap_or_default()
}

/// Says when one answers.
pub(super) fn watch(waiting: Vec<Waiting>, events: &Sender<Event>) {
    for one in waiting {
        let (mount, events) = (one.mount.clone(), events.clone());
        let watching = std::thread::Builder::new().name("tidegate-waiting".into()).spawn(move || {
            one.wait();
            let _ = events.send(Event::Answers(mount));
        });
        if watching.is_err() {
            return; // a reload will do
        }
    }
}
