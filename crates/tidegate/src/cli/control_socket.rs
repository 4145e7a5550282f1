//! One question over the control socket of a server, and its answer: where the socket is, and who is believed there.

use super::has_color;
use crate::master::control::{self, Reply, Request};
use crate::master::proof::Operator;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tidegate_config::{Loaded, ProcessEnvironment, Settings, load_str, load_to_find};

/// How to find the server.
#[derive(Clone, Args)]
pub struct Server {
    /// Control socket of the server
    ///
    /// Without it and without --config: tidegate.sock in $XDG_RUNTIME_DIR or /run (for root), else tidegate-UID.sock in
    /// the folder for temporary files. For root, when no server answers there: /run/tidegate/tidegate.sock, the service's.
    #[arg(long, value_name = "PATH", global = true)]
    pub control: Option<PathBuf>,
    /// The server's settings file, which tells where its control socket is
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

impl Server {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// No server answers, or somebody does who is none of this user's.
    pub fn ask(&self, request: &Request) -> Result<Reply> {
        let (path, is_shared) = place(self)?;
        let unnamed = self.config.as_deref().filter(|_| is_shared);
        let operator = Operator::of(&path);
        let mut stream = operator.connect().map_err(|error| {
            // What is wrong with the file may be why it says nothing of the socket.
            let wrong = self.config.as_deref().map(|config| load_to_find(config, &ProcessEnvironment));
            let wrong = wrong.filter(Loaded::has_errors).map(|loaded| loaded.render(has_color()));
            anyhow!("{}{}", wrong.unwrap_or_default(), unreachable_server(&path, unnamed, &error))
        })?;
        // Anyone may put a socket into a folder for everyone: only our own server, or root's, is believed.
        if is_shared {
            let owner = socket_peercred(&stream).context("cannot tell whose server this is")?.uid;
            if owner != getuid() && !owner.is_root() {
                bail!("the server at {} is another user's; name yours with --control", path.display());
            }
        }
        let patience = request.patience();
        stream.set_read_timeout(patience).context("cannot set how long the server is waited for")?;
        let broke_off = |error: std::io::Error| match (error.kind(), patience) {
            (ErrorKind::WouldBlock | ErrorKind::TimedOut, Some(patience)) => anyhow!(
                "the server at {} has not answered within {}s: a disk that it waits for may not answer; what it was asked for may \
                 still be done, its error log says so",
                path.display(),
                patience.as_secs()
            ),
            _ => anyhow!("the server at {} broke off: {error}", path.display()),
        };
        let command = request.to_line();
        // Who is refused before the line was read may not be able to send it, or finds the way cut behind the refusal.
        let sent = stream.write_all(format!("{command}\n").as_bytes());
        let is_refused = |said: &[u8]| said.starts_with(b"failed\n");
        let mut replies = BufReader::new(&stream);
        let mut said = Vec::new();
        let began = replies.read_until(b'\n', &mut said);
        if !is_refused(&said) {
            sent.and(began.map(drop)).map_err(broke_off)?;
        }
        let proven = operator.answer(&stream, &said, &command)?;
        if proven.is_some() {
            said.clear();
        }
        let ended = replies.read_to_end(&mut said);
        let is_refusal = is_refused(&said);
        if !is_refusal {
            ended.map_err(broke_off)?;
        }
        // A refusal does nothing, and comes from who is refused a proof as well.
        let reply = match &proven {
            Some(proven) => proven.reply(&said).or(Some(&*said).filter(|_| is_refusal)),
            None => Some(&*said).filter(|_| is_refusal || said.is_empty() || !operator.is_asked()),
        };
        let Some(reply) = reply else {
            bail!(
                "whoever answers at {} does not know the secret of your server, and may be an application that it has started",
                path.display()
            );
        };
        let reply = String::from_utf8_lossy(reply);
        let (word, text) = reply.split_once('\n').unwrap_or((&*reply, ""));
        match word {
            "ok" => Ok(Reply::ok(text)),
            "failed" => Ok(Reply::failed(text)),
            _ => bail!("the server at {} ended before it answered", path.display()),
        }
    }

