//! Pauses that are part of what is played: of a slow application, of a client that reads slowly, of a crowd that is
//! silent. Nothing is hoped for from them; what shall be seen is waited for with a condition and a deadline.

use std::time::{Duration, Instant};

/// Does nothing for so long.
pub(super) fn rest(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
