//! What operators ask of the stores of a process.

use super::directory::{CacheDirectory, Kept};
use super::disks;
use super::place::{EVERYWHERE, host};
use super::policy::scheme_of;
use crate::cache_desk::{CacheDesk, EntryPlace, ListWanted, Listed, PurgeWanted, PurgeWhat, Purged};
use crate::cache_desk::{DiskFigures, ShowWanted, Shown, StoreFigures, TierFigures, Verification};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_cache::disk::{self, Trouble};
use tidegate_cache::{DiskListed, Entry, Filter, Purge, StoredHead, group_mark, tag_mark};
use tidegate_http::Authority;
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
        let slash = if target.starts_with('/') { "" } else { "/" };
        Some(Place { host, target: format!("{slash}{target}") })
    }
}

impl CacheDesk for CacheDirectory {
    fn purge(&self, wanted: &PurgeWanted) -> Purged {
        let now = wall_seconds();
        let stores = self.named(wanted.store.as_deref());
        let mut entries = 0;
        let mut purge = |what: &Purge<'_>, filter: &Filter<'_>| {
            for kept in &stores {
                let found = kept.store.entries(filter, MOST_COUNTED);
                let is_meant = |entry: &&Arc<Entry>| match what {
                    Purge::Url { target, .. } => *entry.head().target == **target,
                    _ => true,
                };
                entries += found.iter().filter(is_meant).count() as u64;
                kept.store.purge(what, wanted.is_soft, now);
            }
        };
        let scope = |host: &Option<String>| host.as_deref().unwrap_or(EVERYWHERE).to_ascii_lowercase();
        let all = Filter::default();
        match &wanted.what {
            PurgeWhat::All => purge(&Purge::All, &all),
            PurgeWhat::Host(host) => {
                let host = host.to_ascii_lowercase();
                purge(&Purge::Host(&host), &Filter { host: Some(&host), ..all });
            }
            PurgeWhat::Url(url) | PurgeWhat::Prefix(url) => {
                let Some(Place { host, target }) = Place::of(url) else { return Purged::default() };
                let filter = Filter { host: Some(&host), prefix: Some(&target), ..all };
                match &wanted.what {
                    PurgeWhat::Url(_) => purge(&Purge::Url { host: &host, target: &target }, &filter),
                    _ => purge(&Purge::Prefix { host: &host, prefix: &target }, &filter),
                }
            }
            PurgeWhat::Tag { name, host } => {
                let mark = tag_mark(&scope(host), name.as_bytes());
                purge(&Purge::Mark(mark), &Filter { mark: Some(mark), ..all });
            }
            PurgeWhat::Group { name, host } => {
                let of_host = |host: &String| {
                    ["http", "https"]
                        .map(|scheme| format!("{scheme}://{}", host.to_ascii_lowercase()))
                        .to_vec()
                };
                for origin in host.as_ref().map_or_else(|| vec![EVERYWHERE.to_owned()], of_host) {
                    let mark = group_mark(&origin, name.as_bytes());
                    purge(&Purge::Mark(mark), &Filter { mark: Some(mark), ..all });
                }
            }
        }
        let stores: Vec<_> = stores.into_iter().map(|kept| kept.store).collect();
        disks::note_purges(&stores, NOTING_PATIENCE);
        Purged { entries, is_marked: true }
    }

    fn list(&self, wanted: &ListWanted) -> Vec<Listed> {
        let place = wanted.prefix.as_deref().and_then(Place::of);
        if wanted.prefix.is_some() && place.is_none() {
            return Vec::new();
        }
        let host = wanted.host.as_ref().map(|host| host.to_ascii_lowercase());
        let scope = host.as_deref().unwrap_or(EVERYWHERE);
        let filter = Filter {
            host: place.as_ref().map(|place| &*place.host).or(host.as_deref()),
            prefix: place.as_ref().map(|place| place.target.as_str()),
            mark: wanted.tag.as_ref().map(|tag| tag_mark(scope, tag.as_bytes())),
        };
        let mut found = Vec::new();
        for kept in self.named(wanted.store.as_deref()) {
            let most = (wanted.most as usize).saturating_sub(found.len());
            found.extend(kept.store.entries(&filter, most).iter().map(|entry| told(&kept, entry)));
            let most = (wanted.most as usize).saturating_sub(found.len());
            found.extend(
                kept.store.list_disks(&filter, most).iter().map(|listed| told_of_disk(&kept, listed)),
            );
        }
        found
    }

