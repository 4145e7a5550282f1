//! A history on a clock of the tests' own.

use super::*;
use crate::{GatewayFailure, Worker};
use proptest::prelude::*;

const START: u64 = 1_700_000_000 - 1_700_000_000 % 300;

fn moment(second: u64) -> Moment {
    Moment { wall: START + second, monotonic: Duration::from_secs(second) }
}

/// What a server shows that has answered so many requests, each in a millisecond.
struct Server(Worker);

impl Server {
    fn new() -> Server {
        Server(Worker::default())
    }

    fn answers(&self, requests: u64) {
        self.0.requests.add(requests);
        self.0.sent_bytes.add(requests * 1000);
        (0..requests).for_each(|_| {
            self.0.responses.add(200);
            self.0.latency.time(Duration::from_millis(1));
        });
    }

    fn shows(&self) -> Observation {
        Observation::of(&self.0.snapshot())
    }
}

fn series(span: &Span, name: &str) -> Vec<Option<f32>> {
    span.series.iter().find(|(known, _)| *known == name).unwrap().1.clone()
}

fn requests(history: &History, range: Range) -> Vec<Option<f32>> {
    series(&history.span(range), "requests")
}

fn total(history: &History) -> u64 {
    history.days().map(|day| day.totals.requests).sum()
}

#[test]
fn seconds_that_nobody_looked_are_gaps_and_not_zeros() {
    let (server, mut history) = (Server::new(), History::new(moment(0)));
    server.answers(3);
    history.record(moment(1), server.shows());
    history.record(moment(2), server.shows());
    server.answers(8);
    history.record(moment(6), server.shows());
    let span = history.span(Range::Minutes);
    assert_eq!((span.resolution, span.from, span.until), (1, START, START + 6));
    assert_eq!(series(&span, "requests"), [Some(3.0), Some(0.0), None, None, None, Some(2.0)]);
    assert_eq!(series(&span, "p50")[1], None, "of no requests there is no percentile");
    assert!((0.001..0.00105).contains(&series(&span, "p50")[0].unwrap()));
    assert_eq!(requests(&history, Range::Hours), [Some(11.0 / 6.0)]);
    assert_eq!(history.span(Range::Days).resolution, 300);
    assert!(span.series.iter().all(|(_, values)| values.len() == 6));
}

#[test]
fn the_queues_of_applications_count_as_those_of_the_server() {
    let (server, mut history) = (Server::new(), History::new(moment(0)));
    history.record(moment(1), server.shows());
    server.0.queued.set(1);
    server.0.gateway_queued.set(4);
    for why in [GatewayFailure::QueueFull, GatewayFailure::QueueAge, GatewayFailure::Silent] {
        server.0.gateway_errors.add(why, 3);
    }
    history.record(moment(2), server.shows());
    let span = history.span(Range::Minutes);
    assert_eq!(series(&span, "waiting"), [Some(0.0), Some(5.0)]);
    assert_eq!(series(&span, "refused"), [Some(0.0), Some(6.0)]);
}

#[test]
fn a_count_that_goes_back_is_no_negative_rate() {
    let (server, mut history) = (Server::new(), History::new(moment(0)));
    server.answers(5);
    history.record(moment(1), server.shows());
    history.record(moment(2), Server::new().shows());
    let again = Server::new();
    again.answers(2);
    history.record(moment(3), again.shows());
    assert_eq!(requests(&history, Range::Minutes), [Some(5.0), Some(0.0), Some(2.0)]);
    assert_eq!(total(&history), 7);
}

#[test]
fn clocks_that_are_set_leave_no_future() {
    let (server, mut history) = (Server::new(), History::new(moment(100)));
    let step = |history: &mut History, wall: u64, monotonic: u64| {
        server.answers(1);
        let now = Moment { wall: START + wall, monotonic: Duration::from_secs(monotonic) };
        history.record(now, server.shows());
    };
    (101..=110).for_each(|second| step(&mut history, second, second));
    history.mark(START + 110, "revision 2");
    step(&mut history, 105, 111); // back
    let span = history.span(Range::Minutes);
    assert_eq!((span.until, span.marks.len()), (START + 105, 0));
    assert_eq!(series(&span, "requests"), [Some(1.0); 5]);
    step(&mut history, 1_000_000, 112); // far ahead
    assert_eq!(requests(&history, Range::Minutes), [Some(1.0)]);
    assert_eq!(total(&history), 12);
    // The same second twice: nothing is lost, and nothing is counted twice.
    step(&mut history, 1_000_000, 112);
    step(&mut history, 1_000_001, 113);
    assert_eq!(requests(&history, Range::Minutes), [Some(1.0), Some(2.0)]);
    step(&mut history, 1_000_001, 114);
    assert_eq!(requests(&history, Range::Minutes), [Some(1.0), Some(1.5)]);
    assert_eq!(total(&history), 15);
}

