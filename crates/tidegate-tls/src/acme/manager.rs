//! Gets and renews certificates as the schedule says: one task for each name, a lock for each on the storage,
//! a report for every outcome.
//!
//! It runs on a thread of the master's. Who issues and what time it is are parameters, so that its tests run on a
//! clock of their own against authorities that fail on purpose.

use super::acceptance::{Accepted, accept_issued, accept_kept};
use super::schedule::{Schedule, Task, Window};
use super::storage::{STALE, Seen, Storage, TOUCH};
use crate::certificate::{About, Pair};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

/// Names that are worked on at once.
const AT_ONCE: usize = 8;
/// How long one attempt may take, with all its authorities.
const ATTEMPT: Duration = Duration::from_secs(20 * 60);
/// How often a lock that somebody else holds is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// The longest sleep: the wall clock may have been set meanwhile.
const NAP: Duration = Duration::from_secs(600);

/// Characters of what is told of one failure.
const SAID_MAX: usize = 600;

/// Why a certificate was not issued; a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{said}")]
pub struct IssueError {
    /// What is wrong.
    pub said: String,
    /// After how many seconds the authority wants to hear of it again, at the earliest.
    pub again: Option<i64>,
}

impl IssueError {
    /// With a sentence, and without a time to try again. It may repeat what others say and goes into a log line: control characters
    /// become spaces, and what is beyond 600 characters is cut off.
    pub fn new(said: impl AsRef<str>) -> IssueError {
        let said =
            said.as_ref().chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect();
        IssueError { said, again: None }
    }
}

/// A future of this thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What issues certificates.
pub trait Issue {
    /// What it is called in messages.
    fn name(&self) -> String;

    /// Whether it issues for this name at all.
    fn issues_for(&self, name: &str) -> bool;

    /// A certificate for the name: chain and key, PEM. `present` is the one that it will take the place of.
    fn obtain<'a>(
        &'a self,
        name: &'a str,
        present: Option<&'a Pair>,
    ) -> Local<'a, Result<(String, String), IssueError>>;

    /// When it wants this certificate renewed, and after how many seconds it wants to be asked again. `None`:
    /// it is not one of its own, or it has nothing to say.
    fn window<'a>(&'a self, present: &'a Pair) -> Local<'a, Option<(Window, Option<i64>)>>;
}

/// Wall clock, seconds since 1970.
pub trait Clock {
    /// Now.
    fn now(&self) -> i64;
}

/// What the manager is told.
pub enum Order {
    /// Take care of these names, with these authorities, the first that can. What is not named is let go of.
    Serve {
        /// Names; `*.` in front for wildcards.
        names: Vec<String>,
        /// In the order in which they are tried.
        issuers: Vec<Rc<dyn Issue>>,
        /// Where certificates are kept.
        storage: Rc<Storage>,
    },
}

/// What the manager tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// There is a certificate for a name, from the storage or just issued.
    Ready {
        /// The name.
        name: String,
        /// The certificate.
        pair: Pair,
        /// Who has issued it; `None`: it lay in the storage.
        issuer: Option<String>,
    },
    /// There is none, for now.
    Failed {
        /// The name.
        name: String,
        /// Why, with every authority that was tried.
        why: String,
        /// When it is tried again, seconds since 1970.
        next: i64,
        /// Whether an older certificate is still good.
        has_other: bool,
    },
}

/// See the module.
pub struct Manager {
    clock: Rc<dyn Clock>,
    schedule: Schedule,
    issuers: Vec<Rc<dyn Issue>>,
    storage: Option<Rc<Storage>>,
    /// The serial number of the certificate of each name that was reported last.
    known: BTreeMap<String, String>,
    report: Box<dyn Fn(Outcome)>,
    work: JoinSet<Done>,
}

/// A certificate that may be served.
struct Obtained {
    pair: Pair,
    about: Box<About>,
    /// `None`: another node has got it.
    issuer: Option<String>,
}

enum Done {
    Obtained { name: String, result: Result<Obtained, IssueError> },
    Told { name: String, window: Option<(Window, Option<i64>)> },
}

impl Manager {
    /// One without names. `report` is told of every outcome.
    pub fn new(clock: impl Clock + 'static, report: impl Fn(Outcome) + 'static) -> Manager {
        Manager {
            clock: Rc::new(clock),
            schedule: Schedule::default(),
            issuers: Vec::new(),
            storage: None,
            known: BTreeMap::new(),
            report: Box::new(report),
            work: JoinSet::new(),
        }
    }

