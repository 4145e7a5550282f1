//! Field lines (RFC 9110 section 5): borrowed from a request, or owned for a response.

/// One field line. The name is a valid token, the value has no leading or trailing white space and no
/// CR, LF or NUL: whoever builds one has checked that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// As sent; compare without regard to case.
    pub name: &'a str,
    /// Usually ASCII, but any byte from 0x80 up may occur.
    pub value: &'a [u8],
}
