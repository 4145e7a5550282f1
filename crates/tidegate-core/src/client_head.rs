//! The head of a client's request, kept for the requests of the server's own that it leads to: error pages, the local
//! redirects of scripts.

use crate::buffer_pool;
use crate::exchange::Exchange;
use tidegate_http::Field;

/// What a client has sent: authority and field section, in one piece of memory, as every request to a script keeps one. Each
/// field is the lengths of its name and its value, then both; the authority is the name of the first, without a value.
#[derive(Clone)]
pub(crate) struct ClientHead(Vec<u8>);

/// Bytes that say how long a name and its value are.
const LENGTHS: usize = 2 * size_of::<usize>();

impl ClientHead {
    pub(crate) fn of(exchange: &Exchange<'_>) -> ClientHead {
        let (authority, fields) = (exchange.authority, exchange.fields);
        let length = |name: &str, value: &[u8]| LENGTHS + name.len() + value.len();
        let all =
            fields.iter().fold(length(authority, &[]), |all, field| all + length(field.name, field.value));
        let mut bytes = buffer_pool::take();
        bytes.reserve(all);
        push(&mut bytes, authority, &[]);
        fields.iter().for_each(|field| push(&mut bytes, field.name, field.value));
        ClientHead(bytes)
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (name, behind) = rest.split_first_chunk()?;
            let (value, behind) = behind.split_first_chunk()?;
            let (name, behind) = behind.split_at_checked(usize::from_ne_bytes(*name))?;
            let (value, behind) = behind.split_at_checked(usize::from_ne_bytes(*value))?;
            rest = behind;
            Some((std::str::from_utf8(name).ok()?, value))
        })
    }

    pub(crate) fn authority(&self) -> &str {
        self.pairs().next().map(|(authority, _)| authority).unwrap_or_default()
    }

    /// All fields, in order.
    pub(crate) fn fields(&self) -> Vec<Field<'_>> {
        self.pairs().skip(1).map(|(name, value)| Field { name, value }).collect()
    }

    /// Those that mean a request without content for the whole of another resource as well: not the ones that tell of the
    /// content, that ask for a part of it or for what has changed, or that are for one connection.
    pub(crate) fn fields_for_another(&self) -> Vec<Field<'_>> {
        let mut fields = self.fields();
        fields.retain(|field| !OF_ONE_RESOURCE.iter().any(|name| name.eq_ignore_ascii_case(field.name)));
        fields
    }
}

impl Drop for ClientHead {
    fn drop(&mut self) {
        buffer_pool::give_back(std::mem::take(&mut self.0));
    }
}

#[inline]
fn push(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    let lengths = [name.len().to_ne_bytes(), value.len().to_ne_bytes()];
    bytes.extend_from_slice(lengths.as_flattened());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(value);
}

/// RFC 9110 sections 7.6, 7.8, 8.3 to 8.7, 10.1.1, 10.1.4, 13.1, 14.2; RFC 9112 section 6.1.
const OF_ONE_RESOURCE: [&str; 18] = [
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Location",
    "Content-Range",
    "Content-Type",
    "Expect",
    "HTTP2-Settings",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Fields;

    #[test]
    fn what_is_kept_is_what_was_sent() {
        let fields = [("Host", "a.test"), ("range", "bytes=0-1"), ("X", ""), ("Cookie", "c=\u{fc}")]
            .map(|(name, value): (&str, &str)| Field { name, value: value.as_bytes() });
        let exchange = Exchange { authority: "a.test", fields: Fields::new(&fields), ..Exchange::empty() };
        let head = ClientHead::of(&exchange);
        let said = |fields: Vec<Field<'_>>| -> Vec<(String, Vec<u8>)> {
            fields.iter().map(|field| (field.name.to_owned(), field.value.to_owned())).collect()
        };
        assert_eq!(head.authority(), "a.test");
        assert_eq!(said(head.fields()), said(fields.to_vec()));
        assert_eq!(said(head.fields_for_another()), said(vec![fields[0], fields[2], fields[3]]));
    }
}
