//! Who has been answered with certain statuses too often, and is not let in for a while: for very many clients, in memory
//! of fixed size that processes share.
//!
//! Eight clients make a set: who they are (a number that says it, so that they can be listed), and what is known of each,
//! one word. That is when it was counted first and how often since, or until when it is banned. Who is counted no longer,
//! or banned no longer, gives its place to others; where a set has no such place, the client that was counted first does.
//! Who takes a place claims what is known in it first and puts its name there then, so that nothing is counted for another.
//! Nobody who is banned is let go for another. Where all eight are banned, further clients are not counted.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::spin_loop;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use tidegate_http::Customer;
use tidegate_io::shared::SharedWords;
use tidegate_io::socket::Peer;

const WAYS: usize = 8;
const SET: usize = 2 * WAYS;
/// Words in front of the sets: how many could not be counted, how many requests were refused, the words of the secret.
const HEAD: usize = 8;
const CROWDED: usize = 0;
const REFUSED: usize = 1;
const SECRET: [usize; 2] = [2, 3];
/// What is known of a client: the upper bit says that it is banned, and the rest until when (milliseconds); else the lower
/// bits count, and those above say since when.
const BANNED: u64 = 1 << 63;
const COUNT_BITS: u32 = 20;
/// The most that is counted.
pub const MOST: u32 = (1 << COUNT_BITS) - 1;
const TRIES: usize = 64;
/// What takes longer than these milliseconds was given up.
const ABANDONED: u64 = 1000;

/// A client that can be banned: an IPv4 address, or the network of 64 bits that each has of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client(u64);

/// In front of an IPv4 address. As a network of IPv6 it is one that nobody has.
const V4: u64 = 0xFFFF << 32;

impl Client {
    /// `None`: it has no address.
    pub fn of(peer: Peer) -> Option<Client> {
        let Peer::Tcp(address) = peer else { return None };
        Self::at(address.ip()).filter(|client| client.0 != V4) // whom a proxy does not name is many
    }

    /// Whoever has this address.
    pub fn at(address: IpAddr) -> Option<Client> {
        Some(Client(match Customer::of(address) {
            Customer::V4(address) => V4 | u64::from(address.to_bits()),
            // Networks from 0 to V4 and beyond are nobody's.
            Customer::V6(network) => Some(network).filter(|network| *network > V4 << 1).unwrap_or(1),
        }))
    }
}

/// As [`Display`](std::fmt::Display) writes it.
impl std::str::FromStr for Client {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Client, Self::Err> {
        let address: IpAddr = text.strip_suffix("/64").unwrap_or(text).parse()?;
        // Every address is some client's.
        Ok(Client::at(address).unwrap_or(Client(1)))
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 >> 32 {
            0xFFFF => write!(f, "{}", Ipv4Addr::from_bits(self.0 as u32)),
            0 => f.write_str("::/64"),
            _ => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64)),
        }
    }
}

/// When clients are banned.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// So many.
    pub count: u32,
    /// In this time.
    pub within: Duration,
    /// And for how long.
    pub lasts: Duration,
}

/// Clients that are counted, and those that are banned.
#[derive(Debug)]
pub struct Bans {
    words: SharedWords,
    sets: u64,
    hasher: DefaultHasher,
}

impl Bans {
    /// Words of a table for `keys` clients at once: 32 bytes each.
    pub fn length(keys: usize) -> usize {
        // Half of the places stay free, so that hardly any set is full before so many are there.
        let sets = keys.div_ceil(WAYS / 2).max(1);
        sets.saturating_mul(SET).saturating_add(HEAD)
    }

    /// An empty table in words that are all zero.
    ///
    /// # Errors
    /// `InvalidData`: they are too few.
    pub fn new(words: SharedWords, secret: [u64; 2]) -> io::Result<Bans> {
        for (word, secret) in SECRET.into_iter().filter_map(|at| words.words().get(at)).zip(secret) {
            word.store(secret, Relaxed);
        }
        Self::attach(words)
    }

