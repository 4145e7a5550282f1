//! What an operator asks of the stores of responses, as plain data: what lies there, what of it goes, how they do.
//!
//! `tidegate cache` sends a [`CacheOrder`] to the master, which has every server process carry it out at its [`CacheDesk`]
//! and puts the answers together. Each process has stores of its own; a folder belongs to one of them.

mod merge;

use crate::json_object::Object;
use serde::{Deserialize, Deserializer, Serialize};
use std::cmp::Ordering;
use std::path::PathBuf;

pub(crate) use merge::add_verification;
pub use merge::{add_stores, merge};

/// Most entries that are told of at once.
pub const LISTED: u32 = 10_000;
/// Most bytes of their URLs: one may be very long.
const LISTED_BYTES: usize = 4 << 20;

/// The stores of a process, for an operator. Called on a thread that may wait.
pub trait CacheDesk: Send + Sync {
    /// Has responses be used no longer, or not without asking first.
    fn purge(&self, wanted: &PurgeWanted) -> Purged;
    /// What is stored, in the order of [`ListWanted::sort`]; not more than [`ListWanted::most`].
    fn list(&self, wanted: &ListWanted) -> Found<Listed>;
    /// All that is stored under a URL, each variant.
    fn show(&self, wanted: &ShowWanted) -> Found<Shown>;
    /// How the stores do, in the order of the settings.
    fn figures(&self, store: Option<&str>) -> Vec<StoreFigures>;
    /// Begins to read all pieces of all files and compare their checksums, where that is not under way, and says how far it is.
    /// The same `run` is told of the end as often as it asks; another one begins anew then.
    fn verify(&self, store: Option<&str>, run: u64) -> Verification;
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheOrder {
    /// [`CacheDesk::purge`].
    Purge(PurgeWanted),
    /// [`CacheDesk::list`].
    List(ListWanted),
    /// [`CacheDesk::show`].
    Show(ShowWanted),
    /// [`CacheDesk::figures`].
    Figures {
        /// Of one store.
        #[serde(default)]
        store: Option<String>,
    },
    /// [`CacheDesk::verify`].
    Verify {
        /// Of one store.
        #[serde(default)]
        store: Option<String>,
        /// Chosen at random by who asks, the same until the end: processes end at different times. 0: none.
        #[serde(default)]
        run: u64,
    },
}

impl CacheOrder {
    /// The store that is meant; `None`: all.
    pub fn store(&self) -> Option<&str> {
        match self {
            CacheOrder::Purge(wanted) => wanted.store.as_deref(),
            CacheOrder::List(wanted) => wanted.store.as_deref(),
            CacheOrder::Show(wanted) => wanted.store.as_deref(),
            CacheOrder::Figures { store } | CacheOrder::Verify { store, .. } => store.as_deref(),
        }
    }

    /// Whether it can be meant.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let url = match self {
            CacheOrder::Purge(PurgeWanted { what: PurgeWhat::Url(url) | PurgeWhat::Prefix(url), .. }) => url,
            CacheOrder::Show(ShowWanted { url, .. }) => url,
            CacheOrder::List(ListWanted { prefix: Some(url), .. }) => url,
            _ => return Ok(()),
        };
        let rest = ["http://", "https://"].iter().find_map(|scheme| {
            let (head, rest) = url.split_at_checked(scheme.len())?;
            head.eq_ignore_ascii_case(scheme).then_some(rest)
        });
        match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?'])) {
            true => Ok(()),
            false => {
                Err(format!("{url:?} is no URL: write it with scheme and host, `https://example.com/news`"))
            }
        }
    }

    /// Puts the answers of several processes into the order that was asked for.
    pub fn arrange(&self, reply: &mut CacheReply) {
        if let (CacheOrder::List(wanted), CacheReply::Listed(found)) = (self, reply) {
            found.entries.sort_by(wanted.sort.order());
            found.entries.truncate(wanted.most.min(LISTED) as usize);
        }
    }

    /// Carries it out.
    pub fn carry_out(&self, desk: &dyn CacheDesk) -> CacheReply {
        match self {
            CacheOrder::Purge(wanted) => CacheReply::Purged(desk.purge(wanted)),
            CacheOrder::List(wanted) => {
                let mut found = desk.list(wanted);
                found.entries = bounded(found.entries, wanted.most);
                CacheReply::Listed(found)
            }
            CacheOrder::Show(wanted) => CacheReply::Shown(desk.show(wanted)),
            CacheOrder::Figures { store } => CacheReply::Figures(desk.figures(store.as_deref())),
            CacheOrder::Verify { store, run } => CacheReply::Verified(desk.verify(store.as_deref(), *run)),
        }
    }

    /// What a process says that stores nothing.
    pub fn nothing(&self) -> CacheReply {
        match self {
            CacheOrder::Purge(_) => CacheReply::Purged(Purged::default()),
            CacheOrder::List(_) => CacheReply::Listed(Found::default()),
            CacheOrder::Show(_) => CacheReply::Shown(Found::default()),
            CacheOrder::Figures { .. } => CacheReply::Figures(Vec::new()),
            CacheOrder::Verify { .. } => {
                CacheReply::Verified(Verification { is_done: true, ..Verification::default() })
            }
        }
    }
}

