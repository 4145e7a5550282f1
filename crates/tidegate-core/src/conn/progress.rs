//! Whether a client that takes slowly what it asked for is still taking it, and one that sends slowly still sending.
//!
//! Progress is what the client has acknowledged, never what the kernel has accepted: the kernel accepts
//! megabytes at once and then nothing for minutes, while the client reads steadily. The kernel is asked only
//! when a timer fires, so a connection that is not stuck never pays for it.
//!
//! [`Patience`] is a bucket of time. It begins with `rate-grace`; waiting empties it, and each byte taken fills it
//! by the time that `send-rate` allows for that byte. Whoever takes nothing is given up after `rate-grace`; whoever
//! takes at least `send-rate` is never given up. TCP tells of room in pieces (a segment, or a part of the client's
//! buffer), and a slow client may empty one of them for longer than `rate-grace`: one that has been seen to take
//! pieces far apart may have paid for longer waits, up to [`PREPAID`]. One that has taken all quickly and then stops
//! has not. Nobody is given up before, and nobody much later: the last look comes when patience is at its end. Nothing here knows a
//! socket; times are milliseconds of a clock that may run round ([`now`]).

use std::time::Duration;
use tidegate_io::clock::recent_ns;

/// Looks at a client in one `rate-grace`.
const LOOKS: u32 = 8;
/// Nothing is known yet of what a client has taken.
const UNKNOWN: u64 = u64::MAX;
/// A client may have paid for so many times the longest wait after which it went on, and for so many times
/// `rate-grace` at most.
const PREPAID: u32 = 4;

/// What a client may be slower than, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// Bytes per second; 0 waits for ever.
    pub(super) rate: u32,
    pub(super) grace: Duration,
    span: Duration,
}

impl Terms {
    pub(super) fn new(rate: u32, grace: Duration) -> Terms {
        Terms { rate, grace, span: grace / LOOKS }
    }

    /// Terms for a connection whose requests have both: as patient as the more patient ones, and with looks as often as the
    /// others need them.
    pub(super) fn or(self, other: Terms) -> Terms {
        let rate = if self.rate == 0 || other.rate == 0 { 0 } else { self.rate.min(other.rate) };
        Terms { rate, grace: self.grace.max(other.grace), span: self.span.min(other.span) }
    }

    /// Between two looks.
    pub(super) fn span(self) -> Duration {
        self.span
    }

    /// Before the first look, which only learns where the client is: soon, since nothing is known until then.
    pub(super) fn first_span(self) -> Duration {
        self.span() / 4
    }
}

/// Time that a client has left, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    left: u32,
    /// Since it has taken something.
    gap: u32,
    /// The longest time after which it took something again.
    longest: u32,
}

impl Patience {
    pub(super) fn new(grace: Duration) -> Patience {
        Patience { left: millis(grace), gap: 0, longest: 0 }
    }

    /// So many milliseconds have passed, in which so many bytes were taken. Whether there is any patience left.
    pub(super) fn spend(&mut self, waited: u32, taken: u64, terms: Terms) -> bool {
        let grace = millis(terms.grace);
        self.gap = self.gap.saturating_add(waited);
        if taken > 0 {
            self.longest = self.longest.max(std::mem::take(&mut self.gap));
        }
        let most = self.longest.saturating_mul(PREPAID).min(grace.saturating_mul(PREPAID)).max(grace);
        self.left = match u64::from(terms.rate) {
            0 => grace,
            rate => {
                let paid = u32::try_from(taken.saturating_mul(1000) / rate).unwrap_or(u32::MAX);
                // What came was paid within the wait: it makes up for it, and for nothing beyond.
                self.left.saturating_add(paid).saturating_sub(waited).min(most)
            }
        };
        self.left > 0
    }

    /// It was not the client that was waited for.
    pub(super) fn restore(&mut self, grace: Duration) {
        (self.left, self.gap) = (self.left.max(millis(grace)), 0);
    }
}

