//! Exemplars: of each bucket of a route's times the last sampled request, by the ids of its trace.
//!
//! A worker remembers them in tables of a fixed size, which are made where settings sample requests at all. A route and bucket
//! have one place in each, which another one may take. See the OpenMetrics specification, section "Exemplars".

use super::SeriesId;
use super::answer::AnswerKey;
use crate::histogram::Distribution;
use crate::prometheus::BOUNDS;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Exemplars that a worker remembers.
const PLACES: usize = 1024;
/// Places that a reader takes under one lock.
const AT_ONCE: usize = 16;
/// Buckets that are exposed, the one without a bound among them.
const BUCKETS: u32 = (*BOUNDS.end() - *BOUNDS.start() + 2) as u32;

/// A sampled request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledRequest<'a> {
    /// 32 hexadecimal digits.
    pub trace_id: &'a str,
    /// Sixteen hexadecimal digits.
    pub span_id: &'a str,
    /// When it ended: milliseconds since 1970.
    pub at: u64,
    /// How long it took.
    pub nanos: u64,
    /// What it was, and what it was answered with.
    pub key: AnswerKey,
}

/// The last sampled request of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemplar {
    /// Among those that are exposed, from 0.
    pub(crate) bucket: u32,
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// Sixteen hexadecimal digits.
    pub span_id: String,
    /// When it ended: milliseconds since 1970.
    pub at: u64,
    /// How long it took.
    pub nanos: u64,
    /// What it was, and what it was answered with.
    #[serde(default)]
    pub key: AnswerKey,
}

impl Exemplar {
    /// The bound of its bucket as the reports write it.
    pub(crate) fn bound(&self) -> String {
        match BOUNDS.start() + self.bucket as i32 {
            power if BOUNDS.contains(&power) => Distribution::bound(power).to_string(),
            _ => "+Inf".to_owned(),
        }
    }

