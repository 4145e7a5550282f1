//! What a PHP pool tells of OPcache, its cache of compiled scripts: asked of one of its processes when somebody looks
//! at the status, by a script of the server's own.
//!
//! Under php-fpm the script runs in a process beside those that serve, which exists only while it is asked and shares
//! the cache with them; under php-cgi in one of them, of which there is one more than there are places. No answer within
//! [`PATIENCE`] is no error all the same: what was told last is shown, with its age.

use super::ask::{Question, ask};
use super::status::{OpcacheFigures, OpcacheState, OpcacheStatus};
use crate::gateway::pool_directory::PoolAddress;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::pool::WarmUpProtocol;

/// The script; written into the folder of the sockets, where no URL leads.
pub(super) const SCRIPT: &str = include_str!("opcache.php");
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// So soon nobody asks again. No less than [`PATIENCE`]: one asks at a time.
const FRESH: Duration = Duration::from_secs(1);

/// Whom to ask, and what was told.
#[derive(Clone)]
pub(super) struct Opcache {
    pub(super) address: PoolAddress,
    pub(super) script: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// What was told last, and when.
    told: Option<(OpcacheAnswer, Instant)>,
    /// When somebody has asked last, or is asking: however many look at the status, one asks.
    asked: Option<Instant>,
}

/// What the script answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct OpcacheAnswer {
    state: OpcacheState,
    #[serde(default)]
    figures: Option<OpcacheFigures>,
    #[serde(skip)]
    why: Option<String>,
}

impl Opcache {
    pub(super) fn new(address: PoolAddress, script: PathBuf) -> Opcache {
        Opcache { address, script, known: Arc::default() }
    }

    /// Whether it is the caller's turn to ask, by [`Opcache::refresh`]: nobody has just done so, or is at it.
    pub(super) fn is_due(&self) -> bool {
        let mut known = self.known();
        let is_due = known.asked.is_none_or(|asked| asked.elapsed() >= FRESH);
        if is_due {
            known.asked = Some(Instant::now());
        }
        is_due
    }

    /// What is known now.
    pub(super) fn status(&self) -> OpcacheStatus {
        match &self.known().told {
            Some((told, at)) => OpcacheStatus {
                state: told.state,
                why: told.why.clone(),
                figures: told.figures,
                age: at.elapsed(),
            },
            None => OpcacheStatus {
                state: OpcacheState::Unknown,
                why: Some("no process had time to tell".to_owned()),
                figures: None,
                age: Duration::ZERO,
            },
        }
    }

    /// Asks. Blocks for up to [`PATIENCE`].
    pub(super) fn refresh(&self) {
        let question = Question {
            protocol: WarmUpProtocol::FastCgi,
            target: "/tidegate-opcache.php",
            host: "localhost",
            script: Some(&self.script),
            root: self.script.parent(),
        };
        let told = match ask(&self.address, &question, Instant::now() + PATIENCE) {
            Ok(answer) if answer.status == 200 => read(&answer.content),
            Ok(answer) => unknown(format!("PHP answered with {}", answer.status)),
            // All are busy, or none runs any more: what is known stays.
            Err(_) => return,
        };
        self.known().told = Some((told, Instant::now()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(content: &[u8]) -> OpcacheAnswer {
    serde_json::from_slice(content).unwrap_or_else(|_| unknown("PHP answered something else".to_owned()))
}

fn unknown(why: String) -> OpcacheAnswer {
    OpcacheAnswer { state: OpcacheState::Unknown, figures: None, why: Some(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asks_for_all_who_look() {
        let opcache = Opcache::new(PoolAddress::Unix("/nowhere.sock".into()), "/nowhere.php".into());
        assert!(opcache.is_due());
        assert!(!opcache.is_due() && !opcache.clone().is_due());
        opcache.refresh();
        assert_eq!(opcache.status().state, OpcacheState::Unknown);
    }

    #[test]
    fn what_the_script_may_answer() {
        let state = |text: &str| read(text.as_bytes()).state;
        assert_eq!(state("{\"state\":\"absent\"}"), OpcacheState::Absent);
        assert_eq!(state("{\"state\":\"restricted\"}"), OpcacheState::Restricted);
        for text in ["", "<br>Warning", "{\"state\":\"other\"}", "{\"state\":\"on\",\"figures\":{}}", "[]"] {
            assert_eq!(state(text), OpcacheState::Unknown, "{text}");
        }
        let told = read(
            br#"{"state":"on","figures":{"used":1,"free":2,"wasted":3,"hits":4,"misses":5,"scripts":6,
                "restarts_out_of_memory":7,"restarts_hash":8,"restarts_manual":9}}"#,
        );
        assert_eq!(
            (told.state, told.figures.map(|figures| figures.restarts_manual)),
            (OpcacheState::On, Some(9))
        );
    }
}
