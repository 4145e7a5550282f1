//! Bans that several servers share: a log of events in the store, which every server adds to and reads to its end once a
//! second.
//!
//! The log is a stream (XADD, XRANGE: Redis 5), and what it calls its entries is when they came, by the store's own clock. Of
//! each client the last event of a look holds, so whoever begins at its beginning has what is in force. What cannot be told
//! while the store is away is told when it is back, up to a number; meanwhile it holds for this server. What is told late
//! counts from when it happened: a ban ends when it would have, and what has happened to the client since is not undone,
//! for which the store keeps beside the log when the last event of each client was. A connection that was lost is followed
//! by a look from the beginning: the store may be another one since, and what is known already changes nothing. A store
//! that refuses what this takes (no streams, no right to them) is one for limits all the same.

use super::connection::Connection;
use redis::{ErrorKind, RedisError, RedisResult};
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::duration_text;
use tidegate_config::settings::LimitStore;
use tidegate_core::log;
use tidegate_core::rate::{BanEvent, Client, NodeState};
use tidegate_io::clock;

/// Events that wait to be told; beyond it the oldest is not.
const WAITING: usize = 4096;
/// Events of one question, and of a whole look.
const PAGE: usize = 1000;
const LOOK: usize = 200_000;
/// The longest that anybody else is believed to ban a client for.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Adds events to the log, each as ban, client, milliseconds that it lasts (0: lifted), and when it happened, in microseconds
/// of the store's clock. One that is over is left out, and so is one that came before the last of its client, unless the
/// clock was set back since. Both keys are kept as long as the longest ban, and an hour.
const ADD: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local keep = math.max(redis.call('PTTL', KEYS[1]), 3600000)
for i = 1, #ARGV, 4 do
  local who, lasts, at = ARGV[i] .. ' ' .. ARGV[i + 1], tonumber(ARGV[i + 2]), math.min(tonumber(ARGV[i + 3]), now)
  local left = math.floor(lasts - (now - at) / 1000)
  local last = tonumber(redis.call('ZSCORE', KEYS[2], who) or '0')
  if (lasts == 0 or left > 0) and (last <= at or last > now) then
    left = math.max(left, 0)
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', 100000, '*', 'ban', ARGV[i], 'client', ARGV[i + 1], 'ms', string.format('%.0f', left))
    redis.call('ZADD', KEYS[2], string.format('%.0f', at), who)
    keep = math.max(keep, left + 3600000)
  end
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -100001)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, string.format('%.0f', keep)) end
return ''";

/// How often the store is asked for its time at most, and after how short a way no more, nanoseconds.
const ASKED: usize = 5;
const SHORT: u64 = 1_000_000;

/// The monotonic clock here, nanoseconds, and that of the store, microseconds, at one moment: the middle of the shortest way that a
/// question has taken. What happened here and elsewhere is put into order by it.
fn clocks(connection: &mut Connection) -> RedisResult<(u64, u64)> {
    let mut shortest: Option<(u64, (u64, u64))> = None;
    for _ in 0..ASKED {
        let asked = clock::monotonic_ns();
        let time = micros(redis::cmd("TIME").query(connection)?);
        let took = clock::monotonic_ns().saturating_sub(asked);
        if shortest.is_none_or(|(known, _)| took < known) {
            shortest = Some((took, (asked + took / 2, time)));
        }
        if took < SHORT {
            break;
        }
    }
    Ok(shortest.map(|(_, clocks)| clocks).unwrap_or_default())
}

/// The events of this server, and how far it has read those of all.
pub(super) struct BanLog {
    address: SocketAddr,
    key: String,
    waiting: VecDeque<BanEvent>,
    /// The first that has not been read.
    next: String,
    /// The store has said last that it does none of this.
    is_refused: bool,
}

type Entry = (String, Vec<String>);
/// What happened last to each client of each ban: when it came, by milliseconds of the store's clock, and for how long.
type Last = HashMap<(String, Client), (u64, Option<Duration>)>;

impl BanLog {
    /// That of the servers with this store.
    pub(super) fn new(store: &LimitStore) -> BanLog {
        let (address, key) = (store.address, format!("{}:bans", store.prefix));
        BanLog { address, key, waiting: VecDeque::new(), next: "-".to_owned(), is_refused: false }
    }

