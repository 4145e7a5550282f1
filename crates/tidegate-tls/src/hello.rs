//! The first look at a connection: is it TLS, and for which site (RFC 8446 section 4.1.2, RFC 6066 section 3).
//!
//! The name decides which site's terms hold, and rustls wants them before it reads anything. So the name is
//! read here first; rustls reads the same bytes again, in full, and what it finds must agree. Nothing here
//! judges the message: what cannot be understood goes to rustls, whose alert is the right one.

/// Bytes of a first message that are waited for at most; browsers send less than 2 KiB.
pub const HELLO_MAX: usize = 32 << 10;

const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = 16 << 10;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// What the beginning of a connection says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peeked {
    /// More is needed.
    Incomplete,
    /// It is no TLS: the first byte begins no handshake record.
    Plain,
    /// The first message, as far as it matters here; empty where it cannot be understood.
    Hello(Hello),
}

/// What is read of a `ClientHello`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The host name asked for, lower case, without the final dot.
    pub server_name: Option<String>,
    /// The only protocol offered is `acme-tls/1` (RFC 8737): an authority that validates.
    pub is_challenge: bool,
    /// An earlier session is to be resumed.
    pub offers_resumption: bool,
    /// What comes next may be data that is not to wait for the handshake (0-RTT).
    pub announces_early_data: bool,
    /// Of the ciphers that may be used, the client wants ChaCha20 first: it has no hardware for AES.
    pub prefers_chacha: bool,
    /// Where it offers nothing newer than TLS 1.1: the version that its message is of.
    pub outdated_version: Option<[u8; 2]>,
    /// The protocols offered (RFC 7301), empty where the client says nothing of them.
    pub protocols: Vec<Vec<u8>>,
}

/// Looks at the first bytes of a connection.
pub fn peek(bytes: &[u8]) -> Peeked {
    match bytes.first() {
        None => return Peeked::Incomplete,
        Some(&HANDSHAKE) => {}
        Some(_) => return Peeked::Plain,
    }
    match assemble(bytes) {
        Assembled::Message(message) => Peeked::Hello(parse(&message).unwrap_or_default()),
        Assembled::Broken => Peeked::Hello(Hello::default()),
        Assembled::Short if bytes.len() >= HELLO_MAX => Peeked::Hello(Hello::default()),
        Assembled::Short => Peeked::Incomplete,
    }
}

enum Assembled {
    Message(Vec<u8>),
    Short,
    Broken,
}

/// The message out of the records that it may be spread over.
fn assemble(mut bytes: &[u8]) -> Assembled {
    let mut message = Vec::new();
    loop {
        let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
            return Assembled::Short;
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > RECORD_MAX {
            return Assembled::Broken;
        }
        message.extend_from_slice(rest.get(..length).unwrap_or(rest));
        if let Some([kind, a, b, c]) = message.first_chunk() {
            let total = 4 + (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c));
            if *kind != CLIENT_HELLO || total > HELLO_MAX {
                return Assembled::Broken;
            }
            if message.len() >= total {
                message.truncate(total);
                return Assembled::Message(message);
            }
        }
        match rest.get(length..) {
            Some(next) => bytes = next,
            None => return Assembled::Short,
        }
    }
}

/// Reads from the front of a message; `None` where it ends too early.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number8(&mut self) -> Option<usize> {
        self.take(1).and_then(<[u8]>::first).map(|byte| usize::from(*byte))
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_be_bytes(*bytes))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.number8()?;
        self.take(length)
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.number16()?);
        self.take(length)
    }
}

