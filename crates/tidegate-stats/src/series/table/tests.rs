//! Tests of the lines and histograms of a worker.

use super::*;
use crate::series::AnswerKey;
use crate::series::{SeriesFigures, SeriesNames};
use answers::KINDS;

/// `GET` by HTTP/1.1.
const GET: RequestKind = RequestKind::new(0, 1, false);

fn ended(status: u16, micros: u64) -> Answered {
    let elapsed = Elapsed::nanos(micros * 1000);
    Answered { kind: GET, status, received: 10, sent: 100, elapsed, has_first_byte: false }
}

fn with_routes(routes: usize) -> (SeriesTable, Vec<SeriesId>) {
    let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
    let routes = (0..routes).map(|route| format!("/{route}")).collect();
    let ids = directory.adopt(&[SeriesNames { site: "a.test".into(), routes }]);
    directory.extend(&table);
    (table, ids[0].routes.to_vec())
}

#[test]
fn a_line_is_a_line_of_the_cache() {
    assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    assert!(size_of::<Page>() <= PAGE * (64 + 56), "{} bytes a route", size_of::<Page>() / PAGE);
    assert!(size_of::<Block>() <= 1048, "{} bytes a histogram", size_of::<Block>());
}

#[test]
fn what_is_counted_is_read() {
    let (table, ids) = with_routes(200);
    for (at, id) in ids.iter().enumerate() {
        for _ in 0..at {
            table.answered(*id, &ended(200, 1000));
        }
    }
    table.answered(ids[7], &ended(404, 2000));
    table.answered(SeriesId::NONE, &ended(400, 1));
    let read: std::collections::HashMap<SeriesId, RouteFigures> = table.read().into_iter().collect();
    assert_eq!(read.len(), 200, "the first route has none");
    let seventh = &read[&ids[7]];
    assert_eq!((seventh.answers, seventh.requests()), ([0, 7, 0, 1, 0], 8));
    assert_eq!((seventh.received, seventh.sent), (80, 800));
    assert_eq!(seventh.times.total.count(), 8);
    assert_eq!(seventh.times.total, seventh.times.first_byte);
    assert!(seventh.nanos.abs_diff(9_000_000) < 500, "{}", seventh.nanos);
    assert_eq!(read[&SeriesId::NONE].answers, [0, 0, 0, 1, 0]);
    assert_eq!(table.folded(), 0);
}

#[test]
fn what_is_not_counted_has_a_number_and_no_line() {
    let (table, ids) = with_routes(3);
    let id = ids[1].uncounted();
    assert!(id != ids[1] && id != ids[2].uncounted() && id.uncounted() == id);
    assert!(!table.answered(id, &ended(200, 60_000_000)), "nor is it slow");
    table.took(id, Phase::Queue, Elapsed::nanos(5));
    table.handed_on(id);
    assert!(table.read().is_empty() && table.folded() == 0);
}

#[test]
fn what_is_slow_is_learnt_from_the_route() {
    let (table, ids) = with_routes(100);
    let is_slow = |id, millis: u64| table.answered(id, &ended(200, millis * 1000));
    assert!(!is_slow(ids[0], 499) && is_slow(ids[0], 501), "nothing is known yet");
    for id in &ids[..2] {
        (0..2_000).for_each(|_| assert!(!is_slow(*id, if *id == ids[0] { 20 } else { 1 })));
    }
    (0..4).for_each(|_| table.learn()); // all of them, some twice
    assert!(!is_slow(ids[0], 20) && is_slow(ids[0], 30), "longer than the usual 20 ms");
    assert!(!is_slow(ids[1], 9) && is_slow(ids[1], 11), "never less than 10 ms");
    assert!(!is_slow(ids[2], 300), "nobody has asked for it");
    // What the settings say counts, and is learnt again when they no longer do.
    table.set_slow_after(ids[0], Some(Duration::from_millis(5)));
    (0..4).for_each(|_| table.learn());
    assert!(!is_slow(ids[0], 4) && is_slow(ids[0], 6));
    table.set_slow_after(ids[0], None);
    assert!(!is_slow(ids[0], 400));
    (0..4).for_each(|_| table.learn());
    assert!(is_slow(ids[0], 50));
}

#[test]
fn phases_have_histograms_of_their_own() {
    let (table, ids) = with_routes(1);
    let millis = |millis: u64| Elapsed::nanos(millis * 1_000_000);
    table.took(ids[0], Phase::Queue, millis(5));
    table.took(ids[0], Phase::Application, millis(20));
    table.took(ids[0], Phase::FirstByte, millis(30));
    table.answered(ids[0], &Answered { has_first_byte: true, ..ended(200, 100_000) });
    table.answered(ids[0], &ended(200, 1_000));
    let (_, read) = table.read().remove(0);
    let Times { total, first_byte, queue, connect, application } = read.times;
    assert_eq!((total.count(), first_byte.count(), queue.count(), application.count()), (2, 2, 1, 1));
    assert!(connect.is_empty());
    let sum = |times: &Distribution| (times.sum_nanos() + 500) / 1_000_000;
    assert_eq!((sum(&total), sum(&first_byte), sum(&queue)), (101, 31, 5));
    assert!(total.quantile(1.0).as_millis() >= 100 && first_byte.quantile(1.0).as_millis() < 33);
}

