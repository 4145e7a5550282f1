//! Limits that several servers share: what is let in without asking anybody, and told to the others a moment later. Bans go
//! the same way ([`super::shared_bans`]).
//!
//! Each server counts for itself, in its own table. What it lets in it reports ([`Report`]); whoever takes the reports adds
//! them to a store that all servers use, and raises the table to what the store says ([`Report::settle`]), so that what
//! others have let in counts here, too. No request waits for any of that. Of a key, no more than a lease may be let in
//! that has not been told; beyond it, and while the store is away, a server has an equal part of the limit.

use super::shared_bans::{BanEvent, BanTables, SharedBans};
use super::{Buckets, Client, Counts, Place, Rate, Ruling};
use smallvec::SmallVec;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_config::settings::LimitStore;

/// Reports that wait to be taken; what is beyond them is not told.
const REPORTS: usize = 16 << 10;

/// Takes the reports of a process, on a thread of its own.
pub struct TakeReports(pub Box<Take>);

type Take = dyn Fn(LimitStore, Receiver<News>, Arc<NodeState>) + Send + Sync;

impl fmt::Debug for TakeReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakeReports")
    }
}

/// The other servers, as a process knows them.
#[derive(Debug)]
pub struct Nodes {
    pub(super) settings: LimitStore,
    reports: SyncSender<News>,
    state: Arc<NodeState>,
    /// Until somebody takes them.
    taken: Mutex<Option<Receiver<News>>>,
}

/// What is known of the others.
#[derive(Debug)]
pub struct NodeState {
    /// The store does not answer.
    is_away: AtomicBool,
    /// How many servers there are, this one included.
    nodes: AtomicU32,
    /// Questions that it has not answered.
    failures: AtomicU64,
    /// Why it has not answered the last one.
    trouble: Mutex<Option<String>>,
    /// What tells this one from the others: the least of the numbers of the tables that are shared; `u64::MAX` where none is.
    identity: AtomicU64,
    bans: SharedBans,
}

/// How it stands with the store, as a process knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHealth {
    /// Where it is.
    pub address: String,
    /// How many servers use it, this one included, as far as is known.
    pub servers: u32,
    /// Questions that it has not answered.
    pub failures: u64,
    /// Why it has not answered the last one; `None` where it has.
    pub trouble: Option<String>,
}

/// What settings share with other servers.
#[derive(Debug, Default)]
pub(super) struct SharedTables {
    /// The tables of the bans.
    pub bans: BanTables,
    /// The least of the numbers of all tables; `None`: there is none.
    pub identity: Option<u64>,
}

/// What the others are told.
#[derive(Debug)]
pub enum News {
    /// Something was let in.
    LetIn(Report),
    /// Somebody was banned, or is no longer.
    Ban(BanEvent),
}

/// Something was let in.
#[derive(Debug)]
pub struct Report {
    /// Of the limit.
    pub limit: Arc<str>,
    /// What it counts by.
    pub key: SmallVec<[u8; 64]>,
    /// What it allows.
    pub rate: Rate,
    told: Told,
}

/// Where it was counted; gives back its part of the lease.
struct Told {
    table: Arc<Buckets>,
    leases: Arc<Counts>,
    place: Option<Place>,
}

impl NodeState {
    fn new(settings: &LimitStore) -> NodeState {
        NodeState {
            is_away: AtomicBool::new(true),
            nodes: AtomicU32::new(settings.nodes),
            failures: AtomicU64::new(0),
            trouble: Mutex::default(),
            identity: AtomicU64::new(u64::MAX),
            bans: SharedBans::default(),
        }
    }

    /// Whether bans are shared as well.
    pub fn has_bans(&self) -> bool {
        !self.bans.names().is_empty()
    }

    /// Whether a ban of this name is shared.
    pub fn shares_ban(&self, name: &str) -> bool {
        self.bans.has(name)
    }

    /// Whether a ban is shared, since the last question, that was not before: what happened until then is not known of it.
    pub fn take_new_bans(&self) -> bool {
        self.bans.take_new()
    }

    /// Does what another server has said, or this one has before. Whether anything is another by it.
    pub fn apply(&self, event: &BanEvent, now: u64) -> bool {
        self.bans.apply(event, now)
    }

    /// The store has answered, and so many servers have asked it lately.
    pub fn present(&self, nodes: u32) {
        self.nodes.store(nodes.max(1), Relaxed);
        self.is_away.store(false, Relaxed);
        self.has_trouble(None);
    }

    /// The store is not asked, or not any more.
    pub fn away(&self) {
        self.is_away.store(true, Relaxed);
        self.has_trouble(None);
    }

    /// The store does not answer, or not what it should, and why.
    pub fn failed(&self, why: String) {
        self.is_away.store(true, Relaxed);
        self.failures.fetch_add(1, Relaxed);
        self.has_trouble(Some(why));
    }

