//! Files that an application has the server send: `X-Sendfile` names one in the file system,
//! `X-Accel-Redirect` by a path that stands for a folder. Only below the folders of `sendfile`.

use super::about::About;
use super::answer::AnswerHead;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_config::settings::gateway::SendfileRoot;
use tidegate_core::response::FilePiece;
use tidegate_core::response::Head;
use tidegate_core::{Body, Exchange, Response, answer, log};
use tidegate_http::path::normalise;
use tidegate_http::{FieldLines, HttpDate, Method, Selection, Status, media_type, range};
use tidegate_io::blocking;
use tidegate_io::descriptors;
use tidegate_io::file::{FileKind, Links, Opened, Patience, Root};
use tidegate_io::paged::PagedFile;

/// The folders of a route.
pub struct Sendfile {
    roots: Vec<(Arc<Root>, Option<String>)>,
}

impl Sendfile {
    /// Opens the folders.
    ///
    /// # Errors
    /// One cannot be opened; the message names it.
    pub fn new(settings: &[SendfileRoot]) -> io::Result<Sendfile> {
        let open = |root: &SendfileRoot| match Root::shared(&root.root, Links::Beneath) {
            Ok(opened) => Ok((opened, root.prefix.clone())),
            Err(error) => {
                let folder = root.root.display();
                Err(io::Error::new(
                    error.kind(),
                    format!("cannot open the folder {folder} of `sendfile`: {error}"),
                ))
            }
        };
        Ok(Sendfile { roots: settings.iter().map(open).collect::<io::Result<_>>()? })
    }

    /// Whether any file may be sent.
    pub fn is_allowed(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Whether an answer has a file sent in its place. Where no folder is open for that, what it names is dropped and
    /// the answer is what it is.
    pub(super) fn is_asked(&self, head: &AnswerHead) -> bool {
        self.is_allowed() && (head.sendfile().is_some() || head.accel_redirect().is_some())
    }

    /// The range that a request asks for of a file that may come: a GET alone does (RFC 9110 section 14.2). One with
    /// `If-Range` gets it whole: whether the condition holds, only the application knows.
    pub(super) fn range_of(&self, exchange: &Exchange<'_>) -> Option<Vec<u8>> {
        if !self.is_allowed() || exchange.method != Method::Get || exchange.fields.contains("if-range") {
            return None;
        }
        exchange.fields.single("range").map(<[u8]>::to_vec)
    }

    /// The file that an answer names: its folder and its path below that. `None` where it names none, or
    /// none that may be sent.
    pub(super) fn target(&self, head: &AnswerHead) -> Option<(Arc<Root>, Vec<u8>)> {
        if self.roots.is_empty() {
            return None;
        }
        if let Some(path) = head.accel_redirect() {
            let path = std::str::from_utf8(path).ok()?;
            let path = path.split('?').next().unwrap_or_default();
            let mut scratch = Vec::new();
            let path = normalise(path, &mut scratch).ok()?;
            return self.roots.iter().find_map(|(root, prefix)| {
                let below = path.strip_prefix(prefix.as_ref()?.as_bytes())?;
                Some((root.clone(), below.to_vec()))
            });
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(head.sendfile()?));
        self.roots.iter().find_map(|(root, _)| {
            let below = path.strip_prefix(root.path()).ok()?;
            Some((root.clone(), below.as_os_str().as_bytes().to_vec()))
        })
    }
}

/// The response that sends the file. `name` is the application in messages.
pub(super) async fn respond(
    sendfile: &Sendfile,
    head: AnswerHead,
    range: Option<&[u8]>,
    name: &About,
) -> Response {
    let Some((root, relative)) = sendfile.target(&head) else {
        let path = head.accel_redirect().or(head.sendfile()).unwrap_or_default();
        log::error(format_args!(
            "{name}: wants the file {} sent, which lies below no folder of `sendfile`",
            String::from_utf8_lossy(path)
        ));
        return answer::error(Status::NOT_FOUND);
    };
    let path = relative.clone();
    let opened = match descriptors::for_a_request().and_then(|()| root.open_file(&path, Patience::Cached)) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            match blocking::run_in(root.queue_key(), move || root.open_file(&path, Patience::Wait)) {
                Ok(job) => job.await,
                Err(_) => return answer::busy(None),
            }
        }
        opened => opened,
    };
    match opened {
        Ok(opened) if opened.meta.kind == FileKind::Regular => with_file(head, range, &relative, opened),
        Ok(_) => {
            let path = String::from_utf8_lossy(&relative);
            log::error(format_args!("{name}: wants {path} sent, which is no file"));
            answer::error(Status::NOT_FOUND)
        }
        Err(error) if descriptors::is_exhaustion(&error) => {
            descriptors::are_lacking();
            log::error(format_args!("503: {name}: no file can be opened: {}", descriptors::advice()));
            answer::busy(None)
        }
        Err(error) => {
            let path = String::from_utf8_lossy(&relative);
            log::error(format_args!("{name}: wants the file {path} sent, which cannot be opened: {error}"));
            let is_missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            answer::error(if is_missing { Status::NOT_FOUND } else { Status::FORBIDDEN })
        }
    }
}

/// The application's fields with the file as content. What it says of type and validators stays.
/// One range of it, where the client asks for one.
fn with_file(head: AnswerHead, range: Option<&[u8]>, relative: &[u8], opened: Opened) -> Response {
    let mut lines: FieldLines = head.lines;
    let is_default =
        lines.first("Content-Type").is_none_or(|media_type| media_type.starts_with(b"text/html"));
    if is_default {
        lines.set("Content-Type", media_type::for_path(relative));
    }
    if !lines.contains("Last-Modified") {
        lines.push("Last-Modified", HttpDate(opened.meta.mtime).format());
    }
    let len = opened.meta.len;
    let file = PagedFile::new(opened.fd, opened.meta.identity);
    let mut piece = FilePiece::new(Rc::new(file), 0, len);
    // What the application has said of a part was of the content that the file takes the place of.
    lines.remove("Content-Range");
    let mut status = if head.status == Status::PARTIAL_CONTENT { Status::OK } else { head.status };
    if status == Status::OK {
        lines.set("Accept-Ranges", "bytes");
        let mut value = Vec::new();
        match range.map(|range| range::select(range, len, 1)) {
            Some(Selection::Ranges(ranges)) => {
                if let Some(range) = ranges.single() {
                    range::push_content_range(&mut value, range, len);
                    lines.set("Content-Range", &value);
                    (piece.offset, piece.end) = (range.start, range.end);
                    status = Status::PARTIAL_CONTENT;
                }
            }
            Some(Selection::Unsatisfiable) => {
                range::push_unsatisfied_range(&mut value, len);
                return answer::error(Status::RANGE_NOT_SATISFIABLE).with("Content-Range", &value);
            }
            Some(Selection::Whole) | None => {}
        }
    }
    Response { status, head: Head::Fields(lines), body: Body::File(piece), author: head.author }
}
