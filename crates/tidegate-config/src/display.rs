//! Settings as an operator would write them, for messages.

use crate::settings::{HostPattern, ListenAddress, LogTarget, Network, Origin, PathPattern};
use std::fmt::{Display, Formatter, Result};

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

impl Display for ListenAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Display for Network {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Network::All => f.write_str("all"),
            Network::Unix => f.write_str("unix"),
            Network::Local => f.write_str("local"),
            Network::Prefix { address, bits } => {
                let is_whole = *bits == if address.is_ipv4() { 32 } else { 128 };
                if is_whole { address.fmt(f) } else { write!(f, "{address}/{bits}") }
            }
        }
    }
}

impl Display for HostPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

impl Display for PathPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            PathPattern::Exact(path) => f.write_str(path),
            PathPattern::Prefix(prefix) => write!(f, "{prefix}*"),
            PathPattern::Suffix(suffix) => write!(f, "*{suffix}"),
            PathPattern::Pieces(pieces) => f.write_str(&pieces.join("*")),
        }
    }
}

impl Display for LogTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            LogTarget::Stderr => f.write_str("standard error"),
            LogTarget::Stdout => f.write_str("standard output"),
            LogTarget::File(path) => path.display().fmt(f),
        }
    }
}
