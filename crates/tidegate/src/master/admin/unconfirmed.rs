//! What a change has written and nobody has confirmed yet, and how it goes from the disk.
//!
//! Called by [`Editor`](super::editor::Editor) alone, which says when, and has taken up what the files hold then.

use super::files::{read, replace};
use crate::admin::messages::{By, FileText};
use std::path::Path;
use std::time::{Duration, Instant};

/// When it is tried again to put back what nobody has confirmed, and the longest time between two attempts at what the server does not
/// take up.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// A revision that goes unless somebody confirms it.
#[derive(Clone)]
pub struct Unconfirmed {
    /// Its number.
    pub revision: u64,
    /// What was written for it.
    pub written: Vec<Rewritten>,
    /// Until when it may be confirmed.
    pub until: Instant,
    /// Who has made it.
    pub by: By,
    /// Its time is over: nobody confirms it any more.
    pub is_going: bool,
}

/// A file that a change has written.
#[derive(Clone)]
pub struct Rewritten {
    path: String,
    before: String,
    after: String,
}

/// What differs between texts of the same files.
pub fn rewritten(present: &[FileText], next: &[FileText]) -> Vec<Rewritten> {
    let differing = present.iter().zip(next).filter(|(before, after)| before.text != after.text);
    let rewritten = differing.map(|(before, after)| Rewritten {
        path: before.path.clone(),
        before: before.text.clone(),
        after: after.text.clone(),
    });
    rewritten.collect()
}

/// What has come of putting texts back.
#[derive(Debug, PartialEq, Eq)]
pub enum PutBack {
    /// The files hold the texts before.
    Done,
    /// Somebody else has written this file since: nothing was put back.
    ByHand(String),
}

impl Unconfirmed {
    /// Puts back what the change has written: all of it, or nothing where somebody else has written one of the files since. Half of a
    /// change is no settings that anybody has wanted.
    ///
    /// # Errors
    /// A sentence: a file cannot be read or written.
    pub fn put_back(&self) -> Result<PutBack, String> {
        let mut changed = Vec::new();
        for file in &self.written {
            let there = read(Path::new(&file.path)).map_err(|why| format!("{why:#}"))?.text;
            if there == file.after {
                changed.push(file);
            } else if there != file.before {
                return Ok(PutBack::ByHand(file.path.clone()));
            }
        }
        let outcomes = changed.iter().map(|file| replace(Path::new(&file.path), &file.after, &file.before));
        let wrong: Vec<String> = outcomes.filter_map(Result::err).map(|why| format!("{why:#}")).collect();
        if wrong.is_empty() { Ok(PutBack::Done) } else { Err(wrong.join("; ")) }
    }

    /// Whether a file is one that the change has written.
    pub fn has_written(&self, path: &str) -> bool {
        self.written.iter().any(|file| file.path == path)
    }

    /// What is true where a file was written by somebody else since.
    pub fn stays_for(&self, path: &str) -> String {
        format!(
            "nobody has confirmed revision {0} of {1}, and what it has changed stays: {path} was changed by somebody else since \
             revision {0}; `tidegate reload` takes up what the files hold now, and an earlier revision can be restored",
            self.revision, self.by
        )
    }
}

/// Attempts to take up what was put back: what the server has refused it refuses again, so that the same texts have rarer ones.
pub struct Attempts {
    pause: Duration,
    next: Instant,
    refused: Option<String>,
    said: String,
}

impl Attempts {
    /// None yet.
    pub fn new() -> Attempts {
        Attempts { pause: AGAIN.0, next: Instant::now(), refused: None, said: String::new() }
    }

    /// How long to wait before it is looked at again.
    pub fn pause(&self) -> Duration {
        AGAIN.0
    }

    /// Whether texts of this tag are to be taken up now.
    pub fn is_due(&self, tag: &str, now: Instant) -> bool {
        self.refused.as_deref() != Some(tag) || now >= self.next
    }

    /// The server has refused texts of this tag.
    pub fn refuse(&mut self, tag: String, now: Instant) {
        let is_known = self.refused.as_ref() == Some(&tag);
        self.pause = if is_known { (self.pause * 2).min(AGAIN.1) } else { AGAIN.0 * 2 };
        self.next = now + self.pause;
        self.refused = Some(tag);
    }

    /// What was said last.
    pub fn last(&self) -> &str {
        &self.said
    }

    /// Whether this is to be said: it is something else than the last time.
    pub fn is_news(&mut self, why: &str) -> bool {
        let is_news = self.said != why;
        why.clone_into(&mut self.said);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_tried_more_and_more_rarely() {
        let (mut attempts, mut now) = (Attempts::new(), Instant::now());
        let begin = now;
        let mut count = 0;
        while now < begin + Duration::from_secs(3600) {
            if attempts.is_due("a", now) {
                attempts.refuse("a".into(), now);
                count += 1;
            }
            now += attempts.pause();
        }
        assert!((10..30).contains(&count), "{count} attempts in an hour");
        assert!(attempts.is_due("b", now), "other texts are tried at once");
        attempts.refuse("b".into(), now);
        assert!(!attempts.is_due("b", now + Duration::from_secs(3)));
        assert!(attempts.is_due("b", now + Duration::from_secs(4)));
    }
}
