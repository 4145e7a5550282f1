//! The store of the response cache: what was fetched once is handed to many, from memory, while it is still coming in.
//!
//! A [`Store`] finds what is stored under a key ([`Store::look_up`]), has one request fetch what all of them want
//! ([`Store::join`]), and keeps it within an exact limit of memory: bytes are reserved before they are allocated and given back
//! when the last who holds them lets go. A [`Fill`] brings in content block by block, [`Reader`]s follow it at their own speed.
//! [`Store::purge`] takes as long for a million entries as for one.
//!
//! Below the memory there may be disks (`tier`): what is complete is written to them behind everybody's back, and what the memory does not have
//! any more is read in again.
//!
//! Called by the handler that stands before applications, by the sandbox and by operators; used by the worker threads of a
//! process together. It knows no socket and reads no clock, but for how long a disk takes: whoever calls says what time it is, in Unix seconds. What may be
//! stored and how it may be used, `tidegate_http::cache` decides.
//!
//! Locks: those of a shard of the index, of the eviction queues, of a flight and of a content are never held together. That of the
//! purges may be taken below that of a shard, and nothing below it, so there is no order that could be broken. Wakers are woken, and
//! entries dropped, outside of all.

mod backing;
mod budget;
mod content;
pub mod disk;
mod encoding;
mod entry;
mod figures;
mod fill;
mod flight;
#[doc(hidden)]
pub mod fuzzing;
mod ghost;
mod index;
mod passes;
mod purge;
mod reader;
pub mod s3fifo;
mod store;
mod stored_file;
mod tier;

pub use backing::InFile;
pub use content::{Content, Sent};
pub use entry::{Entry, StoredHead};
pub use figures::{Figures, Filter, Listed};
pub use fill::{Fill, Full};
pub use flight::{Flight, Join, Landing, Lead};
pub use purge::ring::PurgeRing;
pub use purge::{Change, Origin, Purge, Purged, any_port, group_mark, meant_hosts, site_mark, tag_mark};
pub use reader::{Next, Reader};
pub use store::{CopyRoom, Found, Limits, Store, Swept, Unstorable};
pub use stored_file::StoredFile;
pub use tier::{Awaited, DiskListed, OnDisk, Verified};
