//! What the master and a server process say to each other, and the link they say it over.
//!
//! A message is a frame of `tidegate_io::passing`: JSON, and the descriptors that go with it. Each end has a
//! thread that writes, so that a process that was stopped holds up nobody, and one that reads. A question
//! carries a number; the answer with that number goes to whoever asked.
//!
//! What a server must be told, or has to tell, is a variant here: the state of application pools, say, is one
//! more of [`ToServer`], and their demand one more of [`ToMaster`].

use crate::descriptors;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_config::Settings;
use tidegate_config::credentials::Credential;
use tidegate_config::settings::{Level, ListenAddress, LogTarget, once};
use tidegate_core::access_data::DataPlace;
use tidegate_core::rate::TablePlace;
use tidegate_core::tls::TlsUpdate;
use tidegate_io::descriptors::{Lease, Reserve};
use tidegate_io::passing::{self, Frame};
use tidegate_modules::cache_desk::{CacheOrder, CacheReply, StoreFigures};
use tidegate_modules::gateway::balance::groups::Finding;
use tidegate_modules::gateway::balance::report::GroupReport;
use tidegate_modules::gateway::pool_directory::{PoolAddress, PoolDemand, PoolUpdate};
use tidegate_modules::status::{LaneReport, Report, Used, WorkerFigures};
use tidegate_modules::status::{LimitStoreReport, ProviderReport};
use tidegate_stats::series::SeriesFigures;
use tidegate_stats::{ListenerFigures, Snapshot, TimesFigures};

/// Messages that wait to be written. With more the other end has not read for long.
const QUEUE: usize = 256;
/// Questions without an answer yet.
const QUESTIONS: usize = 256;

/// The first message to a server process, before it has any thread. Its descriptor: memory of `tidegate_cache::PurgeRing`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// Whom to become; `None`: stay.
    pub identity: Option<Identity>,
    /// What may be read; `None`: whatever the user may.
    pub readable: Option<Vec<PathBuf>>,
    /// What is kept from applications of the same user, where links lead anywhere: from this process, too.
    pub sealed: Vec<PathBuf>,
    /// It takes the place of one that has ended: a file system that does not answer is to cost what lies there, and not all.
    pub is_recovery: bool,
    /// A folder for files without a name (`spill`).
    pub spill: Option<PathBuf>,
    /// Folders of `cache`: what lies there may be written, and nothing else.
    pub caches: Vec<PathBuf>,
    /// What tells this server from all others, where requests may come back to it.
    pub server: u64,
}

/// Device and inode; `None`: nothing is there, or it cannot be told.
pub type Inode = Option<(u64, u64)>;

/// What a server process has found when it began: a folder that is replaced later is another one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// At the paths of [`Begin::readable`].
    pub readable: Vec<Inode>,
    /// At the paths of [`Begin::caches`].
    pub caches: Vec<Inode>,
    /// Beside the ways to what is sealed.
    pub beside: Vec<(PathBuf, Inode)>,
}

