//! S3-FIFO by bytes: which object goes when room is wanted (Yang and others, *FIFO queues are all you need for cache eviction*,
//! SOSP'23).
//!
//! What is new enters a small queue of a tenth of the bytes. What has been used more than once when it comes to the end of it
//! moves to the main queue; the rest is evicted and leaves a mark in the ghost queue, by which it enters the main
//! queue if it comes back soon: before as many others were evicted as the main queue has room for. (libCacheSim, by the paper's authors,
//! takes nine tenths of the capacity as well. As many as the main queue holds would be none at first, and none for good where
//! everything is asked for in turn.) At the end of the main queue, what has been used goes round once more. A use only
//! counts up an atomic that saturates at 3: it takes no lock and moves nothing, so a hit costs one load nearly always.
//!
//! What is large can be asked to go for what is large ([`S3Fifo::evict_large`]): each queue is two lists, and stamps say in which of them
//! its last object is. So asking for a large one passes over nothing small, and the order of all together is as if they were one.
//!
//! Used for the memory tier and for each disk. It knows no time, no lock and no budget: the caller guards it, says how much is to
//! stay, and asks for one victim after the other.

mod places;

use crate::ghost::Ghost;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The most that uses count to.
const MOST_USES: u8 = 3;
/// With more uses than this what leaves the small queue has earned the main queue.
const EARNED: u8 = 1;
/// The small queue's part of the capacity.
const SMALL_PART: u64 = 10;
/// So many objects that may not go are passed over for one victim.
const MOST_REFUSED: usize = 1024;
/// Nodes that are allocated at once.
const PAGE: usize = 128;
/// No node.
const NONE: u32 = u32::MAX;

/// How often an object was used of late: 0 to 3.
#[derive(Debug, Default)]
pub struct Uses(AtomicU8);

impl Uses {
    /// Not used yet.
    pub const fn new() -> Uses {
        Uses(AtomicU8::new(0))
    }

    /// It is used. Uses at once on two threads may count as one.
    #[inline]
    pub fn touch(&self) {
        let uses = self.0.load(Relaxed);
        if uses < MOST_USES {
            self.0.store(uses + 1, Relaxed);
        }
    }

    /// How often, at most 3.
    #[inline]
    pub fn get(&self) -> u8 {
        self.0.load(Relaxed)
    }

    /// It counts as used by so much less.
    pub(crate) fn fade(&self, uses: u8) {
        self.set(self.get().saturating_sub(uses));
    }

    fn set(&self, uses: u8) {
        self.0.store(uses, Relaxed);
    }
}

/// What can be queued.
pub trait Queued {
    /// Tells it from others, also when it comes back; the upper 32 bits have to be well mixed.
    fn hash(&self) -> u64;
    /// How often it was used.
    fn uses(&self) -> &Uses;
    /// Whether it may be asked to go for what is large. As of when it is queued or resized.
    fn is_large(&self) -> bool {
        false
    }
}

/// Where an object is in the queues, for [`S3Fifo::remove`]. Valid until it is evicted or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// As a number, to keep it in an atomic; [`Place::of`] makes a place of it again.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The place with this number; `u32::MAX` is none.
    pub fn of(number: u32) -> Option<Place> {
        (number != NONE).then_some(Place(number))
    }

    /// The number that is no place.
    pub const NONE: u32 = NONE;
}

/// The queues.
pub struct S3Fifo<T> {
    nodes: Nodes<T>,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    capacity: u64,
    /// Of what is queued next.
    stamp: u32,
    returned: Returned,
}

/// Objects that came back soon after they had gone: with more room they would have been there still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returned {
    /// How many.
    pub objects: u64,
    /// Their bytes, each time that they came back.
    pub bytes: u64,
}

impl<T: Queued> S3Fifo<T> {
    /// Empty queues for `capacity` bytes, by which the share of the small queue goes. Holds no memory yet.
    pub fn new(capacity: u64) -> S3Fifo<T> {
        S3Fifo {
            nodes: Nodes::new(),
            small: Queue::new(),
            main: Queue::new(),
            ghost: Ghost::default(),
            capacity,
            stamp: 0,
            returned: Returned::default(),
        }
    }

    /// There are now so many bytes for all.
    pub fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Bytes of all objects that are queued.
    pub fn bytes(&self) -> u64 {
        self.small.bytes() + self.main.bytes()
    }

    /// Objects that are queued.
    pub fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has come back soon after it was evicted, so far.
    pub fn returned(&self) -> Returned {
        self.returned
    }

