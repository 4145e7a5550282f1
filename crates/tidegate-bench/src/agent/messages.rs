//! What a controller and its agents say to each other: messages of protocol buffers, as types. One stream of [`Frame`]s each way.
//!
//! ```text
//! agent                         controller
//!   Hello            ->
//!                    <-  Prepare             scenario, which users, seed
//!   Ready            ->
//!   Pong             <-> Ping                20 times: the distance of the clocks
//!                    <-  Start               at a time of the agent's own clock
//!   Delta, Ended     ->                      a second of a worker; the end of a worker
//!   Figures          ->                      a second of the agent's machine
//!   Pong             <-> Ping                once a second, as signs of life
//!                    <-  Ack                 so many Deltas, Endeds, Figures and Totals are taken in
//!   Totals           ->                      sums, which must be those of the deltas
//!                    <-  Ack
//!   Bye              ->                      it knows that all was taken in; the link ends
//!   Refuse           <->                     at any time: why not
//!                    <-  Stop                end now, and say what there is
//! ```
//!
//! Deltas, ends, figures and totals of an agent are numbered from 0, in one sequence. A link that is lost under load is made again by
//! who has dialled, with the session of [`Prepare`] in the head of the call. The first frame on it is an [`Ack`], and the agent sends
//! what comes behind: nothing is lost, nothing counts twice. The same goes for the end: an agent goes when everything is acknowledged, and
//! a controller waits for its [`Bye`], so that an acknowledgement that was lost is sent again. A link that is lost before the
//! start is made again without a session, and begins with [`Hello`].

use prost::{Message, Oneof};

/// One thing that is said.
#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    /// What; nothing is what a newer version says.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
    pub kind: Option<Kind>,
}

/// What is said.
#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// The first of an agent.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// What it is to do.
    #[prost(message, tag = "2")]
    Prepare(Box<Prepare>),
    /// It can begin.
    #[prost(message, tag = "3")]
    Ready(Ready),
    /// Why the other side will not go on.
    #[prost(message, tag = "4")]
    Refuse(Reason),
    /// Asks for the time.
    #[prost(message, tag = "5")]
    Ping(Ping),
    /// The answer.
    #[prost(message, tag = "6")]
    Pong(Pong),
    /// When it begins.
    #[prost(message, tag = "7")]
    Start(Start),
    /// A second of a worker.
    #[prost(message, tag = "8")]
    Delta(Box<Delta>),
    /// A worker has ended.
    #[prost(message, tag = "9")]
    Ended(Ended),
    /// All workers have ended.
    #[prost(message, tag = "10")]
    Totals(Totals),
    /// Taken in up to here.
    #[prost(message, tag = "11")]
    Ack(Ack),
    /// End now.
    #[prost(message, tag = "12")]
    Stop(Reason),
    /// A second of the agent's machine.
    #[prost(message, tag = "13")]
    Figures(Figures),
    /// The last of an agent.
    #[prost(message, tag = "14")]
    Bye(Bye),
}

impl From<Kind> for Frame {
    fn from(kind: Kind) -> Frame {
        Frame { kind: Some(kind) }
    }
}

/// Who an agent is.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// [`super::PROTOCOL`].
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The version of its program.
    #[prost(string, tag = "2")]
    pub program: String,
    /// What reports call it.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Which agent of the run it is, where it knows; from 0.
    #[prost(uint32, optional, tag = "4")]
    pub index: Option<u32>,
}

