//! JSON Web Tokens (RFC 7519): whether one is good, and what it says.
//!
//! What a token asks for chooses nothing (RFC 8725): each key is good for its own algorithm, and a token is held to issuer,
//! audience, times and kind that are expected.

use crate::gateway::service::Answer;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;
use tidegate_config::settings::TokenKey;
use tidegate_core::log;
use tidegate_core::user::User;
use tidegate_http::Status;

/// Keys that a token without the name of one is tried with: as many as a set of keys may have.
const TRIED: usize = 100;
/// The longest name of a user, bytes; and the most groups.
const NAME_MAX: usize = 1024;
const GROUPS_MAX: usize = 1000;

/// A key that can verify.
struct VerifyingKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// A set of keys.
pub struct Keyring {
    /// As they were read, in an order of our own: who publishes them owes nobody one.
    written: Vec<TokenKey>,
    keys: Vec<VerifyingKey>,
}

impl PartialEq for Keyring {
    fn eq(&self, other: &Keyring) -> bool {
        self.written == other.written
    }
}

impl Keyring {
    /// Of settings, or of who publishes them.
    pub fn new(keys: &[TokenKey]) -> Keyring {
        let mut written = keys.to_vec();
        written.sort_unstable();
        Keyring { written, keys: verifying_keys(keys) }
    }

    /// As a service publishes them.
    ///
    /// # Errors
    /// A sentence.
    pub fn published(answer: &Answer) -> Result<Keyring, String> {
        if answer.status != Status::OK {
            return Err(format!("it has answered {}", answer.status.0));
        }
        let text = std::str::from_utf8(&answer.content).map_err(|_| "its answer is no text")?;
        Ok(Keyring::new(&tidegate_config::read_published_keys(text)?))
    }
}

/// Those that can be used. One that is none is left out, and said.
fn verifying_keys(keys: &[TokenKey]) -> Vec<VerifyingKey> {
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

/// What a token has to say.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Who has issued it.
    pub issuer: String,
    /// For one of whom it is.
    pub audience: Vec<String>,
    /// How far clocks may be apart.
    pub leeway: Duration,
    /// Of which kinds it is where it says so, in small letters: a token of another purpose is none of these (RFC 8725 section
    /// 3.11).
    pub kinds: &'static [&'static str],
}

/// Why a token is nobody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no key of its name: there may be one by now.
    UnknownKey,
    /// It is not good.
    Bad(String),
}

impl From<&str> for Fault {
    fn from(why: &str) -> Fault {
        Fault::Bad(why.to_owned())
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fault::UnknownKey => f.write_str("no key is known for the token"),
            Fault::Bad(why) => f.write_str(why),
        }
    }
}

/// What a token says, once it is known to be good.
///
/// # Errors
/// Why it is not.
pub fn verify(token: &str, keys: &Keyring, expected: &Expected) -> Result<Value, Fault> {
    let head = token.split('.').next().and_then(|head| URL_SAFE_NO_PAD.decode(head).ok());
    let head: Option<Value> = head.and_then(|head| serde_json::from_slice(&head).ok());
    let head = head.ok_or("what was shown is no token")?;
    // What is critical has to be understood (RFC 7515 section 4.1.11), and nothing is.
    if head.get("crit").is_some() {
        return Err("the token has extensions that are not known".into());
    }
    let kind = head.get("typ").map(|kind| kind.as_str().unwrap_or("?").to_ascii_lowercase());
    let kind = kind.as_deref().map(|kind| kind.strip_prefix("application/").unwrap_or(kind));
    if kind.is_some_and(|kind| !expected.kinds.contains(&kind)) {
        return Err("the token is for something else".into());
    }
    let algorithm = head.get("alg").and_then(Value::as_str).and_then(|named| Algorithm::from_str(named).ok());
    let algorithm = algorithm.ok_or("the token is signed in no way that is known")?;
    let id = head.get("kid").map(|id| id.as_str().unwrap_or_default());
    let fits = |key: &&VerifyingKey| key.algorithm == algorithm && (id.is_none() || key.id.as_deref() == id);
    let mut why = Fault::UnknownKey;
    for key in keys.keys.iter().filter(fits).take(TRIED) {
        match decode::<Value>(token, &key.key, &validation(key, expected)) {
            // One issuer, and not a list with it.
            Ok(decoded) if decoded.claims.get("iss").and_then(Value::as_str) != Some(&expected.issuer) => {
                return Err("the token has another issuer".into());
            }
            Ok(decoded) => return Ok(decoded.claims),
            // That of a key that is not known yet may have no name either.
            Err(error) if id.is_none() && *error.kind() == ErrorKind::InvalidSignature => {}
            Err(error) => why = Fault::Bad(format!("the token is not good: {error}")),
        }
    }
    Err(why)
}

