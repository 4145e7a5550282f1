//! What server processes have counted: asked for, added up, and kept of those that have ended.

use super::{Facts, PATIENCE, StatusRegistry};
use crate::link::{Answer, Extent, Figures, Question, ToServer};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tidegate_modules::cache_desk::{self, StoreFigures};
use tidegate_modules::gateway::balance::{self, report::GroupReport};
use tidegate_modules::status::{lanes, limit_store, providers};
use tidegate_stats::series::SeriesFigures;
use tidegate_stats::{ListenerFigures, add_listeners, add_times};

/// Sites and routes whose figures the history asks for in a second, and after how many seconds at the latest.
const NAMES_A_SECOND: usize = 200;
const SECONDS: usize = 60;
/// How long the history waits for them: the next second is to be seen as well.
const GLANCE: Duration = Duration::from_secs(1);
/// What a server process has told of what it has counted.
#[derive(Clone, Default)]
pub struct Told {
    pub(super) last: Figures,
    /// The question that this answers, by its number, and the one that told of sites and routes last.
    number: u64,
    number_of_series: u64,
    /// The question of the history that it has not answered yet.
    glance: Weak<()>,
}

impl Told {
    /// Takes in the answer to a question. Several may ask at once: an answer to one that was asked earlier says less.
    fn take(&mut self, number: u64, extent: Extent, mut figures: Figures) {
        if extent >= Extent::Whole {
            self.last.used.descriptors = figures.used.descriptors;
        }
        if extent >= Extent::Series && number > self.number_of_series {
            self.number_of_series = number;
            self.last.series = std::mem::take(&mut figures.series);
        }
        if number > self.number {
            self.number = number;
            figures.series = std::mem::take(&mut self.last.series);
            figures.used.descriptors = self.last.used.descriptors;
            self.last = figures;
        }
    }
}

/// What was heard of processes.
struct Gathered {
    /// By the processes of this server, those that have ended too.
    own: Figures,
    /// Processes that have answered, and those that have not.
    heard: usize,
    silent: usize,
}

impl Gathered {
    /// Whether anything is known that a history may go on from.
    fn is_sound(&self) -> bool {
        self.heard > 0 || self.silent == 0
    }
}

impl Facts {
    /// By the processes of this server, of one moment: whoever ends meanwhile is either among the members or in the past. One
    /// that does not answer has still counted what it told last.
    fn sum(&self, with_series: bool) -> Figures {
        let (log_lines_lost, log_losses) = self.own_losses.clone();
        let process_restarts = self.process_restarts;
        let mut sum = Figures { log_lines_lost, log_losses, process_restarts, ..Figures::default() };
        for more in [&self.past].into_iter().chain(self.members.iter().map(|member| &member.told.last)) {
            add_counts(&mut sum, more);
            if with_series {
                sum.series.merge(&more.series);
            }
        }
        sum
    }
}

impl StatusRegistry {
    /// A process has ended: its counts stay. `last` are its last words; without any, what it told last.
    pub fn has_ended(&self, id: u64, last: Option<Figures>) {
        let mut facts = self.facts();
        let Some(place) = facts.members.iter().position(|member| member.id == id && id != 0) else { return };
        let member = facts.members.remove(place);
        add(&mut facts.past, &retired(last.unwrap_or(member.told.last)));
    }

    /// What a predecessor's processes have counted so far.
    pub fn set_before(&self, figures: Figures) {
        self.history.hear_before(&figures);
        self.facts().before = retired(figures);
    }

    /// What all processes have counted, those that have ended too, but not by sites and routes.
    pub fn figures(&self) -> Figures {
        let mut sum = self.own_figures();
        add_counts(&mut sum, &self.facts().before);
        sum
    }

    /// Of these, what is about the stores of responses in force. Of one that no process tells of yet: nothing but its name.
    pub fn store_figures(&self) -> Vec<StoreFigures> {
        let told = self.figures().stores;
        let named = self.facts().caches.clone();
        let mut figures = stores_in_force(&named, &told);
        for (name, _) in named {
            if !figures.iter().any(|figures| figures.store == name) {
                figures.push(StoreFigures { store: name, ..StoreFigures::default() });
            }
        }
        figures
    }

    /// The same without what a predecessor has counted: it arrives at once, and was not of a moment.
    pub fn own_figures(&self) -> Figures {
        self.gather(Extent::Totals, PATIENCE, false).own
    }

    /// The same of each site and route as well.
    pub fn own_figures_with_series(&self) -> Figures {
        self.by_name(self.gather(Extent::Whole, PATIENCE, false).own)
    }

