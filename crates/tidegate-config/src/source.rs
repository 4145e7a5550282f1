//! The text that settings were written in, and where in it a thing stands.
//!
//! Every diagnostic and every `Origin` points into a `Source`. Offsets are bytes; lines and columns are for
//! people: both from 1, columns counted in characters.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::settings::Origin;

/// The file that defaults are said to stand in.
pub(crate) const DEFAULT: &str = "<default>";

/// A file of settings: the name the operator knows it by, and its text.
#[derive(Debug, Clone)]
pub struct Source {
    /// The path as the operator wrote it, or what stands for one: `<command line>`.
    pub name: Arc<str>,
    /// The whole text.
    pub text: Arc<str>,
    /// Where bytes stood that are no UTF-8; the text has U+FFFD there.
    pub(crate) unread: Arc<[Range<usize>]>,
    /// Places whose line and column are known, in order; found when somebody first asks.
    marks: Arc<OnceLock<Vec<Mark>>>,
}

/// A place in a text: where a line begins, and every so often within a long one.
#[derive(Debug, Clone, Copy)]
struct Mark {
    offset: usize,
    line: usize,
    column: usize,
}

/// The most bytes between two marks, about.
const MARK_EVERY: usize = 1024;

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Eq for Source {}

impl Source {
    /// A source from a name and its text.
    pub fn new(name: &str, text: &str) -> Self {
        Self { name: name.into(), text: text.into(), unread: Arc::from([]), marks: Arc::default() }
    }

