//! Generational slab: the home of connections, tasks and watched descriptors.
//!
//! A [`Key`] that outlives its slot simply misses, so a late event, timer or wake-up can never reach the
//! wrong one. Used by the worker loop; holds no policy.

/// Index and generation of a slab slot, 51 bits in all: generation (19) above index (32).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub(crate) u64);

const GENERATION_BITS: u32 = 19;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const NONE: u32 = u32::MAX;

impl Key {
    fn new(index: u32, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | u64::from(index))
    }

    /// The slot's number: dense, small, reused. Timers are kept by it.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 as u32
    }

    /// As one number, for the eyes of an operator: [`Slab::find`] leads back.
    pub fn number(self) -> u64 {
        self.0
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Values under keys that never alias a later value (short of 2^19 reuses of one slot).
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::with_capacity(0)
    }
}

impl<T> Slab<T> {
    /// Bytes that each value takes here.
    pub const SLOT_SIZE: usize = size_of::<Slot<T>>();

    /// With room for so many before it grows.
    pub fn with_capacity(values: usize) -> Self {
        Slab { slots: Vec::with_capacity(values), free: NONE, len: 0 }
    }

    /// How many values are held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key of this [`Key::number`], where its value is still here.
    pub fn find(&self, number: u64) -> Option<Key> {
        self.key_of(number as u32).filter(|key| key.0 == number)
    }

    /// Stores a value and returns its key.
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if self.free == NONE {
            let index = self.slots.len() as u32;
            self.slots.push(Slot { generation: 0, next_free: NONE, value: Some(value) });
            return Key::new(index, 0);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.value = Some(value);
        Key::new(index, slot.generation)
    }

    /// The value, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        slot.value.as_mut()
    }

    /// The value, unless it was removed.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        slot.value.as_ref()
    }

    /// Slots there are, used or not: indexes are below this.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Takes the value out; its key and all copies of it are stale from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next_free = self.free;
        self.free = key.index();
        self.len -= 1;
        Some(value)
    }

    /// The present key of a live index.
    pub fn key_of(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref()?;
        Some(Key::new(index, slot.generation))
    }

    /// The keys of all values, in slot order.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.slots.len() as u32).filter_map(|index| self.key_of(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_misses() {
        let mut slab = Slab::default();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "b"));
        assert_eq!(slab.key_of(second.index()), Some(second));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn generations_wrap_inside_their_bits() {
        let mut slab = Slab::default();
        for n in 0..(1u32 << GENERATION_BITS) + 3 {
            let key = slab.insert(n);
            assert!(key.0 < 1 << 51);
            assert_eq!(slab.remove(key), Some(n));
        }
    }
}
