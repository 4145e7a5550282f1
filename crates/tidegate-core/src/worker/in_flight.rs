//! The requests of a worker under way, the end of some, those that were slow, and those that end while somebody watches:
//! questions of the operator that the worker answers itself.
//!
//! A request has an id, `PROCESS-WORKER-CONNECTION-NUMBER`: the connection is a generation of its slot, the number a stream or the
//! count of requests. A later one has it again when its slot has had half a million connections, and comes to the same number.

use super::Worker;
use crate::conn::in_flight::RequestUnderWay;
use crate::log::{push_json_escaped, push_json_member};
use crate::selection::{Candidate, Selection, Selector};
use crate::series::push_series;
use crate::trace::Trace;
use tidegate_io::Key;
use tidegate_io::clock::monotonic_ns;
use tidegate_stats::series::SeriesId;

/// Requests that are told of: those that have taken the longest.
const ROWS: usize = 500;

impl Worker {
    /// Answers what is about requests; `None`: it is not.
    pub(super) fn answer(&mut self, question: &str) -> Option<String> {
        match question.split_once(' ').unwrap_or((question, "")) {
            ("requests", "") => Some(self.requests()),
            ("slow", "") => Some(self.slow()),
            ("busiest", "") => Some(self.cx.busiest.to_json()),
            ("cancel", id) => Some(if self.cancel(id) { "cancelled" } else { "none" }.to_owned()),
            ("cancel-dry", id) => Some(if self.has_request(id) { "there" } else { "none" }.to_owned()),
            ("cancel-all", which) => Some(self.cancel_all(which)),
            ("tail", who) => Some(self.tail(who)),
            ("spans", lease) => Some(self.cx.spans.take(lease.parse().unwrap_or(0), self.cx.second())),
            ("tail-end", name) => {
                self.cx.tails.end(name);
                Some("ended".to_owned())
            }
            _ => None,
        }
    }

    /// A JSON object: how many there are, and the oldest of them.
    fn requests(&mut self) -> String {
        let keys: Vec<Key> = self.connections.keys().collect();
        let mut all: Vec<(u64, Key, u32)> = Vec::new();
        for key in keys {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.each_request(&mut |request| all.push((request.started, key, request.number)));
            }
        }
        all.sort_unstable_by_key(|(started, ..)| *started);
        let count = all.len();
        all.truncate(ROWS);
        let (process, worker, now) = (std::process::id(), self.number, monotonic_ns());
        let mut rows: Vec<(SeriesId, Vec<u8>)> = Vec::with_capacity(all.len());
        let mut at = 0;
        while let Some((_, key, number)) = all.get(at).copied() {
            at += 1;
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.each_request(&mut |request| {
                if request.number == number {
                    let id = format!("{process}-{worker}-{:x}-{number}", key.number());
                    rows.push((request.series, row(&id, &request, now)));
                }
            });
        }
        let mut out = format!("{{\"count\":{count},\"requests\":[").into_bytes();
        for (at, (series, row)) in rows.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(row);
            push_series(&mut out, self.cx.stats.series.name(*series));
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Those that were slow; none where the settings count nothing of routes.
    fn slow(&self) -> String {
        if !self.cx.engine.settings.statistics.of_sites {
            return "{\"requests\":[]}".to_owned();
        }
        self.cx.slow.to_json(|id| self.cx.stats.series.name(id))
    }

    /// What one who watches, by its name and selection, has not been told yet.
    fn tail(&mut self, who: &str) -> String {
        let (name, selection) = who.split_once(' ').unwrap_or((who, ""));
        let selection: Selection = match selection.parse() {
            Ok(selection) => selection,
            Err(error) => return format!("{{\"error\":{}}}", json_text(&error)),
        };
        let second = self.cx.second();
        let told = self.cx.tails.ask((name, selection), second, &self.cx.engine, &self.cx.stats.series);
        told.unwrap_or_else(|| {
            format!("{{\"error\":{}}}", json_text("as many as may watch at once do already; end one of them"))
        })
    }

