//! Field lines (RFC 9110 section 5): borrowed from a request, or owned for a response.
//!
//! Called by everything that reads or writes a head. `lines` holds what is to be sent, `syntax` the
//! grammar that many fields share: tokens, lists, parameters, quoted strings.

mod lines;
mod syntax;

use crate::words::eq_ignore_case;
pub use lines::FieldLines;
pub use syntax::{
    Elements, Parameter, ParameterError, Parameters, TCHAR, is_tchar, is_token, list_elements, parameters,
    semicolon_parts, trim, unquote,
};

/// One field line. The name is a valid token, the value has no leading or trailing white space and no
/// CR, LF or NUL: whoever builds one has checked that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// As sent; compare without regard to case.
    pub name: &'a str,
    /// Usually ASCII, but any byte from 0x80 up may occur.
    pub value: &'a [u8],
}

impl Field<'_> {
    /// Whether it has this name, whatever the case of its letters.
    #[inline(always)]
    pub fn is(&self, name: &str) -> bool {
        eq_ignore_case(self.name.as_bytes(), name.as_bytes())
    }
}

/// The field lines of a message, in the order in which they came. Cheap to copy.
///
/// A look-up is a scan: heads are short and bounded, and a scan cannot be made to collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields<'a>(&'a [Field<'a>]);

impl<'a> Fields<'a> {
    /// Wraps the lines that a codec has read.
    #[inline]
    pub const fn new(lines: &'a [Field<'a>]) -> Fields<'a> {
        Fields(lines)
    }

    /// The value of the first line with this name.
    #[inline]
    pub fn first(self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|field| field.is(name)).map(|field| field.value)
    }

    /// The value, where there is exactly one line with this name. For fields that hold one thing
    /// (`If-Range`, `Range`): a second line makes them meaningless.
    #[inline]
    pub fn single(self, name: &str) -> Option<&'a [u8]> {
        let mut lines = self.0.iter();
        let line = lines.find(|field| field.is(name))?;
        (!lines.any(|field| field.is(name))).then_some(line.value)
    }

    /// The values of all lines with this name, in order.
    #[inline]
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.0.iter().filter(move |field| field.is(name)).map(|field| field.value)
    }

    /// The elements of a list-based field: those of each line in order, as if the lines had been joined
    /// with commas (RFC 9110 sections 5.3 and 5.6.1). See [`list_elements`].
    #[inline]
    pub fn elements(self, name: &str) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.all(name).flat_map(list_elements)
    }

    /// Whether there is a line with this name.
    #[inline]
    pub fn contains(self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// All lines, in order.
    #[inline]
    pub fn iter(self) -> std::slice::Iter<'a, Field<'a>> {
        self.0.iter()
    }

    /// The number of lines.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there is no line.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> From<&'a [Field<'a>]> for Fields<'a> {
    #[inline]
    fn from(lines: &'a [Field<'a>]) -> Fields<'a> {
        Fields(lines)
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = &'a Field<'a>;
    type IntoIter = std::slice::Iter<'a, Field<'a>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
