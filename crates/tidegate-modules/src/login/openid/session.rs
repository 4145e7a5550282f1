//! A session: who has logged in, as their browser keeps it.

use super::seal::{Purpose, Seals};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_core::user::User;

/// The longest value of a cookie that browsers keep, with its name and what else stands beside it (RFC 6265 section 6.1: 4096 bytes).
pub const LONGEST: usize = 3900;

/// What a cookie of ours is called begins so, behind a prefix of the browser's: no application is told of one.
pub const COOKIES: &str = "tidegate-";

/// Who it is, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    #[serde(rename = "u")]
    pub name: String,
    #[serde(rename = "g")]
    pub groups: Vec<String>,
    /// Seconds since 1970.
    #[serde(rename = "e")]
    pub expires: i64,
    /// When the provider has said so, seconds since 1970.
    #[serde(rename = "i", default)]
    pub since: i64,
}

/// How old what the provider has said of somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It counts.
    Fresh,
    /// It counts where the provider cannot be asked.
    Stale,
    /// It counts no longer.
    Outdated,
}

/// Which session: no other site's, and no other users'.
#[derive(Debug, Clone, Copy)]
pub struct Place<'p> {
    pub users: &'p str,
    pub issuer: &'p str,
    pub client: &'p str,
    /// As the browser names the site.
    pub authority: &'p str,
}

impl Place<'_> {
    fn purpose<R>(&self, what: &str, then: impl FnOnce(Purpose<'_>) -> R) -> R {
        let authority = self.authority.to_ascii_lowercase();
        then(Purpose(&[what, self.users, self.issuer, self.client, &authority]))
    }

    /// Seals something for it.
    pub fn seal(&self, what: &str, seals: &Seals, plain: &impl Serialize) -> Option<String> {
        let plain = serde_json::to_vec(plain).ok()?;
        self.purpose(what, |purpose| seals.seal(purpose, &plain))
    }

    /// What was sealed for it.
    pub fn open<T: for<'de> Deserialize<'de>>(&self, what: &str, seals: &Seals, text: &str) -> Option<T> {
        let plain = self.purpose(what, |purpose| seals.open(purpose, text))?;
        serde_json::from_slice(&plain).ok()
    }
}

impl Session {
    /// The value of its cookie; `None`: it is too long to be kept, or there is no key.
    pub fn seal(&self, place: Place<'_>, seals: &Seals) -> Option<String> {
        place.seal("session", seals, self).filter(|value| value.len() <= LONGEST)
    }

    /// The session of a cookie, while it holds.
    pub fn open(value: &str, place: Place<'_>, seals: &Seals, now: i64) -> Option<Session> {
        if value.len() > LONGEST {
            return None;
        }
        place.open("session", seals, value).filter(|session: &Session| session.expires > now)
    }

    /// How old it is, by `refresh` of the settings.
    pub fn age(&self, refresh: Option<Duration>, now: i64) -> Age {
        let Some(refresh) = refresh.and_then(|refresh| i64::try_from(refresh.as_secs()).ok()) else {
            return Age::Fresh;
        };
        match now.saturating_sub(self.since) {
            age if age < refresh => Age::Fresh,
            age if age < refresh.saturating_mul(2) => Age::Stale,
            _ => Age::Outdated,
        }
    }

    /// Who it is.
    pub fn user(self) -> User {
        User { name: self.name, groups: self.groups, unlisted: None }
    }
}

/// The cookie with the ID token, which the provider wants to see of who logs out: browsers show it to the page that logs out
/// alone (RFC 6265bis section 4.1.3.1).
pub fn hint_name(users: &str, is_secure: bool) -> String {
    let prefix = if is_secure { "__Secure-" } else { "" };
    format!("{prefix}{COOKIES}hint-{users}")
}

/// The name of a cookie. Over TLS it is one that only this host, and only over TLS, can have set (RFC 6265bis section 4.1.3.2).
pub fn cookie_name(what: &str, users: &str, is_secure: bool) -> String {
    let prefix = if is_secure { "__Host-" } else { "" };
    format!("{prefix}{COOKIES}{what}-{users}")
}

/// The value of `Set-Cookie`; without a value it takes the cookie away.
pub fn set_cookie(name: &str, value: Option<&str>, seconds: u64, is_secure: bool) -> String {
    set_cookie_at("/", name, value, seconds, is_secure)
}

/// The same for the pages below a path.
pub fn set_cookie_at(path: &str, name: &str, value: Option<&str>, seconds: u64, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    let (value, seconds) = value.map_or(("", 0), |value| (value, seconds));
    format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::settings::UrlKey;

    const PLACE: Place<'_> =
        Place { users: "corp", issuer: "https://id", client: "web", authority: "a.test" };

    #[test]
    fn sessions_of_one_site_and_one_login() {
        let seals = Seals::new(&[UrlKey::from_bytes(vec![7; 32])]);
        let session =
            Session { name: "anna".into(), groups: vec!["staff".into()], expires: 1000, since: 900 };
        let value = session.seal(PLACE, &seals).unwrap();
        assert_eq!(Session::open(&value, PLACE, &seals, 999), Some(session.clone()));
        let same = Place { authority: "A.test", ..PLACE };
        assert!(Session::open(&value, same, &seals, 999).is_some());
        assert!(Session::open(&value, PLACE, &seals, 1000).is_none(), "it is over");
        for other in [
            Place { users: "corq", ..PLACE },
            Place { issuer: "https://idp", ..PLACE },
            Place { client: "app", ..PLACE },
            Place { authority: "b.test", ..PLACE },
        ] {
            assert!(Session::open(&value, other, &seals, 999).is_none(), "{other:?}");
        }
        // What is sealed for something else is no session.
        let state = PLACE.seal("state", &seals, &session).unwrap();
        assert!(Session::open(&state, PLACE, &seals, 999).is_none());
        let many = Session { groups: vec!["group".into(); 1000], ..session };
        assert!(many.seal(PLACE, &seals).is_none(), "no browser would keep it");
    }

    #[test]
    fn what_was_said_grows_old() {
        let said = Session { name: "anna".into(), groups: vec![], expires: 10_000, since: 1000 };
        let refresh = Some(Duration::from_secs(60));
        for (now, expected) in [
            (900, Age::Fresh),
            (1059, Age::Fresh),
            (1060, Age::Stale),
            (1119, Age::Stale),
            (1120, Age::Outdated),
        ] {
            assert_eq!(said.age(refresh, now), expected, "{now}");
            assert_eq!(said.age(None, now), Age::Fresh);
        }
        // One of a program that knew no such thing.
        let old: Session = serde_json::from_str(r#"{"u":"anna","g":[],"e":10000}"#).unwrap();
        assert_eq!(old.age(refresh, 1000), Age::Outdated);
    }

    #[test]
    fn cookies() {
        let name = cookie_name("session", "corp", true);
        assert_eq!(
            set_cookie(&name, Some("x"), 60, true),
            "__Host-tidegate-session-corp=x; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
        );
        let name = cookie_name("session", "corp", false);
        assert_eq!(
            set_cookie(&name, None, 60, false),
            "tidegate-session-corp=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
        );
    }
}
