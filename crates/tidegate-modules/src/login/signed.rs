//! `signed`: URLs that whoever has a key has made, and that expire.
//!
//! `…/film.mp4?expires=1790000000&signature=…`: the signature is the last parameter of the query, and the expiry stands in
//! front of it. It is an HMAC (RFC 2104) with SHA-256 over the path, normalised and encoded as [`encode_path`] does, over the
//! whole query in front of it, over the client where the URL is for one alone, and over the host where it is for that. So nothing can be added to a signed URL,
//! and however its path is spelt, it is the same one.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use tidegate_config::settings::{Shared, Signed, UrlKey, UrlKeys};
use tidegate_core::hosts;
use tidegate_core::template::uri_of;
use tidegate_core::{Exchange, Gate, Verdict, answer};
use tidegate_http::path::encode_path;
use tidegate_http::{Customer, Method, Status};
use tidegate_io::socket::Peer;

/// What the last parameter is called, behind the `&` of the one in front of it.
const SIGNATURE: &str = "&signature=";
/// What that is called.
const EXPIRES: &str = "expires=";
/// What is signed begins so: no other use of a key signs the same.
const PURPOSE: &[u8] = b"tidegate signed URL 1";

/// The keys of one name, as they were read last.
pub struct KeyRing(RwLock<Arc<Vec<hmac::Key>>>);

impl KeyRing {
    fn new(keys: &[UrlKey]) -> KeyRing {
        KeyRing(RwLock::new(Self::made(keys)))
    }

    fn made(keys: &[UrlKey]) -> Arc<Vec<hmac::Key>> {
        Arc::new(keys.iter().map(key_of).collect())
    }

    fn present(&self) -> Arc<Vec<hmac::Key>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn key_of(key: &UrlKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.bytes())
}

/// A ring, with the name and the keys that it has.
type Known = (String, Shared<Vec<UrlKey>>, Weak<KeyRing>);

/// The keys of a process.
#[derive(Default)]
pub struct KeyRings(Mutex<Vec<Known>>);

impl KeyRings {
    /// Those that settings name. Settings with the same ones share them.
    pub fn ring(&self, settings: &UrlKeys) -> Arc<KeyRing> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(.., ring)| ring.strong_count() > 0);
        let same = known.iter().find(|(name, keys, _)| *name == settings.name && *keys == settings.keys);
        if let Some(ring) = same.and_then(|(.., ring)| ring.upgrade()) {
            return ring;
        }
        let ring = Arc::new(KeyRing::new(&settings.keys));
        known.push((settings.name.clone(), settings.keys.clone(), Arc::downgrade(&ring)));
        ring
    }

    /// They were read anew.
    pub fn renew(&self, name: &str, keys: &Shared<Vec<UrlKey>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, present, ring) in known.iter_mut().filter(|(known, ..)| known == name) {
            present.clone_from(keys);
            if let Some(ring) = ring.upgrade() {
                *ring.0.write().unwrap_or_else(PoisonError::into_inner) = KeyRing::made(keys);
            }
        }
    }
}

/// Lets in who comes by a signed URL.
pub struct SignedGate {
    settings: Shared<Signed>,
    ring: Arc<KeyRing>,
}

impl SignedGate {
    /// The gate of a `signed`.
    pub fn new(settings: &Shared<Signed>, ring: Arc<KeyRing>) -> SignedGate {
        SignedGate { settings: settings.clone(), ring }
    }

    fn refuse(&self, exchange: &Exchange<'_>, status: Status, why: &str) -> Verdict {
        let Signed { keys, origin, .. } = &*self.settings;
        let why = format_args!("{why}, and `signed \"{keys}\"` ({origin}) asks for one");
        let response = answer::refused(exchange, status, why);
        answer::remedy(|| {
            format!("`tidegate sign-url --keys FILE URL` makes one, with the file of `url-keys \"{keys}\"`")
        });
        Verdict::Refuse(response)
    }
}

