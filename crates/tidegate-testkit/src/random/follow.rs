//! Content as it comes, compared byte by byte whatever its form: whole, one range, several of them, compressed.

use std::io::Write;

use flate2::write::GzDecoder;

use super::content::{Check, Nonce};
use super::variant::{Piece, is_answer, joined};

/// More than a body of several ranges has around its content.
const PARTS_OVERHEAD: u64 = 64 << 10;

/// The content of one answer.
#[derive(Debug)]
pub(super) struct Follow {
    nonce: Nonce,
    /// Bytes of the whole.
    whole: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// From an offset on, up to another.
    Plain {
        check: Check,
        start: u64,
        end: u64,
    },
    Gzip {
        decoder: Box<GzDecoder<Vec<u8>>>,
        check: Check,
    },
    Parts {
        bytes: Vec<u8>,
        boundary: String,
        asked: Vec<Piece>,
    },
    /// A piece of what is compressed: nothing of it can be read by itself.
    Opaque {
        received: u64,
    },
}

impl Follow {
    /// Of an answer with this status and these fields, to a request for these pieces; an error says what is wrong with them.
    pub(super) fn new(
        (nonce, whole): (Nonce, u64),
        status: u16,
        fields: &[(String, String)],
        asked: &[Piece],
    ) -> Result<Follow, String> {
        let field = |name: &str| {
            fields.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let coding = field("content-encoding");
        let form = match (status, coding) {
            (206, Some(_)) => Form::Opaque { received: 0 },
            (_, Some("gzip")) => {
                Form::Gzip { decoder: Box::new(GzDecoder::new(Vec::new())), check: Check::new(nonce) }
            }
            (_, Some(other)) => return Err(format!("content in the coding {other:?}")),
            (206, None) => {
                if let Some(range) = field("content-range") {
                    let piece = Piece::of_field(range, whole)?;
                    if !is_answer(&[piece], asked, whole) {
                        return Err(format!("the range {range:?} for {asked:?}"));
                    }
                    let check = Check::from(nonce, piece.start);
                    Form::Plain { check, start: piece.start, end: piece.end }
                } else {
                    let kind = field("content-type").unwrap_or_default();
                    let boundary = kind.strip_prefix("multipart/byteranges; boundary=");
                    let boundary = boundary.ok_or_else(|| format!("206 of the type {kind:?}"))?;
                    let (boundary, asked) = (boundary.trim_matches('"').to_owned(), asked.to_vec());
                    Form::Parts { bytes: Vec::new(), boundary, asked }
                }
            }
            (_, None) => Form::Plain { check: Check::new(nonce), start: 0, end: whole },
        };
        Ok(Follow { nonce, whole, form })
    }

    /// More of it has come.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let whole = self.whole;
        match &mut self.form {
            Form::Plain { check, end, .. } => {
                check.take(bytes)?;
                if check.offset > *end {
                    return Err(format!("{} bytes of content that ends at {end}", check.offset));
                }
            }
            Form::Gzip { decoder, check } => {
                decoder
                    .write_all(bytes)
                    .and_then(|()| decoder.flush())
                    .map_err(|error| format!("content that is no gzip: {error}"))?;
                check.take(&std::mem::take(decoder.get_mut()))?;
                if check.offset > whole {
                    return Err(format!("{} bytes of content that has {whole}", check.offset));
                }
            }
            Form::Parts { bytes: all, asked, .. } => {
                all.extend_from_slice(bytes);
                let pieces = joined(asked, whole);
                let most: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
                if all.len() as u64 > most + PARTS_OVERHEAD {
                    return Err(format!("{} bytes for pieces of {most}", all.len()));
                }
            }
            Form::Opaque { received } => *received += bytes.len() as u64,
        }
        Ok(())
    }

    /// Bytes of content so far, decoded where they are compressed.
    pub(super) fn received(&self) -> u64 {
        match &self.form {
            Form::Plain { check, start, .. } => check.offset - start,
            Form::Gzip { check, .. } => check.offset,
            Form::Parts { bytes, .. } => bytes.len() as u64,
            Form::Opaque { received } => *received,
        }
    }