    fn show(&self, wanted: &ShowWanted) -> Vec<Shown> {
        let Some(Place { host, target }) = Place::of(&wanted.url) else { return Vec::new() };
        let filter = Filter { host: Some(&host), prefix: Some(&target), mark: None };
        let mut found = Vec::new();
        for kept in self.named(wanted.store.as_deref()) {
            let entries = kept.store.entries(&filter, MOST_SHOWN);
            let same = entries.iter().filter(|entry| *entry.head().target == *target);
            found.extend(same.map(|entry| shown(&kept, entry)));
            let listed = kept.store.list_disks(&filter, MOST_SHOWN);
            let same = listed.iter().filter(|listed| *listed.head.target == *target);
            found.extend(same.map(|listed| shown_of_disk(&kept, listed)));
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
                disks: kept
                    .store
                    .disk_figures()
                    .into_iter()
                    .filter(|disk| !disk.is_closed)
                    .map(disk_told)
                    .collect(),
                requests: kept.counts.requests(),
                stored: figures.fills,
                without_room: figures.refused + figures.passed_on,
                broken_off: figures.broken,
                not_stored: kept.counts.not_stored(),
                fetches: figures.filling,
                purged: figures.purged,
            }
        };
        self.named(store).into_iter().map(told).collect()
    }

    fn verify(&self, store: Option<&str>) -> Verification {
        self.verifying.ask(store, || self.named(store).into_iter().map(|kept| kept.store).collect())
    }
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

fn told(kept: &Kept, entry: &Entry) -> Listed {
    let (head, content, freshness, now) = (entry.head(), entry.content(), entry.freshness(), wall_seconds());
    let place = match (content.is_complete(), content.file()) {
        (false, _) => EntryPlace::Filling,
        (true, Some(_)) => EntryPlace::Disk,
        (true, None) => EntryPlace::Memory,
    };
    Listed {
        store: kept.store.name().to_owned(),
        url: format!("{}://{}{}", scheme_of(entry.key()), head.host, head.target),
        status: head.status,
        size: content.filled(),
        age: u64::from(freshness.age(now)),
        ttl: freshness.ttl(now),
        uses: u64::from(entry.uses_count()),
        place,
    }
}

fn told_of_disk(kept: &Kept, listed: &DiskListed) -> Listed {
    let (head, now) = (&listed.head, wall_seconds());
    Listed {
        store: kept.store.name().to_owned(),
        url: format!("{}://{}{}", scheme_of(&listed.key), head.host, head.target),
        status: head.status,
        size: listed.len,
        age: u64::from(head.freshness.age(now)),
        ttl: head.freshness.ttl(now),
        uses: 0,
        place: EntryPlace::Disk,
    }
}

fn shown(kept: &Kept, entry: &Entry) -> Shown {
    let is_complete = entry.content().is_complete();
    show_head(told(kept, entry), entry.head(), None, is_complete)
}

fn shown_of_disk(kept: &Kept, listed: &DiskListed) -> Shown {
    show_head(told_of_disk(kept, listed), &listed.head, Some(listed.file.clone()), true)
}

fn show_head(entry: Listed, head: &StoredHead, file: Option<PathBuf>, is_complete: bool) -> Shown {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let varies_by = head.varying.told();
    Shown {
        entry,
        varies_by: varies_by
            .map(|(name, value)| (name.to_owned(), text(value.unwrap_or_default())))
            .collect(),
        fields: head.lines.iter().map(|(name, value)| (name.to_owned(), text(value))).collect(),
        lifetime_from: head.freshness.source.as_str().to_owned(),
        tags: Vec::new(),
        file,
        is_complete,
    }
}
