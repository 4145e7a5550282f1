//! A set of keys of tokens: a JWK Set (RFC 7517) as identity providers publish it.
//!
//! Each key is taken for one algorithm, its own: what the head of a token asks for chooses nothing (RFC 8725 section 3.1).

use crate::disk::{Disk, RealDisk};
use crate::settings::TokenKey;
use serde_json::Value;
use std::path::Path;

/// Most keys of a set.
const MOST: usize = 100;

/// The keys of a file that can be used.
///
/// # Errors
/// A sentence.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<TokenKey>, String> {
    let text = crate::accounts::text_of(disk, path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// The same, of this machine.
///
/// # Errors
/// A sentence.
pub(crate) fn read_anew(path: &Path) -> Result<Vec<TokenKey>, String> {
    read(&RealDisk, path)
}

/// The keys of a set that a service publishes. One that is shared would be no secret there, and counts for nothing.
///
/// # Errors
/// A sentence.
pub fn read_published_keys(text: &str) -> Result<Vec<TokenKey>, String> {
    let mut keys = parse(text)?;
    keys.retain(|key| !key.algorithm.starts_with("HS"));
    if keys.is_empty() {
        return Err("none of its keys can be used: keys of HMAC are secret, and nothing to publish".into());
    }
    Ok(keys)
}

/// The keys of a set that can be used: those of signatures, of kinds that are known.
fn parse(text: &str) -> Result<Vec<TokenKey>, String> {
    let set: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let Some(all) = set.get("keys").and_then(Value::as_array) else {
        return Err("it is no set of keys, as `{\"keys\": […]}` is (RFC 7517)".into());
    };
    if all.len() > MOST {
        return Err(format!("it holds more than {MOST} keys"));
    }
    let keys: Vec<TokenKey> = all.iter().filter_map(key).collect();
    match keys.is_empty() {
        true => {
            Err("none of its keys can be used: of RSA, EC (P-256, P-384), Ed25519, or HMAC with `alg`".into())
        }
        false => Ok(keys),
    }
}

fn key(jwk: &Value) -> Option<TokenKey> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let verifies = |of: &Vec<Value>| of.iter().any(|operation| operation == "verify");
    if text("use").is_some_and(|of| of != "sig")
        || jwk.get("key_ops").and_then(Value::as_array).is_some_and(|of| !verifies(of))
    {
        return None;
    }
    // What a kind of key can be for, the usual one first; a shared secret has to say so itself.
    let (fits, usual): (&[&str], Option<&str>) = match (text("kty")?, text("crv")) {
        ("RSA", _) => (&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], Some("RS256")),
        ("EC", Some("P-256")) => (&["ES256"], Some("ES256")),
        ("EC", Some("P-384")) => (&["ES384"], Some("ES384")),
        ("OKP", Some("Ed25519")) => (&["EdDSA"], Some("EdDSA")),
        ("oct", _) => (&["HS256", "HS384", "HS512"], None),
        _ => return None,
    };
    let algorithm = match jwk.get("alg") {
        None => usual?,
        Some(named) => named.as_str().filter(|named| fits.contains(named))?,
    };
    // Of a pair the public half is enough, and of a certificate beside it nothing is wanted.
    let mut plain = serde_json::Map::new();
    for name in ["kty", "crv", "x", "y", "n", "e", "k"] {
        plain.extend(jwk.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    Some(TokenKey {
        id: text("kid").map(str::to_owned),
        algorithm: algorithm.to_owned(),
        jwk: Value::Object(plain).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_for_its_own_algorithm() {
        let of = |jwk: &str| {
            let keys = parse(&format!("{{\"keys\":[{jwk}]}}")).ok()?;
            Some(format!("{} {}", keys[0].id.as_deref().unwrap_or("-"), keys[0].algorithm))
        };
        for (jwk, expected) in [
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","kid":"a"}"#, Some("a RS256")),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","alg":"PS512","d":"secret"}"#, Some("- PS512")),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","alg":"HS256"}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","alg":"none"}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","alg":"RSA-OAEP"}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","alg":7}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","use":"enc"}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","key_ops":["encrypt"]}"#, None),
            (r#"{"kty":"RSA","n":"AQ","e":"AQ","key_ops":["verify"]}"#, Some("- RS256")),
            (r#"{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}"#, Some("- ES256")),
            (r#"{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ","alg":"ES384"}"#, None),
            (r#"{"kty":"EC","crv":"P-521","x":"AQ","y":"AQ"}"#, None),
            (r#"{"kty":"OKP","crv":"Ed25519","x":"AQ"}"#, Some("- EdDSA")),
            (r#"{"kty":"OKP","crv":"X25519","x":"AQ"}"#, None),
            (r#"{"kty":"oct","k":"AQ"}"#, None),
            (r#"{"kty":"oct","k":"AQ","alg":"HS256"}"#, Some("- HS256")),
            (r#"{"kty":"oct","k":"AQ","alg":"RS256"}"#, None),
            ("{}", None),
            ("7", None),
        ] {
            assert_eq!(of(jwk).as_deref(), expected, "{jwk}");
        }
        for text in ["", "[]", "{}", "{\"keys\":[]}", "{\"keys\":7}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let keys = parse(r#"{"keys":[{"kty":"RSA","n":"AQ","e":"AQ","d":"secret"}]}"#).unwrap();
        assert!(!keys[0].jwk.contains("secret"));
    }
}
