//! The directives of a response that count for this cache: those of a targeted field (RFC 9213), else those of
//! `Cache-Control`.
