//! `login openid`: an identity provider says who somebody is (OpenID Connect Core 1.0, authorization code with PKCE).
//!
//! Whoever has no session and asks for a page is sent to the provider, and comes back with a code, which this server redeems for an
//! ID token. Who it names is sealed into a cookie: nothing is kept here, and every process and every server with the same keys
//! knows a session. All else than a page is 401.
//!
//! | part | what it does |
//! | --- | --- |
//! | `browser` | what a browser asks for, and how it is sent somewhere else |
//! | `fuzzing` | what the fuzz target calls |
//! | `flow` | a login under way: what goes with the browser and comes back |
//! | `provider` | what a provider says of itself, and of a code |
//! | `own_cookies` | what applications do not get |
//! | `session` | who has logged in, as a cookie |
//! | `seal` | what is sealed, so that nobody else can read or make it |

mod browser;
mod flow;
pub mod fuzzing;
mod own_cookies;
mod provider;
mod seal;
mod session;

pub use own_cookies::without_own_cookies;
pub use provider::Metadata;
pub use seal::Seals;

use super::fetched::{Fetch, lifetime};
use super::jwt::{Expected, Fault, Keyring, user_of, verify};
use super::source::Source;
use crate::gateway::service::Service;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use browser::{cookies, is_navigation, is_secure, origin_of, sent_to};
use flow::{Flow, PATIENCE};
use provider::NotRedeemed;
use serde_json::Value;
use session::{Age, LONGEST, Place, Session, cookie_name, hint_name, set_cookie, set_cookie_at};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Login, OpenId, Shared};
use tidegate_core::template::uri_of;
use tidegate_core::user::Identity;
use tidegate_core::{Exchange, Gate, Response, Verdict, answer};
use tidegate_http::query::{self, encode};
use tidegate_http::{Method, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::{runtime, timer};
use tidegate_stats::Worker as Stats;

/// The longest that anything of a login is waited for: three questions of five seconds.
const WAIT: Duration = Duration::from_secs(16);
/// The longest code that is looked at.
const CODE_MAX: usize = 2048;
/// What stands in `AUTH_TYPE`.
const SCHEME: &str = "openid-connect";

/// The ways to a provider.
pub struct Services {
    /// What it has.
    pub discovery: Rc<Service>,
    /// Its keys, where they are elsewhere.
    pub keys: Option<Rc<Service>>,
    /// Where codes are redeemed, where that is elsewhere.
    pub token: Option<Rc<Service>>,
}

/// Asks an identity provider who it is.
pub struct OpenidGate(Rc<Terms>);

struct Terms {
    source: Arc<Source>,
    stats: Arc<Stats>,
    login: Shared<Login>,
    settings: OpenId,
    expected: Expected,
    services: Services,
}

/// What a browser has come back with.
struct Return {
    code: String,
    flow: Flow,
    redirect: String,
    /// `https://host`
    origin: String,
}

/// How a browser is sent to the provider.
struct Sent {
    /// Where it comes back to, in the end.
    back: String,
    /// It has a session, and is to be asked nothing.
    is_silent: bool,
    /// The session that it has is worth nothing any more.
    ends_session: bool,
}

impl Sent {
    fn asking(back: String) -> Sent {
        Sent { back, is_silent: false, ends_session: false }
    }

    fn again(back: String) -> Sent {
        Sent { is_silent: true, ..Sent::asking(back) }
    }
}

/// What the provider has said of somebody.
struct Told {
    claims: Value,
    /// The token that says so, where it is of use later.
    token: Option<String>,
}

/// Why somebody who has come back is not let in.
enum Refused {
    /// The provider cannot be asked.
    Away(String),
    /// What it says is not good, or not for this login.
    Bad(String),
}

impl OpenidGate {
    /// The gate of a `login`; `source` has what is known of its provider.
    pub fn new(
        login: &Shared<Login>,
        settings: &OpenId,
        services: Services,
        source: Arc<Source>,
        stats: Arc<Stats>,
    ) -> OpenidGate {
        let expected = Expected {
            issuer: settings.issuer.clone(),
            audience: vec![settings.client.clone()],
            leeway: settings.leeway,
            kinds: &["jwt"],
        };
        let (login, settings) = (login.clone(), settings.clone());
        OpenidGate(Rc::new(Terms { source, stats, login, settings, expected, services }))
    }
}

impl Gate for OpenidGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let terms = &self.0;
        let is_at = |path: &str| exchange.path == path.as_bytes();
        if is_at(&terms.settings.callback) {
            return terms.comes_back(exchange);
        }
        if is_at(&terms.settings.logout) {
            return terms.log_out(exchange);
        }
        if exchange.is_logged_in(&terms.login) {
            return Verdict::Pass;
        }
        let session = terms.session(exchange);
        let may_be_sent = is_navigation(exchange) && !exchange.authority.is_empty();
        let age = session.as_ref().map(|session| session.age(terms.settings.refresh, exchange.now));
        match (session, age) {
            (Some(_), Some(Age::Stale | Age::Outdated)) if may_be_sent => {
                terms.stats.user_cache_misses.add(1);
                return terms.send_to_provider(exchange, Sent::again(uri_of(exchange.target)), true);
            }
            (Some(session), Some(Age::Fresh | Age::Stale)) => return terms.pass(exchange, session),
            _ => {}
        }
        terms.stats.user_cache_misses.add(1);
        if !may_be_sent {
            let why = format_args!(
                "{} asks who it is, and only a browser that asks for a page is sent there",
                terms.name()
            );
            let challenge = format!("OpenID realm=\"{}\"", terms.login.users);
            return Verdict::Refuse(
                answer::asked(Status::UNAUTHORIZED, why).with("WWW-Authenticate", challenge),
            );
        }
        terms.send_to_provider(exchange, Sent::asking(uri_of(exchange.target)), true)
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn identifies(&self) -> bool {
        true
    }
}

