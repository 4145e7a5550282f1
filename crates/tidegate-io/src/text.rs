//! Bytes as text.

/// The text that these bytes are, where all of them are ASCII. For what is short and comes with every request: to find
/// out whether bytes are UTF-8 takes several times as long.
#[inline]
pub fn ascii(bytes: &[u8]) -> Option<&str> {
    if !bytes.is_ascii() {
        return None;
    }
    // SAFETY: ASCII is UTF-8.
    #[allow(unsafe_code)]
    Some(unsafe { std::str::from_utf8_unchecked(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ascii() {
        for bytes in [&b""[..], b"a", b"localhost", b"a longer name than a word of eight or sixteen"] {
            assert_eq!(ascii(bytes), Some(std::str::from_utf8(bytes).unwrap()));
            for at in 0..bytes.len() {
                let mut bytes = bytes.to_vec();
                bytes[at] |= 0x80;
                assert_eq!(ascii(&bytes), None);
            }
        }
    }
}