    /// Asks for what is shown.
    ///
    /// # Errors
    /// As [`Server::ask`], or the server could not do it.
    pub fn ask_for(&self, request: &Request) -> Result<String> {
        let reply = self.ask(request)?;
        match reply.is_ok {
            true => Ok(reply.text),
            false => bail!("{}", reply.text.trim_end()),
        }
    }
}

/// The control socket, and whether it lies where others may write.
fn place(server: &Server) -> Result<(PathBuf, bool)> {
    if let Some(path) = &server.control {
        return Ok((path.clone(), false));
    }
    let Some(config) = &server.config else { return Ok(usual_place(control::path_for(None).0)) };
    if let Err(error) = config.metadata()
        && error.kind() == ErrorKind::NotFound
    {
        bail!(
            "{} cannot be read: there is no such file; a server is also found with --control",
            config.display()
        );
    }
    let mut loaded = load_to_find(config, &ProcessEnvironment);
    match loaded.settings.take().or_else(|| own_files_of(config)) {
        Some(settings) => {
            let is_shared = settings.control.is_none() && settings.pid_file.is_none();
            Ok((control::path_for(Some(&settings)).0, is_shared))
        }
        None => bail!(
            "{}where the control socket of its server is cannot be told: put that right, or name it with --control",
            loaded.render(has_color())
        ),
    }
}

/// Where nobody says a place, and whether others may write there. Root's is that of the service (dist/tidegate.service) when
/// nobody answers in the usual one.
fn usual_place(usual: PathBuf) -> (PathBuf, bool) {
    let service = Path::new(SERVICE);
    let is_of_service = getuid().is_root() && control::owner(&usual).is_none() && service.exists();
    if is_of_service { (service.to_owned(), false) } else { (usual, true) }
}

/// The control socket of the service.
const SERVICE: &str = "/run/tidegate/tidegate.sock";

/// What a file with mistakes says of the server's own files: those mistakes are often why a command is
/// given, and the server tells them better.
fn own_files_of(config: &Path) -> Option<Settings> {
    // A byte that is no UTF-8 is as good a reason for a command as any mistake.
    let bytes = std::fs::read(config).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let is_own = |line: &&str| ["control ", "pid-file "].iter().any(|name| line.starts_with(name));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_own).collect();
    let text = format!("listen \"127.0.0.1:0\"\nsite {{ respond 204 }}\n{}\n", lines.join("\n"));
    let folder = std::path::absolute(config).ok()?.parent()?.to_owned();
    load_str("own files", &text, &folder, &ProcessEnvironment).settings
}

/// `unnamed`: the settings file that was named and says nothing of a control socket.
fn unreachable_server(path: &Path, unnamed: Option<&Path>, error: &std::io::Error) -> String {
    let is_file = path.is_file();
    let path = path.display();
    match (error.kind(), unnamed) {
        (ErrorKind::NotFound | ErrorKind::ConnectionRefused, Some(config)) => format!(
            "no server runs with the control socket {path}, the usual one: {} names neither `control` nor `pid-file`; name \
             the socket with --control",
            config.display()
        ),
        (ErrorKind::ConnectionRefused, _) if is_file => {
            format!("{path} is an ordinary file and no control socket; name the socket with --control")
        }
        (kind, _) => why_unreachable(&path, kind, error),
    }
}

fn why_unreachable(path: &dyn std::fmt::Display, kind: ErrorKind, error: &std::io::Error) -> String {
    match kind {
        ErrorKind::NotFound => format!(
            "no server runs with the control socket {path}; name another with --control, or the settings file \
             with --config"
        ),
        ErrorKind::ConnectionRefused => {
            format!("the server of the control socket {path} has ended; start one with `tidegate serve`")
        }
        ErrorKind::PermissionDenied => {
            format!("the control socket {path} is another user's; run this as that user or as root")
        }
        _ => format!("cannot speak to the server at {path}: {error}"),
    }
}
