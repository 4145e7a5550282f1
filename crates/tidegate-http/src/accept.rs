//! Negotiation of media types (RFC 9110 section 12.5.1).
//!
//! Called where a resource has several forms, as a listing has HTML and JSON.

use crate::field::{Parameters, list_elements, parameters};
use crate::quality::qvalue;

/// Which of `offered` (media types, what the server likes best first) the client prefers; `None` when it
/// accepts none of them. `accept` gives the values of the `Accept` lines (`Fields::all`, or an `Option` of
/// one); without any line, everything is accepted.
///
/// For each offer the most specific range that matches gives the weight: a type with parameters, a type,
/// `type/*`, `*/*`. The highest weight wins, the server's order breaks ties. A malformed element does
/// not count.
pub fn prefers<'v, I>(accept: I, offered: &[&str]) -> Option<usize>
where
    I: IntoIterator<Item = &'v [u8]>,
    I::IntoIter: Clone,
{
    let lines = accept.into_iter();
    if lines.clone().next().is_none() {
        return (!offered.is_empty()).then_some(0);
    }
    let mut best: Option<(u16, usize)> = None;
    for (index, offer) in offered.iter().enumerate() {
        let mut found: Option<(u16, u16)> = None;
        for matched in lines.clone().flat_map(list_elements).filter_map(|range| matching(range, offer)) {
            // Of equally specific ranges the first counts.
            if found.is_none_or(|(specificity, _)| matched.0 > specificity) {
                found = Some(matched);
            }
        }
        let weight = found.map_or(0, |(_, weight)| weight);
        if weight > best.map_or(0, |(weight, _)| weight) {
            best = Some((weight, index));
        }
    }
    best.map(|(_, index)| index)
}

/// How specifically a media range matches an offer, and with which weight; `None` when it does not.
fn matching(range: &[u8], offer: &str) -> Option<(u16, u16)> {
    let (media_range, range_parameters) = parameters(range);
    let (media_type, offer_parameters) = parameters(offer.as_bytes());
    let (range_type, range_subtype) = split_type(media_range)?;
    let (offer_type, offer_subtype) = split_type(media_type)?;
    let mut specificity = match (range_type, range_subtype) {
        (b"*", b"*") => 0,
        (_, b"*") if range_type.eq_ignore_ascii_case(offer_type) => 1,
        _ if range_type.eq_ignore_ascii_case(offer_type)
            && range_subtype.eq_ignore_ascii_case(offer_subtype) =>
        {
            2
        }
        _ => return None,
    };
    for parameter in range_parameters {
        let parameter = parameter.ok()?;
        if parameter.name.eq_ignore_ascii_case("q") {
            // What is behind the weight were extensions, which nobody has used.
            return Some((specificity, qvalue(parameter.raw())?));
        }
        if !has_parameter(offer_parameters.clone(), parameter.name, &parameter.value()) {
            return None;
        }
        specificity = specificity.saturating_add(1);
    }
    Some((specificity, 1000))
}

fn has_parameter(mut offered: Parameters<'_>, name: &str, value: &[u8]) -> bool {
    offered.any(|parameter| {
        parameter.is_ok_and(|have| {
            have.name.eq_ignore_ascii_case(name) && have.value().eq_ignore_ascii_case(value)
        })
    })
}

fn split_type(media_type: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = memchr::memchr(b'/', media_type)?;
    Some((&media_type[..slash], &media_type[slash + 1..]))
}