    /// The same with what each site and route has counted.
    pub fn figures_with_series(&self) -> Figures {
        self.with_names(self.gather(Extent::Whole, PATIENCE, false).own)
    }

    /// The same for a successor: the history goes up to this moment, and no further.
    pub fn last_figures(&self) -> Figures {
        let gathered = self.gather(Extent::Whole, PATIENCE, false);
        if gathered.is_sound() {
            self.history.record(&gathered.own);
        }
        self.with_names(gathered.own)
    }

    /// With the predecessor's, by the names that there are now.
    fn with_names(&self, mut figures: Figures) -> Figures {
        add(&mut figures, &self.facts().before);
        self.by_name(figures)
    }

    fn by_name(&self, mut figures: Figures) -> Figures {
        let facts = self.facts();
        match facts.in_force.statistics_off {
            true => figures.series = SeriesFigures::default(),
            false => figures.series.keep(&facts.series),
        }
        drop(facts);
        figures
    }

    /// Looks at the server for its history. A process that has not answered the last time is not asked again, and counts as it
    /// was told last; where none answers nothing is known.
    pub fn look(&self) {
        let extent = self.extent_of_look();
        let gathered = self.gather(extent, GLANCE, true);
        if gathered.is_sound() {
            self.history.record(&gathered.own);
        }
    }

    /// Sites and routes are looked at each second as well, so that a process which ends costs no more of them than of the rest; where
    /// there are many, less often.
    fn extent_of_look(&self) -> Extent {
        let mut facts = self.facts();
        let names: usize = facts.series.iter().map(|site| 1 + site.routes.len()).sum();
        facts.looks += 1;
        let every = (1 + names / NAMES_A_SECOND).min(SECONDS);
        if facts.looks.is_multiple_of(every) { Extent::Series } else { Extent::Totals }
    }

    fn gather(&self, extent: Extent, patience: Duration, is_glance: bool) -> Gathered {
        let (sender, answers) = channel();
        let (mut asked, mut heard, mut silent) = (0, 0, 0);
        let mut facts = self.facts();
        facts.questions += 1;
        let number = facts.questions;
        for member in &mut facts.members {
            let Some(link) = &member.link else { continue };
            if is_glance && member.told.glance.strong_count() > 0 {
                silent += 1;
                continue;
            }
            let glance = Arc::new(());
            if is_glance {
                member.told.glance = Arc::downgrade(&glance);
            }
            let (sender, id) = (sender.clone(), member.id);
            asked += 1;
            link.ask(ToServer::Question, Question::Figures(extent), move |answer| {
                let _ = sender.send((id, answer));
                drop(glance);
            });
        }
        drop((facts, sender));
        let deadline = Instant::now() + patience;
        // Ends early where a process goes: its end of the channel is dropped.
        while heard < asked
            && let Ok((id, answer)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            let Answer::Figures(figures) = answer else {
                asked -= 1;
                silent += 1;
                continue;
            };
            heard += 1;
            if let Some(member) = self.facts().members.iter_mut().find(|member| member.id == id) {
                member.told.take(number, extent, *figures);
            }
        }
        let own = self.facts().sum(extent >= Extent::Series);
        Gathered { own, heard, silent: silent + asked - heard }
    }
}

fn add(sum: &mut Figures, more: &Figures) {
    add_counts(sum, more);
    sum.series.merge(&more.series);
}

/// All but what sites and routes have counted.
fn add_counts(sum: &mut Figures, more: &Figures) {
    sum.counted.merge(&more.counted);
    sum.log_lines_lost += more.log_lines_lost;
    for (log, lines) in &more.log_losses {
        *sum.log_losses.entry(log.clone()).or_default() += lines;
    }
    sum.used.add(&more.used);
    sum.process_restarts += more.process_restarts;
    sum.workers.extend_from_slice(&more.workers);
    add_listeners(&mut sum.listeners, &more.listeners);
    add_times(&mut sum.times, &more.times);
    lanes::merge(&mut sum.lanes, &more.lanes);
    balance::report::merge(&mut sum.groups, &more.groups);
    cache_desk::add_stores(&mut sum.stores, more.stores.clone());
    providers::merge(&mut sum.providers, &more.providers);
    limit_store::merge(&mut sum.limit_store, more.limit_store.as_ref());
}

