//! Who asks: the other end of the connection, or the client that a proxy of one's own speaks for.
//!
//! Computed once for a request, by its site's `trusted-proxies`, and kept in the exchange: access, logs, balancing
//! and what applications are told all go by it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidegate_config::settings::Network;
use tidegate_http::Fields;
use tidegate_io::socket::Peer;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The other end of the connection; behind the PROXY protocol whom its header names.
    pub peer: Peer,
    /// The client. Behind trusted proxies that is the last one in `X-Forwarded-For` that is none of them, without a
    /// port; `0.0.0.0` where they name none that can be read. Otherwise it is the peer.
    pub client: Peer,
    /// The peer is a trusted proxy: what it says of its clients is believed.
    pub is_trusted: bool,
}

/// Whom a proxy speaks for that does not say who its client is.
pub(crate) const UNNAMED: Peer = Peer::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

impl Remote {
    /// Whoever is at the other end.
    #[inline]
    pub fn direct(peer: Peer) -> Remote {
        Remote { peer, client: peer, is_trusted: false }
    }

    /// The same where some peers are trusted proxies.
    #[inline]
    pub fn behind(trusted: &[Network], peer: Peer, fields: &Fields<'_>) -> Remote {
        if trusted.is_empty() { Remote::direct(peer) } else { Remote::resolve(trusted, peer, fields) }
    }

    fn resolve(trusted: &[Network], peer: Peer, fields: &Fields<'_>) -> Remote {
        let is_trusted = |peer: Peer| trusted.iter().any(|network| covers(*network, peer));
        if !is_trusted(peer) {
            return Remote::direct(peer);
        }
        let mut client = peer;
        let mut chain: Vec<&[u8]> = fields.elements("x-forwarded-for").collect();
        while is_trusted(client) {
            match chain.pop() {
                // Whom a proxy does not name is not the proxy itself.
                Some(element) => client = address(element).map_or(UNNAMED, Peer::Tcp),
                None => break,
            }
            if client == UNNAMED {
                break;
            }
        }
        Remote { peer, client, is_trusted: true }
    }
}

/// An address as proxies write it: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. The port is none of
/// this server's.
fn address(element: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(element).ok()?.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip =
        bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip())).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0))
}

/// Whether somebody else's request is passed on, by what proxies write into it.
pub(crate) fn speaks_for_another(fields: &Fields<'_>) -> bool {
    const WRITTEN_BY_PROXIES: [&str; 14] = [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "via",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-forwarded-server",
        "x-original-forwarded-for",
        "true-client-ip",
        "cf-connecting-ip",
        "fastly-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
    ];
    WRITTEN_BY_PROXIES.iter().any(|name| fields.contains(name))
}

/// Whether a client belongs to a network.
pub fn covers(network: Network, peer: Peer) -> bool {
    let (address, bits) = match network {
        Network::All => return true,
        Network::Unix => return peer == Peer::Unix,
        Network::Local => {
            return match peer {
                Peer::Unix => true,
                Peer::Tcp(peer) => peer.ip().to_canonical().is_loopback(),
            };
        }
        Network::Prefix { address, bits } => (address, bits),
    };
    let Peer::Tcp(peer) = peer else { return false };
    // An IPv4 client of an IPv6 socket arrives as ::ffff:a.b.c.d.
    match (address, peer.ip().to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(peer)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            (network.to_bits() ^ peer.to_bits()) & mask == 0
        }
        (IpAddr::V6(network), IpAddr::V6(peer)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            (network.to_bits() ^ peer.to_bits()) & mask == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Field;

    #[test]
    fn who_the_client_is() {
        let trusted = [
            Network::Unix,
            Network::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 },
            Network::Prefix { address: "2001:db8::".parse().unwrap(), bits: 32 },
        ];
        for (peer, told, client, is_trusted) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1", false),
            ("10.0.0.1", &[], "10.0.0.1", true),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7", true),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7", true),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.7, 10.0.0.9"], "198.51.100.7", true),
            ("10.0.0.1", &["6.6.6.6", "198.51.100.7"], "198.51.100.7", true),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7", true),
            ("10.0.0.1", &["[2001:db9::1]:80, 2001:db8::5"], "2001:db9::1", true),
            ("10.0.0.1", &["unknown"], "0.0.0.0", true),
            ("10.0.0.1", &["127.0.0.1, nonsense"], "0.0.0.0", true),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2", true),
            ("unix", &["198.51.100.7"], "198.51.100.7", true),
        ] {
            let fields: Vec<_> =
                told.iter().map(|value| Field { name: "X-Forwarded-For", value: value.as_bytes() }).collect();
            let peer = match peer {
                "unix" => Peer::Unix,
                address => Peer::Tcp((address.parse::<IpAddr>().unwrap(), 9).into()),
            };
            let remote = Remote::behind(&trusted, peer, &Fields::new(&fields));
            let found = match remote.client {
                Peer::Tcp(address) => address.ip().to_string(),
                Peer::Unix => "unix".into(),
            };
            assert_eq!((found.as_str(), remote.is_trusted), (client, is_trusted), "{peer:?} {told:?}");
            assert_eq!(remote.peer, peer);
        }
    }
}
