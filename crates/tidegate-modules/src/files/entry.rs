//! A file ready to be sent: its representations, each with a head that was encoded once.

use super::locate::{FoundFile, Lookup};
use crate::compress;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Waker;
use tidegate_config::settings::{Coding, Compress};
use tidegate_core::decoration::Decoration;
use tidegate_core::response::{Body, FilePiece, Message};
use tidegate_http::{FieldLines, HttpDate, Status, media_type};
use tidegate_io::clock::wall_seconds;
use tidegate_io::file::{Meta, Opened, Patience, read_at, read_whole};
use tidegate_io::paged::PagedFile;

/// Larger files are not compressed on the fly as a whole, but as they are sent.
pub const ENCODE_MAX: u64 = 1 << 20;

/// What makes the heads of one route; the same for all of its files.
pub struct Maker {
    /// `Server` field.
    pub server: Option<String>,
    /// Fields of the route.
    pub decoration: Rc<Decoration>,
    /// Compression on the fly.
    pub compress: Option<Compress>,
    /// Files up to this are held in memory, bytes.
    pub memory_file_size: u64,
}

/// A file in all the forms it can be sent in.
pub struct FileEntry {
    /// As it is.
    pub identity: Representation,
    /// In a content coding: from a sibling, or made by us when first asked for.
    pub encoded: RefCell<Vec<(Coding, Encoded)>>,
    /// How many of these are siblings; they come first.
    pub siblings: usize,
    /// Media type with charset.
    pub media_type: Box<str>,
    /// Last modification, Unix seconds.
    pub modified: i64,
    /// What the file system said of the file and its siblings.
    pub metas: Vec<Meta>,
    /// When it was last found to be true, monotonic nanoseconds.
    pub checked: Cell<u64>,
    /// Of the root it was read from: another one may hold other files.
    pub generation: u32,
}

/// A form in a content coding.
pub enum Encoded {
    /// Nobody has asked for it yet.
    Possible,
    /// It is being made. Whoever asks for it meanwhile waits for it, but for a crowd.
    Making(Vec<Waker>),
    /// Making it failed or did not help.
    Useless,
    /// There.
    Ready(Rc<Representation>),
}

/// One form of a file.
pub struct Representation {
    /// Head, and body behind it where that is held in memory.
    pub message: Rc<Message>,
    /// The head of 304, made when first needed.
    not_modified: OnceCell<Rc<Message>>,
    /// Open when the body is not in memory.
    pub file: Option<Rc<PagedFile>>,
    /// Bytes of the body.
    pub len: u64,
    /// Strong: a new one whenever the bytes may differ; quotes included.
    pub entity_tag: Box<[u8]>,
}

impl Representation {
    /// The whole body.
    pub fn body(&self) -> Body {
        match &self.file {
            Some(file) => Body::File(FilePiece::new(file.clone(), 0, self.len)),
            None => Body::Prebuilt(self.message.clone()),
        }
    }

    /// The head that says nothing has changed (RFC 9110 section 15.4.5).
    pub fn not_modified(&self, server: Option<&str>) -> &Rc<Message> {
        self.not_modified.get_or_init(|| {
            let mut lines = self.message.lines().clone();
            lines.remove("Content-Type");
            lines.remove("Content-Encoding");
            lines.remove("Accept-Ranges");
            Message::new(Status::NOT_MODIFIED, server, lines, None, &[])
        })
    }

    /// Memory held, bytes.
    pub fn footprint(&self) -> usize {
        size_of::<Representation>() + self.message.footprint() + self.entity_tag.len()
    }
}

/// A body as it will be held.
pub enum Content {
    /// In memory.
    Bytes(Vec<u8>),
    /// In the file.
    File(PagedFile, u64),
}

/// Contents of a file and of its siblings, read as the sizes allow.
pub struct Contents {
    identity: Content,
    siblings: Vec<(Coding, Content)>,
    metas: Vec<Meta>,
}

