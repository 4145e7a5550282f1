//! The deadlines of a connection: which is armed, and what becomes of a client that is too slow for it.
//!
//! One timer of the wheel serves all of them. `Connection::run` says by [`Connection::arm`] what is waited for; when it fires
//! `on_timer` has [`Connection::time_out`] judge. Slow readers are judged by what they have taken, and slow senders by what has come or
//! gone (`progress`).

use super::backlog::Backlog;
use super::content::Incoming;
use super::progress::{self, Terms};
use super::send::Output;
use super::{Connection, Next, Protocol, Work};
use crate::body::RequestBodyError;
use crate::context::Ctx;
use crate::log;
use std::time::Duration;
use tidegate_config::settings::RequestLimits;
use tidegate_http::{Status, Version};
use tidegate_io::Key;
use tidegate_io::clock::monotonic_ns;
use tidegate_stats::Timeout;
use tidegate_wire::h1;

/// How long an application works for a client that has finished sending, before it is found out whether that is there.
const DOUBT: Duration = Duration::from_secs(1);

/// Which deadline is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// None: something other than the client is waited for.
    Off,
    /// Between requests.
    Idle,
    /// The TLS handshake.
    Handshake,
    /// A request head has begun.
    Head,
    /// A request body is on its way.
    Body,
    /// The client does not take what it asked for.
    Write,
    /// Streams of HTTP/2 are under way: looks after all of them.
    Streams,
    /// Sent everything; waiting for the client to finish.
    Linger,
    /// The client has finished sending, and an application is at work for it.
    Doubt,
}

/// How slowly a client may take what it is sent.
pub(super) fn reading_terms(limits: &RequestLimits) -> Terms {
    Terms::new(limits.send_rate, limits.rate_grace)
}

/// How slowly a client may send content.
pub(super) fn sending_terms(limits: &RequestLimits) -> Terms {
    Terms::new(limits.body_rate, limits.rate_grace)
}

impl Connection {
    #[inline]
    pub(super) fn arm(&mut self, key: Key, cx: &mut Ctx) {
        if self.protocol.is_h2() && !self.lingering {
            return self.arm_h2(key, cx);
        }
        let (limits, of_server) = (self.limits(&cx.engine), &cx.engine.settings.limits);
        let (timer, after) = match self.work.as_deref() {
            // It takes what was sent, and is waited for on other terms.
            _ if self.lingering && self.timer == Timer::Write => return,
            _ if self.lingering => (Timer::Linger, limits.linger_timeout),
            _ if self.transport.is_opening() => (Timer::Handshake, of_server.handshake_timeout),
            _ if self.is_blocked => {
                if self.timer != Timer::Write {
                    self.await_reader(key, cx);
                }
                return;
            }
            Some(Work { incoming: Some(incoming), .. })
                if incoming.has_least_rate() && incoming.wants_more() =>
            {
                if self.timer != Timer::Body {
                    self.await_content(key, cx);
                }
                return;
            }
            Some(work) if self.is_client_in_doubt() => {
                if self.timer != Timer::Doubt {
                    let age = monotonic_ns().saturating_sub(work.request.started);
                    self.has_left_late = u128::from(age) > DOUBT.as_nanos();
                }
                let is_over = work.output.as_ref().is_some_and(Output::ends_when_finished);
                (Timer::Doubt, if is_over { Duration::ZERO } else { DOUBT })
            }
            Some(_) => (Timer::Off, Duration::ZERO),
            None if !self.input.is_empty() => (Timer::Head, of_server.head_timeout),
            None => (Timer::Idle, limits.keep_alive_timeout),
        };
        self.arm_anew(timer, after, key, cx);
    }

    /// A trickle of bytes must not extend a deadline; only idleness begins anew.
    #[inline]
    pub(super) fn arm_anew(&mut self, timer: Timer, after: Duration, key: Key, cx: &mut Ctx) {
        if timer != self.timer || timer == Timer::Idle {
            self.arm_for(timer, after, key, cx);
        }
    }

