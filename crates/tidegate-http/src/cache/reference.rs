//! References to a URI of the same origin (RFC 3986 section 5).