    /// How long it took.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

/// Of each bucket the newer one.
pub(super) fn merge(mine: &mut Vec<Exemplar>, theirs: &[Exemplar]) {
    for exemplar in theirs.iter().filter(|exemplar| exemplar.bucket < BUCKETS) {
        match mine.iter_mut().find(|known| known.bucket == exemplar.bucket) {
            Some(known) if known.at < exemplar.at => *known = exemplar.clone(),
            Some(_) => {}
            None => mine.push(exemplar.clone()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Place {
    series: u32,
    bucket: u32,
    trace_id: [u8; 32],
    span_id: [u8; 16],
    at: u64,
    nanos: u64,
    key: AnswerKey,
}

type Table = Mutex<Vec<Option<Place>>>;

/// What a worker remembers. Empty until settings sample requests.
///
/// A worker waits for nobody, and a reader may be put off at any moment. So there are two tables: a reader holds one of them at a
/// time, and the worker takes the other. In the one that
/// it does not take, what is older goes. One is left out only where a reader is put off twice just then.
#[derive(Debug, Default)]
pub(super) struct Exemplars([Table; 2]);

impl Exemplars {
    /// Makes room for some.
    pub(super) fn prepare(&self) {
        for table in &self.0 {
            table.lock().unwrap_or_else(PoisonError::into_inner).resize(PLACES, None);
        }
    }

    /// Remembers a request.
    pub(super) fn remember(&self, id: SeriesId, request: &SampledRequest<'_>) {
        let Some((taken, mut places)) = self.0.iter().find_map(|table| Some((table, free(table)?))) else {
            return;
        };
        let (Ok(trace_id), Ok(span_id)) =
            (request.trace_id.as_bytes().try_into(), request.span_id.as_bytes().try_into())
        else {
            return;
        };
        let seconds = request.nanos as f64 / 1e9;
        let bucket = BOUNDS.take_while(|power| Distribution::bound(*power) < seconds).count() as u32;
        let (series, &SampledRequest { at, nanos, key, .. }) = (id.number(), request);
        let place = (series as usize).wrapping_mul(BUCKETS as usize).wrapping_add(bucket as usize) % PLACES;
        if let Some(place) = places.get_mut(place) {
            *place = Some(Place { series, bucket, trace_id, span_id, at, nanos, key });
        }
        drop(places);
        for table in self.0.iter().filter(|table| !std::ptr::eq(*table, taken)) {
            if let Some(older) = free(table).as_deref_mut().and_then(|places| places.get_mut(place)) {
                *older = None;
            }
        }
    }

    /// All of them; of a route and bucket there may be two.
    pub(super) fn read(&self) -> Vec<(SeriesId, Exemplar)> {
        let mut places = Vec::new();
        for table in &self.0 {
            let mut at = 0;
            loop {
                let all = table.lock().unwrap_or_else(PoisonError::into_inner);
                let part = all.get(at..).unwrap_or_default();
                if part.is_empty() {
                    break;
                }
                let part = part.get(..AT_ONCE).unwrap_or(part);
                places.extend_from_slice(part);
                at += part.len();
            }
        }
        let digits = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let told = |Place { series, bucket, trace_id, span_id, at, nanos, key }: Place| {
            let (trace_id, span_id) = (digits(&trace_id), digits(&span_id));
            (SeriesId::of(series), Exemplar { bucket, trace_id, span_id, at, nanos, key })
        };
        places.into_iter().flatten().map(told).collect()
    }
}

/// A table that nobody holds.
fn free(table: &Table) -> Option<MutexGuard<'_, Vec<Option<Place>>>> {
    match table.try_lock() {
        Ok(places) => Some(places),
        Err(TryLockError::Poisoned(places)) => Some(places.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn request(nanos: u64, at: u64) -> SampledRequest<'static> {
        SampledRequest { trace_id: TRACE, span_id: SPAN, at, nanos, key: AnswerKey::default() }
    }

    /// A reader may be put off while it holds a table; nothing of what ends in that time is left out.
    #[test]
    fn a_reader_that_is_put_off_costs_nothing() {
        let exemplars = Exemplars::default();
        exemplars.prepare();
        for (number, held) in (1..).zip(&exemplars.0) {
            let held = held.lock().unwrap();
            exemplars.remember(SeriesId::of(3), &request(1, number));
            drop(held);
            let mut told = Vec::new();
            exemplars.read().into_iter().for_each(|(_, exemplar)| merge(&mut told, &[exemplar]));
            assert_eq!(told.iter().map(|exemplar| exemplar.at).collect::<Vec<_>>(), [number]);
        }
        assert_eq!(exemplars.read().len(), 2, "the table that was held has an older one");
        exemplars.remember(SeriesId::of(3), &request(1, 3));
        let told: Vec<_> = exemplars.read().into_iter().map(|(_, exemplar)| exemplar.at).collect();
        assert_eq!(told, [3], "which would come to light again");
    }

    #[test]
    fn the_last_of_each_bucket_is_kept() {
        let exemplars = Exemplars::default();
        exemplars.remember(SeriesId::of(3), &request(1, 1));
        assert!(exemplars.read().is_empty(), "nobody samples");
        exemplars.prepare();
        exemplars.remember(SeriesId::of(3), &SampledRequest { trace_id: "no id", ..request(1, 1) });
        assert!(exemplars.read().is_empty());
        for (nanos, at) in
            [(1_000_000_000, 1), (1_000_000_001, 2), (900_000_000, 3), (64_000_000_001, 4), (1, 5)]
        {
            exemplars.remember(SeriesId::of(3), &request(nanos, at));
        }
        let told = exemplars.read();
        let mut told: Vec<(String, u64)> = told.iter().map(|(_, one)| (one.bound(), one.at)).collect();
        told.sort();
        let of = |bound: &str, at| (bound.to_owned(), at);
        assert_eq!(told, [of("+Inf", 4), of("0.00006103515625", 5), of("1", 3), of("2", 2)]);
    }

    #[test]
    fn routes_share_a_bounded_table() {
        let exemplars = Exemplars::default();
        exemplars.prepare();
        (0..100_000).for_each(|number| exemplars.remember(SeriesId::of(number), &request(1, 1)));
        assert!(exemplars.read().len() <= PLACES);
    }

    #[test]
    fn the_newer_one_stays() {
        let key = AnswerKey::default();
        let of =
            |bucket, at| Exemplar { bucket, trace_id: TRACE.into(), span_id: SPAN.into(), at, nanos: 1, key };
        let mut mine = vec![of(1, 5), of(2, 5)];
        merge(&mut mine, &[of(1, 4), of(2, 6), of(3, 1), of(BUCKETS, 9)]);
        assert_eq!(mine, [of(1, 5), of(2, 6), of(3, 1)]);
    }
}
