//! The three encoders behind one face: bytes in, bytes out, no source and no sink.
//!
//! Called by `stream` and by [`encode_whole`]. gzip is framed here (RFC 1952) around raw deflate, so that its
//! head is the same everywhere: no time, no system. zstd keeps to a window of 8 MiB (RFC 9659).

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use flate2::{Compress as Deflate, Compression, Crc, FlushCompress, Status};
use std::io;
use tidegate_config::settings::Coding;
use zstd::stream::raw::{CParameter, InBuffer, Operation, OutBuffer};

/// Magic number, deflate, no flags, no time, no hint of the level, unknown system (RFC 1952 section 2.3.1).
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// CRC and length.
const GZIP_TAIL: usize = 8;
/// More than head, tail, and the mark of a flush.
const EDGE: usize = 64;
/// Windows, as powers of two: of a stream, so that thousands of them fit into memory, and of a whole file.
const STREAM_WINDOW: u32 = 18;
const WHOLE_WINDOW: u32 = 22;
/// RFC 9659: 8 MiB.
const ZSTD_WINDOW_MAX: u32 = 23;
/// zstd's levels above this take larger windows of their own accord.
const ZSTD_LEVEL_WINDOW_FITS: u8 = 19;
/// What output is grown by while a whole body is encoded, bytes.
const GROWTH: usize = 16 << 10;

/// Encodes a body at once. `level` is the coding's own (gzip 1-9, brotli 0-11, zstd 1-22); a value beyond
/// that is taken for the nearest. It may take seconds at high levels: run it on the blocking pool.
///
/// # Errors
/// Out of memory, as far as the library says so.
pub fn encode_whole(coding: Coding, level: u8, bytes: &[u8]) -> io::Result<Vec<u8>> {
    Encoder::new(coding, level, WHOLE_WINDOW, Some(bytes.len() as u64))?.encode(bytes)
}

/// Encodes a small body on the worker, at a level that it can afford.
pub(super) fn encode_small(coding: Coding, level: u8, bytes: &[u8]) -> io::Result<Vec<u8>> {
    Encoder::for_stream(coding, level, Some(bytes.len() as u64))?.encode(bytes)
}

/// What a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// More input follows.
    More,
    /// All input so far is to become decodable. Takes no input.
    Flush,
    /// The end. Takes no input.
    Finish,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of input taken.
    pub read: usize,
    /// Bytes of output made.
    pub written: usize,
    /// A flush or the end is reached. Otherwise the output was too small, and the step is to be repeated.
    pub is_complete: bool,
}

