//! The queues against a plain simulation of the paper's algorithm, and against LRU.

use super::*;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Objects of a trace.
const OBJECTS: usize = 10_000;
const REQUESTS: usize = 500_000;

struct Object {
    number: u32,
    uses: Uses,
    is_large: bool,
}

impl Queued for Arc<Object> {
    fn hash(&self) -> u64 {
        xxh3_64(&self.number.to_le_bytes())
    }

    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn is_large(&self) -> bool {
        self.is_large
    }
}

/// What is asked for in turn.
fn zipf(alpha: f64) -> Vec<u32> {
    let mut sums = Vec::with_capacity(OBJECTS);
    let mut sum = 0.0;
    for rank in 1..=OBJECTS {
        sum += (rank as f64).powf(-alpha);
        sums.push(sum);
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut ask = || {
        let drawn = random.f64() * sum;
        sums.partition_point(|&upto| upto < drawn) as u32
    };
    (0..REQUESTS).map(|_| ask()).collect()
}

/// A cache whose objects all have one byte.
trait Cache {
    /// Whether it was there; it is afterwards.
    fn ask(&mut self, number: u32) -> bool;
}

struct Ours {
    queues: S3Fifo<Arc<Object>>,
    index: HashMap<u32, Arc<Object>>,
    capacity: u64,
    /// One in so many is large; 0: none is.
    large: u32,
}

impl Ours {
    fn new(capacity: u64) -> Ours {
        Ours { queues: S3Fifo::new(capacity), index: HashMap::new(), capacity, large: 0 }
    }
}

impl Cache for Ours {
    fn ask(&mut self, number: u32) -> bool {
        if let Some(object) = self.index.get(&number) {
            object.uses.touch();
            return true;
        }
        while self.queues.bytes() + 1 > self.capacity {
            let gone = self.queues.evict(|_| true).expect("it is full");
            self.index.remove(&gone.number);
        }
        let is_large = number.checked_rem(self.large) == Some(0);
        let object = Arc::new(Object { number, uses: Uses::new(), is_large });
        self.queues.insert(object.clone(), 1);
        self.index.insert(number, object);
        false
    }
}

/// Algorithm 1 of the paper, word by word, but for the length of the ghost queue: that of libCacheSim.
#[derive(Default)]
struct Paper {
    capacity: usize,
    uses: HashMap<u32, u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<u32>,
    in_ghost: HashSet<u32>,
}

impl Paper {
    fn evict(&mut self) {
        if self.small.len() > self.capacity / 10 || self.main.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(number) = self.small.pop_back() {
            if self.uses[&number] > 1 {
                self.uses.insert(number, 0);
                self.main.push_front(number);
                continue;
            }
            self.uses.remove(&number);
            while self.ghost.len() >= self.main.len().max(self.capacity - self.capacity / 10) {
                let oldest = self.ghost.pop_back().expect("it is not empty");
                self.in_ghost.remove(&oldest);
            }
            self.ghost.push_front(number);
            self.in_ghost.insert(number);
            return;
        }
        self.evict_main();
    }

    fn evict_main(&mut self) {
        while let Some(number) = self.main.pop_back() {
            let uses = self.uses[&number];
            if uses == 0 {
                self.uses.remove(&number);
                return;
            }
            self.uses.insert(number, uses - 1);
            self.main.push_front(number);
        }
    }
}

impl Cache for Paper {
    fn ask(&mut self, number: u32) -> bool {
        if let Some(uses) = self.uses.get_mut(&number) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        let queue = if self.in_ghost.remove(&number) {
            self.ghost.retain(|known| *known != number);
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push_front(number);
        self.uses.insert(number, 0);
        false
    }
}

/// The least recently used goes.
#[derive(Default)]
struct Lru {
    capacity: usize,
    last_used: HashMap<u32, usize>,
    order: VecDeque<(u32, usize)>,
    now: usize,
}

impl Cache for Lru {
    fn ask(&mut self, number: u32) -> bool {
        self.now += 1;
        let was_there = self.last_used.insert(number, self.now).is_some();
        self.order.push_back((number, self.now));
        while self.last_used.len() > self.capacity {
            let (number, at) = self.order.pop_front().expect("all that is there is in order");
            if self.last_used.get(&number) == Some(&at) {
                self.last_used.remove(&number);
            }
        }
        was_there
    }
}

/// Hits in a hundred requests.
fn hits(cache: &mut impl Cache, trace: &[u32]) -> f64 {
    let hits = trace.iter().filter(|number| cache.ask(**number)).count();
    100.0 * hits as f64 / trace.len() as f64
}

#[test]
fn beats_lru_and_does_as_the_paper_does() {
    let trace = zipf(1.0);
    let capacity = OBJECTS / 100;
    let ours = hits(&mut Ours::new(capacity as u64), &trace);
    let paper = hits(&mut Paper { capacity, ..Paper::default() }, &trace);
    let lru = hits(&mut Lru { capacity, ..Lru::default() }, &trace);
    println!("S3-FIFO {ours:.1} %, the paper's {paper:.1} %, LRU {lru:.1} %");
    assert!(ours >= 50.3, "{ours}");
    assert!((ours - paper).abs() <= 0.5, "{ours} {paper}");
    assert!(ours > lru + 8.0, "{ours} {lru}");
}

#[test]
fn a_scan_costs_little() {
    let trace = zipf(1.0);
    let capacity = (OBJECTS / 100) as u64;
    let quiet = hits(&mut Ours::new(capacity), &trace);
    let mut cache = Ours::new(capacity);
    let mut hits = 0;
    for (at, number) in trace.iter().enumerate() {
        hits += usize::from(cache.ask(*number));
        // Every fifth request is for what nobody asks for again.
        if at % 4 == 3 {
            cache.ask((OBJECTS + at) as u32);
        }
    }
    let scanned = 100.0 * hits as f64 / trace.len() as f64;
    println!("{quiet:.1} %, with a scan {scanned:.1} %");
    assert!(quiet - scanned <= 2.0, "{quiet} {scanned}");
}

fn object(number: u32) -> Arc<Object> {
    Arc::new(Object { number, uses: Uses::new(), is_large: false })
}

#[test]
fn what_is_large_goes_in_the_same_order_as_all() {
    let trace = zipf(1.0);
    let capacity = (OBJECTS / 100) as u64;
    let mut alike = Ours::new(capacity);
    let mut unlike = Ours { large: 3, ..Ours::new(capacity) };
    unlike.queues.stamp = u32::MAX - 1000;
    for number in &trace[..100_000] {
        assert_eq!(alike.ask(*number), unlike.ask(*number), "{number}");
    }
}

#[test]
fn what_is_large_goes_for_what_is_large() {
    let mut queues = S3Fifo::new(100);
    let large = |number| Arc::new(Object { number, uses: Uses::new(), is_large: number % 5 == 0 });
    let places: Vec<Place> = (0..20).map(|number| queues.insert(large(number), 5)).collect();
    queues.iter().filter(|object| object.number == 5).for_each(|object| {
        (0..2).for_each(|_| object.uses.touch());
    });
    queues.remove(places[0]);
    assert_eq!(queues.evict_large(|object| object.number != 10).map(|gone| gone.number), Some(15));
    assert_eq!((queues.bytes(), queues.len()), (90, 18));
    assert!(queues.evict_large(|_| false).is_none());
    let mut gone: Vec<u32> =
        std::iter::from_fn(|| queues.evict_large(|_| true)).map(|gone| gone.number).collect();
    gone.sort_unstable();
    assert_eq!(gone, [5, 10]);
    assert_eq!(queues.evict(|_| true).map(|gone| gone.number), Some(1), "nothing else has moved");
}

#[test]
fn what_is_removed_or_may_not_go_is_no_victim() {
    let mut queues = S3Fifo::new(100);
    let places: Vec<Place> = (0..10).map(|number| queues.insert(object(number), 10)).collect();
    assert_eq!((queues.bytes(), queues.len()), (100, 10));
    assert_eq!(queues.remove(places[0]).map(|gone| gone.number), Some(0));
    assert!(queues.remove(places[0]).is_none(), "once");
    queues.resize(places[1], 3);
    assert_eq!(queues.bytes(), 83);
    assert_eq!(queues.evict(|object| object.number != 1).map(|gone| gone.number), Some(2));
    assert!(queues.evict(|_| false).is_none());
    assert_eq!(queues.len(), 8);
    assert_eq!(queues.iter().map(|object| object.number).sum::<u32>(), 45 - 2);
    let gone: Vec<u32> = std::iter::from_fn(|| queues.evict(|_| true)).map(|gone| gone.number).collect();
    assert_eq!(gone.len(), 8);
    assert_eq!((queues.bytes(), queues.len(), queues.is_empty()), (0, 0, true));
}

#[test]
fn memory_is_told_before_it_is_taken() {
    let mut queues = S3Fifo::new(1000);
    for number in 0..5000 {
        let most = queues.memory() + queues.growth();
        queues.insert(object(number), 1);
        assert!(queues.memory() <= most);
        if queues.bytes() > 1000 {
            let before = queues.memory();
            let gone = queues.evict(|_| true);
            assert!(gone.is_some() && queues.memory() == before);
        }
    }
    assert!(queues.memory() < 1000 * 64, "{}", queues.memory());
}

#[test]
fn uses_saturate() {
    let uses = Uses::new();
    (0..5).for_each(|_| uses.touch());
    assert_eq!(uses.get(), 3);
}

#[test]
fn what_comes_back_is_counted() {
    let mut queues = S3Fifo::new(100);
    for number in 0..10 {
        queues.insert(object(number), 10);
    }
    // Half of them move on, so that what goes is remembered for a while.
    for object in queues.iter().filter(|object| object.number < 5) {
        (0..2).for_each(|_| object.uses.touch());
    }
    let gone: Vec<u32> = (0..3).filter_map(|_| queues.evict(|_| true)).map(|object| object.number).collect();
    assert_eq!(gone, [5, 6, 7]);
    queues.insert(object(50), 10);
    assert_eq!(queues.returned(), Returned::default(), "it was never here");
    queues.insert(object(6), 30);
    assert_eq!(queues.returned(), Returned { objects: 1, bytes: 30 });
}

/// Of what is asked for in turn, and is half as much again as there is room for, everything would be there with more room. The memory
/// for knowing so does not grow with what is asked for.
#[test]
fn what_comes_round_is_known_to_come_back() {
    let mut ours = Ours::new(1000);
    let mut memory = 0;
    for round in 0..10 {
        let hits = (0..1500).filter(|number| ours.ask(*number)).count();
        assert!(hits < 1500);
        if round == 1 {
            memory = ours.queues.memory();
        }
    }
    let returned = ours.queues.returned().objects;
    assert!(returned > 1000, "{returned}");
    assert_eq!(ours.queues.memory(), memory);
    let mut ours = Ours::new(1000);
    assert_eq!((0..100_000).filter(|number| ours.ask(*number)).count(), 0);
    assert_eq!(ours.queues.returned().objects, 0);
}
