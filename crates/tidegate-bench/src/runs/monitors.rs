//! `monitors/<system>.csv`: figures of a system on the time axis of the run. `at` is the first column, seconds from the start;
//! all others are figures by name: a group and a figure (`memory.used_bytes`), or a group, one of several and a figure
//! (`disk.sda.busy`). What may stand in one chart is of one group and of one kind: the figure of all disks, or figures of one unit.

use super::files::text_of;
use super::keep::MONITORS;
use super::seconds::cells;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Systems that are drawn, at most.
const SYSTEMS: usize = 32;
/// Figures of one system, at most: what a monitor tells, and what is read.
pub const FIGURES: usize = 1_024;

/// What a name may end with that is a unit.
const UNITS: [&str; 8] = ["bytes", "percent", "share", "seconds", "s", "ms", "us", "bits"];

/// What was seen of a system.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// The name of the file without its ending.
    pub system: String,
    /// By group and kind: the figures that a chart may hold together, each with its points (seconds, value). Those that were
    /// nothing throughout are left out.
    pub groups: BTreeMap<(String, String), Vec<Figure>>,
}

/// The name of a figure, and its points.
pub type Figure = (String, Vec<(f64, f64)>);

/// All of the folder of a run, by name.
pub fn monitors(run: &Path) -> Vec<Monitor> {
    let Ok(folder) = fs::read_dir(run.join(MONITORS)) else { return Vec::new() };
    let mut files: Vec<_> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "csv"));
    files.sort();
    let read = files.iter().take(SYSTEMS).filter_map(|file| {
        let system = file.file_stem()?.to_string_lossy().into_owned();
        Some(parse(system, &text_of(file).ok()?))
    });
    read.collect()
}

fn parse(system: String, text: &str) -> Monitor {
    let mut lines = text.lines();
    let columns = cells(lines.next().unwrap_or_default());
    let mut figures: Vec<Figure> =
        columns.iter().skip(1).take(FIGURES).map(|name| (name.clone(), Vec::new())).collect();
    for line in lines {
        let cells = cells(line);
        let number = |text: &String| text.parse::<f64>().ok().filter(|value| value.is_finite());
        let Some(at) = cells.first().and_then(number) else { continue };
        for ((_, points), cell) in figures.iter_mut().zip(cells.iter().skip(1)) {
            points.extend(number(cell).map(|value| (at, value)));
        }
    }
    let mut groups: BTreeMap<(String, String), Vec<Figure>> = BTreeMap::new();
    for (name, points) in figures.into_iter().filter(|(_, points)| points.iter().any(|point| point.1 != 0.0))
    {
        let (group, kind, name) = parts(&name);
        groups.entry((group, kind)).or_default().push((name, points));
    }
    Monitor { system, groups }
}

/// Group, kind, and the name of the line of a figure.
fn parts(name: &str) -> (String, String, String) {
    let (group, rest) = name.split_once('.').unwrap_or((name, name));
    let (line, kind) = match rest.rsplit_once('.') {
        Some((one, kind)) => (one, kind),
        None => match rest.rsplit_once('_') {
            Some((line, unit)) if UNITS.contains(&unit) => (line, unit),
            _ => (rest, ""),
        },
    };
    (group.to_owned(), kind.to_owned(), line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_group_and_a_kind_stand_together() {
        let text = "at,cpu.0.user,cpu.1.user,cpu.0.system,tcp.listen_drops,tcp.retransmits,net.in_bytes,psi.io\n\
                    1,20,0,3,,1,7,0\nx,1,1,1,1\n2,30,9,,500,2,8,0\n3,4";
        let monitor = parse("db".into(), text);
        let seen: Vec<String> = monitor
            .groups
            .iter()
            .map(|((group, kind), figures)| {
                let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
                format!("{group} {kind}: {}", names.join(" "))
            })
            .collect();
        assert_eq!(
            seen,
            ["cpu system: 0", "cpu user: 0 1", "net bytes: in", "tcp : listen_drops retransmits"]
        );
        let user = &monitor.groups[&("cpu".to_owned(), "user".to_owned())][0];
        assert_eq!(user.1, [(1.0, 20.0), (2.0, 30.0), (3.0, 4.0)]);
        assert!(parse("x".into(), "").groups.is_empty());
    }
}
