//! Answers that are sent on a time of their own.

use super::*;
use crate::rate::Kind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use tidegate_config::settings::Origin;
use tidegate_io::shared::SharedMemory;

const SECOND: u64 = millis(1000);

fn settings(speed: u64, burst: u64, after: u64) -> Shared<Bandwidth> {
    let bandwidth = Bandwidth {
        name: "test".into(),
        speed: NonZeroU64::new(speed).unwrap(),
        burst,
        after,
        by: String::new(),
        keys: 10_000,
        is_tracked: false,
        origin: Origin::default(),
    };
    bandwidth.into()
}

/// The same bandwidth in several processes.
fn channels(settings: &Shared<Bandwidth>, processes: usize) -> Vec<Rc<Channel>> {
    let keys = if settings.by.is_empty() { 8 } else { settings.keys };
    let of_all = |kind, keys| {
        let identity = Identity { name: "test".into(), keys, kind };
        let length = identity.length(processes).unwrap();
        let (memory, _) = SharedMemory::new("test", length).unwrap();
        identity.fresh(memory.words(0..length).unwrap(), processes).unwrap();
        move || identity.attach(memory.words(0..length).unwrap()).unwrap()
    };
    let (times, clients) = (of_all(Kind::Speed, keys), of_all(Kind::Clients, 10_000));
    let channel = |_| {
        let (Table::Rate(times), Table::Count(clients)) = (times(), clients()) else { unreachable!() };
        let by = (!settings.by.is_empty()).then(|| Key::new(&settings.by, Scope::default()));
        Rc::new(Channel { settings: settings.clone(), by, times, clients, begun: Cell::new(0) })
    };
    (0..processes).map(channel).collect()
}

fn pace_of(channels: &[&Rc<Channel>], client: u32) -> Pace {
    let mut pace = Pace::default();
    for channel in channels {
        let client = client.to_le_bytes();
        let key = if channel.by.is_some() { SmallVec::from_slice(&client) } else { SmallVec::new() };
        pace.add(Share::new(channel, key, &client));
    }
    pace
}

struct Sender {
    pace: Pace,
    client: usize,
    begins: u64,
    /// Bytes that its client takes in each second, if fewer than it could have.
    takes: Option<u64>,
    /// Bytes that are sent at once at most.
    frame: u64,
    /// By second.
    sent: Vec<u64>,
}