impl Contents {
    /// Reads what is to be held in memory. Of what is sent from the page cache it reads the first byte: a
    /// file that cannot be read at all is answered so, while there is still a status to say it with. May
    /// run on the blocking pool.
    ///
    /// # Errors
    /// A file cannot be read, or is shorter by now; `WouldBlock`, under [`Patience::Cached`]: not without
    /// waiting. The file comes back with the error.
    pub fn read(
        found: FoundFile,
        limit: u64,
        patience: Patience,
    ) -> Result<Contents, (Box<FoundFile>, io::Error)> {
        let read = |opened: &Opened| match opened.meta.len <= limit {
            true => read_whole(opened.fd.as_fd(), opened.meta.len as usize, patience).map(Some),
            false => read_at(opened.fd.as_fd(), &mut [0], 0, patience).map(|_| None),
        };
        let bytes: io::Result<Vec<_>> =
            std::iter::once(&found.file).chain(found.siblings.iter().map(|s| &s.file)).map(read).collect();
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return Err((Box::new(found), error)),
        };
        let metas = metas_of(&found);
        let mut bytes = bytes.into_iter();
        let mut hold = |opened: Opened| match bytes.next().flatten() {
            Some(bytes) => Content::Bytes(bytes),
            None => Content::File(PagedFile::new(opened.fd, opened.meta.identity), opened.meta.len),
        };
        let identity = hold(found.file);
        let siblings =
            found.siblings.into_iter().map(|sibling| (sibling.coding, hold(sibling.file))).collect();
        Ok(Contents { identity, siblings, metas })
    }
}

/// What the file system says of a file and its siblings.
pub fn metas_of(found: &FoundFile) -> Vec<Meta> {
    std::iter::once(found.file.meta).chain(found.siblings.iter().map(|s| s.file.meta)).collect()
}

impl Maker {
    /// Puts an entry together.
    pub fn entry(
        &self,
        lookup: &Lookup,
        (relative, generation): (&[u8], u32),
        contents: Contents,
        now: u64,
    ) -> FileEntry {
        let Some(meta) = contents.metas.first().copied() else {
            unreachable!("invariant: the file itself is always first")
        };
        let media_type = media_type_of(lookup, relative);
        let mut encoded: Vec<(Coding, Encoded)> = Vec::new();
        let offers = self.compress.as_ref().filter(|c| compress::applies(c, &media_type, meta.len));
        let varies = offers.is_some() || !contents.siblings.is_empty();
        let parts = Parts { media_type: &media_type, meta: &meta, varies };
        for (n, (coding, content)) in contents.siblings.into_iter().enumerate() {
            let sibling_meta = contents.metas.get(n + 1).unwrap_or(&meta);
            let ready =
                Encoded::Ready(Rc::new(self.representation(&parts, content, Some((coding, sibling_meta)))));
            encoded.push((coding, ready));
        }
        let siblings = encoded.len();
        if let Some(compress) = offers
            && meta.len <= ENCODE_MAX
        {
            for (coding, _) in &compress.codings {
                if encoded.iter().all(|(present, _)| present != coding) {
                    encoded.push((*coding, Encoded::Possible));
                }
            }
        }
        FileEntry {
            identity: self.representation(&parts, contents.identity, None),
            encoded: RefCell::new(encoded),
            siblings,
            media_type,
            modified: meta.mtime,
            metas: contents.metas,
            checked: Cell::new(now),
            generation,
        }
    }

    /// A form that was made on the fly.
    pub fn made(&self, entry: &FileEntry, coding: Coding, bytes: Vec<u8>) -> Representation {
        let meta = &entry.metas[0];
        let parts = Parts { media_type: &entry.media_type, meta, varies: true };
        self.representation(&parts, Content::Bytes(bytes), Some((coding, meta)))
    }

    fn representation(
        &self,
        parts: &Parts<'_>,
        content: Content,
        coding: Option<(Coding, &Meta)>,
    ) -> Representation {
        let meta = coding.map_or(parts.meta, |(_, meta)| meta);
        let entity_tag = entity_tag(meta, coding.map(|(coding, _)| coding));
        let mut lines = FieldLines::default();
        lines.push("Content-Type", parts.media_type);
        lines.push("ETag", &entity_tag);
        if let Some(modified) = last_modified(parts.meta.mtime, wall_seconds()) {
            lines.push("Last-Modified", modified.format());
        }
        lines.push("Accept-Ranges", "bytes");
        if let Some((coding, _)) = coding {
            lines.push("Content-Encoding", compress::token(coding));
        }
        if parts.varies {
            lines.push("Vary", "Accept-Encoding");
        }
        // What depends on the request is put on later, by the Filter phase.
        if !self.decoration.has_placeholders() {
            self.decoration.apply_fixed(Status::OK, &mut lines);
        }
        let (bytes, file, len) = match content {
            Content::Bytes(bytes) => {
                let len = bytes.len() as u64;
                (bytes, None, len)
            }
            Content::File(file, len) => (Vec::new(), Some(Rc::new(file)), len),
        };
        let message = Message::new(Status::OK, self.server.as_deref(), lines, Some(len), &bytes);
        Representation { message, not_modified: OnceCell::new(), file, len, entity_tag: entity_tag.into() }
    }
}

