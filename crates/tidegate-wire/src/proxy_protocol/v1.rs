//! Version 1: one line of text (section 2.1).

use super::{Header, HeaderError};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// What every line begins with.
pub(super) const SIGNATURE: &[u8] = b"PROXY ";
/// The longest line with its end.
const LINE_MAX: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let seen = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() >= LINE_MAX { Err(HeaderError::LineTooLong) } else { Ok(None) };
    };
    let line = std::str::from_utf8(seen.get(..end).unwrap_or_default()).map_err(|_| HeaderError::Line)?;
    let rest = line.strip_prefix("PROXY ").ok_or(HeaderError::Line)?;
    Ok(Some((header(rest)?, end + 2)))
}

fn header(rest: &str) -> Result<Header, HeaderError> {
    // Whatever follows is to be ignored.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Ok(Header::Unnamed);
    }
    let mut words = rest.split(' ');
    let mut next = || words.next().ok_or(HeaderError::Line);
    let (family, source, destination) = (next()?, next()?, next()?);
    let (source_port, destination_port) = (next()?, next()?);
    if words.next().is_some() {
        return Err(HeaderError::Line);
    }
    let address = |text: &str| -> Result<IpAddr, HeaderError> {
        let address: IpAddr = text.parse().map_err(|_| HeaderError::Line)?;
        let fits = match family {
            "TCP4" => address.is_ipv4(),
            "TCP6" => address.is_ipv6(),
            _ => false,
        };
        if fits { Ok(address) } else { Err(HeaderError::Line) }
    };
    Ok(Header::Proxied {
        source: SocketAddr::new(address(source)?, port(source_port)?),
        destination: SocketAddr::new(address(destination)?, port(destination_port)?),
    })
}

/// Decimal, without sign and without leading zeros.
fn port(text: &str) -> Result<u16, HeaderError> {
    let is_canonical =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_canonical).ok_or(HeaderError::Line)
}

pub(super) fn encode(header: &Header, out: &mut Vec<u8>) {
    // Writing to a `Vec` cannot fail.
    let _ = match header {
        Header::Proxied { source, destination } if source.is_ipv4() == destination.is_ipv4() => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        }
        _ => write!(out, "PROXY UNKNOWN\r\n"),
    };
}
