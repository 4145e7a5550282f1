//! Looks for clients in a list of 30,000 networks, as many times as asked, for `cargo xtask bench instructions`.
//!
//! `networks v4 N`, `networks v6 N`: every second client belongs to one. `list-v4`, `list-v6` and `list-hosts` (addresses of
//! IPv6) look into the table of a file with a million, in random order.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidegate_config::settings::{Network, NetworkSet, NetworkTable};

const NETWORKS: u32 = 30_000;
const LISTED: u64 = 1_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, family, count] = arguments.as_slice() else {
        return eprintln!("networks v4|v6|list-v4|list-v6|list-hosts N");
    };
    if let Some(kind) = family.strip_prefix("list-") {
        return look_into_a_table(kind, count.parse().unwrap_or(0));
    }
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

/// A number that looks random, and another one for each.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn look_into_a_table(kind: &str, count: u64) {
    // Every network is that of an even number, so that the address behind it is nobody's.
    let address = |n: u64, other: u64| match kind {
        "v4" => IpAddr::V4(Ipv4Addr::from_bits((n.wrapping_mul(2_654_435_761) as u32) & !1 | other as u32)),
        "v6" => {
            let network = 0x2000 << 48 | mixed(n) >> 3 & !0xffff;
            IpAddr::V6(Ipv6Addr::from_bits(u128::from(network | other << 15) << 64))
        }
        _ => {
            let network = 0x2000 << 48 | mixed(n) >> 3 & !1;
            IpAddr::V6(Ipv6Addr::from_bits(u128::from(network | other) << 64 | u128::from(mixed(n + 1))))
        }
    };
    let bits = if kind == "v6" { "/49" } else { "" };
    let text: String = (0..LISTED).map(|n| format!("{}{bits}\n", address(n, 0))).collect();
    let table = NetworkTable::encode(text.as_bytes()).ok().and_then(NetworkTable::new);
    let Some(table) = table else { return eprintln!("this is no list") };
    let begin = std::time::Instant::now();
    let mut found = 0;
    for n in 0..count {
        let client = address(mixed(n) % LISTED, n & 1);
        found += u64::from(black_box(&table).contains(black_box(client)));
    }
    eprintln!("{} ns each, {found} listed", begin.elapsed().as_nanos() / u128::from(count.max(1)));
}
