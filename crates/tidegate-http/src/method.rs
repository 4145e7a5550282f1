//! Request methods (RFC 9110 section 9, and PATCH of RFC 5789).
//!
//! Called by the codecs when a head is complete, and by whoever decides what a request may do.

/// A request method. Every method beside the named ones is `Other`: who needs its name has the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Transfer the representation.
    Get,
    /// As GET, without the content.
    Head,
    /// Let the resource process the content.
    Post,
    /// Replace the representation.
    Put,
    /// Remove the resource.
    Delete,
    /// Open a tunnel.
    Connect,
    /// Say what the resource or the server can do.
    Options,
    /// Send the request back.
    Trace,
    /// Change the representation in part.
    Patch,
    /// Anything else.
    Other,
}

impl Method {
    /// Reads a token. Method names are case-sensitive: `get` is `Other`.
    #[inline]
    pub fn from_token(token: &str) -> Method {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "CONNECT" => Method::Connect,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            "PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// The name; `OTHER` for what has none here, which must not be sent.
    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => "OTHER",
        }
    }

    /// Whether the client asks for no change (RFC 9110 section 9.2.1). `Other` is never taken for safe.
    #[inline]
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }
}
