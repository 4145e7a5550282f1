//! What an application writes to its standard error, line by line to the error log: with the site and the
//! script that it is about, bounded, and escaped by the log.

use super::about::About;
use tidegate_core::log;

/// The longest line, bytes; the rest of it is dropped.
const LONGEST: usize = 2 << 10;
/// Most lines of one request.
const MOST: u32 = 100;

/// The complaints of one request.
pub(super) struct Complaints {
    about: About,
    line: Vec<u8>,
    lines: u32,
}

impl Complaints {
    /// About a request. `about` is said in front of every line.
    pub(super) fn about(about: About) -> Complaints {
        Complaints { about, line: Vec::new(), lines: 0 }
    }

    /// Takes bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LONGEST.saturating_sub(self.line.len());
            self.line.extend_from_slice(text.get(..room).unwrap_or(text));
            if is_end {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }
        self.lines += 1;
        let text = String::from_utf8_lossy(line);
        if self.lines <= MOST {
            log::warn(format_args!("{}: {text}", self.about));
        } else if self.lines == MOST + 1 {
            log::warn(format_args!("{}: further lines of this request are left out", self.about));
        }
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        self.end_line();
    }
}
