//! Purging: by URL, prefix, host, tag, group, and all.

/// What is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge<'a> {
    /// Everything.
    All,
    /// All that is stored for this target, whatever scheme, variant or cookies it was for.
    Url {
        /// As in [`StoredHead::host`](crate::StoredHead::host).
        host: &'a str,
        /// Path and query.
        target: &'a str,
    },
    /// All whose target begins with this.
    Prefix {
        /// As in [`StoredHead::host`](crate::StoredHead::host).
        host: &'a str,
        /// The beginning of paths: `/news/`, or `/news` for `/newsletter` as well.
        prefix: &'a str,
    },
    /// All of a host.
    Host(&'a str),
    /// What has this mark: [`tag_mark`] or [`group_mark`].
    Mark(u64),
}

/// What a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// Its number; purges are counted.
    pub number: u64,
}

/// The mark of a tag of a site.
pub fn tag_mark(site: &str, tag: &[u8]) -> u64 {
    let _ = (site, tag);
    todo!()
}

/// The mark of a cache group of an origin (RFC 9875), such as `https://example.org`.
pub fn group_mark(origin: &str, group: &[u8]) -> u64 {
    let _ = (origin, group);
    todo!()
}
