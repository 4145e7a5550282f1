//! What the fuzz target calls: all that a provider says, and all that a browser brings back.
//!
//! `fuzz/` hands its input to [`fuzz_openid`], and so does the test of this file. Not part of the interface: a failed claim
//! panics here, which nothing else of a login may do.
//!
//! Input: one byte that says what the rest is.

use super::browser::values;
use super::flow::{Flow, PATIENCE};
use super::own_cookies::OwnCookies;
use super::provider::{Metadata, Named, id_token};
use super::seal::Seals;
use super::session::{Place, Session};
use crate::gateway::service::Answer;
use crate::login::jwt::{Expected, Keyring, expiry, user_of, verify};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::time::Duration;
use tidegate_config::settings::{TokenKey, UrlKey};
use tidegate_http::{FieldLines, Status, query};

const PLACE: Place<'_> = Place {
    scheme: "https",
    users: "corp",
    issuer: "https://id.test/realm",
    client: "web",
    user: "sub",
    groups: Some("groups"),
    authority: "site.test",
};
/// How long a session lasts.
const LASTING: Duration = Duration::from_secs(3600);
/// A moment in 2023, Unix seconds.
const NOW: i64 = 1_700_000_000;
const KEY: [u8; 32] = [7; 32];

/// All readers of what a login brings.
pub fn fuzz_openid(data: &[u8]) {
    let [kind, rest @ ..] = data else { return };
    match kind % 8 {
        0 => discovery(rest, Named { issuer: PLACE.issuer, token: None, keys: None }),
        1 => {
            let token = Some("https://token.test/");
            discovery(
                rest,
                Named { issuer: "http://127.0.0.1:8080", token, keys: Some("https://keys.test") },
            );
        }
        2 => token_answer(rest),
        3 => keys_and_token(rest),
        4 => signed(rest),
        5 => callback(rest),
        6 => sealed(rest),
        _ => cookie_field(rest),
    }
}

fn answer(status: u16, content: &[u8]) -> Answer {
    Answer { status: Status(status), lines: FieldLines::new(), content: content.to_vec() }
}

/// What goes into a field of ours, or into a request line.
fn assert_plain(text: &str) {
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
}

/// No page is one that a browser or this server could read in two ways, and none is on another host than the settings say.
fn discovery(content: &[u8], named: Named<'_>) {
    assert!(Metadata::read(&answer(500, content), named).is_err());
    let Ok(found) = Metadata::read(&answer(200, content), named) else { return };
    for page in [Some(&found.authorization), found.end_session.as_ref()].into_iter().flatten() {
        assert_plain(page);
        assert!(page.starts_with("https://") || named.issuer.starts_with("http://"), "{page}");
    }
    for path in [&found.token, &found.keys] {
        assert_plain(path);
        assert!(path.starts_with('/'), "{path}");
    }
    let seals = Seals::new(&[UrlKey::from_bytes(KEY.to_vec())]);
    let flow = Flow::begin(None, "/a?b", NOW).expect("random numbers");
    let scopes = ["groups".to_owned()];
    let address = flow.address(&found, &scopes, PLACE, &seals, "https://site.test/.openid/callback");
    let address = address.expect("a key");
    assert_plain(&address);
    assert!(address.starts_with(&found.authorization));
}

fn token_answer(content: &[u8]) {
    for status in [200, 400, 401, 500] {
        if let Ok(token) = id_token(&answer(status, content)) {
            assert_eq!(status, 200);
            let _ = verify(&token, &keyring(), &expected());
        }
    }
}

fn expected() -> Expected {
    Expected {
        issuer: PLACE.issuer.to_owned(),
        audience: vec![PLACE.client.to_owned()],
        leeway: Duration::ZERO,
        kinds: &["jwt"],
    }
}

fn keyring() -> Keyring {
    let jwk = format!(r#"{{"kty":"oct","alg":"HS256","kid":"one","k":"{}"}}"#, URL_SAFE_NO_PAD.encode(KEY));
    Keyring::new(&[TokenKey { id: Some("one".into()), algorithm: "HS256".into(), jwk }])
}

/// Keys as a provider publishes them, and behind a line feed a token: whatever the token says, a key that is published signs
/// nothing that this server could have made.
fn keys_and_token(content: &[u8]) {
    let at = content.iter().position(|byte| *byte == b'\n').unwrap_or(content.len());
    let (keys, token) = content.split_at(at);
    let Ok(token) = std::str::from_utf8(token.get(1..).unwrap_or_default()) else { return };
    // The key is unknown to whoever makes up a token.
    assert!(verify(token, &keyring(), &expected()).is_err());
    let Ok(keys) = Keyring::published(&answer(200, keys)) else { return };
    if verify(token, &keys, &expected()).is_ok() {
        let head = token.split('.').next().and_then(|head| URL_SAFE_NO_PAD.decode(head).ok());
        let head: Value = serde_json::from_slice(&head.expect("a head")).expect("of JSON");
        let algorithm = head["alg"].as_str().expect("an algorithm");
        assert!(algorithm != "none" && !algorithm.starts_with("HS"), "{algorithm}");
    }
}

/// Claims that a provider has signed.
fn signed(claims: &[u8]) {
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT","kid":"one"}"#);
    let text = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &KEY), text.as_bytes());
    let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature));
    let Ok(claims) = verify(&token, &keyring(), &expected()) else { return };
    assert_eq!(claims.get("iss").and_then(Value::as_str), Some(PLACE.issuer));
    let audience = match &claims["aud"] {
        Value::Array(all) => all.iter().any(|one| one == PLACE.client),
        one => one == PLACE.client,
    };
    assert!(audience && expiry(&claims, Duration::ZERO) > NOW, "{claims}");
    for (user, groups) in [("sub", Some("groups")), ("a.b", Some("realm_access.roles")), ("sub", None)] {
        let Ok(user) = user_of(&claims, user, groups) else { continue };
        assert!(user.groups.iter().chain([&user.name]).all(|name| !name.contains(char::is_control)));
        assert!(!user.name.is_empty());
        assert!(user.groups.windows(2).all(|pair| pair[0] < pair[1]));
        let session = Session { name: user.name, groups: user.groups, begun: NOW };
        let seals = Seals::new(&[UrlKey::from_bytes(KEY.to_vec())]);
        if let Ok(value) = session.seal(PLACE, &seals) {
            assert_plain(&value);
            assert_eq!(Session::open(&value, PLACE, &seals, LASTING, NOW), Some(session));
        }
    }
}

