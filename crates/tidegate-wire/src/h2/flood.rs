//! What a peer does too much of (FAULTS 17 to 21): one leaky bucket for each kind.
//!
//! A bucket holds what an honest client may do at once, and empties with time and with honest work, so that
//! a client that is busy may also be busy with frames of this kind. Nothing here depends on a clock: the
//! caller says which second it is.

use super::error::Flood;

/// What a frame of an unknown kind counts among those of a server that are ignored: a thousand at once, twenty a second.
pub(super) const UNKNOWN_OF_A_SERVER: u16 = 1024;
/// What is too much at once; and how much of it a second makes good.
const BUCKETS: [(u32, u32); Flood::COUNT] = [
    (200, 20),   // Reset
    (100, 10),   // ProvokedReset
    (0, 0),      // Continuation: a limit for each block
    (20, 1),     // FieldSection
    (100, 10),   // Ping
    (50, 5),     // Settings
    (100, 10),   // EmptyData
    (500, 50),   // Priority
    (2000, 500), // WindowUpdate
    (500, 50),   // Ignored
];

/// The same of a server that we are the client of: what it may do to a connection that many share. What belongs to one
/// of our requests (its reset, its head that is too large, an answer that is malformed) happens once for each and is
/// not counted at all: an application that resets whatever one client asks for must not end the requests of the others.
/// What comes for streams that we have given up is as much as was on its way.
///
/// Empty DATA of an open stream beyond one for each kilobyte of content is that stream's fault: it is reset, and the bucket
/// is empty again for the others. What comes for streams that we have given up is ignored, as much of it as socket buffers
/// can hold (a frame is 9 bytes); a server that goes on regardless is broken for everybody, and its connection ends.
const OF_A_SERVER: [(u32, u32); Flood::COUNT] = [
    (0, 0),            // Reset: one for each request
    (1000, 100),       // ProvokedReset, of streams that are no more
    (0, 0),            // Continuation: a limit for each block
    (0, 0),            // FieldSection: the same
    (1000, 100),       // Ping
    (500, 50),         // Settings
    (20_000, 2000),    // EmptyData
    (1000, 100),       // Priority
    (60_000, 20_000),  // WindowUpdate
    (1 << 20, 20_000), // Ignored
];

/// Updates of windows that may be owed at most: those of a gigabyte on its way, which is the window of a connection of
/// Go's client. They come in one burst when the peer, or we, were busy with something else.
const WINDOWS_OWED_MAX: u32 = 1 << 19;
/// Bytes that an honest peer reads before it gives them back: Go's client does it from so many on.
const GIVEN_BACK_AT_ONCE: usize = 4 << 10;

/// The buckets of one connection.
#[derive(Debug)]
pub(super) struct Floods {
    buckets: &'static [(u32, u32); Flood::COUNT],
    second: u32,
    levels: [u32; Flood::COUNT],
    /// Updates of windows that content has earned and that have not come yet.
    windows_owed: u32,
}

impl Floods {
    /// Of a peer that is a client of ours, or a server.
    pub(super) fn new(is_server: bool) -> Floods {
        let buckets = if is_server { &BUCKETS } else { &OF_A_SERVER };
        Floods { buckets, second: 0, levels: [0; Flood::COUNT], windows_owed: 0 }
    }

    /// Takes note of the present second.
    #[inline]
    pub(super) fn tick(&mut self, second: u32) {
        if second == self.second {
            return;
        }
        let passed = second.saturating_sub(self.second);
        self.second = second;
        for (level, (_, each_second)) in self.levels.iter_mut().zip(self.buckets) {
            *level = level.saturating_sub(passed.saturating_mul(*each_second));
        }
    }

    /// Counts; whether it is too much.
    #[inline]
    pub(super) fn add(&mut self, kind: Flood, count: u16) -> Result<(), Flood> {
        let (Some(level), Some((most, _))) =
            (self.levels.get_mut(kind as usize), self.buckets.get(kind as usize))
        else {
            return Ok(());
        };
        if kind == Flood::WindowUpdate && self.windows_owed >= u32::from(count) {
            self.windows_owed -= u32::from(count);
            return Ok(());
        }
        *level = level.saturating_add(count.into());
        if *level > *most { Err(kind) } else { Ok(()) }
    }

    /// Honest work of the peer makes up for some of it.
    #[inline]
    pub(super) fn forgive(&mut self, kind: Flood, count: u16) {
        if let Some(level) = self.levels.get_mut(kind as usize) {
            *level = level.saturating_sub(count.into());
        }
    }

    /// Somebody has been found who is to blame for all of it.
    #[cold]
    pub(super) fn clear(&mut self, kind: Flood) {
        if let Some(level) = self.levels.get_mut(kind as usize) {
            *level = 0;
        }
    }

    /// A frame with content was sent. Each piece of it may be given back, whenever that is, to its stream and to the
    /// connection: two updates for a piece, and two for what is left of a frame. A trickle of windows buys a trickle of
    /// frames.
    #[inline]
    pub(super) fn owe_windows(&mut self, length: usize) {
        let count = 2 + 2 * (length / GIVEN_BACK_AT_ONCE) as u32;
        self.forgive(Flood::WindowUpdate, count.min(u16::MAX.into()) as u16);
        self.windows_owed = self.windows_owed.saturating_add(count).min(WINDOWS_OWED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_earns_the_windows_that_small_reads_give_back() {
        let mut floods = Floods::new(true);
        // 40 MB are on their way before the first of it is read.
        for _ in 0..2_560 {
            floods.owe_windows(16 << 10);
        }
        for _ in 0..40 << 8 {
            floods.add(Flood::WindowUpdate, 1).unwrap(); // of the stream
            floods.add(Flood::WindowUpdate, 1).unwrap(); // of the connection
        }
        let idle = (0..u32::from(u16::MAX)).find(|_| floods.add(Flood::WindowUpdate, 1).is_err());
        assert_eq!(idle, Some(2 * 2_560 + 2_000));
    }

    #[test]
    fn a_bucket_runs_over_and_empties() {
        let mut floods = Floods::new(true);
        floods.tick(7);
        for _ in 0..100 {
            floods.add(Flood::Ping, 1).unwrap();
        }
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
        assert_eq!(floods.add(Flood::Reset, 1), Ok(()));
        floods.tick(8);
        for _ in 0..9 {
            floods.add(Flood::Ping, 1).unwrap();
        }
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
        floods.forgive(Flood::Ping, 2);
        assert_eq!(floods.add(Flood::Ping, 1), Ok(()));
        floods.tick(u32::MAX);
        assert_eq!(floods.add(Flood::Ping, 100), Ok(()));
        floods.tick(0); // a clock that ran backwards forgives nothing
        assert_eq!(floods.add(Flood::Ping, 1), Err(Flood::Ping));
    }
}
