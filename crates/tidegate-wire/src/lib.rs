//! Wire formats without sockets: bytes in, events out, and the other way round.
//!
//! Every codec here is sans-io. It owns no socket, reads no clock and starts no thread; the engine and the
//! client feed it bytes and write what it encodes. Both roles, server and client, live side by side.

pub mod cgi;
pub mod fastcgi;
pub mod h1;
pub mod h2;
pub mod proxy_protocol;
pub mod scgi;

#[doc(hidden)]
pub mod fuzzing;
