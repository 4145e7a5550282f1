//! A stored response: a head that never changes, and its content.

use crate::content::Content;
use std::sync::Arc;
use tidegate_http::FieldLines;
use tidegate_http::cache::{Freshness, Varying};

/// What is stored of a response beside its content, and what purges know it by.
#[derive(Debug, Clone)]
pub struct StoredHead {
    /// The status code.
    pub status: u16,
    /// The fields as they are stored (`tidegate_http::cache::stored_fields`).
    pub lines: FieldLines,
    /// How long and how it may be used.
    pub freshness: Freshness,
    /// The requests that it is for.
    pub varying: Varying,
    /// What it is purged by beside its place: made by [`tag_mark`](crate::tag_mark) and [`group_mark`](crate::group_mark), 128 at
    /// most; more are not looked at.
    pub tags: Box<[u64]>,
    /// The host that was asked, as in the key: normalised, with a port where it is not the scheme's own.
    pub host: Box<str>,
    /// The target that was asked for: path and query.
    pub target: Box<str>,
}

/// A stored response. It never changes; what replaces it is another one.
pub struct Entry {}

impl Entry {
    /// What it says.
    pub fn head(&self) -> &StoredHead {
        todo!()
    }

    /// How it may be used: that of its head, expired by a soft purge where there was one.
    pub fn freshness(&self, now: i64) -> Freshness {
        let _ = now;
        todo!()
    }

    /// What it holds. May still be coming in.
    pub fn content(&self) -> &Arc<Content> {
        todo!()
    }

    /// The key that it is stored under.
    pub fn key(&self) -> &[u8] {
        todo!()
    }

    /// It has been of use. A load, and seldom a store: for every hit.
    #[inline]
    pub fn touch(&self) {
        todo!()
    }

    /// Whether it is what the store would answer now: neither purged (softly neither) nor replaced nor evicted. Two loads.
    #[inline]
    pub fn is_current(&self) -> bool {
        todo!()
    }

    /// Tells it from all others of this process.
    pub fn id(&self) -> u64 {
        todo!()
    }
}
