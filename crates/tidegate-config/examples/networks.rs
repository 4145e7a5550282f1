//! Looks for clients in a list of 30,000 networks, as many times as asked, for `cargo xtask bench instructions`.
//!
//! `networks v4 N`, `networks v6 N`: every second client belongs to one.

use std::hint::black_box;
use std::net::IpAddr;
use tidegate_config::settings::{Network, NetworkSet};

const NETWORKS: u32 = 30_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, family, count] = arguments.as_slice() else {
        return eprintln!("networks v4|v6 N");
    };
    let address = |bits: u32| match family.as_str() {
        "v4" => IpAddr::V4(bits.into()),
        _ => IpAddr::V6((u128::from(bits) << 64).into()),
    };
    let spread = |n: u32| n.wrapping_mul(2_654_435_761) & !0x1ff; // every network a /24, the one behind it nobody's
    let set: NetworkSet = (0..NETWORKS)
        .map(|n| address(spread(n)))
        .map(|address| Network::Prefix { address, bits: if address.is_ipv4() { 24 } else { 56 } })
        .collect();
    let mut found = 0;
    let count: u32 = count.parse().unwrap_or(0);
    for n in 0..count {
        let client = address(spread(n % NETWORKS) | (n & 1) << 8);
        found += u32::from(black_box(&set).covers(black_box(Some(client))));
    }
    assert_eq!(found, count.div_ceil(2));
}
