//! Locks whose holder may panic: what they guard is changed in one step, so that it is whole whoever has gone.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also one whose holder has panicked.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