/// Sends for so many seconds, by timers that are up to 3 ms late.
fn run(senders: &mut [Sender], seconds: u64, random: &mut Random) {
    let begin = clock::monotonic_ns();
    let mut events: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, sender) in senders.iter_mut().enumerate() {
        sender.sent = vec![0; seconds as usize];
        events.push(Reverse((sender.begins, index)));
    }
    while let Some(Reverse((at, index))) = events.pop() {
        if at >= seconds * SECOND {
            continue;
        }
        let sender = &mut senders[index];
        let now = begin + at;
        let next = loop {
            match sender.pace.next(None, now) {
                Grant::At(time) => break time - begin + random.below(millis(3)),
                Grant::Now(bytes) => {
                    let bytes = bytes.min(sender.frame);
                    let taken = sender.takes.map_or(bytes, |takes| bytes.min((takes / 100).max(1)));
                    sender.pace.spend(taken);
                    sender.sent[(at / SECOND) as usize] += taken;
                    if sender.takes.is_some() {
                        sender.pace.interrupt();
                        break at + millis(10); // the socket was full
                    }
                }
            }
        };
        events.push(Reverse((next.max(at), index)));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// Jain's index: 1 where all have as much, 1/n where one has all.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

fn by_client(senders: &[Sender], seconds: std::ops::Range<usize>) -> Vec<u64> {
    let mut shares = vec![0; senders.iter().map(|sender| sender.client + 1).max().unwrap()];
    for sender in senders {
        shares[sender.client] += sender.sent[seconds.clone()].iter().sum::<u64>();
    }
    shares
}

fn of_second(senders: &[Sender], second: usize) -> u64 {
    senders.iter().map(|sender| sender.sent[second]).sum()
}

#[test]
fn exact_and_fair_whatever_the_speed_and_the_crowd() {
    let mut random = Random(1);
    for speed in [100 << 10, 1 << 20, 10 << 20, 125_000_000, 1 << 30] {
        for (clients, connections) in [(1, 1), (1, 7), (2, 1), (3, 10), (10, 1), (100, 3), (1000, 1)] {
            for processes in [1, 3] {
                let settings = settings(speed, 0, 0);
                let channels = channels(&settings, processes);
                let mut senders = Vec::new();
                for client in 0..clients {
                    // The first client has many connections, the others one.
                    for _ in 0..if client == 0 { connections } else { 1 } {
                        let channel = &channels[random.below(processes as u64) as usize];
                        let begins = random.below(millis(50));
                        let pace = pace_of(&[channel], client as u32);
                        senders.push(Sender {
                            pace,
                            client,
                            begins,
                            takes: None,
                            frame: u64::MAX,
                            sent: Vec::new(),
                        });
                    }
                }
                run(&mut senders, 5, &mut random);
                let about = format!("{speed} B/s, {clients} clients, {connections} connections, {processes}");
                for second in 0..5 {
                    let exactness = of_second(&senders, second) as f64 / speed as f64;
                    // In the first second all begin within 50 ms.
                    let least = if second == 0 { 0.93 } else { 0.98 };
                    assert!((least..=1.02).contains(&exactness), "{about}: {exactness} in second {second}");
                }
                let fairness = jain(&by_client(&senders, 1..5));
                assert!(fairness >= 0.98, "{about}: {fairness}");
            }
        }
    }
}

/// Plain connections send what they may; TLS seals it in records, HTTP/2 cuts it into frames, of several streams of a
/// connection; heads go unasked. Whichever it is, one of them all or one of each client: a second holds what it may.
#[test]
fn exact_and_fair_over_every_protocol() {
    let mut random = Random(7);
    for (protocol, frame, streams) in [("plain", u64::MAX, 1), ("TLS", 16 << 10, 1), ("HTTP/2", 16 << 10, 3)]
    {
        for clients in [1, 10, 100, 1000_usize] {
            for (by, speed, wanted) in
                [("", 40 << 20, 40 << 20), ("{client}", 100 << 10, (100 << 10) * clients as u64)]
            {
                let settings = Bandwidth { by: by.into(), ..(*settings(speed, 0, 0)).clone() }.into();
                let channel = &channels(&settings, 1)[0];
                let mut senders = Vec::new();
                for client in 0..clients {
                    let begins = random.below(millis(50));
                    for _ in 0..streams {
                        let mut pace = pace_of(&[channel], client as u32);
                        pace.spend(random.below(400));
                        senders.push(Sender { pace, client, begins, takes: None, frame, sent: Vec::new() });
                    }
                }
                run(&mut senders, 4, &mut random);
                let about = format!("{protocol}, {clients} clients, by `{by}`");
                for second in 1..4 {
                    let exactness = of_second(&senders, second) as f64 / wanted as f64;
                    assert!((0.98..=1.02).contains(&exactness), "{about}: {exactness} in second {second}");
                }
                let fairness = jain(&by_client(&senders, 1..4));
                assert!(fairness >= 0.98, "{about}: {fairness}");
            }
        }
    }
}

/// What a client does not take goes to the others, and nobody is the slower for it.
#[test]
fn slow_clients_leave_their_share_to_others() {
    let mut random = Random(2);
    let speed = 10 << 20;
    let settings = settings(speed, 0, 0);
    let channels = channels(&settings, 2);
    let takes = [Some(100_000), Some(200_000), None, None];
    let sender = |(client, takes): (usize, &Option<u64>)| {
        let pace = pace_of(&[&channels[client % 2]], client as u32);
        Sender { pace, client, begins: 0, takes: *takes, frame: u64::MAX, sent: Vec::new() }
    };
    let mut senders: Vec<Sender> = takes.iter().enumerate().map(sender).collect();
    run(&mut senders, 4, &mut random);
    let shares = by_client(&senders, 1..4);
    assert!(
        (285_000..=300_000).contains(&shares[0]) && (560_000..=600_000).contains(&shares[1]),
        "{shares:?}"
    );
    let all = shares.iter().sum::<u64>() as f64 / (3.0 * speed as f64);
    assert!((0.98..=1.02).contains(&all), "{all}");
    assert!(jain(&shares[2..]) > 0.999, "{shares:?}");
}

/// Bandwidths add up: the slowest counts, and what it leaves of the other is there for others.
#[test]
fn the_slowest_of_several_counts() {
    let mut random = Random(3);
    let (of_all, of_site) = (settings(10 << 20, 0, 0), settings(1 << 20, 0, 0));
    let (all, site) = (&channels(&of_all, 1)[0], &channels(&of_site, 1)[0]);
    let sender = |client: usize, channels: &[&Rc<Channel>]| {
        let pace = pace_of(channels, client as u32);
        Sender { pace, client, begins: 0, takes: None, frame: u64::MAX, sent: Vec::new() }
    };
    let mut senders = vec![sender(0, &[all, site]), sender(1, &[all, site]), sender(2, &[all])];
    run(&mut senders, 4, &mut random);
    for second in 1..4 {
        let limited = (senders[0].sent[second] + senders[1].sent[second]) as f64 / f64::from(1 << 20);
        let everybody = of_second(&senders, second) as f64 / f64::from(10 << 20);
        assert!((0.98..=1.02).contains(&limited), "{limited} in second {second}");
        assert!((0.98..=1.02).contains(&everybody), "{everybody} in second {second}");
    }
}

#[test]
fn what_is_free_is_sent_at_once_and_a_burst_has_to_be_earned() {
    let settings = settings(1 << 20, 256 << 10, 100_000);
    let channel = &channels(&settings, 1)[0];
    let mut pace = pace_of(&[channel], 1);
    let mut now = clock::monotonic_ns();
    let send_all = |pace: &mut Pace, now: u64| {
        let mut sent = 0;
        while let Grant::Now(bytes) = pace.next(None, now) {
            pace.spend(bytes);
            sent += bytes;
        }
        sent
    };
    let first = send_all(&mut pace, now);
    let most = 100_000 + (256 << 10) + 2 * (16 << 10);
    assert!((100_000 + (256 << 10)..=most).contains(&first), "{first}");
    now += SECOND / 8;
    let then = send_all(&mut pace, now);
    assert!((100 << 10..=160 << 10).contains(&then), "what an eighth of a second earns: {then}");
    now += 60 * SECOND;
    let rested = send_all(&mut pace, now);
    assert!((256 << 10..=(256 << 10) + (64 << 10)).contains(&rested), "no more than a burst: {rested}");
}

#[test]
fn what_is_not_sent_is_given_back_and_debts_are_paid() {
    let settings = settings(10_000, 0, 0);
    let channel = &channels(&settings, 1)[0];
    let now = clock::monotonic_ns();
    let mut pace = pace_of(&[channel], 1);
    assert_eq!(pace.next(Some(150), now), Grant::Now(150));
    pace.spend(50);
    drop(pace);
    let mut pace = pace_of(&[channel], 1);
    let Grant::At(at) = pace.next(Some(10), now) else { panic!("some of its time is used") };
    assert_eq!(at - now, millis(5));
    drop(pace);
    // A head of 200 bytes that was not asked for.
    let mut pace = pace_of(&[channel], 1);
    pace.spend(200);
    drop(pace);
    let Grant::At(at) = pace_of(&[channel], 2).next(Some(10), now) else { panic!("it has to be paid") };
    assert!(at - now >= millis(25), "{}", at - now);
}

/// A client counts as one as long as it is answered at all, whichever of its answers ends first.
#[test]
fn a_client_of_many_answers_is_one_whichever_ends() {
    let mut random = Random(4);
    let settings = settings(40 << 20, 0, 0);
    for ended in [1, 3, 10] {
        let channel = &channels(&settings, 1)[0];
        let sender = |client: usize| {
            let pace = pace_of(&[channel], client as u32);
            Sender { pace, client, begins: 0, takes: None, frame: u64::MAX, sent: Vec::new() }
        };
        let mut senders: Vec<Sender> = [0; 10].into_iter().chain([1]).map(sender).collect();
        for sender in &mut senders {
            sender.pace.next(None, clock::monotonic_ns());
        }
        // The next answer of the same client, in place of one that ends.
        (0..ended).for_each(|at| senders[at] = sender(0));
        run(&mut senders, 3, &mut random);
        let fairness = jain(&by_client(&senders, 1..3));
        assert!(fairness >= 0.98, "{fairness} where {ended} have ended");
    }
}

/// Who asks for one thing after the other has no less than who asks once.
#[test]
fn answers_of_a_connection_go_on_where_the_last_has_ended() {
    let settings = settings(40 << 20, 0, 0);
    let channel = &channels(&settings, 1)[0];
    let connection = Rc::<ConnectionHolds>::default();
    let mut at = clock::monotonic_ns();
    let first_piece = |connection: &Rc<ConnectionHolds>, now: u64| {
        let mut pace = pace_of(&[channel], 1);
        pace.follow(connection);
        let Grant::Now(first) = pace.next(None, now) else { panic!("nobody else asks") };
        (pace, first)
    };
    let (mut pace, first) = first_piece(&connection, at);
    assert!((FIRST..2 * FIRST).contains(&first), "{first}");
    for _ in 0..20 {
        match pace.next(None, at) {
            Grant::Now(bytes) => pace.spend(bytes),
            Grant::At(time) => at = time,
        }
    }
    drop(pace);
    let (_pace, first) = first_piece(&connection, at + SECOND);
    assert!(first > 64 * FIRST, "{first}");
    let (_pace, first) = first_piece(&Rc::default(), at + 2 * SECOND);
    assert!(first < 2 * FIRST, "another connection begins as everybody does");
}

/// Pieces are as small as exactness wants them, and no smaller where many would pay for it.
#[test]
fn pieces_of_many_are_not_tiny() {
    for (answers, expected) in
        [(1, PIECE), (31, PIECE), (32, 2 * PIECE), (100, 4 * PIECE), (10_000, 8 * PIECE)]
    {
        assert_eq!(piece_among(answers), expected, "{answers} answers");
    }
    for (speed, clients, least) in
        [(40 << 20, 1000, 8 << 10), (10 << 20, 100, 10 << 10), (1 << 20, 1000, 400)]
    {
        let settings = settings(speed, 0, 0);
        let channel = &channels(&settings, 1)[0];
        let mut shares: Vec<Share> = (0..clients)
            .map(|client: u32| Share::new(channel, SmallVec::new(), &client.to_le_bytes()))
            .collect();
        let pieces: Vec<u64> = shares.iter_mut().map(Share::piece).collect();
        let piece = pieces[pieces.len() - 1];
        assert!((least * 9 / 10..=least * 12 / 10).contains(&piece), "{speed} B/s among {clients}: {piece}");
    }
}

/// The kernel spreads what comes in large pieces, a quarter faster than is reserved, and never what may be sent at once.
#[test]
fn large_pieces_are_spread_and_what_is_free_is_not() {
    const MIB: u64 = 1 << 20;
    let spread = |speeds: &[(u64, u64, u64, bool)]| {
        let all = speeds.iter().map(|(speed, burst, after, is_tracked)| {
            let settings = settings(*speed, *burst, *after);
            let settings = Bandwidth { is_tracked: *is_tracked, ..(*settings).clone() }.into();
            channels(&settings, 1).remove(0)
        });
        let all: Vec<_> = all.collect();
        let mut pace = pace_of(&all.iter().collect::<Vec<_>>(), 1);
        let (mut now, mut told, mut sent) = (clock::monotonic_ns(), Vec::new(), 0);
        while sent < 20 * MIB {
            match pace.next(None, now) {
                Grant::At(at) => now = at,
                Grant::Now(bytes) => {
                    told.extend(pace.spread().map(|rate| (rate, sent)));
                    pace.spend(bytes);
                    sent += bytes;
                }
            }
        }
        assert_eq!(pace.ends_spreading(), !told.is_empty());
        assert!(!pace.ends_spreading(), "the kernel is let go once");
        told
    };
    let told = spread(&[(16 * MIB, 0, 0, false)]);
    assert!(matches!(told[..], [(rate, sent)] if rate == 20 * MIB && sent < MIB), "once: {told:?}");
    assert_eq!(spread(&[(MIB, 0, 0, false)]), [], "its pieces are small");
    assert_eq!(spread(&[(16 * MIB, MIB, 0, false)]), [], "a burst is sent at once");
    let told = spread(&[(16 * MIB, 0, 5 * MIB, false)]);
    assert!(matches!(told[..], [(_, sent)] if sent >= 5 * MIB), "behind what is free: {told:?}");
    let told = spread(&[(32 * MIB, 0, 0, false), (8 * MIB, 0, 0, false), (6 * MIB, 0, 0, true)]);
    assert!(matches!(told[..], [(rate, _)] if rate == 10 * MIB), "the slowest that is enforced: {told:?}");
}
