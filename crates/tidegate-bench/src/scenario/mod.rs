//! Scenarios: users that walk through an application as people do, what Faban was for.
//!
//! `tidegate bench run` reads a [`Scenario`] from a KDL file (`language`, `read`), says what it comes to (`estimate`), and
//! drives it (`engine`): each user is a small state machine on the reactor of a worker, with its own clock ([`Clock`]),
//! cookies, cache and connections (`user`). Operations are drawn by a [`Mix`]; each is a row of [`Step`]s whose
//! times count from the intended start. `record` holds what was measured, `verdict` judges, `report` shows. `script` is for what is not
//! declarative.

pub mod clock;
mod cookies;
mod data;
mod engine;
mod estimate;
#[doc(hidden)]
pub mod fuzzing;
mod har;
mod html;
mod language;
mod load;
pub mod mix;
mod page;
mod read;
pub mod record;
pub mod report;
mod script;
mod template;
mod user;
pub mod verdict;

pub use clock::{Clock, Distribution};
pub use data::DataSet;
pub(crate) use engine::{Gathering, Message, SecondOfWorker, run_part};
pub use engine::{observe_nothing, run_at};
pub use estimate::{Estimate, estimate};
pub use har::{HarError, Recording};
pub use html::Selector;
pub use language::{LANGUAGE, json_schema, reference};
pub use load::{Load, Phases, Users, Visits};
pub use mix::{Absence, Mix};
pub use read::{Loaded, load, load_for, load_text};
pub use script::{Call, Calls, Export, Purpose, Script};
pub use template::Template;

use crate::check::Expectation;
use crate::clock::ns;
use crate::quantity::show_duration;
use crate::systems::{Before, System};
use crate::target::Url;
use regex::bytes::Regex;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// All that a scenario file says. Decided before the first connection; workers only read it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What reports call it.
    pub name: String,
    /// The server: scheme, host and port, without a path.
    pub target: Url,
    /// Who comes.
    pub load: Load,
    /// When that is.
    pub phases: Phases,
    /// When operations start, where they do not say so themselves.
    pub clock: Clock,
    /// What the browser of a user is like.
    pub client: Client,
    /// Which operation follows.
    pub mix: Mix,
    /// In the order of the file.
    pub operations: Vec<Operation>,
    /// Names of variables: of what is taken from answers, of columns of data sets, and [`USER`].
    pub variables: Vec<String>,
    /// Rows that operations draw from.
    pub data: Vec<DataSet>,
    /// The machines beside the load.
    pub systems: Vec<System>,
    /// Functions in JavaScript that steps call.
    pub script: Option<Script>,
}

/// The variable that holds the number of a user.
pub const USER: &str = "user";

/// The browser of a user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Client {
    /// Connections of one user at most; with `streams` there is one.
    pub connections: u8,
    /// HTTP/2, with so many requests at once at most; else HTTP/1.1.
    pub streams: Option<u32>,
    /// Share of the users, 0 to 1, that remember nothing: each of their pages is loaded in full.
    pub cold: f64,
    /// Of silence: a request fails when for so long no byte of its answer has come and none of its content has gone, and so does a
    /// connect.
    pub timeout: Duration,
    /// From the start of a request to the last byte of its answer.
    pub answer_timeout: Duration,
}

impl Client {
    /// When a request that was sent at `sent` has failed, if nothing comes after `now`; monotonic nanoseconds.
    pub(crate) fn deadline(&self, sent: u64, now: u64) -> u64 {
        let whole = sent.saturating_add(ns(self.answer_timeout));
        now.saturating_add(ns(self.timeout)).min(whole)
    }

    /// Why a request that was sent at `sent` has failed at `now`, after its deadline, in words.
    pub(crate) fn timed_out(&self, sent: u64, now: u64) -> String {
        if now.saturating_sub(sent) >= ns(self.answer_timeout) {
            let most = show_duration(self.answer_timeout);
            return format!("its answer was not whole after {most}, which is `answer-timeout=`");
        }
        let most = show_duration(self.timeout);
        format!("no byte has come or gone for {most}, which is `timeout=`")
    }

    /// Requests of one user at once at most.
    pub fn requests_at_once(&self) -> u32 {
        self.streams.unwrap_or(u32::from(self.connections))
    }

    /// Connections of one user that may be open at once: one of HTTP/2 that the server has dismissed has a successor before its
    /// last request is answered.
    pub fn most_connections(&self) -> u32 {
        if self.streams.is_some() { 2 } else { u32::from(self.connections) }
    }
}

