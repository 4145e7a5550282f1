//! Queries as forms write them (`a=1&b=2`, the URL standard section 5.1): what a parameter is, decoded.
//!
//! Called where settings ask for a parameter. Decoding is for looking and for copying to another place, where the value is
//! encoded again; the query itself is passed on as it was sent.

use std::borrow::Cow;

/// The value of the first parameter of a name, decoded.
pub fn value<'q>(query: &'q str, name: &str) -> Option<Cow<'q, [u8]>> {
    query.split('&').filter(|pair| !pair.is_empty()).find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*decoded(key) == *name.as_bytes()).then(|| decoded(value))
    })
}

/// A name or a value without its encoding: `+` is a space, and a `%` that begins no escape is itself.
pub fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        out.push(match (*first, behind) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            (byte, _) => byte,
        });
    }
    Cow::Owned(out)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// A value so that it can stand in a query: everything but unreserved characters becomes `%XX`.
pub fn encode(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        for (query, name, expected) in [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&a=2&&a", "a", Some("1")),
            ("&&a&a=1", "a", Some("")),
            ("a%20b=c%2Fd+e", "a b", Some("c/d e")),
            ("a=%zz%4", "a", Some("%zz%4")),
            ("a=b=c", "a", Some("b=c")),
            ("", "a", None),
            ("", "", None),
            ("=1", "", Some("1")),
            ("a=%0d%0a%00", "a", Some("\r\n\0")),
        ] {
            let found = value(query, name);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{query} {name}");
        }
        for value in ["a b/c?d&e=f#\r\n\u{fc}", "~-._", ""] {
            let text = encode(value.as_bytes());
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)),
                "{text}"
            );
            assert_eq!(*decoded(&text), *value.as_bytes());
        }
    }
}