impl Gate for SignedGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        if !matches!(exchange.method, Method::Get | Method::Head) {
            let why = "a signed URL is good for GET and HEAD alone";
            let response = answer::refused(exchange, Status::METHOD_NOT_ALLOWED, why);
            return Verdict::Refuse(response.with("Allow", "GET, HEAD"));
        }
        let client = match (self.settings.by_client, exchange.state.remote.client) {
            (false, _) => None,
            (true, Peer::Tcp(client)) => Some(client.ip()),
            (true, Peer::Unix) => {
                return self.refuse(
                    exchange,
                    Status::FORBIDDEN,
                    "the client has no address that a URL could be for",
                );
            }
        };
        // What the client has asked for, wherever that has led. A path with `%2F` reads in two ways, and one was signed.
        let uri = uri_of(exchange.target);
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        let claim = Claim::of(query).filter(|_| !exchange.has_encoded_slash());
        let Some(claim) = claim else {
            let why = match query.contains("signature=") {
                true if exchange.has_encoded_slash() => "the path holds `%2F`, and no such path is signed",
                true => "the signature of the URL is cut, or something stands behind it",
                false => "the URL has no signature",
            };
            return self.refuse(exchange, Status::FORBIDDEN, why);
        };
        let host = self.settings.by_host.then(|| hosts::host(exchange.authority));
        let signed = text(&exchange.path_asked_for(), claim.covered, client, host.as_deref());
        let is_signed = |key: &hmac::Key| hmac::verify(key, &signed, &claim.signature).is_ok();
        if !self.ring.present().iter().any(is_signed) {
            let why = match client {
                Some(_) => "the signature of the URL is wrong, or made for another client's address",
                None => "the signature of the URL is wrong",
            };
            return self.refuse(exchange, Status::FORBIDDEN, why);
        }
        if claim.expires < exchange.now {
            return self.refuse(exchange, Status::GONE, "the URL has expired");
        }
        Verdict::Pass
    }
}

/// What the query of a URL says.
struct Claim<'q> {
    /// The query in front of the signature.
    covered: &'q str,
    expires: i64,
    signature: Vec<u8>,
}

impl Claim<'_> {
    fn of(query: &str) -> Option<Claim<'_>> {
        let (covered, signature) = query.rsplit_once(SIGNATURE)?;
        let (front, expires) = covered.rsplit_once(EXPIRES)?;
        let is_whole = front.is_empty() || front.ends_with('&');
        let is_number =
            (1..=12).contains(&expires.len()) && expires.bytes().all(|byte| byte.is_ascii_digit());
        if !is_whole || !is_number {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok().filter(|bytes| bytes.len() == 32)?;
        Some(Claim { covered, expires: expires.parse().ok()?, signature })
    }
}

/// What is signed. The path, the query and the host hold no line ends, so that a text with a host is none without.
fn text(path: &str, covered: &str, client: Option<IpAddr>, host: Option<&str>) -> Vec<u8> {
    let client = client.map(network).unwrap_or_default();
    let mut parts = vec![PURPOSE, path.as_bytes(), covered.as_bytes(), client.as_bytes()];
    parts.extend(host.map(str::as_bytes));
    parts.join(&b'\n')
}

/// Whom and what a URL is good for.
#[derive(Debug, Clone, Copy, Default)]
pub struct SignedFor<'a> {
    /// One client alone.
    pub client: Option<IpAddr>,
    /// One host alone.
    pub host: Option<&'a str>,
}

/// Whom an address stands for: of IPv6 the network of 64 bits, since clients change their address within it.
fn network(ip: IpAddr) -> String {
    match Customer::of(ip) {
        Customer::V4(ip) => ip.to_string(),
        Customer::V6(network) => format!("{network:x}/64"),
    }
}

