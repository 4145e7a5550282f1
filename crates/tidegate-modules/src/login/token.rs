//! `login token`: who somebody is by a JSON Web Token (RFC 7519) in `Authorization: Bearer` (RFC 6750).
//!
//! What the token asks for chooses nothing (RFC 8725): each key is good for its own algorithm, and a token is held to issuer,
//! audience and times of the settings. Whoever has shown a token is remembered by it until it expires.

use super::source::Source;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::Value;
use std::str::FromStr;
use std::sync::Arc;
use tidegate_config::settings::{Login, Shared, TokenKey, Tokens};
use tidegate_core::user::User;
use tidegate_core::{Exchange, Gate, Verdict, answer, log};
use tidegate_http::Status;
use tidegate_io::clock::{monotonic_ns, wall_seconds};
use tidegate_stats::Worker as Stats;

/// The longest token that is looked at, bytes.
const LONGEST: usize = 16 << 10;
/// Keys that a token without the name of one is tried with.
const TRIED: usize = 4;
/// The longest name of a user, bytes; and the most groups.
const NAME_MAX: usize = 1024;
const GROUPS_MAX: usize = 1000;

/// A key that can verify.
pub struct VerifyingKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Those of settings. One that is none is left out, and said.
pub fn verifying_keys(keys: &[TokenKey]) -> Vec<VerifyingKey> {
    let made = |key: &TokenKey| {
        let algorithm = Algorithm::from_str(&key.algorithm).ok()?;
        let jwk: Jwk = serde_json::from_str(&key.jwk).ok()?;
        Some(VerifyingKey { id: key.id.clone(), algorithm, key: DecodingKey::from_jwk(&jwk).ok()? })
    };
    let or_said = |key: &TokenKey| {
        let made = made(key);
        if made.is_none() {
            let id = key.id.as_deref().unwrap_or_default().escape_debug();
            log::error(format_args!(
                "the key `{id}` of tokens, {}, is broken and verifies nothing",
                key.algorithm
            ));
        }
        made
    };
    keys.iter().filter_map(or_said).collect()
}

/// Asks for a token.
pub struct TokenGate {
    source: Arc<Source>,
    stats: Arc<Stats>,
    login: Shared<Login>,
    settings: Tokens,
    realm: String,
}

impl TokenGate {
    /// The gate of a `login`; `source` has its users.
    pub fn new(
        login: &Shared<Login>,
        settings: &Tokens,
        source: Arc<Source>,
        stats: Arc<Stats>,
    ) -> TokenGate {
        let realm = login.realm.replace('\\', "\\\\").replace('"', "\\\"");
        TokenGate { source, stats, login: login.clone(), settings: settings.clone(), realm }
    }

    fn refuse(&self, exchange: &Exchange<'_>, why: &str) -> Verdict {
        let Login { users, origin, .. } = &*self.login;
        let why = format_args!("{why}, and `login token \"{users}\"` ({origin}) asks for one");
        let challenge = format!("Bearer realm=\"{}\", error=\"invalid_token\"", self.realm);
        let response = answer::refused(exchange, Status::UNAUTHORIZED, why);
        Verdict::Refuse(response.with("WWW-Authenticate", challenge))
    }
}

impl Gate for TokenGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        if exchange.is_logged_in(&self.login) {
            return Verdict::Pass;
        }
        let Some(token) = exchange.fields.single("authorization").and_then(bearer) else {
            let Login { users, origin, .. } = &*self.login;
            let why = format_args!("`login token \"{users}\"` ({origin}) asks who it is");
            let challenge = format!("Bearer realm=\"{}\"", self.realm);
            let response = answer::asked(Status::UNAUTHORIZED, why);
            return Verdict::Refuse(response.with("WWW-Authenticate", challenge));
        };
        let now = monotonic_ns();
        if let Some(user) = self.source.shown(token.as_bytes(), now) {
            self.stats.user_cache_hits.add(1);
            exchange.identify().prove(user, "Bearer", &self.login);
            return Verdict::Pass;
        }
        self.stats.user_cache_misses.add(1);
        let keys = self.source.token_keys();
        match verify(token, &keys, &self.settings) {
            Ok((user, expires)) => {
                let user = Arc::new(user);
                let left = u64::try_from(expires.saturating_sub(wall_seconds())).unwrap_or(0);
                self.source.remember_shown(token.as_bytes(), &keys, user.clone(), left, now);
                exchange.identify().prove(user, "Bearer", &self.login);
                Verdict::Pass
            }
            Err(why) => self.refuse(exchange, &why),
        }
    }

    fn name(&self) -> String {
        format!("`login token \"{}\"` ({})", self.login.users, self.login.origin)
    }
}

