//! What a disk can do, shown: on a terminal and as an HTML page.

use super::About;
use super::chart::{Chart, Series};
use super::html::{document, escape, push_charts, top};
use super::terminal::table;
use crate::disk::{Found, Pass, Speed};
use crate::quantity::{show_bytes, show_duration};
use crate::verdict::{Judgement, Verdict};
use std::fmt::Write;
use std::time::Duration;

/// As text, for a terminal: a row for each test, a column for each pass, and what follows from them.
pub fn disk_screen(found: &Found) -> String {
    let mut out = format!(
        "{}: {}\n\n{}\nReads by size, of what memory holds\n{}",
        found.folder.display(),
        about(found),
        table(&rows(found)),
        table(&sweep(found))
    );
    for sentence in found.sentences() {
        let _ = write!(out, "\n{sentence}.");
    }
    out.push('\n');
    out
}

/// The page.
pub fn disk_page(found: &Found, about_run: &About) -> String {
    let judgement = Judgement { verdict: Verdict::Measured, reasons: Vec::new(), notes: found.sentences() };
    let mut body = top(&found.folder.display().to_string(), &about(found), about_run, &judgement);
    for rows in [rows(found), sweep(found)] {
        body.push_str("<div class=card><table>");
        for row in rows {
            body.push_str("<tr>");
            for cell in row {
                let _ = write!(body, "<td>{}", escape(&cell));
            }
        }
        body.push_str("</table></div>");
    }
    push_charts(&mut body, [rate_by_size(found), jitter_by_size(found)].into_iter());
    document("disk", &body)
}

fn about(found: &Found) -> String {
    let way =
        if found.is_direct { "past the page cache" } else { "after the page cache was asked to forget them" };
    format!("a file of {}, read {way}; {} free", show_bytes(found.size as f64), show_bytes(found.free as f64))
}

fn passes(found: &Found) -> impl Iterator<Item = &Pass> {
    std::iter::once(&found.idle).chain(&found.loaded)
}

fn name(pass: &Pass) -> String {
    if pass.readers == 0 { "idle".to_owned() } else { format!("with {} readers", pass.readers) }
}

fn rows(found: &Found) -> Vec<Vec<String>> {
    type Cell = fn(&Pass) -> String;
    let rate = |rate: f64| format!("{}/s", show_bytes(rate));
    let cells: [(&str, Cell); 10] = [
        ("write in sequence", |pass| speed(&pass.write)),
        ("rewrite in place", |pass| speed(&pass.rewrite)),
        ("read in sequence", |pass| speed(&pass.read)),
        ("read of what memory holds", |pass| speed(&pass.cached)),
        ("reads of 4 KiB at random", |pass| format!("{:.0}/s", pass.seeks.rate)),
        ("  p50", |pass| show_duration(Duration::from_secs_f64(pass.seeks.p50))),
        ("  p99", |pass| show_duration(Duration::from_secs_f64(pass.seeks.p99))),
        ("small files created", |pass| format!("{:.0}/s", pass.small.create)),
        ("  looked up", |pass| format!("{:.0}/s", pass.small.stat)),
        ("  deleted", |pass| format!("{:.0}/s", pass.small.delete)),
    ];
    let head = std::iter::once(String::new()).chain(passes(found).map(name)).collect();
    let mut rows: Vec<Vec<String>> = vec![head];
    rows.extend(
        cells
            .iter()
            .map(|(name, cell)| std::iter::once((*name).to_owned()).chain(passes(found).map(cell)).collect()),
    );
    if let Some(loaded) = &found.loaded {
        rows.push(vec!["the readers together".to_owned(), String::new(), rate(loaded.readers_rate)]);
    }
    rows
}

fn speed(speed: &Speed) -> String {
    format!("{}/s", show_bytes(speed.rate))
}

fn sweep(found: &Found) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    for pass in passes(found) {
        let name = name(pass);
        if let Some(head) = rows.first_mut() {
            head.extend([name, "one read".to_owned(), "jitter".to_owned()]);
        }
    }
    for (number, step) in found.idle.sweep.iter().enumerate() {
        let mut row = vec![show_bytes(step.size as f64)];
        for step in passes(found).filter_map(|pass| pass.sweep.get(number)) {
            row.extend([
                format!("{}/s", show_bytes(step.rate)),
                show_duration(Duration::from_secs_f64(step.time)),
                format!("{:.1} %", step.jitter * 100.0),
            ]);
        }
        rows.push(row);
    }
    rows
}

fn chart(found: &Found, title: &str, y: &str, of: fn(&crate::disk::Step) -> f64) -> Chart {
    let series = passes(found).map(|pass| Series {
        name: name(pass),
        points: pass.sweep.iter().map(|step| ((step.size as f64).log2(), of(step))).collect(),
    });
    Chart {
        title: title.to_owned(),
        x: "bytes of a read, as a power of two: 0 is 1 B, 10 is 1 KiB, 20 is 1 MiB".to_owned(),
        y: y.to_owned(),
        series: series.collect(),
        is_scatter: false,
        is_logarithmic: false,
        is_percentile: false,
        at_least: 0.0,
    }
}

fn rate_by_size(found: &Found) -> Chart {
    chart(found, "Bytes per second by size of a read", "MiB/s", |step| step.rate / 1_048_576.0)
}

fn jitter_by_size(found: &Found) -> Chart {
    chart(found, "Jitter by size of a read", "% of the rate", |step| step.jitter * 100.0)
}
