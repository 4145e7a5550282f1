//! `login` and `require`: the gates of a route behind which somebody has to be somebody.
//!
//! | part | what it does |
//! | --- | --- |
//! | `basic` | the gate that asks for a name and a password (RFC 7617) |
//! | `forward` | the gate that has an application decide |
//! | `assumed` | the gate in the place of `basic` where `explain` is told who has logged in |
//! | `certificate` | the gate that asks what the client is called by its certificate |
//! | `require` | the gate that asks who of them may go on |
//! | `signed` | the gate of URLs that were signed |
//! | `openid` | the gate that has an identity provider say who it is (OpenID Connect) |
//! | `token` | the gate that asks for a token (RFC 6750) |
//! | `jwt` | whether a token is good, and what it says |
//! | `fetched` | what a service publishes, kept here |
//! | `source` | where users are known |
//! | `questions` | what other threads look into, once and in turn |
//! | `guesses` | how often wrong passwords may be tried |
//! | `accounts` | who stands in password files |
//! | `store` | the sources of a process |
//! | `cache` | what is remembered of them (R9) |
//! | `directory` | asking a directory (LDAP) |
//! | `password` | comparing a password with its hash |
//!
//! Directories are asked by threads of their own. Passwords of files are compared on a lane of threads of their own, of low
//! priority: whatever is guessed there takes no time from requests that need no login.

mod accounts;
mod assumed;
mod basic;
mod cache;
mod certificate;
mod directory;
#[cfg(test)]
mod fake;
mod fetched;
mod forward;
mod guesses;
mod jwt;
mod openid;
mod password;
mod questions;
mod require;
mod signed;
mod source;
mod store;
mod tally;
mod token;

pub use assumed::{Assumed, AssumedGate};
pub use basic::BasicGate;
pub use certificate::CertificateGate;
pub use forward::ForwardGate;
pub use openid::fuzzing::fuzz_openid;
pub use openid::{OpenidGate, OwnCookies, Services};
pub use require::RequireGate;
pub use signed::{SignedFor, SignedGate, sign_url};
pub use source::{Source, login_lane};
pub use store::LoginStore;
pub use token::TokenGate;
