//! Stores of responses: one that is too small for what is asked for, a disk that is out of use, and a store that gets nothing.

use super::{Seen, bytes, of, percent};
use crate::window::{Sample, Window, all, over, round_up, share};
use std::time::Duration;
use tidegate_config::settings::CacheStore;
use tidegate_config::{duration_text, size_text};
use tidegate_modules::cache_desk::{DiskFigures, StoreFigures, TierFigures};
use tidegate_modules::status::Change;

/// Of what was fetched, and in the window, responses that had been stored not long ago and had to go.
const RETURNED: f64 = 0.1;
const RETURNED_TIMES: f64 = 100.0;
/// How many times as much is advised at most: an object may come back several times.
const MOST_GROWTH: u64 = 4;
/// Of the memory that is available, the part that a store may be advised to take.
const OF_AVAILABLE: u64 = 2;
/// Seconds that a disk is out of use.
const OUT: f64 = 30.0;
/// Of the requests to a store, those whose response was not to be stored; and requests in the window without which that is no matter.
const NOT_STORED: f64 = 0.9;
const ASKED: f64 = 200.0;

const MEBIBYTE: u64 = 1 << 20;

fn figures<'s>(sample: &'s Sample, name: &str) -> Option<&'s StoreFigures> {
    sample.info.stores.iter().find(|store| store.store == name)
}

/// A count of a store, 0 while there is none.
fn count<'n>(name: &'n str, of: impl Fn(&StoreFigures) -> u64 + 'n) -> impl Fn(&Sample) -> u64 + 'n {
    move |sample| figures(sample, name).map_or(0, &of)
}

pub(super) fn too_small(window: &Window<'_>) -> Vec<Seen> {
    window.settings().caches.iter().filter_map(|store| small_store(window, store)).collect()
}

fn small_store(window: &Window<'_>, store: &CacheStore) -> Option<Seen> {
    let (name, quoted) = (store.name.as_str(), store.name.clone());
    let window = &window.quoting(move |settings| {
        let store = settings.caches.iter().find(|store| store.name == quoted)?;
        Some((store.memory, store.disks.iter().map(|disk| disk.size).collect::<Vec<_>>()))
    });
    // What leaves the memory is on a disk, where there is one: only what leaves that is fetched again.
    let has_disks = !store.disks.is_empty();
    let of_tiers = move |store: &StoreFigures, of: fn(&TierFigures) -> u64| match has_disks {
        false => of(&store.memory),
        true => store.disks.iter().map(|disk| of(&disk.tier)).fold(0, u64::saturating_add),
    };
    let returned = window.risen(count(name, |store| of_tiers(store, |tier| tier.returned)));
    let returned_bytes = window.risen(count(name, |store| of_tiers(store, |tier| tier.returned_bytes)));
    let fetched = window.risen(count(name, |store| store.requests.misses));
    let ratio = all([over(share(returned, fetched), RETURNED), over(returned as f64, RETURNED_TIMES)]);
    let sentence = || {
        format!(
            "{returned} responses of {} were fetched again {} that had been stored and had to go for others, {} of what was fetched",
            subject(name),
            window.span(),
            percent(share(returned, fetched).min(1.0))
        )
    };
    of(window, subject(name), ratio, sentence, || larger(window, store, returned_bytes))
}

/// Room for what has come back as well.
fn larger(window: &Window<'_>, store: &CacheStore, returned: u64) -> Change {
    let how = format!("and so much more as has come back {}: {}", window.span(), bytes(returned));
    let grown = |old: u64, more: u64| {
        let new = old.saturating_add(more).min(old.saturating_mul(MOST_GROWTH));
        round_up(new as f64, MEBIBYTE)
    };
    let setting = |what: &str| format!("{} {what}", subject(&store.name));
    if let Some(first) = store.disks.first() {
        let more = returned / store.disks.len() as u64;
        let of = format!("disk {:?} size", first.path.display().to_string());
        let how = match store.disks.len() {
            1 => how,
            disks => format!("{how}, shared out over {disks} disks"),
        };
        return Change::of(&setting(&of), size_text(first.size), size_text(grown(first.size, more)), &how);
    }
    let processes = u64::from(window.settings().processes.max(1));
    let new = grown(store.memory, returned / processes);
    let more = (new - store.memory.min(new)).saturating_mul(processes);
    match window.now().host.available {
        Some(available) if more > available / OF_AVAILABLE => Change::told(format!(
            "give {} a disk: `disk \"/var/cache/tidegate/{}\" size={:?}`; it wants {} more, and the machine has {} of memory left",
            subject(&store.name),
            store.name,
            size_text(new.saturating_mul(MOST_GROWTH)),
            bytes(more),
            bytes(available)
        )),
        _ => Change::of(&setting("memory"), size_text(store.memory), size_text(new), &how),
    }
}

pub(super) fn disk_out(window: &Window<'_>) -> Vec<Seen> {
    let now = window.now();
    let mut seen = Vec::new();
    for store in &now.info.stores {
        for disk in &store.disks {
            let (Some(why), Some(since)) = (&disk.is_out, disk.out_since) else { continue };
            let seconds = u64::try_from(now.info.now.saturating_sub(since)).unwrap_or(0);
            let folder = disk.folder.display();
            let sentence = || {
                let out = duration_text(Duration::from_secs(seconds.max(1)));
                format!("the disk {folder} of {} is out of use for {out}: it {why}", subject(&store.store))
            };
            let subject = format!("{}, disk {folder}", subject(&store.store));
            seen.extend(of(window, subject, over(seconds as f64, OUT), sentence, || {
                repair(store, disk, why)
            }));
        }
    }
    seen
}