/// An encoder under way.
pub(super) enum Encoder {
    Gzip(Box<Gzip>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(zstd::stream::raw::Encoder<'static>),
}

pub(super) struct Gzip {
    deflate: Deflate,
    crc: Crc,
    /// On its way out before anything else: head, tail, or the end of a flush.
    edge: [u8; EDGE],
    edge_at: usize,
    edge_end: usize,
    /// The flush under way ends with the edge.
    is_flushed: bool,
    is_ended: bool,
}

impl Encoder {
    /// For a response under way: at a level that keeps a step of 64 KiB within a few milliseconds.
    pub(super) fn for_stream(coding: Coding, level: u8, len: Option<u64>) -> io::Result<Encoder> {
        let affordable = match coding {
            Coding::Gzip => 9,
            Coding::Brotli => 6,
            Coding::Zstd => 9,
        };
        Encoder::new(coding, level.min(affordable), STREAM_WINDOW, len)
    }

    /// About the memory of [`Encoder::for_stream`], bytes, as measured.
    pub(super) fn weight(coding: Coding, level: u8) -> usize {
        match coding {
            Coding::Gzip => 400 << 10,
            Coding::Brotli => 5 << 20,
            Coding::Zstd if level <= 6 => 3 << 20,
            Coding::Zstd => 11 << 20,
        }
    }

    /// `window` is a power of two; it shrinks for what is known to be smaller. A `len` that is given must
    /// be true.
    fn new(coding: Coding, level: u8, window: u32, len: Option<u64>) -> io::Result<Encoder> {
        let needed = len.map_or(window, |len| len.max(1).next_power_of_two().trailing_zeros());
        let bits = needed.clamp(10, window);
        Ok(match coding {
            Coding::Gzip => Encoder::Gzip(Box::new(Gzip::new(level))),
            Coding::Brotli => {
                let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
                let hint = len.unwrap_or(1 << bits).clamp(1, 1 << 30) as u32;
                for (parameter, value) in [
                    (BrotliEncoderParameter::BROTLI_PARAM_QUALITY, u32::from(level.min(11))),
                    (BrotliEncoderParameter::BROTLI_PARAM_LGWIN, bits),
                    (BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, hint),
                ] {
                    state.set_parameter(parameter, value);
                }
                Encoder::Brotli(state)
            }
            Coding::Zstd => {
                let level = level.clamp(1, 22);
                let mut encoder = zstd::stream::raw::Encoder::new(i32::from(level))?;
                if window == STREAM_WINDOW {
                    encoder.set_parameter(CParameter::WindowLog(bits))?;
                } else if level > ZSTD_LEVEL_WINDOW_FITS {
                    encoder.set_parameter(CParameter::WindowLog(needed.clamp(10, ZSTD_WINDOW_MAX)))?;
                }
                encoder.set_pledged_src_size(len)?;
                Encoder::Zstd(encoder)
            }
        })
    }

    /// Encodes from `input` into `output`, which is not empty. Input counts for [`Goal::More`] only.
    pub(super) fn step(&mut self, goal: Goal, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
        let input = if goal == Goal::More { input } else { &[] };
        let step = match self {
            Encoder::Gzip(gzip) => gzip.step(goal, input, output)?,
            Encoder::Brotli(state) => step_brotli(state, goal, input, output)?,
            Encoder::Zstd(encoder) => step_zstd(encoder, goal, input, output)?,
        };
        if goal == Goal::More && !input.is_empty() && step.read == 0 && step.written == 0 {
            return Err(io::Error::other("the encoder does not get on"));
        }
        Ok(step)
    }

    fn encode(mut self, mut input: &[u8]) -> io::Result<Vec<u8>> {
        let mut output = vec![0; input.len() / 4 + GROWTH];
        let mut end = 0;
        loop {
            if end == output.len() {
                output.resize(end + end / 2 + GROWTH, 0);
            }
            let goal = if input.is_empty() { Goal::Finish } else { Goal::More };
            let step = self.step(goal, input, &mut output[end..])?;
            input = &input[step.read..];
            end += step.written;
            if step.is_complete {
                output.truncate(end);
                output.shrink_to_fit();
                return Ok(output);
            }
        }
    }
}

impl Gzip {
    fn new(level: u8) -> Gzip {
        let mut edge = [0; EDGE];
        edge[..GZIP_HEAD.len()].copy_from_slice(&GZIP_HEAD);
        Gzip {
            deflate: Deflate::new(Compression::new(u32::from(level.clamp(1, 9))), false),
            crc: Crc::new(),
            edge,
            edge_at: 0,
            edge_end: GZIP_HEAD.len(),
            is_flushed: false,
            is_ended: false,
        }
    }

    fn step(&mut self, goal: Goal, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
        let mut written = self.drain_edge(output);
        let mut read = 0;
        if written < output.len() && !self.is_ended && !self.is_flushed {
            let room = &mut output[written..];
            match goal {
                Goal::More => {
                    let (taken, made, _) = deflate(&mut self.deflate, input, room, FlushCompress::None)?;
                    self.crc.update(&input[..taken]);
                    (read, written) = (taken, written + made);
                }
                // A flush that fills its room to the last byte is begun anew by the next call: without this
                // detour a tiny room would be filled with marks of flushes for ever.
                Goal::Flush if room.len() < EDGE => {
                    let (_, made, _) = deflate(&mut self.deflate, &[], &mut self.edge, FlushCompress::Sync)?;
                    (self.edge_at, self.edge_end) = (0, made);
                    self.is_flushed = made < EDGE;
                    written += self.drain_edge(room);
                }
                Goal::Flush => {
                    let (_, made, _) = deflate(&mut self.deflate, &[], room, FlushCompress::Sync)?;
                    self.is_flushed = made < room.len();
                    written += made;
                }
                Goal::Finish => {
                    let (_, made, status) = deflate(&mut self.deflate, &[], room, FlushCompress::Finish)?;
                    written += made;
                    if status == Status::StreamEnd {
                        self.is_ended = true;
                        self.edge[..4].copy_from_slice(&self.crc.sum().to_le_bytes());
                        self.edge[4..GZIP_TAIL].copy_from_slice(&self.crc.amount().to_le_bytes());
                        (self.edge_at, self.edge_end) = (0, GZIP_TAIL);
                        written += self.drain_edge(&mut output[written..]);
                    }
                }
            }
        }
        let is_drained = self.edge_at == self.edge_end;
        let is_complete = match goal {
            Goal::More => false,
            Goal::Flush => is_drained && std::mem::take(&mut self.is_flushed),
            Goal::Finish => is_drained && self.is_ended,
        };
        Ok(Step { read, written, is_complete })
    }

    fn drain_edge(&mut self, output: &mut [u8]) -> usize {
        let count = (self.edge_end - self.edge_at).min(output.len());
        output[..count].copy_from_slice(&self.edge[self.edge_at..][..count]);
        self.edge_at += count;
        count
    }
}

/// Bytes taken and made, and whether that was the end.
fn deflate(
    deflate: &mut Deflate,
    input: &[u8],
    output: &mut [u8],
    flush: FlushCompress,
) -> io::Result<(usize, usize, Status)> {
    let (in_before, out_before) = (deflate.total_in(), deflate.total_out());
    let status =
        deflate.compress(input, output, flush).map_err(|error| io::Error::other(error.to_string()))?;
    let read = (deflate.total_in() - in_before) as usize;
    Ok((read, (deflate.total_out() - out_before) as usize, status))
}

fn step_brotli(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    goal: Goal,
    input: &[u8],
    output: &mut [u8],
) -> io::Result<Step> {
    let operation = match goal {
        Goal::More => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Goal::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Goal::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut available_in, mut read) = (input.len(), 0);
    let (mut available_out, mut written) = (output.len(), 0);
    let is_well = state.compress_stream(
        operation,
        &mut available_in,
        input,
        &mut read,
        &mut available_out,
        output,
        &mut written,
        &mut None,
        &mut |_, _, _, _| (),
    );
    if !is_well {
        return Err(io::Error::other("the brotli encoder has failed"));
    }
    let is_complete = match goal {
        Goal::More => false,
        Goal::Flush => !state.has_more_output(),
        Goal::Finish => state.is_finished(),
    };
    Ok(Step { read, written, is_complete })
}

fn step_zstd(
    encoder: &mut zstd::stream::raw::Encoder<'static>,
    goal: Goal,
    input: &[u8],
    output: &mut [u8],
) -> io::Result<Step> {
    let mut source = InBuffer::around(input);
    let mut sink = OutBuffer::around(output);
    let left = match goal {
        Goal::More => encoder.run(&mut source, &mut sink)?,
        Goal::Flush => encoder.flush(&mut sink)?,
        Goal::Finish => encoder.finish(&mut sink, true)?,
    };
    let is_complete = goal != Goal::More && left == 0;
    Ok(Step { read: source.pos(), written: sink.pos(), is_complete })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    pub(in crate::compress) const CODINGS: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// Decodes a complete body.
    pub(in crate::compress) fn decode(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain)?,
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain)?,
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(bytes)?;
                decoder.window_log_max(ZSTD_WINDOW_MAX)?;
                decoder.read_to_end(&mut plain)?
            }
        };
        Ok(plain)
    }

    /// Decodes as much as the front of a body gives.
    pub(in crate::compress) fn decode_front(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let mut buffer = [0; 4096];
        let mut reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        };
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            plain.extend_from_slice(&buffer[..count]);
        }
        plain
    }

    #[test]
    fn every_level_round_trips() {
        let text: Vec<u8> = (0..20_000u32).flat_map(|i| (i * i).to_string().into_bytes()).collect();
        for coding in CODINGS {
            for level in [0, 1, 5, 6, 9, 11, 19, 22, 255] {
                for length in [0, 1, 1000, 20_000] {
                    let plain = &text[..length];
                    let encoded = encode_whole(coding, level, plain).unwrap();
                    assert_eq!(decode(coding, &encoded).unwrap(), plain, "{coding:?} {level} {length}");
                    let encoded = encode_small(coding, level, plain).unwrap();
                    assert_eq!(decode(coding, &encoded).unwrap(), plain, "{coding:?} {level} {length}");
                }
            }
        }
    }

    #[test]
    fn gzip_head_tells_neither_time_nor_system() {
        let encoded = encode_whole(Coding::Gzip, 6, b"hello").unwrap();
        assert_eq!(encoded[..10], GZIP_HEAD);
        assert_eq!(encoded, encode_whole(Coding::Gzip, 6, b"hello").unwrap());
    }

    /// RFC 8878 section 3.1.1.1.2: a frame without the single-segment flag states its window.
    #[test]
    fn zstd_windows_stay_within_8_mib() {
        for (level, length) in [(3, None), (22, None), (19, Some(64 << 20)), (22, Some(64 << 20))] {
            for window in [STREAM_WINDOW, WHOLE_WINDOW] {
                let mut encoder = Encoder::new(Coding::Zstd, level, window, length).unwrap();
                let mut head = [0; 64];
                encoder.step(Goal::More, b"some bytes", &mut head).unwrap();
                let written = encoder.step(Goal::Flush, &[], &mut head).unwrap().written;
                assert!(written > 6 && head[4] & 0x20 == 0, "no window: {:x?}", &head[..6]);
                assert!(10 + (head[5] >> 3) <= 23, "level {level}: window 2^{}", 10 + (head[5] >> 3));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases((ProptestConfig::default().cases / 5).max(1)))]

        #[test]
        fn any_chunking_and_any_flushing_round_trips(
            chunks in proptest::collection::vec(
                (proptest::collection::vec(0u8..8, 0..600), any::<bool>()), 0..12),
            room in 1usize..400,
            level in 0u8..12,
        ) {
            for coding in CODINGS {
                let mut encoder = Encoder::for_stream(coding, level, None).unwrap();
                let (mut encoded, mut plain) = (Vec::new(), Vec::new());
                let mut output = vec![0; room];
                for (chunk, is_flushed) in &chunks {
                    let mut rest = &chunk[..];
                    plain.extend_from_slice(chunk);
                    while !rest.is_empty() {
                        let step = encoder.step(Goal::More, rest, &mut output).unwrap();
                        rest = &rest[step.read..];
                        encoded.extend_from_slice(&output[..step.written]);
                    }
                    if *is_flushed {
                        drain(&mut encoder, Goal::Flush, &mut output, &mut encoded);
                        prop_assert_eq!(&decode_front(coding, &encoded), &plain, "{:?}", coding);
                    }
                }
                drain(&mut encoder, Goal::Finish, &mut output, &mut encoded);
                prop_assert_eq!(&decode(coding, &encoded).unwrap(), &plain, "{:?}", coding);
            }
        }
    }

    fn drain(encoder: &mut Encoder, goal: Goal, output: &mut [u8], encoded: &mut Vec<u8>) {
        for _ in 0..100_000 {
            let step = encoder.step(goal, &[], output).unwrap();
            encoded.extend_from_slice(&output[..step.written]);
            if step.is_complete {
                return;
            }
            assert!(step.written > 0, "{goal:?} makes no progress");
        }
        panic!("{goal:?} does not end");
    }
}
