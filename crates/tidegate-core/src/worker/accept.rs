//! Letting connections in, and turning them away: what a worker does with its listening sockets.
//!
//! `listen` accepts, [`crate::admission`] decides, this does what was decided. When descriptors run out,
//! accepting rests instead of spinning, and what is open goes on being served (FAULTS 41). Who waits is
//! served as soon as there is a descriptor; when there is none for a second, those who wait are told so with
//! the help of the spare one, a few at each try, since hanging helps nobody.

use super::{OpenListener, Worker};
use crate::admission;
use crate::conn::Connection;
use crate::crowd::{CROWD, Share};
use crate::listen::{self, ACCEPTS, Accepted, EXHAUSTION, PAUSE};
use crate::log;
use crate::opening::Opening;
use crate::placement::Arrival;
use crate::spare::Spare;
use std::os::fd::AsFd;
use tidegate_io::socket::{self, Peer, Received, Stream};
use tidegate_io::{Kind, descriptors};
use tidegate_stats::ConnectionRefusal;

/// Accepting goes on for no longer in one turn, nanoseconds.
const ACCEPT_TIME: u64 = 20_000_000;
/// Before somebody who has found another accepting looks again, nanoseconds.
const SPARE_PAUSE: u64 = 1_000_000;
/// Accepted in one turn while most are turned away.
const SHED_ACCEPTS: usize = 128;
/// Unsent bytes without a crowd: so many times those with one, where there is memory for it. A file of 1 MiB then goes in one call
/// on a connection that has been waited for once, which is a quarter cheaper than two.
const WIDE: u32 = 8;
/// Bytes of a request that are looked at, and taken off the socket, before a connection is turned away.
const GLANCE: usize = 4 << 10;

impl Worker {
    pub(super) fn accept(&mut self) {
        if self.accept_after > 0 {
            if self.now < self.accept_after {
                return;
            }
            self.accept_after = 0;
        }
        let is_scarce = descriptors::are_short() || descriptors::are_reserved();
        let began = self.cx.admission.progress();
        for index in 0..self.listeners.len() {
            for turn in 1.. {
                if !self.listeners.get(index).is_some_and(|open| open.is_ready) {
                    break;
                }
                // Held to accept alone: others need not wait for the first request of whoever is let in.
                let spare = if is_scarce {
                    let Some(held) = self.hold_spare() else { return };
                    Some(held)
                } else {
                    None
                };
                let open = &mut self.listeners[index];
                match listen::accept(open.listener.fd.as_fd(), &self.cx.stats) {
                    Accepted::Connection(stream, peer) => {
                        drop(spare);
                        self.exhausted_since = 0;
                        self.cx.admission.on_accept(index);
                        open.counts.accepted.add(1);
                        self.place(Arrival { stream, peer, listener: index });
                    }
                    Accepted::Aborted => {}
                    Accepted::Nobody => {
                        open.is_ready = false;
                        open.has_waited(turn - 1, 0);
                        self.cx.admission.on_empty(Some(index));
                    }
                    Accepted::Exhausted => return self.rest(spare.or_else(Spare::try_hold)),
                }
                // Those who are in must not wait for the first requests of too many others.
                // Turning away takes so little time that all of them can be, up to a bound.
                let most = if self.cx.admission.is_shedding() { SHED_ACCEPTS } else { ACCEPTS };
                let is_late = most == ACCEPTS && self.cx.admission.progress() > began + ACCEPT_TIME;
                if turn == most || is_late {
                    let open = &self.listeners[index];
                    let waiting = socket::accept_queue(open.listener.fd.as_fd());
                    open.has_waited(turn, waiting.unwrap_or(0));
                    self.cx.admission.on_more(index, waiting);
                    break;
                }
            }
        }
    }

    /// The right to accept one while descriptors are short. `None`: nobody is accepted now.
    #[cold]
    fn hold_spare(&mut self) -> Option<Spare> {
        let Some(held) = Spare::try_hold() else {
            self.accept_after = self.now + SPARE_PAUSE;
            return None;
        };
        if descriptors::are_reserved() || !held.is_there() {
            self.rest(Some(held));
            return None;
        }
        Some(held)
    }

