//! Flow control (RFC 9113 section 5.2): windows in both directions.
//!
//! A receiver gives room back when the content has been consumed, not when it has arrived: so what a peer
//! can make us hold is bounded by the windows.

/// The window of a connection, and of a stream unless settings say otherwise (section 6.9.2).
pub const INITIAL_WINDOW: u32 = 65_535;

/// The largest window (section 6.9.1).
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// What we may send. Below zero after the peer has made its initial window smaller (section 6.9.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub(super) fn new(size: u32) -> SendWindow {
        SendWindow(size.into())
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(super) fn room(self) -> usize {
        self.0.max(0) as usize
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Changes the window; whether it is still one. A window above the largest is the peer's fault.
    #[must_use]
    pub(super) fn shift(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= i64::from(MAX_WINDOW)
    }
}

/// What the peer may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveWindow {
    /// What the peer may still send.
    left: i64,
    /// Consumed, and not yet given back.
    owed: u32,
    /// What the window shall be when all is consumed.
    size: u32,
}

impl ReceiveWindow {
    pub(super) fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { left: size.into(), owed: 0, size }
    }

    /// Takes note of what has arrived; whether the window allowed it.
    #[inline]
    #[must_use]
    pub(super) fn take(&mut self, count: usize) -> bool {
        self.left -= count as i64;
        self.left >= 0
    }

    /// What has arrived was consumed.
    #[inline]
    pub(super) fn release(&mut self, count: usize) {
        self.owed = self.owed.saturating_add(count as u32);
    }

    /// Makes the window larger, for good.
    pub(super) fn grow(&mut self, size: u32) {
        let more = size.saturating_sub(self.size);
        self.size += more;
        self.owed = self.owed.saturating_add(more);
    }

    /// What to give back now: nothing until it is worth a frame.
    #[inline]
    pub(super) fn due(&mut self) -> Option<u32> {
        if self.owed == 0 || self.owed < self.size / 2 {
            return None;
        }
        self.left += i64::from(self.owed);
        Some(std::mem::take(&mut self.owed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_given_back_by_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.take(100));
        assert!(!window.take(1));
        window.left += 1;
        window.release(49);
        assert_eq!(window.due(), None);
        window.release(1);
        assert_eq!(window.due(), Some(50));
        assert_eq!(window.due(), None);
        assert!(window.take(50));
        window.grow(400);
        window.grow(200);
        assert_eq!((window.due(), window.left), (Some(300), 300));
    }

    #[test]
    fn a_send_window_may_fall_below_zero() {
        let mut window = SendWindow::new(10);
        window.take(10);
        assert!(window.shift(-5));
        assert_eq!(window.room(), 0);
        assert!(window.shift(6));
        assert_eq!(window.room(), 1);
        assert!(!window.shift(MAX_WINDOW.into()));
    }
}
