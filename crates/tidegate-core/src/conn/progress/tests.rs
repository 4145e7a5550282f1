//! Slow downloads on a time of their own: a model of the two kernels between the server and a slow client, with
//! the decisions of `progress` on it. Rates × buffers × sizes × protocols; real sockets are for `cargo xtask bench slow`.

use super::*;

const TERMS: Terms =
    Terms { rate: 256, grace: Duration::from_secs(30), span: Duration::from_millis(30_000 / LOOKS as u64) };
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;
const STEP: Duration = Duration::from_millis(50);
/// Longer than any download below may take.
const FOREVER: Duration = Duration::from_secs(3 * 3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Plain or TLS, which hold up to a record of ciphertext: nothing that decides.
    Http1,
    /// With the window of a stream.
    Http2(u64),
}

#[derive(Debug, Clone, Copy)]
struct Case {
    protocol: Protocol,
    /// Bytes per second that the client reads.
    rate: u64,
    /// The client's receive buffer.
    receive: u64,
    /// What the server's kernel accepts.
    send: u64,
    /// The largest segment.
    segment: u64,
    size: u64,
}

impl Case {
    /// TCP tells of room in pieces of this size (silly window avoidance, RFC 9293 section 3.8.6.2.2).
    fn piece(&self) -> u64 {
        (self.receive / 16).max(self.segment).min(self.receive)
    }
}

/// The two kernels, and the client.
#[derive(Default)]
struct Path {
    /// Accepted by the server's kernel and not acknowledged.
    queue: u64,
    acked: u64,
    /// In the client's kernel, not yet read.
    buffered: u64,
    /// What the client's kernel would take.
    open: u64,
    read: u64,
    /// Of a byte.
    fraction: f64,
}

