//! The PROXY protocol, versions 1 and 2: a header in front of a connection in which a load balancer says who
//! the client is (the specification is HAProxy's `proxy-protocol.txt`, of 2020).
//!
//! The receiver knows before the first byte whether a header comes; nothing here guesses. Whom to believe is
//! for the caller.

mod v1;
mod v2;

use std::net::SocketAddr;
use thiserror::Error;

/// Bytes of a header at most: a version 2 header with extensions may be longer by its length field, and is
/// refused then. HAProxy's own buffer for it is smaller.
pub const HEADER_MAX: usize = 4 << 10;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The connection is relayed for a client.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// The address that the client has connected to.
        destination: SocketAddr,
    },
    /// The sender speaks for itself, as for a health check: the addresses of the socket hold.
    Local,
    /// The connection is relayed for a client that has no address, or none that is told. The addresses of the socket
    /// are the sender's, and nobody's who may be let in for them.
    Unnamed,
}

/// Why a header cannot be read; always the sender's doing. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The bytes are something else.
    #[error("the connection does not begin with a header of the PROXY protocol")]
    Missing,
    /// Version 1: the line is malformed.
    #[error("the PROXY line is malformed")]
    Line,
    /// Version 1: the line does not end within 107 bytes.
    #[error("the PROXY line is longer than 107 bytes")]
    LineTooLong,
    /// Version 2: another version or command than there are.
    #[error("the PROXY header has an unknown version or command")]
    Command,
    /// Version 2: shorter than the addresses that it announces.
    #[error("the PROXY header is shorter than its addresses")]
    Short,
    /// Version 2: longer than [`HEADER_MAX`].
    #[error("the PROXY header is longer than 4 KiB")]
    TooLong,
}

/// Reads a header. `Ok(None)`: more bytes are needed. `Ok(Some(_))`: the header and its length.
///
/// # Errors
/// The bytes begin no header, or one that is malformed, too long, or of an unknown version or command.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    if is_prefix(bytes, v2::SIGNATURE) {
        return v2::parse(bytes);
    }
    if is_prefix(bytes, v1::SIGNATURE) {
        return v1::parse(bytes);
    }
    Err(HeaderError::Missing)
}

/// Whether the bytes begin with the signature, as far as there are any.
fn is_prefix(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, due)| byte == due)
}

/// Writes a header of version 2.
pub fn encode(header: &Header, out: &mut Vec<u8>) {
    v2::encode(header, out);
}

/// Writes a header of version 1.
pub fn encode_line(header: &Header, out: &mut Vec<u8>) {
    v1::encode(header, out);
}
