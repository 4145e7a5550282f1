//! Where a worker's requests come from: the number that is left, the schedule, and the queue of arrivals that
//! wait for a connection.

use crate::clock::ns;
use crate::connection::Exchange;
use crate::plan::Plan;
use crate::schedule::Schedule;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Requests that may still start, shared by the workers. They take several at a time.
pub(crate) struct Claims {
    left: Option<AtomicU64>,
    chunk: u64,
}

impl Claims {
    pub fn new(requests: Option<u64>, threads: u32, connections: u32) -> Self {
        // Few at a time where there are few for each connection: none of them may be left without.
        let chunk = (requests.unwrap_or(0) / (64 * u64::from(connections.max(threads)))).clamp(1, 64);
        Claims { left: requests.map(AtomicU64::new), chunk }
    }

    fn take(&self) -> u64 {
        let Some(left) = &self.left else { return u64::MAX };
        let taken = left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(self.chunk)));
        taken.unwrap_or(0).min(self.chunk)
    }
}

/// The requests of one worker.
pub(super) struct Source<'s> {
    deck: &'s [u32],
    at: usize,
    claims: &'s Claims,
    claimed: u64,
    is_exhausted: bool,
    schedule: Option<Schedule>,
    start: u64,
    /// Intended starts whose request has no connection yet. One word each.
    waiting: VecDeque<u64>,
    /// Requests that the server said it would not answer on their connection.
    returned: VecDeque<Exchange>,
    counts_from: u64,
    is_stopped: bool,
    end: u64,
}

impl<'s> Source<'s> {
    pub fn new(
        plan: &'s Plan,
        claims: &'s Claims,
        schedule: Option<Schedule>,
        worker: u32,
        start: u64,
    ) -> Self {
        let deck = &plan.mix.deck;
        let counts_from = start.saturating_add(ns(plan.warmup));
        Source {
            deck,
            at: deck.len() * plan.global_number(worker) as usize / plan.global_threads().max(1) as usize,
            claims,
            claimed: 0,
            is_exhausted: false,
            schedule,
            start,
            waiting: VecDeque::new(),
            returned: VecDeque::new(),
            counts_from,
            is_stopped: false,
            end: plan.time.map_or(u64::MAX, |time| counts_from.saturating_add(ns(time))),
        }
    }

