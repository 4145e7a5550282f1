//! What an identity provider says of itself (OpenID Connect Discovery 1.0 section 3), and what it says of a code.

use crate::gateway::service::Answer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tidegate_config::settings::{OpenId, ServiceAddress};
use tidegate_http::Status;
use tidegate_http::query::encode;

/// What is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Where browsers are sent to.
    pub authorization: String,
    /// What is asked for to redeem a code, at the provider or where settings say.
    pub token: String,
    /// The same for its keys.
    pub keys: String,
    /// Where browsers are sent to that have logged out.
    pub end_session: Option<String>,
    /// What comes back with a browser names the provider (RFC 9207).
    pub names_itself: bool,
    /// The secret is to be sent in the content, and in no field.
    pub secret_in_content: bool,
}

/// What settings say of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Named<'s> {
    /// What it calls itself.
    pub issuer: &'s str,
    /// Where codes are redeemed, where that is elsewhere.
    pub token: Option<&'s str>,
    /// Where its keys are, where that is elsewhere.
    pub keys: Option<&'s str>,
}

impl<'s> From<&'s OpenId> for Named<'s> {
    fn from(settings: &'s OpenId) -> Named<'s> {
        let OpenId { issuer, token, keys, .. } = settings;
        let url = |address: &'s Option<ServiceAddress>| address.as_ref().map(|address| &*address.url);
        Named { issuer, token: url(token), keys: url(keys) }
    }
}

/// The longest address of a page of it.
const ADDRESS_MAX: usize = 2048;

impl Metadata {
    /// What it has answered.
    ///
    /// # Errors
    /// A sentence.
    pub fn read(answer: &Answer, settings: Named<'_>) -> Result<Metadata, String> {
        if answer.status != Status::OK {
            return Err(format!("it has answered {}", answer.status.0));
        }
        let all: Value = serde_json::from_slice(&answer.content)
            .map_err(|error| format!("its answer is no JSON: {error}"))?;
        let text = |name: &str| all.get(name).and_then(Value::as_str);
        if text("issuer") != Some(settings.issuer) {
            let named = text("issuer").unwrap_or_default().escape_debug();
            return Err(format!("it calls itself `{named}`, and the settings call it `{}`", settings.issuer));
        }
        let is_plain = settings.issuer.starts_with("http://");
        let page = |name: &str| {
            let fits = |address: &&str| {
                (address.starts_with("https://") || is_plain && address.starts_with("http://"))
                    && address.len() <= ADDRESS_MAX
                    && address.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>#\\".contains(&byte))
            };
            text(name).filter(fits).map(str::to_owned)
        };
        // A host that the settings do not name is not asked, whatever a provider says.
        let asked = |name: &str, written: Option<&str>, setting: &str| {
            let address = page(name).ok_or_else(|| format!("it names no `{name}`"))?;
            let (origin, path) =
                origin_and_path(&address).ok_or_else(|| format!("its `{name}` is no address"))?;
            let own = written.unwrap_or(settings.issuer);
            match origin_and_path(own) {
                Some((known, _)) if known == origin => Ok(path),
                _ => Err(format!(
                    "its `{name}` is {address}, on another host: write `{setting} \"{address}\"` if that is right"
                )),
            }
        };
        let methods = all.get("token_endpoint_auth_methods_supported").and_then(Value::as_array);
        let knows = |method: &str| methods.is_some_and(|methods| methods.iter().any(|known| known == method));
        Ok(Metadata {
            authorization: page("authorization_endpoint").ok_or("it names no `authorization_endpoint`")?,
            token: asked("token_endpoint", settings.token, "token-endpoint")?,
            keys: asked("jwks_uri", settings.keys, "keys")?,
            end_session: page("end_session_endpoint"),
            names_itself: all.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            secret_in_content: knows("client_secret_post") && !knows("client_secret_basic"),
        })
    }
}

