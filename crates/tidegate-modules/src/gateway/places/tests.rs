//! The queue among threads: the lock, the wakers and the destructors.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Barrier, mpsc};
use std::task::Waker;
use std::thread;
use tidegate_testkit::{block_on, wait_for};

fn places(places: usize, queue_length: usize) -> Arc<Places> {
    Places::new(PlaceLimits { places, queue_length, queue_age: None })
}

#[test]
fn many_threads_share_the_places_and_all_are_served() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 2_000;
    let queue = places(3, THREADS);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (served, given_up) = (AtomicU64::new(0), AtomicU64::new(0));
    let begin = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (queue, begin) = (&queue, &begin);
            let (inside, most, served, given_up) = (&inside, &most, &served, &given_up);
            scope.spawn(move || {
                begin.wait();
                for round in 0..ROUNDS {
                    if (number + round) % 7 == 0 {
                        // A client that goes away: polled once, then dropped, with a place or without.
                        let mut take = queue.take(1);
                        let _ = Pin::new(&mut take).poll(&mut Context::from_waker(Waker::noop()));
                        given_up.fetch_add(1, Relaxed);
                        continue;
                    }
                    let place = block_on(queue.take(1)).expect("the queue holds all threads");
                    most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                    thread::yield_now();
                    inside.fetch_sub(1, Relaxed);
                    drop(place);
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        // Meanwhile the pool grows and shrinks.
        begin.wait();
        for round in 0..500 {
            queue.set_places(1 + round % 3);
            thread::yield_now();
        }
        queue.set_places(3);
    });
    assert_eq!(served.load(Relaxed) + given_up.load(Relaxed), (THREADS * ROUNDS) as u64);
    assert!(most.load(Relaxed) <= 3, "{} were inside at once", most.load(Relaxed));
    let report = queue.report();
    assert_eq!((report.in_use, report.waiting, queue.in_use()), (0, 0, 0));
    assert_eq!(report.refused_full + report.refused_down + report.refused_too_old, 0);
}

#[test]
fn places_go_to_threads_in_the_order_of_their_arrival() {
    let queue = places(1, 64);
    let first = queue.try_take(1).expect("free");
    let (order, told) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..32u32 {
            let (queue, order) = (&queue, order.clone());
            scope.spawn(move || {
                let _place = block_on(queue.take(1)).expect("there is room");
                order.send(number).expect("the test listens");
            });
            // The next begins when this one stands in the queue.
            let is_there = || (queue.report().waiting == number as usize + 1).then_some(());
            wait_for(is_there, "one more to wait");
        }
        drop(first);
    });
    drop(order);
    assert_eq!(told.iter().collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
}

#[test]
fn says_when_the_first_begins_to_wait() {
    let queue = places(1, 8);
    let (sender, pressed) = mpsc::channel();
    queue.on_pressure(move || sender.send(()).expect("the test listens"));
    let place = queue.try_take(1).expect("free");
    assert!(pressed.try_recv().is_err());
    let mut waiting: Vec<Take> = (0..3).map(|_| queue.take(1)).collect();
    for take in &mut waiting {
        assert!(Pin::new(take).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(pressed.try_iter().count(), 1);
    drop(waiting);
    drop(place);
    assert_eq!(queue.report().abandoned, 3);
    assert!(queue.try_take(1).is_some());
}

#[test]
fn who_is_refused_is_told_when_to_come_again() {
    let queue = places(0, 1);
    let mut waiting = queue.take(1);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
    let Err(full) = block_on(queue.take(1)) else { panic!("there is room for one") };
    assert_eq!(
        (full, full.retry_after_seconds()),
        (Refused::Full { retry_after: Duration::from_secs(1) }, 1)
    );
    queue.set_down(Some(Duration::from_millis(2_500)));
    let Poll::Ready(Err(down)) = Pin::new(&mut waiting).poll(&mut cx) else { panic!("told at once") };
    assert_eq!(down.retry_after_seconds(), 3);
    assert_eq!(block_on(queue.take(1)).err(), Some(down));
    queue.set_down(None);
    queue.set_places(1);
    assert!(block_on(queue.take(1)).is_ok());
    let seen: HashSet<u64> = [queue.report().refused_full, queue.report().refused_down].into();
    assert_eq!(seen, [1, 2].into());
}
