//! How a connection begins.

/// How a connection begins, as its listener has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// With a request.
    Plain,
    /// With a TLS handshake.
    Tls,
    /// With a header of the PROXY protocol, and then a request or a handshake.
    Proxy {
        /// Whether a handshake follows.
        then_tls: bool,
    },
}