    fn has_trouble(&self, why: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// How many servers there were last.
    pub fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// What all processes of this server call it; `None` where nothing is shared.
    pub fn identity(&self) -> Option<u64> {
        Some(self.identity.load(Relaxed)).filter(|identity| *identity != u64::MAX)
    }
}

impl Nodes {
    /// How it stands with the store.
    pub(super) fn health(&self) -> StoreHealth {
        let state = &self.state;
        StoreHealth {
            address: self.settings.address.to_string(),
            servers: state.nodes().get(),
            failures: state.failures.load(Relaxed),
            trouble: state.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The servers that use this store, of which nothing is known as yet.
    pub(super) fn new(settings: &LimitStore) -> Nodes {
        let (reports, taken) = sync_channel(REPORTS);
        let state = Arc::new(NodeState::new(settings));
        Nodes { settings: settings.clone(), reports, state, taken: Mutex::new(Some(taken)) }
    }

    /// Settings are in force that share these, and nothing else.
    pub(super) fn share(&self, tables: SharedTables) {
        self.state.bans.set(tables.bans);
        self.state.identity.store(tables.identity.unwrap_or(u64::MAX), Relaxed);
    }

    /// What others say of bans is done by other processes of this server.
    pub(super) fn hear_no_more(&self) {
        self.state.bans.set(BanTables::new());
    }

    /// Somebody is banned since `at` (nanoseconds of the monotonic clock). What does not fit is dropped: the ban is this
    /// server's alone.
    pub(super) fn banned(&self, ban: &str, client: Client, lasts: Duration, at: u64) {
        let event = BanEvent { ban: ban.into(), client, lasts: Some(lasts), at };
        let _ = self.reports.try_send(News::Ban(event));
    }

    /// Somebody is let in again since `at`, whichever shared bans there are.
    pub(super) fn lifted(&self, client: Client, at: u64) {
        for ban in self.state.bans.names() {
            let _ = self.reports.try_send(News::Ban(BanEvent { ban, client, lasts: None, at }));
        }
    }

    /// From now on `take` gets what is let in: the settings are in force.
    pub(super) fn begin(&self, take: &TakeReports) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(taken) = taken {
            take.0(self.settings.clone(), taken, self.state.clone());
        }
    }
}

/// The rate of a limit that several servers share, on one worker.
pub(super) struct SharedRate {
    limit: Arc<str>,
    rate: Rate,
    table: Arc<Buckets>,
    leases: Arc<Counts>,
    lease: NonZeroU32,
    nodes: Arc<Nodes>,
}

impl SharedRate {
    pub(super) fn new(
        limit: &str,
        rate: Rate,
        (table, leases): (Arc<Buckets>, Arc<Counts>),
        lease: NonZeroU32,
        nodes: Arc<Nodes>,
    ) -> SharedRate {
        SharedRate { limit: limit.into(), rate, table, leases, lease, nodes }
    }

    pub(super) fn table(&self) -> &Arc<Buckets> {
        &self.table
    }

    /// Judges one more of a key.
    pub(super) fn charge(&self, key: &[u8], now: u64) -> Ruling {
        let state = &self.nodes.state;
        let own = self.rate.part(state.nodes());
        if state.is_away.load(Relaxed) {
            return self.table.charge(key, own, now);
        }
        let place = self.leases.enter(key, self.lease.get()).map(|(place, _)| place);
        let mut told = Told { table: self.table.clone(), leases: self.leases.clone(), place };
        let ruling = self.table.charge(key, if place.is_some() { self.rate } else { own }, now);
        if matches!(ruling, Ruling::Within { .. }) {
            let key = SmallVec::from_slice(key);
            let report = Report { limit: self.limit.clone(), key, rate: self.rate, told };
            // What does not fit is dropped, and gives its lease back: the store is behind, and will say so.
            let _ = self.nodes.reports.try_send(News::LetIn(report));
        } else {
            told.give_back();
        }
        ruling
    }
}

impl Report {
    /// The store has these, all of one key. `debt`: how long the key needs there until it has caught up.
    pub fn settle(mut reports: Vec<Report>, debt: Duration, now: u64) {
        reports.iter_mut().for_each(|report| report.told.give_back());
        let Some(Report { key, rate, told, .. }) = reports.first() else { return };
        // What was let in since is in the table, and not yet in the store.
        let unsaid = rate.time(told.leases.look(key).into());
        let debt = u64::try_from(debt.as_nanos()).unwrap_or(u64::MAX);
        told.table.raise(key, now.saturating_add(debt).saturating_add(unsaid), now);
    }

    /// Microseconds that one takes of the time of its key.
    pub fn cost(&self) -> f64 {
        self.rate.time(1) as f64 / 1e3
    }
}

impl Told {
    fn give_back(&mut self) {
        if let Some(place) = self.place.take() {
            self.leases.leave(place);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("place", &self.place).finish_non_exhaustive()
    }
}
