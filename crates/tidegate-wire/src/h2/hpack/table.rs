//! The dynamic table (RFC 7541 section 2.3.2): what was sent lately, newest first, bounded in size.
//!
//! Text lies in one buffer, appended at its end and cut off at its front, so an entry costs no allocation.

use super::super::field_kind::Traits;
use super::FIELD_OVERHEAD;
use std::collections::VecDeque;

/// A table that forgets its oldest entries.
#[derive(Debug)]
pub(super) struct Table {
    text: Vec<u8>,
    /// How much text was cut off before `text` begins.
    cut: u64,
    /// Oldest first.
    entries: VecDeque<TableEntry>,
    size: usize,
    max_size: usize,
    inserted: u64,
}

#[derive(Debug, Clone, Copy)]
struct TableEntry {
    /// Counted from the first text ever held.
    at: u64,
    name: u32,
    value: u32,
    traits: Traits,
}

impl TableEntry {
    fn size(&self) -> usize {
        self.name as usize + self.value as usize + FIELD_OVERHEAD
    }
}

impl Table {
    pub(super) fn new(max_size: usize) -> Table {
        Table { text: Vec::new(), cut: 0, entries: VecDeque::new(), size: 0, max_size, inserted: 0 }
    }

    /// Entries held.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries ever inserted: the number of the newest, counted from 1.
    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The largest size allowed now.
    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Whether an entry of this size would push nothing out.
    pub(super) fn has_room(&self, size: usize) -> bool {
        self.size + size <= self.max_size
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<TableEntry>()
    }

    /// Name, value and what is known of them; 0 is the newest.
    #[inline]
    pub(super) fn entry(&self, age: usize) -> Option<(&[u8], &[u8], Traits)> {
        let place = self.entries.len().checked_sub(age + 1)?;
        let entry = self.entries.get(place)?;
        let start = (entry.at - self.cut) as usize;
        let text = self.text.get(start..start + entry.name as usize + entry.value as usize)?;
        let (name, value) = text.split_at_checked(entry.name as usize)?;
        Some((name, value, entry.traits))
    }

    /// Puts an entry in front; one that is larger than the table empties it (section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], traits: Traits) {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        self.evict(self.max_size.saturating_sub(size));
        if size > self.max_size {
            self.inserted += 1; // numbers of older entries must not come again
            return;
        }
        // Cut off at half of the buffer or more, so that each byte is moved at most once on average.
        let dead = self.entries.front().map_or(self.text.len(), |oldest| (oldest.at - self.cut) as usize);
        if dead > 0 && (self.entries.is_empty() || dead >= self.max_size) {
            self.text.drain(..dead);
            self.cut += dead as u64;
        }
        let at = self.cut + self.text.len() as u64;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.entries.push_back(TableEntry { at, name: name.len() as u32, value: value.len() as u32, traits });
        self.size += size;
        self.inserted += 1;
    }

    /// Changes the largest size; what no longer fits is forgotten (section 4.3).
    pub(super) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    fn evict(&mut self, most: usize) {
        while self.size > most {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_go_and_the_text_stays_bounded() {
        let mut table = Table::new(200);
        for round in 0..10_000u32 {
            let value = vec![b'v'; (round % 90) as usize];
            table.insert(format!("n{round}").as_bytes(), &value, Traits::default());
            let (name, newest, _) = table.entry(0).unwrap();
            assert_eq!((name, newest), (format!("n{round}").as_bytes(), value.as_slice()));
            assert!(table.size <= 200 && table.text.len() <= 600, "{} {}", table.size, table.text.len());
            let oldest = table.entry(table.len() - 1).unwrap().0;
            assert_eq!(oldest, format!("n{}", round as usize + 1 - table.len()).as_bytes());
            assert!(table.entry(table.len()).is_none());
        }
        table.insert(b"n", &[b'x'; 168], Traits::default());
        assert_eq!(table.len(), 0);
        table.insert(b"n", &[b'x'; 167], Traits::default());
        assert_eq!(table.len(), 1);
        table.resize(10);
        assert_eq!((table.len(), table.size), (0, 0));
    }
}