    /// A source from a name and the bytes of a file. What is no UTF-8 is marked, and all else can be read.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(bytes.len());
        let mut unread = Vec::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                let start = text.len();
                text.push(char::REPLACEMENT_CHARACTER);
                unread.push(start..text.len());
            }
        }
        Self { unread: unread.into(), ..Self::new(name, &text) }
    }

    /// Whether it is what an editor has saved as UTF-16: every other byte of its beginning is zero and nearly no byte between,
    /// or its mark is there.
    pub(crate) fn is_utf16(&self) -> bool {
        let is_marked = matches!(&*self.unread, [first, second, ..] if *first == (0..3) && *second == (3..6));
        let (mut zeros, mut others) = ([0usize; 2], 0usize);
        for (at, character) in self.text.chars().take(64).enumerate() {
            match character {
                '\0' => zeros[at % 2] += 1,
                _ => others += 1,
            }
        }
        let [most, least] = if zeros[0] > zeros[1] { zeros } else { [zeros[1], zeros[0]] };
        // Text of mostly ASCII letters, with what no editor puts between them.
        let is_pattern = most > 1 && least == 0 && most * 8 >= (most + others) * 3;
        let has_controls = self.text.chars().take(64).any(|character| {
            character != '\0' && character.is_control() && !matches!(character, '\t' | '\r' | '\n')
        });
        is_marked || is_pattern && !has_controls
    }

    /// Whether it holds what no text does: a program, an archive, a picture.
    pub(crate) fn is_binary(&self) -> bool {
        let (mut strange, mut all) = (0usize, 0usize);
        for character in self.text.chars().take(512) {
            let is_plain = matches!(character, '\t' | '\r' | '\n' | '\x1b');
            strange += usize::from(character.is_control() && !is_plain);
            all += 1;
        }
        strange > 4 && strange * 8 > all
    }

    /// Line and column of a byte offset, both from 1. An offset past the end is the end.
    pub fn position(&self, offset: usize) -> (u32, u32) {
        let offset = self.boundary(offset);
        let marks = self.marks.get_or_init(|| marks(&self.text));
        let behind = marks.partition_point(|mark| mark.offset <= offset);
        let mark = behind.checked_sub(1).and_then(|at| marks.get(at)).copied();
        let mark = mark.unwrap_or(Mark { offset: 0, line: 1, column: 1 });
        (saturate(mark.line), saturate(mark.column + self.text[mark.offset..offset].chars().count()))
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

    /// The range of what is written at `origin`: to the end of the line, or to where a block, or the next
    /// directive, begins; `None` where the text does not reach so far.
    pub fn written_at(&self, origin: &Origin) -> Option<Range<usize>> {
        let (line, column) = (usize::try_from(origin.line).ok()?, usize::try_from(origin.column).ok()?);
        let marks = self.marks.get_or_init(|| marks(&self.text));
        let behind = marks.partition_point(|mark| (mark.line, mark.column) <= (line, column));
        let mark = marks.get(behind.checked_sub(1)?).filter(|mark| mark.line == line)?;
        let (at, first) = self.text[mark.offset..].char_indices().nth(column - mark.column)?;
        let start = mark.offset + at;
        if first == '\n' || self.text[mark.offset..start].contains('\n') {
            return None;
        }
        let mut is_quoted = false;
        let behind = self.text[start..].find(|character| {
            is_quoted ^= character == '"';
            character == '\n' || !is_quoted && matches!(character, '{' | '}' | ';')
        });
        let written = self.text[start..][..behind.unwrap_or(self.text.len() - start)].trim_end();
        Some(start..start + written.len())
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

fn marks(text: &str) -> Vec<Mark> {
    let mut last = Mark { offset: 0, line: 1, column: 1 };
    let mut marks = vec![last];
    let mut column = 1;
    for (offset, character) in text.char_indices() {
        if offset - last.offset >= MARK_EVERY {
            last = Mark { offset, column, ..last };
            marks.push(last);
        }
        column += 1;
        if character == '\n' {
            column = 1;
            last = Mark { offset: offset + 1, line: last.line + 1, column };
            marks.push(last);
        }
    }
    marks
}

fn saturate(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        let source = Source::from_bytes("a", b"ab\xffc\xe2\x82");
        assert_eq!(&*source.text, "ab\u{fffd}c\u{fffd}");
        assert_eq!(*source.unread, [2..5, 6..9]);
    }

    #[test]
    fn utf16_is_told_from_broken_utf8() {
        let text = "listen \":80\"\nsite { root \".\" }\n";
        let wide = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let (little, big) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
        for bytes in [[&b"\xff\xfe"[..], &little].concat(), [&b"\xfe\xff"[..], &big].concat(), little, big] {
            assert!(Source::from_bytes("a", &bytes).is_utf16());
        }
        let program =
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0\x01\0\0\0\xd0\x1d\0\0\0\0\0\0@\0\0\0\0\0\0\0";
        let archive = b"PK\x03\x04\x14\0\0\0\x08\0\0\0!\0\0\0";
        assert!(Source::from_bytes("a", program).is_binary() && Source::from_bytes("a", archive).is_binary());
        for bytes in
            [text.as_bytes(), b"", b"\xff", b"a\0", b"listen \"\xfe\xff\"", program, archive, &[0; 64]]
        {
            assert!(!Source::from_bytes("a", bytes).is_utf16(), "{bytes:?}");
        }
        let parsed = crate::syntax::parse(&Source::from_bytes("a", &wide(u16::to_le_bytes)));
        assert_eq!(parsed.diagnostics.len(), 1);
    }

    #[test]
    fn positions_count_characters_from_one() {
        let source = Source::new("a", "é b\nxé\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(3), (1, 3));
        assert_eq!(source.position(5), (2, 1));
        assert_eq!(source.position(7), (2, 2), "inside a character is its beginning");
        assert_eq!(source.position(99), (3, 1));
        assert_eq!(source.line_at(6), ("xé", 5));
        let long = Source::new("a", &format!("a\n{}b\nc", "é".repeat(5000)));
        assert_eq!(long.position(2 + 2 * 700), (2, 701));
        assert_eq!(long.position(2 + 2 * 5000), (2, 5001));
        assert_eq!(long.position(4 + 2 * 5000), (3, 1));
    }
}
