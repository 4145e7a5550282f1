//! A small database of countries in the format of MaxMind (MaxMind DB 2.0), for tests.

use std::net::{IpAddr, Ipv6Addr};

/// A database with these networks; an IPv4 one lies in `::/96`, as the format has it.
pub fn database(networks: &[(&str, &str)]) -> Vec<u8> {
    // Two records for each node: nothing, another node, or an entry of the data section.
    #[derive(Clone, Copy)]
    enum Record {
        Nothing,
        Node(usize),
        Entry(usize),
    }
    let (mut nodes, mut data) = (vec![[Record::Nothing; 2]], Vec::new());
    for (network, country) in networks {
        let (address, bits) = network.split_once('/').unwrap();
        let bits: usize = bits.parse().unwrap();
        let (address, bits) = match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(address) => (Ipv6Addr::from(u128::from(address.to_bits())), 96 + bits),
            IpAddr::V6(address) => (address, bits),
        };
        let entry = data.len();
        data.extend(map(1));
        data.extend(text("country"));
        data.extend(map(1));
        data.extend(text("iso_code"));
        data.extend(text(country));
        let mut at = 0;
        for bit in 0..bits {
            let side = usize::from(address.to_bits() >> (127 - bit) & 1 == 1);
            if bit + 1 == bits {
                nodes[at][side] = Record::Entry(entry);
                break;
            }
            at = match nodes[at][side] {
                Record::Node(next) => next,
                Record::Nothing | Record::Entry(_) => {
                    nodes.push([Record::Nothing; 2]);
                    let next = nodes.len() - 1;
                    nodes[at][side] = Record::Node(next);
                    next
                }
            };
        }
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for record in nodes.iter().flatten() {
        let value = match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Entry(entry) => count + 16 + entry,
        };
        out.extend(&u32::try_from(value).unwrap().to_be_bytes()[1..]);
    }
    out.extend([0; 16]);
    out.extend(data);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    out.extend(map(9));
    let number = |kind: u8, value: u32| [&[kind << 5 | 4][..], &value.to_be_bytes()].concat();
    for (name, value) in [
        ("binary_format_major_version", vec![5 << 5 | 1, 2]),
        ("binary_format_minor_version", vec![5 << 5]),
        ("build_epoch", vec![1, 2, 1]),
        ("database_type", text("Test-Country")),
        ("description", [map(1), text("en"), text("test")].concat()),
        ("ip_version", vec![5 << 5 | 1, 6]),
        ("languages", [vec![1, 4], text("en")].concat()),
        ("node_count", number(6, u32::try_from(count).unwrap())),
        ("record_size", vec![5 << 5 | 1, 24]),
    ] {
        out.extend(text(name));
        out.extend(value);
    }
    out
}

fn text(text: &str) -> Vec<u8> {
    assert!(text.len() < 29);
    [&[2 << 5 | text.len() as u8][..], text.as_bytes()].concat()
}

fn map(pairs: u8) -> Vec<u8> {
    vec![7 << 5 | pairs]
}