fn validation(key: &VerifyingKey, expected: &Expected) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&expected.issuer]);
    validation.set_audience(&expected.audience);
    validation.leeway = expected.leeway.as_secs();
    validation.validate_nbf = true;
    validation
}

/// When a token expires, seconds since 1970, with what clocks may be apart.
pub fn expiry(claims: &Value, leeway: Duration) -> i64 {
    let expires = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
    // Beyond what a clock can say it is as good as for ever.
    let expires = expires.clamp(0.0, 1e12) as i64;
    expires.saturating_add(i64::try_from(leeway.as_secs()).unwrap_or(0))
}

/// Who it is, by the claims that have the name and the groups. An address is somebody's name only where its issuer has not
/// left open whose it is: `email_verified` may be absent, and else has to say that it is so (OpenID Connect Core 1.0 section
/// 5.1; some issuers write it as a string).
///
/// # Errors
/// A sentence.
pub fn user_of(claims: &Value, user: &str, groups: Option<&str>) -> Result<User, String> {
    let is_verified = |said: &Value| *said == Value::Bool(true) || *said == "true";
    if user == "email" && claims.get("email_verified").is_some_and(|said| !is_verified(said)) {
        return Err("the token does not say that its `email` is verified".to_owned());
    }
    let name = claim(claims, user).and_then(Value::as_str);
    let fits = |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_control);
    let name = name.filter(fits).ok_or_else(|| format!("the token has no `{user}`"))?;
    let mut groups: Vec<String> = match groups.and_then(|groups| claim(claims, groups)) {
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
    Ok(User { name: name.to_owned(), groups, unlisted: None })
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
    use tidegate_io::clock::wall_seconds;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn expected() -> Expected {
        Expected {
            issuer: "https://id".into(),
            audience: vec!["api".into(), "web".into()],
            leeway: Duration::from_secs(60),
            kinds: &["jwt", "at+jwt"],
        }
    }

    fn keys() -> Keyring {
        let jwk = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET) }).to_string();
        Keyring::new(&[
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
        let claims = verify(token, &keys(), &expected()).map_err(|fault| fault.to_string())?;
        user_of(&claims, "sub", Some("realm.roles"))
            .map(|user| format!("{} {}", user.name, user.groups.join(",")))
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

    #[test]
    fn an_address_that_nobody_has_verified_is_nobodys_name() {
        for (said, is_good) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("false"), false),
            (json!("True"), false),
            (json!("no"), false),
            (json!(""), false),
            (Value::Null, false),
            (json!(0), false),
            (json!(1), false),
            (json!([true]), false),
        ] {
            let claims = json!({ "sub": "7", "email": "anna@a.test", "email_verified": said });
            assert_eq!(user_of(&claims, "email", None).is_ok(), is_good, "{said}");
            assert_eq!(user_of(&claims, "sub", None).unwrap().name, "7", "who goes by another claim");
        }
        let claims = json!({ "email": "anna@a.test" });
        assert_eq!(user_of(&claims, "email", None).unwrap().name, "anna@a.test", "not every issuer says");
    }

    #[test]
    fn a_token_without_the_name_of_a_key_is_tried_with_all_that_fit() {
        let key = |secret: &[u8]| {
            let jwk = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(secret) }).to_string();
            TokenKey { id: None, algorithm: "HS256".into(), jwk }
        };
        let others: Vec<TokenKey> = (0..9).map(|number| key(&[number; 32])).collect();
        let token = signed(Algorithm::HS256, None, &claims());
        let unknown = verify(&token, &Keyring::new(&others), &expected()).unwrap_err();
        assert_eq!(unknown, Fault::UnknownKey, "its key may have been published by now");
        let mut all = others;
        all.push(key(SECRET));
        let known = Keyring::new(&all);
        assert!(verify(&token, &known, &expected()).is_ok());
        let expired = json!({ "iss": "https://id", "aud": "api", "exp": 7 });
        let expired = verify(&signed(Algorithm::HS256, None, &expired), &known, &expected()).unwrap_err();
        assert!(matches!(expired, Fault::Bad(_)), "{expired}");
        all.reverse();
        assert!(known == Keyring::new(&all), "in whatever order they are published");
        assert!(known != Keyring::new(&all[1..]));
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
}
