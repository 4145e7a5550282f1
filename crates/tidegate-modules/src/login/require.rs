//! `require`: who of those who have logged in goes on.

use super::basic::away;
use super::questions::{Answer, Outcome};
use super::source::Source;
use super::tally;
use std::fmt;
use std::sync::Arc;
use tidegate_config::settings::{Identification, Login, Required, Requirement, Shared};
use tidegate_core::user::User;
use tidegate_core::{Exchange, Gate, Need, Verdict, answer};
use tidegate_http::Status;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// Lets in whom `require` names of those who have logged in.
pub struct RequireGate {
    requirements: Vec<Shared<Requirement>>,
    /// Who is asked who it is, where somebody is.
    login: Option<Shared<Login>>,
    /// Where those who have logged in are known.
    source: Option<Arc<Source>>,
    stats: Arc<Stats>,
}

impl RequireGate {
    /// The gate of a route that requires something of the users of a source.
    pub fn new(
        identification: &Identification,
        source: Option<Arc<Source>>,
        stats: Arc<Stats>,
    ) -> RequireGate {
        let (requirements, login) = (identification.requirements.clone(), identification.login.clone());
        RequireGate { requirements, login, source, stats }
    }
}

impl Gate for RequireGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let missing: Vec<Shared<Requirement>> = {
            let user = exchange.user();
            let is_missing =
                |required: &&Shared<Requirement>| !user.is_some_and(|user| is_met(required, user));
            self.requirements.iter().filter(is_missing).cloned().collect()
        };
        let (Some(first), Some(user)) = (missing.first(), exchange.known_user()) else {
            return match missing.first() {
                None => Verdict::Pass,
                // Who it is would come out of what nobody is asked here.
                Some(first) if answer::is_undecided() => {
                    answer::found(|| format!("{} decides by who that is", line_of(first)));
                    Verdict::Pass
                }
                Some(first) => {
                    let verdict = refuse(exchange, first);
                    answer::remedy(|| self.how_to_let_in(exchange, first));
                    verdict
                }
            };
        };
        let is_of_groups = missing.iter().all(|required| matches!(required.what, Required::Group));
        match (&self.source, &user.unlisted) {
            // There are groups of the user's that are not listed: the directory has to say whether it is one of these.
            (Some(source), Some(_)) if is_of_groups => ask(source, &self.stats, user, missing, exchange),
            _ => {
                let verdict = refuse(exchange, first);
                answer::remedy(|| self.how_to_let_in(exchange, first));
                verdict
            }
        }
    }

    fn name(&self) -> String {
        self.requirements.first().map(|first| line_of(first)).unwrap_or_default()
    }
}

impl RequireGate {
    /// How the settings would have to be changed to let the user in.
    fn how_to_let_in(&self, exchange: &Exchange<'_>, missing: &Requirement) -> String {
        match (exchange.user(), &self.login) {
            (Some(user), _) => remedy(user, missing),
            (None, None) => "to let anybody in, write `login basic` beside it or around it".to_owned(),
            (None, Some(login)) => format!(
                "`login {} \"{}\"` ({}) has let the request in without saying who it is",
                login.how.word(),
                login.users,
                login.origin
            ),
        }
    }
}

/// A `require` as it is written, and where.
fn line_of(required: &Requirement) -> String {
    let Requirement { what, names, origin } = required;
    let what = match what {
        Required::User => "user",
        Required::Group => "group",
    };
    format!("`require {what} \"{}\"` ({origin})", names.join("\" \""))
}

fn refuse(exchange: &Exchange<'_>, missing: &Requirement) -> Verdict {
    let user = exchange.user().map(|user| user.name.as_str());
    let why = Missing { user, required: missing }.to_string();
    Verdict::Refuse(answer::refused(exchange, Status::FORBIDDEN, why))
}

/// How the settings would have to be changed to let a user in.
fn remedy(user: &User, missing: &Requirement) -> String {
    let name = user.name.escape_debug();
    match missing.what {
        Required::User => format!("to let `{name}` in, add the name to that line"),
        Required::Group => {
            format!(
                "to let `{name}` in, add the user to one of these groups, or a group of the user's to that line"
            )
        }
    }
}

/// Asks whether a user is in one of the groups of each requirement that is not met, one after the other.
fn ask(
    source: &Arc<Source>,
    stats: &Arc<Stats>,
    user: Arc<User>,
    mut missing: Vec<Shared<Requirement>>,
    exchange: &Exchange<'_>,
) -> Verdict {
    let client = exchange.state.remote.customer();
    let Some(dn) = user.unlisted.clone() else { return Verdict::Refuse(answer::busy(None)) };
    let Some(required) = missing.first().cloned() else { return Verdict::Pass };
    let go_on = {
        let (source, stats) = (source.clone(), stats.clone());
        let required = required.clone();
        let user = user.clone();
        move |exchange: &mut Exchange<'_>, outcome: Outcome| match outcome {
            Outcome::Member(true) => {
                missing.remove(0);
                ask(&source, &stats, user, missing, exchange)
            }
            Outcome::Member(false) | Outcome::Nobody | Outcome::Known(_) => refuse(exchange, &required),
            Outcome::Away(time) | Outcome::Later(time) => Verdict::Refuse(away(exchange, time)),
        }
    };
    match source.is_in(&user, &dn, &required.names, &client, monotonic_ns()) {
        Answer::Known(outcome) => Verdict::Decide(Box::new(move |exchange| go_on(exchange, outcome))),
        Answer::Overloaded => Verdict::Refuse(answer::busy(None)),
        Answer::Asked(asked) => {
            let (source, stats) = (source.clone(), stats.clone());
            Verdict::Wait(
                Need::Decision,
                Box::pin(async move {
                    let patience = source.patience().unwrap_or_default();
                    let outcome = timer::within(patience, asked).await.flatten();
                    tally::asked(&stats, &source);
                    let Some(outcome) = outcome else { return Verdict::Refuse(answer::busy(None)) };
                    Verdict::Decide(Box::new(move |exchange| go_on(exchange, outcome)))
                }),
            )
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
        match self.user {
            Some(user) => write!(f, "`{user}` is none of whom ")?,
            None => f.write_str("nobody has logged in, and some are whom ")?,
        }
        write!(f, "{} lets in", line_of(self.required))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required() {
        let user =
            User { name: "anna".into(), groups: vec!["admins".into(), "staff".into()], unlisted: None };
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
