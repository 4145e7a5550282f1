//! The status page's view of the whole server, from a worker: the master is asked over the link, and the
//! worker goes on meanwhile.

use crate::link::{Answer, Link, Question, ToMaster};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_io::LocalFuture;
use tidegate_io::oneshot::{Promised, promise};
use tidegate_modules::status::{Report, StatusSource};

/// The way to the master; `explain` has none.
#[derive(Clone, Default)]
pub struct StatusView(Option<Arc<Link>>);

impl StatusView {
    /// Over this link.
    pub fn new(link: Arc<Link>) -> StatusView {
        StatusView(Some(link))
    }

    fn ask(&self, question: Question) -> Promised<Answer> {
        let (answer, promised) = promise();
        if let Some(link) = &self.0 {
            link.ask(ToMaster::Question, question, move |said| answer.fulfil(said));
        }
        promised
    }
}

impl StatusSource for StatusView {
    fn report(&self, report: Report) -> LocalFuture<Option<Vec<u8>>> {
        let (bytes, promised) = promise();
        if let Some(link) = &self.0 {
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
