//! Pages of runs: all of them, one, two beside each other, several as a series. Each is whole by itself: no network, no script.
//! `tidegate bench serve` shows them with links to each other, `report.html` and `export` without.

mod charts;
mod one;
mod pair;
mod several;
mod table;

pub use one::{run, run_here};
pub use pair::pair;
pub use several::{several, several_here};
pub use table::{Filter, table};

use super::stored::{Row, Status};
use crate::report::{document_of, escape};
use std::fmt::Write;
use tidegate_http::HttpDate;

/// What a page of `serve` needs that goes on by itself: who serves gives [`LIVE`] at this path.
pub const LIVE_PATH: &str = "/live.js";

/// Reads the page of a run that goes on anew, as long as it does. What has the focus keeps it.
pub const LIVE: &str = "\
'use strict';
const again = async () => {
  try {
    const answer = await fetch(location.href, { cache: 'no-store' });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const next = page.getElementById('live');
      if (next) document.getElementById('live').replaceChildren(...next.childNodes);
      document.title = page.title;
      if (!page.querySelector('script')) return;
    }
  } catch {}
  setTimeout(again, 2000);
};
setTimeout(again, 2000);
";

/// A page with the way back to all runs.
fn shown(title: &str, head: &str, body: &str) -> String {
    document_of(title, head, &format!("<nav><a href=\"/\">All runs</a></nav><main class=wide>{body}</main>"))
}

/// The address of the page of a run.
fn link(row: &Row) -> String {
    format!("<a href=\"/runs/{}\">{}</a>", encoded(&row.id), escape(&row.id))
}

/// A part of a path or a query (RFC 3986 section 2.1).
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => drop(write!(out, "%{other:02X}")),
        }
    }
    out
}

fn badge(verdict: &str) -> String {
    let known = verdict.parse::<Status>().map(|status| status.to_string()).unwrap_or_default();
    format!("<span class=\"badge {known}\">{}</span>", escape(verdict))
}

/// `2026-11-24 02:47:46`, UTC.
pub fn date(started: i64) -> String {
    if started == 0 {
        return "-".to_owned();
    }
    let text = HttpDate(started).rfc3339();
    String::from_utf8_lossy(&text).replace('T', " ").trim_end_matches('Z').to_owned()
}

/// A table of text, a row of headings first.
fn cells(caption: &str, rows: &[Vec<String>]) -> String {
    let mut out =
        format!("<div class=card tabindex=0 role=region aria-label=\"{0}\"><table>", escape(caption));
    for (number, row) in rows.iter().enumerate() {
        out.push_str("<tr>");
        for cell in row {
            let open = if number == 0 { "<th scope=col>" } else { "<td>" };
            let _ = write!(out, "{open}{}", escape(cell));
        }
    }
    out.push_str("</table></div>");
    out
}