/// A user and its groups, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// From the master to a server process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// Get ready for settings. Descriptors: of `logs`, of `memories`, then of `listeners`, worker by worker.
    Prepare {
        /// Comes back with the answer.
        number: u64,
        /// The settings, fitted to the process.
        #[serde(with = "once")]
        settings: Arc<Settings>,
        /// One process takes the place of one that has ended: what has gone wrong with the file system since
        /// the settings were taken up costs the routes it is needed for, not the whole server.
        is_recovery: bool,
        /// The logs that are files.
        logs: Vec<LogTarget>,
        /// The tables of limits.
        tables: Vec<TablePlace>,
        /// How many memories they lie in.
        memories: usize,
        /// What each worker listens on. `None`: what it does now, since the process drains next.
        listeners: Option<Vec<Vec<ListenAddress>>>,
        /// What no root leads to.
        #[serde(with = "tidegate_config::path_encoding::paths")]
        off_limits: Vec<PathBuf>,
    },
    /// What TLS needs and settings do not hold. Before `Prepare`: all of it; later: what has changed.
    Tls(TlsUpdate),
    /// What logins compare with has changed on the disk. Concerns settings in force and those that are prepared.
    Credentials(Vec<Credential>),
    /// What access asks of files; a descriptor for each memory that they lie in. Before `Prepare`: all of it; later: what has
    /// changed.
    Access(Vec<DataPlace>),
    /// Say [`ToMaster::Marked`] with this number: what came before is obeyed by then.
    Mark(u64),
    /// Take up what was prepared.
    Commit,
    /// Forget what was prepared.
    Discard,
    /// Logs, opened anew; a descriptor for each.
    Logs(Vec<LogTarget>),
    /// What the error log takes in place of what the settings say; `None`: what they say.
    LogLevel(Option<Level>),
    /// Accept no more, finish what is open, end.
    Drain {
        /// Whether connections between requests are closed at once.
        close_idle: bool,
    },
    /// End now.
    Stop,
    /// How a pool is.
    Pool(PoolUpdate),
    /// Requests of another process wait behind idle connections to these: let go of what is idle.
    LetGo(Vec<PoolAddress>),
    /// What was found out about members of upstream groups.
    Upstreams(Vec<Finding>),
    /// Somebody is banned no longer, which servers are told that share bans.
    Lifted {
        /// Who.
        client: String,
        /// Since when, nanoseconds of the monotonic clock.
        at: u64,
    },
    /// Answer.
    Question(u64, Question),
    /// The answer to a question of the server.
    Answer(u64, Answer),
    /// Never sent: this process may not hold the descriptors that came with it, so many.
    #[serde(skip)]
    Lacking(Box<ToServer>, usize),
    /// Never sent: what came cannot be read.
    #[serde(skip)]
    Unreadable {
        /// The number of a `Prepare`, if that is what it is.
        prepare: Option<u64>,
        /// Why.
        why: String,
    },
}

/// What comes over a link.
pub trait Message: DeserializeOwned + Sized {
    /// The longest frame that is taken, bytes.
    const FRAME_MAX: usize = passing::FRAME_MAX;
    /// The most descriptors of a frame.
    const DESCRIPTORS_MAX: usize = passing::DESCRIPTORS_MAX;

    /// What stands for a frame that cannot be read; `None`: the other end cannot be talked to.
    fn unreadable(frame: &[u8], why: String) -> Option<Self>;

    /// What stands for a message whose descriptors, so many, this process may not hold; `None`: it cannot go on without them.
    fn lacking(self, _descriptors: usize) -> Option<Self> {
        None
    }
}

impl Message for ToServer {
    /// Clients are served meanwhile: the master is told, and what is in force stays.
    fn unreadable(frame: &[u8], why: String) -> Option<ToServer> {
        #[derive(Deserialize)]
        enum Head {
            Prepare { number: u64 },
        }
        let prepare = serde_json::from_slice(frame).ok().map(|Head::Prepare { number }| number);
        Some(ToServer::Unreadable { prepare, why })
    }

    fn lacking(self, descriptors: usize) -> Option<ToServer> {
        Some(ToServer::Lacking(Box::new(self), descriptors))
    }
}

impl Message for ToMaster {
    fn unreadable(_: &[u8], _: String) -> Option<ToMaster> {
        None
    }
}

/// From a server process to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// What it may read. Before everything else.
    Found(Found),
    /// It is ready for these settings.
    Prepared(u64),
    /// These settings cannot be taken up.
    Failed(u64, String),
    /// What was prepared is in force.
    Committed,
    /// The logs that were sent are in use.
    LogsInUse,
    /// It goes on with the logs of before, for this reason.
    LogsRefused(String),
    /// It goes by lists of before, for this reason, and waits for what access asks of files.
    AccessRefused {
        why: String,
        /// The ones before were as well.
        is_again: bool,
    },
    /// It goes by all that it was told before this [`ToServer::Mark`].
    Marked(u64),
    /// It was told to drain, and accepts no more.
    AcceptsNoMore,
    /// It has to end: start another in its place, then tell it to drain.
    Leaving,
    /// What its workers want of pools.
    Pools(Vec<PoolDemand>),
    /// Its requests may be waiting behind idle connections that other processes keep to these.
    Starving(Vec<PoolAddress>),
    /// What its requests have found out about a member of an upstream group.
    Upstream(Finding),
    /// Its last words.
    Ended {
        /// What it has counted.
        figures: Box<Figures>,
        /// Connections that were cut.
        cut: u64,
        /// Lines that it could not write, by log.
        unwritten: BTreeMap<String, u64>,
    },
    /// Answer.
    Question(u64, Question),
    /// The answer to a question of the master.
    Answer(u64, Answer),
}

