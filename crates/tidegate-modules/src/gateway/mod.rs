//! Applications behind the server: who starts and watches them, who waits for them, who speaks to them.
//!
//! `places` is the queue before a pool, an upstream or one of its members, shared by the workers of a
//! process. A worker never waits for an application: it asks for a place, and the future that holds the
//! request waits. `directory` is how the workers see the pools.

mod abandon;
mod about;
mod answer;
mod attempts;
mod backlog;
pub mod balance;
mod call;
pub mod cgi;
pub mod claims;
mod complaints;
pub mod consult;
pub mod environment;
pub mod fields;
mod gather;
mod head_deadlines;
pub mod link;
mod multiplexed;
pub mod places;
mod pool;
pub mod pool_directory;
mod pool_messages;
pub mod proxy;
pub mod question;
mod redirects;
pub mod script;
mod script_fault;
pub mod scripted;
pub mod sendfile;
pub mod service;
pub mod spill;
mod stream;
pub mod supervise;
mod tunnel;
mod upload;
pub mod upstream;
pub mod via;
