//! Names of hosts: which site answers for an authority, and which names are the server's.

use crate::template::host_of;
use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv6Addr;
use tidegate_config::settings::{self, HostPattern, Settings};

/// The longest host name that is looked up, bytes (RFC 1035 section 2.3.4 allows 253).
const HOST_MAX: usize = 255;

/// Names, each with the place of what it stands for.
#[derive(Debug, Default)]
pub struct Names {
    exact: HashMap<Box<str>, usize>,
    /// `.example.com`, longest first.
    suffixes: Vec<(Box<str>, usize)>,
}

impl Names {
    /// Of names that stand twice the first one counts.
    pub fn new<'s>(names: impl Iterator<Item = (&'s HostPattern, usize)>) -> Names {
        let mut exact = HashMap::new();
        let mut suffixes: Vec<(Box<str>, usize)> = Vec::new();
        for (name, index) in names {
            match name {
                HostPattern::Exact(name) => drop(exact.entry(name.as_str().into()).or_insert(index)),
                HostPattern::Suffix(suffix) => suffixes.push((suffix.as_str().into(), index)),
            }
        }
        suffixes.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        Names { exact, suffixes }
    }

    /// The place behind the host of `authority` (host and port).
    ///
    /// # Errors
    /// The host is longer than any name, or nothing has this name.
    pub fn find(&self, authority: &str) -> Result<usize, NotNamed> {
        let host = name_of(authority);
        let mut lower = [0; HOST_MAX];
        let lower = lower.get_mut(..host.len()).ok_or(NotNamed::TooLong)?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let mut address = [0; ADDRESS_MAX];
        let host = std::str::from_utf8(lower).ok();
        let host = host.map(|host| address_literal(host, &mut address).unwrap_or(host));
        host.and_then(|host| self.written(host)).ok_or(NotNamed::Unknown)
    }

    /// The place behind a host that is written as names are.
    fn written(&self, host: &str) -> Option<usize> {
        self.exact.get(host).copied().or_else(|| {
            let longer = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
            self.suffixes.iter().find(|(suffix, _)| longer(suffix)).map(|(_, index)| *index)
        })
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.suffixes.is_empty()
    }
}

/// Why a host has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNamed {
    /// It is longer than any name.
    TooLong,
    /// Nothing has this name.
    Unknown,
}

/// Sites behind their names, by their place in the settings.
pub(crate) struct Hosts {
    names: Names,
    /// For each listener, what answers when no name matches.
    defaults: Vec<usize>,
}

impl Hosts {
    /// Puts the sites, in the order of the settings, behind their names.
    pub(crate) fn new<'s>(settings: &Settings, sites: impl Iterator<Item = &'s settings::Site>) -> Hosts {
        let sites: Vec<_> = sites.enumerate().collect();
        let nameless = sites.iter().find(|(_, site)| site.names.is_empty()).map(|(index, _)| *index);
        let names = sites.iter().flat_map(|(index, site)| site.names.iter().map(move |name| (name, *index)));
        let names = Names::new(names);
        let default = |listener: &settings::Listener| {
            let named = listener.default_site.as_deref();
            named.and_then(|name| names.written(name)).or(nameless).unwrap_or(0)
        };
        let defaults = settings.listeners.iter().map(default).collect();
        Hosts { names, defaults }
    }

    /// The place of the site that answers for `authority` (host and port) on a listener, and why it is that one.
    #[inline]
    pub(crate) fn site_index(&self, listener: usize, authority: &str) -> (usize, &'static str) {
        let default = self.defaults.get(listener).copied().unwrap_or(0);
        if self.names.is_empty() {
            return (default, "the only one that can answer");
        }
        self.named_index(default, authority)
    }

    fn named_index(&self, default: usize, authority: &str) -> (usize, &'static str) {
        match self.names.find(authority) {
            Ok(index) => (index, "the host name matches"),
            Err(NotNamed::TooLong) => (default, "the default: the host name is too long to be one of ours"),
            Err(NotNamed::Unknown) => (default, "the default of the listener: no site has this host name"),
        }
    }
}

/// Room for an IPv6 address in brackets.
const ADDRESS_MAX: usize = 48;

/// An IPv6 address in brackets, written the one way that names of sites are (RFC 5952).
fn address_literal<'b>(host: &str, out: &'b mut [u8; ADDRESS_MAX]) -> Option<&'b str> {
    let address: Ipv6Addr = host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let mut rest = out.as_mut_slice();
    write!(rest, "[{address}]").ok()?;
    let left = rest.len();
    std::str::from_utf8(out.get(..ADDRESS_MAX - left)?).ok()
}

/// The host that sites are known by: without the port, and without the dot that ends a full name.
pub fn name_of(authority: &str) -> &str {
    let host = host_of(authority);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (authority, host) in [
            ("example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(name_of(authority), host);
        }
    }

    #[test]
    fn a_host_is_found_however_it_is_written() {
        let names = ["a.test", "[2001:db8::1]"].map(|name| HostPattern::Exact(name.into()));
        let suffixes = [".b.test", ".deep.b.test"].map(|name| HostPattern::Suffix(name.into()));
        let names = Names::new(names.iter().chain(&suffixes).zip(0..));
        for (authority, found) in [
            ("A.Test:80", Ok(0)),
            ("a.test.", Ok(0)),
            ("[2001:DB8:0::1]:443", Ok(1)),
            ("x.b.test", Ok(2)),
            ("x.deep.b.test", Ok(3)),
            ("b.test", Err(NotNamed::Unknown)),
            ("", Err(NotNamed::Unknown)),
        ] {
            assert_eq!(names.find(authority), found, "{authority}");
        }
        assert_eq!(names.find(&"a".repeat(HOST_MAX + 1)), Err(NotNamed::TooLong));
    }
}
