//! What decides before content whether a request goes on.
//!
//! Every route has its access rules, and may have further [`Gate`]s, which may wait: for a directory that checks a
//! password, for a place among requests of one client. This is the only place that makes a [`Pass`], without which no
//! [`Handler`] can be called: what skips a gate does not compile. Requests of the server's own come through here as well
//! (see `subrequest`).
//!
//! [`Handler`]: crate::Handler

use crate::access::{self, Refusal};
use crate::access_data::AccessView;
use crate::answer;
use crate::client_names::{Asked, ClientName};
use crate::cors;
use crate::exchange::Exchange;
use crate::notes;
use crate::reply::{Need, Reply};
use crate::response::Response;
use crate::site::Site;
use std::cmp::Ordering;
use std::rc::Rc;
use tidegate_config::settings::Access;
use tidegate_http::Status;
use tidegate_io::LocalFuture;

/// What `explain` says of a gate that would have to wait.
const ASKS: &str = "decides, and nobody is asked here: as if it let the request in";

/// The same of one that finds out who it is.
const ASKS_WHO: &str = "  to see what somebody gets, say who has logged in: `--user NAME --group GROUP`";

/// What `explain` says where a rule goes by the name of a client that nobody has said.
const UNNAMED: &str = "a rule goes by what the client is called, and no name server is asked here: as if it had no name; \
                       `--name` says one";

/// Where name servers do not answer: they are asked again after so long.
const RETRY_AFTER: &str = "10";

/// What `explain` says of a gate that has answered.
const ANSWERS: &str = "a browser asks whether a page of another site may: `cors` answers";

