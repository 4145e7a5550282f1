//! Where a request is addressed to: what stored responses are purged by.

use super::policy::{Policy, authority, target};
use std::sync::Arc;
use tidegate_cache::{Purge, Store, StoredHead, group_mark, tag_mark};
use tidegate_core::{Exchange, Response};
use tidegate_http::cache::{Base, Freshness, Varying, groups, invalidated};
use tidegate_http::{Authority, FieldLines, Method};

/// In place of a host or an origin: what an operator names without one. No answer reaches so far.
pub(super) const EVERYWHERE: &str = "*";

/// Host and target of a request, whose query is what keys have of it.
pub(super) struct Place {
    scheme: &'static str,
    host: Box<str>,
    target: Box<str>,
}

impl Place {
    pub(super) fn of(policy: &Policy, exchange: &Exchange<'_>) -> Place {
        Place {
            scheme: exchange.scheme,
            host: host(exchange.scheme, authority(exchange)),
            target: policy.counting(&target(exchange)).into(),
        }
    }

    /// What purges know the origin by: groups are its own (RFC 9875 section 2).
    fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.host)
    }

    /// What is stored of a response from here. `answered` are its fields as they came.
    pub(super) fn head(
        &self,
        policy: &Policy,
        (status, lines): (u16, FieldLines),
        (freshness, varying): (Freshness, Varying),
        answered: &FieldLines,
    ) -> StoredHead {
        let origin = self.origin();
        let groups = groups::groups(answered);
        let groups = groups.iter().map(|group| group.as_bytes());
        let groups = groups.flat_map(|group| [group_mark(&origin, group), group_mark(EVERYWHERE, group)]);
        let tags = policy.tags(answered);
        let tags = tags.flat_map(|tag| [tag_mark(&self.host, tag), tag_mark(EVERYWHERE, tag)]);
        let tags = tags.chain(groups).collect();
        let (host, target) = (self.host.clone(), self.target.clone());
        StoredHead { status, lines, freshness, varying, tags, host, target }
    }

    /// A request that is not safe has been answered: what it may have changed is asked for anew (RFC 9111 section 4.4).
    pub(super) fn changed(
        &self,
        (store, policy): (&Arc<Store>, &Policy),
        method: Method,
        response: &Response,
        now: i64,
    ) {
        let Ok(authority) = Authority::parse(self.host.as_bytes()) else { return };
        let base = Base { scheme: self.scheme, authority, target: &self.target };
        let gone = invalidated(method, response.status, &base, response.head.lines());
        for target in &gone.targets {
            store.purge(&Purge::Url { host: &self.host, target: &policy.counting(target) }, false, now);
        }
        let origin = self.origin();
        for group in &gone.groups {
            store.purge(&Purge::Mark(group_mark(&origin, group.as_bytes())), false, now);
        }
    }
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
