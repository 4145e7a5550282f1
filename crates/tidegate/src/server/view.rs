//! The status page's view of the whole server, from a worker: the master is asked over the link, and the
//! worker goes on meanwhile.

use crate::link::{Answer, Extent, Link, Question, ToMaster};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_io::LocalFuture;
use tidegate_io::oneshot::{Promised, promise};
use tidegate_modules::status::{ServerInfo, StatusSource};
use tidegate_stats::Snapshot;

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
    fn gather(&self, with_series: bool) -> LocalFuture<Option<(ServerInfo, Snapshot)>> {
        let answer = self.ask(Question::Figures(if with_series { Extent::Whole } else { Extent::Totals }));
        Box::pin(async move {
            match answer.await {
                Some(Answer::Report(report)) => Some(*report),
                _ => None,
            }
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
