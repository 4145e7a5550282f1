//! A session: who has logged in, as their browser keeps it.

use super::seal::{Purpose, Seals, Unsealed};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidegate_core::user::User;

/// The longest value of a cookie that browsers keep, with its name and what else stands beside it (RFC 6265 section 6.1: 4096 bytes).
pub const LONGEST: usize = 3900;

/// Who it is, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    #[serde(rename = "u")]
    pub name: String,
    #[serde(rename = "g")]
    pub groups: Vec<String>,
    /// When the provider has said so, seconds since 1970. Until when it holds, the settings in force say.
    #[serde(rename = "b")]
    pub begun: i64,
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

/// Which session: no other site's, no other users', and nobody's who was told by other claims.
#[derive(Debug, Clone, Copy)]
pub struct Place<'p> {
    pub users: &'p str,
    pub issuer: &'p str,
    pub client: &'p str,
    /// The claims that have the name and the groups.
    pub user: &'p str,
    pub groups: Option<&'p str>,
    /// What was sent over `http` for all to see proves nothing over `https`.
    pub scheme: &'p str,
    /// As the browser names the site.
    pub authority: &'p str,
}

impl Place<'_> {
    fn purpose<R>(&self, what: &str, then: impl FnOnce(Purpose<'_>) -> R) -> R {
        let authority = self.authority.to_ascii_lowercase();
        let groups = self.groups.unwrap_or_default();
        then(Purpose(&[
            what,
            self.users,
            self.issuer,
            self.client,
            self.user,
            groups,
            self.scheme,
            &authority,
        ]))
    }

    /// Seals something for it.
    ///
    /// # Errors
    /// As [`Seals::seal`].
    pub fn seal(&self, what: &str, seals: &Seals, plain: &impl Serialize) -> Result<String, Unsealed> {
        let plain = serde_json::to_vec(plain).expect("invariant: plain data can be written as JSON");
        self.purpose(what, |purpose| seals.seal(purpose, &plain))
    }

    /// What was sealed for it.
    pub fn open<T: for<'de> Deserialize<'de>>(&self, what: &str, seals: &Seals, text: &str) -> Option<T> {
        let plain = self.purpose(what, |purpose| seals.open(purpose, text))?;
        serde_json::from_slice(&plain).ok()
    }
}

impl Session {
    /// The value of its cookie.
    ///
    /// # Errors
    /// It is too long to be kept, or as [`Seals::seal`].
    pub fn seal(&self, place: Place<'_>, seals: &Seals) -> Result<String, Unsealed> {
        let value = place.seal("session", seals, self)?;
        if value.len() <= LONGEST { Ok(value) } else { Err(Unsealed::TooLong) }
    }

    /// The session of a cookie, while it holds: for `lasting` from its beginning.
    pub fn open(
        value: &str,
        place: Place<'_>,
        seals: &Seals,
        lasting: Duration,
        now: i64,
    ) -> Option<Session> {
        if value.len() > LONGEST {
            return None;
        }
        let lasting = i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX);
        let holds = |session: &Session| session.begun.saturating_add(lasting) > now;
        place.open("session", seals, value).filter(holds)
    }

    /// How old it is, by `refresh` of the settings.
    pub fn age(&self, refresh: Option<Duration>, now: i64) -> Age {
        let Some(refresh) = refresh.and_then(|refresh| i64::try_from(refresh.as_secs()).ok()) else {
            return Age::Fresh;
        };
        match now.saturating_sub(self.begun) {
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
    format!("{prefix}tidegate-hint-{users}")
}

/// The name of a cookie: of the `session`, or of a `login` under way. Over TLS it is one that only this host, and only over TLS,
/// can have set (RFC 6265bis section 4.1.3.2).
pub fn cookie_name(what: &str, users: &str, is_secure: bool) -> String {
    let prefix = if is_secure { "__Host-" } else { "" };
    format!("{prefix}tidegate-{what}-{users}")
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

    const PLACE: Place<'_> = Place {
        users: "corp",
        issuer: "https://id",
        client: "web",
        user: "sub",
        groups: Some("groups"),
        scheme: "https",
        authority: "a.test",
    };

    #[test]
    fn sessions_of_one_site_and_one_login() {
        let seals = Seals::new(&[UrlKey::from_bytes(vec![7; 32])]);
        let session = Session { name: "anna".into(), groups: vec!["staff".into()], begun: 400 };
        let value = session.seal(PLACE, &seals).unwrap();
        let open =
            |place, lasting, now| Session::open(&value, place, &seals, Duration::from_secs(lasting), now);
        assert_eq!(open(PLACE, 600, 999), Some(session.clone()));
        assert!(open(Place { authority: "A.test", ..PLACE }, 600, 999).is_some());
        assert!(open(PLACE, 600, 1000).is_none(), "it is over");
        // What the settings say now holds for sessions that were begun before.
        assert!(open(PLACE, 60, 999).is_none() && open(PLACE, 60, 459).is_some());
        for other in [
            Place { users: "corq", ..PLACE },
            Place { issuer: "https://idp", ..PLACE },
            Place { client: "app", ..PLACE },
            Place { user: "email", ..PLACE },
            Place { groups: Some("roles"), ..PLACE },
            Place { groups: None, ..PLACE },
            Place { scheme: "http", ..PLACE },
            Place { authority: "b.test", ..PLACE },
        ] {
            assert!(open(other, 600, 999).is_none(), "{other:?}");
        }
        // What is sealed for something else is no session.
        let state = PLACE.seal("state", &seals, &session).unwrap();
        assert!(Session::open(&state, PLACE, &seals, Duration::MAX, 999).is_none());
        let many = Session { groups: vec!["group".into(); 1000], ..session };
        assert_eq!(many.seal(PLACE, &seals), Err(Unsealed::TooLong), "no browser would keep it");
        assert_eq!(many.seal(PLACE, &Seals::new(&[])), Err(Unsealed::NoKey));
    }

    #[test]
    fn what_was_said_grows_old() {
        let said = Session { name: "anna".into(), groups: vec![], begun: 1000 };
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
