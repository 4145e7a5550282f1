//! The value of a field, a cookie and a parameter of a request, and the path that its route was chosen by.
//!
//! Each has one meaning here, for conditions and placeholders alike: a condition that asks for one value where a placeholder
//! fills in another would vouch for what it has not seen.

use crate::exchange::Exchange;
use std::borrow::Cow;
use tidegate_http::query;

/// The value of a field: its lines, joined as one that stands for them all (RFC 9110 section 5.3; cookies as RFC 9113
/// section 8.2.3 has them).
pub(crate) fn field<'e>(exchange: &Exchange<'e>, name: &str) -> Option<Cow<'e, [u8]>> {
    let mut lines = exchange.fields.all(name);
    let mut value = Cow::Borrowed(lines.next()?);
    let between: &[u8] = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(between);
        value.extend_from_slice(line);
    }
    Some(value)
}

/// The value of a cookie (RFC 6265 section 5.4): of several of one name that of the first, as browsers send the one of the
/// closest path first.
pub(crate) fn cookie<'e>(exchange: &Exchange<'e>, name: &str) -> Option<&'e [u8]> {
    let mut pairs = exchange.fields.all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

/// The value of a parameter of the query, decoded: of several of one name that of the first.
pub(crate) fn parameter<'e>(exchange: &Exchange<'e>, name: &str) -> Option<Cow<'e, [u8]>> {
    query::value(exchange.query?, name)
}

/// The path that the route of a request was chosen by: also where `rewrite` has since put another in its place.
pub(crate) fn routed_path<'e>(exchange: &'e Exchange<'_>) -> &'e [u8] {
    exchange.state.matched.as_deref().unwrap_or(exchange.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::{Field, Fields};

    fn values(query: &str, fields: &[(&str, &str)]) -> [Option<String>; 3] {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        let exchange = Exchange { query: Some(query), fields: Fields::new(&fields), ..Exchange::empty() };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        [
            field(&exchange, "x").map(|value| text(&value)),
            cookie(&exchange, "x").map(text),
            parameter(&exchange, "x").map(|value| text(&value)),
        ]
    }

    #[test]
    fn of_several_values_one_counts() {
        let said = |values: [Option<&str>; 3]| values.map(|value| value.map(str::to_owned));
        assert_eq!(values("", &[]), said([None, None, None]));
        assert_eq!(values("x=&x=1", &[("Cookie", "x=; x=1"), ("x", "")]), said([Some(""); 3]));
        assert_eq!(
            values(
                "a&x=1+2&x=3",
                &[("X", "1"), ("Cookie", "xx=9; x=\"1\"; x=2"), ("x", "2"), ("cookie", "x=3")]
            ),
            said([Some("1, 2"), Some("1"), Some("1 2")])
        );
        assert_eq!(
            values("%78=%31", &[("Cookie", "a=1"), ("cookie", "x=3")]),
            said([None, Some("3"), Some("1")])
        );
    }

    #[test]
    fn lines_of_cookies_are_one() {
        let fields = [("Cookie", "a=1"), ("cookie", "b=2")]
            .map(|(name, value): (&str, &str)| Field { name, value: value.as_bytes() });
        let exchange = Exchange { fields: Fields::new(&fields), ..Exchange::empty() };
        assert_eq!(field(&exchange, "Cookie").as_deref(), Some(&b"a=1; b=2"[..]));
    }
}