/// Signs a URL, or a path with its query: `expires` in seconds since 1970, for what is named alone.
///
/// # Errors
/// A sentence: it cannot be signed.
pub fn sign_url(url: &str, key: &UrlKey, expires: i64, only: SignedFor<'_>) -> Result<String, String> {
    let (front, rest) = match url.split_once("://") {
        Some((scheme, rest)) => {
            let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            (format!("{scheme}://{}", &rest[..path]), &rest[path..])
        }
        None => (String::new(), url),
    };
    let host = only.host.map(hosts::host);
    if let Some(host) = &host {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(format!("`{host}` is no host: name one such as `example.com`"));
        }
        let of_url = front.split_once("://").map(|(_, authority)| hosts::host(authority));
        if let Some(other) = of_url.filter(|other| other != host) {
            return Err(format!("the URL is one of `{other}`, and is to be good for `{host}` alone"));
        }
    }
    if rest.contains('#') {
        return Err("what stands behind `#` is sent to no server: leave it out".into());
    }
    let (raw_path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
    let raw_path = if raw_path.is_empty() { "/" } else { raw_path };
    if !raw_path.starts_with('/') {
        return Err(format!("`{url}` is no URL and no path: it begins with `https://` or with `/`"));
    }
    let is_text = |byte: u8| byte.is_ascii_graphic();
    if !query.bytes().all(is_text) {
        return Err("the query holds what cannot stand in one: encode it as %XX".into());
    }
    let is_taken =
        |part: &str| ["expires", "signature"].contains(&part.split('=').next().unwrap_or_default());
    if query.split('&').any(is_taken) {
        return Err("its query has an `expires` or a `signature` already".into());
    }
    let mut scratch = Vec::new();
    let path = tidegate_http::path::normalise(raw_path, &mut scratch)
        .map_err(|error| format!("`{raw_path}` is a path that no request may have: {error}"))?;
    if tidegate_http::path::has_encoded_slash(raw_path) {
        return Err("a path with an encoded slash reads in two ways, and is not signed".into());
    }
    let path = encode_path(path);
    let covered = match query.is_empty() {
        true => format!("{EXPIRES}{expires}"),
        false => format!("{query}&{EXPIRES}{expires}"),
    };
    let signature = hmac::sign(&key_of(key), &text(&path, &covered, only.client, host.as_deref()));
    Ok(format!("{front}{path}?{covered}{SIGNATURE}{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> UrlKey {
        UrlKey::from_bytes((0..32).collect())
    }

    /// Made with `printf 'tidegate signed URL 1\n/a%%20b\nx=1&expires=1790000000\n' | openssl dgst -sha256 -mac HMAC
    /// -macopt hexkey:000102…1f -binary | basenc --base64url`.
    #[test]
    fn what_others_sign_is_the_same() {
        let signed = sign_url("https://a.test/x/..//a%20b?x=1", &key(), 1_790_000_000, SignedFor::default());
        let expected = "https://a.test/a%20b?x=1&expires=1790000000&signature=cLqufyMG0oKP-ampq2RUYCRLapCoiylJPCx3AtZJQUo";
        assert_eq!(signed.as_deref(), Ok(expected));
    }

    #[test]
    fn what_cannot_be_signed() {
        for url in ["a", "/a#b", "/a?expires=1", "/a?x&signature=1", "/a?b c", "/a%2Fb", "/%00", "/../..x%zz"]
        {
            assert!(sign_url(url, &key(), 1, SignedFor::default()).is_err(), "{url}");
        }
        assert!(
            sign_url("https://a.test", &key(), 1, SignedFor::default())
                .unwrap()
                .starts_with("https://a.test/?expires=1&")
        );
        for (url, host) in
            [("https://b.test/a", "a.test"), ("/a", ""), ("/a", "a b"), ("/a", "a/b"), ("/a", "a\n")]
        {
            assert!(
                sign_url(url, &key(), 1, SignedFor { client: None, host: Some(host) }).is_err(),
                "{url} {host}"
            );
        }
    }

    /// As above, with a line feed and the host behind the client.
    #[test]
    fn a_host_is_signed_in_its_one_spelling() {
        let sign = |url: &str, host| sign_url(url, &key(), 1_790_000_000, SignedFor { client: None, host });
        let bound = sign("https://A.test.:8443/a", Some("a.TEST")).unwrap();
        let signature = |url: &str| url.rsplit_once('=').unwrap().1.to_owned();
        assert_eq!(signature(&bound), signature(&sign("/a", Some("a.test")).unwrap()));
        for other in [None, Some("b.test")] {
            assert_ne!(signature(&bound), signature(&sign("/a", other).unwrap()), "{other:?}");
        }
    }

    #[test]
    fn claims() {
        let right = "A".repeat(43);
        for (query, expected) in [
            (format!("expires=5&signature={right}"), Some(("expires=5", 5))),
            (format!("a=expires=1&expires=5&signature={right}"), Some(("a=expires=1&expires=5", 5))),
            (format!("signature=x&expires=5&signature={right}"), Some(("signature=x&expires=5", 5))),
            (format!("xexpires=5&signature={right}"), None),
            (format!("expires=5&a=b&signature={right}"), None),
            (format!("expires=5&signature={right}&a=b"), None),
            (format!("expires=-5&signature={right}"), None),
            (format!("expires=+5&signature={right}"), None),
            (format!("expires=1234567890123&signature={right}"), None),
            (format!("expires=&signature={right}"), None),
            (format!("expires=5&signature={}", &right[1..]), None),
            (format!("expires=5&signature={right}="), None),
            (format!("signature={right}"), None),
            (String::new(), None),
        ] {
            let claim = Claim::of(&query).map(|claim| (claim.covered, claim.expires));
            assert_eq!(claim, expected, "{query}");
        }
    }

    #[test]
    fn clients_are_told_apart() {
        let of = |ip: &str| network(ip.parse().unwrap());
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        for (one, other) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8:0:1::1"), ("::1", "0.0.0.0")]
        {
            assert_ne!(of(one), of(other));
        }
    }
}
