//! Many threads at once: nothing is lost, nothing waits for ever, the limit holds at every moment.

use crate::support::*;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use tidegate_cache::{Entry, Fill, Found, Full, Join, Landing, Lead, Purge, Reader, Store};
use tidegate_http::cache::Reason;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn run<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

async fn fill_with(mut fill: Fill, content: &[u8], step: usize) -> bool {
    for part in content.chunks(step) {
        let mut left = part;
        while !left.is_empty() {
            poll_fn(|cx| fill.poll_room(cx)).await;
            match fill.append(left) {
                Ok(count) => left = &left[count..],
                Err(Full::Unread) => return false,
                Err(Full::Length) => panic!("never more than announced"),
            }
        }
    }
    fill.complete()
}

async fn read_to_end(mut reader: Reader, step: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; step];
    loop {
        match poll_fn(|cx| reader.poll_read(cx, &mut buffer)).await {
            Ok(0) => return Some(all),
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(_) => return None,
        }
    }
}

#[test]
fn one_fetches_and_all_get_it() {
    const THREADS: usize = 8;
    for round in 0..30_u64 {
        let store = store(4 * MIB);
        let content = bytes(round, 300_000);
        let fetched = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (store, content, fetched) = (&store, &content, &fetched);
                scope.spawn(move || {
                    let got = run(ask(store, content, fetched, 1000 * (number + 1)));
                    assert!(got == *content, "{number}");
                });
            }
        });
        assert_eq!(fetched.load(SeqCst), 1, "round {round}");
    }
}

/// What a handler does, with the fill on a thread of its own.
async fn ask(store: &Arc<Store>, content: &[u8], fetched: &AtomicUsize, step: usize) -> Vec<u8> {
    loop {
        let entry = match store.look_up(b"/a", NOW) {
            Found::Stored(entries) => entries[0].clone(),
            _ => match store.join(b"/a", NOBODY) {
                Join::Lead(lead) => begin(lead, content, fetched),
                Join::Follow(flight) => match flight.await {
                    Landing::Stored(entry) => entry,
                    other => panic!("{other:?}"),
                },
            },
        };
        if let Some(reader) = entry.content().reader(0..u64::MAX)
            && let Some(got) = read_to_end(reader, step).await
        {
            return got;
        }
    }
}

fn begin(lead: Lead, content: &[u8], fetched: &AtomicUsize) -> Arc<Entry> {
    if let Some(entry) = lead.stored().first().cloned() {
        lead.serve(&entry);
        return entry;
    }
    fetched.fetch_add(1, SeqCst);
    let (entry, fill) = lead.store(head("/a"), None, NOW).unwrap();
    let content = content.to_vec();
    thread::spawn(move || run(fill_with(fill, &content, 7_000)));
    entry
}

#[test]
fn what_is_passed_on_reaches_all_readers() {
    for round in 0..10_u64 {
        let store = store(250 * KIB);
        let content = bytes(round, 3_000_000);
        let (entry, fill) = lead(&store, b"/a").store(head("/a"), None, NOW).unwrap();
        let readers: Vec<Reader> = (0..4).map(|_| entry.content().reader(0..u64::MAX).unwrap()).collect();
        drop(entry);
        thread::scope(|scope| {
            for (number, reader) in readers.into_iter().enumerate() {
                let content = &content;
                scope.spawn(move || {
                    let got = run(read_to_end(reader, 3_000 + 20_000 * number));
                    assert!(got.as_ref() == Some(content), "{number}");
                });
            }
            assert!(!run(fill_with(fill, &content, 50_000)));
        });
        assert!(store.figures().bytes < 20 * KIB, "{}", store.figures().bytes);
    }
}

/// Everything at once, with too little memory: keys, ends and purges by chance.
#[test]
fn a_crowd_stays_within_the_limit() {
    const MEMORY: u64 = 500 * KIB;
    let store = store(MEMORY);
    let contents: Vec<Vec<u8>> =
        (0..12).map(|number| bytes(number, (number as usize * 37_000) % 200_000)).collect();
    let is_over = AtomicBool::new(false);
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                most.fetch_max(store.figures().bytes, SeqCst);
                store.sweep(20, NOW);
                thread::yield_now();
            }
        });
        let crowd: Vec<_> = (0..6)
            .map(|seed| {
                let (store, contents) = (&store, &contents);
                let mut random = fastrand::Rng::with_seed(seed);
                scope.spawn(move || (0..400).for_each(|_| turn(store, contents, &mut random)))
            })
            .collect();
        let panicked = crowd.into_iter().filter_map(|thread| thread.join().err()).count();
        is_over.store(true, SeqCst);
        watch.join().expect("no thread panics");
        assert_eq!(panicked, 0);
    });
    assert!(most.load(SeqCst) > MEMORY / 2 && most.load(SeqCst) <= MEMORY, "{}", most.load(SeqCst));
    let figures = store.figures();
    assert_eq!(figures.filling, 0);
    assert!(figures.evicted > 0 && figures.collapsed > 0 && figures.broken > 0, "{figures:?}");
    store.purge(&Purge::All, false, NOW);
    store.sweep(usize::MAX, NOW);
    assert_eq!(store.figures().entries, 0);
    store.sweep(usize::MAX, NOW);
    assert!(store.figures().bytes < 24 * KIB, "{}: tables alone", store.figures().bytes);
}

fn turn(store: &Arc<Store>, contents: &[Vec<u8>], random: &mut fastrand::Rng) {
    let number = random.usize(..contents.len());
    let target = format!("/{number}");
    let content = &contents[number];
    let entry = match (store.look_up(target.as_bytes(), NOW), random.u8(..20)) {
        (_, 0) => {
            store.remove(target.as_bytes());
            return;
        }
        (_, 1) => {
            store.purge(&Purge::Prefix { host: "example.org", prefix: &target }, random.bool(), NOW);
            return;
        }
        (Found::Stored(entries), way) if way > 4 => entries[0].clone(),
        _ => match store.join(target.as_bytes(), NOBODY) {
            Join::Lead(lead) => return fetch(lead, &target, content, random),
            Join::Follow(flight) => match run(flight) {
                Landing::Stored(entry) => entry,
                Landing::Pass | Landing::Failed(_) => return,
            },
        },
    };
    entry.touch();
    let (start, end) = (random.u64(..1000), random.u64(1000..300_000));
    let Some(reader) = entry.content().reader(start..end) else { return };
    drop(entry);
    if random.u8(..10) == 0 {
        return;
    }
    if let Some(got) = run(read_to_end(reader, random.usize(1000..100_000))) {
        let len = content.len() as u64;
        assert!(got == content[start.min(len) as usize..end.min(len) as usize], "the right bytes");
    }
}

fn fetch(lead: Lead, target: &str, content: &[u8], random: &mut fastrand::Rng) {
    // Others may ask meanwhile.
    thread::yield_now();
    match (random.u8(..10), lead.stored().first().cloned()) {
        (0, _) => lead.pass(NOW, 1, Reason::Private),
        (1, _) => lead.fail(502),
        (2, _) => drop(lead),
        (3, Some(entry)) => lead.serve(&entry),
        (4, Some(entry)) => drop(lead.refresh(&entry, head(target), NOW)),
        (way, _) => {
            // What ends early breaks off since it is shorter than announced.
            let announced = (way == 5 || random.bool()).then_some(content.len() as u64);
            let Ok((entry, fill)) = lead.store(head(target), announced, NOW) else { return };
            drop(entry);
            let end = if way == 5 { content.len() / 2 } else { content.len() };
            let step = random.usize(1000..100_000);
            run(fill_with(fill, &content[..end], step));
        }
    }
}
