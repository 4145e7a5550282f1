//! The URL of a service that the server itself asks, and whom it believes: `https`, or `http` on this machine.

use super::{ValueError, names};
use crate::settings::HostPattern;
use std::net::IpAddr;

/// A URL that was taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceUrl {
    /// As it was written.
    pub url: String,
    /// Whether TLS is spoken.
    pub is_secure: bool,
    /// A name, or an address without brackets.
    pub host: String,
    /// Not 0.
    pub port: u16,
    /// The host, and the port where it was written.
    pub authority: String,
    /// With the query; empty where none was written.
    pub path: String,
}

impl ServiceUrl {
    /// The address, where the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match &*self.host {
            "localhost" => Some(std::net::Ipv4Addr::LOCALHOST.into()),
            host => host.parse().ok(),
        }
    }
}

/// Whether a text is meant to be such a URL.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// The host of the address of a collector, which may be on any scheme of the two, and has no query; `None`: it is none.
pub(crate) fn collector_host(text: &str) -> Option<String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let url = url(&format!("https://{rest}")).ok()?;
    (!url.path.contains('?')).then_some(url.host)
}

/// Reads one.
pub(super) fn url(text: &str) -> Result<ServiceUrl, ValueError> {
    let bad =
        |why: &str, help: &str| Err(ValueError::new(format!("`{text}` is no address to ask: {why}"), help));
    const HELP: &str = "write it as `\"https://id.example.com/keys\"`";
    let (is_secure, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        _ => return bad("it does not begin with `https://`", HELP),
    };
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if !path.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\"<>\\".contains(&byte))
        || path.starts_with('?')
    {
        return bad("its path holds what cannot stand in one", "encode it as %XX, and leave out `#`");
    }
    if authority.contains('@') {
        return bad("it holds a user", "leave it out");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => match port.parse::<u16>() {
            Ok(port) if port > 0 => (host, port),
            _ => return bad("the port is no number from 1 to 65535", HELP),
        },
        _ => (authority, if is_secure { 443 } else { 80 }),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip: Option<IpAddr> = bare.parse().ok();
    let is_name = || matches!(names::host(host), Ok(HostPattern::Exact(_)));
    let fits = match ip {
        Some(ip) => ip.is_ipv6() == is_bracketed && !ip.is_unspecified(),
        None => !is_bracketed && is_name(),
    };
    if !fits {
        return bad("it names no host", HELP);
    }
    if !is_secure && host != "localhost" && !ip.is_some_and(|ip| ip.is_loopback()) {
        return bad(
            "whoever stands on the way could put keys of his own in their place",
            "write `https://`; `http://` is for this machine alone: `\"http://127.0.0.1:8080/keys\"`",
        );
    }
    Ok(ServiceUrl {
        url: text.to_owned(),
        is_secure,
        host: bare.to_ascii_lowercase(),
        port,
        authority: authority.to_ascii_lowercase(),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_asked() {
        for (text, expected) in [
            ("https://id.example.com/keys?p=a", Some("true id.example.com 443 id.example.com /keys?p=a")),
            ("https://ID.example.com", Some("true id.example.com 443 id.example.com ")),
            ("https://id.example.com:8443/", Some("true id.example.com 8443 id.example.com:8443 /")),
            ("https://[2001:db8::1]:8443/k", Some("true 2001:db8::1 8443 [2001:db8::1]:8443 /k")),
            ("https://192.0.2.1/k", Some("true 192.0.2.1 443 192.0.2.1 /k")),
            ("http://127.0.0.1:80/k", Some("false 127.0.0.1 80 127.0.0.1:80 /k")),
            ("http://[::1]/k", Some("false ::1 80 [::1] /k")),
            ("http://localhost:1/k", Some("false localhost 1 localhost:1 /k")),
            ("http://id.example.com/k", None),
            ("http://192.0.2.1/k", None),
            ("http://127.0.0.1.example.com/k", None),
            ("ftp://127.0.0.1/k", None),
            ("https://", None),
            ("https:///k", None),
            ("https://*.example.com/k", None),
            ("https://user@id.example.com/k", None),
            ("https://id.example.com:0/k", None),
            ("https://id.example.com:x/k", None),
            ("https://id.example.com/k#a", None),
            ("https://id.example.com/a b", None),
            ("https://id.example.com?x", None),
            ("https://0.0.0.0/k", None),
            ("https://::1/k", None),
        ] {
            let read = url(text).ok().map(|url| {
                let ServiceUrl { is_secure, host, port, authority, path, .. } = url;
                format!("{is_secure} {host} {port} {authority} {path}")
            });
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
