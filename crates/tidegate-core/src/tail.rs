//! Requests as they end, for operators who watch: `tidegate tail`.
//!
//! Who watches asks each worker again and again, and has a bounded buffer there: what does not fit is counted, and said with
//! the next answer. Who has not asked for half a minute has gone. `conn/send` `tally` tells of requests; while nobody watches
//! that is one look at an empty list.

use crate::engine::Engine;
use crate::log::{AccessRecord, push_json_member};
use crate::selection::{Candidate, Selection, Selector};
use crate::series::push_series;
use std::rc::{Rc, Weak};
use tidegate_io::clock::wall;
use tidegate_stats::series::{SeriesId, SeriesTable};

/// Who may watch at once.
const TAILS: usize = 8;
/// Bytes of rows that wait to be asked for.
const BUFFER: usize = 256 << 10;
/// Seconds after which one who has not asked has gone.
const LEASE: u32 = 30;
/// Bytes of a name that one who watches gives itself.
const NAME: usize = 64;

/// Those who watch.
#[derive(Default)]
pub(crate) struct Tails(Vec<Tail>);

struct Tail {
    name: String,
    selection: Selection,
    selector: Selector,
    /// Whose sites the selector knows.
    engine: Weak<Engine>,
    /// All of them but names of site and route, and the end.
    rows: Vec<u8>,
    /// Where each ends, and what it counts for.
    ends: Vec<(usize, SeriesId)>,
    /// Rows that had no room.
    lost: u64,
    /// When it has asked last, seconds.
    asked: u32,
}

/// A request that has ended.
pub(crate) struct TailEnd {
    pub series: SeriesId,
    pub status: u16,
    pub received: u64,
    pub sent: u64,
    /// How long it took.
    pub nanos: u64,
}

impl Tails {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.0.is_empty()
    }

    /// Who has gone is forgotten.
    pub(crate) fn on_second(&mut self, second: u32) {
        self.0.retain(|tail| second.wrapping_sub(tail.asked) <= LEASE);
    }

    /// Somebody watches no longer.
    pub(crate) fn end(&mut self, name: &str) {
        self.0.retain(|tail| tail.name != name);
    }

    /// Tells those who watch of a request.
    #[cold]
    pub(crate) fn tell(&mut self, engine: &Rc<Engine>, end: &TailEnd, entry: Option<&AccessRecord<'_>>) {
        let mut upstream = String::new();
        if let Some(trace) = entry.and_then(|entry| entry.trace) {
            trace.each_try(|asked| upstream = asked.member());
        }
        let request = Candidate {
            series: end.series,
            client: entry.map(|entry| entry.client),
            method: entry.map_or("", |entry| entry.method),
            status: Some(end.status),
            nanos: end.nanos,
            upstream: &upstream,
        };
        let mut row = Vec::new();
        for tail in &mut self.0 {
            if tail.engine.as_ptr() != Rc::as_ptr(engine) {
                tail.selector.adopt(engine);
                tail.engine = Rc::downgrade(engine);
            }
            if !tail.selector.takes(&request) {
                continue;
            }
            if row.is_empty() {
                row = to_row(end, entry, &upstream);
            }
            if tail.rows.len() + row.len() > BUFFER {
                tail.lost += 1;
                continue;
            }
            tail.rows.extend_from_slice(&row);
            tail.ends.push((tail.rows.len(), end.series));
        }
    }

    /// What one who watches has not been told yet, as a JSON object; with the first question it begins to watch. `None`: too
    /// many do already.
    pub(crate) fn ask(
        &mut self,
        (name, selection): (&str, Selection),
        second: u32,
        engine: &Rc<Engine>,
        names: &SeriesTable,
    ) -> Option<String> {
        self.on_second(second);
        let known = self.0.iter_mut().find(|tail| tail.name == name && tail.selection == selection);
        if let Some(tail) = known {
            tail.asked = second;
            return Some(tail.take(names));
        }
        self.end(name);
        if self.0.len() >= TAILS || name.len() > NAME {
            return None;
        }
        let selector = Selector::new(selection.clone(), engine);
        self.0.push(Tail {
            name: name.to_owned(),
            selection,
            selector,
            engine: Rc::downgrade(engine),
            rows: Vec::new(),
            ends: Vec::new(),
            lost: 0,
            asked: second,
        });
        Some("{\"lost\":0,\"rows\":[]}".to_owned())
    }
}

