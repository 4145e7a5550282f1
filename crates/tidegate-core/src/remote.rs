//! Who asks: the other end of the connection, or the client that a proxy of one's own speaks for.
//!
//! Computed once for a request, by its site's `trusted-proxies`, and kept in the exchange: access, logs, balancing
//! and what applications are told all go by it.

use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidegate_config::settings::{Network, NetworkSet};
use tidegate_http::field::{is_token, semicolon_parts, unquote};
use tidegate_http::{Customer, Fields};
use tidegate_io::socket::Peer;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The other end of the connection; behind the PROXY protocol whom its header names.
    pub peer: Peer,
    /// The client. Behind trusted proxies that is the last one in `X-Forwarded-For`, else in `Forwarded`, that is none of them,
    /// without a port. Otherwise it is the peer.
    pub client: Peer,
    /// The peer is a trusted proxy: what it says of its clients is believed.
    pub is_trusted: bool,
    /// The client is a trusted proxy itself, which asks on nobody's behalf.
    pub(crate) is_proxy: bool,
    /// A trusted proxy names its client by something that is no address; `client` is then who has said so. Such a request is
    /// refused: whoever it is, it is not the proxy, for which rules by address would take it.
    pub(crate) is_unreadable: bool,
    /// The client that was found names somebody in front of it in turn, whom nobody believes.
    names_another: bool,
    /// `http` or `https`, where a trusted proxy says which of them its client speaks.
    told_scheme: Option<&'static str>,
    /// The request of a peer on this machine has fields that proxies write. Looked for only where a site has an
    /// `allow "local"`; requests of the server's own have it from the one that has led to them.
    pub(crate) is_passed_on: bool,
}

/// Whom a proxy speaks for that says by the PROXY protocol that it does not know its client.
pub(crate) const UNNAMED: Peer = Peer::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

impl Remote {
    /// Whoever is at the other end.
    #[inline]
    pub fn direct(peer: Peer) -> Remote {
        Remote {
            peer,
            client: peer,
            is_trusted: false,
            is_proxy: false,
            is_unreadable: false,
            names_another: false,
            told_scheme: None,
            is_passed_on: false,
        }
    }

    /// The same where some peers are trusted proxies.
    #[inline]
    pub fn behind(trusted: &NetworkSet, peer: Peer, fields: &Fields<'_>) -> Remote {
        if trusted.is_empty() { Remote::direct(peer) } else { Remote::resolve(trusted, peer, fields) }
    }

    fn resolve(trusted: &NetworkSet, peer: Peer, fields: &Fields<'_>) -> Remote {
        let is_trusted = |peer: Peer| trusted.covers(peer.ip());
        if !is_trusted(peer) {
            return Remote::direct(peer);
        }
        let mut client = peer;
        let mut chain: SmallVec<[Option<&[u8]>; 8]> = match naming_field(fields) {
            "Forwarded" => fields.elements("Forwarded").map(|element| parameter(element, "for")).collect(),
            name => fields.elements(name).map(Some).collect(),
        };
        let (mut hops, mut is_unreadable) = (0, false);
        while is_trusted(client) {
            hops += 1;
            let Some(Some(told)) = chain.pop() else { break };
            match address(told) {
                Some(address) => client = Peer::Tcp(address),
                None => {
                    is_unreadable = true;
                    break;
                }
            }
        }
        Remote {
            peer,
            client,
            is_trusted: true,
            is_proxy: is_trusted(client),
            is_unreadable,
            names_another: !chain.is_empty(),
            told_scheme: told_scheme(fields, hops),
            is_passed_on: false,
        }
    }

    /// Why nobody is served who is named like this.
    pub(crate) fn unreadable<'a>(&self, fields: &'a Fields<'a>) -> Option<Unreadable<'a>> {
        self.is_unreadable.then(|| {
            let name = naming_field(fields);
            Unreadable { proxy: self.peer, name, told: fields.all(name).last().unwrap_or_default() }
        })
    }

