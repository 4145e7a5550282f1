//! Applications neither get nor give the cookies that this server has browsers keep: whoever reads one could be somebody else,
//! and whoever sets one has somebody else logged in (login CSRF).
//!
//! Which those are, the settings in force say. Cookies of another server of this kind, which stands behind this one and logs people
//! in itself, are cookies like any others here.

use super::session::{cookie_name, hint_name};
use std::borrow::Cow;
use std::rc::Rc;
use tidegate_config::settings::UserSource;
use tidegate_http::FieldLines;

/// The cookies of all `users` whom an identity provider knows.
#[derive(Debug, Default)]
pub struct OwnCookies(Vec<String>);

impl OwnCookies {
    /// Of settings.
    pub fn of(users: &[UserSource]) -> Rc<OwnCookies> {
        let users = users.iter().filter(|users| users.openid.is_some());
        Rc::new(OwnCookies::named(users.map(|users| users.name.as_str())))
    }

    /// Of users of these names.
    pub(super) fn named<'n>(users: impl Iterator<Item = &'n str>) -> OwnCookies {
        let of_users = |users| {
            let both = [true, false].into_iter();
            both.flat_map(move |is_secure| {
                let [session, login] = ["session", "login"].map(|what| cookie_name(what, users, is_secure));
                [session, login, hint_name(users, is_secure)]
            })
        };
        OwnCookies(users.flat_map(of_users).collect())
    }

    /// A `Cookie` field as applications see it, without the cookies of this server; `None`: there are no others.
    #[inline]
    pub fn without<'f>(&self, field: &'f [u8]) -> Option<Cow<'f, [u8]>> {
        if self.0.is_empty() || !field.split(|byte| *byte == b';').any(|pair| self.has(pair)) {
            return Some(Cow::Borrowed(field));
        }
        let others: Vec<&[u8]> = field
            .split(|byte| *byte == b';')
            .filter(|pair| !self.has(pair))
            .map(<[u8]>::trim_ascii)
            .collect();
        (!others.is_empty()).then(|| Cow::Owned(others.join(&b"; "[..])))
    }

    /// Takes those out of the answer of an application.
    #[inline]
    pub fn take_out_of(&self, answer: &mut FieldLines) {
        if !self.0.is_empty() {
            answer.remove_where("set-cookie", |value| self.has(value));
        }
    }

    /// Whether a cookie, `name=value` with whatever stands behind it, is one of them. Browsers send one that was set without a
    /// name, `=name=value`, as if it had one.
    fn has(&self, pair: &[u8]) -> bool {
        let pair = pair.trim_ascii_start();
        let pair = pair.strip_prefix(b"=").unwrap_or(pair);
        let end = pair.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(pair.len());
        let name = pair.get(..end).unwrap_or_default().trim_ascii();
        self.0.iter().any(|own| own.as_bytes() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_corp() -> OwnCookies {
        OwnCookies::named(["corp"].into_iter())
    }

    #[test]
    fn applications_see_no_cookie_of_ours() {
        for (field, expected) in [
            ("a=b; c=d", Some("a=b; c=d")),
            ("a=b; __Host-tidegate-session-corp=x; c=d", Some("a=b; c=d")),
            ("__Secure-tidegate-hint-corp=x; c=d", Some("c=d")),
            ("tidegate-login-corp=x;a=tidegate-", Some("a=tidegate-")),
            (" tidegate-session-corp=x", None),
            ("tidegate-session-corp", None),
            ("tidegate-session-corp =x", None),
            ("x-tidegate-session-corp=b", Some("x-tidegate-session-corp=b")),
            // Of another server, which stands behind this one.
            (
                "tidegate-session-staff=x; tidegate-session-corpo=y",
                Some("tidegate-session-staff=x; tidegate-session-corpo=y"),
            ),
            ("a=tidegate-session-corp=x", Some("a=tidegate-session-corp=x")),
        ] {
            let own = of_corp();
            let seen = own.without(field.as_bytes());
            assert_eq!(seen.as_deref(), expected.map(str::as_bytes), "{field}");
            let seen = OwnCookies::default();
            assert_eq!(seen.without(field.as_bytes()).as_deref(), Some(field.as_bytes()), "it has none");
        }
    }

    #[test]
    fn applications_set_no_cookie_of_ours() {
        for (value, is_own) in [
            ("a=b; Path=/", false),
            ("tidegate-session-corp=x; Path=/", true),
            (" __Host-tidegate-login-corp =x", true),
            ("=tidegate-login-corp=x", true),
            ("tidegate-login-corp", true),
            ("tidegate-login-corp;Path=/", true),
            ("tidegate-login-staff=x", false),
            ("a=tidegate-login-corp=x", false),
            ("a=b; tidegate-login-corp=x", false),
        ] {
            let mut lines = FieldLines::new();
            lines.push("Set-Cookie", "first=1");
            lines.push("set-cookie", value);
            lines.push("X-Other", value);
            of_corp().take_out_of(&mut lines);
            assert_eq!(lines.all("set-cookie").count(), if is_own { 1 } else { 2 }, "{value}");
            assert_eq!(lines.first("x-other").map(<[u8]>::trim_ascii), Some(value.trim().as_bytes()));
        }
    }
}
