//! Streams on their way to the client: pulled through the lent buffer with chunk framing around the bytes in
//! place, or moved from socket to socket by way of a pipe. `send` begins and ends them.

use super::Connection;
use super::send::{FILE_TURN, Output, Progress, Source};
use crate::body_stream::Chunk;
use std::io::{self, IoSlice};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use tidegate_io::pipe::Pipe;
use tidegate_io::{Key, runtime};
use tidegate_wire::h1;

/// Chunks of a stream in one turn.
const CHUNKS: usize = 16;
/// Room in front of a chunk for its size line.
const CHUNK_PREFIX: usize = 18;

impl Connection {
    /// Pulls a stream through the lent buffer; chunk framing is written around the bytes in place.
    pub(super) fn pull(&mut self, key: Key, output: &mut Output) -> io::Result<Progress> {
        let progress = self.move_on(key, output)?;
        if progress == Progress::Blocked
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
                if !std::mem::take(&mut output.keeps_head) && !self.send_held(false)? {
                    return Ok(Some(Progress::Blocked));
                }
                let Source::Stream(source) = &mut output.source else { return Ok(Some(Progress::Done)) };
                let room = buffer.len().saturating_sub(CHUNK_PREFIX + h1::CHUNK_END.len());
                let polled =
                    source.poll_chunk(&mut Context::from_waker(&waker), &mut buffer[CHUNK_PREFIX..][..room]);
                let chunk = match polled {
                    Poll::Ready(Ok(chunk)) => chunk,
                    // All that was announced is here: what becomes of its source now is nothing to the client.
                    Poll::Ready(Err(_)) if output.left == Some(0) => Chunk::End,
                    // It is cut short: the message never ends cleanly. Where only the end of the connection
                    // ends it, that has to be a reset.
                    Poll::Ready(Err(error)) => {
                        if output.left.is_none() && !output.is_chunked {
                            self.transport.reset_on_close();
                        }
                        return Err(error);
                    }
                    Poll::Pending => {
                        let is_flushed = self.send_held(false)?;
                        return Ok(Some(if is_flushed { Progress::Waiting } else { Progress::Blocked }));
                    }
                };
                let count = chunk.len();
                if let Chunk::Trailers(lines) = &chunk
                    && output.is_chunked
                    && output.left.is_none_or(|left| left == 0)
                {
                    let mut end = Vec::with_capacity(lines.as_bytes().len() + 8);
                    h1::end_of_chunks(&mut end, lines.as_bytes());
                    output.sent += end.len() as u64;
                    output.source = Source::None;
                    self.send_behind_held(&end, false)?;
                    return Ok(if self.held.is_empty() { None } else { Some(Progress::Blocked) });
                }
                let framed = output.frame(buffer, count)?;
                output.sent += framed.len() as u64;
                if !framed.is_empty() || !self.held.is_empty() {
                    let filled = match count {
                        0 => Ok(None),
                        _ => self.fill_pipe(&mut Context::from_waker(&waker), output),
                    };
                    self.send_behind_held(framed, matches!(filled, Ok(Some(Progress::Done))))?;
                    filled?;
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
            if let Some(pipe) = output.pipe.as_mut().filter(|pipe| pipe.held() > 0) {
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
            if !self.held.is_empty() || output.keeps_head {
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
            (output.left.as_mut().filter(|_| !output.is_chunked), source.splice())
        else {
            output.pipe = None;
            return Ok(None);
        };
        if self.transport.bare().is_none() {
            return Ok(None);
        }
        let Some(pipe) = output.pipe.take().or_else(Pipe::lend) else { return Ok(None) };
        match source.poll_splice(cx, output.pipe.insert(pipe)) {
            Poll::Pending => {
                output.pipe = None; // nobody waits with one
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
        self.held.drain(..sent.min(held));
        self.held.extend_from_slice(&bytes[sent.saturating_sub(held)..]);
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        Ok(())
    }
}

impl Output {
    /// Puts the framing around `count` bytes of the stream that lie at [`CHUNK_PREFIX`]; 0 is its end.
    fn frame<'b>(&mut self, buffer: &'b mut [u8], count: usize) -> io::Result<&'b [u8]> {
        if let Some(left) = &mut self.left {
            // A source that gives more or less than it announced: the client must see that it broke.
            *left = left.checked_sub(count as u64).ok_or(io::ErrorKind::InvalidData)?;
            if count == 0 && *left > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let Some(length) = NonZeroUsize::new(count) else {
            self.source = Source::None;
            return Ok(if self.is_chunked { h1::LAST_CHUNK } else { &[] });
        };
        let (mut start, mut end) = (CHUNK_PREFIX, CHUNK_PREFIX + count);
        if self.is_chunked {
            let prefix = h1::chunk_prefix(length);
            let prefix = prefix.as_ref();
            start -= prefix.len();
            buffer[start..CHUNK_PREFIX].copy_from_slice(prefix);
            buffer[end..end + h1::CHUNK_END.len()].copy_from_slice(h1::CHUNK_END);
            end += h1::CHUNK_END.len();
        }
        Ok(&buffer[start..end])
    }
}