    /// Keeps a connection, or hands it over to a worker that has fewer.
    #[inline]
    fn place(&mut self, mut arrival: Arrival) {
        if let Some(other) = self.shared.placement.elsewhere(self.number, self.now) {
            match self.shared.placement.hand_over(other, arrival, &self.cx.engine.settings, self.now) {
                Ok(()) => return,
                Err(kept) => arrival = kept,
            }
        }
        self.judge(arrival.stream, arrival.peer, arrival.listener);
    }

    /// Takes what other workers have handed over.
    pub(super) fn take_in(&mut self) {
        for arrival in self.shared.placement.take(self.number) {
            self.judge(arrival.stream, arrival.peer, arrival.listener);
        }
    }

    /// The same for the last time, before settings change or nobody is accepted any more.
    pub(super) fn take_the_last(&mut self) {
        for arrival in self.shared.placement.close(self.number) {
            self.judge(arrival.stream, arrival.peer, arrival.listener);
        }
    }

    #[inline]
    fn judge(&mut self, stream: Stream, peer: Peer, index: usize) {
        let opening = self.cx.engine.opening(index, peer);
        // A load balancer speaks for many: its own address says nothing.
        let admitted = if matches!(opening, Opening::Proxy { .. }) { Peer::Unix } else { peer };
        let mut judged = self.cx.admission.connection(admitted);
        // Whoever hoards goes before somebody new is turned away.
        if matches!(judged, Err(ConnectionRefusal::Memory)) && self.make_room() {
            judged = self.cx.admission.connection(admitted);
        }
        match judged {
            Ok(entry) => {
                let number = self.listeners[index].counts.number();
                self.admit(Connection::new(stream, peer, number, opening).admitted_as(entry, admitted))
            }
            Err(why) => self.turn_away(stream, peer, index, why),
        }
    }

    /// With `TCP_DEFER_ACCEPT` the request is here already: it is answered before the connection is
    /// registered, so that one that closes afterwards never enters the poller.
    #[inline]
    fn admit(&mut self, connection: Connection) {
        self.cx.stats.connections.add(1);
        if let Some(listener) = self.cx.listener(connection.listener()) {
            listener.connections.add(1);
        }
        let key = self.connections.insert(connection);
        self.mind_the_crowd();
        self.drive(key);
        if let Some(connection) = self.connections.get_mut(key)
            && let Err(error) = self.runtime.registry().add(connection.fd(), Kind::Connection, key)
        {
            log::warn(format_args!("a connection could not be watched and is closed: {error}"));
            self.close(key);
        }
    }

    /// The cheapest answer there is, unless the request seems to be for the status page. What has come of it
    /// is taken, since closing on it would make the kernel send a reset, which can destroy the answer on its
    /// way; more is not waited for.
    #[cold]
    fn turn_away(&mut self, stream: Stream, peer: Peer, index: usize, why: ConnectionRefusal) {
        admission::say_turned_away(&self.cx.engine.settings, peer, why);
        let opening = self.cx.engine.opening(index, peer);
        if opening != Opening::Plain {
            // Who waits for a handshake would not understand the answer, and a handshake costs what there is none of.
            return self.count_refusal(index, why);
        }
        let mut glance = [0; GLANCE];
        let came = match stream.recv(&mut glance) {
            Ok(Received::Bytes { count, .. }) => &glance[..count],
            _ => &[],
        };
        if self.cx.engine.may_ask_for_status(came)
            && let Some(entry) = self.cx.admission.reserve(why)
        {
            self.cx.stats.received_bytes.add(came.len() as u64);
            return self.admit(
                Connection::new(stream, peer, self.listeners[index].counts.number(), opening)
                    .admitted_as(entry, peer)
                    .with_input(came),
            );
        }
        self.count_refusal(index, why);
        let is_head = came.starts_with(b"HEAD ");
        self.cx.admission.with_busy_bytes(&self.cx.date, is_head, why, |bytes| {
            let _ = stream.send(bytes, false);
        });
        let _ = stream.finish_sending();
    }

