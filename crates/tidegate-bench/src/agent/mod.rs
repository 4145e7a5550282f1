//! One scenario run by several machines. A controller reads the scenario and judges the run; agents run its users, user k on
//! agent k mod N, and tell what their workers saw, a second at a time.
//!
//! [`messages`] is what they say to each other, [`record`] what of it is a record of a run, with the bounds that it is held to;
//! `outbox` keeps what was not acknowledged; [`offset`] is the distance of two clocks; [`controller`] (with its `member`s) and [`runner`]
//! are the two sides. They own no socket: frames come in as events and go out by a closure, so that any transport will do. `tidegate`
//! has gRPC for it. A link that is lost is made again, and the run goes on where it was.
//!
//! Records of agents go to the same `Gathering` as those of the workers of one process, so that three agents are one
//! generator, bucket by bucket.

pub mod controller;
mod member;
pub mod messages;
pub mod offset;
mod outbox;
pub mod record;
pub mod runner;

use crate::scenario::Scenario;
use messages::Fingerprint;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::time::Duration;

/// The version of what is said. Both sides must have the same.
pub const PROTOCOL: u32 = 4;

/// Agents of a run at most.
pub const MOST_AGENTS: usize = 256;

/// Bytes of a message at most: the scenario, or a second of a worker with all of its histograms.
pub const MOST_BYTES: usize = 16 << 20;

/// Bytes of a scenario at most.
pub const MOST_SCENARIO: usize = 4 << 20;

/// Silence after which an agent is suspected, and a link is made again.
const SUSPECT: Duration = Duration::from_secs(3);

/// Silence after which either side takes the other for lost, whatever became of the link.
pub const LOST: Duration = Duration::from_secs(10);

/// How long a link that was lost before the start may be away: longer than either side takes to notice it.
pub const REJOINING: Duration = Duration::from_secs(20);

/// Links of one agent that may be lost before the start.
const MOST_REJOINS: u32 = 5;

/// Time that an agent has to read the scenario, make its users and reach the target.
const PREPARING: Duration = Duration::from_secs(60);

/// Round trips that the distance of two clocks is measured by.
const PINGS: u32 = 20;

/// The time between two pings of a run, which are also signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// SHA-256 over all that a scenario says, in parts that have names for people: its script, its data, and the rest, uploads included. Two
/// machines that have the same do the same. The systems are the controller's alone.
pub fn fingerprints(scenario: &Scenario) -> Vec<Fingerprint> {
    let script = scenario.script.iter().map(|script| of(format!("the script {}", script.name), script));
    let data = scenario.data.iter().map(|set| of(format!("the file of `data {}`", set.name), set));
    let rest = Scenario { systems: Vec::new(), script: None, data: Vec::new(), ..scenario.clone() };
    let rest = of("a variable of the environment that the scenario names".to_owned(), &rest);
    script.chain(data).chain([rest]).collect()
}

fn of(what: String, part: &impl fmt::Debug) -> Fingerprint {
    struct Hasher(Sha256);
    impl Write for Hasher {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    // The debug form has every field, and nothing of it depends on the machine or on chance.
    write!(hasher, "{part:?}").expect("invariant: hashing cannot fail");
    Fingerprint { what, digest: hasher.0.finalize().to_vec() }
}