    /// Ends the requests of a selection behind `now`, or says behind `dry` which those are: a JSON object of how many there are,
    /// and the ids of the oldest.
    fn cancel_all(&mut self, which: &str) -> String {
        let (how, selection) = which.split_once(' ').unwrap_or((which, ""));
        let selection: Selection = match selection.parse() {
            Ok(selection) => selection,
            Err(error) => return format!("{{\"error\":{}}}", json_text(&error)),
        };
        let selector = Selector::new(selection, &self.cx.engine);
        let now = monotonic_ns();
        let keys: Vec<Key> = self.connections.keys().collect();
        let mut found: Vec<(u64, Key, u32)> = Vec::new();
        for key in keys {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.each_request(&mut |request| {
                    if selector.takes(&candidate(&request, &mut String::new(), now)) {
                        found.push((request.started, key, request.number));
                    }
                });
            }
        }
        found.sort_unstable_by_key(|(started, ..)| *started);
        if how == "now" {
            found.retain(|(_, key, number)| self.end_request(*key, *number));
        }
        let (process, worker) = (std::process::id(), self.number);
        let ids = found.iter().take(ROWS);
        let ids = ids.map(|(_, key, number)| format!("\"{process}-{worker}-{:x}-{number}\"", key.number()));
        format!("{{\"count\":{},\"ids\":[{}]}}", found.len(), ids.collect::<Vec<_>>().join(","))
    }

    fn cancel(&mut self, id: &str) -> bool {
        self.named(id).is_some_and(|(key, number)| self.end_request(key, number))
    }

    /// Whether it is under way.
    fn has_request(&mut self, id: &str) -> bool {
        let Some((key, number)) = self.named(id) else { return false };
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let mut is_there = false;
        connection.each_request(&mut |request| is_there |= request.number == number);
        is_there
    }

    /// The connection of a request of this worker, and its number there.
    fn named(&self, id: &str) -> Option<(Key, u32)> {
        let mut parts = id.splitn(4, '-');
        let mut part = |own: u64| parts.next().is_some_and(|part| part.parse() == Ok(own));
        if !part(u64::from(std::process::id())) || !part(self.number as u64) {
            return None;
        }
        let key = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        Some((self.connections.find(key)?, number))
    }

    fn end_request(&mut self, key: Key, number: u32) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let Some(next) = connection.cancel(number, key, &mut self.cx) else { return false };
        self.follow(key, next);
        true
    }
}

/// What a request under way is chosen by; `upstream` is where the address of its application is put.
fn candidate<'a>(request: &'a RequestUnderWay<'_>, upstream: &'a mut String, now: u64) -> Candidate<'a> {
    let entry = request.record.map(|record| record.entry());
    if let Some(trace) = entry.as_ref().and_then(|entry| entry.trace) {
        *upstream = upstream_of(trace);
    }
    Candidate {
        series: request.series,
        client: Some(entry.as_ref().map_or(request.client, |entry| entry.client)),
        method: entry.map_or("", |entry| entry.method),
        status: request.status,
        nanos: now.saturating_sub(request.started),
        upstream,
    }
}

/// The application that a request waits for a place on, else the member that was asked last; empty where there is neither.
fn upstream_of(trace: &Trace) -> String {
    trace.queued_for().unwrap_or_else(|| {
        let mut upstream = String::new();
        trace.each_try(|asked| upstream = asked.member());
        upstream
    })
}

/// A text as JSON.
fn json_text(text: &str) -> String {
    let mut out = b"\"".to_vec();
    push_json_escaped(&mut out, text.as_bytes());
    out.push(b'"');
    String::from_utf8_lossy(&out).into_owned()
}

/// All of a row but its end.
fn row(id: &str, request: &RequestUnderWay<'_>, now: u64) -> Vec<u8> {
    let age = now.saturating_sub(request.started) as f64 / 1e9;
    let RequestUnderWay { received, sent, .. } = request;
    let entry = request.record.map(|record| record.entry());
    let trace = entry.as_ref().and_then(|entry| entry.trace);
    let is_queued = request.status.is_none() && trace.is_some_and(|trace| trace.queued_for().is_some());
    let phase = if is_queued { "queued" } else { request.phase };
    let mut out =
        format!("{{\"id\":\"{id}\",\"age\":{age:.6},\"received\":{received},\"sent\":{sent}").into_bytes();
    if let Some(status) = request.status {
        out.extend_from_slice(format!(",\"status\":{status}").as_bytes());
    }
    push_json_member(&mut out, "phase", phase.as_bytes());
    push_json_member(&mut out, "protocol", request.version.name().as_bytes());
    let client = entry.as_ref().map_or(request.client, |entry| entry.client);
    push_json_member(&mut out, "client", client.to_string().as_bytes());
    let Some(entry) = entry else { return out };
    push_json_member(&mut out, "method", entry.method.as_bytes());
    push_json_member(&mut out, "target", entry.target.as_bytes());
    push_json_member(&mut out, "host", entry.authority.as_bytes());
    let upstream = entry.trace.map(|trace| upstream_of(trace)).unwrap_or_default();
    if !upstream.is_empty() {
        push_json_member(&mut out, "upstream", upstream.as_bytes());
    }
    out
}
