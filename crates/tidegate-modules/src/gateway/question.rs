//! What the server itself asks of an application, and not on behalf of a client that waits for all of the answer: whether a
//! request may go on (`login forward`), the keys of an identity provider. The question is in memory, and so is the answer.

use super::call::{Call, Dialect};
use super::link::Link;
use super::upload::Upload;
use super::upstream::RoutingState;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use tidegate_core::{Body, Chunk, Response};

/// Bytes that are read of a content at once.
const PIECE: usize = 16 << 10;

/// A question that is written down whole. `target` is what it is called in messages.
pub(super) fn call(
    link: &Rc<Link>,
    routing: RoutingState,
    head: Vec<u8>,
    may_repeat: bool,
    target: &str,
) -> Call {
    Call {
        link: link.clone(),
        routing,
        upload: Upload::whole(head),
        dialect: Dialect::Http,
        upgrade: None,
        may_repeat,
        head_only: false,
        is_conditional: false,
        wants_trailers: false,
        interim: None,
        range: None,
        back: None,
        elsewhere: None,
        target: target.into(),
    }
}

/// Whether these are the words of the application: else the server says why it has none.
pub fn is_answered(response: &Response) -> bool {
    response.author.is_application()
}

/// All of a content; `None` where it is longer than `most` bytes.
///
/// # Errors
/// It broke off.
pub(super) async fn content(body: Body, most: usize) -> io::Result<Option<Vec<u8>>> {
    match body {
        Body::Stream { len, .. } if len.is_some_and(|len| len > most as u64) => Ok(None),
        Body::Stream { mut stream, .. } => {
            let mut content = Vec::new();
            let mut buffer = vec![0; most.saturating_add(1).min(PIECE)];
            while content.len() <= most {
                match poll_fn(|cx| stream.poll_chunk(cx, &mut buffer)).await? {
                    Chunk::Data(count) => {
                        content.extend_from_slice(buffer.get(..count.get()).unwrap_or_default());
                    }
                    Chunk::Trailers(_) | Chunk::End => return Ok(Some(content)),
                }
            }
            Ok(None)
        }
        Body::Bytes(content) => Ok(Some(content).filter(|content| content.len() <= most)),
        _ => Ok(Some(Vec::new())),
    }
}
