//! Limits that several servers share: the thread that tells a Redis or Valkey what this process has let in, and hears from
//! it what the others have.
//!
//! Of a key the store keeps when it will have caught up, by its own clock, and forgets it once it has. What is to be told
//! is added to that; the answer is how long the key needs from now. What came while an answer was waited for goes with the
//! next question, all in one. Whoever does not answer within a second is away: what was let in until then stays untold,
//! and `tidegate_core::rate::nodes` has each server keep to its part. Bans go with the questions: see [`ban_log`].

mod ban_log;
mod connection;

use ban_log::BanLog;
use connection::Connection;
use redis::from_redis_value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use tidegate_config::settings::LimitStore;
use tidegate_core::log::{self, Trouble};
use tidegate_core::rate::{News, NodeState, Report, TakeReports};
use tidegate_io::clock;

/// How long the store may take for an answer, and how soon one that was away is tried again.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a server says that it is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// Reports of one question.
const MOST: usize = 4096;

/// Adds to when a key will have caught up, microseconds; answers how long that is from now.
const ADD: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.3f', due), 'PX', string.format('%.0f', (due - now) / 1000 + 1000))
return string.format('%.3f', due - now)";

/// A server is there, and is called by its former name no more; answers how many there are, of those that have said so within
/// ten seconds.
const COUNT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 10000000)
redis.call('PEXPIRE', KEYS[1], 60000)
return redis.call('ZCARD', KEYS[1])";

/// What has the reports of a process taken, for its store of tables.
pub fn taker() -> TakeReports {
    TakeReports(Box::new(|settings, reports, state| {
        let bans = BanLog::new(&settings);
        let (connection, tried, told_alive, told_as, said) = (None, None, None, None, None);
        let trouble = Trouble::default();
        let teller =
            Teller { settings, reports, state, bans, connection, tried, told_alive, told_as, said, trouble };
        let thread = std::thread::Builder::new().name("tidegate-nodes".into());
        if let Err(error) = thread.spawn(move || teller.run()) {
            // The limits hold for this server, as while the store is away.
            log::error(format_args!("limits are not shared with other servers: no thread: {error}"));
        }
    }))
}

struct Teller {
    settings: LimitStore,
    reports: Receiver<News>,
    state: Arc<NodeState>,
    bans: BanLog,
    connection: Option<Connected>,
    /// When the store was tried last that was away.
    tried: Option<Instant>,
    told_alive: Option<Instant>,
    /// What this server was called when it said so last: a reload that changes its tables gives it another name.
    told_as: Option<u64>,
    /// How many servers there are, as the error log has heard last; `None` while the store is away.
    said: Option<u32>,
    trouble: Trouble,
}

/// A connection, and what its scripts are called there.
struct Connected {
    connection: Connection,
    add: String,
    count: String,
    /// It has answered all that is asked: a store may take a connection and have no memory for anything (`OOM`).
    has_answered: bool,
}

/// What is to be told of one key: of which limit, and which.
type Told = HashMap<(Arc<str>, Vec<u8>), Vec<Report>>;

