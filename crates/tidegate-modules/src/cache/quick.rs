//! Requests that are answered with a message that is there already: nothing is looked up, encoded or copied for them.

use super::Shared;
use super::counts::Event;
use super::prepared::Told;
use std::sync::Arc;
use tidegate_cache::Entry;
use tidegate_core::{Exchange, Reply};
use tidegate_http::cache::{CacheStatus, Forward, Reason};

impl Shared {
    /// What is asked for again within a second, by who is nobody in particular.
    #[inline]
    pub(super) fn plain_hit(&self, exchange: &Exchange<'_>) -> Option<Reply> {
        let prepared = self.prepared.as_ref().filter(|_| !self.policy.knows_everybody())?;
        let detail = self.policy.obeys(exchange).then_some(Reason::Fresh.as_str());
        let (response, entry) = prepared.plain_hit(exchange, Told { collapsed: None, detail })?;
        self.counts.count(Event::Hit);
        entry.touch();
        Some(Reply::Ready(response))
    }

    /// The same for who has waited for the fetch that this entry came by.
    #[inline]
    pub(super) fn plain_collapsed(
        &self,
        exchange: &Exchange<'_>,
        entry: &Arc<Entry>,
        why: Forward,
    ) -> Option<Reply> {
        let prepared = self.prepared.as_ref().filter(|_| !self.policy.knows_everybody())?;
        let told = Told { collapsed: Some(why), detail: None };
        let (response, made_of) = prepared.plain_hit(exchange, told)?;
        if !Arc::ptr_eq(entry, &made_of) {
            return None;
        }
        self.counts.count(Event::Collapsed);
        entry.touch();
        Some(Reply::Ready(response))
    }

    /// What is stored, for a request for the whole, by a message that is there already.
    pub(super) fn hit(
        &self,
        exchange: &Exchange<'_>,
        entry: &Arc<Entry>,
        status: CacheStatus<'_>,
        told: Told,
    ) -> Option<Reply> {
        let response = self.prepared.as_ref()?.hit(exchange, (&self.store, entry), status, told)?;
        entry.touch();
        Some(Reply::Ready(response))
    }
}
