//! Headers of the PROXY protocol: what is read, what is refused, and that cutting changes nothing.

use proptest::prelude::*;
use std::net::SocketAddr;
use tidegate_wire::proxy_protocol::{HEADER_MAX, Header, HeaderError, encode, encode_line, parse};

fn proxied(source: &str, destination: &str) -> Header {
    Header::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
}

#[test]
fn table() {
    let four = [1, 2, 3, 4, 5, 6, 7, 8, 0x1f, 0x90, 0, 80];
    let with_extension = [&four[..], &[4, 0, 3, b'a', b'b', b'c']].concat();
    let mut six = [0u8; 36];
    (six[15], six[31], six[33], six[35]) = (1, 2, 3, 4);
    let plain = proxied("1.2.3.4:8080", "5.6.7.8:80");
    let long = "PROXY UNKNOWN ".to_owned() + &"x".repeat(100) + "\r\n";
    for (what, bytes, expected) in [
        ("v1", b"PROXY TCP4 1.2.3.4 5.6.7.8 8080 80\r\nGET".to_vec(), Ok(Some((plain, 36)))),
        (
            "v1 six",
            b"PROXY TCP6 ::1 2001:db8::2 1 2\r\n".to_vec(),
            Ok(Some((proxied("[::1]:1", "[2001:db8::2]:2"), 32))),
        ),
        ("v1 unknown", b"PROXY UNKNOWN\r\n".to_vec(), Ok(Some((Header::Unnamed, 15)))),
        ("v1 unknown and more", b"PROXY UNKNOWN a b c d\r\n".to_vec(), Ok(Some((Header::Unnamed, 23)))),
        ("v1 half", b"PROXY TCP4 1.2".to_vec(), Ok(None)),
        ("nothing", vec![], Ok(None)),
        ("one byte", b"P".to_vec(), Ok(None)),
        ("v1 wrong family", b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 mixed", b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 no port", b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 large port", b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 signed port", b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 leading zero", b"PROXY TCP4 1.2.3.4 5.6.7.8 01 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 one too many", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 1 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 two spaces", b"PROXY TCP4  1.2.3.4 5.6.7.8 1 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 other", b"PROXY UDP4 1.2.3.4 5.6.7.8 1 1\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 bare line feed", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 1\n\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 bytes", b"PROXY TCP4 \xff\r\n".to_vec(), Err(HeaderError::Line)),
        ("v1 long", long.into_bytes(), Err(HeaderError::LineTooLong)),
        ("a request", b"GET / HTTP/1.1\r\n".to_vec(), Err(HeaderError::Missing)),
        ("a request like it", b"PROXY\r\n".to_vec(), Err(HeaderError::Missing)),
        ("v2", v2(0x21, 0x11, &four), Ok(Some((plain, 28)))),
        ("v2 extension", v2(0x21, 0x11, &with_extension), Ok(Some((plain, 34)))),
        ("v2 six", v2(0x21, 0x21, &six), Ok(Some((proxied("[::1]:3", "[::2]:4"), 52)))),
        ("v2 local", v2(0x20, 0, &[]), Ok(Some((Header::Local, 16)))),
        ("v2 local with addresses", v2(0x20, 0x11, &four), Ok(Some((Header::Local, 28)))),
        ("v2 unix", v2(0x21, 0x31, &[0; 216]), Ok(Some((Header::Unnamed, 232)))),
        ("v2 datagram", v2(0x21, 0x12, &four), Ok(Some((Header::Unnamed, 28)))),
        ("v2 short", v2(0x21, 0x11, &four[..11]), Err(HeaderError::Short)),
        ("v2 command", v2(0x22, 0x11, &four), Err(HeaderError::Command)),
        ("v2 version", v2(0x31, 0x11, &four), Err(HeaderError::Command)),
        ("v2 long", v2(0x20, 0, &[0; HEADER_MAX]), Err(HeaderError::TooLong)),
        ("v2 half", v2(0x21, 0x11, &four)[..20].to_vec(), Ok(None)),
    ] {
        assert_eq!(parse(&bytes), expected, "{what}");
    }
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<bool>(), any::<u128>(), any::<u16>()).prop_map(|(is_four, bits, port)| match is_four {
        true => SocketAddr::from((std::net::Ipv4Addr::from(bits as u32), port)),
        false => SocketAddr::from((std::net::Ipv6Addr::from(bits), port)),
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(source in address(), destination in address(), rest in any::<[u8; 8]>()) {
        let header = Header::Proxied { source, destination };
        let same = source.is_ipv4() == destination.is_ipv4();
        for write in [encode, encode_line] {
            let mut bytes = Vec::new();
            write(&header, &mut bytes);
            let length = bytes.len();
            bytes.extend(rest);
            // Addresses of two families cannot be told; the sender speaks for itself, or for nobody.
            let (read, at) = parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(at, length);
            prop_assert!(read == header || (!same && !matches!(read, Header::Proxied { .. })), "{:?}", read);
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..3u8) {
        let front: &[u8] = match kind { 0 => b"", 1 => b"PROXY ", _ => SIGNATURE };
        tidegate_wire::fuzzing::fuzz_proxy_protocol(&[front, &bytes].concat());
    }
}
