//! Who a client has proved to be.

use std::cell::OnceCell;
use std::sync::Arc;
use tidegate_config::settings::{Login, Shared};
use tidegate_http::{Field, FieldLines};

/// Somebody who is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name that has been proved.
    pub name: String,
    /// Sorted.
    pub groups: Vec<String>,
    /// Where there are more groups than these: what the source of users knows the user by.
    pub unlisted: Option<Box<str>>,
}

impl User {
    /// Whether the user belongs to a group, of those that are listed.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.binary_search_by(|known| known.as_str().cmp(group)).is_ok()
    }
}

/// What a request is given by whoever has let it in, in place of what its client has sent by the same names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Granted {
    /// The names, in small letters, whether there is anything of them or not.
    pub names: Vec<String>,
    /// Fields of these names.
    pub lines: FieldLines,
}

impl Granted {
    /// Whether a field of a client would be taken for one of these, as by who makes variables of names.
    pub fn replaces(&self, name: &str) -> bool {
        let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
        self.names.iter().any(|own| own.bytes().map(plain).eq(name.bytes().map(plain)))
    }

    fn has(&self, field: &Field<'_>) -> bool {
        self.lines.all(field.name).any(|value| value == field.value)
    }
}

/// Who the client of a request is, once that is known: whoever keeps the request and whoever logs it share one. It is
/// replaced as a whole, so that no proof outlives the user whom it was of.
#[derive(Debug, Default)]
pub struct Identity {
    user: OnceCell<Arc<User>>,
    /// Whose users this is one of by proof.
    login: OnceCell<Shared<Login>>,
    granted: OnceCell<Arc<Granted>>,
    scheme: OnceCell<&'static str>,
}

impl Identity {
    /// The client is this one, by what it has sent to a login in `Authorization` in this scheme. Said once for each login
    /// that a request passes.
    pub fn prove(&self, user: Arc<User>, scheme: &'static str, login: &Shared<Login>) {
        let _ = self.user.set(user);
        let _ = self.scheme.set(scheme);
        let _ = self.login.set(login.clone());
    }

    /// The client is this one by its certificate, which is no login.
    pub fn certify(&self, user: Arc<User>) {
        let _ = self.user.set(user);
        let _ = self.scheme.set("ClientCert");
    }

    /// Somebody else says who the client is, where it is anybody, and what the request is given.
    pub fn vouch(&self, user: Option<Arc<User>>, granted: Arc<Granted>) {
        if let Some(user) = user {
            let _ = self.user.set(user);
        }
        let _ = self.granted.set(granted);
    }

    /// The same, to be kept.
    pub fn known(&self) -> Option<Arc<User>> {
        self.user.get().cloned()
    }

    /// Who it is; `None` as long as nobody has said.
    #[inline]
    pub fn user(&self) -> Option<&User> {
        self.user.get().map(|user| &**user)
    }

    /// The scheme by which that was proved (RFC 9110 section 11.1).
    pub fn scheme(&self) -> Option<&'static str> {
        self.scheme.get().copied()
    }

    /// Whether the client has proved to be one of the users whom a login asks for.
    pub(crate) fn is_proved_to(&self, login: &Login) -> bool {
        self.login.get().is_some_and(|passed| passed.users == login.users)
    }

    /// What the request is given.
    pub(crate) fn granted(&self) -> Option<&Arc<Granted>> {
        self.granted.get()
    }

    /// Whether a field of a request is one that it was given.
    pub(crate) fn has_granted(&self, field: &Field<'_>) -> bool {
        self.granted.get().is_some_and(|granted| granted.has(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_a_name_is_another_name() {
        let granted = Granted { names: vec!["remote-user".into()], lines: FieldLines::new() };
        for name in ["Remote-User", "remote_user", "REMOTE.USER", "remote~user", "Remote-user"] {
            assert!(granted.replaces(name), "{name}");
        }
        for name in ["Remote-Users", "RemoteUser", "Remote", "X-Remote-User"] {
            assert!(!granted.replaces(name), "{name}");
        }
    }
}
