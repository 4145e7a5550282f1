//! Where a request is addressed to: what stored responses are purged by.

use super::policy::{Policy, authority};
use super::queries::Queries;
use std::sync::Arc;
use tidegate_cache::{Change, Lead, Origin, Purge, Store, StoredHead, any_port, group_mark, tag_mark};
use tidegate_core::{Exchange, Response};
use tidegate_http::cache::{Base, Freshness, Varying, groups, invalidated};
use tidegate_http::{Authority, FieldLines, Method};

/// In place of a host or an origin: what an operator names without one. No answer reaches so far.
pub(super) const EVERYWHERE: &str = "*";

/// Bytes of the names of tags that are kept of a response.
const MOST_NAME_BYTES: usize = 1024;
/// Marks of a tag; a group has one more, for its origin.
const SCOPES: usize = 3;

/// Host and target of a request, whose query is what keys have of it, or as it came.
pub(super) struct Place {
    site: u64,
    scheme: &'static str,
    host: Box<str>,
    target: Box<str>,
}

impl Place {
    pub(super) fn of(policy: &Policy, exchange: &Exchange<'_>) -> Place {
        Place {
            site: policy.site,
            scheme: exchange.scheme,
            host: host(exchange.scheme, authority(exchange)),
            target: policy.counting(&exchange.resolved_target()).into(),
        }
    }

    /// A fetch of it.
    pub(super) fn fetched_by(&self, lead: Lead) -> Lead {
        lead.about(self.site, &self.host, &self.target)
    }

    /// With the query as it came: what it changes may be stored by the rules of other routes.
    pub(super) fn as_sent(policy: &Policy, exchange: &Exchange<'_>) -> Place {
        Place { target: exchange.resolved_target().into(), ..Place::of(policy, exchange) }
    }

    /// Groups are its own (RFC 9875 section 2).
    fn origin(&self) -> Origin<'_> {
        Origin { site: self.site, scheme: self.scheme, host: &self.host }
    }

    /// What is stored of a response from here. `answered` are its fields as they came.
    pub(super) fn head(
        &self,
        policy: &Policy,
        (status, lines): (u16, FieldLines),
        (freshness, varying): (Freshness, Varying),
        answered: &FieldLines,
    ) -> StoredHead {
        let tags = [self.tag_marks(policy, answered), self.group_marks(answered)].concat().into();
        let tag_names = tag_names(policy.tags(answered));
        let (site, host, target) = (self.site, self.host.clone(), self.target.clone());
        StoredHead { status, lines, freshness, varying, tags, tag_names, site, host, target }
    }

    /// What a stored response is purged by once a 304 with these fields, as they came, has confirmed it: what it says anew takes the place
    /// of what was said (RFC 9111 section 3.2), all tags that of all tags. The second is their names.
    pub(super) fn confirmed_tags(
        &self,
        policy: &Policy,
        old: &StoredHead,
        answered: &FieldLines,
    ) -> (Box<[u64]>, Box<[u8]>) {
        let old_groups = self.group_marks(&old.lines);
        let (tags, names) = match policy.has_tags(answered) {
            true => (self.tag_marks(policy, answered), tag_names(policy.tags(answered))),
            false => {
                let tags = old.tags.iter().filter(|tag| !old_groups.contains(tag)).copied().collect();
                (tags, old.tag_names.clone())
            }
        };
        let groups = if answered.contains("Cache-Groups") { self.group_marks(answered) } else { old_groups };
        ([tags, groups].concat().into(), names)
    }

    fn tag_marks(&self, policy: &Policy, answered: &FieldLines) -> Vec<u64> {
        let scopes = self.scopes();
        policy.tags(answered).flat_map(|tag| scopes.each_ref().map(|scope| tag_mark(scope, tag))).collect()
    }

    /// For its origin, and for operators.
    fn group_marks(&self, answered: &FieldLines) -> Vec<u64> {
        let scopes = self.scopes();
        let marks = |group: &String| {
            let group = group.as_bytes();
            let of_operators = scopes.each_ref().map(|scope| group_mark(scope, group));
            [self.origin().group_mark(group)].into_iter().chain(of_operators)
        };
        groups::groups(answered).iter().flat_map(marks).collect()
    }

    /// Where operators look for a tag or a group.
    fn scopes(&self) -> [String; SCOPES] {
        [self.host.to_string(), any_port(&self.host), EVERYWHERE.to_owned()]
    }

    /// A request that is not safe has been answered: what it may have changed is asked for anew (RFC 9111 section 4.4), by all
    /// processes of the server. `queries` are the rules of all routes that use the store.
    pub(super) fn changed(
        &self,
        (store, queries): (&Arc<Store>, &Queries),
        method: Method,
        response: &Response,
        now: i64,
    ) {
        let Ok(authority) = Authority::parse(self.host.as_bytes()) else { return };
        let base = Base { scheme: self.scheme, authority, target: &self.target };
        let gone = invalidated(method, response.status, &base, response.head.lines());
        for target in gone.targets.iter().flat_map(|target| queries.counting(target)) {
            store.purge(&Purge::Changed(self.origin(), Change::Url(&target)), false, now);
        }
        for path in gone.targets.iter().filter_map(|target| queries.searched(target)) {
            store.purge(&Purge::Changed(self.origin(), Change::Searches(path)), false, now);
        }
        for group in &gone.groups {
            store.purge(&Purge::Changed(self.origin(), Change::Group(group.as_bytes())), false, now);
        }
    }
}

/// Names of tags as they are kept, the first that fit.
fn tag_names<'t>(tags: impl Iterator<Item = &'t [u8]>) -> Box<[u8]> {
    let mut names = Vec::new();
    for tag in tags {
        if names.len() + 1 + tag.len() > MOST_NAME_BYTES {
            continue;
        }
        if !names.is_empty() {
            names.push(b' ');
        }
        names.extend_from_slice(tag);
    }
    names.into()
}

/// The tags of a stored response whose names are kept, and how many others it has.
pub(super) fn tags_of(head: &StoredHead) -> (Vec<String>, usize) {
    let words = head.tag_names.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let names: Vec<_> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let of_groups = groups::groups(&head.lines).len() * (SCOPES + 1);
    let all = head.tags.len().saturating_sub(of_groups) / SCOPES;
    let others = all.saturating_sub(names.len());
    (names, others)
}

/// A host in small letters, with a port where that is not the scheme's own.
pub(super) fn host(scheme: &str, authority: Authority<'_>) -> Box<str> {
    let name = authority.host.to_ascii_lowercase();
    let own = if scheme == "https" { 443 } else { 80 };
    match authority.port.filter(|port| *port != own) {
        Some(port) => format!("{name}:{port}").into(),
        None => name.into(),
    }
}
