//! `login` and `require`: the gates of a route behind which somebody has to be somebody.
//!
//! | part | what it does |
//! | --- | --- |
//! | `basic` | the gate that asks for a name and a password (RFC 7617), and the one that asks who may go on |
//! | `source` | where users are known, and what is remembered of them (R8) |
//! | `password` | comparing a password with its hash |
//!
//! Passwords are compared on a lane of threads of their own, of low priority: whatever is guessed there takes no time
//! from requests that need no login.

mod basic;
mod password;
mod source;

pub use basic::{BasicGate, RequireGate};
pub use source::{LoginStore, Source};
