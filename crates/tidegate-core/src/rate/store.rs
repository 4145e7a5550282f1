//! The tables of a process, by the name of their limit.

use super::nodes::{SharedTables, StoreHealth};
use super::{Bans, Buckets, Client, Counts, LimitQueue, Nodes, Rate, TakeReports, Total};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidegate_config::Settings;
use tidegate_config::settings::{Ban, Bandwidth, Bound, Limit, LimitStore, RequestRate, UserSource};
use tidegate_io::shared::{self, SharedMemory, SharedWords};

/// Pairs of user and client of whom it is remembered that they have guessed.
const GUESSERS: u32 = 100_000;

impl From<&RequestRate> for Rate {
    fn from(rate: &RequestRate) -> Rate {
        Rate::new(rate.count, rate.period, rate.burst)
    }
}

/// The tables of a process. Outlives its engines: what has been counted holds for the next settings, too.
#[derive(Debug, Default)]
pub struct RateStore(Mutex<Tables>, Mutex<Sharing>, OnceLock<TakeReports>);

type Tables = HashMap<Identity, Table>;

/// The servers that share with this one.
#[derive(Debug, Default)]
struct Sharing {
    /// By the settings in force.
    in_force: Option<Arc<Nodes>>,
    /// By settings that are prepared, where they name another store.
    prepared: Option<Arc<Nodes>>,
}

/// What makes the table of a limit another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Of the limit.
    pub name: String,
    /// How many it was made for.
    pub keys: u32,
    /// What it holds.
    #[serde(default)]
    pub kind: Kind,
}

/// What a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Kind {
    /// When each key will have caught up.
    #[default]
    Rate,
    /// How many there are of each key.
    Count,
    /// When the bandwidth of each key will have caught up.
    Speed,
    /// How many connections each client has in a bandwidth.
    Clients,
    /// When each who has guessed passwords will have caught up; the name is that of the users.
    Guesses,
    /// Who is banned.
    Ban,
    /// What has been let in of each key that other servers have not heard of.
    Leases,
    /// Who waits for a place among what may be under way.
    Queue,
    /// How many there have been in all.
    Total,
}

/// A table, and where it lies in the memories that come with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePlace {
    /// Which.
    pub identity: Identity,
    /// The number of its memory.
    pub memory: usize,
    /// The number of its first word there.
    pub start: usize,
    /// Words.
    pub length: usize,
}

/// A table that processes share.
#[derive(Debug, Clone)]
pub enum Table {
    /// Of a rate.
    Rate(Arc<Buckets>),
    /// Of what is under way.
    Count(Arc<Counts>),
    /// Of who is banned.
    Ban(Arc<Bans>),
    /// Of who waits.
    Queue(Arc<LimitQueue>),
    /// Of what there has been.
    Total(Arc<Total>),
}

impl Table {
    /// Whether so many processes can say what they count there; tables of what is not under way ask nobody.
    pub fn has_room_for(&self, processes: usize) -> bool {
        match self {
            Table::Count(counts) => counts.processes() >= processes,
            Table::Queue(queue) => queue.waiting().processes() >= processes,
            Table::Rate(_) | Table::Ban(_) | Table::Total(_) => true,
        }
    }
}

/// Where these tables lie, their memories mapped in as few pieces as leave out what is no table of these; `None` for one that
/// is not where it is said to be.
///
/// # Errors
/// A memory is none, or there is no memory left.
pub fn attach<'a>(
    places: impl IntoIterator<Item = &'a TablePlace>,
    memories: &[OwnedFd],
) -> io::Result<Vec<(&'a TablePlace, Option<SharedWords>)>> {
    let mut of_memories: BTreeMap<usize, Vec<&TablePlace>> = BTreeMap::new();
    places.into_iter().for_each(|place| of_memories.entry(place.memory).or_default().push(place));
    let mut attached = Vec::new();
    for (number, places) in of_memories {
        let Some(descriptor) = memories.get(number) else {
            attached.extend(places.into_iter().map(|place| (place, None)));
            continue;
        };
        let range = |place: &&TablePlace| place.start..place.start.saturating_add(place.length);
        let ranges: Vec<_> = places.iter().map(range).collect();
        let words = shared::attach_ranges(descriptor.as_fd(), &ranges)?;
        attached.extend(places.into_iter().zip(words));
    }
    Ok(attached)
}

