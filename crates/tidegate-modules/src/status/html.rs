//! The status page as HTML: no script, nothing loaded, readable on a phone and in the dark. Whatever is
//! written into it is escaped.

use super::ask::Action;
use super::cache::CacheRow;
use super::report::Section;
use super::{ServerInfo, finding};
use std::fmt::{Display, Formatter, Result, Write};

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fff;--text:#1c2733;--faint:#64707d;--line:#e3e8ee;--link:#0b5cad}\
@media (prefers-color-scheme:dark){\
:root{--page:#14191f;--text:#dfe6ee;--faint:#93a1b0;--line:#2a323c;--link:#7db7f5}}\
body{font-family:system-ui,sans-serif;line-height:1.45;max-width:60em;margin:0 auto;padding:1.5em 1em 2em;\
background:var(--page);color:var(--text)}\
a{color:var(--link)}\
h1{font-size:1.5em;margin:0 0 .3em}h2{font-size:1.1em;margin:1.6em 0 .3em}\
nav{display:flex;flex-wrap:wrap;gap:.2em 1em;margin:.5em 0}form{display:inline}\
ul{padding-left:1.2em}li{margin:.5em 0}\
div{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid var(--line);vertical-align:top}\
td{font-variant-numeric:tabular-nums}th{font-weight:normal;white-space:pre-wrap}\
th[scope=row]{width:45%;min-width:12em}th[scope=row]+td{overflow-wrap:anywhere}\
th[scope=col]{font-weight:bold;white-space:nowrap}\
td:first-child{min-width:9em;overflow-wrap:anywhere}td+td{white-space:nowrap}\
button{font:inherit;padding:.3em .9em;margin:.2em .5em .2em 0}\
footer{margin:2em 0 0;color:var(--faint);font-size:.9em}\
@media (max-width:30em){body{font-size:.92em}}";

/// Text made safe for element content and quoted attributes.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            out.write_str(&rest[..at])?;
            out.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        out.write_str(rest)
    }
}

/// The report on the server.
pub(super) fn server(info: &ServerInfo, sections: &[Section], refresh: Option<u32>) -> String {
    let mut page = open("Server status");
    let _ = writeln!(
        page,
        "<p>Tidegate {} with {} workers, process {}.</p>",
        Escaped(&info.version),
        info.workers,
        info.pid
    );
    navigation(&mut page, "", refresh);
    finding::write_html(&mut page, &info.findings);
    tables(&mut page, sections);
    close(page)
}

/// The report on the file cache; `files` are those to be shown and how many there are.
pub(super) fn cache(
    is_enabled: Option<bool>,
    sections: &[Section],
    files: Option<(&[CacheRow], usize)>,
    refresh: Option<u32>,
) -> String {
    let mut page = open("File cache");
    let _ = writeln!(page, "<p>{}</p>", sentence_on(is_enabled));
    let view = if files.is_some() { "cache&amp;list" } else { "cache" };
    navigation(&mut page, view, refresh);
    page.push_str("<p>");
    for action in Action::ALL {
        let is_idle = matches!(
            (action, is_enabled),
            (Action::Start, Some(true)) | (Action::Stop | Action::Restart, Some(false))
        );
        if !is_idle {
            button(&mut page, action);
        }
    }
    page.push_str("</p>\n");
    tables(&mut page, sections);
    if let Some((entries, all)) = files {
        list(&mut page, entries, all);
    }
    close(page)
}

/// What a `GET` with an action is answered with: the button that does it.
pub(super) fn confirmation(action: Action) -> String {
    let mut page = open("File cache");
    let word = action.word();
    let _ =
        writeln!(page, "<p>To {word} the cache takes a POST: following a link must not change anything.</p>");
    page.push_str("<p>");
    button(&mut page, action);
    page.push_str("<a href=\"?cache\">Back</a></p>\n");
    close(page)
}

/// The state of the cache in one sentence.
pub(super) fn sentence_on(is_enabled: Option<bool>) -> &'static str {
    match is_enabled {
        Some(true) => "The file cache is enabled.",
        Some(false) => "The file cache is disabled; files are served without it.",
        None => "The workers do not agree on whether the file cache is enabled, or none has said.",
    }
}

