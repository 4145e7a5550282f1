//! The tables of `limit`, `bandwidth` and `ban`: made by the master, so that all server processes count in the same, and
//! kept for as long as the limit is there, over reloads, upgrades and the end of any process.
//!
//! They lie in one memory, which is one descriptor however many limits there are. The new tables of a revision are added at
//! its end; what is gone gives its pages back, and no address is used twice, so that a request of settings before can count
//! in no table but its own. Only after an upgrade from a version that made a memory for each revision are there several.

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::Settings;
use tidegate_config::settings::Limit;
use tidegate_core::log;
use tidegate_core::rate::{self, Client, Identity, Kind, QueueFigures, TablePlace};
use tidegate_io::clock;
use tidegate_io::shared::{self, PAGE, SharedMemory};
use tidegate_modules::status::{QueueReport, RateKind, RateReport};

/// The longest that settings ban a client for, seconds.
const LONGEST_BAN: u64 = 366 * 24 * 3600;

/// The tables of one revision, in the order of the settings.
#[derive(Debug, Clone, Default)]
pub struct Rates(Vec<Table>);

/// Where it is counted, and where that lies.
#[derive(Debug, Clone)]
struct Table {
    identity: Identity,
    table: rate::Table,
    /// What other processes get to count there as well.
    descriptor: Arc<OwnedFd>,
    start: usize,
    length: usize,
    /// Of a ban: it refuses nobody.
    is_tracked: bool,
}

/// For how many processes there is a ledger in each table: while they are replaced there are twice as many.
fn ledgers(settings: &Settings) -> usize {
    2 * usize::from(settings.processes.max(4))
}

/// Where tables begin that lie one behind the other, each on pages of its own, and how many words they take in all; `None`:
/// more than can be told.
fn lay_out(lengths: &[Option<usize>]) -> Option<(Vec<usize>, usize)> {
    let mut end = 0usize;
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        starts.push(end);
        end = end.checked_add((*length)?)?.checked_next_multiple_of(PAGE)?;
    }
    Some((starts, end))
}

/// What the tables of these settings come to when every key is used.
pub struct Extent {
    /// Bytes.
    pub bytes: u64,
    /// How many tables.
    pub tables: usize,
    /// The largest one, and its bytes.
    pub largest: Option<(Identity, u64)>,
}

impl Extent {
    /// Of these settings.
    pub fn of(settings: &Settings) -> Extent {
        let (processes, mut seen) = (ledgers(settings), HashSet::new());
        let mut extent = Extent { bytes: 0, tables: 0, largest: None };
        for identity in Identity::all(settings).filter(|identity| seen.insert(identity.clone())) {
            let words = identity.length(processes).unwrap_or(usize::MAX);
            let bytes = (words as u64).saturating_mul(size_of::<u64>() as u64);
            extent.bytes = extent.bytes.saturating_add(bytes);
            extent.tables += 1;
            if extent.largest.as_ref().is_none_or(|(_, largest)| *largest < bytes) {
                extent.largest = Some((identity, bytes));
            }
        }
        extent
    }
}

impl Rates {
    /// A table for each limit of the settings. Those that `present` has are taken from there, but for one that has no room
    /// for what more processes are to say: there, what is under way is counted anew.
    pub fn open(settings: &Settings, present: &Rates) -> Result<Rates> {
        let memories: Vec<Arc<OwnedFd>> = present.memories().1.into_iter().cloned().collect();
        let fits = |table: &&Table| table.table.has_room_for(ledgers(settings));
        let present: HashMap<_, _> =
            present.0.iter().filter(fits).map(|table| (&table.identity, table)).collect();
        let mut seen = HashSet::new();
        let all: Vec<Identity> =
            Identity::all(settings).filter(|identity| seen.insert(identity.clone())).collect();
        let new = || all.iter().filter(|identity| !present.contains_key(identity));
        let mut made = Rates::make(new(), ledgers(settings), &memories).with_context(|| {
            let keys: u64 = new().map(|identity| u64::from(identity.keys)).sum();
            format!("there is no memory for the {keys} `keys` of {} limits", new().count())
        })?;
        let mut made = made.0.drain(..);
        let tracked: HashSet<Identity> =
            settings.bans().filter(|ban| ban.is_tracked).map(Identity::of_ban).collect();
        let table = |identity: &Identity| {
            let table = match present.get(identity) {
                Some(table) => (*table).clone(),
                None => made.next()?,
            };
            Some(Table { is_tracked: tracked.contains(identity), ..table })
        };
        Ok(Rates(all.iter().filter_map(table).collect()))
    }

