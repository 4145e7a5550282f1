//! Bytes looked at eight at a time, for what every request goes through: its target and its path.
//!
//! A test for bytes is a function from a word of eight to marks: not 0 where one of them is what is looked for. Marks
//! of single bytes may be wrong above the first that is right, so all that they say is whether there is any.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// What fills up a word that is not full: no test marks it.
const FILL: u64 = all(b'a');

/// Eight times this byte.
#[inline]
pub const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Marks bytes that are 0.
#[inline]
pub const fn zero(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Marks bytes that are this one.
#[inline]
pub const fn equal(word: u64, byte: u8) -> u64 {
    zero(word ^ all(byte))
}

/// Marks bytes below a bound of at most 128.
#[inline]
pub const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(all(bound)) & !word & HIGHS
}

/// Marks what comes behind the last visible byte of ASCII.
#[inline]
pub const fn behind_visible(word: u64) -> u64 {
    (word.wrapping_add(ONES) | word) & HIGHS
}

/// Whether there are control bytes of ASCII, tabs among them.
#[inline]
pub const fn control(word: u64) -> bool {
    equal(word, 0x7f) | below(word, 0x20) != 0
}

/// Calls `test` with words, in order, that together hold all of `bytes`, each byte at the place of its significance
/// (the first is the least); the last two may overlap. `true` where it says so of any.
#[inline]
pub fn any(bytes: &[u8], mut test: impl FnMut(u64) -> bool) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else { return !bytes.is_empty() && test(short(bytes)) };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().any(|word| test(u64::from_le_bytes(*word)))
        || (!rest.is_empty() && test(u64::from_le_bytes(*last)))
}

/// A word that is not full.
#[inline(never)]
fn short(bytes: &[u8]) -> u64 {
    bytes.iter().rfold(FILL, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_seen_wherever_it_is() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = byte;
                    let bad = any(&bytes, |word| below(word, 0x21) | behind_visible(word) != 0);
                    assert_eq!(bad, !byte.is_ascii_graphic(), "{byte:#x} at {at} of {len}");
                    assert_eq!(any(&bytes, |word| zero(word) != 0), byte == 0, "{byte:#x} at {at} of {len}");
                    assert_eq!(any(&bytes, |word| equal(word, b'?') != 0), byte == b'?');
                    assert_eq!(any(&bytes, control), byte.is_ascii_control(), "{byte:#x} at {at} of {len}");
                }
            }
        }
        assert!(!any(b"", |_| true));
    }

    #[test]
    fn every_neighbour_is_seen() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let bytes = [b'x', first, second, b'x', b'x', b'x', b'x', b'x', b'x'];
                let expected = bytes.iter().any(|byte| !byte.is_ascii_graphic());
                let found = any(&bytes, |word| below(word, 0x21) | behind_visible(word) != 0);
                assert_eq!(found, expected, "{first:#x} {second:#x}");
                let expected = bytes.contains(&b'?');
                assert_eq!(any(&bytes, |word| equal(word, b'?') != 0), expected, "{first:#x} {second:#x}");
            }
        }
    }
}