fn open(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{0} - Tidegate</title>\n\
         <style>{STYLE}</style>\n<h1>{0}</h1>\n",
        Escaped(title)
    )
}

fn close(mut page: String) -> String {
    page.push_str(
        "<footer>Figures of all workers together, of the moment this was sent.</footer>\n</html>\n",
    );
    page
}

/// Links to the other views and forms. `view` is the query of this one, escaped.
fn navigation(page: &mut String, view: &str, refresh: Option<u32>) {
    let and = if view.is_empty() { "" } else { "&amp;" };
    page.push_str("<nav>");
    for (query, name) in [("", "Server"), ("cache", "File cache"), ("cache&amp;list", "Cached files")] {
        let _ = if query == view {
            write!(page, "<strong>{name}</strong> ")
        } else {
            // An empty reference would keep the query.
            write!(page, "<a href=\"?{query}\">{name}</a> ")
        };
    }
    page.push_str("</nav>\n<nav>");
    for (seconds, name) in [(0, "Refresh off"), (5, "every 5 s"), (30, "every 30 s")] {
        let _ = if refresh.unwrap_or(0) == seconds {
            write!(page, "<strong>{name}</strong> ")
        } else if seconds == 0 {
            write!(page, "<a href=\"?{view}\">{name}</a> ")
        } else {
            write!(page, "<a href=\"?{view}{and}refresh={seconds}\">{name}</a> ")
        };
    }
    page.push_str("</nav>\n<nav>As ");
    for (format, name) in [("text", "text"), ("json", "JSON"), ("prometheus", "Prometheus metrics")] {
        if format != "prometheus" || view.is_empty() {
            let _ = write!(page, "<a href=\"?{view}{and}format={format}\">{name}</a> ");
        }
    }
    page.push_str("</nav>\n");
}

fn button(page: &mut String, action: Action) {
    let word = action.word();
    let _ = write!(
        page,
        "<form method=\"post\" action=\"?cache&amp;{word}&amp;format=html\">\
         <button>{}{} the cache</button></form>",
        word[..1].to_ascii_uppercase(),
        &word[1..]
    );
}

fn tables(page: &mut String, sections: &[Section]) {
    for section in sections {
        let _ = writeln!(page, "<h2>{}</h2>\n<div><table>", Escaped(&section.title));
        for row in &section.rows {
            let _ = writeln!(
                page,
                "<tr><th scope=\"row\" title=\"{}\">{}</th><td>{}</td></tr>",
                Escaped(row.help),
                Escaped(&row.label),
                Escaped(&row.value)
            );
        }
        page.push_str("</table></div>\n");
    }
}

fn list(page: &mut String, entries: &[CacheRow], all: usize) {
    let _ = writeln!(page, "<h2>Files</h2>\n<p>Files in the caches of the workers: {all}.");
    if entries.len() < all {
        let _ = writeln!(page, "The first {} are shown; the JSON has them all.", entries.len());
    }
    page.push_str("C: contents in memory, O: open descriptor, Z: encoded as well.</p>\n<div><table>\n<tr>");
    for name in ["File", "Flags", "Size", "Hits", "References", "Workers", "Age, s"] {
        let _ = write!(page, "<th scope=\"col\">{name}</th>");
    }
    page.push_str("</tr>\n");
    for entry in entries {
        let CacheRow { path, flags, workers, references, hits, size, age } = entry;
        let (path, flags) = (Escaped(path), Escaped(flags));
        let _ = writeln!(
            page,
            "<tr><td>{path}</td><td>{flags}</td><td>{size}</td><td>{hits}</td><td>{references}</td>\
             <td>{workers}</td><td>{age}</td></tr>"
        );
    }
    page.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping() {
        for (text, escaped) in [
            ("", ""),
            ("plain ü", "plain ü"),
            ("<a href=\"x\">'&'</a>", "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;"),
        ] {
            assert_eq!(Escaped(text).to_string(), escaped);
        }
    }
}
