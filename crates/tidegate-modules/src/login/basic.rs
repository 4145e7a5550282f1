//! `login basic` and `require`.

use super::questions::{Answer, Outcome};
use super::source::Source;
use super::tally;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Login, Shared};
use tidegate_core::{Exchange, Gate, Need, Response, Verdict, answer};
use tidegate_http::{Status, delay_seconds};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// The longest name or password that is looked at, bytes.
const LONGEST: usize = 1024;

/// Asks for a name and a password (RFC 7617).
pub struct BasicGate {
    source: Arc<Source>,
    stats: Arc<Stats>,
    terms: Rc<Terms>,
}

/// What the gate says to whom it does not let in.
struct Terms {
    login: Shared<Login>,
    /// The value of `WWW-Authenticate`.
    challenge: String,
}

impl BasicGate {
    /// The gate of a `login`; `source` has its users.
    pub fn new(login: &Shared<Login>, source: Arc<Source>, stats: Arc<Stats>) -> BasicGate {
        let realm = login.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        BasicGate { source, stats, terms: Rc::new(Terms { login: login.clone(), challenge }) }
    }
}

impl Terms {
    /// Nobody has said who it is.
    fn ask(&self) -> Response {
        let login = &self.login;
        let why = format_args!("`login basic \"{}\"` ({}) asks who it is", login.users, login.origin);
        let response = answer::asked(Status::UNAUTHORIZED, why);
        answer::remedy(|| "to see what somebody gets who has logged in, say who: `--user NAME`".to_owned());
        response.with("WWW-Authenticate", &self.challenge)
    }

    /// These are no name and password that belong together.
    fn refuse(&self, exchange: &Exchange<'_>, name: &str) -> Response {
        let login = &self.login;
        let why = format_args!(
            "wrong name or password for `{}`, which `login basic \"{}\"` ({}) asks for",
            name.escape_debug(),
            login.users,
            login.origin
        );
        answer::refused(exchange, Status::UNAUTHORIZED, why).with("WWW-Authenticate", &self.challenge)
    }

    /// Too many were wrong.
    fn put_off(&self, exchange: &Exchange<'_>, name: &str, time: Duration) -> Response {
        let name = name.escape_debug();
        let why = format_args!("too many wrong passwords for `{name}` from this address");
        answer::refused(exchange, Status::TOO_MANY_REQUESTS, why)
            .with("Retry-After", delay_seconds(time).to_string())
    }

    /// What comes of what has been found out.
    fn judge(&self, exchange: &mut Exchange<'_>, name: &str, outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Known(_) => Verdict::Pass,
            Outcome::Nobody | Outcome::Member(_) => Verdict::Refuse(self.refuse(exchange, name)),
            Outcome::Later(time) => Verdict::Refuse(self.put_off(exchange, name, time)),
            Outcome::Away(time) => Verdict::Refuse(away(exchange, time)),
        }
    }
}

/// Nobody can say who it is: that is no reason to ask again for a name, and none to let anybody in.
pub(super) fn away(exchange: &Exchange<'_>, time: Duration) -> Response {
    let why = "the directory that knows the users does not answer";
    answer::refused(exchange, Status::SERVICE_UNAVAILABLE, why)
        .with("Retry-After", delay_seconds(time).to_string())
}

impl BasicGate {
    /// Where it stands.
    fn line(&self) -> String {
        let login = &self.terms.login;
        format!("`login basic \"{}\"` ({})", login.users, login.origin)
    }
}

impl Gate for BasicGate {
    fn name(&self) -> String {
        format!("{} of {}", self.source.kind(), self.line())
    }

    fn identifies(&self) -> bool {
        true
    }

    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        if exchange.is_logged_in(&self.terms.login) {
            return Verdict::Pass;
        }
        let Some((name, password)) = exchange.fields.single("authorization").and_then(credentials) else {
            return Verdict::Refuse(self.terms.ask());
        };
        let answer = self.source.look_up(&name, &password, &exchange.state.remote.customer(), monotonic_ns());
        tally::counts(&self.stats, &answer);
        match answer {
            Answer::Known(outcome) => {
                if let Outcome::Known(user) = &outcome {
                    exchange.identify().prove(user.clone(), "Basic", &self.terms.login);
                    if self.source.is_silent() {
                        answer::found(|| {
                            format!("login: {} knows `{}` by this password", self.line(), user.name)
                        });
                    }
                }
                self.terms.judge(exchange, &name, outcome)
            }
            Answer::Overloaded => Verdict::Refuse(answer::busy(None)),
            Answer::Asked(asked) => {
                // The log wants to know who it is, whenever that comes out.
                let (terms, identity) = (self.terms.clone(), exchange.identify());
                let (source, stats) = (self.source.clone(), self.stats.clone());
                Verdict::Wait(
                    Need::Decision,
                    Box::pin(async move {
                        let outcome = match source.patience() {
                            Some(patience) => timer::within(patience, asked).await.flatten(),
                            None => asked.await,
                        };
                        tally::asked(&stats, &source);
                        let Some(outcome) = outcome else { return Verdict::Refuse(answer::busy(None)) };
                        if let Outcome::Known(user) = &outcome {
                            identity.prove(user.clone(), "Basic", &terms.login);
                        }
                        Verdict::Decide(Box::new(move |exchange| terms.judge(exchange, &name, outcome)))
                    }),
                )
            }
        }
    }
}

/// Name and password of an `Authorization` field.
fn credentials(field: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || encoded.len() > 4 * LONGEST {
        return None;
    }
    let pair = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    // Neither holds control characters (RFC 7617 section 2).
    if pair.iter().any(u8::is_ascii_control) {
        return None;
    }
    let (name, password) = (&pair[..colon], &pair[colon + 1..]);
    let name = String::from_utf8(name.to_vec()).ok()?;
    (name.len() <= LONGEST && password.len() <= LONGEST).then(|| (name, password.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords() {
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (field, expected) in [
            (encoded("anna:secret"), Some(("anna", "secret"))),
            (encoded("anna:se:cret:"), Some(("anna", "se:cret:"))),
            (encoded(":"), Some(("", ""))),
            (encoded("\u{e4}nna:\u{fc}"), Some(("\u{e4}nna", "\u{fc}"))),
            (encoded("anna"), None),
            (encoded("an\0na:secret"), None),
            (encoded("anna:sec\nret"), None),
            (encoded(&format!("{}:x", "a".repeat(1025))), None),
            ("bAsIc  YTpi".into(), Some(("a", "b"))),
            ("Basic YTpi=".into(), None),
            ("Basic".into(), None),
            ("Bearer YTpi".into(), None),
            (String::new(), None),
        ] {
            let expected = expected.map(|(name, password)| (name.to_owned(), password.as_bytes().to_vec()));
            assert_eq!(credentials(field.as_bytes()), expected, "{field}");
        }
    }
}
