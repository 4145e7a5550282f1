//! Answers whose end only the end of the connection tells: those of CGI and SCGI.
//!
//! A script writes what it has to say and ends, and both come a moment apart. Who waits for that moment can send a
//! small answer whole, with its length and in one write; `call` does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tidegate_client::Connection;
use tidegate_io::runtime;
use tidegate_io::timer::{self, Deadline};

/// How long the end is waited for. Nobody sees it of an answer that goes on.
const MOMENT: Duration = Duration::from_millis(5);
/// Bytes of an answer that is not small any more.
const SMALL: usize = 16 << 10;

/// Reads on for a moment, or until the connection has ended, or all that was `announced` is here, or the answer is not
/// small. `stdout` is the content that is here already.
///
/// # Errors
/// The connection has failed.
pub(super) async fn gather(
    connection: &Connection,
    announced: Option<u64>,
    stdout: &mut Vec<u8>,
    has_ended: &mut bool,
) -> io::Result<()> {
    let enough = announced.and_then(|len| usize::try_from(len).ok()).map_or(SMALL, |len| len.min(SMALL));
    let mut deadline: Option<Deadline> = None;
    std::future::poll_fn(|cx| {
        while !*has_ended && stdout.len() < enough {
            let received = runtime::with_scratch(|scratch| {
                let room = scratch.len().min(SMALL);
                let received = connection.poll_recv(cx, &mut scratch[..room]);
                if let Poll::Ready(Ok(count)) = received {
                    stdout.extend_from_slice(&scratch[..count]);
                }
                received
            });
            match received {
                Poll::Ready(received) => *has_ended = received? == 0,
                Poll::Pending => {
                    let deadline = deadline.get_or_insert_with(|| timer::after(MOMENT));
                    return Pin::new(deadline).poll(cx).map(Ok);
                }
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}
