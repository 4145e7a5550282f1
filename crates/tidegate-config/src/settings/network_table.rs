//! A long list of networks as bytes: of a file that `allow list=` or `deny list=` names.
//!
//! The master reads the file and makes the bytes once; server processes map them (`core/access_data.rs`), so that a list is
//! once in the memory of the machine however many workers and processes ask it. What is asked is whether an address is
//! listed, and the search is that of the networks in the settings (`networks.rs`): the last one that begins at or before an
//! address. Networks that meet or lie in each other are made into as few as say the same, so that this one decides. A network
//! of IPv4 takes 5 bytes, one of IPv6 up to `/64` 9, an address of IPv6 16, any other network 24.
//!
//! By halves a search in 16 MB waits for memory twenty times. Every 32nd key stands in a list of its own, and every 32nd of
//! those, so that it waits two or three times; these lists are 2 % of the table, and each process has its own.

use super::networks::{Network, v4, v6};
use crate::value::read_network;
use std::net::IpAddr;
use std::ops::Range;

/// What the bytes begin with.
const MAGIC: [u8; 8] = *b"TGNETS1\n";
/// Magic, how many networks were written, and how long each section is.
const HEADER: usize = 8 * (2 + SECTIONS);
/// Networks of IPv4; of IPv6 networks up to 64 bits, addresses, and ranges within a network of 64 bits.
const SECTIONS: usize = 4;
/// Bytes that an entry of each takes.
const WIDTHS: [usize; SECTIONS] = [5, 9, 16, 24];
/// Keys of a list for one key of the list above it.
const STEP: usize = 32;
/// Keys of IPv6 in a line of the processor's caches.
const LINE: usize = 8;
/// So much of a line that is no network is shown, characters.
const SHOWN: usize = 15;
/// The longest list, in networks.
const ENTRIES: usize = 8_000_000;

/// Networks of a file, to be asked for an address. `B` are the bytes of [`NetworkTable::encode`], wherever they are.
#[derive(Debug, Clone)]
pub struct NetworkTable<B> {
    bytes: B,
    entries: usize,
    sections: [Range<usize>; SECTIONS],
    v4: Levels<u32>,
    v6: [Levels<u64>; SECTIONS - 1],
}

impl NetworkTable<Vec<u8>> {
    /// Reads a list: a network, an address, or a range `first-last` in each line; what follows a `#` or a `;` is a comment.
    ///
    /// # Errors
    /// The first line that is none of these, and why.
    pub fn encode(text: &[u8]) -> Result<Vec<u8>, (usize, String)> {
        let mut list = Ranges::default();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.split(|byte| matches!(byte, b'#' | b';')).next().unwrap_or_default();
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            if list.entries == ENTRIES {
                return Err((number, format!("a list has {ENTRIES} networks at most")));
            }
            let text = str::from_utf8(line).map_err(|_| (number, "this is no text in UTF-8".to_owned()))?;
            list.add(text).map_err(|why| (number, why))?;
        }
        Ok(list.encode())
    }
}

impl<B: AsRef<[u8]>> NetworkTable<B> {
    /// From bytes of [`NetworkTable::encode`]; nothing where they are none.
    pub fn new(bytes: B) -> Option<NetworkTable<B>> {
        let all = bytes.as_ref();
        let header = all.get(..HEADER).filter(|header| header.starts_with(&MAGIC))?;
        let (numbers, _) = header.as_chunks::<8>();
        let mut numbers =
            numbers.iter().skip(1).map(|number| usize::try_from(u64::from_ne_bytes(*number)).ok());
        let entries = numbers.next()??;
        let (mut sections, mut end) = ([const { 0..0 }; SECTIONS], HEADER);
        for ((section, width), count) in sections.iter_mut().zip(WIDTHS).zip(numbers) {
            let begin = end;
            end = begin.checked_add(count?.checked_mul(width)?)?;
            *section = begin..end;
        }
        if end != all.len() {
            return None;
        }
        let section = |at: usize| all.get(sections[at].clone()).unwrap_or_default();
        let (v4, _) = columns::<4>(section(0), WIDTHS[0]);
        let (v4, key) = (Levels::of(v4), |at: usize| columns::<8>(section(at), WIDTHS[at]).0);
        let v6 = [Levels::of(key(1)), Levels::of(key(2)), Levels::of(key(3))];
        Some(NetworkTable { entries, sections, v4, v6, bytes })
    }

