//! Negotiation of languages (RFC 9110 section 12.5.4, RFC 4647 section 3).
//!
//! Called where the settings name the languages that a site has.

use crate::field::list_elements;
use crate::quality::weighted;

/// Which of `offered` (language tags, the server's own first) the client prefers; `None` where it wants none of them.
/// `accept_language` gives the values of the lines of the field.
///
/// A range fits a language that is the same, one that it is a part of (`de-CH` fits `de`, as in a look-up), and one that is a
/// part of it (`de` fits `de-AT`, as in filtering); of several the closest counts, and `*` is for all others. The highest weight
/// wins, then what the client has named first, then the order of `offered`. A malformed element does not count.
pub fn preferred<'v, I>(accept_language: I, offered: &[impl AsRef<str>]) -> Option<usize>
where
    I: IntoIterator<Item = &'v [u8]>,
    I::IntoIter: Clone,
{
    let lines = accept_language.into_iter();
    let mut best: Option<(u16, usize, usize)> = None;
    for (index, offer) in offered.iter().enumerate() {
        let mut found: Option<(u8, u16, usize)> = None;
        let ranges = lines.clone().flat_map(list_elements).filter_map(weighted).enumerate();
        for (place, (range, weight)) in ranges {
            let Some(closeness) = closeness(range, offer.as_ref().as_bytes()) else { continue };
            if found.is_none_or(|(known, ..)| closeness > known) {
                found = Some((closeness, weight, place));
            }
        }
        let Some((_, weight, place)) = found.filter(|(_, weight, _)| *weight > 0) else { continue };
        if best.is_none_or(|(most, first, _)| weight > most || weight == most && place < first) {
            best = Some((weight, place, index));
        }
    }
    best.map(|(.., index)| index)
}

/// How closely a range fits a language.
fn closeness(range: &[u8], language: &[u8]) -> Option<u8> {
    let is_part = |whole: &[u8], part: &[u8]| {
        whole.len() > part.len()
            && whole[part.len()] == b'-'
            && whole[..part.len()].eq_ignore_ascii_case(part)
            && !part.is_empty()
    };
    match range {
        _ if range.eq_ignore_ascii_case(language) => Some(3),
        _ if is_part(range, language) => Some(2),
        _ if is_part(language, range) => Some(1),
        b"*" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_prefers() {
        let offered = ["en", "de", "pt-BR", "zh-Hant"];
        for (field, expected) in [
            ("de", Some("de")),
            ("DE", Some("de")),
            ("de-CH, en;q=0.5", Some("de")),
            ("fr, de;q=0.2, en;q=0.1", Some("de")),
            ("fr, es", None),
            ("fr, *", Some("en")),
            ("*, de;q=0", Some("en")),
            ("*, en;q=0", Some("de")),
            ("en;q=0, de;q=0", None),
            ("de, en", Some("de")),
            ("en, de", Some("en")),
            ("pt", Some("pt-BR")),
            ("pt-PT", None),
            ("zh-Hant-TW", Some("zh-Hant")),
            ("deutsch", None),
            ("de;q=x, en;q=0.1", Some("en")),
            ("de;q=0.001", Some("de")),
            ("", None),
            (",,;;, -, de-", Some("de")),
        ] {
            let chosen = preferred([field.as_bytes()], &offered).map(|index| offered[index]);
            assert_eq!(chosen, expected, "{field}");
        }
        assert_eq!(preferred([b"fr".as_slice(), b"de;q=0.5"], &offered), Some(1));
        assert_eq!(preferred([], &offered), None);
        assert_eq!(preferred([b"de".as_slice()], &[] as &[&str]), None);
    }
}
