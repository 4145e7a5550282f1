//! Weights (RFC 9110 section 12.4.2): how much a client likes what it lists.
//!
//! Called by the negotiation of content codings and of media types.

use crate::field::parameters;

/// Reads a weight, in thousandths: `0`, `1`, or a `0.` with up to three digits, a `1.` with up to three
/// zeros. `None` for anything else.
pub fn qvalue(text: &[u8]) -> Option<u16> {
    let (&whole, rest) = text.split_first()?;
    let fraction = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut thousandths = 0u16;
    for position in 0..3 {
        let digit = match fraction.get(position) {
            Some(byte) if byte.is_ascii_digit() => byte - b'0',
            Some(_) => return None,
            None => 0,
        };
        thousandths = thousandths * 10 + u16::from(digit);
    }
    match (whole, thousandths) {
        (b'0', _) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

/// Splits `gzip;q=0.5` into the thing and its weight in thousandths; 1000 where none is given. `None`
/// when a parameter is malformed: what the client meant cannot be known, so the element does not count.
pub fn weighted(element: &[u8]) -> Option<(&[u8], u16)> {
    let (head, rest) = parameters(element);
    for parameter in rest {
        let parameter = parameter.ok()?;
        if parameter.name.eq_ignore_ascii_case("q") {
            return Some((head, qvalue(parameter.raw())?));
        }
    }
    Some((head, 1000))
}
