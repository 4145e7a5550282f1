//! Decimal numbers as HTTP writes them: `1*DIGIT`, without sign, space or separator.
//!
//! Called wherever a field carries a length, a position or a number of seconds. `str::parse` must not be
//! used for these: it takes a leading `+` (RFC 9110 section 8.6, RFC 9112 section 6.3).

/// Reads a number. `None` when `text` is empty, holds anything but digits, or is over `u64::MAX`.
/// Leading zeros are allowed, as the grammar allows them.
#[inline]
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Reads a number, taking what is over `u64::MAX` for `u64::MAX`. `None` when `text` is empty or holds
/// anything but digits.
pub(crate) fn parse_decimal_saturating(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(parse_decimal(text).unwrap_or(u64::MAX))
}

/// Appends `number` to `out`, without leading zeros.
#[inline]
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
