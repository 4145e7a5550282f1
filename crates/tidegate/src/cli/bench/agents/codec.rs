//! Frames as protocol buffers, for `tonic`: what `rpc` sends and takes in.

use bytes::Buf;
use prost::Message;
use tidegate_bench::agent::messages::Frame;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// It has no state.
#[derive(Clone, Copy)]
pub struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Frame;
    type Encoder = FrameCodec;
    type Decoder = FrameCodec;

    fn encoder(&mut self) -> FrameCodec {
        FrameCodec
    }

    fn decoder(&mut self) -> FrameCodec {
        FrameCodec
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Frame>, Status> {
        let frame = Frame::decode(&mut *buffer);
        buffer.advance(buffer.remaining());
        frame.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
