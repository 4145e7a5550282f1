//! A server process: it serves clients, and does what the master says over the link.
//!
//! Started by the master alone, as `tidegate server`, with its end of the link as standard input. It opens no
//! socket, no log and no settings file: all of that comes over the link. The main thread waits for messages
//! and for workers that end; clients are the workers' business.
//!
//! When the link breaks, the master has gone. A process that nobody can reload, stop or replace must not go
//! on holding the ports: it finishes what is open and ends, as HAProxy's processes do. A service manager starts
//! the next master, which finds the ports free.

mod client_names;
mod demand;
pub mod hanging;
mod nodes;
mod orders;
pub mod privileges;
pub mod view;
mod wellness;

use crate::descriptors;
use crate::link::{Answer, Begin, Extent, Figures, Link, Question, ToMaster, ToServer};
use crate::registry::Stores;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};
use tidegate_core::access_data::AccessStore;
use tidegate_core::log::Writer;
use tidegate_core::rate::RateStore;
use tidegate_core::tls::TlsStore;
use tidegate_core::worker::Asker;
use tidegate_io::blocking;
use tidegate_io::descriptors::{Lease, Reserve};
use tidegate_io::passing;
use tidegate_io::usage::Usage;
use tidegate_modules::cache::CacheDirectory;
use tidegate_modules::cache_desk::{CacheDesk, CacheOrder, CacheReply};
use tidegate_modules::gateway::pool_directory::PoolDirectory;
use tidegate_modules::login::LoginStore;
use tidegate_modules::status::{WorkerFigures, lanes};
use tidegate_stats::series::{SeriesDirectory, SeriesFigures};
use tidegate_stats::{Level, Snapshot, Worker as Stats, add_listeners, add_times};
use wellness::Limits;

/// How long a worker may take to answer a question.
const ANSWER_PATIENCE: Duration = Duration::from_secs(4);

enum Event {
    /// The master has said something.
    Said(ToServer, Vec<OwnedFd>, Option<Lease>),
    /// The master has gone.
    Orphaned,
    /// A worker has ended.
    WorkerEnded(usize),
    /// The file system at this mount point answers again.
    Answers(PathBuf),
    /// Somebody wants this process to end.
    Terminate,
}

