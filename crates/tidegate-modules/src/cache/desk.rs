//! What operators ask of the stores of a process.

use super::directory::{CacheDirectory, Kept};
use super::disk_search::{Best, Search};
use super::disks;
use super::place::{EVERYWHERE, host, tags_of};
use super::policy::scheme_of;
use crate::cache_desk::{
    CacheDesk, EntryPlace, Found, KnownNotStored, ListWanted, Listed, PurgeWanted, PurgeWhat, Purged,
};
use crate::cache_desk::{
    DiskFigures, ShowWanted, Shown, StoreFigures, TierFigures, Unsearched, Verification,
};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_cache::disk::{self, Trouble};
use tidegate_cache::{
    DiskListed, Entry, Filter, Purge, StoredHead, any_port, group_mark, meant_hosts, tag_mark,
};
use tidegate_http::Authority;
use tidegate_http::cache::{Reason, groups};
use tidegate_http::path::without_dot_segments;
use tidegate_io::clock::wall_seconds;

/// A URL as stored responses know it.
struct Place {
    host: Box<str>,
    target: String,
}

impl Place {
    /// `None`: there is no host in it.
    fn of(url: &str) -> Option<Place> {
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let host = host(&scheme.to_ascii_lowercase(), Authority::parse(authority.as_bytes()).ok()?);
        let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
        let path = if path.is_empty() { "/".into() } else { without_dot_segments(path) };
        Some(Place { host, target: format!("{path}{query}") })
    }
}

impl CacheDesk for CacheDirectory {
    fn purge(&self, wanted: &PurgeWanted) -> Purged {
        let now = wall_seconds();
        let stores = self.named(wanted.store.as_deref());
        let mut entries = 0;
        let mut purge = |kept: &Kept, what: &Purge<'_>, filter: &Filter<'_>| {
            entries += kept.store.entries(filter, MOST_COUNTED).len() as u64;
            kept.store.purge(what, wanted.is_soft, now);
        };
        let all = Filter::default();
        for kept in &stores {
            match &wanted.what {
                PurgeWhat::All => purge(kept, &Purge::All, &all),
                PurgeWhat::Host(host) => {
                    let host = host.to_ascii_lowercase();
                    purge(kept, &Purge::Host(&host), &Filter { meant_host: Some(&host), ..all });
                }
                PurgeWhat::Url(url) => {
                    let Some(Place { host, target }) = Place::of(url) else { return Purged::default() };
                    for target in kept.queries.counting(&target) {
                        let url = Filter { host: Some(&host), target: Some(&target), ..all };
                        purge(kept, &Purge::Url { host: &host, target: &target }, &url);
                    }
                    if let Some(path) = kept.queries.searched(&target) {
                        kept.store.purge(&Purge::Searches { host: &host, path }, wanted.is_soft, now);
                    }
                }
                PurgeWhat::Prefix(url) => {
                    let Some(Place { host, target }) = Place::of(url) else { return Purged::default() };
                    let filter = Filter { host: Some(&host), prefix: Some(&target), ..all };
                    purge(kept, &Purge::Prefix { host: &host, prefix: &target }, &filter);
                }
                PurgeWhat::Tag { name, host } => {
                    for mark in scopes(host.as_deref()).iter().map(|scope| tag_mark(scope, name.as_bytes())) {
                        purge(kept, &Purge::Mark(mark), &Filter { mark: Some(mark), ..all });
                    }
                }
                PurgeWhat::Group { name, host } => {
                    for mark in scopes(host.as_deref()).iter().map(|scope| group_mark(scope, name.as_bytes()))
                    {
                        purge(kept, &Purge::Mark(mark), &Filter { mark: Some(mark), ..all });
                    }
                }
            }
        }
        let stores: Vec<_> = stores.into_iter().map(|kept| kept.store).collect();
        disks::note_purges(&stores, NOTING_PATIENCE);
        Purged { entries, is_marked: stores.iter().any(|store| store.has_disks()) }
    }

