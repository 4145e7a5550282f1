//! What an operator asks of the stores of responses, as plain data: what lies there, what of it goes, how they do.
//!
//! `tidegate cache` sends a [`CacheOrder`] to the master, which has every server process carry it out at its [`CacheDesk`]
//! and puts the answers together. Each process has stores of its own; a folder belongs to one of them.

mod merge;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use merge::{add_stores, merge};

/// Most entries that are told of at once.
pub const LISTED: u32 = 10_000;
/// Most bytes of their URLs: one may be very long.
const LISTED_BYTES: usize = 4 << 20;

/// The stores of a process, for an operator. Called on a thread that may wait.
pub trait CacheDesk: Send + Sync {
    /// Has responses be used no longer, or not without asking first.
    fn purge(&self, wanted: &PurgeWanted) -> Purged;
    /// What is stored, those that were used last first; not more than [`ListWanted::most`].
    fn list(&self, wanted: &ListWanted) -> Vec<Listed>;
    /// All that is stored under a URL, each variant.
    fn show(&self, wanted: &ShowWanted) -> Vec<Shown>;
    /// How the stores do, in the order of the settings.
    fn figures(&self, store: Option<&str>) -> Vec<StoreFigures>;
    /// Begins to read all pieces of all files and compare their checksums, where that is not under way, and says how far it is.
    /// The first call after the end tells the end; the next one begins anew.
    fn verify(&self, store: Option<&str>) -> Verification;
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
    },
}

impl CacheOrder {
    /// The store that is meant; `None`: all.
    pub fn store(&self) -> Option<&str> {
        match self {
            CacheOrder::Purge(wanted) => wanted.store.as_deref(),
            CacheOrder::List(wanted) => wanted.store.as_deref(),
            CacheOrder::Show(wanted) => wanted.store.as_deref(),
            CacheOrder::Figures { store } | CacheOrder::Verify { store } => store.as_deref(),
        }
    }

    /// Carries it out.
    pub fn carry_out(&self, desk: &dyn CacheDesk) -> CacheReply {
        match self {
            CacheOrder::Purge(wanted) => CacheReply::Purged(desk.purge(wanted)),
            CacheOrder::List(wanted) => CacheReply::Listed(bounded(desk.list(wanted), wanted.most)),
            CacheOrder::Show(wanted) => CacheReply::Shown(desk.show(wanted)),
            CacheOrder::Figures { store } => CacheReply::Figures(desk.figures(store.as_deref())),
            CacheOrder::Verify { store } => CacheReply::Verified(desk.verify(store.as_deref())),
        }
    }

    /// What a process says that stores nothing.
    pub fn nothing(&self) -> CacheReply {
        match self {
            CacheOrder::Purge(_) => CacheReply::Purged(Purged::default()),
            CacheOrder::List(_) => CacheReply::Listed(Vec::new()),
            CacheOrder::Show(_) => CacheReply::Shown(Vec::new()),
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
    Listed(Vec<Listed>),
    /// Of [`CacheOrder::Show`].
    Shown(Vec<Shown>),
    /// Of [`CacheOrder::Figures`].
    Figures(Vec<StoreFigures>),
    /// Of [`CacheOrder::Verify`].
    Verified(Verification),
}

/// What is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "kebab-case")]
pub enum PurgeWhat {
    /// Those of one URL, whatever its variants; the query as the route has it in its keys.
    Url(String),
    /// Those whose URL begins so, the text of scheme, host and path with its query; `http` and `https` are two prefixes.
    Prefix(String),
    /// Those of a host, in small letters, with its port where the URLs have one.
    Host(String),
    /// Those with a tag.
    Tag {
        /// The tag.
        name: String,
        /// Of one host; `None`: of all of them.
        #[serde(default)]
        host: Option<String>,
    },
    /// Those of a group (RFC 9875).
    Group {
        /// The group.
        name: String,
        /// Of one host: groups are of an origin; `None`: of all of them.
        #[serde(default)]
        host: Option<String>,
    },
    /// All.
    All,
}

/// What has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Responses that were found and are gone, or stale where that was asked for.
    pub entries: u64,
    /// What was not looked for is marked: it is used no more from now on, and its room is taken back by and by.
    pub is_marked: bool,
}

/// What is to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWanted {
    /// Only those whose URL begins so.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Only those of this host.
    #[serde(default)]
    pub host: Option<String>,
    /// Only those with this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// Of one store; `None`: of all.
    #[serde(default)]
    pub store: Option<String>,
    /// At most so many, up to [`LISTED`].
    pub most: u32,
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
    /// Its tags, as far as they are known by name.
    pub tags: Vec<String>,
    /// The file that holds it.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The whole content is there.
    pub is_complete: bool,
}

/// How a store does. Counters are since the process began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Its name.
    pub store: String,
    /// Its memory.
    pub memory: TierFigures,
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
    /// Responses that a purge or an unsafe request has taken.
    pub purged: u64,
}

impl StoreFigures {
    /// Its process has ended: what it had in memory is gone, and another one has its folders.
    pub fn retire(&mut self) {
        let of = |tier: &mut TierFigures| (tier.entries, tier.bytes, tier.limit) = (0, 0, 0);
        of(&mut self.memory);
        for disk in &mut self.disks {
            of(&mut disk.tier);
            (disk.is_of_another, disk.is_out, disk.out_since) = (true, None, None);
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
}
