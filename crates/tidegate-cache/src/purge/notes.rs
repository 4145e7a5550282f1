//! Purges as bytes, so that a disk remembers them.
//!
//! | bytes | what |
//! | ---: | --- |
//! | 4 | version: 2 |
//! | 8 | how many purges there have been |
//! | 40 | the note of everything: hard (8), soft (8), soft at (8), and 16 bytes of 0 |
//! | 4 | so many lengths of prefixes: length (4), number (8) each |
//! | 4 | so many notes: hash (8), note (24), origin and site of the application (8 each, 0: an operator's) each |
//!
//! Numbers go on from process to process. The first of a process is made of the time as well, so that it is later than any before
//! although the last notes were lost with the power.

use super::{MOST_CHANGES, MOST_HOSTS, MOST_LENGTHS, MOST_NAMED, Note, Notes, Party, Purges};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

const VERSION: u32 = 2;

/// What a disk has noted.
struct Found {
    count: u64,
    notes: Notes,
}

impl Purges {
    /// Takes in what a disk has noted (nothing at first), and returns what it is to note. `now` is in Unix seconds.
    /// `None`: it cannot be read.
    pub(crate) fn admit(&self, found: &[u8], now: i64) -> Option<Vec<u8>> {
        let found =
            if found.is_empty() { Found { count: 0, notes: Notes::default() } } else { parse(found)? };
        let mut notes = self.notes_mut();
        self.inherited.fetch_max(found.count, Relaxed);
        let mut number = self.counted() + 1;
        if number <= found.count + 1 {
            number = found.count.max((now.max(0) as u64) << 20) + 1;
            // What this process has purged is later than anything on the disk.
            notes.renumber(number);
        }
        notes.take_in(found.notes);
        // Everything is compared anew: the disk may have noted what nobody else has.
        self.count.store(number, Release);
        Some(encode(number, &notes))
    }

    /// What a disk is to note.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let notes = self.notes();
        encode(self.counted(), &notes)
    }
}

impl Notes {
    fn renumber(&mut self, number: u64) {
        for note in self.by_hash.values_mut().chain([&mut self.all]) {
            for place in [&mut note.hard, &mut note.soft] {
                *place = if *place == 0 { 0 } else { number };
            }
        }
        self.lengths.iter_mut().for_each(|(_, last)| *last = number);
    }

    /// Adds what others have noted. Where operators' would be too much, everything counts as purged.
    fn take_in(&mut self, found: Notes) {
        self.all.take_in(found.all);
        let of_operators = found.by_hash.values().filter(|note| note.by.is_none());
        let (named, latest) = of_operators
            .fold((0, 0), |(named, latest), note| (named + 1, note.hard.max(note.soft).max(latest)));
        let new_lengths = found.lengths.iter().filter(|(length, _)| self.length(*length).is_err()).count();
        let is_too_much =
            self.named + named > MOST_NAMED + MOST_HOSTS || self.lengths.len() + new_lengths > MOST_LENGTHS;
        for (hash, note) in found.by_hash.into_iter().filter(|(_, note)| note.by.is_some() || !is_too_much) {
            let is_new = !self.by_hash.contains_key(&hash);
            self.named += usize::from(is_new && note.by.is_none());
            self.by_hash.entry(hash).or_insert(Note { by: note.by, ..Note::default() }).take_in(note);
        }
        if self.changes() > MOST_CHANGES {
            self.put_together();
        }
        if is_too_much {
            self.all.hard = self.all.hard.max(latest);
            return;
        }
        for (length, last) in found.lengths {
            match self.length(length) {
                Ok(at) => self.lengths[at].1 = self.lengths[at].1.max(last),
                Err(at) => self.lengths.insert(at, (length, last)),
            }
        }
    }

    fn length(&self, length: usize) -> Result<usize, usize> {
        self.lengths.binary_search_by_key(&length, |(length, _)| *length)
    }
}

impl Note {
    pub(super) fn take_in(&mut self, other: Note) {
        self.hard = self.hard.max(other.hard);
        if other.soft > self.soft {
            (self.soft, self.soft_at) = (other.soft, other.soft_at);
        }
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.hard.to_le_bytes());
        into.extend_from_slice(&self.soft.to_le_bytes());
        into.extend_from_slice(&self.soft_at.to_le_bytes());
        let party = self.by.unwrap_or(Party { origin: 0, site: 0 });
        into.extend_from_slice(&party.origin.to_le_bytes());
        into.extend_from_slice(&party.site.to_le_bytes());
    }
}

fn encode(count: u64, notes: &Notes) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + 12 * notes.lengths.len() + 48 * notes.by_hash.len());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    notes.all.write(&mut bytes);
    bytes.extend_from_slice(&(notes.lengths.len() as u32).to_le_bytes());
    for (length, last) in &notes.lengths {
        bytes.extend_from_slice(&(*length as u32).to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
    }
    bytes.extend_from_slice(&(notes.by_hash.len() as u32).to_le_bytes());
    for (hash, note) in &notes.by_hash {
        bytes.extend_from_slice(&hash.to_le_bytes());
        note.write(&mut bytes);
    }
    bytes
}

fn parse(bytes: &[u8]) -> Option<Found> {
    let mut rest = bytes;
    if word(&mut rest)? != VERSION {
        return None;
    }
    let count = long(&mut rest)?;
    let mut notes = Notes { all: note(&mut rest)?, ..Notes::default() };
    for _ in 0..word(&mut rest)? {
        notes.lengths.push((word(&mut rest)? as usize, long(&mut rest)?));
    }
    let is_ascending = notes.lengths.is_sorted_by(|one, other| one.0 < other.0);
    for _ in 0..word(&mut rest)? {
        let hash = long(&mut rest)?;
        notes.by_hash.insert(hash, note(&mut rest)?);
    }
    notes.named = notes.by_hash.values().filter(|note| note.by.is_none()).count();
    let is_ours = rest.is_empty() && is_ascending;
    is_ours.then_some(Found { count, notes })
}

fn note(rest: &mut &[u8]) -> Option<Note> {
    let (hard, soft) = (long(rest)?, long(rest)?);
    let soft_at = long(rest)? as i64;
    let party = Party { origin: long(rest)?, site: long(rest)? };
    let by = (party.origin != 0 || party.site != 0).then_some(party);
    Some(Note { hard, soft, soft_at, by })
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    let (word, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_le_bytes(*word))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    let (long, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*long))
}
