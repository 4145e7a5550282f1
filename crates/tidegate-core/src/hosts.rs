//! Names of hosts: which site answers for an authority.

use crate::template::host_of;
use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv6Addr;
use tidegate_config::settings::{self, HostPattern, Settings};

/// The longest host name that is looked up, bytes (RFC 1035 section 2.3.4 allows 253).
const HOST_MAX: usize = 255;

/// Sites behind their names, by their place in the settings.
pub(crate) struct Hosts {
    exact: HashMap<Box<str>, usize>,
    /// `.example.com`, longest first.
    suffixes: Vec<(Box<str>, usize)>,
    /// For each listener, what answers when no name matches.
    defaults: Vec<usize>,
}

impl Hosts {
    /// Puts the sites, in the order of the settings, behind their names.
    pub(crate) fn new<'s>(settings: &Settings, sites: impl Iterator<Item = &'s settings::Site>) -> Hosts {
        let mut exact = HashMap::new();
        let mut suffixes: Vec<(Box<str>, usize)> = Vec::new();
        let mut nameless = None;
        for (index, site) in sites.enumerate() {
            if site.names.is_empty() {
                nameless.get_or_insert(index);
            }
            for name in &site.names {
                match name {
                    HostPattern::Exact(name) => drop(exact.entry(name.as_str().into()).or_insert(index)),
                    HostPattern::Suffix(suffix) => suffixes.push((suffix.as_str().into(), index)),
                }
            }
        }
        suffixes.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        let defaults = settings
            .listeners
            .iter()
            .map(|listener| {
                let named = listener.default_site.as_deref();
                named.and_then(|name| find(&exact, &suffixes, name)).or(nameless).unwrap_or(0)
            })
            .collect();
        Hosts { exact, suffixes, defaults }
    }

    /// The place of the site that answers for `authority` (host and port) on a listener, and why it is that one.
    #[inline]
    pub(crate) fn site_index(&self, listener: usize, authority: &str) -> (usize, &'static str) {
        let default = self.defaults.get(listener).copied().unwrap_or(0);
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return (default, "the only one that can answer");
        }
        self.named_index(default, authority)
    }

    fn named_index(&self, default: usize, authority: &str) -> (usize, &'static str) {
        let host = name_of(authority);
        let mut lower = [0; HOST_MAX];
        let Some(lower) = lower.get_mut(..host.len()) else {
            return (default, "the default: the host name is too long to be one of ours");
        };
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let mut address = [0; ADDRESS_MAX];
        let host = std::str::from_utf8(lower).ok();
        let host = host.map(|host| address_literal(host, &mut address).unwrap_or(host));
        let found = host.and_then(|host| find(&self.exact, &self.suffixes, host));
        match found {
            Some(index) => (index, "the host name matches"),
            None => (default, "the default of the listener: no site has this host name"),
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

fn find(exact: &HashMap<Box<str>, usize>, suffixes: &[(Box<str>, usize)], host: &str) -> Option<usize> {
    exact.get(host).copied().or_else(|| {
        let longer = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
        suffixes.iter().find(|(suffix, _)| longer(suffix)).map(|(_, index)| *index)
    })
}

/// The host that sites are known by: without the port, and without the dot that ends a full name.
pub(crate) fn name_of(authority: &str) -> &str {
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
}