/// Something that a user does: steps in order, of which the whole is timed.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Of the file.
    pub name: String,
    /// In order; at least one.
    pub steps: Vec<Step>,
    /// When it starts, where it is not the scenario's clock.
    pub clock: Option<Clock>,
    /// The least time from its start to the next operation's.
    pub min_cycle: Duration,
    /// Percentile and longest time, in the order of percentiles.
    pub targets: Vec<(f64, Duration)>,
    /// The share of answers, 0 to 1, that must come at the least bit rate of their steps. Where it is said, one that is slower
    /// fails nothing.
    pub conforming: Option<f64>,
    /// Which function of the script chooses the operation that follows, its place in [`Script::exports`].
    pub next: Option<u16>,
}

impl Operation {
    /// Whether anything of its answers is a reason for FAIL by itself.
    pub fn is_judged(&self) -> bool {
        !self.targets.is_empty() || self.conforming.is_some() || self.counts() > 0
    }

    /// The number of `count`s in its steps.
    pub fn counts(&self) -> usize {
        self.steps.iter().map(|step| step.counts.len()).sum()
    }
}

/// A request, and what is done with its answer.
#[derive(Debug, Clone)]
pub struct Step {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, or a whole URL of the target.
    pub path: Template,
    /// Names and values beside those that a browser sends.
    pub fields: Vec<(String, Template)>,
    /// What follows the head.
    pub body: Body,
    /// What a right answer is.
    pub expect: Expect,
    /// What is kept of the answer.
    pub takes: Vec<Take>,
    /// What is called of the script.
    pub calls: Calls,
    /// What pages hold in the mean.
    pub counts: Vec<Counted>,
    /// The images, scripts and styles of the page are loaded as well.
    pub assets: bool,
    /// A user that has the answer in its cache asks whether it has changed.
    pub is_cached: bool,
    /// Bytes of the body a second that an answer has to come at, first byte to last of the request.
    pub min_speed: Option<u64>,
}

/// Elements that the answers of a step hold, in the mean of all that are right in the steady time: what does not is another
/// application than the one that was to be measured.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Which.
    pub selector: Selector,
    /// As it was written.
    pub css: String,
    /// How many there should be, and by how much the mean may be off, in millionths.
    pub mean: u64,
    /// See `mean`.
    pub within: u64,
    /// Its place among those of its operation.
    pub place: usize,
}

/// The content of a request.
#[derive(Debug, Clone, Default)]
pub enum Body {
    /// None.
    #[default]
    None,
    /// As written; nothing is encoded.
    Text(Template),
    /// The same of JSON: what variables hold is escaped between quotation marks.
    Json(Template),
    /// `a=b&c={d}`: what variables hold is percent-encoded.
    Form(Template),
    /// `multipart/form-data` (RFC 7578).
    Parts(Vec<Part>),
}

/// A part of a form with files.
#[derive(Debug, Clone)]
pub enum Part {
    /// A field.
    Field(String, Template),
    /// A file.
    File(Upload),
}

/// A file that is made up before the run and shared by all users.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Of the field.
    pub name: String,
    /// What the file is called.
    pub file_name: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub content: Arc<[u8]>,
}

/// What a right answer is.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// Empty: below 400, after redirects.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Field names and what their values contain.
    pub fields: Vec<(String, Template)>,
    /// Texts that the body contains.
    pub contains: Vec<Template>,
}

impl Expect {
    /// Whether the status is right.
    pub fn allows_status(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            return status < 400;
        }
        self.statuses.iter().any(|range| range.contains(&status))
    }

    /// Whether redirects are followed: not where one is what is expected.
    pub fn follows(&self) -> bool {
        !self
            .statuses
            .iter()
            .any(|range| [301, 302, 303, 307, 308].iter().any(|redirect| range.contains(redirect)))
    }

    /// Reads `200`, `2xx`, `200-299`, several with `|`.
    pub(crate) fn statuses(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
        let mut expectation = Expectation::default();
        expectation.demand(&format!("status={text}")).ok()?;
        (!expectation.statuses.is_empty()).then_some(expectation.statuses)
    }
}

/// A value that is taken out of an answer and held by the user.
#[derive(Debug, Clone)]
pub struct Take {
    /// Its place in [`Scenario::variables`].
    pub variable: u16,
    /// Where it is found.
    pub from: TakeFrom,
    /// The same as it is written: `css="a.event"`.
    pub written: String,
    /// Which, of several.
    pub pick: Pick,
    /// Without it the operation goes on, and the variable keeps what it holds.
    pub is_optional: bool,
}

