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
//! | `redeem` | asking the provider what it has, and what a code is good for |
//! | `session` | who has logged in, as a cookie |
//! | `seal` | what is sealed, so that nobody else can read or make it |

mod browser;
mod flow;
pub mod fuzzing;
mod own_cookies;
mod provider;
mod redeem;
mod seal;
mod session;

pub use own_cookies::OwnCookies;
pub use provider::Metadata;
pub use redeem::Services;
pub use seal::Seals;

use super::fetched::Known;
use super::guesses::{Guesser, TooOften};
use super::jwt::user_of;
use super::source::Source;
use browser::{cookies, is_navigation, is_secure, origin_of, sent_to};
use flow::{Flow, PATIENCE};
use redeem::{Provider, Refused, Return, Told};
use seal::Unsealed;
use session::{Age, LONGEST, Place, Session, cookie_name, hint_name, set_cookie, set_cookie_at};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Login, OpenId, Shared};
use tidegate_core::template::uri_of;
use tidegate_core::user::Identity;
use tidegate_core::{Exchange, Gate, Need, Response, Verdict, answer};
use tidegate_http::query::{self, encode};
use tidegate_http::{Method, Status, delay_seconds};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::oneshot::Promised;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// The longest that anything of a login is waited for: three questions of five seconds.
const WAIT: Duration = Duration::from_secs(16);
/// The longest code that is looked at.
const CODE_MAX: usize = 2048;
/// What stands in `AUTH_TYPE`.
const SCHEME: &str = "openid-connect";

/// Asks an identity provider who it is.
pub struct OpenidGate(Rc<Terms>);

struct Terms {
    provider: Provider,
    login: Shared<Login>,
    stats: Arc<Stats>,
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

impl OpenidGate {
    /// The gate of a `login`; `source` has what is known of its provider.
    pub fn new(
        login: &Shared<Login>,
        settings: &OpenId,
        services: Services,
        source: Arc<Source>,
        stats: Arc<Stats>,
    ) -> OpenidGate {
        let provider = Provider::new(settings, services, source);
        OpenidGate(Rc::new(Terms { provider, login: login.clone(), stats }))
    }
}

impl Gate for OpenidGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let terms = &self.0;
        let is_at = |path: &str| exchange.path == path.as_bytes() && !exchange.has_ambiguous_path();
        if is_at(&terms.settings().callback) {
            return terms.comes_back(exchange);
        }
        if is_at(&terms.settings().logout) {
            return terms.log_out(exchange, true);
        }
        if exchange.is_logged_in(&terms.login) {
            return Verdict::Pass;
        }
        let session = terms.session(exchange);
        let may_be_sent = is_navigation(exchange) && !exchange.authority.is_empty();
        let age = session.as_ref().map(|session| session.age(terms.settings().refresh, exchange.now));
        match (session, age) {
            (Some(_), Some(Age::Stale | Age::Outdated)) if may_be_sent => {
                return terms.send_to_provider(exchange, Sent::again(uri_of(exchange.target)), true);
            }
            (Some(session), Some(Age::Fresh | Age::Stale)) => return terms.pass(exchange, session),
            _ => {}
        }
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

    fn settings(&self) -> &OpenId {
        &self.provider.settings
    }

    fn seals(&self) -> Arc<Seals> {
        self.provider.source.seals()
    }

