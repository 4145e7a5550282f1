//! Answers of stores as text.

use crate::cli::units;
use std::fmt::Write;
use tidegate_modules::cache_desk::{
    CacheReply, DiskFigures, Listed, Purged, Shown, StoreFigures, TierFigures, Verification,
};
use tidegate_modules::status::printable;

/// An answer for a person.
pub fn text(reply: &CacheReply) -> String {
    match reply {
        CacheReply::Purged(purged) => self::purged(*purged, false),
        CacheReply::Listed(entries) => listed(entries),
        CacheReply::Shown(shown) => self::shown(shown),
        CacheReply::Figures(stores) if stores.is_empty() => "No store is in use.\n".to_owned(),
        CacheReply::Figures(stores) => stores.iter().map(store).collect::<Vec<_>>().join("\n"),
        CacheReply::Verified(verified) => verification(verified),
    }
}

/// What a purge has done.
pub fn purged(purged: Purged, is_soft: bool) -> String {
    let what = if is_soft { "stale from now on" } else { "purged" };
    let responses = match purged.entries {
        0 => "no response was found".to_owned(),
        1 => format!("1 response is {what}"),
        many => format!("{many} responses are {what}"),
    };
    match purged.is_marked {
        true => format!("{responses}; whatever else is meant is marked: it is not used any more as it is\n"),
        false => format!("{responses}\n"),
    }
}

fn listed(entries: &[Listed]) -> String {
    if entries.is_empty() {
        return "Nothing of that is stored.\n".to_owned();
    }
    let mut out = "STATUS    SIZE     AGE     TTL  USES  PLACE    STORE       URL\n".to_owned();
    for entry in entries {
        let Listed { store, url, status, size, age, ttl, uses, place } = entry;
        let (size, age) = (units::bytes(*size as f64), units::seconds(*age as f64));
        let _ = writeln!(
            out,
            "{status:>6} {size:>7} {age:>7} {:>7} {uses:>5}  {:<7}  {:<10}  {}",
            time_left(*ttl),
            place.as_str(),
            printable(store),
            printable(url)
        );
    }
    out
}

fn time_left(ttl: i64) -> String {
    let shown = units::seconds(ttl.unsigned_abs() as f64);
    if ttl < 0 { format!("-{shown}") } else { shown }
}

fn shown(entries: &[Shown]) -> String {
    if entries.is_empty() {
        return "Nothing is stored under this URL.\n".to_owned();
    }
    let mut out = String::new();
    for (at, shown) in entries.iter().enumerate() {
        let Shown { entry, varies_by, fields, lifetime_from, tags, file, is_complete } = shown;
        if at > 0 {
            out.push('\n');
        }
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "{name:<12}{}", printable(value));
        };
        line("url", &entry.url);
        line("store", &entry.store);
        line("status", &entry.status.to_string());
        let part = if *is_complete { "" } else { ", and not all of it" };
        line("content", &format!("{} in {}{part}", units::bytes(entry.size as f64), entry.place.as_str()));
        line("age", &units::seconds(entry.age as f64));
        let left = match entry.ttl {
            0.. => format!("{} more, from {lifetime_from}", time_left(entry.ttl)),
            _ => format!("stale for {}, from {lifetime_from}", time_left(entry.ttl).trim_start_matches('-')),
        };
        line("lifetime", &left);
        line("uses", &entry.uses.to_string());
        for (name, value) in varies_by {
            line("varies by", &format!("{name}: {value}"));
        }
        if !tags.is_empty() {
            line("tags", &tags.join(" "));
        }
        if let Some(file) = file {
            line("file", &file.display().to_string());
        }
        for (name, value) in fields {
            line("", &format!("{name}: {value}"));
        }
    }
    out
}

fn store(figures: &StoreFigures) -> String {
    let StoreFigures { store, memory, disks, requests, stored, without_room, not_stored, fetches, .. } =
        figures;
    let (broken_off, purged) = (figures.broken_off, figures.purged);
    let mut out = format!("cache {}\n", printable(store));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<12}{value}");
    };
    line("memory", tier(memory));
    for disk in disks {
        line("disk", folder(disk));
    }
    let share = requests.hit_ratio().unwrap_or(0.0) * 100.0;
    line(
        "requests",
        format!(
            "{} hits ({share:.1} %), {} of them stale; {} confirmed, {} fetched, {} of them known not to be stored, {} shared a fetch, {} bypassed",
            requests.hits,
            requests.stale_hits,
            requests.revalidated,
            requests.misses,
            requests.passed,
            requests.collapsed,
            requests.bypassed
        ),
    );
    line(
        "stored",
        format!(
            "{stored}; {without_room} had no room; {broken_off} broke off; {purged} purged; {fetches} being fetched"
        ),
    );
    for (reason, count) in not_stored {
        line("not stored", format!("{count} for {}", printable(reason)));
    }
    out
}

fn tier(figures: &TierFigures) -> String {
    let TierFigures { entries, bytes, limit, evicted, returned, .. } = figures;
    let (bytes, limit) = (units::bytes(*bytes as f64), units::bytes(*limit as f64));
    format!(
        "{entries} responses, {bytes} of {limit}, {evicted} evicted, {returned} of them fetched again soon"
    )
}

fn folder(disk: &DiskFigures) -> String {
    let folder = printable(&disk.folder.display().to_string());
    if disk.is_of_another {
        return format!("{folder}: another process has it");
    }
    let broken = match disk.broken_pieces {
        0 => String::new(),
        pieces => format!(", {pieces} pieces were broken"),
    };
    let out = disk.is_out.as_ref().map(|why| format!(", out of use: {}", printable(why))).unwrap_or_default();
    format!("{folder}: {}{broken}{out}", tier(&disk.tier))
}

fn verification(verified: &Verification) -> String {
    let Verification { files, pieces, broken, unread, .. } = verified;
    let mut out = format!("{files} files with {pieces} pieces were read, {} are broken\n", broken.len());
    for path in broken {
        let _ = writeln!(out, "broken, and removed: {}", printable(&path.display().to_string()));
    }
    for (path, why) in unread {
        let _ = writeln!(out, "not read: {}: {}", printable(&path.display().to_string()), printable(why));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_modules::cache_desk::EntryPlace;

    #[test]
    fn strangers_words_do_nothing_to_a_terminal() {
        let entry = Listed {
            store: "main".into(),
            url: "http://a/\u{1b}[2J".into(),
            status: 200,
            size: 2048,
            age: 5,
            ttl: -61,
            uses: 3,
            place: EntryPlace::Disk,
        };
        let list = text(&CacheReply::Listed(vec![entry.clone()]));
        assert!(!list.contains('\u{1b}') && list.contains("2.0K") && list.contains("-1m01s"), "{list}");
        let shown = Shown {
            entry,
            varies_by: vec![("accept-encoding".into(), "br".into())],
            fields: vec![("x".into(), "\u{1b}]0;x".into())],
            lifetime_from: "max-age".into(),
            tags: vec!["a".into(), "b".into()],
            file: None,
            is_complete: true,
        };
        let shown = text(&CacheReply::Shown(vec![shown]));
        assert!(!shown.contains('\u{1b}') && shown.contains("stale for 1m01s, from max-age"), "{shown}");
        assert!(shown.contains("varies by   accept-encoding: br"), "{shown}");
        assert_eq!(text(&CacheReply::Shown(Vec::new())), "Nothing is stored under this URL.\n");
    }
}
