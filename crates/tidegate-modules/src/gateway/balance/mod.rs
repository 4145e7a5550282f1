//! Upstream groups: which member gets a request, which are well, and what may be tried again.
//!
//! A [`Group`] is shared by the workers of a process. The rules are in `policy`, `health` and `budget`, which
//! have no clock, no lock and no socket; here they meet what is shared.

pub mod budget;
pub mod health;
pub mod policy;