/// Of what stores have told, what is about those of the settings and their folders, in their order.
pub(super) fn stores_in_force(named: &[(String, Vec<PathBuf>)], told: &[StoreFigures]) -> Vec<StoreFigures> {
    let figures = |(name, folders): &(String, Vec<PathBuf>)| {
        let told = told.iter().find(|store| store.store == *name)?;
        let of = |folder: &PathBuf| told.disks.iter().find(|disk| disk.folder == *folder).cloned();
        Some(StoreFigures { disks: folders.iter().filter_map(of).collect(), ..told.clone() })
    };
    named.iter().filter_map(figures).collect()
}

fn retired(mut figures: Figures) -> Figures {
    figures.counted.retire();
    figures.used.retire();
    figures.groups.iter_mut().for_each(GroupReport::retire);
    figures.stores.iter_mut().for_each(StoreFigures::retire);
    figures.providers.clear();
    figures.limit_store = None;
    figures.workers.clear();
    figures.lanes.clear();
    figures.listeners.iter_mut().for_each(ListenerFigures::retire);
    figures.series.without_exemplars();
    figures
}

#[cfg(test)]
mod tests {
    use super::super::Member;
    use super::*;
    use std::collections::BTreeMap;
    use tidegate_modules::status::{ProcessInfo, Used};
    use tidegate_stats::Level;

    fn figures(requests: u64) -> Figures {
        let stats = tidegate_stats::Worker::default();
        stats.requests.add(requests);
        stats.connections.add(3);
        Figures {
            counted: stats.snapshot(),
            log_lines_lost: 1,
            log_losses: BTreeMap::from([("a.log".into(), 1)]),
            workers: Vec::new(),
            listeners: vec![ListenerFigures {
                address: "a:1".into(),
                accepted: 3,
                refused: 1,
                connections: Level { current: 1, peak: 1, limit: 0 },
                ..ListenerFigures::default()
            }],
            times: Vec::new(),
            lanes: Vec::new(),
            used: Used { cpu_micros: 3, resident: 5, descriptors: 7 },
            groups: Vec::new(),
            stores: Vec::new(),
            process_restarts: 0,
            providers: Vec::new(),
            limit_store: None,
            series: Default::default(),
        }
    }

    #[test]
    fn an_answer_to_an_earlier_question_takes_nothing_back() {
        let mut told = Told::default();
        let requests = |told: &Told| told.last.counted.requests;
        told.take(2, Extent::Totals, figures(20));
        told.take(1, Extent::Whole, figures(10));
        assert_eq!((requests(&told), told.last.used.descriptors), (20, 7), "sites and routes it tells first");
        told.take(3, Extent::Totals, Figures { used: Used::default(), ..figures(30) });
        assert_eq!((requests(&told), told.last.used.descriptors), (30, 7), "not asked for");
    }

    #[test]
    fn what_a_predecessor_has_counted_is_not_of_a_moment() {
        let status_registry = StatusRegistry::new();
        status_registry.set_before(figures(1000));
        assert_eq!(status_registry.own_figures().counted.requests, 0);
        assert_eq!(status_registry.own_figures_with_series().counted.requests, 0);
        assert_eq!(status_registry.figures_with_series().counted.requests, 1000);
    }

    #[test]
    fn counts_outlive_their_process_and_gauges_do_not() {
        let status_registry = StatusRegistry::new();
        let member = |id, last| {
            let info = ProcessInfo::default();
            Member { id, info, link: None, told: Told { last, ..Told::default() } }
        };
        status_registry.set_members(vec![member(1, figures(5)), member(2, figures(7))]);
        assert_eq!(status_registry.figures().counted.requests, 12);
        status_registry.has_ended(1, None);
        status_registry.has_ended(2, Some(figures(9)));
        status_registry.has_ended(2, Some(figures(100)));
        status_registry.process_replaced(5);
        status_registry.process_replaced(6);
        status_registry.set_before(Figures { process_restarts: 3, ..figures(1000) });
        let sum = status_registry.figures();
        assert_eq!((sum.counted.requests, sum.log_lines_lost, sum.log_losses["a.log"]), (1014, 3, 3));
        assert_eq!((sum.counted.connections.current, sum.counted.workers), (0, 0));
        // What they had open when they ended has ended: three connections each, and no request was answered.
        assert_eq!((sum.counted.connections_closed, sum.counted.requests_lost), (9, 1014));
        assert_eq!(sum.counted.requests_under_way(), 0);
        let listener =
            ListenerFigures { address: "a:1".into(), accepted: 9, refused: 3, ..ListenerFigures::default() };
        assert_eq!(sum.listeners, [listener]);
        assert_eq!((sum.process_restarts, status_registry.server(&sum).process_restarts), (5, 5));
        assert_eq!(sum.used, Used { cpu_micros: 9, resident: 0, descriptors: 0 });
    }
}