    fn count_refusal(&self, index: usize, why: ConnectionRefusal) {
        self.cx.stats.connections_refused.add(1);
        self.cx.stats.connection_refusals.add(why, 1);
        if let Some(open) = self.listeners.get(index) {
            open.counts.refused.add(1);
        }
    }

    /// There is no descriptor, or no memory for a socket.
    #[cold]
    fn rest(&mut self, spare: Option<Spare>) {
        descriptors::have_run_out();
        self.cx.admission.wake_others(); // they keep some, too
        if self.spare_descriptors() > 0 {
            return; // who waits is accepted in the next turn
        }
        self.accept_after = self.now + PAUSE.as_nanos() as u64;
        if self.exhausted_since == 0 {
            self.exhausted_since = self.now;
        }
        if self.now - self.exhausted_since >= EXHAUSTION.as_nanos() as u64
            && let Some(mut spare) = spare
        {
            let found = (0..self.listeners.len()).find_map(|index| self.decline(index, &mut spare));
            drop(spare);
            if let Some(Arrival { stream, peer, listener }) = found {
                self.judge(stream, peer, listener);
            }
        }
    }

    /// Where descriptors have run out since it was last done: gives up those that are only kept for later.
    #[inline]
    pub(super) fn spare_descriptors(&mut self) -> usize {
        let last = descriptors::last_run_out();
        if last == self.spared_at {
            return 0;
        }
        self.spared_at = last;
        self.registry.spare_descriptors()
    }

    /// Tells those who wait at a listener that there is no room, until there is: then whoever has come last need not be told.
    fn decline(&mut self, index: usize, spare: &mut Spare) -> Option<Arrival> {
        for _ in 0..ACCEPTS {
            spare.give_up();
            let open = &self.listeners[index];
            let accepted = listen::accept(open.listener.fd.as_fd(), &self.cx.stats);
            let is_last = !matches!(accepted, Accepted::Connection(..));
            if let Accepted::Connection(stream, peer) = accepted {
                open.counts.accepted.add(1);
                // With this one in the place of the spare one there is none left, unless some have come free since it
                // was last tried.
                if spare.regain() && !descriptors::are_reserved() {
                    self.exhausted_since = 0;
                    self.cx.admission.on_accept(index);
                    return Some(Arrival { stream, peer, listener: index });
                }
                self.turn_away(stream, peer, index, ConnectionRefusal::Descriptors);
            }
            if !spare.regain() {
                descriptors::are_lacking(); // a request has it, and nobody can be told until some idle connection has gone
                break;
            }
            if is_last {
                break;
            }
        }
        None
    }

    /// Follows how many connections there are: one that is sent much takes its share of what the kernel may hold for all, and who
    /// has the fewest gets the next.
    pub(super) fn mind_the_crowd(&mut self) {
        let has_enough = self.cx.admission.is_shedding() || self.listeners.is_empty();
        self.shared.placement.count(self.number, (!has_enough).then_some(self.connections.len()));
        self.cx.share = Share::of(self.connections.len(), self.cx.engine.settings.limits.unsent_size);
    }

    /// Follows the settings.
    pub(super) fn bound_unsent(&mut self) {
        let tight = self.cx.engine.settings.limits.unsent_size;
        // Left to itself the kernel gives a few slow readers megabytes each, which count against the cgroup.
        let share = u32::try_from(self.cx.admission.memory() / CROWD as u64).unwrap_or(u32::MAX);
        self.cx.wide = share.clamp(tight, tight.saturating_mul(WIDE));
        for open in &self.listeners {
            socket::bound_unsent(open.listener.fd.as_fd(), tight);
        }
    }
}

impl OpenListener {
    /// So many connections waited at it and were accepted in one turn, and so many do still.
    fn has_waited(&self, accepted: usize, left: u32) {
        self.counts.waiting.set(accepted as u64 + u64::from(left));
        self.counts.waiting.set(left.into());
    }
}
