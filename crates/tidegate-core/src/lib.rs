//! The engine: what accepts, reads, routes, answers and logs.
//!
//! It knows the settings and the protocols and names no module: handlers and filters come from a
//! [`worker::Registry`] that the binary provides. `ARCHITECTURE.md` follows a request through the files.

pub mod access;
pub mod admission;
mod ahead;
pub mod answer;
pub mod body;
pub mod conn;
pub mod decoration;
pub mod exchange;
pub mod explain;
pub mod interim;
pub mod listen;
pub mod log;
pub mod memory;
pub mod phase;
pub mod remote;
pub mod response;
#[doc(hidden)]
pub mod solo;
pub mod subrequest;
pub mod template;
pub mod tls;
pub mod worker;

pub use access::Pass;
pub use exchange::{Exchange, ExchangeContext, Filter, Handler, Reply};
pub use remote::Remote;
pub use response::{Author, Body, BodyStream, Head, Message, Part, Response};
pub use subrequest::{Elsewhere, Handed};