    /// Bytes of memory that the queues themselves have.
    pub fn memory(&self) -> usize {
        self.nodes.memory() + self.ghost.memory()
    }

    /// At most so many bytes does the next [`S3Fifo::insert`] allocate beside those it has; 0 for most. What a larger table
    /// replaces is given back by the same call, so [`S3Fifo::memory`] may grow by less. Nothing else allocates.
    pub fn growth(&self) -> usize {
        self.nodes.growth() + self.ghost.growth(self.len() + 1)
    }

    /// Queues a new object of `size` bytes.
    pub fn insert(&mut self, item: T, size: u64) -> Place {
        self.ghost.make_room(self.len() + 1);
        let is_back = self.ghost.take(item.hash());
        if is_back {
            self.returned.objects += 1;
            self.returned.bytes += size;
        }
        item.uses().set(0);
        let index = self.nodes.add(item, size);
        self.link(index, is_back);
        Place(index)
    }

    /// An object has become larger or smaller.
    pub fn resize(&mut self, place: Place, size: u64) {
        let node = self.nodes.get_mut(place.0);
        let is_large = node.item.as_ref().is_some_and(Queued::is_large);
        if node.is_large == is_large {
            let before = std::mem::replace(&mut node.size, size);
            let list = self.list_of(place.0);
            list.bytes = list.bytes - before + size;
            return;
        }
        let is_main = node.is_main;
        self.unlink(place.0);
        self.nodes.get_mut(place.0).size = size;
        self.link(place.0, is_main);
    }

    /// Takes an object out that has gone for another reason than room.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        self.nodes.get_mut(place.0).item.as_ref()?;
        self.unlink(place.0);
        self.nodes.free(place.0)
    }

    /// Takes out the object that is to go next. `may_go` can refuse: an object whose memory would not come free since
    /// somebody is at work with it goes round once more. `None` where nothing is left that may go, or too many in a row may not.
    pub fn evict(&mut self, may_go: impl Fn(&T) -> bool) -> Option<T> {
        self.evict_of(false, may_go)
    }

    /// The same of what is large alone.
    pub fn evict_large(&mut self, may_go: impl Fn(&T) -> bool) -> Option<T> {
        self.evict_of(true, may_go)
    }

    fn evict_of(&mut self, large_alone: bool, may_go: impl Fn(&T) -> bool) -> Option<T> {
        let count = if large_alone { self.small.large.len + self.main.large.len } else { self.len() };
        let mut refused = 0;
        // Uses may be counted up meanwhile, so it is the rounds that end this.
        for _ in 0..count.saturating_mul(usize::from(MOST_USES) + 2) {
            if refused == MOST_REFUSED {
                break;
            }
            let is_small = self.is_small_next(large_alone);
            let queue = if is_small { &self.small } else { &self.main };
            let last = if large_alone { queue.large.last } else { queue.last(&self.nodes) };
            let item = self.nodes.get_mut(last).item.as_ref()?;
            let uses = item.uses().get();
            if (is_small && uses > EARNED) || (!is_small && uses > 0) {
                item.uses().set(if is_small { 0 } else { uses - 1 });
                self.move_to_main(last);
            } else if !may_go(item) {
                refused += 1;
                self.move_to_main(last);
            } else {
                return self.take_out(last, is_small);
            }
        }
        None
    }

    /// Whether the next victim is looked for in the small queue.
    fn is_small_next(&self, large_alone: bool) -> bool {
        if large_alone {
            let (small, main) = (&self.small.large, &self.main.large);
            return main.len == 0 || (small.len > 0 && small.bytes > (small.bytes + main.bytes) / SMALL_PART);
        }
        let (small, main) = (&self.small, &self.main);
        main.len() == 0 || (small.len() > 0 && small.bytes() > self.capacity / SMALL_PART)
    }

    /// Each object, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.pages.iter().flatten().filter_map(|node| node.item.as_ref())
    }

    fn take_out(&mut self, index: u32, is_small: bool) -> Option<T> {
        self.unlink(index);
        let item = self.nodes.free(index)?;
        if is_small {
            self.ghost.set_reach(self.main.len().max(self.len() - self.len() / SMALL_PART as usize));
            self.ghost.add(item.hash());
        }
        Some(item)
    }

    fn move_to_main(&mut self, index: u32) {
        self.unlink(index);
        self.link(index, true);
    }

    fn link(&mut self, index: u32, is_main: bool) {
        let node = self.nodes.get_mut(index);
        (node.is_main, node.stamp) = (is_main, self.stamp);
        node.is_large = node.item.as_ref().is_some_and(Queued::is_large);
        self.stamp = self.stamp.wrapping_add(1);
        let size = node.size;
        let list = self.list_of(index);
        let before = std::mem::replace(&mut list.first, index);
        list.bytes += size;
        list.len += 1;
        match before {
            NONE => list.last = index,
            first => self.nodes.get_mut(first).newer = index,
        }
        let node = self.nodes.get_mut(index);
        (node.newer, node.older) = (NONE, before);
    }

    fn unlink(&mut self, index: u32) {
        let node = self.nodes.get_mut(index);
        let (newer, older, size) = (node.newer, node.older, node.size);
        let list = self.list_of(index);
        list.bytes -= size;
        list.len -= 1;
        if newer == NONE {
            list.first = older;
        }
        if older == NONE {
            list.last = newer;
        }
        if newer != NONE {
            self.nodes.get_mut(newer).older = older;
        }
        if older != NONE {
            self.nodes.get_mut(older).newer = newer;
        }
    }

    /// The list that a node is in.
    fn list_of(&mut self, index: u32) -> &mut List {
        let node = self.nodes.get_mut(index);
        let queue = if node.is_main { &mut self.main } else { &mut self.small };
        if node.is_large { &mut queue.large } else { &mut queue.other }
    }
}