/// By what the folder is said to be.
fn repair(store: &StoreFigures, disk: &DiskFigures, why: &str) -> Change {
    let folder = disk.folder.display();
    let what = if why.starts_with("is full") {
        format!(
            "make room on its file system (`df {folder}`), or give the disk a smaller `size`: 2 % of the file system are to stay free"
        )
    } else if why.starts_with("holds") || why.starts_with("was written by") {
        format!("empty {folder}, or name another folder that is empty")
    } else if disk.is_stalled {
        return Change::told(format!(
            "see what its disk waits for: `dmesg`, `findmnt -T {folder}`; it is used again once it answers, and until then applications \
             are asked for what lies there"
        ));
    } else if why.starts_with("has vanished") {
        format!("bring {folder} back, such as by mounting its disk again")
    } else {
        format!("see what is wrong with it: `dmesg`, `ls -ld {folder}`, `findmnt -T {folder}`")
    };
    let meanwhile = match store.disks.iter().any(|other| other.is_out.is_none()) {
        true => "responses are stored on the other disks",
        false => "responses are stored in memory alone",
    };
    Change::told(format!("{what}; the server tries it every ten seconds, and until then {meanwhile}"))
}

pub(super) fn nothing_stored(window: &Window<'_>) -> Vec<Seen> {
    let stores = window.now().info.stores.iter();
    stores.filter_map(|store| unstored(window, &store.store)).collect()
}

fn unstored(window: &Window<'_>, name: &str) -> Option<Seen> {
    let (now, first) = (figures(window.now(), name)?, figures(window.first(), name));
    let risen = |why: &str, now: u64| {
        let before = first.and_then(|store| store.not_stored.iter().find(|(known, _)| known == why));
        now.saturating_sub(before.map_or(0, |(_, count)| *count))
    };
    let reasons = now.not_stored.iter().map(|(why, count)| (why.as_str(), risen(why, *count)));
    let (why, most) = reasons.clone().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0)?;
    let all_reasons: u64 = reasons.map(|(_, count)| count).fold(0, u64::saturating_add);
    // Of these the same was known.
    let passed = window.risen(count(name, |store| store.requests.passed));
    let asked = window.risen(count(name, |store| store.requests.asked()));
    let lost = share(all_reasons.saturating_add(passed), asked).min(1.0);
    let ratio = all([over(lost, NOT_STORED), over(asked as f64, ASKED)]);
    let sentence = || {
        format!(
            "of {asked} requests to {} {} {} got a response that was not to be stored, most of them since {} ({})",
            subject(name),
            window.span(),
            percent(lost),
            said(why),
            percent(share(most, all_reasons))
        )
    };
    of(window, subject(name), ratio, sentence, || Change::told(advice(name, why)))
}

/// What the word for a reason means: which field says it.
fn said(why: &str) -> &'static str {
    match why {
        "no-store" => "`Cache-Control` of the application says `no-store`",
        "private" => "`Cache-Control` of the application says `private`",
        "no-lifetime" => {
            "the application says neither `Cache-Control: max-age` nor `Expires`, and there is no `default-lifetime`"
        }
        "unusable" => "`Cache-Control` says that it is stale at once, and there is no `ETag` to ask with",
        "set-cookie" => "the application sets a cookie (`Set-Cookie`) and does not say `public`",
        "cookie" => "the requests have a `Cookie`, and the application does not say `public`",
        "authorization" => {
            "the requests have `Authorization`, or a login, and the application does not say `public`"
        }
        "vary-any" => "the application says `Vary: *`",
        "vary-client" => "`Vary` names `Cookie` or `User-Agent`, which each client has its own of",
        "vary-too-much" => "`Vary` names more fields than are kept",
        "status" => "their status is not one that is stored",
        "request-no-store" => "the requests say `Cache-Control: no-store`",
        _ => "they are answers of another kind than those that are stored",
    }
}

fn advice(name: &str, why: &str) -> String {
    let cache = subject(name);
    match why {
        "no-lifetime" | "unusable" => format!(
            "have the application send `Cache-Control: s-maxage=60` with what is for everybody, or say `default-lifetime 200 \"1m\"` in {cache}"
        ),
        "no-store" | "private" => format!(
            "have the application send `Cache-Control: public, s-maxage=60` with what is for everybody (settings never overrule its no), or take {cache} off routes \
             that are for one client: `cache off`"
        ),
        "cookie" => format!(
            "name the cookies that mean a user, so that others count for nothing: `bypass-cookies \"session\"` in {cache}; or have the application say `public`"
        ),
        "set-cookie" => "have the application set cookies only where it needs them, or say `public` with what is for everybody".to_owned(),
        "vary-any" | "vary-client" | "vary-too-much" => {
            "have the application name in `Vary` only what changes its answer, such as `Accept-Encoding`".to_owned()
        }
        _ => format!("take {cache} off routes whose answers are for one client: `cache off`; `tidegate explain` says what is looked up"),
    }
}

fn subject(name: &str) -> String {
    format!("cache {name:?}")
}