    pub(super) fn arm_for(&mut self, timer: Timer, after: Duration, key: Key, cx: &mut Ctx) {
        self.timer = timer;
        // Where there is none, the last one stays on the wheel and comes to nothing: most often the answer arms it anew.
        if timer != Timer::Off {
            cx.wheel.arm(key.index(), after);
        }
        if self.is_idle != (timer == Timer::Idle) {
            self.is_idle = !self.is_idle;
            if self.is_idle {
                cx.stats.keep_alive.add(1);
            } else {
                cx.stats.keep_alive.sub(1);
            }
        }
        self.idle_since = cx.turn;
    }

    pub(super) fn time_out(&mut self, key: Key, cx: &mut Ctx) -> Next {
        let timer = std::mem::replace(&mut self.timer, Timer::Off);
        match timer {
            Timer::Off => Next::Wait,
            Timer::Streams => self.check_streams(key, cx),
            // The last answer is with the kernel, and perhaps with the kernel alone.
            Timer::Idle | Timer::Linger if !self.is_delivered() => {
                self.await_reader(key, cx);
                Next::Wait
            }
            Timer::Idle => {
                if self.protocol.h2().is_none_or(|h2| !h2.is_dismissed()) {
                    cx.stats.keep_alive_timeouts.add(1);
                }
                if self.protocol.is_h2() {
                    self.end_keep_alive();
                    return self.take_turn(key, cx);
                }
                Next::Close
            }
            Timer::Linger if self.lingers_on() => {
                let after = self.limits(&cx.engine).linger_timeout;
                self.arm_for(Timer::Linger, after, key, cx);
                Next::Wait
            }
            Timer::Linger => {
                cx.stats.timeouts.add(Timeout::Linger, 1);
                Next::Close
            }
            Timer::Handshake => {
                cx.stats.timeouts.add(Timeout::Handshake, 1);
                Next::Close
            }
            Timer::Doubt => self.resolve_doubt(key, cx),
            Timer::Head => {
                cx.stats.timeouts.add(Timeout::Head, 1);
                let limits = &cx.engine.settings.limits;
                let (limit, most) = (limits.origins.said("head-timeout"), limits.head_timeout);
                log::info(format_args!(
                    "408 for {}: the head of its request took longer than the {most:?} that {limit} allows",
                    self.peer
                ));
                self.give_up(key, cx)
            }
            Timer::Body => {
                let terms = sending_terms(self.limits(&cx.engine));
                let moved = std::mem::take(&mut self.window);
                if let Some(after) = self.reader.look_after(moved, progress::now(), terms) {
                    self.arm_for(Timer::Body, after, key, cx);
                    return Next::Wait;
                }
                cx.stats.timeouts.add(Timeout::Body, 1);
                self.fail_receiving(RequestBodyError::Interrupted);
                self.give_up(key, cx)
            }
            Timer::Write => self.look_at_reader(key, cx),
        }
    }

    /// Whether a client that was sent everything is still seen to read.
    fn lingers_on(&mut self) -> bool {
        match &mut self.protocol {
            Protocol::H2(h2) => h2.lingers_on(),
            Protocol::H1 => false,
        }
    }

    /// Waits for the client to take what is with the kernel.
    pub(super) fn await_reader(&mut self, key: Key, cx: &mut Ctx) {
        let terms = reading_terms(self.limits(&cx.engine));
        self.reader.begin(terms.grace, progress::now());
        self.window = 0;
        self.arm_for(Timer::Write, self.reader.span(terms), key, cx);
    }

    /// Waits for the client to send what it has announced.
    fn await_content(&mut self, key: Key, cx: &mut Ctx) {
        let terms = sending_terms(self.limits(&cx.engine));
        self.reader.begin_counting(terms.grace, progress::now());
        self.window = 0;
        self.arm_for(Timer::Body, self.reader.span(terms), key, cx);
    }

