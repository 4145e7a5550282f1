//! Fields to blocks (RFC 7541 section 6), with a dynamic table.
//!
//! What repeats from one message to the next costs one byte from the second or third time on. Fields that nearly
//! always repeat (`date`, `server`, `content-type`) are put into the table at once; those that belong to one answer or
//! one piece of content (`etag`, `:path`, a name that is not known here) when they come again, so that what never
//! repeats pushes nothing out. What could be a secret is never put there, nor by anyone who passes it on: who can tell
//! the size of a block and choose fields of the same connection could guess it (section 7.1).

use super::super::field_kind::Traits;
use super::FIELD_OVERHEAD;
use super::TABLE_SIZE;
use super::block::FieldBlock;
use super::lookup::{FieldKey, Lookup, Sighting};
use super::static_table::{STATIC, index_of};
use super::string::{push_integer, push_text};
use super::table::Table;
use arrayvec::ArrayVec;

/// Where a name is in the static table: the first entry of its name, counted from 1.
pub(super) type StaticName = u8;

// Places in the static table.
const DATE: StaticName = 33;
const SERVER: StaticName = 54;

/// Longer values hardly ever repeat, and would push out many that do.
const LONGEST_INDEXED: usize = 512;
/// Names up to this length are put into lower case without an allocation.
const NAME_ON_STACK: usize = 64;

/// Blocks whose present encoding is kept.
const PREPARED: usize = 8;
/// The longest encoding that is kept: a byte for each of as many fields, when all are in the table.
const LONGEST_PREPARED: usize = 23;
/// The longest name of a server with which heads are kept.
const LONGEST_SERVER: usize = 31;
/// What an insertion that pushes others out takes from the credit, what a field found again gives to it, and the most
/// that there is. Giving up an insertion gives 1.
const INSERTION: u32 = 32;
const HIT: u32 = 16;
const MOST_CREDIT: u32 = 1024;

/// Writes the blocks of one direction of one connection, in order.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Sizes to announce at the beginning of the next block: the smallest since the last one, and the
    /// present one (section 4.2).
    resized: Option<(usize, usize)>,
    lookup: Lookup,
    /// What heads with [`FieldBlock`]s came to, while the table is as it was. Each block has one place, by its number.
    prepared: Vec<Prepared>,
    /// What those say of server and date.
    said: Said,
    /// Whether fields that came again are worth their places: where more of them take turns than the table holds, each
    /// would push out the one that is needed next.
    credit: u32,
}

/// A head as it can be sent while nothing more is inserted.
#[derive(Debug, Clone, Default)]
struct Prepared {
    /// Of the block; 0 for none.
    id: u64,
    /// Entries inserted when it was made: each further one moves all others.
    inserted: u64,
    status: u16,
    names_server: bool,
    bytes: ArrayVec<u8, LONGEST_PREPARED>,
}

/// What heads that are kept say beside their blocks.
#[derive(Debug)]
struct Said {
    server: ArrayVec<u8, LONGEST_SERVER>,
    date: [u8; 29],
}

/// What becomes of a field that is in no table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexing {
    /// It is inserted.
    Insert,
    /// It is, if it was sent before.
    InsertAgain,
    Without,
    /// Nor may anyone who passes it on (section 7.1.3).
    Never,
}

