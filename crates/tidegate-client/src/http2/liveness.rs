//! Whether the other end of a connection still listens (RFC 9113 section 6.7): when it is asked by a PING, and when it gets
//! no further requests. Owns no socket and reads no clock: times are monotonic, in nanoseconds.
//!
//! A connection that died on the way looks like one whose application is slow, until the kernel gives it up after a quarter
//! of an hour; and all requests would go there. It is asked where requests wait and nothing comes, and where one has waited
//! in vain. Requests that are under way there keep their own time.

/// How long requests may wait on a connection on which nothing comes, before it is asked.
const ASK_AFTER: u64 = 10_000_000_000;
/// How long the answer may take.
const ANSWER_WITHIN: u64 = 5_000_000_000;
/// Between two PINGs without an answer to a request in between. Servers of gRPC end connections on which more come
/// (`GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS`, with `too_many_pings`).
const PING_INTERVAL: u64 = 300_000_000_000;

/// What is known of the other end.
#[derive(Debug)]
pub(super) struct Liveness {
    /// When something came last.
    heard_at: u64,
    /// When the first request was sent on which nothing has come.
    asked_at: Option<u64>,
    /// When the PING was sent that is not answered.
    ping: Option<u64>,
    /// When the last PING was sent, unless a request was answered since.
    last_ping: Option<u64>,
    is_doubtful: bool,
}

impl Liveness {
    /// Of a connection that was made `now`.
    pub(super) fn new(now: u64) -> Liveness {
        Liveness { heard_at: now, asked_at: None, ping: None, last_ping: None, is_doubtful: false }
    }

    /// A request is sent.
    pub(super) fn asks(&mut self, now: u64) {
        self.asked_at.get_or_insert(now);
    }

    /// Something has come, whatever it is.
    pub(super) fn hears(&mut self, now: u64) {
        self.heard_at = now;
        (self.asked_at, self.ping, self.is_doubtful) = (None, None, false);
    }

    /// A request is answered, or some of it is.
    pub(super) fn is_answered(&mut self) {
        self.last_ping = None;
    }

    /// A request has waited for `waited` nanoseconds in vain. Where nothing else has come either, there are no further
    /// requests until something does. Whether a PING is to be sent.
    #[must_use]
    pub(super) fn doubt(&mut self, waited: u64, now: u64) -> bool {
        if now.saturating_sub(self.heard_at) < waited {
            return false;
        }
        self.is_doubtful = true;
        self.ping.is_none() && self.pings(now)
    }

    /// What the time says. Whether a PING is to be sent.
    #[must_use]
    pub(super) fn check(&mut self, now: u64) -> bool {
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        if self.ping.take().is_some() {
            self.is_doubtful = true;
            return false;
        }
        self.pings(now)
    }

    /// When `check` is to be called next.
    pub(super) fn due(&self) -> Option<u64> {
        if let Some(at) = self.ping {
            return Some(at.saturating_add(ANSWER_WITHIN));
        }
        let due = self.asked_at.filter(|_| !self.is_doubtful)?.saturating_add(ASK_AFTER);
        Some(self.last_ping.map_or(due, |at| due.max(at.saturating_add(PING_INTERVAL))))
    }

    /// Whether it gets further requests.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_doubtful
    }

    /// Whether nothing is expected from it any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_doubtful && self.ping.is_none()
    }

    fn pings(&mut self, now: u64) -> bool {
        if self.last_ping.is_some_and(|at| now < at.saturating_add(PING_INTERVAL)) {
            return false;
        }
        (self.ping, self.last_ping) = (Some(now), Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_says_nothing_is_asked_and_then_gets_no_further_requests() {
        let mut liveness = Liveness::new(0);
        assert_eq!(liveness.due(), None, "nothing is asked of it");
        liveness.asks(SECOND);
        liveness.asks(9 * SECOND);
        assert_eq!(liveness.due(), Some(SECOND + ASK_AFTER), "the first request counts");
        assert!(!liveness.check(10 * SECOND));
        assert!(liveness.check(SECOND + ASK_AFTER));
        assert!(liveness.is_usable());
        let due = SECOND + ASK_AFTER + ANSWER_WITHIN;
        assert_eq!(liveness.due(), Some(due));
        assert!(!liveness.check(due) && !liveness.is_usable() && liveness.is_given_up());
        assert_eq!(liveness.due(), None);
        liveness.hears(due + SECOND);
        assert!(liveness.is_usable(), "it was only slow");
    }

    #[test]
    fn anything_that_comes_is_a_sign_of_life() {
        let mut liveness = Liveness::new(0);
        liveness.asks(0);
        assert!(liveness.check(ASK_AFTER));
        liveness.hears(ASK_AFTER + 1);
        assert_eq!(liveness.due(), None);
        assert!(!liveness.check(100 * SECOND) && liveness.is_usable());
    }

    #[test]
    fn without_an_answer_to_a_request_pings_are_far_apart() {
        let mut liveness = Liveness::new(0);
        liveness.asks(0);
        assert!(liveness.check(ASK_AFTER));
        liveness.hears(ASK_AFTER);
        liveness.asks(20 * SECOND);
        let second = ASK_AFTER + PING_INTERVAL;
        assert_eq!(liveness.due(), Some(second));
        assert!(!liveness.check(second - 1) && liveness.check(second));
        liveness.hears(second);
        liveness.is_answered();
        liveness.asks(second);
        assert_eq!(liveness.due(), Some(second + ASK_AFTER));
    }

    #[test]
    fn a_request_that_waits_in_vain_ends_the_use_of_a_connection() {
        let mut liveness = Liveness::new(0);
        liveness.asks(0);
        liveness.hears(4 * SECOND);
        assert!(!liveness.doubt(2 * SECOND, 5 * SECOND) && liveness.is_usable(), "others are served");
        assert!(liveness.doubt(2 * SECOND, 6 * SECOND) && !liveness.is_usable());
        assert!(!liveness.doubt(2 * SECOND, 7 * SECOND), "one PING is enough");
        assert!(!liveness.is_given_up(), "the answer may come");
        liveness.hears(8 * SECOND);
        // It answers PINGs and no requests: another connection may do better.
        assert!(!liveness.doubt(2 * SECOND, 10 * SECOND) && liveness.is_given_up());
    }
}
