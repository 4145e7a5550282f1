//! Applications get none of the cookies that this server has browsers keep: whoever reads one could be somebody else.

use super::session::COOKIES;
use memchr::memmem;
use std::borrow::Cow;

/// A `Cookie` field as applications see it, without the cookies of this server; `None`: there are no others.
pub fn without_own_cookies(field: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memmem::find(field, COOKIES.as_bytes()).is_none() {
        return Some(Cow::Borrowed(field));
    }
    let is_own = |pair: &&[u8]| {
        let name = pair.trim_ascii();
        let prefixes = [&b"__Host-"[..], b"__Secure-"];
        let bare = prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix)).unwrap_or(name);
        bare.starts_with(COOKIES.as_bytes())
    };
    let others: Vec<&[u8]> =
        field.split(|byte| *byte == b';').filter(|pair| !is_own(pair)).map(<[u8]>::trim_ascii).collect();
    (!others.is_empty()).then(|| Cow::Owned(others.join(&b"; "[..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_see_no_cookie_of_ours() {
        for (field, expected) in [
            ("a=b; c=d", Some("a=b; c=d")),
            ("a=b; __Host-tidegate-session-corp=x; c=d", Some("a=b; c=d")),
            ("__Secure-tidegate-hint-corp=x; c=d", Some("c=d")),
            ("tidegate-login-corp=x;a=tidegate-", Some("a=tidegate-")),
            (" tidegate-session-corp=x", None),
            ("x-tidegate-a=b", Some("x-tidegate-a=b")),
        ] {
            let seen = without_own_cookies(field.as_bytes());
            assert_eq!(seen.as_deref(), expected.map(str::as_bytes), "{field}");
        }
    }
}
