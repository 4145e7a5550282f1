//! The fields of a message that is sent again and again, prepared once for all connections.
//!
//! Made where a message is kept (`core/response.rs`), sent by [`Encoder::block`](super::Encoder::block).

use super::super::field_kind::is_connection_specific;
use super::encode::{StaticName, push_literal};
use super::lookup::FieldKey;
use super::static_table::index_of;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_http::FieldLines;

/// Fields that are kept for HTTP/2: encoded for a connection that knows nothing of them, and with what it takes to find
/// them in the table of one that does.
#[derive(Debug, Default)]
pub struct FieldBlock {
    /// No two blocks of the process have the same fields under one number; 0 is a block without fields.
    id: u64,
    bytes: Vec<u8>,
    /// Names and values.
    text: Vec<u8>,
    fields: Vec<BlockField>,
}

/// A field of a block. Each begins where the one before ends.
#[derive(Debug, Clone, Copy)]
struct BlockField {
    key: FieldKey,
    static_name: Option<StaticName>,
    name: u32,
    value: u32,
    encoded: u32,
}

/// A field, and its encoding without any table but the static one.
pub(super) struct PreparedField<'b> {
    pub key: FieldKey,
    pub static_name: Option<StaticName>,
    pub name: &'b [u8],
    pub value: &'b [u8],
    pub literal: &'b [u8],
}

impl FieldBlock {
    /// The lines of a head. Those that speak of an HTTP/1 connection are left out.
    pub fn of_lines(lines: &FieldLines) -> FieldBlock {
        let mut block = FieldBlock::default();
        lines.iter().for_each(|(name, value)| block.push(name, value));
        block
    }

    /// Appends a field. A block that changes is another block.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = name.to_ascii_lowercase();
        let name = name.as_bytes();
        if is_connection_specific(name) {
            return;
        }
        self.id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let static_name = index_of(name);
        let key = match static_name {
            Some(index) => FieldKey::of_static_name(index, value),
            None => FieldKey::of_name(name, value),
        };
        let start = self.bytes.len();
        push_literal(&mut self.bytes, static_name, name, value);
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.fields.push(BlockField {
            key,
            static_name,
            name: name.len() as u32,
            value: value.len() as u32,
            encoded: (self.bytes.len() - start) as u32,
        });
    }

    /// The fields, encoded for a peer that knows none of them.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which block it is.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = PreparedField<'_>> {
        let (mut text, mut bytes) = (self.text.as_slice(), self.bytes.as_slice());
        self.fields.iter().map_while(move |field| {
            let name = text.split_off(..field.name as usize)?;
            let value = text.split_off(..field.value as usize)?;
            let literal = bytes.split_off(..field.encoded as usize)?;
            Some(PreparedField { key: field.key, static_name: field.static_name, name, value, literal })
        })
    }
}
