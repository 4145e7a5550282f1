//! Version 2: binary (section 2.2). Extensions (TLVs) are stepped over.

use super::{HEADER_MAX, Header, HeaderError};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// What every header begins with: no protocol that anybody speaks does.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED: usize = 16;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let is_proxied = match fixed[12] {
        0x20 => false,
        0x21 => true,
        _ => return Err(HeaderError::Command),
    };
    if FIXED + length > HEADER_MAX {
        return Err(HeaderError::TooLong);
    }
    let Some(rest) = bytes.get(FIXED..FIXED + length) else { return Ok(None) };
    let header = if is_proxied { proxied(fixed[13], rest)? } else { Header::Local };
    Ok(Some((header, FIXED + length)))
}

fn proxied(family: u8, rest: &[u8]) -> Result<Header, HeaderError> {
    let port = |at: usize| match rest.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(HeaderError::Short),
    };
    Ok(match family {
        0x11 => {
            let ip = |at: usize| {
                let bytes = rest.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                bytes.map(Ipv4Addr::from).ok_or(HeaderError::Short)
            };
            let source = SocketAddr::from((ip(0)?, port(8)?));
            Header::Proxied { source, destination: SocketAddr::from((ip(4)?, port(10)?)) }
        }
        0x21 => {
            let ip = |at: usize| {
                let bytes = rest.get(at..at + 16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                bytes.map(Ipv6Addr::from).ok_or(HeaderError::Short)
            };
            let source = SocketAddr::from((ip(0)?, port(32)?));
            Header::Proxied { source, destination: SocketAddr::from((ip(16)?, port(34)?)) }
        }
        // Datagrams, unix sockets, what is not specified and what is yet to come.
        _ => Header::Unnamed,
    })
}

pub(super) fn encode(header: &Header, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    match header {
        Header::Proxied { source: SocketAddr::V4(source), destination: SocketAddr::V4(destination) } => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
        Header::Proxied { source: SocketAddr::V6(source), destination: SocketAddr::V6(destination) } => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
        _ => out.extend_from_slice(&[0x20, 0, 0, 0]),
    }
}
