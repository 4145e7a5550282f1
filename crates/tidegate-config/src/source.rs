//! The text that settings were written in, and where in it a thing stands.
//!
//! Every diagnostic and every `Origin` points into a `Source`. Offsets are bytes; lines and columns are for
//! people: both from 1, columns counted in characters.

use std::ops::Range;
use std::sync::Arc;

use crate::settings::Origin;

/// A file of settings: the name the operator knows it by, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The path as the operator wrote it, or what stands for one: `<command line>`.
    pub name: Arc<str>,
    /// The whole text.
    pub text: Arc<str>,
}

impl Source {
    /// A source from a name and its text.
    pub fn new(name: &str, text: &str) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Line and column of a byte offset, both from 1. An offset past the end is the end.
    pub fn position(&self, offset: usize) -> (u32, u32) {
        let before = &self.text[..self.boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count();
        let column = before[line_start..].chars().count();
        (saturate(line + 1), saturate(column + 1))
    }

    /// The line that holds a byte offset, without its line end, and the offset of its first byte.
    pub fn line_at(&self, offset: usize) -> (&str, usize) {
        let offset = self.boundary(offset);
        let start = self.text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        (self.text[start..end].trim_end_matches('\r'), start)
    }

    /// The origin of what begins at a byte offset.
    pub fn origin(&self, offset: usize) -> Origin {
        let (line, column) = self.position(offset);
        Origin { file: self.name.clone(), line, column }
    }

    /// The text of a range; empty when the range does not fit the text.
    pub fn slice(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or("")
    }

    /// The nearest character boundary at or before an offset.
    fn boundary(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

fn saturate(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let source = Source::new("a", "é b\nxé\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(3), (1, 3));
        assert_eq!(source.position(5), (2, 1));
        assert_eq!(source.position(7), (2, 2), "inside a character is its beginning");
        assert_eq!(source.position(99), (3, 1));
        assert_eq!(source.line_at(6), ("xé", 5));
    }
}