#[test]
fn without_histograms_left_times_are_the_sites() {
    let (table, ids) = with_routes(BLOCKS + 10);
    table.answered(SeriesId::of(1), &ended(200, 1)); // the site has one
    for id in &ids {
        table.answered(*id, &ended(200, 50));
        table.answered(*id, &ended(200, 50));
    }
    assert_eq!(table.folded(), 22);
    let read = table.read();
    let counted: u64 = read.iter().map(|(_, figures)| figures.times.total.count()).sum();
    assert_eq!(counted, 2 * ids.len() as u64 + 1, "all of them");
    let sum: u64 = read.iter().map(|(_, figures)| figures.requests()).sum();
    assert_eq!(sum, 2 * ids.len() as u64 + 1);
}

/// Whoever has the histogram has the time, whatever takes the other ones.
#[test]
fn what_is_folded_is_in_the_sum_of_whom_it_is_counted_with() {
    let (table, ids) = with_routes(BLOCKS);
    let site = SeriesId::of(1);
    let answer =
        |id, millis: u64| table.answered(id, &Answered { has_first_byte: true, ..ended(200, millis * 1000) });
    table.answered(site, &ended(404, 1000));
    answer(site, 3);
    for id in &ids {
        table.answered(*id, &ended(200, 1000));
    }
    for id in [ids[0], ids[BLOCKS - 1]] {
        answer(id, 100);
        table.took(id, Phase::FirstByte, Elapsed::nanos(50_000_000));
    }
    let read: BTreeMap<u32, RouteFigures> =
        table.read().into_iter().map(|(id, figures)| (id.number(), figures)).collect();
    let told = |id: SeriesId| {
        let total = &read[&id.number()].times.total;
        (total.count(), (total.sum_nanos() + 500) / 1_000_000)
    };
    assert_eq!(told(ids[0]), (1, 1), "what took steps is the site's");
    assert!(!read.contains_key(&ids[BLOCKS - 1].number()) || told(ids[BLOCKS - 1]).0 == 0, "all of it is");
    let folded = table.folded();
    let at_once = folded - 4;
    assert_eq!(told(site), (2 + at_once + 2, u128::from(1 + 3 + at_once + 200)));
    // Settings that have come make room only as far as there is any.
    table.prepare(&[SeriesId::NONE; 10]);
    answer(ids[0], 100);
    assert_eq!(table.folded(), folded + 1);
}

#[test]
fn new_settings_have_histograms_for_those_that_had_none() {
    let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
    let names = |count: usize| SeriesNames {
        site: "a.test".into(),
        routes: (0..count).map(|route| format!("/{route}")).collect(),
    };
    let ids = directory.adopt(&[names(1)])[0].routes.to_vec();
    directory.extend(&table);
    table.store().used = SHELF; // as if others had them
    table.answered(ids[0], &ended(200, 1000));
    assert_eq!(table.folded(), 1);
    directory.adopt(&[names(100)]);
    directory.extend(&table);
    table.answered(ids[0], &ended(200, 2000));
    let read: BTreeMap<u32, RouteFigures> =
        table.read().into_iter().map(|(id, figures)| (id.number(), figures)).collect();
    let total = &read[&ids[0].number()].times.total;
    assert_eq!((table.folded(), total.count(), (total.sum_nanos() + 500) / 1_000_000), (1, 1, 2));
}

#[test]
fn what_is_not_counted_has_a_name() {
    let (directory, table) = (Arc::<SeriesDirectory>::default(), SeriesTable::default());
    let names = SeriesNames { site: "a.test".into(), routes: vec!["/x".into()] };
    let id = directory.adopt(&[names])[0].routes[0].uncounted();
    directory.name_for(&table);
    table.answered(id, &ended(200, 1000));
    let name = table.name(id).map(|(site, route)| (site.to_string(), route.map(|route| route.to_string())));
    assert_eq!(name, Some(("a.test".to_owned(), Some("/x".to_owned()))));
    assert!(table.read().iter().all(|(of, _)| *of != id && *of != id.counted()));
}

#[test]
fn a_bucket_that_wraps_loses_nothing() {
    let (table, ids) = with_routes(1);
    table.answered(ids[0], &ended(200, 1000));
    let (_, rest) = table.place(ids[0]).unwrap();
    let (_, block) = table.answers(rest).next().unwrap();
    let cell = block.buckets.iter().find(|cell| cell.load(Relaxed) == 1).unwrap();
    cell.store(u32::MAX, Relaxed);
    table.answered(ids[0], &ended(200, 1000));
    table.answered(ids[0], &ended(200, 1000));
    assert_eq!(table.read()[0].1.times.total.count(), (1 << 32) + 1);
}