/// A field to be written, its name in lower case.
struct Field<'f> {
    key: FieldKey,
    static_name: Option<StaticName>,
    name: &'f [u8],
    value: &'f [u8],
    /// Its encoding without a table, if there is one.
    literal: Option<&'f [u8]>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder for a peer that has said nothing yet.
    pub fn new() -> Encoder {
        Encoder {
            table: Table::new(TABLE_SIZE),
            resized: None,
            lookup: Lookup::default(),
            prepared: Vec::new(),
            said: Said { server: ArrayVec::new(), date: [0; 29] },
            credit: MOST_CREDIT,
        }
    }

    /// The peer has said how large a table it keeps. No more than [`TABLE_SIZE`] is used of it.
    pub fn limit_table(&mut self, limit: usize) {
        let size = limit.min(TABLE_SIZE);
        if size == self.table.max_size() {
            return;
        }
        self.table.resize(size);
        self.prepared.clear(); // what was forgotten may be in there
        let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
        self.resized = Some((smallest, size));
    }

    /// Bytes of memory that it holds beside itself.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.lookup.memory() + self.prepared.capacity() * size_of::<Prepared>()
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

    /// Appends a response's status, what it says of server and date, and the fields of a block.
    #[inline]
    pub fn head(
        &mut self,
        out: &mut Vec<u8>,
        status: u16,
        server: Option<&str>,
        date: &[u8; 29],
        block: &FieldBlock,
    ) {
        if let Some(kept) = self.prepared.get(block.id() as usize % PREPARED)
            && kept.id == block.id()
            && kept.inserted == self.table.inserted()
            && (kept.status, kept.names_server) == (status, server.is_some())
            && self.said.date == *date
            && server.is_none_or(|server| self.said.server.as_slice() == server.as_bytes())
        {
            self.credit = (self.credit + HIT).min(MOST_CREDIT);
            return out.extend_from_slice(&kept.bytes);
        }
        self.prepare(out, status, server, date, block);
    }

    /// Appends the fields one by one, and keeps what they came to if all are in the tables.
    fn prepare(
        &mut self,
        out: &mut Vec<u8>,
        status: u16,
        server: Option<&str>,
        date: &[u8; 29],
        block: &FieldBlock,
    ) {
        let start = out.len();
        self.status(out, status);
        let is_static = out.len() == start + 1;
        let mut put = |out: &mut Vec<u8>, name, value: &[u8]| {
            let static_name = STATIC.get(usize::from(name) - 1).map_or("", |(name, _)| name).as_bytes();
            let key = FieldKey::of_static_name(name, value);
            self.put(out, Field { key, static_name: Some(name), name: static_name, value, literal: None })
        };
        let says_server = server.is_none_or(|server| put(out, SERVER, server.as_bytes()));
        let mut is_in_table = put(out, DATE, date) && says_server && is_static;
        is_in_table &= self.put_block(out, block);
        let Ok(bytes) = out.get(start..).unwrap_or_default().try_into() else { return };
        if !is_in_table || block.id() == 0 || server.is_some_and(|server| server.len() > LONGEST_SERVER) {
            return;
        }
        let differs = |server: &str| self.said.server.as_slice() != server.as_bytes();
        if self.said.date != *date || server.is_some_and(differs) {
            self.prepared.clear();
            self.said.date = *date;
            if let Some(server) = server {
                self.said.server = server.bytes().collect();
            }
        }
        self.prepared.resize(PREPARED, Prepared::default());
        if let Some(kept) = self.prepared.get_mut(block.id() as usize % PREPARED) {
            let (inserted, names_server) = (self.table.inserted(), server.is_some());
            *kept = Prepared { id: block.id(), inserted, status, names_server, bytes };
        }
    }

    /// Appends the fields of a block.
    pub fn block(&mut self, out: &mut Vec<u8>, block: &FieldBlock) {
        self.put_block(out, block);
    }

    /// Whether entries say all of them.
    fn put_block(&mut self, out: &mut Vec<u8>, block: &FieldBlock) -> bool {
        if self.table.max_size() == 0 {
            out.extend_from_slice(block.as_bytes());
            return false;
        }
        let mut is_in_table = true;
        for field in block.fields() {
            let (static_name, literal) = (field.static_name, Some(field.literal));
            let (name, value) = (field.name, field.value);
            is_in_table &= self.put(out, Field { key: field.key, static_name, name, value, literal });
        }
        is_in_table
    }

    fn lower_case_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        match index_of(name) {
            Some(index) => self.with_static_name(out, index, value),
            None => {
                let key = FieldKey::of_name(name, value);
                self.put(out, Field { key, static_name: None, name, value, literal: None });
            }
        }
    }

    /// Appends a field whose name is that of a static entry, the first of its name.
    #[inline]
    pub(in super::super) fn with_static_name(&mut self, out: &mut Vec<u8>, index: StaticName, value: &[u8]) {
        let first = usize::from(index) - 1;
        let name = STATIC.get(first).map_or("", |(name, _)| name);
        if has_values(index) {
            // The name's other static entries follow the first one.
            let entries = STATIC.iter().enumerate().skip(first);
            for (place, (_, have)) in entries.take_while(|(_, entry)| entry.0 == name) {
                if !have.is_empty() && have.as_bytes() == value {
                    return push_integer(out, 0x80, 7, place + 1);
                }
            }
        }
        let (key, name) = (FieldKey::of_static_name(index, value), name.as_bytes());
        self.put(out, Field { key, static_name: Some(index), name, value, literal: None });
    }

    /// Appends a field that is not in the static table. Whether an entry says all of it.
    #[inline]
    fn put(&mut self, out: &mut Vec<u8>, field: Field<'_>) -> bool {
        let sighting = self.lookup.find(field.key, self.table.inserted(), self.table.len());
        if let Sighting::Entry(age) = sighting
            && let Some((name, value, _)) = self.table.entry(age)
            && name == field.name
            && value == field.value
        {
            if field.static_name.is_none_or(is_of_one_answer) {
                self.credit = (self.credit + HIT).min(MOST_CREDIT);
            }
            push_integer(out, 0x80, 7, STATIC.len() + 1 + age);
            return true;
        }
        self.put_literal(out, &field, sighting != Sighting::First);
        false
    }

    fn put_literal(&mut self, out: &mut Vec<u8>, field: &Field<'_>, was_seen: bool) {
        let wanted = indexing(field);
        let size = field.name.len() + field.value.len() + FIELD_OVERHEAD;
        // A field that takes a quarter of the table is too much.
        let fits = size * 4 <= self.table.max_size();
        let inserts = match wanted {
            Indexing::Insert => fits,
            Indexing::InsertAgain => fits && was_seen && self.may_insert_again(size),
            Indexing::Without | Indexing::Never => false,
        };
        if let Some(literal) = field.literal.filter(|_| !inserts) {
            out.extend_from_slice(literal);
        } else {
            let (first, bits) = match wanted {
                _ if inserts => (0x40, 6),
                Indexing::Never => (0x10, 4),
                _ => (0, 4),
            };
            let name = field.static_name.map(usize::from).or_else(|| self.entry_with_name(field.name));
            push_integer(out, first, bits, name.unwrap_or(0));
            if name.is_none() {
                push_text(out, field.name);
            }
            push_text(out, field.value);
        }
        if inserts {
            self.insert(field);
        } else if wanted == Indexing::InsertAgain && fits {
            self.lookup.see(field.key, self.table.inserted(), self.table.len());
        }
    }

    /// Whether there is room for one more of the fields that come again.
    fn may_insert_again(&mut self, size: usize) -> bool {
        if self.table.has_room(size) {
            return true;
        }
        let may_insert = self.credit >= INSERTION;
        self.credit = if may_insert { self.credit - INSERTION } else { self.credit + 1 };
        may_insert
    }

    fn insert(&mut self, field: &Field<'_>) {
        self.table.insert(field.name, field.value, Traits::default());
        let (inserted, entries) = (self.table.inserted(), self.table.len());
        self.lookup.insert(field.key, inserted, entries);
        if field.static_name.is_none() {
            self.lookup.insert(FieldKey::of_name_alone(field.name), inserted, entries);
        }
    }

    /// The index of an entry with this name, which is in no static one.
    fn entry_with_name(&self, name: &[u8]) -> Option<usize> {
        let key = FieldKey::of_name_alone(name);
        let Sighting::Entry(age) = self.lookup.find(key, self.table.inserted(), self.table.len()) else {
            return None;
        };
        let (have, _, _) = self.table.entry(age)?;
        (have == name).then_some(STATIC.len() + 1 + age)
    }
}