/// What either end may ask the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Of a server: what its workers have counted.
    Figures(Extent),
    /// Of the master: a report on all of it.
    Report(Report),
    /// Of a server: what each worker says to this. Of the master: what all workers say.
    Workers(String),
    /// Of a server: whether it is well.
    Wellness,
    /// Of the master: a connection to the admin API.
    Admin,
    /// Of a server: what its stores of responses say to this.
    Stores(CacheOrder),
}

/// How much of the figures is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Extent {
    /// Those of the whole process.
    Totals,
    /// Those of each site and route as well, which are most of them.
    Series,
    /// How many descriptors are open as well, which takes the longer the more there are.
    Whole,
}

/// How a server process is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wellness {
    /// A limit of the system that is lower than when it began.
    pub lowered: Option<String>,
    /// Workers that do not answer.
    pub silent: usize,
}

/// What a server process has counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// By its workers.
    pub counted: Snapshot,
    /// By its log writer.
    pub log_lines_lost: u64,
    /// The same of each log that has lost some.
    #[serde(default)]
    pub log_losses: BTreeMap<String, u64>,
    /// By each worker that there is.
    #[serde(default)]
    pub workers: Vec<WorkerFigures>,
    /// By its listeners.
    #[serde(default)]
    pub listeners: Vec<ListenerFigures>,
    /// By what keeps requests waiting.
    #[serde(default)]
    pub times: Vec<TimesFigures>,
    /// By its threads for what would hold up a worker.
    #[serde(default)]
    pub lanes: Vec<LaneReport>,
    /// By its upstream groups.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// By its stores of responses.
    #[serde(default)]
    pub stores: Vec<StoreFigures>,
    /// By its logins.
    #[serde(default)]
    pub providers: Vec<ProviderReport>,
    /// Of the store of limits that it asks.
    #[serde(default)]
    pub limit_store: Option<LimitStoreReport>,
    /// Of the machine.
    #[serde(default)]
    pub used: Used,
    /// Server processes that were replaced because they had ended by mistake: the master's own count.
    #[serde(default)]
    pub process_restarts: u64,
    /// By sites and routes, where that was asked for.
    #[serde(default)]
    pub series: SeriesFigures,
}

/// A report. It comes within the message: no descriptor is needed, of which there may be none left when somebody wants to see why.
#[derive(Debug, Serialize, Deserialize)]
pub enum ReportBytes {
    /// Most forms.
    Text(String),
    /// A form that is no text.
    Octets(Vec<u8>),
}

impl ReportBytes {
    /// As they travel.
    pub fn of(bytes: Vec<u8>) -> ReportBytes {
        String::from_utf8(bytes)
            .map_or_else(|error| ReportBytes::Octets(error.into_bytes()), ReportBytes::Text)
    }

    /// As they are sent.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            ReportBytes::Text(text) => text.into_bytes(),
            ReportBytes::Octets(octets) => octets,
        }
    }
}

/// To a [`Question`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Of one server process.
    Figures(Box<Figures>),
    /// On all of them.
    Report(ReportBytes),
    /// One for each worker.
    Workers(Vec<String>),
    /// Of one server process.
    Wellness(Wellness),
    /// Of the stores of one server process.
    Stores(CacheReply),
    /// A connection to the admin API, where there is one.
    Admin {
        /// It travels beside the message.
        #[serde(skip)]
        connection: Option<OwnedFd>,
    },
}

impl Answer {
    /// With the descriptors that have come with it.
    pub fn with(self, mut descriptors: Vec<OwnedFd>) -> Answer {
        match self {
            Answer::Admin { .. } => Answer::Admin { connection: descriptors.pop() },
            other => other,
        }
    }
}

/// What service managers tell the master in its environment, which is not for the processes that it starts.
pub const OF_THE_MASTER: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

type Then = Box<dyn FnOnce(Answer) + Send>;

/// What waits to be written.
struct Letter {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// The other end may not miss it: it has a reserve for the descriptors.
    is_order: bool,
}

