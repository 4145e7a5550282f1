//! The thread that asks name servers what clients are called.
//!
//! One for each server process, started with the first question, since most settings have none. `hickory-resolver` does
//! the asking: ports and numbers of questions that nobody guesses, another try, TCP for what does not fit. What it says is
//! held to be true of a client only where the name leads back to the address.

use crate::resolver;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::Dns;
use tidegate_core::client_names::{AskNames, ClientName, Question, name_of};
use tidegate_core::log;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use tokio::time::timeout;

/// Names of one address that are looked at: more have machines that many sites share, and of those any will do.
const NAMES: usize = 4;
/// `/etc/resolv.conf` is read again after so long, where name servers are silent or nobody can ask them.
const RENEWAL: Duration = Duration::from_secs(10);

/// Asks for the workers of this process.
#[derive(Default)]
pub struct Asker {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    dns: Dns,
    thread: Option<UnboundedSender<Job>>,
    pause: Pause,
}

/// After a failure, which is said once: however many clients come meanwhile, nothing is tried again for a while.
#[derive(Default)]
struct Pause(Option<Instant>);

impl Pause {
    fn begin(&mut self, now: Instant) {
        self.0 = Some(now + RENEWAL);
    }

    fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|end| now >= end)
    }
}

enum Job {
    Adopt(Dns),
    Ask(Question),
}

impl AskNames for Asker {
    fn adopt(&self, dns: &Dns) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.dns = dns.clone();
        if let Some(thread) = &state.thread {
            let _ = thread.send(Job::Adopt(dns.clone()));
        }
    }

    fn ask(&self, question: Question) {
        let thread = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            if state.thread.is_none() && state.pause.is_over(now) {
                state.thread = start(state.dns.clone());
                if state.thread.is_none() {
                    state.pause.begin(now);
                }
            }
            state.thread.clone()
        };
        // A question that is not sent is dropped, which answers it. How many there are at once, `queries` bounds.
        if let Some(thread) = thread {
            let _ = thread.send(Job::Ask(question));
        }
    }
}

fn start(dns: Dns) -> Option<UnboundedSender<Job>> {
    let (sender, jobs) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        log::error(format_args!("the names of clients cannot be asked for: {error}"));
    });
    let runtime = runtime.ok()?;
    let thread = std::thread::Builder::new().name("tidegate-names".into());
    let started =
        thread.spawn(move || LocalSet::new().block_on(&runtime, follow(jobs, dns, resolver::of_clients)));
    match started {
        Ok(_) => Some(sender),
        Err(error) => {
            log::error(format_args!(
                "the thread that asks for the names of clients cannot be started: {error}"
            ));
            None
        }
    }
}

/// Does as it is told; `build` makes what asks.
async fn follow(
    mut jobs: UnboundedReceiver<Job>,
    mut dns: Dns,
    mut build: impl FnMut(&Dns) -> Result<TokioResolver, NetError>,
) {
    let mut pause = Pause::default();
    let mut resolver: Option<Arc<TokioResolver>> = None;
    // Some question had no answer since `made`.
    let (is_silent, mut made) = (Rc::new(Cell::new(false)), Instant::now());
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Adopt(next) => (dns, resolver, pause) = (next, None, Pause::default()),
            Job::Ask(question) => {
                // The machine may have moved to another network.
                if dns.servers.is_empty() && is_silent.get() && made.elapsed() >= RENEWAL {
                    resolver = None;
                }
                let now = Instant::now();
                if resolver.is_none() && pause.is_over(now) {
                    // What was looked up is remembered by who asks.
                    match build(&dns) {
                        Ok(new) => {
                            (resolver, made) = (Some(Arc::new(new)), now);
                            is_silent.set(false);
                        }
                        Err(error) => {
                            pause.begin(now);
                            log::error(format_args!("the names of clients cannot be asked for: {error}"));
                        }
                    }
                }
                // A question that nobody asks is dropped, which answers it.
                if let Some(resolver) = resolver.clone() {
                    let (patience, is_silent) = (dns.timeout, is_silent.clone());
                    tokio::task::spawn_local(async move {
                        let found = timeout(patience, name(&resolver, question.client())).await;
                        let (name, valid) = found.unwrap_or((ClientName::Unanswered, Duration::ZERO));
                        is_silent.set(is_silent.get() || name == ClientName::Unanswered);
                        question.answer(name, valid);
                    });
                }
            }
        }
    }
}

