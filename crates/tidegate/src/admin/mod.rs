//! The process of the admin API: HTTP for those who may change the server.
//!
//! Started by the master alone, as `tidegate admin`, with its end of a link as standard input. It opens no file and no address, and
//! gives up the right to: what it listens on it inherits, connections of server processes come over the link, and everything that is
//! done the master does ([`messages::Command`]). When the link breaks it ends. One that crashes costs nobody a request.
//!
//! `connections` accepts and bounds, `guard` finds out who asks and refuses what a browser may have been tricked into, `operations` is
//! the table of all paths, from which the router and the OpenAPI document are made; `settings`, `operate`, `reads` and `streams` answer.

mod connections;
mod guard;
mod master;
pub mod messages;
mod openapi;
mod operate;
mod operations;
mod problem;
mod reads;
mod settings;
mod streams;

pub use guard::is_of_this_machine;

use crate::link::Link;
use crate::server::privileges::{become_user, close_memory};
use anyhow::{Context, Result, bail};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use master::Master;
use messages::{Begin, FromAdmin, RevisionInfo, ToAdmin};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_io::passing;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, broadcast, mpsc};

/// Streams at the same time.
const STREAMS: usize = 16;
/// Revisions that a stream may be behind.
const REVISIONS: usize = 32;
/// Connections of server processes that wait to be taken up.
const HANDED: usize = 64;

/// What all requests share.
pub struct App {
    master: Arc<Master>,
    /// What tokens against requests of other sites are made with; new with every process.
    csrf: hmac::Key,
    /// Places for streams.
    streams: Arc<Semaphore>,
    revisions: broadcast::Sender<RevisionInfo>,
}

impl App {
    fn new(master: Arc<Master>) -> Result<Arc<App>> {
        let csrf = hmac::Key::generate(HMAC_SHA256, &aws_lc_rs::rand::SystemRandom::new());
        let csrf = csrf.ok().context("there is no chance to be had from the system")?;
        let (revisions, _) = broadcast::channel(REVISIONS);
        Ok(Arc::new(App { master, csrf, streams: Arc::new(Semaphore::new(STREAMS)), revisions }))
    }
}

/// Serves until the master has gone.
pub fn run() -> Result<ExitCode> {
    let link = take_link()?;
    close_memory();
    let (begin, sockets) = match passing::receive(link.as_fd()).context("cannot hear the master")? {
        Some((bytes, sockets)) => {
            let begin: Begin = serde_json::from_slice(&bytes).context("the master is not understood")?;
            (begin, sockets)
        }
        None => return Ok(ExitCode::SUCCESS), // it has thought better of it
    };
    let _ = rustix::thread::set_name(c"tidegate-admin");
    // Before there is a second thread: identities and landlock are a thread's own.
    let warning = give_up(&begin)?;
    let app = App::new(Arc::default())?;
    let (hands, handed) = mpsc::channel(HANDED);
    let (master, revisions) = (app.master.clone(), app.revisions.clone());
    let link = Link::start(
        link,
        move |_, message: ToAdmin, descriptors| match message {
            ToAdmin::Connection => descriptors.into_iter().for_each(|fd| {
                if let Err(TrySendError::Full(fd)) = hands.try_send(fd) {
                    connections::turn_away(&fd);
                }
            }),
            ToAdmin::Reply(number, reply) => master.answered(number, reply),
            ToAdmin::Revision(info) => drop(revisions.send(info)),
        },
        // Nobody is left to do anything.
        |_| std::process::exit(0),
    )
    .context("cannot start the link")?;
    app.master.set(link.clone());
    link.send(&FromAdmin::Ready, Vec::new());
    if let Some(warning) = warning {
        link.send(&FromAdmin::Warn(warning), Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .context("cannot set up the process")?
        .block_on(connections::serve(&app, begin, sockets, handed))?;
    Ok(ExitCode::SUCCESS)
}

/// The master's end is standard input, whose place a closed one takes.
fn take_link() -> Result<OwnedFd> {
    let link = io::stdin().as_fd().try_clone_to_owned().context("cannot take the link")?;
    if !rustix::net::sockopt::socket_type(&link).is_ok_and(|kind| kind == rustix::net::SocketType::STREAM) {
        bail!("this command is not for you: `tidegate serve` starts the process of the admin API with it");
    }
    let null = std::fs::File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("cannot let go of the standard input")?;
    Ok(link)
}

/// Gives up root, the right to gain rights, all files and all addresses. An error must end the process. The sentence is a warning.
fn give_up(begin: &Begin) -> Result<Option<String>> {
    if let Some(identity) = &begin.identity {
        become_user(identity)?;
    }
    rustix::thread::set_no_new_privs(true).context("cannot give up gaining privileges")?;
    if !begin.sandbox {
        return Ok(None);
    }
    let confined = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(ABI::V5)))
        .and_then(|ruleset| ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    Ok(match confined {
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => Some(
            "this kernel has no landlock, or it is switched off: the process of the admin API is confined by the permissions of \
             its user alone; `sandbox off` says that this is meant"
                .into(),
        ),
        Ok(_) => None,
        Err(error) => Some(format!("the process of the admin API could not be confined by landlock: {error}")),
    })
}
