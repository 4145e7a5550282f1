//! Questions that workers are asked, and those that server processes ask for their status pages.

use super::{PATIENCE, StatusRegistry};
use crate::link::{Answer, Link, Question, ReportBytes, ToMaster, ToServer, Wellness};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidegate_modules::status::{self, BusiestNames, Report};

/// Questions of server processes that are answered at once.
const ASKING: usize = 32;

impl StatusRegistry {
    /// What every worker of every process that serves says to a question, in their order.
    pub fn ask(&self, question: &str) -> Vec<String> {
        self.ask_those(question, |state| state == "serving")
    }

    /// The same of processes that finish what they have, too: for what is about requests.
    pub(super) fn ask_all(&self, question: &str) -> Vec<String> {
        self.ask_those(question, |state| matches!(state, "serving" | "draining"))
    }

    fn ask_those(&self, question: &str, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
        let links: Vec<(usize, Arc<Link>)> = {
            let facts = self.facts();
            let members = facts.members.iter().filter(|member| is_asked(&member.info.state));
            members.filter_map(|member| Some((member.info.workers, member.link.clone()?))).collect()
        };
        let mut answers = Vec::with_capacity(links.len());
        for (workers, link) in links {
            let (sender, answer) = channel();
            link.ask(ToServer::Question, Question::Workers(question.into()), move |said| {
                let _ = sender.send(said);
            });
            answers.push((workers, answer));
        }
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        for (workers, answer) in answers {
            match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Answer::Workers(said)) => all.extend(said),
                _ => all.extend((0..workers).map(|_| "this worker does not answer".to_owned())),
            }
        }
        all
    }

    /// What each worker tells of sampled requests that have ended, to one who comes again within `lease`.
    pub fn spans(&self, lease: Duration) -> Vec<String> {
        self.ask_all(&format!("spans {}", lease.as_secs()))
    }

    /// The path and the client that have come most often in the last minutes.
    pub fn busiest_names(&self) -> BusiestNames {
        status::busiest_names(&self.ask("busiest"))
    }

    /// Answers a server process, for its status page. Another thread waits for the other processes; when too
    /// many wait already the question stays without an answer, and the page says so.
    pub fn answer(self: &Arc<Self>, link: &Arc<Link>, number: u64, question: Question) {
        if question == Question::Admin {
            let connection = self.admin.get().and_then(|admin| admin.connect());
            let answer = ToServer::Answer(number, Answer::Admin { connection: None });
            link.send(&answer, connection.into_iter().collect());
            return;
        }
        if self.asking.fetch_add(1, Relaxed) >= ASKING {
            self.asking.fetch_sub(1, Relaxed);
            link.send(&ToServer::Answer(number, Answer::Workers(Vec::new())), Vec::new());
            return;
        }
        let (status_registry, link) = (self.clone(), link.clone());
        let asking = std::thread::Builder::new().name("tidegate-ask".into());
        let started = asking.spawn(move || {
            let said = match question {
                Question::Report(report) => Answer::Report(status_registry.written(report)),
                Question::Workers(question) if question.starts_with("history ") => {
                    let asked = question.trim_start_matches("history ");
                    Answer::Workers(status_registry.history.answer(asked).into_iter().collect())
                }
                // Requests are ended, and watched, by the operator alone.
                Question::Workers(question)
                    if question.starts_with("cancel") || question.starts_with("tail") =>
                {
                    Answer::Workers(Vec::new())
                }
                Question::Workers(question) => Answer::Workers(status_registry.ask(&question)),
                Question::Stores(order) => Answer::Stores(order.nothing()), // of the operator alone
                // Of servers alone.
                Question::Figures(_) => Answer::Workers(Vec::new()),
                Question::Wellness => Answer::Wellness(Wellness::default()),
                Question::Admin => Answer::Admin { connection: None }, // answered before
            };
            link.send(&ToServer::Answer(number, said), Vec::new());
            status_registry.asking.fetch_sub(1, Relaxed);
        });
        if started.is_err() {
            self.asking.fetch_sub(1, Relaxed);
        }
    }

    /// A report as it is sent.
    fn written(&self, report: Report) -> ReportBytes {
        let _alone = report.has_series().then(|| self.alone());
        let figures = if report.has_series() { self.figures_with_series() } else { self.figures() };
        ReportBytes::of(report.write(self.server(&figures), figures.counted))
    }
}

/// What a server process says to the master that the status registry answers or takes; the rest comes back.
pub fn take_answers(
    status_registry: &Arc<StatusRegistry>,
    link: &Arc<Link>,
    message: ToMaster,
) -> Option<ToMaster> {
    match message {
        ToMaster::Question(number, question) => status_registry.answer(link, number, question),
        ToMaster::Answer(number, answer) => link.answered(number, answer),
        order => return Some(order),
    }
    None
}
