//! Waiting in tests for something to be seen, in place of sleeping and hoping.

use std::time::{Duration, Instant};

/// How long a test waits for anything.
pub const WAIT: Duration = Duration::from_secs(20);

/// Whether there is such a process and it has not ended. One that has ended and that nobody has taken note of has ended all the
/// same: who takes note of an orphan is the first process of the machine or container, which need not do so.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have brackets of its own (proc_pid_stat(5)).
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// What `find` finds, looked for again and again.
///
/// # Panics
/// After [`WAIT`], with `what` it was.
pub fn wait_for<T>(mut find: impl FnMut() -> Option<T>, what: &str) -> T {
    let deadline = Instant::now() + WAIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run_before_it_is_taken_note_of() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(is_running(child.id()));
        drop(child.stdin.take());
        wait_for(|| (!is_running(child.id())).then_some(()), "its end");
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }
}