    /// What tells one customer from another, bytes: an IPv4 address, or the network of 64 bits that each has of IPv6
    /// (RFC 6177). Clients of a unix socket are one.
    pub fn customer(&self) -> SmallVec<[u8; 64]> {
        match self.client {
            Peer::Unix => SmallVec::new(),
            Peer::Tcp(address) => match Customer::of(address.ip()) {
                Customer::V4(ip) => SmallVec::from_slice(&ip.octets()),
                Customer::V6(network) => SmallVec::from_slice(&network.to_be_bytes()),
            },
        }
    }

    /// `http` or `https`: what the client speaks, to this server or to the trusted proxies in front of it.
    #[inline]
    pub fn scheme(&self, is_tls: bool) -> &'static str {
        self.told_scheme.unwrap_or(if is_tls { "https" } else { "http" })
    }

    /// Whether that is what a trusted proxy says.
    #[inline]
    pub(crate) fn has_told_scheme(&self) -> bool {
        self.told_scheme.is_some()
    }

    /// Looks whether somebody else's request is passed on from this machine.
    pub(crate) fn look_for_proxy(&mut self, fields: &Fields<'_>) {
        self.is_passed_on = Network::Local.covers(self.peer.ip()) && has_proxy_fields(fields);
    }

    /// Whether the peer is a proxy on this machine that nobody has named as trusted.
    pub(crate) fn passes_on(&self, fields: &Fields<'_>) -> bool {
        self.client == self.peer && Network::Local.covers(self.peer.ip()) && has_proxy_fields(fields)
    }

    /// Whether the client may speak for somebody else, whom nobody knows: it sends what proxies send, and is not trusted to.
    pub fn may_stand_in(&self, fields: &Fields<'_>) -> bool {
        self.names_another || self.client == self.peer && (self.is_passed_on || has_proxy_fields(fields))
    }

    /// The same request where other peers are trusted proxies.
    pub(crate) fn seen_behind(self, trusted: &NetworkSet, fields: &Fields<'_>) -> Remote {
        Remote { is_passed_on: self.is_passed_on, ..Remote::behind(trusted, self.peer, fields) }
    }

    /// A proxy speaks here for somebody whom it does not name, or is not believed to.
    pub(crate) fn is_stand_in(&self) -> bool {
        self.names_another || self.is_passed_on && self.client == self.peer
    }
}

/// What a trusted proxy says of its client, and is no address.
pub(crate) struct Unreadable<'a> {
    proxy: Peer,
    name: &'static str,
    told: &'a [u8],
}

impl fmt::Display for Unreadable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.told.get(..80).unwrap_or(self.told).escape_ascii();
        write!(
            f,
            "the trusted proxy {} names its client by what is no address, in `{}: {told}`",
            self.proxy, self.name
        )
    }
}

/// The scheme that proxies name, of which `hops` are trusted: in `X-Forwarded-Proto`, else in `Forwarded` (RFC 7239
/// section 5.4). Each adds its own at the end, so that the client's stands as far from there as its address does in
/// `X-Forwarded-For`; where they add none, there is only the one. An element of `Forwarded` that names none counts as well.
fn told_scheme(fields: &Fields<'_>, hops: usize) -> Option<&'static str> {
    let words: SmallVec<[Option<&[u8]>; 8]> = if fields.contains("x-forwarded-proto") {
        fields.elements("x-forwarded-proto").map(Some).collect()
    } else {
        fields.elements("forwarded").map(|element| parameter(element, "proto")).collect()
    };
    let word = words.get(words.len().saturating_sub(hops.max(1))).copied().flatten()?;
    let word = unquoted(word);
    ["https", "http"].into_iter().find(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()))
}

