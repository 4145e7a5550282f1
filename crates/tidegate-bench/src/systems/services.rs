//! Services of a machine that tell figures of their own: Tidegate and php-fpm by their status pages, memcached by `stats`, MariaDB by
//! its client. Each is asked by a thread of its own, so that one that hangs holds up nothing.

use super::ask::{fetch, mariadb, memcached};
use super::figures::{Figures, plain};
use super::place::rest;
use crate::clock::monotonic_ns;
use crate::target::Url;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A service that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// The status page of Tidegate or php-fpm, as JSON.
    Url(Url),
    /// The address of memcached: `host:port`.
    Memcached(String),
    /// MariaDB or MySQL by the client `mariadb`, with these options of it.
    Mariadb(String),
}

/// A figure of a service.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// As it stands.
    Level(f64),
    /// Counts up.
    Count(f64),
}

type Said = BTreeMap<String, Figure>;

/// What a service said.
struct Answer {
    at: u64,
    said: Result<Said, String>,
}

/// Services that are being asked.
pub(super) struct Asked(Vec<(Receiver<Answer>, std::cell::RefCell<Last>)>);

/// What was said of a service last.
#[derive(Default)]
struct Last {
    read: Option<(u64, Said)>,
    /// It has been said that it does not answer.
    is_reported: bool,
}

impl Asked {
    /// Begins to ask them, each `interval`.
    pub fn begin(services: &[Service], interval: Duration) -> io::Result<Asked> {
        let begin = |service: &Service| {
            let (sender, receiver) = sync_channel(2);
            let service = service.clone();
            std::thread::Builder::new()
                .name("bench-service".to_owned())
                .spawn(move || ask(&service, interval, &sender))?;
            Ok((receiver, std::cell::RefCell::default()))
        };
        services.iter().map(begin).collect::<io::Result<_>>().map(Asked)
    }

    /// What there is that is new.
    pub fn figures(&self, complain: &mut impl FnMut(String)) -> Figures {
        let mut figures = Figures::new();
        for (receiver, last) in &self.0 {
            let Some(answer) = receiver.try_iter().last() else { continue };
            let mut last = last.borrow_mut();
            match answer.said {
                Ok(now) => {
                    if let Some((at, before)) = &last.read {
                        let seconds = answer.at.saturating_sub(*at) as f64 / 1e9;
                        figures.extend(since(&now, before, seconds));
                    }
                    last.read = Some((answer.at, now));
                    last.is_reported = false;
                }
                Err(why) => {
                    if !last.is_reported {
                        complain(why);
                    }
                    last.is_reported = true;
                    last.read = None;
                }
            }
        }
        figures
    }
}

fn since(now: &Said, before: &Said, seconds: f64) -> Figures {
    let figure = |(name, now): (&String, &Figure)| {
        let value = match (now, before.get(name)) {
            (Figure::Level(level), _) => *level,
            (Figure::Count(now), Some(Figure::Count(before))) if seconds > 0.0 => {
                (now - before).max(0.0) / seconds
            }
            (Figure::Count(_), _) => return None,
        };
        Some((name.clone(), value))
    };
    now.iter().filter_map(figure).filter(|(_, value)| value.is_finite()).collect()
}

fn ask(service: &Service, interval: Duration, to: &SyncSender<Answer>) {
    loop {
        let begun = Instant::now();
        let said = service.read();
        // Nobody waits for it when the monitor has ended.
        if to.send(Answer { at: monotonic_ns(), said }).is_err() {
            return;
        }
        rest(interval.saturating_sub(begun.elapsed()));
    }
}

impl Service {
    /// Asks it.
    fn read(&self) -> Result<Said, String> {
        let until = Instant::now() + PATIENCE;
        match self {
            Service::Url(url) => {
                let named = |why: String| format!("{url}: {why}");
                let (status, answer) = fetch(url, until).map_err(|error| named(error.to_string()))?;
                if status != "200" {
                    return Err(named(format!("the answer is {status}, not 200")));
                }
                of_page(&answer).map_err(|why| named(why.to_owned()))
            }
            Service::Memcached(address) => {
                let answer = memcached(address, until);
                let answer = answer.map_err(|error| format!("memcached at {address}: {error}"))?;
                Ok(of_memcached(&String::from_utf8_lossy(&answer)))
            }
            Service::Mariadb(options) => {
                let answer = mariadb(options, until).map_err(|error| format!("mariadb: {error}"))?;
                Ok(of_mariadb(&String::from_utf8_lossy(&answer)))
            }
        }
    }
}

// ---------------------------------------------------------------- what answers say

/// Figures of a page of JSON, by whose it is.
fn of_page(body: &[u8]) -> Result<Said, &'static str> {
    let value: Value = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
    if value.get("stats").is_some_and(Value::is_object) {
        return Ok(picked(&value["stats"], TIDEGATE, "tidegate"));
    }
    if let Some(pool) = value.get("pool").and_then(Value::as_str) {
        return Ok(picked(&value, PHP_FPM, &format!("php-fpm.{}", plain(pool))));
    }
    Err("the answer is neither Tidegate's status as JSON nor php-fpm's")
}

