//! Who a client has proved to be.

use std::cell::OnceCell;
use std::sync::Arc;

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

/// Who the client of a request is, once that is known: whoever keeps the request and whoever logs it share one.
#[derive(Debug, Default)]
pub struct Identity(OnceCell<Arc<User>>);

impl Identity {
    /// The client is this one. Said once for each login that a request passes.
    pub fn prove(&self, user: Arc<User>) {
        let _ = self.0.set(user);
    }

    /// The same, to be kept.
    pub fn known(&self) -> Option<Arc<User>> {
        self.0.get().cloned()
    }

    /// Who it is; `None` as long as nobody has said.
    #[inline]
    pub fn user(&self) -> Option<&User> {
        self.0.get().map(|user| &**user)
    }
}
