//! The `tidegate` command: the server and what an operator needs around it.
//!
//! `cli` reads the arguments; `master` is the server's main thread, which owns the listening sockets, the
//! settings and the workers and never touches a byte of a client; the rest are its parts.

mod cli;
mod control;
mod descriptors;
mod master;
mod pid_file;
mod registry;
mod reload;
mod revision;
mod sockets;
mod status_source;
mod upgrade;
mod upstreams;

fn main() -> std::process::ExitCode {
    cli::run()
}