    /// The table that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(words: SharedWords) -> io::Result<Bans> {
        let sets = words.words().len().saturating_sub(HEAD) / SET;
        if sets == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the shared memory is no table of bans"));
        }
        let mut hasher = DefaultHasher::new();
        SECRET.map(|at| words.words()[at].load(Relaxed)).hash(&mut hasher);
        Ok(Bans { words, sets: sets as u64, hasher })
    }

    /// How much longer a client is banned at `now` (nanoseconds of the monotonic clock); `None`: it is not.
    pub fn left(&self, client: Client, now: u64) -> Option<Duration> {
        let (clients, states) = self.set(client);
        let way = clients.iter().position(|known| known.load(SeqCst) == client.0)?;
        left(states[way].load(SeqCst), millis(now))
    }

    /// Counts one more of a client. Whether it is banned from now on.
    pub fn count(&self, client: Client, terms: Terms, now: u64) -> bool {
        let now = millis(now);
        let is_banned = self.change(client, now, |known| match left(known, now) {
            Some(_) => (None, false), // a request that was under way
            None => {
                let (next, is_banned) = counted(known, terms, now);
                (Some(next), is_banned)
            }
        });
        is_banned.unwrap_or_else(|| {
            self.words.words()[CROWDED].fetch_add(1, Relaxed);
            false
        })
    }

    /// Bans a client for so long, unless it is banned for longer. Whether there was a place for it.
    pub fn ban(&self, client: Client, lasts: Duration, now: u64) -> bool {
        let now = millis(now);
        let banned = BANNED | now.saturating_add(span(lasts)).min(!BANNED);
        let changed = self.change(client, now, |known| match left(known, now) >= left(banned, now) {
            true => (None, ()),
            false => (Some(banned), ()),
        });
        changed.is_some()
    }

    /// Puts what is known of a client in place of what was, 0 where nothing was: `next` says what, or that it stays.
    /// `None`: there is no place for it.
    fn change<R>(&self, client: Client, now: u64, next: impl Fn(u64) -> (Option<u64>, R)) -> Option<R> {
        let (clients, states) = self.set(client);
        for _ in 0..TRIES {
            let Some(way) = way_of(clients, client) else {
                let (first, result) = next(0);
                let Some(first) = first else { return Some(result) };
                match take(clients, states, client, first, now) {
                    Taking::Done => return Some(result),
                    Taking::Full => return None,
                    Taking::Again => {
                        spin_loop();
                        continue;
                    }
                }
            };
            // Read before it is looked whose it is: who takes a place changes what is known in it first.
            let known = states[way].load(SeqCst);
            if is_claim(known) || clients[way].load(SeqCst) != client.0 {
                spin_loop();
                continue;
            }
            let (next, result) = next(known);
            let is_done =
                next.is_none_or(|next| states[way].compare_exchange(known, next, SeqCst, SeqCst).is_ok());
            if is_done {
                return Some(result);
            }
        }
        None
    }

    /// Lifts the ban of a client, and forgets what was counted of it; whether it was banned.
    pub fn lift(&self, client: Client, now: u64) -> bool {
        let (clients, states) = self.set(client);
        while let Some(way) = way_of(clients, client) {
            let known = states[way].load(SeqCst);
            if is_claim(known) || clients[way].load(SeqCst) != client.0 {
                return false; // it comes or goes just now
            }
            if states[way].compare_exchange(known, 0, SeqCst, SeqCst).is_ok() {
                return left(known, millis(now)).is_some();
            }
        }
        false
    }

    /// Who is banned, and for how much longer.
    pub fn list(&self, now: u64) -> Vec<(Client, Duration)> {
        let sets = self.words.words()[HEAD..].chunks_exact(SET);
        let both = sets.flat_map(|set| set[..WAYS].iter().zip(&set[WAYS..]));
        let banned = both.filter_map(|(client, state)| {
            let left = left(state.load(SeqCst), millis(now))?;
            Some((Client(client.load(SeqCst)), left))
        });
        banned.collect()
    }

    /// A number that all processes have which share the table, and hardly any other.
    pub fn identity(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(b"identity");
        hasher.finish()
    }

    /// A request of somebody who is banned was refused, or would have been.
    pub fn count_refused(&self) {
        self.words.words()[REFUSED].fetch_add(1, Relaxed);
    }

    /// How many requests were refused, in all processes.
    pub fn refused(&self) -> u64 {
        self.words.words()[REFUSED].load(Relaxed)
    }

    /// How often a client could not be counted, since the table is too small.
    pub fn crowded(&self) -> u64 {
        self.words.words()[CROWDED].load(Relaxed)
    }

    fn set(&self, client: Client) -> (&[AtomicU64], &[AtomicU64]) {
        let mut hasher = self.hasher.clone();
        hasher.write_u64(client.0);
        let set = ((u128::from(hasher.finish()) * u128::from(self.sets)) >> 64) as usize;
        self.words.words()[HEAD + set * SET..][..SET].split_at(WAYS)
    }
}

