//! The cookies of a user, as a browser has them (RFC 6265): taken out of answers, sent with requests until their time is over.

use super::template::is_of_field;
use crate::target::Url;
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_http::HttpDate;

/// Cookies of one user at most, and bytes of one: what browsers keep for one site.
const COOKIES: usize = 50;
const COOKIE_SIZE: usize = 4_096;

const SECOND: u64 = 1_000_000_000;

/// A request that cookies go with, or come for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub site: &'a Url,
    /// Path and query.
    pub path: &'a str,
    /// Monotonic nanoseconds.
    pub now: u64,
}

/// A cookie: bytes, of which none is changed (RFC 6265 section 5.4).
struct Cookie {
    name: Box<[u8]>,
    value: Box<[u8]>,
    path: Box<[u8]>,
    /// It goes over TLS alone.
    is_secure: bool,
    /// Monotonic nanoseconds; `u64::MAX`: with the user.
    ends: u64,
}

/// The cookies of one user for the one site that there is.
#[derive(Default)]
pub(super) struct Cookies {
    held: Vec<Cookie>,
}

impl Cookies {
    /// Takes a `Set-Cookie` of an answer.
    pub fn set(&mut self, line: &[u8], asked: Asked<'_>) {
        let mut parts = line.split(|byte| *byte == b';');
        let Some((name, value)) = parts.next().and_then(pair) else { return };
        let mut path = default_path(asked.path).as_bytes();
        let (mut domain, mut is_secure): (&[u8], _) = (b"", false);
        let (mut lives, mut expires) = (None, None);
        for attribute in parts {
            let (key, value) = pair(attribute).unwrap_or((attribute.trim_ascii(), b""));
            let text = str::from_utf8(value).unwrap_or_default();
            if key.eq_ignore_ascii_case(b"path") && value.starts_with(b"/") {
                path = value;
            } else if key.eq_ignore_ascii_case(b"max-age") {
                lives = text.parse::<i64>().ok().or(lives);
            } else if key.eq_ignore_ascii_case(b"expires") {
                expires = seconds_until(text).or(expires);
            } else if key.eq_ignore_ascii_case(b"domain") {
                domain = value.strip_prefix(b".").unwrap_or(value);
            } else if key.eq_ignore_ascii_case(b"secure") {
                is_secure = true;
            }
        }
        let is_printable = |text: &[u8]| text.iter().all(|byte| is_of_field(*byte));
        if name.is_empty() || line.len() > COOKIE_SIZE || !is_printable(name) || !is_printable(value) {
            return;
        }
        // Section 5.3, step 6: nobody sets cookies of somebody else.
        if !domain.is_empty() && !is_of_domain(asked.site.host.as_bytes(), domain) {
            return;
        }
        // Who says both means `Max-Age` (section 5.3, step 3).
        let ends = match lives.or(expires) {
            Some(seconds) => asked.now.saturating_add((seconds.max(0) as u64).saturating_mul(SECOND)),
            None => u64::MAX,
        };
        self.held.retain(|known| known.ends > asked.now && (*known.name != *name || *known.path != *path));
        if ends > asked.now && self.held.len() < COOKIES {
            let (name, value, path) = (name.into(), value.into(), path.into());
            self.held.push(Cookie { name, value, path, is_secure, ends });
        }
    }

    /// Appends the field line of a request.
    pub fn write(&self, out: &mut Vec<u8>, asked: Asked<'_>) {
        let mut is_first = true;
        for Cookie { name, value, path: of, is_secure, ends } in &self.held {
            if *ends <= asked.now || (*is_secure && !asked.site.is_tls) {
                continue;
            }
            let is_below =
                asked.path.as_bytes().strip_prefix(&**of).is_some_and(|rest| {
                    of.ends_with(b"/") || matches!(rest.first(), None | Some(b'/' | b'?'))
                });
            if !is_below {
                continue;
            }
            out.extend_from_slice(if is_first { b"Cookie: " } else { b"; " });
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
            is_first = false;
        }
        if !is_first {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// What stands before and behind the first `=`, without white space around it.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    Some((text.get(..at)?.trim_ascii(), text.get(at + 1..)?.trim_ascii()))
}

/// The folder of a path, where a cookie does not say its own (RFC 6265 section 5.1.4).
fn default_path(asked: &str) -> &str {
    let path = asked.split('?').next().unwrap_or_default();
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => path.get(..end).unwrap_or("/"),
    }
}

/// How long it is until a date of a cookie: less than zero where it is over, as applications take cookies back. Some have dashes in it.
fn seconds_until(date: &str) -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let date = HttpDate::parse(date.as_bytes(), now)
        .or_else(|| HttpDate::parse(date.replace('-', " ").as_bytes(), now));
    date.map(|date| date.0.saturating_sub(now))
}

