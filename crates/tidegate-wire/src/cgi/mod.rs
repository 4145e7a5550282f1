//! CGI/1.1 (RFC 3875): the variables that tell an application of a request, and the head that it answers.
//!
//! CGI, FastCGI and SCGI share both. [`Environment`] is written once for all three, into whatever carries
//! it; [`parse_head`] reads what comes back. A script whose output begins with a status line of HTTP
//! (non-parsed headers) is understood as well.

mod environment;
mod response;

pub use environment::{ClientCertificate, Environment, Sink, is_passed_on, is_unambiguous};
pub use response::{CgiError, CgiHead, Redirect, parse_head};
