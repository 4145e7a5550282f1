//! Answers of stores as text.

use crate::cli::units;
use std::fmt::Write;
use tidegate_modules::cache_desk::{
    CacheReply, DiskFigures, KnownNotStored, Listed, Purged, Shown, StoreFigures, TierFigures, Unsearched,
    Verification,
};
use tidegate_modules::status::printable;

/// An answer for a person.
pub fn text(reply: &CacheReply) -> String {
    match reply {
        CacheReply::Purged(purged) => self::purged(*purged, false),
        CacheReply::Listed(found) => listed(&found.entries),
        CacheReply::Shown(found) => shown(&found.entries) + &known(&found.known),
        CacheReply::Figures(stores) if stores.is_empty() => "No store is in use.\n".to_owned(),
        CacheReply::Figures(stores) => stores.iter().map(store).collect::<Vec<_>>().join("\n"),
        CacheReply::Verified(verified) => verification(verified),
    }
}

/// Where nobody could look, a line for each folder.
pub fn unsearched(reply: &CacheReply) -> String {
    let unsearched = match reply {
        CacheReply::Listed(found) => &found.unsearched,
        CacheReply::Shown(found) => &found.unsearched,
        CacheReply::Verified(verified) => &verified.unsearched,
        CacheReply::Purged(_) | CacheReply::Figures(_) => return String::new(),
    };
    let line = |Unsearched { folder, why }: &Unsearched| {
        let (folder, why) = (folder.display().to_string(), printable(why));
        format!("what only the cache folder {} has is missing here: it {why}\n", printable(&folder))
    };
    unsearched.iter().map(line).collect()
}

/// What a purge has done.
pub fn purged(purged: Purged, is_soft: bool) -> String {
    let (what, rest) = match is_soft {
        true => ("stale from now on", "is stale as well"),
        false => ("purged", "is purged as well: it is never sent again, and leaves the disk soon"),
    };
    let responses = match purged.entries {
        0 => "no response in memory is meant".to_owned(),
        1 => format!("1 response in memory is {what}"),
        many => format!("{many} responses in memory are {what}"),
    };
    match purged.is_marked {
        true => format!("{responses}; what lies on a disk alone was not counted, and {rest}\n"),
        false => format!("{responses}\n"),
    }
}

/// `1 response`, `2 responses`
fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
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
        let Shown { entry, varies_by, fields, lifetime_from, file, is_complete, groups, .. } = shown;
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
        if let Some(tags) = tags(shown) {
            line("tags", &tags);
        }
        if !groups.is_empty() {
            line("groups", &groups.join(", "));
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

/// Why it is not stored, and remembered so.
fn known(known: &[KnownNotStored]) -> String {
    let line = |KnownNotStored { store, reason, text, seconds }: &KnownNotStored| {
        let left = units::seconds(*seconds as f64);
        format!("Known not to be stored in {} for {left} more: {text} ({reason}).\n", printable(store))
    };
    known.iter().map(line).collect()
}

/// What it is purged by; `None`: by no tag.
fn tags(shown: &Shown) -> Option<String> {
    let names = shown.tags.join(" ");
    match (shown.tags.len(), shown.unnamed_tags) {
        (0, 0) => None,
        (_, 0) => Some(names),
        (0, others) => Some(format!("{others}, whose names are not kept")),
        (_, others) => Some(format!("{names} and {others} more, whose names are not kept")),
    }
}

fn store(figures: &StoreFigures) -> String {
    let StoreFigures { store, memory, disks, requests, stored, without_room, not_stored, fetches, .. } =
        figures;
    let (broken_off, purged) = (figures.broken_off, figures.purged);
    let mut out = format!("cache {}\n", printable(store));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<12}{value}");
    };
    let held = units::bytes(figures.held as f64);
    line("memory", format!("{}; {held} are being read", tier(memory)));
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
        "{}, {bytes} of {limit}, {evicted} evicted, {returned} of them fetched again soon",
        counted(*entries, "response")
    )
}

