//! Streams on their way to the client: pulled through the lent buffer with chunk framing around the bytes in
//! place, or moved from socket to socket by way of a pipe. `send` begins and ends them.

use super::Connection;
use super::output::{FRONT, Framer, HeadParts, Source, Step};
use super::send::{FILE_TURN, Output, Progress};
use crate::response::Head;
use std::io::{self, IoSlice};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use tidegate_http::{FieldLines, Status};
use tidegate_io::pipe::Pipe;
use tidegate_io::{Key, runtime};
use tidegate_wire::h1::{self, ConnectionField, ResponseFraming, ResponseParts};

/// Chunks of a stream in one turn.
const CHUNKS: usize = 16;

/// How HTTP/1.1 frames a message.
pub(super) struct Http1Framer {
    pub(super) framing: ResponseFraming,
    pub(super) connection: ConnectionField,
}

impl Framer for Http1Framer {
    const MARKS_LAST: bool = false; // a length, the last chunk or the end of the connection tells it
    const COUNTS_FRAMING: bool = true;

    fn head(&mut self, parts: &HeadParts<'_>, _: bool, out: &mut Vec<u8>) {
        match parts.head {
            Head::Prebuilt(message) => {
                let message = match parts.date {
                    Some(date) => message.stamped(parts.now, date),
                    None => message.encoded(),
                };
                message.append_head(out, self.connection);
            }
            Head::Fields(lines) | Head::Final(lines) => {
                let parts = ResponseParts {
                    status: parts.status.0,
                    reason: parts.status.reason(),
                    date: parts.date,
                    server: parts.server,
                    field_lines: lines.as_bytes(),
                    framing: self.framing,
                    connection: self.connection,
                };
                h1::encode_head(out, &parts);
            }
        }
    }

    fn room(&self) -> usize {
        usize::MAX
    }

    fn data(&mut self, buffer: &mut [u8], count: usize, _: bool) -> io::Result<Range<usize>> {
        let (mut start, mut end) = (FRONT, FRONT + count);
        if self.framing == ResponseFraming::Chunked
            && let Some(count) = NonZeroUsize::new(count)
        {
            let prefix = h1::chunk_prefix(count);
            let prefix = prefix.as_ref();
            start -= prefix.len();
            buffer[start..FRONT].copy_from_slice(prefix);
            buffer[end..end + h1::CHUNK_END.len()].copy_from_slice(h1::CHUNK_END);
            end += h1::CHUNK_END.len();
        }
        Ok(start..end)
    }

    fn trailers(&mut self, lines: &FieldLines, out: &mut Vec<u8>) {
        if self.framing == ResponseFraming::Chunked {
            h1::end_of_chunks(out, lines.as_bytes());
        }
    }
}

impl Connection {
    /// Pulls a stream through the lent buffer; chunk framing is written around the bytes in place.
    pub(super) fn pull(&mut self, key: Key, output: &mut Output) -> io::Result<Progress> {
        let progress = self.move_on(key, output)?;
        if output.pace().is_some() && !output.is_held_up() && progress != Progress::Again {
            output.interrupt();
        }
        if (progress == Progress::Blocked || output.is_held_up())
            && let Source::Stream(source) = &mut output.source
        {
            source.poll_ahead(&mut Context::from_waker(&runtime::waker(key)));
        }
        Ok(progress)
    }