/// As many as may be told of.
fn bounded(mut entries: Vec<Listed>, most: u32) -> Vec<Listed> {
    let mut bytes = 0usize;
    entries.truncate(most.min(LISTED) as usize);
    entries.retain(|entry| {
        bytes = bytes.saturating_add(entry.url.len());
        bytes <= LISTED_BYTES
    });
    entries
}

/// What comes back: the same one of each as was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheReply {
    /// Of [`CacheOrder::Purge`].
    Purged(Purged),
    /// Of [`CacheOrder::List`].
    Listed(Found<Listed>),
    /// Of [`CacheOrder::Show`].
    Shown(Found<Shown>),
    /// Of [`CacheOrder::Figures`].
    Figures(Vec<StoreFigures>),
    /// Of [`CacheOrder::Verify`].
    Verified(Verification),
}

/// What was found, and where it was not looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found<T> {
    /// What was found.
    pub entries: Vec<T>,
    /// Folders that may hold more.
    pub unsearched: Vec<Unsearched>,
    /// What is known of responses that are not stored; of one URL alone.
    #[serde(default)]
    pub known: Vec<KnownNotStored>,
}

/// Responses of a URL are known not to be stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNotStored {
    /// In this store.
    pub store: String,
    /// Why one was not, as `Cache-Status` has it.
    pub reason: String,
    /// The same in words.
    pub text: String,
    /// So long it is remembered yet, seconds.
    pub seconds: u64,
}

impl<T> Default for Found<T> {
    fn default() -> Found<T> {
        Found { entries: Vec::new(), unsearched: Vec::new(), known: Vec::new() }
    }
}

/// A folder of which not all was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsearched {
    /// Which.
    pub folder: PathBuf,
    /// Why not.
    pub why: String,
}

/// What is to go. A member that is not known might have narrowed it, so there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PurgeWanted {
    /// Which responses.
    pub what: PurgeWhat,
    /// They are kept, and used only once the application has confirmed them, or failed (`stale-if-error`).
    #[serde(default)]
    pub is_soft: bool,
    /// Of one store; `None`: of all.
    #[serde(default)]
    pub store: Option<String>,
}

impl PurgeWanted {
    /// In words, for a log; what strangers have chosen is quoted.
    pub fn told(&self) -> String {
        let of =
            |host: &Option<String>| host.as_ref().map(|host| format!(" of {host:?}")).unwrap_or_default();
        let what = match &self.what {
            PurgeWhat::Url(url) => format!("the URL {url:?}"),
            PurgeWhat::Prefix(prefix) => format!("what begins with {prefix:?}"),
            PurgeWhat::Host(host) => format!("the host {host:?}"),
            PurgeWhat::Tag { name, host } => format!("the tag {name:?}{}", of(host)),
            PurgeWhat::Group { name, host } => format!("the group {name:?}{}", of(host)),
            PurgeWhat::All => "everything".to_owned(),
        };
        let store = self.store.as_ref().map(|store| format!(" in {store:?}")).unwrap_or_default();
        format!("{what}{store}{}", if self.is_soft { ", softly" } else { "" })
    }
}