impl Tail {
    fn take(&mut self, names: &SeriesTable) -> String {
        let (rows, ends) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.ends));
        let mut out = format!("{{\"lost\":{},\"rows\":[", std::mem::take(&mut self.lost)).into_bytes();
        let mut begin = 0;
        for (end, series) in ends {
            if begin > 0 {
                out.push(b',');
            }
            out.extend_from_slice(rows.get(begin..end).unwrap_or_default());
            begin = end;
            push_series(&mut out, names.name(series));
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// All of a row but its end.
fn to_row(end: &TailEnd, entry: Option<&AccessRecord<'_>>, upstream: &str) -> Vec<u8> {
    let TailEnd { status, received, sent, nanos, .. } = end;
    let (seconds, subsecond) = wall();
    let (millis, took) = (subsecond / 1_000_000, *nanos as f64 / 1e9);
    let mut row = format!(
        "{{\"at\":{seconds}.{millis:03},\"took\":{took:.6},\"status\":{status},\"received\":{received},\"sent\":{sent}"
    )
    .into_bytes();
    let Some(entry) = entry else { return row };
    push_json_member(&mut row, "client", entry.client.to_string().as_bytes());
    push_json_member(&mut row, "scheme", entry.scheme.as_bytes());
    push_json_member(&mut row, "method", entry.method.as_bytes());
    push_json_member(&mut row, "host", entry.authority.as_bytes());
    push_json_member(&mut row, "target", entry.target.as_bytes());
    push_json_member(&mut row, "protocol", entry.version.name().as_bytes());
    for (name, value) in
        [("referer", entry.referer), ("user_agent", entry.user_agent), ("upstream", upstream.as_bytes())]
    {
        if !value.is_empty() {
            push_json_member(&mut row, name, value);
        }
    }
    if let Some(id) = entry.trace.and_then(|trace| trace.id()) {
        push_json_member(&mut row, "request_id", id.as_bytes());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use tidegate_config::{ProcessEnvironment, load_str};

    fn engine() -> Rc<Engine> {
        let text = "listen \"127.0.0.1:0\"\nsite { respond 204 }\n";
        let settings = load_str("t", text, Path::new("/"), &ProcessEnvironment).settings.unwrap();
        Rc::new(Engine::new(Arc::new(settings), Vec::new()))
    }

    fn end(status: u16) -> TailEnd {
        TailEnd { series: SeriesId::NONE, status, received: 1, sent: 2, nanos: 3_000_000 }
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let (engine, mut tails) = (engine(), Tails::default());
        assert!(!tails.is_active());
        let ask = |tails: &mut Tails| {
            tails.ask(("a", Selection::default()), 0, &engine, &SeriesTable::default()).unwrap()
        };
        assert_eq!(ask(&mut tails), r#"{"lost":0,"rows":[]}"#);
        tails.tell(&engine, &end(200), None);
        let told = ask(&mut tails);
        assert!(told.starts_with("{\"lost\":0,\"rows\":[{\"at\":"), "{told}");
        assert!(told.contains("\"took\":0.003000,\"status\":200,\"received\":1,\"sent\":2"), "{told}");
        let row = told.len() - r#"{"lost":0,"rows":[]}"#.len();
        let many = BUFFER / row * 2;
        (0..many).for_each(|_| tails.tell(&engine, &end(200), None));
        let told = ask(&mut tails);
        let rows = told.matches("\"at\"").count();
        assert!(told.len() <= BUFFER + rows * 40 && rows < many, "{}", told.len());
        assert!(told.starts_with(&format!("{{\"lost\":{},", many - rows)), "{}", &told[..40]);
        assert_eq!(ask(&mut tails), r#"{"lost":0,"rows":[]}"#, "each is told once");
    }

    #[test]
    fn each_has_its_own_and_so_many_may_watch() {
        let (engine, mut tails) = (engine(), Tails::default());
        let errors: Selection = "status=5xx".parse().unwrap();
        assert!(tails.ask(("errors", errors.clone()), 0, &engine, &SeriesTable::default()).is_some());
        for number in 1..TAILS {
            assert!(
                tails
                    .ask((&number.to_string(), Selection::default()), 0, &engine, &SeriesTable::default())
                    .is_some()
            );
        }
        assert_eq!(tails.ask(("one more", Selection::default()), 0, &engine, &SeriesTable::default()), None);
        [200, 502].into_iter().for_each(|status| tails.tell(&engine, &end(status), None));
        let told = tails.ask(("errors", errors), 0, &engine, &SeriesTable::default()).unwrap();
        assert!(told.contains("\"status\":502") && !told.contains("\"status\":200"), "{told}");
        assert_eq!(
            tails
                .ask(("1", Selection::default()), 0, &engine, &SeriesTable::default())
                .unwrap()
                .matches("\"at\"")
                .count(),
            2
        );
        tails.end("1");
        assert!(tails.ask(("one more", Selection::default()), 0, &engine, &SeriesTable::default()).is_some());
    }

    #[test]
    fn who_does_not_ask_has_gone() {
        let (engine, mut tails) = (engine(), Tails::default());
        let begun = u32::MAX - 3; // seconds wrap
        tails.ask(("a", Selection::default()), begun, &engine, &SeriesTable::default());
        tails.on_second(begun.wrapping_add(LEASE));
        assert!(tails.is_active());
        tails.on_second(begun.wrapping_add(LEASE + 1));
        assert!(!tails.is_active());
    }
}
