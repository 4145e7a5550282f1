//! Distinguished names as text (RFC 4514), as far as groups need them: what lies below what, and what one begins with.
//!
//! What cannot be read lies below nothing and is called nothing: somebody who belongs to it belongs to no group.

/// Whether a name is another, or lies below it at any depth. Of what lies between it has to be clear only where each part ends.
pub fn is_within(dn: &str, base: &str) -> bool {
    let (Some(dn), Some(base)) = (split(dn, b','), split(base, b',')) else { return false };
    let Some((between, end)) = dn.len().checked_sub(base.len()).and_then(|at| dn.split_at_checked(at)) else {
        return false;
    };
    let is_same = |(one, other): (&&str, &&str)| matches!((plain(one), plain(other)), (Some(one), Some(other)) if one == other);
    between.iter().all(|part| part.contains('=')) && end.iter().zip(&base).all(is_same)
}

/// What the first part of a name says, where that is one attribute of this name: `admins` of `cn=admins,ou=groups`.
pub fn first_value(dn: &str, attribute: &str) -> Option<String> {
    let first = split(dn, b',')?.into_iter().next()?;
    let [only] = split(first, b'+')?.try_into().ok()?;
    let (name, value) = only.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case(attribute) {
        return None;
    }
    unescaped(value)
}

/// A part of a name, which may have several attributes, in a form in which the same part is the same text.
fn plain(part: &str) -> Option<Vec<String>> {
    let attributes = split(part, b'+')?.into_iter().map(|attribute| {
        let (name, value) = attribute.split_once('=')?;
        let value = unescaped(value)?.to_lowercase();
        let value: Vec<&str> = value.split_whitespace().collect(); // as many spaces as one
        Some(format!("{}={}", short(&name.trim().to_lowercase()), value.join(" ")))
    });
    let mut attributes = attributes.collect::<Option<Vec<String>>>()?;
    attributes.sort_unstable();
    Some(attributes)
}

/// The short name of an attribute type, of those that RFC 4514 has one for (section 3).
fn short(name: &str) -> &str {
    match name {
        "commonname" | "2.5.4.3" => "cn",
        "localityname" | "2.5.4.7" => "l",
        "stateorprovincename" | "2.5.4.8" => "st",
        "organizationname" | "2.5.4.10" => "o",
        "organizationalunitname" | "2.5.4.11" => "ou",
        "countryname" | "2.5.4.6" => "c",
        "streetaddress" | "2.5.4.9" => "street",
        "domaincomponent" | "0.9.2342.19200300.100.1.25" => "dc",
        "userid" | "0.9.2342.19200300.100.1.1" => "uid",
        other => other,
    }
}

/// What stands between these signs; `None` for quoted text (RFC 2253) and for an escape of nothing.
fn split(text: &str, sign: u8) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' | b';' => return None,
            _ if byte == sign => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
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
            ("ou=groups,dc=a", "ou=groups,dc=a", true),
            ("OU=Groups, DC=a", "ou=groups,dc=a", true),
            ("dc=a", "ou=groups,dc=a", false),
            ("cn=admins,ou=others,dc=a", "ou=groups,dc=a", false),
            ("cn=admins,xou=groups,dc=a", "ou=groups,dc=a", false),
            // Commas that belong to a value.
            ("cn=admins\\,ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins\\2cou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=admins\\\\,ou=groups,dc=a", "ou=groups,dc=a", true),
            ("cn=\"admins,ou=groups,dc=a", "ou=groups,dc=a", false),
            // Parts of several attributes, and what needs no reading.
            ("cn=a+ou=b,ou=groups,dc=a", "ou=groups,dc=a", true),
            ("cn=a+ou=groups,dc=a", "ou=groups,dc=a", false),
            ("cn=b,ou=groups+l=x,dc=a", "L=X+ou=groups,dc=a", true),
            ("cn=b,ou=groups\\+l=x,dc=a", "l=x+ou=groups,dc=a", false),
            ("cn=#0403,ou=groups,dc=a", "ou=groups,dc=a", true),
            ("admins,ou=groups,dc=a", "ou=groups,dc=a", false),
            // Other spellings of the same.
            ("cn=a,organizationalUnitName=My  Groups,DomainComponent=a", "ou=my groups,dc=a", true),
            ("cn=a,2.5.4.11=groups,0.9.2342.19200300.100.1.25=a", "ou=groups,dc=a", true),
            ("cn=admins,ou=groups,dc=a\\", "ou=groups,dc=a", false),
            ("cn=admins,dc=a", "", false),
            ("", "dc=a", false),
        ] {
            assert_eq!(is_within(dn, base), expected, "{dn}");
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