/// The token of an `Authorization` field.
fn bearer(field: &[u8]) -> Option<&str> {
    let (scheme, token) = field.split_at_checked(7)?;
    let token = std::str::from_utf8(token).ok()?.trim();
    let fits = scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty() && token.len() <= LONGEST;
    fits.then_some(token)
}

/// Whose token it is, and when it expires, seconds since 1970; or why it is nobody's.
fn verify(token: &str, keys: &[VerifyingKey], settings: &Tokens) -> Result<(User, i64), String> {
    let head = token.split('.').next().and_then(|head| URL_SAFE_NO_PAD.decode(head).ok());
    let head: Option<Value> = head.and_then(|head| serde_json::from_slice(&head).ok());
    let head = head.ok_or("what the client has shown is no token")?;
    // What is critical has to be understood (RFC 7515 section 4.1.11), and nothing is.
    if head.get("crit").is_some() {
        return Err("the token has extensions that are not known".into());
    }
    // A token of another purpose is none of these (RFC 8725 section 3.11).
    let kind = head.get("typ").map(|kind| kind.as_str().unwrap_or("?").to_ascii_lowercase());
    let kind = kind.as_deref().map(|kind| kind.strip_prefix("application/").unwrap_or(kind));
    if !matches!(kind, None | Some("jwt" | "at+jwt")) {
        return Err("the token is for something else".into());
    }
    let algorithm = head.get("alg").and_then(Value::as_str).and_then(|named| Algorithm::from_str(named).ok());
    let algorithm = algorithm.ok_or("the token is signed in no way that is known")?;
    let id = head.get("kid").map(|id| id.as_str().unwrap_or_default());
    let fits = |key: &&VerifyingKey| key.algorithm == algorithm && (id.is_none() || key.id.as_deref() == id);
    let mut why = "no key is known for the token".to_owned();
    for key in keys.iter().filter(fits).take(TRIED) {
        match decode::<Value>(token, &key.key, &validation(key, settings)) {
            Ok(decoded) => return user(&decoded.claims, settings),
            Err(error) => why = format!("the token is not good: {error}"),
        }
    }
    Err(why)
}

fn validation(key: &VerifyingKey, settings: &Tokens) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&settings.audience);
    validation.leeway = settings.leeway.as_secs();
    validation.validate_nbf = true;
    validation
}

fn user(claims: &Value, settings: &Tokens) -> Result<(User, i64), String> {
    // One issuer, and not a list with it.
    if claims.get("iss").and_then(Value::as_str) != Some(&settings.issuer) {
        return Err("the token has another issuer".into());
    }
    let expires = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
    let name = claim(claims, &settings.user).and_then(Value::as_str);
    let fits = |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_control);
    let name = name.filter(fits).ok_or_else(|| format!("the token has no `{}`", settings.user))?;
    let mut groups: Vec<String> = match settings.groups.as_deref().and_then(|groups| claim(claims, groups)) {
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(groups)) => {
            groups.split(' ').filter(|group| !group.is_empty()).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    groups.retain(|group| !group.contains(char::is_control));
    groups.sort_unstable();
    groups.dedup();
    if groups.len() > GROUPS_MAX {
        return Err("the token names too many groups".into());
    }
    // Beyond what a clock can say it is as good as for ever.
    let expires = expires.clamp(0.0, 1e12) as i64;
    let leeway = i64::try_from(settings.leeway.as_secs()).unwrap_or(0);
    Ok((User { name: name.to_owned(), groups, unlisted: None }, expires.saturating_add(leeway)))
}

