//! What a PHP pool tells of OPcache, its cache of compiled scripts: asked of one of its processes when somebody looks
//! at the status, by a script of the server's own.
//!
//! Under php-fpm the script runs in a process beside those that serve, which exists only while it is asked and shares
//! the cache with them; under php-cgi in one of them, of which there is one more than there are places. No answer within
//! [`PATIENCE`] is no error all the same: what was told last is shown, with its age.

use super::ask::{Question, ask};
use super::status::{OpcacheFigures, OpcacheState, OpcacheStatus};
use crate::gateway::board::PoolAddress;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidegate_config::settings::pool::WarmUpProtocol;

/// The script; written into the folder of the sockets, where no URL leads.
pub(super) const SCRIPT: &str = include_str!("opcache.php");
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// What was told so short a time ago is not asked again.
const FRESH: Duration = Duration::from_secs(1);

/// Whom to ask, and what was told.
#[derive(Clone)]
pub(super) struct Opcache {
    pub(super) address: PoolAddress,
    pub(super) script: PathBuf,
    known: Arc<Mutex<Option<Known>>>,
}

struct Known {
    told: Told,
    at: Instant,
}

/// What the script answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Told {
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

    /// What is known now, having asked unless somebody has just done so. Blocks for up to [`PATIENCE`].
    pub(super) fn status(&self) -> OpcacheStatus {
        if self.known().as_ref().is_none_or(|known| known.at.elapsed() >= FRESH) {
            self.refresh();
        }
        match &*self.known() {
            Some(Known { told, at }) => OpcacheStatus {
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

    fn refresh(&self) {
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
        *self.known() = Some(Known { told, at: Instant::now() });
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(content: &[u8]) -> Told {
    serde_json::from_slice(content).unwrap_or_else(|_| unknown("PHP answered something else".to_owned()))
}

fn unknown(why: String) -> Told {
    Told { state: OpcacheState::Unknown, figures: None, why: Some(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