    fn move_on(&mut self, key: Key, output: &mut Output) -> io::Result<Progress> {
        let waker = runtime::waker(key);
        for _ in 0..CHUNKS {
            if let Some(progress) = self.splice(&mut Context::from_waker(&waker), output)? {
                return Ok(progress);
            }
            let step = runtime::with_scratch(|buffer| {
                let is_unsent = std::mem::take(&mut output.framing.keeps_head);
                if !is_unsent && !self.send_held(false)? {
                    return Ok(Some(Progress::Blocked));
                }
                // What may be the end is asked for all the same, and takes no room.
                if output.poll_pace(&waker).is_pending() && !output.may_end() {
                    return Ok(Some(Progress::Waiting));
                }
                let framing = match output.framing.is_chunked {
                    true => ResponseFraming::Chunked,
                    false => ResponseFraming::None,
                };
                let mut framer = Http1Framer { framing, connection: ConnectionField::None };
                let mut cx = Context::from_waker(&waker);
                match output.pull(&mut framer, &mut cx, buffer, &mut self.batch) {
                    // Where not even its head has been sent, the client gets another answer. Otherwise it is cut short: the message
                    // never ends cleanly. Where only the end of the connection ends it, that has to be a reset.
                    Err(error) => {
                        if is_unsent && output.status != Status::SWITCHING_PROTOCOLS {
                            output.framing.keeps_head = true;
                        } else if output.left.is_none() && !output.framing.is_chunked {
                            self.transport.reset_on_close();
                        }
                        return Err(error);
                    }
                    Ok(Step::Waiting) => {
                        let is_flushed = self.send_held(false)?;
                        return Ok(Some(if is_flushed { Progress::Waiting } else { Progress::Blocked }));
                    }
                    Ok(Step::Framed(range)) => {
                        let framed = &buffer[range];
                        output.sent += framed.len() as u64;
                        output.spend(framed.len() as u64);
                        let filled = self.fill_pipe(&mut cx, output);
                        self.send_behind_held(framed, matches!(filled, Ok(Some(Progress::Done))))?;
                        filled?;
                    }
                    Ok(Step::Ended) => {
                        // Only its end is in the batch: the head was held, or has left.
                        output.sent += self.batch.len() as u64;
                        output.count_overhead(self.batch.len());
                        if !self.batch.is_empty() || !self.held.is_empty() {
                            let mut end = std::mem::take(&mut *self.batch);
                            let sent = self.send_behind_held(&end, false);
                            end.clear();
                            *self.batch = end; // the memory is the worker's
                            sent?;
                        }
                    }
                }
                Ok::<_, io::Error>(if self.held.is_empty() { None } else { Some(Progress::Blocked) })
            })?;
            if let Some(progress) = step {
                return Ok(progress);
            }
        }
        Ok(Progress::Again)
    }

    /// Moves content from socket to socket, as long as its source does so and nothing is in front of it. `None`:
    /// what comes next is pulled.
    fn splice(&mut self, cx: &mut Context<'_>, output: &mut Output) -> io::Result<Option<Progress>> {
        let begin = output.sent;
        loop {
            let pipe = output.extras.as_mut().and_then(|extras| extras.pipe.as_mut());
            if let Some(pipe) = pipe.filter(|pipe| pipe.held() > 0) {
                if !self.send_held(true)? {
                    return Ok(Some(Progress::Blocked));
                }
                let Some(stream) = self.transport.bare() else { return Ok(Some(Progress::Done)) };
                while pipe.held() > 0 {
                    let sent = pipe.drain(stream.as_fd(), false)?;
                    self.window = self.window.wrapping_add(sent as u32);
                    if sent == 0 {
                        return Ok(Some(Progress::Blocked));
                    }
                }
            }
            if output.sent - begin >= FILE_TURN {
                return Ok(Some(Progress::Again));
            }
            // The head goes first, together with the content that came with it.
            if !self.held.is_empty() || output.framing.keeps_head {
                return Ok(None);
            }
            match self.fill_pipe(cx, output)? {
                Some(Progress::Done) => {}
                other => return Ok(other),
            }
        }
    }

    /// Lets the source of a stream fill the pipe: `Done` where it has. `None`: it does not.
    fn fill_pipe(&self, cx: &mut Context<'_>, output: &mut Output) -> io::Result<Option<Progress>> {
        let Source::Stream(source) = &mut output.source else { return Ok(None) };
        let (Some(left), Some(source)) =
            (output.left.as_mut().filter(|_| !output.framing.is_chunked), source.splice())
        else {
            output.give_up_pipe();
            return Ok(None);
        };
        let extras = &mut output.extras;
        if self.transport.bare().is_none() || extras.as_ref().is_some_and(|extras| extras.is_paced()) {
            return Ok(None);
        }
        let pipe = extras.as_mut().and_then(|extras| extras.pipe.take());
        let Some(pipe) = pipe.or_else(Pipe::lend) else { return Ok(None) };
        match source.poll_splice(cx, extras.get_or_insert_default().pipe.insert(pipe)) {
            Poll::Pending => {
                output.give_up_pipe(); // nobody waits with one
                Ok(Some(Progress::Waiting))
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(count)) => {
                *left = left.checked_sub(count as u64).ok_or(io::ErrorKind::InvalidData)?;
                output.sent += count as u64;
                Ok(Some(Progress::Done))
            }
        }
    }

    /// Sends what is held and `bytes` behind it in one call, and holds the rest.
    fn send_behind_held(&mut self, bytes: &[u8], more: bool) -> io::Result<()> {
        let held = self.held.len();
        let sent = if held == 0 {
            self.transport.send(bytes, more)?
        } else {
            self.transport.send_all(&[IoSlice::new(&self.held), IoSlice::new(bytes)], more)?
        };
        self.window = self.window.wrapping_add(sent as u32);
        self.held.remove_front(sent.min(held));
        self.held.extend_from_slice(&bytes[sent.saturating_sub(held)..]);
        Ok(())
    }
}
