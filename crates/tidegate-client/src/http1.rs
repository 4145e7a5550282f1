//! Answers in HTTP/1: the head, once it is whole. Bodies are read with
//! [`BodyDecoder`](tidegate_wire::h1::BodyDecoder).

use tidegate_wire::h1::{
    FieldSpace, HeadLimits, HeadScanner, ResponseError, ResponseHead, ResponseKind, parse_response,
};

/// Collects the bytes of an answer until its head is there.
#[derive(Default)]
pub struct HeadReader {
    bytes: Vec<u8>,
    scanner: HeadScanner,
    /// Interim heads that were read.
    interim: u16,
}

/// Interim heads before one that is final. Each shows that the peer is at work, so that no deadline bounds them.
const INTERIM_MAX: u16 = 256;

impl HeadReader {
    /// Has memory to keep bytes in, unless there are some.
    pub fn lend(&mut self, memory: impl FnOnce() -> Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = memory();
            debug_assert!(self.bytes.is_empty(), "invariant: what was in it is no part of an answer");
        }
    }

    /// Takes bytes. `read` sees the final head once it is there, or the one that switches protocols; interim
    /// heads go to `interim`. What lies behind the head is what [`HeadReader::take_rest`] returns.
    ///
    /// # Errors
    /// The head is none; the connection must not be used again.
    pub fn push<R>(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
        request_method: &str,
        mut interim: impl FnMut(&ResponseHead<'_, '_>),
        read: impl FnOnce(&ResponseHead<'_, '_>) -> R,
    ) -> Result<Option<R>, ResponseError> {
        if self.bytes.is_empty() {
            // Most often all of it is here, and only what lies behind it is kept.
            let mut space = FieldSpace::new();
            if let Some(head) = parse_response(bytes, limits, &mut space, request_method)?
                && head.kind != ResponseKind::Interim
            {
                let result = read(&head);
                self.bytes.extend_from_slice(bytes.get(head.len..).unwrap_or_default());
                return Ok(Some(result));
            }
        }
        self.bytes.extend_from_slice(bytes);
        loop {
            if !self.scanner.needs_parse(&self.bytes, limits) {
                return Ok(None);
            }
            let mut space = FieldSpace::new();
            let Some(head) = parse_response(&self.bytes, limits, &mut space, request_method)? else {
                return Ok(None);
            };
            let len = head.len;
            if head.kind != ResponseKind::Interim {
                let result = read(&head);
                drop(space);
                self.bytes.drain(..len);
                return Ok(Some(result));
            }
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(ResponseError::TooManyInterim);
            }
            interim(&head);
            drop(space);
            self.bytes.drain(..len);
            self.scanner = HeadScanner::new();
        }
    }

    /// Whether nothing of an answer has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What has come behind the head, once that is there.
    pub fn rest(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be kept.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_heads_come_first() {
        let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for at in 0..bytes.len() {
            let (mut reader, mut interim, mut status) = (HeadReader::default(), Vec::new(), None);
            for piece in [&bytes[..at], &bytes[at..]] {
                if status.is_some() {
                    reader.bytes.extend_from_slice(piece);
                    continue;
                }
                status = reader
                    .push(
                        piece,
                        &HeadLimits::default(),
                        "GET",
                        |head| interim.push(head.status),
                        |head| head.status,
                    )
                    .unwrap();
            }
            assert_eq!((interim, status), (vec![103, 100], Some(200)), "{at}");
            assert_eq!(reader.take_rest(), b"ok");
        }
    }

    #[test]
    fn interim_heads_without_end_are_refused() {
        let limits = HeadLimits::default();
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(usize::from(INTERIM_MAX));
        for piece in [1, 30, hints.len()] {
            let (mut reader, mut seen) = (HeadReader::default(), 0);
            for bytes in hints.chunks(piece) {
                assert_eq!(reader.push(bytes, &limits, "GET", |_| seen += 1, |_| ()), Ok(None));
            }
            let refused = reader.push(&hints, &limits, "GET", |_| seen += 1, |_| ());
            assert_eq!((refused, seen), (Err(ResponseError::TooManyInterim), INTERIM_MAX));
        }
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let mut reader = HeadReader::default();
        let refused = reader.push(b"220 ftp", &HeadLimits::default(), "GET", |_| {}, |_| ());
        assert_eq!(refused, Err(ResponseError::InvalidVersion));
    }
}
