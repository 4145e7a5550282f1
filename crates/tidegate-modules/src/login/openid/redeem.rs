//! Asking a provider: what it has, and who a code that a browser has brought is good for (OpenID Connect Core 1.0 sections 3.1.3
//! and 3.1.3.7).
//!
//! The gate alone calls it. Nothing here knows of browsers or of cookies: what is said is held against the login that was begun,
//! and given back as claims that are good.

use super::flow::Flow;
use super::provider::{self, Metadata, NotRedeemed};
use crate::gateway::service::Service;
use crate::login::fetched::{Known, lifetime};
use crate::login::jwt::{Expected, Fault, Keyring, verify};
use crate::login::source::Source;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::OpenId;
use tidegate_io::clock::monotonic_ns;

/// The ways to a provider.
pub struct Services {
    /// What it has.
    pub discovery: Rc<Service>,
    /// Its keys, where they are elsewhere.
    pub keys: Option<Rc<Service>>,
    /// Where codes are redeemed, where that is elsewhere.
    pub token: Option<Rc<Service>>,
}

/// A provider, as one worker asks it.
pub(super) struct Provider {
    pub source: Arc<Source>,
    pub settings: OpenId,
    services: Services,
    expected: Expected,
}

/// What a browser has come back with.
pub(super) struct Return {
    pub code: String,
    pub flow: Flow,
    /// The address that it was sent back to.
    pub redirect: String,
    /// It says from which provider it comes.
    pub is_named: bool,
}

/// What the provider has said of somebody.
pub(super) struct Told {
    pub claims: Value,
    /// The token that says so, where it is of use later.
    pub token: Option<String>,
}

/// Why somebody who has come back is not let in.
pub(super) enum Refused {
    /// The provider cannot be asked.
    Away(String),
    /// What it says is not good, or not for this login.
    Bad(String),
}

impl Provider {
    /// Of these settings; `source` has what is known of it.
    pub fn new(settings: &OpenId, services: Services, source: Arc<Source>) -> Provider {
        let expected = Expected {
            issuer: settings.issuer.clone(),
            audience: vec![settings.client.clone()],
            leeway: settings.leeway,
            kinds: &["jwt"],
        };
        Provider { source, settings: settings.clone(), services, expected }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        self.services.discovery.name()
    }

    /// What it has. Where that is not known it is asked.
    pub fn metadata(&self) -> Known<Metadata> {
        let Some(metadata) = self.source.metadata() else { return Known::Away };
        metadata.get(monotonic_ns(), || {
            let (asked, settings) = (self.services.discovery.get(None), self.settings.clone());
            async move {
                let answer = asked.await?;
                Ok((Metadata::read(&answer, (&settings).into())?, lifetime(&answer.lines)))
            }
        })
    }

    /// What the ID token says that a code is good for.
    pub async fn redeem(&self, returned: &Return) -> Result<Told, Refused> {
        let known = self.metadata();
        let provider = match self.source.metadata() {
            Some(metadata) => metadata.once_asked(known).await,
            None => None,
        };
        let provider = provider.ok_or_else(|| Refused::Away("what it has is not known".to_owned()))?;
        let Return { code, flow, redirect, is_named } = returned;
        if provider.names_itself && !is_named {
            return Err(Refused::Bad("it does not say from which provider it comes".to_owned()));
        }
        let (form, field) = provider::redemption(&provider, &self.settings, code, &flow.verifier, redirect);
        let fields: Vec<(&str, &str)> = field.iter().map(|field| ("Authorization", field.as_str())).collect();
        let service = self.services.token.as_ref().unwrap_or(&self.services.discovery);
        let answered = service.post(&provider.token, &fields, &form).await.map_err(Refused::Away)?;
        let token = provider::id_token(&answered).map_err(|refused| match refused {
            NotRedeemed::Refused(why) => Refused::Bad(why),
            NotRedeemed::Away(why) => Refused::Away(why),
        })?;
        let claims = self.verified(&token, &provider).await?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let nonce = text("nonce").unwrap_or_default();
        if verify_slices_are_equal(nonce.as_bytes(), flow.nonce.as_bytes()).is_err() {
            return Err(Refused::Bad("the token is of another login: its `nonce` is wrong".to_owned()));
        }
        // Of several whom it is for one has asked for it (section 3.1.3.7).
        let is_for_many = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
        match text("azp") {
            Some(party) if party != self.settings.client => {
                Err(Refused::Bad("the token was asked for by somebody else (`azp`)".to_owned()))
            }
            None if is_for_many => {
                Err(Refused::Bad("the token does not say who has asked for it (`azp`)".to_owned()))
            }
            // It is of use to who logs out, where there is a page for that.
            _ => Ok(Told { claims, token: provider.end_session.is_some().then_some(token) }),
        }
    }

    /// What a token says that is good, by the keys of the provider, which may be new.
    async fn verified(&self, token: &str, provider: &Metadata) -> Result<Value, Refused> {
        let no_keys = || Refused::Away("its keys are not known".to_owned());
        let published = self.source.published_keys().ok_or_else(no_keys)?;
        let asks = || self.asks_for_keys(provider);
        let known = published.get(monotonic_ns(), asks);
        let keys = published.once_asked(known).await.ok_or_else(no_keys)?;
        let mut claims = verify(token, &keys, &self.expected);
        if claims == Err(Fault::UnknownKey) {
            let newer = published.newer_than(&keys, monotonic_ns(), asks);
            if let Some(newer) = published.once_asked(newer).await {
                claims = verify(token, &newer, &self.expected);
            }
        }
        claims.map_err(|fault| Refused::Bad(fault.to_string()))
    }

    fn asks_for_keys(
        &self,
        provider: &Metadata,
    ) -> impl Future<Output = Result<(Keyring, Duration), String>> + use<> {
        let service = self.services.keys.as_ref().unwrap_or(&self.services.discovery);
        let asked = service.get(Some(&provider.keys));
        async move {
            let answer = asked.await?;
            Ok((Keyring::published(&answer)?, lifetime(&answer.lines)))
        }
    }
}