/// Where a value is found.
#[derive(Debug, Clone)]
pub enum TakeFrom {
    /// An attribute of the elements that a selector finds. Links are made paths.
    Css(Selector, String),
    /// The first group of an expression, else all that it matches.
    Regex(Regex),
    /// A place in JSON (RFC 6901).
    Json(String),
    /// A field of the head.
    Header(String),
}

/// Which of several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Each as likely.
    Random,
    /// The first.
    First,
    /// The last.
    Last,
}

impl Counted {
    /// How many there should be.
    pub fn due(&self) -> f64 {
        self.mean as f64 / 1e6
    }

    /// By how much the mean may be off.
    pub fn tolerance(&self) -> f64 {
        self.within as f64 / 1e6
    }
}

impl Scenario {
    /// The place of an operation.
    pub fn operation(&self, name: &str) -> Option<usize> {
        self.operations.iter().position(|operation| operation.name == name)
    }

    /// What its file names and is not in it: its script, templates of settings, tables. Variables of the environment are not filled in.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let script = self.script.iter().map(|script| &*script.text);
        let before = self.systems.iter().flat_map(|system| &system.before);
        let templates = before.filter_map(|before| match before {
            Before::Configure { template, .. } => Some(&**template),
            Before::Reset { .. } | Before::Start { .. } => None,
        });
        let cells = self.data.iter().flat_map(|set| set.rows.iter().flatten());
        script.chain(templates).chain(cells.map(String::as_str))
    }

    /// Whether a script chooses which operation follows, if only sometimes.
    pub fn is_chosen(&self) -> bool {
        self.operations.iter().any(|operation| operation.next.is_some())
    }

    /// The clock that an operation runs by.
    pub fn clock_of(&self, operation: usize) -> Clock {
        self.operations.get(operation).and_then(|operation| operation.clock).unwrap_or(self.clock)
    }

    /// The share of each operation: in the long run of users that stay, of visits in a whole one.
    pub fn shares(&self) -> Vec<f64> {
        match &self.load {
            Load::Users(_) => self.mix.shares(self.operations.len()),
            Load::Visits(visits) => self.mix.shares_of_visit(self.operations.len(), visits.operations),
        }
    }

    /// For each operation why it is never due in the steady time, where that is so. Where a script chooses nobody knows.
    pub fn absences(&self) -> Vec<Option<Absence>> {
        let count = self.operations.len();
        if self.is_chosen() {
            return vec![None; count];
        }
        let reached = self.mix.reached(count);
        let absence = |(is_reached, share): (bool, f64)| match &self.load {
            _ if !is_reached => Some(Absence::Unreached),
            _ if share > mix::NEVER => None,
            Load::Users(_) => Some(Absence::Left),
            Load::Visits(visits) => Some(Absence::Beyond(visits.operations)),
        };
        reached.into_iter().zip(self.shares()).map(absence).collect()
    }

    /// Mean time between two starts by the clocks, over the operations as the mix deals them out; of think times without
    /// the responses. Seconds.
    pub fn mean_cycle(&self) -> f64 {
        let shares = self.shares();
        shares.iter().enumerate().map(|(number, share)| share * self.mean_cycle_of(number)).sum()
    }

    /// The mean time from the first start of a visit to its last one by the clocks, seconds; of users that stay 0.
    pub fn mean_visit(&self) -> f64 {
        match &self.load {
            Load::Users(_) => 0.0,
            Load::Visits(visits) => f64::from(visits.operations - 1) * self.mean_cycle(),
        }
    }

    /// Puts another number of users, or another rate, in the place of the file's.
    ///
    /// # Errors
    /// A sentence: the scenario says the other of the two.
    pub fn resize(&mut self, users: Option<u32>, rate: Option<f64>) -> Result<(), &'static str> {
        match (&mut self.load, users, rate) {
            (_, None, None) => {}
            (Load::Users(known), Some(count), None) => known.count = count,
            (Load::Visits(known), None, Some(rate)) => known.rate = rate,
            (Load::Users(_), ..) => return Err("its load is a number of `users`, not a `rate`"),
            (Load::Visits(_), ..) => return Err("its load is a `rate`, not a number of `users`"),
        }
        Ok(())
    }

    /// The mean time from the start of an operation to the next one's, seconds.
    pub fn mean_cycle_of(&self, operation: usize) -> f64 {
        let least = self.operations.get(operation).map_or(Duration::ZERO, |operation| operation.min_cycle);
        self.clock_of(operation).distribution().mean_at_least(least)
    }
}