/// Decides whether a request goes on to the content of its route. One for each route on each worker.
pub trait Gate {
    /// Looks at a request that is about to get the content of this gate's route.
    fn check(&self, exchange: &mut Exchange<'_>) -> Verdict;

    /// Whether it is asked before the access rules of its route, so that it hears of whom they refuse.
    fn precedes_access(&self) -> bool {
        false
    }

    /// What it is called where it is explained.
    fn name(&self) -> String {
        "a gate of the route".into()
    }

    /// Whether it finds out who it is.
    fn identifies(&self) -> bool {
        false
    }

    /// Whether what it lets one client have is for that client alone.
    fn tells_clients_apart(&self) -> bool {
        true
    }
}

/// What a gate says of a request.
pub enum Verdict {
    /// It goes on.
    Pass,
    /// This is its answer.
    Refuse(Response),
    /// The gate itself is asked, and this is what it says: nothing behind it hears of the request.
    Answer(Response),
    /// That is not known yet. The request is kept until it is, its content unread; the future is dropped when the client
    /// has gone. It has to end by itself: nothing else bounds it.
    Wait(Need, LocalFuture<Verdict>),
    /// What has been waited for is there; what follows of it needs the request once more.
    Decide(Box<dyn FnOnce(&mut Exchange<'_>) -> Verdict>),
}

/// A request has been let in. Made by the gates alone, and used up by one call of a handler.
#[derive(Debug)]
pub struct Pass(());

impl Pass {
    /// For the same request once more.
    pub(crate) fn once_more(&self) -> Pass {
        Pass(())
    }
}

/// How far a request has come.
pub(crate) enum Passage {
    /// Through all gates.
    Open(Pass),
    /// One has refused it.
    Shut(Response),
    /// One has to wait; what follows are those from this number on.
    Wait(Need, LocalFuture<Verdict>, usize),
}

/// Lets a request in by rules alone that ask no file.
///
/// # Errors
/// The rule that refuses it.
pub fn admit<'s>(access: &'s Access, exchange: &Exchange<'_>) -> Result<Pass, Refusal<'s>> {
    access::judge(access, &AccessView::default(), exchange, None).map(Pass)
}

/// The answer to a request that its route's rules do not let in.
fn refused(view: &AccessView, exchange: &Exchange<'_>, refusal: &Refusal<'_>) -> Response {
    let status = match refusal {
        Refusal::Internal => Status::NOT_FOUND,
        Refusal::Method(_) => Status::METHOD_NOT_ALLOWED,
        Refusal::NameWanted | Refusal::NameUnanswered => Status::SERVICE_UNAVAILABLE,
        _ => Status::FORBIDDEN,
    };
    let response = answer::refused(exchange, status, refusal);
    answer::remedy(|| refusal.remedy(view, exchange));
    match refusal {
        Refusal::Internal
        | Refusal::Denied(_)
        | Refusal::NotAllowed(_)
        | Refusal::UnnamedProxy(_)
        | Refusal::UnnamedClient(_) => response,
        Refusal::NameWanted | Refusal::NameUnanswered => response.with("Retry-After", RETRY_AFTER),
        Refusal::Method(methods) => response.with("Allow", answer::allow(methods.iter())),
        Refusal::NoCertificate => answer::explained(
            Status::FORBIDDEN,
            "This address is open only to clients that show a certificate.",
        ),
    }
}

impl Site {
    /// Asks the gates of a route.
    pub(crate) fn ask_gates(self: &Rc<Self>, index: usize, exchange: &mut Exchange<'_>) -> Passage {
        self.ask_gate(index, Verdict::Pass, 0, exchange)
    }

    /// What the access rules of a route say.
    fn check_access(self: &Rc<Self>, index: usize, exchange: &Exchange<'_>) -> Verdict {
        let verdict = self.check_access_knowing(index, exchange, None);
        verdict.unwrap_or_else(|| self.check_access_by_name(index, exchange))
    }

    /// The same; `None` where the name of the client has to be asked for first.
    fn check_access_knowing(
        &self,
        index: usize,
        exchange: &Exchange<'_>,
        name: Option<&ClientName>,
    ) -> Option<Verdict> {
        let route = self.route(index);
        Some(match access::judge(&route.access, &self.access_view, exchange, name) {
            Ok(()) => Verdict::Pass,
            // Methods are asked for last. A gate of the route answers the question, and nothing behind it gets one.
            Err(Refusal::Method(_)) if route.cors.is_some() && cors::question(exchange).is_some() => {
                Verdict::Pass
            }
            Err(Refusal::NameWanted) if name.is_none() => return None,
            Err(refusal) => Verdict::Refuse(refused(&self.access_view, exchange, &refusal)),
        })
    }

    /// Asks what the client is called, and then the rules again.
    #[cold]
    fn check_access_by_name(self: &Rc<Self>, index: usize, exchange: &Exchange<'_>) -> Verdict {
        let decide = move |site: &Rc<Site>, exchange: &Exchange<'_>, name: &ClientName| {
            let refused = || Verdict::Refuse(refused(&site.access_view, exchange, &Refusal::NameUnanswered));
            site.check_access_knowing(index, exchange, Some(name)).unwrap_or_else(refused)
        };
        let Some(client) = exchange.state.remote.client.ip() else {
            return decide(self, exchange, &ClientName::Nameless);
        };
        if notes::takes_reason(&|| UNNAMED.into()) {
            return decide(self, exchange, &ClientName::Nameless);
        }
        match self.access_view.names().ask(client) {
            Asked::Now(name) => decide(self, exchange, &name),
            Asked::Later(promised) => {
                let site = self.clone();
                Verdict::Wait(
                    Need::Decision,
                    Box::pin(async move {
                        let name = promised.await.unwrap_or(ClientName::Unanswered);
                        Verdict::Decide(Box::new(move |exchange| decide(&site, exchange, &name)))
                    }),
                )
            }
        }
    }

    /// The same from the verdict of a gate on; `next` is the first that has not been asked. The access rules stand among
    /// them, behind the gates that precede them.
    pub(crate) fn ask_gate(
        self: &Rc<Self>,
        index: usize,
        mut verdict: Verdict,
        mut next: usize,
        exchange: &mut Exchange<'_>,
    ) -> Passage {
        loop {
            match verdict {
                Verdict::Pass => {}
                Verdict::Decide(decide) => {
                    verdict = exchange.as_granted(decide);
                    continue;
                }
                Verdict::Refuse(response) => return Passage::Shut(response),
                Verdict::Answer(response) => {
                    notes::takes_reason(&|| ANSWERS.into());
                    return Passage::Shut(response);
                }
                // It would be asked for the sake of nobody: a password is tried, a place is taken.
                Verdict::Wait(..) if notes::takes_undecided(&|| self.gate_name(index, next)) => {
                    notes::takes_reason(&|| format!("{} {ASKS}", self.gate_name(index, next)));
                    let asked = next.checked_sub(1).and_then(|last| self.gate(index, last));
                    if asked.is_some_and(|gate| gate.identifies()) {
                        notes::takes_reason(&|| ASKS_WHO.into());
                    }
                }
                Verdict::Wait(need, future) => return Passage::Wait(need, future, next),
            }
            verdict = match self.gate(index, next) {
                _ if next == self.routes[index].early => self.check_access(index, exchange),
                Some(gate) => exchange.as_granted(|exchange| gate.check(exchange)),
                None => return Passage::Open(Pass(())),
            };
            next += 1;
        }
    }

    /// What the gate is called that was asked last.
    fn gate_name(&self, index: usize, next: usize) -> String {
        let asked = next.checked_sub(1).and_then(|last| self.gate(index, last));
        asked.map(|gate| gate.name()).unwrap_or_default()
    }

    /// The gate that is asked at this place; `None`: the access rules are, or all have been asked.
    fn gate(&self, index: usize, place: usize) -> Option<&Rc<dyn Gate>> {
        let route = &self.routes[index];
        match place.cmp(&route.early) {
            Ordering::Less => route.gates.get(place),
            Ordering::Equal => None,
            Ordering::Greater => route.gates.get(place - 1),
        }
    }

    /// Sends a request through the gates of a route, and then on, or to the answer that they give. Where one waits the
    /// request is kept meanwhile.
    #[inline(always)] // so that the answer of an open route is not moved once more
    pub(crate) fn enter(
        self: &Rc<Self>,
        index: usize,
        exchange: &mut Exchange<'_>,
        then: impl FnOnce(&Rc<Site>, &mut Exchange<'_>, Result<Pass, Response>) -> Reply + 'static,
    ) -> Reply {
        if self.routes[index].is_open && exchange.state.identity.is_none() {
            return then(self, exchange, Ok(Pass(())));
        }
        self.enter_by_gates(index, exchange, then)
    }

    #[inline(never)]
    fn enter_by_gates(
        self: &Rc<Self>,
        index: usize,
        exchange: &mut Exchange<'_>,
        then: impl FnOnce(&Rc<Site>, &mut Exchange<'_>, Result<Pass, Response>) -> Reply + 'static,
    ) -> Reply {
        match self.ask_gates(index, exchange) {
            Passage::Open(pass) => exchange.as_granted(|exchange| then(self, exchange, Ok(pass))),
            Passage::Shut(response) => then(self, exchange, Err(response)),
            Passage::Wait(need, verdict, next) => {
                self.enter_after(index, (need, verdict), next, exchange, then)
            }
        }
    }

    #[cold]
    fn enter_after(
        self: &Rc<Self>,
        index: usize,
        (need, verdict): (Need, LocalFuture<Verdict>),
        next: usize,
        exchange: &mut Exchange<'_>,
        then: impl FnOnce(&Rc<Site>, &mut Exchange<'_>, Result<Pass, Response>) -> Reply + 'static,
    ) -> Reply {
        exchange.ends_with_client(); // nobody else has asked
        let site = self.clone();
        exchange.prepare_after(need, verdict, move |verdict, exchange| {
            match site.ask_gate(index, verdict, next, exchange) {
                Passage::Open(pass) => exchange.as_granted(|exchange| then(&site, exchange, Ok(pass))),
                Passage::Shut(response) => then(&site, exchange, Err(response)),
                Passage::Wait(need, verdict, next) => {
                    site.enter_after(index, (need, verdict), next, exchange, then)
                }
            }
        })
    }
}
