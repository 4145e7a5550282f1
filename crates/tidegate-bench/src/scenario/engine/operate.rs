//! Users move on: operations begin, steps follow each other, an operation ends and the next one is drawn.

use super::connection::{Exchange, Purpose};
use super::drive::BODY_KEPT;
use super::request;
use super::resources::UNKNOWN;
use super::worker::Worker;
use crate::clock::monotonic_ns;
use crate::quantity::show_bytes;
use crate::record::Failure;
use crate::scenario::cookies::Asked;
use crate::scenario::record::{FAILED_KEPT, FailedOperation};
use crate::scenario::{TakeFrom, page};
use std::cmp::Reverse;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Redirects that a step follows.
const REDIRECTS: u8 = 5;

/// Redirects of all resources of a page together.
const ASSET_REDIRECTS: usize = 200;

/// Bytes of a failed answer that a report shows.
const ANSWER_SHOWN: usize = 300;

/// Whether an answer has come slower than `least` bytes a second, in words.
fn too_slow(answer: &Answer, least: u64, now: u64) -> Option<String> {
    let seconds = now.saturating_sub(answer.exchange.sent).max(1) as f64 / 1e9;
    let speed = answer.body_bytes as f64 / seconds;
    (answer.body_bytes > 0 && speed < least as f64).then(|| {
        format!("it came at {}/s, and {}/s is the least", show_bytes(speed), show_bytes(least as f64))
    })
}

/// Characters of a reason or of a request line that a report shows.
const REASON_SHOWN: usize = 600;

/// A text that may hold what a server has sent, for people: not without end, and without what a terminal would obey.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars().take(REASON_SHOWN) {
        if character.is_control() { out.extend(character.escape_default()) } else { out.push(character) }
    }
    if text.chars().nth(REASON_SHOWN).is_some() {
        out.push('…');
    }
    out
}

/// A complete answer.
pub(super) struct Answer {
    pub exchange: Exchange,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    pub status: u16,
    /// There was more of the body than is looked at.
    pub is_cut: bool,
    /// Bytes of the body, looked at or not.
    pub body_bytes: u64,
}