    /// New tables, one behind the other: in one of these memories that can grow, else in a new one.
    fn make<'a>(
        identities: impl Iterator<Item = &'a Identity> + Clone,
        processes: usize,
        present: &[Arc<OwnedFd>],
    ) -> io::Result<Rates> {
        let lengths: Vec<_> = identities.clone().map(|identity| identity.length(processes)).collect();
        let Some((starts, end)) = lay_out(&lengths) else { return Err(io::ErrorKind::OutOfMemory.into()) };
        if end == 0 {
            return Ok(Rates::default());
        }
        let extend =
            |known: &Arc<OwnedFd>| Some((SharedMemory::extend(known.as_fd(), end).ok()?, known.clone()));
        let (memory, descriptor) = match present.iter().rev().find_map(extend) {
            Some(grown) => grown,
            None => {
                let (memory, descriptor) = SharedMemory::new("tidegate-limits", end)?;
                (memory, Arc::new(descriptor))
            }
        };
        let table = |((identity, start), length): ((&Identity, usize), Option<usize>)| {
            let (start, length) = (memory.first() + start, length.unwrap_or(0));
            let words = memory.words(start..start + length).ok_or(io::ErrorKind::OutOfMemory)?;
            let table = identity.fresh(words, processes)?;
            Ok(Table {
                identity: identity.clone(),
                table,
                descriptor: descriptor.clone(),
                start,
                length,
                is_tracked: false,
            })
        };
        Ok(Rates(identities.zip(starts).zip(lengths).map(table).collect::<io::Result<_>>()?))
    }

    /// Those that a predecessor has left. What cannot be used is made anew.
    pub fn inherit(places: Vec<TablePlace>, memories: Vec<OwnedFd>) -> Rates {
        let attached = rate::attach(&places, &memories).unwrap_or_default();
        let mut words: HashMap<&Identity, _> = HashMap::new();
        words.extend(attached.into_iter().filter_map(|(place, found)| Some((&place.identity, found?))));
        let memories: Vec<_> = memories.into_iter().map(Arc::new).collect();
        let table = |place: &TablePlace| {
            let TablePlace { identity, memory, start, length } = place;
            let table = identity.attach(words.remove(identity)?).ok()?;
            let descriptor = memories.get(*memory)?.clone();
            Some(Table {
                identity: identity.clone(),
                table,
                descriptor,
                start: *start,
                length: *length,
                is_tracked: false,
            })
        };
        Rates(places.iter().filter_map(table).collect())
    }

    /// Those of a predecessor that gave each table a memory of its own.
    pub fn inherit_each(tables: Vec<Identity>, memories: Vec<OwnedFd>) -> Rates {
        let whole = |(number, (identity, descriptor)): (usize, (Identity, &OwnedFd))| {
            let length = SharedMemory::attach(descriptor.as_fd()).ok()?.len();
            Some(TablePlace { identity, memory: number, start: 0, length })
        };
        let places = tables.into_iter().zip(&memories).enumerate().filter_map(whole).collect();
        Rates::inherit(places, memories)
    }

    /// The descriptors of the memories, each once, and where each table lies in them.
    fn memories(&self) -> (Vec<TablePlace>, Vec<&Arc<OwnedFd>>) {
        let (mut memories, mut numbers) = (Vec::new(), HashMap::new());
        let place = |table| {
            let Table { identity, start, length, descriptor, .. }: &Table = table;
            let memory = *numbers.entry(Arc::as_ptr(descriptor)).or_insert_with(|| {
                memories.push(descriptor);
                memories.len() - 1
            });
            TablePlace { identity: identity.clone(), memory, start: *start, length: *length }
        };
        let places = self.0.iter().map(place).collect();
        (places, memories)
    }

    /// Copies for another process.
    pub fn copies(&self) -> io::Result<(Vec<TablePlace>, Vec<OwnedFd>)> {
        let (places, memories) = self.memories();
        Ok((places, memories.into_iter().map(|memory| memory.try_clone()).collect::<io::Result<_>>()?))
    }

    /// Gives what lies in these memories and is no table of these back to the system: the tables of limits that are gone.
    /// Requests of settings before, which may still count there, begin anew.
    pub fn release_others(&self) {
        let (mut places, memories) = self.memories();
        places.sort_by_key(|place| (place.memory, place.start));
        let mut places = places.into_iter().peekable();
        for (number, descriptor) in memories.into_iter().enumerate() {
            let mut end = 0;
            let mut outcome = Ok(());
            while let Some(place) = places.next_if(|place| place.memory == number) {
                if end < place.start {
                    outcome = outcome.and(shared::release(descriptor.as_fd(), end..place.start));
                }
                end = (place.start + place.length).next_multiple_of(PAGE);
            }
            let length =
                rustix::fs::fstat(descriptor).map_or(0, |stat| stat.st_size) as usize / size_of::<u64>();
            if end < length {
                outcome = outcome.and(shared::release(descriptor.as_fd(), end..length));
            }
            if let Err(error) = outcome {
                log::warn(format_args!("the memory of limits that are gone cannot be given back: {error}"));
            }
        }
    }

    /// What processes have had under way that are no longer there is given back.
    pub fn give_back(&self) {
        let is_there = |process: u32| {
            let process = i32::try_from(process).ok().and_then(Pid::from_raw);
            process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
        };
        for table in &self.0 {
            match &table.table {
                rate::Table::Count(counts) => drop(counts.give_back(is_there)),
                rate::Table::Queue(queue) => queue.give_back(is_there),
                rate::Table::Rate(_) | rate::Table::Ban(_) | rate::Table::Total(_) => {}
            }
        }
    }

    /// Who is banned, for how much longer, and by which table.
    fn banned(&self) -> Vec<(Client, Duration, &Table)> {
        let now = clock::monotonic_ns();
        fn of_table(table: &Table, now: u64) -> Vec<(Client, Duration, &Table)> {
            let Table { table: rate::Table::Ban(bans), .. } = table else { return Vec::new() };
            bans.list(now).into_iter().map(|(client, left)| (client, left, table)).collect()
        }
        self.0.iter().flat_map(|table| of_table(table, now)).collect()
    }

    /// Who is banned, a line for each.
    pub fn bans(&self) -> String {
        let line = |(client, left, table): (Client, Duration, &Table)| {
            let (name, left) = (&table.identity.name, in_units(left.as_secs().max(1)));
            match table.is_tracked {
                true => format!("{client} would be for {left} more by `{name}`, which only tracks\n"),
                false => format!("{client} for {left} more by `{name}`\n"),
            }
        };
        let lines: String = self.banned().into_iter().map(line).collect();
        if lines.is_empty() { "Nobody is banned.\n".to_owned() } else { lines }
    }

    /// Who is banned, for the next start: a line of JSON for each, with the time of the clock (seconds) at which that ends.
    pub fn bans_to_keep(&self, now: i64) -> String {
        let line = |(client, left, table): (Client, Duration, &Table)| {
            let until =
                now.saturating_add(i64::try_from(left.as_secs()).unwrap_or(i64::MAX)).saturating_add(1);
            KeptBan { name: table.identity.name.clone(), client, until }.line()
        };
        self.banned().into_iter().map(line).collect()
    }

    /// Bans whom a stop has left in such lines: how many, and how many lines are none. A ban that there is no more bans nobody.
    pub fn ban_again(&self, lines: &str, now: i64) -> (usize, usize) {
        let (mut banned, mut wrong) = (0, 0);
        for line in lines.lines() {
            let Some(KeptBan { name, client, until }) = KeptBan::parse(line) else {
                wrong += 1;
                continue;
            };
            // However the clock was set meanwhile: no longer than a ban may last.
            let left = u64::try_from(until.saturating_sub(now)).unwrap_or(0).min(LONGEST_BAN);
            let of_name = self.0.iter().filter(|table| table.identity.name == name);
            for Table { table, .. } in of_name.filter(|_| left > 0) {
                let rate::Table::Ban(bans) = table else { continue };
                banned += usize::from(bans.ban(client, Duration::from_secs(left), clock::monotonic_ns()));
            }
        }
        (banned, wrong)
    }

    /// Lifts the bans of whoever has this address: whether there were any, and what is said of it.
    pub fn lift(&self, address: IpAddr) -> (bool, String) {
        let now = clock::monotonic_ns();
        let Some(client) = Client::at(address) else { return (false, "nobody has this address".to_owned()) };
        let mut lifted = Vec::new();
        for Table { identity, table, .. } in &self.0 {
            if let rate::Table::Ban(bans) = table
                && bans.lift(client, now)
            {
                lifted.push(format!("`{}`", identity.name));
            }
        }
        match lifted.is_empty() {
            true => (false, format!("{client} is not banned")),
            false => (true, format!("{client} is banned no longer by {}\n", lifted.join(", "))),
        }
    }

    /// Lifts all bans: of whom.
    pub fn lift_all(&self) -> Vec<Client> {
        let now = clock::monotonic_ns();
        let lift = |(client, _, table): (Client, Duration, &Table)| match &table.table {
            rate::Table::Ban(bans) => bans.lift(client, now).then_some(client),
            _ => None,
        };
        let mut clients: Vec<Client> = self.banned().into_iter().filter_map(lift).collect();
        clients.sort_unstable_by_key(Client::to_string);
        clients.dedup();
        clients
    }

    /// How many requests of a site are under way, and how many there have been, where hooks have that counted.
    pub fn load_of(&self, site: &str) -> (u64, u64) {
        let (load, requests) = (Limit::of_load(site), Limit::of_requests(site));
        let mut found = (0, 0);
        for Table { identity, table, .. } in &self.0 {
            match table {
                rate::Table::Count(counts) if identity.name == load => found.0 = counts.total(),
                rate::Table::Total(total) if identity.name == requests => found.1 = total.get(),
                _ => {}
            }
        }
        found
    }

    /// What they have refused.
    pub fn report(&self) -> Vec<RateReport> {
        let queues = self.0.iter().filter_map(|table| match &table.table {
            rate::Table::Queue(queue) => Some((&*table.identity.name, queue)),
            _ => None,
        });
        let queues: HashMap<_, _> = queues.collect();
        let of_queue = |identity: &Identity| {
            let queue = queues.get(&*identity.name).filter(|_| identity.kind == Kind::Count)?;
            let QueueFigures { waiting, most, served, full, too_old, gone } = queue.figures();
            Some(QueueReport { waiting, most, served, full, too_old, abandoned: gone })
        };
        let report = |Table { identity, table, .. }: &Table| RateReport {
            name: identity.name.clone(),
            refused: table.refused(),
            crowded: table.crowded(),
            queue: of_queue(identity),
            kind: match identity.kind {
                Kind::Speed => RateKind::Bandwidth,
                Kind::Ban => RateKind::Ban,
                _ => RateKind::Limit,
            },
        };
        // How many connections a client has, and who guesses passwords, is no news of a limit.
        let is_news = |table: &&Table| {
            !matches!(
                table.identity.kind,
                Kind::Clients | Kind::Guesses | Kind::Leases | Kind::Queue | Kind::Total
            ) && !Limit::is_own(&table.identity.name)
        };
        self.0.iter().filter(is_news).map(report).collect()
    }
}