impl Identity {
    /// That of the table of this limit.
    pub fn of(limit: &Limit) -> Identity {
        let kind = match limit.bound {
            Bound::Requests(_) => Kind::Rate,
            Bound::Concurrent(_) | Bound::Connections(_) => Kind::Count,
            Bound::Nothing => Kind::Total,
        };
        Identity { name: limit.name.clone(), keys: limit.keys, kind }
    }

    /// Those of the two tables of this bandwidth: its times, and the connections of its clients.
    pub fn of_bandwidth(bandwidth: &Bandwidth) -> [Identity; 2] {
        let Bandwidth { name, keys, by, .. } = bandwidth;
        let times = if by.is_empty() { 1 } else { *keys };
        [(times, Kind::Speed), (*keys, Kind::Clients)].map(|(keys, kind)| Identity {
            name: name.clone(),
            keys,
            kind,
        })
    }

    /// That of the table of those who guess at passwords of these users.
    pub fn of_guesses(users: &UserSource) -> Identity {
        Identity { name: users.name.clone(), keys: GUESSERS, kind: Kind::Guesses }
    }

    /// That of the table of this ban.
    pub fn of_ban(ban: &Ban) -> Identity {
        Identity { name: ban.name.clone(), keys: ban.keys, kind: Kind::Ban }
    }

    /// That of the table of what other servers have not heard of; `None` where this limit is shared with none.
    pub fn of_leases(limit: &Limit) -> Option<Identity> {
        limit.lease.map(|_| Identity { name: limit.name.clone(), keys: limit.keys, kind: Kind::Leases })
    }

    /// That of the queue of this limit; `None` where nobody waits for it.
    pub fn of_queue(limit: &Limit) -> Option<Identity> {
        let queue = limit.queue.as_ref();
        queue.map(|_| Identity { name: limit.name.clone(), keys: limit.keys, kind: Kind::Queue })
    }

    /// Those of all tables that settings need; one several times.
    pub fn all(settings: &Settings) -> impl Iterator<Item = Identity> {
        let bandwidths = settings.bandwidths().flat_map(Identity::of_bandwidth);
        let guesses = settings.users.iter().map(Identity::of_guesses);
        let bans = settings.bans().map(Identity::of_ban);
        let leases = settings.rates().filter_map(Identity::of_leases);
        let queues = settings.rates().filter_map(Identity::of_queue);
        let limits = settings.rates().map(Identity::of).chain(leases).chain(queues);
        limits.chain(bandwidths).chain(guesses).chain(bans)
    }

    /// How many words its table takes, in which `processes` may count. `None`: more than can be told.
    pub fn length(&self, processes: usize) -> Option<usize> {
        let keys = usize::try_from(self.keys).unwrap_or(usize::MAX);
        match self.kind {
            Kind::Rate | Kind::Speed | Kind::Guesses => Some(Buckets::length(keys)),
            Kind::Count | Kind::Clients | Kind::Leases => Counts::length(keys, processes),
            Kind::Ban => Some(Bans::length(keys)),
            Kind::Queue => LimitQueue::length(keys, processes),
            Kind::Total => Some(Total::LENGTH),
        }
    }

    /// An empty table in words that are all zero.
    ///
    /// # Errors
    /// `InvalidData`: these are not as many as [`length`](Identity::length) says.
    pub fn fresh(&self, words: SharedWords, processes: usize) -> io::Result<Table> {
        // Each has keys of its own from the system's source of randomness.
        let secret = [RandomState::new().hash_one(0), RandomState::new().hash_one(1)];
        Ok(match self.kind {
            Kind::Rate | Kind::Speed | Kind::Guesses => Table::Rate(Arc::new(Buckets::new(words, secret)?)),
            Kind::Count | Kind::Clients | Kind::Leases => {
                Table::Count(Arc::new(Counts::new(words, processes, secret)?))
            }
            Kind::Ban => Table::Ban(Arc::new(Bans::new(words, secret)?)),
            Kind::Queue => Table::Queue(Arc::new(LimitQueue::new(words, processes, secret)?)),
            Kind::Total => Table::Total(Arc::new(Total::attach(words)?)),
        })
    }

