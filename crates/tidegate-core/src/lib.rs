//! The engine: what accepts, reads, routes, answers and logs.
//!
//! It knows the settings and the protocols and names no module: handlers and filters come from a
//! [`worker::Registry`] that the binary provides. `ARCHITECTURE.md` follows a request through the files.

pub mod access;
pub mod access_data;
pub mod admission;
mod ahead;
pub mod answer;
pub mod apart;
mod batch;
pub mod body;
pub mod body_stream;
mod busiest;
mod client_head;
pub mod client_names;
mod condition;
pub mod conn;
mod context;
pub mod cors;
mod crowd;
pub mod decoration;
pub mod engine;
pub mod exchange;
pub mod explain;
pub mod filter;
mod filtering;
pub mod gate;
pub mod handler;
pub mod hosts;
mod https;
pub mod interim;
mod kept;
mod limits;
pub mod listen;
pub mod log;
pub mod memory;
mod notes;
mod opening;
mod phase;
pub mod rate;
mod recent;
mod registry;
pub mod remote;
pub mod reply;
mod request_values;
pub mod response;
pub mod selection;
pub mod series;
mod server_timing;
mod signals;
pub mod site;
#[doc(hidden)]
mod slow;
pub mod solo;
mod spans;
pub mod state;
pub mod subrequest;
mod tail;
pub mod template;
pub mod tls;
pub mod trace;
pub mod trace_context;
pub mod user;
pub mod worker;

pub use body_stream::{BodyStream, Chunk};
pub use engine::Engine;
pub use exchange::Exchange;
pub use filter::{Filter, ResponseFilter};
pub use gate::{Gate, Pass, Verdict};
pub use handler::Handler;
pub use remote::Remote;
pub use reply::{Need, Reply};
pub use response::{Author, Body, Head, Message, Part, Response};
pub use site::{Route, Site};
pub use state::RequestState;
pub use subrequest::{InternalRedirect, MayStore};