/// A time as people say it, in its two largest units.
fn in_units(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A ban that outlives a stop: a line of JSON.
pub struct KeptBan {
    name: String,
    client: Client,
    /// Seconds since 1970.
    until: i64,
}

impl KeptBan {
    /// Reads such a line.
    pub fn parse(line: &str) -> Option<KeptBan> {
        let (name, client, until) = serde_json::from_str::<(String, String, i64)>(line).ok()?;
        Some(KeptBan { name, client: client.parse().ok()?, until })
    }

    fn line(&self) -> String {
        format!("{}\n", serde_json::json!([self.name, self.client.to_string(), self.until]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::num::NonZeroU64;
    use std::path::Path;
    use tidegate_core::rate::{Rate, RateStore};

    const SECOND: u64 = 1_000_000_000;

    fn settings(limits: impl IntoIterator<Item = String>) -> Settings {
        let limits: Vec<String> = limits
            .into_iter()
            .map(|name| {
                format!(
                    "site \"{name}.test\" {{ respond 200; limit \"{name}\" requests=\"1/h\" keys=100 }}\n"
                )
            })
            .collect();
        let text = format!("listen \"127.0.0.1:0\"\n{}", limits.concat());
        tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new()).settings.unwrap()
    }

    fn named(names: &[&str]) -> Settings {
        settings(names.iter().map(ToString::to_string))
    }

    /// Whether one request more of `key` may happen, by the table of the master.
    fn is_within(rates: &Rates, name: &str, key: &[u8]) -> bool {
        let table = rates.0.iter().find(|table| table.identity.name == name).unwrap();
        let rate::Table::Rate(buckets) = &table.table else { panic!("{name} is no rate") };
        let one = NonZeroU64::MIN;
        matches!(
            buckets.charge(key, Rate::new(one, Duration::from_secs(3600), one), SECOND),
            rate::Ruling::Within { .. }
        )
    }

    #[test]
    fn a_hook_hears_of_all_requests_of_its_site() {
        let text = "listen \"127.0.0.1:0\"\nsite \"a.test\" { on rate above=5 run \"true\"; respond 200 }\n\
            site \"b.test\" { respond 200 }";
        let nothing = BTreeMap::new();
        let settings =
            tidegate_config::load_str("test.kdl", text, Path::new("/"), &nothing).settings.unwrap();
        let rates = Rates::open(&settings, &Rates::default()).unwrap();
        assert_eq!(rates.load_of("a.test"), (0, 0));
        let counted = rates.0.iter().find_map(|table| match &table.table {
            rate::Table::Total(total) => Some(total),
            _ => None,
        });
        for count in 1..4 {
            counted.unwrap().add();
            assert_eq!(rates.load_of("a.test"), (0, count), "the first one, too");
        }
        assert!(rates.report().is_empty() && rates.load_of("b.test") == (0, 0));
        // A reload goes on with the same count.
        assert_eq!(Rates::open(&settings, &rates).unwrap().load_of("a.test"), (0, 3));
    }

    #[test]
    fn times_as_people_say_them() {
        for (seconds, said) in
            [(1, "1 s"), (59, "59 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(in_units(seconds), said);
        }
    }

    #[test]
    fn ten_thousand_limits_are_one_descriptor() {
        let settings = settings((0..10_000).map(|number| format!("l{number}")));
        let rates = Rates::open(&settings, &Rates::default()).unwrap();
        let (places, memories) = rates.copies().unwrap();
        assert_eq!((places.len(), memories.len()), (10_000, 1));
        // Another process counts in the same, and in none that is another one's.
        let store = RateStore::default();
        store.provide(&places, &memories).unwrap();
        for (number, place) in places.iter().enumerate().step_by(997) {
            let name = format!("l{number}");
            assert_eq!(place.identity.name, name);
            let rate::Table::Rate(theirs) = store.table(place.identity.clone()).unwrap() else { panic!() };
            let one = NonZeroU64::MIN;
            theirs.charge(b"key", Rate::new(one, Duration::from_secs(3600), one), SECOND);
            assert!(!is_within(&rates, &name, b"key"), "{name}");
            assert!(is_within(&rates, &format!("l{}", number + 1), b"key"));
        }
    }

    #[test]
    fn what_stays_keeps_its_counts_and_what_is_gone_its_memory_no_more() {
        let first = Rates::open(&named(&["a", "b", "c"]), &Rates::default()).unwrap();
        assert!(["a", "b", "c"].iter().all(|name| is_within(&first, name, b"key")));
        let second = Rates::open(&named(&["c", "d", "a"]), &first).unwrap();
        let (places, memories) = second.copies().unwrap();
        let lies: Vec<_> = places.iter().map(|place| (place.identity.name.as_str(), place.memory)).collect();
        assert_eq!((lies, memories.len()), (vec![("c", 0), ("d", 0), ("a", 0)], 1));
        assert!(!is_within(&first, "b", b"key"), "settings of before may still count");
        second.release_others();
        assert!(!is_within(&second, "a", b"key") && !is_within(&second, "c", b"key"));
        assert!(is_within(&first, "b", b"key"), "its memory was given back");
        assert!(is_within(&second, "d", b"key"));
        let store = RateStore::default();
        store.provide(&places, &memories).unwrap();
        assert_eq!(store.held(), 3);
        // What does not lie in what came is refused, not taken for another.
        for (memory, start) in [(1, 0), (0, usize::MAX), (0, 4 * PAGE)] {
            let wrong = TablePlace { memory, start, ..places[1].clone() };
            assert!(RateStore::default().provide(&[wrong], &memories).is_err(), "{memory} {start}");
        }
    }

    /// Else what a process that is killed had under way would be counted for ever.
    #[test]
    fn a_table_has_a_ledger_for_each_of_more_processes() {
        let of = |processes: u32| {
            let text = format!(
                "processes {processes}\nlisten \"127.0.0.1:0\"\nlimit \"c\" concurrent=2\nsite {{ respond 200; }}\n"
            );
            tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new()).settings.unwrap()
        };
        let ledgers_of = |rates: &Rates| {
            let found = rates.0.iter().find(|table| table.identity.name == "c");
            let Some(Table { table: rate::Table::Count(counts), start, .. }) = found else { panic!() };
            (counts.processes(), *start)
        };
        let few = Rates::open(&of(2), &Rates::default()).unwrap();
        let same = Rates::open(&of(4), &few).unwrap();
        assert_eq!(ledgers_of(&few), ledgers_of(&same), "there is room for them");
        assert_eq!(ledgers_of(&Rates::open(&of(16), &same).unwrap()).0, 32);
    }

    /// Bytes that a memory takes.
    fn taken(memory: &OwnedFd) -> u64 {
        rustix::fs::fstat(memory).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn bans_outlive_a_stop() {
        let settings = |tracks: &str| {
            let text = format!("listen \"127.0.0.1:0\"\nban \"b\" {tracks}\nsite {{ respond 200; }}\n");
            tidegate_config::load_str("test.kdl", &text, Path::new("/"), &BTreeMap::new()).settings.unwrap()
        };
        let before = Rates::open(&settings(""), &Rates::default()).unwrap();
        let of_ban =
            |rates: &Rates| rates.0.iter().find(|table| table.identity.kind == Kind::Ban).unwrap().clone();
        let rate::Table::Ban(bans) = of_ban(&before).table else { panic!() };
        let clients = ["192.0.2.1", "2001:db8::/64"].map(|client| client.parse::<Client>().unwrap());
        for client in clients {
            bans.ban(client, Duration::from_secs(100), clock::monotonic_ns());
        }
        let kept = before.bans_to_keep(1_000);
        let after = Rates::open(&settings("track"), &Rates::default()).unwrap();
        let others = "[\"gone\",\"192.0.2.9\",2000]\n[\"b\",\"192.0.2.8\",1049]\nwords\n[\"b\",\"x\",2000]\n";
        assert_eq!(after.ban_again(&format!("{kept}{others}"), 1_050), (2, 2));
        assert!(of_ban(&after).is_tracked && !of_ban(&before).is_tracked);
        let said = after.bans();
        for client in ["192.0.2.1", "2001:db8::/64"] {
            let line =
                said.lines().find(|line| line.starts_with(&format!("{client} would be for 50 s more")));
            assert!(
                line.is_some_and(|line| line.ends_with("`b`, which only tracks"))
                    || said.contains("for 51 s"),
                "{said}"
            );
        }
        assert_eq!(said.lines().count(), 2);
        // A clock that was set back does not ban for longer than any ban lasts.
        assert_eq!(after.ban_again("[\"b\",\"192.0.2.7\",9000000000000000000]\n", i64::MIN), (1, 0));
    }

    #[test]
    fn limits_that_come_and_go_leave_nothing() {
        let store = RateStore::default();
        let mut present = Rates::open(&named(&["stays"]), &Rates::default()).unwrap();
        assert!(is_within(&present, "stays", b"key"));
        let mut added = vec!["stays".to_owned()];
        for number in 0..500 {
            if number % 50 == 0 {
                added.push(format!("added{number}"));
            }
            let renamed = format!("renamed{number}");
            let settings = settings(added.iter().cloned().chain([renamed.clone()]));
            let next = Rates::open(&settings, &present).unwrap();
            let (places, memories) = next.copies().unwrap();
            assert_eq!(memories.len(), 1);
            store.provide(&places, &memories).unwrap();
            store.settle(&settings);
            next.release_others();
            assert!(is_within(&next, &renamed, b"key") && !is_within(&next, "stays", b"key"));
            assert!(taken(&memories[0]) <= 16 * 4096 * 2, "{number}: {} bytes", taken(&memories[0]));
            assert_eq!(store.held(), added.len() + 1);
            present = next;
        }
        // Who comes later maps no more than there is.
        let (places, memories) = present.copies().unwrap();
        RateStore::default().provide(&places, &memories).unwrap();
    }

    #[test]
    fn a_successor_goes_on_counting() {
        let settings = named(&["a", "b"]);
        let before = Rates::open(&settings, &Rates::default()).unwrap();
        assert!(is_within(&before, "a", b"key"));
        let (places, memories) = before.copies().unwrap();
        let after = Rates::open(&settings, &Rates::inherit(places, memories)).unwrap();
        assert!(!is_within(&after, "a", b"key") && is_within(&after, "b", b"key"));
        // One from before tables shared a memory.
        let alone = |identity: Identity| {
            let length = identity.length(8).unwrap();
            let (memory, descriptor) = SharedMemory::new("test", length).unwrap();
            let table = identity.fresh(memory.words(0..length).unwrap(), 8).unwrap();
            let descriptor = Arc::new(descriptor);
            Table { identity, table, descriptor, start: 0, length, is_tracked: false }
        };
        let alone = Rates(Identity::all(&settings).map(alone).collect());
        assert!(is_within(&alone, "b", b"key"));
        let memories = alone.copies().unwrap().1;
        assert_eq!(memories.len(), 2);
        let identities = Identity::all(&settings).collect();
        let after = Rates::open(&settings, &Rates::inherit_each(identities, memories)).unwrap();
        assert!(!is_within(&after, "b", b"key") && is_within(&after, "a", b"key"));
    }
}
