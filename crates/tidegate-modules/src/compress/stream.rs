//! A body that is encoded while the client takes it.
//!
//! Made by `filter`, pulled by the connection. It holds one chunk of plain bytes and the encoder's window,
//! whatever the length of the body; it takes a bounded number of bytes in one turn of the worker; and when
//! its source has nothing for now, what has been taken so far is flushed, so that a slow producer reaches
//! its client.

use super::encoder::{Encoder, Goal, Step};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate_core::body_stream::Splice;
use tidegate_core::{BodyStream, Chunk, Message};
use tidegate_http::FieldLines;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::shared_bytes::SharedPiece;
use tidegate_stats::Worker as Stats;

/// Plain bytes held at most.
const CHUNK: usize = 32 << 10;
/// Plain bytes encoded in one turn: a few milliseconds at the slowest level that is allowed here.
const TURN: usize = 64 << 10;

/// A stream of encoded bytes.
pub(super) struct EncodedStream {
    encoder: Encoder,
    /// Bytes of the encoder.
    weight: usize,
    source: Box<dyn BodyStream>,
    /// Bytes that the source must still give, where it has announced them.
    left: Option<u64>,
    flushes: bool,
    chunk: Vec<u8>,
    taken: usize,
    filled: usize,
    state: State,
    /// What the source has behind its content.
    trailers: FieldLines,
    /// This turn's share is used up: let others run first.
    rests: bool,
    /// Nanoseconds that encoding took, and where that is counted.
    took: u64,
    timed: Option<Arc<Stats>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has gone in that has not been flushed.
    Clean,
    Encoding,
    Flushing,
    Finishing,
    Done,
}

impl EncodedStream {
    /// Encodes a source of `len` bytes. It is flushed when it has to wait only where `flushes`: for a file
    /// that would cost ratio and win nothing.
    pub(super) fn new(
        encoder: Encoder,
        source: Box<dyn BodyStream>,
        len: Option<u64>,
        flushes: bool,
    ) -> EncodedStream {
        EncodedStream {
            encoder,
            weight: 0,
            source,
            left: len,
            flushes,
            chunk: Vec::new(),
            taken: 0,
            filled: 0,
            state: State::Clean,
            trailers: FieldLines::new(),
            rests: false,
            took: 0,
            timed: None,
        }
    }

    /// The same; how long encoding takes, all in all, is counted there.
    pub(super) fn timed(mut self, stats: Option<Arc<Stats>>) -> EncodedStream {
        self.timed = stats;
        self
    }

    fn step(&mut self, goal: Goal, turn: usize, output: &mut [u8]) -> io::Result<Step> {
        let input = match goal {
            Goal::More => &self.chunk[self.taken..self.filled.min(self.taken + turn)],
            Goal::Flush | Goal::Finish => &[],
        };
        let began = self.timed.is_some().then(monotonic_ns);
        let step = self.encoder.step(goal, input, output);
        if let Some(began) = began {
            self.took += monotonic_ns().saturating_sub(began);
        }
        step
    }

    /// The same, with an encoder of so many bytes.
    pub(super) fn weighing(mut self, weight: usize) -> EncodedStream {
        self.weight = weight;
        self
    }

    /// Sees to it that the chunk holds something. `false` at the end of the source.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.taken < self.filled {
            return Poll::Ready(Ok(true));
        }
        if self.chunk.is_empty() {
            self.chunk = vec![0; CHUNK];
        }
        (self.taken, self.filled) = (0, 0);
        let polled = self.source.poll_chunk(cx, &mut self.chunk);
        if polled.is_pending() {
            // Who waits holds no buffer.
            self.chunk = Vec::new();
        }
        let chunk = ready!(polled)?;
        let count = chunk.len();
        if let Chunk::Trailers(lines) = chunk {
            self.trailers = lines;
        }
        if let Some(left) = &mut self.left {
            // The encoded body has no length that would show it: what breaks off must not look complete.
            *left = left.checked_sub(count as u64).ok_or(io::ErrorKind::InvalidData)?;
            if count == 0 && *left > 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        self.filled = count;
        Poll::Ready(Ok(count > 0))
    }
}