/// A queue: what is large, and the rest, by themselves.
struct Queue {
    large: List,
    other: List,
}

impl Queue {
    const fn new() -> Queue {
        Queue { large: List::new(), other: List::new() }
    }

    fn len(&self) -> usize {
        self.large.len + self.other.len
    }

    fn bytes(&self) -> u64 {
        self.large.bytes + self.other.bytes
    }

    /// What has been in it for longest.
    fn last<T>(&self, nodes: &Nodes<T>) -> u32 {
        match (self.large.last, self.other.last) {
            (NONE, last) | (last, NONE) => last,
            (large, other) => {
                // Stamps come round.
                let since = nodes.get(large).stamp.wrapping_sub(nodes.get(other).stamp);
                if since > u32::MAX / 2 { large } else { other }
            }
        }
    }
}

/// Nodes that name each other.
struct List {
    /// Where what is new enters.
    first: u32,
    last: u32,
    len: usize,
    bytes: u64,
}

impl List {
    const fn new() -> List {
        List { first: NONE, last: NONE, len: 0, bytes: 0 }
    }
}

struct Node<T> {
    /// `None`: the node is free, and `older` is the next one that is.
    item: Option<T>,
    size: u64,
    newer: u32,
    older: u32,
    /// When it was linked, by the count of links.
    stamp: u32,
    is_main: bool,
    is_large: bool,
}

/// Nodes of both queues, in pages that never move: growing copies nothing.
struct Nodes<T> {
    pages: Vec<Box<[Node<T>]>>,
    first_free: u32,
}

impl<T> Nodes<T> {
    const fn new() -> Nodes<T> {
        Nodes { pages: Vec::new(), first_free: NONE }
    }

    fn memory(&self) -> usize {
        self.pages.len() * PAGE * size_of::<Node<T>>() + self.pages.capacity() * size_of::<Box<[Node<T>]>>()
    }

    fn growth(&self) -> usize {
        if self.first_free != NONE {
            return 0;
        }
        let is_full = self.pages.len() == self.pages.capacity();
        let list = if is_full { self.pages.len().max(2) * 2 * size_of::<Box<[Node<T>]>>() } else { 0 };
        PAGE * size_of::<Node<T>>() + list
    }

    fn add(&mut self, item: T, size: u64) -> u32 {
        if self.first_free == NONE {
            self.add_page();
        }
        let index = self.first_free;
        let node = self.get_mut(index);
        (node.item, node.size) = (Some(item), size);
        self.first_free = node.older;
        index
    }

    fn add_page(&mut self) {
        let first = (self.pages.len() * PAGE) as u32;
        let node = |index: usize| {
            let older = if index + 1 == PAGE { NONE } else { first + index as u32 + 1 };
            Node { item: None, size: 0, newer: NONE, older, stamp: 0, is_main: false, is_large: false }
        };
        self.pages.push((0..PAGE).map(node).collect());
        self.first_free = first;
    }

    fn free(&mut self, index: u32) -> Option<T> {
        let first_free = self.first_free;
        let node = self.get_mut(index);
        node.older = first_free;
        let item = node.item.take();
        self.first_free = index;
        item
    }

    fn get(&self, index: u32) -> &Node<T> {
        &self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    fn get_mut(&mut self, index: u32) -> &mut Node<T> {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }
}

#[cfg(test)]
mod tests;
