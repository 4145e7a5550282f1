//! Bans that several servers share: a log of events in the store, which every server adds to and reads to its end once a
//! second.
//!
//! The log is a stream (XADD, XRANGE: Redis 5), and what it calls its entries is when they came, by the store's own clock. Of
//! each client the last event of a look holds, so whoever begins at its beginning has what is in force. What cannot be told
//! while the store is away is told when it is back, up to a number; meanwhile it holds for this server. A connection that
//! was lost is followed by a look from the beginning: the store may be another one since, and what is known already changes
//! nothing.

use redis::{Connection, RedisResult};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
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

/// Adds an event; the log is kept as long as its longest ban, and an hour.
const ADD: &str = "\
redis.call('XADD', KEYS[1], 'MAXLEN', '~', 100000, '*', 'ban', ARGV[1], 'client', ARGV[2], 'ms', ARGV[3])
local left = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]) + 3600000)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
return ''";

/// The events of this server, and how far it has read those of all.
pub(super) struct BanLog {
    key: String,
    waiting: VecDeque<BanEvent>,
    /// The first that has not been read.
    next: String,
}

type Entry = (String, Vec<String>);

impl BanLog {
    /// That of the stores with this prefix.
    pub(super) fn new(prefix: &str) -> BanLog {
        BanLog { key: format!("{prefix}:bans"), waiting: VecDeque::new(), next: "-".to_owned() }
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
    pub(super) fn exchange(
        &mut self,
        connection: &mut Connection,
        state: &NodeState,
        is_due: bool,
    ) -> RedisResult<()> {
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(PAGE);
            let mut question = redis::pipe();
            for BanEvent { ban, client, lasts } in self.waiting.iter().take(count) {
                let lasts = lasts.map_or(0, |lasts| lasts.as_millis());
                let command = question.cmd("EVAL").arg(ADD).arg(1).arg(&self.key);
                command.arg(&**ban).arg(client.to_string()).arg(lasts.to_string());
            }
            let _: Vec<String> = question.query(connection)?;
            self.waiting.drain(..count);
        }
        if !is_due || !state.has_bans() {
            return Ok(());
        }
        let mut last: HashMap<(String, Client), (u64, Option<Duration>)> = HashMap::new();
        let mut time = 0;
        for _ in 0..LOOK / PAGE {
            let mut question = redis::pipe();
            question.cmd("TIME").cmd("XRANGE").arg(&self.key).arg(&self.next).arg("+").arg("COUNT").arg(PAGE);
            let ((seconds, micros), entries): ((u64, u64), Vec<Entry>) = question.query(connection)?;
            time = seconds.saturating_mul(1000).saturating_add(micros / 1000);
            for (id, fields) in &entries {
                if let Some(next) = after(id) {
                    self.next = next;
                }
                if let Some((at, ban, client, lasts)) = read(id, fields) {
                    last.insert((ban, client), (at, lasts));
                }
            }
            if entries.len() < PAGE {
                break;
            }
        }
        let now = clock::monotonic_ns();
        for ((ban, client), (at, lasts)) in last {
            let passed = Duration::from_millis(time.saturating_sub(at));
            let left = lasts.map(|lasts| lasts.min(LONGEST).saturating_sub(passed));
            if left == Some(Duration::ZERO) {
                continue; // its time is over
            }
            let event = BanEvent { ban: Arc::from(ban), client, lasts: left };
            if !state.apply(&event, now) {
                continue;
            }
            let name = &event.ban;
            match left {
                Some(left) => {
                    let seconds = left.as_secs();
                    log::warn(format_args!(
                        "{client} is banned for {seconds} s by `{name}` of another server"
                    ));
                }
                None => log::info(format_args!("{client} is banned no longer by `{name}`: lifted elsewhere")),
            }
        }
        Ok(())
    }
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
mod tests {
    use super::*;

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
        let mut log = BanLog::new("p");
        for number in 0..=WAITING as u32 {
            let client = std::net::Ipv4Addr::from_bits(number).to_string().parse().unwrap();
            log.tell(BanEvent { ban: "b".into(), client, lasts: None });
        }
        assert_eq!(log.waiting.len(), WAITING);
        assert_eq!(log.waiting[0].client.to_string(), "0.0.0.1");
    }
}
