//! Content coding on the fly: gzip, brotli and zstd (RFC 9110 sections 8.4 and 12.5.3; RFC 1952, RFC 7932,
//! RFC 8878 with the window of RFC 9659).
//!
//! `filter` decides about a response and changes its fields, `stream` encodes its body while the client
//! takes it, `file_source` reads files for that, `encoder` drives the three libraries. The file cache, which
//! encodes a file once and keeps the result, calls [`encode_whole`] on the blocking pool and asks
//! [`applies`] first. What a client sends is never decoded here.

mod encoder;
pub(crate) mod file_source;
mod filter;
pub(crate) mod stream;

pub use encoder::encode_whole;
pub use filter::CompressFilter;

use tidegate_config::settings::{Coding, Compress};
use tidegate_http::{ContentCoding, media_type};

/// The coding of the settings in the vocabulary of the protocol.
pub const fn content_coding(coding: Coding) -> ContentCoding {
    match coding {
        Coding::Gzip => ContentCoding::Gzip,
        Coding::Brotli => ContentCoding::Brotli,
        Coding::Zstd => ContentCoding::Zstd,
    }
}

/// The name in `Content-Encoding`: `gzip`, `br`, `zstd`.
pub const fn token(coding: Coding) -> &'static str {
    content_coding(coding).as_str()
}

/// What a precompressed sibling is called by, behind the name of the file: `.gz`, `.br`, `.zst`.
pub const fn suffix(coding: Coding) -> &'static str {
    match coding {
        Coding::Gzip => ".gz",
        Coding::Brotli => ".br",
        Coding::Zstd => ".zst",
    }
}

/// Whether content of this type and length (bytes) is worth encoding under these settings. Says nothing of
/// what the client accepts, nor of `no-transform`.
pub fn applies(settings: &Compress, media_type: &str, length: u64) -> bool {
    !settings.codings.is_empty() && length >= settings.min_length && is_worth_encoding(settings, media_type)
}

/// What [`tidegate_http::coding::negotiate`] is to choose from, in the server's order of preference.
pub fn offered(settings: &Compress) -> Vec<ContentCoding> {
    settings.codings.iter().map(|&(coding, _)| content_coding(coding)).collect()
}

/// The built-in set, and what the settings add to it: `text/x-log`, or `font/*`.
fn is_worth_encoding(settings: &Compress, media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    media_type::is_compressible(essence)
        || settings.types.iter().any(|listed| match listed.strip_suffix('*') {
            Some(prefix) => {
                essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            }
            None => essence.eq_ignore_ascii_case(listed),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_encoding() {
        let settings = Compress {
            codings: vec![(Coding::Zstd, 3), (Coding::Gzip, 6)],
            min_length: 1000,
            types: vec!["application/x-ours".into(), "model/*".into()],
        };
        for (media_type, length, expected) in [
            ("text/html; charset=utf-8", 1000, true),
            ("text/html", 999, false),
            ("TEXT/CSS", 5000, true),
            ("text/event-stream", 5000, false),
            ("image/png", 5000, false),
            ("image/svg+xml", 5000, true),
            ("Application/X-Ours;v=1", 5000, true),
            ("model/stl", 5000, true),
            ("mode", 5000, false),
            ("", 5000, false),
        ] {
            assert_eq!(applies(&settings, media_type, length), expected, "{media_type} {length}");
        }
        assert_eq!(offered(&settings), [ContentCoding::Zstd, ContentCoding::Gzip]);
        let none = Compress { codings: Vec::new(), ..settings };
        assert!(!applies(&none, "text/html", 5000));
    }

    #[test]
    fn names() {
        for (coding, name, ending) in
            [(Coding::Gzip, "gzip", ".gz"), (Coding::Brotli, "br", ".br"), (Coding::Zstd, "zstd", ".zst")]
        {
            assert_eq!((token(coding), suffix(coding)), (name, ending));
        }
    }
}
