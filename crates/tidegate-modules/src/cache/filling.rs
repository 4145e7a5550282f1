//! Content on its way from an application into the store. It belongs to the store from its head on, not to the client that has set it off.

use super::rest::Rest;
use crate::compress::file_source::FileSource;
use crate::compress::stream::{BytesSource, MessageSource, SharedSource};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_cache::{Fill, Full};
use tidegate_core::Body;
use tidegate_core::body_stream::BodyStream;
use tidegate_io::{runtime, timer};

/// How long a fetch waits for a disk that is to have its content.
const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// What is left to come is fetched to its end although nobody reads it any more, bytes.
const WORTH_ENDING: u64 = 16 << 20;
/// Fetches of a route, on one worker, that go on although their clients have gone: nothing else bounds them, since they hold no place.
const MOST_UNATTENDED: usize = 64;

/// A fetch that goes on without a client, as long as it does.
pub(super) struct Unattended(Rc<Cell<usize>>);

impl Unattended {
    /// `None`: as many do already as may.
    pub(super) fn begin(count: &Rc<Cell<usize>>) -> Option<Unattended> {
        if count.get() >= MOST_UNATTENDED {
            return None;
        }
        count.set(count.get() + 1);
        Some(Unattended(count.clone()))
    }
}

impl Drop for Unattended {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Moves content into the store, to its end or until that is worth nothing any more. Where it breaks off, the application is asked
/// for the rest; nobody who reads notices. Where that is in vain too, what has come stays as a part, if it can be told from others.
pub(super) async fn fill_up(
    fill: Fill,
    body: Body,
    (len, mut rest): (Option<u64>, Option<Rest>),
    unattended: &Rc<Cell<usize>>,
) {
    let Some(mut source) = source_of(body) else { return };
    // It ends before the connection of its source does: whoever sees that end finds what is kept.
    let mut fill = fill;
    if rest.is_some() {
        fill.keeps_part();
    }
    let (mut room, mut alone) = (Vec::new(), None);
    loop {
        let came = poll_fn(|cx| pull(cx, &mut *source, &mut room)).await.ok();
        if came == Some(0) && len.is_none_or(|len| len == fill.filled()) {
            fill.complete();
            return;
        }
        if came.unwrap_or(0) == 0 {
            // Where no more can be had readers see that it ends too early.
            let Some(rest) = &mut rest else { return };
            let Some(more) = rest.from(fill.filled()).await.and_then(source_of) else { return };
            source = more;
            continue;
        }
        match append(&mut fill, &room).await {
            Ok(()) => {}
            Err(Full::Unread) => return,
            // Who sends more than it has said may have sent anything.
            Err(Full::Length) => return fill.break_off(),
        }
        if fill.readers() > 0 {
            alone = None;
            continue;
        }
        alone = alone.or_else(|| Unattended::begin(unattended));
        if (alone.is_none() || !is_worth_ending(fill.filled(), len)) && fill.close_unread() {
            return;
        }
    }
}

/// `None`: that is not content which could be stored.
fn source_of(body: Body) -> Option<Box<dyn BodyStream>> {
    Some(match body {
        Body::Stream { stream, .. } => stream,
        Body::File(piece) => Box::new(FileSource::new(piece)),
        Body::Bytes(bytes) => Box::new(BytesSource { bytes, taken: 0 }),
        Body::Prebuilt(message) => Box::new(MessageSource { message, taken: 0 }),
        Body::Shared(piece) => Box::new(SharedSource(piece)),
        Body::Empty => Box::new(BytesSource { bytes: Vec::new(), taken: 0 }),
        Body::Parts(_) | Body::Tunnel { .. } => return None,
    })
}

/// Appends all of it, as there is room.
async fn append(fill: &mut Fill, mut bytes: &[u8]) -> Result<(), Full> {
    while !bytes.is_empty() {
        room(fill).await;
        let count = fill.append(bytes)?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Waits for room. A disk that takes nothing for long is done without; clients may take their time.
async fn room(fill: &mut Fill) {
    let mut late = pin!(timer::after(DISK_PATIENCE));
    poll_fn(|cx| {
        loop {
            if fill.poll_room(cx).is_ready() {
                return Poll::Ready(());
            }
            if late.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            fill.give_up_slow_disk();
            late.set(timer::after(DISK_PATIENCE));
        }
    })
    .await;
}

/// Takes what has come, in place of what is in `room`: the bytes, none at the end.
fn pull(cx: &mut Context<'_>, source: &mut dyn BodyStream, room: &mut Vec<u8>) -> Poll<io::Result<usize>> {
    runtime::with_scratch(|buffer| {
        let chunk = match source.poll_chunk(cx, buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(chunk) => chunk?,
        };
        room.clear();
        room.extend_from_slice(&buffer[..chunk.len()]);
        Poll::Ready(Ok(chunk.len()))
    })
}

/// Whether what is left is fetched although nobody reads it: little, or less than has come.
fn is_worth_ending(come: u64, len: Option<u64>) -> bool {
    match len {
        Some(len) => len.saturating_sub(come) <= WORTH_ENDING.max(come),
        None => come <= WORTH_ENDING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_fetches_go_on_without_a_client() {
        let count = Rc::new(Cell::new(0));
        let mut held: Vec<_> = (0..MOST_UNATTENDED).map(|_| Unattended::begin(&count).unwrap()).collect();
        assert!(Unattended::begin(&count).is_none());
        held.pop();
        assert!(Unattended::begin(&count).is_some());
        drop(held);
        assert_eq!(count.get(), 0);
    }
}
