//! Bytes looked at eight at a time, for what every request goes through: its target, its path, its names and values.
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

/// Marks what is neither a letter of ASCII nor a hyphen: all but the rarest bytes of field names.
#[inline]
pub const fn beside_letters(word: u64) -> u64 {
    let rest = word & !HIGHS;
    (!letters(rest) & other_than(rest, b'-') | word) & HIGHS
}

/// Marks what is neither a letter or digit of ASCII nor a hyphen or dot: all but the rarest bytes of host names.
#[inline]
pub const fn beside_host_name(word: u64) -> u64 {
    let rest = word & !HIGHS;
    let digits = between(rest, b'0', b'9');
    (!letters(rest) & !digits & other_than(rest, b'-') & other_than(rest, b'.') | word) & HIGHS
}

/// Marks letters in a word of nothing but ASCII. Beside the marks, other bits are set.
#[inline]
const fn letters(word: u64) -> u64 {
    between(word | all(b' '), b'a', b'z')
}

/// Marks bytes between two, both included, in a word of nothing but ASCII. Beside the marks, other bits are set.
#[inline]
const fn between(word: u64, first: u8, last: u8) -> u64 {
    word.wrapping_add(all(0x80 - first)) & !word.wrapping_add(all(0x7f - last))
}

/// Marks bytes that are not this one in a word of nothing but ASCII. Beside the marks, other bits are set.
#[inline]
const fn other_than(word: u64, byte: u8) -> u64 {
    (word ^ all(byte)).wrapping_add(all(0x7f))
}

/// Whether there are control bytes of ASCII, tabs among them.
#[inline]
const fn control(word: u64) -> bool {
    equal(word, 0x7f) | below(word, 0x20) != 0
}

/// The same with small letters of ASCII for large ones.
#[inline]
const fn small(word: u64) -> u64 {
    let large = between(word & !HIGHS, b'A', b'Z');
    word | (large & !word & HIGHS) >> 2
}

/// What [`slice::eq_ignore_ascii_case`] says, for names: those of fields are compared by the dozen for each request.
/// Inlined, since one of them is most often known beforehand.
#[inline(always)]
pub fn eq_ignore_case(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let same =
        |one: &[u8; 8], other: &[u8; 8]| small(u64::from_le_bytes(*one)) == small(u64::from_le_bytes(*other));
    if let (Some(last), Some(other_last)) = (one.last_chunk(), other.last_chunk()) {
        let (words, others) = (one.as_chunks().0, other.as_chunks().0);
        return words.iter().zip(others).all(|(one, other)| same(one, other)) && same(last, other_last);
    }
    let (Some(one_word), Some(other_word)) = (both_ends(one), both_ends(other)) else {
        return one.eq_ignore_ascii_case(other);
    };
    small(one_word) == small(other_word)
}

/// A word of the first four and the last four of four to eight bytes.
#[inline]
fn both_ends(bytes: &[u8]) -> Option<u64> {
    let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
    Some(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)))
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

/// Whether there are control bytes of ASCII, tabs among them. Where there are enough bytes, sixteen are looked at at once, in a
/// form that compilers make a few instructions of.
#[inline]
pub fn has_control(bytes: &[u8]) -> bool {
    let is_marked =
        |block: &[u8; 16]| block.iter().fold(false, |any, byte| any | (*byte < 0x20) | (*byte == 0x7f));
    match bytes.last_chunk() {
        Some(last) => bytes.as_chunks().0.iter().any(is_marked) || is_marked(last),
        None => any(bytes, control),
    }
}

/// How many bytes stand in front of the first that `marks` marks; all of them where it marks none.
#[inline]
pub fn find(bytes: &[u8], marks: impl Fn(u64) -> u64) -> usize {
    // The least mark is that of the first byte, and no wrong one.
    let first = |marks: u64| (marks.trailing_zeros() / 8) as usize;
    let Some(last) = bytes.last_chunk::<8>() else { return first(marks(short(bytes))).min(bytes.len()) };
    for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        match marks(u64::from_le_bytes(*word)) {
            0 => {}
            marked => return 8 * at + first(marked),
        }
    }
    bytes.len() - 8 + first(marks(u64::from_le_bytes(*last)))
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
                    assert_eq!(has_control(&bytes), byte.is_ascii_control(), "{byte:#x} at {at} of {len}");
                    let is_letter = byte.is_ascii_alphabetic() || byte == b'-';
                    let letters = find(&bytes, beside_letters);
                    assert_eq!(letters, if is_letter { len } else { at }, "{byte:#x} at {at} of {len}");
                    let is_of_host = is_letter || byte.is_ascii_digit() || byte == b'.';
                    let host = find(&bytes, beside_host_name);
                    assert_eq!(host, if is_of_host { len } else { at }, "{byte:#x} at {at} of {len}");
                }
            }
        }
        assert!(!any(b"", |_| true) && !has_control(b""));
    }

    #[test]
    fn the_first_byte_is_found() {
        for len in 0..40 {
            let bytes = vec![b'x'; len];
            assert_eq!(find(&bytes, |word| equal(word, b'!')), len);
            for first in 0..len {
                for second in first..len {
                    let mut bytes = bytes.clone();
                    (bytes[second], bytes[first]) = (b' ', b'!');
                    let found = find(&bytes, |word| below(word, 0x22) | behind_visible(word));
                    assert_eq!(found, first, "{first} and {second} of {len}");
                }
            }
        }
    }

    #[test]
    fn names_are_compared_as_the_standard_library_does() {
        for len in 0..20 {
            let name: Vec<u8> = (0..len).map(|at| b"aZ-09_zA"[at % 8]).collect();
            assert!(eq_ignore_case(&name, &name.to_ascii_uppercase()));
            assert!(!eq_ignore_case(&name, &[&name[..], b"x"].concat()));
            for at in 0..len {
                for byte in 0..=255u8 {
                    for there in [name[at], b'k', b'K', b'@', b'[', b'`', b'{', 0xe1] {
                        let (mut one, mut other) = (name.clone(), name.clone());
                        (one[at], other[at]) = (byte, there);
                        let expected = one.eq_ignore_ascii_case(&other);
                        assert_eq!(
                            eq_ignore_case(&one, &other),
                            expected,
                            "{byte:#x} {there:#x} at {at} of {len}"
                        );
                    }
                }
            }
        }
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