    fn list(&self, wanted: &ListWanted) -> Found<Listed> {
        let place = wanted.prefix.as_deref().and_then(Place::of);
        if wanted.prefix.is_some() && place.is_none() {
            return Found::default();
        }
        let host = wanted.host.as_ref().map(|host| host.to_ascii_lowercase());
        let filter = Filter {
            host: place.as_ref().map(|place| &*place.host),
            meant_host: host.as_deref(),
            prefix: place.as_ref().map(|place| place.target.as_str()),
            mark: wanted.tag.as_ref().map(|tag| tag_mark(EVERYWHERE, tag.as_bytes())),
            ..Filter::default()
        };
        let (mut found, search) = (Found::default(), Search::begin());
        let (most, order) = (wanted.most as usize, Some(wanted.sort.order()));
        let mut best = Best::new(most, order);
        for kept in self.opened(wanted.store.as_deref()) {
            found.unsearched.extend(kept.opening.silent().into_iter().map(unsearched));
            let name = kept.store.name().to_owned();
            for entry in kept.store.entries(&filter, usize::MAX) {
                best.add(told(&name, &entry));
            }
            let below = search
                .carry_out(&kept.store, &filter, (most, order), move |listed| told_of_disk(&name, listed));
            for listed in below.entries {
                best.add(listed);
            }
            found.unsearched.extend(below.unsearched);
        }
        found.entries = best.take();
        found
    }

    fn show(&self, wanted: &ShowWanted) -> Found<Shown> {
        let Some(Place { host, target }) = Place::of(&wanted.url) else { return Found::default() };
        let (mut found, search) = (Found::default(), Search::begin());
        for kept in self.opened(wanted.store.as_deref()) {
            found.unsearched.extend(kept.opening.silent().into_iter().map(unsearched));
            for target in kept.queries.counting(&target) {
                let filter = Filter { host: Some(&host), target: Some(&target), ..Filter::default() };
                let (entries, name) = (kept.store.entries(&filter, MOST_SHOWN), kept.store.name().to_owned());
                found.entries.extend(entries.iter().map(|entry| shown(&name, entry)));
                found.known.extend(known(&kept, &host, &target));
                let below = search.carry_out(&kept.store, &filter, (MOST_SHOWN, None), move |listed| {
                    shown_of_disk(&name, listed)
                });
                found.entries.extend(below.entries);
                found.unsearched.extend(below.unsearched);
            }
        }
        found
    }

    fn figures(&self, store: Option<&str>) -> Vec<StoreFigures> {
        let told = |kept: Kept| {
            let figures = kept.store.figures();
            StoreFigures {
                store: kept.store.name().to_owned(),
                memory: TierFigures {
                    entries: figures.entries,
                    bytes: figures.bytes,
                    limit: figures.limit,
                    evicted: figures.evicted,
                    returned: figures.returned.objects,
                    returned_bytes: figures.returned.bytes,
                },
                held: figures.held,
                disks: kept
                    .store
                    .disk_figures()
                    .into_iter()
                    .filter(|disk| !disk.is_closed)
                    .map(disk_told)
                    .chain(kept.opening.silent().into_iter().map(silent_told))
                    .collect(),
                requests: kept.counts.requests(),
                stored: figures.fills,
                without_room: figures.refused + figures.passed_on,
                broken_off: figures.broken,
                not_stored: kept.counts.not_stored(figures.too_large),
                fetches: figures.filling,
                purged: figures.purged,
            }
        };
        self.named(store).into_iter().map(told).collect()
    }

    fn verify(&self, store: Option<&str>, run: u64) -> Verification {
        let mut told = self
            .verifying
            .ask(store, run, || self.opened(store).into_iter().map(|kept| kept.store).collect());
        let silent = self.named(store).into_iter().flat_map(|kept| kept.opening.silent());
        told.unsearched.extend(silent.map(unsearched));
        told
    }
}

/// The same, where something was looked for.
fn unsearched((folder, _): (PathBuf, i64)) -> Unsearched {
    Unsearched { folder, why: Trouble::Stalled.to_string() }
}

/// A folder that has never answered yet.
fn silent_told((folder, since): (PathBuf, i64)) -> DiskFigures {
    DiskFigures {
        folder,
        out_since: Some(since),
        is_out: Some(Trouble::Stalled.to_string()),
        is_stalled: true,
        ..DiskFigures::default()
    }
}