#[test]
fn failures_are_counted_for_the_route_that_had_them() {
    let (directory, table) = (Arc::new(SeriesDirectory::default()), SeriesTable::default());
    let names = SeriesNames { site: "a".into(), routes: vec!["/x".into(), "/y".into()] };
    let ids = directory.adopt(&[names]);
    table.prepare(&directory.sites());
    let request = Answered {
        kind: GET,
        status: 502,
        received: 1,
        sent: 1,
        elapsed: Elapsed::nanos(5),
        has_first_byte: false,
    };
    for id in ids[0].routes.iter().copied() {
        table.answered(id, &request);
    }
    table.failed(ids[0].routes[1], GatewayFailure::Down);
    table.failed(ids[0].routes[1], GatewayFailure::Down);
    table.failed(ids[0].routes[1].uncounted(), GatewayFailure::Down);
    let mut figures = SeriesFigures::of(&directory, [&table]);
    figures.merge(&SeriesFigures::of(&directory, [&table]));
    let site = figures.site("a").unwrap();
    let failed: Vec<u64> = site.routes.iter().map(|(_, route)| route.failed(GatewayFailure::Down)).collect();
    assert_eq!(failed, [0, 4]);
    assert_eq!(site.total().failed(GatewayFailure::Silent), 0);
}

/// What a route has been asked and has answered, by its kinds: their number, and the requests of each.
fn kinds(table: &SeriesTable, id: SeriesId) -> BTreeMap<AnswerKey, u64> {
    let read = table.read().into_iter().find(|(known, _)| *known == id);
    let kinds = read.map(|(_, figures)| figures.by_kind).unwrap_or_default();
    kinds.into_iter().map(|(key, times)| (key, times.count())).collect()
}

#[test]
fn answers_are_told_by_what_was_asked() {
    let (table, ids) = with_routes(2);
    let post = RequestKind::new(2, 2, true);
    for (kind, status, has_first_byte) in
        [(GET, 200, false), (GET, 304, false), (GET, 200, true), (post, 200, false), (GET, 200, false)]
    {
        table.answered(ids[0], &Answered { kind, has_first_byte, ..ended(status, 1000) });
    }
    table.answered(ids[1], &ended(200, 1000));
    let key = |kind, status| AnswerKey::new(kind, status);
    let expected = [(key(GET, 200), 3), (key(GET, 304), 1), (key(post, 200), 1)];
    assert_eq!(kinds(&table, ids[0]), BTreeMap::from(expected));
    assert_eq!(kinds(&table, ids[1]), BTreeMap::from([(key(GET, 200), 1)]));
    let (_, figures) = table.read().into_iter().find(|(id, _)| *id == ids[0]).unwrap();
    let sums = figures.by_kind.iter().map(|(_, times)| times.sum_nanos()).sum::<u128>();
    assert!((figures.times.total.count(), figures.times.first_byte.count()) == (5, 4));
    assert!(sums.abs_diff(figures.times.total.sum_nanos()) < 10);
}

/// Whatever clients send, and however many they are.
#[test]
fn kinds_of_a_route_are_bounded_and_none_is_lost() {
    let (table, ids) = with_routes(1);
    let mut asked = 0;
    for status in 100..600 {
        for (method, version) in (0..=10).flat_map(|method| (0..=3).map(move |version| (method, version))) {
            let kind = RequestKind::new(method, version, status % 2 == 0);
            table.answered(ids[0], &Answered { kind, ..ended(status, 5) });
            asked += 1;
        }
    }
    let told = kinds(&table, ids[0]);
    assert!(told.len() <= KINDS + 2, "{}", told.len());
    assert_eq!(told.values().sum::<u64>(), asked);
    let rest = AnswerKey::new(GET, 200).rest();
    assert!(told[&rest] > asked / 3 && told[&rest] < asked, "{told:?}");
    assert_eq!(table.folded(), 0);
    // Other processes have seen others.
    let mut figures = table.read().remove(0).1;
    for status in 0..1000 {
        figures.add_kind(AnswerKey::new(GET, status), &figures.times.total.clone());
    }
    assert!(figures.by_kind.len() <= 66, "{}", figures.by_kind.len());
}

/// A kind gives its name up before a time is lost, and keeps the new one.
#[test]
fn without_histograms_left_kinds_are_told_together() {
    let (table, ids) = with_routes(BLOCKS);
    for id in &ids {
        table.answered(*id, &ended(200, 50));
    }
    for (status, is_https) in [(404, false), (404, true), (200, false), (500, true), (500, false)] {
        let kind = GET.with_https(is_https);
        table.answered(ids[0], &Answered { kind, ..ended(status, 50) });
    }
    let rest = AnswerKey::new(GET, 0).rest();
    assert_eq!((kinds(&table, ids[0]), table.folded()), (BTreeMap::from([(rest, 6)]), 0));
}
