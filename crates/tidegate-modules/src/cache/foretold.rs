//! What `tidegate explain` says of a cache: whether a request would be looked up, and under which key. There is no store: nothing
//! is looked up, and no folder is touched.

use super::policy::{Cookies, Policy};
use std::rc::Rc;
use tidegate_config::settings::{Action, RouteCache};
use tidegate_core::Pass;
use tidegate_core::explain::Foreseen;
use tidegate_core::{Exchange, Handler, Reply};
use tidegate_http::cache::{self, forced_by};

/// A cache in a rehearsal, before the handler that it stands before.
pub(super) struct Foretold {
    policy: Policy,
    /// Where the use was written.
    place: String,
    /// Whose answer says whether it is stored.
    answers: &'static str,
    inner: Rc<dyn Handler>,
}

impl Foretold {
    pub(super) fn new(
        cache: &RouteCache,
        policy: Policy,
        action: &Action,
        inner: Rc<dyn Handler>,
    ) -> Foretold {
        let answers = match action {
            Action::Files(_) => "the file's validators and `default-lifetime` say",
            _ => "the answer of the application says",
        };
        Foretold { policy, place: cache.origin.to_string(), answers, inner }
    }

    /// One sentence for what would be done, and one for each that decides it.
    fn foresee(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) {
        let policy = &self.policy;
        let cache = format!("cache `{}` ({})", policy.name(), self.place);
        let asked = policy.asked(exchange);
        if let Err(why) = cache::lookup_allowed(&asked) {
            return say(format!("{cache}: goes past it: {}", why.reason().text()));
        }
        let class = match policy.class(exchange) {
            Ok(class) => class,
            Err(why) => return say(format!("{cache}: goes past it: {}", why.text())),
        };
        let stored = match (class.shows_who, class.cookies) {
            (false, Cookies::Keyed | Cookies::Ignored) => {
                format!("whether it is stored for others, {}", self.answers)
            }
            (false, Cookies::Counting) => {
                "with a cookie, only what says `public` or `s-maxage` is used or stored".to_owned()
            }
            (true, Cookies::Keyed | Cookies::Ignored) => {
                "for who says who it is, only what says `public`, `s-maxage` or `must-revalidate` is \
                                   used or stored"
                    .to_owned()
            }
            (true, Cookies::Counting) => {
                "for who says who it is and has a cookie, only what says `public` or \
                                          `s-maxage` is used or stored"
                    .to_owned()
            }
        };
        say(format!("{cache}: looked up as {}; {stored}", policy.shown_key(exchange)));
        if let Some(demand) = forced_by(&asked) {
            say(match asked.is_obeyed {
                true => format!(
                    "{cache}: `{demand}` of this client is obeyed: what is stored may be asked about (`obey-clients`)"
                ),
                false => format!(
                    "{cache}: `{demand}` of this client counts for nothing: `obey-clients` does not name it"
                ),
            });
        }
    }
}

impl Handler for Foretold {
    fn handle(&self, exchange: &mut Exchange<'_>, pass: Pass) -> Reply {
        self.inner.handle(exchange, pass)
    }

    fn explain(&self, exchange: &Exchange<'_>, say: &mut dyn FnMut(String)) -> Foreseen {
        self.foresee(exchange, say);
        self.inner.explain(exchange, say)
    }
}