    /// How many networks the file has.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Whether an address is in any of them. An IPv4 client of an IPv6 socket is the IPv4 client that it is.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let (firsts, bits) = columns::<4>(self.section(0), WIDTHS[0]);
                let address = address.to_bits();
                let at = self.v4.count(firsts, |first: u32| first <= address).checked_sub(1);
                at.and_then(|at| Some((u32::read(firsts.get(at)?), bits.get(at)?)))
                    .is_some_and(|(first, bits)| (first ^ address).leading_zeros() >= u32::from(*bits))
            }
            IpAddr::V6(address) => {
                let (high, low) = ((address.to_bits() >> 64) as u64, address.to_bits() as u64);
                let [whole, hosts, parts] = &self.v6;
                let (firsts, bits) = columns::<8>(self.section(1), WIDTHS[1]);
                let at = whole.count(firsts, |first: u64| first <= high).checked_sub(1);
                at.and_then(|at| Some((u64::read(firsts.get(at)?), bits.get(at)?)))
                    .is_some_and(|(first, bits)| (first ^ high).leading_zeros() >= u32::from(*bits))
                    || hosts.is_within(columns::<8>(self.section(2), WIDTHS[2]), high, low)
                    || parts.is_within(columns::<8>(self.section(3), WIDTHS[3]), high, low)
            }
        }
    }

    fn section(&self, at: usize) -> &[u8] {
        self.bytes.as_ref().get(self.sections[at].clone()).unwrap_or_default()
    }
}

/// What a column holds.
trait Key: Copy + Ord {
    /// From so many bytes.
    fn read(bytes: &[u8]) -> Self;
}

