//! IP addresses as text, for logs, variables and fields that name who asks.

use arrayvec::ArrayString;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

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

/// What tells one customer of a network from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Customer {
    /// An address of IPv4.
    V4(Ipv4Addr),
    /// The upper half of an address of IPv6: each customer has a network of 64 bits at least (RFC 6177), and changes the
    /// address within it at will.
    V6(u64),
}

impl Customer {
    /// Whose an address is. One of IPv4 may stand in one of IPv6: mapped (RFC 4291 section 2.5.5.2), or put there by who
    /// translates between the two (`64:ff9b::/96`, RFC 6052 section 2.1), behind whom all would be one otherwise.
    pub fn of(address: IpAddr) -> Customer {
        const TRANSLATED: u128 = 0x64_ff9b << 96;
        match address.to_canonical() {
            IpAddr::V4(address) => Customer::V4(address),
            IpAddr::V6(address) if address.to_bits() >> 32 == TRANSLATED >> 32 => {
                Customer::V4(Ipv4Addr::from_bits(address.to_bits() as u32))
            }
            IpAddr::V6(address) => Customer::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers() {
        let of = |text: &str| Customer::of(text.parse().unwrap());
        let four = of("192.0.2.33");
        assert_eq!(four, Customer::V4([192, 0, 2, 33].into()));
        for same in ["::ffff:192.0.2.33", "64:ff9b::c000:221"] {
            assert_eq!(of(same), four, "{same}");
        }
        for other in ["64:ff9b::c000:222", "64:ff9b:1::c000:221", "64:ff9b:0:0:0:1:c000:221"] {
            assert_ne!(of(other), four, "{other}");
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

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