impl BodyStream for EncodedStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        if std::mem::take(&mut self.rests) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut written = 0;
        let mut turn = TURN;
        while written < buffer.len() {
            let goal = match self.state {
                State::Done => break,
                State::Flushing => Goal::Flush,
                State::Finishing => Goal::Finish,
                State::Clean | State::Encoding => match self.poll_fill(cx) {
                    Poll::Ready(Ok(true)) => Goal::More,
                    Poll::Ready(Ok(false)) => {
                        self.state = State::Finishing;
                        self.chunk = Vec::new();
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending if self.flushes && self.state == State::Encoding => {
                        self.state = State::Flushing;
                        continue;
                    }
                    Poll::Pending if written > 0 => break,
                    Poll::Pending => return Poll::Pending,
                },
            };
            let step = self.step(goal, turn, &mut buffer[written..])?;
            self.taken += step.read;
            written += step.written;
            turn -= step.read;
            self.state = match goal {
                Goal::More => State::Encoding,
                Goal::Flush if step.is_complete => State::Clean,
                Goal::Finish if step.is_complete => State::Done,
                Goal::Flush | Goal::Finish => self.state,
            };
            if self.state == State::Clean && written > 0 {
                break; // flushed: out with it before the source is asked again
            }
            if turn == 0 {
                if written == 0 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.rests = true;
                break;
            }
        }
        if written == 0 {
            return Poll::Ready(Ok(Chunk::end(std::mem::take(&mut self.trailers))));
        }
        Poll::Ready(Ok(Chunk::of(written)))
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, State::Clean | State::Encoding | State::Flushing) {
            self.source.poll_ahead(cx);
        }
    }

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None // the bytes of the source are other ones
    }

    fn held(&self) -> usize {
        self.weight + self.chunk.capacity() + self.trailers.as_bytes().len() + self.source.held()
    }
}

impl Drop for EncodedStream {
    fn drop(&mut self) {
        if let Some(stats) = self.timed.as_ref().filter(|_| self.took > 0) {
            stats.file_compression.record_nanos(self.took);
        }
    }
}

/// Bytes in memory as a source.
pub(crate) struct BytesSource {
    pub bytes: Vec<u8>,
    pub taken: usize,
}

impl BodyStream for BytesSource {
    fn held(&self) -> usize {
        self.bytes.capacity()
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        Poll::Ready(Ok(take(&self.bytes, &mut self.taken, buffer)))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}

/// The body of a shared message as a source.
pub(crate) struct MessageSource {
    pub message: Rc<Message>,
    pub taken: usize,
}

impl BodyStream for MessageSource {
    fn held(&self) -> usize {
        size_of::<MessageSource>() // the message belongs to all
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        Poll::Ready(Ok(take(self.message.encoded().body(), &mut self.taken, buffer)))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}

/// Memory that others send from as well, as a source.
pub(crate) struct SharedSource(pub SharedPiece);

impl BodyStream for SharedSource {
    fn held(&self) -> usize {
        size_of::<SharedSource>() // the memory belongs to all
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        let mut count = 0;
        let chunk = take(self.0.run(), &mut count, buffer);
        self.0.advance(count as u64);
        Poll::Ready(Ok(chunk))
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) {}

    fn splice(&mut self) -> Option<&mut dyn Splice> {
        None
    }
}

fn take(bytes: &[u8], taken: &mut usize, buffer: &mut [u8]) -> Chunk {
    let rest = bytes.get(*taken..).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    *taken += count;
    Chunk::of(count)
}

#[cfg(test)]
mod tests {
    use super::super::encoder::tests::{CODINGS, decode, decode_front};
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::task::Waker;
    use tidegate_config::settings::Coding;

    /// Gives what it is told; `None` is a wait.
    struct Script(VecDeque<Option<Vec<u8>>>);
    impl BodyStream for Script {
        fn held(&self) -> usize {
            0
        }

        fn poll_ahead(&mut self, _: &mut Context<'_>) {}

        fn splice(&mut self) -> Option<&mut dyn Splice> {
            None
        }

        fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
            match self.0.pop_front() {
                None => Poll::Ready(Ok(Chunk::End)),
                Some(None) => Poll::Pending,
                Some(Some(mut bytes)) => {
                    let count = bytes.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&bytes[..count]);
                    let rest = bytes.split_off(count);
                    if !rest.is_empty() {
                        self.0.push_front(Some(rest));
                    }
                    Poll::Ready(Ok(Chunk::of(count)))
                }
            }
        }
    }

    /// Any number of zeros.
    struct Zeros {
        left: u64,
        given: Rc<Cell<u64>>,
    }
    impl BodyStream for Zeros {
        fn held(&self) -> usize {
            0
        }

        fn poll_ahead(&mut self, _: &mut Context<'_>) {}

        fn splice(&mut self) -> Option<&mut dyn Splice> {
            None
        }

        fn poll_chunk(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
            let count = self.left.min(buffer.len() as u64);
            buffer[..count as usize].fill(0);
            self.left -= count;
            self.given.set(self.given.get() + count);
            Poll::Ready(Ok(Chunk::of(count as usize)))
        }
    }

    fn stream(coding: Coding, source: impl BodyStream + 'static, len: Option<u64>) -> EncodedStream {
        let encoder = Encoder::for_stream(coding, 5, len).unwrap();
        EncodedStream::new(encoder, Box::new(source), len, true)
    }