    /// Whether all of it has come.
    pub(super) fn is_whole(&mut self) -> Result<bool, String> {
        match &mut self.form {
            Form::Plain { check, end, .. } => Ok(check.offset == *end),
            // The end of the stream, with its checksum, is looked for as well.
            Form::Gzip { decoder, check } => {
                decoder.try_finish().map_err(|error| format!("gzip without its end: {error}"))?;
                check.take(&std::mem::take(decoder.get_mut()))?;
                Ok(check.offset == self.whole)
            }
            Form::Parts { bytes, boundary, asked } => {
                compare_parts((self.nonce, self.whole), bytes, boundary, asked).map(|()| true)
            }
            Form::Opaque { .. } => Ok(true),
        }
    }
}

/// The pieces are those that were asked for, and each has its own content.
fn compare_parts(
    (nonce, whole): (Nonce, u64),
    bytes: &[u8],
    boundary: &str,
    asked: &[Piece],
) -> Result<(), String> {
    let delimiter = format!("\r\n--{boundary}");
    let delimiter = delimiter.as_bytes();
    // The first may stand at the very beginning.
    let first = bytes.strip_prefix(&delimiter[2..]).or(bytes.strip_prefix(delimiter));
    let mut rest = first.ok_or("no boundary at the beginning")?;
    let mut found = Vec::new();
    while rest != b"--\r\n" && rest != b"--" {
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or("a part without a head")?;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        let range = head.lines().find_map(|line| line.strip_prefix("Content-Range: "));
        let piece = Piece::of_field(range.ok_or("a part without its range")?, whole)?;
        let content =
            rest[end + 4..].get(..(piece.end - piece.start) as usize).ok_or("a part that is cut")?;
        Check::from(nonce, piece.start).take(content)?;
        rest = rest[end + 4 + content.len()..].strip_prefix(delimiter).ok_or("no boundary behind a part")?;
        found.push(piece);
    }
    found.sort_unstable();
    match is_answer(&found, asked, whole) {
        true => Ok(()),
        false => Err(format!("the pieces {found:?}, not {asked:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::content;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn every_form_is_compared() {
        let nonce = Nonce::of_file("x");
        let plain = content::content(nonce, 1000);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain).unwrap();
        let packed = encoder.finish().unwrap();
        let gzip = [field("Content-Encoding", "gzip")];
        let mut follow = Follow::new((nonce, 1000), 200, &gzip, &[]).unwrap();
        packed.chunks(7).try_for_each(|piece| follow.take(piece)).unwrap();
        assert_eq!((follow.is_whole(), follow.received()), (Ok(true), 1000));
        let mut follow = Follow::new((nonce, 1000), 200, &gzip, &[]).unwrap();
        assert!(follow.take(&plain).is_err());

        let asked = [Piece { start: 10, end: 20 }];
        let range = [field("Content-Range", "bytes 10-19/1000")];
        let mut follow = Follow::new((nonce, 1000), 206, &range, &asked).unwrap();
        assert_eq!(follow.is_whole(), Ok(false));
        follow.take(&plain[10..20]).unwrap();
        assert_eq!((follow.is_whole(), follow.received()), (Ok(true), 10));
        assert!(Follow::new((nonce, 1000), 206, &range, &[Piece { start: 10, end: 21 }]).is_err());

        let asked = [Piece { start: 0, end: 3 }, Piece { start: 500, end: 600 }];
        let kind = [field("Content-Type", "multipart/byteranges; boundary=B")];
        let mut body = b"--B\r\nContent-Range: bytes 0-2/1000\r\n\r\n".to_vec();
        body.extend_from_slice(&plain[..3]);
        body.extend_from_slice(b"\r\n--B\r\nContent-Range: bytes 500-599/1000\r\n\r\n");
        body.extend_from_slice(&plain[500..600]);
        body.extend_from_slice(b"\r\n--B--\r\n");
        let mut follow = Follow::new((nonce, 1000), 206, &kind, &asked).unwrap();
        follow.take(&body).unwrap();
        assert_eq!(follow.is_whole(), Ok(true));
        let mut follow = Follow::new((nonce, 1000), 206, &kind, &asked[..1]).unwrap();
        follow.take(&body).unwrap();
        assert!(follow.is_whole().is_err(), "more than was asked for");
    }
}
