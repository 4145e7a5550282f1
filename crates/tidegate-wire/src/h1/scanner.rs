//! Tells when reading a head again is worth it, so that a head sent one byte at a time costs linear time.
//!
//! [`parse_request`](super::parse_request) and [`parse_response`](super::parse_response) keep no state; they
//! read from the start at every call. The connection keeps one scanner per head (8 bytes) and asks it first:
//!
//! ```
//! use tidegate_wire::h1::{FieldSpace, HeadLimits, HeadScanner, parse_request};
//!
//! let limits = HeadLimits::default();
//! let mut scanner = HeadScanner::new();
//! let mut buf = Vec::new();
//! let mut parses = 0;
//! for byte in b"GET /a/rather/long/target HTTP/1.1\r\nHost: example.com\r\n\r\n" {
//!     buf.push(*byte);                                // a read
//!     if !scanner.needs_parse(&buf, &limits) {
//!         continue;                                   // wait for more, the deadline stays as it is
//!     }
//!     parses += 1;
//!     if let Some(head) = parse_request(&buf, &limits, &mut FieldSpace::new()).unwrap() {
//!         assert_eq!(head.len, buf.len());
//!         scanner = HeadScanner::new();               // for the next head, which begins behind this body
//!     }
//! }
//! assert!(parses < 12);
//! ```

use super::{HeadLimits, MAX_METHOD};
use memchr::memchr_iter;

/// Remembers how much of a head was looked at.
#[derive(Debug, Default, Clone, Copy)]
pub struct HeadScanner {
    seen: u32,
    parsed: u32,
}

impl HeadScanner {
    /// For a head of which nothing was seen yet.
    #[inline]
    pub const fn new() -> Self {
        HeadScanner { seen: 0, parsed: 0 }
    }

    /// Whether to parse now. `buf` is all that is buffered of this head, from its first byte: what it was at
    /// the last call and what came since.
    ///
    /// True at the first call, which looks at nothing, so that a head that comes in one piece pays nothing;
    /// then when the empty line came that may end the head, when the first line end came (a bad request line
    /// is answered at once), when the bytes doubled since the last parse, and when a limit is crossed. So all
    /// parses of one head read at most a small multiple of its bytes.
    #[inline]
    pub fn needs_parse(&mut self, buf: &[u8], limits: &HeadLimits) -> bool {
        let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let needed = self.seen == 0 || self.needs_another(buf, len, limits);
        self.seen = len;
        if needed {
            self.parsed = len;
        }
        needed
    }

    fn needs_another(&self, buf: &[u8], len: u32, limits: &HeadLimits) -> bool {
        let crossed = |limit: usize| (self.parsed as usize) < limit && buf.len() >= limit;
        if len / 2 >= self.parsed
            || crossed(limits.target_size.saturating_add(MAX_METHOD + 2))
            || crossed(limits.head_size)
            // Two bytes more for the empty line that may precede a head and does not count.
            || crossed(limits.head_size.saturating_add(2))
        {
            return true;
        }
        let seen = self.seen as usize;
        let before = buf.get(..seen).unwrap_or(buf);
        let new = buf.get(seen..).unwrap_or_default();
        // The first line end, not counting the one of an empty line before the head.
        let first_line = memchr::memchr(b'\n', before.get(2..).unwrap_or_default()).is_none();
        memchr_iter(b'\n', new).any(|at| {
            let line = buf.get(..seen + at).unwrap_or_default();
            first_line || matches!(line, [.., b'\n'] | [.., b'\n', b'\r'])
        })
    }
}