fn folder(disk: &DiskFigures) -> String {
    let folder = printable(&disk.folder.display().to_string());
    if disk.is_of_another {
        return format!("{folder}: another process has it");
    }
    let broken = match disk.broken_pieces {
        0 => String::new(),
        1 => ", 1 piece was broken".to_owned(),
        pieces => format!(", {pieces} pieces were broken"),
    };
    let state = if disk.is_stalled { "STALLED" } else { "out of use" };
    let out = disk.is_out.as_ref().map(|why| format!(", {state}: {}", printable(why))).unwrap_or_default();
    format!("{folder}: {}{broken}{out}", tier(&disk.tier))
}

fn verification(verified: &Verification) -> String {
    let Verification { files, pieces, broken, unread, .. } = verified;
    let are_broken = match broken.len() {
        0 => "none is broken".to_owned(),
        1 => "1 is broken".to_owned(),
        many => format!("{many} are broken"),
    };
    let (files, were) = (counted(*files, "file"), if *files == 1 { "was" } else { "were" });
    let mut out = format!("{files} with {} {were} read, {are_broken}\n", counted(*pieces, "piece"));
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
    use tidegate_modules::cache_desk::{EntryPlace, Found};

    #[test]
    fn one_is_one_and_what_is_not_counted_is_said() {
        let told = |entries, is_marked, is_soft| purged(Purged { entries, is_marked }, is_soft);
        assert_eq!(told(1, false, false), "1 response in memory is purged\n");
        assert_eq!(told(0, false, false), "no response in memory is meant\n");
        assert_eq!(
            told(2, true, false),
            "2 responses in memory are purged; what lies on a disk alone was not counted, and is purged as well: it is never sent \
             again, and leaves the disk soon\n"
        );
        assert_eq!(
            told(1, true, true),
            "1 response in memory is stale from now on; what lies on a disk alone was not counted, and is stale as well\n"
        );
        let checked = |files, pieces, broken: &[&str]| {
            let broken = broken.iter().map(Into::into).collect();
            verification(&Verification { files, pieces, broken, ..Verification::default() })
        };
        assert_eq!(checked(1, 1, &[]), "1 file with 1 piece was read, none is broken\n");
        assert!(checked(2, 3, &["/a"]).starts_with("2 files with 3 pieces were read, 1 is broken\n"));
        let tier = TierFigures { entries: 1, ..TierFigures::default() };
        assert!(self::tier(&tier).starts_with("1 response, "));
        let disk = DiskFigures { broken_pieces: 1, ..DiskFigures::default() };
        assert!(folder(&disk).ends_with(", 1 piece was broken"));
    }

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
        let found = Found { entries: vec![entry.clone()], ..Found::default() };
        let list = text(&CacheReply::Listed(found));
        assert!(!list.contains('\u{1b}') && list.contains("2.0K") && list.contains("-1m01s"), "{list}");
        let shown = Shown {
            entry,
            varies_by: vec![("accept-encoding".into(), "br".into())],
            fields: vec![("x".into(), "\u{1b}]0;x".into())],
            lifetime_from: "max-age".into(),
            tags: vec!["a".into(), "b".into()],
            unnamed_tags: 2,
            groups: vec!["g".into()],
            file: None,
            is_complete: true,
        };
        let unsearched = Unsearched { folder: "/c\u{1b}".into(), why: "is stalled".into() };
        let shown = CacheReply::Shown(Found {
            entries: vec![shown],
            unsearched: vec![unsearched],
            ..Found::default()
        });
        let complaint = super::unsearched(&shown);
        assert!(complaint.contains("is stalled") && !complaint.contains('\u{1b}'), "{complaint}");
        let shown = text(&shown);
        assert!(!shown.contains('\u{1b}') && shown.contains("stale for 1m01s, from max-age"), "{shown}");
        assert!(shown.contains("varies by   accept-encoding: br"), "{shown}");
        assert!(
            shown.contains("tags        a b and 2 more, whose names are not kept\ngroups      g\n"),
            "{shown}"
        );
        assert_eq!(text(&CacheReply::Shown(Found::default())), "Nothing is stored under this URL.\n");
    }
}
