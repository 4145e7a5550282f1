//! What a process may set for itself and no safe crate offers.

use std::io;

/// How urgently disks are wanted (`ioprio_set(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoClass {
    /// Best effort, behind all others of that class.
    Low,
    /// Only when nobody else wants the disk.
    Idle,
}

/// Sets the class of this thread, and of what it starts.
///
/// # Errors
/// The kernel refuses it.
pub fn set_io_priority(class: IoClass) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: libc::c_int = 13;
    const CLASS_BEST_EFFORT: libc::c_int = 2;
    const CLASS_IDLE: libc::c_int = 3;
    const LOWEST: libc::c_int = 7;
    let priority = match class {
        IoClass::Low => CLASS_BEST_EFFORT << CLASS_SHIFT | LOWEST,
        IoClass::Idle => CLASS_IDLE << CLASS_SHIFT,
    };
    // SAFETY: the call takes three numbers and touches no memory of ours; 0 is the calling thread.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_give_way() {
        let set =
            |class| std::thread::spawn(move || set_io_priority(class)).join().expect("it does not panic");
        assert!(set(IoClass::Low).is_ok());
        assert!(set(IoClass::Idle).is_ok());
    }
}