fn way_of(clients: &[AtomicU64], client: Client) -> Option<usize> {
    clients.iter().position(|known| known.load(SeqCst) == client.0)
}

/// What is known of a client after one more, and whether it is banned from now on.
fn counted(known: u64, terms: Terms, now: u64) -> (u64, bool) {
    let since = known >> COUNT_BITS;
    let is_over = known & BANNED != 0 || known == 0 || now.saturating_sub(since) >= span(terms.within);
    let (since, count) = if is_over { (now, 1) } else { (since, (known & u64::from(MOST)) + 1) };
    let is_banned = count >= u64::from(terms.count);
    let next = match is_banned {
        true => BANNED | now.saturating_add(span(terms.lasts)).min(!BANNED),
        false => since << COUNT_BITS | count,
    };
    (next, is_banned)
}

/// Somebody takes the place since the time that it says: nothing was counted in it.
fn is_claim(state: u64) -> bool {
    state != 0 && state & (BANNED | u64::from(MOST)) == 0
}

enum Taking {
    /// The client has a place, with what is known of it first.
    Done,
    /// Another one has come in between.
    Again,
    /// All places are of those who are banned.
    Full,
}

/// Takes a place for a client: one that is nobody's, else that of the one that is counted for the longest.
fn take(clients: &[AtomicU64], states: &[AtomicU64], client: Client, first: u64, now: u64) -> Taking {
    let known: [u64; WAYS] = array::from_fn(|way| clients[way].load(SeqCst));
    let seen: [u64; WAYS] = array::from_fn(|way| states[way].load(SeqCst));
    if (0..WAYS).any(|way| known[way] == client.0 && !is_claim(seen[way])) {
        return Taking::Again; // it has one by now
    }
    // A process that was killed while it took a place has left its claim.
    let is_stale = |state: u64| now.saturating_sub(state >> COUNT_BITS) > ABANDONED;
    let age = |way: &usize| match seen[*way] {
        state if is_claim(state) => is_stale(state).then_some(0),
        _ if known[*way] == 0 => Some(0),
        state if left(state, now).is_some() => None,
        state if state & BANNED != 0 => Some(1),
        state => Some((state >> COUNT_BITS).max(1)),
    };
    // What a killed process was about to take for this client comes first: nobody has two places.
    let order = |way: &usize| (known[*way] != client.0, age(way));
    let Some(way) = (0..WAYS).filter(|way| age(way).is_some()).min_by_key(order) else {
        return if seen.iter().any(|state| is_claim(*state)) { Taking::Again } else { Taking::Full };
    };
    let claim = now.max(1) << COUNT_BITS;
    if states[way].compare_exchange(seen[way], claim, SeqCst, SeqCst).is_err() {
        return Taking::Again;
    }
    if clients[way].compare_exchange(known[way], client.0, SeqCst, SeqCst).is_err() {
        let before = if is_claim(seen[way]) { 0 } else { seen[way] };
        let _ = states[way].compare_exchange(claim, before, SeqCst, SeqCst);
        return Taking::Again;
    }
    // Somebody else may have taken another place for the same client meanwhile: then one of them has to go.
    if (0..WAYS).any(|other| other != way && clients[other].load(SeqCst) == client.0) {
        let _ = clients[way].compare_exchange(client.0, 0, SeqCst, SeqCst);
        let _ = states[way].compare_exchange(claim, 0, SeqCst, SeqCst);
        return Taking::Again;
    }
    match states[way].compare_exchange(claim, first, SeqCst, SeqCst) {
        Ok(_) => Taking::Done,
        Err(_) => Taking::Again,
    }
}