/// The field in which proxies name their clients: the one that there is.
pub(crate) fn naming_field(fields: &Fields<'_>) -> &'static str {
    let is_standard = !fields.contains("x-forwarded-for") && fields.contains("forwarded");
    if is_standard { "Forwarded" } else { "X-Forwarded-For" }
}

/// A parameter of an element of `Forwarded` (RFC 7239 section 4), as it is written; nothing, which is neither an address nor a scheme,
/// of what is no element, or may be read in more than one way.
fn parameter<'a>(element: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let Some(parts) = semicolon_parts(element) else { return Some(b"") };
    let mut found = None;
    for part in parts.filter(|part| !part.is_empty()) {
        let Some((known, value)) = pair(part) else { return Some(b"") };
        if known.eq_ignore_ascii_case(name.as_bytes()) && found.replace(value).is_some() {
            return Some(b"");
        }
    }
    found
}

/// `name=value`. The value may be an address that should be quoted, and is not.
fn pair(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = part.split_at_checked(part.iter().position(|byte| *byte == b'=')?)?;
    let value = value.get(1..)?;
    let is_bare = !value.is_empty() && !value.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'"');
    (is_token(name) && (is_bare || unquote(value).is_some())).then_some((name, value))
}

/// The same without the quotes around it, where there are any.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    unquote(value).unwrap_or(Cow::Borrowed(value))
}

/// An address as proxies write it: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. The port is none of
/// this server's.
fn address(element: &[u8]) -> Option<SocketAddr> {
    let element = unquoted(element.trim_ascii());
    let text = std::str::from_utf8(&element).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip =
        bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip())).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0))
}