    /// Works until `orders` ends. Must run in a `LocalSet`.
    pub async fn run(mut self, mut orders: UnboundedReceiver<Order>) {
        loop {
            self.begin_what_is_due();
            let now = self.clock.now();
            let wait =
                self.schedule.next().filter(|_| self.work.len() < AT_ONCE).map_or(NAP, |at| {
                    Duration::from_secs(at.saturating_sub(now).max(0).unsigned_abs()).min(NAP)
                });
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                Some(done) = self.work.join_next() => {
                    if let Ok(done) = done {
                        self.finish(done);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn obey(&mut self, order: Order) {
        let Order::Serve { names, issuers, storage } = order;
        // What was begun under other settings ends unheard. A pause after a failure goes on: a reload is no reason
        // to ask an authority again that wants to be left alone.
        self.work = JoinSet::new();
        self.schedule.release();
        if self.storage.as_ref().is_none_or(|present| present.root() != storage.root()) {
            self.schedule = Schedule::default();
            self.known.clear();
        }
        let now = self.clock.now();
        self.schedule.set_names(&names, now);
        for name in names.iter().filter(|name| !self.schedule.is_good(name, now)).collect::<Vec<_>>() {
            if let Some((pair, about)) = kept(&storage, name, now) {
                self.schedule.found(name, about.not_before, about.not_after, now, chance());
                self.known.insert(name.clone(), about.serial);
                (self.report)(Outcome::Ready { name: name.clone(), pair, issuer: None });
            }
        }
        self.issuers = issuers;
        self.storage = Some(storage);
    }

    fn begin_what_is_due(&mut self) {
        let Some(storage) = self.storage.clone() else { return };
        let now = self.clock.now();
        for task in self.schedule.take_due(now, AT_ONCE.saturating_sub(self.work.len())) {
            let (issuers, storage, clock) = (self.issuers.clone(), storage.clone(), self.clock.clone());
            match task {
                Task::Obtain(name) => {
                    let known = self.known.get(&name).cloned();
                    self.work.spawn_local(async move {
                        let attempt = obtain(&name, known.as_deref(), &issuers, &storage, clock.as_ref());
                        let late = |_| Err(IssueError::new("it took longer than 20 minutes"));
                        let result = tokio::time::timeout(ATTEMPT, attempt).await.unwrap_or_else(late);
                        Done::Obtained { name, result }
                    });
                }
                Task::AskWindow(name) => drop(self.work.spawn_local(async move {
                    let mut window = None;
                    if let Some(present) = storage.certificate(&name) {
                        for issuer in issuers.iter().filter(|issuer| issuer.issues_for(&name)) {
                            window = window.or(issuer.window(&present).await);
                        }
                    }
                    Done::Told { name, window }
                })),
            }
        }
    }

    fn finish(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Told { name, window } => {
                let again = window.and_then(|(_, again)| again);
                self.schedule.told(&name, window.map(|(window, _)| window), again, now, chance());
            }
            Done::Obtained { name, result: Ok(Obtained { pair, about, issuer }) } => {
                self.schedule.obtained(&name, about.not_before, about.not_after, now, chance());
                self.known.insert(name.clone(), about.serial);
                (self.report)(Outcome::Ready { name, pair, issuer });
            }
            Done::Obtained { name, result: Err(error) } => self.fail(name, error, now),
        }
    }

    fn fail(&mut self, name: String, error: IssueError, now: i64) {
        let has_other = self.schedule.is_good(&name, now);
        let next = self.schedule.failed(&name, error.again, now, chance());
        (self.report)(Outcome::Failed { name, why: error.said, next, has_other });
    }
}

/// The certificate that the storage holds for a name, where it can be served.
fn kept(storage: &Storage, name: &str, now: i64) -> Option<(Pair, About)> {
    let pair = storage.certificate(name)?;
    let about = accept_kept(name, &pair, now)?;
    Some((pair, about))
}

/// Gets a certificate from the first authority that gives one, unless another node has got one meanwhile: one
/// that is not the `known` one, which is to be renewed.
async fn obtain(
    name: &str,
    known: Option<&str>,
    issuers: &[Rc<dyn Issue>],
    storage: &Storage,
    clock: &dyn Clock,
) -> Result<Obtained, IssueError> {
    let unusable = |error: std::io::Error| {
        IssueError::new(format!("the storage {} cannot be used: {error}", storage.root().display()))
    };
    let mut seen = Seen::default();
    let lock = loop {
        match storage.lock(name, &mut seen, instant()).map_err(unusable)? {
            Some(lock) => break lock,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    // Whoever had the lock may have done the work.
    let present = match kept(storage, name, clock.now()) {
        Some((pair, about)) if known.is_none_or(|known| known != about.serial) => {
            return Ok(Obtained { pair, about: about.into(), issuer: None });
        }
        present => present.map(|(pair, _)| pair),
    };
    let touching = async {
        loop {
            tokio::time::sleep(TOUCH).await;
            let _ = lock.touch();
        }
    };
    tokio::select! {
        result = issue(name, issuers, storage, present.as_ref(), clock) => result,
        () = touching => unreachable_touch(),
    }
}

/// The loop above does not end; this says so to the compiler.
fn unreachable_touch() -> Result<Obtained, IssueError> {
    Err(IssueError::new("the lock was lost"))
}

/// A certificate from the first authority that issues one which may be served. Only such a one is kept.
async fn issue(
    name: &str,
    issuers: &[Rc<dyn Issue>],
    storage: &Storage,
    present: Option<&Pair>,
    clock: &dyn Clock,
) -> Result<Obtained, IssueError> {
    let mut said: Vec<String> = Vec::new();
    // The one that may be asked first says when.
    let mut again = i64::MAX;
    for issuer in issuers.iter().filter(|issuer| issuer.issues_for(name)) {
        let accepted = issuer.obtain(name, present).await.and_then(|(certificate, key)| {
            let accepted = accept_issued(name, (&certificate, &key), present.is_some(), clock.now());
            accepted.map_err(IssueError::new)
        });
        match accepted {
            Ok(Accepted { about, pem }) => {
                let kept = storage.keep_certificate(name, &pem);
                let pair = kept.map_err(|error| {
                    IssueError::new(format!("cannot keep it in {}: {error}", storage.root().display()))
                })?;
                return Ok(Obtained { pair, about: about.into(), issuer: Some(issuer.name()) });
            }
            Err(error) => {
                said.push(format!("{}: {}", issuer.name(), error.said));
                again = again.min(error.again.unwrap_or(0));
            }
        }
    }
    if said.is_empty() {
        said.push("no authority issues for such a name".into());
    }
    Err(IssueError {
        said: said.join("; "),
        again: Some(again).filter(|again| (1..i64::MAX).contains(again)),
    })
}

/// Of the run-time, so that tests may turn it.
fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

const _: () = assert!(TOUCH.as_secs() * 3 < STALE.as_secs());