#[test]
fn a_successor_goes_on_where_its_predecessor_was() {
    let (old, mut before) = (Server::new(), History::new(moment(0)));
    for second in 1..=8 {
        old.answers(10);
        before.record(moment(second), old.shows());
    }
    before.mark(START + 3, "revision 2");
    let (new, mut history) = (Server::new(), History::new(moment(6)));
    for second in 7..=9 {
        new.answers(1);
        history.record(moment(second), new.shows());
    }
    let text = serde_json::to_string(&before.to_send()).unwrap();
    let sent = serde_json::from_str(&text).unwrap();
    history.inherit(History::from_sent(sent, moment(9)).unwrap());
    let expected: Vec<_> = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 11.0, 11.0, 1.0].map(Some).into();
    assert_eq!(requests(&history, Range::Minutes), expected);
    assert_eq!(requests(&history, Range::Hours), [Some(8.3)], "ten seconds at most");
    assert_eq!((total(&history), history.span(Range::Minutes).marks.len()), (83, 1));
    // What the predecessor has finished since.
    let then = old.shows();
    old.answers(4);
    history.spread(START + 8, START + 10, &then, &old.shows());
    new.answers(1);
    history.record(moment(10), new.shows());
    assert_eq!(requests(&history, Range::Minutes)[8..], [Some(3.0), Some(1.0)]);
    assert_eq!(total(&history), 88);
}