impl Terms {
    fn name(&self) -> String {
        format!("`login openid \"{}\"` ({})", self.login.users, self.login.origin)
    }

    fn place<'p>(&'p self, authority: &'p str) -> Place<'p> {
        let OpenId { issuer, client, .. } = &self.settings;
        Place { users: &self.login.users, issuer, client, authority }
    }

    fn cookie_name(&self, what: &str, exchange: &Exchange<'_>) -> String {
        cookie_name(what, &self.login.users, is_secure(exchange))
    }

    /// Who has logged in.
    fn session(&self, exchange: &Exchange<'_>) -> Option<Session> {
        let name = self.cookie_name("session", exchange);
        let (place, seals) = (self.place(exchange.authority), self.source.seals());
        // A browser may have two of a name where there is no TLS, and only one of them is ours.
        cookies(exchange, &name).take(2).find_map(|value| Session::open(value, place, &seals, exchange.now))
    }

    /// Somebody goes on who is known.
    fn pass(&self, exchange: &mut Exchange<'_>, session: Session) -> Verdict {
        self.stats.user_cache_hits.add(1);
        exchange.identify().prove(Arc::new(session.user()), SCHEME, &self.login);
        Verdict::Pass
    }

    fn redirect(&self, exchange: &Exchange<'_>) -> String {
        format!("{}{}", origin_of(exchange), self.settings.callback)
    }

