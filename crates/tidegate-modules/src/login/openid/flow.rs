//! A login under way (OpenID Connect Core 1.0 section 3.1, RFC 7636): what is told the provider, and what comes back with the
//! browser.
//!
//! All of it that has to be known again is sealed in the `state`. It is bound to the browser by one cookie of ten minutes that all
//! tabs share: whoever is sent here with a state that another browser has begun (login CSRF) does not have that cookie.

use super::provider::Metadata;
use super::seal::{Seals, Unsealed, random};
use super::session::Place;
use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tidegate_http::query::encode;

/// How long a login may take, seconds.
pub const PATIENCE: i64 = 600;
/// A longer address is not gone back to.
const RETURN_MAX: usize = 1024;
/// The longest state that is looked at.
const STATE_MAX: usize = 4096;
/// Characters of the cookie that binds states to a browser.
const BROWSER: usize = 22;

/// A login that a browser has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// What the cookie of the browser holds.
    #[serde(rename = "b")]
    pub browser: String,
    /// What the ID token has to hold.
    #[serde(rename = "n")]
    pub nonce: String,
    /// What proves that whoever redeems the code has begun this.
    #[serde(rename = "v")]
    pub verifier: String,
    /// The path and query to go back to.
    #[serde(rename = "r")]
    pub back: String,
    /// When it began, seconds since 1970.
    #[serde(rename = "t")]
    pub begun: i64,
    /// The browser has a session, which is to be renewed without a question.
    #[serde(rename = "s", default)]
    pub is_silent: bool,
}

impl Flow {
    /// A new one. `browser` is what the cookie holds, where there is one; `asked` the path and query that were asked for.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(browser: Option<&str>, asked: &str, now: i64) -> Result<Flow, Unsealed> {
        let is_one = |value: &&str| {
            value.len() == BROWSER
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let browser = match browser.filter(is_one) {
            Some(known) => known.to_owned(),
            None => random::<16>()?,
        };
        let back = if asked.len() <= RETURN_MAX && asked.starts_with('/') { asked } else { "/" };
        Ok(Flow {
            browser,
            nonce: random::<16>()?,
            verifier: random::<32>()?,
            back: back.to_owned(),
            begun: now,
            is_silent: false,
        })
    }

    /// The address that the browser is sent to.
    ///
    /// # Errors
    /// Its state is not sealed.
    pub fn address(
        &self,
        provider: &Metadata,
        scopes: &[String],
        place: Place<'_>,
        seals: &Seals,
        redirect: &str,
    ) -> Result<String, Unsealed> {
        let state = place.seal("state", seals, self)?;
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()));
        let mut scope = String::from("openid");
        scopes.iter().filter(|scope| *scope != "openid").for_each(|more| {
            scope.push(' ');
            scope.push_str(more);
        });
        let prompt = self.is_silent.then_some(("prompt", "none"));
        let mut address = provider.authorization.clone();
        let mut sign = if address.contains('?') { '&' } else { '?' };
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", place.client),
            ("redirect_uri", redirect),
            ("scope", &scope),
            ("state", &state),
            ("nonce", &self.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]
        .into_iter()
        .chain(prompt)
        {
            address.push(std::mem::replace(&mut sign, '&'));
            address.push_str(name);
            address.push('=');
            address.push_str(&encode(value.as_bytes()));
        }
        Ok(address)
    }

    /// The login that a state is of, where this browser has begun it, and not too long ago.
    ///
    /// # Errors
    /// Why it is not.
    pub fn of(
        state: &str,
        browser: Option<&str>,
        place: Place<'_>,
        seals: &Seals,
        now: i64,
    ) -> Result<Flow, &'static str> {
        let opened = if state.len() > STATE_MAX { None } else { place.open("state", seals, state) };
        let flow: Flow = opened.ok_or("its `state` was not made here, or for another site")?;
        if browser != Some(flow.browser.as_str()) {
            return Err("the login was begun by another browser");
        }
        if !(flow.begun..flow.begun.saturating_add(PATIENCE)).contains(&now.max(flow.begun)) {
            return Err("the login has taken too long");
        }
        Ok(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::settings::UrlKey;

    const PLACE: Place<'_> = Place {
        users: "corp",
        issuer: "https://id",
        client: "web",
        user: "sub",
        groups: None,
        scheme: "https",
        authority: "a.test",
    };

    #[test]
    fn a_state_is_for_the_browser_that_has_begun() {
        let seals = Seals::new(&[UrlKey::from_bytes(vec![7; 32])]);
        let flow = Flow::begin(None, "/a?b", 1000).unwrap();
        let state = PLACE.seal("state", &seals, &flow).unwrap();
        let of = |browser, place, now| Flow::of(&state, browser, place, &seals, now);
        assert_eq!(of(Some(flow.browser.as_str()), PLACE, 1599), Ok(flow.clone()));
        assert!(of(Some(flow.browser.as_str()), PLACE, 1600).is_err(), "too late");
        assert!(
            of(None, PLACE, 1000).is_err()
                && of(Some("x"), PLACE, 1000).is_err()
                && of(Some(""), PLACE, 1000).is_err()
        );
        assert!(of(Some(flow.browser.as_str()), Place { authority: "b.test", ..PLACE }, 1000).is_err());
        // Another tab shares the cookie, and nothing else.
        let other = Flow::begin(Some(&flow.browser), "/c", 1001).unwrap();
        assert_eq!(other.browser, flow.browser);
        assert!(other.nonce != flow.nonce && other.verifier != flow.verifier);
        for broken in ["", "short", "0123456789012345678901234", "01234567890123456789;a"] {
            assert_ne!(Flow::begin(Some(broken), "/", 1).unwrap().browser, broken);
        }
    }

    #[test]
    fn nothing_but_a_path_is_gone_back_to() {
        let long = format!("/{}", "a".repeat(RETURN_MAX));
        for (asked, expected) in [
            ("/a?b=c", "/a?b=c"),
            ("//evil.test/", "//evil.test/"),
            ("https://evil.test/", "/"),
            ("", "/"),
            ("*", "/"),
            (&long, "/"),
        ] {
            assert_eq!(Flow::begin(None, asked, 0).unwrap().back, expected);
        }
    }
}
