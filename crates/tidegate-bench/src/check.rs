//! What a right answer is: `--expect status=200,length=…,regex=…,sha256=…`. Only what is demanded costs
//! anything; without a demand no byte of a body is looked at.

use crc32fast::Hasher;
use regex::bytes::{Regex, RegexBuilder};
use sha2::{Digest, Sha256};
use std::ops::RangeInclusive;
use std::sync::Arc;
use thiserror::Error;

/// Why a demand cannot be understood. The argument is at fault.
#[derive(Debug, Error)]
pub enum ExpectError {
    /// No such check.
    #[error("`{0}` is no check; there are status=, length=, regex=, sha256=")]
    Unknown(String),
    /// Not 200, 2xx or 200-299.
    #[error("`{0}` is no status; write 200, 2xx or 200-299, several with |")]
    Status(String),
    /// Not a number of bytes.
    #[error("`{0}` is no length in bytes")]
    Length(String),
    /// The expression.
    #[error("the expression cannot be used: {0}")]
    Regex(#[from] regex::Error),
    /// Not 64 hexadecimal digits.
    #[error("`{0}` is no SHA-256 in 64 hexadecimal digits")]
    Sha256(String),
}

/// What every answer must be.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// Empty: below 400.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Bytes of the body.
    pub length: Option<u64>,
    /// Must match somewhere in the first MiB of the body.
    pub regex: Option<Regex>,
    /// Of the whole body.
    pub sha256: Option<[u8; 32]>,
    /// The body, byte by byte at each position.
    pub content: Option<Arc<[u8]>>,
    /// Take the CRC-32 of every body, so that all can be compared with each other.
    pub takes_crc: bool,
}

/// A regular expression sees so much of a body.
const REGEX_WINDOW: usize = 1 << 20;

impl Expectation {
    /// Adds what `status=200,length=3,regex=a,b` demands. `regex=` takes the rest, commas included.
    ///
    /// # Errors
    /// [`ExpectError`].
    pub fn demand(&mut self, text: &str) -> Result<(), ExpectError> {
        let mut rest = text;
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=').ok_or_else(|| ExpectError::Unknown(rest.to_owned()))?;
            if name == "regex" {
                self.regex = Some(RegexBuilder::new(value).unicode(false).build()?);
                return Ok(());
            }
            let (value, behind) = value.split_once(',').unwrap_or((value, ""));
            match name {
                "status" => {
                    for part in value.split('|') {
                        self.statuses
                            .push(status(part).ok_or_else(|| ExpectError::Status(value.to_owned()))?);
                    }
                }
                "length" => {
                    self.length = Some(value.parse().map_err(|_| ExpectError::Length(value.to_owned()))?);
                }
                "sha256" => {
                    self.sha256 = Some(digest(value).ok_or_else(|| ExpectError::Sha256(value.to_owned()))?);
                }
                _ => return Err(ExpectError::Unknown(name.to_owned())),
            }
            rest = behind;
        }
        Ok(())
    }

    /// Whether the status is as demanded.
    #[inline]
    pub fn allows_status(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            return status < 400;
        }
        self.statuses.iter().any(|range| range.contains(&status))
    }

    /// Whether bodies must be looked at.
    pub fn reads_bodies(&self) -> bool {
        self.regex.is_some() || self.sha256.is_some() || self.content.is_some() || self.takes_crc
    }

    /// What to keep of one body while it comes.
    pub(crate) fn begin(&self) -> BodyCheck {
        BodyCheck {
            sha256: self.sha256.map(|_| Sha256::new()),
            crc: self.takes_crc.then(Hasher::new),
            window: Vec::new(),
            position: 0,
            is_equal: true,
            is_counted: false,
        }
    }
}

/// One body under check. Holds the running digests, 4 to 120 bytes of state, and bytes only for an expression.
pub(crate) struct BodyCheck {
    sha256: Option<Sha256>,
    crc: Option<Hasher>,
    window: Vec<u8>,
    position: usize,
    is_equal: bool,
    /// It is wrong, and that has been counted.
    pub is_counted: bool,
}

