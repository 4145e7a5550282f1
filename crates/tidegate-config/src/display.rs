//! Settings as an operator would write them, for messages.

use crate::settings::{
    CollectorAddress, HostPattern, ListenAddress, LogTarget, Network, Origin, PathPattern, RequestLimits,
};
use crate::value::{duration_text, size_text};
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
            PathPattern::Regex(regex) => write!(f, "regex=\"{}\"", regex.as_str()),
        }
    }
}

impl Display for LogTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            LogTarget::Stderr => f.write_str("standard error"),
            LogTarget::Stdout => f.write_str("standard output"),
            LogTarget::File(path) => path.display().fmt(f),
            LogTarget::Collector(to) => to.at.fmt(f),
        }
    }
}

impl Display for CollectorAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            CollectorAddress::Journal(path) => write!(f, "journald:{}", path.display()),
            CollectorAddress::Unix { path, .. } => write!(f, "syslog:{}", path.display()),
            CollectorAddress::Udp(address) => write!(f, "syslog:udp://{address}"),
            CollectorAddress::Tcp(address) => write!(f, "syslog:tcp://{address}"),
        }
    }
}

impl RequestLimits {
    /// What these limits say unlike others, as one writes it in `limits`.
    pub fn unlike(&self, others: &RequestLimits) -> Vec<String> {
        let lines = |limits: &RequestLimits| {
            let most = limits.keep_alive_requests.map_or("unlimited".to_owned(), |most| most.to_string());
            [
                format!("head-size {}", size_text(limits.head_size.into())),
                format!("target-size {}", size_text(limits.target_size.into())),
                format!("body-size {}", size_text(limits.body_size)),
                format!("body-rate {}", size_text(limits.body_rate.into())),
                format!("send-rate {}", size_text(limits.send_rate.into())),
                format!("rate-grace {}", duration_text(limits.rate_grace)),
                format!("keep-alive-timeout {}", duration_text(limits.keep_alive_timeout)),
                format!("keep-alive-requests {most}"),
                format!("discard-size {}", size_text(limits.discard_size)),
                format!("linger-timeout {}", duration_text(limits.linger_timeout)),
                format!("ranges {}", limits.ranges),
            ]
        };
        let pairs = lines(self).into_iter().zip(lines(others));
        pairs.filter(|(own, other)| own != other).map(|(own, _)| own).collect()
    }
}
