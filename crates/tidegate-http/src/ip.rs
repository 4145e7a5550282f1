//! IP addresses as text, for logs, variables and fields that name who asks.

use arrayvec::ArrayString;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The text of an address: `127.0.0.1`, `2001:db8::1`. The longest has 45 bytes (RFC 4291 section 2.2).
pub type IpText = ArrayString<45>;

/// An address in text. An IPv4 client of an IPv6 socket, `::ffff:a.b.c.d`, is the IPv4 address that it is.
#[inline]
pub fn ip_text(address: IpAddr) -> IpText {
    let mut text = IpText::new();
    match address.to_canonical() {
        // The usual case, without the machinery of a formatter.
        IpAddr::V4(v4) => {
            for (n, octet) in v4.octets().into_iter().enumerate() {
                if n > 0 {
                    text.push('.');
                }
                let digit = |value: u8| char::from(b'0' + value);
                if octet >= 100 {
                    text.push(digit(octet / 100));
                }
                if octet >= 10 {
                    text.push(digit(octet / 10 % 10));
                }
                text.push(digit(octet % 10));
            }
        }
        IpAddr::V6(v6) => drop(write!(text, "{v6}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, text) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.10.100.255", "0.10.100.255"),
            ("9.99.199.209", "9.99.199.209"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
            ("::", "::"),
            ("1111:2222:3333:4444:5555:6666:7777:8888", "1111:2222:3333:4444:5555:6666:7777:8888"),
        ] {
            assert_eq!(ip_text(address.parse().unwrap()).as_str(), text);
        }
    }
}
