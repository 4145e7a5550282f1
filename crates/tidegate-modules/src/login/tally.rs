//! What logins add to the statistics of a worker.

use super::questions::{Answer, Outcome};
use super::source::Source;
use tidegate_stats::Worker as Stats;

/// A login was looked up.
pub(super) fn counts(stats: &Stats, answer: &Answer) {
    match answer {
        Answer::Known(Outcome::Known(_)) => stats.user_cache_hits.add(1),
        Answer::Known(Outcome::Nobody | Outcome::Member(_)) => stats.user_cache_refusals.add(1),
        Answer::Known(Outcome::Later(_)) => stats.logins_put_off.add(1),
        Answer::Known(Outcome::Away(_)) | Answer::Overloaded => stats.logins_unanswered.add(1),
        Answer::Asked(_) => stats.user_cache_misses.add(1),
    }
}

/// Something was asked for it; threads have no statistics of their own.
pub(super) fn asked(stats: &Stats, source: &Source) {
    let figures = source.take_figures();
    stats.directory_searches.add(figures.asked.searches);
    stats.directory_binds.add(figures.asked.binds);
    stats.directory_failures.add(figures.failures);
}
