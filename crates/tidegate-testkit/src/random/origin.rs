//! Whom the server takes a client for: who connects to it, or whom a proxy in front names with a header of the PROXY
//! protocol.

use super::generator::Generator;

/// Where a client is, as the settings see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Loopback,
    Unix,
    /// Behind a proxy, in the network that settings name.
    Near,
    /// Behind a proxy, in no network that they name.
    Far,
}

impl Origin {
    pub(super) const ALL: [Origin; 4] = [Origin::Loopback, Origin::Unix, Origin::Near, Origin::Far];

    /// As `explain --from` takes it.
    pub(super) fn address(self) -> &'static str {
        match self {
            Origin::Loopback => "127.0.0.1",
            Origin::Unix => "unix",
            Origin::Near => "192.0.2.7",
            Origin::Far => "198.51.100.1",
        }
    }

    /// The header that a proxy in front of the client begins with, of either version.
    pub(super) fn proxy_header(self, random: &mut Generator) -> Vec<u8> {
        let octets: Option<[u8; 4]> = match self {
            // The proxy speaks for itself.
            Origin::Loopback | Origin::Unix => None,
            Origin::Near => Some([192, 0, 2, 7]),
            Origin::Far => Some([198, 51, 100, 1]),
        };
        let port = random.between(1024, 65_535) as u16;
        // Of version 1 there is no word for that: `UNKNOWN` is a client that is not named, whom no rule of addresses lets in.
        if octets.is_some() && random.chance(50) {
            return format!("PROXY TCP4 {} 203.0.113.9 {port} 443\r\n", self.address()).into_bytes();
        }
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        let mut rest = Vec::new();
        match octets {
            Some(octets) => {
                header.extend([0x21, 0x11]);
                rest.extend(octets);
                rest.extend([203, 0, 113, 9]);
                rest.extend(port.to_be_bytes());
                rest.extend([1, 187]);
            }
            None => header.extend([0x20, 0]),
        }
        if random.chance(50) {
            // PP2_TYPE_NOOP: to be passed over.
            let length = random.size(200) as u16;
            rest.push(4);
            rest.extend(length.to_be_bytes());
            rest.extend(std::iter::repeat_n(0, usize::from(length)));
        }
        header.extend((rest.len() as u16).to_be_bytes());
        header.extend(rest);
        header
    }
}