/// Which responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PurgeWhat {
    /// Those that one URL is answered with, whatever its variants; the query as it is sent.
    Url(String),
    /// Those whose URL begins so, the text of host and path with its query; of `http` and `https` alike.
    Prefix(String),
    /// Those of a host, in small letters: with a port of that one, without of all ports.
    Host(String),
    /// Those with a tag.
    #[serde(deserialize_with = "named")]
    Tag {
        /// The tag.
        name: String,
        /// Of one host, as in [`PurgeWhat::Host`]; `None`: of all of them.
        host: Option<String>,
    },
    /// Those of a group (RFC 9875).
    #[serde(deserialize_with = "named")]
    Group {
        /// The group.
        name: String,
        /// Of one host, as in [`PurgeWhat::Host`]; `None`: of all of them.
        host: Option<String>,
    },
    /// All.
    All,
}

/// The members of [`PurgeWhat::Tag`] and [`PurgeWhat::Group`], which stand in an object.
fn named<'de, D: Deserializer<'de>>(from: D) -> Result<(String, Option<String>), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        name: String,
        #[serde(default)]
        host: Option<String>,
    }
    Object::deserialize(from).map(|Object(Named { name, host })| (name, host))
}

/// What has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Responses in memory that are gone, or stale where that was asked for.
    pub entries: u64,
    /// There may be more, on disks alone, which were not looked for: they are used no more from now on, or only as stale ones, and their
    /// room is taken back later.
    pub is_marked: bool,
}

/// What is to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWanted {
    /// Only those whose URL begins so.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Only those of this host, as in [`PurgeWhat::Host`].
    #[serde(default)]
    pub host: Option<String>,
    /// Only those with this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// Of one store; `None`: of all.
    #[serde(default)]
    pub store: Option<String>,
    /// At most so many, up to [`LISTED`]: the first in that order.
    pub most: u32,
    /// In which order.
    #[serde(default)]
    pub sort: ListSort,
}

/// In which order responses are listed; what is equal by it goes by its URL, then by its store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListSort {
    /// By URL.
    #[default]
    Url,
    /// The youngest first.
    Age,
    /// The largest first.
    Size,
    /// What was used most of late first.
    Uses,
}

impl ListSort {
    /// How two are compared.
    pub fn order(self) -> fn(&Listed, &Listed) -> Ordering {
        fn by_url(one: &Listed, other: &Listed) -> Ordering {
            (&one.url, &one.store, one.age).cmp(&(&other.url, &other.store, other.age))
        }
        match self {
            ListSort::Url => by_url,
            ListSort::Age => |one, other| one.age.cmp(&other.age).then_with(|| by_url(one, other)),
            ListSort::Size => |one, other| other.size.cmp(&one.size).then_with(|| by_url(one, other)),
            ListSort::Uses => |one, other| other.uses.cmp(&one.uses).then_with(|| by_url(one, other)),
        }
    }
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its store.
    pub store: String,
    /// What it answers.
    pub url: String,
    /// Its status.
    pub status: u16,
    /// Bytes of its content, as far as they are there.
    pub size: u64,
    /// How old it is, seconds.
    pub age: u64,
    /// How long it may be used yet, seconds; negative: it has been stale for so long.
    pub ttl: i64,
    /// How often it was used since it was stored; the counter ends at some number.
    pub uses: u64,
    /// Where its content is.
    pub place: EntryPlace,
}

/// Where the content of a stored response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryPlace {
    /// In memory.
    Memory,
    /// On a disk.
    Disk,
    /// It is still coming.
    Filling,
}

impl EntryPlace {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryPlace::Memory => "memory",
            EntryPlace::Disk => "disk",
            EntryPlace::Filling => "filling",
        }
    }
}

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowWanted {
    /// The URL.
    pub url: String,
    /// Of one store; `None`: of all.
    #[serde(default)]
    pub store: Option<String>,
}

/// All of a stored response but its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// As it is listed.
    pub entry: Listed,
    /// What of the request it was stored for: names and values of the fields that `Vary` names.
    pub varies_by: Vec<(String, String)>,
    /// Its fields as they are stored.
    pub fields: Vec<(String, String)>,
    /// What its lifetime comes from, such as `max-age`.
    pub lifetime_from: String,
    /// Its tags, as far as their names are kept.
    pub tags: Vec<String>,
    /// How many tags it has beside these: purges know them, but what they are called is not kept.
    #[serde(default)]
    pub unnamed_tags: usize,
    /// Its groups (RFC 9875).
    #[serde(default)]
    pub groups: Vec<String>,
    /// The file that holds it.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The whole content is there.
    pub is_complete: bool,
}

