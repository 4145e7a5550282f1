//! The table of all runs, with a filter, and the way to two of them or a series.

use super::super::index::Listing;
use super::super::stored::{Row, Status};
use super::one::shown;
use super::{badge, date, link};
use crate::report::escape;
use std::fmt::Write;
use tidegate_http::HttpDate;

/// Runs of a page.
const ROWS: usize = 500;

/// Which runs are wanted; nothing stands for all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// A part of the name or the label.
    pub scenario: Option<String>,
    /// Wall-clock seconds since 1970 of the first.
    pub since: Option<i64>,
    /// How it stands.
    pub verdict: Option<Status>,
}

impl Filter {
    /// Whether it wants a run.
    pub fn wants(&self, row: &Row) -> bool {
        let has = |part: &String| {
            let part = part.to_lowercase();
            let label = row.label.iter();
            [&row.name, &row.target, &row.id]
                .into_iter()
                .chain(label)
                .any(|text| text.to_lowercase().contains(&part))
        };
        self.scenario.as_ref().is_none_or(has)
            && self.since.is_none_or(|since| row.started >= since)
            && self.verdict.is_none_or(|verdict| row.verdict == verdict.to_string())
    }

    /// Those of a listing.
    pub fn of<'l>(&self, listing: &'l Listing) -> Vec<&'l Row> {
        listing.rows.iter().filter(|row| self.wants(row)).collect()
    }
}

/// The page. `folder` is where the runs lie.
pub fn table(listing: &Listing, filter: &Filter, folder: &str) -> String {
    let rows = filter.of(listing);
    let count = rows.len();
    let mut body = format!(
        "<h1>Runs</h1><p class=sub>{count} of {} in <code>{}</code></p>",
        listing.rows.len(),
        escape(folder)
    );
    body.push_str(&filter_form(filter));
    for (folder, why) in &listing.broken {
        let _ =
            write!(body, "<p class=note><code>{}</code> is left out: {}</p>", escape(folder), escape(why));
    }
    if rows.is_empty() {
        body.push_str(
            "<p class=note>There is none. <code>tidegate bench run</code> keeps every run, <code>hit</code> and \
             <code>peak</code> with <code>--keep</code>.</p>",
        );
        return super::shown("runs", "", &body);
    }
    if count > ROWS {
        let _ = write!(body, "<p class=note>The last {ROWS} are shown; the filter leads to the others.</p>");
    }
    body.push_str(
        "<form action=\"/compare\"><button>Compare those chosen</button><span class=sub>two beside each other, more as a \
         series</span><div class=card style=\"flex:1 1 100%;min-width:0\" tabindex=0 role=region aria-label=Runs><table>\
         <tr><th scope=col>run<th scope=col>began (UTC)<th scope=col>verdict<th scope=col>name<th scope=col>label\
         <th scope=col>users<th scope=col>per second<th scope=col>p90<th scope=col>failed<th scope=col>busy<th scope=col>target",
    );
    for row in rows.iter().take(ROWS) {
        body.push_str(&line(row));
    }
    body.push_str("</table></div></form>");
    super::shown("runs", "", &body)
}

fn line(row: &Row) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let id = escape(&row.id);
    format!(
        "<tr><td><input type=checkbox name=run value=\"{id}\" aria-label=\"choose {id}\">{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}\
         <td>{}<td>{}<td>{}<td>{}",
        link(row),
        date(row.started),
        badge(&row.verdict),
        escape(&short(&row.name)),
        escape(&short(row.label.as_deref().unwrap_or("-"))),
        row.users_or_rate(),
        or_none(row.rate.map(|rate| format!("{rate:.2}"))),
        shown(row.p90),
        or_none(row.failed.map(|failed| failed.to_string())),
        or_none(row.busy.map(|share| format!("{:.0} %", share * 100.0))),
        escape(&short(&row.target)),
    )
}

/// As long as a column is.
fn short(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_owned() } else { text.chars().take(39).chain(['…']).collect() }
}

fn filter_form(filter: &Filter) -> String {
    let chosen = filter.verdict.map(|verdict| verdict.to_string());
    let mut options = String::new();
    for word in ["", "PASS", "MEASURED", "FAIL", "INVALID", "RUNNING", "BROKEN-OFF"] {
        let selected = if chosen.as_deref().unwrap_or("") == word { " selected" } else { "" };
        let name = if word.is_empty() { "all" } else { word };
        let _ = write!(options, "<option value=\"{word}\"{selected}>{name}");
    }
    let since = filter.since.map(|since| String::from_utf8_lossy(&HttpDate(since).rfc3339()).into_owned());
    let since = since.as_deref().and_then(|since| since.get(..10)).unwrap_or_default();
    format!(
        "<form role=search><label class=grow>Name, label or target<input type=search name=scenario value=\"{}\"></label>\
         <label>Since (UTC)<input type=date name=since value=\"{since}\"></label>\
         <label>Verdict<select name=verdict>{options}</select></label><button>Filter</button></form>",
        escape(filter.scenario.as_deref().unwrap_or(""))
    )
}
