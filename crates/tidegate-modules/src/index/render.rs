//! From a scanned folder to bytes, a piece at a time: what stands above the entries, each entry, what
//! stands below.
//!
//! A small page is rendered whole on the blocking pool; a large one is a stream that the connection pulls,
//! so that a worker renders no more at a time than it is about to send.

use super::query::{Format, View};
use super::scan::Listing;
use super::{html, json};
use std::io;
use std::task::{Context, Poll};
use tidegate_core::body_stream::{BodyStream, Chunk, Splice};

/// A page of a folder, ready to be written.
pub struct Document {
    /// What is listed.
    pub listing: Listing,
    /// Of the request: decoded, ends with a slash.
    pub path: Vec<u8>,
    /// Order and page.
    pub view: View,
    /// The form it takes.
    pub format: Format,
    /// HTML above the entries.
    pub header: Option<Vec<u8>>,
    /// HTML below the entries.
    pub readme: Option<Vec<u8>>,
}

/// The pieces of a document, in order.
pub struct Pieces {
    document: Document,
    next: Next,
}

enum Next {
    Head,
    Entry(usize),
    Tail,
    Nothing,
}

impl Document {
    /// Its pieces.
    pub fn pieces(self) -> Pieces {
        Pieces { document: self, next: Next::Head }
    }

    /// All of it at once.
    pub fn whole(self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pieces = self.pieces();
        while pieces.write_next(&mut out) {}
        out
    }

    /// The `Content-Type` of its form.
    pub fn media_type(&self) -> &'static str {
        match self.format {
            Format::Html => "text/html; charset=utf-8",
            Format::Json => "application/json",
        }
    }
}

impl Pieces {
    /// Appends the next piece; `false` when there was none left. An entry takes some hundred bytes, a few
    /// thousand where its name is long and hostile.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Pieces { document, next } = self;
        let is_html = document.format == Format::Html;
        let behind =
            |index| if index < document.listing.entries().len() { Next::Entry(index) } else { Next::Tail };
        *next = match *next {
            Next::Head => {
                if is_html {
                    html::head(out, document)
                } else {
                    json::head(out, document)
                }
                behind(0)
            }
            Next::Entry(index) => {
                if let Some(entry) = document.listing.entries().get(index) {
                    let name = document.listing.name(entry);
                    if is_html {
                        html::row(out, name, entry)
                    } else {
                        json::entry(out, name, entry, index == 0)
                    }
                }
                behind(index + 1)
            }
            Next::Tail => {
                if is_html {
                    html::tail(out, document)
                } else {
                    json::tail(out)
                }
                Next::Nothing
            }
            Next::Nothing => return false,
        };
        true
    }
}

/// [`Pieces`] as the body of a response.
pub struct Rows {
    pieces: Pieces,
    /// A piece that did not fit, and how much of it has gone.
    piece: Vec<u8>,
    sent: usize,
}

impl Rows {
    /// From the first piece on.
    pub fn new(pieces: Pieces) -> Rows {
        Rows { pieces, piece: Vec::new(), sent: 0 }
    }
}

impl BodyStream for Rows {
    fn held(&self) -> usize {
        self.piece.capacity()
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.sent == self.piece.len() {
                self.piece.clear();
                self.sent = 0;
                if !self.pieces.write_next(&mut self.piece) {
                    break;
                }
            }
            let rest = &self.piece[self.sent..];
            let count = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.sent += count;
        }
        Poll::Ready(Ok(Chunk::of(filled)))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}
