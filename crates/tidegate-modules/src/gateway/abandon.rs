//! What is left of a request by FastCGI or CGI when nobody reads its answer any more.
//!
//! Where all of the answer is here that anybody wants, only the record that ends the request is missing: it is waited
//! for ([`finish`]), and connection and place are the next request's. So is the end of a CGI script, which may have more to do
//! than to answer: it is ended with its connection. Else the client has gone, and the application is
//! told ([`abandon`]): its place is free at once, and the connection is closed when it has ended the request, or soon. It
//! is not used again: applications that have not read the record by the end of the request take it for the beginning of
//! the next.

use super::answer::Content;
use super::stream::Checkout;
use super::upload::REQUEST;
use super::upstream::Selection;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_client::Connection;
use tidegate_core::log;
use tidegate_io::clock::monotonic_ns;
use tidegate_io::{runtime, timer};
use tidegate_wire::fastcgi::{self, ResponseDecoder};

/// How long an application may take to end what nobody wants any more.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// Requests of this worker that are being ended.
    static ENDING: Cell<usize> = const { Cell::new(0) };
}

/// More are closed at once: clients that come and go must not pile up connections.
const MOST: usize = 256;
/// Bytes that are read for nobody while the end is waited for: an application that sends more does not end soon.
const SURPLUS: usize = 64 << 10;
/// The same of a script, which is asked for the head of an answer as for all of it.
const SCRIPT_SURPLUS: usize = 16 << 20;

/// Waits for the end of a request, for so long, without a client. All of the request has been sent, and of the answer
/// nobody wants more. Of the places of a pool, scripts that have answered take half for so long, and others for a second.
pub(super) fn finish(mut line: Checkout, content: Content, patience: Duration) {
    if let Some(pick) = &mut line.pick {
        pick.end_try();
    }
    if line.connection.awaits_end_mark() {
        let may_stay = line.pick.as_ref().is_none_or(Selection::outlasts_answer);
        let patience = if may_stay { patience } else { PATIENCE.min(patience) };
        runtime::try_with(|runtime| runtime.spawn_awaited(await_script(line, patience, may_stay)));
        return;
    }
    if !content.ends_with_record() {
        return;
    }
    if ENDING.get() >= MOST {
        return give_up(line, content);
    }
    // There is none any more where the worker itself ends.
    runtime::try_with(|runtime| runtime.spawn(await_end(line, content, patience)));
}

async fn await_end(line: Checkout, mut content: Content, patience: Duration) {
    let count = Counted::new();
    let mut deadline = Box::pin(timer::after(patience));
    let mut left = SURPLUS;
    let has_ended = poll_fn(|cx| {
        while !content.is_complete() {
            let polled = runtime::with_scratch(|scratch| {
                let polled = line.connection.poll_recv(cx, scratch);
                polled.map(|received| match received {
                    Ok(0) | Err(_) => false,
                    Ok(count) => {
                        left = left.saturating_sub(count);
                        content.decode_in_place(scratch, count).is_ok() && left > 0
                    }
                })
            });
            match polled {
                Poll::Ready(true) => {}
                Poll::Ready(false) => break,
                Poll::Pending => return deadline.as_mut().poll(cx).map(|()| false),
            }
        }
        Poll::Ready(content.is_complete())
    })
    .await;
    drop(count);
    if !has_ended {
        give_up(line, content);
    } else if content.may_keep() {
        line.pool.put(line.connection, monotonic_ns());
    }
}

/// Waits for the end of a script; there are no more of them than places.
async fn await_script(line: Checkout, patience: Duration, may_stay: bool) {
    let mut deadline = Box::pin(timer::after(patience));
    let mut left = SCRIPT_SURPLUS;
    let is_late = poll_fn(|cx| {
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let mut turn = SURPLUS;
        while left > 0 {
            let received = std::task::ready!(runtime::with_scratch(|scratch| {
                let room = left.min(scratch.len());
                line.connection.poll_recv(cx, &mut scratch[..room])
            }));
            match received {
                Ok(0) | Err(_) => break,
                Ok(count) => (left, turn) = (left - count, turn.saturating_sub(count)),
            }
            if turn == 0 {
                cx.waker().wake_by_ref(); // it writes as fast as it is read, and others wait
                return Poll::Pending;
            }
        }
        Poll::Ready(false)
    })
    .await;
    let why = match (is_late, left) {
        (true, _) if may_stay => format!("it had {patience:?} for that"),
        (true, _) => format!("others that go on have half of the places, and it had {patience:?}"),
        (false, 0) => format!("it has written more than {} MiB for nobody", SCRIPT_SURPLUS >> 20),
        (false, _) => return,
    };
    let name = line.pick.as_ref().and_then(Selection::pool_name).unwrap_or("cgi");
    log::warn(format_args!("pool {name}: a script that has answered and goes on is ended: {why}"));
}

/// Lets go of an answer that has not ended.
pub(super) fn give_up(line: Checkout, content: Content) {
    if let Some(decoder) = content.into_records() {
        abandon(line.connection, decoder);
    }
}

/// Tells the application, and lets go of the connection in its time. All of the request has been sent.
pub(super) fn abandon(connection: Connection, decoder: ResponseDecoder) {
    if decoder.is_complete() || ENDING.get() >= MOST {
        return;
    }
    // There is none any more where the worker itself ends.
    runtime::try_with(|runtime| runtime.spawn(end(connection, decoder)));
}

async fn end(connection: Connection, mut decoder: ResponseDecoder) {
    let _count = Counted::new();
    let mut record = Vec::new();
    fastcgi::abort_request(&mut record, REQUEST);
    let mut at = 0;
    let mut deadline = Box::pin(timer::after(PATIENCE));
    poll_fn(|cx| {
        while let Some(rest) = record.get(at..).filter(|rest| !rest.is_empty()) {
            match connection.poll_send(cx, rest) {
                Poll::Ready(Ok(sent)) => at += sent,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if poll_end(cx, &connection, &mut decoder).is_ready() {
            return Poll::Ready(());
        }
        deadline.as_mut().poll(cx)
    })
    .await;
}

/// Reads what comes, for nobody, up to the end of the request or of the connection.
fn poll_end(cx: &mut Context<'_>, connection: &Connection, decoder: &mut ResponseDecoder) -> Poll<()> {
    loop {
        let polled = runtime::with_scratch(|scratch| {
            let polled = connection.poll_recv(cx, scratch);
            polled.map(|received| match received {
                Ok(0) | Err(_) => true,
                Ok(count) => has_ended(decoder, scratch.get(..count).unwrap_or_default()),
            })
        });
        match polled {
            Poll::Ready(true) => return Poll::Ready(()),
            Poll::Ready(false) => {}
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn has_ended(decoder: &mut ResponseDecoder, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() && !decoder.is_complete() {
        let Ok(step) = decoder.decode(bytes) else { return true };
        bytes = bytes.get(step.consumed..).unwrap_or_default();
    }
    decoder.is_complete()
}

struct Counted;

impl Counted {
    fn new() -> Counted {
        ENDING.set(ENDING.get() + 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ENDING.set(ENDING.get().saturating_sub(1));
    }
}