/// What a client is called, and for how long that is good.
async fn name(servers: &TokioResolver, client: IpAddr) -> (ClientName, Duration) {
    let nameless = (ClientName::Nameless, Duration::MAX);
    let unanswered = (ClientName::Unanswered, Duration::ZERO);
    let told = match servers.reverse_lookup(client).await {
        Ok(told) => told,
        Err(error) => return if is_an_answer(&error) { nameless } else { unanswered },
    };
    let record = match client {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    };
    let reverse = Name::from(client);
    let names = resolver::about(&reverse, told.answers()).filter_map(|record| match &record.data {
        RData::PTR(name) => Some(&name.0),
        _ => None,
    });
    let mut is_answered = true;
    for name in names.take(NAMES) {
        let Some(text) = name_of(name.iter()) else { continue };
        // Of its own letters: what was taken for sound is what is asked for, and no search list is tried.
        let Ok(whole) = Name::from_ascii(format!("{text}.")) else { continue };
        match servers.lookup(whole.clone(), record).await {
            Ok(back) => {
                let leads_back = |record: &RData| match record {
                    RData::A(address) => IpAddr::V4(address.0) == client,
                    RData::AAAA(address) => IpAddr::V6(address.0) == client,
                    _ => false,
                };
                if resolver::about(&whole, back.answers()).any(|record| leads_back(&record.data)) {
                    let until = told.valid_until().min(back.valid_until());
                    return (ClientName::Known(text), until.saturating_duration_since(Instant::now()));
                }
            }
            Err(error) => is_answered &= is_an_answer(&error),
        }
    }
    if is_answered { nameless } else { unanswered }
}

/// Whether a name server has said that there is nothing.
fn is_an_answer(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(none))
        if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tidegate_core::client_names::{Asked, ClientNames};

    /// Passes questions on.
    struct Passes(UnboundedSender<Job>);

    impl AskNames for Passes {
        fn adopt(&self, dns: &Dns) {
            let _ = self.0.send(Job::Adopt(dns.clone()));
        }

        fn ask(&self, question: Question) {
            let _ = self.0.send(Job::Ask(question));
        }
    }

    #[test]
    fn what_cannot_ask_is_made_again_after_a_while_alone() {
        let (names, (sender, jobs)) = (Arc::<ClientNames>::default(), unbounded_channel());
        names.adopt(&Dns::default());
        names.ask_by(Arc::new(Passes(sender.clone())));
        let ask = |from: u32| -> Vec<Asked> {
            (from..from + 50).map(|number| names.ask(Ipv4Addr::from(0x0a00_0000 + number).into())).collect()
        };
        let mut asked = ask(1);
        let other = Dns { servers: vec![([127, 0, 0, 1], 53).into()], ..Dns::default() };
        let _ = sender.send(Job::Adopt(other));
        asked.extend(ask(100));
        let _ = sender.send(Job::Adopt(Dns::default()));
        drop(sender);
        let mut tries = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let build = |dns: &Dns| {
                tries.push(dns.servers.len());
                Err(NetError::from("no name server is known"))
            };
            // The names keep a sender: it has ended with its work when everybody has an answer.
            let follow = follow(jobs, Dns::default(), build);
            let answers = async {
                for asked in asked {
                    if let Asked::Later(promised) = asked {
                        assert!(matches!(promised.await, Some(ClientName::Unanswered) | None));
                    }
                }
            };
            tokio::select! {
                () = follow => {}
                () = answers => {}
            }
        });
        assert_eq!(tries, [0, 1], "once for each settings, and not for each client");
    }

    #[test]
    fn a_pause_ends() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        assert!(pause.is_over(now));
        pause.begin(now);
        assert!(!pause.is_over(now + RENEWAL / 2) && pause.is_over(now + RENEWAL));
    }
}