    /// The table that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(&self, words: SharedWords) -> io::Result<Table> {
        Ok(match self.kind {
            Kind::Rate | Kind::Speed | Kind::Guesses => Table::Rate(Arc::new(Buckets::attach(words)?)),
            Kind::Count | Kind::Clients | Kind::Leases => Table::Count(Arc::new(Counts::attach(words)?)),
            Kind::Ban => Table::Ban(Arc::new(Bans::attach(words)?)),
            Kind::Queue => Table::Queue(Arc::new(LimitQueue::attach(words)?)),
            Kind::Total => Table::Total(Arc::new(Total::attach(words)?)),
        })
    }
}

impl Table {
    /// How many were refused, in all processes.
    pub fn refused(&self) -> u64 {
        match self {
            Table::Rate(buckets) => buckets.refused(),
            Table::Count(counts) => counts.refused(),
            Table::Ban(bans) => bans.refused(),
            Table::Queue(queue) => queue.waiting().refused(),
            Table::Total(_) => 0,
        }
    }

    /// How many were counted together with others, since the table is too small.
    pub fn crowded(&self) -> u64 {
        match self {
            Table::Rate(buckets) => buckets.crowded(),
            Table::Count(counts) => counts.crowded(),
            Table::Ban(bans) => bans.crowded(),
            Table::Queue(queue) => queue.waiting().crowded(),
            Table::Total(_) => 0,
        }
    }
}

impl RateStore {
    /// Tables of limits, in memories that the master has made, for the engines to come.
    ///
    /// # Errors
    /// They are not there, or there is no memory left.
    pub fn provide(&self, places: &[TablePlace], memories: &[OwnedFd]) -> io::Result<()> {
        let missing =
            || io::Error::new(ErrorKind::InvalidData, "a table is not in the memory it is said to be in");
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what is not known yet is mapped.
        let new = places.iter().filter(|place| !tables.contains_key(&place.identity));
        let mut found = Vec::new();
        for (place, words) in attach(new, memories)? {
            found.push((place.identity.clone(), place.identity.attach(words.ok_or_else(missing)?)?));
        }
        tables.extend(found);
        Ok(())
    }

    /// A table. One that nobody has provided is made, for this process alone.
    ///
    /// # Errors
    /// There is no descriptor or no memory left.
    pub fn table(&self, identity: Identity) -> io::Result<Table> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&identity) {
            return Ok(table.clone());
        }
        let length = identity.length(1).unwrap_or(usize::MAX);
        let (memory, _) = SharedMemory::new("tidegate-limits", length)?;
        let words = memory.words(0..length).ok_or(ErrorKind::InvalidInput)?;
        let table = identity.fresh(words, 1)?;
        tables.insert(identity, table.clone());
        Ok(table)
    }

    /// Whoever takes the reports to the store of other servers, from now on.
    pub fn share_by(&self, take: TakeReports) {
        let _ = self.2.set(take);
    }

    /// The servers that use the same store; `None` where there is none, or nobody takes reports there.
    pub(super) fn nodes(&self, store: Option<&LimitStore>) -> Option<Arc<Nodes>> {
        let (store, _) = store.zip(self.2.get())?;
        let mut sharing = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sharing.in_force.iter().chain(&sharing.prepared);
        if let Some(nodes) = known.into_iter().find(|nodes| nodes.settings.is_same_as(store)) {
            return Some(nodes.clone());
        }
        Some(sharing.prepared.insert(Arc::new(Nodes::new(store))).clone())
    }

    /// Somebody is banned no longer, since `at` (nanoseconds of the monotonic clock): other servers are told, where they
    /// share bans with this one.
    pub fn lifted(&self, client: Client, at: u64) {
        if let Some(nodes) = self.in_force() {
            nodes.lifted(client, at);
        }
    }

    /// The process drains and gets no more settings: what other servers say of bans it leaves to the others of this one.
    pub fn drain(&self) {
        if let Some(nodes) = self.in_force() {
            nodes.hear_no_more();
        }
    }

    /// How it stands with the store that other servers use as well; `None`: there is none.
    pub fn shared_store(&self) -> Option<StoreHealth> {
        self.in_force().map(|nodes| nodes.health())
    }

    fn in_force(&self) -> Option<Arc<Nodes>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).in_force.clone()
    }

    /// How many tables there are.
    pub fn held(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Settings are in force: lets go of the tables that they do not use, and tells other servers what they share.
    pub fn settle(&self, settings: &Settings) {
        let shared = self.keep(settings);
        let mut sharing = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let Sharing { in_force, prepared } = mem::take(&mut *sharing);
        let is_in_force = |nodes: &Arc<Nodes>| {
            settings.limit_store.as_ref().is_some_and(|store| nodes.settings.is_same_as(store))
        };
        let (present, others): (Vec<_>, Vec<_>) = in_force.into_iter().chain(prepared).partition(is_in_force);
        // Requests under way may have those of the settings before. The tables are others' by now, or nobody's.
        others.iter().for_each(|nodes| nodes.share(SharedTables::default()));
        sharing.in_force = present.into_iter().next();
        if let Some((nodes, take)) = sharing.in_force.as_ref().zip(self.2.get()) {
            nodes.share(shared);
            nodes.begin(take);
        }
    }

    /// Lets go of the tables that settings do not use, and finds those that they share with other servers.
    fn keep(&self, settings: &Settings) -> SharedTables {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.is_empty() {
            return SharedTables::default();
        }
        let used: HashSet<Identity> = Identity::all(settings).collect();
        tables.retain(|identity, _| used.contains(identity));
        for limit in settings.rates() {
            let table = Identity::of_queue(limit).and_then(|identity| tables.get(&identity));
            if let (Some(Table::Queue(queue)), Bound::Concurrent(most)) = (table, limit.bound) {
                queue.adopt(most.get());
            }
        }
        shared_by(settings, &tables)
    }
}

