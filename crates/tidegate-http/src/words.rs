//! Bytes looked at eight or sixteen at a time, for what every request goes through: its target, its names and values.

const ONES: u64 = all(1);
const HIGHS: u64 = all(0x80);

/// Eight times this byte.
#[inline]
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Marks bytes between two, both included, in a word of nothing but ASCII. Beside the marks, other bits are set.
#[inline]
const fn between(word: u64, first: u8, last: u8) -> u64 {
    word.wrapping_add(all(0x80 - first)) & !word.wrapping_add(all(0x7f - last))
}

/// Marks control bytes of ASCII, tabs among them. May mark a `~` behind a byte 0xff, and bytes above the first that is marked.
#[inline]
const fn controls(word: u64) -> u64 {
    (word.wrapping_sub(all(b' ')) | word.wrapping_add(ONES)) & !word & HIGHS
}

/// A word with small letters of ASCII for large ones.
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

/// Whether there is a control byte of ASCII, a tab among them, or perhaps a `~` behind a byte 0xff: who is told so looks again.
/// Where there are enough bytes, sixteen are looked at at once, in a form that compilers make a few instructions of.
#[inline]
pub fn has_control(bytes: &[u8]) -> bool {
    let is_marked =
        |block: &[u8; 16]| block.iter().fold(false, |any, byte| any | (*byte < 0x20) | (*byte == 0x7f));
    match bytes.last_chunk() {
        Some(last) => bytes.as_chunks().0.iter().any(is_marked) || is_marked(last),
        None => before_control(bytes) < bytes.len(),
    }
}

/// How many bytes stand in front of the first control byte of ASCII, a tab among them, or of a `~` behind a byte 0xff; all of
/// them where there is none.
#[inline]
pub fn before_control(bytes: &[u8]) -> usize {
    // The least mark is that of the first byte.
    let first = |marks: u64| (marks.trailing_zeros() / 8) as usize;
    let Some(last) = bytes.last_chunk::<8>() else { return first(controls(short(bytes))).min(bytes.len()) };
    for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        match controls(u64::from_le_bytes(*word)) {
            0 => {}
            marked => return 8 * at + first(marked),
        }
    }
    bytes.len() - 8 + first(controls(u64::from_le_bytes(*last)))
}

/// A word that is not full, filled up with letters.
#[inline(never)]
fn short(bytes: &[u8]) -> u64 {
    bytes.iter().rfold(all(b'a'), |word, byte| word << 8 | u64::from(*byte))
}

/// How many bytes stand in front of the first that is marked, looked at sixteen at a time. Those that fill no sixteen are left
/// out: they count as marked. For tests of a few comparisons without branches, which compilers carry out in vector registers.
#[inline(always)]
pub fn find_16(bytes: &[u8], is_marked: impl Fn(u8) -> bool) -> usize {
    let mut len = 0;
    for chunk in bytes.as_chunks::<16>().0 {
        let mut marks = [0; 16];
        for (mark, byte) in marks.iter_mut().zip(chunk) {
            *mark = if is_marked(*byte) { u8::MAX } else { 0 };
        }
        let first = (u128::from_le_bytes(marks).trailing_zeros() / 8) as usize;
        len += first;
        if first < 16 {
            break;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_byte_is_found_wherever_it_is() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = byte;
                    let expected = if byte.is_ascii_control() { at } else { len };
                    assert_eq!(before_control(&bytes), expected, "{byte:#x} at {at} of {len}");
                    assert_eq!(has_control(&bytes), byte.is_ascii_control(), "{byte:#x} at {at} of {len}");
                }
            }
        }
        assert_eq!(before_control(b""), 0);
        assert!(!has_control(b""));
    }

    #[test]
    fn every_neighbour_is_seen() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let bytes = [b'x', first, second, b'x', b'x', b'x', b'x', b'x', b'x'];
                let is_marked_wrongly = (first, second) == (0xff, b'~');
                let control = bytes.iter().position(u8::is_ascii_control);
                let expected = control.or(is_marked_wrongly.then_some(2)).unwrap_or(bytes.len());
                assert_eq!(before_control(&bytes), expected, "{first:#x} {second:#x}");
            }
        }
    }

    #[test]
    fn the_first_of_many_is_found_in_all_that_fills_sixteen() {
        for len in 0..70 {
            let full = len / 16 * 16;
            assert_eq!(find_16(&vec![b'x'; len], |byte| byte == b'!'), full);
            for first in 0..len {
                for second in first..len {
                    let mut bytes = vec![b'x'; len];
                    (bytes[second], bytes[first]) = (0xff, b'!');
                    let found = find_16(&bytes, |byte| (byte == b'!') | (byte == 0xff));
                    assert_eq!(found, first.min(full), "{first} and {second} of {len}");
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
}
