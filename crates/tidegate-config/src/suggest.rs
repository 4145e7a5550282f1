//! The nearest known name for one that is not known.
//!
//! Called wherever a word is refused. It only words the help; nothing is ever accepted because of it.

use crate::directive::Context;
use crate::{directives, foreign};

/// The candidate nearest to a word, if one is near enough to be a likely slip.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are no slips of a short one; the bound also keeps the quadratic distance small.
    if word.chars().count() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('_', "-");
    let allowed = (lower.chars().count() / 3).max(1);
    // `p90` is no slip of `p50`, it is something else.
    let digits = |word: &str| word.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    let own = digits(&lower);
    candidates
        .into_iter()
        .filter(|candidate| own.is_empty() || digits(candidate) == own)
        .map(|candidate| (strsim::osa_distance(&lower, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether what is written for a directive of a context is likely one of these, misspelt or in the words of another server.
pub(crate) fn means(word: &str, context: Context, names: &[&str]) -> bool {
    let near = nearest(word, directives::in_context(context).map(|directive| directive.name));
    near.is_some_and(|near| names.contains(&near)) || foreign::means(word, names)
}

/// Why a limit of the server is none of a site or a route, and where it belongs.
pub(crate) fn for_the_server(limit: &str) -> &'static str {
    match limit {
        "in-flight" | "incoming-bodies" | "queue" => {
            "sites share its places by themselves, so write it in `limits` at the top level; to bound one application, \
             write `connections` and `queue` in its `proxy`, `fastcgi`, `scgi` or `upstream`"
        }
        "head-timeout" | "fields" | "streams" => {
            "the site is known only once a head has been read: write it in `limits` at the top level"
        }
        "handshake-timeout" | "connections" | "connections-per-address" | "exempt-addresses" => {
            "a connection is let in before the site is known: write it in `limits` at the top level"
        }
        _ => "it is for the server as a whole: write it in `limits` at the top level",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_likely_slip() {
        let names = ["listen", "listing", "limits", "site", "header", "p90"];
        for (word, expected) in [
            ("lisen", Some("listen")),
            ("LISTEN", Some("listen")),
            ("listign", Some("listing")),
            ("sit", Some("site")),
            ("zebra", None),
            ("p50", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, names), expected, "{word}");
        }
    }
}
