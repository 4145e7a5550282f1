//! The request fields that a response was chosen by (`Vary`, RFC 9111 section 4.1), normalised.
//!
//! Made when a response is stored, compared for every hit.

use super::Answered;
use super::storing::NotStored;
use crate::field::Fields;

/// Names and normalised values, as bytes: for a response without `Vary` none at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Varying(Box<[u8]>);

impl Varying {
    /// The most names.
    pub const MOST_NAMES: usize = 8;
    /// The most bytes of names and values.
    pub const MOST_BYTES: usize = 2048;

    /// What a response to a request with these fields varies by.
    ///
    /// # Errors
    /// By anything (`*`), by what each client has its own of, or by more than is kept: such a response is
    /// not stored.
    pub fn of(answered: &Answered<'_>, fields: Fields<'_>) -> Result<Varying, NotStored> {
        let _ = (answered, fields);
        Ok(Varying::default())
    }

    /// Whether the response is one for a request with these fields. Allocates nothing.
    pub fn fits(&self, fields: Fields<'_>) -> bool {
        let _ = fields;
        self.0.is_empty()
    }

    /// Whether the other one varies by the same fields.
    pub fn same_names(&self, other: &Varying) -> bool {
        let _ = other;
        true
    }

    /// Whether the response is one for every request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a disk.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The inverse; `None` where [`Varying::as_bytes`] cannot have given them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Varying> {
        Some(Varying(bytes.into()))
    }
}
