//! What is stale (RFC 5861): sent while the application is asked behind the client's back, or where it has failed.

use super::counts::Event;
use super::fetch::For;
use super::filling::Unattended;
use super::{Asking, Shared};
use std::sync::Arc;
use tidegate_cache::{Entry, Join};
use tidegate_core::{Author, Exchange, Pass, Reply, Response};
use tidegate_http::Status;
use tidegate_http::cache::{self, CacheStatus, Reason};

/// How a fetch has failed.
pub(super) enum Failed {
    /// The application has said so.
    Answered(Status),
    Unanswered,
    /// It was that of another request.
    ForAnother,
}

/// How, by what would have been sent.
pub(super) fn failed(response: &Response) -> Failed {
    match response.author {
        Author::Application | Author::DatedApplication => Failed::Answered(response.status),
        _ => Failed::Unanswered,
    }
}

impl Shared {
    /// Asks whether what was just sent still holds. Who else asks meanwhile gets it as well, for as long as that is allowed.
    pub(super) fn refresh_behind(&self, exchange: &mut Exchange<'_>, pass: Pass, asking: &Asking) {
        let is_due = |entry: &Arc<Entry>| entry.may_be_refreshed(exchange.now);
        if !asking.finding.fitting.as_ref().is_none_or(is_due) {
            return; // it was tried a moment ago, in vain
        }
        let Some(unattended) = Unattended::begin(&self.unattended) else { return };
        if let Join::Lead(lead) = self.join(exchange, &asking.finding) {
            self.fetch(exchange, pass, lead, asking, For::Nobody(unattended));
        }
    }

    /// What is stored, where the application has failed and that is good enough (RFC 5861 section 4).
    pub(super) fn in_need(
        &self,
        exchange: &mut Exchange<'_>,
        asking: &Asking,
        failed: Failed,
    ) -> Option<Reply> {
        let entry = asking.finding.fitting.as_ref()?;
        let freshness = entry.freshness();
        if !cache::usable_on_error(&self.policy.asked(exchange), &freshness, exchange.now) {
            return None;
        }
        // No hit: the request went on, and what it came to is not what the client gets (RFC 9211 sections 2.1 to 2.3).
        let status = CacheStatus::forwarded(self.policy.name(), asking.forward);
        let status = match failed {
            Failed::Answered(answered) => status.forward_status(answered),
            Failed::Unanswered => status,
            Failed::ForAnother => status.collapsed(true),
        };
        self.counts.count(Event::StaleHit);
        self.serve(
            exchange,
            entry,
            status.ttl(freshness.ttl(exchange.now)),
            Some(Reason::StaleIfError.into()),
        )
    }
}