#[test]
fn what_comes_from_elsewhere_may_be_anything() {
    let read = |text: &str| {
        let sent = serde_json::from_str(text).ok()?;
        Some(History::from_sent(sent, moment(0)).map(|history| {
            let known = requests(&history, Range::Minutes);
            (known.len(), known.iter().flatten().count(), history.days().len())
        }))
    };
    let newest = START - 1;
    let level =
        |newest: u64, rest: &str| format!(r#"{{"levels":[{{"resolution":1,"newest":{newest},{rest}}}]}}"#);
    let many = vec!["1.5"; 5000].join(",");
    let day = |day: u64| format!(r#"{{"days":[{{"day":{day},"requests":1}},{{"day":{day},"requests":1}}]}}"#);
    for (text, expected) in [
        ("[]".to_owned(), Some(Ok((0, 0, 0)))),
        ("7".to_owned(), None),
        (r#"{"levels":[{"resolution":7,"newest":3}],"other":1}"#.to_owned(), Some(Ok((0, 0, 0)))),
        (level(newest, r#""series":[["requests",[1,null,-4,2]],["later",[1]]]"#), Some(Ok((4, 2, 0)))),
        (level(newest, &format!(r#""series":[["requests",[{many}]]]"#)), Some(Ok((600, 600, 0)))),
        (level(3, &format!(r#""series":[["requests",[{many}]]]"#)), Some(Ok((4, 4, 0)))),
        (level(newest, r#""filling":{"seconds":-1,"counts":[1],"gauges":[]}"#), Some(Ok((0, 0, 0)))),
        // By a clock that was wrong: the rest is true all the same.
        (level(START + 1, r#""series":[["requests",[1]]]"#), Some(Ok((0, 0, 0)))),
        (level(u64::MAX, r#""series":[["requests",[1]]]"#), Some(Ok((0, 0, 0)))),
        (day(START / 86_400), Some(Ok((0, 0, 1)))),
        (day(u64::MAX), Some(Ok((0, 0, 0)))),
        (format!(r#"{{"days":[{{"day":{}}},{{"day":3}}]}}"#, START / 86_400 + 1), Some(Ok((0, 0, 1)))),
        (format!(r#"{{"days":[{}]}}"#, vec![r#"{"day":1}"#; 3661].join(",")), Some(Err(Unusable::TooMuch))),
        (format!(r#"{{"marks":[{}]}}"#, vec![r#"[1,"x"]"#; 513].join(",")), Some(Err(Unusable::TooMuch))),
        (r#"{"levels":[{},{},{},{}]}"#.to_owned(), Some(Err(Unusable::TooMuch))),
    ] {
        assert_eq!(read(&text), expected, "{}", &text[..text.len().min(120)]);
    }
}

#[test]
fn who_begins_to_look_late_begins_with_what_there_is() {
    let (server, mut history) = (Server::new(), History::of_one_that_runs(moment(0)));
    server.answers(500);
    history.record(moment(10), server.shows());
    server.answers(3);
    history.record(moment(11), server.shows());
    assert_eq!((requests(&history, Range::Minutes), total(&history)), (vec![Some(3.0)], 3));
}

#[test]
fn days_that_are_told_twice_count_once() {
    let day = |day: u64, requests: u64| Day { day, totals: DayTotals { requests, ..DayTotals::default() } };
    let mut history = History::new(moment(0));
    history.inherit_days([day(7, 5), day(8, 5)]);
    history.reconcile_days([day(9, 1), day(8, 7), day(7, 3)]);
    let expected = [day(7, 5), day(8, 7), day(9, 1)];
    assert!(history.days().eq(&expected), "{:?}", history.days().collect::<Vec<_>>());
}

#[test]
fn nothing_grows_beyond_its_bound() {
    let mut history = History::new(moment(0));
    (0..2000).for_each(|at| history.mark(START + at, &format!("{at}\n{}", "long ".repeat(100))));
    assert_eq!(history.marks.len(), MARKS);
    assert!(history.marks.iter().all(|mark| mark.what.chars().count() <= MARK_LENGTH));
    let totals = DayTotals { requests: 1, statuses: vec![(200, 1)], ..DayTotals::default() };
    history.inherit_days((0..5000).map(|day| Day { day, totals: totals.clone() }));
    assert_eq!((history.days().len(), history.days().next().unwrap().day), (3660, 1340));
    let statuses = (100..599).map(|status| (status, 1)).collect();
    history.inherit_days([Day { day: 4000, totals: DayTotals { statuses, ..totals } }]);
    assert!(history.days().all(|day| day.totals.statuses.len() <= STATUSES_OF_A_DAY));
    let values: usize = history.span(Range::Days).series.iter().map(|(_, values)| values.len()).sum();
    assert_eq!(values, 0);
}

#[test]
fn rings_go_round() {
    let (server, mut history) = (Server::new(), History::new(moment(0)));
    for second in 1..=2000 {
        server.answers(second % 7);
        history.record(moment(second), server.shows());
    }
    let span = history.span(Range::Minutes);
    assert_eq!((span.from, span.until), (START + 1400, START + 2000));
    let expected: Vec<_> = (1401..=2000).map(|second| Some((second % 7) as f32)).collect();
    assert_eq!(series(&span, "requests"), expected);
    assert_eq!(requests(&history, Range::Hours).len(), 200);
    assert_eq!(requests(&history, Range::Days).len(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Rates times the seconds that they are of are what was counted, at every level, whoever was late.
    #[test]
    fn rates_add_up_to_what_was_counted(steps in proptest::collection::vec((1u64..40, 0u64..50), 1..60)) {
        let (server, mut history) = (Server::new(), History::new(moment(0)));
        let (mut now, mut slots) = (0, [1, 10, 300].map(|_| std::collections::BTreeMap::<u64, f64>::new()));
        for (passed, more) in steps {
            now += passed;
            server.answers(more);
            history.record(moment(now), server.shows());
            for (seconds, (resolution, _)) in slots.iter_mut().zip(LEVELS) {
                *seconds.entry((now - 1) / resolution).or_default() += passed as f64;
            }
        }
        let counted = server.0.requests.value();
        prop_assert_eq!(total(&history), counted);
        let day = history.days().next().unwrap();
        prop_assert_eq!((day.totals.responses[1], day.totals.sent_bytes), (counted, counted * 1000));
        let ranges = [Range::Minutes, Range::Hours, Range::Days];
        for ((range, seconds), (resolution, slots)) in ranges.into_iter().zip(slots).zip(LEVELS) {
            let span = history.span(range);
            let first = (span.from - START) / resolution;
            let (mut sum, mut bytes) = (0.0, 0.0);
            for (at, (rate, sent)) in series(&span, "requests").into_iter().zip(series(&span, "sent_bytes")).enumerate() {
                let known = seconds.get(&(first + at as u64));
                prop_assert_eq!(rate.is_some(), known.is_some(), "a gap is where nobody looked");
                sum += f64::from(rate.unwrap_or(0.0)) * known.unwrap_or(&0.0);
                bytes += f64::from(sent.unwrap_or(0.0)) * known.unwrap_or(&0.0);
            }
            if now <= resolution * slots as u64 {
                prop_assert!((sum - counted as f64).abs() <= counted as f64 * 1e-5, "{sum} of {counted}");
                prop_assert!((bytes - counted as f64 * 1000.0).abs() <= counted as f64 * 1e-2);
            }
        }
    }

    /// A history that was sent is the same history.
    #[test]
    fn what_is_sent_arrives(steps in proptest::collection::vec((1u64..20, 0u64..20), 1..40)) {
        let (server, mut history) = (Server::new(), History::new(moment(0)));
        let mut now = 0;
        for (passed, more) in steps {
            now += passed;
            server.answers(more);
            history.record(moment(now), server.shows());
        }
        let text = serde_json::to_string(&history.to_send()).unwrap();
        let sent = History::from_sent(serde_json::from_str(&text).unwrap(), moment(now)).unwrap();
        let mut heir = History::new(moment(now));
        heir.inherit(sent);
        for range in [Range::Minutes, Range::Hours, Range::Days] {
            prop_assert_eq!(heir.span(range), history.span(range));
        }
        prop_assert!(heir.days().eq(history.days()));
        server.answers(3);
        history.record(moment(now + 1), server.shows());
        let own = Server::new();
        own.answers(3);
        heir.record(moment(now + 1), own.shows());
        prop_assert_eq!(series(&heir.span(Range::Hours), "requests"), series(&history.span(Range::Hours), "requests"));
    }
}