/// `https://host:port`, as browsers compare it, and what stands behind it.
fn origin_and_path(address: &str) -> Option<(String, String)> {
    let (scheme, rest) = address.split_once("://")?;
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let usual = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.to_ascii_lowercase();
    let authority = authority.strip_suffix(usual).unwrap_or(&authority);
    let is_host = !authority.is_empty() && !authority.contains('@');
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    is_host.then(|| (format!("{scheme}://{authority}"), path))
}

/// What redeems a code: the form, and the fields beside it (RFC 6749 sections 4.1.3 and 2.3.1).
pub fn redemption(
    provider: &Metadata,
    settings: &OpenId,
    code: &str,
    verifier: &str,
    redirect: &str,
) -> (String, Option<String>) {
    let mut form = String::from("grant_type=authorization_code");
    let mut add = |name: &str, value: &str| {
        form.push('&');
        form.push_str(name);
        form.push('=');
        form.push_str(&encode(value.as_bytes()));
    };
    add("code", code);
    add("redirect_uri", redirect);
    add("code_verifier", verifier);
    let in_field = settings.secret.as_ref().filter(|_| !provider.secret_in_content);
    if in_field.is_none() {
        add("client_id", &settings.client);
        if let Some(secret) = &settings.secret {
            add("client_secret", secret);
        }
    }
    let field = in_field.map(|secret| {
        let pair = format!("{}:{}", encode(settings.client.as_bytes()), encode(secret.as_bytes()));
        format!("Basic {}", STANDARD.encode(pair))
    });
    (form, field)
}

/// Why a code was not redeemed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRedeemed {
    /// The provider says so: the code is old, was used, or is of another login.
    Refused(String),
    /// What it says is nothing that decides.
    Away(String),
}

/// The ID token that it has answered with.
///
/// # Errors
/// There is none.
pub fn id_token(answer: &Answer) -> Result<String, NotRedeemed> {
    let said: Option<Value> = serde_json::from_slice(&answer.content).ok();
    let text = |name: &str| said.as_ref().and_then(|said| said.get(name)).and_then(Value::as_str);
    match (answer.status, text("id_token"), text("error")) {
        (Status::OK, Some(token), _) => Ok(token.to_owned()),
        (Status::OK, None, _) => Err(NotRedeemed::Away("its answer has no `id_token`".to_owned())),
        // That we are not whom it knows is nothing that the browser can mend.
        (Status(400), _, Some("invalid_grant")) => {
            Err(NotRedeemed::Refused("the provider does not know the code".to_owned()))
        }
        (Status(status), _, error) => {
            let error = error.map(|error| format!(", `{}`", error.escape_debug())).unwrap_or_default();
            Err(NotRedeemed::Away(format!("it has answered {status}{error} to a code")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for (address, expected) in [
            ("https://id.test/a?b", Some(("https://id.test", "/a?b"))),
            ("https://ID.test:443", Some(("https://id.test", "/"))),
            ("https://id.test:8443/a", Some(("https://id.test:8443", "/a"))),
            ("http://127.0.0.1:80/a", Some(("http://127.0.0.1", "/a"))),
            ("https://id.test@evil.test/a", None),
            ("https:///a", None),
            ("id.test/a", None),
        ] {
            let expected = expected.map(|(origin, path)| (origin.to_owned(), path.to_owned()));
            assert_eq!(origin_and_path(address), expected, "{address}");
        }
    }

    #[test]
    fn what_a_code_is_redeemed_for() {
        let answer = |status, content: &str| Answer {
            status: Status(status),
            lines: tidegate_http::FieldLines::new(),
            content: content.into(),
        };
        assert_eq!(id_token(&answer(200, r#"{"id_token":"a.b.c"}"#)), Ok("a.b.c".into()));
        let refused = id_token(&answer(400, r#"{"error":"invalid_grant"}"#));
        assert!(matches!(refused, Err(NotRedeemed::Refused(_))));
        for (status, content) in [
            (200, "{}"),
            (200, "x"),
            (200, r#"{"id_token":7}"#),
            (401, r#"{"error":"invalid_client"}"#),
            (500, ""),
            (302, ""),
        ] {
            assert!(
                matches!(id_token(&answer(status, content)), Err(NotRedeemed::Away(_))),
                "{status} {content}"
            );
        }
    }
}
