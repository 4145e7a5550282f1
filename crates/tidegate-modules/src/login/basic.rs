//! `login basic` and `require`.

use super::source::{Answer, Source};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::settings::{Identification, Login, Required, Requirement, Shared};
use tidegate_core::user::User;
use tidegate_core::{Exchange, Gate, Response, Verdict, answer};
use tidegate_http::Status;

/// The longest name or password that is looked at, bytes.
const LONGEST: usize = 1024;

/// Asks for a name and a password (RFC 7617).
pub struct BasicGate {
    source: Arc<Source>,
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
    pub fn new(login: &Shared<Login>, source: Arc<Source>) -> BasicGate {
        let realm = login.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        BasicGate { source, terms: Rc::new(Terms { login: login.clone(), challenge }) }
    }
}

impl Terms {
    /// Nobody has said who it is.
    fn ask(&self) -> Response {
        let login = &self.login;
        let why = format_args!("`login basic \"{}\"` ({}) asks who it is", login.users, login.origin);
        answer::asked(Status::UNAUTHORIZED, why).with("WWW-Authenticate", &self.challenge)
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
        let seconds = time.as_secs().saturating_add(1);
        answer::refused(exchange, Status::TOO_MANY_REQUESTS, why).with("Retry-After", seconds.to_string())
    }

    /// What comes of who somebody is.
    fn judge(&self, exchange: &mut Exchange<'_>, name: &str, user: Option<Arc<User>>) -> Verdict {
        match user {
            Some(user) => {
                exchange.identify().prove(user);
                Verdict::Pass
            }
            None => Verdict::Refuse(self.refuse(exchange, name)),
        }
    }
}

impl Gate for BasicGate {
    fn proves(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(Arc::as_ptr(&self.source) as usize)
    }

    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let Some((name, password)) = exchange.fields.single("authorization").and_then(credentials) else {
            return Verdict::Refuse(self.terms.ask());
        };
        match self.source.look_up(&name, &password, &exchange.state.remote.customer()) {
            Answer::Known(user) => self.terms.judge(exchange, &name, user),
            Answer::Later(time) => Verdict::Refuse(self.terms.put_off(exchange, &name, time)),
            Answer::Overloaded => Verdict::Refuse(answer::busy(None)),
            Answer::Asked(asked) => {
                // The log wants to know who it is, whenever that comes out.
                let (terms, identity) = (self.terms.clone(), exchange.identify());
                Verdict::Wait(Box::pin(async move {
                    let Some(user) = asked.await else { return Verdict::Refuse(answer::busy(None)) };
                    if let Some(user) = &user {
                        identity.prove(user.clone());
                    }
                    Verdict::Decide(Box::new(move |exchange| match user {
                        Some(_) => Verdict::Pass,
                        None => Verdict::Refuse(terms.refuse(exchange, &name)),
                    }))
                }))
            }
        }
    }
}

/// Lets in whom `require` names of those who have logged in.
pub struct RequireGate(Vec<Shared<Requirement>>);

impl RequireGate {
    /// The gate of a route that requires something.
    pub fn new(identification: &Identification) -> RequireGate {
        RequireGate(identification.requirements.clone())
    }
}

impl Gate for RequireGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let user = exchange.user();
        match self.0.iter().find(|required| !user.is_some_and(|user| is_met(required, user))) {
            None => Verdict::Pass,
            Some(missing) => {
                let why =
                    Missing { user: user.map(|user| user.name.as_str()), required: missing }.to_string();
                Verdict::Refuse(answer::refused(exchange, Status::FORBIDDEN, why))
            }
        }
    }
}

fn is_met(required: &Requirement, user: &User) -> bool {
    match required.what {
        Required::User => required.names.binary_search(&user.name).is_ok(),
        Required::Group => required.names.iter().any(|group| user.is_in(group)),
    }
}

/// Why somebody who is known does not get in.
struct Missing<'a> {
    user: Option<&'a str>,
    required: &'a Requirement,
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement { what, names, origin } = self.required;
        let what = match what {
            Required::User => "user",
            Required::Group => "group",
        };
        match self.user {
            Some(user) => write!(f, "`{user}` is none of whom ")?,
            None => f.write_str("nobody has logged in, and some are whom ")?,
        }
        write!(f, "`require {what} \"{}\"` ({origin}) lets in", names.join("\" \""))
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

    #[test]
    fn what_is_required() {
        let user = User { name: "anna".into(), groups: vec!["admins".into(), "staff".into()] };
        let require = |what, names: &[&str]| Requirement {
            what,
            names: names.iter().map(ToString::to_string).collect(),
            origin: Default::default(),
        };
        for (required, expected) in [
            (require(Required::User, &["anna", "ben"]), true),
            (require(Required::User, &["Anna", "ben"]), false),
            (require(Required::User, &["admins"]), false),
            (require(Required::Group, &["guests", "staff"]), true),
            (require(Required::Group, &["anna"]), false),
        ] {
            assert_eq!(is_met(&required, &user), expected, "{required:?}");
        }
    }
}
