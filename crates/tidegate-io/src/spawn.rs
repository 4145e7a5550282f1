//! Programs started one after another by a small process: a stub of CGI scripts.
//!
//! The child borrows the memory of its parent, which stands still until the program runs (`CLONE_VM` and
//! `CLONE_VFORK`, clone(2)): nothing is copied, however much memory the parent has. `posix_spawn` does the same,
//! but looks at every signal twice and makes a stack for each child, some 150 calls of the system in all; here it
//! is five. Only what a script needs can be set.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Bytes of stack that a child has until its program runs: it makes a few calls of the system.
const STACK: usize = 64 << 10;

/// What is started.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Where it is; its first argument as well, and the only one.
    pub path: &'a CStr,
    /// All of its environment: `NAME=value`.
    pub environment: &'a [&'a CStr],
    /// Its working folder.
    pub folder: &'a CStr,
    /// Its standard input and standard output. Standard error is the caller's.
    pub stdio: BorrowedFd<'a>,
}

/// A process that runs a program, and leads a process group. Whoever holds this has to reap it.
#[derive(Debug)]
pub struct Started {
    /// Its number.
    pub pid: Pid,
    /// Readable once it has ended.
    pub ended: OwnedFd,
}

/// Starts programs. Holds what each start needs again.
pub struct Spawner {
    /// Aligned as stacks have to be.
    stack: Vec<u128>,
    environment: Vec<*const c_char>,
}

/// What the child reads, and its answer.
struct Order {
    path: *const c_char,
    arguments: [*const c_char; 2],
    environment: *const *const c_char,
    folder: *const c_char,
    stdio: c_int,
    /// The number of the error, where it could not become the program.
    error: c_int,
}

impl Default for Spawner {
    fn default() -> Spawner {
        Spawner { stack: vec![0; STACK / size_of::<u128>()], environment: Vec::new() }
    }
}

impl Spawner {
    /// Starts a program. Its signals are as the caller's, but `SIGPIPE` ends it, which Rust ignores.
    ///
    /// # Errors
    /// No process can be had, or the program cannot be run: no such file, not executable.
    pub fn start(&mut self, program: &Program<'_>) -> io::Result<Started> {
        self.environment.clear();
        self.environment.extend(program.environment.iter().map(|entry| entry.as_ptr()));
        self.environment.push(ptr::null());
        if program.stdio.as_raw_fd() <= libc::STDERR_FILENO {
            // It would be closed with all that is not to be passed on.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard descriptor cannot be given"));
        }
        let mut order = Order {
            path: program.path.as_ptr(),
            arguments: [program.path.as_ptr(), ptr::null()],
            environment: self.environment.as_ptr(),
            folder: program.folder.as_ptr(),
            stdio: program.stdio.as_raw_fd(),
            error: 0,
        };
        let mut ended: c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the child runs `become_program` on `stack`, which nobody else uses meanwhile, and reads `order` and
        // what it points to. All of it outlives the call, and with `CLONE_VFORK` the call returns when the child has
        // left this memory: it runs the program, or has ended. The kernel puts a descriptor into `ended`.
        #[allow(unsafe_code)]
        let pid = unsafe {
            let top = self.stack.as_mut_ptr().add(self.stack.len());
            libc::clone(become_program, top.cast(), flags, (&raw mut order).cast(), &raw mut ended)
        };
        let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the kernel has made this descriptor for us and nobody else knows it.
        #[allow(unsafe_code)]
        let ended = unsafe { OwnedFd::from_raw_fd(ended) };
        // SAFETY: `order` is a local variable that is aligned and initialised; the child, which may have written to it,
        // has left this memory.
        #[allow(unsafe_code)]
        let error = unsafe { (&raw const order.error).read_volatile() };
        if error != 0 {
            waitpid(Some(pid), WaitOptions::empty())?;
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Started { pid, ended })
    }
}

/// The child, before it is the program. It may change nothing of this memory but its order.
extern "C" fn become_program(order: *mut c_void) -> c_int {
    // SAFETY: `order` is the `Order` that `Spawner::start` has made; its pointers are to strings that end with NUL and
    // to lists that end with null, and all of it is there until this process runs the program or ends. The calls are
    // those that are allowed behind `vfork`: none allocates, none takes a lock.
    #[allow(unsafe_code)]
    unsafe {
        let order = order.cast::<Order>();
        libc::setpgid(0, 0);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if libc::dup2((*order).stdio, libc::STDIN_FILENO) >= 0
            && libc::dup2((*order).stdio, libc::STDOUT_FILENO) >= 0
            && libc::chdir((*order).folder) == 0
        {
            libc::execve((*order).path, (*order).arguments.as_ptr(), (*order).environment);
        }
        (*order).error = *libc::__errno_location();
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::WaitStatus;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use tidegate_testkit::{WAIT, wait_for};

    fn started(path: &CStr, environment: &[&CStr]) -> (io::Result<Started>, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(WAIT)).unwrap();
        let program = Program { path, environment, folder: c"/", stdio: there.as_fd() };
        (Spawner::default().start(&program), here)
    }

    fn ended_child(pid: Pid) -> (Pid, WaitStatus) {
        wait_for(|| waitpid(Some(pid), WaitOptions::NOHANG).unwrap(), "the end of a program")
    }

    #[test]
    fn a_program_gets_its_environment_folder_and_socket() {
        let (process, mut socket) = started(c"/usr/bin/env", &[c"ONE=1", c"TWO=two words"]);
        let process = process.unwrap();
        let mut output = String::new();
        socket.read_to_string(&mut output).unwrap();
        assert_eq!(output, "ONE=1\nTWO=two words\n");
        let patience = Timespec { tv_sec: WAIT.as_secs() as i64, tv_nsec: 0 };
        let mut ended = [PollFd::new(&process.ended, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&patience)), Ok(1), "it ends");
        let (_, status) = ended_child(process.pid);
        assert_eq!(status.exit_status(), Some(0));

        let (process, mut socket) = started(c"/bin/sh", &[]);
        socket.write_all(b"pwd; kill -PIPE $$\n").unwrap();
        let process = process.unwrap();
        let mut output = [0; 2];
        socket.read_exact(&mut output).unwrap();
        assert_eq!(&output, b"/\n");
        let (_, status) = ended_child(process.pid);
        assert_eq!(status.terminating_signal(), Some(libc::SIGPIPE));
    }

    #[test]
    fn what_cannot_be_run_is_an_error_and_no_process() {
        let table = [
            (c"/no/such/program", io::ErrorKind::NotFound),
            (c"/etc/passwd", io::ErrorKind::PermissionDenied),
        ];
        for (path, kind) in table {
            let (process, mut socket) = started(path, &[]);
            assert_eq!(process.map(drop).unwrap_err().kind(), kind, "{path:?}");
            assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        }
        let stdin = io::stdin();
        let program = Program { path: c"/bin/true", environment: &[], folder: c"/", stdio: stdin.as_fd() };
        // Standard input of a test may be anything, and is none that can be given.
        let refused = Spawner::default().start(&program);
        assert_eq!(refused.map(drop).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