    /// The client has been waited for: is it still reading?
    fn look_at_reader(&mut self, key: Key, cx: &mut Ctx) -> Next {
        let (taken, waiting) = self.delivery();
        if waiting == 0 && self.is_free() {
            self.arm(key, cx); // it has all of it; from here on it is idle, or lingers
            return Next::Wait;
        }
        if waiting == 0 && self.is_blocked {
            return self.take_turn(key, cx); // it was not a full socket that has made the last call short
        }
        let terms = reading_terms(self.limits(&cx.engine));
        if let Some(after) = self.reader.look(taken, progress::now(), terms) {
            self.arm_for(Timer::Write, after, key, cx);
            return Next::Wait;
        }
        self.give_up_reader(cx);
        Next::Close
    }

    /// The client takes what it asked for too slowly: what is unsent leaves the kernel with the connection.
    pub(super) fn give_up_reader(&mut self, cx: &mut Ctx) {
        cx.stats.timeouts.add(Timeout::Write, 1);
        let limits = self.limits(&cx.engine);
        log::info(format_args!(
            "{} is cut off: for {:?} (`rate-grace`) it took less of its answer than {} B/s (`send-rate`)",
            self.peer, limits.rate_grace, limits.send_rate
        ));
        self.transport.reset_on_close();
    }

    /// Bytes that the client has taken, from a beginning that does not matter, and those that it has not.
    pub(super) fn delivery(&self) -> (u64, u64) {
        let queue = self.transport.stream().send_queue();
        let waiting = queue.waiting;
        // Where nobody acknowledges anything, what the kernel has accepted and no longer has was taken.
        (queue.acknowledged.unwrap_or_else(|| u64::from(self.window).wrapping_sub(waiting)), waiting)
    }

    /// Too slow: 408 where nothing has been answered yet, and close.
    fn give_up(&mut self, key: Key, cx: &mut Ctx) -> Next {
        self.unread = true;
        self.input = Backlog::new();
        let has_begun = match &self.work {
            Some(work) => work.output.as_ref().is_none_or(Output::has_begun),
            None => !self.held.is_empty() || self.transport.is_blocked(),
        };
        if has_begun {
            return Next::Close;
        }
        if self.refuse(cx, Status::REQUEST_TIMEOUT, None, false).is_err() {
            return Next::Close;
        }
        self.take_turn(key, cx)
    }

    /// The client has finished sending, and waits for its answer or has gone: TCP does not tell which before bytes come
    /// back. What an application does for nobody takes the place of others, so it is worth finding out, once.
    fn is_client_in_doubt(&self) -> bool {
        let is_for_it_alone = |work: &Work| {
            let is_queued = work.output.as_ref().is_some_and(Output::is_queued);
            let is_tunnel = matches!(work.incoming.as_deref(), Some(Incoming::Tunnel(_))); // which ends otherwise
            is_queued || (work.request.ends_with_client && work.output.is_some() && !is_tunnel)
        };
        (self.peer_closed || self.eof)
            && !self.is_probed
            && self.held.is_empty()
            && self.work.as_deref().is_some_and(is_for_it_alone)
    }

    /// Finds out whether the client is there. Before the answer there is something to be sent that is no part of it: who
    /// listens skips it (RFC 9110 section 15.2), and the system of who has gone answers with a reset, which ends the
    /// connection. Clients of HTTP/1.0 know no such thing, and are believed.
    ///
    /// Once the answer has begun there is nothing of the kind, and content will tell. Where none comes, who has finished
    /// sending with the request is believed; who has done so later has left.
    fn resolve_doubt(&mut self, key: Key, cx: &mut Ctx) -> Next {
        self.is_probed = true;
        let Some(work) = self.work.as_deref() else { return self.take_turn(key, cx) };
        if work.output.as_ref().is_some_and(Output::ends_when_finished) {
            return Next::Close;
        }
        let is_awaited = work.output.as_ref().is_some_and(Output::is_awaited);
        if is_awaited && work.request.version != Version::Http10 {
            cx.stats.responses.add(Status::CONTINUE.0);
            self.batch.extend_from_slice(h1::CONTINUE);
        } else if !is_awaited && self.has_left_late && self.window == 0 {
            return Next::Close;
        }
        self.take_turn(key, cx)
    }
}
