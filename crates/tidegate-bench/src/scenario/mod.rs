//! Scenarios: users that walk through an application as people do, what Faban was for.
//!
//! `tidegate bench run` reads a [`Scenario`] from a KDL file (`language`, `read`), says what it comes to (`estimate`), and
//! drives it (`engine`): each user is a small state machine on the reactor of a worker, with its own clock ([`Clock`]),
//! cookies, cache and connections (`user`). Operations are drawn by a [`Mix`]; each is a row of [`Step`]s whose
//! times count from the intended start. `record` holds what was measured, `verdict` judges, `report` shows. `script` is for what is not
//! declarative.

pub mod clock;
mod data;
mod engine;
mod estimate;
#[doc(hidden)]
pub mod fuzzing;
mod html;
mod language;
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
pub use html::Selector;
pub use language::{LANGUAGE, json_schema, reference};
pub use mix::Mix;
pub use read::{Loaded, load, load_for, load_text};
pub use script::{Call, Calls, Purpose, Script};
pub use template::Template;

use crate::check::Expectation;
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
    /// How many, and when they come and go.
    pub users: Users,
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

/// How many users there are, and the phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Users {
    /// At least 1.
    pub count: u32,
    /// The first operations are spread over this time.
    pub ramp_up: Duration,
    /// What starts in this time is measured.
    pub steady: Duration,
    /// Users go, spread over this time.
    pub ramp_down: Duration,
    /// Time between the first operations of two users, where it is said in place of a spread over the ramp-up.
    pub stagger: Option<Duration>,
}

impl Users {
    /// When user `number` begins, from the start of the run.
    pub fn begins(&self, number: u32) -> Duration {
        match self.stagger {
            Some(stagger) => stagger.saturating_mul(number),
            None => self.ramp_up.mul_f64(f64::from(number) / f64::from(self.count.max(1))),
        }
    }

    /// When user `number` starts nothing any more.
    pub fn ends(&self, number: u32) -> Duration {
        self.ramp_up
            + self.steady
            + self.ramp_down.mul_f64(f64::from(number + 1) / f64::from(self.count.max(1)))
    }

    /// From the first operation to the last one's intended start.
    pub fn whole(&self) -> Duration {
        self.ramp_up + self.steady + self.ramp_down
    }
}

/// The browser of a user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Client {
    /// Connections of one user at most.
    pub connections: u8,
    /// Share of the users, 0 to 1, that remember nothing: each of their pages is loaded in full.
    pub cold: f64,
    /// For one request, and for a connect.
    pub timeout: Duration,
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
    /// Which function of the script chooses the operation that follows, its place in [`Script::exports`].
    pub next: Option<u16>,
}

impl Operation {
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

    /// Mean time between two starts by the clocks, over the operations as the mix deals them out; of think times without
    /// the responses. Seconds.
    pub fn mean_cycle(&self) -> f64 {
        let shares = self.mix.shares(self.operations.len());
        shares.iter().enumerate().map(|(number, share)| share * self.mean_cycle_of(number)).sum()
    }

    /// The mean time from the start of an operation to the next one's, seconds.
    pub fn mean_cycle_of(&self, operation: usize) -> f64 {
        let least = self.operations.get(operation).map_or(Duration::ZERO, |operation| operation.min_cycle);
        self.clock_of(operation).distribution().mean_at_least(least)
    }
}
