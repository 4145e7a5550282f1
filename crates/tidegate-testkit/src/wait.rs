//! Waiting in tests for something to be seen, in place of sleeping and hoping.

use std::time::{Duration, Instant};

/// How long a test waits for anything.
pub const WAIT: Duration = Duration::from_secs(20);

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
