//! `tidegate spawn`: starts FastCGI applications on a socket, in the words of `spawn-fcgi(1)`.
//!
//! They run by themselves from then on: nothing watches them. A `pool` does.

use super::print;
use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use tidegate_modules::gateway::pool_directory::PoolAddress;
use tidegate_modules::gateway::supervise::launch::{Launch, find_group, find_user};
use tidegate_modules::gateway::supervise::sockets::{BACKLOG, Listening};

/// How long a process is watched for an early end.
const EARLY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Starts FastCGI applications on a socket.
///
/// Binds a socket, starts one process or several that accept connections on it, and returns; the processes run on
/// by themselves. Takes the options of spawn-fcgi. For applications that are watched, sized and replaced, write a
/// `pool` into the settings instead.
#[derive(Args)]
#[group(skip)]
#[command(
    group(ArgGroup::new("place").required(true).multiple(true).args(["port", "socket"])),
    group(ArgGroup::new("application").required(true).multiple(true).args(["file", "program"])),
    override_usage = "\
tidegate spawn [OPTIONS] -s <PATH> -- <PROGRAM>...
       tidegate spawn [OPTIONS] -p <PORT> -- <PROGRAM>...
       tidegate spawn [OPTIONS] <-s <PATH>|-p <PORT>> -f <COMMAND>",
    after_long_help = "\
Examples:
  tidegate spawn -s /run/app.sock -M 0660 -- /usr/bin/php-cgi
  tidegate spawn -a 127.0.0.1 -p 9000 -C 8 -u www-data -g www-data -P /run/app.pid -- /usr/bin/php-cgi
  tidegate spawn -n -s /run/app.sock -- /usr/local/bin/app        under runit or systemd

Exit codes:
  0  the processes run
  1  one could not be started, or ended at once
  2  the arguments are wrong"
)]
pub struct Arguments {
    /// Address to bind [default: 0.0.0.0]
    #[arg(short = 'a', value_name = "ADDRESS", requires = "port")]
    address: Option<IpAddr>,
    /// Port to bind
    #[arg(short = 'p', value_name = "PORT", conflicts_with = "socket")]
    port: Option<u16>,
    /// Unix socket to bind
    #[arg(short = 's', value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Mode of the unix socket, octal [default: what the mask leaves]
    #[arg(short = 'M', value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
    /// User that the unix socket belongs to [default: that of -u]
    #[arg(short = 'U', value_name = "USER")]
    socket_user: Option<String>,
    /// Group that the unix socket belongs to [default: that of -g]
    #[arg(short = 'G', value_name = "GROUP")]
    socket_group: Option<String>,
    /// Length of the socket's queue
    #[arg(short = 'b', value_name = "CONNECTIONS", default_value_t = BACKLOG)]
    backlog: i32,
    /// Application, run by the shell; better named with its arguments behind --
    #[arg(short = 'f', value_name = "COMMAND")]
    file: Option<String>,
    /// Children that PHP is to start (PHP_FCGI_CHILDREN)
    #[arg(short = 'C', value_name = "CHILDREN")]
    children: Option<u32>,
    /// Processes to start
    #[arg(short = 'F', value_name = "PROCESSES", default_value_t = 1)]
    processes: u32,
    /// User to run as
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// Group to run as
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Folder to start in
    #[arg(short = 'd', value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Root folder to enter first
    #[arg(short = 'c', value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Bind the socket before entering the root folder, which is what happens anyhow
    #[arg(short = 'S')]
    _socket_first: bool,
    /// File for the process numbers
    #[arg(short = 'P', value_name = "PATH")]
    pid_file: Option<PathBuf>,
    /// Do not go to the background: become the application
    #[arg(short = 'n')]
    stays: bool,
    /// The application and its arguments
    #[arg(last = true)]
    program: Vec<OsString>,
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or("write octal digits: 0660".into())
}

