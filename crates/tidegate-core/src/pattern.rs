//! Patterns of routes: whether a path is one of those that a route is for.

use tidegate_config::settings::PathPattern;

/// Whether a decoded, normalised path matches.
#[inline]
pub fn matches(pattern: &PathPattern, path: &[u8]) -> bool {
    match pattern {
        PathPattern::Exact(exact) => path == exact.as_bytes(),
        PathPattern::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        PathPattern::Suffix(suffix) => path.ends_with(suffix.as_bytes()),
        PathPattern::Pieces(pieces) => matches_pieces(pieces, path),
    }
}

/// Greedy from the left: linear in the path for each piece, never exponential.
fn matches_pieces(pieces: &[String], path: &[u8]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| path == only.as_bytes());
    };
    let Some(mut rest) = path.strip_prefix(first.as_bytes()) else { return false };
    for piece in middle.iter().filter(|piece| !piece.is_empty()) {
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece.as_bytes()) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let pieces = |s: &str| PathPattern::Pieces(s.split('*').map(Into::into).collect());
        let cases = [
            (PathPattern::Exact("/a".into()), "/a", true),
            (PathPattern::Exact("/a".into()), "/a/", false),
            (PathPattern::Prefix("/static/".into()), "/static/x/y.css", true),
            (PathPattern::Prefix("/static/".into()), "/static", false),
            (PathPattern::Suffix(".php".into()), "/x/y.php", true),
            (PathPattern::Suffix(".php".into()), "/x/y.phps", false),
            (pieces("/a/*/b"), "/a/x/y/b", true),
            (pieces("/a/*/b"), "/a/b", false),
            (pieces("/a*a"), "/a", false),
            (pieces("*x*y*"), "/1x2y3", true),
            (pieces("*x*y*"), "/1y2x3", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(&pattern, path.as_bytes()), expected, "{pattern:?} {path}");
        }
    }
}
