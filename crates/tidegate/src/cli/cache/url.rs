//! URLs of stored responses, as operators write them.

/// The longest one, bytes.
const LONGEST: usize = 7000;

/// A URL in the form that stores know it by: scheme and host in small letters, no port that the scheme has anyway, a path, no
/// fragment.
///
/// # Errors
/// A sentence: it is no URL of a response.
pub fn whole(text: &str) -> Result<String, String> {
    let said = || "write a URL with scheme and host, such as https://example.com/news".to_owned();
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(
            "spaces and control characters are no part of a URL: they are `%20` and the like".to_owned()
        );
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(said)?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return Err(said()),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if host.is_empty() || host.contains('@') {
        return Err(said());
    }
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix(port).unwrap_or(&host);
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok(format!("{scheme}://{host}{slash}{target}"))
}

/// The beginning of URLs, in the same form: of the whole host where it has no path.
///
/// # Errors
/// As [`whole`].
pub fn prefix(text: &str) -> Result<String, String> {
    whole(text)
}

/// Scheme, host with its port, and target of a URL in this form.
pub fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, target) = rest.split_at(rest.find('/')?);
    Some((scheme, host, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_one_form() {
        for (text, expected) in [
            ("HTTPS://Example.com", Some("https://example.com/")),
            ("https://example.com:443/A?b#c", Some("https://example.com/A?b")),
            ("http://example.com:443/", Some("http://example.com:443/")),
            ("http://[::1]:80/x", Some("http://[::1]/x")),
            ("http://a?b=c", Some("http://a/?b=c")),
            ("https://a/b c", None),
            ("example.com/x", None),
            ("https://u@a/", None),
            ("https:///x", None),
            ("ftp://a/", None),
        ] {
            assert_eq!(whole(text).ok().as_deref(), expected, "{text}");
        }
        assert_eq!(parts("http://[::1]:8080/x?y=/"), Some(("http", "[::1]:8080", "/x?y=/")));
    }
}