/// Whether there is a field that proxies write.
fn has_proxy_fields(fields: &Fields<'_>) -> bool {
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
    fields.iter().any(|field| {
        // Few others begin like these.
        matches!(
            field.name.as_bytes().first().map(u8::to_ascii_lowercase),
            Some(b'x' | b'f' | b'v' | b't' | b'c')
        ) && WRITTEN_BY_PROXIES.iter().any(|name| field.name.eq_ignore_ascii_case(name))
    })
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
        let trusted = NetworkSet::from(trusted.to_vec());
        for (peer, told, client, is_trusted) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1", false),
            ("10.0.0.1", &[], "10.0.0.1", true),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7", true),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7", true),
            ("10.0.0.1", &["6.6.6.6, 198.51.100.7, 10.0.0.9"], "198.51.100.7", true),
            ("10.0.0.1", &["6.6.6.6", "198.51.100.7"], "198.51.100.7", true),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7", true),
            ("10.0.0.1", &["[2001:db9::1]:80, 2001:db8::5"], "2001:db9::1", true),
            ("10.0.0.1", &["nonsense, 198.51.100.7"], "198.51.100.7", true),
            ("10.0.0.1", &["unknown"], "10.0.0.1 unreadable", true),
            ("10.0.0.1", &["127.0.0.1, nonsense"], "10.0.0.1 unreadable", true),
            ("10.0.0.1", &["198.51.100.7, nonsense, 10.0.0.9"], "10.0.0.9 unreadable", true),
            ("192.0.2.1", &["nonsense"], "192.0.2.1", false),
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
            let mut found = match remote.client {
                Peer::Tcp(address) => address.ip().to_string(),
                Peer::Unix => "unix".into(),
            };
            if remote.is_unreadable {
                found += " unreadable";
            }
            assert_eq!((found.as_str(), remote.is_trusted), (client, is_trusted), "{peer:?} {told:?}");
            assert_eq!(remote.peer, peer);
        }
    }

    #[test]
    fn whom_forwarded_names() {
        let trusted =
            NetworkSet::from(vec![Network::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 }]);
        for (told, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1"),
            (&["For=\"[2001:db8::1]:80\";proto=https"], "2001:db8::1"),
            (&["proto=https; for=\"192.0.2.1:80\""], "192.0.2.1"),
            (&["for=6.6.6.6, for=192.0.2.1, for=10.0.0.2"], "192.0.2.1"),
            (&["for=6.6.6.6", "for=192.0.2.1;by=10.0.0.1"], "192.0.2.1"),
            (&["for=unknown"], "unreadable"),
            (&["for=_hidden, for=192.0.2.1"], "192.0.2.1"),
            // Who does not say whom it asks for asks for itself, whatever its client says.
            (&["proto=https"], "10.0.0.1"),
            (&["for=192.0.2.1, proto=https"], "10.0.0.1"),
            (&["for=192.0.2.1;for=192.0.2.2"], "unreadable"),
            // What is no element names nobody, and is not the proxy.
            (&["for=192.0.2.1, garbage"], "unreadable"),
            (&["for = 192.0.2.1"], "unreadable"),
            (&["for:192.0.2.1"], "unreadable"),
            (&["\"for\"=192.0.2.1"], "unreadable"),
            (&["192.0.2.1"], "unreadable"),
            (&["proto=https for=192.0.2.1"], "unreadable"),
            (&["for=192.0.2.1;proto"], "unreadable"),
            (&["for="], "unreadable"),
            (&["for=192.0.2.1:80;;proto=https;"], "192.0.2.1"),
            (&["for=\"19\\2.0.2.1\""], "192.0.2.1"), // RFC 9110 section 5.6.4
            // What a client sends in front makes nothing else of what the proxy says behind it.
            (&["for=6.6.6.6;a=\", for=192.0.2.1"], "unreadable"),
            (&["for=6.6.6.6;a=\"\\, for=\"192.0.2.1\""], "unreadable"),
            (&["for=6.6.6.6;a=\"", "for=192.0.2.1"], "192.0.2.1"),
            (&["for=192.0.2.1;host=\"a,for=127.0.0.1;for=127.0.0.2\""], "192.0.2.1"),
        ] {
            let fields: Vec<_> =
                told.iter().map(|value| Field { name: "Forwarded", value: value.as_bytes() }).collect();
            let peer = Peer::Tcp((IpAddr::from([10, 0, 0, 1]), 9).into());
            let remote = Remote::behind(&trusted, peer, &Fields::new(&fields));
            let found = match remote.client {
                _ if remote.is_unreadable => "unreadable".to_owned(),
                Peer::Tcp(address) => address.ip().to_string(),
                Peer::Unix => "unix".into(),
            };
            assert_eq!(found, client, "{told:?}");
        }
        let both = [("Forwarded", "for=192.0.2.1"), ("X-Forwarded-For", "192.0.2.2")]
            .map(|(name, value)| Field { name, value: value.as_bytes() });
        let peer = Peer::Tcp((IpAddr::from([10, 0, 0, 1]), 9).into());
        let remote = Remote::behind(&trusted, peer, &Fields::new(&both));
        assert_eq!(
            remote.client.ip(),
            Some(IpAddr::from([192, 0, 2, 2])),
            "it is the one that more proxies write"
        );
    }

    #[test]
    fn whom_a_client_counts_with() {
        let key =
            |text: &str| Remote::direct(Peer::Tcp((text.parse::<IpAddr>().unwrap(), 9).into())).customer();
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert!(Remote::direct(Peer::Unix).customer().is_empty());
    }

    #[test]
    fn what_the_client_speaks() {
        const PROTO: &str = "X-Forwarded-Proto";
        const FOR: &str = "X-Forwarded-For";
        for (peer, told, of_plain, of_tls) in [
            ("10.0.0.1", &[][..], "http", "https"),
            ("10.0.0.1", &[(PROTO, "https")], "https", "https"),
            ("10.0.0.1", &[(PROTO, "HTTP")], "http", "http"),
            ("192.0.2.1", &[(PROTO, "https")], "http", "https"),
            ("10.0.0.1", &[(PROTO, "ftp")], "http", "https"),
            ("10.0.0.1", &[(PROTO, "")], "http", "https"),
            // The client may have sent the first.
            ("10.0.0.1", &[(PROTO, "https, http"), (FOR, "192.0.2.1")], "http", "http"),
            ("10.0.0.1", &[(PROTO, "https, http"), (FOR, "192.0.2.1, 10.0.0.2")], "https", "https"),
            ("10.0.0.1", &[(PROTO, "https"), (FOR, "192.0.2.1, 10.0.0.2")], "https", "https"),
            ("10.0.0.1", &[(PROTO, "http"), ("Forwarded", "proto=https")], "http", "http"),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1; Proto=https;host=a")], "https", "https"),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1;proto=\"https\"")], "https", "https"),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1")], "http", "https"),
            // What a client sends in front, or has a proxy quote, is not what the proxy says.
            (
                "10.0.0.1",
                &[("Forwarded", "for=192.0.2.1;host=\"a;proto=https;x\";proto=http")],
                "http",
                "http",
            ),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1;host=\"a;proto=https;x\"")], "http", "https"),
            ("10.0.0.1", &[("Forwarded", "proto=https, for=192.0.2.1")], "http", "https"),
            (
                "10.0.0.1",
                &[("Forwarded", "proto=http, for=192.0.2.1, proto=https;for=10.0.0.2")],
                "http",
                "https",
            ),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1;proto=https;proto=http")], "http", "https"),
            ("10.0.0.1", &[("Forwarded", "for=192.0.2.1;a=\";proto=https")], "http", "https"),
        ] {
            let fields: Vec<_> =
                told.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
            let trusted =
                NetworkSet::from(vec![Network::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 }]);
            let peer = Peer::Tcp((peer.parse::<IpAddr>().unwrap(), 9).into());
            let remote = Remote::behind(&trusted, peer, &Fields::new(&fields));
            assert_eq!((remote.scheme(false), remote.scheme(true)), (of_plain, of_tls), "{told:?}");
        }
    }

    #[test]
    fn who_stands_in_for_somebody() {
        let (nobody, here) = (NetworkSet::default(), NetworkSet::from(vec![Network::Local]));
        let proxy = NetworkSet::from(vec![Network::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 }]);
        for (trusted, peer, name, value, expected) in [
            (&nobody, "127.0.0.1", "Accept", "*/*", false),
            (&nobody, "127.0.0.1", "Cookie", "via", false),
            (&nobody, "127.0.0.1", "VIA", "1.1 x", true),
            (&nobody, "::ffff:127.0.0.1", "cf-connecting-ip", "192.0.2.1", true),
            (&nobody, "127.0.0.1", "X-Forwarded-For", "192.0.2.1", true),
            (&nobody, "10.0.0.1", "X-Forwarded-For", "192.0.2.1", false),
            (&here, "127.0.0.1", "X-Forwarded-For", "192.0.2.1", false),
            (&here, "127.0.0.1", "X-Forwarded-For", "127.0.0.1", false),
            (&here, "127.0.0.1", "X-Forwarded-For", "", true),
            (&here, "127.0.0.1", "X-Real-IP", "192.0.2.1", true),
            // A trusted proxy has it from a client of this machine that has it from somebody.
            (&proxy, "10.0.0.1", "X-Forwarded-For", "192.0.2.1, 127.0.0.1", true),
            (&proxy, "10.0.0.1", "X-Forwarded-For", "127.0.0.1", false),
            (&here, "127.0.0.1", "Accept", "*/*", false),
        ] {
            let fields = [Field { name, value: value.as_bytes() }];
            let fields = Fields::new(&fields);
            let peer = Peer::Tcp((peer.parse::<IpAddr>().unwrap(), 9).into());
            let mut remote = Remote::behind(trusted, peer, &fields);
            remote.look_for_proxy(&fields);
            assert_eq!(remote.is_stand_in(), expected, "{trusted:?} {peer:?} {name}: {value}");
            // Whatever another route trusts, it stays known, without the fields as well.
            assert_eq!(remote.seen_behind(&here, &fields).seen_behind(trusted, &fields), remote);
            let is_known = remote.is_passed_on;
            assert_eq!(remote.seen_behind(&nobody, &Fields::default()).is_stand_in(), is_known);
        }
    }
}
