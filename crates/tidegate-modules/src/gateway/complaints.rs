//! What an application writes to its standard error, line by line to its log: with the site and the script that it is
//! about, at its level, and escaped by the log. What comes together is written together, so that a trace stays whole.

use super::about::About;
use tidegate_core::log::{self, Level};

/// The longest line, bytes; a longer one goes on in the next.
const LONGEST: usize = 16 << 10;

/// The complaints of one request.
#[derive(Default)]
pub(super) struct Complaints {
    /// Said in front of every line. Most requests have none, and are not put into words.
    about: Option<About>,
    lines: Lines,
}

impl Complaints {
    /// Says what request they are about, before there are any.
    pub(super) fn are_about(&mut self, about: impl FnOnce() -> About) {
        self.about.get_or_insert_with(about);
    }

    /// Takes bytes. Who they are about has been said.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let complete = self.lines.push(bytes);
        self.write(&complete);
    }

    fn write(&self, lines: &[(Level, String)]) {
        debug_assert!(self.about.is_some() || lines.is_empty(), "invariant: it was said what they are about");
        if let Some(about) = &self.about {
            log::application(about.application(), about, lines);
        }
    }
}

impl Drop for Complaints {
    #[inline]
    fn drop(&mut self) {
        if self.about.is_some() {
            let rest = self.lines.end();
            self.write(&rest);
        }
    }
}

/// Bytes to lines with their levels.
#[derive(Debug)]
pub(super) struct Lines {
    line: Vec<u8>,
    level: Level,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { line: Vec::new(), level: Level::Warn }
    }
}

impl Lines {
    /// Takes bytes; the lines that they complete, empty ones aside.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<(Level, String)> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (mut text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            while self.line.len() + text.len() > LONGEST {
                let (front, rest) = text.split_at(LONGEST.saturating_sub(self.line.len()));
                self.line.extend_from_slice(front);
                complete.extend(self.end());
                text = rest;
            }
            self.line.extend_from_slice(text);
            if is_end {
                complete.extend(self.end());
            }
        }
        complete
    }

    /// What has no line end.
    pub(super) fn end(&mut self) -> Vec<(Level, String)> {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(line).into_owned();
        self.level = log::level_of(&text, self.level);
        vec![(self.level, text)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_line_goes_on_in_the_next_and_the_last_needs_no_end() {
        let mut lines = Lines::default();
        let text = "x".repeat(LONGEST * 2 + 7);
        let got = lines.push(format!("a\n\n{text}\nlast").as_bytes());
        let lengths: Vec<usize> = got.iter().map(|(_, line)| line.len()).collect();
        assert_eq!(lengths, [1, LONGEST, LONGEST, 7]);
        assert_eq!(lines.end(), [(Level::Warn, "last".to_owned())]);
        assert_eq!(lines.end(), []);
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_lines(
            text in "[a-c \n#]{0,200}",
            cuts in proptest::collection::vec(0..200usize, 0..6),
        ) {
            let mut whole = Lines::default();
            let mut expected = whole.push(text.as_bytes());
            expected.extend(whole.end());
            let (mut parts, mut got, mut at) = (Lines::default(), Vec::new(), 0);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            for cut in cuts {
                got.extend(parts.push(&text.as_bytes()[at..cut]));
                at = cut;
            }
            got.extend(parts.end());
            prop_assert_eq!(got, expected);
        }
    }
}