/// How much longer a ban lasts.
fn left(state: u64, now: u64) -> Option<Duration> {
    let until = (state & BANNED != 0).then_some(state & !BANNED)?;
    until.checked_sub(now).filter(|left| *left > 0).map(Duration::from_millis)
}

fn millis(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000
}

fn span(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::memory_of;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::Barrier;
    use std::thread;

    const SECOND: u64 = 1_000_000_000;
    const TERMS: Terms = Terms { count: 3, within: Duration::from_secs(60), lasts: Duration::from_secs(600) };

    fn table(keys: usize) -> Bans {
        let [words] = memory_of(Bans::length(keys));
        Bans::new(words, [1, 2]).unwrap()
    }

    fn client(number: u32) -> Client {
        Client::at(IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + number))).unwrap()
    }

    #[test]
    fn who_is_banned_by_name_is_one_who_was_counted() {
        let table = table(100);
        let is_banned = |number, now| table.left(client(number), now);
        for number in 0..2 {
            table.count(client(number), TERMS, SECOND);
        }
        assert!(table.ban(client(0), Duration::from_secs(60), SECOND));
        assert!(table.ban(client(7), Duration::from_secs(60), SECOND));
        assert_eq!(is_banned(0, SECOND), Some(Duration::from_secs(60)));
        assert_eq!(is_banned(7, 31 * SECOND), Some(Duration::from_secs(30)));
        assert_eq!((is_banned(1, SECOND), is_banned(7, 61 * SECOND)), (None, None));
        assert!(table.ban(client(0), Duration::from_secs(1), SECOND), "it is banned for longer");
        assert_eq!(is_banned(0, SECOND), Some(Duration::from_secs(60)));
        assert!(table.lift(client(0), SECOND) && is_banned(0, SECOND).is_none());
        for text in ["192.0.2.1", "2001:db8::/64", "::/64"] {
            assert_eq!(text.parse::<Client>().unwrap().to_string(), text);
        }
        assert!("x".parse::<Client>().is_err());
    }

    /// Clients that come, go and take places of each other's: each is counted by itself, whoever comes in between.
    #[test]
    fn nobody_is_counted_for_another() {
        const CLIENTS: u32 = 12;
        const THREADS: usize = 4;
        let table = table(1); // of which all share one set
        let terms =
            Terms { count: THREADS as u32, within: Duration::from_secs(60), lasts: Duration::from_secs(60) };
        let banned: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
        let (wrong, crowded, barrier) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(THREADS));
        thread::scope(|scope| {
            for thread in 0..THREADS as u32 {
                let (table, banned, wrong, crowded, barrier) = (&table, &banned, &wrong, &crowded, &barrier);
                scope.spawn(move || {
                    for round in 1..30_000u32 {
                        // Four clients, each counted by every thread, which have orders of their own.
                        let first = round.wrapping_mul(0x9E37_79B9) >> 8;
                        let chosen: [u32; 4] = array::from_fn(|at| (first + at as u32 * 3) % CLIENTS);
                        barrier.wait();
                        for at in 0..4 {
                            let number = chosen[(at + thread as usize) % 4];
                            let now = u64::from(round) * 1000 * SECOND;
                            if table.count(client(number), terms, now) {
                                banned[number as usize].fetch_add(1, SeqCst);
                            }
                        }
                        if barrier.wait().is_leader() {
                            // One that was interrupted while it took a place may have kept another from being counted.
                            let is_alone = crowded.swap(table.crowded(), SeqCst) == table.crowded();
                            for number in 0..CLIENTS {
                                let times = banned[number as usize].swap(0, SeqCst);
                                let expected = u64::from(chosen.contains(&number));
                                wrong.fetch_add(u64::from(is_alone && times != expected), SeqCst);
                            }
                        }
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(wrong.load(SeqCst), 0);
        assert!(table.crowded() < 1000, "{}", table.crowded());
    }

    #[test]
    fn clients_are_read_and_written() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
            ("255.255.255.255", "255.255.255.255"),
        ] {
            assert_eq!(Client::at(address.parse().unwrap()).unwrap().to_string(), expected);
        }
        // What could be taken for an IPv4 address is not.
        let odd: IpAddr = "0:ffff:c000:201::".parse().unwrap();
        assert_ne!(Client::at(odd).unwrap(), Client::at("192.0.2.1".parse().unwrap()).unwrap());
        assert_eq!(Client::of(Peer::Unix), None);
        assert_eq!(Client::of(crate::remote::UNNAMED), None);
    }

    #[test]
    fn banned_for_a_time_for_all_and_lifted() {
        let [ours, theirs] = memory_of(Bans::length(100));
        let (ours, theirs) = (Bans::new(ours, [1, 2]).unwrap(), Bans::attach(theirs).unwrap());
        let now = 1000 * SECOND;
        assert!(!ours.count(client(1), TERMS, now) && !theirs.count(client(1), TERMS, now + SECOND));
        assert_eq!(ours.left(client(1), now), None);
        assert!(ours.count(client(1), TERMS, now + 2 * SECOND));
        assert_eq!(theirs.left(client(1), now + 3 * SECOND), Some(Duration::from_secs(599)));
        assert_eq!(theirs.list(now + 3 * SECOND), [(client(1), Duration::from_secs(599))]);
        assert_eq!(ours.left(client(1), now + 603 * SECOND), None);
        assert!(theirs.lift(client(1), now + 3 * SECOND) && !theirs.lift(client(1), now + 3 * SECOND));
        assert_eq!(ours.left(client(1), now + 3 * SECOND), None);
        // Who comes seldom is never banned.
        assert!((0..100).all(|turn| !ours.count(client(2), TERMS, now + turn * 31 * SECOND)));
    }

    #[test]
    fn a_flood_of_clients_frees_nobody() {
        let bans = table(100);
        let now = 1000 * SECOND;
        let ban = |number| {
            for _ in 0..TERMS.count {
                bans.count(client(number), TERMS, now);
            }
        };
        ban(0);
        for number in 1..100_000 {
            assert!(!bans.count(client(number), TERMS, now + u64::from(number)));
        }
        assert!(bans.left(client(0), now + SECOND).is_some());
        assert_eq!(bans.list(now).len(), 1);
        // Those who are many, and all banned, leave no place, which is counted.
        for number in 0..1000 {
            ban(number);
        }
        assert!(bans.crowded() > 0 && bans.list(now).len() <= 200);
    }

    #[test]
    fn counted_exactly_by_many_at_once() {
        let bans = table(100);
        let terms = Terms { count: 1000, ..TERMS };
        let banned: usize = thread::scope(|scope| {
            let ask = || (0..300).filter(|_| bans.count(client(7), terms, SECOND)).count();
            let all: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(banned <= 1 && (banned == 1 || bans.crowded() > 0));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let [words] = memory_of(HEAD + SET - 1);
        assert_eq!(Bans::attach(words).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        /// Beside a map that forgets nothing.
        #[test]
        fn as_a_map(steps in prop::collection::vec((0u32..10, 0u64..40), 1..300)) {
            let bans = table(4096);
            let mut model: HashMap<u32, (u64, u32, u64)> = HashMap::new();
            let mut now = 1000;
            for (number, gap) in steps {
                now += gap;
                let (since, count, until) = model.entry(number).or_default();
                let expected = if *until > now {
                    false
                } else {
                    if *count == 0 || now - *since >= 60 {
                        (*since, *count) = (now, 0);
                    }
                    *count += 1;
                    *count >= 3
                };
                if expected {
                    (*count, *until) = (0, now + 600);
                }
                prop_assert_eq!(bans.count(client(number), TERMS, now * SECOND), expected);
                prop_assert_eq!(bans.left(client(number), now * SECOND).is_some(), model[&number].2 > now);
            }
        }
    }
}
