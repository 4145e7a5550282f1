//! `login forward`: an application says who gets in.

use super::source::Source;
use crate::gateway::consult::{Consulted, whole};
use crate::gateway::question::is_answered;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::{Forward, Login, Shared};
use tidegate_core::template::{Scope, Template};
use tidegate_core::user::{Granted, User};
use tidegate_core::{Exchange, Gate, Need, Response, Verdict, answer, log};
use tidegate_http::{FieldLines, Status};
use tidegate_io::clock::monotonic_ns;
use tidegate_io::timer;
use tidegate_stats::Worker as Stats;

/// The most bytes of fields that a request is given.
const FIELDS_MAX: usize = 16 << 10;
/// What is longer is not remembered.
const REMEMBERED_MAX: usize = 4 << 10;
/// The longest name of a user, bytes; and the most groups.
const NAME_MAX: usize = 1024;
const GROUPS_MAX: usize = 1000;

/// What somebody was let in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    user: Option<Arc<User>>,
    granted: Arc<Granted>,
}

impl Admission {
    /// Whether as many of it as are remembered are not too many.
    fn is_small(&self) -> bool {
        let user = self
            .user
            .as_ref()
            .map_or(0, |user| user.name.len() + user.groups.iter().map(String::len).sum::<usize>());
        user + self.granted.lines.as_bytes().len() <= REMEMBERED_MAX
    }
}

/// Asks an application about each request.
pub struct ForwardGate {
    source: Arc<Source>,
    stats: Arc<Stats>,
    terms: Rc<Terms>,
    /// What a decision that is remembered depends on.
    by: Option<Template>,
}

struct Terms {
    login: Shared<Login>,
    settings: Forward,
    application: Consulted,
}

/// What an application has decided.
enum Decision {
    Admitted(Admission),
    /// Its answer, for the client.
    Refused(Response),
    /// It has said nothing that decides: why, where that was not said yet.
    Undecided(Option<String>),
}

impl ForwardGate {
    /// The gate of a `login`; `source` has its users.
    pub fn new(
        login: &Shared<Login>,
        settings: &Forward,
        application: Consulted,
        scope: Scope<'_>,
        source: Arc<Source>,
        stats: Arc<Stats>,
    ) -> ForwardGate {
        let by = settings.cache.as_ref().map(|cache| Template::parse(&cache.by, scope));
        let terms = Terms { login: login.clone(), settings: settings.clone(), application };
        ForwardGate { source, stats, terms: Rc::new(terms), by }
    }

    /// What a decision about a request is remembered by; `None`: it is not. Of a path with a `%2F` the application is told, and
    /// what is remembered by a path has a slash there.
    fn key(&self, exchange: &Exchange<'_>) -> Option<String> {
        if exchange.has_encoded_slash() {
            return None;
        }
        let filled = self.by.as_ref()?.fill_key(exchange);
        let host = exchange.authority.to_ascii_lowercase();
        (!filled.is_empty()).then(|| format!("{}\0{host}\0{filled}", exchange.scheme))
    }
}

impl Gate for ForwardGate {
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict {
        let now = monotonic_ns();
        let key = self.key(exchange).map(|key| self.source.admission_key(key.as_bytes()));
        if let Some(admission) = key.and_then(|key| self.source.admission(&key, now)) {
            self.stats.user_cache_hits.add(1);
            exchange.identify().vouch(admission.user, admission.granted);
            return Verdict::Pass;
        }
        self.stats.user_cache_misses.add(1);
        let application = &self.terms.application;
        if application.is_asking(exchange) {
            let why = format_args!(
                "it asks whether somebody may come in, and that is asked here: {} leads back to this server",
                application.name()
            );
            return Verdict::Refuse(answer::refused(exchange, Status::LOOP_DETECTED, why));
        }
        let Some(asked) = application.ask(exchange) else {
            return Verdict::Refuse(answer::error(Status::BAD_REQUEST));
        };
        // The log wants to know who it is, whenever that comes out.
        let (terms, identity, source) = (self.terms.clone(), exchange.identify(), self.source.clone());
        Verdict::Wait(
            Need::Decision,
            Box::pin(async move {
                let patience = terms.settings.patience();
                let decided = timer::within(patience, async { terms.decide(asked.await).await }).await;
                match decided {
                    Some(Decision::Admitted(admission)) => {
                        if let (Some(key), Some(cache)) =
                            (key.filter(|_| admission.is_small()), &terms.settings.cache)
                        {
                            source.remember_admission(key, admission.clone(), cache.lifetime, now);
                        }
                        identity.vouch(admission.user, admission.granted);
                        Verdict::Pass
                    }
                    Some(Decision::Refused(response)) => Verdict::Refuse(response),
                    Some(Decision::Undecided(why)) => terms.undecided(why),
                    None => terms.undecided(Some(format!("it has not decided within {patience:?}"))),
                }
            }),
        )
    }

