//! The reactor: readiness, timers, a single-thread executor, sockets, files and a pool for calls that block.
//!
//! The only crate that may hold `unsafe`. It knows no HTTP and no settings: `tidegate-core` builds its
//! workers out of these parts.

pub mod accept_queue;
pub mod allocator;
pub mod blocking;
pub mod clock;
pub mod connect;
pub mod descriptors;
mod device_queues;
mod executor;
pub mod file;
pub mod file_memory;
pub mod lane;
mod links;
pub mod locking;
mod mapping;
pub mod notify;
pub mod off_limits;
pub mod oneshot;
pub mod paged;
pub mod parked;
pub mod parts;
pub mod passing;
pub mod pipe;
pub mod poller;
pub mod process;
pub mod regular;
mod root;
pub mod runtime;
pub mod sealed;
pub mod shared;
pub mod shared_bytes;
mod shared_roots;
pub mod slab;
pub mod socket;
pub mod spawn;
pub mod syscall_filter;
pub mod timer;
pub mod unanswered;
pub mod usage;
pub mod watched;
pub mod wheel;

pub use poller::{Kind, Poller, Ready, Registry};
pub use runtime::{LocalFuture, Remote, Runtime};
pub use slab::{Key, Slab};
pub use wheel::Wheel;