    /// Sends a browser to the provider; `may_wait` unless it has been waited for already.
    fn send_to_provider(self: &Rc<Self>, exchange: &mut Exchange<'_>, sent: Sent, may_wait: bool) -> Verdict {
        let known = self.source.metadata().and_then(|metadata| {
            let look = metadata.look(monotonic_ns());
            if let Some(fetch) = look.fetch {
                self.fetch_metadata(fetch);
            }
            look.value
        });
        let Some(provider) = known else {
            if !may_wait {
                // Who is known, and was so a moment ago, is let in meanwhile.
                let held = self.session(exchange).filter(|session| {
                    sent.is_silent && session.age(self.settings.refresh, exchange.now) == Age::Stale
                });
                return match held {
                    Some(session) => self.pass(exchange, session),
                    None => Verdict::Refuse(self.away(exchange, "what the provider has is not known")),
                };
            }
            let terms = self.clone();
            return Verdict::Wait(Box::pin(async move {
                let _ = timer::within(WAIT, terms.metadata()).await;
                Verdict::Decide(Box::new(move |exchange| terms.send_to_provider(exchange, sent, false)))
            }));
        };
        let browser = self.cookie_name("login", exchange);
        let begun = cookies(exchange, &browser).next();
        let flow = Flow::begin(begun, &sent.back, exchange.now)
            .map(|flow| Flow { is_silent: sent.is_silent, ..flow });
        let redirect = self.redirect(exchange);
        let begun = flow.and_then(|flow| {
            let (place, seals) = (self.place(exchange.authority), self.source.seals());
            let address = flow.address(&provider, &self.settings.scopes, place, &seals, &redirect)?;
            Some((flow, address))
        });
        let Some((flow, address)) = begun else {
            return Verdict::Refuse(self.away(exchange, "there is no key to seal a login with"));
        };
        answer::remedy(|| format!("{} sends the browser to {}", self.name(), provider.authorization));
        let cookie = set_cookie(&browser, Some(&flow.browser), PATIENCE.unsigned_abs(), is_secure(exchange));
        let response = sent_to(address).with("Set-Cookie", cookie);
        Verdict::Refuse(if sent.ends_session { self.ending(exchange, response) } else { response })
    }

    /// An answer that takes the session of a browser away.
    fn ending(&self, exchange: &Exchange<'_>, response: Response) -> Response {
        let (is_secure, session) = (is_secure(exchange), self.cookie_name("session", exchange));
        let hint = hint_name(&self.login.users, is_secure);
        response
            .with("Set-Cookie", set_cookie(&session, None, 0, is_secure))
            .with("Set-Cookie", set_cookie_at(&self.settings.logout, &hint, None, 0, is_secure))
    }

    /// A browser comes back from the provider.
    fn comes_back(self: &Rc<Self>, exchange: &mut Exchange<'_>) -> Verdict {
        if !matches!(exchange.method, Method::Get | Method::Head) {
            let why = "a browser comes back from an identity provider with GET";
            let response = answer::refused(exchange, Status::METHOD_NOT_ALLOWED, why);
            return Verdict::Refuse(response.with("Allow", "GET, HEAD"));
        }
        let query = exchange.query.unwrap_or_default();
        let parameter = |name: &str| {
            query::value(query, name).and_then(|value| String::from_utf8(value.into_owned()).ok())
        };
        let browser = self.cookie_name("login", exchange);
        let flow = Flow::of(
            &parameter("state").unwrap_or_default(),
            cookies(exchange, &browser).next(),
            self.place(exchange.authority),
            &self.source.seals(),
            exchange.now,
        );
        let flow = match flow {
            Ok(flow) => flow,
            Err(why) => return Verdict::Refuse(self.not_let_in(exchange, why)),
        };
        // A provider that another one has put in its place would be told the code (RFC 9207).
        let issuer = parameter("iss");
        if issuer.as_ref().is_some_and(|issuer| *issuer != self.settings.issuer) {
            return Verdict::Refuse(self.not_let_in(exchange, "it comes from another provider"));
        }
        if let Some(error) = parameter("error") {
            // Without a question nothing more can be said of it: it may be nobody there any longer.
            if flow.is_silent {
                let sent = Sent { ends_session: true, ..Sent::asking(flow.back) };
                return self.send_to_provider(exchange, sent, true);
            }
            let error = error.chars().take(100).collect::<String>();
            let why = format!("the provider says `{}`", error.escape_debug());
            return Verdict::Refuse(self.not_let_in(exchange, &why));
        }
        let Some(code) = parameter("code").filter(|code| !code.is_empty() && code.len() <= CODE_MAX) else {
            return Verdict::Refuse(self.not_let_in(exchange, "it brings no code"));
        };
        // It was redeemed in this browser a moment ago: who goes back to it is who is known by now.
        if self.session(exchange).is_some_and(|session| session.since >= flow.begun) {
            return Verdict::Refuse(sent_to(format!("{}{}", origin_of(exchange), flow.back)));
        }
        let returned = Return { code, flow, redirect: self.redirect(exchange), origin: origin_of(exchange) };
        // The log wants to know who it is, whenever that comes out.
        let (terms, identity) = (self.clone(), exchange.identify());
        Verdict::Wait(Box::pin(async move {
            let redeemed = timer::within(WAIT, terms.redeem(&returned, issuer.is_some())).await;
            let redeemed = redeemed.unwrap_or_else(|| Err(Refused::Away("it takes too long".to_owned())));
            Verdict::Decide(Box::new(move |exchange| match redeemed {
                Ok(told) => terms.let_in(exchange, &identity, &told, &returned),
                Err(Refused::Bad(why)) => Verdict::Refuse(terms.not_let_in(exchange, &why)),
                Err(Refused::Away(why)) => Verdict::Refuse(terms.away(exchange, &why)),
            }))
        }))
    }

