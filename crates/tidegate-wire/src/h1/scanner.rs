//! Tells when reading a head again is worth it, so that a head sent one byte at a time costs linear time.
//!
//! [`parse_request`](super::parse_request) and [`parse_response`](super::parse_response) keep no state; they
//! read from the start at every call. The connection keeps one scanner per head (12 bytes) and asks it first:
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

use super::request::EMPTY_LINES;
use super::{HeadLimits, MAX_METHOD};
use memchr::memchr_iter;

/// Remembers how much of a head was looked at.
#[derive(Debug, Default, Clone, Copy)]
pub struct HeadScanner {
    /// Bytes buffered at the last parse.
    parsed: u32,
    /// Bytes searched for line ends.
    searched: u32,
    has_line: bool,
}

impl HeadScanner {
    /// For a head of which nothing was seen yet.
    #[inline]
    pub const fn new() -> Self {
        HeadScanner { parsed: 0, searched: 0, has_line: false }
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
        let needed = self.parsed == 0 || self.needs_another(buf, limits);
        if needed {
            self.parsed = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        }
        needed
    }

    fn needs_another(&mut self, buf: &[u8], limits: &HeadLimits) -> bool {
        let parsed = self.parsed as usize;
        let crossed = |limit: usize| parsed < limit && buf.len() >= limit;
        let mut needed = buf.len() / 2 >= parsed
            || crossed(limits.target_size.saturating_add(MAX_METHOD + 2))
            || crossed(limits.head_size)
            // More for the empty lines that may precede a head and do not count.
            || crossed(limits.head_size.saturating_add(2 * EMPTY_LINES));

        let from = self.searched as usize;
        for at in memchr_iter(b'\n', buf.get(from..).unwrap_or_default()).map(|at| from + at) {
            // The line end of an empty line before the head is not that of the first line.
            let is_empty = |line: &[u8]| line.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
            let is_first = !self.has_line && !buf.get(..at).is_some_and(is_empty);
            self.has_line |= is_first;
            let ends_head = matches!(buf.get(..at), Some([.., b'\n'] | [.., b'\n', b'\r']));
            needed |= at >= parsed && (is_first || ends_head);
        }
        self.searched = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        needed
    }
}
