//! Content of a request on its way from the connection to a handler.
//!
//! The connection decodes what arrives and puts it into a bounded pipe; the handler polls the other end.
//! When the pipe is full the connection stops reading, and TCP tells the client. Both ends live on one
//! worker, and the connection's slot is the handler's task, so no waker is stored.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use thiserror::Error;
use tidegate_http::FieldLines;

/// Bytes a pipe holds before the connection stops reading.
pub const HIGH_WATER: usize = 64 << 10;

/// Why the content of a request cannot be had; always the client's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestBodyError {
    /// The client broke the chunked coding.
    #[error("the client sent a malformed body")]
    Malformed,
    /// More than `limits body-size`.
    #[error("the client sent a body over the limit")]
    TooLarge,
    /// Slower than `limits body-rate`, or gone.
    #[error("the client stopped sending its body")]
    Interrupted,
}

#[derive(Default)]
struct Pipe {
    data: Vec<u8>,
    is_complete: bool,
    /// What the client has sent behind its content.
    trailers: FieldLines,
    is_wanted: bool,
    error: Option<RequestBodyError>,
    /// See [`BodySink::is_read_off`].
    read_off: Option<u64>,
}

/// The handler's end.
pub struct RequestBody {
    pipe: Rc<RefCell<Pipe>>,
    /// Bytes in all, where the client has said so.
    pub len: Option<u64>,
}

/// The connection's end.
pub struct BodySink {
    pipe: Rc<RefCell<Pipe>>,
}

/// A pipe of content.
pub fn pipe(len: Option<u64>) -> (BodySink, RequestBody) {
    let pipe = Rc::new(RefCell::new(Pipe::default()));
    (BodySink { pipe: pipe.clone() }, RequestBody { pipe, len })
}

impl RequestBody {
    /// Reads off what nobody has read, where that has to be done before an answer is made; a part of it where it is much.
    pub(crate) async fn read_off(mut self) {
        let Some(most) = self.pipe.borrow().read_off else { return };
        let (mut bytes, mut read) = (Vec::new(), 0u64);
        while let Ok(count @ 1..) = self.read(&mut bytes).await {
            read = read.saturating_add(count as u64);
            if read > most {
                break;
            }
            bytes.clear();
        }
    }

    /// What has arrived, moved to the end of `into`; the count, 0 at the end. The connection drives the
    /// caller again when more arrives. The first poll is what makes a `100 Continue` go out.
    pub fn poll_read(&mut self, into: &mut Vec<u8>) -> Poll<Result<usize, RequestBodyError>> {
        let mut pipe = self.pipe.borrow_mut();
        pipe.is_wanted = true;
        if !pipe.data.is_empty() {
            let count = pipe.data.len();
            into.append(&mut pipe.data);
            return Poll::Ready(Ok(count));
        }
        match pipe.error {
            Some(error) => Poll::Ready(Err(error)),
            None if pipe.is_complete => Poll::Ready(Ok(0)),
            None => Poll::Pending,
        }
    }

    /// The trailer fields, once the end was read; never a part of the head (FAULTS 13). Only what names connection and
    /// framing is not among them: who passes them on looks at each.
    pub fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.pipe.borrow_mut().trailers)
    }

    /// Waits for what comes next; 0 at the end.
    ///
    /// # Errors
    /// As [`RequestBody::poll_read`]: the content is malformed, too large, or was broken off.
    pub async fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, RequestBodyError> {
        std::future::poll_fn(|_| self.poll_read(into)).await
    }
}

impl BodySink {
    /// What comes in chunks may turn out to be no request at all, or so long that the answer has to say that the connection
    /// ends: where no handler reads it, up to `most` bytes of it are read before an answer is made. So who sends a
    /// malformed chunk hears 400 and nothing before.
    pub fn is_read_off(&self, most: u64) {
        self.pipe.borrow_mut().read_off = Some(most);
    }

    /// Whether a handler still holds the other end.
    pub fn has_reader(&self) -> bool {
        Rc::strong_count(&self.pipe) > 1
    }

    /// Whether a handler has asked for content.
    pub fn is_wanted(&self) -> bool {
        self.pipe.borrow().is_wanted
    }

    /// Whether all of it has come, taken or not.
    pub fn is_complete(&self) -> bool {
        self.pipe.borrow().is_complete
    }

    /// Bytes that may be put in now.
    pub fn room(&self) -> usize {
        HIGH_WATER.saturating_sub(self.pipe.borrow().data.len())
    }

    /// Bytes that the handler has not taken yet.
    pub fn len(&self) -> usize {
        self.pipe.borrow().data.len()
    }

    /// Whether the handler has taken everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        let pipe = self.pipe.borrow();
        pipe.data.capacity() + pipe.trailers.capacity()
    }

    /// Puts decoded content in.
    pub fn push(&self, data: &[u8]) {
        self.pipe.borrow_mut().data.extend_from_slice(data);
    }

    /// The content is complete, with these fields behind it.
    pub fn complete(&self, trailers: FieldLines) {
        let mut pipe = self.pipe.borrow_mut();
        (pipe.is_complete, pipe.trailers) = (true, trailers);
    }

    /// The content will never be complete.
    pub fn fail(&self, error: RequestBodyError) {
        self.pipe.borrow_mut().error = Some(error);
    }
}