    fn poll(stream: &mut EncodedStream, buffer: &mut [u8]) -> Poll<io::Result<Chunk>> {
        stream.poll_chunk(&mut Context::from_waker(Waker::noop()), buffer)
    }

    /// Pulls to the end through buffers of `room` bytes, polling again after each wait.
    fn pull(stream: &mut EncodedStream, room: usize) -> io::Result<Vec<u8>> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
        for _ in 0..100_000 {
            match poll(stream, &mut buffer) {
                Poll::Ready(Ok(Chunk::Data(count))) => all.extend_from_slice(&buffer[..count.get()]),
                Poll::Ready(Ok(_)) => return Ok(all),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {}
            }
            assert!(stream.chunk.capacity() <= CHUNK);
        }
        panic!("the stream does not end");
    }

    #[test]
    fn a_source_that_waits_is_flushed_once() {
        for coding in CODINGS {
            let script = [Some(b"first ".to_vec()), None, None, Some(b"second".to_vec()), None];
            let mut stream = stream(coding, Script(script.into()), None);
            let mut buffer = [0; 4096];
            let mut next = |stream: &mut EncodedStream| match poll(stream, &mut buffer) {
                Poll::Ready(chunk) => Some(buffer[..chunk.unwrap().len()].to_vec()),
                Poll::Pending => None,
            };
            let mut encoded = next(&mut stream).expect("what came before the wait is flushed");
            assert_eq!(decode_front(coding, &encoded), b"first ", "{coding:?}");
            // The second wait: nothing is new, so nothing comes out, and nothing is held.
            assert_eq!(next(&mut stream), None, "{coding:?}");
            assert_eq!(stream.chunk.capacity(), 0);
            encoded.extend(next(&mut stream).expect("bytes again"));
            assert_eq!(decode_front(coding, &encoded), b"first second", "{coding:?}");
            encoded.extend(next(&mut stream).expect("the end"));
            assert_eq!(next(&mut stream), Some(Vec::new()));
            assert_eq!(decode(coding, &encoded).unwrap(), b"first second", "{coding:?}");
        }
    }

    #[test]
    fn a_source_that_lies_about_its_length_is_an_error() {
        for coding in CODINGS {
            let bytes = || BytesSource { bytes: vec![7; 100], taken: 0 };
            let short = pull(&mut stream(coding, bytes(), Some(101)), 50).unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
            let long = pull(&mut stream(coding, bytes(), Some(99)), 50).unwrap_err();
            assert_eq!(long.kind(), io::ErrorKind::InvalidData);
            assert!(pull(&mut stream(coding, bytes(), Some(100)), 50).is_ok());
        }
    }

    #[test]
    fn a_turn_is_bounded_and_the_next_one_waits() {
        for coding in CODINGS {
            let given = Rc::new(Cell::new(0));
            let mut stream = stream(coding, Zeros { left: u64::MAX, given: given.clone() }, None);
            let mut buffer = [0; 60_000];
            let mut waits = 0;
            for _ in 0..40 {
                let before = given.get();
                match poll(&mut stream, &mut buffer) {
                    Poll::Pending => waits += 1,
                    Poll::Ready(chunk) => assert!(!chunk.unwrap().is_empty()),
                }
                assert!(given.get() - before <= TURN as u64);
            }
            assert!(waits >= 20, "{coding:?}: {waits}");
        }
    }

    #[test]
    fn a_long_body_needs_no_more_memory_than_a_short_one() {
        let length = if cfg!(debug_assertions) { 64 << 20 } else { 1 << 30 };
        for coding in CODINGS {
            let mut stream = stream(coding, Zeros { left: length, given: Rc::default() }, Some(length));
            let mut buffer = vec![0; 60_000];
            let mut total = 0u64;
            loop {
                match poll(&mut stream, &mut buffer) {
                    Poll::Ready(Ok(Chunk::Data(count))) => total += count.get() as u64,
                    Poll::Ready(Ok(_)) => break,
                    Poll::Ready(Err(error)) => panic!("{coding:?}: {error}"),
                    Poll::Pending => {}
                }
                assert!(stream.chunk.capacity() <= CHUNK);
            }
            assert!(total > 0 && total < length / 100, "{coding:?}: {total}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases((ProptestConfig::default().cases / 6).max(1)))]

        #[test]
        fn any_script_round_trips(
            script in proptest::collection::vec(
                proptest::option::weighted(0.7, proptest::collection::vec(0u8..16, 1..4000)), 0..12),
            room in 1usize..3000,
        ) {
            let plain: Vec<u8> = script.iter().flatten().flatten().copied().collect();
            for coding in CODINGS {
                let len = Some(plain.len() as u64);
                let encoded = pull(&mut stream(coding, Script(script.clone().into()), len), room).unwrap();
                prop_assert_eq!(&decode(coding, &encoded).unwrap(), &plain, "{:?}", coding);
            }
        }
    }
}