    /// What the ID token says that a code is good for.
    async fn redeem(self: &Rc<Self>, returned: &Return, is_named: bool) -> Result<Told, Refused> {
        let provider =
            self.metadata().await.ok_or_else(|| Refused::Away("what it has is not known".to_owned()))?;
        if provider.names_itself && !is_named {
            return Err(Refused::Bad("it does not say from which provider it comes".to_owned()));
        }
        let Return { code, flow, redirect, .. } = returned;
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
    async fn verified(self: &Rc<Self>, token: &str, provider: &Metadata) -> Result<Value, Refused> {
        let no_keys = || Refused::Away("its keys are not known".to_owned());
        let published = self.source.published_keys().ok_or_else(no_keys)?;
        let mut has_asked = false;
        loop {
            let now = monotonic_ns();
            let look = published.look(now);
            if let Some(fetch) = look.fetch {
                self.fetch_keys(fetch, provider);
            }
            let why = match look.value {
                Some(keys) => match verify(token, &keys, &self.expected) {
                    Ok(claims) => return Ok(claims),
                    Err(Fault::UnknownKey) if !has_asked => {
                        if let Some(fetch) = published.again(now) {
                            self.fetch_keys(fetch, provider);
                        }
                        Refused::Bad(Fault::UnknownKey.to_string())
                    }
                    Err(fault) => return Err(Refused::Bad(fault.to_string())),
                },
                None => no_keys(),
            };
            let Some(promised) = published.wait().filter(|_| !has_asked) else { return Err(why) };
            promised.await;
            has_asked = true;
        }
    }

    /// Somebody has logged in.
    fn let_in(
        &self,
        exchange: &Exchange<'_>,
        identity: &Identity,
        Told { claims, token }: &Told,
        returned: &Return,
    ) -> Verdict {
        let OpenId { user, groups, session, .. } = &self.settings;
        if user == "email" && claims.get("email_verified") == Some(&Value::Bool(false)) {
            return Verdict::Refuse(self.not_let_in(exchange, "the provider has not verified the address"));
        }
        let known = match user_of(claims, user, groups.as_deref()) {
            Ok(known) => known,
            Err(why) => return Verdict::Refuse(self.not_let_in(exchange, &why)),
        };
        let lifetime = session.as_secs();
        let expires = exchange.now.saturating_add(i64::try_from(lifetime).unwrap_or(0));
        let session =
            Session { name: known.name.clone(), groups: known.groups.clone(), expires, since: exchange.now };
        let (place, seals, is_secure) =
            (self.place(exchange.authority), self.source.seals(), is_secure(exchange));
        let Some(value) = session.seal(place, &seals) else {
            let why = format!("`{}` is in more groups than a cookie can hold", known.name.escape_debug());
            return Verdict::Refuse(self.not_let_in(exchange, &why));
        };
        identity.prove(Arc::new(known), SCHEME, &self.login);
        let name = self.cookie_name("session", exchange);
        let cookie = set_cookie(&name, Some(&value), lifetime, is_secure);
        let sealed = token.as_ref().and_then(|token| place.seal("hint", &seals, token));
        let hint = sealed.filter(|value| value.len() <= LONGEST).map(|value| {
            let name = hint_name(&self.login.users, is_secure);
            set_cookie_at(&self.settings.logout, &name, Some(&value), lifetime, is_secure)
        });
        // With the host in front of it no path leads to another one.
        let address = format!("{}{}", returned.origin, returned.flow.back);
        let response = sent_to(address).with("Set-Cookie", cookie);
        Verdict::Refuse(match hint {
            Some(hint) => response.with("Set-Cookie", hint),
            None => response,
        })
    }

    /// Ends a session, here and at the provider (OpenID Connect RP-Initiated Logout 1.0).
    fn log_out(&self, exchange: &Exchange<'_>) -> Verdict {
        let back = self.settings.after_logout.as_ref().map(|path| format!("{}{path}", origin_of(exchange)));
        let known = self.source.metadata().and_then(|metadata| metadata.look(monotonic_ns()).value);
        let page = known.and_then(|provider| provider.end_session.clone()).map(|page| {
            let sign = if page.contains('?') { '&' } else { '?' };
            let back =
                back.as_ref().map(|back| format!("&post_logout_redirect_uri={}", encode(back.as_bytes())));
            // By it the provider knows whose session it is, and asks nobody whether that is meant.
            let hint =
                cookies(exchange, &hint_name(&self.login.users, is_secure(exchange))).find_map(|value| {
                    let place = self.place(exchange.authority);
                    let token: String = place.open("hint", &self.source.seals(), value)?;
                    Some(format!("&id_token_hint={}", encode(token.as_bytes())))
                });
            format!(
                "{page}{sign}client_id={}{}{}",
                encode(self.settings.client.as_bytes()),
                hint.unwrap_or_default(),
                back.unwrap_or_default()
            )
        });
        let response = match page.or(back) {
            Some(address) => sent_to(address),
            None => answer::explained(Status::OK, "You are logged out.").with("Cache-Control", "no-store"),
        };
        Verdict::Refuse(self.ending(exchange, response))
    }

    /// Whoever has come back is not let in, which a new beginning may mend.
    fn not_let_in(&self, exchange: &Exchange<'_>, why: &str) -> Response {
        answer::refused(exchange, Status::BAD_REQUEST, format_args!("{}: {why}", self.name()));
        let sentence =
            "You could not be logged in. Please go back to the page that you were looking for and try again.";
        answer::explained(Status::BAD_REQUEST, sentence).with("Cache-Control", "no-store")
    }

    /// The provider cannot be asked: nobody is let in, and nobody is told that it is his fault.
    fn away(&self, exchange: &Exchange<'_>, why: impl Display) -> Response {
        self.stats.logins_unanswered.add(1);
        let why = format_args!("{}: {}: {why}", self.name(), self.services.discovery.name());
        answer::refused(exchange, Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1")
    }

    /// What the provider has, once that is known.
    async fn metadata(self: &Rc<Self>) -> Option<Arc<Metadata>> {
        let metadata = self.source.metadata()?;
        let look = metadata.look(monotonic_ns());
        if let Some(fetch) = look.fetch {
            self.fetch_metadata(fetch);
        }
        if look.value.is_some() {
            return look.value;
        }
        metadata.wait()?.await;
        metadata.look(monotonic_ns()).value
    }

    fn fetch_metadata(self: &Rc<Self>, fetch: Fetch<Metadata>) {
        let (asked, terms) = (self.services.discovery.get(None), self.clone());
        let task = async move {
            let read =
                |answer| Ok((Metadata::read(&answer, (&terms.settings).into())?, lifetime(&answer.lines)));
            fetch.settle(asked.await.and_then(read), monotonic_ns());
        };
        // There is no run-time where requests are explained, or where the worker ends.
        runtime::try_with(|runtime| runtime.spawn(task));
    }

    fn fetch_keys(&self, fetch: Fetch<Keyring>, provider: &Metadata) {
        let service = self.services.keys.as_ref().unwrap_or(&self.services.discovery);
        let asked = service.get(Some(&provider.keys));
        let task = async move {
            let read = |answer| Ok((Keyring::published(&answer)?, lifetime(&answer.lines)));
            fetch.settle(asked.await.and_then(read), monotonic_ns());
        };
        runtime::try_with(|runtime| runtime.spawn(task));
    }
}
