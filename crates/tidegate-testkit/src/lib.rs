//! Transcripts: behaviour tests as small text files, run against a real server on a real socket.
//!
//! A transcript makes files, starts the server with a configuration, speaks to it as one or more clients and
//! says what has to come back. The format is described in `tests/transcripts/README.md`. [`Transcript::parse`]
//! reads one, [`Transcript::run`] plays it against whatever a [`Launch`] starts: the real binary
//! ([`Binary`]), or a scripted server in the tests of this crate.
//!
//! Used by tests only. It shares no code with the server: it has its own reader of HTTP/1 responses, so that
//! a mistake in the codec cannot hide itself.

mod backend;
mod client;
mod condition;
mod fixture;
mod h2;
mod pattern;
mod process;
pub mod random;
mod response;
mod run;
mod step;
mod tls;
mod token;
mod transcript;
mod wait;

pub use process::{Binary, Launch, Log, Outcome, Place, Running, Signal};
pub use transcript::{ParseError, Transcript};
pub use wait::{WAIT, is_running, wait_for};