/// Which of these tables settings share with other servers.
fn shared_by(settings: &Settings, tables: &Tables) -> SharedTables {
    let mut shared = SharedTables::default();
    for ban in settings.bans().filter(|ban| ban.is_shared) {
        if let Some(Table::Ban(bans)) = tables.get(&Identity::of_ban(ban)) {
            shared.bans.insert(ban.name.as_str().into(), bans.clone());
        }
    }
    let leases = settings.rates().filter_map(Identity::of_leases).filter_map(|identity| {
        match tables.get(&identity)? {
            Table::Count(leases) => Some(leases.identity()),
            _ => None,
        }
    });
    shared.identity = shared.bans.values().map(|bans| bans.identity()).chain(leases).min();
    shared
}

#[cfg(test)]
mod tests {
    use super::super::{BanEvent, BanGate, News, NodeState};
    use super::*;
    use std::sync::mpsc::Receiver;
    use std::time::Duration;
    use tidegate_config::{ProcessEnvironment, load_str};

    /// Whoever has been given reports to take.
    type Takers = Arc<Mutex<Vec<(LimitStore, Receiver<News>, Arc<NodeState>)>>>;

    fn process() -> (RateStore, Takers) {
        let (store, takers) = (RateStore::default(), Takers::default());
        let taken = takers.clone();
        store.share_by(TakeReports(Box::new(move |settings, reports, state| {
            taken.lock().unwrap().push((settings, reports, state));
        })));
        (store, takers)
    }

    fn settings(lines: &str) -> Settings {
        let text = format!("listen \"127.0.0.1:0\"\n{lines}\n");
        let loaded = load_str("a", &text, "/".as_ref(), &ProcessEnvironment);
        let said = loaded.render(false);
        loaded.settings.unwrap_or_else(|| panic!("{said}"))
    }

    /// One with these bans, and a store at this port.
    fn banning(port: u16, bans: &str) -> Settings {
        settings(&format!("limit-store \"redis://127.0.0.1:{port}\"\nsite {{ respond 200; {bans} }}"))
    }

    /// What an engine has of such settings.
    fn prepare(store: &RateStore, settings: &Settings) -> Vec<BanGate> {
        let routes = settings.sites.iter().flat_map(|site| &site.routes);
        let bans = routes.flat_map(|route| &route.bans);
        bans.map(|ban| BanGate::new(ban, store, settings.limit_store.as_ref()).unwrap()).collect()
    }

