//! The tables of a process, by the name of their limit.

use super::{Bans, Buckets, Client, Counts, LimitQueue, Nodes, Rate, TakeReports, Total};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
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
pub struct RateStore(Mutex<HashMap<Identity, Table>>, Mutex<Option<Arc<Nodes>>>, OnceLock<TakeReports>);

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
        let mut nodes = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let (store, _) = store.zip(self.2.get())?;
        if let Some(nodes) = nodes.as_ref().filter(|nodes| nodes.settings.is_same_as(store)) {
            return Some(nodes.clone());
        }
        // Those of the settings before end with the last engine that has them.
        Some(nodes.insert(Arc::new(Nodes::new(store))).clone())
    }

    /// Somebody is banned no longer: other servers are told, where they share bans with this one.
    pub fn lifted(&self, client: Client) {
        if let Some(nodes) = &*self.1.lock().unwrap_or_else(PoisonError::into_inner) {
            nodes.lifted(client);
        }
    }

    /// How many tables there are.
    pub fn held(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Settings are in force: lets go of the tables that they do not use, and tells other servers what they share.
    pub fn settle(&self, settings: &Settings) {
        let mut nodes = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of settings that were given up end with these.
        let is_in_force = |nodes: &mut Arc<Nodes>| {
            settings.limit_store.as_ref().is_some_and(|s| nodes.settings.is_same_as(s))
        };
        *nodes = nodes.take_if(is_in_force);
        if let Some((nodes, take)) = nodes.as_ref().zip(self.2.get()) {
            nodes.begin(take);
        }
        drop(nodes);
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.is_empty() {
            return;
        }
        let used: HashSet<Identity> = Identity::all(settings).collect();
        tables.retain(|identity, _| used.contains(identity));
        for limit in settings.rates() {
            let table = Identity::of_queue(limit).and_then(|identity| tables.get(&identity));
            if let (Some(Table::Queue(queue)), Bound::Concurrent(most)) = (table, limit.bound) {
                queue.adopt(most.get());
            }
        }
    }
}
