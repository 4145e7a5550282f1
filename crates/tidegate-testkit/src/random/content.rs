//! Content whose every 32 bytes say whose they are and where they belong: `NONCE:OFFSET`, both in hexadecimal,
//! and a line end.
//!
//! What of one answer gets into another is seen at its first byte, and it is said whose it was.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Bytes of one cell.
const CELL: u64 = 32;
/// Nonces of files have this bit, those of requests have not.
const FILE: u64 = 1 << 63;
/// What a request sends has the nonce of its answer with this bit changed.
const UPLOAD: u64 = 1 << 62;

/// Whose content it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nonce(pub(super) u64);

impl Nonce {
    /// Of the request with this number in the run of a seed.
    pub(super) fn of_request(seed: u64, number: u64) -> Nonce {
        Nonce(((seed & 0x3fff_ffff) << 32 | number & 0xffff_ffff) & !(FILE | UPLOAD))
    }

    pub(super) fn of_file(path: &str) -> Nonce {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        Nonce(hasher.finish() | FILE)
    }

    /// Of the content that goes with the request.
    pub(super) fn upload(self) -> Nonce {
        Nonce(self.0 ^ UPLOAD)
    }

    pub(super) fn is_of_file(self) -> bool {
        self.0 & FILE != 0
    }

    fn describe(self) -> String {
        let kind = match self.0 {
            nonce if nonce & FILE != 0 => "of a file",
            nonce if nonce & UPLOAD != 0 => "sent with a request",
            _ => "of a request",
        };
        format!("{:016x} ({kind})", self.0)
    }
}

fn cell(nonce: Nonce, number: u64) -> [u8; CELL as usize] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut cell = [b'\n'; CELL as usize];
    for (at, byte) in cell[..16].iter_mut().enumerate() {
        *byte = DIGITS[(nonce.0 >> (60 - 4 * at) & 15) as usize];
    }
    cell[16] = b':';
    let offset = number * CELL;
    for (at, byte) in cell[17..31].iter_mut().enumerate() {
        *byte = DIGITS[(offset >> (52 - 4 * at) & 15) as usize];
    }
    cell
}

/// Appends `count` bytes of the content from `offset` on.
pub(super) fn append(out: &mut Vec<u8>, nonce: Nonce, offset: u64, count: u64) {
    let (mut at, end) = (offset, offset + count);
    while at < end {
        let (number, within) = (at / CELL, (at % CELL) as usize);
        let cell = cell(nonce, number);
        let take = (cell.len() - within).min((end - at) as usize);
        out.extend_from_slice(&cell[within..within + take]);
        at += take as u64;
    }
}

/// The first `length` bytes of the content.
pub(super) fn content(nonce: Nonce, length: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(length as usize);
    append(&mut out, nonce, 0, length);
    out
}

/// Compares content as it comes.
#[derive(Debug, Clone)]
pub(super) struct Check {
    nonce: Nonce,
    pub(super) offset: u64,
}

impl Check {
    pub(super) fn new(nonce: Nonce) -> Check {
        Check { nonce, offset: 0 }
    }

    /// From an offset on.
    pub(super) fn from(nonce: Nonce, offset: u64) -> Check {
        Check { nonce, offset }
    }

    /// The next bytes; an error says what is wrong with them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, within) = (self.offset / CELL, (self.offset % CELL) as usize);
            let cell = cell(self.nonce, number);
            let take = (cell.len() - within).min(rest.len());
            if rest[..take] != cell[within..within + take] {
                return Err(self.mismatch(rest));
            }
            rest = &rest[take..];
            self.offset += take as u64;
        }
        Ok(())
    }

    fn mismatch(&self, found: &[u8]) -> String {
        let shown = String::from_utf8_lossy(&found[..found.len().min(96)]).into_owned();
        let whose = find(found).map_or_else(String::new, |nonce| {
            let whose =
                if nonce == self.nonce { "its own, out of place".to_owned() } else { nonce.describe() };
            format!("; that is content {whose}")
        });
        format!("content {} differs from byte {} on: {shown:?}{whose}", self.nonce.describe(), self.offset)
    }
}

/// Whose content is first in the bytes, if there is a whole cell of any.
pub(super) fn find(bytes: &[u8]) -> Option<Nonce> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let cell = bytes.windows(CELL as usize).find(|cell| {
        cell[16] == b':'
            && cell[31] == b'\n'
            && cell[..16].iter().all(is_digit)
            && cell[17..31].iter().all(is_digit)
    })?;
    u64::from_str_radix(std::str::from_utf8(&cell[..16]).ok()?, 16).ok().map(Nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_checked_in_any_pieces_and_a_leak_is_named() {
        let nonce = Nonce::of_request(1, 2);
        let bytes = content(nonce, 1000);
        for size in [1, 7, 32, 999] {
            let mut check = Check::new(nonce);
            bytes.chunks(size).try_for_each(|piece| check.take(piece)).unwrap();
            assert_eq!(check.offset, 1000);
        }
        let other = content(Nonce::of_request(1, 3), 64);
        let mut check = Check::new(nonce);
        check.take(&bytes[..40]).unwrap();
        let said = check.take(&other).unwrap_err();
        assert!(said.contains("from byte 40 on") && said.contains("0000000100000003"), "{said}");
        assert!(Check::new(nonce).take(&bytes[1..]).is_err());
    }
}