/// The query of a browser that comes back, and behind a line feed its cookies: nobody has made a state, nor a session.
fn callback(content: &[u8]) {
    let mut lines = content.split(|byte| *byte == b'\n');
    let seals = Seals::new(&[UrlKey::from_bytes(KEY.to_vec())]);
    let query = lines.next().and_then(|query| std::str::from_utf8(query).ok()).unwrap_or_default();
    let parameter =
        |name: &str| query::value(query, name).and_then(|value| String::from_utf8(value.into_owned()).ok());
    for name in ["iss", "error", "code"] {
        let _ = parameter(name);
    }
    let cookies: Vec<&[u8]> = lines.collect();
    let browser = values(cookies.iter().copied(), "tidegate-login-corp").next();
    let state = parameter("state").unwrap_or_default();
    assert!(Flow::of(&state, browser, PLACE, &seals, NOW).is_err());
    for value in values(cookies.iter().copied(), "tidegate-session-corp") {
        assert!(Session::open(value, PLACE, &seals, LASTING, NOW).is_none());
    }
}

/// What this server, or an older one, has sealed: it may say anything.
fn sealed(content: &[u8]) {
    let seals = Seals::new(&[UrlKey::from_bytes(KEY.to_vec())]);
    let Ok(plain) = serde_json::from_slice::<Value>(content) else { return };
    let value = PLACE.seal("session", &seals, &plain).expect("a key");
    if let Some(session) = Session::open(&value, PLACE, &seals, LASTING, NOW) {
        assert!(session.begun.saturating_add(3600) > NOW);
        let _ = session.age(Some(Duration::from_secs(60)), NOW);
    }
    let state = PLACE.seal("state", &seals, &plain).expect("a key");
    assert!(Session::open(&state, PLACE, &seals, LASTING, NOW).is_none(), "a state is no session");
    for browser in [plain.get("b").and_then(Value::as_str), None] {
        if let Ok(flow) = Flow::of(&state, browser, PLACE, &seals, NOW) {
            assert_eq!(browser, Some(flow.browser.as_str()));
            assert!(NOW < flow.begun.saturating_add(PATIENCE));
        }
    }
}

/// No application sees a cookie of ours, and every other cookie stays.
fn cookie_field(field: &[u8]) {
    let pairs = |field: &[u8]| -> Vec<Vec<u8>> {
        field.split(|byte| *byte == b';').map(|pair| pair.trim_ascii().to_vec()).collect()
    };
    let is_own = |pair: &Vec<u8>| {
        let own = [
            "tidegate-session-corp",
            "tidegate-login-corp",
            "tidegate-hint-corp",
            "__Host-tidegate-session-corp",
            "__Host-tidegate-login-corp",
            "__Secure-tidegate-hint-corp",
        ];
        // A cookie without a name goes by its value.
        let pair = pair.strip_prefix(b"=").unwrap_or(pair);
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        own.iter().any(|own| name == own.as_bytes())
    };
    let own = OwnCookies::named(["corp"].into_iter());
    let seen = own.without(field);
    let seen = seen.as_deref().map(pairs).unwrap_or_default();
    assert!(!seen.iter().any(is_own), "{}", field.escape_ascii());
    let others: Vec<_> = pairs(field).into_iter().filter(|pair| !is_own(pair)).collect();
    assert!(
        seen == others || seen.is_empty() && others.iter().all(Vec::is_empty),
        "{}",
        field.escape_ascii()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Every file of the corpus, and changes of it that are the same in every run.
    #[test]
    fn corpus_and_its_mutations() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/openid");
        let mut seeds: Vec<Vec<u8>> =
            fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
        seeds.sort();
        assert!(seeds.len() >= 8);
        let mut random = fastrand::Rng::with_seed(3);
        let words: [&[u8]; 10] = [
            b"\"",
            b"{",
            b"}",
            b"null",
            b"\0",
            b"\r\n",
            b"https://",
            b"@",
            b";tidegate-session-corp=",
            b"\\u0000",
        ];
        for seed in &seeds {
            fuzz_openid(seed);
            for _ in 0..3000 {
                let mut changed = seed.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(1..=changed.len().max(1)).min(changed.len());
                    let end = (at + random.usize(0..6)).min(changed.len());
                    let word = words[random.usize(..words.len())];
                    changed.splice(at..end, word.iter().copied());
                }
                fuzz_openid(&changed);
            }
        }
    }
}