struct Parts<'a> {
    media_type: &'a str,
    meta: &'a Meta,
    varies: bool,
}

/// What is said of when it was changed; nothing of a time that is still to come, which would be later than `Date` (RFC 9110
/// section 8.8.2.1). Both in seconds since 1970.
fn last_modified(mtime: i64, now: i64) -> Option<HttpDate> {
    (mtime <= now).then_some(HttpDate(mtime))
}

/// Modification time and length, never the inode (FAULTS 39); a coding has a tag of its own, since two
/// representations must not share a strong one (RFC 9110 section 8.8.3.3).
fn entity_tag(meta: &Meta, coding: Option<Coding>) -> Vec<u8> {
    let (dash, token) = coding.map_or(("", ""), |coding| ("-", compress::token(coding)));
    format!("\"{:x}.{:x}-{:x}{dash}{token}\"", meta.mtime, meta.mtime_ns, meta.len).into_bytes()
}

fn media_type_of(lookup: &Lookup, relative: &[u8]) -> Box<str> {
    let extension = media_type::extension(relative).unwrap_or("");
    let own = lookup.settings.types.iter().find(|(of, _)| of.eq_ignore_ascii_case(extension));
    let media_type = match own {
        Some((_, media_type)) => media_type,
        None => media_type::for_extension(extension).unwrap_or(&lookup.settings.default_type),
    };
    match &lookup.settings.charset {
        Some(charset) if media_type::is_text(media_type) && !media_type.contains("charset=") => {
            format!("{media_type}; charset={charset}").into()
        }
        _ => media_type.into(),
    }
}

impl FileEntry {
    /// Memory held, bytes.
    pub fn footprint(&self) -> usize {
        let ready = self.encoded.borrow();
        let encoded: usize = ready
            .iter()
            .map(|(_, encoded)| match encoded {
                Encoded::Ready(representation) => representation.footprint(),
                _ => 0,
            })
            .sum();
        size_of::<FileEntry>() + self.identity.footprint() + encoded + self.media_type.len()
    }

    /// Puts what has become of a form in its place, and wakes who waits for it.
    pub fn set_form(&self, coding: Coding, form: Encoded) {
        let mut encoded = self.encoded.borrow_mut();
        let Some((_, slot)) = encoded.iter_mut().find(|(present, _)| *present == coding) else { return };
        let before = std::mem::replace(slot, form);
        drop(encoded);
        if let Encoded::Making(waiting) = before {
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether nobody has begun to make a form yet.
    pub fn can_be_made(&self, coding: Coding) -> bool {
        let encoded = self.encoded.borrow();
        encoded.iter().any(|(of, form)| *of == coding && matches!(form, Encoded::Possible))
    }

    /// Whether a form is being made.
    pub fn is_making(&self, coding: Coding) -> bool {
        let encoded = self.encoded.borrow();
        encoded.iter().any(|(of, form)| *of == coding && matches!(form, Encoded::Making(_)))
    }

    /// Descriptors held.
    pub fn descriptors(&self) -> usize {
        let encoded = self.encoded.borrow();
        let is_open = |encoded: &Encoded| matches!(encoded, Encoded::Ready(r) if r.file.is_some());
        usize::from(self.identity.file.is_some()) + encoded.iter().filter(|(_, e)| is_open(e)).count()
    }

    /// Whether somebody is being sent what it keeps open.
    pub fn is_in_use(&self) -> bool {
        let in_use =
            |form: &Representation| form.file.as_ref().is_some_and(|file| Rc::strong_count(file) > 1);
        let encoded = self.encoded.borrow();
        in_use(&self.identity)
            || encoded.iter().any(|(_, form)| matches!(form, Encoded::Ready(form) if in_use(form)))
    }

    /// The codings in which it lies ready.
    pub fn ready_codings(&self) -> Vec<&'static str> {
        let encoded = self.encoded.borrow();
        let ready = encoded.iter().filter(|(_, form)| matches!(form, Encoded::Ready(_)));
        ready.map(|(coding, _)| compress::token(*coding)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_still_to_come_is_not_told() {
        for (mtime, is_told) in [(0, true), (99, true), (100, true), (101, false), (i64::MAX, false)] {
            assert_eq!(last_modified(mtime, 100), is_told.then_some(HttpDate(mtime)), "{mtime}");
        }
    }
}