impl Teller {
    /// Until no engine has the limits any more.
    fn run(mut self) {
        loop {
            let mut told = Told::new();
            match self.reports.recv_timeout(self.until_sign_of_life()) {
                Ok(news) => {
                    self.add(&mut told, news);
                    for _ in 1..MOST {
                        match self.reports.try_recv() {
                            Ok(news) => self.add(&mut told, news),
                            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if let Err(error) = self.tell(told) {
                self.connection = None;
                self.bans.begin_anew();
                self.tried = Some(Instant::now());
                self.state.failed(error.to_string());
                (self.told_alive, self.said) = (None, None);
                if self.trouble.is_news(&error.to_string()) {
                    let address = self.settings.address;
                    log::warn(format_args!(
                        "the store of limits at {address} fails: {error}; this server keeps to its part, servers: {}",
                        self.state.nodes()
                    ));
                }
            }
        }
    }

    fn until_sign_of_life(&self) -> Duration {
        if self.state.identity().is_none() {
            return PATIENCE; // nobody to be told of
        }
        let left = |since: Option<Instant>, time: Duration| {
            since.map_or(Duration::ZERO, |since| time.saturating_sub(since.elapsed()))
        };
        match self.connection {
            Some(_) => left(self.told_alive, SIGN_OF_LIFE),
            None => left(self.tried, PATIENCE),
        }
    }

    fn tell(&mut self, told: Told) -> redis::RedisResult<()> {
        let Some(identity) = self.state.identity() else {
            self.rest();
            return Ok(());
        };
        if self.connection.is_none() && self.tried.is_some_and(|tried| tried.elapsed() < PATIENCE) {
            return Ok(()); // what was let in meanwhile is not told
        }
        let connected = match &mut self.connection {
            Some(connected) => connected,
            none => none.insert(Connected::new(&self.settings)?),
        };
        let mut question = redis::pipe();
        let prefix = &self.settings.prefix;
        for ((limit, key), reports) in &told {
            let cost: f64 = reports.iter().map(Report::cost).sum();
            let name = [prefix.as_bytes(), b":", limit.as_bytes(), b":", key].concat();
            question.cmd("EVALSHA").arg(&connected.add).arg(1).arg(name).arg(format!("{cost:.3}"));
        }
        if !connected.has_answered {
            question.cmd("EVALSHA").arg(&connected.add).arg(1).arg(format!("{prefix}:alive")).arg("0");
        }
        let is_due = self.told_alive.is_none_or(|told| told.elapsed() >= SIGN_OF_LIFE);
        if is_due {
            let name = format!("{prefix}:nodes");
            let former = self.told_as.filter(|former| *former != identity);
            let former = former.map_or_else(String::new, |former| format!("{former:016x}"));
            let count = question.cmd("EVALSHA").arg(&connected.count).arg(1).arg(name);
            count.arg(format!("{identity:016x}")).arg(former);
        }
        if question.is_empty() {
            return self.bans.exchange(&mut connected.connection, &self.state, false);
        }
        let answers = connected.connection.ask(&question)?;
        let mut answers = answers.into_iter().map(from_redis_value).collect::<Result<Vec<String>, _>>()?;
        let nodes = is_due.then(|| answers.pop().and_then(|nodes| nodes.parse().ok()).unwrap_or(1));
        let now = clock::monotonic_ns();
        for (reports, debt) in told.into_values().zip(answers) {
            let debt = debt.parse::<f64>().unwrap_or(0.0).clamp(0.0, 1e15);
            Report::settle(reports, Duration::from_nanos((debt * 1e3) as u64), now);
        }
        self.bans.exchange(&mut connected.connection, &self.state, is_due)?;
        connected.has_answered = true;
        if let Some(nodes) = nodes {
            (self.told_alive, self.told_as) = (Some(Instant::now()), Some(identity));
            self.trouble.is_over();
            if self.said.replace(nodes) != Some(nodes) {
                let address = self.settings.address;
                log::info(format_args!("limits are shared at {address}, servers: {nodes}"));
            }
            self.state.present(nodes);
        }
        Ok(())
    }

    /// Nothing is shared by the settings in force. A reload may change that: then it is as at the start.
    fn rest(&mut self) {
        if self.connection.take().is_some() {
            self.bans.begin_anew();
            self.state.away();
            (self.told_alive, self.said) = (None, None);
        }
    }

    fn add(&mut self, told: &mut Told, news: News) {
        match news {
            News::LetIn(report) => {
                told.entry((report.limit.clone(), report.key.to_vec())).or_default().push(report);
            }
            News::Ban(event) => self.bans.tell(event),
        }
    }
}

impl Connected {
    fn new(settings: &LimitStore) -> redis::RedisResult<Connected> {
        let mut connection = Connection::open(settings, PATIENCE)?;
        let mut load = |script: &str| redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut connection);
        let (add, count) = (load(ADD)?, load(COUNT)?);
        Ok(Connected { connection, add, count, has_answered: false })
    }
}
