//! The engine: what accepts, reads, routes, answers and logs.
//!
//! It knows the settings and the protocols and names no module: handlers and filters come from a
//! [`worker::Registry`] that the binary provides. `ARCHITECTURE.md` follows a request through the files.

pub mod admission;
mod ahead;
pub mod answer;
pub mod body;
pub mod conn;
pub mod exchange;
pub mod interim;
pub mod listen;
pub mod log;
pub mod phase;
pub mod response;
#[doc(hidden)]
pub mod solo;
pub mod tls;
pub mod worker;

pub use exchange::{Elsewhere, Exchange, ExchangeContext, Filter, Handler, Reply};
pub use response::{Body, BodyStream, Head, Message, Part, Response};
