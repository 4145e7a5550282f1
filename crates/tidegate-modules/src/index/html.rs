//! A listing for people: one table that works on a phone, in the dark, in a text browser and without
//! script. Sorting and paging are plain links.
//!
//! Links to entries are relative, so that a listing works behind a gateway that shows it under another
//! path. Everything that comes from a name goes through [`text`] or `encode_path`.

use super::query::{Order, Sort, View};
use super::render::Document;
use super::scan::{Kind, Listing, ListingEntry};
use super::text;
use std::io::Write;
use tidegate_http::media_type;
use tidegate_http::path::encode_path;

/// What the page may load: its own styles, and pictures of this server in the text of a README.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; base-uri 'none'";

const STYLE: &str = include_str!("style.css");

/// What stands above the entries.
pub fn head(out: &mut Vec<u8>, document: &Document) {
    let Document { listing, path, view, .. } = document;
    push(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    push(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    push(out, "<meta name=\"color-scheme\" content=\"light dark\">\n");
    if (view.sort, view.order) != (Sort::Name, Order::Ascending) {
        // The same entries in another order: whoever walks the tree has them already.
        push(out, "<meta name=\"robots\" content=\"noindex, nofollow\">\n");
    }
    push(out, "<title>Index of ");
    text::name(out, path);
    push(out, "</title>\n<style>\n");
    push(out, STYLE);
    push(out, "</style>\n</head>\n<body>\n<header>\n");
    breadcrumbs(out, path);
    push(out, "</header>\n<main>\n");
    if let Some(header) = &document.header {
        push(out, "<section class=\"text\" aria-label=\"Header\">\n");
        out.extend_from_slice(header);
        push(out, "\n</section>\n");
    }
    push(out, "<table class=\"entries\">\n<thead><tr>");
    column(out, view, Sort::Name, "Name", "");
    column(out, view, Sort::Size, "Size", "");
    column(out, view, Sort::Date, "Modified", " <small>UTC</small>");
    push(out, "</tr></thead>\n<tbody>\n");
    if path.len() > 1 {
        push(out, "<tr class=\"up\"><td><a href=\"../\">Parent folder</a></td><td></td><td></td></tr>\n");
    }
    if listing.entries().is_empty() {
        push(out, "<tr class=\"none\"><td colspan=\"3\">This folder is empty.</td></tr>\n");
    }
}

/// One entry.
pub fn row(out: &mut Vec<u8>, name: &[u8], entry: &ListingEntry) {
    let slash = if entry.kind == Kind::Folder { "/" } else { "" };
    let class = match entry.kind {
        Kind::Folder => "folder",
        Kind::File => class_of(name),
    };
    push(out, "<tr class=\"");
    push(out, class);
    push(out, "\"><td><a href=\"");
    text::escape(out, &encode_path(name));
    push(out, slash);
    push(out, "\">");
    text::name(out, name);
    push(out, slash);
    push(out, "</a></td><td");
    if entry.kind == Kind::File {
        push(out, " title=\"");
        text::thousands(out, entry.size);
        push(out, if entry.size == 1 { " byte\">" } else { " bytes\">" });
        text::size(out, entry.size);
    } else {
        push(out, ">");
    }
    let date = text::date(entry.modified);
    push(out, "</td><td><time datetime=\"");
    out.extend_from_slice(&date);
    push(out, "\">");
    out.extend_from_slice(&date[..10]);
    push(out, "<span> ");
    out.extend_from_slice(&date[11..16]);
    push(out, "</span></time></td></tr>\n");
}

/// What stands below the entries.
pub fn tail(out: &mut Vec<u8>, document: &Document) {
    let Document { listing, view, .. } = document;
    push(out, "</tbody>\n</table>\n");
    if listing.pages > 1 {
        pages(out, listing, view);
    }
    push(out, "<p class=\"sum\">");
    sum(out, listing);
    push(out, "</p>\n");
    if let Some(readme) = &document.readme {
        push(out, "<section class=\"text\" aria-label=\"Read me\">\n");
        out.extend_from_slice(readme);
        push(out, "\n</section>\n");
    }
    push(out, "</main>\n</body>\n</html>\n");
}

/// Every folder on the way as a link, the one shown as the heading.
fn breadcrumbs(out: &mut Vec<u8>, path: &[u8]) {
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let Some((last, above)) = names.split_last() else {
        return push(out, "<h1>Index of /</h1>\n");
    };
    push(out, "<nav aria-label=\"Breadcrumb\"><ol>");
    for (index, name) in std::iter::once(&b""[..]).chain(above.iter().copied()).enumerate() {
        push(out, "<li><a href=\"");
        for _ in index..names.len() {
            push(out, "../");
        }
        push(out, if index == 0 { "\" title=\"Top folder\">" } else { "\">" });
        text::name(out, name);
        push(out, "/</a></li>");
    }
    push(out, "</ol></nav>\n<h1>");
    text::name(out, last);
    push(out, "/</h1>\n");
}

/// The head of a column. A click on the one in use turns it round; of sizes and dates the large and the
/// new come first.
fn column(out: &mut Vec<u8>, view: &View, sort: Sort, title: &str, behind: &str) {
    let (state, order) = match (view.sort == sort, view.order) {
        (true, Order::Ascending) => (" aria-sort=\"ascending\"", Order::Descending),
        (true, Order::Descending) => (" aria-sort=\"descending\"", Order::Ascending),
        (false, _) if sort == Sort::Name => ("", Order::Ascending),
        (false, _) => ("", Order::Descending),
    };
    let target = View { sort, order, page: 1, ..*view }.reference();
    let _ = write!(out, "<th scope=\"col\"{state}><a rel=\"nofollow\" href=\"");
    text::escape(out, &target);
    let _ = write!(out, "\">{title}{behind}</a></th>");
}

/// Previous, the first, those around the one shown, the last, next.
fn pages(out: &mut Vec<u8>, listing: &Listing, view: &View) {
    const AROUND: u64 = 2;
    let (current, last) = (listing.page, listing.pages);
    let number = |page: u64| {
        let mut text = Vec::new();
        text::thousands(&mut text, page);
        String::from_utf8_lossy(&text).into_owned()
    };
    push(out, "<nav class=\"pages\" aria-label=\"Pages\">\n");
    let write = |out: &mut Vec<u8>, page: u64, rel: &str, text: &str| {
        push(out, "<a href=\"");
        text::escape(out, &View { page, ..*view }.reference());
        let _ = writeln!(out, "\"{rel}>{text}</a>");
    };
    if current > 1 {
        write(out, current - 1, " rel=\"prev\"", "\u{2039} Previous");
    }
    let mut before = 0;
    let around = current.saturating_sub(AROUND)..=current.saturating_add(AROUND);
    let shown = std::iter::once(1).chain(around.filter(|&page| page > 1 && page < last)).chain([last]);
    for page in shown {
        if page > before + 1 {
            push(out, "<span>\u{2026}</span>\n");
        }
        if page == current {
            let _ = writeln!(out, "<b aria-current=\"page\">{}</b>", number(page));
        } else {
            write(out, page, "", &number(page));
        }
        before = page;
    }
    if current < last {
        write(out, current + 1, " rel=\"next\"", "Next \u{203a}");
    }
    push(out, "</nav>\n");
}

/// How much there is, and how much of it is shown.
fn sum(out: &mut Vec<u8>, listing: &Listing) {
    let shown = listing.entries().len() as u64;
    if listing.pages > 1 {
        push(out, "Entries ");
        text::thousands(out, listing.first + 1);
        push(out, "\u{2013}");
        text::thousands(out, listing.first + shown);
        push(out, " of ");
        text::thousands(out, listing.total);
        push(out, ": ");
    }
    count(out, listing.folders, " folder", " folders");
    push(out, ", ");
    count(out, listing.total - listing.folders.min(listing.total), " file", " files");
    if let Some(size) = listing.size {
        push(out, ", <span title=\"");
        text::thousands(out, size);
        push(out, if size == 1 { " byte\">" } else { " bytes\">" });
        text::size(out, size);
        push(out, "</span>");
    }
    if !listing.is_complete {
        push(out, ".<br>There are more entries than are listed here");
    }
}

fn count(out: &mut Vec<u8>, number: u64, one: &str, many: &str) {
    text::thousands(out, number);
    push(out, if number == 1 { one } else { many });
}

/// What the icon shows, by media type.
fn class_of(name: &[u8]) -> &'static str {
    let media_type = media_type::for_path(name);
    match media_type.split_once('/') {
        Some(("image", _)) => "image",
        Some(("audio", _)) => "audio",
        Some(("video", _)) => "video",
        Some(("text", _)) => "words",
        Some((_, "pdf" | "epub+zip" | "msword" | "postscript" | "rtf")) => "words",
        Some((_, "json" | "xml" | "yaml" | "toml" | "javascript")) => "words",
        Some((_, subtype)) if ARCHIVES.contains(&subtype) => "archive",
        _ => "file",
    }
}

const ARCHIVES: &[&str] = &[
    "gzip",
    "java-archive",
    "vnd.debian.binary-package",
    "vnd.rar",
    "x-7z-compressed",
    "x-brotli",
    "x-bzip",
    "x-bzip2",
    "x-iso9660-image",
    "x-rpm",
    "x-tar",
    "x-xz",
    "zip",
    "zstd",
];

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}