    fn place<'p>(&'p self, exchange: &'p Exchange<'_>) -> Place<'p> {
        let OpenId { issuer, client, user, groups, .. } = self.settings();
        Place {
            users: &self.login.users,
            issuer,
            client,
            user,
            groups: groups.as_deref(),
            scheme: exchange.scheme,
            authority: exchange.authority,
        }
    }

    fn cookie_name(&self, what: &str, exchange: &Exchange<'_>) -> String {
        cookie_name(what, &self.login.users, is_secure(exchange))
    }

    /// Who has logged in.
    fn session(&self, exchange: &Exchange<'_>) -> Option<Session> {
        let name = self.cookie_name("session", exchange);
        let (place, seals, lasting) = (self.place(exchange), self.seals(), self.settings().session);
        // A browser may have two of a name where there is no TLS, and only one of them is ours.
        let mut values = cookies(exchange, &name).take(2);
        values.find_map(|value| Session::open(value, place, &seals, lasting, exchange.now))
    }

    /// Somebody goes on who is known.
    fn pass(&self, exchange: &mut Exchange<'_>, session: Session) -> Verdict {
        exchange.identify().prove(Arc::new(session.user()), SCHEME, &self.login);
        Verdict::Pass
    }

    fn redirect(&self, exchange: &Exchange<'_>) -> String {
        format!("{}{}", origin_of(exchange), self.settings().callback)
    }

    /// Goes on once what the provider has is known, or cannot be.
    fn wait_for(
        self: &Rc<Self>,
        promised: Promised<()>,
        then: impl FnOnce(&Rc<Terms>, &mut Exchange<'_>) -> Verdict + 'static,
    ) -> Verdict {
        let terms = self.clone();
        Verdict::Wait(
            Need::Decision,
            Box::pin(async move {
                let _ = timer::within(WAIT, promised).await;
                Verdict::Decide(Box::new(move |exchange| then(&terms, exchange)))
            }),
        )
    }

    /// Sends a browser to the provider; `may_wait` unless it has been waited for already.
    fn send_to_provider(self: &Rc<Self>, exchange: &mut Exchange<'_>, sent: Sent, may_wait: bool) -> Verdict {
        let provider = match self.provider.metadata() {
            Known::Value(provider) => provider,
            Known::Asked(promised) if may_wait => {
                return self
                    .wait_for(promised, |terms, exchange| terms.send_to_provider(exchange, sent, false));
            }
            Known::Asked(_) | Known::Away => return self.hold(exchange, &sent),
        };
        let browser = self.cookie_name("login", exchange);
        let begun = cookies(exchange, &browser).next();
        let redirect = self.redirect(exchange);
        let begun = Flow::begin(begun, &sent.back, exchange.now).and_then(|flow| {
            let flow = Flow { is_silent: sent.is_silent, ..flow };
            let (place, seals) = (self.place(exchange), self.seals());
            let address = flow.address(&provider, &self.settings().scopes, place, &seals, &redirect)?;
            Ok((flow, address))
        });
        let (flow, address) = match begun {
            Ok(begun) => begun,
            Err(why) => return Verdict::Refuse(self.unable(exchange, why)),
        };
        answer::remedy(|| format!("{} sends the browser to {}", self.name(), provider.authorization));
        let cookie = set_cookie(&browser, Some(&flow.browser), PATIENCE.unsigned_abs(), is_secure(exchange));
        let response = sent_to(address).with("Set-Cookie", cookie);
        Verdict::Refuse(if sent.ends_session { self.ending(exchange, response) } else { response })
    }

    /// The provider cannot be asked: who is known, and was so a moment ago, is let in meanwhile.
    fn hold(&self, exchange: &mut Exchange<'_>, sent: &Sent) -> Verdict {
        let held = self.session(exchange).filter(|session| {
            sent.is_silent && session.age(self.settings().refresh, exchange.now) == Age::Stale
        });
        match held {
            Some(session) => self.pass(exchange, session),
            None => Verdict::Refuse(self.away(exchange, "what the provider has is not known")),
        }
    }

    /// An answer that takes the session of a browser away.
    fn ending(&self, exchange: &Exchange<'_>, response: Response) -> Response {
        let (is_secure, session) = (is_secure(exchange), self.cookie_name("session", exchange));
        let hint = hint_name(&self.login.users, is_secure);
        response
            .with("Set-Cookie", set_cookie(&session, None, 0, is_secure))
            .with("Set-Cookie", set_cookie_at(&self.settings().logout, &hint, None, 0, is_secure))
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
            self.place(exchange),
            &self.seals(),
            exchange.now,
        );
        let flow = match flow {
            Ok(flow) => flow,
            Err(why) => return Verdict::Refuse(self.not_let_in(exchange, why)),
        };
        // A provider that another one has put in its place would be told the code (RFC 9207).
        let issuer = parameter("iss");
        if issuer.as_ref().is_some_and(|issuer| *issuer != self.settings().issuer) {
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
        if self.session(exchange).is_some_and(|session| session.begun >= flow.begun) {
            return Verdict::Refuse(sent_to(format!("{}{}", origin_of(exchange), flow.back)));
        }
        // The provider alone says whether a code is good. A client with bad ones has it asked as seldom as one that guesses
        // passwords, and never about many at once: others log in meanwhile.
        let (guesser, asked) = (Guesser::of(&exchange.state.remote.customer(), "", false), monotonic_ns());
        if let Err(TooOften(time)) = self.provider.source.guesses().charge(&guesser, asked) {
            return Verdict::Refuse(self.put_off(exchange, time));
        }
        let returned = Return { code, flow, redirect: self.redirect(exchange), is_named: issuer.is_some() };
        // The log wants to know who it is, whenever that comes out.
        let (terms, identity) = (self.clone(), exchange.identify());
        Verdict::Wait(
            Need::Decision,
            Box::pin(async move {
                let redeemed = timer::within(WAIT, terms.provider.redeem(&returned)).await;
                let redeemed = redeemed.unwrap_or_else(|| Err(Refused::Away("it takes too long".to_owned())));
                if !matches!(redeemed, Err(Refused::Bad(_))) {
                    terms.provider.source.guesses().give_back(&guesser, asked);
                }
                Verdict::Decide(Box::new(move |exchange| match redeemed {
                    Ok(told) => terms.let_in(exchange, &identity, &told, &returned.flow),
                    Err(Refused::Bad(why)) => Verdict::Refuse(terms.not_let_in(exchange, &why)),
                    Err(Refused::Away(why)) => Verdict::Refuse(terms.away(exchange, &why)),
                }))
            }),
        )
    }

    /// Too many codes of this client were bad, or are asked about just now.
    fn put_off(&self, exchange: &Exchange<'_>, time: Duration) -> Response {
        let why = format_args!("{}: too many codes from this address that are not good", self.name());
        answer::refused(exchange, Status::TOO_MANY_REQUESTS, why)
            .with("Retry-After", delay_seconds(time).to_string())
    }

    /// Somebody has logged in.
    fn let_in(&self, exchange: &Exchange<'_>, identity: &Identity, told: &Told, flow: &Flow) -> Verdict {
        let Told { claims, token } = told;
        let OpenId { user, groups, session: lasting, .. } = self.settings();
        let known = match user_of(claims, user, groups.as_deref()) {
            Ok(known) => known,
            Err(why) => return Verdict::Refuse(self.not_let_in(exchange, &why)),
        };
        let session = Session { name: known.name.clone(), groups: known.groups.clone(), begun: exchange.now };
        let (place, seals, is_secure) = (self.place(exchange), self.seals(), is_secure(exchange));
        let value = match session.seal(place, &seals) {
            Ok(value) => value,
            Err(Unsealed::TooLong) => {
                let name = known.name.escape_debug();
                let why = format!("`{name}` is in more groups than a cookie can hold");
                return Verdict::Refuse(self.not_let_in(exchange, &why));
            }
            Err(why) => return Verdict::Refuse(self.unable(exchange, why)),
        };
        identity.prove(Arc::new(known), SCHEME, &self.login);
        let name = self.cookie_name("session", exchange);
        let cookie = set_cookie(&name, Some(&value), lasting.as_secs(), is_secure);
        // Who logs out without it is asked by the provider whether that is meant.
        let sealed = token.as_ref().and_then(|token| place.seal("hint", &seals, token).ok());
        let hint = sealed.filter(|value| value.len() <= LONGEST).map(|value| {
            let name = hint_name(&self.login.users, is_secure);
            set_cookie_at(&self.settings().logout, &name, Some(&value), lasting.as_secs(), is_secure)
        });
        // With the host in front of it no path leads to another one.
        let address = format!("{}{}", origin_of(exchange), flow.back);
        let response = sent_to(address).with("Set-Cookie", cookie);
        Verdict::Refuse(match hint {
            Some(hint) => response.with("Set-Cookie", hint),
            None => response,
        })
    }

    /// Ends a session, here and at the provider (OpenID Connect RP-Initiated Logout 1.0); `may_wait` unless it has been waited for already. Whoever goes by another
    /// process, or comes after a restart, is the first to ask what the provider has.
    fn log_out(self: &Rc<Self>, exchange: &Exchange<'_>, may_wait: bool) -> Verdict {
        let page = match self.provider.metadata() {
            Known::Value(provider) => provider.end_session.clone(),
            Known::Asked(promised) if may_wait => {
                return self.wait_for(promised, |terms, exchange| terms.log_out(exchange, false));
            }
            // The session here ends all the same.
            Known::Asked(_) | Known::Away => None,
        };
        let back = self.settings().after_logout.as_ref().map(|path| format!("{}{path}", origin_of(exchange)));
        let page = page.map(|page| {
            let sign = if page.contains('?') { '&' } else { '?' };
            let back =
                back.as_ref().map(|back| format!("&post_logout_redirect_uri={}", encode(back.as_bytes())));
            // By it the provider knows whose session it is, and asks nobody whether that is meant.
            let hint =
                cookies(exchange, &hint_name(&self.login.users, is_secure(exchange))).find_map(|value| {
                    let place = self.place(exchange);
                    let token: String = place.open("hint", &self.seals(), value)?;
                    Some(format!("&id_token_hint={}", encode(token.as_bytes())))
                });
            format!(
                "{page}{sign}client_id={}{}{}",
                encode(self.settings().client.as_bytes()),
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
        let why = format_args!("{}: {}: {why}", self.name(), self.provider.name());
        answer::refused(exchange, Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1")
    }

    /// It is this server that cannot go on.
    fn unable(&self, exchange: &Exchange<'_>, why: Unsealed) -> Response {
        self.stats.logins_unanswered.add(1);
        let why = format_args!("{}: what a browser is to keep cannot be sealed: {why}", self.name());
        answer::refused(exchange, Status::SERVICE_UNAVAILABLE, why).with("Retry-After", "1")
    }
}
