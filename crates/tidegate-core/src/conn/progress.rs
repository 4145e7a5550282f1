//! Whether a client that takes slowly what it asked for is still taking it.
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
//! has not. Nothing here knows a socket or a clock.

use std::time::Duration;
use tidegate_io::wheel::TICK;

/// Looks at a client in one `rate-grace`.
const LOOKS: u32 = 8;
/// What a timer is late by: it is rounded up to a tick of the wheel, and comes in the tick behind it.
const SLACK: Duration = TICK.saturating_mul(2);
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

    /// So much time has passed, in which so many bytes were taken. Whether there is any patience left.
    pub(super) fn spend(&mut self, waited: Duration, taken: u64, terms: Terms) -> bool {
        let (waited, grace) = (millis(waited + SLACK), millis(terms.grace));
        self.gap = self.gap.saturating_add(waited);
        if taken > 0 {
            self.longest = self.longest.max(std::mem::take(&mut self.gap));
        }
        let most = self.longest.saturating_mul(PREPAID).min(grace.saturating_mul(PREPAID)).max(grace);
        self.left = match u64::from(terms.rate) {
            0 => grace,
            rate => {
                let paid = u32::try_from(taken.saturating_mul(1000) / rate).unwrap_or(u32::MAX);
                self.left.saturating_sub(waited).saturating_add(paid).min(most)
            }
        };
        // The next look would be too late.
        self.left > millis(terms.span()) / 2
    }

    /// It was not the client that was waited for.
    pub(super) fn restore(&mut self, grace: Duration) {
        (self.left, self.gap) = (self.left.max(millis(grace)), 0);
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A client that a full socket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reader {
    /// Bytes that it had taken when it was looked at last; where that counts from does not matter.
    taken: u64,
    patience: Patience,
    is_known: bool,
}

impl Reader {
    /// Nothing is known of it yet.
    pub(super) fn new() -> Reader {
        Reader { taken: 0, patience: Patience::new(Duration::ZERO), is_known: false }
    }

    /// Begins to wait for it; the first look comes after [`Terms::first_span`].
    pub(super) fn begin(&mut self, grace: Duration) {
        *self = Reader { taken: 0, patience: Patience::new(grace), is_known: false };
    }

    /// When the next look is due.
    pub(super) fn span(&self, terms: Terms) -> Duration {
        if self.is_known { terms.span() } else { terms.first_span() }
    }

    /// The time between two looks has passed, and so much has been taken in all. Returns when to look again;
    /// `None`: it is given up.
    pub(super) fn look(&mut self, taken: u64, terms: Terms) -> Option<Duration> {
        let waited = self.span(terms);
        // May run backwards where the kernel only estimates.
        let moved = if self.is_known { taken.wrapping_sub(self.taken).cast_signed().max(0) } else { 0 };
        (self.taken, self.is_known) = (taken, true);
        if !self.patience.spend(waited, moved.cast_unsigned(), terms) {
            return None;
        }
        Some(terms.span())
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
    pub(super) fn new(grace: Duration) -> StreamPace {
        StreamPace { patience: Patience::new(grace), moved: 0, end: 0 }
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

    /// `waited` has passed. Whether the stream may go on.
    pub(super) fn look(&mut self, waits: Waits, waited: Duration, terms: Terms) -> bool {
        let moved = std::mem::take(&mut self.moved);
        let moved = match waits {
            Waits::No => {
                self.patience.restore(terms.grace);
                return true;
            }
            Waits::Window | Waits::Content => moved,
            Waits::Connection(of_all) => of_all.max(moved),
        };
        self.patience.spend(waited, moved.into(), terms)
    }
}

#[cfg(test)]
mod tests;
