//! `users`, `login` and `require`: who people are, and who of them gets in.

use super::gateway::Gateway;
use super::{Directory, Origin, Shared, Signed, Tokens};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Where users are known: `users "staff" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserSource {
    /// What `login` calls it.
    pub name: String,
    /// What they were read from. The master reads them anew whenever they change.
    pub files: AccountFiles,
    /// Of the password files, in order; of a name, the first counts.
    pub accounts: Shared<Vec<Account>>,
    /// The directory that knows users whom no file does.
    pub directory: Option<Directory>,
    /// The application that says who they are.
    pub forward: Option<Forward>,
    /// Tokens that say who they are.
    pub tokens: Option<Tokens>,
    /// The user cache (R9).
    pub cache: UserCache,
    /// Where it was written.
    pub origin: Origin,
}

impl UserSource {
    /// How those can log in whom it knows.
    pub fn how(&self) -> How {
        match (&self.forward, &self.tokens) {
            (Some(_), _) => How::Forward,
            (None, Some(_)) => How::Token,
            (None, None) => How::Basic,
        }
    }
}

/// How somebody proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By a name and a password (RFC 7617).
    Basic,
    /// An application decides.
    Forward,
    /// By a token (RFC 6750).
    Token,
}

impl How {
    /// As `login` has it.
    pub fn word(self) -> &'static str {
        match self {
            How::Basic => "basic",
            How::Forward => "forward",
            How::Token => "token",
        }
    }
}

/// An application that decides who gets in: `forward "http://127.0.0.1:9091/verify" { … }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    /// Where it is.
    pub gateway: Gateway,
    /// What is asked for; begins with a slash.
    pub path: String,
    /// By which name; `None` is that of the client.
    pub host: Option<String>,
    /// Fields of its answer that a request is passed on with, in small letters, sorted.
    pub copy: Vec<String>,
    /// The field that has the name of the user.
    pub user: Option<String>,
    /// The one that has the groups.
    pub groups: Option<String>,
    /// The longest that a decision may take.
    pub timeout: Duration,
    /// The most bytes of content that go to a client.
    pub content: u64,
    /// How decisions are remembered.
    pub cache: Option<Remembering>,
}

impl Forward {
    /// Whether two say the same, wherever they stand.
    pub fn is_same_as(&self, other: &Forward) -> bool {
        let plain = |forward: &Forward| {
            let mut plain = forward.clone();
            if let Some(tls) = &mut plain.gateway.tls {
                tls.origin = Origin::default();
            }
            plain
        };
        plain(self) == plain(other)
    }
}

/// How decisions that have let somebody in are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembering {
    /// How long.
    pub lifetime: Duration,
    /// What they depend on, a text with placeholders.
    pub by: String,
}

/// The files of a source, absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AccountFiles {
    /// Names and passwords (`htpasswd`).
    #[serde(with = "crate::path_encoding::paths")]
    pub passwords: Vec<PathBuf>,
    /// Groups.
    #[serde(with = "crate::path_encoding::paths")]
    pub groups: Vec<PathBuf>,
}

/// A user of a password file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The name, as it is typed in.
    pub name: String,
    /// What the password is compared with: `$2y$…` and the like, whose kind is known.
    pub hash: String,
    /// Sorted.
    pub groups: Vec<String>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A hash is nothing for a log.
        f.debug_struct("Account").field("name", &self.name).field("groups", &self.groups).finish()
    }
}

/// What is remembered of users who have proved who they are, in each server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCache {
    /// How long. Zero: every request is looked into.
    pub lifetime: Duration,
    /// How many users.
    pub users: u32,
    /// How many groups of each; whose further ones are asked for is looked up again.
    pub groups: u32,
}

/// `login basic "staff" realm="Staff"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Login {
    /// How they prove it.
    pub how: How,
    /// Where its users are known.
    pub users: String,
    /// What the browser says is asked for.
    pub realm: String,
    /// Where it was written.
    pub origin: Origin,
}

/// `require group "admins"`: of these, one is enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    /// What has to be one of them.
    pub what: Required,
    /// Sorted.
    pub names: Vec<String>,
    /// Where it was written.
    pub origin: Origin,
}

/// What a [`Requirement`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Required {
    /// The user.
    User,
    /// A group of the user.
    Group,
}

/// Who has to prove to be whom. The default is nobody.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Identification {
    /// How.
    pub login: Option<Shared<Login>>,
    /// The URL itself has to be signed.
    pub signed: Option<Shared<Signed>>,
    /// What is required of who has; each has to hold.
    pub requirements: Vec<Shared<Requirement>>,
}