impl Worker<'_> {
    /// Whether what is due at this time is measured.
    pub(super) fn is_measured(&self, intended: u64) -> bool {
        (self.steady.0..self.steady.1).contains(&intended)
    }

    /// Whether what a user asks, and gets, is measured: all of an operation is that was due in the steady time.
    pub(super) fn measures(&self, place: usize) -> bool {
        self.users.get(place).is_some_and(|user| user.is_busy && self.is_measured(user.intended))
    }

    /// A user's time has come.
    pub(super) fn begin(&mut self, place: usize, now: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        if user.intended >= user.ends {
            return self.leave(place);
        }
        if now >= self.end {
            return self.leave_unanswered(place, now);
        }
        if user.before.is_none() && user.began == 0 {
            self.active += 1;
        }
        user.is_busy = true;
        user.began = now;
        user.step = 0;
        user.failure = None;
        user.draw_rows(&self.scenario.data);
        let (operation, intended, before, free_since) =
            (user.operation, user.intended, user.before.take(), user.free_since);
        self.busy += 1;
        if let Some((before, began, drawn)) = before
            && let Some(counter) = self.counters.get_mut(before)
        {
            counter.tally.cycles += 1;
            counter.tally.cycle_due += drawn;
            counter.tally.cycle_achieved += now.saturating_sub(began);
        }
        if self.is_measured(intended) {
            // What the server has delayed is not the generator's fault.
            self.recorder.late(now.saturating_sub(intended.max(free_since)));
        }
        if self.scenario.operations.get(operation).is_some_and(|operation| !operation.steps.is_empty()) {
            self.begin_step(place, now);
        } else {
            self.end_operation(place, now);
        }
    }

    fn begin_step(&mut self, place: usize, now: u64) {
        let scenario = self.scenario;
        let Some(user) = self.users.get_mut(place) else { return };
        let Some(step) = user.step_of(scenario) else { return };
        user.redirects = 0;
        user.passing.clear();
        if let Err((failure, reason)) = self.call(place, &step.calls.before, None) {
            if let Some(user) = self.users.get_mut(place) {
                user.path = step.path.shown(&scenario.variables);
            }
            return self.fail(place, failure, reason, None, now);
        }
        // What a script takes, here or behind the answer before, is not the time of the server.
        let now = if scenario.script.is_some() { monotonic_ns() } else { now };
        let Some(user) = self.users.get_mut(place) else { return };
        match request::path(scenario, step, user) {
            Ok(path) => user.path = path,
            Err(reason) => {
                // Not that of the request before.
                user.path = step.path.shown(&scenario.variables);
                return self.fail(place, Failure::Check, reason, None, now);
            }
        }
        self.ask(place, Purpose::Step, now);
    }

    /// Sends a request for a user.
    pub(super) fn ask(&mut self, place: usize, purpose: Purpose, now: u64) {
        let exchange =
            Exchange { purpose, due: now, sent: now, is_conditional: false, needs_body: false, attempts: 0 };
        self.ask_again(place, exchange, now);
    }

    /// Writes the request of an exchange anew, and sends it.
    pub(super) fn ask_again(&mut self, place: usize, mut exchange: Exchange, now: u64) {
        let scenario = self.scenario;
        let Some(user) = self.users.get_mut(place) else { return };
        let Some(step) = user.step_of(scenario) else { return };
        let number = match exchange.purpose {
            Purpose::Asset(number) => number,
            _ if step.is_cached && step.method == "GET" => self.resources.number(&user.path),
            _ => UNKNOWN,
        };
        let resource = self.resources.get(number);
        let validator =
            resource.filter(|_| user.cache.holds(number)).and_then(|known| known.validator.as_deref());
        exchange.is_conditional = validator.is_some();
        let written = match exchange.purpose {
            Purpose::Step => request::step(scenario, step, user, validator),
            Purpose::Redirect => request::get(scenario, &user.path, user, validator),
            Purpose::Asset(_) => {
                let path = self.resources.path(number, &user.passing).unwrap_or_else(|| "/".into());
                request::get(scenario, &path, user, validator)
            }
        };
        let request = match written {
            Ok(request) => request,
            Err(reason) => return self.fail(place, Failure::Check, reason, None, now),
        };
        let looks_at_bodies = step.assets
            || !step.counts.is_empty()
            || !step.expect.contains.is_empty()
            || !step.calls.after.is_empty()
            || step.takes.iter().any(|take| !matches!(take.from, TakeFrom::Header(_)));
        exchange.needs_body = looks_at_bodies && !matches!(exchange.purpose, Purpose::Asset(_));
        user.under_way += 1;
        user.has_asked = true;
        self.send(place, exchange, request, now);
    }

    /// A user has got an answer.
    pub(super) fn answered(&mut self, place: usize, answer: Answer, now: u64) {
        let scenario = self.scenario;
        let Some(user) = self.users.get_mut(place) else { return };
        user.under_way = user.under_way.saturating_sub(1);
        let Some(step) = user.step_of(scenario) else { return };
        let method = if answer.exchange.purpose == Purpose::Step { step.method.as_str() } else { "GET" };
        let mut head = page::head(&answer.head, method);
        let resource = match answer.exchange.purpose {
            Purpose::Asset(number) => self.resources.path(number, &user.passing),
            Purpose::Step | Purpose::Redirect => None,
        };
        let path = resource.as_deref().unwrap_or(&user.path);
        let asked = Asked { site: &scenario.target, path, now };
        for cookie in &head.cookies {
            user.cookies.set(cookie, asked);
        }
        if let Purpose::Asset(number) = answer.exchange.purpose {
            return self.asset_answered(place, number, &answer, head, now);
        }
        if matches!(answer.status, 301..=303 | 307 | 308)
            && step.expect.follows()
            && let Some(location) = head.location.take()
        {
            // 307 and 308 keep method and content; the others turn all but GET and HEAD into GET (RFC 9110 section 15.4).
            let keeps_method = matches!(answer.status, 307 | 308) || matches!(method, "GET" | "HEAD");
            let purpose = if keeps_method { answer.exchange.purpose } else { Purpose::Redirect };
            return self.redirected(place, purpose, &location, &answer, now);
        }
        let is_unchanged = answer.status == 304 && answer.exchange.is_conditional;
        let in_cache = (step.is_cached && step.method == "GET").then(|| self.resources.number(&user.path));
        if is_unchanged {
            // The page is taken from the cache, and what it loads is asked for as ever.
            user.queue.extend(in_cache.map(|number| self.resources.loaded_by(number)).unwrap_or_default());
        } else {
            let objection = page::objection(
                &step.expect,
                answer.status,
                &answer.head,
                &answer.body,
                method,
                user,
                &scenario.data,
            );
            let mut slow = step.min_speed.and_then(|least| too_slow(&answer, least, now));
            if step.min_speed.is_some() && (self.steady.0..self.steady.1).contains(&user.intended) {
                let conforms = objection.is_none() && slow.is_none();
                if let Some(counter) = self.counters.get_mut(user.operation) {
                    counter.tally.paced += 1;
                    counter.tally.conforming += u64::from(conforms);
                }
            }
            let operation = scenario.operations.get(user.operation);
            if operation.is_some_and(|operation| operation.conforming.is_some()) {
                slow = None;
            }
            if let Some(mut reason) = objection.or(slow) {
                if answer.is_cut {
                    reason.push_str(&format!(" (of which {} MiB are looked at)", BODY_KEPT >> 20));
                }
                let failure =
                    if step.expect.allows_status(answer.status) { Failure::Check } else { Failure::Status };
                return self.fail(place, failure, reason, Some(&answer), now);
            }
            if let Some(number) = in_cache {
                let has_validator = head.validator.is_some();
                self.resources.learn(number, head.validator.take());
                if has_validator {
                    user.cache.hold(number);
                }
            }
            if answer.is_cut && (step.assets || !step.counts.is_empty() || !step.calls.after.is_empty()) {
                let reason =
                    format!("the page is longer than the {} MiB that are looked at", BODY_KEPT >> 20);
                return self.fail(place, Failure::Check, reason, Some(&answer), now);
            }
            if !step.takes.is_empty() || step.assets || !step.counts.is_empty() {
                let path = user.path.clone();
                let mut pick = |count: usize| user.random.below(count);
                let found = page::read(step, &scenario.target, &path, &answer.head, &answer.body, &mut pick);
                if let Some(variable) = found.missing {
                    let name = scenario.variables.get(usize::from(variable)).map_or("", String::as_str);
                    let part = if answer.is_cut { "the part that is looked at of " } else { "" };
                    let take = step.takes.iter().find(|take| take.variable == variable);
                    let written = take.map_or("", |take| take.written.as_str());
                    let reason = format!("no `{name}` on {part}the page: nothing is found by {written}");
                    return self.fail(place, Failure::Check, reason, Some(&answer), now);
                }
                let is_measured = (self.steady.0..self.steady.1).contains(&user.intended);
                if let Some(counter) = self.counters.get_mut(user.operation).filter(|_| is_measured) {
                    for (counted, elements) in step.counts.iter().zip(&found.counts) {
                        counter.tally.count(counted.place, 1, *elements);
                    }
                }
                for (variable, value) in &found.values {
                    user.hold(*variable, value);
                }
                for path in &found.assets {
                    user.queue.push_back(self.resources.number_or_pass(path, &mut user.passing));
                }
                if let Some(number) = in_cache {
                    self.resources.loads(number, user.queue.iter().copied());
                }
            }
        }
        if let Err((failure, reason)) = self.call(place, &step.calls.after, Some(&answer)) {
            return self.fail(place, failure, reason, Some(&answer), now);
        }
        self.load_assets(place, if step.calls.after.is_empty() { now } else { monotonic_ns() });
        self.end_step_if_done(place, now);
    }

    fn redirected(&mut self, place: usize, purpose: Purpose, location: &[u8], answer: &Answer, now: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        user.redirects += 1;
        let path = page::resolve(&self.scenario.target, &user.path, location);
        match path {
            Some(path) if user.redirects <= REDIRECTS => {
                user.path = path;
                self.ask(place, purpose, now);
            }
            Some(_) => {
                let location = String::from_utf8_lossy(location);
                let reason = format!("more than {REDIRECTS} redirects, the last to {location}");
                self.fail(place, Failure::Check, reason, Some(answer), now);
            }
            None => {
                let location = String::from_utf8_lossy(location);
                let reason = format!("a redirect leads away from the target, to {location}");
                self.fail(place, Failure::Check, reason, Some(answer), now);
            }
        }
    }

    fn asset_answered(&mut self, place: usize, number: u32, answer: &Answer, head: page::Head, now: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        let path = self.resources.path(number, &user.passing).unwrap_or_else(|| "/".into());
        let is_unasked = answer.status == 304 && !answer.exchange.is_conditional;
        if answer.status >= 400 || is_unasked {
            let reason = format!("the status of {path}, which the page loads, is {}", answer.status);
            // As in a browser, the page loads the others all the same.
            self.note_failure(place, Failure::Status, reason, Some(answer), now);
        }
        let Some(user) = self.users.get_mut(place) else { return };
        if matches!(answer.status, 301..=303 | 307 | 308)
            && let Some(location) = &head.location
        {
            user.redirects = user.redirects.saturating_add(1);
            if usize::from(user.redirects) > ASSET_REDIRECTS {
                let location = String::from_utf8_lossy(location);
                let reason =
                    format!("{path}, which the page loads, redirects without end, last to {location}");
                return self.fail(place, Failure::Check, reason, Some(answer), now);
            }
            // What is elsewhere is left to others, as links of a page to it are.
            if let Some(path) = page::resolve(&self.scenario.target, &path, location) {
                user.queue.push_back(self.resources.number_or_pass(&path, &mut user.passing));
            }
        }
        if answer.status == 200 && head.validator.is_some() {
            self.resources.learn(number, head.validator);
            if let Some(user) = self.users.get_mut(place) {
                user.cache.hold(number);
            }
        }
        self.load_assets(place, now);
        self.end_step_if_done(place, now);
    }

    /// Asks for resources, as many at once as the user may.
    fn load_assets(&mut self, place: usize, now: u64) {
        let most = self.scenario.client.requests_at_once();
        while let Some(user) = self.users.get_mut(place)
            && user.is_busy
            && user.under_way < most
            && let Some(number) = user.queue.pop_front()
        {
            self.ask(place, Purpose::Asset(number), now);
        }
    }

    fn end_step_if_done(&mut self, place: usize, now: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        if !user.is_busy || user.under_way > 0 || !user.queue.is_empty() {
            return;
        }
        if user.failure.is_some() {
            return self.end_operation(place, now);
        }
        user.step += 1;
        let steps = self.scenario.operations.get(user.operation).map_or(0, |operation| operation.steps.len());
        if user.step < steps {
            return self.begin_step(place, now);
        }
        match self.choose(place) {
            Ok(()) => self.end_operation(place, now),
            Err((failure, reason)) => {
                if let Some(user) = self.users.get_mut(place) {
                    user.step = steps.saturating_sub(1);
                }
                self.fail(place, failure, reason, None, now);
            }
        }
    }

    /// The operation under way has failed, and asks for nothing more. It ends when what is under way has come in, within its
    /// timeouts: that counts, since the server has answered it, and connections stay.
    pub(super) fn fail(
        &mut self,
        place: usize,
        failure: Failure,
        reason: String,
        answer: Option<&Answer>,
        now: u64,
    ) {
        self.note_failure(place, failure, reason, answer, now);
        if let Some(user) = self.users.get_mut(place) {
            user.queue.clear();
        }
        self.end_step_if_done(place, now);
    }

    /// Keeps why the operation under way fails: its first reason.
    fn note_failure(
        &mut self,
        place: usize,
        failure: Failure,
        reason: String,
        answer: Option<&Answer>,
        now: u64,
    ) {
        let start = self.shared.start;
        let scenario = self.scenario;
        let Some(user) = self.users.get_mut(place) else { return };
        if !user.is_busy || user.failure.is_some() {
            return;
        }
        let operation = scenario.operations.get(user.operation);
        let method = user.step_of(scenario).map_or("", |step| &step.method);
        user.failure = Some(Box::new(FailedOperation {
            at: now.saturating_sub(start) as f64 / 1e9,
            operation: operation.map(|operation| operation.name.clone()).unwrap_or_default(),
            user: user.number,
            request: shown(&format!("{method} {}", user.path)),
            failure,
            reason: shown(&reason),
            answer: answer.map(|answer| {
                let shown = answer.body.get(..ANSWER_SHOWN).unwrap_or(&answer.body);
                shown.escape_ascii().to_string()
            }),
        }));
    }

    /// An operation has ended, well or not; the next one is drawn.
    fn end_operation(&mut self, place: usize, now: u64) {
        let scenario = self.scenario;
        let Some(user) = self.users.get_mut(place) else { return };
        user.is_busy = false;
        self.busy = self.busy.saturating_sub(1);
        let (operation, intended, began) = (user.operation, user.intended, user.began);
        let failure = user.failure.take();
        let drawn = user.draw_next(scenario, now);
        user.free_since = now;
        let is_measured = (self.steady.0..self.steady.1).contains(&intended);
        // Of who comes at a rate nobody judges the cycles: they do not make the load.
        user.before = (is_measured && user.left.is_none()).then_some((operation, began, drawn));
        let (next, ends, is_over) = (user.intended, user.ends, user.left == Some(0));
        let has_asked = std::mem::take(&mut user.has_asked);
        self.count((operation, intended), is_measured, has_asked, failure, now);
        if is_over {
            self.leave(place);
        } else {
            // A user stays to its end, with its connections.
            self.due.push(Reverse((next.min(ends), place as u32)));
        }
    }

    /// A user goes, and closes its browser.
    fn leave(&mut self, place: usize) {
        let Some(user) = self.users.get_mut(place) else { return };
        user.is_gone = true;
        // Its next start would have come when it was to be gone: nobody held it up.
        user.before = None;
        self.active = self.active.saturating_sub(u32::from(user.began > 0));
        let is_visit = user.left.is_some();
        for key in std::mem::take(&mut user.connections) {
            let connection = self.remove(key);
            if let Some(connection) = connection.filter(|connection| is_visit && !connection.is_finished) {
                // Else its port would wait a minute on our side, and a long run would want for ports.
                connection.channel.reset_on_close();
            }
        }
        if is_visit {
            self.vacate(place);
        }
    }

    fn count(
        &mut self,
        (operation, intended): (usize, u64),
        is_measured: bool,
        has_asked: bool,
        failure: Option<Box<FailedOperation>>,
        now: u64,
    ) {
        let is_success = failure.is_none();
        let (from, to) = self.steady;
        if is_success && (from..to).contains(&now) {
            self.throughput.whole += 1;
            self.throughput.second_half += u64::from(now - from >= (to - from) / 2);
        }
        if !is_measured {
            self.others += 1;
            self.others_failed += u64::from(!is_success);
        } else if let Some(counter) = self.counters.get_mut(operation) {
            counter.tally.ended += 1;
            counter.tally.succeeded += u64::from(is_success);
            // One that failed before it asked for anything says nothing of the server.
            if is_success || has_asked {
                counter.response.record(now.saturating_sub(intended));
            }
            if is_success {
                counter.expected.record(now.saturating_sub(intended));
            }
        }
        if let Some(failure) = failure
            && let Some(count) = self.failed_of.get_mut(operation)
            && *count < FAILED_KEPT
        {
            *count += 1;
            self.failed.push(*failure);
        }
    }

    /// Nobody waits any more for what a user has under way. What somebody has interrupted has not failed.
    pub(super) fn count_unanswered(&mut self, place: usize, now: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        user.under_way = 0;
        let connections = user.connections.clone();
        let is_measured = self.measures(place);
        let shared = self.shared;
        let is_interrupted = shared.stop.load(Acquire) && !shared.has_given_up.load(Relaxed);
        for key in connections {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            for unanswered in connection.take_unanswered().into_iter().filter(|_| is_measured) {
                if is_interrupted {
                    self.recorder.interrupted(now.saturating_sub(unanswered.due));
                } else {
                    self.recorder.gave_up(unanswered.waited(now));
                    self.recorder.fail(Failure::Unanswered, 1);
                }
            }
        }
    }

    /// The end of the run has come for a user that is in an operation, or that should have begun one.
    pub(super) fn leave_unanswered(&mut self, place: usize, now: u64) {
        let Some(user) = self.users.get(place) else { return };
        let began = user.began;
        if user.is_busy {
            self.count_unanswered(place, now);
            self.fail(place, Failure::Unanswered, Failure::Unanswered.sentence().to_owned(), None, now);
        }
        let Some(user) = self.users.get_mut(place) else { return };
        // A cycle that is over by the clock, and has no next start: those that are held up longest must not be left out.
        if let Some((operation, _, drawn)) =
            user.before.take_if(|(_, began, drawn)| now.saturating_sub(*began) > *drawn)
            && let Some(counter) = self.counters.get_mut(operation)
        {
            counter.tally.cycles += 1;
            counter.tally.cycle_due += drawn;
            counter.tally.cycle_achieved += now.saturating_sub(began);
        }
        if !std::mem::replace(&mut user.is_gone, true) {
            let (begin, end) = self.steady;
            self.unsent += user.pass_over(self.scenario, now, |at| (begin..end).contains(&at));
        }
    }
}
