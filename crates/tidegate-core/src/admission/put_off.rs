//! Requests that were refused for now, with a time in `Retry-After`: which of them come again before it is over, for
//! `tidegate status findings`.
//!
//! One table for all workers of a process, of a fixed size: a request is known by a hash of its client and what it asks for, and
//! the one that has the place of another takes it. Only touched where a request is refused: of what has waited the record tells who
//! has asked for what (`Ctx::capture`), since its head is gone when it is answered.

use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_http::{FieldLines, Status};
use tidegate_io::socket::Peer;

/// Requests that are remembered.
const PLACES: usize = 4096;
/// Longer than this nobody is remembered.
const LONGEST: Duration = Duration::from_secs(3600);

/// A request, by who asks for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestKey(u32);

/// Whether an answer may be one that puts a request off.
#[inline]
pub(super) fn is_refusal(status: Status) -> bool {
    status == Status::TOO_MANY_REQUESTS || status == Status::SERVICE_UNAVAILABLE
}

/// How long the client is to wait, where it is told in seconds (RFC 9110 section 10.2.3).
pub(super) fn wait_of(lines: &FieldLines) -> Option<Duration> {
    let told = std::str::from_utf8(lines.first("Retry-After")?).ok()?;
    told.trim().parse().ok().map(Duration::from_secs)
}

/// What was put off.
pub(super) struct PutOff {
    /// Nobody can choose requests that share a place.
    state: DefaultHashBuilder,
    /// The key, and until when: milliseconds, modulo 2^32.
    places: Box<[AtomicU64]>,
}

impl Default for PutOff {
    fn default() -> Self {
        PutOff {
            state: DefaultHashBuilder::default(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl PutOff {
    /// By what a request is known.
    pub(super) fn key(&self, client: Peer, authority: &str, target: &str) -> RequestKey {
        let hash = self.state.hash_one((client.ip(), authority, target));
        RequestKey((hash as u32).max(1))
    }

    /// Notes that a request is put off now, monotonic nanoseconds; whether it was before, and has not waited for as long as it was
    /// told.
    pub(super) fn note(&self, RequestKey(key): RequestKey, now: u64, wait: Duration) -> bool {
        let Some(place) = self.places.get(key as usize % PLACES) else { return false };
        let millis = |duration: Duration| duration.min(LONGEST).as_millis() as u32;
        let now = (now / 1_000_000) as u32;
        let before = place.swap(u64::from(key) << 32 | u64::from(now.wrapping_add(millis(wait))), Relaxed);
        let (known, until) = ((before >> 32) as u32, before as u32);
        known == key && (1..=millis(LONGEST)).contains(&until.wrapping_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_again_too_soon() {
        let put_off = PutOff::default();
        let client = |port| Peer::Tcp(([192, 0, 2, 7], port).into());
        let key = put_off.key(client(1), "a.test", "/x");
        assert_eq!(key, put_off.key(client(2), "a.test", "/x"), "another connection");
        let others = [put_off.key(client(1), "a.test", "/y"), put_off.key(client(1), "b.test", "/x")];
        assert!(others.iter().all(|other| *other != key));
        let note = |key, millis: u64, wait| put_off.note(key, millis * 1_000_000, Duration::from_secs(wait));
        assert!(!note(key, 0, 2), "the first time");
        assert!(!note(others[0], 1, 2), "something else");
        assert!(note(key, 1_999, 2));
        assert!(!note(key, 3_999, 2), "it has waited");
        // The clock of milliseconds begins again after seven weeks.
        let (end, other) = (u64::from(u32::MAX), others[1]);
        assert!(!note(other, end, 100_000));
        assert!(note(other, end + 3_600_000 - 1, 1));
        assert!(!note(other, end + 50_000_000, 1), "long ago");
    }

    #[test]
    fn what_is_told_in_seconds_is_a_wait() {
        for (told, wait) in
            [("7", Some(7)), (" 1 ", Some(1)), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)]
        {
            let mut lines = FieldLines::default();
            lines.push("Retry-After", told);
            assert_eq!(wait_of(&lines), wait.map(Duration::from_secs), "{told}");
        }
        assert_eq!(wait_of(&FieldLines::default()), None);
    }
}