/// Starts them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let listening = listen(arguments)?;
    let argv = match &arguments.file {
        Some(command) if arguments.program.is_empty() => {
            vec!["/bin/sh".into(), "-c".into(), format!("exec {command}").into()]
        }
        _ => arguments.program.clone(),
    };
    let launch = Launch {
        folder: Some(match &arguments.folder {
            Some(folder) => folder.clone(),
            None if arguments.root.is_some() => "/".into(),
            None => std::env::current_dir().context("cannot tell the folder this is run in")?,
        }),
        root: arguments.root.clone(),
        user: arguments.user.clone(),
        group: arguments.group.clone(),
        has_session: !arguments.stays,
        ..Launch::default()
    };
    if arguments.stays {
        return become_application(arguments, &launch, &argv, listening);
    }
    let mut numbers = String::new();
    for _ in 0..arguments.processes.max(1) {
        let number = start(arguments, &launch, &argv, &listening)?;
        let _ = writeln!(numbers, "{number}");
        print(&format!("tidegate: process {number} serves {}\n", listening.address))?;
    }
    if let Some(path) = &arguments.pid_file {
        std::fs::write(path, numbers).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // The file of the socket is the processes' from here on.
    std::mem::forget(listening);
    Ok(ExitCode::SUCCESS)
}

fn listen(arguments: &Arguments) -> Result<Listening> {
    let address = match (&arguments.socket, arguments.port) {
        (Some(path), _) => PoolAddress::Unix(std::path::absolute(path)?),
        (None, port) => {
            let address = arguments.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            PoolAddress::Tcp(SocketAddr::new(address, port.unwrap_or_default()))
        }
    };
    let shown = address.to_string();
    let listening =
        Listening::open(address, arguments.backlog).with_context(|| format!("cannot listen on {shown}"))?;
    if let PoolAddress::Unix(path) = &listening.address {
        let user = arguments.socket_user.as_ref().or(arguments.user.as_ref());
        let user = user.map(|name| find_user(name)).transpose().map_err(anyhow::Error::msg)?;
        let group = arguments.socket_group.as_ref().or(arguments.group.as_ref());
        let group = group.map(|name| find_group(name)).transpose().map_err(anyhow::Error::msg)?;
        if user.is_some() || group.is_some() {
            let owner = user.map(|user| user.uid.as_raw());
            chown(path, owner, group.map(|group| group.as_raw()))
                .with_context(|| format!("cannot give {} to its user", path.display()))?;
        }
        if let Some(mode) = arguments.mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(listening)
}

fn become_application(
    arguments: &Arguments,
    launch: &Launch,
    argv: &[OsString],
    listening: Listening,
) -> Result<ExitCode> {
    if let Some(path) = &arguments.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))?;
    }
    rustix::stdio::dup2_stdin(&listening.fd).context("cannot pass the socket on")?;
    std::mem::forget(listening);
    let argv: Vec<OsString> = match arguments.children {
        // The environment of this process cannot be changed safely: `env` changes that of the next.
        Some(children) => {
            let set = format!("PHP_FCGI_CHILDREN={children}").into();
            ["/usr/bin/env".into(), set].into_iter().chain(argv.iter().cloned()).collect()
        }
        None => argv.to_vec(),
    };
    bail!("{}", launch.run(&argv))
}

fn start(arguments: &Arguments, launch: &Launch, argv: &[OsString], listening: &Listening) -> Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("launch").arg(launch.to_argument()).arg("--").args(argv);
    if let Some(children) = arguments.children {
        command.env("PHP_FCGI_CHILDREN", children.to_string());
    }
    command.stdin(Stdio::from(listening.fd.try_clone()?)).stdout(Stdio::null());
    let mut child = command.spawn().context("cannot start a process")?;
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&ended, PollFlags::IN)];
    if poll(&mut fds, Some(&EARLY)).unwrap_or(0) > 0 {
        let status = child.wait()?;
        bail!("process {} ended at once: {status}", child.id());
    }
    Ok(child.id())
}
