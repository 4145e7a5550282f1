//! `tidegate explain --user NAME`: what somebody gets who has logged in. Nobody is asked for a password, and no directory.

use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{How, Login, Shared, UserSource};
use tidegate_core::explain::Notes;
use tidegate_core::user::User;
use tidegate_core::{Exchange, Gate, Verdict, answer};
use tidegate_http::Status;

/// Who has logged in.
pub struct Assumed {
    name: String,
    groups: Vec<String>,
    notes: Notes,
}

impl Assumed {
    /// A user, with groups beside those that the settings tell.
    pub fn new(name: &str, groups: &[String], notes: Notes) -> Assumed {
        Assumed { name: name.to_owned(), groups: groups.to_vec(), notes }
    }
}

/// In the place of a `login`.
pub struct AssumedGate {
    login: Shared<Login>,
    assumed: Rc<Assumed>,
    /// As the users know them; `None` where they do not.
    user: Option<Arc<User>>,
    has_directory: bool,
}

impl AssumedGate {
    /// The gate of a `login` of these users.
    pub fn new(login: &Shared<Login>, users: &UserSource, assumed: Rc<Assumed>) -> AssumedGate {
        let account = users.accounts.iter().find(|account| account.name == assumed.name);
        let has_directory = users.directory.is_some() || users.how() != How::Basic;
        let user = (account.is_some() || has_directory).then(|| {
            let mut groups = account.map(|account| account.groups.clone()).unwrap_or_default();
            groups.extend(assumed.groups.iter().cloned());
            groups.sort_unstable();
            groups.dedup();
            Arc::new(User { name: assumed.name.clone(), groups, unlisted: None })
        });
        AssumedGate { login: login.clone(), has_directory: has_directory && account.is_none(), user, assumed }
    }
}

impl Gate for AssumedGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        if exchange.is_logged_in(&self.login) {
            return Verdict::Pass;
        }
        let (name, login) = (self.assumed.name.escape_debug(), &self.login);
        let line = format!("`login {} \"{}\"` ({})", login.how.word(), login.users, login.origin);
        let Some(user) = &self.user else {
            let why = format_args!("{line} knows no `{name}`");
            let response = answer::refused(exchange, Status::UNAUTHORIZED, why);
            answer::remedy(|| format!("to let `{name}` in, add the name with `htpasswd -B FILE {name}`"));
            return Verdict::Refuse(response);
        };
        exchange.identify().prove(user.clone(), "Basic", &self.login);
        self.assumed.notes.push(match self.has_directory {
            true => format!(
                "login: {line} would ask {}, and nobody is asked here: as if it knew `{name}`, in no group but \
                 those of `--group`",
                match login.how {
                    How::Basic => "its directory",
                    How::Forward => "its application",
                    How::Token => "its tokens",
                    How::Openid => "its identity provider",
                }
            ),
            false => format!("login: {line} knows `{name}`, and the password is taken for right"),
        });
        Verdict::Pass
    }
}
