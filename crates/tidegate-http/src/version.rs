//! The versions of HTTP that are spoken (RFC 9110 section 2.5).

/// The version that a message came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0 (RFC 1945): knows neither chunks nor interim responses.
    Http10,
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http11,
    /// HTTP/2 (RFC 9113).
    Http2,
}

impl Version {
    /// As CGI and logs write it.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let names = [Version::Http10, Version::Http11, Version::Http2].map(Version::name);
        assert_eq!(names, ["HTTP/1.0", "HTTP/1.1", "HTTP/2.0"]);
    }
}
