//! Whether what a thread does is still wanted: it may hang in a file system, be given up, and go on when that answers again.

use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the thread asks, just before each thing that others can see (FAULTS 67).
#[derive(Clone, Default)]
pub struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// An error where nobody wants it any more.
    pub fn ask(&self) -> Result<()> {
        ensure!(!self.0.load(Relaxed), "this was given up");
        Ok(())
    }

    /// Nobody does.
    pub fn give_up(&self) {
        self.0.store(true, Relaxed);
    }
}

/// What whoever waits for the thread holds on to: dropped, it is given up.
#[derive(Default)]
pub struct Waiting(Wanted);

impl Waiting {
    /// For the thread.
    pub fn wanted(&self) -> Wanted {
        self.0.clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
