//! A listing for programs.
//!
//! `{"path", "page", "pages", "total", "entries": [{"name", "href", "type", "size", "modified"}]}`. `href`
//! is relative to the folder and exact; `name` shows U+FFFD where the bytes are not UTF-8. A folder has no
//! size. `"truncated": true` stands before the entries where the folder holds more than is read.

use super::render::Document;
use super::scan::{Kind, ListingEntry};
use super::text;
use std::io::Write;
use tidegate_http::path::encode_path;

/// What stands before the entries.
pub fn head(out: &mut Vec<u8>, document: &Document) {
    let listing = &document.listing;
    out.extend_from_slice(b"{\"path\":");
    string(out, &document.path);
    let (page, pages, total) = (listing.page, listing.pages, listing.total);
    let _ = write!(out, ",\"page\":{page},\"pages\":{pages},\"total\":{total}");
    if !listing.is_complete {
        out.extend_from_slice(b",\"truncated\":true");
    }
    out.extend_from_slice(b",\"entries\":[");
}

/// One entry, a line of its own.
pub fn entry(out: &mut Vec<u8>, name: &[u8], entry: &ListingEntry, is_first: bool) {
    out.extend_from_slice(if is_first { b"\n{\"name\":" } else { b",\n{\"name\":" });
    string(out, name);
    let _ = write!(out, ",\"href\":\"{}", encode_path(name));
    match entry.kind {
        Kind::Folder => out.extend_from_slice(b"/\",\"type\":\"folder\""),
        Kind::File => {
            let _ = write!(out, "\",\"type\":\"file\",\"size\":{}", entry.size);
        }
    }
    out.extend_from_slice(b",\"modified\":\"");
    out.extend_from_slice(&text::date(entry.modified));
    out.extend_from_slice(b"\"}");
}

/// What stands behind the entries.
pub fn tail(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n]}\n");
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    // A vector takes every write, and a string is always serialisable.
    let _ = serde_json::to_writer(out, &*String::from_utf8_lossy(bytes));
}
