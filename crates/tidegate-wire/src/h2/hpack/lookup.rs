//! Where in the dynamic table a field is, and whether one that is not there was sent before.
//!
//! Used by the encoder. Two fields that share a key cost compression and nothing else: whoever is told of an entry
//! compares its text.

/// Sets of slots; a key belongs to one of them.
const SETS: usize = 32;
/// Slots of a set.
const WAYS: usize = 4;
/// Set in the number of a slot whose field was inserted.
const INSERTED: u32 = 1 << 31;

/// What a field is found by: a hash of its name and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldKey(u64);

impl FieldKey {
    /// Of a field whose name is that of a static entry.
    #[inline]
    pub(super) fn of_static_name(index: u8, value: &[u8]) -> FieldKey {
        FieldKey(mix(u64::from(index) + 1, value))
    }

    /// Of any other field.
    #[inline]
    pub(super) fn of_name(name: &[u8], value: &[u8]) -> FieldKey {
        FieldKey(mix(FieldKey::of_name_alone(name).0, value))
    }

    /// Of all fields with this name: for one that needs no more than the name.
    pub(super) fn of_name_alone(name: &[u8]) -> FieldKey {
        FieldKey(mix(u64::MAX, name))
    }

    /// Never 0, which is an empty slot.
    fn tag(self) -> u32 {
        (self.0 >> 32) as u32 | 1
    }

    fn set(self) -> usize {
        (self.0 >> 8) as usize % SETS
    }
}

#[inline]
fn mix(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 divided by the golden ratio
    let step = |hash: u64, word: u64| ((hash ^ word).wrapping_mul(FACTOR)).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(seed, |hash, word| step(hash, u64::from_le_bytes(*word)));
    let tail = rest.iter().fold(bytes.len() as u64, |tail, byte| tail << 8 | u64::from(*byte));
    step(step(hash, tail), seed)
}

/// What is known of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sighting {
    /// An entry that was so many insertions before the newest may hold it.
    Entry(usize),
    /// It was sent before.
    Again,
    /// Nothing.
    First,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    tag: u32,
    /// Of its insertion, modulo 2^31, with [`INSERTED`]; 0 if it was only seen.
    number: u32,
}

/// The fields sent lately. Takes its memory with the first one.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    slots: Option<Box<[[Slot; WAYS]; SETS]>>,
    /// Whose turn it is to be forgotten.
    turn: u8,
}

impl Lookup {
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| size_of_val(&**slots))
    }

    /// What is known of a field. `inserted` is how many were inserted so far, `entries` how many of them are left.
    #[inline]
    pub(super) fn find(&self, key: FieldKey, inserted: u64, entries: usize) -> Sighting {
        let Some(slots) = &self.slots else { return Sighting::First };
        let Some(slot) = slots[key.set()].iter().find(|slot| slot.tag == key.tag()) else {
            return Sighting::First;
        };
        match age(*slot, inserted) {
            Some(age) if age < entries => Sighting::Entry(age),
            _ => Sighting::Again,
        }
    }

    /// Remembers that a field was sent and not inserted.
    pub(super) fn see(&mut self, key: FieldKey, inserted: u64, entries: usize) {
        self.put(key, 0, inserted, entries);
    }

    /// Remembers that the newest entry, number `inserted`, is this field.
    pub(super) fn insert(&mut self, key: FieldKey, inserted: u64, entries: usize) {
        self.put(key, inserted as u32 | INSERTED, inserted, entries);
    }

    fn put(&mut self, key: FieldKey, number: u32, inserted: u64, entries: usize) {
        let slots = self.slots.get_or_insert_default();
        self.turn = self.turn.wrapping_add(1);
        let set = &mut slots[key.set()];
        let is_entry = |slot: Slot| age(slot, inserted).is_some_and(|age| age < entries);
        // The field's own slot; else one that leads to no entry, in turn; else the one with the oldest entry.
        let place = set.iter().position(|slot| slot.tag == key.tag()).unwrap_or_else(|| {
            let in_turn = (0..WAYS).map(|way| (way + usize::from(self.turn)) % WAYS);
            in_turn
                .clone()
                .find(|way| !is_entry(set[*way]))
                .unwrap_or_else(|| in_turn.max_by_key(|way| age(set[*way], inserted)).unwrap_or_default())
        });
        set[place] = Slot { tag: key.tag(), number };
    }
}

/// Insertions since that of a slot's field.
#[inline]
fn age(slot: Slot, inserted: u64) -> Option<usize> {
    (slot.number & INSERTED != 0).then(|| ((inserted as u32).wrapping_sub(slot.number) & !INSERTED) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_new_then_seen_then_an_entry_then_only_seen() {
        let mut lookup = Lookup::default();
        let key = FieldKey::of_name(b"x-a", b"1");
        assert_eq!((lookup.find(key, 0, 0), lookup.memory()), (Sighting::First, 0));
        lookup.see(key, 0, 0);
        assert_eq!(lookup.find(key, 0, 0), Sighting::Again);
        lookup.insert(key, 1, 1);
        assert_eq!(lookup.find(key, 1, 1), Sighting::Entry(0));
        assert_eq!(lookup.find(key, 4, 4), Sighting::Entry(3));
        assert_eq!(lookup.find(key, 4, 3), Sighting::Again); // pushed out
        assert_eq!(lookup.find(FieldKey::of_name(b"x-a", b"2"), 4, 4), Sighting::First);
    }

    #[test]
    fn entries_stay_where_others_are_only_seen() {
        let mut lookup = Lookup::default();
        let key = |n: u32| FieldKey::of_static_name(31, &n.to_le_bytes());
        for n in 1..=20 {
            lookup.insert(key(n), u64::from(n), n as usize);
        }
        (1000..9000).for_each(|n| lookup.see(key(n), 20, 20));
        let found = (1..=20).filter(|n| lookup.find(key(*n), 20, 20) == Sighting::Entry(20 - *n as usize));
        assert!(found.count() >= 18);
    }

    #[test]
    fn keys_tell_fields_apart() {
        let fields: [(&[u8], &[u8]); 7] = [
            (b"a", b""),
            (b"", b"a"),
            (b"a", b"\0"),
            (b"a", b"\0\0"),
            (b"ab", b"c"),
            (b"a", b"bc"),
            (b"a", b"12345678"),
        ];
        for (place, (name, value)) in fields.iter().enumerate() {
            for (other, others) in &fields[..place] {
                assert_ne!(FieldKey::of_name(name, value), FieldKey::of_name(other, others));
            }
        }
        assert_ne!(FieldKey::of_static_name(1, b"x"), FieldKey::of_static_name(2, b"x"));
    }
}
