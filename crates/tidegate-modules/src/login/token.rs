//! `login token`: who somebody is by a JSON Web Token (RFC 7519) in `Authorization: Bearer` (RFC 6750).
//!
//! Whoever has shown a token is remembered by it until it expires. Keys come with the settings, or from the service that
//! publishes them, which is asked by the worker whose request needs them.

use super::fetched::{Known, lifetime};
use super::jwt::{Expected, Fault, Keyring, expiry, user_of, verify};
use super::source::Source;
use crate::gateway::service::Service;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Login, Shared, Tokens};
use tidegate_core::user::Identity;
use tidegate_core::{Exchange, Gate, Need, Response, Verdict, answer};
use tidegate_http::Status;
use tidegate_io::clock::{monotonic_ns, wall_seconds};
use tidegate_io::oneshot::Promised;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// The longest token that is looked at, bytes.
const LONGEST: usize = 16 << 10;
/// The longest that a request waits for keys.
const PATIENCE: Duration = Duration::from_secs(6);

/// Asks for a token.
pub struct TokenGate(Rc<Terms>);

struct Terms {
    source: Arc<Source>,
    stats: Arc<Stats>,
    login: Shared<Login>,
    settings: Tokens,
    expected: Expected,
    realm: String,
    /// Who publishes the keys.
    service: Option<Rc<Service>>,
}

impl TokenGate {
    /// The gate of a `login`; `source` has its users, and `service` their keys where the settings do not.
    pub fn new(
        login: &Shared<Login>,
        settings: &Tokens,
        service: Option<Rc<Service>>,
        source: Arc<Source>,
        stats: Arc<Stats>,
    ) -> TokenGate {
        let realm = login.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let expected = Expected {
            issuer: settings.issuer.clone(),
            audience: settings.audience.clone(),
            leeway: settings.leeway,
            kinds: &["jwt", "at+jwt"],
        };
        let (login, settings) = (login.clone(), settings.clone());
        TokenGate(Rc::new(Terms { source, stats, login, settings, expected, realm, service }))
    }
}

impl Gate for TokenGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        if exchange.is_logged_in(&self.0.login) {
            return Verdict::Pass;
        }
        self.0.check(exchange, None)
    }

    fn name(&self) -> String {
        format!("`login token \"{}\"` ({})", self.0.login.users, self.0.login.origin)
    }

    fn identifies(&self) -> bool {
        true
    }
}

impl Terms {
    /// Looks at a request. One that has waited for keys already has an identity, which is there for who it turns out to be.
    fn check(self: &Rc<Self>, exchange: &mut Exchange<'_>, waited: Option<Rc<Identity>>) -> Verdict {
        let may_wait = waited.is_none();
        let prove = |exchange: &mut Exchange<'_>, user| {
            waited.unwrap_or_else(|| exchange.identify()).prove(user, "Bearer", &self.login);
            Verdict::Pass
        };
        let Some(token) = exchange.fields.single("authorization").and_then(bearer) else {
            let Login { users, origin, .. } = &*self.login;
            let why = format_args!("`login token \"{users}\"` ({origin}) asks who it is");
            let challenge = format!("Bearer realm=\"{}\"", self.realm);
            let response = answer::asked(Status::UNAUTHORIZED, why);
            return Verdict::Refuse(response.with("WWW-Authenticate", challenge));
        };
        let now = monotonic_ns();
        let published = self.source.published_keys();
        let keys = match published {
            // What was verified with keys that are too old to be used is not known any more, either.
            Some(published) if !published.is_fresh(now) => match published.get(now, || self.asks()) {
                Known::Value(keys) => Some(keys),
                Known::Asked(promised) if may_wait => return self.wait_for(exchange, promised),
                Known::Asked(_) | Known::Away => return Verdict::Refuse(self.unavailable(exchange)),
            },
            _ => None,
        };
        if let Some(user) = self.source.shown(token.as_bytes(), now) {
            self.stats.user_cache_hits.add(1);
            return prove(exchange, user);
        }
        self.stats.user_cache_misses.add(1);
        let Some(mut keys) = keys.or_else(|| self.source.token_keys(now)) else {
            return Verdict::Refuse(self.unavailable(exchange));
        };
        let mut claims = verify(token, &keys, &self.expected);
        // Another one may have been published by now.
        if let (Err(Fault::UnknownKey), Some(published), true) = (&claims, published, may_wait) {
            match published.newer_than(&keys, now, || self.asks()) {
                Known::Value(newer) => {
                    claims = verify(token, &newer, &self.expected);
                    keys = newer;
                }
                Known::Asked(promised) => return self.wait_for(exchange, promised),
                Known::Away => {}
            }
        }
        let claims = claims.map_err(|fault| fault.to_string());
        let Tokens { user, groups, leeway, .. } = &self.settings;
        let found = claims
            .and_then(|claims| Ok((user_of(&claims, user, groups.as_deref())?, expiry(&claims, *leeway))));
        match found {
            Ok((user, expires)) => {
                let user = Arc::new(user);
                let left = u64::try_from(expires.saturating_sub(wall_seconds())).unwrap_or(0);
                self.source.remember_shown(token.as_bytes(), &keys, user.clone(), left, now);
                prove(exchange, user)
            }
            Err(why) => self.refuse(exchange, &why),
        }
    }

    fn refuse(&self, exchange: &Exchange<'_>, why: &str) -> Verdict {
        let Login { users, origin, .. } = &*self.login;
        let why = format_args!("{why}, and `login token \"{users}\"` ({origin}) asks for one");
        let challenge = format!("Bearer realm=\"{}\", error=\"invalid_token\"", self.realm);
        let response = answer::refused(exchange, Status::UNAUTHORIZED, why);
        Verdict::Refuse(response.with("WWW-Authenticate", challenge))
    }

    /// Nobody is let in, and nobody is told that it is his fault.
    fn unavailable(&self, exchange: &Exchange<'_>) -> Response {
        self.stats.logins_unanswered.add(1);
        let Login { users, origin, .. } = &*self.login;
        let why = format_args!(
            "the keys of tokens cannot be had, and `login token \"{users}\"` ({origin}) needs them"
        );
        answer::refused(exchange, Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1")
    }

    /// Asks for the keys.
    fn asks(&self) -> impl Future<Output = Result<(Keyring, Duration), String>> + use<> {
        let asked = self.service.as_ref().map(|service| service.get(None));
        async move {
            let answer = asked.ok_or("nobody publishes them")?.await?;
            Ok((Keyring::published(&answer)?, lifetime(&answer.lines)))
        }
    }

    /// Looks again once the keys are there, or cannot be had.
    fn wait_for(self: &Rc<Self>, exchange: &mut Exchange<'_>, promised: Promised<()>) -> Verdict {
        // The log wants to know who it is, whenever that comes out.
        let (terms, identity) = (self.clone(), exchange.identify());
        Verdict::Wait(
            Need::Decision,
            Box::pin(async move {
                let _ = timer::within(PATIENCE, promised).await;
                Verdict::Decide(Box::new(move |exchange| terms.check(exchange, Some(identity))))
            }),
        )
    }
}

/// The token of an `Authorization` field.
fn bearer(field: &[u8]) -> Option<&str> {
    let (scheme, token) = field.split_at_checked(7)?;
    let token = std::str::from_utf8(token).ok()?.trim();
    let fits = scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty() && token.len() <= LONGEST;
    fits.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

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