/// Whether entries of the static table with this name have values, beside `:status`, which has a way of its own.
fn has_values(name: StaticName) -> bool {
    matches!(name, 2..=16)
}

/// Which fields are worth a place.
#[inline]
fn indexing(field: &Field<'_>) -> Indexing {
    match field.static_name {
        // authorization, proxy-authorization, set-cookie
        Some(23 | 49 | 55) => Indexing::Never,
        Some(32) if field.value.len() < 20 => Indexing::Never, // short cookies could be guessed
        _ if field.value.len() > LONGEST_INDEXED => Indexing::Without,
        Some(name) if is_of_one_answer(name) => Indexing::InsertAgain,
        Some(_) => Indexing::Insert,
        None if names_secret(field.name) => Indexing::Never,
        None => Indexing::InsertAgain,
    }
}

/// Whether the value of a field belongs to one request or answer, or to one piece of content, rather than to all.
fn is_of_one_answer(name: StaticName) -> bool {
    // :path, age, content-length, content-range, cookie, etag, expires, if-modified-since, if-none-match,
    // last-modified, location, proxy-authenticate, range, referer, www-authenticate
    matches!(name, 4 | 21 | 28 | 30 | 32 | 34 | 36 | 40 | 41 | 44 | 46 | 48 | 50 | 51 | 61)
}

/// Whether a field of this name, in lower case, is likely to hold what lets its reader act for somebody.
fn names_secret(name: &[u8]) -> bool {
    const WORDS: [&[u8]; 14] = [
        b"api-key",
        b"apikey",
        b"assertion",
        b"auth",
        b"credential",
        b"csrf",
        b"jwt",
        b"passw",
        b"secret",
        b"session",
        b"signature",
        b"ticket",
        b"token",
        b"xsrf",
    ];
    // Most names hold no such word at all: the first letter decides quickly.
    (0..name.len()).any(|at| {
        let rest = name.get(at..).unwrap_or_default();
        matches!(rest.first(), Some(b'a' | b'c' | b'j' | b'p' | b's' | b't' | b'x'))
            && WORDS.iter().any(|word| rest.starts_with(word))
    })
}

/// Appends a field that depends on no table but the static one. The name is in lower case.
pub(super) fn push_literal(out: &mut Vec<u8>, static_name: Option<StaticName>, name: &[u8], value: &[u8]) {
    let key = FieldKey::of_name_alone(b""); // decides nothing here
    let is_secret = indexing(&Field { key, static_name, name, value, literal: None }) == Indexing::Never;
    push_integer(out, if is_secret { 0x10 } else { 0 }, 4, static_name.map_or(0, usize::from));
    if static_name.is_none() {
        push_text(out, name);
    }
    push_text(out, value);
}