/// The writing end, and the questions that wait.
pub struct Link {
    queue: SyncSender<Letter>,
    socket: Arc<OwnedFd>,
    /// It has missed an order, and ends.
    is_deaf: AtomicBool,
    asked: Mutex<Option<HashMap<u64, Then>>>,
    next: AtomicU64,
}

impl Link {
    /// Starts the thread that writes to `socket`, and hands `reader` every message that comes, on a thread of
    /// its own; then `ended`, once nothing more can come.
    pub fn start<M: Message>(
        socket: OwnedFd,
        mut reader: impl FnMut(&Arc<Link>, M, Vec<OwnedFd>) + Send + 'static,
        ended: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<Arc<Link>> {
        let reader = move |link: &Arc<Link>, message, descriptors, _| reader(link, message, descriptors);
        Link::start_with(socket, None, reader, ended)
    }

    /// The same, with a reserve for the descriptors of orders: it is left to a message for as long as its lease is held.
    pub fn start_with<M: Message>(
        socket: OwnedFd,
        reserve: Option<Arc<Reserve>>,
        mut reader: impl FnMut(&Arc<Link>, M, Vec<OwnedFd>, Option<Lease>) + Send + 'static,
        ended: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<Arc<Link>> {
        let (queue, messages) = sync_channel::<Letter>(QUEUE);
        let socket = Arc::new(socket);
        let link = Arc::new(Link {
            queue,
            socket: socket.clone(),
            is_deaf: AtomicBool::new(false),
            asked: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(0),
        });
        let writes = socket.clone();
        std::thread::Builder::new().name("tidegate-tell".into()).spawn(move || {
            for Letter { bytes, descriptors, is_order } in messages {
                let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                let send = if is_order { passing::send } else { passing::send_if_there_is_room };
                if send(writes.as_fd(), &bytes, &borrowed).is_err() {
                    return; // the reader hears of it as well
                }
                close_apart(descriptors);
            }
        })?;
        let own = link.clone();
        std::thread::Builder::new().name("tidegate-link".into()).spawn(move || {
            let outcome = loop {
                let bounds = (M::FRAME_MAX, M::DESCRIPTORS_MAX);
                match passing::receive_with(socket.as_fd(), bounds, reserve.as_ref()) {
                    Ok(Some(Frame { bytes, descriptors, lost, lease })) => {
                        let message: Result<M, _> = serde_json::from_slice(&bytes)
                            .or_else(|error| M::unreadable(&bytes, error.to_string()).ok_or(error));
                        let message = message.map(|message| match lost {
                            Some(count) => message.lacking(count),
                            None => Some(message),
                        });
                        match message {
                            Ok(Some(message)) => reader(&own, message, descriptors, lease),
                            Ok(None) => {
                                break Err(io::Error::other(format!(
                                    "it could not be heard: {}",
                                    descriptors::none_left("process", "take its message", None)
                                )));
                            }
                            Err(error) => {
                                break Err(io::Error::other(format!("it could not be understood: {error}")));
                            }
                        }
                    }
                    _ if own.is_deaf.load(Relaxed) => break Err(io::Error::other("it took no orders")),
                    Ok(None) => break Ok(()),
                    // It went with something of ours unread, or in the middle of a message: it was killed.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) =>
                    {
                        break Ok(());
                    }
                    Err(error) => break Err(io::Error::other(format!("it could not be heard: {error}"))),
                }
            };
            // Whoever waits for an answer hears that there is none.
            drop(own.asked.lock().unwrap_or_else(PoisonError::into_inner).take());
            let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
            ended(outcome);
        })?;
        Ok(link)
    }

    /// A message as it travels.
    ///
    /// # Errors
    /// It is too long: settings of more than anybody has written by hand.
    pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > passing::FRAME_MAX {
            let (size, most) = (bytes.len() >> 20, passing::FRAME_MAX >> 20);
            return Err(io::Error::other(format!(
                "the settings come to {size} MB, and {most} MB can be taken up"
            )));
        }
        Ok(bytes)
    }

    /// Sends a message; where the other end has no room for the descriptors it gets none of them. `false`: it does not take any
    /// message.
    pub fn send(&self, message: &impl Serialize, descriptors: Vec<OwnedFd>) -> bool {
        let frame = Self::frame(message);
        frame.is_ok_and(|bytes| self.post(Letter { bytes, descriptors, is_order: false }))
    }

    fn post(&self, letter: Letter) -> bool {
        match self.queue.try_send(letter) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Sends what the other end may not miss. `false`: it does not take any, and the link has ended. Who has taken in
    /// nothing for so long that no more fits would go on with what it was told before.
    pub fn order(&self, order: &impl Serialize, descriptors: Vec<OwnedFd>) -> bool {
        Self::frame(order).is_ok_and(|bytes| self.order_frame(bytes, descriptors))
    }

    /// The same with a [`Link::frame`].
    pub fn order_frame(&self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> bool {
        let is_told = self.post(Letter { bytes, descriptors, is_order: true });
        if !is_told {
            self.is_deaf.store(true, Relaxed);
            let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        }
        is_told
    }

    /// Ends it: the other end hears so.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether anything can still come from the other end.
    pub fn is_open(&self) -> bool {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Asks. `then` is called with the answer, on the thread that reads; or dropped, when there will be none.
    pub fn ask<M: Serialize>(
        &self,
        wrap: impl FnOnce(u64, Question) -> M,
        question: Question,
        then: impl FnOnce(Answer) + Send + 'static,
    ) {
        let number = self.next.fetch_add(1, Relaxed);
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(asked) = asked.as_mut().filter(|asked| asked.len() < QUESTIONS) else { return };
            asked.insert(number, Box::new(then));
        }
        if !self.send(&wrap(number, question), Vec::new()) {
            self.forget(number);
        }
    }

    /// An answer has come.
    pub fn answered(&self, number: u64, answer: Answer) {
        if let Some(then) = self.forget(number) {
            then(answer);
        }
    }

    fn forget(&self, number: u64) -> Option<Then> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&number)
    }
}

/// Closes copies of logs and sockets where nobody waits for it: closing may have to ask a file system that hangs.
pub fn close_apart<T: Send + 'static>(what: Vec<T>) {
    if !what.is_empty() {
        // Where there is no thread they are closed here.
        let _ = std::thread::Builder::new().name("tidegate-close".into()).spawn(move || drop(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use tidegate_testkit::{WAIT, receive};

    /// Settings as they arrive, in no more than so many bytes.
    fn sent(text: &str, most: usize) -> Arc<Settings> {
        let loaded =
            tidegate_config::load_str("a", text, Path::new("/"), &tidegate_config::ProcessEnvironment);
        let settings = Arc::new(loaded.settings.expect("sound settings"));
        let prepare = ToServer::Prepare {
            number: 1,
            settings: settings.clone(),
            is_recovery: false,
            logs: Vec::new(),
            tables: Vec::new(),
            memories: 0,
            listeners: None,
            off_limits: Vec::new(),
        };
        let json = serde_json::to_vec(&prepare).unwrap();
        assert!(json.len() < most, "{} bytes", json.len());
        let ToServer::Prepare { settings: there, .. } = serde_json::from_slice(&json).unwrap() else {
            panic!("another message")
        };
        assert_eq!(there, settings);
        there
    }

    /// Every site and route inherits them.
    #[test]
    fn a_long_list_of_networks_travels_once() {
        let list: String =
            (0..3000u32).map(|n| format!(" \"{}\"", Ipv4Addr::from(0x0a00_0000 + n))).collect();
        let site =
            |n: u32| format!("site \"s{n}.test\" {{ respond 200; route \"/a\" {{ respond 201; }}; }}\n");
        let sites: String = (0..100).map(site).collect();
        let text = format!("listen \"127.0.0.1:0\"\ndeny{list}\ntrusted-proxies{list}\n{sites}");
        let there = sent(&text, 2 << 20);
        let (first, last) = (&there.sites[0], &there.sites[99]);
        assert!(first.routes[0].access.levels[0].is_same(&last.routes[1].access.levels[0]));
        assert!(first.trusted_proxies.is_same(&last.trusted_proxies));
    }

    /// A map of addresses that have moved, named in many routes of sites that have values of their own.
    #[test]
    fn a_big_value_travels_once() {
        let cases: String = (0..5000).map(|n| format!(" \"/old/{n}\" \"/new/{n}\";")).collect();
        let route =
            |n: u32| format!("route \"/{n}/*\" {{ respond 200; header \"X-A\" \"{{value.moved}}\" }};");
        let routes: String = (0..20).map(route).collect();
        let own = "value \"own\" from=\"{host}\" { \"*\" \"x\" }";
        let site = |n: u32| format!("site \"s{n}.test\" {{ {own}; {routes} respond 200 }}\n");
        let sites: String = (0..20).map(site).collect();
        let text = format!("listen \"127.0.0.1:0\"\nvalue \"moved\" from=\"{{path}}\" {{{cases} }}\n{sites}");
        let there = sent(&text, 2 << 20);
        let of = |site: usize, route: usize| there.sites[site].routes[route].values.get("moved").unwrap();
        assert!(of(0, 0).is_same(of(19, 19)));
        assert_eq!(of(3, 3).cases.find(b"/old/4999"), Some("/new/4999"));
    }

    /// As one that is nested too deep for its reader: which `Prepare` it is can be told all the same.
    #[test]
    fn a_frame_that_cannot_be_read_has_its_number() {
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (frame, expected) in [
            (format!(r#"{{"Prepare":{{"number":7,"settings":{nested}}}}}"#), Some(7)),
            (r#"{"Prepare":{"number":8}}"#.to_owned(), Some(8)),
            (format!(r#"{{"Tls":{nested}}}"#), None),
            ("{".to_owned(), None),
        ] {
            assert!(serde_json::from_str::<ToServer>(&frame).is_err(), "{frame}");
            let Some(ToServer::Unreadable { prepare, .. }) =
                ToServer::unreadable(frame.as_bytes(), String::new())
            else {
                panic!("{frame}")
            };
            assert_eq!(prepare, expected, "{frame}");
        }
    }

    #[test]
    fn questions_find_their_answers_and_end_with_the_link() {
        let (here, there) = passing::pair().unwrap();
        let (ended, has_ended) = channel();
        let master = Link::start(
            here,
            |link: &Arc<Link>, message: ToMaster, _| {
                if let ToMaster::Answer(number, answer) = message {
                    link.answered(number, answer);
                }
            },
            move |outcome| ended.send(outcome.is_ok()).unwrap(),
        )
        .unwrap();
        let (bytes, _) = {
            let (sender, answer) = channel();
            let asked = Question::Workers("x".into());
            master.ask(ToServer::Question, asked, move |answer| sender.send(answer).unwrap());
            let frame = passing::receive(there.as_fd()).unwrap().unwrap();
            let ToServer::Question(number, Question::Workers(text)) =
                serde_json::from_slice(&frame.0).unwrap()
            else {
                panic!("a question")
            };
            let said = serde_json::to_vec(&ToMaster::Answer(number, Answer::Workers(vec![text]))).unwrap();
            passing::send(there.as_fd(), &said, &[]).unwrap();
            assert!(matches!(receive(&answer, "an answer"), Answer::Workers(said) if said == ["x"]));
            frame
        };
        assert!(!bytes.is_empty());
        let (sender, answer) = channel::<Answer>();
        master.ask(ToServer::Question, Question::Figures(Extent::Totals), move |answer| {
            sender.send(answer).unwrap()
        });
        drop(there);
        let end = answer.recv_timeout(WAIT).map(drop);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "nobody will answer any more");
        assert!(receive(&has_ended, "the end of the link"));
    }

    #[test]
    fn who_misses_an_order_is_given_up() {
        let (here, _there) = passing::pair().unwrap();
        let (ended, has_ended) = channel();
        let link = Link::start(
            here,
            |_: &Arc<Link>, _: ToMaster, _| {},
            move |outcome: io::Result<()>| ended.send(outcome.map_err(|error| error.to_string())).unwrap(),
        )
        .unwrap();
        while link.send(&ToServer::Discard, Vec::new()) {}
        assert!(link.is_open(), "what may be missed is missed");
        // The thread that writes may have taken one more.
        while link.order(&ToServer::Discard, Vec::new()) {}
        assert_eq!(receive(&has_ended, "the end of the link"), Err("it took no orders".to_owned()));
    }
}
