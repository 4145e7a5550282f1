//! The status page's view of the whole server, from a worker: the master is asked over the link, and the
//! worker goes on meanwhile.
//!
//! Pages of the console ask for the same once a second, each for itself. What one was told a moment ago the next one gets as well, so
//! that ten pages cost hardly more than one.

use crate::link::{Answer, Link, Question, ToMaster};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_io::LocalFuture;
use tidegate_io::oneshot::{Promised, promise};
use tidegate_modules::status::{Report, StatusSource};

/// How long a report is good for another who takes a recent one: less than the second after which a page asks again, so that it
/// never gets its own once more.
const RECENT: Duration = Duration::from_millis(900);
/// Reports that are larger are not kept, bytes: memory would stay taken when nobody looks any more.
const KEPT_MAX: usize = 1 << 20;

/// The way to the master; `explain` has none.
#[derive(Clone, Default)]
pub struct StatusView {
    link: Option<Arc<Link>>,
    recent: Arc<RecentReports>,
}

/// Reports that the master has told this process, one of each kind that was asked for as a recent one.
#[derive(Default)]
struct RecentReports(Mutex<Vec<RecentReport>>);

/// One that was asked for at a moment, as it is sent.
type RecentReport = (Report, Instant, Arc<[u8]>);

impl RecentReports {
    /// The one that was asked for within [`RECENT`] before `now`.
    fn find(&self, report: Report, now: Instant) -> Option<Arc<[u8]>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, at, _)| now.saturating_duration_since(*at) < RECENT);
        kept.iter().find(|(known, ..)| *known == report).map(|(.., bytes)| bytes.clone())
    }

    /// Keeps one that was asked for at `at`.
    fn keep(&self, report: Report, at: Instant, bytes: &[u8]) {
        if bytes.len() <= KEPT_MAX {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|(known, ..)| *known != report);
            kept.push((report, at, bytes.into()));
        }
    }
}

impl StatusView {
    /// Over this link.
    pub fn new(link: Arc<Link>) -> StatusView {
        StatusView { link: Some(link), recent: Arc::default() }
    }

    fn ask(&self, question: Question) -> Promised<Answer> {
        let (answer, promised) = promise();
        if let Some(link) = &self.link {
            link.ask(ToMaster::Question, question, move |said| answer.fulfil(said));
        }
        promised
    }
}

impl StatusSource for StatusView {
    fn report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        let (bytes, promised) = promise();
        if let Some(link) = &self.link {
            // The thread of the link has read it, so that the worker need not.
            link.ask(ToMaster::Question, Question::Report(report), move |said| {
                bytes.fulfil(match said {
                    Answer::Report(report) => Some(report.into_bytes()),
                    _ => None,
                });
            });
        }
        Box::pin(async move { promised.await.flatten() })
    }

    fn recent_report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        let now = Instant::now();
        if let Some(bytes) = self.recent.find(report, now) {
            return Box::pin(std::future::ready(Some(bytes.to_vec())));
        }
        let (asked, recent) = (self.report(report), self.recent.clone());
        Box::pin(async move {
            let bytes = asked.await?;
            recent.keep(report, now, &bytes);
            Some(bytes)
        })
    }

    fn admin(&self) -> LocalFuture<Option<OwnedFd>> {
        let answer = self.ask(Question::Admin);
        Box::pin(async move {
            match answer.await {
                Some(Answer::Admin { connection }) => connection,
                _ => None,
            }
        })
    }

    fn ask_all(&self, question: &str) -> LocalFuture<Vec<String>> {
        let answer = self.ask(Question::Workers(question.into()));
        Box::pin(async move {
            match answer.await {
                Some(Answer::Workers(said)) => said,
                _ => Vec::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_modules::status::Format;

    #[test]
    fn a_report_is_recent_for_less_than_a_second() {
        let (recent, begun) = (RecentReports::default(), Instant::now());
        let after = |millis| begun + Duration::from_millis(millis);
        let whole = Report::Server(Format::Json, None);
        assert_eq!(recent.find(Report::Totals, begun), None);
        recent.keep(Report::Totals, begun, b"first");
        assert_eq!(recent.find(Report::Totals, after(899)).as_deref(), Some(&b"first"[..]));
        assert_eq!(recent.find(whole, begun), None, "another report");
        assert_eq!(recent.find(Report::Totals, after(900)), None, "whose page asks once a second");
        recent.keep(Report::Totals, after(1000), b"second");
        recent.keep(Report::Totals, after(1001), b"third");
        recent.keep(whole, after(1001), &vec![b'x'; KEPT_MAX + 1]);
        assert_eq!(recent.find(Report::Totals, after(1100)).as_deref(), Some(&b"third"[..]));
        assert_eq!(recent.find(whole, after(1100)), None, "too large");
        assert_eq!(recent.0.lock().unwrap().len(), 1);
    }
}