impl BodyCheck {
    pub fn update(&mut self, expected: &Expectation, data: &[u8]) {
        if let Some(digest) = &mut self.sha256 {
            digest.update(data);
        }
        if let Some(crc) = &mut self.crc {
            crc.update(data);
        }
        if let Some(content) = &expected.content {
            let end = self.position.saturating_add(data.len());
            self.is_equal &= content.get(self.position..end) == Some(data);
            self.position = end;
        }
        if expected.regex.is_some() {
            let room = REGEX_WINDOW.saturating_sub(self.window.len()).min(data.len());
            self.window.extend_from_slice(data.get(..room).unwrap_or_default());
        }
    }

    /// Whether bytes have come that are not those of the content at their place: however the body goes on, it is not right.
    pub fn is_wrong(&self) -> bool {
        !self.is_equal
    }

    /// Whether the body was as demanded, and its CRC-32 where that was taken.
    pub fn finish(self, expected: &Expectation) -> (bool, Option<u32>) {
        let is_right = self.is_equal
            && expected.content.as_ref().is_none_or(|content| content.len() == self.position)
            && self.sha256.is_none_or(|digest| Some(<[u8; 32]>::from(digest.finalize())) == expected.sha256)
            && expected.regex.as_ref().is_none_or(|regex| regex.is_match(&self.window));
        (is_right, self.crc.map(Hasher::finalize))
    }
}

fn status(text: &str) -> Option<RangeInclusive<u16>> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some(class * 100..=class * 100 + 99);
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high): (u16, u16) = (low.parse().ok()?, high.parse().ok()?);
    (100 <= low && low <= high && high <= 599).then_some(low..=high)
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in out.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(demand: &str, pieces: &[&[u8]]) -> bool {
        let mut expected = Expectation::default();
        expected.demand(demand).unwrap();
        let mut check = expected.begin();
        for piece in pieces {
            check.update(&expected, piece);
        }
        check.finish(&expected).0
    }

    #[test]
    fn demands() {
        let hello = "sha256=2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let table = [
            (hello, true),
            ("sha256=0000000000000000000000000000000000000000000000000000000000000000", false),
            ("regex=^hel+o$", true),
            ("regex=h,e", false),
            ("status=200,regex=lo", true),
        ];
        for (demand, expected) in table {
            assert_eq!(judge(demand, &[b"hel", b"lo"]), expected, "{demand}");
        }
        let mut expected = Expectation::default();
        assert!(expected.allows_status(302) && !expected.allows_status(404));
        expected.demand("status=2xx|404,length=5").unwrap();
        assert!(expected.allows_status(204) && expected.allows_status(404) && !expected.allows_status(500));
        assert_eq!((expected.length, expected.reads_bodies()), (Some(5), false));
    }

    #[test]
    fn content_is_compared_by_position() {
        let expected =
            Expectation { content: Some(b"abcdef"[..].into()), takes_crc: true, ..Default::default() };
        let table: [(&[&[u8]], bool); 4] = [
            (&[b"abc", b"def"], true),
            (&[b"abc"], false),
            (&[b"abcdefg"], false),
            (&[b"abx", b"def"], false),
        ];
        for (pieces, right) in table {
            let mut check = expected.begin();
            pieces.iter().for_each(|piece| check.update(&expected, piece));
            // What is merely not complete may still become right.
            assert_eq!(check.is_wrong(), !right && *pieces != [b"abc"]);
            let (is_right, crc) = check.finish(&expected);
            assert_eq!((is_right, crc), (right, Some(crc32fast::hash(&pieces.concat()))));
        }
    }

    #[test]
    fn bad_demands_say_why() {
        for (demand, part) in [
            ("status=20", "no status"),
            ("status=9xx", "no status"),
            ("length=x", "no length"),
            ("sha256=12", "no SHA-256"),
            ("regex=(", "cannot be used"),
            ("colour=red", "is no check"),
            ("status", "is no check"),
        ] {
            let message = Expectation::default().demand(demand).unwrap_err().to_string();
            assert!(message.contains(part), "{demand}: {message}");
        }
    }
}