/// Whether a host is that of the domain or one below it (section 5.1.3); an address is below none.
fn is_of_domain(host: &[u8], domain: &[u8]) -> bool {
    let is_address = || str::from_utf8(host).is_ok_and(|host| host.parse::<std::net::IpAddr>().is_ok());
    let Some(at) = host.len().checked_sub(domain.len()) else { return false };
    let (before, end) = host.split_at(at);
    end.eq_ignore_ascii_case(domain) && (before.is_empty() || (before.ends_with(b".") && !is_address()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(site: &'a Url, path: &'a str, now: u64) -> Asked<'a> {
        Asked { site, path, now: now * SECOND }
    }

    fn site() -> Url {
        Url::parse("http://shop.test/").unwrap()
    }

    fn line(cookies: &Cookies, path: &str) -> String {
        let mut out = Vec::new();
        cookies.write(&mut out, at(&site(), path, 10));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cookies_are_set_replaced_and_taken_back() {
        let mut cookies = Cookies::default();
        for set in
            ["a=1; Path=/; HttpOnly", "b=2; Path=/shop", "a=3", "c=x y", "d=4; Max-Age=0", "=5", "none"]
        {
            cookies.set(set.as_bytes(), at(&site(), "/", 10));
        }
        assert_eq!(line(&cookies, "/"), "Cookie: a=3; c=x y\r\n");
        assert_eq!(line(&cookies, "/shop/cart"), "Cookie: b=2; a=3; c=x y\r\n");
        assert_eq!(line(&cookies, "/shopping"), "Cookie: a=3; c=x y\r\n");
        cookies.set(b"a=; expires=Thu, 01 Jan 1970 00:00:00 GMT", at(&site(), "/", 10));
        cookies.set(b"c=gone; Max-Age=-1", at(&site(), "/", 10));
        assert_eq!(line(&cookies, "/"), "");
        for number in 0..100 {
            cookies.set(format!("n{number}=1").as_bytes(), at(&site(), "/", 10));
        }
        assert_eq!(cookies.held.len(), COOKIES);
        cookies.set(b"evil=1\r\nX: y", at(&site(), "/", 10));
        assert!(!line(&cookies, "/").contains("evil"));
    }

    /// RFC 6265 section 5.4: what goes back are the bytes that came.
    #[test]
    fn cookies_are_bytes() {
        let mut cookies = Cookies::default();
        cookies.set(b" name\xe9 = \xffv\xc3=\xa4 ; Path=/d\xe9", at(&site(), "/", 10));
        cookies.set(b"of=\x80\t.; path=/; Max-Age=\xff", at(&site(), "/x", 10));
        cookies.set(b"not=\x7f", at(&site(), "/x", 10));
        let mut out = Vec::new();
        cookies.write(&mut out, at(&site(), "/", 10));
        assert_eq!(out, b"Cookie: of=\x80\t.\r\n");
        cookies.held[0].path = (*b"/").into();
        out.clear();
        cookies.write(&mut out, at(&site(), "/", 10));
        assert_eq!(out, b"Cookie: name\xe9=\xffv\xc3=\xa4; of=\x80\t.\r\n");
    }

    #[test]
    fn a_cookie_without_a_path_is_of_the_folder_that_set_it() {
        let table = [
            ("a=1", "/shop/login?x=/y/", "/shop/cart", true),
            ("a=1", "/shop/login", "/", false),
            ("a=1", "/login", "/cart", true),
            ("a=1; Expires=Wed, 04-Mar-2020 10:00:00 GMT", "/", "/", false),
            ("a=1; Expires=Wed, 04 Mar 2020 10:00:00 GMT; Max-Age=60", "/", "/", true),
            ("a=1; Max-Age=0; Expires=Fri, 31 Dec 2999 23:59:59 GMT", "/", "/", false),
            ("a=1; Expires=never", "/", "/", true),
        ];
        for (set, asked, path, is_sent) in table {
            let mut cookies = Cookies::default();
            cookies.set(set.as_bytes(), at(&site(), asked, 10));
            assert_eq!(!line(&cookies, path).is_empty(), is_sent, "{set} at {asked}, for {path}");
        }
    }

    /// RFC 6265 sections 5.3 and 5.4.
    #[test]
    fn cookies_are_those_of_a_browser() {
        let table = [
            // Set at 10 s, asked for at the second.
            ("http://shop.test/", "a=1; Domain=other.com", 10, false),
            ("http://shop.test/", "a=1; Domain=.Shop.Test", 10, true),
            ("http://www.shop.test/", "a=1; Domain=shop.test", 10, true),
            ("http://myshop.test/", "a=1; Domain=shop.test", 10, false),
            ("http://shop.test/", "a=1; Domain=www.shop.test", 10, false),
            ("http://shop.test/", "a=1; Domain=", 10, true),
            ("http://127.0.0.1/", "a=1; Domain=127.0.0.1", 10, true),
            ("http://127.0.0.1/", "a=1; Domain=0.0.1", 10, false),
            ("http://shop.test/", "a=1; Secure", 10, false),
            ("https://shop.test/", "a=1; secure", 10, true),
            ("http://shop.test/", "a=1; Max-Age=2", 11, true),
            ("http://shop.test/", "a=1; Max-Age=2", 12, false),
            ("http://shop.test/", "a=1; Expires=Fri, 31 Dec 2999 23:59:59 GMT", 9_000, true),
            ("http://shop.test/", "a=1; Expires=Fri, 31 Dec 2999 23:59:59 GMT; Max-Age=5", 15, false),
            ("http://shop.test/", "a=1; Max-Age=9223372036854775807", 9_000, true),
        ];
        for (url, set, now, is_sent) in table {
            let site = Url::parse(url).unwrap();
            let (mut cookies, mut out) = (Cookies::default(), Vec::new());
            cookies.set(set.as_bytes(), at(&site, "/", 10));
            cookies.write(&mut out, at(&site, "/", now));
            assert_eq!(!out.is_empty(), is_sent, "{set} of {url} at {now}");
        }
    }
}
