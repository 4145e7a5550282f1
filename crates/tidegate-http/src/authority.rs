//! Host and port, as in the `Host` field and in absolute request targets (RFC 9110 sections 4.2 and 7.2,
//! RFC 3986 section 3.2).
//!
//! Called by the codecs and by the choice of a site.

use std::net::Ipv6Addr;

use crate::decimal::parse_decimal;

/// A host with or without a port. Userinfo is not part of it: RFC 9110 section 4.2.4 has it refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// A registered name, an IPv4 address, or an IPv6 address in its brackets; as sent, never empty.
    pub host: &'a str,
    /// `None` when there is none, or nothing behind the colon.
    pub port: Option<u16>,
}

/// What the peer got wrong. All of these are answered with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// Nothing before the port, or nothing but a dot.
    #[error("the host is empty")]
    EmptyHost,
    /// A byte that no host name has, or a broken percent-encoding.
    #[error("the host holds a character that is not allowed there")]
    InvalidHost,
    /// Brackets around something that is no IPv6 address.
    #[error("the address in brackets is not an IPv6 address")]
    InvalidAddress,
    /// Not a number up to 65535.
    #[error("the port is not a number up to 65535")]
    InvalidPort,
    /// `user@host`.
    #[error("user information before the host is not allowed")]
    Userinfo,
}

impl<'a> Authority<'a> {
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`.
    ///
    /// # Errors
    /// The host is empty or not valid, the brackets hold no IPv6 address, the port is no number up to 65535,
    /// or there is user information.
    #[inline]
    pub fn parse(value: &'a [u8]) -> Result<Authority<'a>, AuthorityError> {
        let (host, port) = match value {
            [b'[', ..] => split_bracketed(value)?,
            _ => split_name(value)?,
        };
        let port = match port {
            [] => None,
            digits => Some(
                parse_decimal(digits)
                    .and_then(|number| u16::try_from(number).ok())
                    .ok_or(AuthorityError::InvalidPort)?,
            ),
        };
        // Both ways of splitting let ASCII through only.
        let host = std::str::from_utf8(host).map_err(|_| AuthorityError::InvalidHost)?;
        Ok(Authority { host, port })
    }
}

/// Host and digits of the port. The address is checked.
fn split_bracketed(value: &[u8]) -> Result<(&[u8], &[u8]), AuthorityError> {
    let close = memchr::memchr(b']', value).ok_or(AuthorityError::InvalidAddress)?;
    let address = std::str::from_utf8(&value[1..close]).map_err(|_| AuthorityError::InvalidAddress)?;
    address.parse::<Ipv6Addr>().map_err(|_| AuthorityError::InvalidAddress)?;
    let port = match &value[close + 1..] {
        [] => &[],
        [b':', port @ ..] => port,
        rest if rest.contains(&b'@') => return Err(AuthorityError::Userinfo),
        _ => return Err(AuthorityError::InvalidPort),
    };
    Ok((&value[..=close], port))
}

/// Host and digits of the port. The host is checked.
fn split_name(value: &[u8]) -> Result<(&[u8], &[u8]), AuthorityError> {
    let end = value.iter().position(|&byte| !is_reg_name_byte(byte)).unwrap_or(value.len());
    let host = &value[..end];
    let port = match &value[end..] {
        [] => &[],
        rest if rest.contains(&b'@') => return Err(AuthorityError::Userinfo),
        [b':', port @ ..] => port,
        _ => return Err(AuthorityError::InvalidHost),
    };
    if matches!(host, [] | [b'.']) {
        return Err(AuthorityError::EmptyHost);
    }
    if !has_valid_percents(host) {
        return Err(AuthorityError::InvalidHost);
    }
    Ok((host, port))
}

/// Unreserved characters, sub-delimiters and the percent sign (RFC 3986 section 3.2.2).
#[inline]
fn is_reg_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

fn has_valid_percents(mut host: &[u8]) -> bool {
    while let Some(percent) = memchr::memchr(b'%', host) {
        match &host[percent + 1..] {
            [high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => host = rest,
            _ => return false,
        }
    }
    true
}
