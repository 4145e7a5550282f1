//! The name of a certificate's subject or issuer as text (RFC 4514): the most specific part first, as OpenSSL
//! and the servers built on it write it.
//!
//! Whoever reads it may decide by it, so two names never become one text: what separates the parts is escaped
//! where it stands in one, and so is what could break a line.

use std::fmt::Write as _;
use x509_parser::asn1_rs::{Any, Oid, Tag, ToDer};
use x509_parser::objects::{oid_registry, oid2sn};
use x509_parser::prelude::X509Name;

/// Longer names are cut, and end with an ellipsis then: they have to fit a line.
const LENGTH_MAX: usize = 512;

/// What RFC 4514 section 3 calls them; `emailAddress` is everybody's name for what it leaves out.
const SHORT: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// `CN=alice,O=Example`.
pub(crate) fn text_of(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (at, part) in parts.into_iter().rev().enumerate() {
        for (position, attribute) in part.iter().enumerate() {
            out.push_str(match (at, position) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            put(&mut out, attribute.attr_type(), attribute.attr_value());
        }
    }
    if let Some((end, _)) = out.char_indices().nth(LENGTH_MAX) {
        out.truncate(end);
        out.push('…');
    }
    out
}

fn put(out: &mut String, kind: &Oid<'_>, value: &Any<'_>) {
    let number = kind.to_id_string();
    let short = SHORT.iter().find(|(known, _)| *known == number).map(|(_, short)| *short);
    let known = short.or_else(|| oid2sn(kind, oid_registry()).ok());
    out.push_str(known.unwrap_or(&number));
    out.push('=');
    match text(value) {
        Some(text) if known.is_some() => escape(out, &text),
        // What has no name may be of any form (section 2.4).
        _ => {
            out.push('#');
            for byte in value.to_der_vec().unwrap_or_default() {
                let _ = write!(out, "{byte:02X}");
            }
        }
    }
}

/// The value, where it is a string of some kind.
fn text(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::NumericString
        | Tag::VisibleString
        | Tag::PrintableString
        | Tag::GeneralString
        | Tag::T61String
        | Tag::Utf8String
        | Tag::Ia5String => std::str::from_utf8(value.data).ok().map(str::to_owned),
        Tag::BmpString if value.data.len().is_multiple_of(2) => {
            let units = value.data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

fn escape(out: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', character]),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            '#' if at == 0 => out.push_str("\\#"),
            _ if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(out, "\\{byte:02X}");
                }
            }
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    #[test]
    fn names_as_text() {
        let of = |parts: &[(DnType, DnValue)]| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            for (kind, value) in parts {
                params.distinguished_name.push(kind.clone(), value.clone());
            }
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let (_, certificate) = X509Certificate::from_der(made.der()).unwrap();
            text_of(certificate.subject())
        };
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let common = |text: &str| of(&[(DnType::CommonName, utf8(text))]);
        assert_eq!(common("alice"), "CN=alice");
        assert_eq!(common("Zoë"), "CN=Zoë");
        assert_eq!(common("a,O=b+c"), "CN=a\\,O=b\\+c");
        assert_eq!(common(" #\"<;>\\ "), "CN=\\ #\\\"\\<\\;\\>\\\\\\ ");
        assert_eq!(common("#1"), "CN=\\#1");
        assert_eq!(common("a\0\r\nb\u{85}"), "CN=a\\00\\0D\\0Ab\\C2\\85");
        assert_eq!(common(""), "CN=");
        let long = common(&"x".repeat(600));
        assert_eq!((long.chars().count(), long.ends_with('…')), (LENGTH_MAX + 1, true));
        let several = of(&[
            (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
            (DnType::OrganizationName, DnValue::BmpString("Größe".try_into().unwrap())),
            (DnType::CommonName, utf8("bob")),
            (DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]), utf8("b@x")),
            (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99999, 1]), utf8("x")),
        ]);
        assert_eq!(several, "1.3.6.1.4.1.99999.1=#0C0178,emailAddress=b@x,CN=bob,O=Größe,C=DE");
    }
}