impl Path {
    fn step(&mut self, case: &Case) {
        self.fraction += case.rate as f64 * STEP.as_secs_f64();
        let count = (self.fraction as u64).min(self.buffered);
        self.fraction = (self.fraction - count as f64).min(case.rate as f64);
        self.buffered -= count;
        self.read += count;
        let free = case.receive - self.buffered;
        if free >= case.piece() && free >= 2 * self.open {
            self.open = free;
        }
        let moved = self.queue.min(self.open);
        self.queue -= moved;
        self.open -= moved;
        self.acked += moved;
        self.buffered += moved;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Complete,
    Cut(Duration),
}

/// Sends as a connection does, with its timers. `taken`: what is taken for progress.
fn download(case: &Case, taken: impl Fn(&Path) -> u64) -> End {
    let mut path = Path { open: case.receive, ..Path::default() };
    let mut left = case.size;
    let mut accepted = 0;
    let (mut reader, mut pace) = (Reader::new(), StreamPace::new(TERMS.grace, 0));
    reader.begin(TERMS.grace, 0);
    let mut updated = 0; // what the client has said to have consumed of the stream
    let mut is_full = false;
    let mut now = Duration::ZERO;
    let mut look_at: Option<Duration> = None;
    let mut idle_at = None;
    loop {
        // A full socket is writable again when a third of it is free.
        is_full &= path.queue > case.send * 2 / 3;
        if !is_full {
            let window = match case.protocol {
                Protocol::Http1 => u64::MAX,
                Protocol::Http2(window) => window - (accepted - updated),
            };
            let count = left.min(case.send.saturating_sub(path.queue)).min(window);
            is_full = left > count && window > count;
            path.queue += count;
            accepted += count;
            left -= count;
            pace.moves(count as usize);
        }
        if let Protocol::Http2(window) = case.protocol
            && path.read - updated >= window / 2
        {
            updated = path.read;
        }
        let is_starved = matches!(case.protocol, Protocol::Http2(window) if accepted - updated == window);
        if left == 0 {
            // With the kernel. Between requests; its timer finds that the client is not done.
            let idle = *idle_at.get_or_insert(now + KEEP_ALIVE);
            if path.queue == 0 {
                return End::Complete;
            }
            if now >= idle && look_at.is_none_or(|at| at < idle) {
                reader.begin(TERMS.grace, millis(now));
                look_at = Some(now + reader.span(TERMS));
            }
        } else if is_full || matches!(case.protocol, Protocol::Http2(_)) {
            look_at = look_at.or(Some(now + reader.span(TERMS)));
        } else {
            look_at = None;
        }
        if look_at.is_some_and(|at| now >= at) {
            let taken = taken(&path);
            let next = reader.look(taken, millis(now), TERMS);
            match case.protocol {
                Protocol::Http2(_) if left > 0 => {
                    let is_under_way = pace.is_under_way(taken, taken + path.queue) && is_starved && !is_full;
                    let is_awaited = is_full || is_under_way;
                    let waits =
                        if is_starved && !is_full && !is_under_way { Waits::Window } else { Waits::No };
                    if !is_awaited {
                        reader.restore(TERMS.grace);
                    }
                    if (is_awaited && next.is_none()) || !pace.look(waits, millis(now), TERMS) {
                        return End::Cut(now);
                    }
                    look_at = Some(now + reader.span(TERMS));
                }
                _ => match next {
                    Some(after) => look_at = Some(now + after),
                    None => return End::Cut(now),
                },
            }
        }
        path.step(case);
        now += STEP;
        assert!(now < FOREVER, "{case:?} never ends: {left} left, {} with the kernel", path.queue);
    }
}

fn cases(rates: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &rate in rates {
        for protocol in [Protocol::Http1, Protocol::Http2(65_535), Protocol::Http2(1024 * KIB)] {
            for receive in [2304, 8 * KIB, 64 * KIB, 128 * KIB, 1024 * KIB] {
                for send in [16 * KIB, 128 * KIB, 2560 * KIB] {
                    for segment in [1460, 64 * KIB] {
                        for size in [64 * KIB, 1024 * KIB, 8192 * KIB] {
                            cases.push(Case { protocol, rate, receive, send, segment, size });
                        }
                    }
                }
            }
        }
    }
    cases
}

/// What of a case can be told from a client that has stopped: the first piece comes within `rate-grace`, and
/// no later one takes longer than what can be paid for.
fn is_steady(case: &Case) -> bool {
    let piece = match case.protocol {
        Protocol::Http1 => case.piece(),
        Protocol::Http2(window) => case.piece().max(window / 2),
    };
    piece * 100 <= case.rate * 80 * TERMS.grace.as_secs()
}

#[test]
fn who_reads_steadily_is_never_cut() {
    let rates = [300, 500, 1000, 2000, 3500, 5000, 10_000, 20_000, 50_000, 1_000_000];
    let mut tried = 0;
    for case in cases(&rates).iter().filter(|case| is_steady(case) && case.size / case.rate < 9000) {
        assert_eq!(download(case, |path| path.acked), End::Complete, "{case:?}");
        tried += 1;
    }
    assert!(tried > 700, "{tried} cases");
}

#[test]
fn what_the_kernel_has_accepted_is_no_progress() {
    // The rule that this one has replaced: it cut what is steady, so the model can tell the two apart.
    let case = Case {
        protocol: Protocol::Http1,
        rate: 10_000,
        receive: 128 * KIB,
        send: 2560 * KIB,
        segment: 1460,
        size: 8192 * KIB,
    };
    assert_eq!(download(&case, |path| path.acked), End::Complete);
    assert!(matches!(download(&case, |path| path.acked + path.queue), End::Cut(_)));
}

#[test]
fn who_has_stopped_is_cut_after_the_grace() {
    for case in cases(&[0]) {
        let all = case.size <= case.receive; // it is there, read or not
        match download(&case, |path| path.acked) {
            End::Complete => assert!(all, "{case:?}"),
            // A whole answer with the kernel is looked after when the connection has been idle long enough.
            End::Cut(at) => {
                let filled = STEP * (case.receive / case.send) as u32;
                // What was taken between two looks is seen by the second; with a window that is its last byte.
                let is_seen_late = filled > TERMS.first_span() || case.protocol != Protocol::Http1;
                let unseen = if is_seen_late { TERMS.span() } else { Duration::ZERO };
                let most = TERMS.grace + filled + unseen + STEP * 4;
                let is_with_the_kernel = case.size <= case.send + case.receive;
                let most = if is_with_the_kernel { most + KEEP_ALIVE } else { most };
                assert!(at >= TERMS.grace && at <= most, "{case:?}: {at:?}");
            }
        }
    }
}

#[test]
fn who_reads_too_slowly_is_cut_in_time() {
    for rate in [50, 128] {
        for case in cases(&[rate]).iter().filter(|case| case.size >= 8192 * KIB) {
            let End::Cut(at) = download(case, |path| path.acked) else { panic!("{case:?}") };
            assert!(at <= TERMS.grace * (2 * PREPAID + 2), "{case:?}: {at:?}");
        }
    }
}

#[test]
fn no_rate_waits_for_ever() {
    let mut reader = Reader::new();
    let terms = Terms { rate: 0, ..TERMS };
    reader.begin(terms.grace, 0);
    for now in 0..10_000 {
        assert!(reader.look(0, now * 1000, terms).is_some());
    }
}

#[test]
fn no_stream_is_slow_because_others_use_the_connections_window() {
    let looks = |waits: Waits| {
        let mut pace = StreamPace::new(TERMS.grace, 0);
        (1..=10 * LOOKS).take_while(|look| pace.look(waits, millis(TERMS.span() * *look), TERMS)).count()
    };
    let steady = TERMS.rate * TERMS.span().as_millis() as u32 / 1000 * 2;
    assert_eq!(looks(Waits::Connection(steady)), 10 * LOOKS as usize, "it has only not had its turn");
    // The first finds it waiting, and since when is not known; the others have waited for all of the grace.
    assert_eq!(looks(Waits::Connection(0)), LOOKS as usize, "nobody has: the client gives nothing back");
    assert_eq!(looks(Waits::Window), LOOKS as usize, "its own window is closed");
}

/// Looks as often as it says to, at bytes that come at these times (ms); when it is given up.
fn give_up_sender(terms: Terms, pieces: &[(u32, u32)]) -> Option<u32> {
    let (mut sender, mut now, mut counted) = (Reader::new(), 0, 0);
    sender.begin_counting(terms.grace, now);
    let mut after = sender.span(terms);
    while pieces.last().is_some_and(|(last, _)| now < last + 5 * millis(terms.grace)) {
        now += millis(after);
        let come: u32 = pieces.iter().filter(|(at, _)| *at <= now).map(|(_, bytes)| bytes).sum();
        match sender.look_after(come - std::mem::replace(&mut counted, come), now, terms) {
            Some(next) => after = next,
            None => return Some(now),
        }
    }
    None
}

#[test]
fn content_that_comes_in_pieces_is_judged_over_the_grace_and_not_in_windows_of_it() {
    let terms = Terms::new(256, Duration::from_secs(4));
    let steady: Vec<(u32, u32)> = (1..40).map(|count| (count * 3000, 1000)).collect();
    let end = give_up_sender(terms, &steady).expect("it has ended");
    let last = steady.last().unwrap().0;
    assert!((last + 4000..=last + 12_500).contains(&end), "{end}: {last} was the last piece");
    // Whoever has sent much at once and then stops has no more time than whoever stops at once.
    assert_eq!(give_up_sender(terms, &[(0, 1 << 20)]), Some(4500));
    let slow: Vec<(u32, u32)> = (1..40).map(|count| (count * 1000, 128)).collect();
    let end = give_up_sender(terms, &slow).expect("it is slower than it may be");
    assert!((4000..=8500).contains(&end), "{end}");
}

/// However small the pieces are, and however often they come, a hoarder is given up in time.
#[test]
fn who_sends_or_takes_a_byte_now_and_then_is_given_up() {
    for (rate, grace, bytes, gap) in
        [(1024, 5, 1, 50), (1024, 5, 10, 100), (256, 30, 1, 100), (256, 30, 40, 200), (256, 30, 1, 1000)]
    {
        let terms = Terms::new(rate, Duration::from_secs(grace));
        let pieces: Vec<(u32, u32)> = (1..2_000).map(|count| (count * gap, bytes)).collect();
        let end = give_up_sender(terms, &pieces).expect("it is too slow");
        let grace = 1000 * grace as u32;
        // What it pays makes its time longer by that part of it.
        let most = f64::from(grace) / (1.0 - f64::from(bytes * 1000 / gap) / f64::from(rate)) * 1.2;
        assert!((grace..=most as u32 + 100).contains(&end), "{rate} {bytes} {gap}: {end}, {most}");
    }
}