fn parse(message: &[u8]) -> Option<Hello> {
    let mut hello = Hello::default();
    let mut reader = Reader(message);
    reader.take(4)?; // kind and length
    let version = reader.number16()?;
    hello.outdated_version = (version < TLS12).then(|| version.to_be_bytes());
    reader.take(32)?; // random
    reader.vector8()?; // session id
    hello.prefers_chacha = prefers_chacha(reader.vector16()?);
    reader.vector8()?; // compression
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(reader.vector16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let data = extensions.vector16()?;
        match kind {
            SERVER_NAME => hello.server_name = server_name(data),
            ALPN => {
                hello.protocols = protocols(data);
                hello.is_challenge = hello.protocols == [b"acme-tls/1"];
            }
            SESSION_TICKET => hello.offers_resumption |= !data.is_empty(),
            PRE_SHARED_KEY => hello.offers_resumption = true,
            EARLY_DATA => hello.announces_early_data = true,
            SUPPORTED_VERSIONS => {
                // It takes the place of the version of the message (RFC 8446 section 4.2.1).
                let is_outdated = offers_only_outdated(data);
                hello.outdated_version = is_outdated.then(|| version.min(TLS12).to_be_bytes());
            }
            _ => {}
        }
    }
    Some(hello)
}

/// What cannot be understood is for rustls.
fn offers_only_outdated(data: &[u8]) -> bool {
    let versions = Reader(data).vector8().unwrap_or_default();
    let mut known = versions.as_chunks().0.iter().map(|bytes| u16::from_be_bytes(*bytes));
    !versions.is_empty() && !known.any(|version| matches!(version, TLS12 | TLS13))
}

fn prefers_chacha(suites: &[u8]) -> bool {
    let kind = |suite: &[u8]| match suite {
        [0x13, 0x03] | [0xcc, 0xa8 | 0xa9] => Some(true),
        [0x13, 0x01 | 0x02] | [0xc0, 0x2b | 0x2c | 0x2f | 0x30] => Some(false),
        _ => None,
    };
    suites.chunks(2).find_map(kind).unwrap_or(false)
}

fn server_name(data: &[u8]) -> Option<String> {
    let mut names = Reader(Reader(data).vector16()?);
    while !names.0.is_empty() {
        let is_host = names.number8()? == 0;
        let name = names.vector16()?;
        if is_host {
            let name = std::str::from_utf8(name).ok()?;
            return Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        }
    }
    None
}