impl Key for u32 {
    #[inline(always)]
    fn read(bytes: &[u8]) -> u32 {
        bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

impl Key for u64 {
    #[inline(always)]
    fn read(bytes: &[u8]) -> u64 {
        bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// The keys of a section, and the columns behind them, where an entry takes so many bytes.
#[inline(always)]
fn columns<const N: usize>(section: &[u8], width: usize) -> (&[[u8; N]], &[u8]) {
    let (keys, rest) = section.split_at(section.len() / width * N);
    (keys.as_chunks().0, rest)
}

/// Lists of keys above a sorted column, the shortest first.
#[derive(Debug, Clone)]
struct Levels<A>(Vec<Vec<A>>);

impl<A: Key> Levels<A> {
    fn of<const N: usize>(column: &[[u8; N]]) -> Levels<A> {
        let mut level: Vec<A> = column.iter().step_by(STEP).map(|key| A::read(key)).collect();
        let mut levels = Vec::new();
        while !level.is_empty() {
            let above = (level.len() > STEP).then(|| level.iter().step_by(STEP).copied().collect());
            levels.push(std::mem::replace(&mut level, above.unwrap_or_default()));
        }
        levels.reverse();
        Levels(levels)
    }

    /// How many keys of the column `is_before` holds for: for the first ones, and for none behind.
    #[inline(always)]
    fn count<const N: usize>(&self, column: &[[u8; N]], is_before: impl Fn(A) -> bool) -> usize {
        let mut block = 0;
        for level in &self.0 {
            let count = part(level, block).partition_point(|key| is_before(*key));
            if count == 0 {
                return 0;
            }
            block = block * STEP + count - 1;
        }
        block * STEP + count_in(part(column, block), |key| is_before(A::read(key)))
    }
}

impl Levels<u64> {
    /// Whether one of the addresses, or of the ranges of two columns, within the network `high` is or has `low`.
    #[inline(always)]
    fn is_within(&self, (highs, rest): (&[[u8; 8]], &[u8]), high: u64, low: u64) -> bool {
        let end = self.count(highs, |known| known <= high);
        let last = end.checked_sub(1).and_then(|at| highs.get(at));
        // As nearly always: nothing of this network is listed.
        last.is_some_and(|last| u64::read(last) == high) && self.is_among(highs, rest, end, high, low)
    }

    #[inline(never)]
    fn is_among(&self, highs: &[[u8; 8]], rest: &[u8], end: usize, high: u64, low: u64) -> bool {
        let (firsts, lasts) = rest.as_chunks::<8>().0.split_at(highs.len());
        // Few have the same network: back from the last of them, in steps that double.
        let mut step = 1;
        let mut begin = end - 1;
        while begin > 0 && highs.get(begin - 1).is_some_and(|known| u64::read(known) == high) {
            begin = begin.saturating_sub(step);
            step *= 2;
        }
        begin += highs.get(begin..end).unwrap_or_default().partition_point(|known| u64::read(known) < high);
        let own = firsts.get(begin..end).unwrap_or_default();
        let Some(at) = own.partition_point(|first| u64::read(first) <= low).checked_sub(1) else {
            return false;
        };
        // An address alone has no column for its last one.
        let lasts = if lasts.is_empty() { firsts } else { lasts };
        lasts.get(begin + at).is_some_and(|last| low <= u64::read(last))
    }
}

/// How many keys of a block come before. The last of each line is asked first, all of them at once, so that a block takes
/// the time of one wait for memory, and not of one for each half.
#[inline(always)]
fn count_in<K>(block: &[K], is_before: impl Fn(&K) -> bool) -> usize {
    let (lines, _) = block.as_chunks::<LINE>();
    let first: usize = lines.iter().map(|line| usize::from(is_before(&line[LINE - 1]))).sum::<usize>() * LINE;
    let line = &block[first..(first + LINE).min(block.len())];
    first + line.partition_point(is_before)
}

/// The part of a list that one key above it stands for.
#[inline(always)]
fn part<T>(list: &[T], block: usize) -> &[T] {
    let begin = (block * STEP).min(list.len());
    &list[begin..(begin + STEP).min(list.len())]
}

/// First and last addresses while a list is read.
#[derive(Default)]
struct Ranges {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    entries: usize,
}

impl Ranges {
    fn add(&mut self, text: &str) -> Result<(), String> {
        self.entries += 1;
        if let Some((first, last)) = text.split_once('-') {
            let ends = (address(first.trim())?, address(last.trim())?);
            match ends {
                (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                    self.v4.push((first.to_bits(), last.to_bits()));
                }
                (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                    self.v6.push((first.to_bits(), last.to_bits()));
                }
                _ => return Err(format!("`{text}` ends before it begins")),
            }
            return Ok(());
        }
        match network(text)? {
            Network::Prefix { address: IpAddr::V4(address), bits } => {
                self.v4.push(v4(address.to_bits(), bits))
            }
            Network::Prefix { address: IpAddr::V6(address), bits } => {
                self.v6.push(v6(address.to_bits(), bits))
            }
            Network::All | Network::Local | Network::Unix => {
                return Err(format!("`{text}` stands in settings, a list holds networks"));
            }
        }
        Ok(())
    }

    fn encode(mut self) -> Vec<u8> {
        merge(&mut self.v4, |last| last.checked_add(1));
        merge(&mut self.v6, |last| last.checked_add(1));
        let (mut v4, mut whole, mut hosts, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (first, last) in self.v4 {
            networks(first.into(), last.into(), 32, |first, bits| v4.push((first as u32, bits)));
        }
        for (first, last) in self.v6 {
            split(first, last, &mut whole, &mut hosts, &mut parts);
        }
        let counts = [v4.len(), whole.len(), hosts.len(), parts.len()];
        let length = counts.iter().zip(WIDTHS).map(|(count, width)| count * width).sum::<usize>();
        let mut bytes = Vec::with_capacity(HEADER + length);
        bytes.extend(MAGIC);
        for number in [self.entries].into_iter().chain(counts) {
            bytes.extend((number as u64).to_ne_bytes());
        }
        bytes.extend(v4.iter().flat_map(|(first, _)| first.to_ne_bytes()));
        bytes.extend(v4.iter().map(|(_, bits)| bits));
        bytes.extend(whole.iter().flat_map(|(first, _)| first.to_ne_bytes()));
        bytes.extend(whole.iter().map(|(_, bits)| bits));
        let mut put = |column: &mut dyn Iterator<Item = u64>| bytes.extend(column.flat_map(u64::to_ne_bytes));
        put(&mut hosts.iter().map(|[high, _]| *high));
        put(&mut hosts.iter().map(|[_, low]| *low));
        put(&mut parts.iter().map(|[high, ..]| *high));
        put(&mut parts.iter().map(|[_, first, _]| *first));
        put(&mut parts.iter().map(|[.., last]| *last));
        bytes
    }
}

/// The networks that a range of addresses of so many bits is made of.
fn networks(first: u128, last: u128, width: u8, mut put: impl FnMut(u128, u8)) {
    let mut begin = first;
    loop {
        // As wide as the address it begins at and the room that is left allow.
        let room = last - begin;
        let by_room = 127 - (room + 1).leading_zeros(); // no list has all of IPv6 in one range of this width
        let host = begin.trailing_zeros().min(by_room).min(width.into());
        put(begin, width - host as u8);
        let size = 1u128 << host;
        match begin.checked_add(size).filter(|next| *next <= last) {
            Some(next) => begin = next,
            None => return,
        }
    }
}

/// Puts a range of IPv6 where it belongs: whole networks of 64 bits, and what lies in the first and the last of them.
fn split(
    first: u128,
    last: u128,
    whole: &mut Vec<(u64, u8)>,
    hosts: &mut Vec<[u64; 2]>,
    parts: &mut Vec<[u64; 3]>,
) {
    let (mut begin, end) = ((first >> 64) as u64, (last >> 64) as u64);
    let (low, high) = (first as u64, last as u64);
    let mut part = |network: u64, low: u64, high: u64| match low == high {
        true => hosts.push([network, low]),
        false => parts.push([network, low, high]),
    };
    if begin == end && (low, high) != (0, u64::MAX) {
        return part(begin, low, high);
    }
    let is_cut = high != u64::MAX;
    if low != 0 {
        part(begin, low, u64::MAX);
        begin += 1; // ends in a later one
    }
    if is_cut {
        part(end, 0, high);
    }
    let end = if is_cut { end.checked_sub(1) } else { Some(end) };
    if let Some(end) = end.filter(|end| begin <= *end) {
        networks(begin.into(), end.into(), 64, |first, bits| whole.push((first as u64, bits)));
    }
}

/// Sorts ranges and joins those that meet.
fn merge<A: Copy + Ord>(ranges: &mut Vec<(A, A)>, next: impl Fn(A) -> Option<A>) {
    ranges.sort_unstable();
    ranges.dedup_by(|behind, before| {
        // Behind the last address there is none.
        let meets = next(before.1).is_none_or(|next| behind.0 <= next);
        if meets {
            before.1 = before.1.max(behind.1);
        }
        meets
    });
}

fn address(text: &str) -> Result<IpAddr, String> {
    let parsed = text.parse::<IpAddr>().map_err(|_| format!("{} is no address", shown(text)))?;
    Ok(parsed.to_canonical())
}

/// What a message may show of a line. The file may be one that a list has become by a link, and that its maker may not read:
/// only what can be a mistake in an address is shown, and only how it begins.
fn shown(text: &str) -> String {
    match text.get(..SHOWN) {
        _ if !is_of_addresses(text) => "this".to_owned(),
        Some(begin) if text.len() > SHOWN => format!("`{begin}…`"),
        _ => format!("`{text}`"),
    }
}

fn is_of_addresses(text: &str) -> bool {
    text.contains(['.', ':', '/'])
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/- ".contains(&byte))
}

/// Whether all of it may be shown.
fn is_shown(text: &str) -> bool {
    text.len() <= SHOWN && is_of_addresses(text)
}

/// A network of a list; bits behind its own are taken for zero, as whoever writes such lists means it.
fn network(text: &str) -> Result<Network, String> {
    let exact = read_network(text);
    if let (Err(_), Some((address, bits))) = (&exact, text.split_once('/'))
        && let (Ok(address), Ok(bits)) = (address.trim().parse::<IpAddr>(), bits.trim().parse::<u8>())
        && bits <= if address.is_ipv4() { 32 } else { 128 }
    {
        let masked = super::first_address(address, bits);
        return read_network(&format!("{masked}/{bits}")).map_err(|_| no_network(text));
    }
    exact.map_err(|error| if is_shown(text) { error.message } else { no_network(text) })
}

fn no_network(text: &str) -> String {
    format!(
        "{} is no address, network or range, such as `192.0.2.7`, `192.0.2.0/24` or `2001:db8::/32`",
        shown(text)
    )
}

/// The line of a list that an address stands in, and what it says: for `explain`.
pub fn line_with(text: &[u8], address: IpAddr) -> Option<(usize, String)> {
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let Ok(bytes) = NetworkTable::encode(line) else { continue };
        if NetworkTable::new(bytes).is_some_and(|table| table.contains(address)) {
            let line = line.split(|byte| matches!(byte, b'#' | b';')).next().unwrap_or_default();
            return Some((number, String::from_utf8_lossy(line.trim_ascii()).into_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::networks::tests::{clients, networks};
    use super::*;
    use proptest::prelude::*;
    use std::time::Instant;

    fn table(text: &str) -> NetworkTable<Vec<u8>> {
        NetworkTable::new(NetworkTable::encode(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn what_lists_look_like() {
        let text = "\u{feff}# a block list\r\n10.0.0.0/8 ; SBL1\r\n\r\n192.0.2.7\n2001:db8::/32\n::1 # this machine\n\
                    198.51.100.9-198.51.100.20\n10.3.4.5/9\n2001:db8:0:1::8/126\n::ffff:203.0.113.1";
        let list = table(text);
        assert_eq!(list.entries(), 8);
        for (address, expected) in [
            ("10.255.0.1", true),
            ("11.0.0.0", false),
            ("::ffff:10.0.0.1", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::1", true),
            ("::2", false),
            ("198.51.100.8", false),
            ("198.51.100.9", true),
            ("198.51.100.20", true),
            ("198.51.100.21", false),
            ("203.0.113.1", true),
        ] {
            assert_eq!(list.contains(address.parse().unwrap()), expected, "{address}");
        }
        let line = line_with(text.as_bytes(), "10.9.9.9".parse().unwrap());
        assert_eq!(line, Some((2, "10.0.0.0/8".to_owned())));
    }

    #[test]
    fn what_is_no_list_says_its_line() {
        for (text, line) in [
            ("10.0.0.0/8\nwords", 2),
            ("all", 1),
            ("10.0.0.0/33", 1),
            ("10.0.0.9-10.0.0.1", 1),
            ("\n\n\u{1}\n", 3),
        ] {
            assert_eq!(NetworkTable::encode(text.as_bytes()).unwrap_err().0, line, "{text:?}");
        }
        // What a link of whoever writes the list leads to is not told.
        for (text, shown) in [
            ("root:$6$salt$hash:19000:0:99999:7:::", "this is no address, "),
            ("0123456789abcdef0123456789abcdef", "this is no address, "),
            ("secret-secret-1.2", "this is no address"),
            ("10.0.0.0/33", "`10.0.0.0/33` is no network: the bits go from 0 to 32"),
            ("10.0.0-10.0.1", "`10.0.0` is no address"),
            ("2001:db8:0:1:2:3:4:5:6", "`2001:db8:0:1:2:…` is no address, "),
        ] {
            let (_, why) = NetworkTable::encode(text.as_bytes()).unwrap_err();
            assert!(why.starts_with(shown), "{text}: {why}");
        }
        let bytes = NetworkTable::encode(b"10.0.0.0/8\n::1").unwrap();
        for length in 0..bytes.len() {
            assert!(NetworkTable::new(&bytes[..length]).is_none(), "cut at {length}");
        }
        assert!(!table("").contains("10.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn a_table_is_what_its_networks_are(list in prop::collection::vec(networks(), 0..60), who in clients()) {
            let list: Vec<Network> =
                list.into_iter().filter(|network| matches!(network, Network::Prefix { .. })).collect();
            let text: String = list.iter().map(|network| format!("{network}\n")).collect();
            let table = table(&text);
            prop_assert_eq!(table.entries(), list.len());
            if let Some(address) = who {
                prop_assert_eq!(table.contains(address), list.iter().any(|network| network.covers(who)));
            }
        }

        #[test]
        fn ranges_are_what_lies_between_their_ends(
            ends in prop::collection::vec((any::<bool>(), 0..3u64, 0..4u64, 0..3u64, 0..4u64), 0..80),
            (high, low) in (0..3u64, 0..4u64),
        ) {
            // Few addresses on either side of where networks of 64 bits meet.
            let near = |low: u64| if low < 2 { low } else { u64::MAX - (3 - low) };
            let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(near(low));
            let ends: Vec<(u128, u128)> = ends
                .into_iter()
                .map(|(is_one, high, low, later, last)| {
                    let (one, other) = (address(high, low), address(later, last));
                    if is_one { (one, one) } else { (one.min(other), one.max(other)) }
                })
                .collect();
            let text: String = ends
                .iter()
                .map(|(first, last)| format!("{}-{}\n", std::net::Ipv6Addr::from(*first), std::net::Ipv6Addr::from(*last)))
                .collect();
            let asked = address(high, low);
            let expected = ends.iter().any(|(first, last)| (*first..=*last).contains(&asked));
            let is_v4_looking = std::net::Ipv6Addr::from(asked).to_ipv4_mapped().is_some();
            prop_assert!(is_v4_looking || table(&text).contains(std::net::Ipv6Addr::from(asked).into()) == expected);
        }

        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..200), who in clients()) {
            let _ = NetworkTable::encode(&bytes);
            let with_magic = [&MAGIC[..], &bytes].concat();
            if let (Some(table), Some(who)) = (NetworkTable::new(with_magic), who) {
                table.contains(who);
            }
        }
    }

    fn million(make: impl Fn(&mut fastrand::Rng) -> String) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        let lines: String = (0..1_000_000).map(|_| make(&mut random) + "\n").collect();
        NetworkTable::encode(lines.as_bytes()).unwrap()
    }

    /// The bound: a million entries of any kind in 16 MB.
    #[test]
    fn a_million_entries_fit_into_sixteen_megabytes() {
        let v4 = million(|random| std::net::Ipv4Addr::from(random.u32(..)).to_string());
        assert!(v4.len() <= 5_100_000, "{}", v4.len());
        let v6 = million(|random| std::net::Ipv6Addr::from(random.u128(..)).to_string());
        let levels = NetworkTable::new(&v6).unwrap().v6.map(|levels| levels.0.concat().len() * 8);
        assert!(v6.len() + levels.iter().sum::<usize>() <= 16 << 20, "{} {levels:?}", v6.len());
        let nets = million(|random| format!("{}/48", std::net::Ipv6Addr::from(random.u128(..))));
        assert!(nets.len() <= 16 << 20, "{}", nets.len());
    }

    /// What a look-up takes: `cargo test --release -p tidegate-config -- --ignored --nocapture looks_up`.
    #[test]
    #[ignore = "it measures"]
    fn looks_up_among_a_million() {
        let bytes =
            million(|random| format!("{}/{}", std::net::Ipv4Addr::from(random.u32(..)), random.u8(24..=32)));
        let table = NetworkTable::new(bytes).unwrap();
        let mut random = fastrand::Rng::with_seed(8);
        let asked: Vec<IpAddr> = (0..1 << 20).map(|_| IpAddr::from(random.u32(..).to_be_bytes())).collect();
        let hosts = million(|random| std::net::Ipv6Addr::from(random.u128(..)).to_string());
        let (hosts, mut asked_v6) = (NetworkTable::new(hosts).unwrap(), asked.clone());
        asked_v6.iter_mut().for_each(|address| *address = IpAddr::from(random.u128(..).to_be_bytes()));
        for (table, asked) in [(&table, asked), (&hosts, asked_v6)] {
            let begin = Instant::now();
            let found = asked.iter().filter(|address| table.contains(**address)).count();
            println!("{} ns a look-up, {found} found", begin.elapsed().as_nanos() / asked.len() as u128);
        }
    }
}