/// A place in JSON, the name of the figure, and whether it counts up.
type Pick = (&'static str, &'static str, bool);

const TIDEGATE: &[Pick] = &[
    ("/requests", "requests", true),
    ("/responses/5xx", "responses_5xx", true),
    ("/connections_accepted", "accepted", true),
    ("/connections_refused", "refused", true),
    ("/requests_queued", "queued_requests", true),
    ("/connections/current", "connections", false),
    ("/keep_alive/current", "keep_alive", false),
    ("/in_flight/current", "in_flight", false),
    ("/queued/current", "queue", false),
    ("/received_bytes", "received_bytes", true),
    ("/sent_bytes", "sent_bytes", true),
];

const PHP_FPM: &[Pick] = &[
    ("/accepted conn", "accepted", true),
    ("/listen queue", "queue", false),
    ("/active processes", "active", false),
    ("/idle processes", "idle", false),
    ("/max children reached", "limit_reached", true),
    ("/slow requests", "slow", true),
];

fn picked(value: &Value, picks: &[Pick], prefix: &str) -> Said {
    let figure = |(place, name, counts): &Pick| {
        let number = value.pointer(place)?.as_f64()?;
        Some((
            format!("{prefix}.{name}"),
            if *counts { Figure::Count(number) } else { Figure::Level(number) },
        ))
    };
    picks.iter().filter_map(figure).collect()
}

const MEMCACHED: &[Pick] = &[
    ("get_hits", "hits", true),
    ("get_misses", "misses", true),
    ("cmd_set", "sets", true),
    ("evictions", "evictions", true),
    ("curr_connections", "connections", false),
    ("curr_items", "items", false),
    ("bytes", "used_bytes", false),
];

const MARIADB: &[Pick] = &[
    ("Questions", "questions", true),
    ("Com_select", "selects", true),
    ("Com_commit", "commits", true),
    ("Slow_queries", "slow", true),
    ("Aborted_connects", "aborted_connects", true),
    ("Innodb_buffer_pool_reads", "pool_misses", true),
    ("Innodb_row_lock_waits", "row_lock_waits", true),
    ("Threads_running", "threads_running", false),
    ("Threads_connected", "threads_connected", false),
];

fn of_memcached(text: &str) -> Said {
    let pairs = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    from_pairs(pairs, MEMCACHED, "memcached")
}

fn of_mariadb(text: &str) -> Said {
    from_pairs(text.lines().filter_map(|line| line.split_once('\t')), MARIADB, "mariadb")
}

fn from_pairs<'t>(pairs: impl Iterator<Item = (&'t str, &'t str)>, picks: &[Pick], prefix: &str) -> Said {
    let figure = |(name, value): (&str, &str)| {
        let (_, name, counts) = picks.iter().find(|pick| pick.0 == name)?;
        let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
        Some((
            format!("{prefix}.{name}"),
            if *counts { Figure::Count(number) } else { Figure::Level(number) },
        ))
    };
    pairs.filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(read: &Said) -> Vec<(&str, Figure)> {
        read.iter().map(|(name, figure)| (name.as_str(), *figure)).collect()
    }

    #[test]
    fn what_services_say() {
        let page =
            br#"{"stats":{"requests":9,"queued":{"current":2,"peak":3},"connections":{"current":"x"}}}"#;
        let read = of_page(page).unwrap();
        let expected = [("tidegate.queue", Figure::Level(2.0)), ("tidegate.requests", Figure::Count(9.0))];
        assert_eq!(names(&read), expected);
        let page = br#"{"pool":"www","accepted conn":5,"listen queue":1,"start time":1}"#;
        let read = of_page(page).unwrap();
        let expected =
            [("php-fpm.www.accepted", Figure::Count(5.0)), ("php-fpm.www.queue", Figure::Level(1.0))];
        assert_eq!(names(&read), expected);
        for garbage in ["", "[]", "{}", "{\"stats\":3}", "{\"pool\":3}"] {
            assert!(of_page(garbage.as_bytes()).is_err(), "{garbage}");
        }
        let read = of_memcached("STAT pid 1\r\nSTAT get_hits 7\r\nSTAT bytes x\r\nEND\r\n");
        assert_eq!(names(&read), [("memcached.hits", Figure::Count(7.0))]);
        let read = of_mariadb("Questions\t11\nThreads_running\t2\nUptime\t3\nnothing\n");
        let expected =
            [("mariadb.questions", Figure::Count(11.0)), ("mariadb.threads_running", Figure::Level(2.0))];
        assert_eq!(names(&read), expected);
    }

    #[test]
    fn counts_are_told_by_second() {
        let before = of_memcached("STAT get_hits 10\nSTAT get_misses 9\nSTAT curr_items 1");
        let now = of_memcached("STAT get_hits 14\nSTAT get_misses 1\nSTAT curr_items 5\nSTAT evictions 3");
        let figures = since(&now, &before, 2.0);
        let expected = [("memcached.hits", 2.0), ("memcached.items", 5.0), ("memcached.misses", 0.0)];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