/// A part of a scenario, which is the same on all machines.
#[derive(Clone, PartialEq, Message)]
pub struct Fingerprint {
    /// What it is, in words.
    #[prost(string, tag = "1")]
    pub what: String,
    /// SHA-256 of it.
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

/// What an agent is to do.
#[derive(Clone, PartialEq, Message)]
pub struct Prepare {
    /// [`super::PROTOCOL`].
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The version of the controller's program.
    #[prost(string, tag = "2")]
    pub program: String,
    /// What the scenario file is called.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its content.
    #[prost(bytes = "vec", tag = "4")]
    pub text: Vec<u8>,
    /// In place of the target that stands there.
    #[prost(string, optional, tag = "5")]
    pub target: Option<String>,
    /// Users of the whole run; 0 where they come at a rate.
    #[prost(uint32, tag = "6")]
    pub users: u32,
    /// Visits a second of the whole run; 0 where users stay.
    #[prost(double, tag = "19")]
    pub rate: f64,
    /// The time that is measured, nanoseconds.
    #[prost(uint64, tag = "7")]
    pub steady: u64,
    /// For whatever is drawn at random.
    #[prost(uint64, tag = "8")]
    pub seed: u64,
    /// Which agent this is, from 0.
    #[prost(uint32, tag = "9")]
    pub index: u32,
    /// Of so many.
    #[prost(uint32, tag = "10")]
    pub of: u32,
    /// How long operations under way at the end are waited for, nanoseconds.
    #[prost(uint64, tag = "11")]
    pub grace: u64,
    /// Ends when nothing was answered for so long and connects failed, nanoseconds.
    #[prost(uint64, tag = "12")]
    pub give_up: u64,
    /// [`super::fingerprints`] of the scenario with users, time and target as above.
    #[prost(message, repeated, tag = "13")]
    pub fingerprints: Vec<Fingerprint>,
    /// Trust every certificate of the target.
    #[prost(bool, tag = "14")]
    pub is_insecure: bool,
    /// Share of TLS connections that resume a session, percent.
    #[prost(uint32, tag = "16")]
    pub tls_resume: u32,
    /// Offer this version alone.
    #[prost(string, optional, tag = "17")]
    pub tls_version: Option<String>,
    /// Offer no hybrid key exchange.
    #[prost(bool, tag = "18")]
    pub tls_classical: bool,
    /// What a link names that goes on with this run.
    #[prost(uint64, tag = "20")]
    pub session: u64,
}

/// An agent can begin.
#[derive(Clone, PartialEq, Message)]
pub struct Ready {
    /// Its workers.
    #[prost(uint32, tag = "1")]
    pub threads: u32,
    /// What it has agreed upon with the target.
    #[prost(string, optional, tag = "2")]
    pub tls: Option<String>,
}

/// Why.
#[derive(Clone, PartialEq, Message)]
pub struct Reason {
    /// A sentence's end, in words.
    #[prost(string, tag = "1")]
    pub reason: String,
}

/// Asks for the time.
#[derive(Clone, PartialEq, Message)]
pub struct Ping {
    /// Monotonic nanoseconds of the controller.
    #[prost(uint64, tag = "1")]
    pub sent: u64,
}

/// The answer.
#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    /// As the ping has it.
    #[prost(uint64, tag = "1")]
    pub sent: u64,
    /// Monotonic nanoseconds of the agent.
    #[prost(uint64, tag = "2")]
    pub received: u64,
}

/// When it begins.
#[derive(Clone, PartialEq, Message)]
pub struct Start {
    /// Monotonic nanoseconds of the agent.
    #[prost(uint64, tag = "1")]
    pub at: u64,
}

/// Taken in.
#[derive(Clone, PartialEq, Message)]
pub struct Ack {
    /// The number of the next that is wanted: so many are taken in.
    #[prost(uint64, tag = "1")]
    pub next: u64,
}

/// All was taken in.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Bye {}

/// A second of a worker.
#[derive(Clone, PartialEq, Message)]
pub struct Delta {
    /// From 0, over all that an agent numbers.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Of this agent, from 0.
    #[prost(uint32, tag = "2")]
    pub worker: u32,
    /// From the start of the run.
    #[prost(uint32, tag = "3")]
    pub second: u32,
    /// What ended in it.
    #[prost(message, optional, tag = "4")]
    pub counts: Option<Counts>,
    /// Response, expected, service, wait, interrupted, connect, handshake, lateness, speed.
    #[prost(message, repeated, tag = "5")]
    pub times: Vec<Pairs>,
    /// Connections open at its end.
    #[prost(uint32, tag = "6")]
    pub open: u32,
    /// Processor time, nanoseconds.
    #[prost(uint64, tag = "7")]
    pub cpu: u64,
    /// Its length, nanoseconds.
    #[prost(uint64, tag = "8")]
    pub length: u64,
    /// In the order of the scenario.
    #[prost(message, repeated, tag = "9")]
    pub operations: Vec<Operation>,
    /// Operations that are not measured.
    #[prost(uint64, tag = "10")]
    pub others: u64,
    /// Of those, the ones that failed.
    #[prost(uint64, tag = "11")]
    pub others_failed: u64,
    /// Users at its end.
    #[prost(uint32, tag = "12")]
    pub users: u32,
    /// Visits, where users come at a rate: of what is measured due, begun, begun after a wait, not begun since the agent came too
    /// late; of all due, begun.
    #[prost(uint64, repeated, tag = "13")]
    pub visits: Vec<u64>,
    /// The most connections that were open at one moment of it.
    #[prost(uint32, tag = "14")]
    pub most_open: u32,
    /// Operations that ended well while the steady time lasted, due in it or before.
    #[prost(uint64, tag = "15")]
    pub in_steady: u64,
    /// Of those, the ones of its second half.
    #[prost(uint64, tag = "16")]
    pub in_second_half: u64,
}

/// A second of the agent's machine.
#[derive(Clone, PartialEq, Message)]
pub struct Figures {
    /// As in [`Delta`].
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Nanoseconds from the start of the run, by the agent's clock.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// As a monitor of a system names them.
    #[prost(string, repeated, tag = "3")]
    pub names: Vec<String>,
    /// As many.
    #[prost(double, repeated, tag = "4")]
    pub values: Vec<f64>,
}

/// A histogram: values, and how often each was seen.
#[derive(Clone, PartialEq, Message)]
pub struct Pairs {
    /// Nanoseconds.
    #[prost(uint64, repeated, tag = "1")]
    pub values: Vec<u64>,
    /// As many.
    #[prost(uint64, repeated, tag = "2")]
    pub counts: Vec<u64>,
}

