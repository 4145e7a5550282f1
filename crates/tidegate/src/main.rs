//! The `tidegate` command: the server and what an operator needs around it.
//!
//! `cli` reads the arguments. `master` is the main process, which owns the listening sockets, the settings and the
//! server processes and never touches a byte of a client; `server` is such a process, `link` what the two say to
//! each other.

mod admin;
mod certificates;
mod cli;
mod descriptors;
mod file_watch;
mod link;
mod master;
mod preflight;
mod registry;
mod resolver;
mod revision;
mod server;
mod version;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What musl brings has one lock for all threads; docs/packages.md has the figures. glibc's is as good as this one here.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // A write beyond the limit of file sizes is an error of that call (EFBIG), not the end of the process. The signal is caught
    // and not ignored, since programs that this one starts have it by default then (execve(2)).
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    cli::run()
}
