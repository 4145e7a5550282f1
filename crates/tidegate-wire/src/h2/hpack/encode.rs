//! Fields to blocks (RFC 7541 section 6), with a dynamic table.
//!
//! What repeats from one message to the next (`date`, `server`, `content-type`, a request's fields) is put
//! into the table and costs one byte from then on. What does not is sent as it is: putting it in would only
//! push out the rest.

use super::super::field_kind::Traits;
use super::FIELD_OVERHEAD;
use super::TABLE_SIZE;
use super::static_table::{STATIC, index_of};
use super::string::{push_integer, push_text};
use super::table::Table;
use arrayvec::ArrayVec;

/// Longer values hardly ever repeat, and would push out many that do.
const LONGEST_INDEXED: usize = 512;
/// Names up to this length are put into lower case without an allocation.
const NAME_ON_STACK: usize = 64;

/// Writes the blocks of one direction of one connection, in order.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Sizes to announce at the beginning of the next block: the smallest since the last one, and the
    /// present one (section 4.2).
    resized: Option<(usize, usize)>,
    /// By index of the static table: the number of the entry inserted last under this name.
    latest: [u32; STATIC.len() + 1],
}

/// What becomes of a field that is in no table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexing {
    Insert,
    Without,
    /// Nor may anyone who passes it on (section 7.1.3).
    Never,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder for a peer that has said nothing yet.
    pub fn new() -> Encoder {
        Encoder { table: Table::new(TABLE_SIZE), resized: None, latest: [0; STATIC.len() + 1] }
    }

    /// The peer has said how large a table it keeps. No more than [`TABLE_SIZE`] is used of it.
    pub fn limit_table(&mut self, limit: usize) {
        let size = limit.min(TABLE_SIZE);
        if size == self.table.max_size() {
            return;
        }
        self.table.resize(size);
        let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
        self.resized = Some((smallest, size));
    }

    /// Bytes of memory that the table holds.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Begins a block: call it once before its fields.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, size)) = self.resized.take() {
            if smallest < size {
                push_integer(out, 0x20, 5, smallest);
            }
            push_integer(out, 0x20, 5, size);
        }
    }

    /// Appends `:status`.
    #[inline]
    pub fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits =
                    [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
                return self.with_static_name(out, 8, &digits);
            }
        };
        out.push(0x80 | index);
    }

    /// Appends a field. The name may be in any case, and is written in lower case.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        if name.len() <= NAME_ON_STACK {
            let mut lower = ArrayVec::<u8, NAME_ON_STACK>::new();
            lower.extend(name.iter().map(u8::to_ascii_lowercase));
            self.lower_case_field(out, &lower, value);
        } else {
            self.lower_case_field(out, &name.to_ascii_lowercase(), value);
        }
    }

    fn lower_case_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        match index_of(name) {
            Some(index) => self.with_static_name(out, index, value),
            None => self.with_other_name(out, name, value),
        }
    }

    /// Appends a field whose name is that of a static entry, the first of its name.
    #[inline]
    pub(in super::super) fn with_static_name(&mut self, out: &mut Vec<u8>, index: u8, value: &[u8]) {
        // The name's other static entries follow the first one.
        let name = STATIC.get(usize::from(index) - 1).map_or("", |(name, _)| name);
        let entries = STATIC.iter().enumerate().skip(usize::from(index) - 1);
        for (place, (_, have)) in entries.take_while(|(_, entry)| entry.0 == name) {
            if !have.is_empty() && have.as_bytes() == value {
                return push_integer(out, 0x80, 7, place + 1);
            }
        }
        if let Some(latest) = self.latest.get(usize::from(index)).copied() {
            let age = (self.table.inserted() as u32).wrapping_sub(latest) as usize;
            if let Some((have, same, _)) = self.table.entry(age)
                && same == value
                && have == name.as_bytes()
            {
                return push_integer(out, 0x80, 7, STATIC.len() + 1 + age);
            }
        }
        let indexing = self.indexing(index, value);
        push_name_index(out, indexing, usize::from(index));
        push_text(out, value);
        if indexing == Indexing::Insert && self.insert(name.as_bytes(), value) {
            self.latest[usize::from(index)] = self.table.inserted() as u32;
        }
    }

    fn with_other_name(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let mut same_name = None;
        for age in 0..self.table.len() {
            let Some((have, same, _)) = self.table.entry(age) else { break };
            if have != name {
                continue;
            }
            let index = STATIC.len() + 1 + age;
            if same == value {
                return push_integer(out, 0x80, 7, index);
            }
            same_name.get_or_insert(index);
        }
        let indexing = self.indexing(0, value);
        push_name_index(out, indexing, same_name.unwrap_or(0));
        if same_name.is_none() {
            push_text(out, name);
        }
        push_text(out, value);
        if indexing == Indexing::Insert {
            self.insert(name, value);
        }
    }

    /// What [`Encoder::indexing`] lets through fits the table.
    fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.table.insert(name, value, Traits::default());
        true
    }

    /// Which fields are worth a place. What identifies one answer or one piece of content is not.
    fn indexing(&self, static_name: u8, value: &[u8]) -> Indexing {
        match static_name {
            // authorization, proxy-authorization, set-cookie
            23 | 49 | 55 => Indexing::Never,
            32 if value.len() < 20 => Indexing::Never, // short cookies could be guessed
            // :path, age, content-length, content-range, etag, expires, if-modified-since, if-none-match,
            // last-modified, location, range
            4 | 21 | 28 | 30 | 34 | 36 | 40 | 41 | 44 | 46 | 50 => Indexing::Without,
            _ if value.len() > LONGEST_INDEXED => Indexing::Without,
            // Names are bounded by those who send them; a pair that takes a quarter of the table is too much.
            _ if (value.len() + FIELD_OVERHEAD) * 4 > self.table.max_size() => Indexing::Without,
            _ => Indexing::Insert,
        }
    }
}

fn push_name_index(out: &mut Vec<u8>, indexing: Indexing, index: usize) {
    match indexing {
        Indexing::Insert => push_integer(out, 0x40, 6, index),
        Indexing::Without => push_integer(out, 0, 4, index),
        Indexing::Never => push_integer(out, 0x10, 4, index),
    }
}

/// Appends a field that depends on no table but the static one. The name is in lower case.
pub(super) fn push_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let index = index_of(name).map_or(0, usize::from);
    let indexing = if matches!(index, 23 | 49 | 55) { Indexing::Never } else { Indexing::Without };
    push_name_index(out, indexing, index);
    if index == 0 {
        push_text(out, name);
    }
    push_text(out, value);
}
