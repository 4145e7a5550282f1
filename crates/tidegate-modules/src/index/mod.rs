//! Directory listings: HTML for people, JSON for programs.
//!
//! The `files` module calls [`list`] for a folder without an index file, where the settings allow it. The
//! folder is read on the blocking pool; a worker only renders, a bounded piece at a time.
//!
//! What caches and crawlers get to know: `Cache-Control: no-cache`, since a folder changes without notice
//! and its modification time does not move with the files in it (hence no `Last-Modified`); a strong entity
//! tag of the content for a page that is small enough to be made whole; `Vary: Accept`; and "nofollow" on
//! other orders of the same entries.

mod html;
mod insert;
mod json;
mod order;
mod query;
mod render;
mod scan;
mod text;

pub use insert::{MOST_TEXT, Place, Text};
pub use scan::beneath;

use query::{Format, View};
use render::{Document, Rows};
use scan::{MOST_ENTRIES, ScanError, Wanted};
use std::ffi::OsStr;
use std::hash::Hasher;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_core::response::{Author, Body, Head, Response};
use tidegate_core::{Exchange, Reply};
use tidegate_core::{answer, log};
use tidegate_http::{EntityTag, FieldLines, Status, accept, etag};
use tidegate_io::blocking;
use tidegate_io::file::{FileFd, Root};

/// A page up to this many entries is made whole, with its length and an entity tag.
const WHOLE: usize = 200;

/// What a listing needs to know of the request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Decoded, normalised, ends with a slash.
    pub path: Vec<u8>,
    /// As sent.
    pub query: Option<String>,
    /// The values of `Accept`, joined with commas; `None` without any.
    pub accept: Option<Vec<u8>>,
    /// The values of `If-None-Match`, joined with commas.
    pub if_none_match: Option<Vec<u8>>,
    /// Whether names that begin with a dot are listed.
    pub shows_hidden: bool,
}

impl Request {
    /// Copies it from an exchange, which does not outlive the call.
    pub fn of(exchange: &Exchange<'_>, shows_hidden: bool) -> Request {
        let joined = |name: &str| {
            let lines: Vec<&[u8]> = exchange.fields.all(name).collect();
            (!lines.is_empty()).then(|| lines.join(&b','))
        };
        Request {
            path: exchange.path.to_vec(),
            query: exchange.query.map(Into::into),
            accept: joined("Accept"),
            if_none_match: joined("If-None-Match"),
            shows_hidden,
        }
    }

    /// Whether the answer has a place for texts of the folder.
    pub fn shows_texts(&self) -> bool {
        self.format(&View::of(self.query.as_deref())) == Format::Html
    }

    fn format(&self, view: &View) -> Format {
        let offered = ["text/html", "application/json"];
        view.format.unwrap_or_else(|| match accept::prefers(self.accept.as_deref(), &offered) {
            Some(1) => Format::Json,
            // Who accepts neither is better served with a page than with 406 (RFC 9110 section 12.1).
            _ => Format::Html,
        })
    }
}

/// Lists `folder`, which lies at `relative` beneath `root` and is open for reading, with `texts`, which the client may
/// have, the first for each place. 403 where it may not be read after all, 503 where too much is being read already.
pub fn list(
    root: Arc<Root>,
    relative: Vec<u8>,
    folder: FileFd,
    texts: Vec<Text>,
    page_size: u32,
    request: Request,
) -> Reply {
    let place = root.path().join(OsStr::from_bytes(&relative));
    match blocking::run_in(root.queue_key(), move || {
        make(&root, &relative, &folder, &texts, page_size, &request)
    }) {
        Ok(pending) => Reply::Later(Box::pin(async move { respond(pending.await, &place) })),
        Err(blocking::Overloaded) => Reply::Ready(busy()),
    }
}

/// What comes back from the pool.
enum Made {
    Whole { media_type: &'static str, bytes: Vec<u8>, tag: String, is_held: bool },
    Large(Box<Document>),
}

fn make(
    root: &Root,
    relative: &[u8],
    folder: &FileFd,
    texts: &[Text],
    page_size: u32,
    request: &Request,
) -> Result<Made, ScanError> {
    let view = View::of(request.query.as_deref());
    let format = request.format(&view);
    let wanted = Wanted { view, page_size, shows_hidden: request.shows_hidden, most_entries: MOST_ENTRIES };
    let listing = scan::scan(root, relative, folder.as_fd(), &wanted)?;
    let (header, readme) = (insert::html(texts, Place::Header), insert::html(texts, Place::Readme));
    let document = Document { listing, path: request.path.clone(), view, format, header, readme };
    if document.listing.entries().len() > WHOLE {
        return Ok(Made::Large(Box::new(document)));
    }
    let media_type = document.media_type();
    let bytes = document.whole();
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&bytes);
    let tag = format!("{:x}-{:016x}", bytes.len(), hasher.finish());
    let is_held = request.if_none_match.as_deref().is_some_and(|held| {
        let made = EntityTag { weak: false, opaque: tag.as_bytes() };
        etag::is_any(held) || etag::entity_tags(held).any(|held| held.weak_eq(made))
    });
    Ok(Made::Whole { media_type, bytes, tag, is_held })
}

fn respond(made: Result<Made, ScanError>, place: &Path) -> Response {
    match made {
        Ok(Made::Whole { media_type, bytes, tag, is_held }) => {
            let tag = format!("\"{tag}\"");
            if is_held {
                return Response {
                    status: Status::NOT_MODIFIED,
                    head: Head::Fields(shared()),
                    body: Body::Empty,
                    author: Author::Server,
                }
                .with("ETag", tag);
            }
            Response {
                status: Status::OK,
                head: Head::Fields(described(media_type)),
                body: Body::Bytes(bytes),
                author: Author::Server,
            }
            .with("ETag", tag)
        }
        Ok(Made::Large(document)) => {
            let lines = described(document.media_type());
            let stream = Box::new(Rows::new(document.pieces()));
            let body = Body::Stream { len: None, has_trailers: false, stream };
            Response { status: Status::OK, head: Head::Fields(lines), body, author: Author::Server }
        }
        Err(ScanError::Overloaded) => busy(),
        Err(ScanError::Io(error)) => {
            let status = match error.kind() {
                io::ErrorKind::PermissionDenied => Status::FORBIDDEN,
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Status::NOT_FOUND,
                _ => Status::INTERNAL_SERVER_ERROR,
            };
            log::info(format_args!("{}: the folder {} cannot be listed: {error}", status.0, place.display()));
            answer::error(status)
        }
    }
}

fn busy() -> Response {
    answer::busy(None)
}

/// The fields of a listing and of the 304 that stands for it.
fn shared() -> FieldLines {
    let mut lines = FieldLines::default();
    lines.push("Cache-Control", "no-cache");
    lines.push("Vary", "Accept");
    lines
}

fn described(media_type: &str) -> FieldLines {
    let mut lines = shared();
    lines.push("Content-Type", media_type);
    lines.push("X-Content-Type-Options", "nosniff");
    lines.push("Content-Security-Policy", html::POLICY);
    lines
}

#[cfg(test)]
mod tests;