    fn take_up(store: &RateStore, settings: &Settings) -> Vec<BanGate> {
        let gates = prepare(store, settings);
        store.settle(settings);
        gates
    }

    fn client() -> Client {
        "192.0.2.1".parse().unwrap()
    }

    /// Whether another server's ban is in force here.
    fn is_heard(store: &RateStore, state: &NodeState, settings: &Settings) -> bool {
        let event =
            BanEvent { ban: "b".into(), client: client(), lasts: Some(Duration::from_secs(9)), at: 0 };
        let is_applied = state.apply(&event, 0);
        let ban = settings.bans().find(|ban| ban.name == "b").unwrap();
        let Table::Ban(bans) = store.table(Identity::of_ban(ban)).unwrap() else {
            panic!("no table of bans")
        };
        assert_eq!(bans.left(client(), 0).is_some(), is_applied);
        bans.lift(client(), 0);
        is_applied
    }

    #[test]
    fn a_ban_that_becomes_private_hears_of_no_others() {
        let (store, takers) = process();
        let shared = banning(1, "ban \"b\" shared count=3");
        let before = take_up(&store, &shared);
        let state = takers.lock().unwrap()[0].2.clone();
        assert!(is_heard(&store, &state, &shared) && state.identity().is_some());
        let private = banning(1, "ban \"b\" count=3");
        let gates = take_up(&store, &private);
        drop(before);
        assert!(!is_heard(&store, &state, &private) && !state.has_bans() && state.identity().is_none());
        drop(gates);
        // Nor does one whose settings have no store any more, while requests of those before are under way.
        let before = take_up(&store, &shared);
        assert!(is_heard(&store, &state, &shared));
        let alone = settings("site { respond 200; ban \"b\" count=3 }");
        let gates = take_up(&store, &alone);
        assert!(!is_heard(&store, &state, &alone) && state.identity().is_none());
        assert_eq!(takers.lock().unwrap().len(), 1);
        drop((before, gates));
    }

    #[test]
    fn settings_that_are_given_up_share_nothing_and_end_nothing() {
        let (store, takers) = process();
        let present = banning(1, "ban \"b\" shared count=3");
        let gates = take_up(&store, &present);
        let (state, identity) = {
            let state = takers.lock().unwrap()[0].2.clone();
            (state.clone(), state.identity())
        };
        assert!(state.take_new_bans());
        for given_up in [
            banning(1, "ban \"b\" shared count=3 keys=9"),
            banning(2, "ban \"b\" shared count=3"),
            banning(1, "ban \"b\" count=3"),
            banning(1, "ban \"b\" shared count=3; ban \"c\" shared count=3"),
        ] {
            let others = prepare(&store, &given_up);
            assert!(is_heard(&store, &state, &present), "while they are prepared");
            drop(others);
            store.settle(&present);
            assert!(is_heard(&store, &state, &present) && !state.take_new_bans());
            assert_eq!(state.identity(), identity);
            store.lifted(client(), 5);
        }
        let takers = takers.lock().unwrap();
        let lifted =
            takers[0].1.try_iter().map(|news| matches!(news, News::Ban(BanEvent { lasts: None, at: 5, .. })));
        assert_eq!(
            (takers.len(), lifted.collect::<Vec<_>>()),
            (1, vec![true; 4]),
            "others are told once each"
        );
        drop(gates);
    }

    #[test]
    fn another_store_is_told_once_it_is_in_force() {
        let (store, takers) = process();
        let before = take_up(&store, &banning(1, "ban \"b\" shared count=3"));
        let present = banning(2, "ban \"b\" shared count=3; ban \"c\" shared count=3");
        let gates = take_up(&store, &present);
        let takers = takers.lock().unwrap();
        let [(_, _, first), (settings, _, second)] = &takers[..] else { panic!("{} of them", takers.len()) };
        assert_eq!(settings.address.port(), 2);
        assert!(second.take_new_bans() && is_heard(&store, second, &present));
        assert!(!is_heard(&store, first, &present));
        store.drain();
        assert!(!is_heard(&store, second, &present) && second.identity().is_some(), "it still tells");
        drop((before, gates));
    }
}