/// Serves until told to end.
pub fn run() -> Result<ExitCode> {
    let link = take_link()?;
    privileges::close_memory();
    tidegate_core::admission::save_address_space();
    let (begin, purges): (Begin, _) =
        match passing::receive(link.as_fd()).context("cannot hear the master")? {
            Some((bytes, descriptors)) => {
                (serde_json::from_slice(&bytes).context("the master is not understood")?, descriptors)
            }
            None => return Ok(ExitCode::SUCCESS), // it has thought better of it
        };
    tidegate_modules::gateway::via::begin(begin.server);
    let _ = rustix::thread::set_name(c"tidegate");
    // While there is one thread, which waits for none of them.
    let unanswered = if begin.is_recovery { hanging::find() } else { Vec::new() };
    tidegate_io::usage::prepare();
    let found = privileges::look(&begin);
    // Before there is a second thread: identities and landlock are a thread's own.
    let warning = privileges::give_up(&begin)?;
    descriptors::raise_limit();
    let limits = Limits::now();
    let (sender, events) = channel();
    watch_signals(sender.clone())?;
    hanging::watch(unanswered, &sender);
    let writer = Writer::start().context("cannot start the log thread")?;
    let tls = TlsStore::new().context("cannot make keys for TLS session tickets")?;
    let directory = PoolDirectory::new();
    let access = Arc::<AccessStore>::default();
    access.names().ask_by(Arc::<client_names::Asker>::default());
    let members = Arc::new(Members {
        workers: RwLock::default(),
        writer: writer.clone(),
        directory: directory.clone(),
        access: access.clone(),
        logins: OnceLock::new(),
        rates: OnceLock::new(),
        stores: OnceLock::new(),
        series: Arc::default(),
        limits,
    });
    let rates = Arc::<RateStore>::default();
    rates.share_by(nodes::taker());
    let (told, banning) = (directory.clone(), rates.clone());
    let (asked, heard, lost) = (members.clone(), sender.clone(), sender.clone());
    let reserve = Arc::<Reserve>::default();
    let link = Link::start_with(
        link,
        Some(reserve.clone()),
        move |link, message, descriptors, lease| match message {
            ToServer::Question(number, question) => answer(link, &asked, number, question),
            ToServer::Answer(number, answer) => link.answered(number, answer.with(descriptors)),
            ToServer::Pool(update) => told.apply(update),
            ToServer::LetGo(addresses) => told.let_go(addresses),
            ToServer::Upstreams(findings) => told.groups().learn(&findings),
            ToServer::Lifted { client, at } => {
                if let Ok(client) = client.parse() {
                    banning.lifted(client, at);
                }
            }
            ToServer::Lacking(message, count) => match *message {
                ToServer::Answer(number, answer) => link.answered(number, answer),
                order => {
                    let lacking = ToServer::Lacking(Box::new(order), count);
                    drop(heard.send(Event::Said(lacking, descriptors, lease)));
                }
            },
            order => drop(heard.send(Event::Said(order, descriptors, lease))),
        },
        move |_| drop(lost.send(Event::Orphaned)),
    )
    .context("cannot start the link")?;
    link.send(&ToMaster::Found(found), Vec::new());
    let teller = link.clone();
    directory.groups().tell_with(move |finding| {
        // What a slow master does not take the others find out themselves.
        teller.send(&ToMaster::Upstream(finding), Vec::new());
    });
    demand::start(directory.clone(), link.clone()).context("cannot start a thread")?;
    let logins = Arc::new(LoginStore::new(tls.clone(), rates.clone()));
    let _ = members.logins.set(logins.clone());
    let _ = members.rates.set(rates.clone());
    let series = members.series.clone();
    let caches = Arc::<CacheDirectory>::default();
    if let Some(memory) = purges.into_iter().next() {
        caches.share_purges_by(memory.as_fd()).context("cannot share what is purged")?;
    }
    let _ = members.stores.set(caches.clone());
    let stores = Stores { access, caches, directory, logins, rates, tls, series };
    orders::Server::new(link, writer, members, stores, (sender, events), (reserve, warning)).run();
    Ok(ExitCode::SUCCESS)
}

/// The master's end is standard input, whose place a closed one takes.
fn take_link() -> Result<OwnedFd> {
    let link = io::stdin().as_fd().try_clone_to_owned().context("cannot take the link")?;
    if !rustix::net::sockopt::socket_type(&link).is_ok_and(|kind| kind == rustix::net::SocketType::STREAM) {
        bail!("this command is not for you: `tidegate serve` starts its server processes with it");
    }
    let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).context("cannot replace standard input")?;
    tidegate_io::paged::prepare(); // while it may still be opened for writing
    Ok(link)
}

