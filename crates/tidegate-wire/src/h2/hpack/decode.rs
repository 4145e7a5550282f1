//! Blocks to fields (RFC 7541 sections 3 and 6).

use super::super::field_kind::Traits;
use super::static_table::STATIC;
use super::string::Cursor;
use super::table::Table;
use std::sync::LazyLock;
use thiserror::Error;

/// A block that cannot be read. The peer is at fault, and both tables have come apart, so the connection has
/// to end (COMPRESSION_ERROR, RFC 9113 section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The block ends inside of a field.
    #[error("a field block ends inside of a field")]
    Truncated,
    /// An integer longer than any that is needed.
    #[error("an integer in a field block is too large")]
    IntegerOverflow,
    /// Index 0, or one behind the end of the dynamic table.
    #[error("a field block refers to an entry that does not exist")]
    InvalidIndex,
    /// The end-of-string symbol inside of a string.
    #[error("a Huffman string holds the end-of-string symbol")]
    HuffmanEnd,
    /// Padding that is longer than 7 bits or not all ones.
    #[error("a Huffman string ends in wrong padding")]
    HuffmanPadding,
    /// A table size above what the settings allow.
    #[error("the size of the dynamic table is above the limit")]
    TableTooLarge,
    /// A table size behind the first field.
    #[error("a change of table size is not at the beginning of its block")]
    LateTableSize,
    /// More table sizes than there is a reason for.
    #[error("a block changes the table size again and again")]
    TooManyTableSizes,
}

/// Changes of the table size in one block. Two say all there is to say (RFC 7541 section 4.2: the smallest and the last).
const TABLE_SIZES_MAX: u32 = 4;

/// Reads the blocks of one direction of one connection, in order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// What our settings allow the peer's encoder.
    limit: usize,
}

/// What is known of each static entry.
static STATIC_TRAITS: LazyLock<[Traits; 61]> =
    LazyLock::new(|| STATIC.map(|(name, value)| Traits::of(name.as_bytes(), value.as_bytes())));

impl Decoder {
    /// A decoder with an empty table, for a peer that was told this limit (or the default of it).
    pub fn new(limit: usize) -> Decoder {
        Decoder { table: Table::new(limit), limit }
    }

    /// Bytes of memory that the table holds.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Reads one whole block and gives each field to `take`: name, value, and what is known of both.
    /// `scratch` is overwritten.
    ///
    /// # Errors
    /// The block is malformed, refers to an entry that does not exist, or sets a table size that is too large
    /// or comes too late. Fields before the fault have been given to `take`.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        mut take: impl FnMut(&[u8], &[u8], Traits),
    ) -> Result<(), DecodeError> {
        let mut cursor = Cursor { rest: block };
        let (mut may_resize, mut table_sizes) = (true, 0);
        while let Some(first) = cursor.rest.first().copied() {
            if first & 0x80 != 0 {
                let index = cursor.integer(7)?;
                let (name, value, traits) = self.entry(index)?;
                take(name, value, traits);
            } else if first & 0x40 != 0 {
                let (name_length, traits) = self.literal(&mut cursor, 6, scratch)?;
                let (name, value) = scratch.split_at_checked(name_length).unwrap_or_default();
                take(name, value, traits);
                self.table.insert(name, value, traits);
            } else if first & 0x20 != 0 {
                let size = cursor.integer(5)?;
                if !may_resize {
                    return Err(DecodeError::LateTableSize);
                }
                if size > self.limit {
                    return Err(DecodeError::TableTooLarge);
                }
                table_sizes += 1;
                if table_sizes > TABLE_SIZES_MAX {
                    return Err(DecodeError::TooManyTableSizes);
                }
                self.table.resize(size);
                continue;
            } else {
                // Never indexed or just not: the difference matters to who passes the field on compressed.
                let (name_length, traits) = self.literal(&mut cursor, 4, scratch)?;
                let (name, value) = scratch.split_at_checked(name_length).unwrap_or_default();
                take(name, value, traits);
            }
            may_resize = false;
        }
        Ok(())
    }

    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8], Traits), DecodeError> {
        let place = index.checked_sub(1).ok_or(DecodeError::InvalidIndex)?;
        match STATIC.get(place) {
            Some((name, value)) => {
                let traits = STATIC_TRAITS.get(place).copied().unwrap_or_default();
                Ok((name.as_bytes(), value.as_bytes(), traits))
            }
            None => self.table.entry(place - STATIC.len()).ok_or(DecodeError::InvalidIndex),
        }
    }

    /// Reads a literal into `scratch`, name and value one after the other. The name is copied also where it
    /// is an entry's: inserting may drop that entry (section 4.4).
    fn literal(
        &self,
        cursor: &mut Cursor<'_>,
        bits: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(usize, Traits), DecodeError> {
        scratch.clear();
        let index = cursor.integer(bits)?;
        let mut traits = if index == 0 {
            cursor.text()?.append_to(scratch)?;
            Traits::of_name(scratch)
        } else {
            let (name, _, traits) = self.entry(index)?;
            scratch.extend_from_slice(name);
            traits
        };
        let name_length = scratch.len();
        cursor.text()?.append_to(scratch)?;
        traits.judge_value(scratch.get(name_length..).unwrap_or_default());
        Ok((name_length, traits))
    }
}