/// What is malformed offers nothing; rustls, which reads it again, says so.
fn protocols(data: &[u8]) -> Vec<Vec<u8>> {
    let mut protocols = Vec::new();
    let mut list = Reader(Reader(data).vector16().unwrap_or_default());
    while !list.0.is_empty() {
        match list.vector8() {
            Some(protocol) => protocols.push(protocol.to_vec()),
            None => return Vec::new(),
        }
    }
    protocols
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector16(data: &[u8]) -> Vec<u8> {
        [&(data.len() as u16).to_be_bytes(), data].concat()
    }

    fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, data) in extensions {
            list.extend(kind.to_be_bytes());
            list.extend(vector16(data));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(vector16(&list));
        [&[1, 0], &(body.len() as u16).to_be_bytes()[..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector16(part)].concat()).collect()
    }

    fn name(text: &str) -> (u16, Vec<u8>) {
        (0, vector16(&[&[0][..], &vector16(text.as_bytes())].concat()))
    }

    fn alpn(list: &[&str]) -> (u16, Vec<u8>) {
        let list: Vec<u8> = list.iter().flat_map(|p| [&[p.len() as u8], p.as_bytes()].concat()).collect();
        (16, vector16(&list))
    }

    #[test]
    fn table() {
        let found = |server_name: Option<&str>, offers_resumption| {
            Peeked::Hello(Hello {
                server_name: server_name.map(str::to_owned),
                is_challenge: false,
                offers_resumption,
                ..Hello::default()
            })
        };
        let offering = |is_challenge, server_name: Option<&str>, list: &[&str]| {
            Peeked::Hello(Hello {
                server_name: server_name.map(str::to_owned),
                is_challenge,
                protocols: list.iter().map(|protocol| protocol.as_bytes().to_vec()).collect(),
                ..Hello::default()
            })
        };
        let offers = |list: &[&str]| offering(false, None, list);
        let challenge = offering(true, Some("a"), &["acme-tls/1"]);
        let plain = found(None, false);
        for (what, bytes, expected) in [
            ("nothing", vec![], Peeked::Incomplete),
            ("http", b"GET / HTTP/1.1\r\n".to_vec(), Peeked::Plain),
            ("header only", vec![22, 3, 1, 0, 50], Peeked::Incomplete),
            ("empty record", vec![22, 3, 1, 0, 0, 1], plain.clone()),
            ("oversized record", vec![22, 3, 1, 0xff, 0xff, 1], plain.clone()),
            ("another version", vec![22, 2, 1, 0, 5, 1], plain.clone()),
            ("another message", vec![22, 3, 1, 0, 4, 2, 0, 0, 0], plain.clone()),
            ("alert", vec![21, 3, 1, 0, 2, 1, 0], Peeked::Plain),
            ("no extension", records(&hello(&[]), 999), plain.clone()),
            ("name", records(&hello(&[name("Example.COM.")]), 999), found(Some("example.com"), false)),
            ("name in pieces", records(&hello(&[name("a.b")]), 3), found(Some("a.b"), false)),
            ("challenge", records(&hello(&[name("a"), alpn(&["acme-tls/1"])]), 999), challenge),
            ("browser", records(&hello(&[alpn(&["h2", "http/1.1"])]), 999), offers(&["h2", "http/1.1"])),
            (
                "challenge and more",
                records(&hello(&[alpn(&["acme-tls/1", "h2"])]), 999),
                offers(&["acme-tls/1", "h2"]),
            ),
            ("psk", records(&hello(&[(41, vec![1])]), 999), found(None, true)),
            ("ticket", records(&hello(&[(35, vec![1])]), 999), found(None, true)),
            ("no ticket yet", records(&hello(&[(35, vec![])]), 999), plain.clone()),
            ("cut extension", records(&hello(&[(0, vec![0, 9, 0])]), 999), plain),
        ] {
            assert_eq!(peek(&bytes), expected, "{what}");
        }
    }

    #[test]
    fn who_offers_nothing_newer_than_tls_1_1() {
        let versions = |list: &[u8]| vec![(43, [&[list.len() as u8], list].concat())];
        for (what, version, extensions, expected) in [
            ("1.1", [3, 2], vec![], Some([3, 2])),
            ("SSL 3.0 without extensions", [3, 0], vec![], Some([3, 0])),
            ("1.2", [3, 3], vec![], None),
            ("1.3", [3, 3], versions(&[0x1a, 0x1a, 3, 4]), None),
            ("1.2 in the list alone", [3, 1], versions(&[3, 3]), None),
            ("a list of old ones", [3, 3], versions(&[3, 2, 3, 1]), Some([3, 3])),
            ("an empty list", [3, 3], versions(&[]), None),
        ] {
            let mut message = hello(&extensions);
            message[4..6].copy_from_slice(&version);
            let Peeked::Hello(peeked) = peek(&records(&message, 999)) else { panic!("{what}") };
            assert_eq!(peeked.outdated_version, expected, "{what}");
        }
    }

    #[test]
    fn who_has_no_hardware_for_aes() {
        for (suites, expected) in [
            (&[0x13, 0x01, 0x13, 0x03][..], false),
            (&[0x13, 0x03, 0x13, 0x01], true),
            (&[0x0a, 0x0a, 0x00, 0xff, 0xcc, 0xa9, 0xc0, 0x2b], true),
            (&[0xc0, 0x30, 0xcc, 0xa8], false),
            (&[0x13], false),
            (&[], false),
        ] {
            assert_eq!(prefers_chacha(suites), expected, "{suites:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            peek(&bytes);
            peek(&[&[22, 3, 1][..], &bytes].concat());
        }

        #[test]
        fn records_and_arrival_change_nothing(size in 1usize..200, cut in 0usize..400) {
            let whole = hello(&[name("www.example.com"), (41, vec![1, 2])]);
            let bytes = records(&whole, size);
            let cut = cut.min(bytes.len().saturating_sub(1));
            prop_assert_eq!(peek(&bytes[..cut]), Peeked::Incomplete);
            prop_assert_eq!(peek(&bytes), peek(&records(&whole, 9999)));
        }
    }
}
