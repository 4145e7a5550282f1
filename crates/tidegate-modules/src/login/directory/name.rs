//! Distinguished names as text (RFC 4514), as far as groups need them: what lies below what, and what one begins with.
//!
//! What cannot be read lies below nothing and is called nothing: somebody who belongs to it belongs to no group.

/// Whether a name lies below another, at any depth.
pub fn is_below(dn: &str, base: &str) -> bool {
    let (dn, base) = (plain(dn), plain(base));
    let (Some(dn), Some(base)) = (dn, base) else { return false };
    !base.is_empty() && dn.len() > base.len() && dn.ends_with(&base)
}

/// What the first part of a name says, where that is one attribute of this name: `admins` of `cn=admins,ou=groups`.
pub fn first_value(dn: &str, attribute: &str) -> Option<String> {
    let first = parts(dn)?.into_iter().next()?;
    let (name, value) = first.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case(attribute) {
        return None;
    }
    unescaped(value)
}

/// The parts of a name in a form in which the same parts are the same text.
fn plain(dn: &str) -> Option<Vec<String>> {
    let parts = parts(dn)?.into_iter().map(|part| {
        let (name, value) = part.split_once('=')?;
        Some(format!("{}={}", name.trim().to_lowercase(), unescaped(value)?.to_lowercase()))
    });
    parts.collect()
}

/// What stands between commas; `None` for what has more than one attribute in a part, and for quoted text (RFC 2253).
fn parts(dn: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, byte) in dn.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'+' | b'"' | b';' => return None,
            b',' => {
                parts.push(&dn[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&dn[start..]);
    (!is_escaped).then_some(parts)
}

/// A value as it is meant.
fn unescaped(value: &str) -> Option<String> {
    let value = value.trim_start();
    if value.is_empty() || value.starts_with('#') {
        return None; // nothing, or BER
    }
    let mut rest = value.bytes().peekable();
    let (mut bytes, mut kept) = (Vec::with_capacity(value.len()), 0);
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            kept = if byte == b' ' { kept } else { bytes.len() };
            continue;
        }
        let first = rest.next()?;
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let second = rest.peek().copied().and_then(digit);
        match (digit(first), second) {
            (Some(high), Some(low)) => {
                rest.next();
                bytes.push(high << 4 | low);
            }
            _ => bytes.push(first),
        }
        kept = bytes.len();
    }
    bytes.truncate(kept); // spaces at the end that are not escaped
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below() {
        for (dn, base, expected) in [
            ("cn=admins,ou=groups,dc=a", "ou=groups,dc=a", true),
            ("CN=Admins, OU=Groups, DC=a", "ou=groups,dc=a", true),
            ("cn=x,ou=y,ou=groups,dc=a", "ou=groups, dc=a", true),
            ("ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins,ou=others,dc=a", "ou=groups,dc=a", false),
            ("cn=admins,xou=groups,dc=a", "ou=groups,dc=a", false),
            // Commas that belong to a value.
            ("cn=admins\\,ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins\\2cou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins\\\\,ou=groups,dc=a", "ou=groups,dc=a", true),
            ("cn=\"admins,ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=a+ou=b,ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins,ou=groups,dc=a\\", "ou=groups,dc=a", false),
            ("cn=admins,dc=a", "", false),
            ("", "dc=a", false),
        ] {
            assert_eq!(is_below(dn, base), expected, "{dn}");
        }
    }

    #[test]
    fn first_values() {
        for (dn, expected) in [
            ("cn=admins,ou=groups", Some("admins")),
            ("CN = Admins ,ou=groups", Some("Admins")),
            ("cn=a\\,b\\2bc\\20,ou=groups", Some("a,b+c ")),
            ("cn=m\\c3\\bcller,ou=groups", Some("m\u{fc}ller")),
            ("cn=\\ff,ou=groups", None),
            ("ou=admins,cn=b", None),
            ("cn=#0403,ou=groups", None),
            ("cn=a+sn=b,ou=groups", None),
            ("cn=,ou=groups", None),
            ("admins", None),
            ("", None),
        ] {
            assert_eq!(first_value(dn, "cn").as_deref(), expected, "{dn}");
        }
    }
}
