//! What a process may set for itself and no safe crate offers.

use std::io;
use std::ops::Range;

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

/// Lets go of the pages of the program that starting has touched: a process that waits for clients needs few of them again,
/// and those come from the page cache. What was written, relocated pointers among it, is left alone.
pub fn let_go_of_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let Some(program) = std::fs::read_link("/proc/self/exe").ok() else { return };
    let Some(program) = program.to_str() else { return };
    for range in never_written(&maps, program) {
        // SAFETY: a private mapping of a file whose pages were never writable: what is dropped is read again from the same
        // file, byte for byte, when it is touched next.
        #[allow(unsafe_code)]
        let _ = unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
    }
}

/// The code of a program, and the constants in front of it. Read-only mappings behind the code were written by the dynamic
/// linker before they became so.
fn never_written(maps: &str, program: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with(program)) {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { break };
        let ends = range
            .split_once('-')
            .map(|(start, end)| (usize::from_str_radix(start, 16).ok(), usize::from_str_radix(end, 16).ok()));
        let Some((Some(start), Some(end))) = ends else { break };
        match rights {
            "r--p" => ranges.push(start..end),
            "r-xp" => {
                ranges.push(start..end);
                return ranges;
            }
            _ => break,
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_written_is_dropped() {
        let maps = "55d0-55e0 r--p 00000000 fe:00 12    /usr/bin/tidegate\n\
                    55e0-5600 r-xp 0000f000 fe:00 12    /usr/bin/tidegate\n\
                    5600-5610 r--p 0002f000 fe:00 12    /usr/bin/tidegate\n\
                    5610-5611 rw-p 0003f000 fe:00 12    /usr/bin/tidegate\n\
                    7f00-7f10 r-xp 00000000 fe:00 13    /lib/libc.so.6\n";
        assert_eq!(never_written(maps, "/usr/bin/tidegate"), [0x55d0..0x55e0, 0x55e0..0x5600]);
        // A linker that makes the program writable first, or in one piece.
        for maps in
            ["55d0-55e0 rw-p 0 fe:00 12 /p\n55e0-55f0 r-xp 0 fe:00 12 /p", "55d0-55e0 rwxp 0 fe:00 12 /p", ""]
        {
            assert_eq!(never_written(maps, "/p"), [], "{maps}");
        }
        let_go_of_code();
        assert_eq!(never_written(maps, "/nowhere"), [], "the code is still there");
    }

    #[test]
    fn a_thread_may_give_way() {
        let set =
            |class| std::thread::spawn(move || set_io_priority(class)).join().expect("it does not panic");
        assert!(set(IoClass::Low).is_ok());
        assert!(set(IoClass::Idle).is_ok());
    }
}
