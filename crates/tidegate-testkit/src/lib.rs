//! Transcripts: behaviour tests as small text files, run against a real server on a real socket.
//!
//! A transcript makes files, starts the server with a configuration, speaks to it as one or more clients and
//! says what has to come back. The format is described in `tests/transcripts/README.md`. [`Transcript::parse`]
//! reads one, [`Transcript::run`] plays it against whatever a [`Launch`] starts: the real binary
//! ([`Binary`]), or a scripted server in the tests of this crate.
//!
//! Without the feature `server` it is [`wait_for`] and its like alone, which the tests of every crate use: no test waits for
//! anything without an end.
//!
//! Used by tests only. It shares no code with the server: it has its own reader of HTTP/1 responses, so that
//! a mistake in the codec cannot hide itself.

#[cfg(feature = "server")]
mod backend;
#[cfg(feature = "server")]
mod client;
#[cfg(feature = "server")]
mod condition;
#[cfg(feature = "server")]
mod dns;
#[cfg(feature = "server")]
mod fixture;
#[cfg(feature = "server")]
mod h2;
#[cfg(feature = "server")]
mod pattern;
#[cfg(feature = "server")]
mod process;
#[cfg(feature = "server")]
pub mod random;
mod reach;
#[cfg(feature = "server")]
mod response;
#[cfg(feature = "server")]
mod run;
#[cfg(feature = "server")]
mod step;
#[cfg(feature = "server")]
mod tls;
#[cfg(feature = "server")]
mod token;
#[cfg(feature = "server")]
mod transcript;
mod wait;

#[cfg(feature = "server")]
pub use dns::NameServer;
#[cfg(feature = "server")]
pub use process::{Binary, Launch, Log, Outcome, Place, Running, Signal};
pub use reach::{NOBODY, folder_apart, reachable};
#[cfg(feature = "server")]
pub use transcript::{ParseError, Transcript};
pub use wait::{InTime, OverWhenDropped, WAIT, accept, block_on, is_running, join, receive, wait_for};