    fn name(&self) -> String {
        let Terms { login, application, .. } = &*self.terms;
        format!(
            "the application {} of `login forward \"{}\"` ({})",
            application.name(),
            login.users,
            login.origin
        )
    }

    fn identifies(&self) -> bool {
        true
    }
}

impl Terms {
    /// Nobody is let in, and nobody is told that it is his fault.
    fn undecided(&self, why: Option<String>) -> Verdict {
        let Login { users, origin, .. } = &*self.login;
        let why = why
            .as_deref()
            .unwrap_or("it has not answered, as was said before, and nobody is let in meanwhile");
        log::error(format_args!(
            "503: `login forward \"{users}\"` ({origin}): {}: {why}",
            self.application.name()
        ));
        Verdict::Refuse(answer::error(Status::SERVICE_UNAVAILABLE).with("Retry-After", "1"))
    }

    async fn decide(&self, response: Response) -> Decision {
        if !is_answered(&response) {
            return Decision::Undecided(None);
        }
        match response.status.0 {
            200..=299 => match self.admission(response.head.lines()) {
                Ok(admission) => Decision::Admitted(admission),
                Err(why) => Decision::Undecided(Some(why)),
            },
            401 | 403 | 429 | 301 | 302 | 303 | 307 | 308 => self.refused(response).await,
            other => {
                Decision::Undecided(Some(format!("{other} neither lets anybody in nor refuses anybody")))
            }
        }
    }

    /// The answer as the client gets it.
    async fn refused(&self, response: Response) -> Decision {
        let most = usize::try_from(self.settings.content).unwrap_or(usize::MAX);
        match whole(response, most).await {
            Ok(mut response) => {
                // It is about this request: whoever keeps it would lock others out, or lead them astray.
                if !response.head.lines().contains("cache-control") {
                    response.fields_mut().push("Cache-Control", "no-store");
                }
                Decision::Refused(response)
            }
            Err(error) => Decision::Undecided(Some(error.to_string())),
        }
    }

    /// What a request is let in with.
    fn admission(&self, lines: &FieldLines) -> Result<Admission, String> {
        let Forward { copy, user, groups, .. } = &self.settings;
        let mut granted = Granted { names: copy.clone(), lines: FieldLines::new() };
        let mut size = 0;
        for name in copy {
            for value in lines.all(name) {
                size += name.len() + value.len() + 4;
                if size > FIELDS_MAX || !granted.lines.push(name, value) {
                    return Err(format!("its answer has more of `{name}` than a request can be given"));
                }
            }
        }
        let text = |name: &str| {
            let mut values = lines.all(name);
            let value = values.next();
            match (value.map(std::str::from_utf8), values.next()) {
                (None, _) => Ok(None),
                (Some(Ok(text)), None) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
                (Some(Ok(_)), Some(_)) => Err(format!("its answer has several `{name}`")),
                (Some(Err(_)), _) => Err(format!("`{name}` of its answer is no UTF-8")),
            }
        };
        let Some(name) = user.as_deref().map(text).transpose()?.flatten() else {
            return Ok(Admission { user: None, granted: Arc::new(granted) });
        };
        if name.len() > NAME_MAX {
            return Err("the name of the user is too long".into());
        }
        let mut of_user: Vec<String> = Vec::new();
        for value in groups.iter().flat_map(|groups| lines.all(groups)) {
            let value = std::str::from_utf8(value).map_err(|_| "the groups are no UTF-8")?;
            let each = value.split(',').map(str::trim).filter(|group| !group.is_empty());
            of_user.extend(each.map(str::to_owned));
        }
        of_user.sort_unstable();
        of_user.dedup();
        if of_user.len() > GROUPS_MAX {
            return Err("the user is in too many groups".into());
        }
        let user = User { name: name.to_owned(), groups: of_user, unlisted: None };
        Ok(Admission { user: Some(Arc::new(user)), granted: Arc::new(granted) })
    }
}