/// Where tags and groups of a host are looked for: a name without a port means all ports.
fn scopes(host: Option<&str>) -> Vec<String> {
    let Some(host) = host.map(str::to_ascii_lowercase) else { return vec![EVERYWHERE.to_owned()] };
    meant_hosts(&host)
        .map_or_else(|| vec![any_port(&host)], |hosts| hosts.into_iter().map(str::to_owned).collect())
}

fn disk_told(figures: disk::DiskFigures) -> DiskFigures {
    let is_of_another = figures.trouble == Some(Trouble::Owned);
    DiskFigures {
        folder: figures.folder,
        tier: TierFigures {
            entries: figures.objects,
            bytes: figures.used,
            limit: figures.limit,
            evicted: figures.evicted,
            returned: figures.returned.objects,
            returned_bytes: figures.returned.bytes,
        },
        out_since: figures.trouble_since.filter(|_| !is_of_another),
        is_out: figures.trouble.filter(|_| !is_of_another).map(|trouble| trouble.to_string()),
        is_stalled: figures.is_stalled,
        broken_pieces: figures.broken,
        is_of_another,
    }
}

/// How long disks are waited for to note a purge. One that is slower notes it when it is tended.
const NOTING_PATIENCE: Duration = Duration::from_secs(2);
/// Responses of a purge that are counted at most, in one store.
const MOST_COUNTED: usize = 100_000;
/// Variants of one URL that are shown at most, in one store.
const MOST_SHOWN: usize = 1000;

/// What is known of a URL that is not stored.
fn known(kept: &Kept, host: &str, target: &str) -> Vec<KnownNotStored> {
    let known = kept.store.known_unstorable(host, target, wall_seconds()).into_iter();
    let told = |(why, left): (Reason, i64)| KnownNotStored {
        store: kept.store.name().to_owned(),
        reason: why.as_str().to_owned(),
        text: why.text().to_owned(),
        seconds: left.unsigned_abs(),
    };
    known.map(told).collect()
}

fn told(store: &str, entry: &Entry) -> Listed {
    let (head, content, freshness, now) = (entry.head(), entry.content(), entry.freshness(), wall_seconds());
    let place = match content.file() {
        _ if !content.is_complete() && !content.is_part() => EntryPlace::Filling,
        Some(_) => EntryPlace::Disk,
        None => EntryPlace::Memory,
    };
    Listed {
        store: store.to_owned(),
        url: format!("{}://{}{}", scheme_of(entry.key()), head.host, head.target),
        status: head.status,
        size: content.filled(),
        age: u64::from(freshness.age(now)),
        ttl: freshness.ttl(now),
        uses: u64::from(entry.uses_count()),
        place,
    }
}

fn told_of_disk(store: &str, listed: &DiskListed) -> Listed {
    let (head, now) = (&listed.head, wall_seconds());
    Listed {
        store: store.to_owned(),
        url: format!("{}://{}{}", scheme_of(&listed.key), head.host, head.target),
        status: head.status,
        size: listed.len,
        age: u64::from(head.freshness.age(now)),
        ttl: head.freshness.ttl(now),
        uses: 0,
        place: EntryPlace::Disk,
    }
}

fn shown(store: &str, entry: &Entry) -> Shown {
    let is_complete = entry.content().is_complete();
    show_head(told(store, entry), entry.head(), None, is_complete)
}

fn shown_of_disk(store: &str, listed: &DiskListed) -> Shown {
    show_head(told_of_disk(store, listed), &listed.head, Some(listed.file.clone()), listed.is_whole)
}

fn show_head(entry: Listed, head: &StoredHead, file: Option<PathBuf>, is_complete: bool) -> Shown {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let varies_by = head.varying.told();
    let (tags, unnamed_tags) = tags_of(head);
    Shown {
        entry,
        varies_by: varies_by
            .map(|(name, value)| (name.to_owned(), text(value.unwrap_or_default())))
            .collect(),
        fields: head.lines.iter().map(|(name, value)| (name.to_owned(), text(value))).collect(),
        lifetime_from: head.freshness.source.as_str().to_owned(),
        tags,
        unnamed_tags,
        groups: groups::groups(&head.lines),
        file,
        is_complete,
    }
}