    /// Something has happened here.
    pub(super) fn tell(&mut self, event: BanEvent) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(event);
    }

    /// The next look begins at the beginning.
    pub(super) fn begin_anew(&mut self) {
        "-".clone_into(&mut self.next);
    }

    /// Tells what has happened here, and, where it `is_due`, does what has happened elsewhere.
    ///
    /// # Errors
    /// The connection is no good any more. What the store refuses is said, once, and tried again when it is due.
    pub(super) fn exchange(
        &mut self,
        connection: &mut Connection,
        state: &NodeState,
        is_due: bool,
    ) -> RedisResult<()> {
        if self.is_refused && !is_due {
            return Ok(());
        }
        let told = self.tell_all(connection);
        let outcome = match told {
            Ok(()) if is_due && state.has_bans() => self.hear(connection, state),
            told => told,
        };
        let address = self.address;
        match outcome {
            Ok(()) => {
                if state.has_bans() && mem::take(&mut self.is_refused) {
                    log::info(format_args!(
                        "the store of limits at {address} takes bans now: they are shared"
                    ));
                }
                Ok(())
            }
            Err(error) => {
                self.begin_anew(); // what was read may not have been done
                if !is_refusal(&error) {
                    return Err(error);
                }
                if !mem::replace(&mut self.is_refused, true) {
                    log::warn(format_args!(
                        "the store of limits at {address} refuses what shared bans take: {error}; bans are this server's own until it \
                         takes them (streams of Redis 5 or later, and the right to use them)"
                    ));
                }
                Ok(())
            }
        }
    }

    fn tell_all(&mut self, connection: &mut Connection) -> RedisResult<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // When each event was is fixed before it is told: the store may take its time to hear of it.
        let (now, time) = clocks(connection)?;
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(PAGE);
            let mut question = redis::cmd("EVAL");
            question.arg(ADD).arg(2).arg(&self.key).arg(format!("{}-last", self.key));
            for BanEvent { ban, client, lasts, at } in self.waiting.iter().take(count) {
                let lasts = lasts.map_or(0, |lasts| lasts.as_millis().max(1));
                let at = time.saturating_sub(now.saturating_sub(*at) / 1000);
                question.arg(&**ban).arg(client.to_string()).arg(lasts.to_string()).arg(at.to_string());
            }
            let _: String = question.query(connection)?;
            self.waiting.drain(..count);
        }
        Ok(())
    }

    fn hear(&mut self, connection: &mut Connection, state: &NodeState) -> RedisResult<()> {
        if state.take_new_bans() {
            self.begin_anew();
        }
        let mut last = Last::new();
        let mut time = 0;
        for _ in 0..LOOK / PAGE {
            let mut question = redis::pipe();
            question.cmd("TIME").cmd("XRANGE").arg(&self.key).arg(&self.next).arg("+").arg("COUNT").arg(PAGE);
            let (now, entries): ((u64, u64), Vec<Entry>) = question.query(connection)?;
            time = micros(now) / 1000;
            for (id, fields) in &entries {
                if let Some(next) = after(id) {
                    self.next = next;
                }
                if let Some((at, ban, client, lasts)) =
                    read(id, fields).filter(|(_, ban, ..)| state.shares_ban(ban))
                {
                    last.insert((ban, client), (at, lasts));
                }
            }
            if entries.len() < PAGE {
                break;
            }
        }
        apply(last, time, state);
        Ok(())
    }
}

/// Does what has happened elsewhere. `time`: milliseconds of the store's clock.
fn apply(last: Last, time: u64, state: &NodeState) {
    let now = clock::monotonic_ns();
    for ((ban, client), (at, lasts)) in last {
        let passed = Duration::from_millis(time.saturating_sub(at));
        let left = lasts.map(|lasts| lasts.min(LONGEST).saturating_sub(passed));
        if left == Some(Duration::ZERO) {
            continue; // its time is over
        }
        let event = BanEvent { ban: Arc::from(ban), client, lasts: left, at: now };
        if !state.apply(&event, now) {
            continue;
        }
        let name = &event.ban;
        match left {
            Some(left) => {
                let left = duration_text(Duration::from_secs(left.as_secs()));
                log::warn(format_args!("{client} is banned for {left} by `{name}` of another server"));
            }
            None => log::info(format_args!("{client} is banned no longer by `{name}`: lifted elsewhere")),
        }
    }
}

/// Whether the store has answered, and said no.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::UnexpectedReturnType)
}