    /// The next request, if one may start at `now`.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<Exchange> {
        if let Some(mut exchange) = self.returned.pop_front() {
            exchange.sent = now;
            return Some(exchange);
        }
        if self.schedule.is_some() {
            let intended = self.waiting.pop_front()?;
            return Some(Exchange { intended, sent: now, request: self.draw(), attempts: 0 });
        }
        if self.is_stopped || now >= self.end || !self.claim(now) {
            return None;
        }
        Some(Exchange { intended: now, sent: now, request: self.draw(), attempts: 0 })
    }

    /// Gives back what was sent and will not be answered.
    pub fn give_back(&mut self, exchange: Exchange) {
        self.returned.push_back(exchange);
    }

    /// The next intended start, absolute.
    #[inline]
    pub fn next_start(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.is_stopped => {
                let at = self.start.saturating_add(schedule.next());
                if at < self.end { at } else { u64::MAX }
            }
            _ => u64::MAX,
        }
    }

    /// Takes one arrival that is due. `None`: none is, or no request is left.
    pub fn arrive(&mut self, now: u64) -> Option<u64> {
        let at = self.next_start();
        if at > now || !self.claim(at) {
            return None;
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        Some(at)
    }

    pub fn wait(&mut self, intended: u64) {
        self.waiting.push_back(intended);
    }

    pub fn waiting(&self) -> u64 {
        (self.waiting.len() + self.returned.len()) as u64
    }

    /// Takes one out of those that wait: when it was meant to start, and which request it would have been.
    pub fn take_unsent(&mut self) -> Option<(u64, u32)> {
        let returned = self.returned.pop_front().map(|exchange| (exchange.intended, exchange.request));
        returned.or_else(|| self.waiting.pop_front().map(|intended| (intended, self.draw())))
    }

    /// Whether a request counts: those of the warm-up do not, and whose it is its intended start says, not when it is sent or
    /// answered.
    #[inline]
    pub fn counts(&self, intended: u64) -> bool {
        intended >= self.counts_from
    }

    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted && self.returned.is_empty()
    }

    /// Whether a request that starts then may be made.
    #[inline]
    fn claim(&mut self, intended: u64) -> bool {
        if !self.counts(intended) {
            return true;
        }
        if self.claimed == 0 {
            self.claimed = self.claims.take();
            if self.claimed == 0 {
                self.is_exhausted = true;
                return false;
            }
        }
        if let Some(left) = &self.claims.left {
            self.claimed -= 1;
            self.is_exhausted = self.claimed == 0 && left.load(Relaxed) == 0;
        }
        true
    }

    #[inline]
    pub fn draw(&mut self) -> u32 {
        let request = self.deck.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        if self.at >= self.deck.len() {
            self.at = 0;
        }
        request
    }

    /// Puts back what was drawn last: it is sent later, so that the mix is the same however many have to wait.
    pub fn put_back(&mut self) {
        self.at = self.at.checked_sub(1).unwrap_or(self.deck.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Description, Mix};
    use crate::schedule::Arrivals;
    use crate::target::Url;
    use std::time::Duration;

    /// A worker that is late takes up arrivals of the warm-up when that is over: they are the warm-up's all the same.
    #[test]
    fn whose_a_request_is_its_intended_start_says() {
        const MS: u64 = 1_000_000;
        let url = Url::parse("http://127.0.0.1/").unwrap();
        let mix = Mix::build(&[Description::get(url)], true, None).unwrap();
        let warmup = Duration::from_millis(100);
        let plan = Plan { warmup, time: Some(3 * warmup), requests: Some(30), ..Plan::new(mix) };
        let claims = Claims::new(plan.requests, 1, 1);
        let start = 1_000 * MS;
        let schedule = Schedule::new(Arrivals::Constant, 100.0, 0, 1, 0);
        let mut source = Source::new(&plan, &claims, Some(schedule), 0, start);
        let mut counted = Vec::new();
        let mut taken = 0;
        for now in [start + 95 * MS, start + 155 * MS, start + 10_000 * MS] {
            while let Some(intended) = source.arrive(now) {
                taken += 1;
                counted.extend(Some(intended).filter(|intended| source.counts(*intended)));
            }
        }
        assert_eq!((taken, counted.len()), (40, 30));
        assert_eq!((counted[0], counted[29]), (start + 100 * MS, start + 390 * MS));
    }

    #[test]
    fn a_mix_is_the_same_whoever_has_to_wait() {
        let url = |path: &str| Url::parse(&format!("http://127.0.0.1/{path}")).unwrap();
        let requests = ["a", "b", "c"].map(|path| Description::get(url(path)));
        let plan = Plan::new(Mix::build(&requests, true, None).unwrap());
        let claims = Claims::new(None, 1, 1);
        let mut source = Source::new(&plan, &claims, None, 0, 0);
        let mut sent = Vec::new();
        for arrival in 0..9 {
            let request = source.draw();
            if arrival % 2 == 0 {
                sent.push(request);
            } else {
                source.put_back();
            }
        }
        sent.sort_unstable();
        assert_eq!(sent, [0, 0, 1, 1, 2]);
    }

    #[test]
    fn claims_add_up_to_the_number() {
        for requests in [0, 1, 7, 1_000, 4_096] {
            let claims = Claims::new(Some(requests), 3, 64);
            let mut taken = 0;
            loop {
                match claims.take() {
                    0 => break,
                    count => taken += count,
                }
            }
            assert_eq!(taken, requests);
        }
        assert_eq!(Claims::new(None, 1, 1).take(), u64::MAX);
    }
}