/// How a store does. Counters of a process are since it began, those that the server tells since the server did: they outlive reloads,
/// upgrades and crashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Its name.
    pub store: String,
    /// Its memory.
    pub memory: TierFigures,
    /// Bytes of the memory that clients are reading now: they do not come back before they have.
    #[serde(default)]
    pub held: u64,
    /// Its folders.
    pub disks: Vec<DiskFigures>,
    /// What came of the requests.
    pub requests: RequestFigures,
    /// Responses that were stored.
    pub stored: u64,
    /// Responses that could have been stored and had no room.
    pub without_room: u64,
    /// Responses that began to be stored and did not come to their end.
    #[serde(default)]
    pub broken_off: u64,
    /// Responses that were not stored, by the reason as `Cache-Status` has it.
    pub not_stored: Vec<(String, u64)>,
    /// Fetches under way.
    pub fetches: u64,
    /// Responses that a purge or an unsafe request has taken or, softly, made stale.
    pub purged: u64,
}

impl StoreFigures {
    /// Its process has ended: what it had in memory is gone, and another one has its folders.
    pub fn retire(&mut self) {
        let of = |tier: &mut TierFigures| (tier.entries, tier.bytes, tier.limit) = (0, 0, 0);
        of(&mut self.memory);
        self.held = 0;
        for disk in &mut self.disks {
            of(&mut disk.tier);
            (disk.is_of_another, disk.is_out, disk.out_since) = (true, None, None);
            disk.is_stalled = false;
        }
        self.fetches = 0;
    }
}

/// How much of a memory or a folder is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierFigures {
    /// Responses.
    pub entries: u64,
    /// Bytes, all that goes with them included.
    pub bytes: u64,
    /// Of so many.
    pub limit: u64,
    /// Responses that had to go for others.
    pub evicted: u64,
    /// Of these, those that were stored again soon: with more room they would have been there still.
    #[serde(default)]
    pub returned: u64,
    /// Their bytes.
    #[serde(default)]
    pub returned_bytes: u64,
}

/// How a folder does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFigures {
    /// Where it is.
    pub folder: PathBuf,
    /// How much is taken.
    pub tier: TierFigures,
    /// Why nothing is stored there at the moment.
    #[serde(default)]
    pub is_out: Option<String>,
    /// Since when, Unix seconds.
    #[serde(default)]
    pub out_since: Option<i64>,
    /// It is out because its disk does not answer; nothing of it is used until it does.
    #[serde(default)]
    pub is_stalled: bool,
    /// Pieces that were not what was written, since the process began.
    pub broken_pieces: u64,
    /// Another process of this server has the folder.
    #[serde(default)]
    pub is_of_another: bool,
}

/// What came of the requests to routes with a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFigures {
    /// Answered from the store.
    pub hits: u64,
    /// Of these, with a response whose lifetime had ended.
    pub stale_hits: u64,
    /// Answered from the store once the application had confirmed it.
    pub revalidated: u64,
    /// Fetched.
    pub misses: u64,
    /// Of these, those of which it was known that the response would not be stored.
    #[serde(default)]
    pub passed: u64,
    /// Answered with what another request has fetched.
    pub collapsed: u64,
    /// Not for the store: the method, cookies, what the request said.
    pub bypassed: u64,
}

impl RequestFigures {
    /// Requests that the store was asked for.
    pub fn asked(&self) -> u64 {
        [self.hits, self.revalidated, self.misses, self.collapsed].into_iter().fold(0, u64::saturating_add)
    }

    /// The share of them that cost no application anything, 0 to 1; `None` before the first.
    pub fn hit_ratio(&self) -> Option<f64> {
        let asked = self.asked();
        (asked != 0).then(|| self.hits.saturating_add(self.collapsed) as f64 / asked as f64)
    }
}

/// How far the check of all files is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// It has ended.
    pub is_done: bool,
    /// Files that were read.
    pub files: u64,
    /// Of so many, as far as that is known.
    pub files_in_all: u64,
    /// Pieces that were compared.
    pub pieces: u64,
    /// Files with a piece that was not what was written; they are gone.
    pub broken: Vec<PathBuf>,
    /// What could not be read, and why.
    pub unread: Vec<(PathBuf, String)>,
    /// Folders of which not all was read.
    #[serde(default)]
    pub unsearched: Vec<Unsearched>,
}
