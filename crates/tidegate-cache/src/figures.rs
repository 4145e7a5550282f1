//! What a store tells of itself.

/// Counts and sizes of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Stored responses.
    pub entries: u64,
    /// Bytes reserved: content, heads, keys and index.
    pub bytes: u64,
    /// The limit for them.
    pub limit: u64,
    /// Look-ups that found something.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Look-ups of what is known not to be storable.
    pub passes: u64,
    /// Requests that another one fetched for.
    pub collapsed: u64,
    /// Responses that began to be stored.
    pub fills: u64,
    /// Those of them that are under way.
    pub filling: u64,
    /// Those that were broken off.
    pub broken: u64,
    /// Those that did not fit and were passed on to their readers.
    pub passed_on: u64,
    /// Those that nothing was stored of for want of room.
    pub refused: u64,
    /// Responses that a 304 has made fresh again.
    pub refreshed: u64,
    /// Entries that went to make room.
    pub evicted: u64,
    /// Entries that a purge took, as far as they were met since.
    pub purged: u64,
}

/// Which entries to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// Of this host.
    pub host: Option<&'a str>,
    /// Whose target begins with this.
    pub prefix: Option<&'a str>,
    /// With this mark.
    pub mark: Option<u64>,
}

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: u64,
    /// The host.
    pub host: Box<str>,
    /// Path and query.
    pub target: Box<str>,
    /// The status code.
    pub status: u16,
    /// Bytes of content that are here.
    pub filled: u64,
    /// Bytes of content in all, where that is known.
    pub len: Option<u64>,
    /// Bytes that it has reserved, content included.
    pub bytes: u64,
    /// When it was stored, Unix seconds.
    pub stored: i64,
    /// How often it was used of late: 0 to 3.
    pub uses: u8,
    /// Whether a soft purge has made it stale.
    pub is_expired: bool,
}