/// A claim by its name, or by the way to it.
fn claim<'c>(claims: &'c Value, name: &str) -> Option<&'c Value> {
    claims.get(name).or_else(|| name.split('.').try_fold(claims, |within, part| within.get(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;
    use std::time::Duration;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn settings() -> Tokens {
        Tokens {
            file: "/jwks".into(),
            keys: Vec::new().into(),
            issuer: "https://id".into(),
            audience: vec!["api".into(), "web".into()],
            user: "sub".into(),
            groups: Some("realm.roles".into()),
            leeway: Duration::from_secs(60),
        }
    }

    fn keys() -> Vec<VerifyingKey> {
        let jwk = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET) }).to_string();
        verifying_keys(&[
            TokenKey { id: Some("a".into()), algorithm: "HS256".into(), jwk: jwk.clone() },
            TokenKey { id: Some("b".into()), algorithm: "HS512".into(), jwk },
        ])
    }

    fn claims() -> Value {
        let now = wall_seconds();
        json!({ "iss": "https://id", "aud": ["other", "api"], "sub": "anna", "exp": now + 300, "nbf": now,
            "realm": { "roles": ["staff", "admins", 7] } })
    }

    fn signed(algorithm: Algorithm, id: Option<&str>, claims: &Value) -> String {
        let head = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
        encode(&head, claims, &EncodingKey::from_secret(SECRET)).unwrap()
    }

    fn said(token: &str) -> Result<String, String> {
        verify(token, &keys(), &settings())
            .map(|(user, _)| format!("{} {}", user.name, user.groups.join(",")))
    }

    #[test]
    fn what_a_token_says_has_to_be_right() {
        assert_eq!(said(&signed(Algorithm::HS256, Some("a"), &claims())).as_deref(), Ok("anna admins,staff"));
        assert_eq!(said(&signed(Algorithm::HS512, None, &claims())).as_deref(), Ok("anna admins,staff"));
        let now = wall_seconds();
        for (name, value, is_good) in [
            ("exp", json!(now - 30), true),
            ("exp", json!(now - 90), false),
            ("exp", json!(now as f64 + 0.5), true),
            ("exp", json!("soon"), false),
            ("exp", json!(-5), false),
            ("exp", Value::Null, false),
            ("nbf", json!(now + 30), true),
            ("nbf", json!(now + 90), false),
            ("nbf", json!("now"), false),
            ("nbf", Value::Null, false),
            ("iss", json!("https://id/"), false),
            ("iss", json!(["https://id"]), false),
            ("iss", Value::Null, false),
            ("aud", json!("web"), true),
            ("aud", json!("ap"), false),
            ("aud", json!([]), false),
            ("aud", Value::Null, false),
            ("sub", json!(""), false),
            ("sub", json!(7), false),
            ("sub", json!("an\nna"), false),
            ("sub", Value::Null, false),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            let said = said(&signed(Algorithm::HS256, Some("a"), &claims));
            assert_eq!(said.is_ok(), is_good, "{name} {value}: {said:?}");
            let fields = claims.as_object_mut().unwrap();
            if value.is_null() {
                fields.remove(name);
                let said = self::said(&signed(Algorithm::HS256, Some("a"), &claims));
                assert_eq!(said.is_ok(), name == "nbf", "without {name}: {said:?}");
            }
        }
    }

    /// RFC 8725 section 2: what tokens were forged with.
    #[test]
    fn a_token_chooses_nothing() {
        let good = signed(Algorithm::HS256, Some("a"), &claims());
        let parts: Vec<&str> = good.split('.').collect();
        let with_head = |head: Value| {
            let head = URL_SAFE_NO_PAD.encode(head.to_string());
            let text = format!("{head}.{}", parts[1]);
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET);
            let signature = URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&key, text.as_bytes()));
            format!("{text}.{signature}")
        };
        assert!(said(&with_head(json!({ "alg": "HS256", "typ": "JWT", "kid": "a" }))).is_ok());
        assert!(said(&with_head(json!({ "alg": "HS256", "typ": "at+jwt" }))).is_ok());
        for head in [
            json!({ "alg": "none", "kid": "a" }),
            json!({ "alg": "None" }),
            json!({ "alg": "hs256", "kid": "a" }),
            json!({ "alg": "RS256", "kid": "a" }),
            json!({ "alg": "HS512", "kid": "a" }), // a key of another algorithm
            json!({ "alg": "HS256", "kid": "b" }),
            json!({ "alg": "HS256", "kid": "c" }),
            json!({ "alg": "HS256", "kid": 7 }),
            json!({ "alg": "HS256", "kid": "a", "crit": ["exp"] }),
            json!({ "alg": "HS256", "kid": "a", "typ": "logout+jwt" }),
            json!({ "alg": "HS256", "kid": "a", "typ": 7 }),
            json!({ "kid": "a" }),
            json!([]),
        ] {
            let token = with_head(head.clone());
            assert!(said(&token).is_err(), "{head}");
            let unsigned = token.rsplit_once('.').unwrap().0;
            assert!(said(&format!("{unsigned}.")).is_err() && said(unsigned).is_err(), "{head}");
        }
        let other = URL_SAFE_NO_PAD.encode(claims().to_string().replace("anna", "root"));
        for token in [
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{good}="),
            format!("{good}.x"),
            format!("{}.{}.", parts[0], parts[1]),
            "..".into(),
            "x".into(),
            "\u{e4}.\u{e4}.\u{e4}".into(),
        ] {
            assert!(said(&token).is_err(), "{token}");
        }
    }

    #[test]
    fn fields() {
        for (field, expected) in [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bEARER  a.b.c ", Some("a.b.c")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic a.b.c", None),
        ] {
            assert_eq!(bearer(field.as_bytes()), expected, "{field}");
        }
        assert!(bearer(format!("Bearer {}", "a".repeat(LONGEST + 1)).as_bytes()).is_none());
    }
}