/// Sums of requests.
#[derive(Clone, PartialEq, Message)]
pub struct Counts {
    /// Requests, succeeded, answered, bytes, body bytes, bytes sent, connects, TLS in full, TLS resumed, queued, conforming,
    /// dropped, sent again, of those excused, surplus, sum of the response times, warm-up.
    #[prost(uint64, repeated, tag = "1")]
    pub sums: Vec<u64>,
    /// Kinds of failures, by their places in `Failure::ALL`.
    #[prost(uint32, repeated, tag = "2")]
    pub failures: Vec<u32>,
    /// As many.
    #[prost(uint64, repeated, tag = "3")]
    pub failed: Vec<u64>,
    /// Rules of HTTP/2 that the server has broken.
    #[prost(string, repeated, tag = "6")]
    pub protocol_errors: Vec<String>,
    /// As many.
    #[prost(uint64, repeated, tag = "7")]
    pub broken: Vec<u64>,
    /// Statuses of answers.
    #[prost(uint32, repeated, tag = "4")]
    pub statuses: Vec<u32>,
    /// As many.
    #[prost(uint64, repeated, tag = "5")]
    pub answers: Vec<u64>,
}

/// An operation in a second.
#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    /// Ended.
    #[prost(uint64, tag = "1")]
    pub ended: u64,
    /// Ended well.
    #[prost(uint64, tag = "2")]
    pub succeeded: u64,
    /// Response times of those that asked for something.
    #[prost(message, optional, tag = "3")]
    pub response: Option<Pairs>,
    /// Response times of those that ended well.
    #[prost(message, optional, tag = "11")]
    pub expected: Option<Pairs>,
    /// Starts whose next start is known.
    #[prost(uint64, tag = "4")]
    pub cycles: u64,
    /// Their cycle times by the clock, nanoseconds.
    #[prost(uint64, tag = "5")]
    pub cycle_due: u64,
    /// As they came out.
    #[prost(uint64, tag = "6")]
    pub cycle_achieved: u64,
    /// Right answers of each `count` of its steps.
    #[prost(uint64, repeated, tag = "7")]
    pub counted_answers: Vec<u64>,
    /// Elements that were found in them.
    #[prost(uint64, repeated, tag = "8")]
    pub counted_elements: Vec<u64>,
    /// Answers of steps that say how fast they have to come.
    #[prost(uint64, tag = "9")]
    pub paced: u64,
    /// Of those, the ones that came as fast.
    #[prost(uint64, tag = "10")]
    pub conforming: u64,
}

/// A worker has ended.
#[derive(Clone, PartialEq, Message)]
pub struct Ended {
    /// As in [`Delta`].
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Of this agent, from 0.
    #[prost(uint32, tag = "6")]
    pub worker: u32,
    /// The target accepts no connections any more.
    #[prost(bool, tag = "2")]
    pub gave_up: bool,
    /// Operations that were due and never started.
    #[prost(uint64, tag = "3")]
    pub unsent: u64,
    /// The first that failed.
    #[prost(message, repeated, tag = "4")]
    pub failed: Vec<Failed>,
    /// Why, where it is its own fault.
    #[prost(string, optional, tag = "5")]
    pub fault: Option<String>,
}

/// An operation that failed.
#[derive(Clone, PartialEq, Message)]
pub struct Failed {
    /// Seconds from the start.
    #[prost(double, tag = "1")]
    pub at: f64,
    /// Its place in the scenario.
    #[prost(uint32, tag = "2")]
    pub operation: u32,
    /// The number of the user.
    #[prost(uint32, tag = "3")]
    pub user: u32,
    /// Method and path.
    #[prost(string, tag = "4")]
    pub request: String,
    /// Its place in `Failure::ALL`.
    #[prost(uint32, tag = "5")]
    pub failure: u32,
    /// In words.
    #[prost(string, tag = "6")]
    pub reason: String,
    /// The beginning of the answer.
    #[prost(string, optional, tag = "7")]
    pub answer: Option<String>,
}

/// What an agent has told in all.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Totals {
    /// Deltas, ends of workers, and figures; the number that these totals have among them.
    #[prost(uint64, tag = "1")]
    pub frames: u64,
    /// Requests of what is measured.
    #[prost(uint64, tag = "2")]
    pub requests: u64,
    /// Operations that are measured.
    #[prost(uint64, tag = "3")]
    pub operations: u64,
    /// Of those, the ones that ended well.
    #[prost(uint64, tag = "4")]
    pub succeeded: u64,
    /// Response times of operations: how many there are in the histograms.
    #[prost(uint64, tag = "5")]
    pub times: u64,
    /// Operations that are not measured.
    #[prost(uint64, tag = "6")]
    pub others: u64,
    /// Bytes received.
    #[prost(uint64, tag = "7")]
    pub bytes: u64,
    /// The most that the process held resident, bytes; not a sum.
    #[prost(uint64, tag = "8")]
    pub memory: u64,
}