/// Signals are the master's business: those of a terminal, or of a service manager, reach every process of
/// the group. Only TERM means this process.
fn watch_signals(events: Sender<Event>) -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2]).context("cannot watch signals")?;
    std::thread::Builder::new()
        .name("tidegate-signal".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGTERM && events.send(Event::Terminate).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// What questions are answered from.
struct Members {
    workers: RwLock<Vec<(Asker, Arc<Stats>)>>,
    writer: Arc<Writer>,
    directory: Arc<PoolDirectory>,
    access: Arc<AccessStore>,
    /// Once the memory of limits is there.
    logins: OnceLock<Arc<LoginStore>>,
    rates: OnceLock<Arc<RateStore>>,
    /// The stores of responses, once there are any.
    stores: OnceLock<Arc<dyn CacheDesk>>,
    /// What sites and routes are called.
    series: Arc<SeriesDirectory>,
    /// When it began.
    limits: Limits,
}

impl Members {
    /// What the workers have counted, but for descriptors: somebody asks every second.
    fn figures(&self) -> Figures {
        let (mut counted, mut by_worker) = (Snapshot::default(), Vec::new());
        let (mut listeners, mut times) = (Vec::new(), Vec::new());
        if let Ok(workers) = self.workers.read() {
            workers.iter().for_each(|(_, stats)| counted.merge(&stats.snapshot()));
            for (_, stats) in &*workers {
                add_listeners(&mut listeners, &stats.latency.figures());
                add_times(&mut times, &stats.times.figures());
            }
            by_worker.extend(workers.iter().enumerate().map(|(at, (_, stats))| WorkerFigures::of(at, stats)));
        }
        let native = blocking::figures();
        let level = |current: usize, peak: usize, limit: usize| {
            let [current, peak, limit] = [current, peak, limit].map(|value| value as u64);
            Level { current, peak, limit }
        };
        let busy = native.threads.saturating_sub(native.idle);
        counted.native_threads = level(busy, native.threads, native.threads_limit);
        counted.native_queue = level(native.waiting, native.waiting_peak, native.waiting_limit);
        let names = self.access.names().report();
        counted.dns_cache_entries = Level { current: names.entries, peak: names.entries, limit: names.limit };
        (counted.dns_cache_hits, counted.dns_cache_misses) = (names.hits, names.misses);
        (counted.dns_names, counted.dns_nameless) = (names.named, names.nameless);
        (counted.dns_unanswered, counted.dns_refused) = (names.unanswered, names.refused);
        Figures {
            counted,
            workers: by_worker,
            listeners,
            times,
            lanes: lanes::lanes(),
            log_lines_lost: self.writer.lost_lines(),
            log_losses: self.writer.lost_by_log(),
            groups: self.directory.groups().report(),
            stores: self.stores.get().map(|desk| desk.figures(None)).unwrap_or_default(),
            limit_store: self.rates.get().and_then(|rates| rates.shared_store()).map(Into::into),
            providers: self.logins.get().map(|logins| logins.providers()).unwrap_or_default(),
            used: Usage::without_descriptors().into(),
            process_restarts: 0,
            series: SeriesFigures::default(),
        }
    }

    /// As much of them as is wanted.
    fn figures_to(&self, extent: Extent) -> Figures {
        let mut figures = self.figures();
        if extent >= Extent::Whole {
            figures.used = Usage::now().into();
        }
        if extent >= Extent::Series
            && let Ok(workers) = self.workers.read()
        {
            figures.series = SeriesFigures::of(&self.series, workers.iter().map(|(_, stats)| &stats.series));
            if extent < Extent::Whole {
                figures.series.without_exemplars();
            }
        }
        figures
    }

    fn carry_out(&self, order: &CacheOrder) -> CacheReply {
        self.stores.get().map_or_else(|| order.nothing(), |desk| order.carry_out(&**desk))
    }

    fn ask(&self, question: &str) -> Vec<String> {
        let told = self.hear(question).into_iter();
        told.map(|answer| answer.unwrap_or_else(|| "this worker does not answer".into())).collect()
    }

    /// What each worker says; `None` where it says nothing in time.
    fn hear(&self, question: &str) -> Vec<Option<String>> {
        let askers: Vec<Asker> = match self.workers.read() {
            Ok(workers) => workers.iter().map(|(asker, _)| asker.clone()).collect(),
            Err(_) => Vec::new(),
        };
        let deadline = Instant::now() + ANSWER_PATIENCE;
        let answers: Vec<_> = askers.iter().map(|asker| asker.ask(question)).collect();
        let told = |answer: Receiver<String>| {
            let left = deadline.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).ok()
        };
        answers.into_iter().map(told).collect()
    }
}

fn answer(link: &Arc<Link>, members: &Arc<Members>, number: u64, question: Question) {
    match question {
        Question::Figures(extent) => {
            let figures = Answer::Figures(Box::new(members.figures_to(extent)));
            link.send(&ToMaster::Answer(number, figures), Vec::new());
            return;
        }
        Question::Report(_) | Question::Admin => return, // of the master alone
        Question::Workers(_) | Question::Wellness | Question::Stores(_) => {}
    }
    // Workers answer between two turns, and stores may ask a disk: another thread waits for them.
    let (link, members) = (link.clone(), members.clone());
    let asking = std::thread::Builder::new().name("tidegate-ask".into());
    let _ = asking.spawn(move || {
        let said = match question {
            Question::Workers(question) => Answer::Workers(members.ask(&question)),
            Question::Stores(order) => Answer::Stores(members.carry_out(&order)),
            // The others have been answered.
            _ => {
                let silent = members.hear("").iter().filter(|said| said.is_none()).count();
                Answer::Wellness(members.limits.examine(silent))
            }
        };
        link.send(&ToMaster::Answer(number, said), Vec::new());
    });
}