/// Milliseconds of the monotonic clock, which run round.
pub(super) fn now() -> u32 {
    (recent_ns() / 1_000_000) as u32
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A client that a full socket waits for, or that content is waited for from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reader {
    /// Bytes that it had taken when it was looked at last; where that counts from does not matter. Or [`UNKNOWN`].
    taken: u64,
    patience: Patience,
    /// When it was looked at last, or has begun to be waited for.
    since: u32,
}

impl Reader {
    /// Nothing is known of it yet.
    pub(super) fn new() -> Reader {
        Reader { taken: UNKNOWN, patience: Patience::new(Duration::ZERO), since: 0 }
    }

    /// Begins to wait for it; the first look comes after [`Terms::first_span`].
    pub(super) fn begin(&mut self, grace: Duration, now: u32) {
        *self = Reader { taken: UNKNOWN, patience: Patience::new(grace), since: now };
    }

    /// Begins to wait for what it sends: from here on all that comes is known.
    pub(super) fn begin_counting(&mut self, grace: Duration, now: u32) {
        *self = Reader { taken: 0, patience: Patience::new(grace), since: now };
    }

    /// It is waited for again from now on, with the patience that there was.
    pub(super) fn resume(&mut self, now: u32) {
        self.since = now;
    }

    /// How long after the last look the next one is due.
    pub(super) fn span(&self, terms: Terms) -> Duration {
        let usual = if self.taken == UNKNOWN { terms.first_span() } else { terms.span() };
        usual.min(Duration::from_millis(self.patience.left.max(1).into()))
    }

    /// Since the last look.
    pub(super) fn waited(&self, now: u32) -> Duration {
        Duration::from_millis(now.wrapping_sub(self.since).into())
    }

    /// So much has been taken in all. Returns after how long to look again; `None`: it is given up.
    pub(super) fn look(&mut self, taken: u64, now: u32, terms: Terms) -> Option<Duration> {
        let waited = now.wrapping_sub(std::mem::replace(&mut self.since, now));
        let before = std::mem::replace(&mut self.taken, taken);
        // May run backwards where the kernel only estimates.
        let moved = if before == UNKNOWN { 0 } else { taken.wrapping_sub(before).cast_signed().max(0) };
        self.patience.spend(waited, moved.cast_unsigned(), terms).then(|| self.span(terms))
    }

    /// So much has moved since the last look, as [`Reader::look`].
    pub(super) fn look_after(&mut self, moved: u32, now: u32, terms: Terms) -> Option<Duration> {
        self.look(self.taken.wrapping_add(moved.into()), now, terms)
    }

    /// It has nothing to take at present.
    pub(super) fn restore(&mut self, grace: Duration) {
        self.patience.restore(grace);
    }
}

/// One of several answers on a connection: how long it may have its window closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamPace {
    patience: Patience,
    /// Bytes moved since the last look.
    moved: u32,
    /// Where the connection's bytes ended when this stream had moved last. Until the client has taken
    /// them the window cannot open, however steadily it reads.
    end: u64,
    /// When it was looked at last, or began.
    since: u32,
    /// It was found waiting then.
    is_waiting: bool,
}

/// What a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing that the client has to do.
    No,
    /// That the client opens its window.
    Window,
    /// That the client opens the window of the connection, by which so many bytes of all answers have gone since the
    /// last look. Whose turn it is then is for the server to say, and no stream is slow because others move.
    Connection(u32),
    /// Content from the client.
    Content,
}

impl StreamPace {
    pub(super) fn new(grace: Duration, now: u32) -> StreamPace {
        StreamPace { patience: Patience::new(grace), moved: 0, end: 0, since: now, is_waiting: false }
    }

    /// So many bytes went either way.
    #[inline]
    pub(super) fn moves(&mut self, count: usize) {
        self.moved = self.moved.saturating_add(count as u32);
    }

    /// Takes note of where the connection's bytes end. Whether some of this stream are among those that the client
    /// has not taken: its window cannot open before, and the connection's [`Reader`] is who is waited for.
    pub(super) fn is_under_way(&mut self, taken: u64, end: u64) -> bool {
        if self.moved > 0 {
            self.end = end;
        }
        self.end.wrapping_sub(taken).cast_signed() > 0
    }

    /// Whether the stream may go on.
    pub(super) fn look(&mut self, waits: Waits, now: u32, terms: Terms) -> bool {
        let waited = now.wrapping_sub(std::mem::replace(&mut self.since, now));
        let moved = std::mem::take(&mut self.moved);
        let moved = match waits {
            Waits::No => {
                self.is_waiting = false;
                self.patience.restore(terms.grace);
                return true;
            }
            Waits::Window | Waits::Content => moved,
            Waits::Connection(of_all) => of_all.max(moved),
        };
        // Since when it waits is not known where it was not found waiting before.
        let waited = if std::mem::replace(&mut self.is_waiting, true) { waited } else { 0 };
        self.patience.spend(waited, moved.into(), terms)
    }
}

#[cfg(test)]
mod tests;
