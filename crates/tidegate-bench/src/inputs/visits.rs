//! A list of URLs out of an access log, by share of visits: what visitors asked for, in the proportion in which they did.
//!
//! Lines of the common and the combined format (Apache's `%h %l %u %t "%r" %>s %b`), and of Tidegate's JSON. Only what a
//! GET was answered well with is taken: a list for a load generator has no side effects, and no wrong links.

use super::weights;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use std::io::{self, BufRead, Read};
use thiserror::Error;

/// What a log holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visits {
    /// Visits of each request target.
    counts: HashMap<String, u64>,
    /// Visits that count.
    pub visits: u64,
    /// Lines of other methods, or answered otherwise than 200, 206 or 304.
    pub others: u64,
    /// Lines in no format that is known.
    pub unreadable: u64,
    /// Visits of targets that came when so many others were known already.
    pub beyond: u64,
}

/// Why there is no list.
#[derive(Debug, Error)]
pub enum VisitsError {
    /// The log.
    #[error("cannot read the log: {0}")]
    Read(#[from] io::Error),
    /// Nothing in it.
    #[error(
        "the log holds no GET that was answered with 200, 206 or 304 ({others} other requests, {unreadable} lines in no \
         format that is known: common, combined and JSON are)"
    )]
    Empty {
        /// Lines of other requests.
        others: u64,
        /// Lines that cannot be read.
        unreadable: u64,
    },
}

/// Targets that are counted: a log of years does not fill the memory.
const MOST_TARGETS: usize = 500_000;
/// Bytes of a line; longer ones are no lines of a log.
const MOST_LINE: u64 = 64 << 10;

impl Visits {
    /// Counts a log.
    ///
    /// # Errors
    /// [`VisitsError`].
    pub fn read(mut log: impl BufRead) -> Result<Visits, VisitsError> {
        let mut visits = Visits::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            // What is longer is read in pieces, none of which is a line of a log.
            if log.by_ref().take(MOST_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            visits.count(&line);
        }
        match visits.visits {
            0 => Err(VisitsError::Empty { others: visits.others, unreadable: visits.unreadable }),
            _ => Ok(visits),
        }
    }

    fn count(&mut self, line: &[u8]) {
        let Ok(text) = str::from_utf8(line) else {
            self.unreadable += 1;
            return;
        };
        if text.trim().is_empty() {
            return;
        }
        let Some((method, target, status)) = request_of(text.trim()) else {
            self.unreadable += 1;
            return;
        };
        let is_target = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
        if method != "GET" || !is_target || ![200, 206, 304].contains(&status) {
            self.others += 1;
            return;
        }
        self.visits += 1;
        if let Some(count) = self.counts.get_mut(&target) {
            *count += 1;
        } else if self.counts.len() < MOST_TARGETS {
            self.counts.insert(target, 1);
        } else {
            self.beyond += 1;
        }
    }

    /// How many targets there are.
    pub fn targets(&self) -> usize {
        self.counts.len()
    }

    /// The list below `base`, most visited first, no more than `most`; and the share of visits that it holds.
    pub fn urls(&self, base: &str, most: usize) -> (String, f64) {
        let base = base.trim_end_matches('/');
        let mut all: Vec<(&str, u64)> =
            self.counts.iter().map(|(target, count)| (target.as_str(), *count)).collect();
        all.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        all.truncate(most);
        let counts: Vec<u64> = all.iter().map(|(_, count)| *count).collect();
        let mut out = String::new();
        for ((target, _), weight) in all.iter().zip(weights(&counts)) {
            // Two signs mean something in a list: variables.
            let target = target.replace("$(", "%24(");
            let _ = match weight {
                1 => writeln!(out, "{base}{target}"),
                weight => writeln!(out, "{weight}x {base}{target}"),
            };
        }
        (out, counts.iter().sum::<u64>() as f64 / self.visits.max(1) as f64)
    }
}

/// Method, target and status of a line.
fn request_of(line: &str) -> Option<(String, String, u16)> {
    if line.starts_with('{') {
        let object: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
        let status = object.get("status")?.as_u64()?;
        return Some((text("method")?, text("target")?, u16::try_from(status).ok()?));
    }
    let (_, behind) = line.split_once('"')?;
    let (request, rest) = behind.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let status = rest.split_whitespace().next()?.parse().ok()?;
    Some((method.to_owned(), target.to_owned(), status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.1" 200 2326
192.0.2.1 - frank [10/Oct/2000:13:55:37 -0700] "GET /a?b=c HTTP/1.0" 304 - "http://x/" "Mozilla/4.08"
192.0.2.1 - - [10/Oct/2000:13:55:38 -0700] "POST /form HTTP/1.1" 200 5
192.0.2.1 - - [10/Oct/2000:13:55:38 -0700] "GET /missing HTTP/1.1" 404 5
{"method":"GET","target":"/index.html","status":206,"bytes":10}
no line of a log

192.0.2.1 - - [10/Oct/2000:13:55:38 -0700] "GET /index.html HTTP/2" 200 5
192.0.2.1 - - [10/Oct/2000:13:55:38 -0700] "GET /$(HOME) HTTP/2" 200 5
"#;

    #[test]
    fn a_log_becomes_a_list_by_share_of_visits() {
        let visits = Visits::read(LOG.as_bytes()).unwrap();
        assert_eq!((visits.visits, visits.others, visits.unreadable, visits.targets()), (5, 2, 1, 3));
        let (list, share) = visits.urls("http://127.0.0.1:8080/", 10);
        assert_eq!(
            list,
            "3x http://127.0.0.1:8080/index.html\nhttp://127.0.0.1:8080/%24(HOME)\nhttp://127.0.0.1:8080/a?b=c\n"
        );
        assert!((share - 1.0).abs() < 1e-9);
        assert!(crate::urls::parse(list.as_bytes(), "list", std::path::Path::new(".")).is_ok());
        let (short, share) = visits.urls("http://127.0.0.1:8080", 1);
        assert_eq!(short.lines().count(), 1);
        assert!((share - 0.6).abs() < 1e-9);
    }

    #[test]
    fn a_log_of_nothing_says_so() {
        let error = Visits::read(&b"hello\n"[..]).unwrap_err().to_string();
        assert!(error.contains("no GET") && error.contains("1 lines in no format"), "{error}");
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Visits::read(&line[..]);
        }
    }
}
