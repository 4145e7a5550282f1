//! What documents say of the rows: the blocks between markers in `README.md` and `docs/measured.md`, which nobody writes
//! by hand.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::super::report::{Spread, Table};
use super::results::{Circumstances, Outcome, Results};
use super::{Row, verdict};
use crate::workspace;

const BEGIN: &str = "<!-- rows: begin; written by `cargo xtask bench rows --write` -->";
const END: &str = "<!-- rows: end -->";

/// Writes both blocks.
pub fn write(rows: &[Row], results: &Results) -> Result<()> {
    for (name, block) in [("README.md", readme(rows, results)), ("docs/measured.md", measured(rows, results))]
    {
        let path = workspace::root().join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let text = replace(&text, &block).with_context(|| format!("{name} has no block of rows"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        println!("rows: {name} written");
    }
    Ok(())
}

/// The text with what lies between the markers replaced.
fn replace(text: &str, block: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", block.trim()))
}

/// What a row has in its columns.
#[derive(Default)]
struct Cells {
    figure: String,
    verdict: String,
    floor: String,
    detail: String,
}

fn cells(row: &Row, results: &Results) -> Cells {
    match results.rows.get(row.name).map(|measured| &measured.outcome) {
        Some(Outcome::Measured(figure)) => Cells {
            figure: spread_text(figure.spread),
            verdict: verdict(row, figure).to_owned(),
            floor: figure.floor.map_or_else(String::new, spread_text),
            detail: figure.detail.clone(),
        },
        Some(Outcome::Void(reason)) => {
            Cells { figure: "void".to_owned(), detail: one_line(reason), ..Cells::default() }
        }
        None => Cells { figure: "not measured".to_owned(), ..Cells::default() },
    }
}

fn spread_text(spread: Spread) -> String {
    if spread.least == spread.most {
        return super::figure_text(spread.median);
    }
    let [median, least, most] = [spread.median, spread.least, spread.most].map(super::figure_text);
    format!("{median} [{least}–{most}]")
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().replace('|', "/")
}

/// Where and with what the rows were measured, and when last. Rows that were measured elsewhere are named.
fn circumstances(results: &Results) -> String {
    let mut all: BTreeMap<&Circumstances, (&str, Vec<&str>)> = BTreeMap::new();
    for (name, row) in &results.rows {
        let (date, names) = all.entry(&row.circumstances).or_default();
        *date = (*date).max(&row.date);
        names.push(name);
    }
    let of_some = all.len() > 1;
    let lines = all.into_iter().map(|(of, (date, names))| {
        let which = if of_some { format!("{}: ", names.join(", ")) } else { String::new() };
        let versions = of.versions.join("; ");
        format!("{which}Measured on {date} on {}, {}. {versions}.", of.host, of.course)
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "Nothing was measured yet.".to_owned() } else { lines.join("\n\n") }
}

fn readme(rows: &[Row], results: &Results) -> String {
    let mut table = Table::new(["what", "goal", "measured"]);
    for row in rows.iter().filter(|row| row.is_shown_first) {
        let Cells { figure, verdict, .. } = cells(row, results);
        let figure = if verdict.is_empty() { figure } else { format!("{figure}, {verdict}") };
        table.row([format!("{}, {}", row.what, row.unit), row.goal.to_string(), figure]);
    }
    format!("{table}\n{}", circumstances(results))
}

fn measured(rows: &[Row], results: &Results) -> String {
    let mut table =
        Table::new(["row", "what", "goal", "median [least–most]", "", "floor", "made of", "date"]);
    for row in rows {
        let Cells { figure, verdict, floor, detail } = cells(row, results);
        let date = results.rows.get(row.name).map_or_else(String::new, |measured| measured.date.clone());
        let what = format!("{}, {}", row.what, row.unit);
        let name = format!("`{}`", row.name);
        table.row([name, what, row.goal.to_string(), figure, verdict, floor, detail, date]);
    }
    format!("{}\n\n{table}", circumstances(results))
}

#[cfg(test)]
mod tests {
    use super::super::list::ROWS;
    use super::super::results::Measured;
    use super::super::{Figure, Goal};
    use super::*;

    #[test]
    fn only_the_block_changes() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let replaced = replace(&text, "new\n").unwrap();
        assert_eq!(replaced, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&replaced, "new\n"), Some(replaced.clone()));
        assert_eq!(replace("no markers", "new"), None);
    }

    #[test]
    fn both_documents_have_a_block() {
        for name in ["README.md", "docs/measured.md"] {
            let text = fs::read_to_string(workspace::root().join(name)).unwrap();
            assert!(replace(&text, "").is_some(), "{name}");
        }
    }

    #[test]
    fn tables() {
        let row = Row {
            name: "row",
            what: "a file",
            unit: "of nginx",
            goal: Goal::AtMost(0.9),
            is_shown_first: true,
            measure: |_| Figure::of([], ""),
        };
        let mut results = Results::default();
        assert!(readme(&ROWS, &results).contains("not measured"));
        let figure = Figure::of([0.85, 0.95, 0.92], "tidegate 1 µs").unwrap();
        let here = Circumstances { host: "a machine".to_owned(), ..Circumstances::default() };
        let outcome = Outcome::Measured(figure);
        let measured_row = Measured { date: "2026-11-22".to_owned(), circumstances: here, outcome };
        results.rows.insert("row".to_owned(), measured_row.clone());
        let rows = [row];
        assert!(readme(&rows, &results).contains("| a file, of nginx | ≤ 0.90 | 0.92 [0.85–0.95], MISSED |"));
        let whole = measured(&rows, &results);
        assert!(whole.contains("| `row` | a file, of nginx | ≤ 0.90 | 0.92 [0.85–0.95]"), "{whole}");
        assert!(whole.contains("tidegate 1 µs"));
        assert!(whole.starts_with("Measured on 2026-11-22 on a machine, "), "{whole}");
        // One that was measured anew elsewhere says nothing of the others.
        let there = Circumstances { host: "another".to_owned(), ..Circumstances::default() };
        let other = Measured { date: "2026-11-23".to_owned(), circumstances: there, ..measured_row };
        results.rows.insert("other".to_owned(), other);
        let whole = measured(&rows, &results);
        assert!(whole.contains("row: Measured on 2026-11-22 on a machine, "), "{whole}");
        assert!(whole.contains("other: Measured on 2026-11-23 on another, "), "{whole}");
    }
}