/// What TIME answers, in microseconds.
fn micros((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// The least name of an entry behind this one: `MILLISECONDS-NUMBER`.
fn after(id: &str) -> Option<String> {
    let (time, number) = id.split_once('-')?;
    let number: u64 = number.parse().ok()?;
    match number.checked_add(1) {
        Some(next) => Some(format!("{time}-{next}")),
        None => Some(format!("{}-0", time.parse::<u64>().ok()?.checked_add(1)?)),
    }
}

/// What an entry says: when it came, of which ban, who, and for how long. `None`: it is none of ours.
fn read(id: &str, fields: &[String]) -> Option<(u64, String, Client, Option<Duration>)> {
    let at = id.split_once('-')?.0.parse().ok()?;
    let field = |name: &str| {
        let pairs = fields.chunks_exact(2);
        pairs.into_iter().find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
    };
    let (ban, client, lasts) = (field("ban")?, field("client")?.parse().ok()?, field("ms")?.parse().ok()?);
    let lasts = Some(Duration::from_millis(lasts)).filter(|lasts| !lasts.is_zero());
    Some((at, ban.to_owned(), client, lasts))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Child, Command, Stdio};
    use tidegate_testkit::wait_for;

    const REDIS: &str = "/usr/bin/redis-server";
    const SECOND: u64 = 1_000_000_000;

    pub fn store() -> LimitStore {
        LimitStore {
            address: (Ipv4Addr::LOCALHOST, 1).into(),
            database: 0,
            user: None,
            password: None,
            password_file: None,
            prefix: "p".into(),
            nodes: 1,
            origin: Default::default(),
        }
    }

    pub struct Redis(Child);

    impl Drop for Redis {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A real store, and a connection to it; `None` where none is installed.
    pub fn redis() -> Option<(Redis, Connection)> {
        if !std::path::Path::new(REDIS).exists() {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is missing; `cargo xtask tools` installs it"
            );
            eprintln!("SKIPPED: redis-server is not installed (`cargo xtask tools` installs it)");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(REDIS);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let child = Redis(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        let store = LimitStore { address: (Ipv4Addr::LOCALHOST, port).into(), ..store() };
        let patience = Duration::from_secs(60);
        let connection = wait_for(|| Connection::open(&store, patience).ok(), "redis-server to answer");
        Some((child, connection))
    }

    #[test]
    fn what_is_told_late_counts_from_when_it_happened() {
        let Some((_redis, mut connection)) = redis() else { return };
        let mut log = BanLog::new(&store());
        let who: Client = "192.0.2.1".parse().unwrap();
        // Each is told by itself: so many seconds after it happened, a ban for 60 s or a lift; and what the log has then.
        for (age, is_ban, expected) in [
            (50, true, Some(10)), // told late
            (55, true, None),     // it was banned anew since
            (70, true, None),     // over
            (52, false, None),    // lifted before it was banned
            (30, false, Some(0)), // lifted since
            (40, true, None),     // banned before it was lifted
            (20, true, Some(40)), // banned anew
            (25, false, None),    // a lift that another process has told already
            (0, false, Some(0)),
        ] {
            let lasts = is_ban.then_some(Duration::from_secs(60));
            let at = clock::monotonic_ns().saturating_sub(age * SECOND);
            log.tell(BanEvent { ban: "b".into(), client: who, lasts, at });
            log.tell(BanEvent { ban: "other".into(), client: who, lasts: None, at });
            log.tell_all(&mut connection).unwrap();
            let entries: Vec<Entry> =
                redis::cmd("XRANGE").arg("p:bans").arg(&log.next).arg("+").query(&mut connection).unwrap();
            let read = entries.iter().filter_map(|(id, fields)| read(id, fields));
            let of_b: Vec<_> = read.filter(|(_, ban, ..)| ban == "b").collect();
            let left = of_b.iter().map(|(_, _, of, lasts)| {
                assert_eq!(*of, who);
                lasts.map_or(0, |lasts| 10 * lasts.as_millis().div_ceil(10_000))
            });
            assert_eq!(left.collect::<Vec<_>>(), Vec::from_iter(expected), "{age} s ago: {is_ban}");
            log.next = entries.last().and_then(|(id, _)| after(id)).unwrap_or(log.next);
        }
        let keys = ["p:bans", "p:bans-last"]
            .map(|key| redis::cmd("PTTL").arg(key).query::<u64>(&mut connection).unwrap());
        assert!(keys.iter().all(|left| (3_600_000..=3_660_000).contains(left)), "both go: {keys:?}");
    }

    #[test]
    fn entries_are_read_and_what_is_none_is_left_out() {
        let fields = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |id: &str, text: &str| read(id, &fields(text));
        let client: Client = "192.0.2.1".parse().unwrap();
        let banned = read("1500-0", "ban b client 192.0.2.1 ms 60000");
        assert_eq!(banned, Some((1500, "b".into(), client, Some(Duration::from_secs(60)))));
        let lifted = read("7-1", "client 192.0.2.1 ms 0 ban b more x");
        assert_eq!(lifted, Some((7, "b".into(), client, None)));
        for (id, text) in [
            ("x-0", "ban b client 192.0.2.1 ms 1"),
            ("1", "ban b client 192.0.2.1 ms 1"),
            ("1-0", "ban b client nobody ms 1"),
            ("1-0", "ban b client 192.0.2.1 ms -1"),
            ("1-0", "ban b client 192.0.2.1"),
            ("1-0", "client"),
        ] {
            assert_eq!(read(id, text), None, "{id} {text}");
        }
    }

    #[test]
    fn the_next_entry_is_named() {
        for (id, expected) in [
            ("5-0", Some("5-1")),
            ("5-18446744073709551615", Some("6-0")),
            ("18446744073709551615-18446744073709551615", None),
            ("5", None),
            ("5-x", None),
        ] {
            assert_eq!(after(id).as_deref(), expected, "{id}");
        }
    }

    #[test]
    fn no_more_wait_than_may_and_the_latest_are_kept() {
        let mut log = BanLog::new(&store());
        for number in 0..=WAITING as u32 {
            let client = Ipv4Addr::from_bits(number).to_string().parse().unwrap();
            log.tell(BanEvent { ban: "b".into(), client, lasts: None, at: 0 });
        }
        assert_eq!(log.waiting.len(), WAITING);
        assert_eq!(log.waiting[0].client.to_string(), "0.0.0.1");
    }
}
