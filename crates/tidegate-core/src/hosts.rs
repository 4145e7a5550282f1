//! Names of hosts: which site answers for an authority, and which names are the server's.

use std::borrow::Cow;
use std::collections::HashMap;
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
        let host = host(authority);
        if host.len() > HOST_MAX {
            return Err(NotNamed::TooLong);
        }
        self.written(&host).ok_or(NotNamed::Unknown)
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
    /// For each listener, what answers when no name matches; [`NONE`] where nothing does. The last is for connections
    /// whose listener is not in force any more: they are on none, so that no site that is bound to one answers.
    defaults: Vec<usize>,
    /// For each of them the names that are known there, where sites are bound to listeners.
    bound: Vec<Names>,
}

/// No site's place.
const NONE: usize = usize::MAX;
/// Why that is.
const NOWHERE: &str = "no site answers on this listener";

impl Hosts {
    /// Puts the sites, in the order of the settings, behind their names.
    pub(crate) fn new<'s>(settings: &Settings, sites: impl Iterator<Item = &'s settings::Site>) -> Hosts {
        let sites: Vec<_> = sites.enumerate().collect();
        let names_of = |is_known: &dyn Fn(&settings::Site) -> bool| {
            let known = sites.iter().filter(|(_, site)| is_known(site));
            Names::new(known.flat_map(|(index, site)| site.names.iter().map(move |name| (name, *index))))
        };
        let names = names_of(&|_| true);
        let is_on = |site: &settings::Site, listener: Option<&settings::Listener>| match listener {
            Some(listener) => site.is_on(listener),
            None => site.bound.is_empty(),
        };
        let default = |listener: Option<&settings::Listener>| {
            let there = || sites.iter().filter(|(_, site)| is_on(site, listener));
            let named = listener.and_then(|listener| names.written(listener.default_site.as_deref()?));
            let named = named.and_then(|named| there().find(|(index, _)| *index == named));
            let nameless = || there().find(|(_, site)| site.names.is_empty());
            let site = named.or_else(nameless).or_else(|| there().next());
            site.map_or(NONE, |(index, _)| *index)
        };
        let listeners = || settings.listeners.iter().map(Some).chain([None]);
        let is_bound = sites.iter().any(|(_, site)| !site.bound.is_empty());
        let names_on = |listener| names_of(&|site| is_on(site, listener));
        let bound = listeners().filter(|_| is_bound).map(names_on).collect();
        let defaults = listeners().map(default).collect();
        Hosts { names, defaults, bound }
    }

    /// The place of the site that answers for `authority` (host and port) on a listener, and why it is that one. What is as
    /// large as there are listeners is that of none.
    #[inline]
    pub(crate) fn site_index(&self, listener: usize, authority: &str) -> (usize, &'static str) {
        let default = self.defaults.get(listener).copied().unwrap_or(NONE);
        if self.names.is_empty() {
            return (default, if default == NONE { NOWHERE } else { "the only one that can answer" });
        }
        let names = self.bound.get(listener).unwrap_or(&self.names);
        if default == NONE {
            return (NONE, NOWHERE);
        }
        named_index(names, default, authority)
    }
}

fn named_index(names: &Names, default: usize, authority: &str) -> (usize, &'static str) {
    match names.find(authority) {
        Ok(index) => (index, "the host name matches"),
        Err(NotNamed::TooLong) => (default, "the default: the host name is too long to be one of ours"),
        Err(NotNamed::Unknown) => (default, "the default of the listener: no site has this host name"),
    }
}

/// The host of an authority in the one spelling that it is compared in and filled in by: without the port and the dot that
/// ends a full name, in lower case, an IPv6 address as RFC 5952 has it. Whoever decides by a host asks for it here.
#[inline]
pub fn host(authority: &str) -> Cow<'_, str> {
    let sent = host_of(authority);
    let host = sent.strip_suffix('.').unwrap_or(sent);
    let is_plain = !host.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'[');
    if is_plain { Cow::Borrowed(host) } else { spelled(host) }
}

#[cold]
fn spelled(host: &str) -> Cow<'_, str> {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match address.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        Some(address) => Cow::Owned(format!("[{address}]")),
        None => Cow::Owned(host.to_ascii_lowercase()),
    }
}

/// The host of an authority as it was sent, brackets included, without the port.
pub fn host_of(authority: &str) -> &str {
    // Byte by byte: the search of the standard library is for longer texts.
    match authority.bytes().rposition(|byte| byte == b':') {
        Some(at) if !authority[at..].contains(']') => &authority[..at],
        _ => authority,
    }
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
            ("[2001:DB8:0::1]:443", "[2001:db8::1]"),
            ("[::ffff:7F00:1]", "[::ffff:127.0.0.1]"),
            ("[v1.X]", "[v1.x]"),
            ("Admin.Example.COM.:80", "admin.example.com"),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(super::host(authority), host);
            assert_eq!(super::host(host), host, "one spelling is enough");
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
